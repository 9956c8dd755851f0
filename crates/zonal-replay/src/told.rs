//! Facts beyond the allocations and frees of a trace, given to a replay or found by it.

use std::collections::BTreeMap;

use serde::Serialize;
use zonal_core::gfp::Gfp;
use zonal_core::pcp::tuning::Tuning;
use zonal_core::policy::PcpPolicy;
use zonal_trace::{MachineDescription, Pageset};

use crate::advise::policy_of;
use crate::facts::{Fact, FactKind, Facts};
use crate::moves::total;
use crate::program::Program;
use crate::zones::{FreeBlocks, ZoneMap, sets_at_start};

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
    /// Frees that found the lists of their CPU in use.
    pub past_lists: bool,
}

impl Recorded {
    /// With the times of the workers, where events show them, or drains do and the recorder had
    /// left pages on lists. When a worker runs follows from when it ran before the trace, as what
    /// lists hold does, and no file tells it: a second later, lists that were drained a batch at a
    /// time have been emptied by frees.
    fn with_workers(self, machine: &MachineDescription, facts: &Facts) -> Recorded {
        let is_warm = is_warm(machine);
        let is_told = |fact: Fact| match fact.kind {
            FactKind::Refresh => true,
            FactKind::Drain => is_warm,
            _ => false,
        };
        Recorded { decay: self.decay || facts.from(0).any(is_told), ..self }
    }

    /// With what events show of workers, and with what the kernel did to its lists without an
    /// event, where that is much and blocks are named. The facts may be whole.
    pub(crate) fn with_moves(
        self,
        machine: &MachineDescription,
        told: &Told,
        (facts, is_whole): (&Facts, bool),
    ) -> Recorded {
        let recorded = self.with_workers(machine, facts);
        if !facts.names_moved() {
            return recorded;
        }
        let least = least_many(machine, facts);
        recorded.with_untraced(told, (facts, is_whole), least).with_past_lists(told, least)
    }

    /// With allocations that no event shows as far as refills show them, where these are many (a
    /// refill has to fetch each again) and no event was lost. A list is refilled when it is empty,
    /// so what was on it has left by then; without refills, a page that comes to a list and is next
    /// seen freed counts as in use since the start.
    fn with_untraced(
        self,
        told: &Told,
        (facts, is_whole): (&Facts, bool),
        least: usize,
    ) -> Recorded {
        let are_many = told.untraced.len() >= least;
        // Without moves, a page that is never seen again may have been drained.
        let is_move = |fact: Fact| matches!(fact.kind, FactKind::Refill | FactKind::Drain);
        let shows = is_whole && are_many && facts.from(0).any(is_move);
        Recorded { untraced: self.untraced || shows, ..self }
    }

    /// With what went past the lists, where it is many: a refill has to fetch each block that was
    /// freed so again, and none fetched those that were allocated so. It depends on when interrupts
    /// came, and with `PREEMPT_RT` on who lost its CPU.
    fn with_past_lists(self, told: &Told, least: usize) -> Recorded {
        let are_many = told.past_lists.len() >= least;
        Recorded { past_lists: self.past_lists || are_many, ..self }
    }

    /// With the lists at the start, where they hold more than a wrong guess may cost, and refills
    /// and drains show which: it moves the first refill of each list, which may fetch as much as
    /// all later ones, the more so the less is fetched. Where events were lost, pages that came
    /// meanwhile look as if they had been there.
    pub(crate) fn at_start_of(self, machine: &MachineDescription, program: &Program) -> Recorded {
        let kernel = total(&program.kernel);
        let shows = kernel.refill_pages + kernel.drain_pages > 0 && program.counts.lost == 0;
        let is_warm = is_warm(machine) || holds_much(machine, kernel.refill_pages);
        let recorded = Recorded { lists: self.lists || (is_warm && shows), ..self };
        recorded.with_blocktypes(machine, program)
    }

    /// With the types of pageblocks, where a zone has no free one, or so few that the recording
    /// took more than these: whether such a zone has a page for a request that may not mix types
    /// depends on these alone.
    fn with_blocktypes(self, machine: &MachineDescription, program: &Program) -> Recorded {
        let map = ZoneMap::new(machine);
        let is_short = |index: usize| few_blocks(machine, program, (index, &map)).is_some();
        let is_short = (0..map.zones().len()).any(is_short);
        Recorded { blocktypes: self.blocktypes || is_short, ..self }
    }

    /// Their names on the command line.
    pub fn names(self) -> Vec<&'static str> {
        let all = [
            (self.decay, "decay"),
            (self.blocktypes, "blocktypes"),
            (self.lists, "lists"),
            (self.untraced, "untraced"),
            (self.past_lists, "past-lists"),
        ];
        all.into_iter().filter(|(told, _)| *told).map(|(_, name)| name).collect()
    }
}

/// The free blocks of a zone at the start, where pageblocks are few among them: none, or less
/// memory than the recording takes off the zone's buddy.
pub(crate) fn few_blocks(
    machine: &MachineDescription,
    program: &Program,
    (index, map): (usize, &ZoneMap),
) -> Option<FreeBlocks> {
    let zone = &map.zones()[index];
    let own = program.kernel.iter().filter(|((of, _), _)| *of == Some(index));
    let taken: u64 = own.map(|(_, own)| own.refill_pages + own.direct_pages).sum();
    FreeBlocks::of(machine, (zone.node, &zone.kind)).filter(|free| match free.pageblocks() {
        0 => true,
        blocks => blocks.saturating_mul(FreeBlocks::PAGEBLOCK) < taken,
    })
}

/// Blocks that refills fetched since the start.
fn refilled(facts: &Facts) -> usize {
    facts.from(facts.start()).filter(|fact| fact.kind == FactKind::Refill).count()
}

/// So many blocks that the kernel moved without an event are many: more than one of a hundred that
/// refills fetched. One is, where all refills together fetched so little that the one more that it
/// may cause is much.
fn least_many(machine: &MachineDescription, facts: &Facts) -> usize {
    let refilled = refilled(facts);
    let sets = machine.zones.iter().flat_map(|zone| &zone.pagesets);
    match largest_refill(machine, sets).saturating_mul(MUCH_OF) > refilled as u64 {
        true => 1,
        false => refilled / 100 + 1,
    }
}

/// Pages that one refill fetches at most.
fn largest_refill<'s>(
    machine: &MachineDescription,
    sets: impl Iterator<Item = &'s Pageset>,
) -> u64 {
    let pcp = policy_of(machine.kernel_release.as_deref()).pcp;
    let shift = if pcp.tuning.has(Tuning::Level5) { pcp.scale_max } else { 0 };
    sets.map(|set| set.batch).max().unwrap_or(0) << shift
}

/// Whether lists may have held pages when the trace began.
fn is_warm(machine: &MachineDescription) -> bool {
    machine.flags.cold_pcp_start != Some(true)
}

/// Pages that may be guessed wrong are much beside those that refills fetch where there is one for
/// so many of them: half of what a model may be off and still be near.
const MUCH_OF: u64 = 40;

/// Whether lists hold more than one refill fetches at most, or much of what all refills fetch. A
/// recorder that keeps them short for a while does not empty them: kernels before 6.7 leave what an
/// idle CPU has, and between that while and the start lists grow.
fn holds_much(machine: &MachineDescription, refilled: u64) -> bool {
    let sets = || machine.zones.iter().flat_map(|zone| sets_at_start(machine, zone));
    let most = largest_refill(machine, sets());
    let held = sets().map(|set| set.count).sum::<u64>();
    held > most || held.saturating_mul(MUCH_OF) > refilled
}

/// Facts that no single event says.
#[derive(Debug, Default)]
pub struct Told {
    /// Allocations that the trace has no event of.
    pub untraced: Vec<Untraced>,
    /// Which of the [`Facts`] are allocations and frees past the lists.
    pub past_lists: Vec<usize>,
    /// Facts about each list at the start.
    pub lists: BTreeMap<ListKey, StartList>,
    /// By zone and CPU: the first drain of its lists that a free causes.
    pub drains: BTreeMap<(u16, u16), FirstDrain>,
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

/// The first drain of a CPU's lists after the start that a free causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstDrain {
    /// Which of all facts began it.
    pub at: usize,
    /// Base pages that left.
    pub pages: u64,
    /// Pages that the CPU had freed in a row by then, as if none had been before the start.
    pub freed: u64,
    /// Allocations from the lists between the start and it: each halves the pages freed in a row.
    pub halved: u32,
}

/// No kernel counts as many pages freed in a row.
const FREED_MOST: u64 = 1 << 14;

impl FirstDrain {
    /// The pages freed in a row at the start (LB E.7, `free_count`): the least number that leads
    /// there, as far as it is counted. A drain of a batch tells of none, and kernels before 6.7
    /// count otherwise.
    pub fn freed_before(self, batch: u64, policy: &PcpPolicy) -> u32 {
        if self.pages <= batch || !policy.tuning.has(Tuning::Level9) {
            return 0;
        }
        let most = batch.saturating_mul(1 << policy.scale_max).min(FREED_MOST);
        let before = self.pages.saturating_sub(self.freed);
        let doubled = 1_u64.checked_shl(self.halved).unwrap_or(u64::MAX);
        before.saturating_mul(doubled).min(most) as u32
    }
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

    /// With 200 blocks that lists or requests fetched.
    fn fetched(percpu_refill: bool) -> Facts {
        let mut facts = Facts::default();
        for pfn in 0..200 {
            let kind = EventKind::ZoneLocked { pfn, order: 0, migratetype: 0, percpu_refill };
            facts.see(&Event { time_ns: 0, cpu: 0, pid: 1, kind });
        }
        facts
    }

    #[test]
    fn allocations_without_event_are_told_where_they_are_many_and_nothing_was_lost() {
        let told = |untraced: usize, is_whole, percpu_refill| {
            let one = Untraced { at: 0, pfn: 1, cpu: 0, order: 0, migratetype: 0, freed: true };
            let told = Told { untraced: vec![one; untraced], ..Told::default() };
            let facts = fetched(percpu_refill);
            Recorded::default().with_untraced(&told, (&facts, is_whole), 3).untraced
        };
        assert!(told(3, true, true));
        assert!(!told(2, true, true));
        assert!(!told(3, false, true));
        assert!(!told(3, true, false), "nothing refilled shows them");
    }

    #[test]
    fn frees_past_the_lists_are_told_where_they_are_many_beside_refills() {
        let told = |past_lists: usize| {
            let told = Told { past_lists: vec![0; past_lists], ..Told::default() };
            Recorded::default().with_past_lists(&told, 3).past_lists
        };
        assert!(told(3) && !told(2) && !told(0));
    }

    #[test]
    fn one_is_many_where_a_single_refill_is_much_of_all() {
        let mut machine = zonal_trace::samples::zlib_make_j4().unwrap().description().clone();
        let mut least = |release: &str, batch: u64| {
            machine.kernel_release = Some(release.to_owned());
            let sets = machine.zones.iter_mut().flat_map(|zone| &mut zone.pagesets);
            sets.for_each(|set| set.batch = batch);
            least_many(&machine, &fetched(true))
        };
        // Refills are up to 32 batches there, and a batch here.
        assert_eq!([least("6.18.44", 63), least("6.1.0", 63)], [1, 1]);
        assert_eq!([least("6.18.44", 1), least("6.1.0", 6), least("6.1.0", 5)], [1, 1, 3]);
    }

    /// As in the lab's recordings: no refill or drain tells what became of a page.
    #[test]
    fn where_moves_name_no_pages_nothing_is_told_of_pages() {
        let machine = zonal_trace::samples::zlib_make_j4().unwrap().description().clone();
        let one = Untraced { at: 0, pfn: 1, cpu: 0, order: 0, migratetype: 0, freed: true };
        let told = Told { untraced: vec![one; 9], past_lists: vec![0; 9], ..Told::default() };
        let recorded = |facts| {
            let recorded = Recorded::default().with_moves(&machine, &told, (&facts, true));
            (recorded.untraced, recorded.past_lists)
        };
        assert_eq!(recorded(fetched(true)), (true, true));
        for drain in [false, true] {
            let mut facts = Facts::default();
            for step in 0..200 {
                // Holds of four blocks each, those of two CPUs at the same time.
                let (cpu, pfn) = (step % 2, u64::from(step / 8 * 2 + step % 2));
                let kind = match drain {
                    true => EventKind::PcpuDrain { pfn, order: 0, migratetype: 0 },
                    false => {
                        EventKind::ZoneLocked { pfn, order: 0, migratetype: 0, percpu_refill: true }
                    }
                };
                facts.see(&Event { time_ns: 0, cpu, pid: 1, kind });
            }
            assert_eq!(recorded(facts), (false, false));
        }
    }

    #[test]
    fn lists_are_told_where_they_hold_more_than_a_refill_or_much_of_all() {
        let sample = zonal_trace::samples::zlib_make_j4().unwrap();
        let mut machine = sample.description().clone();
        assert_eq!(machine.flags.cold_pcp_start, Some(true));
        machine.start = None;
        let mut much = |release: &str, count: u64, refilled: u64| {
            machine.kernel_release = Some(release.to_owned());
            for set in machine.zones.iter_mut().flat_map(|zone| &mut zone.pagesets) {
                (set.count, set.batch) = (0, 63);
            }
            let sets = machine.zones.iter_mut().flat_map(|zone| &mut zone.pagesets);
            sets.last().unwrap().count = count;
            holds_much(&machine, refilled)
        };
        let most = u64::MAX;
        assert!(much("6.18.44", 2017, most) && !much("6.18.44", 2016, most));
        // Refills are a batch there.
        assert!(much("6.1.0", 64, most) && !much("6.1.0", 63, most));
        assert!(much("6.18.44", 100, 3_999) && !much("6.18.44", 100, 4_000));
        assert!(!much("6.18.44", 0, 0));
    }
}
