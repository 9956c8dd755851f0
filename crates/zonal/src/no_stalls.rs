//! What stands for `stalls.rs` in programs without that feature: nothing.

/// As in `stalls.rs`.
#[derive(Clone, Copy)]
pub(crate) enum Doing {
    Fence,
    Reclaim,
    Memory,
    Yield,
}

/// Nothing to drop.
pub(crate) struct Span;

#[inline(always)]
pub(crate) fn span(_doing: Doing) -> Span {
    Span
}
