//! Where a value stands in a text.

/// A number and where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number {
    /// The number.
    pub value: u64,
    /// Its line, counted from 1.
    pub line: u64,
}

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// What messages call the file.
    pub file: String,
    /// The line, counted from 1.
    pub line: u64,
}

impl Place {
    /// Line `line` of `file`.
    pub fn new(file: &str, line: u64) -> Place {
        Place { file: file.to_owned(), line }
    }
}
