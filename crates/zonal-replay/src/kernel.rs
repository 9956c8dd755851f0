//! What the recorded kernel moved under its zone locks, block by block.

use crate::facts::{Fact, FactKind, Facts};
use crate::moves::Moves;

/// Times between blocks that are looked at, and those that say something.
const GAPS_MAX: usize = 1 << 16;
const GAPS_MIN: usize = 100;

/// What the recorded kernel moved under its zone locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelMoves {
    /// Base pages, holds and bursts.
    pub moves: Moves,
    /// Of them, those of the time in which the model can be judged.
    pub judged: Moves,
    /// Blocks between lists and buddies.
    pub list_blocks: u64,
    /// Blocks past the lists, taken and given back: a hold of the lock each.
    pub direct_blocks: u64,
    /// From one block of a hold to the next, the median in ns: moving it, and recording that.
    pub traced_block_ns: Option<u64>,
}

impl KernelMoves {
    /// What blocks tell; base pages, holds and bursts are the program's.
    pub(crate) fn new(facts: &Facts) -> KernelMoves {
        let mut kernel = KernelMoves::default();
        // Without lists (LB E.1) the zone lock is taken for each block.
        let has_lists = |order| facts.zones().has_lists(order);
        let facts = || facts.from(facts.start());
        kernel.traced_block_ns = traced_block_ns(facts());
        for fact in facts() {
            match fact.kind {
                FactKind::Refill | FactKind::Drain => kernel.list_blocks += 1,
                FactKind::Direct => kernel.direct_blocks += 1,
                FactKind::Free if !has_lists(fact.order) => kernel.direct_blocks += 1,
                _ => {}
            }
        }
        kernel
    }

    /// Blocks of a base page that goes through the lists.
    pub(crate) fn blocks_per_page(&self) -> f64 {
        let all = self.moves.refill_pages + self.moves.drain_pages;
        if all > 0 { self.list_blocks as f64 / all as f64 } else { 1.0 }
    }
}

/// The median time between two blocks of one CPU that move in one direction, one after the other.
fn traced_block_ns(facts: impl Iterator<Item = Fact>) -> Option<u64> {
    let mut last: Vec<Option<(FactKind, u64)>> = Vec::new();
    let mut gaps = Vec::new();
    for fact in facts {
        let cpu = usize::from(fact.cpu);
        last.resize(last.len().max(cpu + 1), None);
        let now = matches!(fact.kind, FactKind::Refill | FactKind::Drain)
            .then_some((fact.kind, fact.time_ns));
        if let (Some((before, then)), Some((kind, time_ns))) = (last[cpu], now)
            && before == kind
            && gaps.len() < GAPS_MAX
        {
            gaps.push(time_ns.saturating_sub(then));
        }
        last[cpu] = now;
    }
    let middle = gaps.len() / 2;
    (gaps.len() >= GAPS_MIN).then(|| *gaps.select_nth_unstable(middle).1)
}
