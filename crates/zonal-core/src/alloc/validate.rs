//! Walks everything and checks it against the invariants (BUDDY-n, ZONE-n, PCP-n).

use core::fmt;

use super::held::{Held, Kind};
use super::pcp_ops::PcpOps;
use super::tables::Tables;
use super::zone_ops::ZoneOps;
use crate::buddy::BuddyFault;
use crate::frame::claim::First;
use crate::frame::{PageState, PageWord};
use crate::pcp::closed::{Closed, Look};
use crate::pcp::state::Pcp;
use crate::platform::Platform;
use crate::sync::{Masked, Ordering::Relaxed};
use crate::types::{CpuId, Order, PageCount, Pfn, ZoneId};
use crate::zone::state::Zone;

/// A broken invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The buddy of this zone is inconsistent.
    Buddy(ZoneId, BuddyFault),
    /// ZONE-1: free pages of the buddy, and of the counter with all deltas.
    FreeCounter(ZoneId, u64, i64),
    /// PCP-2: the stack's ends, or the address of its coldest slot, are wrong.
    StackEnds(ZoneId, CpuId, usize),
    /// PCP-3: a stack holds a page whose word does not say so.
    StackPage(ZoneId, CpuId, Pfn),
    /// ZONE-2: what is read of the buddy without its lock is not what it holds.
    Published(ZoneId),
    /// DEPOT-1: arrays on the stacks of a depot, and arrays that it has.
    Magazines(ZoneId, CpuId, usize, usize),
    /// DEPOT-2: a depot holds a page whose word does not say so.
    DepotPage(ZoneId, Pfn),
    /// DEPOT-3: pages in the depots' batches, and the depots' counts.
    DepotPages(ZoneId, u64, u64),
    /// PCP-3: words that say "cached", and pages on the stacks and in depots.
    CachedPages(ZoneId, u64, u64),
    /// Managed pages, and the sum of free, cached and allocated ones.
    Pages(ZoneId, u64, u64),
    /// OWNER-1 to OWNER-3: the CPU, if one is known, and the first page of a pageblock that is not
    /// on the list where it belongs, that counts wrongly, or whose free pages are part of a block.
    Owned(ZoneId, Option<CpuId>, Pfn),
    /// BUDGET-2: pages that a pcp holds, or that fast operations may bring it to, and fewer that
    /// it was granted.
    Granted(ZoneId, CpuId, u64, u32),
    /// BUDGET-1: pages that pcps and depots may hold, the budget's sum, and its limit.
    Budget(ZoneId, u64, PageCount, PageCount),
    /// RANGE-6: the first word of a range tells another length than its blocks have.
    RangeLength(ZoneId, Pfn),
    /// A page word that no state has.
    CorruptWord(ZoneId, Pfn),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Buddy(zone, fault) => write!(f, "{zone:?}: {fault}"),
            Fault::FreeCounter(zone, buddy, counter) => {
                write!(f, "{zone:?}: the buddy has {buddy} free pages, the counters say {counter}")
            }
            Fault::StackEnds(zone, cpu, list) => {
                write!(f, "{zone:?}, {cpu:?}, list {list}: the ends of the stack are out of order")
            }
            Fault::StackPage(zone, cpu, pfn) => {
                write!(f, "{zone:?}, {cpu:?}: {pfn:?} is on a list, but its word does not say so")
            }
            Fault::Published(zone) => {
                write!(f, "{zone:?}: its lock is free, but others see another state of its buddy")
            }
            Fault::Magazines(zone, cpu, stacked, has) => {
                write!(
                    f,
                    "{zone:?}, depot of {cpu:?}: {stacked} of {has} magazines are on its stacks"
                )
            }
            Fault::DepotPage(zone, pfn) => {
                write!(f, "{zone:?}: {pfn:?} is in a depot, but its word does not say so")
            }
            Fault::DepotPages(zone, held, counted) => {
                write!(f, "{zone:?}: depots hold {held} pages, but count {counted}")
            }
            Fault::CachedPages(zone, words, stacks) => {
                write!(
                    f,
                    "{zone:?}: {words} pages say they are on lists, lists and depots hold {stacks}"
                )
            }
            Fault::Pages(zone, managed, sum) => {
                write!(f, "{zone:?}: {managed} managed pages, but {sum} are accounted for")
            }
            Fault::Owned(zone, cpu, pfn) => {
                write!(
                    f,
                    "{zone:?}, owner {cpu:?}: the free pages of the pageblock at {pfn:?} are not \
                     what its lists and page words say"
                )
            }
            Fault::Granted(zone, cpu, held, granted) => {
                write!(
                    f,
                    "{zone:?}, {cpu:?}: lists hold, or may come to hold, {held} pages, but were \
                     granted {granted}"
                )
            }
            Fault::Budget(zone, sum, reserved, limit) => {
                write!(
                    f,
                    "{zone:?}: lists and depots may hold {sum} pages; the budget says {reserved} \
                     of {limit}"
                )
            }
            Fault::RangeLength(zone, pfn) => {
                write!(f, "{zone:?}: the range at {pfn:?} has not as many pages as its word tells")
            }
            Fault::CorruptWord(zone, pfn) => {
                write!(f, "{zone:?}: the word of {pfn:?} was overwritten: it says no state")
            }
        }
    }
}

impl core::error::Error for Fault {}

/// Base pages by what their words say.
#[derive(Default)]
struct Census {
    free: u64,
    cached: u64,
    allocated: u64,
}

/// Checks every zone, store and page word. The caller makes sure that nothing runs meanwhile.
///
/// # Errors
/// The first [`Fault`] found.
pub(super) fn validate<P: Platform>(on: &Tables<'_, P>) -> Result<(), Fault> {
    on.zones.iter().try_for_each(|zone| validate_zone(ZoneOps::new(on, zone)))
}

/// BUDGET-1 and BUDGET-2.
fn validate_budget<P: Platform>(ops: ZoneOps<'_, '_, P>) -> Result<(), Fault> {
    let (id, budget) = (ops.zone.id(), &ops.zone.budget);
    if !budget.is_on() {
        return Ok(());
    }
    let mut sum: u64 = ops.depots().map(|(_, depot)| u64::from(depot.limit())).sum();
    for pcp in ops.pcps() {
        let (held, granted) = (pcp.may_hold(), pcp.granted.load(Relaxed));
        if held > u64::from(granted) {
            return Err(Fault::Granted(id, pcp.cpu(), held, granted));
        }
        sum += u64::from(granted);
    }
    match (budget.reserved(), budget.limit()) {
        (reserved, limit) if sum != u64::from(reserved) || reserved > limit => {
            Err(Fault::Budget(id, sum, reserved, limit))
        }
        _ => Ok(()),
    }
}

fn validate_zone<P: Platform>(ops: ZoneOps<'_, '_, P>) -> Result<(), Fault> {
    let zone = ops.zone;
    let id = zone.id();
    validate_budget(ops)?;
    let mut stacked = 0;
    let mut diffs = 0;
    for pcp in ops.pcps() {
        stacked += validate_pcp(ops, pcp)?;
        diffs += pcp.free_diff.load(Relaxed);
    }
    stacked += validate_depots(ops)?;
    let locked = ops.lock();
    if !locked.is_published() {
        return Err(Fault::Published(id));
    }
    locked.buddy.validate(&locked.frames).map_err(|fault| Fault::Buddy(id, fault))?;
    let free = locked.buddy.free_pages();
    let isolated = locked.buddy.free_isolate();
    let counter = zone.free_counter_raw() + diffs + zone.lost_pages();
    drop(locked);
    if free as i64 != counter {
        return Err(Fault::FreeCounter(id, free, counter));
    }
    validate_told(ops)?;
    let census = census(ops)?;
    match census.cached.checked_sub(stacked) {
        Some(more) if more <= zone.strays_most() => {}
        _ => return Err(Fault::CachedPages(id, census.cached, stacked)),
    }
    let owned = ops.owned().validate()?;
    let sum = census.free + census.cached + census.allocated + owned;
    if census.free != free + isolated || sum + zone.withheld() != zone.managed() {
        return Err(Fault::Pages(id, zone.managed() - zone.withheld(), sum));
    }
    Ok(())
}

/// Pages on the pcp's stacks.
fn validate_pcp<'a, P: Platform>(ops: ZoneOps<'_, 'a, P>, pcp: &'a Pcp) -> Result<u64, Fault> {
    let (on, zone) = (ops.on, ops.zone);
    let mut pages = 0;
    let _masked = Masked::new(&on.platform);
    // Nothing runs, so the lists of a CPU that cannot be fenced stand still too.
    let (closed, looked);
    let lists: &Closed<'_> = match PcpOps::close(ops, pcp) {
        Some(ops) => {
            closed = ops.closed;
            &closed
        }
        None => {
            looked = pcp.look(&on.platform, zone, on.slots);
            looked.closed()
        }
    };
    for list in 0..on.map.len() {
        let record = &pcp.lists[list];
        if !lists.has_right_ends(list) {
            return Err(Fault::StackEnds(zone.id(), pcp.cpu(), list));
        }
        let frames = lists.frames(list).ok_or(Fault::StackEnds(zone.id(), pcp.cpu(), list))?;
        for slot in frames {
            let frame = slot.load(Relaxed);
            let pfn = zone.page(frame);
            let known = on.words.get(frame as usize).map(|word| word.load(Relaxed));
            if known != Some(record.cached) {
                return Err(Fault::StackPage(zone.id(), pcp.cpu(), pfn));
            }
            pages += record.order().pages();
        }
    }
    let count = u64::from(lists.count().get());
    if count != pages {
        return Err(Fault::CachedPages(zone.id(), pages, count));
    }
    Ok(pages)
}

/// Pages in the zone's depots, all of whose magazines are on their stacks.
fn validate_depots<P: Platform>(ops: ZoneOps<'_, '_, P>) -> Result<u64, Fault> {
    let (on, zone) = (ops.on, ops.zone);
    for (cpu, depot) in ops.depots() {
        match depot.arrays(on.slots) {
            (stacked, has) if stacked != has => {
                return Err(Fault::Magazines(zone.id, cpu, stacked, has));
            }
            _ => {}
        }
    }
    let (mut pages, mut wrong) = (0, None);
    ops.each_in_depots(|slot, word| {
        let known = on.words.get(slot.load(Relaxed) as usize).map(|word| word.load(Relaxed));
        if known != Some(word.0) {
            wrong = Some(zone.page(slot.load(Relaxed)));
        }
        if let PageState::Cached { order, .. } = word.state() {
            pages += order.pages();
        }
    });
    let counted = ops.depot_pages();
    match wrong {
        Some(pfn) => Err(Fault::DepotPage(zone.id, pfn)),
        None if pages != counted => Err(Fault::DepotPages(zone.id, pages, counted)),
        None => Ok(pages),
    }
}

/// Counts the strays of each zone anew, with everything held (ZONE-5): what threads have in their
/// hands comes on top, so the smallest count is the right one. Where sequences go on, what is on
/// the lists is not what it was when they were looked at: such a count may be too small, so it is
/// left to a later call.
pub(super) fn count_strays<P: Platform>(on: &Tables<'_, P>, held: &[Held<'_, P>]) {
    for zone in on.zones {
        let ops = ZoneOps::new(on, zone);
        let of_zone = |look: &Look<'_>| look.closed().pcp.zone == zone.id;
        let moves = |one: &Held<'_, P>| matches!(&one.0, Kind::Gate(look) if of_zone(look));
        if held.iter().any(moves) {
            continue;
        }
        if let Ok(census) = census(ops) {
            zone.set_strays(census.cached.saturating_sub(listed_pages(ops, held)));
        }
    }
}

/// Base pages that are handed out, with everything held. `None`: a page word is corrupt.
///
/// A page that says "cached" and is neither on a list nor in a depot is handed out, too: its free
/// was aborted between the mark and the commit, and begins again. Each word is read once, so the
/// mark may be undone meanwhile. Strays count for the same reason: they cannot be told apart.
pub(super) fn handed_out_pages<P: Platform>(
    on: &Tables<'_, P>,
    held: &[Held<'_, P>],
) -> Option<u64> {
    let of_zone = |zone| {
        let ops = ZoneOps::new(on, zone);
        let census = census(ops).ok()?;
        Some(census.allocated + census.cached.saturating_sub(listed_pages(ops, held)))
    };
    on.zones.iter().map(of_zone).sum()
}

/// Base pages on the zone's lists and in its depots, with everything held.
fn listed_pages<P: Platform>(ops: ZoneOps<'_, '_, P>, held: &[Held<'_, P>]) -> u64 {
    let of_zone = |closed: &Closed<'_>| match closed.pcp.zone == ops.zone.id {
        true => u64::from(closed.count()),
        false => 0,
    };
    let lists = held.iter().map(|one| match &one.0 {
        Kind::Pcp(closed) => of_zone(closed),
        Kind::Gate(look) => of_zone(look.closed()),
        Kind::Zone(_) | Kind::Owner(_) | Kind::Masked(_) => 0,
    });
    lists.sum::<u64>() + ops.depot_pages()
}

/// Ranges that tell how many pages they have.
fn validate_told<P: Platform>(ops: ZoneOps<'_, '_, P>) -> Result<(), Fault> {
    let frames = ops.frames();
    for first in 0..frames.spanned() {
        let word = frames.load(first);
        if !matches!(word.first(), First::Told(_)) {
            continue;
        }
        let mut end = first;
        while end == first || frames.load(end).continues_range() {
            end = end.saturating_add(1 << frames.load(end).order_bits());
        }
        if end - first != word.told_pages() {
            return Err(Fault::RangeLength(ops.zone.id(), frames.pfn(first)));
        }
    }
    Ok(())
}

fn census<P: Platform>(ops: ZoneOps<'_, '_, P>) -> Result<Census, Fault> {
    let mut census = Census::default();
    let frames = ops.frames();
    for idx in 0..frames.spanned() {
        let word: PageWord = frames.load(idx);
        match word.state() {
            PageState::None => {}
            PageState::Free { order, .. } => census.free += order.pages(),
            PageState::Cached { order, .. } => census.cached += order.pages(),
            PageState::Allocated { order, .. } | PageState::Range { order, .. } => {
                census.allocated += order.pages();
            }
            PageState::Corrupt(_) => {
                return Err(Fault::CorruptWord(ops.zone.id(), frames.pfn(idx)));
            }
        }
    }
    Ok(census)
}

/// The blocks that are handed out: first page and order. The caller makes sure that nothing
/// runs meanwhile.
pub(super) fn allocated<P: Platform>(on: &Tables<'_, P>) -> impl Iterator<Item = (Pfn, Order)> {
    on.zones.iter().flat_map(|zone| {
        let ops = ZoneOps::new(on, zone);
        let frames = ops.frames();
        (0..frames.spanned()).filter_map(move |idx| match ops.state_at(idx) {
            PageState::Allocated { order, .. } | PageState::Range { order, .. } => {
                Some((frames.pfn(idx), order))
            }
            _ => None,
        })
    })
}

/// What the block at a frame is now, by its number in the table of all.
pub(super) fn frame_state<P: Platform>(on: &Tables<'_, P>, frame: usize) -> PageState {
    let at = |zone: &Zone| {
        let at = frame.checked_sub(zone.frame_base)? as u64;
        (at < zone.spanned).then_some(at as u32)
    };
    let found = on.zones.iter().find_map(|zone| Some((zone, at(zone)?)));
    found.map_or(PageState::None, |(zone, at)| ZoneOps::new(on, zone).state_at(at))
}
