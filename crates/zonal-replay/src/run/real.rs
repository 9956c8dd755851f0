//! Replays a program on real memory: one thread for each recorded CPU.
//!
//! ```text
//!  thread 0   alloc 0   alloc 1 ──────────────► free 2  (waits until slot 2 is filled)
//!  thread 1         alloc 2 ─► slots[2] = addr ─┘        free 1
//! ```
//! The address of each block is in a table by slot ([`super::entries`], with REAL-1). A thread that
//! frees what another allocates waits for the table's entry.
//!
//! # Invariants
//! - **REAL-2** the thread that has done least never waits for long: steps are numbered in the
//!   order of the trace, a free waits only for a lower number, and the thread at the lowest number
//!   does not wait. So the threads cannot deadlock.
//! - **REAL-3** no thread is more than [`AHEAD_MAX`] steps ahead of another. Without that, one
//!   could allocate the whole trace before the other frees anything.
//!
//! # What it does not do
//! Trace time stands still at full speed: the pool's refresh thread runs each second of this
//! machine's clock, so lists do not decay as they did when recorded. What the kernel held before
//! the trace is not allocated here, except for the blocks that the trace frees.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use zonal::sys::affinity;
use zonal::{Gfp, Order};
use zonal_core::types::CpuId;

use super::entries::{Blocks, Memory, stamp};
use super::latency::Stopwatch;
use super::outcome::Outcome;
use crate::error::ReplayError;
use crate::program::{OpKind, Program, Slot, order};
use crate::progress::{Phase, Progress, Watch};

/// Steps by which threads may be ahead of each other.
const AHEAD_MAX: u64 = 1 << 14;
/// Steps by which the first thread may be ahead of the last, since positions are published late.
pub const fn ahead_max(threads: u32) -> usize {
    AHEAD_MAX as usize + REPORT_STEPS * threads as usize
}

/// Steps between two reports of a thread's position.
const REPORT_STEPS: usize = 64;
/// Looks at an entry before the CPU is given to others, which may be the one waited for.
const SPINS: u32 = 128;
/// Time between two calls of the [`Watch`].
const TICK: Duration = Duration::from_millis(20);
const FAULTS_TOLD: usize = 5;

/// One step of one thread.
#[derive(Clone, Copy, Debug)]
struct Step {
    time_ns: u64,
    /// Number in the order of the trace.
    number: u32,
    slot: u32,
    gfp: u32,
    order: u8,
    free: bool,
}

/// Trace time and wall time of the start.
type Pace = (u64, Instant);

/// A program and everything its threads share.
pub struct Stage<'a, M> {
    program: &'a Program,
    /// The CPU of this machine that plays each recorded one; the others run where they may.
    cpus: &'a [CpuId],
    /// The steps of each CPU.
    steps: Vec<Vec<Step>>,
    blocks: Blocks<'a, M>,
    /// Number of a step of each thread: its next one while it waits, else one of the last
    /// [`REPORT_STEPS`].
    positions: Vec<Position>,
    /// Set when a thread dies or the caller wants to stop: all waits end.
    stop: AtomicBool,
    /// Threads that run.
    running: AtomicUsize,
}

/// Alone on its cache lines: each is written often by one thread.
#[repr(align(128))]
struct Position(AtomicU64);

/// Result of one thread.
#[derive(Default)]
struct Tally {
    allocs: u64,
    alloc_pages: u64,
    frees: u64,
    free_pages: u64,
    failed: u64,
    skipped: u64,
    checked: u64,
    first_failure: Option<String>,
    wrong: Wrong,
    alloc_watch: Stopwatch,
    free_watch: Stopwatch,
}

/// What must not be.
#[derive(Default)]
struct Wrong {
    mismatches: u64,
    faults: Vec<String>,
}

impl<'a, M: Memory> Stage<'a, M> {
    /// Gets `program` ready to run on `memory`, with the threads of recorded CPUs on `cpus`, and
    /// allocates the blocks that it frees without having allocated them.
    pub fn new(program: &'a Program, memory: &'a M, cpus: &'a [CpuId]) -> Stage<'a, M> {
        let programs = split(program);
        let first = |steps: &Vec<Step>| steps.first().map_or(u64::MAX, |step| step.number.into());
        let stage = Stage {
            program,
            cpus,
            blocks: Blocks::new(memory, program.slots.len()),
            positions: programs.iter().map(|p| Position(AtomicU64::new(first(p)))).collect(),
            stop: AtomicBool::new(false),
            running: AtomicUsize::new(0),
            steps: programs,
        };
        // A refusal here is counted when its free is skipped.
        let mut tally = Tally::default();
        for (slot, record) in program.held() {
            stage.alloc(slot, order(record.order), Gfp::HIGHUSER_MOVABLE, &mut tally);
        }
        stage
    }

    /// Runs the program, in the recording's pace if `paced`.
    ///
    /// # Errors
    /// [`ReplayError::Stopped`].
    pub fn run(&self, paced: bool, watch: &mut Watch<'_>) -> Result<Outcome, ReplayError> {
        let mut outcome = Outcome { threads: self.steps.len(), ..Outcome::default() };
        let start = Instant::now();
        let tallies = self.run_threads(paced.then_some((self.program.start_ns, start)), watch)?;
        outcome.seconds = start.elapsed().as_secs_f64();
        let (mut allocs, mut frees) = (Stopwatch::default(), Stopwatch::default());
        for tally in tallies {
            let Some(tally) = tally else {
                outcome.faults.push("a thread died; see the message above".to_owned());
                continue;
            };
            allocs.merge(&tally.alloc_watch);
            frees.merge(&tally.free_watch);
            tally.add_to(&mut outcome);
        }
        outcome.steps = outcome.allocs + outcome.frees + outcome.failed + outcome.skipped_frees;
        outcome.alloc_latency = allocs.latency();
        outcome.free_latency = frees.latency();
        Ok(outcome)
    }

    /// Frees the blocks that the program still holds at its end.
    pub fn finish(self, outcome: &mut Outcome) {
        let mut tally = Tally::default();
        for slot in 0..self.program.slots.len() as u32 {
            if !self.blocks.is_empty(slot) {
                self.free(slot, &mut tally);
            }
        }
        outcome.pages_checked += tally.checked;
        outcome.faults.extend(tally.wrong.faults);
    }

    /// Runs the threads to their end. `None` stands for one that died.
    fn run_threads(
        &self,
        pace: Option<Pace>,
        watch: &mut Watch<'_>,
    ) -> Result<Vec<Option<Tally>>, ReplayError> {
        let of = self.program.ops.len() as u64;
        let main = thread::current();
        // Relaxed: threads are joined below; the count only tells when that will not take long.
        self.running.store(self.steps.len(), Ordering::Relaxed);
        thread::scope(|scope| {
            let run = |cpu| {
                let main = &main;
                scope.spawn(move || self.run_thread(cpu, pace, main))
            };
            let threads: Vec<_> = (0..self.steps.len()).map(run).collect();
            let mut stopped = false;
            // Once at least, even if all threads have ended before this one looks.
            loop {
                let done = self.slowest().min(of);
                if !stopped
                    && watch(Progress { phase: Phase::Replaying, done, of: Some(of) }).is_break()
                {
                    self.stop.store(true, Ordering::Relaxed);
                    stopped = true;
                }
                if self.running.load(Ordering::Relaxed) == 0 {
                    break;
                }
                thread::park_timeout(TICK);
            }
            let tallies = threads.into_iter().map(|thread| thread.join().ok()).collect();
            if stopped { Err(ReplayError::Stopped) } else { Ok(tallies) }
        })
    }
}

/// The steps of each CPU that has any.
fn split(program: &Program) -> Vec<Vec<Step>> {
    let mut programs = vec![Vec::new(); program.cpus as usize];
    for (number, op) in (0..).zip(&program.ops) {
        let free = match op.kind {
            OpKind::Alloc | OpKind::Bulk | OpKind::Direct => false,
            OpKind::Free => true,
            OpKind::Split | OpKind::Refresh | OpKind::Change => continue,
        };
        let (time_ns, slot) = (op.time_ns, op.slot);
        let Slot { gfp, order, .. } = program.slots[slot as usize];
        programs[op.cpu as usize].push(Step { time_ns, number, slot, gfp, order, free });
    }
    programs
}

impl<M: Memory> Stage<'_, M> {
    fn run_thread(&self, cpu: usize, pace: Option<Pace>, main: &Thread) -> Tally {
        let _guard = AtEnd { stop: &self.stop, running: &self.running, main };
        let mut tally = Tally::default();
        if let Some(Err(error)) = self.cpus.get(cpu).map(|cpu| affinity::pin(*cpu)) {
            tally.wrong.faults.push(format!("the thread of CPU {cpu} cannot be pinned: {error}"));
        }
        for (index, step) in self.steps[cpu].iter().enumerate() {
            if index % REPORT_STEPS == 0 {
                self.report(cpu, step.number.into());
                if self.stop.load(Ordering::Relaxed) {
                    break;
                }
            }
            if let Some((trace_start, start)) = pace {
                self.wait_until(start + Duration::from_nanos(step.time_ns - trace_start));
                self.report(cpu, step.number.into());
            }
            if step.free {
                if self.blocks.is_empty(step.slot) {
                    // About to wait: REAL-2 needs the others to know how far this thread really is.
                    self.positions[cpu].0.store(step.number.into(), Ordering::Relaxed);
                }
                self.free(step.slot, &mut tally);
            } else {
                self.alloc(step.slot, order(step.order), Gfp::from_bits(step.gfp), &mut tally);
            }
        }
        self.positions[cpu].0.store(u64::MAX, Ordering::Relaxed);
        tally
    }

    /// Tells the others how far this thread is, and waits for those far behind (REAL-3).
    fn report(&self, cpu: usize, number: u64) {
        // Relaxed: a position is advice; blocks pass through `entries`.
        self.positions[cpu].0.store(number, Ordering::Relaxed);
        self.wait(|| self.slowest().saturating_add(AHEAD_MAX) >= number);
    }

    fn slowest(&self) -> u64 {
        let positions = self.positions.iter().map(|p| p.0.load(Ordering::Relaxed));
        positions.min().unwrap_or(u64::MAX)
    }

    fn alloc(&self, slot: u32, order: Order, gfp: Gfp, tally: &mut Tally) {
        // One that must not fail would wait for ever, and the replay with it.
        let gfp = gfp.without(Gfp::NOFAIL);
        match self.blocks.alloc(slot, order, gfp, &mut tally.alloc_watch) {
            Ok(()) => {
                tally.allocs += 1;
                tally.alloc_pages += order.pages();
            }
            Err(error) => {
                tally.failed += 1;
                tally.first_failure.get_or_insert(error);
            }
        }
    }

    fn free(&self, slot: u32, tally: &mut Tally) {
        self.wait(|| !self.blocks.is_empty(slot));
        let Tally { free_watch, wrong, .. } = tally;
        let freed = self.blocks.free(slot, free_watch, |page, found| wrong.see(slot, page, found));
        let Some((order, freed)) = freed else {
            tally.skipped += 1;
            return;
        };
        tally.checked += order.pages();
        match freed {
            Ok(()) => {
                tally.frees += 1;
                tally.free_pages += order.pages();
            }
            Err(error) => tally.wrong.fault(format!("a free was refused: {error}")),
        }
    }

    /// Waits until `moment`, or until the run stops.
    fn wait_until(&self, moment: Instant) {
        while !self.stop.load(Ordering::Relaxed) {
            let left = moment.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            // Sleeping takes some 60 microseconds longer than asked for.
            match left.checked_sub(Duration::from_micros(200)) {
                Some(sleep) => thread::sleep(sleep.min(TICK)),
                None => thread::yield_now(),
            }
        }
    }

    /// Waits until `done`, or until the run stops.
    #[inline]
    fn wait(&self, done: impl Fn() -> bool) {
        let mut spins = 0;
        while !done() {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
    }
}

impl Wrong {
    #[cold]
    fn see(&mut self, slot: u32, page: usize, found: u64) {
        self.mismatches += 1;
        self.fault(format!(
            "page {page} of block {slot} holds {found:#x} instead of {:#x}: it had a second user",
            stamp(slot, page)
        ));
    }

    #[cold]
    fn fault(&mut self, fault: String) {
        if self.faults.len() < FAULTS_TOLD {
            self.faults.push(fault);
        }
    }
}

impl Tally {
    fn add_to(self, outcome: &mut Outcome) {
        outcome.allocs += self.allocs;
        outcome.alloc_pages += self.alloc_pages;
        outcome.frees += self.frees;
        outcome.free_pages += self.free_pages;
        outcome.failed += self.failed;
        outcome.skipped_frees += self.skipped;
        outcome.pages_checked += self.checked;
        outcome.first_failure = outcome.first_failure.take().or(self.first_failure);
        outcome.faults.extend(self.wrong.faults);
        if self.wrong.mismatches > 0 {
            let fault = format!("{} pages had a second user", self.wrong.mismatches);
            outcome.faults.push(fault);
        }
    }
}

/// Tells the others when a thread ends, and how.
struct AtEnd<'a> {
    stop: &'a AtomicBool,
    running: &'a AtomicUsize,
    main: &'a Thread,
}

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.stop.store(true, Ordering::Relaxed);
        }
        self.running.fetch_sub(1, Ordering::Relaxed);
        self.main.unpark();
    }
}

#[cfg(test)]
#[path = "real_tests.rs"]
mod tests;
