//! Replays a program on real memory: one thread for each recorded CPU.
//!
//! ```text
//!  thread 0   alloc 0   alloc 1 ──────────────► free 2  (waits until slot 2 is filled)
//!  thread 1         alloc 2 ─► slots[2] = addr ─┘        free 1
//! ```
//! The address of each block is in a table by slot. A thread that frees what another allocates
//! waits for the table's entry.
//!
//! # Invariants
//! - **REAL-1** an entry goes from empty to an address or to "refused" once, by the thread that has
//!   the slot's allocation, after it wrote the block (Release); it is read by the thread that has
//!   its free (Acquire). So a block has one user at a time.
//! - **REAL-2** the thread that has done least never waits for long: steps are numbered in the
//!   order of the trace, a free waits only for a lower number, and the thread at the lowest number
//!   of all waits for nobody. So the threads cannot deadlock.
//! - **REAL-3** no thread is more than [`AHEAD_MAX`] steps ahead of another. Without that, one
//!   could allocate the whole trace before the other frees anything.
//!
//! # Ownership
//! The user of a block writes one word to each of its pages, made of slot and page, and looks for
//! it before the free. A word that is not there means that somebody else had the page meanwhile.
//!
//! # What it does not do
//! Trace time stands still at full speed: the pool's refresh thread runs each second of this
//! machine's clock, so lists do not decay as they did when recorded. What the kernel held before
//! the trace is not allocated here, except for the blocks that the trace frees.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use zonal::{Gfp, Order};

use super::latency::Stopwatch;
use super::memory::Memory;
use super::outcome::Outcome;
use super::program::{OpKind, Program};

/// Steps by which threads may be ahead of each other.
const AHEAD_MAX: u64 = 1 << 14;
/// Steps by which the first thread may be ahead of the last, given that positions are told late.
pub const fn ahead_max(threads: u32) -> usize {
    AHEAD_MAX as usize + REPORT_STEPS * threads as usize
}

/// Steps between two reports of a thread's position.
const REPORT_STEPS: usize = 64;
/// Looks at an entry before the CPU is given to others, which may be the one waited for.
const SPINS: u32 = 128;
/// How often the progress bar moves.
const TICK: Duration = Duration::from_millis(20);
const FAULTS_TOLD: usize = 5;

/// Entry of a slot that is not allocated yet.
const EMPTY: usize = 0;
/// Entry of a slot whose allocation was refused. No block is at address 1.
const REFUSED: usize = 1;

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
    memory: &'a M,
    /// The steps of each CPU.
    steps: Vec<Vec<Step>>,
    entries: Vec<AtomicUsize>,
    /// Number of a step of each thread: its next one while it waits, else one of the last
    /// [`REPORT_STEPS`].
    positions: Vec<Position>,
    /// Set when a thread dies: the others stop waiting for it.
    stop: AtomicBool,
}

/// Alone on its cache lines: each is written often by one thread.
#[repr(align(128))]
struct Position(AtomicU64);

/// What one thread did.
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
    mismatches: u64,
    faults: Vec<String>,
    alloc_watch: Stopwatch,
    free_watch: Stopwatch,
}

impl<'a, M: Memory> Stage<'a, M> {
    /// Gets `program` ready to run on `memory`, and allocates what it frees without having
    /// allocated it.
    pub fn new(program: &'a Program, memory: &'a M) -> Stage<'a, M> {
        let programs = split(program);
        let first = |steps: &Vec<Step>| steps.first().map_or(u64::MAX, |step| step.number.into());
        let stage = Stage {
            program,
            memory,
            entries: program.slots.iter().map(|_| AtomicUsize::new(EMPTY)).collect(),
            positions: programs.iter().map(|p| Position(AtomicU64::new(first(p)))).collect(),
            stop: AtomicBool::new(false),
            steps: programs,
        };
        // What is refused here is counted when its free is skipped.
        let mut tally = Tally::default();
        for (slot, record) in program.held() {
            stage.alloc(slot, order(record.order), Gfp::HIGHUSER_MOVABLE, &mut tally);
        }
        stage
    }

    /// Runs the program, in the recording's pace if `paced`.
    pub fn run(&self, paced: bool, bar: &ProgressBar) -> Outcome {
        let mut outcome = Outcome { threads: self.steps.len(), ..Outcome::default() };
        let start = Instant::now();
        let tallies = self.run_threads(paced.then_some((self.program.start_ns, start)), bar);
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
        outcome
    }

    /// Frees what the program still holds at its end.
    pub fn finish(self, outcome: &mut Outcome) {
        let mut tally = Tally::default();
        for (slot, record) in (0..).zip(&self.program.slots) {
            // Relaxed: the threads have been joined.
            if self.entries[slot as usize].load(Ordering::Relaxed) != EMPTY {
                self.free(slot, order(record.order), &mut tally);
            }
        }
        outcome.pages_checked += tally.checked;
        outcome.faults.extend(tally.faults);
    }

    /// Runs the threads to their end. `None` stands for one that died.
    fn run_threads(&self, pace: Option<Pace>, bar: &ProgressBar) -> Vec<Option<Tally>> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.steps.len())
                .map(|cpu| scope.spawn(move || self.run_thread(cpu, pace)))
                .collect();
            // Where nobody sees the bar there is nothing to do but wait in `join`.
            while !bar.is_hidden() && !threads.iter().all(|thread| thread.is_finished()) {
                let reached = self.slowest();
                if reached != u64::MAX {
                    bar.set_position(reached);
                }
                std::thread::sleep(TICK);
            }
            threads.into_iter().map(|thread| thread.join().ok()).collect()
        })
    }
}

/// The steps of each CPU that has any.
fn split(program: &Program) -> Vec<Vec<Step>> {
    let mut programs = vec![Vec::new(); program.cpus as usize];
    for (number, op) in (0..).zip(&program.ops) {
        let free = match op.kind {
            OpKind::Alloc => false,
            OpKind::Free => true,
            OpKind::Refresh => continue,
        };
        let (time_ns, slot, gfp, order) = (op.time_ns, op.slot, op.gfp, op.order);
        programs[op.cpu as usize].push(Step { time_ns, number, slot, gfp, order, free });
    }
    programs
}

fn order(order: u8) -> Order {
    Order::new(order.into()).unwrap_or(Order::MAX)
}

impl<M: Memory> Stage<'_, M> {
    fn run_thread(&self, cpu: usize, pace: Option<Pace>) -> Tally {
        let _guard = StopOnPanic(&self.stop);
        let mut tally = Tally::default();
        if let Err(error) = self.memory.enter(cpu as u32) {
            tally.faults.push(format!("the thread of CPU {cpu} cannot be pinned: {error}"));
        }
        for (index, step) in self.steps[cpu].iter().enumerate() {
            if index % REPORT_STEPS == 0 {
                self.report(cpu, step.number.into());
            }
            if let Some((trace_start, start)) = pace {
                wait_until(start + Duration::from_nanos(step.time_ns - trace_start));
                self.report(cpu, step.number.into());
            }
            if step.free {
                if self.entries[step.slot as usize].load(Ordering::Relaxed) == EMPTY {
                    // About to wait: REAL-2 needs the others to know how far this thread really is.
                    self.positions[cpu].0.store(step.number.into(), Ordering::Relaxed);
                }
                self.free(step.slot, order(step.order), &mut tally);
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
        let entry = &self.entries[slot as usize];
        // One that must not fail would wait for ever, and the replay with it.
        let gfp = gfp.without(Gfp::NOFAIL);
        let block = match tally.alloc_watch.time(|| self.memory.alloc(order, gfp)) {
            Ok(block) => block,
            Err(error) => {
                tally.failed += 1;
                tally.first_failure.get_or_insert(error);
                // Release: pairs with the Acquire in `free`, as below (REAL-1).
                entry.store(REFUSED, Ordering::Release);
                return;
            }
        };
        for page in 0..order.pages() as usize {
            // SAFETY: (1) the block was just handed out to this thread and is `order` pages long.
            let word = unsafe { block.add(page * zonal::PAGE_SIZE) }.cast::<u64>();
            // SAFETY: (1) as above; blocks are page-aligned, so the word is aligned.
            unsafe { word.write(mark(slot, page)) };
        }
        tally.allocs += 1;
        tally.alloc_pages += order.pages();
        // Release: pairs with the Acquire in `free`; the words are written (REAL-1).
        entry.store(block.as_ptr() as usize, Ordering::Release);
    }

    fn free(&self, slot: u32, order: Order, tally: &mut Tally) {
        let entry = &self.entries[slot as usize];
        // Acquire: pairs with the Release in `alloc` (REAL-1).
        self.wait(|| entry.load(Ordering::Acquire) != EMPTY);
        let address = entry.load(Ordering::Acquire);
        if address == EMPTY || address == REFUSED {
            tally.skipped += 1;
            return;
        }
        let Some(block) = NonNull::new(address as *mut u8) else { return };
        for page in 0..order.pages() as usize {
            // SAFETY: (1) the block is this slot's until it is freed below, `order` pages long.
            let word = unsafe { block.add(page * zonal::PAGE_SIZE) }.cast::<u64>();
            // SAFETY: (1) as above; `alloc` wrote it.
            let found = unsafe { word.read() };
            if found != mark(slot, page) {
                tally.mismatch(slot, page, found);
            }
        }
        tally.checked += order.pages();
        // Relaxed: no other thread looks at this entry any more.
        entry.store(EMPTY, Ordering::Relaxed);
        // SAFETY: (1) the slot's block is freed once: its entry was just emptied.
        let freed = tally.free_watch.time(|| unsafe { self.memory.free(block, order) });
        match freed {
            Ok(()) => {
                tally.frees += 1;
                tally.free_pages += order.pages();
            }
            Err(error) => tally.fault(format!("a free was refused: {error}")),
        }
    }

    /// Waits until `done`, or until a thread has died.
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
                std::thread::yield_now();
            }
        }
    }
}

/// What the user of a page writes to it.
fn mark(slot: u32, page: usize) -> u64 {
    // Never zero, and unlike what fresh or zeroed memory holds.
    (u64::from(slot) << 16 | page as u64) ^ 0xa5a5_0000_0000_5a5a
}

fn wait_until(moment: Instant) {
    loop {
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        // Sleeping takes some 60 microseconds longer than asked for.
        match left.checked_sub(Duration::from_micros(200)) {
            Some(sleep) => std::thread::sleep(sleep),
            None => std::thread::yield_now(),
        }
    }
}

impl Tally {
    #[cold]
    fn mismatch(&mut self, slot: u32, page: usize, found: u64) {
        self.mismatches += 1;
        self.fault(format!(
            "page {page} of block {slot} holds {found:#x} instead of {:#x}: somebody else had it",
            mark(slot, page)
        ));
    }

    #[cold]
    fn fault(&mut self, fault: String) {
        if self.faults.len() < FAULTS_TOLD {
            self.faults.push(fault);
        }
    }

    fn add_to(self, outcome: &mut Outcome) {
        outcome.allocs += self.allocs;
        outcome.alloc_pages += self.alloc_pages;
        outcome.frees += self.frees;
        outcome.free_pages += self.free_pages;
        outcome.failed += self.failed;
        outcome.skipped_frees += self.skipped;
        outcome.pages_checked += self.checked;
        outcome.first_failure = outcome.first_failure.take().or(self.first_failure);
        outcome.faults.extend(self.faults);
        if self.mismatches > 0 {
            outcome.faults.push(format!("{} pages had a second user", self.mismatches));
        }
    }
}

/// Tells the other threads when this one dies.
struct StopOnPanic<'a>(&'a AtomicBool);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
#[path = "real_tests.rs"]
mod tests;
