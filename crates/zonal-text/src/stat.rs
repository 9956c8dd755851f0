//! A name and a value: the usual line of these texts.

use crate::error::Error;
use crate::lines::TextLines;

/// A name and a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// The name as printed, without the colon that some lines have.
    pub name: String,
    /// The value.
    pub value: u64,
}

impl Stat {
    /// `name` with `value`.
    pub fn new(name: impl Into<String>, value: u64) -> Self {
        Stat { name: name.into(), value }
    }

    /// A name, perhaps a colon, and a value.
    pub(crate) fn parse(lines: &TextLines<'_>, line: &str) -> Result<Stat, Error> {
        let mut words = line.split_ascii_whitespace();
        let (Some(name), Some(value), None) = (words.next(), words.next(), words.next()) else {
            return Err(lines.unexpected("a name and a number", line));
        };
        let name = name.trim_end_matches(':');
        if name.is_empty() {
            return Err(lines.unexpected("a name and a number", line));
        }
        Ok(Stat { name: name.to_owned(), value: lines.number("value", value)? })
    }
}

/// The value of the first of `stats` with this name.
pub(crate) fn find(stats: &[Stat], name: &str) -> Option<u64> {
    stats.iter().find(|stat| stat.name == name).map(|stat| stat.value)
}
