//! Bulk calls on runs of neighbouring pages, and on runs with something in the way: what comes out
//! must be what single calls give.

use std::vec::Vec;

use super::platform::{Script, Shape};
use crate::alloc::{Allocator, FreeError, Request};
use crate::frame::{PageState, PageWord};
use crate::policy::Policy;
use crate::sync::Ordering::Relaxed;
use crate::types::{CpuId, Migratetype, Order, Pfn, ZoneId};

const ZONE: ZoneId = ZoneId(0);

fn take(pool: &Allocator<'_, Script>, n: usize) -> Vec<Pfn> {
    let mut pages = std::vec![Pfn(0); n];
    let mut got = 0;
    while got < n {
        got += pool.alloc_bulk(Request::new(Order::ZERO), &mut pages[got..]).unwrap();
    }
    pages
}

/// The orders in which 40 neighbouring pages may come back: up, down, and either with two of them
/// changed for each other, at every place.
fn ways_back(pages: &[Pfn]) -> Vec<Vec<Pfn>> {
    let mut up = pages.to_vec();
    up.sort_unstable();
    let down: Vec<Pfn> = up.iter().rev().copied().collect();
    let swapped = |way: &Vec<Pfn>, i: usize| {
        let mut way = way.clone();
        way.swap(i, (i + 3) % pages.len());
        way
    };
    let places = 0..pages.len();
    let mut ways: Vec<Vec<Pfn>> =
        places.flat_map(|i| [swapped(&up, i), swapped(&down, i)]).collect();
    ways.extend([up, down]);
    ways
}

#[test]
fn bulk_takes_pages_in_the_order_in_which_single_calls_would() {
    let mut all = Vec::new();
    for bulk_free in [false, true] {
        for bulk_alloc in [false, true] {
            let pool = Shape::uniform(1, 1 << 16, 1).boot(Policy::ZONAL);
            let first = take(&pool, 40);
            let mut seen = Vec::new();
            let mut held = first.clone();
            for way in ways_back(&first) {
                held.sort_unstable();
                let mut sorted = way.clone();
                sorted.sort_unstable();
                assert_eq!(held, sorted, "what is held is what goes back");
                if bulk_free {
                    pool.free_bulk(&way, Order::ZERO).unwrap();
                } else {
                    way.iter().for_each(|pfn| pool.free(*pfn, Order::ZERO).unwrap());
                }
                held = if bulk_alloc {
                    take(&pool, 40)
                } else {
                    let one = |_| pool.alloc(Request::new(Order::ZERO)).unwrap();
                    (0..40).map(one).collect()
                };
                pool.validate().unwrap();
                seen.push(held.clone());
            }
            all.push(seen);
        }
    }
    assert!(all[0].iter().any(|pages| pages.windows(2).all(|w| w[0].0 + 1 == w[1].0)));
    assert!(all[0].iter().any(|pages| pages.windows(2).all(|w| w[0].0 == w[1].0 + 1)));
    for other in &all[1..] {
        assert_eq!(*other, all[0]);
    }
}

#[test]
fn a_page_in_a_run_that_may_not_be_freed_stops_it_there() {
    for up in [false, true] {
        for place in 0..40 {
            let pool = Shape::uniform(1, 1 << 16, 1).boot(Policy::ZONAL);
            let mut pages = take(&pool, 40);
            pages.sort_unstable();
            if !up {
                pages.reverse();
            }
            let odd = pages[place];
            pool.free(odd, Order::ZERO).unwrap();
            let (done, error) = pool.free_bulk(&pages, Order::ZERO).unwrap_err();
            assert_eq!(done, place);
            let twice = FreeError::DoubleFree { pfn: odd, order: Order::ZERO, zone: ZONE };
            assert_eq!(error, twice);
            pool.validate().unwrap();
            // What was freed is free, what was not is still held.
            for (i, pfn) in pages.iter().enumerate() {
                let held = |word: PageWord| matches!(word.state(), PageState::Allocated { .. });
                let word = PageWord(pool.words()[pfn.0 as usize].load(Relaxed));
                assert_eq!(held(word), i > place, "page {i} of a run with {place} in the way");
            }
            pool.free_bulk(&pages[place + 1..], Order::ZERO).unwrap();
            pool.drain_all();
            assert_eq!(pool.zone_stats(ZONE).free_pages, 1 << 16);
            pool.validate().unwrap();
        }
    }
}

#[test]
fn runs_at_both_ends_of_a_zone_and_across_it_are_safe() {
    // Pages 0 to 7 of the zone, its last eight, and runs that begin or end outside of it.
    let pool = Shape::uniform(1, 4096, 1).boot(Policy::LINUX_6_18);
    let mut pages = Vec::new();
    while let Ok(page) = pool.alloc(Request::new(Order::ZERO).gfp(crate::gfp::Gfp::MEMALLOC)) {
        pages.push(page);
    }
    pages.sort_unstable();
    assert_eq!((pages[0], pages[pages.len() - 1]), (Pfn(0), Pfn(4095)), "all of it");
    let last = |n: u64| (4096 - n..4096 + 8 - n).map(Pfn).collect::<Vec<_>>();
    for inside in 1..8 {
        let (freed, error) = pool.free_bulk(&last(inside), Order::ZERO).unwrap_err();
        assert_eq!((freed as u64, error), (inside, FreeError::Foreign(Pfn(4096))));
        for _ in 0..inside {
            pool.alloc(Request::new(Order::ZERO).gfp(crate::gfp::Gfp::MEMALLOC)).unwrap();
        }
        for pfn in (4096 - inside..4096).map(Pfn) {
            let word = PageWord(pool.words()[pfn.0 as usize].load(Relaxed));
            assert!(matches!(word.state(), PageState::Allocated { .. }), "{pfn:?} is back");
        }
    }
    let down: Vec<Pfn> = (0..8).rev().map(Pfn).collect();
    pool.free_bulk(&down, Order::ZERO).unwrap();
    pool.free_bulk(&last(8), Order::ZERO).unwrap();
    pool.free_bulk(&pages[8..4088], Order::ZERO).unwrap();
    pool.drain_all();
    assert_eq!(pool.zone_stats(ZONE).free_pages, 4096);
    pool.validate().unwrap();
}

/// Half of the pages are of a pageblock of one type, half of the next one, which has another.
#[test]
fn a_run_across_pageblocks_of_two_types_goes_to_two_lists() {
    for policy in [Policy::KERNEL, Policy::LINUX_6_18] {
        for up in [false, true] {
            // The border falls into a run of eight pages, or between two.
            for before in 16..=24 {
                let freed = [false, true].map(|bulk| free_across(policy, (up, before), bulk));
                assert_eq!(freed[0], freed[1], "{} {up} {before}", policy.name);
            }
        }
    }
}

/// Blocks on each list once the pages are freed, in bulk or one by one.
fn free_across(policy: Policy, (up, before): (bool, usize), bulk: bool) -> Vec<u32> {
    let pool = Shape::uniform(1, 1 << 16, 1).boot(policy);
    let mut pages = take(&pool, 4096);
    pages.sort_unstable();
    let whole = |at: &usize| {
        pages[*at].0.is_multiple_of(512) && pages[at + 511].0 - pages[at - before].0 < 1024
    };
    let border = (512..3000).find(whole).expect("two pageblocks in a row");
    let zone = pool.zone_ops(ZONE);
    let frames = zone.frames();
    let index = frames.index(pages[border]).unwrap();
    assert_eq!(frames.pageblock_type(index), Migratetype::Unmovable);
    frames.set_pageblock_type(index, Migratetype::Reclaimable);
    let mut across = pages[border - before..border + 40 - before].to_vec();
    if !up {
        across.reverse();
    }
    if bulk {
        pool.free_bulk(&across, Order::ZERO).unwrap();
    } else {
        across.iter().for_each(|pfn| pool.free(*pfn, Order::ZERO).unwrap());
    }
    pool.validate().unwrap();
    let pcp = pool.pcp(ZONE, CpuId(0));
    let lists = (0..pool.tables().lists().len()).map(|list| pcp.listed(list)).collect();
    let reclaimable = pool.tables().lists().get(Order::ZERO, Migratetype::Reclaimable).unwrap();
    assert_eq!(pcp.listed(reclaimable) as usize, 40 - before);
    lists
}

/// Pages by address are those by number, and an address at which none begins is refused where it
/// stands, with nothing lost.
#[test]
fn bulk_by_address_is_bulk_by_number_and_refuses_what_is_no_page() {
    const BASE: usize = 0x7000_0000_0000;
    for policy in [Policy::ZONAL, Policy::LINUX_6_18] {
        let pool = Shape::uniform(1, 1 << 16, 1).boot(policy);
        let free = pool.free_pages();
        let mut pages = std::vec![core::ptr::null_mut::<u8>(); 4096];
        let request = Request::new(Order::ZERO);
        let mut got = 0;
        while got < pages.len() {
            got += pool.alloc_bulk_at(request, BASE, &mut pages[got..]).unwrap();
        }
        let numbers = |page: &*mut u8| Pfn::at(BASE, *page as usize);
        let is_ours = |pfn: Pfn| pool.tables().is_allocated(pfn, Order::ZERO);
        assert!(pages.iter().map(numbers).all(is_ours));
        let odd = [1, BASE - 4096, BASE + 1, BASE + (1 << 28), usize::MAX, usize::MAX & !4095, 0];
        for (place, odd) in (0..40).flat_map(|place| odd.map(|odd| (place, odd))) {
            let mut mixed = pages[..40].to_vec();
            mixed[place] = odd as *mut u8;
            let (done, error) = pool.free_bulk_at(BASE, &mixed, Order::ZERO).unwrap_err();
            assert_eq!((done, error), (place, FreeError::Foreign(Pfn::at(BASE, odd))));
            let again = pool.alloc_bulk_at(request, BASE, &mut pages[..done]).unwrap_or(0);
            assert_eq!(again, done);
            // What comes back may be others.
            pages[..40].sort_unstable();
        }
        pool.free_bulk_at(BASE, &pages, Order::ZERO).unwrap();
        assert_eq!(pool.free_pages(), free);
        pool.validate().unwrap();
    }
}
