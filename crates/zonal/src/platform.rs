//! The process as the core's platform: which CPU, how to wait, and how to be sure that nobody is
//! inside a per-CPU section.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use zonal_core::platform::Platform;
use zonal_core::platform::reclaimer::Reclaimer;
use zonal_core::sync::{LockWord, Wait};
use zonal_core::types::{CpuId, NodeId, ZoneId};

use crate::reclaim::{Bells, Registry, is_inside};
use crate::sys::membarrier::RseqFence;
use crate::sys::rseq_abi::{RseqArea, getcpu};
use crate::sys::{clock, futex};

/// How long a request that must not fail waits between two looks.
const NOFAIL_WAIT: Duration = Duration::from_millis(1);

/// How a pool's pcps are kept consistent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Restartable sequences: no lock, no atomic read-modify-write on the way of a hot operation.
    Rseq,
    /// A lock per store. The text says why restartable sequences are not used.
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
    /// Keeps sequences out of a pcp, where restartable sequences are used.
    sequences: Option<RseqFence>,
    cpus: u32,
    consumers: Arc<Registry>,
    bells: Bells,
    fences: AtomicU64,
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
        ProcessPlatform { area, sequences, cpus, consumers, bells, fences: AtomicU64::new(0) }
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

    pub(crate) fn area(&self) -> Option<RseqArea> {
        self.area
    }
}

impl Wait for ProcessPlatform {
    fn wait(&self, word: &LockWord, value: u32) {
        // However the wait ends, the caller looks at the word again.
        let _ = futex::wait(futex::word_of(word), value, None);
    }
    fn wake_one(&self, word: &LockWord) {
        let _ = futex::wake_one(futex::word_of(word));
    }
}

impl Platform for ProcessPlatform {
    #[inline]
    fn cpu(&self) -> CpuId {
        let cpu = match self.area {
            Some(area) => area.current_cpu(),
            None => getcpu().0,
        };
        // A CPU that came up after the pool was made shares the pcps of another.
        CpuId(if cpu < self.cpus { cpu } else { cpu % self.cpus })
    }

    fn has_sequences(&self) -> bool {
        self.sequences.is_some()
    }

    /// On the CPU itself nothing is needed: whoever was inside a sequence there was preempted to
    /// let this thread run, and the kernel restarts it. Elsewhere the kernel is asked to interrupt.
    #[inline]
    fn fence(&self, cpu: CpuId) -> bool {
        let (Some(area), Some(fence)) = (self.area, self.sequences) else { return true };
        if area.current_cpu() == cpu.0 {
            return true;
        }
        self.fences.fetch_add(1, Relaxed);
        fence.fence_cpu(cpu).is_ok() || fence.fence_all().is_ok()
    }

    fn now_ns(&self) -> u64 {
        clock::monotonic_ns()
    }

    fn relax(&self) {
        std::thread::yield_now();
    }

    fn wake_reclaim(&self, node: NodeId, _zone: ZoneId, _order: u32) {
        // Without consumers, and in a forked child, nobody listens.
        if self.consumers.is_used() {
            self.bells.of(node).ring();
        }
    }

    fn reclaim_progress(&self, node: NodeId) {
        self.bells.of(node).tell();
    }

    fn wait_for_progress(&self, node: NodeId, most_ns: u64) {
        self.bells.of(node).wait(Duration::from_nanos(most_ns));
    }

    fn wait_for_memory(&self) -> bool {
        // Inside a consumer nobody is waited for, who might wait for this call.
        if is_inside() {
            return false;
        }
        std::thread::sleep(NOFAIL_WAIT);
        true
    }

    fn reclaimer(&self) -> Option<&dyn Reclaimer> {
        self.consumers.is_used().then_some(&*self.consumers)
    }
}
