//! How to record.

use std::time::Duration;

use crate::prices::HoldPrices;

/// How long lists are kept small before a recording that is [cold](RecordOptions::cold).
pub const COLD: Duration = Duration::from_secs(2);
/// A fraction so large that only the least size is left: four batches (LB E.4).
pub(super) const FRACTION_LARGE: &str = "1000000";

/// How to record.
#[derive(Debug, Clone)]
pub struct RecordOptions {
    /// Name of the recording.
    pub name: String,
    /// What runs, in words.
    pub workload: String,
    /// Bytes of each CPU's ring; `None`: an eighth of the memory at hand, at most 256 MiB each.
    pub ring_bytes: Option<u64>,
    /// Whether lists are emptied first.
    pub cold: bool,
    /// Whether allocations, frees and pages of files are recorded. Without them only what moves
    /// between lists and buddies is, which costs less and cannot be replayed.
    pub uses: bool,
    /// Whether waits for spinlocks are recorded, where the kernel has events of them.
    pub locks: bool,
    /// Time between samples of `/proc/zoneinfo`.
    pub poll_every: Duration,
    /// What holding a zone lock takes here, if that was measured.
    pub prices: Option<HoldPrices>,
    /// Bytes for samples.
    pub poll_bytes: usize,
}

impl Default for RecordOptions {
    fn default() -> Self {
        RecordOptions {
            name: "recording".to_owned(),
            workload: String::new(),
            ring_bytes: None,
            cold: true,
            uses: true,
            locks: true,
            poll_every: Duration::from_millis(20),
            prices: None,
            poll_bytes: 32 << 20,
        }
    }
}
