//! The recorded machine, from all files that describe it.
//!
//! | what | from |
//! |--|--|
//! | kernel, clock, number of events, flags, polled state | `meta.json` |
//! | zones with their lists and counters | `zoneinfo`; else `zones_pre` of `meta.json` |
//! | free blocks | `buddyinfo` |
//! | free blocks by type, pageblocks | `pagetypeinfo` |
//! | nodes | `nodeN-cpulist.txt`, `nodeN-distance.txt`; else the nodes of the zones |
//!
//! The kernel's texts are looked for under three names, such as `zoneinfo.pre`,
//! `before-zoneinfo.txt` and `zoneinfo.txt`, and the first that exists is read. A file that does
//! not exist leaves its part empty. A file that exists and cannot be read is an error: better none
//! than a half-right machine.
//!
//! # When the state was taken
//!
//! Zones, free blocks and lists are those of the `…pre` or `before-…` files.
//! - Compact recordings: they were read *before* the lists were shrunk and tracing began.
//!   [`MachineDescription::start`] is a sample taken inside the trace: start replaying at its
//!   `t_end_ns`, with its lists.
//! - ftrace recordings: they were read inside the trace, between the markers `FX before begin` and
//!   `FX before end`; there is no `start`.

use zonal_text::zoneinfo::{Pageset, PagesetInfo, ZoneInfo};
use zonal_text::{CPUS_MAX, NODES_MAX, Stat, buddyinfo, cpulist, distance, pagetypeinfo, zoneinfo};

use crate::error::{Position, TraceError, TraceErrorKind};
use crate::meta::{EventCount, Meta, MetaPoll, MetaZone, PagesetChange};
use crate::polled::{PolledState, PolledZone, zone_of};
use crate::prices::HoldPrices;
use crate::source::{Source, read_text};

const ZONEINFO: [&str; 3] = ["zoneinfo.pre", "before-zoneinfo.txt", "zoneinfo.txt"];
const BUDDYINFO: [&str; 3] = ["buddyinfo.pre", "before-buddyinfo.txt", "buddyinfo.txt"];
const PAGETYPEINFO: [&str; 3] = ["pagetypeinfo.pre", "before-pagetypeinfo.txt", "pagetypeinfo.txt"];

/// Distance of a node to itself (LB-A.3).
const LOCAL_DISTANCE: u32 = 10;

/// A machine, its kernel and the state it was in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MachineDescription {
    /// The recording's name.
    pub name: String,
    /// What ran while it was made.
    pub workload: Option<String>,
    /// The kernel's release, such as `6.12.117+deb12-amd64`.
    pub kernel_release: Option<String>,
    /// All of `uname -a`.
    pub uname: Option<String>,
    /// One more than the highest CPU id that is known, or `None` if no file tells.
    pub cpus: Option<u32>,
    /// Bytes of a page.
    pub page_size: u32,
    /// A pageblock has `1 << pageblock_order` pages.
    pub pageblock_order: u8,
    /// The clock of the events.
    pub clock: Clock,
    /// The online nodes, by id.
    pub nodes: Vec<NodeDescription>,
    /// The zones of all nodes, unpopulated ones too, in the kernel's order.
    pub zones: Vec<ZoneDescription>,
    /// The same from `/proc/zoneinfo` with every line; empty if there is no such file.
    pub zoneinfo: Vec<ZoneInfo>,
    /// Free blocks by zone and order; empty if there is no such file.
    pub buddyinfo: Vec<buddyinfo::BuddyInfo>,
    /// Free blocks by migratetype, and pageblocks; empty if there is no such file.
    pub pagetypeinfo: Vec<pagetypeinfo::PageTypeInfo>,
    /// State inside the trace, near its beginning: start replaying at its `t_end_ns`.
    pub start: Option<PolledState>,
    /// State inside the trace, near its end.
    pub end: Option<PolledState>,
    /// When the bounds of per-CPU lists changed.
    pub pageset_changes: Vec<PagesetChange>,
    /// When the workload started and ended.
    pub workload_ns: Option<(u64, u64)>,
    /// The process of the command that the recorder started; `None`: it started none, or did not
    /// say.
    pub command_pid: Option<i32>,
    /// KiB of memory that the recorder's rings took while it ran; `None`: the recording does not
    /// say.
    pub ring_kib: Option<u64>,
    /// Whether the lab or [`scale`](crate::make::scale) made the recording, and no host: all its
    /// figures are simulated.
    pub is_simulated: bool,
    /// How the kernel was built and the recording made.
    pub flags: Flags,
    /// What moving pages under a zone lock costs on this machine, if that was measured.
    pub prices: Option<HoldPrices>,
    /// How many events the recorder counted in the stream.
    pub events: Option<u64>,
    /// How many events of each kind it counted; empty if it only kept the total.
    pub events_by_name: Vec<EventCount>,
    /// How many events the kernel had no room for.
    pub events_dropped: Option<u64>,
}

/// The clock of the events' times.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Clock {
    /// The kernel's name of it, such as `mono` or `global`.
    pub name: Option<String>,
    /// Resolution of times in nanoseconds: 1000 for ftrace text.
    pub step_ns: u32,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeDescription {
    /// Its number.
    pub id: u32,
    /// Its CPUs, in order.
    pub cpus: Vec<u32>,
    /// Distances to all online nodes, in order of their ids; empty if unknown.
    pub distances: Vec<u32>,
    /// The items of `per-node stats`, in the kernel's order.
    pub stats: Vec<Stat>,
}

/// A zone and its state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ZoneDescription {
    /// The node.
    pub node: u32,
    /// The zone's kind: `DMA`, `DMA32`, `Normal`, `HighMem`, `Movable` or `Device`.
    pub kind: String,
    /// First page frame; 0 if the zone is unpopulated.
    pub start_pfn: u64,
    /// Page frames from the first to the last, with holes.
    pub spanned: u64,
    /// Page frames that exist.
    pub present: u64,
    /// Pages that the allocator got.
    pub managed: u64,
    /// Pages on the free lists.
    pub free: u64,
    /// Watermark below which only reserves are given.
    pub min: u64,
    /// Watermark below which background reclaim starts.
    pub low: u64,
    /// Watermark at which background reclaim stops.
    pub high: u64,
    /// Temporary rise of the watermarks after fragmentation.
    pub boost: u64,
    /// Pages that requests for a higher zone must leave, by zone index; empty if unknown.
    pub protection: Vec<i64>,
    /// The per-CPU lists.
    pub pagesets: Vec<Pageset>,
    /// The NUMA events, `numa_hit` and so on; empty if unknown.
    pub numa_events: Vec<Stat>,
}

/// How the kernel was built and the recording made; `None` where no file tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    /// Upper bound of the shift that scales refills and drains (LB-E.6).
    pub batch_scale_max: Option<u32>,
    /// Whether NUMA support is built in.
    pub numa: Option<bool>,
    /// Whether the contiguous memory allocator is built in: it adds a migratetype.
    pub cma: Option<bool>,
    /// Whether free lists can be shuffled.
    pub shuffle: Option<bool>,
    /// Whether the cache slice of a CPU is large enough for `FREE_HIGH_BATCH` (LB-E.5).
    pub free_high_batch_expected: Option<bool>,
    /// Whether the per-CPU lists were emptied before tracing began.
    pub cold_pcp_start: Option<bool>,
    /// Whether waits for spinlocks were recorded.
    pub lock_waits: Option<bool>,
    /// Whether allocations and frees were recorded, and not only what moves between lists and
    /// buddies. Without them pages of files that come and go are left out, too; older recordings
    /// have these.
    pub uses: Option<bool>,
}

impl MachineDescription {
    /// Whether only moves between lists and buddies were recorded: such a recording cannot be
    /// replayed.
    pub fn has_moves_alone(&self) -> bool {
        self.flags.uses == Some(false)
    }

    /// What is wrong where the recorder counted another number of events than `found`, of those
    /// that [are counted](crate::EventKind::is_counted): no recording can be read that says so.
    pub fn miscounted(&self, found: u64) -> Option<String> {
        let told = self.events.filter(|told| *told != found)?;
        Some(format!("meta.json tells of {told} events; {found} are there: it was cut"))
    }

    /// Reads everything that `source` tells about a machine. `name` is used where `meta.json` has
    /// no name.
    ///
    /// This needs no event stream: the directories of captured kernel state read as well.
    ///
    /// # Errors
    /// The first file that exists and cannot be read.
    pub fn read(source: &dyn Source, name: &str) -> Result<Self, TraceError> {
        let mut meta = Meta::read(source)?.unwrap_or_default();
        if meta.uname.is_none() {
            meta.uname = uname(source)?;
        }
        let zoneinfo = read_first(source, ZONEINFO, zoneinfo::parse)?.unwrap_or_default().zones;
        let buddyinfo = read_first(source, BUDDYINFO, buddyinfo::parse)?;
        let pagetypeinfo = read_first(source, PAGETYPEINFO, pagetypeinfo::parse)?;
        let mut machine = MachineDescription {
            buddyinfo: buddyinfo.unwrap_or_default().zones,
            pagetypeinfo: pagetypeinfo.unwrap_or_default().nodes,
            zones: zones(&zoneinfo, &meta.zones_pre),
            zoneinfo,
            ..from_meta(&meta, name)
        };
        let changes = meta.pageset_changes();
        machine.pageset_changes =
            changes.map_err(|error| error.in_file(source.display(crate::meta::FILE)))?;
        machine.start = meta.pcp_at_start.map(|poll| polled(&poll, &machine.zones));
        machine.end = meta.pcp_at_end.map(|poll| polled(&poll, &machine.zones));
        if let (None, Some(node)) = (meta.pageblock_order, machine.pagetypeinfo.first()) {
            machine.pageblock_order = u8::try_from(node.pageblock_order).unwrap_or(u8::MAX);
        }
        machine.nodes = nodes(source, &machine)?;
        machine.cpus = cpus(&machine);
        complete_single_node(&mut machine);
        machine.check_lists()?;
        Ok(machine)
    }

    /// Lists hold pages of their zone: who rebuilds them makes room for as many.
    fn check_lists(&self) -> Result<(), TraceError> {
        let known = self.zones.iter().map(|zone| (zone.node, &zone.kind, &zone.pagesets));
        let polled = [&self.start, &self.end].into_iter().flatten().flat_map(|state| &state.zones);
        let polled = polled.map(|zone| (zone.node, &zone.kind, &zone.pagesets));
        for (node, kind, sets) in known.chain(polled) {
            let most = self.zone(node, kind).map_or(LISTED_MAX, |zone| {
                zone.spanned.max(zone.present).max(zone.managed).min(LISTED_MAX)
            });
            let listed = sets.iter().fold(0, |sum: u64, set| sum.saturating_add(set.count));
            if listed > most {
                let found = format!("{listed} of {most} of node {node}, {kind}");
                let expected = "no more pages on a zone's lists than it has";
                let bad = crate::error::bad_field("count", expected, found.as_bytes());
                return Err(TraceError::new(&self.name, Position::File, bad));
            }
        }
        Ok(())
    }

    /// The zones, or an error that says which files would have told them, or on which node a CPU
    /// is.
    ///
    /// # Errors
    /// If no file tells about zones, or there are several nodes and no file tells on which of them
    /// a CPU is that has lists.
    pub fn require_zones(&self) -> Result<&[ZoneDescription], TraceError> {
        if self.zones.is_empty() {
            let expected = format!(
                "one of {}, or zones_pre in meta.json, beside the trace or with --machine DIR",
                ZONEINFO.join(", ")
            );
            return Err(self.missing(expected));
        }
        if let [first, _, ..] = self.nodes.as_slice() {
            let is_told = |cpu: &u32| self.nodes.iter().any(|node| node.cpus.contains(cpu));
            let all_empty = self.nodes.iter().all(|node| node.cpus.is_empty());
            let lost = with_lists(self).find(|cpu| !is_told(cpu));
            if all_empty || lost.is_some() {
                // The list that is not there, or has no CPU.
                let node = self.nodes.iter().find(|node| node.cpus.is_empty()).unwrap_or(first);
                let cpu = lost.map_or("each CPU".to_owned(), |cpu| format!("CPU {cpu}"));
                return Err(self.missing(format!(
                    "node{}-cpulist.txt and those of the other nodes, which say on which node \
                     {cpu} is, beside the trace or with --machine DIR",
                    node.id
                )));
            }
        }
        Ok(&self.zones)
    }

    fn missing(&self, expected: String) -> TraceError {
        TraceError::new(&self.name, Position::File, TraceErrorKind::Missing { expected })
    }

    /// The zone of this node and kind.
    pub fn zone(&self, node: u32, kind: &str) -> Option<&ZoneDescription> {
        self.zones.iter().find(|zone| zone.node == node && zone.kind == kind)
    }
}

impl ZoneDescription {
    /// Whether the zone has pages.
    pub fn is_populated(&self) -> bool {
        self.present > 0
    }
}

fn from_meta(meta: &Meta, name: &str) -> MachineDescription {
    let config = &meta.config;
    MachineDescription {
        name: meta.name.clone().unwrap_or_else(|| name.to_owned()),
        workload: meta.workload.clone(),
        kernel_release: meta.uname.as_deref().and_then(release),
        uname: meta.uname.clone(),
        cpus: meta.cpus,
        page_size: meta.page_size(),
        pageblock_order: meta.pageblock_order.unwrap_or(9),
        clock: Clock { name: meta.clock.clone(), step_ns: meta.clock_step_ns.unwrap_or(1).max(1) },
        workload_ns: meta.t_start_ns.zip(meta.t_end_ns),
        command_pid: meta.command_pid,
        ring_kib: meta.ring_kib,
        is_simulated: meta.is_simulated(),
        flags: Flags {
            batch_scale_max: config.batch_scale_max,
            numa: config.numa,
            cma: config.cma,
            shuffle: config.shuffle,
            free_high_batch_expected: config.free_high_batch,
            cold_pcp_start: meta.cold_pcp_start,
            lock_waits: meta.lock_waits,
            uses: meta.uses_recorded,
        },
        prices: meta.prices.clone(),
        events: meta.events_total(),
        events_by_name: meta.events_by_name(),
        events_dropped: meta.dropped_events,
        ..MachineDescription::default()
    }
}

/// The most pages on a zone's lists: as many as the largest zone has.
const LISTED_MAX: u64 = 1 << 32;

/// The third word of `Linux HOST RELEASE …`.
fn release(uname: &str) -> Option<String> {
    uname.split_ascii_whitespace().nth(2).map(str::to_owned)
}

/// What `uname -a` or `uname -r` printed into a file, where a shell made the recording.
fn uname(source: &dyn Source) -> Result<Option<String>, TraceError> {
    let text = match read_text(source, "uname.txt") {
        Err(error) if matches!(error.kind(), TraceErrorKind::Empty { .. }) => None,
        other => other?,
    };
    let text = text.unwrap_or_default();
    let line = text.lines().next().unwrap_or_default().trim();
    Ok(match line.split_ascii_whitespace().count() {
        0 => None,
        1 => Some(format!("Linux - {line}")),
        _ => Some(line.to_owned()),
    })
}

fn read_first<T>(
    source: &dyn Source,
    names: [&str; 3],
    parse: fn(&str) -> Result<T, zonal_text::Error>,
) -> Result<Option<T>, TraceError> {
    for name in names {
        if let Some(document) = read_document(source, name, parse)? {
            return Ok(Some(document));
        }
    }
    Ok(None)
}

/// Reads a text of the kernel, if there is one.
fn read_document<T>(
    source: &dyn Source,
    name: &str,
    parse: fn(&str) -> Result<T, zonal_text::Error>,
) -> Result<Option<T>, TraceError> {
    let Some(text) = read_text(source, name)? else {
        return Ok(None);
    };
    parse(&text).map(Some).map_err(|error| TraceError::in_text(error, source.display(name)))
}

fn zones(zoneinfo: &[ZoneInfo], from_meta: &[MetaZone]) -> Vec<ZoneDescription> {
    if !zoneinfo.is_empty() {
        return zoneinfo.iter().map(zone_from_zoneinfo).collect();
    }
    let zone = |zone: &MetaZone| ZoneDescription {
        node: zone.node,
        kind: zone.zone.clone(),
        start_pfn: zone.start_pfn,
        spanned: zone.spanned,
        present: zone.present,
        managed: zone.managed,
        free: zone.free,
        min: zone.min,
        low: zone.low,
        high: zone.high,
        pagesets: zone.pcp.iter().map(|(cpu, pageset)| pageset.values(*cpu)).collect(),
        ..ZoneDescription::default()
    };
    from_meta.iter().map(zone).collect()
}

fn zone_from_zoneinfo(info: &ZoneInfo) -> ZoneDescription {
    let pages = |name| info.page_count(name).unwrap_or(0);
    let pagesets = info.pagesets.iter().flatten();
    ZoneDescription {
        node: info.node,
        kind: info.name.clone(),
        start_pfn: info.start_pfn().unwrap_or(0),
        spanned: pages("spanned"),
        present: pages("present"),
        managed: pages("managed"),
        free: pages("free"),
        min: pages("min"),
        low: pages("low"),
        high: pages("high"),
        boost: pages("boost"),
        protection: info.protection.clone(),
        pagesets: pagesets.map(PagesetInfo::values).collect(),
        numa_events: info.numa_events().cloned().collect(),
    }
}

/// The sample, with its zones in the order of `zones`.
fn polled(poll: &MetaPoll, zones: &[ZoneDescription]) -> PolledState {
    let mut polled: Vec<PolledZone> = poll
        .zones
        .iter()
        .map(|(name, marks)| {
            let pagesets = poll.pcp.get(name).into_iter().flatten();
            let (node, kind) = zone_of(name).unwrap_or((0, name));
            PolledZone {
                node,
                kind: kind.to_owned(),
                free: marks.free,
                min: marks.min,
                low: marks.low,
                high: marks.high,
                boost: marks.boost,
                managed: marks.managed,
                pagesets: pagesets.map(|(cpu, pageset)| pageset.values(*cpu)).collect(),
            }
        })
        .collect();
    let same = |zone: &PolledZone, known: &ZoneDescription| {
        (known.node, &known.kind) == (zone.node, &zone.kind)
    };
    polled.sort_by_key(|zone| zones.iter().position(|known| same(zone, known)));
    PolledState { t_begin_ns: poll.t_begin_ns, t_end_ns: poll.t_end_ns, zones: polled }
}

/// The nodes that have files or zones. Files are looked for up to the first node that has neither.
fn nodes(
    source: &dyn Source,
    machine: &MachineDescription,
) -> Result<Vec<NodeDescription>, TraceError> {
    let mut nodes = Vec::new();
    let last = machine.zones.iter().map(|zone| zone.node).max();
    for id in 0..NODES_MAX {
        let cpulist_name = format!("node{id}-cpulist.txt");
        let cpulist = read_document(source, &cpulist_name, cpulist::parse)?;
        let distance_name = format!("node{id}-distance.txt");
        let distances = read_document(source, &distance_name, distance::parse)?;
        let of_node = |info: &&ZoneInfo| info.node == id;
        let has_zones = machine.zones.iter().any(|zone| zone.node == id);
        if cpulist.is_none() && distances.is_none() && !has_zones {
            if last.is_none_or(|last| id > last) {
                break;
            }
            continue;
        }
        let stats = machine.zoneinfo.iter().filter(of_node).find_map(|i| i.node_stats.clone());
        nodes.push(NodeDescription {
            id,
            cpus: cpulist.unwrap_or_default().ids,
            distances: distances.unwrap_or_default().distances,
            stats: stats.unwrap_or_default(),
        });
    }
    Ok(nodes)
}

/// One more than the highest CPU id in any file.
fn cpus(machine: &MachineDescription) -> Option<u32> {
    let of_nodes = machine.nodes.iter().flat_map(|node| &node.cpus).copied();
    of_nodes.chain(with_lists(machine)).map(|cpu| cpu.saturating_add(1)).chain(machine.cpus).max()
}

/// The CPUs of which a file says what their lists hold.
fn with_lists(machine: &MachineDescription) -> impl Iterator<Item = u32> + '_ {
    let polls = [&machine.start, &machine.end].into_iter().flatten();
    let polled = polls.flat_map(|poll| &poll.zones).flat_map(|zone| &zone.pagesets);
    let of_zones = machine.zones.iter().flat_map(|zone| &zone.pagesets);
    of_zones.chain(polled).map(|set| set.cpu)
}

/// A machine of one node needs no files to say where its CPUs are.
fn complete_single_node(machine: &mut MachineDescription) {
    if let ([node], Some(cpus)) = (machine.nodes.as_mut_slice(), machine.cpus) {
        if node.cpus.is_empty() {
            node.cpus = (0..cpus.min(CPUS_MAX)).collect();
        }
        if node.distances.is_empty() {
            node.distances = vec![LOCAL_DISTANCE];
        }
    }
}

#[cfg(test)]
#[path = "description_tests.rs"]
mod tests;
