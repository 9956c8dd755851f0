//! Fences between CPUs: "no section that began on that CPU before now can still commit".
//!
//! ```text
//!   fencing CPU                         fenced CPU
//!   mark the pcp                        section: reads the mark … commits
//!   look whether it is up ── no ──► done
//!   asked += 1
//!   send an interrupt ───────────────►  entry: a section starts over; answered = asked
//!   wait for the answer, and answer          or: waits itself, for a lock or an answer,
//!   what others ask meanwhile                    and answers there
//! ```
//! Whoever waits with interrupts masked answers by looking, so two CPUs that fence each other do
//! not wait for ever. A CPU that is not up runs no sections: nobody asks it. A wait is bounded: a
//! CPU that does not answer in time is *silent*, and until it answers that request nobody waits for
//! it again.
//!
//! # Invariants
//! - **KFENCE-1** `answered` of a CPU grows only while no section of that CPU is under way: in an
//!   interrupt's handler, which has started an interrupted section over, or in code that waits,
//!   which is no section. That code runs on this very CPU: interrupts are masked from before it
//!   reads the CPU's number until it has answered, so no other thread gets the CPU in between.
//! - **KFENCE-2** the mark comes first: a fence reads `state` behind a sequentially consistent
//!   fence, and a CPU that comes up passes one between its `state` and its first section. So one of
//!   them sees the other: the fence finds the CPU up and asks, or the section finds the mark.
//! - **KFENCE-3** a CPU goes down behind its last section, by a Release that the waiting fence
//!   acquires.
//!
//! The model `tests/loom_fence.rs` runs this file under every interleaving.

use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// A cell of zeros is that of a CPU that is not up.
const DOWN: u32 = 0;
const UP: u32 = 1;

/// What one CPU is asked and what it answered. On lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct FenceCell {
    pub(crate) state: AtomicU32,
    /// Requests so far.
    pub(crate) asked: AtomicU64,
    /// The last request that is answered.
    pub(crate) answered: AtomicU64,
    /// The last request that was not answered in time.
    pub(crate) missed: AtomicU64,
}

/// How long a fence waits: until the first of both is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Nanoseconds of the kernel's clock.
    pub ns: u64,
    /// Looks at the answer: what ends a wait where the clock stands still while interrupts are
    /// masked.
    pub looks: u64,
}

impl Patience {
    /// One second, or four billion looks.
    pub const DEFAULT: Patience = Patience { ns: 1_000_000_000, looks: 1 << 32 };
}

/// Why a fence was not passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FenceError {
    /// There is no such CPU: which, and how many there are.
    NoSuchCpu(u32, usize),
    /// The CPU did not answer in time, now or at an earlier request that it has not answered yet.
    /// A section may still be under way on it: leave its pcp alone.
    Silent(u32),
}

impl fmt::Display for FenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            FenceError::NoSuchCpu(cpu, cpus) => {
                write!(f, "CPU {cpu} does not exist: there are {cpus}; give each CPU a cell")
            }
            FenceError::Silent(cpu) => write!(
                f,
                "CPU {cpu} does not answer fences: its lists stay as they are until it does; \
                 if it is dead, declare it down"
            ),
        }
    }
}

impl core::error::Error for FenceError {}

/// What a fence needs of the kernel.
pub trait Signals {
    /// Sends the CPU the interrupt whose handler calls [`Fences::answer`]. May be lost or late.
    fn interrupt(&self, cpu: u32);
    /// Nanoseconds of a clock that never goes back. May stand still.
    fn now_ns(&self) -> u64;
    /// Called between two looks.
    fn relax(&self);
}

/// The cells of all CPUs, by CPU id.
#[derive(Clone, Copy, Debug)]
pub struct Fences<'a> {
    cells: &'a [FenceCell],
    patience: Patience,
}

impl<'a> Fences<'a> {
    /// Fences between as many CPUs as there are cells.
    pub const fn new(cells: &'a [FenceCell], patience: Patience) -> Fences<'a> {
        Fences { cells, patience }
    }

    fn cell(&self, cpu: u32) -> Result<&'a FenceCell, FenceError> {
        self.cells.get(cpu as usize).ok_or(FenceError::NoSuchCpu(cpu, self.cells.len()))
    }

    /// How many CPUs there may be.
    pub fn cpus(&self) -> usize {
        self.cells.len()
    }

    /// Whether the CPU is up.
    pub fn is_up(&self, cpu: u32) -> bool {
        // Acquire: pairs with the Release in `down`.
        self.cell(cpu).is_ok_and(|cell| cell.state.load(Ordering::Acquire) == UP)
    }

    /// Whether the CPU left a request unanswered and has not answered it since.
    pub fn is_silent(&self, cpu: u32) -> bool {
        // Relaxed: a hint; who relies on an answer acquires it.
        self.cell(cpu).is_ok_and(|cell| {
            cell.answered.load(Ordering::Relaxed) < cell.missed.load(Ordering::Relaxed)
        })
    }

    /// The running CPU comes up. On that CPU, with interrupts masked, before its first section.
    ///
    /// # Errors
    /// [`FenceError::NoSuchCpu`].
    pub fn up(&self, me: u32) -> Result<(), FenceError> {
        let cell = self.cell(me)?;
        // Relaxed: the fence below orders it (KFENCE-2).
        cell.state.store(UP, Ordering::Relaxed);
        // SeqCst: pairs with the one in `fence`.
        fence(Ordering::SeqCst);
        // What was asked of it before it went down has no section to wait for.
        self.answer(me);
        Ok(())
    }

    /// The CPU goes down: on that CPU behind its last section, with interrupts masked for good; or
    /// on another one, when nothing runs on it any more.
    ///
    /// # Errors
    /// [`FenceError::NoSuchCpu`].
    pub fn down(&self, cpu: u32) -> Result<(), FenceError> {
        // Release: pairs with the Acquire of a fence that waits (KFENCE-3).
        self.cell(cpu)?.state.store(DOWN, Ordering::Release);
        Ok(())
    }

    /// Answers what the running CPU was asked. In the handler of the interrupt, with interrupts
    /// masked, after an interrupted section was started over; and wherever the CPU waits, with
    /// interrupts masked since before `me` was read. Returns whether there was anything to answer.
    #[inline]
    pub fn answer(&self, me: u32) -> bool {
        let Ok(cell) = self.cell(me) else { return false };
        // Acquire: pairs with the AcqRel in `fence`; sections that begin later see the marks of
        // those who asked.
        let asked = cell.asked.load(Ordering::Acquire);
        // Relaxed: only this CPU answers, and its handlers nest.
        if cell.answered.load(Ordering::Relaxed) >= asked {
            return false;
        }
        // Release: pairs with the Acquire of a fence that waits. An answer never goes back: a
        // handler may have given a later one in between.
        cell.answered.fetch_max(asked, Ordering::Release);
        true
    }

    /// Returns once no section that began on `cpu` before the call can still commit. On CPU `me`,
    /// which answers requests while it waits: interrupts are masked since before `me` was read. The
    /// caller does not run in a section.
    ///
    /// # Errors
    /// [`FenceError`]: nothing is known about the CPU's sections.
    pub fn fence(&self, me: u32, cpu: u32, signals: &impl Signals) -> Result<(), FenceError> {
        let cell = self.cell(cpu)?;
        if cpu == me {
            // A section that was interrupted to get here starts over when the handler returns.
            return Ok(());
        }
        // SeqCst: pairs with the one in `up` (KFENCE-2).
        fence(Ordering::SeqCst);
        // Acquire: pairs with the Release in `down`.
        if cell.state.load(Ordering::Acquire) != UP {
            return Ok(());
        }
        // AcqRel: pairs with the Acquire in `answer`, which then has seen what is in front of it.
        let request = cell.asked.fetch_add(1, Ordering::AcqRel) + 1;
        let was_silent = self.is_silent(cpu);
        signals.interrupt(cpu);
        if was_silent {
            return self.look(cell, request).ok_or(FenceError::Silent(cpu));
        }
        self.wait(me, cell, request, signals).ok_or_else(|| {
            // Relaxed: a hint for those who ask later.
            cell.missed.fetch_max(request, Ordering::Relaxed);
            FenceError::Silent(cpu)
        })
    }

    /// Whether the request is answered, or needs no answer any more.
    fn look(&self, cell: &FenceCell, request: u64) -> Option<()> {
        // Acquire: pairs with the Releases in `answer` and `down`.
        let answered = cell.answered.load(Ordering::Acquire) >= request;
        (answered || cell.state.load(Ordering::Acquire) != UP).then_some(())
    }

    fn wait(&self, me: u32, cell: &FenceCell, request: u64, signals: &impl Signals) -> Option<()> {
        let start = signals.now_ns();
        for _ in 0..=self.patience.looks {
            if let Some(()) = self.look(cell, request) {
                return Some(());
            }
            self.answer(me);
            if signals.now_ns().saturating_sub(start) > self.patience.ns {
                break;
            }
            signals.relax();
        }
        // The answer may have come between the last look and the end of the time.
        self.look(cell, request)
    }
}
