//! `/proc/zoneinfo`, every value of it, in the order it is printed (LB-I.1).
//!
//! ```text
//! Node 0, zone      DMA            node, name
//!   per-node stats                 node_stats: for the first populated zone of a node only
//!       nr_inactive_anon 96871
//!   pages free     3840            pages
//!         boost    0
//!         protection: (0, 3019)    protection
//!       nr_free_pages 3840         items: zone items, then NUMA events
//!   pagesets                       pagesets: `None` if the zone is unpopulated
//!     cpu: 0
//!               count:    0        (one space after the colon before 6.14)
//!   vm stats threshold: 4
//!   node_unreclaimable:  0         tail
//!   start_pfn:           1
//! ```
//!
//! Names are kept as printed and in order, so a kernel that adds an item needs no change here. All
//! widths follow from the names and from [`Document::layout`].
//!
//! Kernels before 4.8 print the node's items among the zone's; they are then found in
//! [`ZoneInfo::items`].

use std::fmt;

use crate::CPUS_MAX;
use crate::error::Error;
use crate::forms;
use crate::layout::Layout;
use crate::lines::TextLines;
use crate::stat::{Stat, find};

/// The column where the values of a pageset stand from 6.14 on; before, they stand further left.
const WIDE_COLUMN: usize = 24;

/// A whole text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Document {
    /// The zones in the order of the text: by node, then by kind.
    pub zones: Vec<ZoneInfo>,
    /// The release whose form the text has; of a text that was read, the oldest with such lines.
    pub layout: Layout,
}

/// One zone of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneInfo {
    /// The node.
    pub node: u32,
    /// The zone's kind, such as `DMA32`.
    pub name: String,
    /// The node's items, if this is the zone that they are printed in.
    pub node_stats: Option<Vec<Stat>>,
    /// `free`, `boost`, `min` and so on.
    pub pages: Vec<Stat>,
    /// Pages of this zone that requests which could use a higher zone must leave, by zone index.
    pub protection: Vec<i64>,
    /// The zone's items and, after them, its NUMA events.
    pub items: Vec<Stat>,
    /// The per-CPU lists of the online CPUs; `None` if the zone is unpopulated.
    pub pagesets: Option<Vec<PagesetInfo>>,
    /// `node_unreclaimable`, `start_pfn` and what newer kernels add.
    pub tail: Vec<Stat>,
}

/// The lines of one per-CPU list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PagesetInfo {
    /// The CPU.
    pub cpu: u32,
    /// `count`, `high`, `batch` and, from 6.14 on, `high_min` and `high_max`.
    pub fields: Vec<Stat>,
    /// The line `vm stats threshold`, which kernels without SMP do not print.
    pub stat_threshold: Option<u64>,
}

/// The values of one per-CPU list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pageset {
    /// The CPU.
    pub cpu: u32,
    /// Pages on the list.
    pub count: u64,
    /// The mark above which pages go back to the buddy.
    pub high: u64,
    /// Pages per refill.
    pub batch: u64,
    /// Lower bound of `high`; printed from 6.14 on.
    pub high_min: Option<u64>,
    /// Upper bound of `high`; printed from 6.14 on.
    pub high_max: Option<u64>,
}

impl ZoneInfo {
    /// One of [`pages`](Self::pages) by name, such as `managed`.
    pub fn page_count(&self, name: &str) -> Option<u64> {
        find(&self.pages, name)
    }

    /// One of [`items`](Self::items) by name, such as `nr_free_pages` or `numa_hit`.
    pub fn item(&self, name: &str) -> Option<u64> {
        find(&self.items, name)
    }

    /// First page frame of the zone; `None` if it is unpopulated.
    pub fn start_pfn(&self) -> Option<u64> {
        find(&self.tail, "start_pfn")
    }

    /// Whether the zone has pages.
    pub fn is_populated(&self) -> bool {
        self.pagesets.is_some()
    }

    /// The NUMA events among the items: `numa_hit`, `numa_miss` and so on.
    pub fn numa_events(&self) -> impl Iterator<Item = &Stat> {
        self.items.iter().filter(|stat| stat.name.starts_with("numa_"))
    }
}

impl PagesetInfo {
    /// The values; an item that is not printed is 0, or `None` where it may be absent.
    pub fn values(&self) -> Pageset {
        let value = |name| find(&self.fields, name);
        Pageset {
            cpu: self.cpu,
            count: value("count").unwrap_or(0),
            high: value("high").unwrap_or(0),
            batch: value("batch").unwrap_or(0),
            high_min: value("high_min"),
            high_max: value("high_max"),
        }
    }
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.zones.iter().try_for_each(|zone| print_zone(f, zone, self.layout))
    }
}

fn print_zone(f: &mut fmt::Formatter<'_>, zone: &ZoneInfo, layout: Layout) -> fmt::Result {
    forms::zone(f, zone.node, &zone.name)?;
    if let Some(stats) = &zone.node_stats {
        forms::per_node_stats(f)?;
        print_items(f, stats)?;
    }
    for (index, Stat { name, value }) in zone.pages.iter().enumerate() {
        forms::pages(f, index == 0, name, *value)?;
    }
    forms::protection(f, &zone.protection)?;
    print_items(f, &zone.items)?;
    if let Some(pagesets) = &zone.pagesets {
        forms::pagesets(f)?;
        pagesets.iter().try_for_each(|pageset| print_pageset(f, pageset, layout))?;
    }
    zone.tail.iter().try_for_each(|stat| forms::tail(f, &stat.name, stat.value))
}

fn print_items(f: &mut fmt::Formatter<'_>, items: &[Stat]) -> fmt::Result {
    items.iter().try_for_each(|stat| forms::item(f, &stat.name, stat.value))
}

fn print_pageset(f: &mut fmt::Formatter<'_>, pageset: &PagesetInfo, layout: Layout) -> fmt::Result {
    forms::cpu(f, pageset.cpu)?;
    for Stat { name, value } in &pageset.fields {
        forms::pageset(f, layout, name, *value)?;
    }
    match pageset.stat_threshold {
        Some(threshold) => forms::threshold(f, threshold),
        None => Ok(()),
    }
}

/// Reads the text of `/proc/zoneinfo`.
///
/// # Errors
/// Names the line if one is of no known kind, if a value is not a number, or if the text ends in
/// the middle of a zone.
pub fn parse(text: &str) -> Result<Document, Error> {
    let mut lines = TextLines::new("zoneinfo", text);
    let mut zones = Vec::new();
    let mut layout = Layout::Linux6_1;
    while let Some(line) = lines.next()? {
        zones.push(zone(&mut lines, line, &mut layout)?);
    }
    if zones.is_empty() {
        return Err(lines.ended("`Node N, zone NAME`"));
    }
    Ok(Document { zones, layout })
}

fn zone(lines: &mut TextLines<'_>, header: &str, layout: &mut Layout) -> Result<ZoneInfo, Error> {
    let (node, name, rest) = lines.node_and_zone(header)?;
    if !rest.is_empty() {
        return Err(lines.unexpected("`Node N, zone NAME` and nothing after it", header));
    }
    let mut zone = ZoneInfo {
        node,
        name: name.to_owned(),
        node_stats: None,
        pages: Vec::new(),
        protection: Vec::new(),
        items: Vec::new(),
        pagesets: None,
        tail: Vec::new(),
    };
    if lines.peek() == Some("  per-node stats") {
        lines.next()?;
        zone.node_stats = Some(items(lines)?);
    }
    zone.pages = pages(lines)?;
    if zone.page_count("promo").is_some() {
        *layout = Layout::Linux6_12.max(*layout);
    }
    zone.protection = protection(lines)?;
    zone.items = items(lines)?;
    if lines.peek() == Some("  pagesets") {
        lines.next()?;
        zone.pagesets = Some(pagesets(lines, layout)?);
        zone.tail = tail(lines)?;
        if find(&zone.tail, "reserved_highatomic").is_some() {
            *layout = Layout::Linux7;
        }
    } else if !zone.items.is_empty() || zone.page_count("present").unwrap_or(0) > 0 {
        // The kernel ends a zone after `protection` exactly if it has no present pages.
        return Err(match lines.next()? {
            Some(line) => lines.unexpected("a zone item or `pagesets`", line),
            None => lines.ended("a zone item or `pagesets`"),
        });
    }
    Ok(zone)
}

/// Lines of six spaces, a name and a value: items of a node or a zone.
fn items(lines: &mut TextLines<'_>) -> Result<Vec<Stat>, Error> {
    let mut stats = Vec::new();
    while lines.peek().is_some_and(|line| indent(line) == 6) {
        let line = lines.expect("an item")?;
        stats.push(Stat::parse(lines, line)?);
    }
    Ok(stats)
}

/// `  pages free     3840` and the lines of eight spaces after it, up to `protection`.
fn pages(lines: &mut TextLines<'_>) -> Result<Vec<Stat>, Error> {
    let expected = "`pages free N`";
    let line = lines.expect(expected)?;
    let free = line.strip_prefix("  pages ").ok_or_else(|| lines.unexpected(expected, line))?;
    let mut stats = vec![Stat::parse(lines, free)?];
    while lines.peek().is_none_or(|line| !line.trim_start().starts_with("protection:")) {
        let line = lines.expect("`protection: (…)`")?;
        if indent(line) != 8 {
            return Err(lines.unexpected("a page count or `protection: (…)`", line));
        }
        stats.push(Stat::parse(lines, line)?);
    }
    Ok(stats)
}

fn protection(lines: &mut TextLines<'_>) -> Result<Vec<i64>, Error> {
    let expected = "`protection: (N, N, …)`";
    let line = lines.expect(expected)?;
    let inner = line.trim_start().strip_prefix("protection: (").and_then(|s| s.strip_suffix(')'));
    let inner = inner.ok_or_else(|| lines.unexpected(expected, line))?;
    let number =
        |text: &str| text.parse().map_err(|_| lines.bad("protection", "decimal numbers", text));
    inner.split(", ").map(number).collect()
}

fn pagesets(lines: &mut TextLines<'_>, layout: &mut Layout) -> Result<Vec<PagesetInfo>, Error> {
    let mut pagesets = Vec::new();
    while lines.peek().is_some_and(|line| line.starts_with("    cpu: ")) {
        let line = lines.expect("`cpu: N`")?;
        let text = line.trim_start_matches("    cpu: ");
        let number = lines.number("cpu", text)?;
        let cpu = u32::try_from(number).ok().filter(|cpu| *cpu < CPUS_MAX);
        let cpu = cpu.ok_or_else(|| lines.bad("cpu", "a number below 8192", text))?;
        let mut pageset = PagesetInfo { cpu, fields: Vec::new(), stat_threshold: None };
        while lines.peek().is_some_and(|line| indent(line) == 14) {
            let line = lines.expect("a pageset's value")?;
            let stat = Stat::parse(lines, line)?;
            if line.trim_end_matches(|c: char| c.is_ascii_digit()).len() >= WIDE_COLUMN {
                *layout = Layout::Linux6_14.max(*layout);
            }
            pageset.fields.push(stat);
        }
        if let Some(value) = lines.peek().and_then(|l| l.strip_prefix("  vm stats threshold: ")) {
            lines.next()?;
            pageset.stat_threshold = Some(lines.number("vm stats threshold", value)?);
        }
        pagesets.push(pageset);
    }
    Ok(pagesets)
}

/// Lines of two spaces, a name, a colon and a value, after the pagesets.
fn tail(lines: &mut TextLines<'_>) -> Result<Vec<Stat>, Error> {
    let mut stats = Vec::new();
    while lines.peek().is_some_and(|line| !line.starts_with("Node ")) {
        let line = lines.expect("`start_pfn: N`")?;
        if indent(line) != 2 {
            return Err(lines.unexpected("`cpu: N`, `start_pfn: N` or the next zone", line));
        }
        stats.push(Stat::parse(lines, line)?);
    }
    if find(&stats, "start_pfn").is_none() {
        return Err(lines.ended("`start_pfn: N` of a populated zone"));
    }
    Ok(stats)
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Node 0, zone      DMA
  per-node stats
      nr_inactive_anon 96871
  pages free     3840
        present  3998
        protection: (0, 3019, -1)
      nr_free_pages 3840
      numa_hit     7
  pagesets
    cpu: 0
              count:    1
              high:     2
              batch:    3
              high_min: 4
              high_max: 5
  vm stats threshold: 6
  node_unreclaimable:  0
  start_pfn:           1
Node 0, zone  Movable
  pages free     0
        boost    0
        protection: (0, 0, 0)
";

    #[test]
    fn every_value_is_kept() {
        let Document { zones, layout } = parse(TEXT).unwrap();
        assert_eq!(layout, Layout::Linux6_14);
        assert_eq!(zones.len(), 2);
        let dma = &zones[0];
        assert_eq!((dma.node, dma.name.as_str()), (0, "DMA"));
        assert_eq!(dma.node_stats.as_ref().unwrap()[0].value, 96871);
        assert_eq!(dma.page_count("free"), Some(3840));
        assert_eq!(dma.protection, [0, 3019, -1]);
        assert_eq!(dma.item("nr_free_pages"), Some(3840));
        assert_eq!(dma.numa_events().count(), 1);
        assert_eq!(dma.start_pfn(), Some(1));
        let pageset = &dma.pagesets.as_ref().unwrap()[0];
        assert_eq!(pageset.stat_threshold, Some(6));
        let values = pageset.values();
        assert_eq!((values.count, values.high, values.batch), (1, 2, 3));
        assert_eq!((values.high_min, values.high_max), (Some(4), Some(5)));
        assert!(!zones[1].is_populated());
    }

    #[test]
    fn narrow_pagesets_have_no_bounds() {
        let text = TEXT
            .replace("count:    ", "count: ")
            .replace("high:     ", "high:  ")
            .replace("batch:    ", "batch: ")
            .replace("              high_min: 4\n", "")
            .replace("              high_max: 5\n", "");
        let Document { zones, layout } = parse(&text).unwrap();
        assert_eq!(layout, Layout::Linux6_1);
        assert_eq!(zones[0].pagesets.as_ref().unwrap()[0].values().high_min, None);
    }

    #[test]
    fn errors_name_the_line() {
        for (from, to, line, part) in [
            ("free     3840", "free     x", 4, "bad value: expected a decimal number, found `x`"),
            ("  pages free", "  pads free", 4, "expected `pages free N`"),
            ("numa_hit     7", "numa_hit", 8, "expected a name and a number"),
            ("numa_hit     7", ":     7", 8, "expected a name and a number"),
            ("cpu: 0", "cpu: 9999", 10, "a number below 8192"),
            ("Node 0, zone  M", "Node 0; zone  M", 19, "`Node N, zone NAME`"),
            ("Node 0, zone  M", "Node 4096, zone  M", 19, "a number below 1024"),
            ("(0, 3019, -1)", "(0, 3019, -1", 6, "`protection: (N, N, …)`"),
            ("(0, 3019, -1)", "(0, y)", 6, "bad protection"),
            ("  pagesets", "  pageset", 9, "a zone item or `pagesets`"),
            ("threshold: 6", "threshold: z", 16, "bad vm stats threshold"),
            ("  start_pfn:           1\n", "", 18, "`start_pfn: N` of a populated zone"),
        ] {
            let error = parse(&TEXT.replacen(from, to, 1)).unwrap_err();
            assert_eq!(error.line(), line, "{error}");
            assert!(error.to_string().contains(part), "{error}");
        }
        assert!(parse("").is_err());
    }

    #[test]
    fn a_text_cut_anywhere_is_refused_or_ends_with_a_zone() {
        for length in 0..TEXT.len() {
            if let Ok(Document { zones, .. }) = parse(&TEXT[..length]) {
                assert!(TEXT[length..].starts_with("Node"), "at {length}");
                assert_eq!(zones.len(), 1);
            }
        }
    }
}
