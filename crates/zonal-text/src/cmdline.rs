//! `/proc/cmdline`: the kernel's command line.
//!
//! ```text
//! console=ttyS0 nokaslr kernelcore=30% init="/bin/sh -x"        blanks in quotes do not separate
//! ```

use std::fmt;

use crate::error::Error;
use crate::lines::TextLines;

/// A whole text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Document {
    /// The words between blanks, in order and unchanged; two blanks in a row have an empty word
    /// between them.
    pub words: Vec<String>,
}

impl Document {
    /// The parameters: `("nokaslr", None)`, `("kernelcore", Some("30%"))`. Quotes around a value
    /// are taken off.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.words.iter().filter(|word| !word.is_empty()).map(|word| match word.split_once('=') {
            Some((name, value)) => (name, Some(unquoted(value))),
            None => (word.as_str(), None),
        })
    }

    /// The value of a parameter. Where it is given more than once, the last one counts.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.parameters().filter(|(known, _)| *known == name).filter_map(|(_, value)| value).last()
    }

    /// Whether a parameter is given, with a value or without.
    pub fn has(&self, name: &str) -> bool {
        self.parameters().any(|(known, _)| known == name)
    }
}

fn unquoted(value: &str) -> &str {
    value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value)
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.words.join(" "))
    }
}

/// Reads the text of `/proc/cmdline`.
///
/// # Errors
/// If the text is not one line, or a quote does not end.
pub fn parse(text: &str) -> Result<Document, Error> {
    let mut lines = TextLines::new("cmdline", text);
    let line = lines.expect("the kernel's parameters")?;
    let mut quoted = false;
    let separates = |c: char| {
        quoted ^= c == '"';
        c == ' ' && !quoted
    };
    let words = line.split(separates).map(str::to_owned).collect();
    if line.matches('"').count() % 2 != 0 {
        return Err(lines.unexpected("a second quote for each quote", line));
    }
    lines.end()?;
    Ok(Document { words })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_and_printed_back() {
        let text = "console=ttyS0  nokaslr init=\"/bin/sh -x\" mem=1G mem=700M \n";
        let cmdline = parse(text).unwrap();
        assert_eq!(cmdline.to_string(), text);
        assert_eq!(cmdline.value("init"), Some("/bin/sh -x"));
        assert_eq!(cmdline.value("mem"), Some("700M"));
        assert_eq!(cmdline.value("nokaslr"), None);
        assert!(cmdline.has("nokaslr"));
        assert_eq!(cmdline.parameters().count(), 5);
        assert_eq!(parse("\n").unwrap().to_string(), "\n");
    }

    #[test]
    fn errors_say_what_is_missing() {
        for (text, part) in [
            ("a=\"b\n", "line 1: unexpected line: expected a second quote"),
            ("a", "line 1: file is cut short"),
            ("a\nb\n", "line 2: unexpected line"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text:?}: {message}");
        }
    }
}
