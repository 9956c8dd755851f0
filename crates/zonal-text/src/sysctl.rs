//! Settings as `sysctl -a` prints them, one `key=value` per line (LB-I.5).
//!
//! ```text
//! vm.min_free_kbytes=67584
//! vm.lowmem_reserve_ratio=256   256   32    several numbers: separated by tabs
//! thp.enabled=always [madvise] never        one of several: the choice in brackets
//! ```
//!
//! `sysctl` itself prints ` = `; [`parse`] reads both, and [`Setting::spaced`] remembers which.

use std::fmt;

use crate::error::Error;
use crate::lines::{TextLines, decimal};

/// A whole text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Document {
    /// The settings in the order of the text.
    pub settings: Vec<Setting>,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The setting's name, such as `vm.min_free_kbytes`.
    pub key: String,
    /// Its value, unparsed.
    pub value: String,
    /// Whether blanks surround the `=`.
    pub spaced: bool,
}

impl Setting {
    /// The value as decimal numbers; `None` if it is anything else.
    pub fn numbers(&self) -> Option<Vec<u64>> {
        let numbers: Option<Vec<u64>> = self.value.split_ascii_whitespace().map(decimal).collect();
        numbers.filter(|numbers| !numbers.is_empty())
    }

    /// The choice of a setting that shows all choices: `madvise` of `always [madvise] never`.
    pub fn choice(&self) -> Option<&str> {
        let (_, rest) = self.value.split_once('[')?;
        rest.split_once(']').map(|(choice, _)| choice)
    }
}

impl Document {
    /// The setting of this name.
    pub fn setting(&self, key: &str) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.key == key)
    }

    /// The value of a setting, as text.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.setting(key).map(|setting| setting.value.as_str())
    }

    /// The value of a setting that is one number; `None` if it is not there or of another form.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.value(key).and_then(decimal)
    }
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.iter().try_for_each(|Setting { key, value, spaced }| {
            writeln!(f, "{key}{}{value}", if *spaced { " = " } else { "=" })
        })
    }
}

/// Reads lines of `key=value`.
///
/// # Errors
/// Names the line that has no key or no `=`, or that ends without a newline.
pub fn parse(text: &str) -> Result<Document, Error> {
    let mut lines = TextLines::new("sysctl", text);
    let mut settings = Vec::new();
    while let Some(line) = lines.next()? {
        let expected = "`key=value`";
        let spaced = line.split_once(" = ").filter(|(key, _)| !key.contains('='));
        let halves = spaced.or_else(|| line.split_once('='));
        let (key, value) = halves.ok_or_else(|| lines.unexpected(expected, line))?;
        if key.is_empty() || key.contains(char::is_whitespace) {
            return Err(lines.unexpected(expected, line));
        }
        let (key, value) = (key.to_owned(), value.to_owned());
        settings.push(Setting { key, value, spaced: spaced.is_some() });
    }
    Ok(Document { settings })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "vm.min_free_kbytes=67584
vm.lowmem_reserve_ratio=256\t256\t32\t0\t0
thp.enabled=always [madvise] never
vm.spaced = 3
vm.empty=
a=b = c
";

    #[test]
    fn settings_are_read_and_printed_back() {
        let settings = parse(TEXT).unwrap();
        assert_eq!(settings.to_string(), TEXT);
        assert_eq!(settings.number("vm.min_free_kbytes"), Some(67584));
        assert_eq!(settings.number("vm.spaced"), Some(3));
        assert_eq!(settings.value("vm.empty"), Some(""));
        assert_eq!(settings.value("a"), Some("b = c"));
        assert_eq!(settings.number("thp.enabled"), None);
        assert_eq!(settings.number("vm.none"), None);
        let ratio = settings.setting("vm.lowmem_reserve_ratio").unwrap();
        assert_eq!(ratio.numbers(), Some(vec![256, 256, 32, 0, 0]));
        let thp = settings.setting("thp.enabled").unwrap();
        assert_eq!((thp.numbers(), thp.choice()), (None, Some("madvise")));
    }

    #[test]
    fn errors_name_the_line() {
        for (text, part) in [
            ("a=1\nb\n", "line 2: unexpected line: expected `key=value`, found `b`"),
            ("=1\n", "line 1: unexpected line"),
            (" a=1\n", "line 1: unexpected line"),
            ("a=1", "line 1: file is cut short"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text:?}: {message}");
        }
    }
}
