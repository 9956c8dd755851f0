//! The core's platform: the running CPU, waiting for a lock, a clock, and a fence against sequences
//! on a CPU. Three platforms implement it: a process (rseq), the lab (virtual CPUs, virtual time)
//! and tests.

pub mod reclaimer;

use core::any::Any;

use crate::sync::Wait;
use crate::types::{CpuId, NodeId, ZoneId};
use reclaimer::Reclaimer;

/// Requirements of the core on its platform.
///
/// A reclaimer, and the functions about time, waiting and reclaim are called where nothing is half
/// done: [`now_ns`](Self::now_ns), [`relax`](Self::relax), [`wake_reclaim`](Self::wake_reclaim),
/// [`reclaim_progress`](Self::reclaim_progress), [`wait_for_progress`](Self::wait_for_progress),
/// [`wait_for_memory`](Self::wait_for_memory), [`reclaimer`](Self::reclaimer). They may call the
/// allocator, and a panic of theirs loses nothing; only
/// [`hold_all`](crate::alloc::Allocator::hold_all) has gates while it relaxes. The other functions,
/// and those of [`Wait`], are called with locks held and pages on their way: they call no
/// allocator, which might wait for itself, and do not panic. If one does, locks and gates open and
/// no page gets two owners, but those on their way may be nobody's from then on.
pub trait Platform: Wait + Sync {
    /// The policy, where it is fixed when compiled: [`Policy::fix`](crate::policy::Policy::fix)
    /// makes the value. The allocator then has no branches that only other policies take, and
    /// `Allocator::new` accepts no other.
    const POLICY: Option<FixedPolicy> = None;

    /// Whether CPU 0's pcps are the last ones of their table rather than the first, for sequences
    /// that count from its end ([`Layout::pcps`](crate::machine::Layout::pcps)).
    const PCPS_FROM_END: bool = false;

    /// Whether a CPU keeps the range that was freed last for the next request of its size. A
    /// platform that has no use for ranges leaves the code out.
    const KEEPS_RANGES: bool = true;

    /// Whether the platform charges for [`Step`]s. Of its short ways the core then takes only those
    /// whose steps are known once they have been gone.
    const CHARGES: bool = false;

    /// The CPU this thread runs on now, one of the machine's: an allocator that is told another one
    /// panics, or serves the call from lists of a CPU that there is. A hint: the thread may have
    /// moved when the call returns.
    fn cpu(&self) -> CpuId;

    /// Returns once no per-CPU section that began on `cpu` before the call can still commit.
    ///
    /// The caller has marked the pcp it is after, so sequences that begin later leave without
    /// committing. Asked only where [`has_sequences`](Self::has_sequences) says so. `false`: the
    /// platform cannot say so, and the caller must not touch the pcp.
    fn fence(&self, cpu: CpuId) -> bool;

    /// Whether fast operations run at all. Without them, closing a pcp needs no fence.
    fn has_sequences(&self) -> bool {
        false
    }

    /// Whether the core serves plain requests by pops and pushes under the gate of the running
    /// CPU's pcp, before it does anything else. Only asked where there are no sequences.
    fn uses_gates(&self) -> bool {
        true
    }

    /// Whether sequences are to end for good: a fence failed, and the next one may. A pcp that is
    /// closed from now on never opens to them again (PCP-7). Once true, it stays true.
    fn ends_sequences(&self) -> bool {
        false
    }

    /// Nanoseconds of a clock that never goes back.
    fn now_ns(&self) -> u64;

    /// Lets others run; called between the tries of a bounded wait.
    fn relax(&self) {
        core::hint::spin_loop();
    }

    /// The zone's node wants background reclaim: free pages fell below a watermark (LB D.6). Where
    /// the node has a reclaimer (`Allocator::background_start`), only while that sleeps: it is to
    /// take its next step now.
    fn wake_reclaim(&self, _node: NodeId, _zone: ZoneId, _order: u32) {}

    /// The node's background reclaimer has freed enough for requests that wait for it, or gave up.
    fn reclaim_progress(&self, _node: NodeId) {}

    /// A request waits until the node's background reclaimer reports progress, at most this many
    /// nanoseconds. May return early.
    fn wait_for_progress(&self, _node: NodeId, _most_ns: u64) {
        self.relax();
    }

    /// A request that must not be refused (`__GFP_NOFAIL`) found nothing: waits a moment for others
    /// to free memory. `false`: no other thread could free memory, and the request is refused.
    fn wait_for_memory(&self) -> bool {
        false
    }

    /// The reclaimer of memory from its users, if any.
    fn reclaimer(&self) -> Option<&dyn Reclaimer> {
        None
    }

    /// Cost hooks of the lab. They compile to nothing elsewhere.
    #[inline(always)]
    fn cost(&self, _step: Step) {}
}

/// A policy that is fixed when compiled. The layers below policies pass it on and cannot read it.
#[derive(Clone, Copy, Debug)]
pub struct FixedPolicy(&'static (dyn Any + Send + Sync));

impl FixedPolicy {
    pub(crate) const fn new(policy: &'static (dyn Any + Send + Sync)) -> FixedPolicy {
        FixedPolicy(policy)
    }
    #[inline]
    pub(crate) fn get<T: 'static>(self) -> Option<&'static T> {
        self.0.downcast_ref()
    }
}

/// Steps the lab charges for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A request looks at a zone's marks and its free-page counter.
    Scan(ZoneId),
    /// A zone lock is wanted.
    ZoneLock(ZoneId),
    /// It is taken now.
    ZoneLocked(ZoneId),
    /// It is about to be given back.
    ZoneUnlock {
        /// The zone.
        zone: ZoneId,
        /// Base pages that went into or out of its buddy meanwhile.
        pages: u32,
        /// Blocks that these pages were.
        blocks: u32,
        /// Different sizes that these blocks had.
        orders: u32,
    },
    /// Pages moved between a zone's buddy and a pcp.
    Moved {
        /// The zone.
        zone: ZoneId,
        /// Base pages.
        pages: u32,
    },
    /// Blocks of the buddy were split into this many for a pcp and its depot, with the zone lock
    /// free.
    Split {
        /// Blocks.
        blocks: u32,
    },
    /// A batch went to a depot or came from it.
    Depot {
        /// The zone.
        zone: ZoneId,
        /// The first CPU of those that share the depot.
        group: CpuId,
        /// Blocks.
        blocks: u32,
    },
    /// The lock of this CPU's pageblocks of a zone is about to be given back.
    OwnerUnlock {
        /// The zone.
        zone: ZoneId,
        /// The CPU that owns them.
        owner: CpuId,
        /// Base pages that went into or out of them meanwhile.
        pages: u32,
        /// Blocks that these pages were.
        blocks: u32,
    },
    /// The running CPU changed its deltas of a zone's counters.
    Update {
        /// The zone.
        zone: ZoneId,
        /// How, each time.
        by: Instruction,
        /// How often.
        times: u32,
    },
    /// Shared counters were written.
    Fold(Line),
    /// A reader looked at a CPU's deltas of a zone.
    Collect {
        /// The zone.
        zone: ZoneId,
        /// The CPU.
        cpu: CpuId,
        /// It took them with an exchange, which writes the CPU's line.
        taken: bool,
    },
    /// A work item was queued on this CPU, to empty its pcps (LB E.9, up to 5.19).
    DrainWork(CpuId),
    /// This CPU's pcp of a zone is emptied by another CPU (LB E.9, 6.0 on).
    DrainRemote(ZoneId, CpuId),
}

/// Instructions of an update of a per-CPU delta (LB F.3, F.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Instruction {
    /// Load, add, compare with the threshold, store.
    Plain,
    /// The same with preemption off around it.
    PreemptOff,
    /// The same with interrupts masked around it.
    Masked,
    /// A loop around an unlocked compare-and-exchange.
    Cmpxchg,
    /// One increment in memory, then a compare.
    LocalInc,
    /// One addition in memory and nothing else: event counters, and NUMA events since 5.14.
    Add,
}

/// Shared counters that may lie on one line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Line {
    /// A zone's items, the free-page counter among them: every test of a watermark reads it.
    Zone(ZoneId),
    /// A zone's NUMA events, where they are not items of the zone.
    ZoneNuma(ZoneId),
    /// The sums over all zones.
    Machine,
    /// The sums of NUMA events over all zones.
    MachineNuma,
}
