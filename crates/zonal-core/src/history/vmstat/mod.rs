//! Counters up to 5.13 (LB F): updates of deltas, storages of NUMA events, and the policies of each
//! release.

pub(super) mod numa;
#[cfg(test)]
mod races;
pub(super) mod update;
mod variant;
