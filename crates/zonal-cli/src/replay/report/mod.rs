//! The result of a replay, beside what the kernel recorded: as JSON and as text.
//!
//! Everything that the text shows is in the JSON. Fields that scripts rely on keep their names;
//! others may be added. `schema_version` counts changes that break readers.

mod limits;
mod text;

use std::collections::BTreeMap;

use serde::Serialize;
use zonal_core::alloc::NumaEvents;
use zonal_core::policy::Policy;
use zonal_trace::MachineDescription;

use super::explain::Explained;
use super::fidelity::{Fidelity, html};
use super::judge::{BuddyVerdict, Judged, ListVerdict};
use super::kernel::{Moves, total};
use super::latency::Latency;
use super::outcome::{Outcome, Placement};
use super::program::{Counts, Program};
use super::recorded::Recorded;
use super::start::StartReport;
use super::zones::ZoneMap;
use crate::cli::Memory;
use limits::Limits;

/// Version of the JSON.
const SCHEMA_VERSION: u32 = 2;

/// A replay's result.
#[derive(Debug, Serialize)]
pub struct Report {
    schema_version: u32,
    /// Policy of the model.
    policy: &'static str,
    /// Values set to others than the policy's own.
    policy_set: BTreeMap<&'static str, String>,
    /// `real` or `none`.
    memory: &'static str,
    trace: TraceFacts,
    /// Events read from the trace.
    events: u64,
    /// Allocations that the model served.
    allocs: u64,
    /// Frees that it did.
    frees: u64,
    /// Allocations that it refused.
    failed: u64,
    /// Allocations and frees, served or not, by second.
    events_per_s: f64,
    seconds: f64,
    threads: usize,
    pages: Pages,
    /// What the model was told beyond allocations, frees and zoneinfo.
    use_recorded: Recorded,
    recorded: Totals,
    model: Side,
    kernel: Side,
    error_percent: Errors,
    placement: PlacementReport,
    latency: Latencies,
    numa: Numa,
    locks: Locks,
    /// By zone and CPU; by zone only on real memory.
    places: Vec<Place>,
    /// What the model has to guess, and how much of it.
    limits: Limits,
    /// What the trace holds that was not replayed as it is, or needs a remark.
    counted: Counted,
    start: Option<StartReport>,
    /// What `--explain` asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    explained: Option<Explained>,
    /// Model and kernel over time, with `--fidelity`.
    #[serde(skip_serializing_if = "Option::is_none")]
    fidelity: Option<Fidelity>,
    notes: Vec<String>,
    /// Properties that failed.
    faults: Vec<String>,
}

#[derive(Debug, Serialize)]
struct TraceFacts {
    name: String,
    kernel_release: Option<String>,
    cpus: u32,
    nodes: usize,
    recorded_seconds: f64,
}

#[derive(Debug, Serialize)]
struct Pages {
    allocated: u64,
    freed: u64,
    /// Whose words were found as written; on real memory only.
    checked: u64,
}

/// What the trace holds after its start.
#[derive(Debug, Serialize)]
struct Totals {
    allocs: u64,
    allocated_pages: u64,
    frees: u64,
    freed_pages: u64,
    failed: u64,
}

/// One side of the comparison.
#[derive(Debug, Clone, Copy, Serialize)]
struct Side {
    refill_pages: u64,
    refill_holds: u64,
    drain_pages: u64,
    drain_holds: u64,
    /// Drains, of one or more holds each; a pool does not count them.
    drain_bursts: Option<u64>,
    /// Pages that went past the lists.
    direct_pages: u64,
}

/// By how much the model is off; `null` where the kernel's number is 0.
#[derive(Debug, Serialize)]
struct Errors {
    refill_pages: Option<f64>,
    refill_holds: Option<f64>,
    drain_pages: Option<f64>,
    drain_holds: Option<f64>,
    drain_bursts: Option<f64>,
}

/// Which pages came out.
#[derive(Debug, Serialize)]
struct PlacementReport {
    /// Allocations of a page that the trace had shown going to a per-CPU list.
    judged: u64,
    /// Of them, those where that list gives the very page.
    same_pfn: u64,
    /// Where that comes from, and why the others differ.
    lists: ListVerdict,
    /// Blocks that came from the buddies.
    buddy: BuddyVerdict,
    /// What the replay, running by itself, gave out.
    free_running: Placement,
}

#[derive(Debug, Serialize)]
struct Latencies {
    /// Of allocations.
    #[serde(flatten)]
    alloc: Latency,
    free: Latency,
}

#[derive(Debug, Serialize)]
struct Numa {
    /// By node of the model.
    model: Vec<NodeEvents>,
    /// Of the recorded allocations, by the nodes of CPU and page.
    kernel: KernelNuma,
}

#[derive(Debug, Serialize)]
struct NodeEvents {
    hit: u64,
    miss: u64,
    foreign: u64,
    local: u64,
    other: u64,
}

#[derive(Debug, Serialize)]
struct KernelNuma {
    local: u64,
    other: u64,
}

#[derive(Debug, Serialize)]
struct Locks {
    holds: u64,
    contended: u64,
    slow_paths: u64,
    pageblocks_claimed: u64,
    blocks_stolen: u64,
}

#[derive(Debug, Serialize)]
struct Place {
    zone: String,
    cpu: Option<u32>,
    /// Absent where a pool tells sums only.
    model: Option<Side>,
    /// Absent for a pool, whose zones the kernel did not have.
    kernel: Option<Side>,
}

#[derive(Debug, Serialize)]
struct Counted {
    before_start: u64,
    old_frees: u64,
    old_free_pages: u64,
    hidden_allocs: u64,
    hidden_alloc_pages: u64,
    allocs_made_up: u64,
    alloc_pages_made_up: u64,
    hidden_frees: u64,
    hidden_free_pages: u64,
    part_frees: u64,
    order_differs: u64,
    skipped_frees: u64,
    zeroed: u64,
    free_batched: u64,
    extfrags: u64,
    vmstat_updates: u64,
    refreshes_made_up: u64,
    remarks: u64,
    unknown_events: u64,
    lost_events: u64,
    live_pages_at_end: u64,
    peak_pages: u64,
}

/// What a report is made of.
pub struct Inputs<'a> {
    /// The machine.
    pub machine: &'a MachineDescription,
    /// Its zones.
    pub map: &'a ZoneMap,
    /// What was run.
    pub program: &'a Program,
    /// Under which policy.
    pub policy: &'a Policy,
    /// On which memory.
    pub memory: Memory,
    /// What the model was told beyond allocations and frees.
    pub recorded: Recorded,
    /// How its choices are, one at a time.
    pub judged: Option<Judged>,
}

impl Report {
    /// The report of a run.
    pub fn new(inputs: &Inputs<'_>, outcome: Outcome) -> Report {
        let Inputs { machine, map, program, policy, memory, recorded, judged } = inputs;
        let (memory, judged) = (*memory, judged.clone().unwrap_or_default());
        let counts = &program.counts;
        let bursts = outcome.moves_by_cpu;
        let model = Side::of(&total(&outcome.moves), bursts);
        let kernel = Side::of(&total(&program.kernel), true);
        let node = |n: &NumaEvents| NodeEvents {
            hit: n.hit,
            miss: n.miss,
            foreign: n.foreign,
            local: n.local,
            other: n.other,
        };
        let rate = if outcome.seconds > 0.0 { outcome.steps as f64 / outcome.seconds } else { 0.0 };
        Report {
            schema_version: SCHEMA_VERSION,
            policy: policy.name,
            policy_set: policy
                .changes()
                .map(|change| (change.setting.key, change.value().to_string()))
                .collect(),
            memory: match memory {
                Memory::Real => "real",
                Memory::None => "none",
            },
            trace: TraceFacts::new(machine, program),
            events: counts.events,
            allocs: outcome.allocs,
            frees: outcome.frees,
            failed: outcome.failed,
            events_per_s: rate.round(),
            seconds: outcome.seconds,
            threads: outcome.threads,
            pages: Pages {
                allocated: outcome.alloc_pages,
                freed: outcome.free_pages,
                checked: outcome.pages_checked,
            },
            use_recorded: *recorded,
            recorded: Totals::new(counts),
            model,
            kernel,
            error_percent: Errors::of(&model, &kernel),
            placement: PlacementReport::new(&judged, outcome.placement.unwrap_or_default()),
            latency: Latencies { alloc: outcome.alloc_latency, free: outcome.free_latency },
            numa: Numa {
                model: outcome.numa.iter().map(node).collect(),
                kernel: KernelNuma { local: counts.numa_local, other: counts.numa_other },
            },
            locks: Locks {
                holds: outcome.lock.0,
                contended: outcome.lock.1,
                slow_paths: outcome.slow_paths,
                pageblocks_claimed: outcome.fallbacks.0,
                blocks_stolen: outcome.fallbacks.1,
            },
            places: places(map, program, &outcome),
            limits: Limits::new(*recorded, counts, &judged, outcome.start.as_ref()),
            counted: Counted::new(counts, outcome.skipped_frees),
            start: outcome.start,
            explained: outcome.explained,
            fidelity: None,
            notes: notes(machine, program, memory, outcome.notes, outcome.first_failure),
            faults: outcome.faults,
        }
    }

    /// Adds what happened over time.
    pub fn set_fidelity(&mut self, fidelity: Fidelity) {
        self.fidelity = Some(fidelity);
    }

    /// The report with plots, as a page that needs nothing else.
    pub fn html(&self) -> String {
        let title = format!("{} under {}", self.trace.name, self.policy);
        self.fidelity
            .as_ref()
            .map_or_else(String::new, |fidelity| html(&title, &self.text(), fidelity))
    }

    /// Whether every property held.
    pub fn passed(&self) -> bool {
        self.faults.is_empty()
    }

    /// Remarks and failed properties, for people.
    pub fn remarks(&self) -> impl Iterator<Item = String> {
        let notes = self.notes.iter().map(|note| format!("note: {note}"));
        notes.chain(self.faults.iter().map(|fault| format!("FAILED: {fault}")))
    }

    /// The report as one JSON object.
    ///
    /// # Errors
    /// None that is known of: every field has a JSON form.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|json| json + "\n")
    }
}

impl Totals {
    fn new(counts: &Counts) -> Totals {
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
    fn new(judged: &Judged, free_running: Placement) -> PlacementReport {
        let Judged { lists, buddy } = *judged;
        let (judged, same_pfn) = (lists.judged, lists.same_pfn);
        PlacementReport { judged, same_pfn, lists, buddy, free_running }
    }
}

impl TraceFacts {
    fn new(machine: &MachineDescription, program: &Program) -> TraceFacts {
        let (first, last) = program.span_ns;
        TraceFacts {
            name: machine.name.clone(),
            kernel_release: machine.kernel_release.clone(),
            cpus: program.cpus,
            nodes: machine.nodes.len().max(1),
            recorded_seconds: (last - first) as f64 / 1e9,
        }
    }
}

impl Side {
    fn of(moves: &Moves, bursts: bool) -> Side {
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
    fn of(model: &Side, kernel: &Side) -> Errors {
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
    fn new(counts: &Counts, skipped_frees: u64) -> Counted {
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

/// Model and kernel side by side, for each place where either moved anything.
fn places(map: &ZoneMap, program: &Program, outcome: &Outcome) -> Vec<Place> {
    let name = |zone: Option<usize>| match zone.and_then(|zone| map.zones().get(zone)) {
        Some(at) => format!("node {}, {}", at.node, at.kind),
        None => "no known zone".to_owned(),
    };
    if !outcome.moves_by_cpu {
        let pool = outcome.moves.iter().map(|((zone, _), moves)| Place {
            zone: format!("pool node {}", zone.unwrap_or(0)),
            cpu: None,
            model: Some(Side::of(moves, false)),
            kernel: None,
        });
        let kernel = program.kernel.iter().map(|((zone, cpu), moves)| Place {
            zone: name(*zone),
            cpu: Some(*cpu),
            model: None,
            kernel: Some(Side::of(moves, true)),
        });
        return pool.chain(kernel).collect();
    }
    let keys: std::collections::BTreeSet<_> =
        outcome.moves.keys().chain(program.kernel.keys()).collect();
    let side = |moves: Option<&Moves>| Some(Side::of(&moves.copied().unwrap_or_default(), true));
    keys.into_iter()
        .map(|key| Place {
            zone: name(key.0),
            cpu: Some(key.1),
            model: side(outcome.moves.get(key)),
            kernel: side(program.kernel.get(key)),
        })
        .collect()
}

fn notes(
    machine: &MachineDescription,
    program: &Program,
    memory: Memory,
    mut notes: Vec<String>,
    first_failure: Option<String>,
) -> Vec<String> {
    if let Some(failure) = first_failure {
        notes.push(format!("the first refused allocation: {failure}"));
    }
    if memory == Memory::Real {
        notes.push(
            "on real memory the pool is not as large as the recorded machine, and its lists decay \
             in this machine's time; compare refills and drains with --memory none"
                .to_owned(),
        );
    }
    if memory == Memory::None {
        let start = program.start_ns;
        let changes =
            machine.pageset_changes.iter().filter(|change| change.time_ns > start).count();
        if changes > 0 {
            notes.push(format!("{changes} changes of list bounds in the trace are not replayed"));
        }
    }
    if program.counts.lost > 0 {
        notes.push("the recorder lost events: blocks may have other owners than told".to_owned());
    }
    notes
}

fn error(model: u64, kernel: u64) -> Option<f64> {
    let percent = (model as f64 - kernel as f64) * 100.0 / kernel as f64;
    (kernel > 0).then_some((percent * 1000.0).round() / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_percent_of_the_kernels_number() {
        assert_eq!(error(101, 100), Some(1.0));
        assert_eq!(error(0, 3), Some(-100.0));
        assert_eq!(error(5, 0), None);
    }
}
