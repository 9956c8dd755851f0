//! Pageblocks owned by CPUs: who gets which, where frees go, what goes back. Random programs run
//! with this policy too (`programs`).

use std::boxed::Box;
use std::vec::Vec;

use super::platform::{Plain, Script, Shape, Stage, at_each_unlock, before_the_next_lock, on_cpu};
use crate::alloc::range::Obstacle;
use crate::alloc::zone_ops::PRESSED;
use crate::alloc::{Allocator, Fault, Request, ZoneStats};
use crate::frame::PageWord;
use crate::gfp::Gfp;
use crate::platform::Platform;
use crate::policy::{Grouping, MinFreeRule, Policy, WatermarkPolicy};
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::types::{CpuId, Migratetype, Order, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES, Pfn, ZoneId};

const ZONE: ZoneId = ZoneId(0);
const PAGES: u64 = PAGEBLOCK_PAGES;

/// Without types and with next to no reserve, so that every page can be counted.
const PLAIN: Policy = Policy {
    mobility_grouping: Grouping::Off,
    watermark: WatermarkPolicy {
        min_free: MinFreeRule::Kbytes(64),
        scale_factor: 0,
        ..Policy::OWNED_2026.watermark
    },
    ..Policy::OWNED_2026
};

fn take(pool: &Allocator<'_, Script>, order: u32) -> Pfn {
    pool.alloc(Request::new(Order::new(order).unwrap()).gfp(Gfp::NOWAIT)).unwrap()
}

fn figures(pool: &Allocator<'_, Script>) -> ZoneStats {
    pool.validate().unwrap();
    pool.zone_stats(ZONE)
}

#[test]
fn a_cpu_claims_a_whole_pageblock_and_serves_every_order_below_it_from_there() {
    let pool = Shape::uniform(1, 64 * PAGES, 2).boot(PLAIN);
    on_cpu(0);
    let first = take(&pool, 0);
    let holds = figures(&pool).lock_holds;
    let rest: Vec<Pfn> = (0..8).map(|order| take(&pool, order)).collect();
    let block = |pfn: &Pfn| pfn.0 / PAGES;
    assert!(rest.iter().all(|pfn| block(pfn) == block(&first)), "{rest:?}");
    assert_eq!(pool.zones()[0].lock_holds().0, holds + 1, "only the figures took the zone lock");
    let stats = figures(&pool);
    assert_eq!((stats.owned_claims, stats.owned_blocks, stats.owned_pages), (1, 1, 512 - 256));
    // Another CPU has pageblocks of its own; whole ones and larger are the zone's.
    on_cpu(1);
    assert_ne!(block(&take(&pool, 0)), block(&first));
    take(&pool, 9);
    take(&pool, 10);
    assert_eq!(figures(&pool).owned_blocks, 2);
}

#[test]
fn a_free_goes_to_the_owner_whoever_frees() {
    let pool = Shape::uniform(1, 64 * PAGES, 2).boot(PLAIN);
    on_cpu(0);
    let pages: Vec<Pfn> = (0..100).map(|_| take(&pool, 0)).collect();
    let before = figures(&pool);
    on_cpu(1);
    pages.iter().for_each(|pfn| pool.free(*pfn, Order::ZERO).unwrap());
    assert!(pool.free(pages[7], Order::ZERO).is_err(), "a second free");
    let stats = figures(&pool);
    assert_eq!(stats.owned_remote_frees, 100);
    assert_eq!((stats.owned_pages, stats.owned_blocks), (before.owned_pages + 100, 1));
    // What the other CPU freed serves its owner again, merged.
    on_cpu(0);
    let again = take(&pool, 8);
    assert_eq!(again.0 / PAGES, pages[0].0 / PAGES);
    assert_eq!(figures(&pool).owned_claims, 1);
}

#[test]
fn what_an_owner_has_beyond_its_limit_goes_back_whole_pageblocks_first() {
    let pool = Shape::uniform(1, 256 * PAGES, 1).boot(PLAIN);
    on_cpu(0);
    let (_, _, most) = pool.zones()[0].pcp_sizes();
    let pages: Vec<Pfn> = (0..200 * PAGES).map(|_| take(&pool, 0)).collect();
    let free = pool.zone_stats(ZONE).free_pages;
    // One page of each pageblock stays in use.
    let goes = |pfn: &&Pfn| pfn.0 % PAGES != 5;
    pages.iter().filter(goes).for_each(|pfn| pool.free(*pfn, Order::ZERO).unwrap());
    let stats = figures(&pool);
    assert!(stats.owned_pages <= u64::from(most).max(PAGES), "{stats:?}");
    assert!(stats.owned_returns > 0 && stats.free_pages > free);
    assert_eq!(stats.free_pages + stats.owned_pages, 256 * PAGES - 200);
    // A pageblock that went back in part is the zone's: its last page is freed there, and it is
    // whole again.
    pages.iter().filter(|pfn| !goes(pfn)).for_each(|pfn| pool.free(*pfn, Order::ZERO).unwrap());
    pool.drain_all();
    let stats = figures(&pool);
    assert_eq!((stats.owned_pages, stats.owned_blocks), (0, 0), "{stats:?}");
    assert_eq!(stats.nr_free[10], 128);
}

#[test]
fn a_refresh_lowers_what_an_idle_owner_keeps() {
    let pool = Shape::uniform(1, 256 * PAGES, 1).boot(PLAIN);
    on_cpu(0);
    let pages: Vec<Pfn> = (0..32 * PAGES).map(|_| take(&pool, 0)).collect();
    pages.iter().for_each(|pfn| pool.free(*pfn, Order::ZERO).unwrap());
    let kept = |pool: &_| figures(pool).owned_pages;
    let first = kept(&pool);
    assert!(first > 4 * PAGES);
    assert!(pool.refresh(CpuId(0)));
    assert!(kept(&pool) <= first - first / 8 + PAGES);
    while pool.refresh(CpuId(0)) {}
    let (_, low, _) = pool.zones()[0].pcp_sizes();
    assert!(kept(&pool) <= u64::from(low).max(PAGES), "{} kept", kept(&pool));
}

/// Takes every owned pageblock from its owner, free pages or not.
fn disown(pool: &Allocator<'_, Script>) {
    let owned = pool.tables.owned;
    for (at, block) in owned.iter().enumerate() {
        let Some(owner) = block.owner() else { continue };
        let _zone = pool.raw_of_test().lock_zone(0).unwrap();
        let mut owner = pool.tables.owners[owner as usize].lock(pool.platform());
        assert_eq!(block.pages(), 0, "its free pages would be lost");
        owner.lists.release(owned, at as u32);
    }
}

/// Step 3 of a refill.
#[test]
fn without_whole_pageblocks_the_largest_piece_is_claimed_with_its_pageblock() {
    let pool = Shape::uniform(1, 8 * PAGES, 1).boot(PLAIN);
    on_cpu(0);
    let quarter = Order::new(7).unwrap();
    let request = Request::new(quarter).gfp(Gfp::NOWAIT.union(Gfp::MEMALLOC));
    let quarters: Vec<Pfn> = core::iter::from_fn(|| pool.alloc(request).ok()).collect();
    assert_eq!(quarters.len(), 8 * 4);
    disown(&pool);
    let in_block = |block: u64| quarters.iter().filter(move |pfn| pfn.0 / PAGES == block);
    in_block(2).take(1).chain(in_block(5).take(2)).for_each(|pfn| {
        pool.free(*pfn, quarter).unwrap();
    });
    pool.refresh(CpuId(0));
    assert!(!pool.zones()[0].has(PRESSED), "enough is free");
    let before = figures(&pool);
    assert_eq!((before.owned_blocks, before.owned_pages), (0, 0));
    assert_eq!(take(&pool, 0).0 / PAGES, 5, "a half is larger than a quarter");
    let stats = figures(&pool);
    assert_eq!((stats.owned_pieces, stats.owned_blocks, stats.owned_pages), (1, 1, 255));
    assert_eq!(stats.owned_claims, before.owned_claims);
    // What is held in that pageblock comes back to the owner.
    in_block(5).skip(2).for_each(|pfn| pool.free(*pfn, quarter).unwrap());
    assert_eq!(figures(&pool).owned_pages, 511);
}

#[test]
fn a_zone_that_is_short_gets_its_pageblocks_back_before_a_request_is_refused() {
    let pool = Shape::uniform(1, 16 * PAGES, 2).boot(PLAIN);
    // CPU 0 keeps pageblocks that it does not use.
    on_cpu(0);
    let pages: Vec<Pfn> = (0..4 * PAGES).map(|_| take(&pool, 0)).collect();
    pages.iter().for_each(|pfn| pool.free(*pfn, Order::ZERO).unwrap());
    assert!(figures(&pool).owned_pages > 0);
    on_cpu(1);
    let request = Request::new(Order::ZERO).gfp(Gfp::NOWAIT);
    let got = core::iter::from_fn(|| pool.alloc(request).ok()).count() as u64;
    let stats = figures(&pool);
    let kept = pool.zones()[0].watermarks().min;
    assert!(got + kept + 1 >= 16 * PAGES, "{got} of {}, {stats:?}", 16 * PAGES);
    assert_eq!(stats.owned_pages, 0);
}

#[test]
fn pages_of_a_range_that_come_back_into_an_owned_pageblock_are_the_zones() {
    let pool = Shape::uniform(1, 64 * PAGES, 2).boot(PLAIN);
    on_cpu(0);
    take(&pool, 0);
    let order = PAGEBLOCK_ORDER;
    let whole = pool.alloc(Request::new(order).gfp(Gfp::NOWAIT)).unwrap();
    pool.free(whole, order).unwrap();
    let stats = figures(&pool);
    assert_eq!(stats.free_pages + stats.owned_pages, 64 * PAGES - 1);
}

/// Two threads take, hand over, and free each other's blocks while a third takes everything back:
/// nothing is lost, and every invariant holds at the end.
#[test]
fn threads_that_free_each_others_blocks_lose_none() {
    let shape = Box::leak(Box::new(Shape::uniform(1, 64 * PAGES, 3)));
    let pool = &shape.boot_on(PLAIN, Stage::for_threads(Plain));
    let passed = &[std::sync::Mutex::new(Vec::new()), std::sync::Mutex::new(Vec::new())];
    let done = &std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        for cpu in 0..2u32 {
            scope.spawn(move || {
                on_cpu(cpu);
                for round in 0..2000u32 {
                    let order = Order::new((round * 7 + cpu) % 5).unwrap();
                    if let Ok(pfn) = pool.alloc(Request::new(order).gfp(Gfp::NOWAIT)) {
                        passed[cpu as usize].lock().unwrap().push((pfn, order));
                    }
                    let other = passed[1 - cpu as usize].lock().unwrap().pop();
                    if let Some((pfn, order)) = other {
                        pool.free(pfn, order).unwrap();
                    }
                }
                done.fetch_add(1, Relaxed);
            });
        }
        scope.spawn(move || {
            on_cpu(2);
            while done.load(Relaxed) < 2 {
                pool.drain_all();
                std::thread::yield_now();
            }
        });
    });
    on_cpu(2);
    for list in passed {
        list.lock().unwrap().drain(..).for_each(|(pfn, order)| pool.free(pfn, order).unwrap());
    }
    pool.drain_all();
    let stats = figures(pool);
    assert_eq!((stats.free_pages, stats.owned_blocks), (64 * PAGES, 0), "{stats:?}");
    assert!(stats.owned_remote_frees > 0);
}

#[test]
fn a_bit_of_a_page_that_is_in_use_is_found() {
    let pool = Shape::uniform(1, 64 * PAGES, 1).boot(PLAIN);
    on_cpu(0);
    let pfn = take(&pool, 0);
    pool.validate().unwrap();
    let mut owner = pool.tables.owners[0].lock(pool.platform());
    let place = ((pfn.0 / PAGES) as u32, (pfn.0 % PAGES) as u32);
    owner.lists.put(pool.tables.owned, place, Order::ZERO);
    drop(owner);
    assert_eq!(
        pool.validate(),
        Err(Fault::Owned(ZONE, Some(CpuId(0)), Pfn(pfn.0 / PAGES * PAGES)))
    );
}

#[test]
fn depots_and_owned_pageblocks_exclude_each_other() {
    let mut policy = Policy::ZONAL;
    let error =
        std::string::ToString::to_string(&policy.set("pcp.pageblocks", "owned").unwrap_err());
    assert!(error.contains("set depot.batches=0"), "{error}");
    let mut policy = Policy::OWNED_2026;
    assert!(policy.set("depot.batches", "8").is_err());
    policy.set("pcp.pageblocks", "shared").unwrap();
    assert_eq!(Policy { name: "linux-6.19", ..policy }, Policy::LINUX_6_19);
}

#[test]
fn a_cpu_that_is_gone_keeps_nothing() {
    let pool = Shape::uniform(1, 64 * PAGES, 2).boot(PLAIN);
    on_cpu(0);
    let pages: Vec<Pfn> = (0..2 * PAGES).map(|_| take(&pool, 0)).collect();
    on_cpu(1);
    pool.cpu_dead(CpuId(0));
    assert_eq!(figures(&pool).owned_pages, 0);
    pages.iter().for_each(|pfn| pool.free(*pfn, Order::ZERO).unwrap());
    let stats = figures(&pool);
    assert_eq!((stats.owned_pages, stats.free_pages), (0, 64 * PAGES), "{stats:?}");
}

#[test]
fn a_page_that_is_free_in_an_owned_pageblock_is_no_hole() {
    let pool = Shape::uniform(1, 64 * PAGES, 2).boot(PLAIN);
    on_cpu(0);
    let pfn = take(&pool, 0);
    let ops = pool.zone_ops(ZONE);
    let obstacle = |pfn: Pfn| {
        let _locked = ops.lock();
        ops.obstacle(ops.frames().index(pfn).unwrap())
    };
    assert_eq!(obstacle(pfn), Obstacle::Held(pfn, Order::ZERO));
    assert_eq!(obstacle(Pfn(pfn.0 ^ 1)), Obstacle::Cached);
    pool.ranges().offline(pfn..Pfn(pfn.0 + 1)).unwrap();
    assert_eq!(obstacle(pfn), Obstacle::Absent);
}

/// The largest piece lies in a pageblock of another CPU, and stands first.
#[test]
fn a_piece_that_another_cpu_owns_is_not_in_the_way_of_the_next() {
    let pool = Shape::uniform(1, 8 * PAGES, 2).boot(PLAIN);
    on_cpu(0);
    let quarter = Order::new(7).unwrap();
    let request = Request::new(quarter).gfp(Gfp::NOWAIT.union(Gfp::MEMALLOC));
    let quarters: Vec<Pfn> = core::iter::from_fn(|| pool.alloc(request).ok()).collect();
    let of = |block: u64| *quarters.iter().find(|pfn| pfn.0 / PAGES == block).unwrap();
    let pcp = pool.pcp(ZONE, CpuId(0));
    let ops = pool.zone_ops(ZONE);
    let to_zone = |pfn: Pfn, order: Order| {
        let mut locked = ops.lock();
        let idx = locked.frames.index(pfn).unwrap();
        locked.frames.store(idx, PageWord::moving(order, Migratetype::Unmovable, None));
        ops.free_claimed(&mut locked, pcp, (idx, order));
    };
    // One goes to the zone from a pageblock that stays CPU 0's, as parts of ranges do; half of the
    // other from one that is nobody's.
    let owned = pool.tables.owned;
    {
        let _zone = pool.raw_of_test().lock_zone(0).unwrap();
        pool.tables.owners[0].lock(pool.platform()).lists.release(owned, 2);
    }
    to_zone(of(2), Order::new(6).unwrap());
    to_zone(of(5), quarter);
    pool.refresh(CpuId(0));
    assert_eq!(owned[5].owner(), Some(0));
    assert!(!pool.zones()[0].has(PRESSED), "enough is free");
    on_cpu(1);
    take(&pool, 0);
    assert_eq!(owned[2].owner(), Some(1));
}

/// Pages of the zone that are free in an owned pageblock, or in a block of any state.
fn accounted<P: Platform>(pool: &Allocator<'_, P>) -> u64 {
    let bits: u32 = pool.tables.owned.iter().map(|block| block.pages()).sum();
    let words = pool.tables.words.iter().map(|word| PageWord(word.load(Relaxed)));
    let in_blocks = |word: PageWord| if word.is_none() { 0 } else { 1 << word.order_bits() };
    u64::from(bits) + words.map(in_blocks).sum::<u64>()
}

#[test]
fn whenever_a_lock_goes_each_page_is_free_or_in_a_block() {
    let pool: &_ = Box::leak(Box::new(Shape::uniform(1, 64 * PAGES, 2).boot(PLAIN)));
    on_cpu(0);
    at_each_unlock(|| assert_eq!(accounted(pool), 64 * PAGES));
    for order in [0, 3, 0, 9, 8, 8, 8] {
        let pfn = take(pool, order);
        on_cpu(order & 1);
        let order = Order::new(order).unwrap();
        if order > Order::ZERO {
            pool.free(pfn, order).unwrap();
        }
    }
    pool.drain_all();
    assert!(pool.zone_stats(ZONE).owned_returns > 0);
}

/// The CPU claims again between any two turns of who takes its pageblocks.
#[test]
fn a_drain_of_a_cpu_that_goes_on_claiming_ends() {
    static CLAIMS: AtomicU32 = AtomicU32::new(0);
    fn claims(pool: &'static Allocator<'static, Script>) {
        on_cpu(0);
        let pfn = take(pool, 0);
        pool.free(pfn, Order::ZERO).unwrap();
        if CLAIMS.fetch_add(1, Relaxed) < 1000 {
            before_the_next_lock(move || claims(pool));
        }
    }
    let pool: &_ = Box::leak(Box::new(Shape::uniform(1, 64 * PAGES, 2).boot(PLAIN)));
    claims(pool);
    on_cpu(1);
    pool.drain_all();
    let claims = CLAIMS.swap(1000, Relaxed);
    assert!(claims < 20, "{claims} claims in one drain");
}

/// What `hold_all` holds stands still, owners' lists too.
#[test]
fn who_holds_everything_finds_every_free_page_counted() {
    let shape = Box::leak(Box::new(Shape::uniform(1, 64 * PAGES, 2)));
    let pool = &shape.boot_on(PLAIN, Stage::for_threads(Plain));
    let stop = &std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            on_cpu(0);
            while !stop.load(Relaxed) {
                let pfn = take(pool, 2);
                pool.free(pfn, Order::new(2).unwrap()).unwrap();
            }
        });
        for _ in 0..200 {
            let mut held = Vec::new();
            pool.hold_all(&mut |one| held.push(one));
            let bits: u32 = pool.tables.owned.iter().map(|block| block.pages()).sum();
            let counted: u32 = pool.tables.owners.iter().map(|owner| owner.free()).sum();
            assert_eq!(bits, counted);
            assert_eq!(accounted(pool), 64 * PAGES);
            while held.pop().is_some() {}
            std::thread::yield_now();
        }
        stop.store(true, Relaxed);
    });
}
