//! An allocator's counters at one moment, and what happened between two.

use zonal_core::alloc::NumaEvents;

use crate::moves::MovesByPlace;

/// An allocator's counters. Exact while nothing runs.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Moves between buddies and lists, by zone of the model and CPU.
    pub moves: MovesByPlace,
    /// NUMA events by node, in the order of the model's nodes.
    pub numa: Vec<NumaEvents>,
    /// Times a zone lock was taken, and found taken.
    pub lock: (u64, u64),
    /// Requests that took the slow path.
    pub slow_paths: u64,
    /// Pageblocks claimed and blocks stolen from another migratetype.
    pub fallbacks: (u64, u64),
}

impl Counters {
    /// What happened since an earlier reading of the same allocator.
    pub fn since(mut self, before: &Counters) -> Counters {
        for (place, moves) in &mut self.moves {
            if let Some(before) = before.moves.get(place) {
                moves.subtract(before);
            }
        }
        for (after, before) in self.numa.iter_mut().zip(&before.numa) {
            after.hit -= before.hit;
            after.miss -= before.miss;
            after.foreign -= before.foreign;
            after.local -= before.local;
            after.other -= before.other;
        }
        let minus =
            |after: (u64, u64), before: (u64, u64)| (after.0 - before.0, after.1 - before.1);
        self.lock = minus(self.lock, before.lock);
        self.fallbacks = minus(self.fallbacks, before.fallbacks);
        self.slow_paths -= before.slow_paths;
        self
    }
}
