//! Lines of a text that is in memory, for the parsers of the kernel's `/proc` files.
//!
//! Those files are small and read once, so these parsers work on `&str` and are written to be read.
//! What they share: a line has a number, a text that does not end in a newline was cut short, and
//! an error names the line.

use crate::error::{Position, TraceError, TraceErrorKind, excerpt};

/// The lines of a text, with one line of look-ahead.
pub(crate) struct TextLines<'a> {
    file: &'static str,
    lines: std::iter::Peekable<std::iter::Enumerate<std::str::SplitInclusive<'a, char>>>,
    number: u64,
}

impl<'a> TextLines<'a> {
    /// The lines of `text`, called `file` in messages.
    pub(crate) fn new(file: &'static str, text: &'a str) -> Self {
        let lines = text.split_inclusive('\n').enumerate().peekable();
        TextLines { file, lines, number: 0 }
    }

    /// The next line without its newline, or `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<&'a str>, TraceError> {
        let Some((index, line)) = self.lines.next() else {
            return Ok(None);
        };
        self.number = index as u64 + 1;
        match line.strip_suffix('\n') {
            Some(line) => Ok(Some(line)),
            None => Err(self.cut_short("the last line to end in a newline", line)),
        }
    }

    /// The next line without consuming it; without its newline if it has one.
    pub(crate) fn peek(&mut self) -> Option<&'a str> {
        self.lines.peek().map(|(_, line)| line.strip_suffix('\n').unwrap_or(line))
    }

    /// The next line, where the text may not end yet.
    pub(crate) fn expect(&mut self, expected: &'static str) -> Result<&'a str, TraceError> {
        match self.next()? {
            Some(line) => Ok(line),
            None => Err(self.ended(expected)),
        }
    }

    /// The error of a text that ends where `expected` should stand.
    pub(crate) fn ended(&self, expected: &str) -> TraceError {
        let kind = TraceErrorKind::CutShort {
            expected: expected.to_owned(),
            found: "the end of the file".to_owned(),
        };
        TraceError::new(self.file, Position::Line(self.number + 1), kind)
    }

    /// The error of the current line being something other than `expected`.
    pub(crate) fn unexpected(&self, expected: &'static str, line: &str) -> TraceError {
        let found = excerpt(line.as_bytes());
        self.error(TraceErrorKind::UnexpectedLine { expected, found })
    }

    /// The error of a field of the current line.
    pub(crate) fn bad(
        &self,
        field: &'static str,
        expected: &'static str,
        found: &str,
    ) -> TraceError {
        let found = excerpt(found.as_bytes());
        self.error(TraceErrorKind::BadField { field, expected, found })
    }

    /// A decimal number in the current line.
    pub(crate) fn number(&self, field: &'static str, text: &str) -> Result<u64, TraceError> {
        let number = crate::fields::decimal(text.as_bytes());
        number.ok_or_else(|| self.bad(field, "a decimal number", text))
    }

    /// Decimal numbers separated by spaces, at least one.
    pub(crate) fn numbers(&self, field: &'static str, text: &str) -> Result<Vec<u64>, TraceError> {
        let numbers: Vec<u64> = text
            .split_ascii_whitespace()
            .map(|number| self.number(field, number))
            .collect::<Result<_, _>>()?;
        if numbers.is_empty() {
            return Err(self.bad(field, "decimal numbers", text));
        }
        Ok(numbers)
    }

    /// The node and zone of `Node 0, zone   Normal…`, and what follows the zone's name.
    pub(crate) fn node_and_zone<'b>(
        &self,
        line: &'b str,
    ) -> Result<(u32, &'b str, &'b str), TraceError> {
        let expected = "`Node N, zone NAME`";
        let unexpected = || self.unexpected(expected, line);
        let rest = line.strip_prefix("Node ").ok_or_else(unexpected)?;
        let (node, rest) = rest.split_once(", zone ").ok_or_else(unexpected)?;
        let node = self.node(node.trim_start())?;
        let rest = rest.trim_start_matches(' ');
        let end = rest.find([' ', ',']).unwrap_or(rest.len());
        let (zone, rest) = rest.split_at(end);
        if zone.is_empty() {
            return Err(unexpected());
        }
        Ok((node, zone, rest))
    }

    fn node(&self, text: &str) -> Result<u32, TraceError> {
        let number = self.number("node", text)?;
        u32::try_from(number)
            .ok()
            .filter(|node| *node < NODES_MAX)
            .ok_or_else(|| self.bad("node", "a number below 1024", text))
    }

    fn error(&self, kind: TraceErrorKind) -> TraceError {
        TraceError::new(self.file, Position::Line(self.number), kind)
    }

    fn cut_short(&self, expected: &str, line: &str) -> TraceError {
        let found = format!("`{}`", excerpt(line.as_bytes()));
        self.error(TraceErrorKind::CutShort { expected: expected.to_owned(), found })
    }
}

/// More nodes than any Linux machine has (`CONFIG_NODES_SHIFT` is at most 10).
pub(crate) const NODES_MAX: u32 = 1024;
