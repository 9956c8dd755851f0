//! The parts of a report.

use serde::Serialize;
use zonal_core::alloc::NumaEvents;
use zonal_trace::MachineDescription;

use crate::judge::{BuddyVerdict, Judged, ListVerdict};
use crate::moves::Moves;
use crate::program::{Counts, Program};
use crate::run::latency::Latency;
use crate::run::outcome::{Outcome, Placement};

/// Which memory a replay ran on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Memory {
    /// A pool of real memory, one thread for each recorded CPU.
    Real,
    /// None: one thread played all CPUs of the recorded machine, with its zones, in its time.
    None,
}

/// Description of a trace.
#[derive(Clone, Debug, Serialize)]
pub struct TraceFacts {
    /// Its name.
    pub name: String,
    /// The recorded kernel's release, such as `6.18.44-fc`.
    pub kernel_release: Option<String>,
    /// Whether the lab made it: then what is the kernel's is simulated.
    pub simulated: bool,
    /// CPUs that it names.
    pub cpus: u32,
    /// Nodes of the recorded machine.
    pub nodes: usize,
    /// Time from its first event to its last.
    pub recorded_seconds: f64,
    /// Of it, the time that is replayed.
    pub replayed_seconds: f64,
}

/// Pages that a replay moved.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Pages {
    /// Pages of the allocations served.
    pub allocated: u64,
    /// Pages of the frees done.
    pub freed: u64,
    /// Pages whose stamps were found as written; on real memory only.
    pub checked: u64,
}

/// Contents of a trace after its start.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Totals {
    /// Allocations that the kernel served.
    pub allocs: u64,
    /// Their pages.
    pub allocated_pages: u64,
    /// Frees.
    pub frees: u64,
    /// Their pages.
    pub freed_pages: u64,
    /// Allocations that the kernel refused.
    pub failed: u64,
}

/// What one side, model or kernel, moved between buddies and per-CPU lists.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Side {
    /// Base pages that refills took.
    pub refill_pages: u64,
    /// Holds of a zone lock by refills.
    pub refill_holds: u64,
    /// Base pages that drains gave back.
    pub drain_pages: u64,
    /// Holds of a zone lock by drains.
    pub drain_holds: u64,
    /// Drains, of one or more holds each; a pool does not count them.
    pub drain_bursts: Option<u64>,
    /// Pages that bypassed the lists.
    pub direct_pages: u64,
}

/// What both sides moved while the model can be judged.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct JudgedSides {
    /// Moves of the model.
    pub model: Side,
    /// Moves of the kernel.
    pub kernel: Side,
}

/// By how many percent of the kernel's number the model's is larger; `null` where that is 0.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Errors {
    /// Of [`Side::refill_pages`].
    pub refill_pages: Option<f64>,
    /// Of [`Side::refill_holds`].
    pub refill_holds: Option<f64>,
    /// Of [`Side::drain_pages`].
    pub drain_pages: Option<f64>,
    /// Of [`Side::drain_holds`].
    pub drain_holds: Option<f64>,
    /// Of [`Side::drain_bursts`].
    pub drain_bursts: Option<f64>,
}

/// Which pages came out.
#[derive(Clone, Debug, Serialize)]
pub struct PlacementReport {
    /// Allocations of a page that the trace had shown going to a per-CPU list.
    pub judged: u64,
    /// Of them, those where that list gives the very page.
    pub same_pfn: u64,
    /// Where that comes from, and why the others differ.
    pub lists: ListVerdict,
    /// Blocks that came from the buddies.
    pub buddy: BuddyVerdict,
    /// Page frames that the replay, running by itself, gave out.
    pub free_running: Placement,
}

/// How long calls took.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latencies {
    /// Of allocations.
    #[serde(flatten)]
    pub alloc: Latency,
    /// Of frees.
    pub free: Latency,
}

/// Where pages came from, seen from the nodes.
#[derive(Clone, Debug, Serialize)]
pub struct Numa {
    /// By node of the model.
    pub model: Vec<NodeEvents>,
    /// Of the recorded allocations, by the nodes of CPU and page.
    pub kernel: KernelNuma,
}

/// The counters of `numastat` for one node.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct NodeEvents {
    /// `numa_hit`.
    pub hit: u64,
    /// `numa_miss`.
    pub miss: u64,
    /// `numa_foreign`.
    pub foreign: u64,
    /// `numa_local`.
    pub local: u64,
    /// `numa_other`.
    pub other: u64,
}

/// Recorded allocations by the nodes of CPU and page.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct KernelNuma {
    /// On the same node.
    pub local: u64,
    /// On different nodes.
    pub other: u64,
}

/// The model's holds of zone locks.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Locks {
    /// Times a zone lock was taken.
    pub holds: u64,
    /// Of them, times it was found taken.
    pub contended: u64,
    /// Requests that took the slow path.
    pub slow_paths: u64,
    /// Pageblocks claimed from another migratetype.
    pub pageblocks_claimed: u64,
    /// Blocks stolen from another migratetype.
    pub blocks_stolen: u64,
}

/// Both sides in one place.
#[derive(Clone, Debug, Serialize)]
pub struct PlaceReport {
    /// Zone and node, in words.
    pub zone: String,
    /// The CPU; absent where a pool tells sums only.
    pub cpu: Option<u32>,
    /// The model; absent for places of the kernel that a pool does not have.
    pub model: Option<Side>,
    /// The kernel; absent for a pool, whose zones the kernel did not have.
    pub kernel: Option<Side>,
}

/// What a trace holds that was not replayed as it is, or needs a remark.
///
/// The fields are those of `Counts`.
#[derive(Clone, Copy, Debug, Serialize)]
#[expect(missing_docs, reason = "the names and meanings are those of `Counts`")]
pub struct Counted {
    pub before_start: u64,
    pub old_frees: u64,
    pub old_free_pages: u64,
    pub hidden_allocs: u64,
    pub hidden_alloc_pages: u64,
    pub allocs_made_up: u64,
    pub alloc_pages_made_up: u64,
    pub hidden_frees: u64,
    pub hidden_free_pages: u64,
    pub part_frees: u64,
    pub order_differs: u64,
    /// Frees not done because the allocation had been refused.
    pub skipped_frees: u64,
    pub zeroed: u64,
    pub free_batched: u64,
    pub extfrags: u64,
    pub vmstat_updates: u64,
    pub refreshes_made_up: u64,
    pub remarks: u64,
    pub unknown_events: u64,
    pub lost_events: u64,
    pub live_pages_at_end: u64,
    pub peak_pages: u64,
}

impl Totals {
    pub(super) fn new(counts: &Counts) -> Totals {
        Totals {
            allocs: counts.allocs,
            allocated_pages: counts.alloc_pages,
            frees: counts.frees,
            freed_pages: counts.free_pages,
            failed: counts.kernel_failed,
        }
    }
}

impl PlacementReport {
    pub(super) fn new(judged: &Judged, free_running: Placement) -> PlacementReport {
        let Judged { lists, buddy } = *judged;
        let (judged, same_pfn) = (lists.judged, lists.same_pfn);
        PlacementReport { judged, same_pfn, lists, buddy, free_running }
    }
}

impl TraceFacts {
    pub(super) fn new(machine: &MachineDescription, program: &Program) -> TraceFacts {
        let (first, last) = program.span_ns;
        TraceFacts {
            name: machine.name.clone(),
            kernel_release: machine.kernel_release.clone(),
            simulated: machine.is_simulated,
            cpus: program.cpus,
            nodes: machine.nodes.len().max(1),
            recorded_seconds: (last - first) as f64 / 1e9,
            replayed_seconds: last.saturating_sub(program.start_ns) as f64 / 1e9,
        }
    }
}

impl Side {
    pub(super) fn of(moves: &Moves, bursts: bool) -> Side {
        Side {
            refill_pages: moves.refill_pages,
            refill_holds: moves.refill_holds,
            drain_pages: moves.drain_pages,
            drain_holds: moves.drain_holds,
            drain_bursts: bursts.then_some(moves.drain_bursts),
            direct_pages: moves.direct_pages,
        }
    }
}

impl Errors {
    pub(super) fn of(model: &Side, kernel: &Side) -> Errors {
        let bursts = model.drain_bursts.zip(kernel.drain_bursts);
        Errors {
            refill_pages: error(model.refill_pages, kernel.refill_pages),
            refill_holds: error(model.refill_holds, kernel.refill_holds),
            drain_pages: error(model.drain_pages, kernel.drain_pages),
            drain_holds: error(model.drain_holds, kernel.drain_holds),
            drain_bursts: bursts.and_then(|(model, kernel)| error(model, kernel)),
        }
    }
}

impl Counted {
    pub(super) fn new(counts: &Counts, skipped_frees: u64) -> Counted {
        Counted {
            before_start: counts.before_start,
            old_frees: counts.old_frees,
            old_free_pages: counts.old_free_pages,
            hidden_allocs: counts.hidden_allocs,
            hidden_alloc_pages: counts.hidden_alloc_pages,
            allocs_made_up: counts.allocs_made_up,
            alloc_pages_made_up: counts.alloc_pages_made_up,
            hidden_frees: counts.hidden_frees,
            hidden_free_pages: counts.hidden_free_pages,
            part_frees: counts.part_frees,
            order_differs: counts.order_differs,
            skipped_frees,
            zeroed: counts.zeroed,
            free_batched: counts.free_batched,
            extfrags: counts.extfrags,
            vmstat_updates: counts.vmstat_updates,
            refreshes_made_up: counts.refreshes_made_up,
            remarks: counts.remarks,
            unknown_events: counts.unknown,
            lost_events: counts.lost,
            live_pages_at_end: counts.live_pages_at_end,
            peak_pages: counts.peak_pages,
        }
    }
}

impl Numa {
    pub(super) fn new(outcome: &Outcome, counts: &Counts) -> Numa {
        let node = |n: &NumaEvents| NodeEvents {
            hit: n.hit,
            miss: n.miss,
            foreign: n.foreign,
            local: n.local,
            other: n.other,
        };
        Numa {
            model: outcome.counted.numa.iter().map(node).collect(),
            kernel: KernelNuma { local: counts.numa_local, other: counts.numa_other },
        }
    }
}

impl Locks {
    pub(super) fn new(outcome: &Outcome) -> Locks {
        let counted = &outcome.counted;
        Locks {
            holds: counted.lock.0,
            contended: counted.lock.1,
            slow_paths: counted.slow_paths,
            pageblocks_claimed: counted.fallbacks.0,
            blocks_stolen: counted.fallbacks.1,
        }
    }
}

/// By how many percent of the kernel's number the model's is larger, to a thousandth; `None` where
/// the kernel's is 0.
pub fn error(model: u64, kernel: u64) -> Option<f64> {
    let percent = (model as f64 - kernel as f64) * 100.0 / kernel as f64;
    (kernel > 0).then_some((percent * 1000.0).round() / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::error;

    #[test]
    fn errors_are_percent_of_the_kernels_number() {
        assert_eq!(error(101, 100), Some(1.0));
        assert_eq!(error(0, 3), Some(-100.0));
        assert_eq!(error(5, 0), None);
    }
}
