//! Lists of CPUs or nodes: `/sys/devices/system/node/nodeN/cpulist`, `…/node/online` and the like.
//!
//! ```text
//! 0-3,5                            one line; an empty one is no CPU
//! ```
//!
//! The kernel prints such lists in order and joins neighbours, so a list that is out of order, or
//! that names a CPU twice, is damaged.

use std::fmt;

use crate::CPUS_MAX;
use crate::error::Error;
use crate::lines::{TextLines, decimal};

/// A whole text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Document {
    /// The CPUs or nodes, lowest first, each once.
    pub ids: Vec<u32>,
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut runs = self.ids.chunk_by(|before, id| before.checked_add(1) == Some(*id));
        let mut separator = "";
        runs.try_for_each(|run| {
            f.write_str(separator)?;
            separator = ",";
            match run {
                [first, .., last] => write!(f, "{first}-{last}"),
                _ => write!(f, "{}", run[0]),
            }
        })?;
        writeln!(f)
    }
}

/// Reads the text of a file such as `cpulist` or `online`.
///
/// # Errors
/// Says what is no CPU below [`CPUS_MAX`] or out of order, or that the text is not one line.
pub fn parse(text: &str) -> Result<Document, Error> {
    let mut lines = TextLines::new("cpu list", text);
    let expected = "CPUs below 8192 in order, such as `0-1,4`";
    let line = lines.expect(expected)?;
    let mut ids: Vec<u32> = Vec::new();
    for range in line.split(',').filter(|_| !line.is_empty()) {
        let bad = || lines.bad("cpu list", expected, range);
        let id = |text: &str| {
            let id = decimal(text).and_then(|id| u32::try_from(id).ok());
            id.filter(|id| *id < CPUS_MAX).ok_or_else(bad)
        };
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (id(first)?, id(last)?);
        // This also keeps a long line from making a long list.
        if first > last || ids.last().is_some_and(|before| *before >= first) {
            return Err(bad());
        }
        ids.extend(first..=last);
    }
    lines.end()?;
    Ok(Document { ids })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_printed_back() {
        for (text, ids) in [
            ("\n", &[][..]),
            ("7\n", &[7]),
            ("0-1\n", &[0, 1]),
            ("0,2\n", &[0, 2]),
            ("0-3,5,7-8\n", &[0, 1, 2, 3, 5, 7, 8]),
            ("8190-8191\n", &[8190, 8191]),
        ] {
            let list = parse(text).unwrap();
            assert_eq!(list.ids, ids);
            assert_eq!(list.to_string(), text);
        }
    }

    #[test]
    fn errors_name_the_range() {
        for (text, part) in [
            ("0-x\n", "line 1: bad cpu list: expected CPUs below 8192"),
            ("3-1\n", "found `3-1`"),
            ("1,1\n", "found `1`"),
            ("0-2,1-3\n", "found `1-3`"),
            ("8192\n", "found `8192`"),
            ("0,,2\n", "found ``"),
            ("0-1-2\n", "found `0-1-2`"),
            ("+1\n", "found `+1`"),
            ("0-1", "cut short"),
            ("", "cut short"),
            ("0\n1\n", "line 2: unexpected line"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text:?}: {message}");
        }
    }
}
