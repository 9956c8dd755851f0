//! The forms of lines of `zoneinfo`, `buddyinfo` and `pagetypeinfo`: widths and blanks, for
//! documents and for a kernel that prints its own texts. Each function writes one line.

use core::fmt::{Display, Result, Write};

use crate::layout::Layout;

/// `Node 0, zone   Normal`.
///
/// # Errors
/// Those of `out`, as with all functions here.
pub fn zone(out: &mut dyn Write, node: u32, name: &dyn Display) -> Result {
    writeln!(out, "Node {node}, zone {name:>8}")
}

/// A line of `buddyinfo`: `Node 0, zone   Normal   3003   1422 `, with the free blocks by order.
///
/// # Errors
/// Those of `out`.
pub fn free_blocks(
    out: &mut dyn Write,
    node: u32,
    name: &dyn Display,
    blocks: impl IntoIterator<Item = u64>,
) -> Result {
    write!(out, "Node {node}, zone {name:>8} ")?;
    blocks.into_iter().try_for_each(|blocks| write!(out, "{blocks:>6} "))?;
    out.write_char('\n')
}

/// `  per-node stats`.
///
/// # Errors
/// Those of `out`.
pub fn per_node_stats(out: &mut dyn Write) -> Result {
    out.write_str("  per-node stats\n")
}

/// `  pages free     3840`, and the lines below it.
///
/// # Errors
/// Those of `out`.
pub fn pages(out: &mut dyn Write, is_first: bool, name: &str, value: u64) -> Result {
    let start = if is_first { "  pages " } else { "        " };
    writeln!(out, "{start}{name:<8} {value}")
}

/// `        protection: (0, 3019)`.
///
/// # Errors
/// Those of `out`.
pub fn protection(out: &mut dyn Write, pages: impl IntoIterator<Item = impl Display>) -> Result {
    out.write_str("        protection: (")?;
    for (index, pages) in pages.into_iter().enumerate() {
        write!(out, "{}{pages}", if index == 0 { "" } else { ", " })?;
    }
    out.write_str(")\n")
}

/// `      nr_free_pages 3840`: an item of a node or a zone.
///
/// # Errors
/// Those of `out`.
pub fn item(out: &mut dyn Write, name: &str, value: u64) -> Result {
    writeln!(out, "      {name:<12} {value}")
}

/// `  pagesets`.
///
/// # Errors
/// Those of `out`.
pub fn pagesets(out: &mut dyn Write) -> Result {
    out.write_str("  pagesets\n")
}

/// `    cpu: 0`.
///
/// # Errors
/// Those of `out`.
pub fn cpu(out: &mut dyn Write, cpu: u32) -> Result {
    writeln!(out, "    cpu: {cpu}")
}

/// `              count:    0`.
///
/// # Errors
/// Those of `out`.
pub fn pageset(out: &mut dyn Write, layout: Layout, name: &str, value: u64) -> Result {
    let width = if layout >= Layout::Linux6_14 { 9 } else { 6 };
    labelled(out, "              ", name, width, value)
}

/// `  vm stats threshold: 4`.
///
/// # Errors
/// Those of `out`.
pub fn threshold(out: &mut dyn Write, threshold: u64) -> Result {
    writeln!(out, "  vm stats threshold: {threshold}")
}

/// `  start_pfn:           1`.
///
/// # Errors
/// Those of `out`.
pub fn tail(out: &mut dyn Write, name: &str, value: u64) -> Result {
    labelled(out, "  ", name, 20, value)
}

/// The lines of `pagetypeinfo` in front of a node's free blocks.
///
/// # Errors
/// Those of `out`.
pub fn page_types(out: &mut dyn Write, order: u64, pages: u64, orders: usize) -> Result {
    writeln!(out, "Page block order: {order}")?;
    writeln!(out, "Pages per block:  {pages}\n")?;
    write!(out, "{:<43} ", "Free pages count per migrate type at order")?;
    (0..orders).try_for_each(|order| write!(out, "{order:>6} "))?;
    out.write_char('\n')
}

/// `Node    0, zone      DMA, type    Unmovable      0      1 `: free blocks by order, and whether
/// there may be more.
///
/// # Errors
/// Those of `out`.
pub fn free_of_type(
    out: &mut dyn Write,
    (node, zone, migratetype): (u32, &dyn Display, &str),
    blocks: impl IntoIterator<Item = (u64, bool)>,
) -> Result {
    write!(out, "Node {node:>4}, zone {zone:>8}, type {migratetype:>12} ")?;
    blocks.into_iter().try_for_each(|(blocks, capped)| match capped {
        true => write!(out, ">{blocks} "),
        false => write!(out, "{blocks:>6} "),
    })?;
    out.write_char('\n')
}

/// `Number of blocks type     Unmovable      Movable `: the head of a table of pageblocks.
///
/// # Errors
/// Those of `out`.
pub fn pageblock_types(
    out: &mut dyn Write,
    heading: &str,
    types: impl IntoIterator<Item = impl Display>,
) -> Result {
    write!(out, "{heading:<23}")?;
    types.into_iter().try_for_each(|name| write!(out, "{name:>12} "))?;
    out.write_char('\n')
}

/// `Node 0, zone      DMA            1            7 `.
///
/// # Errors
/// Those of `out`.
pub fn pageblocks(
    out: &mut dyn Write,
    node: u32,
    zone: &dyn Display,
    blocks: impl IntoIterator<Item = u64>,
) -> Result {
    write!(out, "Node {node}, zone {zone:>8} ")?;
    blocks.into_iter().try_for_each(|blocks| write!(out, "{blocks:>12} "))?;
    out.write_char('\n')
}

fn labelled(out: &mut dyn Write, start: &str, name: &str, width: usize, value: u64) -> Result {
    let blanks = width.saturating_sub(name.len() + 1);
    writeln!(out, "{start}{name}:{:blanks$} {value}", "")
}
