//! Counters of the cache.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Defines the counters once: cells, figures, and the conversion.
macro_rules! counters {
    ($($(#[$help:meta])* $name:ident,)*) => {
        /// The counters.
        #[derive(Debug, Default)]
        pub struct Counters {
            $(pub $name: AtomicU64,)*
        }

        /// What the cache did so far, and what it holds. All in pages of the cache (4 KiB for
        /// files) unless said.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Stats {
            $($(#[$help])* pub $name: u64,)*
            /// Pages in the cache.
            pub pages: u64,
            /// Of these, pages on the active lists.
            pub active: u64,
            /// Of these, pages on the inactive lists.
            pub inactive: u64,
            /// Of these, dirty ones, or being written.
            pub dirty: u64,
        }

        impl Counters {
            // Relaxed: single counts, for reports.
            /// The counts now; what the cache holds is left at 0.
            pub fn stats(&self) -> Stats {
                Stats { $($name: self.$name.load(Relaxed),)* ..Stats::default() }
            }
        }
    };
}

counters! {
    /// Pages asked for that were there.
    hits,
    /// Pages asked for that had to be read or made.
    misses,
    /// Of the misses, pages that had been reclaimed not long before.
    refaults,
    /// Of these, pages that went to the active list at once.
    refault_activations,
    /// Pages moved to the active list by a second use.
    activations,
    /// Pages moved from the active to the inactive list.
    deactivations,
    /// Pages looked at by reclaim.
    scanned,
    /// Pages reclaimed.
    evicted,
    /// Pages read from stores.
    read,
    /// Of these, pages read ahead of their use.
    read_ahead,
    /// Pages written to stores.
    written,
    /// Uncached reads, because there was no page for them.
    bypassed,
    /// Times a writer waited because too much was dirty.
    throttled,
    /// Reads from stores that failed.
    read_errors,
    /// Writes to stores that failed.
    write_errors,
}

impl Stats {
    /// Hits divided by pages asked for, 0 to 1; 0 if none was asked for.
    pub fn hit_rate(&self) -> f64 {
        match self.hits + self.misses {
            0 => 0.0,
            asked => self.hits as f64 / asked as f64,
        }
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} pages ({} active, {} inactive, {} dirty), hit rate {:.1} %, {} read ({} ahead), \
             {} written, {} given up, {} refaults",
            self.pages,
            self.active,
            self.inactive,
            self.dirty,
            self.hit_rate() * 100.0,
            self.read,
            self.read_ahead,
            self.written,
            self.evicted,
            self.refaults,
        )
    }
}

/// Adds to a counter. Relaxed: a single count.
pub fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Relaxed);
}
