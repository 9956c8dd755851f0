//! Settings of a cache. A leaf: the builder fills them in, and everything below reads them.

use std::time::Duration;

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
        }
    }
}
