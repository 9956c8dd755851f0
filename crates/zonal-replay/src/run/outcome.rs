//! Result of a run, on a pool or without memory.

use super::counters::Counters;
use super::explain::Explained;
use super::latency::Latency;
use crate::start::StartReport;
use crate::world::Changed;

/// The result of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Threads that ran.
    pub threads: usize,
    /// Wall-clock seconds of the events alone.
    pub seconds: f64,
    /// Allocations and frees done.
    pub steps: u64,
    /// Allocations served.
    pub allocs: u64,
    /// Their pages.
    pub alloc_pages: u64,
    /// Frees done.
    pub frees: u64,
    /// Their pages.
    pub free_pages: u64,
    /// Allocations refused.
    pub failed: u64,
    /// The first refusal.
    pub first_failure: Option<String>,
    /// Frees not done because the allocation had been refused.
    pub skipped_frees: u64,
    /// Counts of the allocator.
    pub counted: Counters,
    /// Whether the moves counted know CPUs and drains; a pool on real memory tells sums of zones.
    pub moves_by_cpu: bool,
    /// Durations of allocations.
    pub alloc_latency: Latency,
    /// Durations of frees.
    pub free_latency: Latency,
    /// Where pages came out; only without memory.
    pub placement: Option<Placement>,
    /// How the start state was made; only without memory.
    pub start: Option<StartReport>,
    /// Pages written and checked; only on real memory.
    pub pages_checked: u64,
    /// The explained request.
    pub explained: Option<Explained>,
    /// Settings that were written as the recording tells; only without memory.
    pub written: Vec<Changed>,
    /// Remarks for people.
    pub notes: Vec<String>,
    /// Properties that failed, in words.
    pub faults: Vec<String>,
}

/// How allocations of frames that the trace had shown before came out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Placement {
    /// Of them, those whose recorded frame was free or on a list in the model too.
    pub judged: u64,
    /// Of those judged, how many got that very frame.
    pub same_pfn: u64,
    /// Allocations of frames not seen before.
    pub unseen: u64,
    /// Allocations of frames seen before, which in the model something else held.
    pub held_in_model: u64,
    /// Allocations of a frame that was a block of this order before, where the model's block for
    /// that one was free.
    pub judged_block: u64,
    /// Of those, how many got the block that stood for it in the model, wherever that lay.
    pub same_block: u64,
}
