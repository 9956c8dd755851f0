//! Memory that leaves: pages in the caller's hands become pages that were never there.

use core::ops::Range;

use super::owned::{Owned, Then};
use super::{RangeError, Ranges};
use crate::alloc::request::FreeError;
use crate::gfp::Gfp;
use crate::platform::Platform;
use crate::types::Pfn;

impl<P: Platform> Ranges<'_, '_, P> {
    /// Takes pages out of their zone: all or part of a range in the caller's hands, or whole blocks
    /// that lie side by side. Nothing is handed out of them any more, and a free of them is
    /// refused, until [`Allocator::online`](crate::alloc::Allocator::online) brings them back.
    /// [`alloc_at`](Self::alloc_at) takes them first. Call
    /// [`Allocator::setup`](crate::alloc::Allocator::setup) afterwards: watermarks follow managed
    /// pages only then.
    ///
    /// # Errors
    /// As [`free`](Self::free), with nothing changed.
    pub fn offline(self, pages: Range<Pfn>) -> Result<(), FreeError> {
        let owned = Owned::new(self.on, pages)?;
        let locked = owned.ops.lock();
        let words = locked.frames;
        let found = owned.look_to_change(&words)?;
        owned.claim(&words, &found)?;
        owned.cut_out(&words, &found);
        let frames = owned.frames();
        owned.ops.zone.leave(frames.end - frames.start);
        Ok(())
    }

    /// Takes free pages out of their zone, as [`alloc_at`](Self::alloc_at) and
    /// [`offline`](Self::offline) one after the other, but at once: they are in nobody's hands in
    /// between, so nobody can free them.
    ///
    /// # Errors
    /// As [`alloc_at`](Self::alloc_at), with nothing changed.
    pub fn withdraw(self, pages: Range<Pfn>, gfp: Gfp) -> Result<(), RangeError> {
        self.take_at(pages, gfp, Then::Absent)
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::alloc::Request;
    use crate::policy::Policy;
    use crate::support::Shape;
    use crate::types::{Order, ZoneId};

    const TAKE: Gfp = Gfp::KERNEL.union(Gfp::MEMALLOC);

    #[test]
    fn memory_that_left_is_never_handed_out_and_comes_back_whole() {
        Shape::uniform(1, 4096, 1).scoped(Policy::KERNEL, 0, |pool| {
            let (ranges, before) = (pool.ranges(), pool.free_pages());
            // A page on a list of the CPU is in the way of nothing.
            let page = pool.alloc(Request::new(Order::ZERO)).unwrap();
            pool.free(page, Order::ZERO).unwrap();
            let gone = Pfn(1024)..Pfn(2048);
            ranges.alloc_at(gone.clone(), TAKE).unwrap();
            ranges.offline(gone.clone()).unwrap();
            pool.setup();
            assert_eq!(pool.zones()[0].managed(), 4096 - 1024);
            assert_eq!(pool.zones()[0].present(), 4096 - 1024);
            pool.validate().unwrap();
            for wrong in [gone.clone(), Pfn(1024)..Pfn(1025), Pfn(1000)..Pfn(1030)] {
                assert!(ranges.free(wrong.clone()).is_err(), "{wrong:?}");
                assert!(ranges.offline(wrong).is_err());
            }
            assert!(ranges.alloc_at(gone.clone(), TAKE).is_err(), "nobody has it");
            let held: Vec<Pfn> =
                core::iter::from_fn(|| pool.alloc(Request::new(Order::ZERO).gfp(TAKE)).ok())
                    .collect();
            assert!(held.len() > 2000 && held.iter().all(|page| !gone.contains(page)));
            held.iter().for_each(|page| pool.free(*page, Order::ZERO).unwrap());
            pool.online(ZoneId(0), gone.clone()).unwrap();
            assert_eq!(pool.zones()[0].present(), 4096);
            pool.setup();
            pool.drain_all();
            assert_eq!((pool.zones()[0].managed(), pool.free_pages()), (4096, before));
            pool.validate().unwrap();
        });
    }

    #[test]
    fn what_is_in_use_stays() {
        Shape::uniform(1, 4096, 1).scoped(Policy::KERNEL, 0, |pool| {
            let ranges = pool.ranges();
            let page = pool.alloc(Request::new(Order::ZERO)).unwrap();
            let around = Pfn(page.0 & !1023)..Pfn((page.0 | 1023) + 1);
            assert!(ranges.alloc_at(around.clone(), TAKE).is_err());
            assert!(ranges.offline(around.clone()).is_err(), "mostly free");
            assert_eq!(pool.zones()[0].managed(), 4096);
            // Part of a range goes, and the rest stays its owner's.
            let range = ranges.alloc_at(Pfn(2048)..Pfn(2100), TAKE).map(|()| Pfn(2048)..Pfn(2100));
            let range = range.unwrap();
            ranges.offline(Pfn(2060)..Pfn(2070)).unwrap();
            assert!(ranges.free(range).is_err());
            ranges.free(Pfn(2048)..Pfn(2060)).unwrap();
            ranges.free(Pfn(2070)..Pfn(2100)).unwrap();
            assert_eq!(pool.zones()[0].managed(), 4096 - 10);
            // A block of the very size that memory would come online as is in use, too.
            assert!(pool.online(ZoneId(0), page..Pfn(page.0 + 1)).is_err());
            assert!(pool.online(ZoneId(0), Pfn(2056)..Pfn(2060)).is_err(), "free already");
            assert_eq!(pool.zones()[0].managed(), 4096 - 10);
            pool.online(ZoneId(0), Pfn(2060)..Pfn(2070)).unwrap();
            pool.free(page, Order::ZERO).unwrap();
            pool.drain_all();
            assert_eq!(pool.free_pages(), 4096);
            pool.validate().unwrap();
        });
    }

    #[test]
    fn what_is_withdrawn_was_in_nobodys_hands() {
        Shape::uniform(1, 4096, 1).scoped(Policy::KERNEL, 0, |pool| {
            let (ranges, before) = (pool.ranges(), pool.free_pages());
            let page = pool.alloc(Request::new(Order::ZERO)).unwrap();
            let around = Pfn(page.0 & !1023)..Pfn((page.0 | 1023) + 1);
            let error = ranges.withdraw(around.clone(), TAKE).unwrap_err();
            assert!(matches!(error.why, crate::alloc::range::RangeRefusal::InTheWay(pfn, _)
                if pfn == page));
            assert_eq!(pool.zones()[0].managed(), 4096);
            // On a list of the CPU it is in the way of nothing.
            pool.free(page, Order::ZERO).unwrap();
            let (allocs, pages) = (pool.stats().zone(ZoneId(0)).allocs, 1021);
            let part = Pfn(around.start.0 + 1)..Pfn(around.start.0 + 1 + pages);
            ranges.withdraw(part.clone(), TAKE).unwrap();
            assert_eq!(pool.stats().zone(ZoneId(0)).allocs, allocs, "nobody asked");
            assert_eq!(pool.zones()[0].managed(), 4096 - pages);
            assert_eq!(pool.zones()[0].present(), 4096 - pages);
            pool.validate().unwrap();
            for wrong in [part.clone(), part.start..Pfn(part.start.0 + 1)] {
                assert!(ranges.free(wrong.clone()).is_err(), "{wrong:?}");
                assert!(ranges.withdraw(wrong.clone(), TAKE).is_err(), "{wrong:?}");
            }
            pool.online(ZoneId(0), part).unwrap();
            pool.drain_all();
            assert_eq!((pool.zones()[0].managed(), pool.free_pages()), (4096, before));
            pool.validate().unwrap();
        });
    }

    /// Free pages of an owned pageblock have no word that says so: they are found all the same.
    #[test]
    fn what_is_free_in_a_pageblock_that_a_cpu_owns_is_not_brought_online_again() {
        const PAGES: u64 = crate::types::PAGEBLOCK_PAGES;
        Shape::uniform(1, 64 * PAGES, 1).scoped(Policy::OWNED_2026, 0, |pool| {
            let take = |order: u32| {
                let order = Order::new(order).unwrap();
                pool.alloc(Request::new(order).gfp(TAKE)).unwrap()
            };
            let online =
                |pages: Range<u64>| pool.online(ZoneId(0), Pfn(pages.start)..Pfn(pages.end));
            let managed = || pool.zones()[0].managed();
            // The first request takes a pageblock for its type.
            let first = take(0);
            let page = take(0);
            assert!(pool.tables.owned[(page.0 / PAGES) as usize].owner().is_some());
            let block = page.0 / PAGES * PAGES;
            // Another page of the pageblock leaves, and comes back.
            let held: Vec<Pfn> = (0..8).map(|_| take(0)).collect();
            let gone = held[3].0;
            pool.ranges().offline(Pfn(gone)..Pfn(gone + 1)).unwrap();
            for wrong in [
                block..block + PAGES,
                block + PAGES - 1..block + PAGES,
                block.saturating_sub(PAGES)..block + 1,
                page.0..page.0 + 1,
                gone..gone + 2,
                gone - 1..gone + 1,
            ] {
                assert!(online(wrong.clone()).is_err(), "{wrong:?} of {page:?}, {held:?}");
                assert_eq!(managed(), 64 * PAGES - 1, "{wrong:?}");
            }
            online(gone..gone + 1).unwrap();
            assert_eq!(managed(), 64 * PAGES);
            pool.validate().unwrap();
            [first, page].iter().for_each(|page| pool.free(*page, Order::ZERO).unwrap());
            assert!(online(page.0..page.0 + 1).is_err(), "freed just now");
            let others = held.iter().filter(|held| held.0 != gone);
            others.for_each(|page| pool.free(*page, Order::ZERO).unwrap());
            pool.drain_all();
            assert_eq!(pool.free_pages(), 64 * PAGES);
            pool.validate().unwrap();
        });
    }
}
