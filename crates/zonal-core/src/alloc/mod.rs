//! The allocator: requests in, blocks out, over all zones, stores and nodes of one machine.
//!
//! ```text
//!  alloc ── scan (LB D.4) ── zone passes its mark? ── store of this CPU ── pop ──────────► block
//!    │                            │ no                     │ empty
//!    │                        next zone               refill under the zone lock (LB E.6)
//!    └─ slow (LB D.5): wake the reclaimer, min mark, reclaim, drain every store, exact refusal
//! ```
//! | file | does | LB |
//! |--|--|--|
//! | `request` | requests and refusals | D.1 |
//! | `setup` | makes an allocator; memory comes online; marks, sizes, thresholds | A, C, E.4, F.2 |
//! | `pagesets` | sizes of the stores; CPUs come and go | E.4, E.11 |
//! | `deferred` | memory that comes online while requests are served | A.8 |
//! | `scan` | the walk over a zonelist | D.4 |
//! | `scan/zlc` | the same with the zonelist cache | G.5, G.6 |
//! | `reclaim` | room made in a node, and by direct reclaim | D.4, D.5, G.3 |
//! | `background` | the background reclaimer of a node, step by step | H.2, H.3 |
//! | `widen` | marks further apart while a node is short again and again | C.2 |
//! | `slow` | what happens when the walk finds nothing | D.5 |
//! | `take` | one block from a store or a buddy | D.4 `rmqueue`, E.6 |
//! | `free` | one block back | E.7 |
//! | `bulk` | many order-0 pages in one hold | D.9 |
//! | `blocks` | whole blocks in the bulk calls | |
//! | `depot` | whole batches between stores and zones | |
//! | `drain` | stores back to their zones: limits, decay, remote, all | E.8, E.9, F.4 |
//! | `counters` | refresh, thresholds, the free-page counter near the marks | F.2, F.4 |
//! | `numa` | NUMA events, in every storage | F.6, F.7 |
//! | `stats` | what the allocator has done | |
//! | `areas` | free blocks by order and migratetype | I.2 |
//! | `validate` | walks everything | |
//!
//! # Lock order
//! store gate, then zone lock. Two gates are never held at once, nor two zone locks, but for
//! `hold_all`, which takes all gates and then all zone locks, each in the order of its table.

mod areas;
mod background;
mod blocks;
mod bulk;
mod counters;
mod deferred;
mod depot;
mod drain;
pub mod explain;
mod free;
mod numa;
mod pagesets;
mod reclaim;
mod request;
mod run;
mod scan;
mod setup;
mod slow;
mod stats;
mod take;
#[cfg(test)]
mod tests;
mod validate;
mod widen;

pub use areas::{FreeAreas, LISTED_BLOCKS_MAX};
pub use background::{BackgroundReclaimer, NAP_NS, Next};
pub use drain::Held;
pub use request::{AllocError, FreeError, Refusal, Request};
pub use setup::{OnlineError, Sysctl, SysctlError};
pub use stats::{NumaEvents, ZoneStats};
pub use validate::Fault;
pub use widen::WOKEN_SOON_NS;

use core::fmt;

use crate::buddy::FallbackPolicy;
use crate::frame::{PageState, PageWord, StoreId};
use crate::gfp::ZoneKinds;
use crate::machine::StoreOrder;
use crate::pcp::lists::ListMap;
use crate::pcp::store::Pcp;
use crate::pcp::tune::{PcpParams, Pressure};
use crate::platform::Platform;
use crate::policy::Policy;
use crate::reclaim::ReclaimControl;
use crate::sync::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::types::{CpuId, Migratetype, NodeId, Order, Pfn, ZoneId};
use crate::vmstat::numa::NumaDeltas;
use crate::zone::state::{BELOW_HIGH, RECLAIM_ACTIVE, Zone};
use crate::zonelist::Node;

/// Events that happen too rarely to need a counter per CPU.
#[derive(Debug, Default)]
struct Events {
    slow_paths: AtomicU64,
    failures: AtomicU64,
    drains_all: AtomicU64,
    claims: AtomicU64,
    steals: AtomicU64,
    /// Not an event but a state: blocks that `isolate_block` has out.
    isolated: AtomicU64,
}

/// An allocator over caller-owned metadata. Shared between threads by reference.
pub struct Allocator<'a, P> {
    platform: P,
    policy: Policy,
    grouping: bool,
    kinds: ZoneKinds,
    map: ListMap,
    /// Constants of the tuning; the rest is each store's own.
    fixed: PcpParams,
    fallback: FallbackPolicy,
    zones: &'a [Zone],
    pcps: &'a [Pcp],
    words: &'a [AtomicU64],
    blocks: &'a [AtomicU8],
    slots: &'a [AtomicU32],
    nodes: &'a [Node],
    zonelist: &'a [ZoneId],
    distances: &'a [u8],
    cpu_nodes: &'a [NodeId],
    cache_slice_bytes: u64,
    min_free_kbytes: AtomicU32,
    min_free_user: AtomicU64,
    scale_factor: AtomicU32,
    boost_factor: AtomicU32,
    high_fraction: AtomicU32,
    lowmem_ratio: [AtomicU32; crate::types::NR_ZONE_KINDS],
    /// Deltas of NUMA events, a CPU's zones side by side; empty where none are recorded.
    numa: &'a [NumaDeltas],
    /// `vm.numa_stat`: 1 while NUMA events are counted.
    numa_on: AtomicU32,
    stat_interval_ns: AtomicU64,
    defrag_mode: AtomicU32,
    reclaim: ReclaimControl,
    /// Zones with memory to come; 0 once all is there.
    growing: AtomicU32,
    /// 1 once the per-CPU stores have sizes.
    sized: AtomicU32,
    events: Events,
}

/// A line that does not grow with the machine.
impl<P> fmt::Debug for Allocator<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocator")
            .field("policy", &self.policy.name)
            .field("nodes", &self.nodes.len())
            .field("zones", &self.zones.len())
            .field("cpus", &self.cpu_nodes.len())
            .field("frames", &self.words.len())
            .finish_non_exhaustive()
    }
}

impl<'a, P: Platform> Allocator<'a, P> {
    /// The home.
    pub fn platform(&self) -> &P {
        &self.platform
    }
    /// The policy it was made with.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }
    /// Whether pageblocks are grouped by mobility.
    pub fn grouping(&self) -> bool {
        self.grouping
    }
    /// All populated zones.
    pub fn zones(&self) -> &'a [Zone] {
        self.zones
    }
    /// The node of each CPU.
    pub fn cpu_nodes(&self) -> &'a [NodeId] {
        self.cpu_nodes
    }
    /// CPUs of the machine.
    pub fn cpus(&self) -> usize {
        self.cpu_nodes.len()
    }
    /// Nodes of the machine.
    pub fn nodes(&self) -> &'a [Node] {
        self.nodes
    }
    /// Distance between two nodes (LB A.3).
    pub fn distance(&self, from: NodeId, to: NodeId) -> u8 {
        self.distances[from.0 as usize * self.nodes.len() + to.0 as usize]
    }
    /// The list that blocks of an (order, migratetype) wait on.
    pub fn lists(&self) -> &ListMap {
        &self.map
    }
    /// What a frame's word says now; a frame that does not exist is in no block. `frame` counts as
    /// the table of words does (`Zone::frame_base`).
    pub fn frame_state(&self, frame: usize) -> PageState {
        // Relaxed: a figure for reports; owners change words at any time.
        let word = self.words.get(frame).map_or(0, |word| word.load(Relaxed));
        PageWord(word).state()
    }
    /// The table of frame words.
    #[cfg(test)]
    pub(crate) fn words(&self) -> &'a [AtomicU64] {
        self.words
    }
    /// The zones that requests of a node try, in order.
    pub fn zonelist(&self, node: NodeId, this_node: bool) -> &'a [ZoneId] {
        self.nodes[node.0 as usize].zonelist(self.zonelist, this_node)
    }

    /// The node of a CPU.
    pub fn node_of(&self, cpu: CpuId) -> NodeId {
        self.cpu_nodes[cpu.0 as usize]
    }

    /// The store of a (zone, CPU).
    #[inline]
    pub fn pcp(&self, zone: ZoneId, cpu: CpuId) -> &'a Pcp {
        &self.pcps[self.store_index(0, zone, cpu)]
    }

    /// The store for pages of a (zone, CPU) that are in no cache, where the policy has one.
    pub fn cold_pcp(&self, zone: ZoneId, cpu: CpuId) -> Option<&'a Pcp> {
        let exists = self.policy.pcp.free_lists.sets() > 1;
        exists.then(|| &self.pcps[self.store_index(1, zone, cpu)])
    }

    /// All stores of a (zone, CPU).
    pub fn stores(&self, zone: ZoneId, cpu: CpuId) -> impl Iterator<Item = &'a Pcp> + use<'a, P> {
        core::iter::once(self.pcp(zone, cpu)).chain(self.cold_pcp(zone, cpu))
    }

    /// The store for a page that is in a cache or not.
    #[inline]
    fn store_for(&self, zone: ZoneId, cpu: CpuId, cold: bool) -> &'a Pcp {
        let store = if cold { self.cold_pcp(zone, cpu) } else { None };
        store.unwrap_or_else(|| self.pcp(zone, cpu))
    }

    /// The delta of the free-page counter that a store's moves are booked on: its CPU's.
    #[inline]
    fn free_diff(&self, pcp: &Pcp) -> &'a AtomicI64 {
        &self.pcp(pcp.zone, pcp.cpu).free_diff
    }

    #[inline]
    fn store_index(&self, set: usize, zone: ZoneId, cpu: CpuId) -> usize {
        let sets = self.policy.pcp.free_lists.sets();
        let order = StoreOrder { sets, cpus: self.cpu_nodes.len(), zones: self.zones.len() };
        order.position(set, cpu.0 as usize, self.rank(zone, cpu))
    }

    /// How many zones lie between the one that a CPU prefers and this one, going round.
    #[inline]
    fn rank(&self, zone: ZoneId, cpu: CpuId) -> usize {
        let preferred = self.preferred_zone(cpu).0 as usize;
        let zone = zone.0 as usize;
        if zone >= preferred { zone - preferred } else { zone + self.zones.len() - preferred }
    }

    /// The name of a (zone, CPU)'s store.
    fn store_id(&self, zone: ZoneId, cpu: CpuId) -> StoreId {
        StoreId { cpu, rank: self.rank(zone, cpu) as u16 }
    }

    /// The zone that ordinary requests (`GFP_KERNEL`) of a CPU try first.
    pub fn preferred_zone(&self, cpu: CpuId) -> ZoneId {
        self.nodes[self.node_of(cpu).0 as usize].preferred()
    }

    #[inline]
    fn zone(&self, id: ZoneId) -> &'a Zone {
        &self.zones[id.0 as usize]
    }

    /// The zone of a page, by search: zones are sorted and do not overlap.
    #[inline]
    fn zone_of(&self, pfn: Pfn) -> Option<&'a Zone> {
        let after = self.zones.partition_point(|zone| zone.start_pfn <= pfn.0);
        let zone = &self.zones[after.checked_sub(1)?];
        zone.contains(pfn).then_some(zone)
    }

    /// The frame number of a page in the table of all frames.
    #[inline]
    fn frame(&self, zone: &Zone, pfn: Pfn) -> u32 {
        (zone.frame_base as u64 + (pfn.0 - zone.start_pfn)) as u32
    }

    #[inline]
    fn pressure(&self, zone: &Zone) -> Pressure {
        let flags = zone.fast.load(Relaxed);
        Pressure {
            below_high: flags & BELOW_HIGH != 0,
            reclaim_active: flags & RECLAIM_ACTIVE != 0,
        }
    }

    /// Whether exactly this block is handed out.
    pub fn is_allocated(&self, pfn: Pfn, order: Order) -> bool {
        let Some(zone) = self.zone_of(pfn) else { return false };
        let word = PageWord(self.words[self.frame(zone, pfn) as usize].load(Relaxed));
        matches!(word.state(), PageState::Allocated { order: held, .. } if held == order)
    }

    /// The migratetype of the pageblock a frame is in.
    #[inline]
    fn pageblock_type(&self, zone: &Zone, pfn: Pfn) -> Migratetype {
        let block = (pfn.0 >> 9) - (zone.start_pfn >> 9);
        let index = self.blocks[zone.block_base + block as usize].load(Relaxed);
        Migratetype::new(u32::from(index)).unwrap_or(Migratetype::Unmovable)
    }
}
