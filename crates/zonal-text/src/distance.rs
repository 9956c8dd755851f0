//! `/sys/devices/system/node/nodeN/distance`: how far each node is from this one (LB-A.3).
//!
//! ```text
//! 10 20                            a number per online node, in the order of their ids
//! ```

use std::fmt;

use crate::NODES_MAX;
use crate::error::Error;
use crate::lines::{TextLines, decimal};

/// A whole text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Document {
    /// The distances, by online node; 10 is the distance to oneself.
    pub distances: Vec<u32>,
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for distance in &self.distances {
            write!(f, "{separator}{distance}")?;
            separator = " ";
        }
        writeln!(f)
    }
}

/// Reads the text of `nodeN/distance`.
///
/// # Errors
/// Says what is no distance from 1 to 255, or that the text is not one line of them.
pub fn parse(text: &str) -> Result<Document, Error> {
    let mut lines = TextLines::new("distance", text);
    let expected = "numbers from 1 to 255";
    let line = lines.expect(expected)?;
    let distance = |word: &str| {
        let value = decimal(word).and_then(|value| u8::try_from(value).ok());
        let value = value.filter(|value| *value > 0).map(u32::from);
        value.ok_or_else(|| lines.bad("distance", "a number from 1 to 255", word))
    };
    let words = line.split_ascii_whitespace();
    let distances = words.map(distance).collect::<Result<Vec<u32>, Error>>()?;
    if distances.is_empty() || distances.len() > NODES_MAX as usize {
        return Err(lines.unexpected("a distance for each online node", line));
    }
    lines.end()?;
    Ok(Document { distances })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_and_printed_back() {
        for (text, distances) in [("10\n", &[10][..]), ("10 16 255\n", &[10, 16, 255])] {
            let row = parse(text).unwrap();
            assert_eq!(row.distances, distances);
            assert_eq!(row.to_string(), text);
        }
    }

    #[test]
    fn errors_name_the_number() {
        for (text, part) in [
            ("10 x\n", "line 1: bad distance: expected a number from 1 to 255, found `x`"),
            ("10 0\n", "found `0`"),
            ("10 256\n", "found `256`"),
            ("\n", "a distance for each online node"),
            ("10", "cut short"),
            ("10\n20\n", "line 2: unexpected line"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text:?}: {message}");
        }
    }
}
