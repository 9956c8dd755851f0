//! The process as the core's platform: which CPU, how to wait, and how to ensure that no thread is
//! inside a per-CPU section.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use zonal_core::platform::Platform;
#[cfg(feature = "stalls")]
use zonal_core::platform::Step;
use zonal_core::platform::reclaimer::Reclaimer;
use zonal_core::sync::{LockWord, Wait};
use zonal_core::types::{CpuId, NodeId, ZoneId};

use crate::reclaim::{Bells, Registry, is_inside};
use crate::stalls::{self, Doing};
use crate::sys::affinity;
use crate::sys::membarrier::RseqFence;
use crate::sys::rdpid::Rdpid;
use crate::sys::rseq_abi::{RseqArea, getcpu};
use crate::sys::slice::Slices;
use crate::sys::{clock, futex};

/// How long a request that must not fail waits between two looks.
const NOFAIL_WAIT: Duration = Duration::from_millis(1);

/// How a pool's pcps are kept consistent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Restartable sequences: no lock, no atomic read-modify-write on the way of a hot operation.
    Rseq,
    /// A lock per CPU's lists. The text says why restartable sequences are not used: the system has
    /// none or refuses them, or the pool's options leave nothing to them.
    Lock(String),
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mode::Rseq => f.write_str("rseq"),
            Mode::Lock(why) => write!(f, "lock ({why})"),
        }
    }
}

/// The platform of a pool: what the core's [`Allocator`](zonal_core::alloc::Allocator) runs on.
#[derive(Debug)]
pub struct ProcessPlatform {
    /// Where this process' threads can read their CPU, if the kernel says it there.
    area: Option<RseqArea>,
    /// What tells it where there is no such place.
    rdpid: Option<Rdpid>,
    /// Keeps sequences out of a pcp, where restartable sequences are used.
    sequences: Option<RseqFence>,
    /// More time for a thread that has a pcp closed, where the kernel offers it.
    slices: Option<Slices>,
    cpus: u32,
    consumers: Arc<Registry>,
    bells: Bells,
    fences: AtomicU64,
    /// A fence was refused, and no pcp opens to sequences any more once it was closed (PCP-7).
    refused: AtomicBool,
    #[cfg(test)]
    faults: faults::Faults,
}

impl ProcessPlatform {
    pub(crate) fn new(
        area: Option<RseqArea>,
        sequences: Option<RseqFence>,
        cpus: u32,
        consumers: Arc<Registry>,
        nodes: usize,
    ) -> ProcessPlatform {
        let bells = Bells::new(nodes);
        ProcessPlatform {
            area,
            rdpid: if area.is_none() { Rdpid::find() } else { None },
            sequences,
            slices: area.and_then(Slices::offered),
            cpus,
            consumers,
            bells,
            fences: AtomicU64::new(0),
            refused: AtomicBool::new(false),
            #[cfg(test)]
            faults: faults::Faults::default(),
        }
    }

    pub(crate) fn bells(&self) -> &Bells {
        &self.bells
    }

    pub(crate) fn consumers(&self) -> &Arc<Registry> {
        &self.consumers
    }

    /// Times another CPU had to be interrupted to own its pcp (membarrier).
    pub fn fences(&self) -> u64 {
        self.fences.load(Relaxed)
    }

    /// Whether a fence was refused after the pool was made.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused.load(Relaxed)
    }

    /// Asks the kernel to interrupt sequences on `cpu`.
    fn interrupt(&self, cpu: CpuId, fence: RseqFence) -> bool {
        #[cfg(test)]
        if !self.faults.grants(self.fences()) {
            return false;
        }
        fence.fence_cpu(cpu).is_ok() || fence.fence_all().is_ok()
    }

    /// Lets this thread be on `cpu` for a moment.
    fn visit(&self, cpu: CpuId) -> bool {
        #[cfg(test)]
        if !self.faults.grants_visits() {
            return false;
        }
        affinity::visit(cpu)
    }

    #[cfg(test)]
    pub(crate) fn faults(&self) -> &faults::Faults {
        &self.faults
    }

    pub(crate) fn area(&self) -> Option<RseqArea> {
        self.area
    }

    /// The CPU that the thread runs on, as of now, where it is known without a call. No CPU has the
    /// number of a thread that is not registered (RSEQ-3).
    #[inline(always)]
    pub(crate) fn told_cpu(&self) -> Option<u32> {
        match self.area {
            Some(area) => Some(area.current_cpu()),
            None => self.rdpid.map(Rdpid::cpu),
        }
    }

    /// Whether [`told_cpu`](Self::told_cpu) has an answer.
    pub(crate) fn tells_cpu(&self) -> bool {
        self.area.is_some() || self.rdpid.is_some()
    }

    /// The CPU of a thread whose `cpu` has no pcps: it is not registered (RSEQ-3), or came up after
    /// the pool was made and shares the pcps of another.
    #[cold]
    fn other_cpu(&self, cpu: u32) -> u32 {
        let cpu = match self.area {
            Some(area) if (cpu as i32) < 0 => area.joined_cpu(),
            _ => cpu,
        };
        cpu % self.cpus
    }
}

impl Wait for ProcessPlatform {
    const MASKS_FAST: bool = false;

    fn wait(&self, word: &LockWord, value: u32) {
        // However the wait ends, the caller looks at the word again.
        let _ = futex::wait(futex::word_of(word), value, None);
    }
    fn wake_one(&self, word: &LockWord) {
        let _ = futex::wake_one(futex::word_of(word));
    }
    /// Signal handlers take no lock here. What may be kept off is the end of the thread's time.
    #[inline(always)]
    fn mask(&self) -> usize {
        // 0: nothing to give back, so `unmask` looks no further where the kernel offers nothing.
        self.slices.map_or(0, |slices| usize::from(!slices.begin()))
    }
    #[inline(always)]
    fn unmask(&self, was: usize) {
        // SLICE-2: who closes a pcp or locks a zone unmasks before it returns.
        if was != 0
            && let Some(slices) = self.slices
        {
            slices.end(false);
        }
    }
}

impl Platform for ProcessPlatform {
    const PCPS_FROM_END: bool = true;

    #[inline]
    fn cpu(&self) -> CpuId {
        let cpu = self.told_cpu().unwrap_or_else(|| getcpu().0);
        CpuId(if cpu < self.cpus { cpu } else { self.other_cpu(cpu) })
    }

    fn has_sequences(&self) -> bool {
        self.sequences.is_some()
    }

    /// On the CPU itself nothing is needed: whoever was inside a sequence there was preempted to
    /// let this thread run, and the kernel restarts it. Elsewhere the kernel is asked to interrupt;
    /// where it refuses, this thread goes there.
    #[inline]
    fn fence(&self, cpu: CpuId) -> bool {
        let (Some(area), Some(fence)) = (self.area, self.sequences) else { return true };
        if area.current_cpu() == cpu.0 {
            return true;
        }
        self.fences.fetch_add(1, Relaxed);
        let _span = stalls::span(Doing::Fence);
        if self.interrupt(cpu, fence) {
            return true;
        }
        // Relaxed: who does not see it yet opens a pcp to sequences once more, and the next closing
        // of that one finds out.
        self.refused.store(true, Relaxed);
        self.visit(cpu)
    }

    fn ends_sequences(&self) -> bool {
        self.is_refused()
    }

    fn now_ns(&self) -> u64 {
        clock::monotonic_ns()
    }

    fn relax(&self) {
        let _span = stalls::span(Doing::Yield);
        std::thread::yield_now();
    }

    fn wake_reclaim(&self, node: NodeId, _zone: ZoneId, _order: u32) {
        // Without consumers, and in a forked child, no reclaimer listens.
        if self.consumers.is_used() {
            self.bells.of(node).ring();
        }
    }

    fn reclaim_progress(&self, node: NodeId) {
        self.bells.of(node).tell();
    }

    fn wait_for_progress(&self, node: NodeId, most_ns: u64) {
        let _span = stalls::span(Doing::Memory);
        self.bells.of(node).wait(Duration::from_nanos(most_ns));
    }

    fn wait_for_memory(&self) -> bool {
        // Inside a consumer, never wait for another call: it might wait for this one.
        if is_inside() {
            return false;
        }
        let _span = stalls::span(Doing::Memory);
        std::thread::sleep(NOFAIL_WAIT);
        true
    }

    fn reclaimer(&self) -> Option<&dyn Reclaimer> {
        self.consumers.is_used().then_some(&*self.consumers)
    }

    #[cfg(feature = "stalls")]
    #[inline]
    fn cost(&self, step: Step) {
        stalls::step(step);
    }
}

/// Fences that are refused on purpose.
#[cfg(test)]
mod faults {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

    #[derive(Debug)]
    pub(crate) struct Faults {
        /// Fences that are granted, the first ones.
        left: AtomicU64,
        visits: AtomicBool,
    }

    impl Default for Faults {
        fn default() -> Faults {
            Faults { left: AtomicU64::new(u64::MAX), visits: AtomicBool::new(true) }
        }
    }

    impl Faults {
        /// From now on only the first `left` fences of the pool are granted, and visits or not.
        pub(crate) fn set(&self, left: u64, visits: bool) {
            self.left.store(left, Relaxed);
            self.visits.store(visits, Relaxed);
        }
        /// Whether the fence with this number, counted from 1, is granted.
        pub(super) fn grants(&self, number: u64) -> bool {
            number <= self.left.load(Relaxed)
        }
        pub(super) fn grants_visits(&self) -> bool {
            self.visits.load(Relaxed)
        }
    }
}
