//! What becomes of an allocator in a forked child, which has only the thread that forked.
//!
//! Blocks that other threads had in their hands: [`Allocator::expect_strays`]. Their reclaimers:
//! [`Allocator::background_gone`]. What they were computing is here.

use super::Allocator;
use super::limits::Limits;
use crate::platform::Platform;

/// Nobody computes limits any more: what a thread of the parent was at is asked for once more.
/// Takes no lock. [`catch_up`] follows once all locks are free.
pub fn limits_gone<P: Platform>(on: &Allocator<'_, P>) {
    Limits::new(&on.tables).gone();
}

/// Computes limits that were asked for, by [`Allocator::set`], [`Allocator::setup`] and the like,
/// and that the thread which was at it did not come to.
pub fn catch_up<P: Platform>(on: &Allocator<'_, P>) {
    Limits::new(&on.tables).catch_up();
}
