//! `/proc/iomem`: which physical addresses are memory.
//!
//! ```text
//! 00001000-0009fbff : System RAM           addresses, both included
//! 000f0000-000fffff : Reserved
//!   000f0000-000fffff : System ROM         two blanks more: inside the region before
//! ```

use std::fmt;

use crate::error::Error;
use crate::lines::TextLines;

/// A whole text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Document {
    /// The regions in the order of the text: by address, outer before inner.
    pub regions: Vec<Region>,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// How many regions this one lies in.
    pub depth: usize,
    /// First byte.
    pub start: u64,
    /// Last byte: not below `start`.
    pub end: u64,
    /// Its name, such as `System RAM`.
    pub name: String,
}

impl Document {
    /// The regions of memory that Linux manages: `System RAM` inside nothing else.
    pub fn system_ram(&self) -> impl Iterator<Item = &Region> {
        self.regions.iter().filter(|region| region.depth == 0 && region.name == "System RAM")
    }
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.regions.iter().try_for_each(|Region { depth, start, end, name }| {
            // A width would panic where the program that made the region nests it absurdly deep.
            (0..*depth).try_for_each(|_| f.write_str("  "))?;
            writeln!(f, "{start:08x}-{end:08x} : {name}")
        })
    }
}

/// Reads the text of `/proc/iomem`. Without the right to see addresses the kernel prints all of
/// them as 0, and so they are read.
///
/// # Errors
/// Names the line that is no region, or a region that lies in no region before it.
pub fn parse(text: &str) -> Result<Document, Error> {
    let mut lines = TextLines::new("iomem", text);
    let mut regions: Vec<Region> = Vec::new();
    while let Some(line) = lines.next()? {
        let expected = "`START-END : NAME`";
        let unexpected = || lines.unexpected(expected, line);
        let rest = line.trim_start_matches(' ');
        let blanks = line.len() - rest.len();
        let depth_max = regions.last().map_or(0, |before| before.depth + 1);
        if blanks % 2 != 0 || blanks / 2 > depth_max {
            return Err(lines.unexpected("two blanks for each region this one lies in", line));
        }
        let (range, name) = rest.split_once(" : ").ok_or_else(unexpected)?;
        let (start, end) = range.split_once('-').ok_or_else(unexpected)?;
        let address = |text| {
            hexadecimal(text).ok_or_else(|| lines.bad("address", "hexadecimal digits", text))
        };
        let (start, end) = (address(start)?, address(end)?);
        if end < start {
            return Err(lines.bad("region", "an end that is not below the start", range));
        }
        regions.push(Region { depth: blanks / 2, start, end, name: name.to_owned() });
    }
    if regions.is_empty() {
        return Err(lines.ended("`START-END : NAME`"));
    }
    Ok(Document { regions })
}

fn hexadecimal(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00001000-0009fbff : System RAM
000f0000-000fffff : Reserved
  000f0000-000fffff : System ROM
100000000-17fffffff : System RAM
  b0000000-bfffffff : Reserved
    b0000000-bfffffff : pnp 00:05
";

    #[test]
    fn regions_are_read_and_printed_back() {
        let iomem = parse(TEXT).unwrap();
        assert_eq!(iomem.to_string(), TEXT);
        let ram: Vec<(u64, u64)> = iomem.system_ram().map(|r| (r.start, r.end)).collect();
        assert_eq!(ram, [(0x1000, 0x9fbff), (0x1_0000_0000, 0x1_7fff_ffff)]);
        assert_eq!(iomem.regions[5].depth, 2);
        assert_eq!(iomem.regions[5].name, "pnp 00:05");
    }

    #[test]
    fn errors_name_the_line() {
        for (from, to, part) in [
            ("00001000", "0000100g", "line 1: bad address: expected hexadecimal digits"),
            ("000f0000-000fffff : R", "000f0000 000fffff : R", "line 2: unexpected line"),
            ("0-000fffff : R", "0-0 : R", "line 2: bad region: expected an end"),
            ("  000f", "   000f", "line 3: unexpected line: expected two blanks"),
            ("  000f", "      000f", "line 3: unexpected line: expected two blanks"),
            ("100000000-17fffffff :", "100000000-17fffffff", "line 4: unexpected line"),
            ("pnp 00:05\n", "pnp", "line 6: file is cut short"),
        ] {
            let message = parse(&TEXT.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
        assert!(parse("").is_err());
    }
}
