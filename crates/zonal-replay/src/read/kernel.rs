//! What the recorded kernel did between its buddies and its per-CPU lists.
//!
//! The kernel prints one line per block that it moves; what costs is the hold of the zone lock
//! around them. Lines of one move follow each other on their CPU with nothing of that CPU between:
//!
//! ```text
//!  cpu 0   alloc  zone_locked × 63  alloc  alloc  free  pcpu_drain × 200  free_batched
//!                 └─ one refill ─┘                      └─ one drain ──┘
//! ```
//! - **Refill**: consecutive blocks of one order; one hold of the zone lock each.
//! - **Drain**: consecutive blocks of one zone. Since 6.19 the kernel gives the lock back after
//!   each batch (LB E.7), so a drain of 200 pages with batch 63 is 4 holds; before, it is one,
//!   unless a statistics worker lets lists decay, which takes a batch at a time (LB E.9): on
//!   6.18.44 the pause between two blocks is longer by a quarter after each 63rd page then, and
//!   nowhere in drains by frees.
//! - Blocks of 2 MiB are freed up to 31 at a time, and all their frees come before the first drain,
//!   so the drains that they cause follow each other with nothing between. What a drain moves is
//!   bounded by what was freed in a row (LB E.7, [`FreeCounts`]): four or five such blocks at 63
//!   pages a batch.
//! - Up to 6.6 the pages of a large mapping are freed by hundreds, and all their frees come before
//!   the first drain, too. There a drain of single pages moves what the limit of the list leaves
//!   above a batch at most (up to 5.12 a batch; LB E.10, E.11). On 6.1.0 with batch 7 and limit 231
//!   the pause after each 224th page is ten times the others.
//! - A pause of [`GAP_NS`] ends either, unless the same thread goes on with what cannot have been
//!   all: a refill of single pages that are no whole batches, or a drain. The host of a virtual
//!   machine takes its CPU away in the middle of a hold too; a worker's next drain is half a second
//!   away at least, and any other has a free before it.
//! - `extfrag` inside a refill is a block too where the kernel hands out the block it claimed
//!   without a `zone_locked` line (6.15 and later); earlier kernels print both, for the same frame.
//!
//! The test `bursts_are_those_of_stats_txt` compares the counts with those of an independent
//! program, beside the traces.

use zonal_core::pcp::drain::Chunk;
use zonal_core::pcp::tuning::Tuning;
use zonal_text::release::KernelRelease;
use zonal_trace::{Event, EventKind, MachineDescription, Notice};

use super::free_count::{FreeCounts, PCP_ORDERS};
use crate::advise::policy_of;
use crate::moves::MovesByPlace;
use crate::zones::{ZoneAt, ZoneMap};

/// Blocks of one move follow within a microsecond or two; a timer interrupt in between takes less
/// than this.
const GAP_NS: u64 = 1_000_000;

/// The same where no allocation and no free ends a move: between two refills or drains of a list a
/// batch of pages is used, which takes longer.
const GAP_OF_MOVES_NS: u64 = 3_000;

/// A worker comes back after `stat_interval`, a second, rounded to whole ones of its clock.
const WORKER_NS: u64 = 500_000_000;

/// A drain follows the free that caused it, or the drained page before it, sooner than this.
pub(super) const DRAIN_BEHIND_FREE_NS: u64 = 1_000_000;

/// Larger blocks than these leave a list only by drains that are bounded (LB E.7).
const COSTLY_ORDER: u8 = 3;

/// Counts the moves in a stream of events.
#[derive(Debug)]
pub struct Watcher {
    zones: ZoneMap,
    /// Whether this kernel gives the zone lock back after each batch of a drain.
    drains_in_batches: bool,
    /// The same of drains by statistics workers.
    decays_in_batches: bool,
    /// A drain of blocks above [`COSTLY_ORDER`] ends when it has moved as much as this says.
    freed: Option<FreeCounts>,
    /// What a drain of single pages moves at most.
    bound: Bound,
    open: Vec<Option<Burst>>,
    /// By CPU: its last event but drains.
    before: Vec<Before>,
    /// When the CPU freed or drained last.
    freed_at: Vec<u64>,
    /// Whether the trace tells when workers run.
    tells_workers: bool,
    /// After this pause a CPU's move is another one, unless something shows that it goes on.
    gap_ns: u64,
    /// The same of drains by one thread.
    worker_gap_ns: u64,
    moves: MovesByPlace,
}

/// What bounds a drain of single pages, of those whose frees may come before it by hundreds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    /// Nothing: frees come by a few.
    None,
    /// A batch.
    Batch,
    /// The limit of the list, less a batch.
    Limit,
}

impl Bound {
    fn of(tuning: Tuning) -> Bound {
        match tuning {
            Tuning::Fixed => Bound::Batch,
            tuning if tuning.has(Tuning::Level6) => Bound::None,
            _ => Bound::Limit,
        }
    }

    fn pages(self, zone: &ZoneAt) -> Option<u64> {
        match self {
            Bound::None => None,
            Bound::Batch => Some(zone.batch),
            Bound::Limit => Some(zone.list_high.saturating_sub(zone.batch).max(zone.batch)),
        }
    }
}

/// What a CPU did before it drained.
#[derive(Debug, Clone, Copy, Default)]
struct Before {
    pid: i32,
    /// Order of the block that was freed last.
    order: u8,
    is_free: bool,
    is_worker: bool,
}

/// A move that may go on with the CPU's next event.
#[derive(Debug, Clone, Copy)]
struct Burst {
    drain: bool,
    pid: i32,
    order: u8,
    zone: Option<usize>,
    last_ns: u64,
    /// Pages moved in the current hold.
    hold_pages: u64,
    /// The lock is given back after each batch.
    in_batches: bool,
    /// The block of an `extfrag` line, until the line after it was seen.
    claimed: Option<u64>,
}

impl Watcher {
    /// A watcher for a kernel of this release, such as `6.18.44-fc`.
    pub fn new(zones: ZoneMap, release: Option<&str>) -> Watcher {
        let known = release.filter(|release| KernelRelease::parse(release).is_some());
        let pcp = known.map(|release| policy_of(Some(release)).pcp);
        let drain = pcp.map(|pcp| pcp.drain);
        let counts_frees = pcp.filter(|pcp| pcp.tuning.has(Tuning::Level9));
        Watcher {
            zones,
            drains_in_batches: drain.is_some_and(|drain| drain.bulk == Chunk::Batch),
            decays_in_batches: drain.is_some_and(|drain| drain.decay == Chunk::Batch),
            freed: counts_frees.map(|pcp| FreeCounts::new(pcp.scale_max)),
            bound: pcp.map_or(Bound::None, |pcp| Bound::of(pcp.tuning)),
            open: Vec::new(),
            before: Vec::new(),
            freed_at: Vec::new(),
            tells_workers: false,
            gap_ns: GAP_NS,
            worker_gap_ns: WORKER_NS,
            moves: MovesByPlace::new(),
        }
    }

    /// For a recording that may have moves alone: no allocation or free ends a hold there.
    pub fn of(zones: ZoneMap, machine: &MachineDescription) -> Watcher {
        let watcher = Watcher::new(zones, machine.kernel_release.as_deref());
        match machine.has_moves_alone() {
            true => Watcher { gap_ns: GAP_OF_MOVES_NS, worker_gap_ns: GAP_OF_MOVES_NS, ..watcher },
            false => watcher,
        }
    }

    /// Resets the counts.
    pub fn restart(&mut self) {
        self.open.clear();
        self.moves.clear();
    }

    /// The counts so far.
    pub fn moves(&self) -> &MovesByPlace {
        &self.moves
    }

    /// The counts.
    pub fn finish(self) -> MovesByPlace {
        self.moves
    }

    /// Takes note of the next event of the stream.
    pub fn see(&mut self, event: &Event) {
        let cpu = event.cpu as usize;
        if cpu >= self.open.len() {
            self.open.resize(cpu + 1, None);
            self.before.resize(cpu + 1, Before::default());
            self.freed_at.resize(cpu + 1, 0);
        }
        match event.kind {
            EventKind::ZoneLocked { pfn, order, percpu_refill, .. } => {
                if percpu_refill {
                    self.refilled(event, pfn, order, false);
                } else {
                    self.open[cpu] = None;
                    let place = (self.zones.of(pfn), event.cpu);
                    self.moves.entry(place).or_default().direct_pages += 1 << order;
                }
            }
            EventKind::Extfrag { pfn, alloc_order, .. }
                if PCP_ORDERS & 1 << alloc_order.min(15) != 0 =>
            {
                self.refilled(event, pfn, alloc_order, true);
            }
            EventKind::PcpuDrain { pfn, order, .. } => self.drained(event, pfn, order),
            // A drain waits for its lock again after each batch.
            EventKind::Notice(Notice::ContentionBegin { .. } | Notice::ContentionEnd { .. }) => {}
            _ => self.open[cpu] = None,
        }
        self.note(event);
    }

    /// Keeps what tells who drains next.
    fn note(&mut self, event: &Event) {
        if let Some(freed) = &mut self.freed {
            freed.see(event, &self.zones);
        }
        let cpu = event.cpu as usize;
        let is_free = matches!(event.kind, EventKind::Free { .. } | EventKind::FreeBatched { .. });
        let is_drain = matches!(event.kind, EventKind::PcpuDrain { .. });
        if is_free || is_drain {
            self.freed_at[cpu] = event.time_ns;
        }
        let is_worker = matches!(event.kind, EventKind::VmstatUpdate);
        self.tells_workers |= is_worker;
        if !is_drain && !matches!(event.kind, EventKind::Notice(_)) {
            let order = match event.kind {
                EventKind::Free { order, .. } => order,
                // The order was in its free.
                _ => self.before[cpu].order,
            };
            self.before[cpu] = Before { pid: event.pid, order, is_free, is_worker };
        }
    }

    /// Whether a statistics worker drains here: where the trace does not tell when it runs, whoever
    /// did not free something right before.
    fn is_decay(&self, event: &Event) -> bool {
        let cpu = event.cpu as usize;
        let Before { pid, is_free, is_worker, .. } = self.before[cpu];
        let pause = event.time_ns.saturating_sub(self.freed_at[cpu]);
        match self.tells_workers {
            true => is_worker && pid == event.pid,
            false => !is_free || pid != event.pid || pause > DRAIN_BEHIND_FREE_NS,
        }
    }

    /// Whether a drain that has moved so many pages cannot go on with a block of this order.
    fn is_full(&mut self, (zone, cpu): (Option<usize>, usize), order: u8, moved: u64) -> bool {
        if order > COSTLY_ORDER {
            let bound = |freed: &mut FreeCounts| freed.drain_pages(cpu, zone?, &self.zones).into();
            return self.freed.as_mut().and_then(bound).is_some_and(|most| moved >= most);
        }
        // A free of a larger block may empty all lists at once.
        let zone = zone.filter(|_| self.before[cpu].order == 0);
        let most = zone.and_then(|zone| self.bound.pages(&self.zones.zones()[zone]));
        most.is_some_and(|most| most > 0 && moved >= most)
    }

    fn batch(&self, zone: Option<usize>) -> u64 {
        zone.map_or(0, |zone| self.zones.zones()[zone].batch).max(1)
    }

    fn refilled(&mut self, event: &Event, pfn: u64, order: u8, claimed: bool) {
        let zone = self.zones.of(pfn);
        let batch = self.batch(zone);
        let moves = self.moves.entry((zone, event.cpu)).or_default();
        let before = self.open[event.cpu as usize];
        let goes_on = before.filter(|burst| {
            let is_part = order == 0 && burst.hold_pages % batch != 0 && burst.pid == event.pid;
            let is_near = event.time_ns - burst.last_ns < self.gap_ns;
            !burst.drain && burst.order == order && (is_near || is_part)
        });
        if goes_on.is_none() {
            moves.refill_holds += 1;
        }
        // Up to 6.14 the block that `extfrag` named comes again as `zone_locked`.
        let again = goes_on.is_some_and(|burst| !claimed && burst.claimed == Some(pfn));
        if !again {
            moves.refill_pages += 1 << order;
        }
        let moved = goes_on.map_or(0, |burst| burst.hold_pages);
        self.open[event.cpu as usize] = Some(Burst {
            drain: false,
            pid: event.pid,
            order,
            zone,
            last_ns: event.time_ns,
            hold_pages: moved + if again { 0 } else { 1 << order },
            in_batches: false,
            claimed: claimed.then_some(pfn),
        });
    }

    fn drained(&mut self, event: &Event, pfn: u64, order: u8) {
        let zone = self.zones.of(pfn);
        let batch = self.batch(zone);
        let is_decay = self.decays_in_batches && self.is_decay(event);
        let before = self.open[event.cpu as usize];
        let goes_on = before.filter(|burst| {
            let pause = match burst.pid == event.pid {
                true => self.worker_gap_ns,
                false => self.gap_ns,
            };
            burst.drain && burst.zone == zone && event.time_ns - burst.last_ns < pause
        });
        let mut hold_pages = goes_on.map_or(0, |burst| burst.hold_pages);
        let in_batches =
            goes_on.map_or(self.drains_in_batches || is_decay, |burst| burst.in_batches);
        let place = (zone, event.cpu as usize);
        let is_full = goes_on.is_some_and(|burst| burst.order == order)
            && self.is_full(place, order, hold_pages);
        let moves = self.moves.entry((zone, event.cpu)).or_default();
        if goes_on.is_none() || is_full {
            moves.drain_bursts += 1;
        }
        if goes_on.is_none() || is_full || (in_batches && hold_pages >= batch) {
            moves.drain_holds += 1;
            hold_pages = 0;
        }
        moves.drain_pages += 1 << order;
        self.open[event.cpu as usize] = Some(Burst {
            drain: true,
            pid: event.pid,
            order,
            zone,
            last_ns: event.time_ns,
            hold_pages: hold_pages + (1 << order),
            in_batches,
            claimed: None,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moves::{Moves, total};
    use std::path::{Path, PathBuf};
    use zonal_trace::Recording;

    fn shared(name: &str) -> Option<PathBuf> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
        let path = root.join(name);
        if !path.is_dir() {
            eprintln!("SKIPPED: {} is not here, its counts are not checked", path.display());
            return None;
        }
        Some(path)
    }

    fn watch(recording: &Recording) -> MovesByPlace {
        let machine = recording.description();
        let zones = ZoneMap::new(machine);
        let mut watcher = Watcher::new(zones, machine.kernel_release.as_deref());
        recording.events().for_each(|event| watcher.see(&event.unwrap()));
        watcher.finish()
    }

    /// The numbers of the lines `cpu0 zone2: refill P pages in B bursts (…)  drain P pages in B …`.
    fn expected(stats: &str) -> Vec<[u64; 5]> {
        let lines = stats.lines().filter(|line| line.contains(": refill "));
        lines
            .map(|line| {
                let mut numbers =
                    line.split(|c: char| !c.is_ascii_digit()).filter(|s| !s.is_empty());
                let mut next = || numbers.next().unwrap().parse().unwrap();
                let [cpu, _zone, pages, bursts, _singles] = std::array::from_fn(|_| next());
                [cpu, pages, bursts, next(), next()]
            })
            .collect()
    }

    #[test]
    fn bursts_are_those_of_stats_txt() {
        for name in ["zlib-make-j4", "redis", "fsmark", "uxping"] {
            let Some(path) = shared(name) else { continue };
            let stats = std::fs::read_to_string(path.join("stats.txt")).unwrap();
            let moves = watch(&Recording::open(&path).unwrap());
            let expected = expected(&stats);
            assert_eq!(expected.len(), 2, "{name}");
            for [cpu, pages, bursts, drained, drains] in expected {
                let got = moves[&(Some(2), cpu as u32)];
                let refill = (got.refill_pages, got.refill_holds);
                assert_eq!(refill, (pages, bursts), "{name}: refills of cpu {cpu}");
                let drain = (got.drain_pages, got.drain_bursts);
                assert_eq!(drain, (drained, drains), "{name}: drains of cpu {cpu}");
            }
        }
    }

    #[test]
    fn the_bundled_sample_has_the_same_counts() {
        let all = total(&watch(&zonal_trace::samples::zlib_make_j4().unwrap()));
        assert_eq!((all.refill_pages, all.refill_holds), (37_339, 134));
        assert_eq!((all.drain_pages, all.drain_bursts), (8028, 5));
        // Bursts of 2016, 2016, 1080, 1301 and 1615 pages, each in one hold.
        assert_eq!(all.drain_holds, 5);
    }

    fn moves(release: &str, events: &[(u64, EventKind)]) -> Moves {
        let zones = ZoneMap::new(zonal_trace::samples::zlib_make_j4().unwrap().description());
        let mut watcher = Watcher::new(zones, Some(release));
        for (time_ns, kind) in events {
            watcher.see(&Event { time_ns: *time_ns, cpu: 0, pid: 0, kind: kind.clone() });
        }
        total(&watcher.finish())
    }

    fn locked(pfn: u64, order: u8, percpu_refill: bool) -> EventKind {
        EventKind::ZoneLocked { pfn, order, migratetype: 1, percpu_refill }
    }

    fn extfrag(pfn: u64, alloc_order: u8) -> EventKind {
        EventKind::Extfrag {
            pfn,
            alloc_order,
            fallback_order: 10,
            alloc_migratetype: 2,
            fallback_migratetype: 1,
            change_ownership: true,
        }
    }

    #[test]
    fn a_refill_ends_with_another_order_a_pause_or_another_event() {
        let pfn = 0x20_0000;
        let events = [
            (0, locked(pfn, 0, true)),
            (10, locked(pfn + 1, 0, true)),
            (20, locked(pfn + 2, 1, true)),
            (30, EventKind::FreeBatched { pfn }),
            (40, locked(pfn + 4, 1, true)),
            (40 + GAP_NS, locked(pfn + 6, 1, true)),
            (50 + GAP_NS, locked(pfn + 8, 4, false)),
        ];
        let moves = moves("6.18.0", &events);
        assert_eq!((moves.refill_holds, moves.refill_pages, moves.direct_pages), (4, 8, 16));
    }

    #[test]
    fn a_hold_goes_on_after_a_pause_if_what_came_before_it_cannot_be_all() {
        let pfn = 0x20_0000;
        let refill = |from: u64, time_ns: u64, pages: u64| {
            (0..pages).map(move |page| (time_ns + page, locked(pfn + from + page, 0, true)))
        };
        let parts = refill(0, 0, 25).chain(refill(25, 9 * GAP_NS, 38));
        let refills = moves("6.12.0", &parts.collect::<Vec<_>>());
        assert_eq!((refills.refill_holds, refills.refill_pages), (1, 63));
        let whole = refill(0, 0, 63).chain(refill(63, 9 * GAP_NS, 63));
        assert_eq!(moves("6.12.0", &whole.collect::<Vec<_>>()).refill_holds, 2);
        let drain = |at: u64| (at, EventKind::PcpuDrain { pfn, order: 0, migratetype: 1 });
        let drains = [drain(0), drain(9 * GAP_NS), drain(9 * GAP_NS + WORKER_NS)];
        let drains = moves("6.12.0", &drains);
        assert_eq!((drains.drain_holds, drains.drain_bursts), (2, 2));
    }

    #[test]
    fn blocks_of_2_mib_leave_in_drains_of_what_was_freed_in_a_row() {
        let behind = |release: &str, first: &[EventKind], order: u8, blocks: usize| {
            let block = EventKind::PcpuDrain { pfn: 0x20_0000, order, migratetype: 1 };
            let kinds = first.iter().cloned().chain(std::iter::repeat_n(block, blocks));
            let moves = moves(release, &(0..).zip(kinds).collect::<Vec<_>>());
            (moves.drain_holds, moves.drain_bursts)
        };
        let free = |order| EventKind::Free { pfn: 0x20_0000, order };
        let drains = |release, order, blocks| behind(release, &[free(order)], order, blocks);
        assert_eq!(drains("6.18.44", 9, 32), (8, 8));
        assert_eq!(drains("6.18.44", 9, 30), (8, 8));
        assert_eq!(drains("6.18.44", 9, 4), (1, 1));
        // Half of the 2,016 that are assumed, 600 single pages and a block: 2,120.
        let alloc = EventKind::Alloc { pfn: Some(0x20_0000), order: 0, migratetype: 1, gfp: 0 };
        let mut first = vec![free(0); 602];
        (first[0], first[601]) = (alloc, free(9));
        assert_eq!(behind("6.18.44", &first, 9, 30), (6, 6));
        // A free of a small block may empty the whole list at once.
        assert_eq!(drains("6.18.44", 3, 900), (1, 1));
        assert_eq!(drains("6.1.0", 9, 32), (1, 1), "bounded by the list's limit alone");
    }

    #[test]
    fn up_to_6_6_drains_of_single_pages_end_at_the_limit_of_the_list() {
        let mut machine = zonal_trace::samples::zlib_make_j4().unwrap().description().clone();
        (machine.start, machine.end) = (None, None);
        for set in machine.zones.iter_mut().flat_map(|zone| &mut zone.pagesets) {
            (set.high, set.batch) = (231, 7);
        }
        let drains = |release: &str, order: u8, pages: u64| {
            let mut watcher = Watcher::new(ZoneMap::new(&machine), Some(release));
            let block = EventKind::PcpuDrain { pfn: 0x20_0000, order: 0, migratetype: 1 };
            let free = EventKind::Free { pfn: 0x20_0000, order };
            for (time_ns, kind) in
                (0..=pages).zip([free].into_iter().chain([block].into_iter().cycle()))
            {
                watcher.see(&Event { time_ns, cpu: 0, pid: 0, kind });
            }
            let moves = total(&watcher.finish());
            assert_eq!(moves.drain_pages, pages);
            (moves.drain_holds, moves.drain_bursts)
        };
        assert_eq!(drains("6.1.0", 0, 448), (2, 2));
        assert_eq!(drains("6.1.0", 0, 224), (1, 1));
        assert_eq!(drains("5.10.0", 0, 224), (32, 32));
        assert_eq!(drains("6.1.0", 1, 448), (1, 1), "it may have emptied all lists");
        assert_eq!(drains("6.12.0", 0, 448), (1, 1));
    }

    #[test]
    fn without_allocations_and_frees_holds_are_told_by_their_pauses() {
        let recording = zonal_trace::samples::zlib_make_j4().unwrap();
        let mut machine = recording.description().clone();
        machine.flags.uses = Some(false);
        let mut watcher = Watcher::of(ZoneMap::new(&machine), &machine);
        for event in recording.events() {
            let event = event.unwrap();
            let is_use = |kind: &EventKind| {
                matches!(
                    kind,
                    EventKind::Alloc { .. }
                        | EventKind::Free { .. }
                        | EventKind::FreeBatched { .. }
                )
            };
            if !is_use(&event.kind) {
                watcher.see(&event);
            }
        }
        let (of_moves, of_all) = (total(&watcher.finish()), total(&watch(&recording)));
        let pages = |moves: &Moves| (moves.refill_pages, moves.drain_pages);
        assert_eq!(pages(&of_moves), pages(&of_all));
        let holds = |moves: &Moves| (moves.refill_holds + moves.drain_holds) as f64;
        let off = holds(&of_moves) / holds(&of_all) - 1.0;
        assert!(off.abs() < 0.05, "{of_moves:?} {of_all:?}");
    }

    #[test]
    fn a_claimed_block_counts_once_whether_or_not_it_is_printed_again() {
        let pfn = 0x20_0000;
        let new = [(0, extfrag(pfn, 1)), (1, locked(pfn + 2, 1, true))];
        let old = [(0, extfrag(pfn, 1)), (1, locked(pfn, 1, true)), (2, locked(pfn + 2, 1, true))];
        for events in [&new[..], &old[..]] {
            let moves = moves("6.18.0", events);
            assert_eq!((moves.refill_holds, moves.refill_pages), (1, 4));
        }
    }

    #[test]
    fn the_lock_is_given_back_after_each_batch_since_6_19() {
        let drain =
            |at: u64| (at, EventKind::PcpuDrain { pfn: 0x20_0000, order: 0, migratetype: 1 });
        let free = (0, EventKind::Free { pfn: 0x20_0000, order: 0 });
        let events: Vec<_> = std::iter::once(free).chain((1..201).map(drain)).collect();
        assert_eq!(moves("6.19.0", &events).drain_holds, 4);
        assert_eq!(moves("6.18.44-fc", &events).drain_holds, 1);
        assert_eq!(moves("6.12.117+deb12-amd64", &events).drain_holds, 1);
        assert_eq!(moves("6.12.117+deb12-amd64", &events).drain_bursts, 1);
    }

    #[test]
    fn a_worker_gives_the_lock_back_after_each_batch_and_a_free_does_not() {
        let of = |pid, time_ns, kind| Event { time_ns, cpu: 0, pid, kind };
        let holds = |release: &str, before: Event, at: u64| {
            let zones = ZoneMap::new(zonal_trace::samples::zlib_make_j4().unwrap().description());
            let mut watcher = Watcher::new(zones, Some(release));
            watcher.see(&before);
            for time_ns in at..at + 200 {
                let drain = EventKind::PcpuDrain { pfn: 0x20_0000, order: 0, migratetype: 1 };
                watcher.see(&of(7, time_ns, drain));
            }
            let moves = total(&watcher.finish());
            assert_eq!((moves.drain_pages, moves.drain_bursts), (200, 1));
            moves.drain_holds
        };
        let free = || EventKind::Free { pfn: 0x20_0000, order: 0 };
        // By whom the page was freed, or how long ago, tells where nothing else does.
        assert_eq!(holds("6.18.0", of(7, 10, free()), 20), 1);
        assert_eq!(holds("6.18.0", of(6, 10, free()), 20), 4);
        assert_eq!(holds("6.18.0", of(7, 10, free()), 20 + DRAIN_BEHIND_FREE_NS), 4);
        assert_eq!(holds("6.18.0", of(7, 10, EventKind::VmstatUpdate), 20), 4);
        assert_eq!(holds("6.6.0", of(7, 10, EventKind::VmstatUpdate), 20), 1, "nothing decays");
    }
}
