//! Waits for locks in a recording: measured, not modelled.
//!
//! The kernel prints the address of a lock, not which one it is. A zone's lock is found by what
//! follows: right after a wait for it the same CPU moves blocks between that zone's buddy and its
//! lists, and says so.
//!
//! ```text
//!  cpu 0   contention_begin L   contention_end L   zone_locked pfn …     a refill waited for L
//!          └────── wait ───────────────┘           └ L is the lock of the zone of pfn
//! ```
//! A free past the lists says nothing after its wait; it counts with a lock that others showed to
//! be a zone's.

use std::collections::BTreeMap;

use serde::Serialize;
use zonal_trace::{Event, EventKind, Notice};

use crate::zones::ZoneMap;

/// What a wait was for follows within this time.
const GAP_NS: u64 = 1_000_000;
/// Waits of a CPU that are open at a time: interrupts come inside one.
const OPEN_MAX: usize = 8;
/// Locks that are told apart; more are "others" from the start.
const LOCKS_MAX: usize = 1 << 16;

/// Waits for one lock by one kind of caller, as `perf lock contention` has them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LockRow {
    /// The lock: a zone's, or all others.
    pub lock: String,
    /// What was done under it: `refill`, `drain`, `past the lists`, or `other`.
    pub caller: &'static str,
    /// Times it was found taken.
    pub contended: u64,
    /// Waited in all, in µs.
    pub total_us: f64,
    /// The longest wait, in µs.
    pub max_us: f64,
    /// The mean wait, in µs.
    pub avg_us: f64,
}

/// Who waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Caller {
    Refill,
    Drain,
    Direct,
    Other,
}

impl Caller {
    fn name(self) -> &'static str {
        match self {
            Caller::Refill => "refill",
            Caller::Drain => "drain",
            Caller::Direct => "past the lists",
            Caller::Other => "other",
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Waits {
    contended: u64,
    total_ns: u64,
    max_ns: u64,
}

impl Waits {
    fn add(&mut self, other: Waits) {
        self.contended += other.contended;
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

#[derive(Debug, Default)]
struct ByLock {
    callers: BTreeMap<Caller, Waits>,
    /// Waits that were followed by a move in this zone.
    zones: BTreeMap<usize, u64>,
}

#[derive(Debug, Default)]
struct Cpu {
    /// Locks waited for, and since when.
    open: Vec<(u64, u64)>,
    /// A wait that has ended: its lock, when, how long.
    ended: Option<(u64, u64, u64)>,
}

/// Collects waits while a trace is read.
#[derive(Debug)]
pub struct Locks {
    zones: ZoneMap,
    from_ns: u64,
    cpus: Vec<Cpu>,
    locks: BTreeMap<u64, ByLock>,
    seen: bool,
}

/// What was waited for locks.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LockWaits {
    /// Waited for zone locks in all, in µs.
    pub zones_us: f64,
    /// Waits for zone locks.
    pub zones_contended: u64,
    /// By lock and caller, the longest first.
    pub rows: Vec<LockRow>,
}

impl Locks {
    /// A collector of waits.
    pub fn new(zones: ZoneMap) -> Locks {
        let (cpus, locks) = (Vec::new(), BTreeMap::new());
        Locks { zones, from_ns: 0, cpus, locks, seen: false }
    }

    /// Forgets what was before `time_ns`.
    pub fn begin(&mut self, time_ns: u64) {
        self.from_ns = time_ns;
        self.locks.clear();
    }

    /// Takes note of the next event.
    pub fn see(&mut self, event: &Event) {
        let index = event.cpu as usize;
        if index >= self.cpus.len() {
            self.cpus.resize_with(index + 1, Cpu::default);
        }
        let cpu = &mut self.cpus[index];
        match event.kind {
            EventKind::Notice(Notice::ContentionBegin { lock, flags: Notice::SPIN }) => {
                self.seen = true;
                self.settle(index, Caller::Other, None);
                let open = &mut self.cpus[index].open;
                if open.len() == OPEN_MAX {
                    open.remove(0);
                }
                open.push((lock, event.time_ns));
            }
            EventKind::Notice(Notice::ContentionEnd { lock }) => {
                let Some(at) = cpu.open.iter().rposition(|(other, _)| *other == lock) else {
                    return;
                };
                let (_, since) = cpu.open.remove(at);
                self.settle(index, Caller::Other, None);
                let waited = event.time_ns.saturating_sub(since.max(self.from_ns));
                self.cpus[index].ended = Some((lock, event.time_ns, waited));
            }
            _ => {
                let Some((_, ended_ns, _)) = cpu.ended else { return };
                let caller = match event.kind {
                    EventKind::ZoneLocked { pfn, percpu_refill: true, .. } => {
                        (Caller::Refill, Some(pfn))
                    }
                    EventKind::Extfrag { pfn, .. } => (Caller::Refill, Some(pfn)),
                    EventKind::ZoneLocked { pfn, .. } => (Caller::Direct, Some(pfn)),
                    EventKind::PcpuDrain { pfn, .. } => (Caller::Drain, Some(pfn)),
                    _ => (Caller::Other, None),
                };
                let in_time = event.time_ns.saturating_sub(ended_ns) < GAP_NS;
                let (caller, pfn) = if in_time { caller } else { (Caller::Other, None) };
                self.settle(index, caller, pfn);
            }
        }
    }

    /// Counts the CPU's wait that has ended, if there is one.
    fn settle(&mut self, cpu: usize, caller: Caller, pfn: Option<u64>) {
        let Some((lock, _, waited)) = self.cpus[cpu].ended.take() else { return };
        let room = self.locks.len() < LOCKS_MAX || self.locks.contains_key(&lock);
        let by_lock = self.locks.entry(if room { lock } else { 0 }).or_default();
        let waits = Waits { contended: 1, total_ns: waited, max_ns: waited };
        by_lock.callers.entry(caller).or_default().add(waits);
        if let Some(zone) = pfn.and_then(|pfn| self.zones.of(pfn)) {
            *by_lock.zones.entry(zone).or_default() += 1;
        }
    }

    /// What was waited. `recorded`: the recorder says whether it recorded waits; without a wait
    /// nothing else tells.
    pub fn finish(mut self, recorded: Option<bool>) -> Option<LockWaits> {
        if !recorded.unwrap_or(self.seen) {
            return None;
        }
        (0..self.cpus.len()).for_each(|cpu| self.settle(cpu, Caller::Other, None));
        let mut rows: BTreeMap<(Option<usize>, Caller), Waits> = BTreeMap::new();
        for by_lock in self.locks.values() {
            let all: u64 = by_lock.callers.values().map(|waits| waits.contended).sum();
            // Most waits of a zone's lock are followed by a move in that zone.
            let most = by_lock.zones.iter().max_by_key(|(_, count)| **count);
            let zone = most.filter(|(_, count)| 2 * **count > all).map(|(zone, _)| *zone);
            for (caller, waits) in &by_lock.callers {
                let caller = if zone.is_some() { *caller } else { Caller::Other };
                rows.entry((zone, caller)).or_default().add(*waits);
            }
        }
        let us = |ns: u64| (ns as f64 / 10.0).round() / 100.0;
        let mut result = LockWaits::default();
        for ((zone, caller), waits) in rows {
            let lock = match zone.map(|zone| &self.zones.zones()[zone]) {
                Some(at) => format!("zone, node {}, {}", at.node, at.kind),
                None => "other locks".to_owned(),
            };
            if zone.is_some() {
                result.zones_us += us(waits.total_ns);
                result.zones_contended += waits.contended;
            }
            result.rows.push(LockRow {
                lock,
                caller: caller.name(),
                contended: waits.contended,
                total_us: us(waits.total_ns),
                max_us: us(waits.max_ns),
                avg_us: us(waits.total_ns / waits.contended.max(1)),
            });
        }
        result.rows.sort_by(|a, b| b.total_us.total_cmp(&a.total_us));
        Some(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal_trace::samples;

    const ZONE: u64 = 77;
    const RUN_QUEUE: u64 = 78;

    fn event(time_ns: u64, cpu: u32, kind: EventKind) -> Event {
        Event { time_ns, cpu, pid: 1, kind }
    }

    fn begin(time_ns: u64, cpu: u32, lock: u64) -> Event {
        let notice = Notice::ContentionBegin { lock, flags: Notice::SPIN };
        event(time_ns, cpu, EventKind::Notice(notice))
    }

    fn end(time_ns: u64, cpu: u32, lock: u64) -> Event {
        event(time_ns, cpu, EventKind::Notice(Notice::ContentionEnd { lock }))
    }

    /// A block of the largest zone that comes to a list.
    fn refill(time_ns: u64, cpu: u32, pfn: u64) -> Event {
        let kind = EventKind::ZoneLocked { pfn, order: 0, migratetype: 0, percpu_refill: true };
        event(time_ns, cpu, kind)
    }

    fn waits(events: &[Event], recorded: Option<bool>) -> Option<LockWaits> {
        let sample = samples::zlib_make_j4().unwrap();
        let mut locks = Locks::new(ZoneMap::new(sample.description()));
        events.iter().for_each(|event| locks.see(event));
        locks.finish(recorded)
    }

    fn normal_pfn() -> u64 {
        let sample = samples::zlib_make_j4().unwrap();
        let map = ZoneMap::new(sample.description());
        map.zones().iter().find(|zone| zone.kind == "Normal").unwrap().start + 100
    }

    #[test]
    fn a_zones_lock_is_known_by_what_follows_a_wait_for_it() {
        let pfn = normal_pfn();
        let drain = EventKind::PcpuDrain { pfn, order: 0, migratetype: 0 };
        let found = waits(
            &[
                begin(1000, 0, ZONE),
                begin(1500, 1, RUN_QUEUE),
                end(3000, 0, ZONE),
                refill(3100, 0, pfn),
                end(9500, 1, RUN_QUEUE),
                event(9600, 1, EventKind::VmstatUpdate),
                begin(10_000, 1, ZONE),
                end(14_000, 1, ZONE),
                event(14_100, 1, drain),
                // A free past the lists: nothing follows that tells.
                begin(20_000, 0, ZONE),
                end(21_000, 0, ZONE),
                event(9_000_000, 0, EventKind::VmstatUpdate),
            ],
            None,
        )
        .unwrap();
        let rows: Vec<_> = found
            .rows
            .iter()
            .map(|row| (row.lock.as_str(), row.caller, row.contended, row.total_us))
            .collect();
        assert_eq!(
            rows,
            [
                ("other locks", "other", 1, 8.0),
                ("zone, node 0, Normal", "drain", 1, 4.0),
                ("zone, node 0, Normal", "refill", 1, 2.0),
                ("zone, node 0, Normal", "other", 1, 1.0),
            ]
        );
        assert_eq!((found.zones_us, found.zones_contended), (7.0, 3));
    }

    #[test]
    fn an_interrupt_waits_inside_a_wait() {
        let pfn = normal_pfn();
        let found = waits(
            &[
                begin(1000, 0, ZONE),
                begin(2000, 0, RUN_QUEUE),
                end(2500, 0, RUN_QUEUE),
                end(5000, 0, ZONE),
                refill(5100, 0, pfn),
                // Ends without a beginning, as after a gap, are passed over.
                end(6000, 0, 5),
            ],
            None,
        )
        .unwrap();
        assert_eq!((found.zones_us, found.rows[1].total_us), (4.0, 0.5));
    }

    #[test]
    fn without_the_events_nothing_is_known_and_with_them_none_is_none() {
        assert_eq!(waits(&[refill(1, 0, 5)], None), None);
        assert_eq!(waits(&[refill(1, 0, 5)], Some(false)), None);
        assert_eq!(waits(&[refill(1, 0, 5)], Some(true)), Some(LockWaits::default()));
    }
}
