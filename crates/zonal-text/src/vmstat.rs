//! Counters, one `name value` per line: `/proc/vmstat` (LB-I.3), and `vmstat` and `numastat` of
//! `/sys/devices/system/node/nodeN/` (LB-I.4).
//!
//! ```text
//! nr_free_pages 3853271            /proc/vmstat: items of zones, NUMA events, items of nodes,
//! nr_zone_inactive_anon 4          limits, events; at the end `nr_unstable 0`
//! ```

use std::fmt;

use crate::error::Error;
use crate::lines::TextLines;
use crate::stat::{Stat, find};

/// A whole text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Document {
    /// The counters in the order of the text.
    pub stats: Vec<Stat>,
}

impl Document {
    /// The counter of this name.
    pub fn value(&self, name: &str) -> Option<u64> {
        find(&self.stats, name)
    }
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stats.iter().try_for_each(|Stat { name, value }| writeln!(f, "{name} {value}"))
    }
}

/// Reads lines of `name value`.
///
/// # Errors
/// Names the line that is no name and decimal number, or ends without a newline; a text without
/// lines is cut short.
pub fn parse(text: &str) -> Result<Document, Error> {
    let mut lines = TextLines::new("vmstat", text);
    let mut stats = Vec::new();
    while let Some(line) = lines.next()? {
        stats.push(Stat::parse(&lines, line)?);
    }
    if stats.is_empty() {
        return Err(lines.ended("a name and a number"));
    }
    Ok(Document { stats })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_and_printed_back() {
        let text = "nr_free_pages 3853271\nnuma_hit 4\nnr_unstable 0\n";
        let counters = parse(text).unwrap();
        assert_eq!(counters.to_string(), text);
        assert_eq!(counters.value("numa_hit"), Some(4));
        assert_eq!(counters.value("numa_miss"), None);
    }

    #[test]
    fn errors_name_the_line() {
        for (text, part) in [
            ("a 1\nb -2\n", "vmstat: line 2: bad value: expected a decimal number, found `-2`"),
            ("a 1\nb\n", "line 2: unexpected line: expected a name and a number, found `b`"),
            ("a 1 2\n", "line 1: unexpected line"),
            ("a 18446744073709551616\n", "line 1: bad value"),
            ("a 1", "line 1: file is cut short"),
            ("", "line 1: file is cut short"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text:?}: {message}");
        }
    }
}
