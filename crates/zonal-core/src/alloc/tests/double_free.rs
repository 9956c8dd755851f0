//! One page, freed by two CPUs at the same moment (PCP-3). The page may end on two stacks; it must
//! be handed out once, and the other copy must be dropped and counted.

use std::vec::Vec;

use super::platform::{Script, Shape, on_cpu};
use super::word_path;
use crate::alloc::{Allocator, FreeError, Request};
use crate::policy::Policy;
use crate::sync::Ordering::Relaxed;
use crate::types::{CpuId, Order, PAGEBLOCK_ORDER, Pfn, ZoneId};

const ZONE: ZoneId = ZoneId(0);
const PAGES: u64 = 512;

/// What happens to the two copies afterwards.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    /// This CPU allocates a page.
    Alloc(u32),
    /// This CPU's pcp is emptied.
    Drain(u32),
    /// Whoever got the page gives it back on this CPU.
    FreeOn(u32),
}

/// All sequences of three of them, with pages taken in every way.
fn endings() -> Vec<([Then; 3], How)> {
    let (a, d, f) = (Then::Alloc, Then::Drain, Then::FreeOn);
    let all = [a(0), a(1), d(0), d(1), f(0), f(1)];
    let triples = all.iter().flat_map(|x| all.map(|y| all.map(|z| [*x, y, z])));
    triples.flatten().flat_map(|three| EVERY_WAY.map(|how| (three, how))).collect()
}

/// A free in five steps: look at the word, make it one of this CPU's; check it, mark it, push.
struct Freer<'p, 'a> {
    pool: &'p Allocator<'a, Script>,
    cpu: u32,
    pfn: Pfn,
    step: u32,
    pushed: bool,
}

impl Freer<'_, '_> {
    fn next(&mut self) {
        let (pool, cpu) = (self.pool, CpuId(self.cpu));
        match self.step {
            0 if !word_path::looks_held(pool, ZONE, 0, self.pfn) => self.step = END,
            0 => {}
            1 => word_path::tag(pool, ZONE, cpu, 0, self.pfn),
            CHECK if !word_path::looks_mine(pool, ZONE, cpu, 0, self.pfn) => self.step = END,
            CHECK => {}
            3 => {
                let frame = word_path::frame(pool, ZONE, self.pfn) as usize;
                pool.words()[frame].store(pool.pcp(ZONE, cpu).lists[0].cached, Relaxed);
            }
            4 => {
                self.pushed = word_path::push(pool, ZONE, cpu, 0, self.pfn);
                assert!(self.pushed, "the pcp has room");
            }
            _ => return,
        }
        self.step += 1;
    }
}

/// Where a free on the CPU that the page came from begins.
const CHECK: u32 = 2;
const END: u32 = 5;

/// How pages are taken: each way must know a stray copy when it meets one.
#[derive(Clone, Copy, Debug)]
enum How {
    Fast,
    Long,
    Bulk,
}

const EVERY_WAY: [How; 3] = [How::Fast, How::Long, How::Bulk];

/// Pages of the pool in somebody's hands, as the test knows it.
struct Owned {
    how: How,
    pages: Vec<Pfn>,
}

impl Owned {
    fn take(&mut self, pool: &Allocator<'_, Script>, cpu: u32) {
        on_cpu(cpu);
        let request = Request::new(Order::ZERO);
        let fast = match self.how {
            How::Fast => word_path::alloc(pool, CpuId(cpu), Order::ZERO),
            How::Long => None,
            How::Bulk => {
                let mut page = [Pfn(0)];
                assert_eq!(pool.alloc_bulk(request, &mut page), Ok(1));
                Some(page[0])
            }
        };
        let pfn = fast.unwrap_or_else(|| pool.alloc(request).unwrap());
        assert!(!self.pages.contains(&pfn), "{pfn:?} handed out twice");
        self.pages.push(pfn);
    }
}

/// Plays `ending` and then looks whether each page is where it should be.
fn finish(pool: &Allocator<'_, Script>, page: Pfn, copies: u64, (ending, how): ([Then; 3], How)) {
    let mut owned = Owned { how, pages: Vec::new() };
    for then in ending {
        match then {
            Then::Alloc(cpu) => owned.take(pool, cpu),
            Then::Drain(cpu) => drop(pool.drain(ZONE, CpuId(cpu))),
            Then::FreeOn(cpu) => {
                on_cpu(cpu);
                if let Some(nth) = owned.pages.iter().position(|pfn| *pfn == page) {
                    pool.free(owned.pages.swap_remove(nth), Order::ZERO).unwrap();
                }
            }
        }
    }
    // Everything is taken out once: each page comes up at most once.
    for cpu in [0, 1] {
        (0..pool.pcp(ZONE, CpuId(cpu)).count().min(40)).for_each(|_| owned.take(pool, cpu));
    }
    on_cpu(0);
    for pfn in owned.pages {
        pool.free(pfn, Order::ZERO).unwrap();
    }
    pool.drain_all();
    pool.validate().unwrap();
    let stats = pool.zone_stats(ZONE);
    assert_eq!((stats.free_pages, stats.cached_pages), (PAGES, 0), "{ending:?}");
    assert_eq!(stats.double_frees, copies - 1, "{ending:?}");
}

/// Small pcps, so that a run is short; both CPUs' hot lists are active and hold a page.
fn pool_and_page<R>(test: impl FnOnce(&Allocator<'_, Script>, Pfn) -> R) -> R {
    Shape::uniform(1, PAGES, 2).scoped(Policy::ZONAL, 0, |pool| {
        on_cpu(1);
        let far = pool.alloc(Request::new(Order::ZERO)).unwrap();
        pool.free(far, Order::ZERO).unwrap();
        on_cpu(0);
        let pages = [(); 2].map(|()| pool.alloc(Request::new(Order::ZERO)).unwrap());
        pool.free(pages[0], Order::ZERO).unwrap();
        test(pool, pages[1])
    })
}

#[test]
fn of_two_racing_frees_one_copy_counts_in_every_order_of_their_steps() {
    let mut raced = 0;
    // Bit i says which of the two takes step i. The page came from CPU 0.
    for order in (0u32..256).filter(|order| order.count_ones() == 5) {
        for ending in endings() {
            pool_and_page(|pool, pfn| {
                let freer = |cpu, step| Freer { pool, cpu, pfn, step, pushed: false };
                let mut freers = [freer(0, CHECK), freer(1, 0)];
                (0..8).for_each(|i| freers[(order >> i & 1) as usize].next());
                let copies = freers.iter().filter(|freer| freer.pushed).count() as u64;
                raced += u32::from(copies == 2);
                assert!(copies >= 1);
                finish(pool, pfn, copies, ending);
            });
        }
    }
    assert!(raced > 1000, "most orders put the page on both stacks: {raced}");
}

#[test]
fn a_free_that_raced_a_long_one_leaves_one_copy_that_counts() {
    for ending in endings() {
        pool_and_page(|pool, pfn| {
            let mut slow = Freer { pool, cpu: 1, pfn, step: 0, pushed: false };
            slow.next();
            on_cpu(0);
            pool.free(pfn, Order::ZERO).unwrap();
            (slow.step..END).for_each(|_| slow.next());
            finish(pool, pfn, 2, ending);
        });
    }
}

#[test]
fn while_a_stray_copy_is_about_validate_says_where() {
    pool_and_page(|pool, pfn| {
        let freer = |cpu, step| Freer { pool, cpu, pfn, step, pushed: false };
        let mut freers = [freer(0, CHECK), freer(1, 0)];
        for who in [1, 0, 1, 1, 0, 1, 0, 1] {
            freers[who].next();
        }
        let fault = pool.validate().unwrap_err();
        assert_eq!(fault, crate::alloc::Fault::StackPage(ZONE, CpuId(0), pfn));
        pool.drain_all();
        pool.validate().unwrap();
    });
}

#[test]
fn a_second_free_after_the_first_is_refused_on_any_cpu_and_by_any_call() {
    pool_and_page(|pool, pfn| {
        pool.free(pfn, Order::ZERO).unwrap();
        let twice = FreeError::DoubleFree { pfn, order: Order::ZERO, zone: ZONE };
        for cpu in [0, 1] {
            on_cpu(cpu);
            assert_eq!(pool.free(pfn, Order::ZERO), Err(twice));
            assert_eq!(pool.free_bulk(&[pfn], Order::ZERO), Err((0, twice)));
            assert!(!word_path::free(pool, ZONE, CpuId(cpu), (pfn, Order::ZERO)));
        }
        // In one call: the first of the two counts.
        on_cpu(0);
        let page = pool.alloc(Request::new(Order::ZERO)).unwrap();
        let error = pool.free_bulk(&[page, page], Order::ZERO).unwrap_err();
        assert_eq!(error, (1, FreeError::DoubleFree { pfn: page, order: Order::ZERO, zone: ZONE }));
        assert_eq!(pool.zone_stats(ZONE).double_frees, 0);
        pool.validate().unwrap();
    });
}

/// A block that is out of the buddy while its memory goes back to the system was freed: its former
/// owner's second free is one, and does not make it the next owner's as well.
#[test]
fn a_second_free_of_a_block_that_is_isolated_is_refused() {
    let pool = &Shape::uniform(1, 8 * 1024, 1).boot(Policy::ZONAL);
    let free = pool.free_pages();
    for order in [Order::MAX, PAGEBLOCK_ORDER] {
        let [block, buddy] = [(); 2].map(|()| pool.alloc(Request::new(order)).unwrap());
        pool.free(block, order).unwrap();
        pool.drain_all();
        let mut others = Vec::new();
        let isolated = loop {
            let isolated = pool.isolate_block(ZONE, order).expect("the block is free");
            if isolated == block {
                break isolated;
            }
            others.push(isolated);
        };
        let pages = isolated..Pfn(isolated.0 + order.pages());
        let twice = FreeError::DoubleFree { pfn: isolated, order, zone: ZONE };
        assert_eq!(pool.free(isolated, order), Err(twice));
        assert_eq!(pool.free_bulk(&[isolated], order), Err((0, twice)));
        assert_eq!(pool.ranges().free(pages.clone()), Err(twice));
        assert!(pool.ranges().from_block(isolated, order, 1).is_err());
        assert!(pool.restore_block(ZONE, isolated, order));
        assert!(others.into_iter().all(|other| pool.restore_block(ZONE, other, order)));
        pool.validate().unwrap();
        // Handed out, it is its owner's like any other.
        let kept = pool.isolate_block(ZONE, order).unwrap();
        let keep = |order| pool.ranges().keep_block(kept, order);
        assert!(!pool.restore_block(ZONE, kept, Order::ZERO), "as what it is");
        assert!(!keep(Order::ZERO) && keep(order) && !keep(order), "once, as what it is");
        let isolated = || pool.tables().events.isolated.load(Relaxed);
        assert_eq!(isolated(), 0);
        // It has an owner; its buddy is handed out, the page inside it is no block.
        for pfn in [kept, buddy, Pfn(kept.0 + 1), Pfn(u64::MAX)] {
            assert!(!pool.restore_block(ZONE, pfn, order), "{pfn:?} is not isolated");
            assert_eq!(isolated(), 0);
        }
        assert_eq!(pool.free(kept, order), Ok(()));
        pool.free(buddy, order).unwrap();
        pool.drain_all();
        assert_eq!(pool.free_pages(), free);
    }
}
