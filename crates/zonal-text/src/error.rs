//! Parse errors: the fault, its line, what was expected and what was found.

use std::fmt;

/// Longest piece of a damaged text that a message quotes, in characters.
const EXCERPT_CHARS_MAX: usize = 60;

/// Why a text could not be read.
///
/// The message always has the same shape:
///
/// ```text
/// zoneinfo: line 17: bad value: expected a decimal number, found `x`
/// ```
///
/// A parser sees a text and not where it came from; who knows the file's name puts
/// [`line`](Self::line) and [`kind`](Self::kind) into a message of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    format: &'static str,
    line: u64,
    kind: ErrorKind,
}

/// The fault in a text, without its place.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The text ends in the middle of something.
    CutShort {
        /// What should have come.
        expected: &'static str,
        /// The last line.
        found: String,
    },
    /// A line is of no known kind, or not where it can be.
    UnexpectedLine {
        /// What could have stood there.
        expected: &'static str,
        /// The line.
        found: String,
    },
    /// A part of a line cannot be read.
    BadField {
        /// The part's name.
        field: &'static str,
        /// The expected form.
        expected: &'static str,
        /// The form found.
        found: String,
    },
}

impl Error {
    pub(crate) fn new(format: &'static str, line: u64, kind: ErrorKind) -> Self {
        Error { format, line, kind }
    }

    /// The format that the text was read as, such as `zoneinfo`.
    pub fn format(&self) -> &'static str {
        self.format
    }

    /// The line, counted from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// The fault.
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// The fault, by value.
    pub fn into_kind(self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: line {}: {}", self.format, self.line, self.kind)
    }
}

impl std::error::Error for Error {}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorKind::CutShort { expected, found } => {
                write!(f, "file is cut short: expected {expected}, found {found}")
            }
            ErrorKind::UnexpectedLine { expected, found } => {
                write!(f, "unexpected line: expected {expected}, found `{found}`")
            }
            ErrorKind::BadField { field, expected, found } => {
                write!(f, "bad {field}: expected {expected}, found `{found}`")
            }
        }
    }
}

impl std::error::Error for ErrorKind {}

/// The beginning of `text`, printable, for a message.
pub(crate) fn excerpt(text: &str) -> String {
    let mut chars = text.chars();
    let mut shown: String =
        chars.by_ref().take(EXCERPT_CHARS_MAX).flat_map(char::escape_debug).collect();
    if chars.next().is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_names_format_line_expected_and_found() {
        let kind = ErrorKind::BadField { field: "cpu", expected: "a number", found: "x".into() };
        let error = Error::new("zoneinfo", 17, kind);
        assert_eq!(error.to_string(), "zoneinfo: line 17: bad cpu: expected a number, found `x`");
    }

    #[test]
    fn excerpt_is_short_and_printable() {
        assert_eq!(excerpt("a\0b"), "a\\0b");
        assert_eq!(excerpt(&"x".repeat(1000)).chars().count(), EXCERPT_CHARS_MAX + 1);
    }
}
