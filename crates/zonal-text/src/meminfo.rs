//! `/sys/devices/system/node/nodeN/meminfo` (LB-I.4) and `/proc/meminfo`: amounts of memory.
//!
//! ```text
//! Node 0 MemTotal:        2017400 kB       of a node: each line says which
//! Node 0 HugePages_Total:     0            a number of huge pages, without a unit
//!
//! MemTotal:        4018552 kB              of the machine
//! HugePages_Total:       0
//! ```

use std::fmt;

use crate::error::Error;
use crate::layout::Layout;
use crate::lines::TextLines;

/// Columns of the name and its colon.
const NAME_WIDTH: usize = 16;

/// Columns of the value, at least.
const VALUE_WIDTH: usize = 8;

/// The names that 6.1 prints in one column less, in the texts of nodes only.
const NARROW_6_1: [&str; 2] = ["FileHugePages", "FilePmdMapped"];

/// A whole text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Document {
    /// The node, or `None` in `/proc/meminfo`.
    pub node: Option<u32>,
    /// The release whose form the text has: 6.1, which prints two names of a node in a narrower
    /// column, or any later one.
    pub layout: Layout,
    /// The lines in the order of the text.
    pub amounts: Vec<Amount>,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Amount {
    /// The name without its colon, such as `MemTotal` or `Active(anon)`.
    pub name: String,
    /// The value, in KiB or in huge pages.
    pub value: u64,
    /// Whether the value is in KiB, which the kernel calls `kB`.
    pub in_kib: bool,
}

impl Document {
    /// The value of a line.
    pub fn value(&self, name: &str) -> Option<u64> {
        self.amounts.iter().find(|amount| amount.name == name).map(|amount| amount.value)
    }
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Amount { name, value, in_kib } in &self.amounts {
            let label = format!("{name}:");
            let mut width = NAME_WIDTH;
            if let Some(node) = self.node {
                write!(f, "Node {node} ")?;
                let narrow = self.layout == Layout::Linux6_1 && NARROW_6_1.contains(&&**name);
                width -= usize::from(narrow);
            }
            // `HardwareCorrupted` of the machine is too long for the column, and the number of huge
            // pages of a node is printed by another format than the rest.
            if label.len() > NAME_WIDTH || (self.node.is_some() && !in_kib) {
                write!(f, "{label:<NAME_WIDTH$} {value:>5}")?;
            } else {
                write!(f, "{label:<width$}{value:>VALUE_WIDTH$}")?;
            }
            writeln!(f, "{}", if *in_kib { " kB" } else { "" })?;
        }
        Ok(())
    }
}

/// Reads the text of `nodeN/meminfo` or `/proc/meminfo`; the first line says which.
///
/// # Errors
/// Names the line that is of no known form, is of another node than the first, or ends without a
/// newline; a text without lines is cut short.
pub fn parse(text: &str) -> Result<Document, Error> {
    let mut lines = TextLines::new("meminfo", text);
    let mut document = Document::default();
    while let Some(line) = lines.next()? {
        let expected = match document.node {
            None => "`NAME: N kB` or `NAME: N`",
            Some(_) => "`Node N NAME: N kB` of the same node",
        };
        let unexpected = || lines.unexpected(expected, line);
        let mut rest = line;
        let mut node = None;
        if let Some(of_node) = line.strip_prefix("Node ") {
            let (id, after) = of_node.split_once(' ').ok_or_else(unexpected)?;
            node = Some(lines.node(id)?);
            rest = after;
        }
        if document.amounts.is_empty() {
            document.node = node;
        } else if document.node != node {
            return Err(unexpected());
        }
        let (name, rest) = rest.split_once(':').ok_or_else(unexpected)?;
        let (column, in_kib) = match rest.strip_suffix(" kB") {
            Some(column) => (column, true),
            None => (rest, false),
        };
        let digits = column.trim_start_matches(' ');
        let value = lines.number("value", digits)?;
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(unexpected());
        }
        let columns = name.len() + 1 + column.len();
        let is_narrow = columns < NAME_WIDTH + digits.len().max(VALUE_WIDTH);
        if node.is_some() && NARROW_6_1.contains(&name) && is_narrow {
            document.layout = Layout::Linux6_1;
        }
        document.amounts.push(Amount { name: name.to_owned(), value, in_kib });
    }
    if document.amounts.is_empty() {
        return Err(lines.ended("`NAME: N kB`"));
    }
    Ok(document)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: &str = "\
Node 1 MemTotal:        2017400 kB
Node 1 Inactive(anon):      208 kB
Node 1 HugePages_Total:     0
Node 1 HugePages_Surp:  12345
";
    const MACHINE: &str = "\
MemTotal:        4018552 kB
VmallocTotal:   34359738367 kB
HardwareCorrupted:     0 kB
HugePages_Total:       0
";

    #[test]
    fn amounts_are_read_and_printed_back() {
        let node = parse(NODE).unwrap();
        assert_eq!(node.to_string(), NODE);
        assert_eq!(node.node, Some(1));
        assert_eq!(node.value("Inactive(anon)"), Some(208));
        assert!(!node.amounts[3].in_kib);
        assert_eq!(node.layout, Layout::Linux6_12);
        let machine = parse(MACHINE).unwrap();
        assert_eq!(machine.to_string(), MACHINE);
        assert_eq!(machine.node, None);
        assert_eq!(machine.value("VmallocTotal"), Some(34_359_738_367));
    }

    #[test]
    fn narrow_columns_of_6_1_are_kept() {
        for value in ["       0", "12345678", "123456789"] {
            let wide = format!("Node 0 FileHugePages:  {value} kB\n");
            let narrow = wide.replacen(":  ", ": ", 1);
            let read = |text: &str| parse(text).unwrap();
            assert_eq!(read(&wide).layout, Layout::Linux6_12);
            assert_eq!(read(&narrow).layout, Layout::Linux6_1);
            assert_eq!(read(&wide).to_string(), wide);
            assert_eq!(read(&narrow).to_string(), narrow);
        }
    }

    #[test]
    fn errors_name_the_line() {
        for (from, to, part) in [
            ("208 kB", "x kB", "meminfo: line 2: bad value: expected a decimal number"),
            ("208 kB", "208 MB", "line 2: bad value"),
            ("Node 1 Inact", "Node 2 Inact", "line 2: unexpected line: expected `Node N"),
            ("Node 1 Inact", "Node x Inact", "line 2: bad node"),
            ("Node 1 HugePages_T", "HugePages_T", "of the same node"),
            ("MemTotal:", "MemTotal", "line 1: unexpected line: expected `NAME: N kB`"),
            ("MemTotal:", "Mem Total:", "line 1: unexpected line"),
            ("12345\n", "12345", "line 4: file is cut short"),
        ] {
            let message = parse(&NODE.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
        assert!(parse("").is_err());
    }
}
