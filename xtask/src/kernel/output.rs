//! What a booted kernel printed.

use std::time::Duration;

/// What a machine printed.
#[derive(Debug, Default)]
pub struct Output {
    /// Its lines.
    pub lines: Vec<String>,
    /// How long it ran.
    pub took: Duration,
}

impl Output {
    /// What follows `start` on the lines that begin with it.
    pub fn all<'a>(&'a self, start: &'a str) -> impl Iterator<Item = &'a str> {
        self.lines.iter().filter_map(move |line| line.strip_prefix(start))
    }

    /// The lines of a text that stands between marks.
    pub fn text(&self, name: &str) -> String {
        let begin = format!("BEGIN {name}");
        let end = format!("END {name}");
        let inside = self.lines.iter().skip_while(|line| **line != begin).skip(1);
        inside.take_while(|line| **line != end).map(|line| format!("{line}\n")).collect()
    }

    /// Whether the kernel came to its end.
    pub fn is_good(&self) -> bool {
        self.lines.iter().any(|line| line == "END OK")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_is_not_reached_is_a_failure() {
        let output = |text: &str| Output {
            lines: text.lines().map(String::from).collect(),
            ..Output::default()
        };
        assert!(output("passed: a\nEND OK").is_good());
        assert!(!output("passed: a\nPANIC on CPU 0").is_good());
        let texts = output("BEGIN a\n1\n2\nEND a\nBEGIN b\nEND b");
        assert_eq!((texts.text("a"), texts.text("b")), ("1\n2\n".into(), String::new()));
    }
}
