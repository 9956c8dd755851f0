//! A run, and what is seen of it.

pub(super) const WEEK_S: f64 = 7.0 * 24.0 * 3600.0;

/// One run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Setup {
    /// Pages of the zone.
    pub pages: u64,
    /// Part of them that is in use on average.
    pub used: f64,
    /// What random choices start from.
    pub seed: u64,
}

/// What was seen at one look.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Look {
    /// Pages of the longest run that is free.
    pub longest: u64,
    /// Free pages.
    pub free: u64,
}
