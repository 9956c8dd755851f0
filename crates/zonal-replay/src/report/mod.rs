//! The result of a replay, beside the kernel's record.
//!
//! Serialised, it is what `zonal replay --json` prints. Fields that scripts rely on keep their
//! names; others may be added. `schema_version` counts changes that break readers.
//!
//! | file | holds |
//! |--|--|
//! | `parts` | the structures that a report is made of |
//! | `limits` | what the model has to guess |
//! | `beyond` | figures that are too far from the kernel's |

mod beyond;
mod limits;
mod parts;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use zonal_core::policy::Policy;
use zonal_trace::MachineDescription;

pub use self::beyond::Beyond;
pub(crate) use self::beyond::{DRAIN_MAX_PERCENT, REFILL_MAX_PERCENT};
pub use self::limits::Limits;
pub use self::parts::{
    Counted, Errors, JudgedSides, KernelNuma, Latencies, Locks, Memory, NodeEvents, Numa, Pages,
    PlaceReport, PlacementReport, Side, Totals, TraceFacts, error,
};
use crate::advise::policy_of;
use crate::fidelity::Fidelity;
use crate::judge::Judged;
use crate::moves::{Moves, total};
use crate::program::Program;
use crate::run::explain::Explained;
use crate::run::outcome::Outcome;
use crate::run::timeline::Timeline;
use crate::start::StartReport;
use crate::told::Recorded;
use crate::unjudged::{self, NotJudged, ReclaimJudged};
use crate::zones::ZoneMap;

/// Version of the JSON.
const SCHEMA_VERSION: u32 = 2;

/// A replay's result.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Counts changes of the JSON that break readers.
    pub schema_version: u32,
    /// Policy of the model.
    pub policy: &'static str,
    /// Values set to others than the policy's own.
    pub policy_set: BTreeMap<&'static str, String>,
    /// Which memory it ran on.
    pub memory: Memory,
    /// The replayed trace.
    pub trace: TraceFacts,
    /// Events read from the trace.
    pub events: u64,
    /// Allocations that the model served.
    pub allocs: u64,
    /// Frees that it did.
    pub frees: u64,
    /// Allocations that it refused.
    pub failed: u64,
    /// Allocations and frees, served or not, by second.
    pub events_per_s: f64,
    /// Wall-clock seconds of the events alone.
    pub seconds: f64,
    /// Threads that ran.
    pub threads: usize,
    /// Pages moved.
    pub pages: Pages,
    /// Recorded facts that the model used beyond allocations, frees and zoneinfo.
    pub use_recorded: Recorded,
    /// Contents of the trace.
    pub recorded: Totals,
    /// Moves of the model.
    pub model: Side,
    /// Moves of the kernel.
    pub kernel: Side,
    /// Both sides while the model can be judged, where that is not all of the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judged: Option<JudgedSides>,
    /// How far the model's moves are from the kernel's, while it can be judged. Stretches of
    /// [`reclaim_judged`](Self::reclaim_judged) were chosen because it is near there.
    pub error_percent: Errors,
    /// The same over the whole run, with all that is not judged.
    pub whole_error_percent: Errors,
    /// Which pages came out.
    pub placement: PlacementReport,
    /// How long calls took.
    pub latency: Latencies,
    /// Where pages came from.
    pub numa: Numa,
    /// The model's holds of zone locks.
    pub locks: Locks,
    /// By zone and CPU; by zone only on real memory.
    pub places: Vec<PlaceReport>,
    /// Guesses of the model, counted.
    pub limits: Limits,
    /// What the trace holds that was not replayed as it is, or needs a remark.
    pub counted: Counted,
    /// How the start state was made; without memory only.
    pub start: Option<StartReport>,
    /// The explained request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explained: Option<Explained>,
    /// Model and kernel over time, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fidelity: Option<Fidelity>,
    /// Figures that are farther from the kernel than 5 % in refills and 8 % in drains, in the time
    /// that is judged: PASS says nothing about them. Empty under another policy than the recorded
    /// kernel's, and on real memory: those need not be near.
    pub beyond: Vec<Beyond>,
    /// Stretches that neither errors nor PASS say anything about; without memory only.
    pub not_judged: Vec<NotJudged>,
    /// Stretches with reclaim, or other watermarks or memory, that they do include: chosen because
    /// the model is near the kernel in each, or in all together.
    pub reclaim_judged: Vec<ReclaimJudged>,
    /// Remarks for people.
    pub notes: Vec<String>,
    /// Properties that failed.
    pub faults: Vec<String>,
}

/// Parts of a report.
pub(crate) struct Inputs<'a> {
    /// The machine.
    pub machine: &'a MachineDescription,
    /// Its zones.
    pub map: &'a ZoneMap,
    /// The run.
    pub program: &'a Program,
    /// Under which policy.
    pub policy: &'a Policy,
    /// On which memory.
    pub memory: Memory,
    /// Recorded facts that the model used beyond allocations and frees.
    pub recorded: Recorded,
    /// How its choices are, one at a time.
    pub judged: Option<Judged>,
}

impl Report {
    /// The report of a run.
    pub(crate) fn new(inputs: &Inputs<'_>, outcome: Outcome) -> Report {
        let Inputs { machine, map, program, policy, memory, recorded, judged } = inputs;
        let (memory, judged) = (*memory, judged.clone().unwrap_or_default());
        let counts = &program.counts;
        let bursts = outcome.moves_by_cpu;
        let model = Side::of(&total(&outcome.counted.moves), bursts);
        let kernel = Side::of(&total(&program.kernel), true);
        let notes = notes(machine, program, memory, &outcome);
        let rate = if outcome.seconds > 0.0 { outcome.steps as f64 / outcome.seconds } else { 0.0 };
        Report {
            schema_version: SCHEMA_VERSION,
            policy: policy.name,
            policy_set: policy
                .changes()
                .map(|change| (change.setting.key, change.value().to_string()))
                .collect(),
            memory,
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
            judged: None,
            error_percent: Errors::of(&model, &kernel),
            whole_error_percent: Errors::of(&model, &kernel),
            placement: PlacementReport::new(&judged, outcome.placement.unwrap_or_default()),
            latency: Latencies { alloc: outcome.alloc_latency, free: outcome.free_latency },
            numa: Numa::new(&outcome, counts),
            locks: Locks::new(&outcome),
            places: places(map, program, &outcome),
            limits: Limits::new(*recorded, counts, &judged, outcome.start.as_ref()),
            counted: Counted::new(counts, outcome.skipped_frees),
            start: outcome.start,
            explained: outcome.explained,
            fidelity: None,
            beyond: Vec::new(),
            not_judged: Vec::new(),
            reclaim_judged: Vec::new(),
            notes,
            faults: outcome.faults,
        }
    }

    /// Share of the replayed time that is not judged.
    pub fn not_judged_share(&self) -> f64 {
        unjudged::share(&self.not_judged, self.trace.replayed_seconds)
    }

    /// Takes the errors of the time in which the model can be judged.
    pub(crate) fn judge_outside(&mut self, model: &Timeline, kernel: &Timeline) {
        if self.not_judged.is_empty() {
            return;
        }
        let side = |timeline: &Timeline| Side::of(&timeline.moves_outside(&self.not_judged), true);
        let sides = JudgedSides { model: side(model), kernel: side(kernel) };
        self.error_percent = Errors::of(&sides.model, &sides.kernel);
        self.judged = Some(sides);
    }

    /// Finds what is too far from the kernel, in the time that is judged.
    pub(crate) fn find_beyond(&mut self) {
        if !self.follows_kernel() {
            return;
        }
        let all = JudgedSides { model: self.model, kernel: self.kernel };
        let JudgedSides { model, kernel } = self.judged.unwrap_or(all);
        self.beyond = beyond::of(&model, &kernel);
    }

    /// Whether the model is to do as the recorded kernel did: without memory, under the policy of
    /// that kernel.
    pub fn follows_kernel(&self) -> bool {
        let release = self.trace.kernel_release.as_deref();
        let is_own = release.is_some() && policy_of(release).name == self.policy;
        is_own && self.policy_set.is_empty() && self.memory == Memory::None
    }

    /// Whether every property held.
    pub fn passed(&self) -> bool {
        self.faults.is_empty()
    }
}

/// Model and kernel side by side, for each place where either moved anything.
fn places(map: &ZoneMap, program: &Program, outcome: &Outcome) -> Vec<PlaceReport> {
    let name = |zone: Option<usize>| match zone.and_then(|zone| map.zones().get(zone)) {
        Some(at) => format!("node {}, {}", at.node, at.kind),
        None => "no known zone".to_owned(),
    };
    if !outcome.moves_by_cpu {
        let pool = outcome.counted.moves.iter().map(|((zone, _), moves)| PlaceReport {
            zone: format!("pool node {}", zone.unwrap_or(0)),
            cpu: None,
            model: Some(Side::of(moves, false)),
            kernel: None,
        });
        let kernel = program.kernel.iter().map(|((zone, cpu), moves)| PlaceReport {
            zone: name(*zone),
            cpu: Some(*cpu),
            model: None,
            kernel: Some(Side::of(moves, true)),
        });
        return pool.chain(kernel).collect();
    }
    let keys: BTreeSet<_> = outcome.counted.moves.keys().chain(program.kernel.keys()).collect();
    let side = |moves: Option<&Moves>| Some(Side::of(&moves.copied().unwrap_or_default(), true));
    keys.into_iter()
        .map(|key| PlaceReport {
            zone: name(key.0),
            cpu: Some(key.1),
            model: side(outcome.counted.moves.get(key)),
            kernel: side(program.kernel.get(key)),
        })
        .collect()
}

fn notes(
    machine: &MachineDescription,
    program: &Program,
    memory: Memory,
    outcome: &Outcome,
) -> Vec<String> {
    let mut notes = outcome.notes.clone();
    if let Some(failure) = &outcome.first_failure {
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
        let (start, end) = (program.start_ns, program.span_ns.1);
        let mut writes = Vec::new();
        for changed in &outcome.written {
            writes.push(changed.time_ns);
            notes.extend(changed.written(start));
        }
        let bounds: Vec<u64> =
            machine.pageset_changes.iter().map(|change| change.time_ns).collect();
        let changes = not_written(&bounds, &writes, start, end);
        if changes > 0 {
            notes.push(format!("{changes} changes of list bounds in the trace are not replayed"));
        }
    }
    notes.extend(program.silences.note(program.start_ns));
    notes.extend(program.counts.lost_note());
    notes
}

/// How many changes of bounds, first seen at these times after the start, no write since the ones
/// before explains.
fn not_written(bounds: &[u64], writes: &[u64], start: u64, end: u64) -> usize {
    let mut times: BTreeMap<u64, usize> = BTreeMap::new();
    bounds.iter().for_each(|time| *times.entry(*time).or_default() += 1);
    let mut before = None;
    let mut changes = 0;
    for (time, count) in times {
        let since = |write: &u64| *write <= time && before.is_none_or(|before| *write > before);
        if time > start && time <= end && !writes.iter().any(since) {
            changes += count;
        }
        before = Some(time);
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::not_written;

    #[test]
    fn a_write_explains_the_bounds_that_were_seen_next_and_no_others() {
        let bounds = [5, 20, 20, 40, 90];
        assert_eq!(not_written(&bounds, &[], 10, 60), 3, "of the replayed time");
        assert_eq!(not_written(&bounds, &[15], 10, 60), 1);
        assert_eq!(not_written(&bounds, &[15, 30], 10, 60), 0);
        assert_eq!(not_written(&bounds, &[45], 10, 60), 3);
        assert_eq!(not_written(&[20], &[10], 10, 60), 0, "a write at the start");
    }
}
