//! The world, as the core sees it: which CPU am I, wait for a lock, a clock, and "nobody is inside
//! a per-CPU section on that CPU any more". Three homes implement it: a process (rseq), the lab
//! (virtual CPUs, virtual time) and tests.

use crate::sync::Wait;
use crate::types::{CpuId, NodeId, ZoneId};

/// What the core asks of its home.
pub trait Platform: Wait + Sync {
    /// The CPU this thread runs on now. A hint: the thread may have moved when the call returns.
    fn cpu(&self) -> CpuId;

    /// Returns once no per-CPU section that began on `cpu` before the call can still commit.
    ///
    /// The caller has marked the store it is after, so sections that begin later leave without
    /// committing. Asked only where [`has_sections`](Self::has_sections) says so. `false`: the home
    /// cannot say so, and the caller must not touch the store.
    fn fence(&self, cpu: CpuId) -> bool;

    /// Whether fast operations run at all. Without them, closing a store needs no fence.
    fn has_sections(&self) -> bool {
        false
    }

    /// Nanoseconds of a clock that never goes back.
    fn now_ns(&self) -> u64;

    /// Lets others run; called between the tries of a bounded wait.
    fn relax(&self) {
        core::hint::spin_loop();
    }

    /// The zone's node wants background reclaim: free pages fell below a mark (LB D.6).
    fn wake_reclaim(&self, _node: NodeId, _zone: ZoneId, _order: u32) {}

    /// Cost hooks of the lab. They compile to nothing elsewhere.
    #[inline(always)]
    fn cost(&self, _step: Step) {}
}

/// Steps the lab charges for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A zone lock was taken.
    ZoneLock(ZoneId),
    /// Pages moved between a zone's buddy and a per-CPU store.
    Moved {
        /// The zone.
        zone: ZoneId,
        /// Base pages.
        pages: u32,
    },
    /// A per-CPU delta was folded into a zone's counters.
    Fold(ZoneId),
}

/// Compiles and runs the home in the guide to porting.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/PORTING.md")]
struct PortingGuide;
