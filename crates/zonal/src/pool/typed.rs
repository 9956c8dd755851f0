//! The fast path of a pool that groups its pages by mobility, or keeps to a policy of Linux. The
//! order alone does not say which list a block is on: of a request its mobility does besides, of a
//! free the type that the block's pageblock has now. Both are looked up in front of the sequence,
//! as the core's own fast path does.
//!
//! ```text
//!  request ── flags it may have? ── list of (order, mobility) ── zone passes? ──► pop
//!  free ── one of ours? ── list of (order, type of the pageblock) ── zone passes? ──► push
//!                                                            no, or left: the core
//! ```
//! Whether the zone passes is asked as the core's own fast path asks it, for the order and at this
//! moment: the pcps' `slow` bits follow from order 0 at their last closing. So a policy of Linux
//! decides with sequences what it decides under locks.
//!
//! Such a pool has no hot page's way (`hot`): there the fast path is off, and what it leaves comes
//! here before it goes to the core.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use zonal_core::gfp::Gfp;
use zonal_core::pcp::lists::{FreeLists, ListMap};
use zonal_core::pcp::owner::Pageblocks;
use zonal_core::policy::Policy;
use zonal_core::policy::walk::{DirtySpread, ZonelistCaching};
use zonal_core::types::{Migratetype, NR_ORDERS, Order, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES};
use zonal_core::zone::state::{FAST_FREE, Zone};

use super::block::zeroed;
use super::hot::ZONES;
use super::plan::Plan;
use super::{PoolAllocator, Shared};
use crate::rseq::{FastRef, NO_OFFSET, list_offset};

/// Types of pageblocks, up to a power of two.
const TYPES: usize = 8;
/// What of a request's flags is its mobility, and where it begins.
const MOBILITY: u32 = Gfp::MOVABLE.bits() | Gfp::RECLAIMABLE.bits();
const MOBILITY_SHIFT: u32 = MOBILITY.trailing_zeros();
const MOBILITIES: usize = (MOBILITY >> MOBILITY_SHIFT) as usize + 1;
const _: () = assert!(MOBILITIES <= 64, "a row for each");

/// Which list a request or a block is of. Never changes.
#[derive(Debug)]
pub(super) struct Typed {
    fast: FastRef,
    /// Pages of the pool.
    frames: usize,
    /// A request with one of these flags is for the core.
    others: u32,
    /// Offset in bytes of the list from the first one, by order and mobility.
    by_request: [[u16; MOBILITIES]; NR_ORDERS],
    /// The same by order and type of pageblock.
    by_type: [[u16; TYPES]; NR_ORDERS],
    /// The type of each pageblock of the pool.
    blocks: &'static [AtomicU8],
    /// The zone that each CPU prefers.
    preferred: Box<[&'static Zone]>,
}

/// Whether sequences serve such pools under this policy: events that are written down take
/// the gate, and a search passes full zones or looks for cold pages.
pub(super) fn may_serve(policy: &Policy) -> bool {
    !policy.numa.records()
        && policy.zonelist.cache == ZonelistCaching::None
        && policy.pcp.free_lists == FreeLists::Single
        && policy.pcp.pageblocks == Pageblocks::Shared
}

impl Typed {
    /// The fast path of a pool's hot page and this one: where lists are looked up (`by_list`), all
    /// that runs by `fast` goes this way.
    pub(super) fn of(
        of: (&Plan, &Policy),
        allocator: &PoolAllocator,
        (fast, by_list): (FastRef, bool),
        blocks: &'static [AtomicU8],
    ) -> (FastRef, Option<Typed>) {
        if fast.area == 0 || !by_list {
            return (fast, None);
        }
        let tables = allocator.tables();
        let lists = (tables.lists(), tables.grouping());
        let zone = |cpu| &allocator.zones()[usize::from(tables.preferred_zone(cpu).0)];
        let preferred = tables.each_cpu().map(zone).collect();
        (fast.without_sequences(), Typed::new(of, lists, fast, (blocks, preferred)))
    }

    /// `None`: a pageblock may belong to two zones.
    fn new(
        (plan, policy): (&Plan, &Policy),
        (lists, grouping): (&ListMap, bool),
        fast: FastRef,
        (blocks, preferred): (&'static [AtomicU8], Box<[&'static Zone]>),
    ) -> Option<Typed> {
        let whole = |zone: &zonal_core::machine::ZoneSpec| {
            (zone.start_pfn | zone.spanned).is_multiple_of(PAGEBLOCK_PAGES)
        };
        let frames = plan.pages as usize;
        if !plan.zones.iter().all(whole) || blocks.len() != frames >> PAGEBLOCK_ORDER.get() {
            return None;
        }
        let offset = |order: Order, mt: Option<Migratetype>| {
            let list = mt.and_then(|mt| lists.get(order, mt));
            list.map_or(NO_OFFSET, list_offset)
        };
        let mut typed = Typed {
            fast,
            frames,
            // What a node alone may give, or has too much of, is for a search.
            others: Gfp::THISNODE.bits(),
            by_request: [[NO_OFFSET; MOBILITIES]; NR_ORDERS],
            by_type: [[NO_OFFSET; TYPES]; NR_ORDERS],
            blocks,
            preferred,
        };
        if policy.zonelist.dirty == DirtySpread::Node {
            typed.others |= Gfp::WRITE.bits();
        }
        if plan.several_kinds() {
            typed.others |= ZONES;
        }
        for order in Order::all() {
            for (at, list) in typed.by_request[order.index()].iter_mut().enumerate() {
                let gfp = Gfp::from_bits((at as u32) << MOBILITY_SHIFT & MOBILITY);
                *list = offset(order, gfp.migratetype(grouping));
            }
            for (at, list) in typed.by_type[order.index()].iter_mut().enumerate() {
                // Without grouping there is one list of an order, whatever a pageblock's type.
                let mt = Migratetype::new(at as u32);
                *list =
                    offset(order, mt.map(|mt| if grouping { mt } else { Migratetype::Unmovable }));
            }
        }
        Some(typed)
    }

    /// The list that serves a request.
    #[inline]
    fn list_of_request(&self, order: Order, gfp: Gfp) -> Option<usize> {
        if gfp.bits() & self.others != 0 {
            return None;
        }
        let mobility = (gfp.bits() & MOBILITY) >> MOBILITY_SHIFT;
        listed(self.by_request[order.index()][mobility as usize])
    }

    /// The list that a block is freed to.
    #[inline]
    fn list_of_block(&self, frame: usize, order: Order) -> Option<usize> {
        let block = self.blocks.get(frame >> PAGEBLOCK_ORDER.get())?;
        // Relaxed: written under the zone lock; a reader without it wants a hint.
        let mt = block.load(Relaxed);
        listed(self.by_type[order.index()][usize::from(mt) % TYPES])
    }
}

/// A list, if there is one.
#[inline]
fn listed(offset: u16) -> Option<usize> {
    (offset != NO_OFFSET).then_some(usize::from(offset))
}

impl Shared {
    /// Whether the zone that the running CPU prefers lets operations with this bit of `fast` pass
    /// (ZONE-3). Advice: the thread may be moved, and the zone may change.
    #[inline(always)]
    fn lets_pass(&self, typed: &Typed, bit: u32) -> bool {
        let Some(area) = self.allocator.platform().area() else { return false };
        let zone = typed.preferred.get(area.current_cpu() as usize);
        zone.is_some_and(|zone| zone.has(bit))
    }

    /// A block by a sequence, where lists are looked up. `None`: go through the core.
    #[inline(always)]
    pub(super) fn pop_typed(&self, order: Order, gfp: Gfp) -> Option<NonNull<u8>> {
        let typed = self.typed.as_ref()?;
        let list = typed.list_of_request(order, gfp)?;
        if !self.lets_pass(typed, 1 << order.get()) {
            return None;
        }
        let popped = typed.fast.pop_block(list);
        let start = popped.or_else(|missed| self.pop_again(typed.fast, missed, list).ok_or(()));
        start.ok().map(|start| zeroed(start, order, gfp))
    }

    /// Takes a block back by a sequence, where lists are looked up. `false`: nothing was done.
    /// Nothing of the pool is touched behind the commit (LIFE-2).
    #[inline(always)]
    pub(super) fn push_typed(&self, frame: usize, order: Order) -> bool {
        let Some(typed) = &self.typed else { return false };
        if frame >= typed.frames {
            return false;
        }
        let Some(list) = typed.list_of_block(frame, order) else { return false };
        if !self.lets_pass(typed, FAST_FREE) {
            return false;
        }
        typed.fast.push_listed(list, frame)
    }
}

#[cfg(test)]
mod tests {
    use zonal_core::types::{CpuId, ZoneId};

    use super::*;
    use crate::sys::affinity::{Pinned, allowed_cpus};
    use crate::{Mode, Pool, ZoneStats};

    const KINDS: [Gfp; 3] = [Gfp::KERNEL, Gfp::MOVABLE, Gfp::RECLAIMABLE];

    fn pool(rseq: bool, groups: bool) -> Pool {
        let mut policy = Policy::LINUX_6_18;
        policy.set("mobility_grouping", if groups { "on" } else { "off" }).unwrap();
        let pool = Pool::builder().size(64 << 20).policy(policy).rseq(rseq);
        pool.refresh_every(None).build().unwrap()
    }

    /// A pool whose sequences run, on one CPU; `None` where the system has none.
    fn with_sequences(groups: bool) -> Option<(Pool, Pinned, CpuId)> {
        let pool = pool(true, groups);
        if *pool.mode() != Mode::Rseq {
            eprintln!("note: SKIPPED: there are no restartable sequences here");
            return None;
        }
        let cpu = allowed_cpus().unwrap()[0];
        Some((pool, Pinned::to(cpu).unwrap(), CpuId(cpu.0)))
    }

    fn gfp(kind: usize) -> Gfp {
        Gfp::KERNEL | KINDS[kind]
    }

    fn free(pool: &Pool, start: NonNull<u8>, order: Order) {
        // SAFETY: (1) nobody uses the memory.
        unsafe { pool.free_pages(start, order) }.unwrap();
    }

    /// The core would find the gate taken and go to the buddy.
    #[test]
    fn blocks_of_every_mobility_pass_a_pcp_that_another_thread_has_closed() {
        let Some((pool, _pinned, cpu)) = with_sequences(true) else { return };
        let allocator = &pool.shared.allocator;
        for (order, kind) in (0..=3).flat_map(|order| (0..3).map(move |kind| (order, kind))) {
            let order = Order::new(order).unwrap();
            let take = || pool.alloc_pages(order, gfp(kind)).unwrap();
            // Both blocks are on the list, and no list but theirs is changed.
            let two = [take(), take()];
            two.into_iter().for_each(|start| free(&pool, start, order));
            let held = allocator.tables().look(ZoneId(0), cpu).unwrap();
            let buddy = || pool.zone_stats().next().unwrap().free_pages;
            let before = buddy();
            let start = take();
            free(&pool, start, order);
            if kind == 0 {
                drop(pool.alloc(order).unwrap().into_owned());
                let start = pool.try_alloc_cached(order).unwrap();
                // SAFETY: (1) nobody uses the memory.
                assert!(unsafe { pool.try_free_cached(start, order) });
            }
            assert_eq!(buddy(), before, "{order:?} {:?}", KINDS[kind]);
            drop(held);
        }
        pool.validate().unwrap();
    }

    /// What does not depend on how often somebody looked.
    fn figures(pool: &Pool) -> ZoneStats {
        let stats = pool.zone_stats().next().unwrap();
        ZoneStats { lock_holds: 0, lock_contended: 0, ..stats }
    }

    /// Until memory is short, so that blocks of one type are taken from pageblocks of another, and
    /// are freed to lists other than they came from.
    #[test]
    fn the_same_calls_get_the_same_pages_with_sequences_as_under_locks() {
        [true, false].into_iter().for_each(same_pages);
    }

    fn same_pages(groups: bool) {
        let Some((pool, _pinned, _)) = with_sequences(groups) else { return };
        let pools = [pool, self::pool(false, groups)];
        let mut held: Vec<([NonNull<u8>; 2], Order)> = Vec::new();
        let (mut random, mut direct, mut refused) = (7u64, 0, 0);
        for step in 0..60_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (draw, at) = (random >> 33, random >> 40);
            let order = Order::new([0, 0, 0, 0, 1, 1, 2, 3, 4, 9][(draw % 10) as usize]).unwrap();
            // Many more of one type than of the others for a while: that one falls back.
            let kind = if draw >> 5 & 7 != 0 { step / 6_000 % 3 } else { (draw >> 8) as usize % 3 };
            let frees =
                !held.is_empty() && draw >> 12 & 15 < if step / 4_000 % 2 == 0 { 6 } else { 9 };
            if frees {
                let (blocks, order) = held.swap_remove(at as usize % held.len());
                pools.iter().zip(blocks).for_each(|(pool, start)| free(pool, start, order));
                continue;
            }
            let got = pools.each_ref().map(|pool| pool.alloc_pages(order, gfp(kind)).ok());
            let base = |pool: &Pool| pool.base() as usize;
            let frame = |at: usize| got[at].map(|start| start.as_ptr() as usize - base(&pools[at]));
            assert_eq!(frame(0), frame(1), "step {step}: {order:?} {:?}", KINDS[kind]);
            match got {
                [Some(one), Some(other)] => held.push(([one, other], order)),
                _ => refused += 1,
            }
            direct += usize::from(order.get() == 4);
        }
        assert!(refused > 0 && direct > 0 && held.len() > 100, "{refused} {}", held.len());
        assert_eq!(figures(&pools[0]), figures(&pools[1]));
        for pool in &pools {
            pool.validate().unwrap();
        }
        for (blocks, order) in held.drain(..) {
            pools.iter().zip(blocks).for_each(|(pool, start)| free(pool, start, order));
        }
        assert_eq!(figures(&pools[0]), figures(&pools[1]));
        for pool in &pools {
            pool.drain_all();
            pool.validate().unwrap();
            assert_eq!(pool.free_page_count() as usize * crate::PAGE_SIZE, pool.bytes());
        }
    }
}
