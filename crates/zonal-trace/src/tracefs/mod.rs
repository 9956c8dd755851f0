//! What tracefs says about the events in its rings: their fields, by name, and what flags mean.
//!
//! ```text
//!  events/kmem/mm_page_alloc/format ─► format: names, offsets, sizes ─► decode: payload ─► Event
//!                                       └ print fmt ─► flags: recorded bit ─► portable bit
//!  /proc/kallsyms ─► symbols: where vmstat_update is ─────────────────────┘
//! ```
//! The same texts are in directories of ring pages, in `trace.dat` and in `perf.data`, so the three
//! readers share this.

pub(crate) mod decode;
pub(crate) mod flags;
pub(crate) mod format;
pub(crate) mod symbols;

pub(crate) use decode::Decoder;
pub(crate) use symbols::Symbols;

/// Events without which a trace of pages is none.
pub(crate) const PAGE_EVENTS: [&str; 5] = [
    "kmem:mm_page_alloc",
    "kmem:mm_page_free",
    "kmem:mm_page_alloc_zone_locked",
    "kmem:mm_page_pcpu_drain",
    "kmem:mm_page_alloc_extfrag",
];

/// Events that tell more, where the kernel has them.
pub(crate) const MORE_EVENTS: [&str; 8] = [
    "kmem:mm_setup_per_zone_wmarks",
    "sched:sched_process_fork",
    "vmscan:mm_vmscan_kswapd_wake",
    "vmscan:mm_vmscan_kswapd_sleep",
    "vmscan:mm_vmscan_direct_reclaim_begin",
    "vmscan:mm_vmscan_direct_reclaim_end",
    "compaction:mm_compaction_begin",
    "compaction:mm_compaction_end",
];

/// Events of waiting for locks, of which only spinlocks are recorded, and the filter for that.
pub(crate) const LOCK_EVENTS: [(&str, &str); 2] =
    [("lock:contention_begin", "flags == 1"), ("lock:contention_end", "ret == 0")];

/// Events of pages of files in memory, of which each 64th page of a file is recorded: enough to
/// tell which of the pages that are reclaimed come back, and after how many others.
pub(crate) const CACHE_EVENTS: [(&str, &str); 2] = [
    ("filemap:mm_filemap_add_to_page_cache", "!(index & 63)"),
    ("filemap:mm_filemap_delete_from_page_cache", "!(index & 63)"),
];

/// The event of workers, of which only the statistics worker is recorded.
pub(crate) const WORKER_EVENT: &str = "workqueue:workqueue_execute_start";

/// All events that a recording may have: those whose formats it keeps.
pub(crate) fn recorded_events() -> impl Iterator<Item = &'static str> {
    let filtered = LOCK_EVENTS.iter().chain(&CACHE_EVENTS).map(|(name, _)| *name);
    PAGE_EVENTS.into_iter().chain(MORE_EVENTS).chain([WORKER_EVENT]).chain(filtered)
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_recorded_event_is_understood() {
        for name in super::recorded_events() {
            let (_, event) = name.split_once(':').unwrap();
            assert!(super::decode::is_known(event.as_bytes()), "{name}");
        }
    }
}
