//! `zoneinfo` with the line of each value, and checks for text that no kernel can have printed.

use zonal_core::types::ZoneKind;
use zonal_text::Stat;
use zonal_text::zoneinfo::{self, PagesetInfo, ZoneInfo};

use crate::error::{Error, ensure};
use crate::place::Number;

/// Marks, in the order in which they are printed. Kernels before 6.12 leave out the last.
pub const WATERMARKS: [&str; 4] = ["min", "low", "high", "promo"];

/// Memory of 32-bit kernels that is not mapped for good (LB A.2).
const HIGH: &str = "HighMem";

/// One text of `/proc/zoneinfo`.
#[derive(Debug, Clone)]
pub struct ZoneFile {
    /// What messages call the file.
    pub file: String,
    /// Every zone that is printed, unpopulated ones too.
    pub zones: Vec<ZoneText>,
}

/// One zone of one node.
#[derive(Debug, Clone)]
pub struct ZoneText {
    /// The node's id.
    pub node: u32,
    /// Its kind in the core. Where there is HighMem, it stands for the core's movable zone, whose
    /// rules it has, and the kernel's movable zone, which must be empty, for what comes next.
    pub kind: ZoneKind,
    /// The kernel's name for it.
    pub name: String,
    /// The line that names it.
    pub line: u64,
    /// Pages the buddy has had.
    pub managed: Number,
    /// Pages without holes.
    pub present: Number,
    /// Pages with holes.
    pub spanned: Number,
    /// First page frame, of populated zones.
    pub start_pfn: Option<Number>,
    /// Pages that are added to each watermark for now.
    pub boost: u64,
    /// [`WATERMARKS`], as printed: with the boost.
    pub watermarks: [Option<Number>; 4],
    /// The line `protection` and its numbers.
    pub protection: (u64, Vec<i64>),
    /// The lists of the online CPUs, of populated zones.
    pub lists: Vec<ListText>,
}

/// One CPU's list of one zone.
#[derive(Debug, Clone)]
pub struct ListText {
    /// The CPU's id.
    pub cpu: u32,
    /// The mark that the kernel moves, or the limit it was given.
    pub high: Option<Number>,
    /// Pages of a refill.
    pub batch: Option<Number>,
    /// Lower bound of `high`; printed from 6.14 on.
    pub high_min: Option<Number>,
    /// Upper bound of `high`; printed from 6.14 on.
    pub high_max: Option<Number>,
    /// How far a CPU's counters may drift.
    pub threshold: Option<Number>,
}

impl ZoneFile {
    /// Reads a text and refuses zones that cannot be.
    ///
    /// # Errors
    /// With file and line.
    pub fn read(file: String, text: &str, x86: bool) -> Result<ZoneFile, Error> {
        let document = zoneinfo::parse(text).map_err(|e| Error::at(&file, e.line(), e.kind()))?;
        let mut line = 1;
        let mut zones = Vec::new();
        let has_high = document.zones.iter().any(|zone| zone.name == HIGH);
        for zone in &document.zones {
            let read = numbered(zone, has_high, &mut line);
            zones.push(read.map_err(|(line, e)| Error::at(&file, line, &e))?);
        }
        let read = ZoneFile { file, zones };
        read.check_order(line)?;
        read.zones.iter().try_for_each(|zone| read.check_zone(zone, x86))?;
        Ok(read)
    }

    /// Whether the kernel has memory that it does not map for good.
    pub fn has_high(&self) -> bool {
        self.zones.iter().any(|zone| zone.name == HIGH)
    }

    /// The ids of the nodes, ascending.
    pub fn nodes(&self) -> Vec<u32> {
        let mut nodes: Vec<u32> = self.zones.iter().map(|zone| zone.node).collect();
        nodes.dedup();
        nodes
    }

    /// Nodes and kinds ascend, and each node has all kinds that the kernel was built with: one for
    /// each number in a row of `protection`.
    fn check_order(&self, end: u64) -> Result<(), Error> {
        let error = |line, text: String| Error::at(&self.file, line, &text);
        for pair in self.zones.windows(2) {
            if (pair[0].node, pair[0].kind) >= (pair[1].node, pair[1].kind) {
                let (zone, before) = (name(&pair[1]), name(&pair[0]));
                let text = format!("zone out of order: {zone} stands behind {before}");
                return Err(error(pair[1].line, text));
            }
        }
        let kinds = |node| self.zones.iter().filter(move |zone| zone.node == node);
        let first: Vec<ZoneKind> = kinds(self.zones[0].node).map(|zone| zone.kind).collect();
        for zone in &self.zones {
            let expected = first.len();
            let (line, found) = (zone.protection.0, zone.protection.1.len());
            ensure(expected == found, || {
                error(line, format!("{found} numbers, but the kernel has {expected} zones a node"))
            })?;
        }
        for node in self.nodes() {
            let here: Vec<ZoneKind> = kinds(node).map(|zone| zone.kind).collect();
            let missing = kinds(self.zones[0].node).find(|zone| !here.contains(&zone.kind));
            if let Some(zone) = missing {
                let next = self.zones.iter().find(|zone| zone.node > node);
                let line = next.map_or(end, |zone| zone.line);
                return Err(error(line, format!("zone {} of node {node} is missing", zone.name)));
            }
            ensure(here == first, || {
                error(end, format!("node {node} has other kinds of zones than the first node"))
            })?;
        }
        Ok(())
    }

    fn check_zone(&self, zone: &ZoneText, x86: bool) -> Result<(), Error> {
        let name = name(zone);
        let impossible = |line, text: String| {
            Err(Error::at(&self.file, line, &format!("impossible {name}: {text}")))
        };
        let (managed, present, spanned) = (zone.managed, zone.present, zone.spanned);
        if managed.value > present.value {
            let text = format!("{} pages managed of {} present", managed.value, present.value);
            return impossible(managed.line, text);
        }
        if present.value > spanned.value {
            let text = format!("{} pages present in a span of {}", present.value, spanned.value);
            return impossible(present.line, text);
        }
        let Some(start) = zone.start_pfn else { return Ok(()) };
        let end = start.value.checked_add(spanned.value).filter(|end| *end <= 1 << 52);
        let Some(end) = end else {
            let text = format!("it ends beyond page frame {}", 1_u64 << 52);
            return impossible(start.line, text);
        };
        let Some((low, high)) = x86.then(|| range(zone.kind)).flatten() else { return Ok(()) };
        let low = if self.zones.iter().any(|other| other.kind < zone.kind) { low } else { 0 };
        if start.value < low || end > high {
            let text = format!(
                "page frames {} to {end}, but such zones lie between {low} and {high}",
                start.value
            );
            return impossible(start.line, text);
        }
        Ok(())
    }
}

/// Where zones of a kind lie on x86-64 (LB A.2); movable and device memory may be anywhere.
fn range(kind: ZoneKind) -> Option<(u64, u64)> {
    match kind {
        ZoneKind::Dma => Some((0, 1 << 12)),
        ZoneKind::Dma32 => Some((1 << 12, 1 << 20)),
        ZoneKind::Normal => Some((1 << 20, u64::MAX)),
        ZoneKind::Movable | ZoneKind::Device => None,
    }
}

impl ZoneText {
    /// Whether the kernel has lists and counters for it.
    pub fn is_populated(&self) -> bool {
        self.start_pfn.is_some()
    }
}

/// What messages call a zone.
pub fn name(zone: &ZoneText) -> String {
    format!("node {} zone {}", zone.node, zone.name)
}

/// The zone with its line numbers, `line` being its first; afterwards the one after its last.
///
/// The parser takes each value from its own line and drops none, so counting values counts lines;
/// the parser's round-trip tests check that.
fn numbered(zone: &ZoneInfo, has_high: bool, line: &mut u64) -> Result<ZoneText, (u64, String)> {
    let first = *line;
    let kind = match zone.name.as_str() {
        HIGH => Some(ZoneKind::Movable),
        "Movable" if has_high => Some(ZoneKind::Device),
        "Device" if has_high => None,
        name => ZoneKind::from_name(name),
    };
    let kind = kind.ok_or_else(|| {
        let expected = "expected DMA, DMA32, Normal, HighMem, Movable or Device, and no Device \
                        where there is HighMem";
        (first, format!("a zone `{}`; {expected}", zone.name))
    })?;
    *line += 1 + zone.node_stats.as_ref().map_or(0, |stats| 1 + stats.len() as u64);
    let pages_at = *line;
    let find = |name: &str| find(&zone.pages, name, pages_at);
    let number = |name: &str| {
        let missing = || (pages_at, format!("`{name}` is missing in this zone"));
        find(name).ok_or_else(missing)
    };
    let (managed, present, spanned) = (number("managed")?, number("present")?, number("spanned")?);
    if has_high && kind == ZoneKind::Device && present.value > 0 {
        let text = "not modelled: memory in zone Movable of a kernel with HighMem";
        return Err((present.line, text.to_owned()));
    }
    for name in &WATERMARKS[..3] {
        number(name)?;
    }
    *line += zone.pages.len() as u64;
    let protection = (*line, zone.protection.clone());
    *line += 1 + zone.items.len() as u64;
    let mut lists = Vec::new();
    if let Some(pagesets) = &zone.pagesets {
        *line += 1;
        lists.extend(pagesets.iter().map(|set| list(set, line)));
    }
    let start_pfn = self::find(&zone.tail, "start_pfn", *line);
    *line += zone.tail.len() as u64;
    Ok(ZoneText {
        node: zone.node,
        kind,
        name: zone.name.clone(),
        line: first,
        managed,
        present,
        spanned,
        start_pfn,
        boost: find("boost").map_or(0, |boost| boost.value),
        watermarks: WATERMARKS.map(find),
        protection,
        lists,
    })
}

fn list(set: &PagesetInfo, line: &mut u64) -> ListText {
    let fields_at = *line + 1;
    let find = |name: &str| find(&set.fields, name, fields_at);
    let after = fields_at + set.fields.len() as u64;
    let threshold = set.stat_threshold.map(|value| Number { value, line: after });
    *line = after + u64::from(threshold.is_some());
    ListText {
        cpu: set.cpu,
        high: find("high"),
        batch: find("batch"),
        high_min: find("high_min"),
        high_max: find("high_max"),
        threshold,
    }
}

/// The number of this name among values that stand one per line from `first` on.
fn find(stats: &[Stat], name: &str, first: u64) -> Option<Number> {
    let index = stats.iter().position(|stat| stat.name == name)?;
    Some(Number { value: stats[index].value, line: first + index as u64 })
}

/// Refuses a file whose lists are not those of the CPUs that are online.
///
/// # Errors
/// With file and line.
pub fn check_cpus(file: &ZoneFile, online: &[u32]) -> Result<(), Error> {
    for zone in file.zones.iter().filter(|zone| zone.is_populated()) {
        let cpus: Vec<u32> = zone.lists.iter().map(|list| list.cpu).collect();
        if cpus != online {
            let line = zone.line;
            let text = format!("{} has lists of CPUs {cpus:?}, online are {online:?}", name(zone));
            return Err(Error::at(&file.file, line, &text));
        }
    }
    Ok(())
}
