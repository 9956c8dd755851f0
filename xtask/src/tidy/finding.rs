//! What a check reports.

use std::fmt;

/// One place where a rule is broken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    pub path: String,
    /// Counted from 1.
    pub line: usize,
    pub check: &'static str,
    pub message: String,
}

impl Finding {
    pub fn new(path: &str, line: usize, check: &'static str, message: impl Into<String>) -> Self {
        debug_assert!(line > 0, "lines are counted from 1");
        Self { path: path.to_owned(), line, check, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: [{}] {}", self.path, self.line, self.check, self.message)
    }
}
