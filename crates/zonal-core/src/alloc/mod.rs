//! The allocator: requests in, blocks out, over all zones, pcps and nodes of one machine.
//!
//! ```text
//!  alloc ── walk (LB D.4) ── zone passes its watermark? ── pcp of this CPU ── pop ────────► block
//!    │                            │ no                     │ empty
//!    │                        next zone               refill under the zone lock (LB E.6)
//!    └─ slow (LB D.5): wake the reclaimer, min watermark, reclaim, drain every pcp, exact refusal
//! ```
//! # Roles
//! [`Allocator`] is the way in. The work is done by roles, each about one thing: they are small
//! values that refer to the tables and name the thing. A role uses those above it in this table and
//! none below; a request passes them once, downward:
//!
//! | role | is about | does |
//! |--|--|--|
//! | `tables` | the machine | finds records; policy, values of sysctls (`tunables`), rare events |
//! | `zone_ops` | a zone | buddy, depots and counters under the zone lock |
//! | `pcp_ops` | a closed pcp | refills, drains, pushes; whole magazines and blocks |
//! | `cpu_ops` | a CPU | takes and frees blocks; drains and refreshes its pcps |
//! | `limits` | what memory, CPUs and sysctls decide | watermarks, reserves, sizes, thresholds |
//! | `growth` | memory that comes online | sections, by workers, on demand (LB A.8); `handover` |
//! | `node_ops` | a node | node reclaim, the background reclaimer |
//! | `search` | a request | the walk over zones, the slow path, direct reclaim |
//!
//! In front of them `fast` serves what needs no decision from the running CPU's own pcp, and
//! `own_blocks` from the pageblocks that it owns; `bulk` serves many single pages in one hold of a
//! pcp, and `range` hands out pages in a row, of any number, on top of `search` and `zone_ops`.
//! `recorded` tells what a recorded kernel's reclaimer did to lists and watermarks.
//!
//! Beside them `stats` and `areas` show figures, `explain` follows a request's walk and changes
//! nothing, and `validate` walks everything.
//!
//! # Lock order
//! pcp gate, then zone lock, then lock of an owner of pageblocks. Two of one kind are never held at
//! once, except by [`Allocator::hold_all`], which takes all gates, then all zone locks, then all
//! owners' locks, each in the order of its table.

mod areas;
mod bulk;
#[cfg(feature = "history")]
#[path = "../history/alloc/cold.rs"]
mod cold;
mod cpu_ops;
pub mod explain;
mod fast;
pub mod forked;
mod growth;
mod handover;
mod held;
pub mod hot;
mod limits;
mod node_ops;
mod own;
mod own_blocks;
mod pcp_ops;
mod plain;
pub mod range;
mod raw;
#[cfg(feature = "history")]
mod recorded;
mod request;
mod search;
mod setup;
mod stats;
mod tables;
#[cfg(test)]
mod tests;
mod tunables;
mod validate;
mod zone_ops;

pub use areas::{FreeAreas, LISTED_BLOCKS_MAX};
pub use growth::OnlineError;
pub use handover::HandedOver;
pub use held::Held;
pub use node_ops::background::{BackgroundReclaimer, NAP_NS, Next};
pub use node_ops::widen::WOKEN_SOON_NS;
pub use raw::{Raw, new_over_fresh};
#[cfg(feature = "history")]
pub use recorded::RecordedRun;
pub use request::{AllocError, FreeError, Refusal, Request};
pub use stats::{Stats, ZoneStats};
pub use tables::Tables;
pub use tunables::{Sysctl, SysctlError};
pub use validate::Fault;
pub use zone_ops::NumaEvents;

use core::fmt;
use core::ops::Range;
use core::time::Duration;

use cpu_ops::CpuOps;
use explain::{Explained, Note, Outcome};
use growth::Growth;
use held::Kind;
use limits::Limits;
use node_ops::NodeOps;
use pcp_ops::PcpOps;
use search::Search;
use zone_ops::ZoneOps;

use crate::frame::PageState;
use crate::pcp::state::Pcp;
use crate::platform::Platform;
use crate::platform::reclaimer::Unit;
use crate::policy::Policy;
use crate::reclaim::ReclaimStats;
#[cfg(test)]
use crate::sync::AtomicU64;
use crate::sync::{Masked, Ordering::Relaxed};
use crate::types::{CpuId, NodeId, Order, Pfn, ZoneId};
use crate::vmstat::worker::StatWorker;
use crate::zone::reclaim::Reclaiming;
use crate::zone::state::Zone;
use crate::zonelist::Node;

/// An allocator over caller-owned metadata. Shared between threads by reference.
pub struct Allocator<'a, P> {
    tables: Tables<'a, P>,
}

/// A line that does not grow with the machine.
impl<P> fmt::Debug for Allocator<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.tables, f)
    }
}

/// An allocator, its memory and its settings.
impl<'a, P: Platform> Allocator<'a, P> {
    /// Hands never used pages of a zone to its buddy. Call [`setup`](Self::setup) afterwards, when
    /// all memory is online. What comes after that counts as present from then on
    /// ([`Zone::present`]). Waits for sections of the zone that workers have claimed: not to be
    /// called from inside of the `prepare` of [`grow`](Self::grow).
    ///
    /// # Errors
    /// [`OnlineError`], with nothing changed: the range is not inside the zone, not all unused, or
    /// a part of it was put off.
    pub fn online(&self, zone: ZoneId, pages: Range<Pfn>) -> Result<(), OnlineError> {
        Growth::new(&self.tables).come(zone, pages)
    }

    /// As [`online`](Self::online), but of the highest zone of a node only the first section, and
    /// what precedes it where the zone does not start with one. The rest follows by
    /// [`grow`](Self::grow) and on demand. Once for each range of a zone with holes, by rising
    /// address and before the zone serves.
    ///
    /// # Errors
    /// As [`online`](Self::online), and [`OnlineError::DeferredFull`].
    pub fn online_deferred(&self, zone: ZoneId, pages: Range<Pfn>) -> Result<(), OnlineError> {
        Growth::new(&self.tables).online_deferred(zone, pages)
    }

    /// Adds `pages` to the managed ones that another owner holds and that never come to the buddy:
    /// a balloon, or a machine that is computed and not run. They need no frames of the zone. Call
    /// [`setup`](Self::setup) afterwards: limits do not follow a managed count (LB E.11).
    ///
    /// # Errors
    /// [`OnlineError`] if there is no such zone, or the zone would have more than
    /// [`MANAGED_MAX`](crate::zone::state::MANAGED_MAX) pages.
    pub fn withhold(&self, zone: ZoneId, pages: u64) -> Result<(), OnlineError> {
        Growth::new(&self.tables).withhold(zone, pages)
    }

    /// Computes what follows from the memory that is online: `min_free_kbytes`, watermarks,
    /// reserves, statistics thresholds and the sizes of the per-CPU lists (LB C.3). Watermarks wait
    /// for [`finish_growth`](Self::finish_growth) while memory is to come. Of calls at once the
    /// first computes for all, and may return last.
    pub fn setup(&self) {
        Limits::new(&self.tables).setup();
    }

    /// Whether memory is still to come online.
    #[inline]
    pub fn is_growing(&self) -> bool {
        self.tables.is_growing()
    }

    /// Brings the next section of a node online, for a worker: claims it, lets the platform
    /// `prepare` it while no other thread can see it, and hands it to the buddy. Returns its pages;
    /// 0 when all is online. Workers may run in parallel, on one node too. A section whose
    /// `prepare` panics stays away for good; nobody waits for it. `prepare` may allocate, but not
    /// [finish the growth](Self::finish_growth), which would wait for itself. A node that does not
    /// exist has no memory to come.
    ///
    /// # Errors
    /// [`OnlineError::InUse`] if part of it was in use already.
    pub fn grow(&self, node: NodeId, prepare: impl FnOnce(Range<Pfn>)) -> Result<u64, OnlineError> {
        Growth::new(&self.tables).grow(node, prepare)
    }

    /// Brings all memory online that is left, waits for what workers have claimed, and computes
    /// what follows from the memory: watermarks, reserves, thresholds, and if `pcp.recompute` says
    /// so the sizes of the pcps. Does nothing if that has been done.
    ///
    /// # Errors
    /// As [`grow`](Self::grow).
    pub fn finish_growth(&self) -> Result<(), OnlineError> {
        Growth::new(&self.tables).finish()
    }

    /// Writes a value while the allocator runs, with the kernel's ranges (LB I.5).
    ///
    /// # Errors
    /// [`SysctlError`] outside the range; the old value is kept.
    pub fn set(&self, sysctl: Sysctl, value: i64) -> Result<(), SysctlError> {
        Limits::new(&self.tables).set(sysctl, value)
    }

    /// A CPU comes online: if the policy says so, resizes the pcps of every zone, with one CPU more
    /// on *every* node, as Linux does until it next computes them (LB E.4). `false`: the machine
    /// has no such CPU.
    pub fn cpu_online(&self, cpu: CpuId) -> bool {
        let known = self.tables.has_cpu(cpu);
        if known {
            Limits::new(&self.tables).cpu_online(cpu);
        }
        known
    }

    /// A CPU is gone: drains its pcps, folds its deltas into their zones, NUMA events included, and
    /// recomputes thresholds and, if the policy says so, the sizes of all pcps for the remaining
    /// CPUs (LB E.9, F.4). A depot that only this CPU was left to use is emptied. Nothing may
    /// run on the CPU any more. `false`: the machine has no such CPU.
    pub fn cpu_dead(&self, cpu: CpuId) -> bool {
        let known = self.tables.has_cpu(cpu);
        if known {
            Limits::new(&self.tables).cpu_dead(cpu);
        }
        known
    }
}

/// Requests.
impl<'a, P: Platform> Allocator<'a, P> {
    /// A block for `request`. Its words are handed out; its memory is as the platform left it.
    ///
    /// # Errors
    /// [`AllocError`] names the zone and the watermark that refused last.
    #[inline]
    pub fn alloc(&self, request: Request) -> Result<Pfn, AllocError> {
        match fast::alloc(&self.tables, &request) {
            Some(pfn) => Ok(pfn),
            None => fast::alloc_by_core(&self.tables, request.gfp, request.order, request.node),
        }
    }

    /// Takes back the block of `order` that starts at `pfn`.
    ///
    /// # Errors
    /// [`FreeError`], with nothing changed, unless exactly this block is handed out.
    #[inline]
    pub fn free(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        match fast::free(&self.tables, pfn, order) {
            Ok(()) => Ok(()),
            Err((pfn, order)) => fast::free_by_core(&self.tables, pfn, order),
        }
    }

    /// As [`free`](Self::free), for a block that is in no cache: where the policy has cold lists it
    /// goes there (LB E.11).
    ///
    /// # Errors
    /// As [`free`](Self::free).
    pub fn free_cold(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        CpuOps::running(&self.tables).free(pfn, order, true)
    }

    /// Tells what would become of `request` on the running CPU, and changes nothing.
    pub fn explain(&self, request: &Request, note: &mut dyn FnMut(Note)) -> Explained {
        match Search::new(&self.tables, request) {
            Ok(search) => search.explain(note),
            Err(error) => Explained { outcome: Outcome::Refused(error), certain: true },
        }
    }
}

/// Stores drained, blocks isolated, everything held.
impl<'a, P: Platform> Allocator<'a, P> {
    /// Empties every pcp and depot of every zone into the buddies. Returns the pages moved. Waits
    /// for pcps that other threads have closed.
    pub fn drain_all(&self) -> u64 {
        cpu_ops::drain_all(&self.tables)
    }

    /// Empties one pcp. Returns the pages moved; 0 also if the platform cannot fence that CPU, and
    /// if there is no such zone or CPU.
    pub fn drain(&self, zone: ZoneId, cpu: CpuId) -> u64 {
        let known = self.tables.has_zone(zone) && self.tables.has_cpu(cpu);
        if known { self.cpu_ops(cpu).drain_work(self.tables.zone(zone)) } else { 0 }
    }

    /// Takes a free block out of a zone's buddy, ignoring watermarks, while no request may see it.
    /// `None` without a block of this order, or without such a zone. Requests that find nothing
    /// else wait for [`restore_block`](Self::restore_block): it must follow soon, or
    /// [`Ranges::keep_block`](range::Ranges::keep_block).
    pub fn isolate_block(&self, zone: ZoneId, order: Order) -> Option<Pfn> {
        self.tables.has_zone(zone).then(|| self.zone_ops(zone).isolate_block(order)).flatten()
    }

    /// Puts back what [`isolate_block`](Self::isolate_block) took, at the end of its list. `false`,
    /// with nothing changed: no isolated block of the order begins there, or there is no such zone.
    pub fn restore_block(&self, zone: ZoneId, pfn: Pfn, order: Order) -> bool {
        self.tables.has_zone(zone) && self.zone_ops(zone).restore_block(pfn, order)
    }

    /// Closes every pcp and takes every lock of a zone and of an owner of pageblocks, handing each
    /// to `keep`. A range that a pcp keeps parked goes to its lists as that is closed. Then nothing
    /// moves until all of them are dropped, the last one first, but for sequences of a CPU that the
    /// platform cannot fence. Masked from the beginning to the last drop.
    pub fn hold_all<'s>(&'s self, keep: &mut impl FnMut(Held<'s, P>)) {
        let mut keep = |kind| keep(Held(kind));
        keep(Kind::Masked(Masked::new(&self.tables.platform)));
        for pcp in self.tables.pcps {
            let ops = self.zone_ops(pcp.zone);
            keep(match PcpOps::close(ops, pcp) {
                Some(pcp) => Kind::Pcp(pcp.closed),
                None => Kind::Gate(pcp.look(&ops.on.platform, ops.zone, ops.on.slots)),
            });
        }
        for zone in self.tables.zones {
            keep(Kind::Zone(ZoneOps::new(&self.tables, zone).lock()));
        }
        for owner in self.tables.owners {
            keep(Kind::Owner(owner.lock(&self.tables.platform)));
        }
    }

    /// Ends the fast path for good: once this has returned, no fast operation is under way and none
    /// commits, whatever the zones' state. For an allocator whose last pages are on their way back.
    /// `false`: the platform could not fence a CPU, so one may still be under way there.
    pub fn retire(&self) -> bool {
        Limits::new(&self.tables).retire()
    }

    /// Checks every zone, store and page word. The caller makes sure that nothing runs meanwhile
    /// and that no block is isolated, which would be one that nobody has.
    ///
    /// # Errors
    /// The first [`Fault`] found.
    pub fn validate(&self) -> Result<(), Fault> {
        validate::validate(&self.tables)
    }

    /// In a forked child: threads that do not exist there may have had blocks on the way to or from
    /// a list. Such a stray's word says "on a list", but it is on none, and stays out of use for
    /// good. [`Stats::count_strays`] counts them, and [`validate`](Self::validate)
    /// reports any that come later (ZONE-5).
    pub fn expect_strays(&self) {
        self.tables.zones.iter().for_each(Zone::expect_strays);
    }

    /// The blocks that are handed out: first page and order. The caller makes sure that nothing
    /// runs meanwhile.
    pub fn allocated(&self) -> impl Iterator<Item = (Pfn, Order)> + '_ {
        validate::allocated(&self.tables)
    }
}

/// Background work: statistics workers, reclaimers.
impl<'a, P: Platform> Allocator<'a, P> {
    /// One refresh of a CPU (LB F.4). Returns whether anything changed, that is, whether a worker
    /// would come back after `stat_interval`; `false` for a CPU that does not exist.
    pub fn refresh(&self, cpu: CpuId) -> bool {
        self.tables.has_cpu(cpu) && self.cpu_ops(cpu).refresh()
    }

    /// `vm.stat_refresh`: refreshes every CPU, then tells `warn` each counter of the machine that
    /// is below zero, by its name in `/proc/vmstat` (LB F.4).
    pub fn stat_refresh(&self, warn: impl FnMut(&'static str, i64)) {
        for cpu in self.tables.each_cpu() {
            self.refresh(cpu);
        }
        self.stats().negative_counters(warn);
    }

    /// The shepherd of the CPUs' workers, to be called once per interval; under the policy of
    /// 2.6.24 it starts the timers. `workers` has one entry per CPU.
    pub fn shepherd(&self, workers: &mut [StatWorker], now_ns: u64) {
        for (cpu, worker) in self.tables.each_cpu().zip(workers) {
            self.cpu_ops(cpu).shepherd(worker, now_ns);
        }
    }

    /// Runs a CPU's worker if it is due. Returns whether it was; `false` for a CPU that does not
    /// exist.
    pub fn run_worker(&self, cpu: CpuId, worker: &mut StatWorker, now_ns: u64) -> bool {
        self.tables.has_cpu(cpu) && self.cpu_ops(cpu).run_worker(worker, now_ns)
    }

    /// A CPU goes idle (LB F.4 `quiet_vmstat`). Returns whether its deltas were folded; `false` for
    /// a CPU that does not exist.
    pub fn quiet(&self, cpu: CpuId, worker: &StatWorker) -> bool {
        self.tables.has_cpu(cpu) && self.cpu_ops(cpu).quiet(worker)
    }

    /// `vm.stat_interval`: how often workers run.
    pub fn stat_interval(&self) -> Duration {
        Duration::from_nanos(self.tables.tunables.stat_interval_ns())
    }

    /// Sets the interval of the workers, finer than the sysctl's whole seconds.
    pub fn set_stat_interval(&self, interval: Duration) {
        let nanos = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        self.tables.tunables.set_stat_interval_ns(nanos);
    }

    /// A reclaimer for the node, which from now on is woken by [`Platform::wake_reclaim`]. One at a
    /// time for each node, until [`background_stop`](Self::background_stop).
    ///
    /// # Panics
    /// If there is no such node.
    pub fn background_start(&self, node: NodeId) -> BackgroundReclaimer {
        self.node_ops(node).start()
    }

    /// The node has no reclaimer any more. One of another machine's, whose node does not exist
    /// here, is let go.
    pub fn background_stop(&self, reclaimer: BackgroundReclaimer) {
        if self.tables.has_node(reclaimer.node()) {
            self.node_ops(reclaimer.node()).stop(reclaimer);
        }
    }

    /// All nodes' reclaimers are gone without having stopped, as in a forked child. Takes no lock.
    pub fn background_gone(&self) {
        for node in 0..self.tables.nodes.len() {
            self.node_ops(NodeId(node as u16)).gone();
        }
    }

    /// One step: at most one pass over the node's pages. A reclaimer of another machine's, whose
    /// node does not exist here, has nothing to do.
    pub fn background_step(&self, reclaimer: &mut BackgroundReclaimer) -> Next {
        let known = self.tables.has_node(reclaimer.node());
        if known { self.node_ops(reclaimer.node()).step(reclaimer) } else { Next::Sleep }
    }

    /// The platform's clock says that the reclaimer slept long: wakes it if its node is below the
    /// high watermark and consumers hold pages. Linux waits for the next request that finds the
    /// node low; a pool reclaims once a burst has ended. Returns whether it was woken; `false`
    /// for a node that does not exist.
    pub fn background_check(&self, node: NodeId) -> bool {
        self.tables.has_node(node) && self.node_ops(node).check()
    }

    /// A platform's fast path dropped a copy of a block that a racing double free had put on two
    /// stacks (PCP-3). The copy came from the CPU's pcp of the zone that the CPU prefers. A CPU
    /// that does not exist has none.
    pub fn count_stray(&self, cpu: CpuId) {
        if self.tables.has_cpu(cpu) {
            let pcp = self.tables.pcp(self.tables.preferred_zone(cpu), cpu);
            pcp.events.double_frees.fetch_add(1, Relaxed);
        }
    }

    /// What node reclaim and direct reclaim did so far.
    pub fn reclaim_stats(&self) -> ReclaimStats {
        self.tables.reclaim.events.stats()
    }

    /// The right to reclaim in a zone or node, as node reclaim takes it (RECLAIM-1), if it is free:
    /// for a platform in virtual time, where others come while a try goes on. `None` also for one
    /// that does not exist.
    pub fn hold_reclaim(&self, unit: Unit) -> Option<Reclaiming<'a>> {
        match unit {
            Unit::Zone(zone) => self.tables.zones.get(usize::from(zone.0))?.reclaim.try_lock(),
            Unit::Node(node) => self.tables.nodes.get(usize::from(node.0))?.reclaim.try_lock(),
        }
    }
}

/// The tables and their figures.
impl<'a, P: Platform> Allocator<'a, P> {
    /// The platform.
    pub fn platform(&self) -> &P {
        &self.tables.platform
    }
    /// The policy it was made with.
    pub fn policy(&self) -> &Policy {
        self.tables.policy()
    }
    /// All populated zones.
    pub fn zones(&self) -> &'a [Zone] {
        self.tables.zones
    }
    /// Nodes of the machine.
    pub fn nodes(&self) -> &'a [Node] {
        self.tables.nodes
    }
    /// CPUs of the machine.
    pub fn cpus(&self) -> usize {
        self.tables.cpus()
    }
    /// The pcp of a (zone, CPU).
    ///
    /// # Panics
    /// If there is no such zone or CPU.
    #[inline]
    pub fn pcp(&self, zone: ZoneId, cpu: CpuId) -> &'a Pcp {
        self.tables.expect_zone(zone);
        self.tables.pcp(zone, cpu)
    }
    /// The node of a CPU.
    ///
    /// # Panics
    /// If there is no such CPU.
    pub fn node_of(&self, cpu: CpuId) -> NodeId {
        self.tables.node_of(cpu)
    }
    /// What the block at a frame is now; a frame that does not exist is in no block. `frame` counts
    /// as the table of words does (`Zone::frame_base`).
    pub fn frame_state(&self, frame: usize) -> PageState {
        validate::frame_state(&self.tables, frame)
    }
    /// The table of frame words.
    #[cfg(test)]
    pub(crate) fn words(&self) -> &'a [AtomicU64] {
        self.tables.words
    }
    /// What records lie where: CPUs, nodes, zonelists, pcps.
    pub fn tables(&self) -> &Tables<'a, P> {
        &self.tables
    }

    /// The figures.
    pub fn stats(&self) -> Stats<'_, 'a, P> {
        Stats::new(&self.tables)
    }
    /// One zone's counters.
    ///
    /// # Panics
    /// If there is no such zone.
    pub fn zone_stats(&self, zone: ZoneId) -> ZoneStats {
        self.stats().zone(zone)
    }
    /// NUMA events of all zones of a node: `nodeN/numastat`. None for a node that does not exist.
    pub fn numa_events(&self, node: NodeId) -> NumaEvents {
        self.stats().numa_events(node)
    }
    /// Pages free or waiting on a pcp, in a depot or in a pageblock that a CPU owns, over all
    /// zones; see [`Stats::free_pages`].
    pub fn free_pages(&self) -> u64 {
        self.stats().free_pages()
    }

    fn zone_ops(&self, zone: ZoneId) -> ZoneOps<'_, 'a, P> {
        ZoneOps::new(&self.tables, self.tables.zone(zone))
    }
    fn cpu_ops(&self, cpu: CpuId) -> CpuOps<'_, 'a, P> {
        CpuOps::new(&self.tables, cpu)
    }
    fn node_ops(&self, node: NodeId) -> NodeOps<'_, 'a, P> {
        NodeOps::new(&self.tables, node)
    }
}
