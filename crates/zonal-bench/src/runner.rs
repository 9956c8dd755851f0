//! A subject ready to be measured: in this process ([`Local`]) or in another one (`remote.rs`).
//!
//! The schedule in `run.rs` knows only the [`Runner`] trait. One virtual call per burst of
//! thousands of operations reaches it, none per operation (FAIR-1).

use crate::cell::{Bench, Cell};
use crate::check::{Checked, Ledger};
use crate::crew::{Crew, Gate};
use crate::error::BenchError;
pub use crate::latency::Latency;
use crate::latency::{self, Readings, Timed};
use crate::loops::{self, Scratch, Shared};
use crate::subject::{Direct, ORDER_MAX, Probe, Subject, Waiting};
use crate::usage::{self, Had, Part, Usage};
use crate::words::mix_hash;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Instant;

/// The seed of `mix`: a constant, so that every run and every process does the same work.
const MIX_SEED: u64 = 0x5eed_0002_2026_0001;

/// Measurements of one burst.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Burst {
    /// Nanoseconds per operation; see the units in the crate's essay.
    pub ns_per_op: f64,
    /// Duration of the burst, preparation included, for the schedule.
    pub wall_ns: f64,
    /// The shortest time that a thread spent in the loop: on a busy machine threads start
    /// milliseconds apart, and that says nothing about the loop.
    pub loop_ns: f64,
    /// CPU time of all threads per operation, nanoseconds, where it was measured.
    pub cpu_ns_per_op: Option<f64>,
    /// CPU time as a share of what it could have been: that of the worst thread, or of all threads
    /// where there are more of them than CPUs.
    pub cpu_share: f64,
    /// How often threads were preempted.
    pub involuntary_switches: u64,
    /// The threads had fewer CPUs than they should have: the round does not count.
    pub disturbed: bool,
}

impl Burst {
    /// A round of which only the time is known.
    pub(crate) fn unjudged(ns_per_op: f64) -> Burst {
        Burst {
            ns_per_op,
            wall_ns: 0.0,
            loop_ns: 0.0,
            cpu_ns_per_op: None,
            cpu_share: 1.0,
            involuntary_switches: 0,
            disturbed: false,
        }
    }
}

/// A subject that the schedule can measure.
pub trait Runner {
    /// The subject's name in rows.
    fn name(&self) -> &str;

    /// Whether it can run `cell`, and why not.
    ///
    /// # Errors
    /// A sentence for the reader of the report.
    fn supports(&mut self, cell: &Cell) -> Result<(), String>;

    /// Runs `iterations` of the cell's loop on all its threads, `held` blocks taken beforehand.
    ///
    /// # Errors
    /// If allocations were refused or the process of the subject is gone.
    fn burst(&mut self, cell: &Cell, iterations: u64, held: u32) -> Result<Burst, BenchError>;

    /// Runs the loop with a clock around each call.
    ///
    /// # Errors
    /// As for `burst`.
    fn latency(&mut self, cell: &Cell, iterations: u64) -> Result<Latency, BenchError>;

    /// Free memory that the subject keeps near its threads now.
    ///
    /// # Errors
    /// As for `burst`.
    fn waiting(&mut self) -> Result<Option<Waiting>, BenchError>;

    /// Runs the loop with every block verified and returns the hash of the work (FAIR-7).
    ///
    /// # Errors
    /// As for `burst`, and [`BenchError::Wrong`] with the first thing found.
    fn check(&mut self, cell: &Cell) -> Result<u64, BenchError>;
}

/// A subject in this process.
pub struct Local<S> {
    subject: Arc<S>,
    crew: Arc<Crew>,
}

/// Result of a worker.
struct Worker<P> {
    start: Instant,
    end: Instant,
    usage: Usage,
    refused: u64,
    probe: P,
}

impl<S: Subject> Local<S> {
    /// `subject`, run by `crew`.
    pub fn new(subject: S, crew: Arc<Crew>) -> Local<S> {
        Local { subject: Arc::new(subject), crew }
    }

    /// The same, ready for the list that [`crate::run`] takes.
    pub fn boxed(subject: S, crew: &Arc<Crew>) -> Box<dyn Runner> {
        Box::new(Local::new(subject, Arc::clone(crew)))
    }

    /// Whether the subject runs the cell, and the harness has such a loop (LOOP-1).
    fn admit(&self, cell: &Cell) -> Result<(), String> {
        if cell.order > ORDER_MAX {
            return Err(format!("no loop asks for order {}: at most {ORDER_MAX}", cell.order));
        }
        if !cell.bench.is_planned() {
            return Err(format!("no plan has a cell of {}", cell.bench));
        }
        if cell.bench == Bench::Bulk && !self.subject.has_bulk() {
            return Err("it has no bulk calls".into());
        }
        self.subject.supports(cell)
    }

    /// One burst of every worker. `probe(index)` makes each worker's probe.
    fn burst_with<P: Probe<S> + Send + 'static>(
        &self,
        cell: &Cell,
        iterations: u64,
        held: u32,
        probe: impl Fn(usize) -> P + Send + Sync + 'static,
    ) -> Result<(Vec<Worker<P>>, f64), BenchError> {
        self.admit(cell).map_err(|reason| BenchError::Unsupported { cell: *cell, reason })?;
        let (cell, subject) = (*cell, Arc::clone(&self.subject));
        let threads = cell.threads as usize;
        let (gate, shared) = (Gate::new(threads), Shared::new(threads));
        let work = move |index: usize| {
            let subject: &S = &subject;
            subject.thread_init();
            let mut probe = probe(index);
            let mut scratch = Scratch::new(&cell, index, MIX_SEED);
            // What follows keeps LOOP-1: `admit` and `thread_init` were called.
            if cell.bench == Bench::Shuffled {
                shared.shuffle.run(subject, cell.order, index, MIX_SEED ^ iterations);
            }
            scratch.hold(subject, cell.order, held);
            gate.wait();
            let before = Usage::now();
            let start = Instant::now();
            let with = (&mut scratch, &shared);
            let refused = loops::run(subject, &mut probe, &cell, index, iterations, with);
            let end = Instant::now();
            let usage = Usage::now().since(before);
            loops::finish_mix(subject, &mut probe, &mut scratch);
            scratch.release(subject, cell.order);
            Worker { start, end, usage, refused, probe }
        };
        let start = Instant::now();
        let workers = self.crew.run(threads, cell.pinned, Arc::new(work))?;
        let wall_ns = start.elapsed().as_nanos() as f64;
        let refused: u64 = workers.iter().map(|worker| worker.refused).sum();
        if refused > 0 {
            let asked = iterations * cell.bench.ops_per_iteration() * u64::from(cell.threads);
            return Err(BenchError::Refused { failed: refused, asked });
        }
        Ok((workers, wall_ns))
    }
}

/// Start and end of each worker, in nanoseconds since the first start.
type Times = Vec<(f64, f64)>;

impl<S> Local<S> {
    /// When the workers ran, and what they had of the machine.
    fn had<P>(&self, workers: &[Worker<P>]) -> (Times, Had) {
        let origin = workers.iter().map(|worker| worker.start).min();
        let since = |moment: Instant| {
            origin.map_or(0.0, |origin| moment.duration_since(origin).as_nanos() as f64)
        };
        let times: Times = workers.iter().map(|w| (since(w.start), since(w.end))).collect();
        let part = |(worker, &(start_ns, end_ns)): (&Worker<P>, &(f64, f64))| Part {
            start_ns,
            end_ns,
            usage: worker.usage,
        };
        let parts: Vec<Part> = workers.iter().zip(&times).map(part).collect();
        let had = usage::judge(&parts, self.crew.cpus().count());
        (times, had)
    }
}

/// The shortest of these times; 0 without any.
fn shortest(times: &[(f64, f64)]) -> f64 {
    times.iter().map(|time| time.1 - time.0).reduce(f64::min).unwrap_or(0.0)
}

/// Operations of all threads. Those of a stream work on the same pages.
fn operations(cell: &Cell, iterations: u64) -> f64 {
    let threads = if cell.bench == Bench::Stream { 1 } else { cell.threads };
    (iterations * cell.bench.ops_per_iteration()) as f64 * f64::from(threads)
}

/// Nanoseconds per operation from the workers' times (start and end, in nanoseconds since any
/// common moment); the units are in the crate's essay.
///
/// Where the threads depend on each other, or share CPUs, it is the time from the first start to
/// the last end that counts: an oversubscribed thread may start its clock only after another has
/// finished, so no single thread's own time covers the work.
fn ns_per_op(cell: &Cell, iterations: u64, times: &[(f64, f64)], cpus: usize) -> f64 {
    let operations = (iterations * cell.bench.ops_per_iteration()) as f64;
    let first = times.iter().map(|time| time.0).fold(f64::INFINITY, f64::min);
    let last = times.iter().map(|time| time.1).fold(0.0, f64::max);
    let threads = times.len() as f64;
    if cell.bench == Bench::Stream {
        (last - first) / operations
    } else if times.len() > cpus {
        (last - first) * cpus as f64 / (operations * threads)
    } else {
        times.iter().map(|time| time.1 - time.0).sum::<f64>() / threads / operations
    }
}

impl<S: Subject> Runner for Local<S> {
    fn name(&self) -> &str {
        self.subject.name()
    }

    fn supports(&mut self, cell: &Cell) -> Result<(), String> {
        self.admit(cell)
    }

    fn burst(&mut self, cell: &Cell, iterations: u64, held: u32) -> Result<Burst, BenchError> {
        let (workers, wall_ns) = self.burst_with(cell, iterations, held, |_| Direct)?;
        let (times, had) = self.had(&workers);
        let cpus = self.crew.cpus().count();
        Ok(Burst {
            ns_per_op: ns_per_op(cell, iterations, &times, cpus),
            wall_ns,
            loop_ns: shortest(&times),
            cpu_ns_per_op: Some(had.cpu_ns / operations(cell, iterations)),
            cpu_share: had.share,
            involuntary_switches: had.involuntary,
            disturbed: had.disturbed,
        })
    }

    fn latency(&mut self, cell: &Cell, iterations: u64) -> Result<Latency, BenchError> {
        let calls = iterations.saturating_mul(cell.bench.ops_per_iteration());
        let room = usize::try_from(calls).unwrap_or(usize::MAX);
        let (workers, _) = self.burst_with(cell, iterations, 0, move |_| Timed::new(room))?;
        // One preemption is in no median, but it is the longest call.
        let had = self.had(&workers).1;
        let disturbed = had.disturbed || had.involuntary > 0;
        let readings: Vec<Readings> =
            workers.into_iter().map(|worker| worker.probe.into_readings()).collect();
        Ok(Latency { disturbed, ..latency::summarise(&readings) })
    }

    fn waiting(&mut self) -> Result<Option<Waiting>, BenchError> {
        Ok(self.subject.waiting())
    }

    fn check(&mut self, cell: &Cell) -> Result<u64, BenchError> {
        let ledger = Arc::new(Ledger::default());
        let probes = Arc::clone(&ledger);
        let probe = move |index| Checked::new(Arc::clone(&probes), index);
        let iterations = cell.bench.checked_iterations();
        let outcome = self.burst_with(cell, iterations, 0, probe);
        if let Some(fault) = ledger.verdict() {
            return Err(BenchError::Wrong(fault));
        }
        let (workers, _) = outcome?;
        Ok(workers.iter().fold(0, |hash, worker| mix_hash(hash, worker.probe.hash())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oversubscribed_time_is_cpu_time_and_pinned_time_is_the_mean() {
        let cell =
            |bench, threads| Cell { bench, threads, pinned: false, order: 0, touched: false };
        let pair = |threads: u32, times: &[(f64, f64)]| {
            ns_per_op(&cell(Bench::Pair, threads), 100, times, 2)
        };
        assert_eq!(pair(1, &[(5.0, 1005.0)]), 10.0);
        assert_eq!(pair(2, &[(0.0, 1000.0), (100.0, 2100.0)]), 15.0);
        // Two threads ran, and then two others.
        let times = [(0.0, 1000.0), (0.0, 990.0), (1000.0, 2000.0), (990.0, 2000.0)];
        assert_eq!(pair(4, &times), 10.0);
        assert_eq!(shortest(&[(0.0, 100.0), (9e6, 9e6 + 80.0)]), 80.0);
        let stream = [(0.0, 900.0), (50.0, 1000.0)];
        assert_eq!(ns_per_op(&cell(Bench::Stream, 2), 100, &stream, 2), 10.0);
    }
}
