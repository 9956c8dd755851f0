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
//! - So are blocks of a few pages, of which one row of 31 may make the CPU empty its lists twice
//!   ([`Flushes`]).
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

use super::flush::Flushes;
use super::free_count::FreeCounts;
use crate::advise::policy_of;
use crate::facts::alone::Alone;
use crate::moves::MovesByPlace;
use crate::zones::{COSTLY_ORDER, ZoneAt, ZoneMap};

/// Blocks of one move follow within a microsecond or two; a timer interrupt in between takes less
/// than this.
const GAP_NS: u64 = 1_000_000;

/// The same where no allocation and no free ends a move: between two refills or drains of a list a
/// batch of pages is used, which takes longer.
const GAP_OF_MOVES_NS: u64 = 3_000;

/// A worker comes back after `stat_interval`, a second, rounded to whole ones of its clock.
const WORKER_NS: u64 = 500_000_000;

/// A drain follows the free that caused it, or the drained page before it, sooner than this.
pub(crate) const DRAIN_BEHIND_FREE_NS: u64 = 1_000_000;

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
    /// Ends a drain of blocks of a few pages, where the kernel has a flag for large caches, which
    /// keep a batch.
    flushes: Option<Flushes>,
    /// What a drain of single pages moves at most.
    bound: Bound,
    open: Vec<Option<Burst>>,
    /// Finds blocks that look like a refill and went past the lists.
    alone: Alone,
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
            alone: Alone::new(zones.clone(), false),
            zones,
            drains_in_batches: drain.is_some_and(|drain| drain.bulk == Chunk::Batch),
            decays_in_batches: drain.is_some_and(|drain| drain.decay == Chunk::Batch),
            freed: counts_frees.map(|pcp| FreeCounts::new(pcp.scale_max)),
            flushes: counts_frees.map(|pcp| Flushes::new(!pcp.tuning.has(Tuning::Release615))),
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
        let alone = Alone::new(zones.clone(), machine.is_simulated);
        let watcher = Watcher::new(zones, machine.kernel_release.as_deref());
        let keeps_batch = machine.flags.free_high_batch_expected == Some(true);
        let flushes = watcher.flushes.filter(|_| keeps_batch);
        let watcher = Watcher { alone, flushes, ..watcher };
        match machine.has_moves_alone() {
            true => Watcher { gap_ns: GAP_OF_MOVES_NS, worker_gap_ns: GAP_OF_MOVES_NS, ..watcher },
            false => watcher,
        }
    }

    /// Resets the counts.
    pub fn restart(&mut self) {
        self.open.clear();
        self.alone.restart();
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
            EventKind::Extfrag { pfn, alloc_order, .. } if self.zones.has_lists(alloc_order) => {
                self.refilled(event, pfn, alloc_order, true);
            }
            EventKind::PcpuDrain { pfn, order, .. } => self.drained(event, pfn, order),
            // A drain waits for its lock again after each batch.
            EventKind::Notice(Notice::ContentionBegin { .. } | Notice::ContentionEnd { .. }) => {}
            _ => self.open[cpu] = None,
        }
        if self.alone.see(0, event).is_some() {
            self.went_past(event);
        }
        self.note(event);
    }

    /// What was counted as a refill was the block of this allocation alone.
    fn went_past(&mut self, event: &Event) {
        let EventKind::Alloc { pfn: Some(pfn), order, .. } = event.kind else { return };
        let moves = self.moves.entry((self.zones.of(pfn), event.cpu)).or_default();
        moves.refill_holds = moves.refill_holds.saturating_sub(1);
        moves.refill_pages = moves.refill_pages.saturating_sub(1 << order);
        moves.direct_pages += 1 << order;
    }

    /// Keeps what tells who drains next.
    fn note(&mut self, event: &Event) {
        if let Some(freed) = &mut self.freed {
            freed.see(event, &self.zones);
        }
        if let Some(flushes) = &mut self.flushes {
            flushes.see(event);
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
        // Larger blocks leave a list only by drains that are bounded (LB E.7).
        if order > COSTLY_ORDER {
            let bound = |freed: &mut FreeCounts| freed.drain_pages(cpu, zone?, &self.zones).into();
            return self.freed.as_mut().and_then(bound).is_some_and(|most| moved >= most);
        }
        // A free of a larger block may empty all lists at once.
        let zone = zone.filter(|_| self.before[cpu].order == 0);
        let most = zone.and_then(|zone| self.bound.pages(&self.zones.zones()[zone]));
        most.is_some_and(|most| most > 0 && moved >= most)
    }

    /// Takes note of a drain. How many pages a row has that must be two, if anything tells.
    fn of_two(&mut self, event: &Event, zone: Option<usize>, drained: u8) -> Option<u64> {
        let (flushes, freed) = (self.flushes.as_mut()?, self.freed.as_mut()?);
        let cpu = event.cpu as usize;
        let Before { pid, order, is_free, .. } = self.before[cpu];
        if is_free && pid == event.pid {
            flushes.drained((cpu, order, drained), zone, (freed, &self.zones));
        }
        flushes.two(cpu, self.zones.zones()[zone?].batch)
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
            let is_part = order == 0 && burst.hold_pages % batch != 0;
            let is_near = event.time_ns - burst.last_ns < self.gap_ns;
            let is_same = burst.order == order && burst.pid == event.pid;
            !burst.drain && is_same && (is_near || is_part)
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
        let moved = hold_pages + (1 << order);
        let is_second =
            self.of_two(event, zone, order).is_some_and(|two| goes_on.is_some() && moved >= two);
        let moves = self.moves.entry((zone, event.cpu)).or_default();
        if goes_on.is_none() || is_full || is_second {
            moves.drain_bursts += 1;
        }
        if goes_on.is_none() || is_full || (in_batches && hold_pages >= batch) {
            moves.drain_holds += 1;
            hold_pages = 0;
        } else if is_second {
            moves.drain_holds += u64::from(!in_batches);
            hold_pages -= batch;
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
#[path = "kernel_tests.rs"]
mod tests;
