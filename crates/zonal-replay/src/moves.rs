//! What moves between a zone's buddy and the per-CPU lists, and how it is counted.

use std::collections::BTreeMap;

/// What moved between a zone's buddy and one CPU's lists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moves {
    /// Base pages that went to the lists.
    pub refill_pages: u64,
    /// Zone lock holds that took.
    pub refill_holds: u64,
    /// Base pages that went back.
    pub drain_pages: u64,
    /// Zone lock holds that took.
    pub drain_holds: u64,
    /// Drains: one or more holds each, for one reason.
    pub drain_bursts: u64,
    /// Base pages that went past the lists, from the buddy to their user.
    pub direct_pages: u64,
}

impl Moves {
    /// Adds another's numbers.
    pub fn add(&mut self, other: &Moves) {
        self.refill_pages += other.refill_pages;
        self.refill_holds += other.refill_holds;
        self.drain_pages += other.drain_pages;
        self.drain_holds += other.drain_holds;
        self.drain_bursts += other.drain_bursts;
        self.direct_pages += other.direct_pages;
    }

    /// Takes an earlier reading's numbers away.
    pub fn subtract(&mut self, before: &Moves) {
        self.refill_pages -= before.refill_pages;
        self.refill_holds -= before.refill_holds;
        self.drain_pages -= before.drain_pages;
        self.drain_holds -= before.drain_holds;
        self.drain_bursts -= before.drain_bursts;
        self.direct_pages -= before.direct_pages;
    }
}

/// Moves by zone (position in the [`ZoneMap`](crate::ZoneMap), `None` for frames outside all zones)
/// and CPU.
pub type MovesByPlace = BTreeMap<(Option<usize>, u32), Moves>;

/// The sum over all places.
pub fn total(moves: &MovesByPlace) -> Moves {
    moves.values().fold(Moves::default(), |mut sum, one| {
        sum.add(one);
        sum
    })
}
