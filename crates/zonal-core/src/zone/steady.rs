//! How many pages of a zone are free, while its own threads move them about.
//!
//! A refill, a drain and a magazine on its way have pages in their hands: a sum of what the lists,
//! the depots and the buddy have, read one after the other, misses some of them or has some twice.
//! So the sum is taken again where anything moved meanwhile.
//!
//! ```text
//!  how often things moved ─► lists, each with its gate held ─► zone lock: depots, buddy, how often
//! ```
//! # Invariants
//! - **STEADY-1** pages come to the buddy, or leave it, with the zone lock held and, if they come
//!   from a list or go to one, with that pcp's gate held from before the first page leaves its
//!   place until the last one has another.
//! - **STEADY-2** pages come to a depot, or leave it, with a pcp's gate or the zone lock held as
//!   long, and before its number of pages grows or shrinks by a magazine the number of its changes
//!   has grown.
//!
//! So where both numbers are what they were, each page was counted in one place. For what was under
//! way when they were read first the reader waited, at a gate or at the zone lock; what began
//! behind the look at a gate had to change a number before a page of it could be seen elsewhere.
//! What callers allocate and free meanwhile is in the sum or not.
//!
//! It does not know gates, depots or locks, so that the interleaving model
//! (crates/zonal/tests/loom_steady.rs) compiles this very file with its own.

/// Sums taken before one is told that something changed: callers are at work all the time.
const TRIES: u32 = 16;

/// What changes when pages move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Moves {
    /// Times that the zone lock was taken.
    pub holds: u64,
    /// Times that a depot's arrays went somewhere.
    pub changes: u64,
}

/// The places of a zone that have free pages.
pub(crate) trait Places {
    /// What moved so far.
    fn before(&self) -> Moves;

    /// Pages on the lists of all CPUs, those of each read with its gate held. `false`: somebody had
    /// a gate for too long, and its pages are a guess.
    fn lists(&self) -> (u64, bool);

    /// Pages in the depots and in the buddy, and then what moved so far, without this hold of the
    /// zone lock, which it needs.
    fn locked(&self) -> (u64, Moves);

    /// Lets others go on.
    fn relax(&self);
}

/// The free pages, and whether nothing moved while they were counted. Then they are exact, if no
/// caller allocated or freed meanwhile; otherwise each part is right for some moment.
pub(crate) fn count(places: &impl Places) -> (u64, bool) {
    let mut tries = TRIES;
    loop {
        let before = places.before();
        let (lists, is_right) = places.lists();
        let (rest, after) = places.locked();
        tries -= 1;
        let is_exact = is_right && before == after;
        if is_exact || !is_right || tries == 0 {
            return (lists + rest, is_exact);
        }
        places.relax();
    }
}
