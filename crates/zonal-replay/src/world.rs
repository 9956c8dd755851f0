//! What the recorded machine's reclaim did to its lists, at the times that a recording tells.
//!
//! Pages that come back through reclaim are frees in the trace. What no event of a page says:
//!
//! - While background reclaim runs, lists are kept short (LB H.3, E.7): from `kswapd_wake` to the
//!   last page that its thread frees or allocates, or its last notice, before it wakes again or
//!   sleeps.
//! - Where direct reclaim did not help, all lists are emptied (LB D.5): after `direct_reclaim_end`
//!   its thread does not get its pages.
//! - After pages were moved together, the lists of that CPU are emptied: the thread freed pages
//!   between `compaction_begin` and `compaction_end`. Not where whole nodes are compacted, for no
//!   request (`compact_memory`, `compaction_proactiveness`): then all zones of a node come one
//!   after the other, from the first on, where a request leaves those out that have such blocks.
//!   In a node with one zone the two look alike, and it is taken for a request's.
//!
//! None of this looks at refills or drains, so these stay what the model is judged by.

use std::collections::BTreeMap;

use zonal_core::alloc::Sysctl;
use zonal_trace::{Event, EventKind, Notice};

use crate::settings::Settings;
use crate::zones::ZoneMap;

/// One thing that happened to the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Background reclaim of the node with this number is at work from here on.
    ReclaimBegins(u32),
    /// Its run is over.
    ReclaimEnds(u32),
    /// All lists of all CPUs were emptied.
    AllEmptied,
    /// The lists of this CPU were emptied in the zone that begins with this frame.
    Emptied(u64),
    /// A setting was written.
    Set(Sysctl, i64),
    /// The CPU is offline from here on.
    CpuGoes,
    /// The CPU is online again.
    CpuComes,
}

/// A [`Change`] with its time and CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// When: before what happened at this time.
    pub time_ns: u64,
    /// The CPU that did it, or that goes or comes.
    pub cpu: u16,
    /// What was done.
    pub change: Change,
}

impl Changed {
    /// Which setting was written, or which CPU went or came, and when, in words; `None`: none.
    pub fn written(&self, start_ns: u64) -> Option<String> {
        let what = match self.change {
            Change::Set(sysctl, value) => format!("{} is {value}", Settings::name_of(sysctl)),
            Change::CpuGoes => format!("CPU {} is offline", self.cpu),
            Change::CpuComes => format!("CPU {} is online", self.cpu),
            _ => return None,
        };
        let seconds = self.time_ns.saturating_sub(start_ns) as f64 / 1e9;
        Some(format!("{what} from {seconds:.1} s on"))
    }
}

/// Whether one of the changes writes a setting.
pub fn is_set(changes: &[Changed], sysctl: Sysctl) -> bool {
    changes.iter().any(|told| matches!(told.change, Change::Set(set, _) if set == sysctl))
}

/// A run of background reclaim.
#[derive(Clone, Copy, Debug)]
struct Run {
    thread: i32,
    last_ns: u64,
    cpu: u16,
}

/// Collects changes while a trace is read.
#[derive(Debug, Default)]
pub struct World {
    /// By node: the run that goes on.
    runs: BTreeMap<u32, Run>,
    /// By node: the end of its last run, in `changes`.
    ends: BTreeMap<u32, usize>,
    /// By thread: when its reclaim ended, with some success, and where.
    tries: BTreeMap<i32, (u64, u16)>,
    /// By thread: the zone that it moves pages in, and whether it freed any.
    moving: BTreeMap<i32, (u64, bool)>,
    /// First frames of the zones, in the order in which whole nodes are compacted; of each whether
    /// more of its node follow.
    zones: Vec<(u64, bool)>,
    /// By thread that compacts whole nodes: the zone it is at.
    sweeping: BTreeMap<i32, usize>,
    changes: Vec<Changed>,
}

impl World {
    /// For a machine of these zones.
    pub fn new(map: &ZoneMap) -> World {
        let zones = map.zones();
        let follows = |at: usize| zones.get(at + 1).is_some_and(|next| next.node == zones[at].node);
        let zones = (0..zones.len()).map(|at| (zones[at].start, follows(at))).collect();
        World { zones, ..World::default() }
    }

    /// Takes note of the next event of the trace.
    pub fn see(&mut self, event: &Event) {
        let Event { time_ns, pid, ref kind, .. } = *event;
        let cpu = event.cpu as u16;
        if let EventKind::Notice(notice) = kind {
            self.noticed((time_ns, pid, cpu), *notice);
        }
        if tells_of_work(kind) {
            for run in self.runs.values_mut().filter(|run| run.thread == pid) {
                (run.last_ns, run.cpu) = (time_ns, cpu);
            }
        }
        match kind {
            EventKind::Alloc { .. } => {
                self.tries.remove(&pid);
            }
            EventKind::Free { .. } => {
                if let Some((_, has_freed)) = self.moving.get_mut(&pid) {
                    *has_freed = true;
                }
            }
            _ => {}
        }
    }

    fn noticed(&mut self, (time_ns, pid, cpu): (u64, i32, u16), notice: Notice) {
        match notice {
            Notice::KswapdWake { node, .. } => {
                self.end_run(node);
                // A run is over when the next one begins, also where a clock has microseconds.
                if let Some(end) = self.ends.get(&node) {
                    let end = &mut self.changes[*end];
                    end.time_ns = end.time_ns.min(time_ns);
                }
                self.push(time_ns, cpu, Change::ReclaimBegins(node));
                self.runs.insert(node, Run { thread: pid, last_ns: time_ns, cpu });
            }
            Notice::KswapdSleep { node } => self.end_run(node),
            Notice::ReclaimBegin { .. } => self.did_not_help(pid),
            Notice::ReclaimEnd { pages } if pages > 0 => {
                self.tries.insert(pid, (time_ns, cpu));
            }
            Notice::CompactionBegin { zone_start, .. } => {
                self.did_not_help(pid);
                self.moving.insert(pid, (zone_start, false));
                match self.swept(pid, zone_start) {
                    Some(at) => self.sweeping.insert(pid, at),
                    None => self.sweeping.remove(&pid),
                };
            }
            Notice::CompactionEnd { .. } => {
                if let Some((zone_start, true)) = self.moving.remove(&pid)
                    && !self.sweeping.contains_key(&pid)
                {
                    self.push(time_ns, cpu, Change::Emptied(zone_start));
                }
            }
            _ => {}
        }
    }

    /// The zone's place, if the thread begins to compact a whole node there, or goes on with it.
    fn swept(&self, pid: i32, zone_start: u64) -> Option<usize> {
        let at = self.zones.iter().position(|(start, _)| *start == zone_start)?;
        let (before, follows) = (self.zones[..at].last(), self.zones[at].1);
        let is_first = follows && before.is_none_or(|(_, follows)| !follows);
        let goes_on = self.sweeping.get(&pid).is_some_and(|last| last + 1 == at);
        (is_first || goes_on).then_some(at)
    }

    fn push(&mut self, time_ns: u64, cpu: u16, change: Change) {
        self.changes.push(Changed { time_ns, cpu, change });
    }

    fn end_run(&mut self, node: u32) {
        if let Some(Run { last_ns, cpu, .. }) = self.runs.remove(&node) {
            self.ends.insert(node, self.changes.len());
            self.push(last_ns.saturating_add(1), cpu, Change::ReclaimEnds(node));
        }
    }

    /// The thread tries something else: its reclaim got pages, and it none.
    fn did_not_help(&mut self, pid: i32) {
        if let Some((time_ns, cpu)) = self.tries.remove(&pid) {
            self.push(time_ns.saturating_add(1), cpu, Change::AllEmptied);
        }
    }

    /// All changes, in the order of time; of one time, as they came: an end before a beginning.
    pub fn finish(mut self) -> Vec<Changed> {
        let nodes: Vec<u32> = self.runs.keys().copied().collect();
        nodes.into_iter().for_each(|node| self.end_run(node));
        self.changes.sort_by_key(|changed| changed.time_ns);
        self.changes
    }
}

/// Whether a thread of reclaim that has such an event is still at work. Refills and drains, and
/// the fallbacks of refills, are the model's to find.
fn tells_of_work(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::Alloc { .. }
            | EventKind::Free { .. }
            | EventKind::FreeBatched { .. }
            | EventKind::Notice(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const KSWAPD: i32 = 45;

    fn of(events: &[(u64, i32, EventKind)]) -> Vec<(u64, Change)> {
        let mut world = World::default();
        for (time_ns, pid, kind) in events {
            world.see(&Event { time_ns: *time_ns, cpu: 1, pid: *pid, kind: kind.clone() });
        }
        world.finish().into_iter().map(|changed| (changed.time_ns, changed.change)).collect()
    }

    fn wake() -> EventKind {
        EventKind::Notice(Notice::KswapdWake { node: 0, order: 0 })
    }
    fn sleep() -> EventKind {
        EventKind::Notice(Notice::KswapdSleep { node: 0 })
    }
    fn free() -> EventKind {
        EventKind::Free { pfn: 1, order: 0 }
    }
    fn alloc() -> EventKind {
        EventKind::Alloc { pfn: Some(1), order: 0, migratetype: 1, gfp: 0 }
    }

    #[test]
    fn a_run_ends_with_the_last_event_of_its_thread() {
        use Change::{ReclaimBegins, ReclaimEnds};
        let events = [
            (10, KSWAPD, wake()),
            (12, KSWAPD, free()),
            (15, 7, free()),
            (30, KSWAPD, wake()),
            (40, KSWAPD, wake()),
            (44, KSWAPD, free()),
            (60, KSWAPD, sleep()),
            (70, KSWAPD, free()),
        ];
        assert_eq!(
            of(&events),
            [
                (10, ReclaimBegins(0)),
                (13, ReclaimEnds(0)),
                (30, ReclaimBegins(0)),
                (31, ReclaimEnds(0)),
                (40, ReclaimBegins(0)),
                (45, ReclaimEnds(0)),
            ]
        );
    }

    #[test]
    fn refills_and_drains_do_not_say_when_a_run_ends() {
        use Change::{ReclaimBegins, ReclaimEnds};
        let (pfn, order, migratetype) = (1, 0, 1);
        let moves = [
            EventKind::PcpuDrain { pfn, order, migratetype },
            EventKind::ZoneLocked { pfn, order, migratetype, percpu_refill: true },
        ];
        for kind in moves {
            let run = [(10, KSWAPD, wake()), (12, KSWAPD, free()), (20, KSWAPD, kind)];
            let events = [&run[..], &[(60, KSWAPD, sleep())]].concat();
            assert_eq!(of(&events), [(10, ReclaimBegins(0)), (13, ReclaimEnds(0))]);
        }
    }

    #[test]
    fn a_run_that_begins_at_the_time_of_the_last_ones_end_is_not_lost() {
        use Change::{ReclaimBegins, ReclaimEnds};
        let runs = [
            (10, ReclaimBegins(0)),
            (30, ReclaimEnds(0)),
            (30, ReclaimBegins(0)),
            (45, ReclaimEnds(0)),
        ];
        let first = [(10, KSWAPD, wake()), (30, KSWAPD, free())];
        let second = [(30, KSWAPD, wake()), (44, KSWAPD, free())];
        assert_eq!(of(&[&first[..], &second].concat()), runs);
        assert_eq!(of(&[&first[..], &[(30, KSWAPD, sleep())], &second].concat()), runs);
    }

    #[test]
    fn the_last_time_there_is_has_none_after_it() {
        use Change::{ReclaimBegins, ReclaimEnds};
        let end = u64::MAX;
        let run = [(end, KSWAPD, wake()), (end, KSWAPD, free())];
        assert_eq!(of(&run), [(end, ReclaimBegins(0)), (end, ReclaimEnds(0))]);
        let begin = || EventKind::Notice(Notice::ReclaimBegin { order: 9, gfp: 0 });
        let ended = EventKind::Notice(Notice::ReclaimEnd { pages: 9 });
        let again = [(end, 7, begin()), (end, 7, ended), (end, 7, begin())];
        assert_eq!(of(&again), [(end, Change::AllEmptied)]);
    }

    #[test]
    fn lists_are_emptied_where_direct_reclaim_gave_its_thread_nothing() {
        let begin = || EventKind::Notice(Notice::ReclaimBegin { order: 9, gfp: 0 });
        let end = |pages| EventKind::Notice(Notice::ReclaimEnd { pages });
        let helped = [(1, 7, begin()), (5, 7, end(9)), (6, 8, alloc()), (7, 7, alloc())];
        assert_eq!(of(&helped), []);
        let again = [(1, 7, begin()), (5, 7, end(9)), (6, 8, alloc()), (7, 7, begin())];
        assert_eq!(of(&again), [(6, Change::AllEmptied)]);
        let nothing = [(1, 7, begin()), (5, 7, end(0)), (7, 7, begin())];
        assert_eq!(of(&nothing), []);
    }

    #[test]
    fn a_setting_that_was_written_is_told_with_its_time() {
        let of = |change| Changed { time_ns: 2_700_000_000, cpu: 0, change }.written(1_000_000_000);
        let told = of(Change::Set(Sysctl::MinFreeKbytes, 135_168)).unwrap();
        assert_eq!(told, "vm.min_free_kbytes is 135168 from 1.7 s on");
        assert_eq!(of(Change::AllEmptied), None);
    }

    #[test]
    fn a_cpus_lists_are_emptied_after_pages_were_moved() {
        let zone_start = 4096;
        let begin = || EventKind::Notice(Notice::CompactionBegin { zone_start, sync: true });
        let end = || EventKind::Notice(Notice::CompactionEnd { zone_start, sync: true, status: 8 });
        let moved = [(1, 7, begin()), (2, 7, free()), (3, 7, end())];
        assert_eq!(of(&moved), [(3, Change::Emptied(zone_start))]);
        assert_eq!(of(&[(1, 7, begin()), (2, 8, free()), (3, 7, end())]), []);
    }

    #[test]
    fn who_compacts_whole_nodes_empties_no_lists() {
        let (dma, dma32, normal, other) = (1, 4096, 1 << 20, 1 << 22);
        let zones = vec![(dma, true), (dma32, true), (normal, false), (other, false)];
        let emptied = |starts: &[u64]| {
            let mut world = World { zones: zones.clone(), ..World::default() };
            for (time_ns, zone_start) in (1..).zip(starts.iter().copied()) {
                let end = Notice::CompactionEnd { zone_start, sync: true, status: 5 };
                let begin = Notice::CompactionBegin { zone_start, sync: true };
                for kind in [EventKind::Notice(begin), free(), EventKind::Notice(end)] {
                    world.see(&Event { time_ns, cpu: 1, pid: 7, kind });
                }
            }
            let changes = world.finish();
            changes.into_iter().map(|changed| changed.change).collect::<Vec<Change>>()
        };
        assert_eq!(emptied(&[dma, dma32, normal, other]), []);
        assert_eq!(emptied(&[dma, dma32, normal, dma, dma32]), []);
        // For a request: the last zone first, or one that has no such block.
        assert_eq!(emptied(&[normal]), [Change::Emptied(normal)]);
        assert_eq!(emptied(&[dma32, normal]), [dma32, normal].map(Change::Emptied));
        assert_eq!(emptied(&[dma, normal]), [Change::Emptied(normal)]);
        assert_eq!(emptied(&[other]), [Change::Emptied(other)]);
    }
}
