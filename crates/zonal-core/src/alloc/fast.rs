//! The fast path: a block to or from the running CPU's own pcp, where nothing is to be decided.
//!
//! ```text
//!  request ── plain? ── own pcp's zone passes? ── gate ── list has one ──► block
//!                │ no           │ no                │ taken    │ empty
//!                └──────────────┴───────────────────┴──────────┴──► Search, CpuOps
//! ```
//! Every request and every free comes here first. What is served here is what a search would have
//! served from the same list, and everything that it would have counted is counted: the result,
//! the figures and the tuning are the same, value by value. Whatever a search would decide is left
//! to it: a zone near its watermarks, an empty or full list, a stream of large frees, a page of
//! another zone, a refused free. How the pcp is entered: [`pcp::gated`](crate::pcp::gated).
//!
//! Platforms with sequences have a fast path of their own in front of the core: there this one
//! serves sealed pcps only, on which no sequence runs (PCP-7), as where each allocation is
//! recorded. A platform that charges for each step of the core wants to see it
//! ([`Platform::uses_gates`]) and has none here.

use super::cpu_ops::CpuOps;
use super::plain::{kind, type_of};
use super::request::{AllocError, FreeError, Request};
use super::search::Search;
use super::tables::Tables;
use crate::frame::{PageWord, WHOLE_RANGE};
use crate::pcp::gated::{Cells, Entered};
use crate::pcp::state::Pcp;
use crate::platform::Platform;
use crate::sync::{AtomicU32, AtomicU64, Masked, Ordering::Relaxed};
use crate::types::{CpuId, Order, Pfn};
use crate::zone::state::{FAST_FREE, RETIRED, Zone};

impl<'a, P: Platform> Cells<'a> for &Tables<'a, P> {
    #[inline(always)]
    fn slot(self, at: u32) -> Option<&'a AtomicU32> {
        self.slots.get(at as usize)
    }
    #[inline(always)]
    fn word(self, frame: u32) -> Option<&'a AtomicU64> {
        self.words.get(frame as usize)
    }
}

/// Whether no sequence runs on the pcp (GATE-2).
#[inline(always)]
fn is_on<P: Platform>(platform: &P, pcp: &Pcp) -> bool {
    platform.uses_gates() && (!platform.has_sequences() || pcp.is_sealed())
}

/// Whether a fast operation may go on where the word is slow: a sealed pcp's is for good, and says
/// nothing but that no sequence runs (PCP-7); what else may be asked for stands in the zone.
#[inline(always)]
fn may_go_on(pcp: &Pcp, zone: &Zone) -> bool {
    // Relaxed: who retires a zone closes each pcp behind that, so it is seen behind the gate.
    pcp.is_sealed() && !zone.has(RETIRED)
}

/// A CPU's pcp of the zone that it prefers: that of rank 0 (`PcpOrder::position`).
#[inline(always)]
fn own<'a, P: Platform>(on: &Tables<'a, P>, cpu: CpuId) -> Option<&'a Pcp> {
    on.pcps.get(on.pcps.len().wrapping_sub(1).wrapping_sub(cpu.0 as usize))
}

/// Whether the zone lets pass now what has this bit. Relaxed: as the walk reads it, before a pcp is
/// closed.
#[inline(always)]
fn passes(zone: &Zone, bit: u32) -> bool {
    zone.fast.load(Relaxed) & bit != 0
}

/// A block for the request. `None`: there is something to decide. `switch`: makes the request's
/// list the active one, if it is not. `mark`: what the block's word has besides.
#[inline(always)]
fn take<P: Platform>(
    on: &Tables<'_, P>,
    request: &Request,
    switch: bool,
    mark: u64,
) -> Option<Pfn> {
    let Request { order, gfp, node } = *request;
    if gfp.bits() & on.plain.others != 0 {
        return None;
    }
    let cpu = on.platform.cpu();
    if node.is_some_and(|node| node != on.node_of(cpu)) {
        return None;
    }
    let pcp = own(on, cpu)?;
    let zone = on.zones.get(usize::from(pcp.zone.0))?;
    if !is_on(&on.platform, pcp) || !passes(zone, 1 << order.get()) {
        return None;
    }
    let masked = Masked::new(&on.platform);
    let entered = Entered::new(pcp)?;
    let may = || may_go_on(pcp, zone);
    if !is_on(&on.platform, pcp) || switch && !entered.switch(on.plain.list(gfp, order), may) {
        return None;
    }
    let frame = entered.pop(order.get(), (kind(gfp), mark), may, on)?;
    drop(masked);
    CpuOps::new(on, cpu).count_own(zone);
    Some(Pfn(u64::from(frame.wrapping_sub(pcp.first_frame)).wrapping_add(pcp.start_pfn)))
}

/// Takes a block back. `false`: nothing was done, there is something to decide. `switch` as in
/// [`take`]. `mark`: what the block's word must have besides; then it is a range, which must not go
/// on behind the block.
#[inline(always)]
fn put<P: Platform>(on: &Tables<'_, P>, pfn: Pfn, order: Order, switch: bool, mark: u64) -> bool {
    let Some(pcp) = own(on, on.platform.cpu()) else { return false };
    let at = pfn.0.wrapping_sub(pcp.start_pfn);
    let Some(zone) = on.zones.get(usize::from(pcp.zone.0)) else { return false };
    let in_zone = at < u64::from(pcp.frames);
    if !in_zone || !is_on(&on.platform, pcp) || !passes(zone, FAST_FREE) {
        return false;
    }
    let Some(mt) = type_of(on.blocks, zone, pfn) else { return false };
    let frame = pcp.first_frame.wrapping_add(at as u32);
    let goes_on = || {
        let behind = at + order.pages();
        let next = on.words.get((u64::from(pcp.first_frame) + behind) as usize);
        // Relaxed: read behind the claim of the block, which orders it (RANGE-4).
        let next = next.filter(|_| behind < u64::from(pcp.frames)).map(|word| word.load(Relaxed));
        next.is_some_and(|word| PageWord(word).continues_range())
    };
    let _masked = Masked::new(&on.platform);
    let Some(entered) = Entered::new(pcp) else { return false };
    let may = || may_go_on(pcp, zone);
    // Once more behind the gate: the seal may have been taken off meanwhile.
    if !is_on(&on.platform, pcp) || switch && !entered.switch(on.plain.list_by_type(order, mt), may)
    {
        return false;
    }
    entered.push(order.get(), (mt, mark), (frame, may, || mark != 0 && goes_on()), on)
}

/// A block for the request, if the running CPU's pcp has one on the list that is active.
#[inline(always)]
pub(super) fn alloc<P: Platform>(on: &Tables<'_, P>, request: &Request) -> Option<Pfn> {
    take(on, request, false, 0)
}

/// Every other request.
#[inline(never)]
pub(super) fn alloc_by_core<P: Platform>(
    on: &Tables<'_, P>,
    request: Request,
) -> Result<Pfn, AllocError> {
    match take(on, &request, true, 0) {
        Some(pfn) => Ok(pfn),
        None => Search::new(on, &request)?.block(),
    }
}

/// Takes a block back, if the list that is active on the running CPU's pcp has room for it and is
/// its list. `false`: nothing was done.
#[inline(always)]
pub(super) fn free<P: Platform>(on: &Tables<'_, P>, pfn: Pfn, order: Order) -> bool {
    put(on, pfn, order, false, 0)
}

/// Every other free.
#[inline(never)]
pub(super) fn free_by_core<P: Platform>(
    on: &Tables<'_, P>,
    pfn: Pfn,
    order: Order,
) -> Result<(), FreeError> {
    if put(on, pfn, order, true, 0) {
        return Ok(());
    }
    CpuOps::running(on).free(pfn, order, false)
}

/// A range that is a whole block, as [`alloc`].
#[inline(always)]
pub(super) fn alloc_range<P: Platform>(on: &Tables<'_, P>, request: &Request) -> Option<Pfn> {
    take(on, request, false, WHOLE_RANGE)
}

/// A block for the request from its list, whatever list is active.
#[inline(never)]
pub(super) fn alloc_listed<P: Platform>(on: &Tables<'_, P>, request: &Request) -> Option<Pfn> {
    take(on, request, true, 0).or_else(|| take(on, request, false, 0))
}

/// Takes a whole range back that is a block, as [`free`].
#[inline(always)]
pub(super) fn free_range<P: Platform>(on: &Tables<'_, P>, pfn: Pfn, order: Order) -> bool {
    put(on, pfn, order, false, WHOLE_RANGE)
}
