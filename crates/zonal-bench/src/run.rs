//! The schedule: cell by cell, all subjects in interleaved rounds (FAIR-3), and all cells again,
//! several times, so that the rounds of a cell are of several moments of the run.
//!
//! On the first visit of a cell a subject is checked (FAIR-7), warmed up and calibrated (which
//! fills thread caches and touches every page that will circulate). On each it takes part in the
//! rounds, on the last in the latency pass. A slot is the time that one subject may use in one
//! cell, all visits together. With a budget, slots are recomputed from the remaining time before
//! the first visit of each cell, so a slow subject makes later slots shorter and not the run
//! longer.

use crate::cell::Cell;
use crate::cpus::Cpus;
use crate::error::BenchError;
use crate::latency::planned_overhead_ns;
use crate::machine::Machine;
use crate::plan::{Options, plan};
use crate::rounds::{Aim, Measured, ROUNDS_JUDGED, ROUNDS_MIN};
use crate::row::{Report, Row, SCHEMA_VERSION, Skip, to_thousandths};
use crate::runner::{Burst, Runner};
use crate::words::mix_hash;
use std::time::{Duration, Instant};

/// A burst is at least this long when calibrated: waking the workers then costs under 1 %.
const CALIBRATED_NS: f64 = 300_000.0;
/// Calibration waits for CPUs no longer than this; in slots that are shorter than [`SLOT_MIN`],
/// which are of tests, as much less.
const CALIBRATION_WAIT_NS: f64 = 1e9;
/// A longer burst is at most so many times as long as the one that its length was reckoned from.
const GROWTH_MAX: u64 = 32;
/// No budget makes a slot shorter than this: its rounds would measure the clock.
const SLOT_MIN: Duration = Duration::from_millis(30);
/// Rounds get so many slots, waiting for CPUs included, before there may be fewer of them.
const ROUNDS_SLOTS: f64 = 2.0;
/// Oversubscribed bursts are at least this long: several time slices, so that threads really are
/// preempted inside the loop.
const OVERSUBSCRIBED_NS: f64 = 10_000_000.0;
/// The first of several visits has the check, the calibration and its rounds.
const FIRST_VISIT: f64 = 0.35;
/// Shares of a slot; the check and the calibration have the rest.
const ROUNDS_SHARE: f64 = 0.65;
const LATENCY_SHARE: f64 = 0.15;
/// Latency passes at most, until one is undisturbed.
const LATENCY_PASSES: u32 = 3;

/// How far a run is, for a progress display.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Visits of cells done.
    pub done: usize,
    /// Visits in all.
    pub total: usize,
    /// The cell that comes next.
    pub cell: &'a Cell,
}

/// Which visit of a cell it is, of how many.
#[derive(Clone, Copy)]
struct Due {
    visit: u32,
    visits: u32,
    /// The run has taken its time: one round, so that the visit has a figure.
    late: bool,
}

/// One subject in the current cell.
struct Entry {
    runner: usize,
    iterations: u64,
    ns_per_iteration: f64,
    /// How long a round should be.
    burst_ns: f64,
    aim: Aim,
    measured: Measured,
}

impl Entry {
    /// Adds a round. One that is far too short shows that calibration was misled: it does not
    /// count, and the next one is longer.
    fn push(&mut self, mut burst: Burst) {
        if burst.loop_ns * 8.0 < self.burst_ns {
            burst.disturbed = true;
            self.iterations = self.iterations.saturating_mul(4);
        }
        self.measured.push(burst);
    }

    fn wants_more(&self, due: Due) -> bool {
        match due.late {
            true => self.measured.wants_a_visit(),
            false => self.measured.wants_more(&self.aim.of_visit(due.visit, due.visits)),
        }
    }
}

/// Measures `runners` and reports; `skipped` are subjects that the caller could not start.
pub fn run(
    options: &Options,
    cpus: &Cpus,
    mut runners: Vec<Box<dyn Runner>>,
    skipped: Vec<Skip>,
    mut progress: impl FnMut(Step<'_>),
) -> Report {
    runners.retain(|runner| options.wants(runner.name()));
    let cells = plan(options, cpus);
    let start = Instant::now();
    let mut report = Report {
        schema_version: SCHEMA_VERSION,
        machine: Machine::read(cpus.count()),
        quick: options.quick,
        measured_s: 0.0,
        result_hash: String::new(),
        rows: Vec::new(),
        skipped: skipped.into_iter().filter(|skip| options.wants(&skip.subject)).collect(),
        comparison: None,
    };
    let mut result_hash = 0;
    let visits = options.visits.max(1);
    let mut visited: Vec<Visited> = Vec::new();
    for visit in 1..=visits {
        for (at, cell) in cells.iter().enumerate() {
            let done = (visit as usize - 1) * cells.len() + at;
            progress(Step { done, total: cells.len() * visits as usize, cell });
            if visit == 1 {
                let slot = options.fair_slot((visits, at), (cells.len(), runners.len()), start);
                let (state, hash) = Visited::enter(options, cell, slot, &mut runners, &mut report);
                result_hash = mix_hash(result_hash, hash.unwrap_or(0));
                visited.push(state);
            }
            let state = &mut visited[at];
            // A machine that is busy all the time takes longer: then later visits do the least.
            let late = options.budget.is_some_and(|budget| start.elapsed() > budget);
            let due = Due { visit, visits, late: late && visit > 1 };
            state.rounds(cell, due, &mut runners, &mut report);
            if visit == visits {
                state.finish(options, cell, &mut runners, &mut report);
            }
        }
    }
    report.measured_s = to_thousandths(start.elapsed().as_secs_f64());
    report.result_hash = format!("{result_hash:016x}");
    report.set_ratios();
    report
}

impl Options {
    /// The time of a subject in a cell, all visits together, as of the first one: a part of what is
    /// left of the budget. Later visits have what is left of this.
    fn fair_slot(
        &self,
        (visits, at): (u32, usize),
        (cells, subjects): (usize, usize),
        start: Instant,
    ) -> Duration {
        // Of each cell so far its first visit was spent, of all others all is left.
        let spent = at as f64 * if visits > 1 { FIRST_VISIT } else { 1.0 };
        let slots = (cells as f64 - spent) * subjects.max(1) as f64;
        let left = self.budget.map(|budget| budget.saturating_sub(start.elapsed()));
        let fair = left.map_or(self.slot, |left| left.div_f64(slots));
        fair.clamp(SLOT_MIN.min(self.slot), self.slot)
    }
}

/// A cell between its visits.
struct Visited {
    entries: Vec<Entry>,
    slot_ns: f64,
    /// Rounds so far.
    round: u32,
}

impl Visited {
    /// The first visit begins: every subject is checked and calibrated. Returns the hash of their
    /// work, too.
    fn enter(
        options: &Options,
        cell: &Cell,
        slot: Duration,
        runners: &mut [Box<dyn Runner>],
        report: &mut Report,
    ) -> (Visited, Option<u64>) {
        let slot_ns = slot.as_nanos() as f64;
        let mut hash = None;
        let mut entries = Vec::new();
        for (index, runner) in runners.iter_mut().enumerate() {
            match enter(options, cell, slot_ns, &mut hash, (index, &mut **runner)) {
                Ok(entry) => entries.push(entry),
                Err(reason) => leave(report, cell, runner.name(), reason),
            }
        }
        (Visited { entries, slot_ns, round: 0 }, hash)
    }

    /// The rounds of one visit, interleaved.
    fn rounds(
        &mut self,
        cell: &Cell,
        due: Due,
        runners: &mut [Box<dyn Runner>],
        report: &mut Report,
    ) {
        let wants_more = |entry: &Entry| entry.wants_more(due);
        if due.visit > 1 && self.entries.iter().any(wants_more) {
            // Caches are as other cells left them: the first round is not of the loop.
            self.each(runners, cell, report, |runner, entry, round| {
                runner.burst(cell, entry.iterations, held(cell, round)).map(|_| ())
            });
        }
        while self.entries.iter().any(wants_more) {
            // The order rotates: no subject always runs right after the slowest one.
            self.entries.rotate_left(1);
            self.each(runners, cell, report, |runner, entry, round| {
                if wants_more(entry) {
                    entry.push(runner.burst(cell, entry.iterations, held(cell, round))?);
                }
                Ok(())
            });
            self.round += 1;
        }
        self.entries.iter_mut().for_each(|entry| entry.measured.end_visit());
    }

    /// Does something with each subject; one that fails leaves the cell.
    fn each(
        &mut self,
        runners: &mut [Box<dyn Runner>],
        cell: &Cell,
        report: &mut Report,
        mut act: impl FnMut(&mut dyn Runner, &mut Entry, u32) -> Result<(), BenchError>,
    ) {
        let round = self.round;
        self.entries.retain_mut(|entry| {
            let runner = &mut runners[entry.runner];
            let done = act(&mut **runner, entry, round);
            done.map_err(|error| leave(report, cell, runner.name(), error.into())).is_ok()
        });
    }

    /// The last visit ends: latencies, and the rows.
    fn finish(
        &mut self,
        options: &Options,
        cell: &Cell,
        runners: &mut [Box<dyn Runner>],
        report: &mut Report,
    ) {
        self.entries.sort_by_key(|entry| entry.runner);
        for entry in &mut self.entries {
            let runner = &mut runners[entry.runner];
            let iterations = latency_iterations(options, cell, self.slot_ns, entry);
            match finish(&mut **runner, cell, iterations, &mut entry.measured) {
                Ok(()) => {
                    report.rows.push(Row::new(cell, runner.name(), &entry.measured));
                }
                Err(error) => leave(report, cell, runner.name(), error.into()),
            }
        }
    }
}

/// What is asked of a subject behind its rounds. A disturbed latency pass is made again, twice at
/// most.
fn finish(
    runner: &mut dyn Runner,
    cell: &Cell,
    iterations: u64,
    measured: &mut Measured,
) -> Result<(), BenchError> {
    measured.waiting = runner.waiting()?;
    for _ in 0..LATENCY_PASSES {
        measured.latency = runner.latency(cell, iterations)?;
        // Threads that share CPUs preempt each other in every pass.
        if !measured.latency.disturbed || !cell.pinned {
            break;
        }
    }
    Ok(())
}

/// Why a subject sits a cell out.
struct Reason {
    text: String,
    fault: bool,
}

impl From<BenchError> for Reason {
    fn from(error: BenchError) -> Reason {
        Reason { text: error.to_string(), fault: error.is_fault() }
    }
}

fn leave(report: &mut Report, cell: &Cell, subject: &str, reason: Reason) {
    let Reason { text: reason, fault } = reason;
    let cell = Some(cell.to_string());
    report.skipped.push(Skip { subject: subject.into(), cell, reason, fault });
}

/// Blocks held during a round (FAIR-5). 37 is odd, so rounds walk through all of 0 to 63.
fn held(cell: &Cell, round: u32) -> u32 {
    let most = if cell.order < 5 { 64 } else { 4 };
    round * 37 % most
}

/// Checks, warms up and calibrates a subject; the error is why it sits this cell out.
fn enter(
    options: &Options,
    cell: &Cell,
    slot_ns: f64,
    hash: &mut Option<u64>,
    (index, runner): (usize, &mut dyn Runner),
) -> Result<Entry, Reason> {
    runner.supports(cell).map_err(|text| Reason { text, fault: false })?;
    let got = runner.check(cell)?;
    let want = *hash.get_or_insert(got);
    if got != want {
        return Err(BenchError::Hash { got, want }.into());
    }
    let ns_per_iteration = calibrate(cell, slot_ns, runner)?;
    let for_rounds = slot_ns * ROUNDS_SHARE;
    let shortest = if cell.pinned {
        0.0
    } else {
        OVERSUBSCRIBED_NS.min(for_rounds / f64::from(ROUNDS_JUDGED))
    };
    let burst_ns = (for_rounds / f64::from(options.rounds)).max(shortest);
    let iterations = ((burst_ns / ns_per_iteration) as u64).max(1);
    let rounds = (for_rounds / (iterations as f64 * ns_per_iteration)) as u32;
    let rounds = rounds.clamp(ROUNDS_MIN, options.rounds.max(ROUNDS_MIN));
    let aim = Aim { rounds, wall_ns: slot_ns * ROUNDS_SLOTS };
    let measured = Measured::default();
    Ok(Entry { runner: index, iterations, ns_per_iteration, burst_ns, aim, measured })
}

/// Makes the burst longer until it is long enough to trust; returns nanoseconds per iteration, by
/// the fastest burst. The first burst is cold and never the one that counts.
///
/// A burst in which a thread lost its CPU says nothing about the loop and is made again, up to a
/// limit of time. On a busy machine each burst waits milliseconds for CPUs, so few of them lead to
/// the long one.
fn calibrate(cell: &Cell, slot_ns: f64, runner: &mut dyn Runner) -> Result<f64, BenchError> {
    let (mut iterations, mut looped, mut waited) = (1u64, 0.0, 0.0);
    let (mut least, mut disturbed) = (f64::INFINITY, f64::INFINITY);
    let share = (slot_ns / SLOT_MIN.as_nanos() as f64).min(1.0);
    let patience_ns = (CALIBRATION_WAIT_NS * share).max(slot_ns);
    runner.burst(cell, iterations, 0)?;
    loop {
        let burst = runner.burst(cell, iterations, 0)?;
        let ns = burst.loop_ns.max(1.0) / iterations as f64;
        waited += burst.wall_ns;
        let tired = waited > patience_ns;
        if burst.disturbed {
            disturbed = ns.min(disturbed);
            if tired {
                return Ok(least.min(disturbed));
            }
            continue;
        }
        least = ns.min(least);
        looped += least * iterations as f64;
        let long_enough = least * iterations as f64 >= CALIBRATED_NS;
        if long_enough || tired || looped > slot_ns * 0.2 || iterations >= 1 << 40 {
            return Ok(least);
        }
        let enough = (CALIBRATED_NS * 1.5 / least) as u64;
        iterations = enough.clamp(iterations * 2, iterations * GROWTH_MAX);
    }
}

/// Iterations of the latency pass: the calls asked for, or what its share of the slot allows.
fn latency_iterations(options: &Options, cell: &Cell, slot_ns: f64, entry: &Entry) -> u64 {
    let calls = cell.bench.ops_per_iteration();
    let wanted = options.latency_calls.div_ceil(calls);
    let ns = entry.ns_per_iteration + calls as f64 * planned_overhead_ns();
    let affordable = (slot_ns * LATENCY_SHARE / ns) as u64;
    affordable.clamp(1, wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::Latency;
    use crate::{Bench, Waiting};

    /// Takes 10 ns for an iteration, and so long until its threads have their CPUs.
    struct Busy {
        until_cpu_ns: f64,
        bursts: u32,
    }

    impl Runner for Busy {
        fn name(&self) -> &str {
            "busy"
        }
        fn supports(&mut self, _: &Cell) -> Result<(), String> {
            Ok(())
        }
        fn burst(&mut self, _: &Cell, iterations: u64, _: u32) -> Result<Burst, BenchError> {
            self.bursts += 1;
            // Some bursts lose their CPUs.
            let lost = if self.bursts.is_multiple_of(3) { self.until_cpu_ns } else { 0.0 };
            let loop_ns = iterations as f64 * 10.0 + lost;
            let (wall_ns, disturbed) = (loop_ns + self.until_cpu_ns, lost > 0.0);
            Ok(Burst { loop_ns, wall_ns, disturbed, ..Burst::unjudged(10.0) })
        }
        fn latency(&mut self, _: &Cell, _: u64) -> Result<Latency, BenchError> {
            Ok(Latency::default())
        }
        fn waiting(&mut self) -> Result<Option<Waiting>, BenchError> {
            Ok(None)
        }
        fn check(&mut self, _: &Cell) -> Result<u64, BenchError> {
            Ok(1)
        }
    }

    #[test]
    fn rounds_are_as_long_on_a_busy_machine_as_on_an_idle_one() {
        let cell = Cell { bench: Bench::Pair, threads: 2, pinned: true, order: 0, touched: false };
        let calibrated = |until_cpu_ns| {
            let mut runner = Busy { until_cpu_ns, bursts: 0 };
            calibrate(&cell, 150e6, &mut runner).unwrap()
        };
        assert_eq!(calibrated(0.0), 10.0);
        assert_eq!(calibrated(6e6), 10.0);
    }

    #[test]
    fn a_thread_that_loses_its_cpu_in_a_short_burst_does_not_end_calibration() {
        let cell = Cell { bench: Bench::Pair, threads: 1, pinned: true, order: 0, touched: false };
        let mut runner = Busy { until_cpu_ns: 40e6, bursts: 1 };
        assert_eq!(calibrate(&cell, 150e6, &mut runner).unwrap(), 10.0);
        assert!(runner.bursts < 10, "{} bursts", runner.bursts);
    }

    #[test]
    fn calibration_waits_less_in_the_slots_of_a_test() {
        let cell = Cell { bench: Bench::Pair, threads: 2, pinned: true, order: 0, touched: false };
        let bursts = |slot_ns| {
            let mut runner = Busy { until_cpu_ns: 40e6, bursts: 0 };
            calibrate(&cell, slot_ns, &mut runner).unwrap();
            runner.bursts
        };
        assert_eq!(bursts(1e6), 2, "the cold one, and one that waited too long");
        assert!(bursts(150e6) > 4);
    }

    #[test]
    fn rounds_that_are_far_too_short_do_not_count_and_grow() {
        let cell = Cell { bench: Bench::Pair, threads: 1, pinned: true, order: 0, touched: false };
        let mut runner = Busy { until_cpu_ns: 0.0, bursts: 0 };
        let aim = Aim { rounds: 20, wall_ns: 1e9 };
        let measured = Measured::default();
        let mut entry = Entry {
            runner: 0,
            iterations: 10,
            ns_per_iteration: 1e5,
            burst_ns: 1e6,
            aim,
            measured,
        };
        while entry.wants_more(Due { visit: 1, visits: 1, late: false }) {
            let burst = runner.burst(&cell, entry.iterations, 0).unwrap();
            entry.push(burst);
        }
        let kept = entry.measured.kept();
        assert_eq!((kept.ns_per_op.len(), kept.discarded, kept.busy), (20, 6, false));
        assert!(entry.iterations as f64 * 10.0 * 8.0 >= 1e6);
    }

    #[test]
    fn calibration_ends_where_nobody_gets_a_cpu() {
        let cell = Cell { bench: Bench::Pair, threads: 2, pinned: true, order: 0, touched: false };
        let mut runner = Busy { until_cpu_ns: 1e9, bursts: 0 };
        calibrate(&cell, 150e6, &mut runner).unwrap();
        assert!(runner.bursts < 5, "{} bursts", runner.bursts);
    }
}
