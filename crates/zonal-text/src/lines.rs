//! Lines of a text that is in memory: what all parsers share.
//!
//! The kernel's texts are small and read once, so the parsers work on `&str` and are written to be
//! read. To all of them a line has a number, a text that does not end in a newline was cut short,
//! and an error names the line.

use crate::NODES_MAX;
use crate::error::{Error, ErrorKind, excerpt};

/// The lines of a text, with one line of look-ahead.
pub(crate) struct TextLines<'a> {
    format: &'static str,
    lines: std::iter::Peekable<std::iter::Enumerate<std::str::SplitInclusive<'a, char>>>,
    number: u64,
}

impl<'a> TextLines<'a> {
    /// The lines of `text`, called `format` in messages.
    pub(crate) fn new(format: &'static str, text: &'a str) -> Self {
        let lines = text.split_inclusive('\n').enumerate().peekable();
        TextLines { format, lines, number: 0 }
    }

    /// The next line without its newline, or `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<&'a str>, Error> {
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
    pub(crate) fn expect(&mut self, expected: &'static str) -> Result<&'a str, Error> {
        match self.next()? {
            Some(line) => Ok(line),
            None => Err(self.ended(expected)),
        }
    }

    /// Nothing may follow.
    pub(crate) fn end(&mut self) -> Result<(), Error> {
        match self.next()? {
            Some(line) => Err(self.unexpected("the end of the file", line)),
            None => Ok(()),
        }
    }

    /// The error of a text that ends where `expected` should stand.
    pub(crate) fn ended(&self, expected: &'static str) -> Error {
        let kind = ErrorKind::CutShort { expected, found: "the end of the file".to_owned() };
        Error::new(self.format, self.number + 1, kind)
    }

    /// The error of the current line being something other than `expected`.
    pub(crate) fn unexpected(&self, expected: &'static str, line: &str) -> Error {
        let found = excerpt(line);
        self.error(ErrorKind::UnexpectedLine { expected, found })
    }

    /// The error of a field of the current line.
    pub(crate) fn bad(&self, field: &'static str, expected: &'static str, found: &str) -> Error {
        let found = excerpt(found);
        self.error(ErrorKind::BadField { field, expected, found })
    }

    /// A decimal number in the current line.
    pub(crate) fn number(&self, field: &'static str, text: &str) -> Result<u64, Error> {
        let number = decimal(text);
        number.ok_or_else(|| self.bad(field, "a decimal number", text))
    }

    /// Decimal numbers separated by spaces, at least one.
    pub(crate) fn numbers(&self, field: &'static str, text: &str) -> Result<Vec<u64>, Error> {
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
    ) -> Result<(u32, &'b str, &'b str), Error> {
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

    /// A node's id in the current line.
    pub(crate) fn node(&self, text: &str) -> Result<u32, Error> {
        let number = self.number("node", text)?;
        u32::try_from(number)
            .ok()
            .filter(|node| *node < NODES_MAX)
            .ok_or_else(|| self.bad("node", "a number below 1024", text))
    }

    fn error(&self, kind: ErrorKind) -> Error {
        Error::new(self.format, self.number, kind)
    }

    fn cut_short(&self, expected: &'static str, line: &str) -> Error {
        let found = format!("`{}`", excerpt(line));
        self.error(ErrorKind::CutShort { expected, found })
    }
}

/// An unsigned decimal number: digits only, no sign, no overflow.
pub(crate) fn decimal(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}
