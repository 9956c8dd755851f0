//! Taking memory back from its users, as the core asks for it (LB G.3, H.4). The platform knows who
//! uses what; the core decides when it asks, how hard, and what follows from the answer.
//!
//! Calls come from inside an allocation, with no lock held and no pcp closed: a reclaimer frees
//! pages like any caller. It may allocate too, if it says so in
//! [`is_reclaiming`](Reclaimer::is_reclaiming), so that reclaim does not call itself.

use crate::gfp::Gfp;
use crate::types::{NodeId, Order, ZoneId, ZoneKind};

/// A part of the machine that is reclaimed as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// A node (since 4.8).
    Node(NodeId),
    /// A zone (up to 4.7).
    Zone(ZoneId),
}

/// Reclaimable pages of a unit, in base pages. All zero: nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Holdings {
    /// Pages of files (`NR_FILE_PAGES`).
    pub file: u64,
    /// Of these, pages not used lately.
    pub inactive_file: u64,
    /// Of these, pages used lately.
    pub active_file: u64,
    /// Of these, pages that a process has mapped.
    pub file_mapped: u64,
    /// Of these, pages that must be written first.
    pub file_dirty: u64,
    /// Anonymous pages that could be swapped; 0 without swap.
    pub anon: u64,
    /// Pages of reclaimable objects (`slab_reclaimable`).
    pub slab: u64,
    /// Repeated passes found nothing to free. Looked at for zones only (up to 4.7).
    pub all_unreclaimable: bool,
}

/// Who asks for a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// The node's background reclaimer (LB H.3). Only it writes dirty pages of files (LB H.6).
    Background,
    /// A request for which no zone has room (LB H.4).
    Direct,
    /// A request whose zone is below its watermark, before it tries the next one (LB G.3).
    NodeReclaim,
}

/// Result of a pass, in base pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shrunk {
    /// Pages of lists looked at.
    pub scanned: u64,
    /// Of these, pages freed.
    pub reclaimed: u64,
    /// Pages that caches of objects freed.
    pub slab: u64,
}

impl Shrunk {
    /// The sum of two.
    pub fn plus(self, other: Shrunk) -> Shrunk {
        Shrunk {
            // A platform's figures need not add up.
            scanned: self.scanned.saturating_add(other.scanned),
            reclaimed: self.reclaimed.saturating_add(other.reclaimed),
            slab: self.slab.saturating_add(other.slab),
        }
    }

    /// All pages freed.
    pub fn freed(self) -> u64 {
        self.reclaimed.saturating_add(self.slab)
    }
}

/// One pass over a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pass {
    /// Who asks.
    pub by: By,
    /// What to go through.
    pub unit: Unit,
    /// How hard to try: a pass looks at a `2^priority`-th part of the unit's pages.
    pub priority: u32,
    /// Base pages after which the pass may end.
    pub wanted: u64,
    /// Flags of the request that needs the pages.
    pub gfp: Gfp,
    /// Its order.
    pub order: Order,
    /// The highest zone kind that it can use.
    pub highest: ZoneKind,
    /// Dirty pages may be written.
    pub may_write: bool,
    /// Mapped pages may be unmapped.
    pub may_unmap: bool,
    /// Anonymous pages may be swapped.
    pub may_swap: bool,
}

/// A request that is about to be refused (LB D.5 `may_oom`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfMemory {
    /// Its flags.
    pub gfp: Gfp,
    /// Its order.
    pub order: Order,
    /// The node that it prefers.
    pub node: NodeId,
}

/// Memory that a platform can reclaim.
pub trait Reclaimer {
    /// Contents of the unit now.
    fn holdings(&self, unit: Unit) -> Holdings;

    /// Pages of objects whose node is not known. [`holdings`](Self::holdings) has them under node
    /// 0; a pass over any node may free them.
    fn anywhere(&self) -> u64 {
        0
    }

    /// Whether pages of the node that are dirty or being written are few enough for one more,
    /// where `free` pages of it are free beyond its reserves (LB D.4, `node_dirty_ok`): the limit
    /// is the platform's. Asked for requests with `__GFP_WRITE`.
    fn may_dirty(&self, _node: NodeId, _free: u64) -> bool {
        true
    }

    /// Makes one pass over the unit's pages.
    fn shrink(&self, pass: &Pass) -> Shrunk;

    /// Makes one pass over the caches of objects; asked where the unit is a zone. Returns the
    /// objects freed, of any zone; the effect on this zone shows in its [`slab`](Holdings::slab).
    fn shrink_slab(&self, _pass: &Pass) -> u64 {
        0
    }

    /// Nothing that could be reclaimed or drained is left for the request: frees something by any
    /// means. Called last, by one thread at a time or not, as the platform likes. Returns whether
    /// the request is worth another try.
    fn out_of_memory(&self, _request: &OutOfMemory) -> bool {
        false
    }

    /// Objects of caches looked at so far (`slabs_scanned`).
    fn objects_scanned(&self) -> u64 {
        0
    }

    /// Whether the calling thread is inside a call of this trait (`PF_MEMALLOC`): its requests may
    /// go below every watermark and do not reclaim.
    fn is_reclaiming(&self) -> bool {
        false
    }
}
