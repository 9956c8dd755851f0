//! What a CPU's lists may hold, beside the steps of Linux' tuning.

use crate::types::Choice;

/// What makes `high` grow, from tuning level 7 on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Growth {
    /// Each refill, and each drain of a full list (LB E.6, E.7). Lists may always hold `high_min`,
    /// and keep so much when nobody uses them.
    #[default]
    Use,
    /// What the CPU gave back and then had to fetch again: its swing. Who only frees, or only
    /// allocates, keeps short lists, since pages that stay with it are of no use to it. Lists may
    /// always hold four batches; what nobody took since the last refresh goes back.
    Swing,
}

impl Choice for Growth {
    const ALL: &'static [(&'static str, Growth)] =
        &[("use", Growth::Use), ("swing", Growth::Swing)];
}

/// What a store remembers of its CPU's swings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ledger {
    /// Nothing: every kernel.
    #[default]
    Off,
    /// Pages given back for which `high` has not grown yet: lists grow by swings.
    Given,
    /// Pages fetched and not given back yet, as far as the CPU's share of the last-level cache
    /// holds them, or four batches. Who frees no more than that gives back what it took, and may
    /// take it again: no stream of large frees.
    Fetched,
}
