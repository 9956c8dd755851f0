//! `/proc/buddyinfo`: free blocks per order of each populated zone (LB-I.2).
//!
//! ```text
//! Node 0, zone   Normal   3003   1422   5148   7341   4844   2794   1361    590    282    222 …
//! ```
//!
//! The columns are the orders from 0 up; a kernel prints as many as it has.

use std::fmt;

use crate::error::Error;
use crate::forms;
use crate::lines::TextLines;

/// A whole text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Document {
    /// The populated zones in the order of the text: by node, then by kind.
    pub zones: Vec<BuddyInfo>,
}

/// The free blocks of one zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuddyInfo {
    /// The node.
    pub node: u32,
    /// The zone's kind.
    pub zone: String,
    /// Free blocks, by order.
    pub free_blocks: Vec<u64>,
}

impl BuddyInfo {
    /// Free pages: the sum over the orders of `free_blocks[order] << order`.
    pub fn free_pages(&self) -> u64 {
        let pages = |(order, blocks): (usize, &u64)| blocks.saturating_mul(1 << order.min(63));
        self.free_blocks.iter().enumerate().map(pages).fold(0, u64::saturating_add)
    }
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for BuddyInfo { node, zone, free_blocks } in &self.zones {
            forms::free_blocks(f, *node, zone, free_blocks.iter().copied())?;
        }
        Ok(())
    }
}

/// Reads the text of `/proc/buddyinfo`.
///
/// # Errors
/// Names the line if one is of another kind, or if a count is not a number.
pub fn parse(text: &str) -> Result<Document, Error> {
    let mut lines = TextLines::new("buddyinfo", text);
    let mut zones = Vec::new();
    while let Some(line) = lines.next()? {
        let (node, zone, rest) = lines.node_and_zone(line)?;
        let free_blocks = lines.numbers("free blocks", rest)?;
        zones.push(BuddyInfo { node, zone: zone.to_owned(), free_blocks });
    }
    if zones.is_empty() {
        return Err(lines.ended("`Node N, zone NAME` and counts"));
    }
    Ok(Document { zones })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_and_orders_are_read() {
        let text = "Node 0, zone      DMA      1      0      3 \nNode 1, zone   Normal      9 \n";
        let zones = parse(text).unwrap().zones;
        assert_eq!((zones[0].node, zones[0].zone.as_str()), (0, "DMA"));
        assert_eq!(zones[0].free_blocks, [1, 0, 3]);
        assert_eq!(zones[0].free_pages(), 13);
        assert_eq!(zones[1].node, 1);
    }

    #[test]
    fn errors_name_the_line() {
        for (text, part) in [
            ("Node 0, zone DMA 1 x \n", "line 1: bad free blocks"),
            ("Node 0, zone DMA\n", "line 1: bad free blocks: expected decimal numbers"),
            ("Node 0, zone DMA 1 \nzone\n", "line 2: unexpected line"),
            ("Node 0, zone DMA 1", "line 1: file is cut short"),
            ("", "line 1: file is cut short"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text:?}: {message}");
        }
    }
}
