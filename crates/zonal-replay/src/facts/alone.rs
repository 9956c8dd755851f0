//! Blocks that the buddy gave to a thread past the lists of its CPU.
//!
//! An allocation that finds the lists of its CPU in use takes its block from the buddy (LB E.2),
//! and the kernel prints the same event as for a block of a refill. A refill fetches two blocks at
//! least where the batch is more than a page (LB E.6), so a block that came alone, and that its
//! thread got next, went past the lists. With `PREEMPT_RT` a thread loses its CPU while it is at
//! the lists, and hundreds do so. Without it six recordings have none among 588,000 blocks, and two
//! under reclaim have 20 and 2 among 8 million pages each.

use zonal_trace::{Event, EventKind};

use crate::zones::{COSTLY_ORDER, ZoneMap};

/// Of huge pages a zone may have one left, so that a refill fetches no more.
const ORDER_MAX: u8 = COSTLY_ORDER;

/// Threads of a CPU that are looked at: those in the middle of a refill.
const THREADS_MAX: usize = 8;

/// Finds such blocks in a stream of events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Alone {
    zones: ZoneMap,
    /// The events of the lab name the block of the call as often as blocks moved, and its policies
    /// may fetch one.
    is_simulated: bool,
    /// By CPU: what its threads took from a buddy last.
    taken: Vec<Vec<Taken>>,
}

/// Blocks that a thread took one after the other.
#[derive(Clone, Copy, Debug)]
struct Taken {
    pid: i32,
    pfn: u64,
    order: u8,
    /// Of the event that says so, which a fallback's is not.
    at: Option<usize>,
    is_alone: bool,
}

impl Alone {
    pub(crate) fn new(zones: ZoneMap, is_simulated: bool) -> Alone {
        Alone { zones, is_simulated, taken: Vec::new() }
    }

    pub(crate) fn zones(&self) -> &ZoneMap {
        &self.zones
    }

    /// Forgets what came before.
    pub(crate) fn restart(&mut self) {
        self.taken.clear();
    }

    /// Looks at the event at this position. Where it hands out a block that went past the lists,
    /// returns the position of the event by which that came from the buddy.
    pub(crate) fn see(&mut self, at: usize, event: &Event) -> Option<usize> {
        let (cpu, pid) = (event.cpu as usize, event.pid);
        match event.kind {
            EventKind::ZoneLocked { pfn, order, percpu_refill: true, .. } => {
                self.take(cpu, Taken { pid, pfn, order, at: Some(at), is_alone: true });
                None
            }
            EventKind::Extfrag { pfn, alloc_order: order, .. } => {
                self.take(cpu, Taken { pid, pfn, order, at: None, is_alone: true });
                None
            }
            EventKind::Alloc { pfn: Some(pfn), order, .. } => {
                let taken = self.leave(cpu, pid)?;
                let is_it = taken.is_alone && (taken.pfn, taken.order) == (pfn, order);
                taken.at.filter(|_| is_it && order <= ORDER_MAX && self.has_batch(pfn))
            }
            EventKind::Free { .. }
            | EventKind::FreeBatched { .. }
            | EventKind::PcpuDrain { .. }
            | EventKind::ZoneLocked { .. } => {
                self.leave(cpu, pid);
                None
            }
            _ => None,
        }
    }

    /// A thread took one more block. That of a fallback has two events up to 6.14, in any order.
    fn take(&mut self, cpu: usize, now: Taken) {
        let before = self.leave(cpu, now.pid);
        let now = match before {
            Some(before) if before.pfn == now.pfn => {
                Taken { at: now.at.or(before.at), is_alone: before.is_alone, ..now }
            }
            Some(_) => Taken { is_alone: false, ..now },
            None => now,
        };
        if cpu >= self.taken.len() {
            self.taken.resize(cpu + 1, Vec::new());
        }
        let all = &mut self.taken[cpu];
        if all.len() == THREADS_MAX {
            all.remove(0);
        }
        all.push(now);
    }

    fn leave(&mut self, cpu: usize, pid: i32) -> Option<Taken> {
        let all = self.taken.get_mut(cpu)?;
        let own = all.iter().position(|taken| taken.pid == pid)?;
        Some(all.swap_remove(own))
    }

    /// Whether refills of this page's zone fetch more than a block.
    fn has_batch(&self, pfn: u64) -> bool {
        let is_large = |zone: usize| self.zones.zones()[zone].batch > 1;
        !self.is_simulated && self.zones.of(pfn).is_some_and(is_large)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PFN: u64 = 0x20_0000;

    fn refill(pfn: u64) -> EventKind {
        EventKind::ZoneLocked { pfn, order: 0, migratetype: 1, percpu_refill: true }
    }

    fn alloc(pfn: u64) -> EventKind {
        EventKind::Alloc { pfn: Some(pfn), order: 0, migratetype: 1, gfp: 0 }
    }

    fn fallback(pfn: u64) -> EventKind {
        EventKind::Extfrag {
            pfn,
            alloc_order: 0,
            fallback_order: 9,
            alloc_migratetype: 1,
            fallback_migratetype: 0,
            change_ownership: false,
        }
    }

    /// Where blocks came past the lists, in events of threads of one CPU.
    fn found(events: &[(i32, EventKind)]) -> Vec<usize> {
        found_in(events, false)
    }

    fn found_in(events: &[(i32, EventKind)], is_simulated: bool) -> Vec<usize> {
        let sample = zonal_trace::samples::zlib_make_j4().unwrap();
        let mut alone = Alone::new(ZoneMap::new(sample.description()), is_simulated);
        let event = |(pid, kind): &(i32, EventKind)| Event {
            time_ns: 0,
            cpu: 0,
            pid: *pid,
            kind: kind.clone(),
        };
        let seen = events.iter().enumerate().map(|(at, own)| alone.see(at, &event(own)));
        seen.flatten().collect()
    }

    #[test]
    fn a_block_that_its_thread_gets_next_and_that_came_alone_went_past_the_lists() {
        assert_eq!(found(&[(1, refill(PFN)), (1, alloc(PFN))]), [0]);
        // The lab's events do not say so.
        assert_eq!(found_in(&[(1, refill(PFN)), (1, alloc(PFN))], true), [0; 0]);
        // Another thread was at the lists.
        let first = [(1, refill(PFN)), (1, refill(PFN + 1))];
        let other = [(2, refill(PFN + 9)), (2, alloc(PFN + 9))];
        let rest = [(1, refill(PFN + 2)), (1, alloc(PFN))];
        assert_eq!(found(&[&first[..], &other, &rest].concat()), [2]);
    }

    #[test]
    fn a_block_of_a_refill_is_not_alone() {
        assert_eq!(found(&[(1, refill(PFN)), (1, refill(PFN + 1)), (1, alloc(PFN + 1))]), [0; 0]);
        // The next block of its list, not this one.
        assert_eq!(found(&[(1, refill(PFN)), (1, alloc(PFN + 1))]), [0; 0]);
        // It was on a list meanwhile.
        let free = EventKind::Free { pfn: PFN + 7, order: 0 };
        assert_eq!(found(&[(1, refill(PFN)), (1, free), (1, alloc(PFN))]), [0; 0]);
        let huge = |kind: fn(u64, u8) -> EventKind| (1, kind(PFN, 9));
        let refill_of =
            |pfn, order| EventKind::ZoneLocked { pfn, order, migratetype: 1, percpu_refill: true };
        let alloc_of =
            |pfn, order| EventKind::Alloc { pfn: Some(pfn), order, migratetype: 1, gfp: 0 };
        assert_eq!(found(&[huge(refill_of), huge(alloc_of)]), [0; 0]);
        // The batch of the sample's first zone is a page.
        assert_eq!(found(&[(1, refill(0x100)), (1, alloc(0x100))]), [0; 0]);
    }

    #[test]
    fn the_two_events_of_a_fallback_are_one_block() {
        assert_eq!(found(&[(1, fallback(PFN)), (1, refill(PFN)), (1, alloc(PFN))]), [1]);
        assert_eq!(found(&[(1, refill(PFN)), (1, fallback(PFN)), (1, alloc(PFN))]), [0]);
        // From 6.15 on the first block of a refill may have the fallback's alone.
        let claimed = [(1, fallback(PFN)), (1, refill(PFN + 1)), (1, alloc(PFN + 1))];
        assert_eq!(found(&claimed), [0; 0]);
    }
}
