//! Pageblocks of a zone that CPUs own: claimed, served from, given back ([`crate::pcp::owner`]).
//!
//! A request that its CPU's pageblocks cannot serve looks, in this order, for
//! 1. a free piece of a pageblock that the CPU owns: that is what was asked first;
//! 2. a whole free pageblock of its type, which it claims;
//! 3. the largest piece of a pageblock that is free in part, which it claims with its pageblock if
//!    nobody owns that;
//! 4. a block of the zone, as a request without lists does, fallbacks to other types included.
//!
//! Steps 2 and 3 are left out while the zone is short: pages are wanted where all find them.
//!
//! What an owner keeps moves as `high` of tuned lists does (LB E.10): up by a pageblock with each
//! claim, down by an eighth with each refresh, between `high_min` and `high_max` of the zone, and
//! it is at least a pageblock. Beyond, the pageblock with the largest free block goes back, whole
//! ones first. Its held pages are freed to the zone from then on.

use core::ops::Range;

use super::{PRESSED, Want, ZoneOps};
use crate::alloc::stats::ZoneStats;
use crate::alloc::validate::Fault;
use crate::buddy::{FreeCause, FreeError, FreeFlags, containing_block};
use crate::frame::PageWord;
use crate::gfp::AllocFlags;
use crate::pcp::owner::{HeldOwner, OwnedBlock, Owner, free_blocks, lock_owner_of};
use crate::pcp::state::Pcp;
use crate::platform::{Platform, Step};
use crate::sync::Ordering::Relaxed;
use crate::types::{CpuId, Migratetype, Order, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES, Pfn};
use crate::zone::state::LockedZone;

/// Part of `high` that a refresh takes off: as of tuned lists (LB E.9).
const DECAY: u32 = 8;
const PAGES: u32 = PAGEBLOCK_PAGES as u32;

/// The pageblocks of a zone that CPUs own.
#[derive(Debug)]
pub struct OwnedOps<'s, 'a, P> {
    ops: ZoneOps<'s, 'a, P>,
}

impl<P> Clone for OwnedOps<'_, '_, P> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}
impl<P> Copy for OwnedOps<'_, '_, P> {}

impl<'s, 'a, P: Platform> ZoneOps<'s, 'a, P> {
    /// The zone's pageblocks that CPUs own; none unless the policy says so.
    #[inline]
    pub fn owned(self) -> OwnedOps<'s, 'a, P> {
        OwnedOps { ops: self }
    }
}

/// Counts a block that came past the lists.
#[inline]
fn count_direct(pcp: &Pcp, want: Want) {
    pcp.events.direct_allocs.fetch_add(1, Relaxed);
    pcp.events.direct_pages.fetch_add(want.order.pages(), Relaxed);
}

/// A CPU's pageblocks, locked; tells the platform what was moved when it drops.
struct Holding<'s, 'a, P: Platform> {
    ops: OwnedOps<'s, 'a, P>,
    cpu: CpuId,
    pages: u32,
    blocks: u32,
    held: HeldOwner<'s, P>,
}

impl<P: Platform> Drop for Holding<'_, '_, P> {
    fn drop(&mut self) {
        let Holding { pages, blocks, cpu: owner, .. } = *self;
        self.ops.ops.on.platform.cost(Step::OwnerUnlock {
            zone: self.ops.ops.zone.id,
            owner,
            pages,
            blocks,
        });
    }
}

impl<P: Platform> Holding<'_, '_, P> {
    fn moved(&mut self, order: Order) {
        self.pages += order.pages() as u32;
        self.blocks += 1;
    }
    /// Takes a block for a request of `pcp` and writes its word: with the lock free, each page is
    /// free or in a block (OWNER-1).
    #[inline]
    fn take(&mut self, pcp: &Pcp, want: Want) -> Option<Pfn> {
        let place = self.held.lists.take(self.ops.blocks(), want.order, want.mt)?;
        self.moved(want.order);
        let ZoneOps { on, zone } = self.ops.ops;
        let pfn = self.ops.page_at(place);
        let word = PageWord::allocated(want.order, want.mt, on.pcp_id(zone.id, pcp.cpu()));
        // Relaxed: the page is this thread's since its bit was cleared.
        on.word(zone.frame(pfn)).store(word.0, Relaxed);
        Some(pfn)
    }
    #[inline]
    fn put(&mut self, place: (u32, u32), order: Order) {
        self.held.lists.put(self.ops.blocks(), place, order);
        self.moved(order);
    }
    /// Free pages beyond what the owner keeps.
    fn has_surplus(&self) -> bool {
        self.held.lists.free > self.ops.kept(self.cpu, self.held.lists.high)
    }
}

impl<'s, 'a, P: Platform> OwnedOps<'s, 'a, P> {
    /// What is known of the zone's pageblocks.
    fn blocks(self) -> &'a [OwnedBlock] {
        if !self.ops.on.owns_pageblocks() {
            return &[];
        }
        let first = self.ops.zone.block_base;
        self.ops.on.owned.get(first..first + self.ops.zone.block_count).unwrap_or_default()
    }
    /// The owners of the zone's pageblocks, by CPU.
    fn owners(self) -> &'a [Owner] {
        // The table has none then. Where the policy is compiled in, this saves what follows, too.
        if !self.ops.on.owns_pageblocks() {
            return &[];
        }
        let first = usize::from(self.ops.zone.id.0) * self.ops.on.cpus();
        self.ops.on.owners.get(first..first + self.ops.on.cpus()).unwrap_or_default()
    }
    #[inline]
    fn hold(self, cpu: CpuId) -> Option<Holding<'s, 'a, P>> {
        let held = self.owners().get(cpu.0 as usize)?.lock(&self.ops.on.platform);
        Some(Holding { ops: self, cpu, pages: 0, blocks: 0, held })
    }
    /// The pageblock of a page, and the page's place in it.
    fn place(self, pfn: Pfn) -> (u32, u32) {
        let first = self.ops.zone.start_pfn >> PAGEBLOCK_ORDER.get();
        let block = (pfn.0 >> PAGEBLOCK_ORDER.get()).wrapping_sub(first);
        (block as u32, (pfn.0 % PAGEBLOCK_PAGES) as u32)
    }
    fn page_at(self, (block, page): (u32, u32)) -> Pfn {
        let first = self.ops.zone.start_pfn >> PAGEBLOCK_ORDER.get();
        Pfn((first + u64::from(block)) << PAGEBLOCK_ORDER.get() | u64::from(page))
    }
    fn owner_of(self, block: u32) -> Option<u32> {
        self.blocks().get(block as usize)?.owner()
    }
    /// Whether a CPU owns the pageblock of this page. A hint without the zone lock (OWNER-4).
    pub fn is_owned(self, pfn: Pfn) -> bool {
        self.owner_of(self.place(pfn).0).is_some()
    }
    /// Free pages that a CPU's owner keeps: `high` within its bounds, none once the CPU is gone.
    fn kept(self, cpu: CpuId, high: u32) -> u32 {
        if !self.ops.on.is_online(cpu) {
            return 0;
        }
        let (_, low, most) = self.ops.zone.pcp_sizes();
        if self.ops.zone.has(PRESSED) { low } else { high.min(most).max(low).max(PAGES) }
    }

    /// A block from the CPU's own pageblocks, or from what it can claim. `None`: it is the zone's
    /// turn.
    pub fn take(self, pcp: &Pcp, want: Want) -> Option<Pfn> {
        if want.order >= PAGEBLOCK_ORDER || want.flags.contains(AllocFlags::HIGHATOMIC) {
            return None;
        }
        let own = self.hold(pcp.cpu)?.take(pcp, want);
        // With the owner's lock free again: the zone's comes first.
        let pfn = own.or_else(|| self.claim(pcp, want))?;
        count_direct(pcp, want);
        Some(pfn)
    }

    /// The first step alone, where it serves the request at once. `None`: all steps are to be made.
    #[inline]
    pub fn take_own(self, pcp: &Pcp, want: Want) -> Option<Pfn> {
        let owner = self.owners().get(pcp.cpu.0 as usize)?;
        if want.order >= PAGEBLOCK_ORDER || !owner.served(want.order, want.mt) {
            return None;
        }
        let pfn = self.hold(pcp.cpu)?.take(pcp, want)?;
        count_direct(pcp, want);
        Some(pfn)
    }

    /// Steps 2 and 3: claims memory of the zone and serves the request from it.
    fn claim(self, pcp: &Pcp, want: Want) -> Option<Pfn> {
        if self.ops.zone.has(PRESSED) {
            return None;
        }
        let mut locked = self.ops.lock();
        let (place, order) = self.take_piece(&mut locked, pcp, want)?;
        let mut holding = self.hold(pcp.cpu)?;
        let events = &self.owners()[pcp.cpu.0 as usize].events;
        if self.owner_of(place.0).is_none() {
            holding.held.lists.adopt(self.blocks(), place.0, pcp.cpu.0, want.mt);
        }
        holding.put(place, order);
        if order == PAGEBLOCK_ORDER {
            let high = self.kept(pcp.cpu, holding.held.lists.high);
            holding.held.lists.high = high.saturating_add(PAGES);
            events.claims.fetch_add(1, Relaxed);
        } else {
            events.pieces.fetch_add(1, Relaxed);
        }
        holding.take(pcp, want)
    }

    /// Takes a whole free pageblock out of the locked zone, or the largest piece that lies in a
    /// pageblock of the CPU's own or of nobody. The words of its pages are NONE.
    fn take_piece(
        self,
        locked: &mut LockedZone<'_, P>,
        pcp: &Pcp,
        want: Want,
    ) -> Option<((u32, u32), Order)> {
        let free = locked.buddy.nonempty_orders(want.mt);
        let orders = (want.order.get()..=PAGEBLOCK_ORDER.get()).rev().filter_map(Order::new);
        // A whole pageblock comes out of a larger block, too.
        let whole = |order: Order| order == PAGEBLOCK_ORDER && free >> order.get() != 0;
        let mut orders = orders.filter(|order| whole(*order) || free >> order.get() & 1 != 0);
        let (place, order) =
            orders.find_map(|order| self.try_piece(locked, pcp, want.mt, order))?;
        locked.account(self.ops.on.free_diff(pcp), -(order.pages() as i64), 1);
        Some((place, order))
    }

    /// The same of one order: the first block. Goes to the end of its list if another CPU owns its
    /// pageblock.
    fn try_piece(
        self,
        locked: &mut LockedZone<'_, P>,
        pcp: &Pcp,
        mt: Migratetype,
        order: Order,
    ) -> Option<((u32, u32), Order)> {
        let LockedZone { buddy, frames, .. } = &mut *locked;
        let idx = buddy.take_smallest(frames, order, mt)?;
        let place = self.place(frames.pfn(idx));
        match self.owner_of(place.0) {
            // All of it came back to the zone page by page, as parts of ranges.
            Some(owner) if order == PAGEBLOCK_ORDER && owner != pcp.cpu.0 => {
                let mut holding = self.hold(CpuId(owner))?;
                holding.held.lists.release(self.blocks(), place.0);
            }
            Some(owner) if owner != pcp.cpu.0 => {
                frames.store(idx, PageWord::moving(order, mt, None));
                // It was taken just now, so it can be freed.
                buddy.frees(frames, idx, order, FreeFlags { to_tail: true });
                return None;
            }
            _ => {}
        }
        Some((place, order))
    }

    /// Frees a block, whose word the caller has claimed, to the owner of its pageblock. `false`,
    /// and nothing done: it has none.
    pub fn free(self, pcp: &Pcp, pfn: Pfn, order: Order) -> bool {
        if order >= PAGEBLOCK_ORDER {
            return false;
        }
        let place = self.place(pfn);
        let Some(block) = self.blocks().get(place.0 as usize) else { return false };
        let held = lock_owner_of(block, |owner| self.hold(CpuId(owner)));
        let Some((mut holding, owner)) = held else { return false };
        let owner = CpuId(owner);
        // Relaxed: the word is the caller's until the bit is set, under the owner's lock.
        self.ops.on.word(self.ops.zone.frame(pfn)).store(PageWord::NONE.0, Relaxed);
        holding.put(place, order);
        let surplus = holding.has_surplus();
        drop(holding);
        if owner != pcp.cpu {
            let events = &self.owners()[owner.0 as usize].events;
            events.remote_frees.fetch_add(1, Relaxed);
        }
        pcp.events.direct_freed.fetch_add(order.pages(), Relaxed);
        if surplus {
            self.give_back(owner, Holding::has_surplus);
        }
        true
    }

    /// Gives pageblocks back to the zone, the one with the largest free block first, as long as
    /// there is `more` to give; one in each hold of the locks, and no more than the CPU had at
    /// first: it may go on claiming. Returns the pages moved.
    fn give_back(self, cpu: CpuId, more: impl Fn(&Holding<'s, 'a, P>) -> bool) -> u64 {
        let (mut moved, mut turns) = (0, None);
        while turns != Some(0) {
            let mut locked = self.ops.lock();
            let Some(mut holding) = self.hold(cpu) else { return moved };
            let left: u32 = turns.unwrap_or(holding.held.lists.blocks);
            turns = Some(left.saturating_sub(1));
            let next = holding.held.lists.emptiest().filter(|_| more(&holding));
            let Some(at) = next else { return moved };
            let bits = holding.held.lists.release(self.blocks(), at);
            for (page, order) in free_blocks(bits) {
                holding.moved(order);
                moved += self.free_piece(&mut locked, self.page_at((at, page)), order);
            }
            drop(holding);
            self.owners()[cpu.0 as usize].events.returns.fetch_add(1, Relaxed);
        }
        moved
    }

    /// A free block of a pageblock that has just lost its owner comes to the locked buddy.
    fn free_piece(self, locked: &mut LockedZone<'_, P>, pfn: Pfn, order: Order) -> u64 {
        let LockedZone { buddy, frames, .. } = &mut *locked;
        let Some(idx) = frames.index(pfn) else { return 0 };
        let pcp = self.ops.pcp(self.ops.on.platform.cpu());
        // A word that proves the free right, so that the buddy need not look around.
        frames.store(idx, PageWord::moving(order, Migratetype::Unmovable, None));
        if !buddy.frees(frames, idx, order, FreeFlags::default()) {
            pcp.events.double_frees.fetch_add(1, Relaxed);
            return 0;
        }
        locked.account(&pcp.free_diff, order.pages() as i64, 1);
        order.pages()
    }

    /// Gives all pageblocks of a CPU that have free pages back. Returns the pages moved.
    pub fn give_all_back(self, cpu: CpuId) -> u64 {
        if self.owns(cpu) { self.give_back(cpu, |_| true) } else { 0 }
    }

    /// Whether a CPU's pageblocks have free pages.
    pub fn owns(self, cpu: CpuId) -> bool {
        self.pages_of(cpu) > 0
    }

    /// Whether a CPU's pageblocks could serve a request.
    pub fn serves(self, cpu: CpuId, order: Order, mt: Migratetype) -> bool {
        let owner = self.owners().get(cpu.0 as usize).filter(|_| order < PAGEBLOCK_ORDER);
        owner.is_some_and(|owner| owner.lock(&self.ops.on.platform).lists.serves(order, mt))
    }

    /// The owner's part of a refresh: what it keeps falls. Returns whether it did, or anything
    /// went back.
    pub fn refresh(self, cpu: CpuId) -> bool {
        if !self.owns(cpu) {
            return false;
        }
        let Some(mut holding) = self.hold(cpu) else { return false };
        let high = self.kept(cpu, holding.held.lists.high);
        let lower = high - high / DECAY;
        holding.held.lists.high = lower;
        let surplus = holding.has_surplus();
        drop(holding);
        if surplus {
            self.give_back(cpu, Holding::has_surplus);
        }
        surplus || self.kept(cpu, lower) < high
    }

    /// Free pages in a CPU's pageblocks of the zone.
    pub fn pages_of(self, cpu: CpuId) -> u32 {
        self.owners().get(cpu.0 as usize).map_or(0, Owner::free)
    }

    /// Free pages in the zone's owned pageblocks.
    pub fn pages(self) -> u64 {
        self.owners().iter().map(|owner| u64::from(owner.free())).sum()
    }

    /// The same, each read once what was moving at its owner has another place.
    pub fn settled_pages(self) -> u64 {
        let settled = |owner: &Owner| {
            drop(owner.lock(&self.ops.on.platform));
            u64::from(owner.free())
        };
        self.owners().iter().map(settled).sum()
    }

    /// Adds the figures of the zone's owners.
    pub fn count(self, stats: &mut ZoneStats) {
        for owner in self.owners() {
            let events = &owner.events;
            let (holds, contended) = owner.holds();
            stats.owned_pages += u64::from(owner.free());
            stats.owned_blocks += u64::from(owner.blocks());
            stats.owned_claims += events.claims.load(Relaxed);
            stats.owned_pieces += events.pieces.load(Relaxed);
            stats.owned_returns += events.returns.load(Relaxed);
            stats.owned_remote_frees += events.remote_frees.load(Relaxed);
            stats.owner_holds += holds;
            stats.owner_contended += contended;
        }
        stats.cached_pages += stats.owned_pages;
    }

    /// Refuses memory that is to come online where a page of it is there already, in a pageblock
    /// that a CPU owns: the words of free pages say nothing there (OWNER-1). The zone lock is held.
    pub fn look_absent(self, pages: Range<Pfn>) -> Result<(), FreeError> {
        let Some(last) = pages.end.0.checked_sub(1).filter(|last| *last >= pages.start.0) else {
            return Ok(());
        };
        for at in self.place(pages.start).0..=self.place(Pfn(last)).0 {
            let Some(block) = self.blocks().get(at as usize) else { break };
            let Some(_held) = lock_owner_of(block, |owner| self.hold(CpuId(owner))) else {
                continue;
            };
            // Words of pages that go from hand to hand are never NONE while the owner is locked.
            let first = self.page_at((at, 0)).0;
            for pfn in pages.start.0.max(first)..pages.end.0.min(first + PAGEBLOCK_PAGES) {
                self.look_at_absent(block, Pfn(pfn))?;
            }
        }
        Ok(())
    }

    /// Whether a page in no block is there all the same: free in a pageblock that a CPU owns, or on
    /// its way from there. The zone lock is held.
    pub fn has(self, pfn: Pfn) -> bool {
        self.look_absent(pfn..Pfn(pfn.0 + 1)).is_err()
    }

    fn look_at_absent(self, block: &OwnedBlock, pfn: Pfn) -> Result<(), FreeError> {
        let frames = self.ops.frames();
        let inside = frames.index(pfn).and_then(|idx| containing_block(&frames, idx));
        let cause = match inside {
            Some((head, word)) if !word.is_free() => FreeCause::InsideBlock(frames.pfn(head)),
            Some(_) => FreeCause::AlreadyFree,
            None if block.is_free(self.place(pfn).1) => FreeCause::AlreadyFree,
            None => return Ok(()),
        };
        Err(FreeError { pfn, order: Order::ZERO, cause })
    }

    /// Checks OWNER-1 to OWNER-3 and OWNER-5. Returns the free pages of the zone's owned
    /// pageblocks.
    pub fn validate(self) -> Result<u64, Fault> {
        let of = self.blocks();
        let fault = |cpu, at| Fault::Owned(self.ops.zone.id, cpu, self.page_at((at, 0)));
        let (mut listed, mut blocks, mut pages) = (0, 0, 0);
        for (cpu, owner) in self.owners().iter().enumerate() {
            let held = owner.lock(&self.ops.on.platform);
            let cpu = CpuId(cpu as u32);
            let on_lists = held.lists.validate(of, cpu.0);
            listed += on_lists.map_err(|at| fault(Some(cpu), at.unwrap_or_default()))?;
            blocks += held.lists.blocks;
            pages += u64::from(held.lists.free);
        }
        let (mut free, mut owned) = (0, 0);
        for (at, block) in of.iter().enumerate() {
            owned += u32::from(block.owner().is_some());
            free += u32::from(block.pages() > 0);
            self.validate_bits(at as u32)
                .map_err(|()| fault(block.owner().map(CpuId), at as u32))?;
        }
        match (listed, blocks) == (free, owned) {
            true => Ok(pages),
            false => Err(fault(None, 0)),
        }
    }

    /// OWNER-1 and OWNER-5 of one pageblock: its free pages are in no block, and what is repeated
    /// of them is right.
    fn validate_bits(self, at: u32) -> Result<(), ()> {
        let block = &self.blocks()[at as usize];
        if !block.is_right() {
            return Err(());
        }
        if block.pages() == 0 {
            return Ok(());
        }
        let frames = self.ops.frames();
        let mut behind = 0;
        for page in 0..PAGES {
            let free = block.is_free(page);
            let idx = frames.index(self.page_at((at, page)));
            let word = idx.map_or(PageWord::NONE, |idx| frames.load(idx));
            if !word.is_none() {
                behind = behind.max(page + (1 << word.order_bits()));
            }
            if free && (idx.is_none() || page < behind) {
                return Err(());
            }
        }
        if block.owner().is_some() { Ok(()) } else { Err(()) }
    }
}
