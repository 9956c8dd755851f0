//! Settings of a cache. A leaf: the builder fills them in, and everything below reads them.

use std::time::Duration;

use zonal::Order;

/// Settings of a cache.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub max_pages: u64,
    pub read_ahead: u32,
    pub background_percent: u32,
    pub dirty_percent: u32,
    pub dirty_expire: Duration,
    pub writeback_interval: Duration,
    pub direct: bool,
    pub closed_files: usize,
    pub lock_files: bool,
    /// Order of a page.
    pub order: Order,
    pub replacement: Replacement,
    /// Pages have numbers of a log.
    pub logged: bool,
}

/// Which page leaves the cache when one must.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Replacement {
    /// The kernel's rule: two lists. A page that is used twice is active, and survives a scan of
    /// many pages that are used once.
    #[default]
    ActiveInactive,
    /// One list. The oldest page that was not used since it was last looked at (the clock).
    SecondChance,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            max_pages: u64::MAX,
            read_ahead: 32,
            background_percent: 10,
            dirty_percent: 20,
            dirty_expire: Duration::from_secs(30),
            writeback_interval: Duration::from_secs(5),
            direct: false,
            closed_files: 256,
            lock_files: true,
            order: Order::ZERO,
            replacement: Replacement::default(),
            logged: false,
        }
    }
}
