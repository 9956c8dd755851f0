//! A trace for more CPUs.
//!
//! The rule, with `C` the CPUs of the machine, `P` the power of two above its last page frame and
//! `k` from 0 to `N - 1`: each event happens once in each copy `k`, with
//!
//! | | in copy `k` |
//! |--|--|
//! | CPU | `cpu + k * C` |
//! | page frame | `pfn + k * P` |
//! | thread | `pid + k * 2^22` (the idle thread stays 0), forked children too |
//! | time | `time + k * shift` |
//! | node | `node + k * nodes`: zones, lists and free blocks are those of the original |
//!
//! Events of one time are in the order of the copies. So each copy is a separate machine like the
//! recorded one, and all of them run at once. Copies do not share memory: what `scale` makes shows
//! contention inside nodes and load of many nodes, not traffic between them.
//!
//! Of the machine's files, its zones and free blocks, nodes and build are scaled; counters and what
//! else tells of the one machine or its run is left out ([`not_scaled`]). Of the zones' own text
//! the counters of nodes are those of the recorded one, in each copy. No host made the result: it
//! is marked as simulated.
//!
//! A trace whose start is inside it is scaled from there on, with its lists as they were then. The
//! pageblocks' types are left out: the replay takes them from the allocations.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use zonal_text::{CPUS_MAX, buddyinfo, zoneinfo};

use super::error::MakeError;
use super::sink::{Sink, Target, Written};
use super::tick;
use crate::{
    Event, EventKind, Events, MachineDescription, MachineFiles, PFN_LIMIT, Part, Parts,
    PolledState, Recording,
};

/// Threads of a copy: `PID_MAX_LIMIT` of 64-bit kernels.
const THREADS: i32 = 1 << 22;
/// Largest distance between nodes that are not one (LB A.3).
const REMOTE_DISTANCE: u32 = 20;

/// How far copies are apart.
struct Strides {
    cpus: u32,
    frames: u64,
    nodes: u32,
    time_ns: u64,
}

/// How a trace is scaled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copies {
    /// How many copies.
    pub count: u32,
    /// Each copy begins this many microseconds after the one before it.
    pub shift_us: u64,
}

/// Writes a trace of `copies` copies side by side, each on its own CPUs, nodes and threads.
/// `progress` gets the number of events written so far.
///
/// # Errors
/// [`MakeError::Scale`] if the trace does not describe its machine well enough or the copies would
/// not fit; otherwise as [`convert`](super::convert).
pub fn scale(
    recording: &Recording,
    copies: Copies,
    target: Target,
    progress: &mut dyn FnMut(u64),
) -> Result<Written, MakeError> {
    let machine = recording.description();
    let zones = machine.require_zones()?;
    let end = zones.iter().map(|zone| zone.start_pfn + zone.spanned).max().unwrap_or(1);
    let cpus = machine.cpus.ok_or_else(|| refuse("the trace does not tell the number of CPUs"))?;
    let Copies { count, shift_us } = copies;
    let strides = Strides {
        cpus,
        frames: end.next_power_of_two(),
        nodes: zones.iter().map(|zone| zone.node + 1).max().unwrap_or(1),
        time_ns: shift_us.saturating_mul(1000),
    };
    if count == 0 || u64::from(cpus) * u64::from(count) > u64::from(CPUS_MAX) {
        let text = format!("{count} copies of {cpus} CPUs: expected at most {CPUS_MAX} together");
        return Err(MakeError::Scale(text));
    }
    let pages = strides.frames.checked_mul(u64::from(count));
    if pages.is_none_or(|end| end > PFN_LIMIT) {
        return Err(MakeError::Scale(format!("{count} copies: page frames would not fit")));
    }
    let files = scaled_files(recording, &strides, count)?;
    let parts = files.iter().map(|(name, content)| Part::new(name, content.to_vec())).collect();
    let mut scaled = MachineDescription::read(&Parts::new("scaled", parts), &machine.name)?;
    scaled.clock.step_ns = machine.clock.step_ns;
    let mut sink = Sink::create(target, recording, &scaled, &files)?;
    let from = machine.start.as_ref().map_or(0, |start| start.t_end_ns);
    let mut streams = Streams::new(recording, from, count, &strides)?;
    while let Some(event) = streams.next(&strides)? {
        sink.push(&event)?;
        tick(&sink, progress);
    }
    sink.finish()
}

/// Those of a machine's files, by name, of which a scaled trace has nothing.
pub fn not_scaled<'f>(names: impl Iterator<Item = &'f str>) -> impl Iterator<Item = &'f str> {
    let is_scaled = |name: &str| {
        let of_nodes = name.starts_with("node")
            && (name.ends_with("-cpulist.txt") || name.ends_with("-distance.txt"));
        let of_zones = name.contains("zoneinfo") || name.contains("buddyinfo");
        of_nodes || of_zones || name == "name" || name == crate::meta::FILE
    };
    names.filter(move |name| !is_scaled(name))
}

fn refuse(text: &str) -> MakeError {
    MakeError::Scale(text.to_owned())
}

/// Copies of one stream, merged by time.
struct Streams {
    streams: Vec<Events>,
    next: BinaryHeap<Reverse<(u64, usize)>>,
    events: Vec<Option<Event>>,
}

impl Streams {
    fn new(
        recording: &Recording,
        from: u64,
        copies: u32,
        strides: &Strides,
    ) -> Result<Streams, MakeError> {
        let streams = (0..copies).map(|_| recording.events_from(from)).collect();
        let events = (0..copies).map(|_| None).collect();
        let mut all = Streams { streams, next: BinaryHeap::new(), events };
        for copy in 0..copies as usize {
            all.advance(copy, strides)?;
        }
        Ok(all)
    }

    fn advance(&mut self, copy: usize, strides: &Strides) -> Result<(), MakeError> {
        if let Some(event) = self.streams[copy].next().transpose()? {
            let event = strides.moved(event, copy as u32)?;
            self.next.push(Reverse((event.time_ns, copy)));
            self.events[copy] = Some(event);
        }
        Ok(())
    }

    fn next(&mut self, strides: &Strides) -> Result<Option<Event>, MakeError> {
        let Some(Reverse((_, copy))) = self.next.pop() else { return Ok(None) };
        let event = self.events[copy].take();
        self.advance(copy, strides)?;
        Ok(event)
    }
}

impl Strides {
    /// An event in a copy.
    fn moved(&self, event: Event, copy: u32) -> Result<Event, MakeError> {
        let frames = self.frames * u64::from(copy);
        let thread = |pid: i32| -> Result<i32, MakeError> {
            let stride = THREADS.checked_mul(copy as i32).filter(|_| pid != 0);
            stride
                .map_or(Some(pid).filter(|_| pid == 0), |stride| pid.checked_add(stride))
                .ok_or_else(|| refuse("a thread id of the trace is too large to be scaled"))
        };
        let mut kind = event.kind;
        match &mut kind {
            EventKind::Alloc { pfn: Some(pfn), .. }
            | EventKind::Free { pfn, .. }
            | EventKind::FreeBatched { pfn }
            | EventKind::ZoneLocked { pfn, .. }
            | EventKind::PcpuDrain { pfn, .. }
            | EventKind::Extfrag { pfn, .. } => {
                if *pfn >= self.frames {
                    let text = format!("page frame {pfn:#x} lies above all zones");
                    return Err(MakeError::Scale(text));
                }
                *pfn += frames;
            }
            EventKind::Notice(notice) => {
                *notice = notice.moved(self.nodes * copy, frames);
            }
            EventKind::Fork { child } => *child = thread(*child)?,
            _ => {}
        }
        Ok(Event {
            time_ns: event.time_ns.saturating_add(self.time_ns * u64::from(copy)),
            cpu: event.cpu + self.cpus * copy,
            pid: thread(event.pid)?,
            kind,
        })
    }
}

/// The files of a machine of `copies` machines.
fn scaled_files(
    recording: &Recording,
    strides: &Strides,
    copies: u32,
) -> Result<MachineFiles, MakeError> {
    let machine = recording.description();
    let own = recording.machine_files()?;
    let mut files = MachineFiles::default();
    let text = |names: [&str; 3]| -> Option<String> {
        let found = names.iter().find_map(|name| own.get(name))?;
        Some(String::from_utf8_lossy(found).into_owned())
    };
    let zones = text(["zoneinfo.pre", "before-zoneinfo.txt", "zoneinfo.txt"])
        .ok_or_else(|| refuse("scaling needs the text of /proc/zoneinfo: --machine DIR"))?;
    let mut zones = zoneinfo::parse(&zones)?;
    if let Some(start) = &machine.start {
        apply(&mut zones, start);
    }
    let original = std::mem::take(&mut zones.zones);
    for copy in 0..copies {
        for mut zone in original.iter().cloned() {
            zone.node += strides.nodes * copy;
            let populated = zone.is_populated();
            let start = zone.tail.iter_mut().filter(|stat| stat.name == "start_pfn");
            start.filter(|_| populated).for_each(|stat| {
                stat.value += strides.frames * u64::from(copy);
            });
            // Each zone has a list per CPU, and those of other machines' CPUs are empty.
            let lists = zone.pagesets.take().unwrap_or_default();
            let of_copy = |other: u32| {
                lists.iter().cloned().map(move |mut list| {
                    list.cpu += strides.cpus * other;
                    if other != copy {
                        let count = list.fields.iter_mut().filter(|stat| stat.name == "count");
                        count.for_each(|stat| stat.value = 0);
                    }
                    list
                })
            };
            if populated {
                zone.pagesets = Some((0..copies).flat_map(of_copy).collect());
            }
            zones.zones.push(zone);
        }
    }
    files.set("zoneinfo.pre", zones.to_string().into_bytes());
    if let Some(free) = text(["buddyinfo.pre", "before-buddyinfo.txt", "buddyinfo.txt"]) {
        let mut free = buddyinfo::parse(&free)?;
        let original = std::mem::take(&mut free.zones);
        for copy in 0..copies {
            free.zones.extend(original.iter().cloned().map(|mut zone| {
                zone.node += strides.nodes * copy;
                zone
            }));
        }
        files.set("buddyinfo.pre", free.to_string().into_bytes());
    }
    nodes(machine, strides, copies, &mut files);
    let meta = meta(machine, strides, copies);
    files.set("meta.json", format!("{meta:#}\n").into_bytes());
    Ok(files)
}

fn meta(machine: &MachineDescription, strides: &Strides, copies: u32) -> serde_json::Value {
    serde_json::json!({
        "name": format!("{} x {copies}", machine.name),
        "uname": machine.uname,
        "workload": machine.workload,
        "cpus": strides.cpus * copies,
        "clock": machine.clock.name,
        "page_size": machine.page_size,
        "pageblock_order": machine.pageblock_order,
        "cold_pcp_start": machine.flags.cold_pcp_start,
        "lock_waits": machine.flags.lock_waits,
        "prices": machine.prices,
        "config": config(machine),
        "lab": { "kind": "scaled" },
    })
}

fn config(machine: &MachineDescription) -> serde_json::Value {
    let flags = &machine.flags;
    serde_json::json!({
        "CONFIG_PCP_BATCH_SCALE_MAX": flags.batch_scale_max,
        "CONFIG_NUMA": flags.numa,
        "CONFIG_CMA": flags.cma,
        "SHUFFLE_PAGE_ALLOCATOR_built_in": flags.shuffle,
        "PCPF_FREE_HIGH_BATCH_expected": flags.free_high_batch_expected,
    })
}

/// Puts the state at the start of the trace in the place of the one before it.
fn apply(zones: &mut zoneinfo::Document, start: &PolledState) {
    for zone in &mut zones.zones {
        let Some(state) = start.zones.iter().find(|state| state.kind == zone.name) else {
            continue;
        };
        let marks = [("free", state.free), ("min", state.min), ("low", state.low)];
        for (name, value) in marks.into_iter().chain([("high", state.high)]) {
            let stat = zone.pages.iter_mut().find(|stat| stat.name == name);
            stat.into_iter().for_each(|stat| stat.value = value);
        }
        for list in zone.pagesets.iter_mut().flatten() {
            let Some(state) = state.pagesets.iter().find(|state| state.cpu == list.cpu) else {
                continue;
            };
            let values = [
                ("count", Some(state.count)),
                ("high", Some(state.high)),
                ("batch", Some(state.batch)),
                ("high_min", state.high_min),
                ("high_max", state.high_max),
            ];
            for (name, value) in values {
                let stat = list.fields.iter_mut().find(|stat| stat.name == name);
                stat.zip(value).into_iter().for_each(|(stat, value)| stat.value = value);
            }
        }
    }
}

/// The lists of CPUs and the distances of all nodes.
fn nodes(machine: &MachineDescription, strides: &Strides, copies: u32, files: &mut MachineFiles) {
    let total = (strides.nodes * copies) as usize;
    for copy in 0..copies {
        for node in &machine.nodes {
            let id = node.id + strides.nodes * copy;
            let cpus = node.cpus.iter().map(|cpu| (cpu + strides.cpus * copy).to_string());
            let cpus = cpus.collect::<Vec<_>>().join(",");
            let distance = |other: usize| {
                let own = other.checked_sub((strides.nodes * copy) as usize);
                own.and_then(|own| node.distances.get(own)).copied().unwrap_or(REMOTE_DISTANCE)
            };
            let distances: Vec<String> =
                (0..total).map(|other| distance(other).to_string()).collect();
            files.set(&format!("node{id}-cpulist.txt"), format!("{cpus}\n").into_bytes());
            let distances = distances.join(" ");
            files.set(&format!("node{id}-distance.txt"), format!("{distances}\n").into_bytes());
        }
    }
}
