//! The fast path: a block to or from the running CPU's own pcp, where nothing is to be decided.
//!
//! ```text
//!  request ── plain? ── gate of the own pcp: ready? ── list has one ──► block
//!                │ no             │ no                    │ empty
//!                │    zone passes? gate taken? list, made the active one, has one? ──► block
//!                │                │ no
//!                └────────────────┴──► Search, CpuOps
//! ```
//! Every request and every free comes here first. What is served here is what a search would have
//! served from the same list, and everything that it would have counted is counted: the result,
//! the figures and the tuning are the same, value by value. Of a range that is no block the pages
//! and the statistics are the same, but not the lists that hold its block afterwards, nor the
//! tuning: [`pcp::front`](crate::pcp::front) says what that sees. Whatever a search would
//! decide is left to it: a zone near its watermarks, an empty or full list, a stream of large
//! frees, a page of another zone, a refused free. How the pcp is entered:
//! [`pcp::gated`](crate::pcp::gated); how a block is divided there:
//! [`pcp::front`](crate::pcp::front). Whoever closes a pcp for an operation, or the first operation
//! behind another closing, finds out what the next ones may do and leaves it in the gate
//! ([`pcp::ready`](crate::pcp::ready)).
//!
//! Platforms with sequences have a fast path of their own in front of the core: there this one
//! serves sealed pcps only, on which no sequence runs (PCP-7), as where each allocation is
//! recorded. A platform that charges for steps ([`Platform::CHARGES`]) is told of those that a
//! search would have made: one look at the zone. Short ways with steps of their own are not taken
//! there.

use core::num::NonZeroU64;

use super::cpu_ops::CpuOps;
use super::own::cpu_for;
use super::own_blocks;
use super::pcp_ops::PcpOps;
use super::plain::{SEARCHED, kind, type_of};
use super::request::{AllocError, FreeError, Request};
use super::search::Search;
use super::tables::Tables;
use super::zone_ops::ZoneOps;
use crate::frame::{PageWord, WHOLE_RANGE};
use crate::gfp::Gfp;
use crate::pcp::front::Front;
use crate::pcp::gated::{Cells, Entered};
use crate::pcp::ready::{Key, order_of};
use crate::pcp::state::Pcp;
use crate::pcp::word::NR_LISTS;
use crate::platform::{Platform, Step};
use crate::policy::Policy;
use crate::sync::{AtomicU32, AtomicU64, Masked, Ordering::Relaxed};
use crate::types::{CpuId, NR_ORDERS, NodeId, Order, Pfn};
use crate::zone::epoch::EPOCH_UNIT;
use crate::zone::state::{FAST_FREE, Zone};

// A key has room for the order below the epoch.
const _: () = assert!(NR_ORDERS <= EPOCH_UNIT as usize);

impl<'a, P: Platform> Cells<'a> for &Tables<'a, P> {
    #[inline(always)]
    fn slot(self, at: u32) -> Option<&'a AtomicU32> {
        self.slots.get(at as usize)
    }
    #[inline(always)]
    fn word(self, frame: u64) -> Option<&'a AtomicU64> {
        self.word_at(frame)
    }
}

/// The number of a page's frame, if the page is in the pcp's zone.
#[inline(always)]
fn frame_of(pcp: &Pcp, pfn: Pfn) -> u64 {
    pfn.0.wrapping_sub(pcp.ready.page_shift)
}

/// The page of a frame of the pcp's zone.
#[inline(always)]
fn page_of(pcp: &Pcp, frame: u64) -> Pfn {
    Pfn(frame.wrapping_add(pcp.ready.page_shift))
}

/// Enters a pcp that is not ready for blocks of this order, and makes it so. `None`: there is
/// something to decide. `needs`: what the zone has to let pass. `list`: which is to be active.
fn enter<'a, P: Platform>(
    on: &Tables<'a, P>,
    (pcp, zone): (&'a Pcp, &Zone),
    order: Order,
    needs: u32,
    list: usize,
) -> Option<Entered<'a>> {
    let epoch = on.epoch.now();
    // Relaxed: as the walk reads it, before a pcp is closed.
    let fast = zone.fast.load(Relaxed);
    if fast & needs != needs {
        return None;
    }
    let mut entered = Entered::new(pcp)?;
    // Relaxed: who retires a zone closes each pcp behind that, so it is seen behind the gate.
    let may = || pcp.may_go_on(zone.fast.load(Relaxed));
    let lists = |frame| typed_lists_at(on, pcp, page_of(pcp, u64::from(frame)));
    // Once more behind the gate: the seal may have been taken off meanwhile.
    let enters = on.enters(pcp)
        && (!P::KEEPS_RANGES || entered.unpark(lists, on))
        && entered.switch(list, may)
        && entered.prepare(order.get(), on.policy().numa.records(), may);
    let both = 1 << order.get() | FAST_FREE;
    if enters && fast & both == both {
        entered.stay_ready(Key::new(epoch, order.get()));
    }
    enters.then_some(entered)
}

/// A block for the request from a pcp that is ready, where no allocation is recorded. `None`: there
/// is something to find out. `mark`: what the block's word has besides.
#[inline(always)]
fn take_ready<P: Platform>(on: &Tables<'_, P>, request: &Request, mark: u64) -> Option<Pfn> {
    let Request { order, gfp, node } = *request;
    let pcp = pcp_for(on, gfp, node)?;
    take_from(on, pcp, (order, gfp), mark)
}

/// As [`take_ready`], from this pcp, for a request that it may serve.
#[inline(always)]
fn take_from<P: Platform>(
    on: &Tables<'_, P>,
    pcp: &Pcp,
    (order, gfp): (Order, Gfp),
    mark: u64,
) -> Option<Pfn> {
    let (masked, entered) = ready_for(on, pcp, order.get(), gfp)?;
    let frame = entered.pop(mark, on)?;
    drop(masked);
    on.platform.cost(Step::Scan(pcp.zone));
    Some(page_of(pcp, u64::from(frame)))
}

/// The running CPU's pcp, if a fast operation may take blocks from it for a request with such
/// flags, from this node.
#[inline(always)]
fn pcp_for<'a, P: Platform>(on: &Tables<'a, P>, gfp: Gfp, node: Option<NodeId>) -> Option<&'a Pcp> {
    if is_other(on, gfp) {
        return None;
    }
    on.own(cpu_for(on, node)?).filter(|pcp| on.enters(pcp))
}

/// Whether a request with such flags is not plain ([`Plain::others`](super::plain::Plain)). Where a
/// policy is compiled in that records no allocation, only few flags are asked about that.
#[inline(always)]
fn is_other<P: Platform>(on: &Tables<'_, P>, gfp: Gfp) -> bool {
    let may = match Policy::fixed_for::<P>() {
        Some(policy) if !policy.numa.records() => gfp.bits() & SEARCHED != 0,
        _ => true,
    };
    may && gfp.bits() & on.plain.others != 0
}

/// A pcp, entered, if it is ready for requests of this order with such flags. It opens before
/// interrupts are let in.
#[inline(always)]
fn ready_for<'s, 'a, P: Platform>(
    on: &'s Tables<'a, P>,
    pcp: &'a Pcp,
    order: u32,
    gfp: Gfp,
) -> Option<(Option<Masked<'s, P>>, Entered<'a>)> {
    let masked = Masked::for_fast(&on.platform);
    let entered = Entered::ready(pcp, Key::new(on.epoch.now(), order))?;
    if !entered.serves(kind(gfp)) {
        return None;
    }
    Some((masked, entered))
}

/// As [`take_ready`], of a pcp as it is, recorded or not. `None`: there is something to decide.
fn take<P: Platform>(on: &Tables<'_, P>, request: &Request, mark: u64) -> Option<Pfn> {
    take_by(on, request, |entered, _| entered.pop(mark, on))
}

/// As [`take`], by another way from the pcp.
#[inline(always)]
fn take_by<'a, P: Platform>(
    on: &Tables<'a, P>,
    request: &Request,
    pop: impl FnOnce(Entered<'a>, &'a Pcp) -> Option<u32>,
) -> Option<Pfn> {
    let Request { order, gfp, node } = *request;
    if gfp.bits() & on.plain.searched != 0 {
        return None;
    }
    let cpu = cpu_for(on, node)?;
    let pcp = on.own(cpu).filter(|pcp| on.enters(pcp))?;
    let list = on.plain.list(gfp, order);
    if pcp.active_len(list) == Some(0) {
        return None;
    }
    let masked = Masked::for_fast(&on.platform);
    let entered = Entered::ready(pcp, Key::new(on.epoch.now(), order.get()));
    let entered = entered.filter(|entered| entered.serves_recorded(kind(gfp))).or_else(|| {
        let zone = on.zones.get(usize::from(pcp.zone.0))?;
        let entered = enter(on, (pcp, zone), order, 1 << order.get(), list)?;
        entered.serves_recorded(kind(gfp)).then_some(entered)
    })?;
    let frame = pop(entered, pcp)?;
    drop(masked);
    on.platform.cost(Step::Scan(pcp.zone));
    if on.policy().numa.records() {
        CpuOps::new(on, cpu).record_own(pcp.zone);
    }
    Some(page_of(pcp, u64::from(frame)))
}

/// A block of a magazine, which fills the request's list, where no allocation is recorded: what a
/// search would do first. `None`: there is something to decide.
fn take_refilled<P: Platform>(on: &Tables<'_, P>, request: &Request) -> Option<Pfn> {
    if P::CHARGES || on.policy().numa.records() {
        return None;
    }
    let Request { order, gfp, node } = *request;
    let pcp = pcp_for(on, gfp, node)?;
    let zone = on.zones.get(usize::from(pcp.zone.0))?;
    let ops = ZoneOps::new(on, zone);
    let list = on.plain.list(gfp, order);
    // Relaxed: as the walk reads it, before a pcp is closed.
    let passes = zone.fast.load(Relaxed) & 1 << order.get() != 0;
    if !passes || list >= NR_LISTS || !ops.depot(pcp)?.has(list) {
        return None;
    }
    PcpOps::try_close(ops, pcp)?.take_cached(list)
}

/// Takes a block back, onto a pcp that is ready. An error: nothing was done to this block, there is
/// something to find out. `mark`: what the block's word must have besides; then it is a range,
/// which must not go on behind the block.
#[inline(always)]
fn put_ready<P: Platform>(
    on: &Tables<'_, P>,
    (pfn, order): (Pfn, Order),
    mark: u64,
) -> Result<(), (Pfn, Order)> {
    let Some(pcp) = on.own(on.platform.cpu()) else { return Err((pfn, order)) };
    if !on.enters(pcp) {
        return Err((pfn, order));
    }
    put_on(on, pcp, (pfn, order), mark)
}

/// As [`put_ready`], onto this pcp.
#[inline(always)]
fn put_on<P: Platform>(
    on: &Tables<'_, P>,
    pcp: &Pcp,
    (pfn, order): (Pfn, Order),
    mark: u64,
) -> Result<(), (Pfn, Order)> {
    let frame = frame_of(pcp, pfn);
    let goes_on = || goes_on(on, pcp, frame.wrapping_add(order.pages()));
    let _masked = Masked::for_fast(&on.platform);
    let key = Key::new(on.epoch.now(), order.get());
    let Some(entered) = Entered::ready(pcp, key) else { return Err((pfn, order)) };
    let opens = entered.opens();
    // Without grouping there is one list of an order, whatever a pageblock's type (`Plain::new`).
    let takes = !on.looks_at_types()
        || type_of(on.blocks, pcp.ready.block_shift, pfn).is_some_and(|mt| entered.takes(mt));
    if takes && entered.push(mark, (frame, goes_on), on) {
        return Ok(());
    }
    // Worked out once more rather than kept: whoever comes through needs the registers.
    Err((page_of(pcp, frame), Order::new(order_of(opens)).unwrap_or(Order::MAX)))
}

/// As [`put_ready`], onto a pcp as it is. `false`: nothing was done, there is something to decide.
#[inline(never)]
fn put<P: Platform>(on: &Tables<'_, P>, (pfn, order): (Pfn, Order), mark: u64) -> bool {
    let own = on.own(on.platform.cpu()).filter(|pcp| on.enters(pcp));
    let Some(pcp) = own else { return false };
    let Some(zone) = on.zones.get(usize::from(pcp.zone.0)) else { return false };
    let Some(mt) = type_of(on.blocks, zone.block_shift, pfn) else { return false };
    let frame = frame_of(pcp, pfn);
    let goes_on = || goes_on(on, pcp, frame.wrapping_add(order.pages()));
    let _masked = Masked::new(&on.platform);
    let list = on.plain.list_by_type(order.get(), mt);
    let is_full =
        || pcp.active_len(list).is_some_and(|len| len >= pcp.lists[list].hi.load(Relaxed));
    zone.contains(pfn)
        && !is_full()
        && is_of_list(on, (pcp, list), frame, mark)
        && enter(on, (pcp, zone), order, FAST_FREE, list).is_some_and(|entered| {
            entered.takes(mt) && entered.push_exactly(mark, (frame, goes_on), on)
        })
}

/// Whether a word says that its block is handed out from such a list of any CPU's pcp: what else a
/// free names is refused before the pcp is changed for it.
fn is_of_list<P: Platform>(
    on: &Tables<'_, P>,
    (pcp, list): (&Pcp, usize),
    frame: u64,
    mark: u64,
) -> bool {
    let Some((list, word)) = pcp.lists.get(list).zip(on.word_at(frame)) else { return false };
    // Relaxed: a look; the claim decides.
    PageWord(word.load(Relaxed) ^ mark).same_but_pcp(PageWord(list.allocated))
}

/// Whether a word is of the first block of such a range from such a list of the pcp, as
/// [`is_of_list`].
fn begins_range<P: Platform>(
    on: &Tables<'_, P>,
    (pcp, list): (&Pcp, usize),
    (frame, front): (u64, Front),
) -> bool {
    let Some((list, word)) = pcp.lists.get(list).zip(on.word_at(frame)) else { return false };
    // Relaxed: a look; the claim decides.
    front.begins(PageWord(list.allocated), word.load(Relaxed))
}

/// Whether a range goes on at this frame of the pcp's zone.
#[inline(always)]
fn goes_on<P: Platform>(on: &Tables<'_, P>, pcp: &Pcp, frame: u64) -> bool {
    // Relaxed: read behind the claim of the block, which orders it (RANGE-4).
    let next = on.word_at(frame).map(|word| PageWord(word.load(Relaxed)));
    next.is_some_and(|next| next.may_continue_range() && does_go_on(pcp, frame, next))
}

#[cold]
#[inline(never)]
fn does_go_on(pcp: &Pcp, frame: u64, next: PageWord) -> bool {
    next.continues_range() && pcp.has(frame, 1)
}

/// A block for the request, if the running CPU's pcp is ready and has one.
#[inline(always)]
pub(super) fn alloc<P: Platform>(on: &Tables<'_, P>, request: &Request) -> Option<Pfn> {
    take_ready(on, request, 0)
}

/// The pcp of a CPU that fast operations there work on. `None`: there is no such CPU, or sequences
/// may run on it, now or later (GATE-2).
pub(super) fn pcp_of<'a, P: Platform>(on: &Tables<'a, P>, cpu: CpuId) -> Option<&'a Pcp> {
    let exists = (cpu.0 as usize) < on.cpu_nodes().len();
    let gates = on.platform.uses_gates() && !on.platform.has_sequences();
    on.own(cpu).filter(|_| exists && gates)
}

/// As [`alloc`], from this pcp, for callers who know the flags.
#[inline(always)]
pub(super) fn alloc_on<P: Platform>(
    on: &Tables<'_, P>,
    pcp: &Pcp,
    order: Order,
    gfp: Gfp,
) -> Option<Pfn> {
    if is_other(on, gfp) {
        return None;
    }
    take_from(on, pcp, (order, gfp), 0)
}

/// Every other request; where each allocation is recorded, all of them.
#[cold]
#[inline(never)]
pub(super) fn alloc_by_core<P: Platform>(
    on: &Tables<'_, P>,
    // Not as one value: that would take memory on the stack of whoever comes by the fast path.
    gfp: Gfp,
    order: Order,
    node: Option<NodeId>,
) -> Result<Pfn, AllocError> {
    match take_unready(on, gfp, order, node) {
        Some(pfn) => Ok(pfn),
        None => Search::new(on, &Request { order, gfp, node })?.block(),
    }
}

/// A block from the running CPU's pcp as it is, of a magazine, or of the CPU's own pageblocks.
#[inline(never)]
fn take_unready<P: Platform>(
    on: &Tables<'_, P>,
    gfp: Gfp,
    order: Order,
    node: Option<NodeId>,
) -> Option<Pfn> {
    let request = Request { order, gfp, node };
    if on.owns_pageblocks() {
        return own_blocks::take(on, &request);
    }
    if !on.platform.uses_gates() {
        return None;
    }
    take(on, &request, 0).or_else(|| take_refilled(on, &request))
}

/// Takes a block back, if the running CPU's pcp is ready and has room for it. An error: nothing was
/// done to this block.
#[inline(always)]
pub(super) fn free<P: Platform>(
    on: &Tables<'_, P>,
    pfn: Pfn,
    order: Order,
) -> Result<(), (Pfn, Order)> {
    put_ready(on, (pfn, order), 0)
}

/// As [`free`], onto this pcp.
#[inline(always)]
pub(super) fn free_on<P: Platform>(
    on: &Tables<'_, P>,
    pcp: &Pcp,
    pfn: Pfn,
    order: Order,
) -> Result<(), (Pfn, Order)> {
    put_on(on, pcp, (pfn, order), 0)
}

/// Every other free.
#[cold]
#[inline(never)]
pub(super) fn free_by_core<P: Platform>(
    on: &Tables<'_, P>,
    pfn: Pfn,
    order: Order,
) -> Result<(), FreeError> {
    if on.owns_pageblocks() {
        return own_blocks::put(on, (pfn, order));
    }
    if put(on, (pfn, order), 0) {
        return Ok(());
    }
    CpuOps::running(on).free(pfn, order, false)
}

/// A range that is a whole block, as [`alloc`].
#[inline(always)]
pub(super) fn alloc_range<P: Platform>(on: &Tables<'_, P>, request: &Request) -> Option<Pfn> {
    take_ready(on, request, WHOLE_RANGE)
}

/// The range of so many pages that was freed last and is parked, as [`alloc`].
#[inline(always)]
pub(super) fn alloc_parked<P: Platform>(
    on: &Tables<'_, P>,
    pages: NonZeroU64,
    gfp: Gfp,
    node: Option<NodeId>,
) -> Option<Pfn> {
    let pcp = pcp_for(on, gfp, node)?;
    alloc_parked_on(on, pcp, pages, gfp)
}

/// As [`alloc_parked`], from this pcp, for a request that it may serve.
#[inline(always)]
fn alloc_parked_on<P: Platform>(
    on: &Tables<'_, P>,
    pcp: &Pcp,
    pages: NonZeroU64,
    gfp: Gfp,
) -> Option<Pfn> {
    let order = pcp.parked.order(pages).filter(|_| P::KEEPS_RANGES)?;
    let (masked, entered) = ready_for(on, pcp, order, gfp)?;
    let frame = entered.take_parked(pages.get() as u32, on)?;
    drop(masked);
    Some(page_of(pcp, u64::from(frame)))
}

/// As [`alloc_parked`], from this pcp, for callers who know the flags.
#[inline(always)]
pub(super) fn alloc_range_on<P: Platform>(
    on: &Tables<'_, P>,
    pcp: &Pcp,
    pages: NonZeroU64,
    gfp: Gfp,
) -> Option<Pfn> {
    if is_other(on, gfp) {
        return None;
    }
    alloc_parked_on(on, pcp, pages, gfp)
}

/// Takes a whole range of so many pages back and parks it, if the running CPU's pcp is ready and
/// keeps room for it. `false`: nothing was done.
#[inline(always)]
pub(super) fn free_parked<P: Platform>(on: &Tables<'_, P>, pfn: Pfn, pages: NonZeroU64) -> bool {
    let own = on.own(on.platform.cpu()).filter(|pcp| on.enters(pcp));
    own.is_some_and(|pcp| free_range_on(on, pcp, pfn, pages).is_ok())
}

/// As [`free_parked`], onto this pcp. An error: nothing was done to this range.
#[inline(always)]
pub(super) fn free_range_on<P: Platform>(
    on: &Tables<'_, P>,
    pcp: &Pcp,
    pfn: Pfn,
    pages: NonZeroU64,
) -> Result<(), (Pfn, NonZeroU64)> {
    let order = pcp.parked.order(pages).filter(|_| P::KEEPS_RANGES);
    let Some(order) = order else { return Err((pfn, pages)) };
    let frame = frame_of(pcp, pfn);
    let _masked = Masked::for_fast(&on.platform);
    let key = Key::new(on.epoch.now(), order);
    let Some(entered) = Entered::ready(pcp, key) else { return Err((pfn, pages)) };
    let takes = !on.looks_at_types()
        || type_of(on.blocks, pcp.ready.block_shift, pfn).is_some_and(|mt| entered.takes(mt));
    if takes && entered.park(frame, pages.get() as u32, on) {
        return Ok(());
    }
    // Worked out once more rather than kept: whoever comes through needs the registers.
    Err((page_of(pcp, frame), pages))
}

/// The front of a block of the request's order, as [`alloc_listed`]; the rest goes to other lists.
#[inline(never)]
pub(super) fn alloc_front<P: Platform>(
    on: &Tables<'_, P>,
    request: &Request,
    pages: u32,
) -> Option<Pfn> {
    let front = Front { order: request.order.get(), pages };
    take_by(on, request, |entered, pcp| {
        let lists = |frame| typed_lists_at(on, pcp, page_of(pcp, u64::from(frame)));
        entered.pop_front(front, |frame| lists(frame).map(|(_, lists)| lists), on)
    })
}

/// Takes a whole range back that is the front of a block of this order. `false`: nothing was done.
#[inline(never)]
pub(super) fn free_front<P: Platform>(
    on: &Tables<'_, P>,
    pfn: Pfn,
    (order, pages): (Order, u32),
) -> bool {
    let own = on.own(on.platform.cpu()).filter(|pcp| on.enters(pcp));
    let Some(pcp) = own else { return false };
    let Some(mt) = type_of(on.blocks, pcp.ready.block_shift, pfn) else { return false };
    if !pfn.0.is_multiple_of(order.pages()) {
        return false;
    }
    let lists = |frame| typed_lists_at(on, pcp, page_of(pcp, u64::from(frame)));
    let (frame, front) = (frame_of(pcp, pfn), Front { order: order.get(), pages });
    let list = on.plain.list_by_type(order.get(), mt);
    if !begins_range(on, (pcp, list), (frame, front)) {
        return false;
    }
    let goes_on = || goes_on(on, pcp, frame.wrapping_add(u64::from(pages)));
    let _masked = Masked::new(&on.platform);
    let entered = Entered::ready(pcp, Key::new(on.epoch.now(), order.get())).or_else(|| {
        let zone = on.zones.get(usize::from(pcp.zone.0)).filter(|zone| zone.contains(pfn))?;
        enter(on, (pcp, zone), order, FAST_FREE, list)
    });
    let keeps = P::KEEPS_RANGES;
    entered.is_some_and(|entered| entered.push_front((frame, front), goes_on, (lists, keeps), on))
}

/// Closes the running CPU's pcp once, if a range is parked there that found no room on its lists:
/// who closes it frees the range (PARK-1). So does whoever has it closed meanwhile.
#[inline]
pub(super) fn close_stuck<P: Platform>(on: &Tables<'_, P>) {
    let own = on.own(on.platform.cpu()).filter(|pcp| pcp.parked.is_stuck());
    if let Some(pcp) = own
        && let Some(zone) = on.zones.get(usize::from(pcp.zone.0))
    {
        drop(PcpOps::try_close(ZoneOps::new(on, zone), pcp));
    }
}

/// The type of the pageblock of this page and the lists of blocks in it, by order; a page of the
/// pcp's zone.
#[inline(always)]
fn typed_lists_at<P: Platform>(
    on: &Tables<'_, P>,
    pcp: &Pcp,
    pfn: Pfn,
) -> Option<(u32, impl Fn(u32) -> usize + Copy)> {
    let mt = type_of(on.blocks, pcp.ready.block_shift, pfn)?;
    Some((mt, move |order| on.plain.list_by_type(order, mt)))
}

/// A block for the request from its list, whatever list is active.
#[inline(never)]
pub(super) fn alloc_listed<P: Platform>(on: &Tables<'_, P>, request: &Request) -> Option<Pfn> {
    take(on, request, 0)
}

/// Takes a whole range back that is a block. `false`: nothing was done.
#[inline(always)]
pub(super) fn free_range<P: Platform>(on: &Tables<'_, P>, pfn: Pfn, order: Order) -> bool {
    put_ready(on, (pfn, order), WHOLE_RANGE).is_ok()
}

/// The same, onto its list, whatever list is active.
#[inline(never)]
pub(super) fn free_range_listed<P: Platform>(on: &Tables<'_, P>, pfn: Pfn, order: Order) -> bool {
    put(on, (pfn, order), WHOLE_RANGE)
}
