//! NUMA events: where each allocation is counted, and how the counts are kept (LB F.6, F.7).
//!
//! ```text
//!  allocation ──► deltas of (zone, CPU) ──► counters of the zone ──► read
//!                       threshold, refresh, or the reader itself
//! ```
//! The exact storage has no deltas: the hot word counts pops, the core counts misses, and the rest
//! follows. Its zone counters hold what to subtract: the figures of the moment in which counting
//! was last switched on.
//!
//! Since 5.14 Linux adds to a CPU's word with one unlocked instruction, and a reader on another CPU
//! takes the word with an exchange. If the exchange falls between the load and the store of that
//! instruction, the store puts the old sum back, and the reader's share is counted twice. Here the
//! addition is made so that threads which share a CPU's number lose nothing to each other, and the
//! reader's race is kept as it is. The exact storage has no such race: a reader only loads.

use crate::platform::{Instruction, Platform, Step};
use crate::sync::AtomicI64;
use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::types::{CpuId, ZoneId};
use crate::vmstat::folds::Folds;
#[cfg(feature = "history")]
use crate::vmstat::history::numa as history;
use crate::vmstat::variant::{NumaPolicy, NumaStorage, Update};

/// Events of one zone, by their position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NumaItem {
    /// Served from the preferred node.
    Hit,
    /// Served from another node than preferred.
    Miss,
    /// Preferred this zone's node, served by another.
    Foreign,
    /// Served to a CPU of the zone's node.
    Local,
    /// Served to a CPU of another node.
    Other,
}

/// Kinds of events.
pub const NUMA_ITEMS: usize = 5;

/// Their names in `/proc/vmstat`.
pub const NUMA_NAMES: [&str; NUMA_ITEMS] =
    ["numa_hit", "numa_miss", "numa_foreign", "numa_local", "numa_other"];

/// One number for each event.
pub type NumaCounts = [i64; NUMA_ITEMS];

/// The deltas of one (zone, CPU): a line of their own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct NumaDeltas {
    items: [AtomicI64; NUMA_ITEMS],
}

/// The counters of one zone.
#[derive(Debug, Default)]
pub struct NumaCounters {
    items: [AtomicI64; NUMA_ITEMS],
    folds: Folds,
}

/// How often a reader waits for folds under way.
const SETTLING_MAX: u32 = 1 << 12;

/// How events of one zone are counted.
#[derive(Clone, Copy, Debug)]
pub struct NumaRule {
    /// The storage and its threshold.
    pub policy: NumaPolicy,
    /// How deltas of zone items are updated: the first two storages use the same primitive.
    pub update: Update,
    /// Threshold of the zone's own counters.
    pub zone_threshold: u32,
    /// The zone.
    pub zone: ZoneId,
}

impl NumaDeltas {
    /// Counts `count` events of one kind.
    #[cfg_attr(not(feature = "history"), expect(unused_variables, reason = "nothing folds"))]
    pub fn record<P: Platform>(
        &self,
        platform: &P,
        rule: &NumaRule,
        item: NumaItem,
        count: u32,
        zone: &NumaCounters,
    ) {
        let diff = &self.items[item as usize];
        match rule.policy.storage {
            NumaStorage::UlongFoldOnRead => {
                add_unlocked(diff, i64::from(count));
                platform.cost(Step::Update { zone: rule.zone, by: Instruction::Add, times: 1 });
            }
            // The hot word has counted it.
            NumaStorage::UlongExact => {}
            #[cfg(feature = "history")]
            _ => {
                let threshold = rule.policy.threshold(rule.zone_threshold);
                let how = (rule.policy.storage, rule.update);
                let shared = &zone.items[item as usize];
                history::record(platform, rule.zone, how, (diff, threshold), shared, count);
            }
        }
    }

    /// Whether any delta is not zero.
    pub fn any(&self) -> bool {
        self.items.iter().any(|item| item.load(Relaxed) != 0)
    }

    /// Moves all deltas to the zone's counters. Returns whether there were any.
    pub fn fold_into(&self, zone: &NumaCounters) -> bool {
        let mut any = false;
        zone.folds.begin();
        for (diff, shared) in self.items.iter().zip(&zone.items) {
            // Release: pairs with the Acquire in `peek` (see `folds`). The exchange alone decides
            // who has a delta.
            let taken = diff.swap(0, Release);
            if taken != 0 {
                // Release: pairs with the Acquire in `get`.
                shared.fetch_add(taken, Release);
                any = true;
            }
        }
        zone.folds.end();
        any
    }

    /// The deltas, left where they are.
    pub fn peek(&self) -> NumaCounts {
        // Acquire: pairs with the Release in `fold_into`.
        self.items.each_ref().map(|item| item.load(Acquire))
    }

    /// Forgets all deltas.
    pub fn clear(&self) {
        self.items.iter().for_each(|item| item.store(0, Relaxed));
    }
}

impl NumaCounters {
    /// The folded value; may be below zero for a moment, or permanently after a lost race.
    pub fn get(&self) -> NumaCounts {
        // Acquire: pairs with the Release in `fold_into`.
        self.items.each_ref().map(|item| item.load(Acquire))
    }

    /// What `read` makes of the deltas and counters of the zone, while no fold is under way: a
    /// delta taken and not yet added would be missing, or counted twice. Waits for folds for a
    /// bounded time.
    pub fn settled<P: Platform, T>(&self, platform: &P, mut read: impl FnMut() -> T) -> T {
        for _ in 0..SETTLING_MAX {
            let done = self.folds.done();
            let value = read();
            if self.folds.none_since(done) {
                return value;
            }
            platform.relax();
        }
        read()
    }

    /// Sets all counters.
    pub fn set(&self, counts: NumaCounts) {
        self.items.iter().zip(counts).for_each(|(item, count)| item.store(count, Relaxed));
    }
}

/// The sum of two sets of counts.
pub fn plus(one: NumaCounts, other: NumaCounts) -> NumaCounts {
    core::array::from_fn(|item| one[item].wrapping_add(other[item]))
}

/// Where an allocation counts (LB F.6): the events of the zone that served it, and those of the
/// zone it preferred.
pub const fn events_of(
    served_preferred: bool,
    served_local: bool,
) -> ([NumaItem; 2], Option<NumaItem>) {
    let place = if served_local { NumaItem::Local } else { NumaItem::Other };
    if served_preferred {
        ([NumaItem::Hit, place], None)
    } else {
        ([NumaItem::Miss, place], Some(NumaItem::Foreign))
    }
}

/// Tells the platform that a reader looked at a CPU's deltas.
pub fn collected<P: Platform>(platform: &P, zone: ZoneId, cpu: CpuId, taken: bool) {
    platform.cost(Step::Collect { zone, cpu, taken });
}

/// What the unlocked addition of 5.14 does to a word that its own CPU alone adds to: if a reader
/// takes the word between the load and the store, the store puts the old sum back.
fn add_unlocked(word: &AtomicI64, count: i64) {
    let mut seen = word.load(Relaxed);
    // Relaxed: a counter, see above.
    while let Err(now) = word.compare_exchange(seen, seen + count, Relaxed, Relaxed) {
        if now < seen {
            word.store(seen + count, Relaxed);
            return;
        }
        // Another thread on this CPU's number: in a kernel it would have waited its turn.
        seen = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_counts_twice_and_a_foreign_one_three_times() {
        use NumaItem::{Foreign, Hit, Local, Miss, Other};
        assert_eq!(events_of(true, true), ([Hit, Local], None));
        assert_eq!(events_of(true, false), ([Hit, Other], None));
        assert_eq!(events_of(false, true), ([Miss, Local], Some(Foreign)));
        assert_eq!(events_of(false, false), ([Miss, Other], Some(Foreign)));
    }
}
