//! What the slow path asks its caller to do.

use crate::gfp::AllocFlags;

/// What a request that found nothing does next. Whoever asks does it, and asks again: so what is
/// deep, a walk or a drain, has nothing of the decisions below it on the stack.
#[derive(Clone, Copy)]
pub enum Next {
    /// It walks with these rights.
    Walk(AllocFlags),
    /// It walks as one that does not reclaim.
    Look(AllocFlags),
    /// It empties all lists and depots.
    DrainAll,
    /// It empties the lists of its zones, without a long wait.
    DrainOpen,
    /// It is refused.
    Refuse,
}
