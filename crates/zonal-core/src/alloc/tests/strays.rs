//! A forked child validates its pool while its own threads use it: what they have in their hands
//! at that moment is not taken for what threads of the parent left there (ZONE-5).

use std::vec::Vec;

use super::platform::{Fences, Script, Shape, fences, on_cpu};
use super::word_path;
use crate::alloc::{Allocator, Fault, Request};
use crate::pcp::word::PcpWord;
use crate::policy::Policy;
use crate::sync::Ordering::Relaxed;
use crate::types::{CpuId, Order, ZoneId};

const ZONE: ZoneId = ZoneId(0);
const PAGES: u64 = 4096;

/// A pool whose CPU 0 has pages on its order-0 list, all else free.
fn with_pages_on_a_list() -> Allocator<'static, Script> {
    let pool = Shape::uniform(1, PAGES, 2).boot(Policy::ZONAL);
    on_cpu(0);
    let pages = [(); 4].map(|()| pool.alloc(Request::new(Order::ZERO)).unwrap());
    pages.into_iter().for_each(|page| pool.free(page, Order::ZERO).unwrap());
    pool
}

/// As a pool validates in a forked child.
fn validated(pool: &Allocator<'static, Script>) -> Result<(), Fault> {
    if pool.zones()[0].may_have_strays() {
        let mut held = Vec::new();
        pool.hold_all(&mut |one| held.push(one));
        pool.stats().count_strays(&held);
        while held.pop().is_some() {}
    }
    pool.validate()
}

#[test]
fn a_page_in_the_hands_of_a_childs_thread_is_not_taken_for_a_stray() {
    let pool = with_pages_on_a_list();
    pool.expect_strays();
    let frame = word_path::pop(&pool, ZONE, CpuId(0), 0).expect("the list has pages");
    // Another thread of the child validates between a pop and its mark.
    validated(&pool).unwrap();
    assert_eq!(pool.zones()[0].strays(), 1);
    let page = word_path::hand_out(&pool, ZONE, CpuId(0), 0, frame);
    let page = page.expect("the popped page is its thread's");
    validated(&pool).unwrap();
    assert_eq!(pool.zones()[0].strays(), 0, "the thread has taken it");
    pool.free(page, Order::ZERO).unwrap();
    pool.drain_all();
    validated(&pool).unwrap();
    assert_eq!(pool.free_pages(), PAGES);
}

#[test]
fn a_page_that_is_lost_after_the_first_look_is_a_fault() {
    let pool = with_pages_on_a_list();
    word_path::pop(&pool, ZONE, CpuId(0), 0).expect("the list has pages");
    validated(&pool).expect_err("not forked: no page may be missing");
    pool.expect_strays();
    validated(&pool).unwrap();
    assert_eq!((pool.zones()[0].strays(), pool.free_pages()), (1, PAGES - 1));
    word_path::pop(&pool, ZONE, CpuId(0), 0).expect("the list has pages");
    let fault = validated(&pool).expect_err("a second one was lost in this process");
    assert!(matches!(fault, Fault::CachedPages(ZONE, _, _)), "{fault}");
}

#[test]
fn what_sequences_move_during_the_count_is_not_taken_for_strays() {
    let pool = with_pages_on_a_list();
    word_path::pop(&pool, ZONE, CpuId(0), 0).expect("a page that the fork left behind");
    pool.expect_strays();
    // A sequence of CPU 0 has read the word when another CPU counts, which cannot stop it.
    let pcp = pool.pcp(ZONE, CpuId(0));
    let seen = PcpWord(pcp.word.load(Relaxed));
    let frame = word_path::slot(&pool, &pcp.lists[0], seen.len() - 1).load(Relaxed);
    on_cpu(1);
    fences(Fences { left: 0, else_by_visit: false });
    let mut held = Vec::new();
    pool.hold_all(&mut |one| held.push(one));
    pcp.word.store(seen.popped().0, Relaxed);
    let page = word_path::hand_out(&pool, ZONE, CpuId(0), 0, frame);
    pool.stats().count_strays(&held);
    while held.pop().is_some() {}
    pool.validate().expect("one page is missing, as before");
    fences(Fences { left: u64::MAX, else_by_visit: true });
    validated(&pool).unwrap();
    assert_eq!(pool.zones()[0].strays(), 1, "counted once the lists stand still");
    pool.free(page.expect("it was on the list"), Order::ZERO).unwrap();
    validated(&pool).unwrap();
}
