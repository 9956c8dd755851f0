//! Facts beyond the allocations and frees of a trace, given to a replay or found by it.

use std::collections::BTreeMap;

use serde::Serialize;
use zonal_core::gfp::Gfp;
use zonal_trace::MachineDescription;

use crate::facts::{Fact, FactKind, Facts};
use crate::moves::total;
use crate::program::Program;

/// Recorded actions of the kernel that a model uses, beyond allocations, frees and `zoneinfo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Recorded {
    /// When each CPU's statistics worker ran.
    pub decay: bool,
    /// The migratetypes of pageblocks.
    pub blocktypes: bool,
    /// The pages that lists held at the start.
    pub lists: bool,
    /// Allocations that no event shows.
    pub untraced: bool,
}

impl Recorded {
    /// With the times of the workers, where events show them, or drains do and the recorder had
    /// left pages on lists. When a worker runs follows from when it ran before the trace, as what
    /// lists hold does, and no file tells it: a second later, lists that were drained a batch at a
    /// time have been emptied by frees.
    pub(crate) fn with_workers(self, machine: &MachineDescription, facts: &Facts) -> Recorded {
        let is_warm = is_warm(machine);
        let is_told = |fact: Fact| match fact.kind {
            FactKind::Refresh => true,
            FactKind::Drain => is_warm,
            _ => false,
        };
        Recorded { decay: self.decay || facts.from(0).any(is_told), ..self }
    }

    /// With allocations that no event shows, where refills and drains show them and no event was
    /// lost. A list is refilled when it is empty, so what was on it has left by then; without
    /// refills, a page that comes to a list and is next seen freed came out of nothing.
    pub(crate) fn with_untraced(self, facts: &Facts, is_whole: bool) -> Recorded {
        let is_move = |fact: Fact| matches!(fact.kind, FactKind::Refill | FactKind::Drain);
        Recorded { untraced: self.untraced || is_whole && facts.from(0).any(is_move), ..self }
    }

    /// With the lists at the start, where refills and drains show which: a wrong guess moves the
    /// first refill of each list, which may fetch as much as all later ones. A recorder that keeps
    /// lists short for a while does not empty them: kernels before 6.7 leave what an idle CPU has,
    /// and between that while and the start lists grow. Where events were lost, pages that came
    /// meanwhile look as if they had been there.
    pub(crate) fn at_start_of(self, program: &Program) -> Recorded {
        let kernel = total(&program.kernel);
        let shows = kernel.refill_pages + kernel.drain_pages > 0 && program.counts.lost == 0;
        Recorded { lists: self.lists || shows, ..self }
    }

    /// Their names on the command line.
    pub fn names(self) -> Vec<&'static str> {
        let all = [
            (self.decay, "decay"),
            (self.blocktypes, "blocktypes"),
            (self.lists, "lists"),
            (self.untraced, "untraced"),
        ];
        all.into_iter().filter(|(told, _)| *told).map(|(_, name)| name).collect()
    }
}

/// Whether lists may have held pages when the trace began.
fn is_warm(machine: &MachineDescription) -> bool {
    machine.flags.cold_pcp_start != Some(true)
}

/// Facts that no single event says.
#[derive(Debug, Default)]
pub struct Told {
    /// Allocations that the trace has no event of.
    pub untraced: Vec<Untraced>,
    /// Facts about each list at the start.
    pub lists: BTreeMap<ListKey, StartList>,
}

impl Told {
    /// Allocations without event, where allocations and frees alone were looked at: a page that is
    /// never seen again may have been drained.
    pub(crate) fn of_users(self) -> Vec<Untraced> {
        let freed = self.untraced.into_iter().filter(|untraced| untraced.freed);
        freed.collect()
    }
}

/// Facts about a list at the start, from a trace.
#[derive(Debug, Default)]
pub struct StartList {
    /// Blocks that leave it by allocations, hottest first.
    pub hot: Vec<u64>,
    /// Blocks that leave it by drains, coldest first.
    pub cold: Vec<u64>,
    /// It ran empty later, so there was nothing between these.
    pub ran_empty: bool,
    /// Its first refill.
    pub first_refill: Option<FirstRefill>,
}

/// The first refill of a list after the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstRefill {
    /// Which of all facts began it.
    pub at: usize,
    /// Base pages that came.
    pub pages: u64,
    /// Frees to its CPU's lists of this zone between the start and it: each halves the exponent of
    /// what a refill fetches (LB E.7, `alloc_factor`).
    pub frees_before: u32,
}

/// One list: zone, CPU and number in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListKey {
    /// Position of the zone.
    pub zone: u16,
    /// The CPU whose list it is.
    pub cpu: u16,
    /// Number of the list.
    pub list: u8,
}

/// An allocation without event, found out by [`judge`](crate::judge).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Untraced {
    /// Before which of the [`Facts`] it must have been.
    pub at: usize,
    /// First frame.
    pub pfn: u64,
    /// The CPU whose list it was on.
    pub cpu: u32,
    /// The block's order.
    pub order: u8,
    /// The list's migratetype.
    pub migratetype: u8,
    /// The trace shows it being freed again.
    pub freed: bool,
}

impl Untraced {
    /// Flags of a request that takes from this list: as an ordinary one of the kernel.
    pub fn gfp(&self) -> u32 {
        let bits = match self.migratetype {
            1 => Gfp::KERNEL | Gfp::MOVABLE,
            2 => Gfp::KERNEL | Gfp::RECLAIMABLE,
            _ => Gfp::KERNEL,
        };
        bits.bits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal_trace::{Event, EventKind};

    #[test]
    fn allocations_without_event_are_told_where_moves_show_them_and_nothing_was_lost() {
        let told = |kind, is_whole| {
            let mut facts = Facts::default();
            facts.see(&Event { time_ns: 0, cpu: 0, pid: 1, kind });
            Recorded::default().with_untraced(&facts, is_whole).untraced
        };
        let refill =
            EventKind::ZoneLocked { pfn: 1, order: 0, migratetype: 1, percpu_refill: true };
        assert!(told(refill.clone(), true));
        assert!(!told(refill, false));
        assert!(!told(EventKind::Free { pfn: 1, order: 0 }, true));
    }
}
