//! `/proc/pagetypeinfo`: free blocks per migratetype and order, and pageblocks per migratetype
//! (LB-I.2).
//!
//! ```text
//! Page block order: 9                                          one such part per node with memory
//! Pages per block:  512
//!
//! Free pages count per migrate type at order       0      1 …  10
//! Node    0, zone      DMA, type    Unmovable      0      0 …   0
//!
//! Number of blocks type     Unmovable      Movable …
//! Node 0, zone      DMA            1            7 …
//! ```
//!
//! The kernel stops counting free blocks at 100000 and prints `>` before that number, because it
//! holds the zone lock meanwhile; [`Count::capped`] keeps it.

use std::fmt;

use crate::error::Error;
use crate::forms;
use crate::lines::TextLines;

/// A whole text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Document {
    /// The nodes with memory, in order.
    pub nodes: Vec<PageTypeInfo>,
}

/// The text of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageTypeInfo {
    /// A pageblock has `1 << pageblock_order` pages.
    pub pageblock_order: u64,
    /// Pages of a pageblock.
    pub pages_per_block: u64,
    /// Free blocks: a row per zone and migratetype.
    pub free: Vec<FreeRow>,
    /// The migratetypes of the columns of [`blocks`](Self::blocks).
    pub migratetypes: Vec<String>,
    /// Pageblocks: a row per zone.
    pub blocks: Vec<BlocksRow>,
    /// Pageblocks that hold pages of several types: printed only with `page_owner`.
    pub mixed_blocks: Option<Vec<BlocksRow>>,
}

/// The free blocks of one zone and migratetype.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreeRow {
    /// The node.
    pub node: u32,
    /// The zone's kind.
    pub zone: String,
    /// The migratetype's name, such as `Movable`.
    pub migratetype: String,
    /// Free blocks, by order.
    pub counts: Vec<Count>,
}

/// How many blocks are free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// The number that is printed.
    pub blocks: u64,
    /// Whether there may be more.
    pub capped: bool,
}

/// The pageblocks of one zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlocksRow {
    /// The node.
    pub node: u32,
    /// The zone's kind.
    pub zone: String,
    /// Pageblocks, by column of [`PageTypeInfo::migratetypes`].
    pub counts: Vec<u64>,
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.nodes.iter().try_for_each(|node| print_node(f, node))
    }
}

fn print_node(f: &mut fmt::Formatter<'_>, node: &PageTypeInfo) -> fmt::Result {
    let orders = node.free.first().map_or(0, |row| row.counts.len());
    forms::page_types(f, node.pageblock_order, node.pages_per_block, orders)?;
    for FreeRow { node, zone, migratetype, counts } in &node.free {
        let counts = counts.iter().map(|count| (count.blocks, count.capped));
        forms::free_of_type(f, (*node, zone, migratetype), counts)?;
    }
    writeln!(f)?;
    print_blocks(f, "Number of blocks type ", &node.migratetypes, &node.blocks)?;
    match &node.mixed_blocks {
        Some(mixed) => {
            writeln!(f)?;
            print_blocks(f, "Number of mixed blocks ", &node.migratetypes, mixed)
        }
        None => Ok(()),
    }
}

fn print_blocks(
    f: &mut fmt::Formatter<'_>,
    heading: &str,
    migratetypes: &[String],
    rows: &[BlocksRow],
) -> fmt::Result {
    forms::pageblock_types(f, heading, migratetypes)?;
    rows.iter().try_for_each(|BlocksRow { node, zone, counts }| {
        forms::pageblocks(f, *node, zone, counts.iter().copied())
    })
}

/// Reads the text of `/proc/pagetypeinfo`.
///
/// # Errors
/// Names the line if one is not where it can be, if a count is not a number, or if the text ends in
/// the middle of a node.
pub fn parse(text: &str) -> Result<Document, Error> {
    let mut lines = TextLines::new("pagetypeinfo", text);
    let mut nodes = Vec::new();
    while let Some(line) = lines.next()? {
        nodes.push(node(&mut lines, line)?);
    }
    if nodes.is_empty() {
        return Err(lines.ended("`Page block order: N`"));
    }
    Ok(Document { nodes })
}

fn node(lines: &mut TextLines<'_>, first: &str) -> Result<PageTypeInfo, Error> {
    let pageblock_order = value(lines, first, "Page block order:", "`Page block order: N`")?;
    let second = lines.expect("`Pages per block: N`")?;
    let pages_per_block = value(lines, second, "Pages per block:", "`Pages per block: N`")?;
    blank(lines)?;
    heading(lines, "Free pages count per migrate type at order", "`Free pages count …`")?;
    let mut free = Vec::new();
    while lines.peek().is_some_and(|line| line.starts_with("Node ")) {
        free.push(free_row(lines)?);
    }
    blank(lines)?;
    let types = heading(lines, "Number of blocks type", "`Number of blocks type …`")?;
    let migratetypes: Vec<String> = types.split_ascii_whitespace().map(str::to_owned).collect();
    let blocks = block_rows(lines, migratetypes.len())?;
    if blocks.is_empty() {
        return Err(lines.ended("`Node N, zone NAME` and pageblocks"));
    }
    let mut mixed_blocks = None;
    if lines.peek() == Some("") {
        blank(lines)?;
        heading(lines, "Number of mixed blocks", "`Number of mixed blocks …`")?;
        mixed_blocks = Some(block_rows(lines, migratetypes.len())?);
    }
    Ok(PageTypeInfo { pageblock_order, pages_per_block, free, migratetypes, blocks, mixed_blocks })
}

fn value(
    lines: &TextLines<'_>,
    line: &str,
    label: &str,
    expected: &'static str,
) -> Result<u64, Error> {
    match line.strip_prefix(label) {
        Some(rest) => lines.number("value", rest.trim()),
        None => Err(lines.unexpected(expected, line)),
    }
}

fn blank(lines: &mut TextLines<'_>) -> Result<(), Error> {
    match lines.expect("an empty line")? {
        "" => Ok(()),
        line => Err(lines.unexpected("an empty line", line)),
    }
}

/// What follows the heading that comes next.
fn heading<'a>(
    lines: &mut TextLines<'a>,
    label: &str,
    expected: &'static str,
) -> Result<&'a str, Error> {
    let line = lines.expect(expected)?;
    line.strip_prefix(label).ok_or_else(|| lines.unexpected(expected, line))
}

fn free_row(lines: &mut TextLines<'_>) -> Result<FreeRow, Error> {
    let expected = "`Node N, zone NAME, type NAME` and counts";
    let line = lines.expect(expected)?;
    let (node, zone, rest) = lines.node_and_zone(line)?;
    let rest = rest.strip_prefix(", type ").ok_or_else(|| lines.unexpected(expected, line))?;
    let rest = rest.trim_start();
    let (migratetype, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let count = |text: &str| {
        let digits = text.strip_prefix('>');
        let blocks = lines.number("free blocks", digits.unwrap_or(text))?;
        Ok(Count { blocks, capped: digits.is_some() })
    };
    let counts = rest.split_ascii_whitespace().map(count).collect::<Result<Vec<_>, _>>()?;
    if counts.is_empty() {
        return Err(lines.unexpected(expected, line));
    }
    Ok(FreeRow { node, zone: zone.to_owned(), migratetype: migratetype.to_owned(), counts })
}

fn block_rows(lines: &mut TextLines<'_>, types: usize) -> Result<Vec<BlocksRow>, Error> {
    let mut rows = Vec::new();
    while lines.peek().is_some_and(|line| line.starts_with("Node ")) {
        let line = lines.expect("pageblocks")?;
        let (node, zone, rest) = lines.node_and_zone(line)?;
        let counts = lines.numbers("pageblocks", rest)?;
        if counts.len() != types {
            return Err(lines.unexpected("as many counts as there are migratetypes", line));
        }
        rows.push(BlocksRow { node, zone: zone.to_owned(), counts });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Page block order: 9
Pages per block:  512

Free pages count per migrate type at order       0      1\x20
Node    0, zone      DMA, type    Unmovable      0      2\x20
Node    0, zone      DMA, type      Movable      1 >100000\x20

Number of blocks type     Unmovable      Movable\x20
Node 0, zone      DMA            1            7\x20
";

    #[test]
    fn both_tables_are_read() {
        let second = TEXT.replace("Node    0", "Node    1").replace("Node 0", "Node 1");
        let nodes = parse(&format!("{TEXT}{second}")).unwrap().nodes;
        assert_eq!(nodes.len(), 2);
        let node = &nodes[0];
        assert_eq!((node.pageblock_order, node.pages_per_block), (9, 512));
        assert_eq!(node.migratetypes, ["Unmovable", "Movable"]);
        assert_eq!(node.free[1].migratetype, "Movable");
        assert_eq!(node.free[1].counts[0], Count { blocks: 1, capped: false });
        assert_eq!(node.free[1].counts[1], Count { blocks: 100_000, capped: true });
        assert_eq!(node.blocks[0].counts, [1, 7]);
        assert_eq!(node.mixed_blocks, None);
        assert_eq!(nodes[1].free[0].node, 1);
    }

    #[test]
    fn mixed_blocks_are_read_where_printed() {
        let mixed = "\nNumber of mixed blocks    Unmovable      Movable \nNode 0, zone DMA 0 1 \n";
        let nodes = parse(&format!("{TEXT}{mixed}")).unwrap().nodes;
        assert_eq!(nodes[0].mixed_blocks.as_ref().unwrap()[0].counts, [0, 1]);
    }

    #[test]
    fn errors_name_the_line() {
        for (from, to, part) in [
            ("order: 9", "order: x", "line 1: bad value"),
            ("Pages per", "Page per", "line 2: unexpected line: expected `Pages per block: N`"),
            ("type      Movable", "kind      Movable", "line 6: unexpected line"),
            (">100000", ">x", "line 6: bad free blocks"),
            ("            1            7", "            1", "line 9: unexpected line"),
        ] {
            let message = parse(&TEXT.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn a_text_cut_anywhere_is_refused() {
        for length in 0..TEXT.len() {
            assert!(parse(&TEXT[..length]).is_err(), "at {length}");
        }
    }
}
