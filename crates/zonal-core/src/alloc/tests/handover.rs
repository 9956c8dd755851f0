//! Early memory comes to an allocator over carved records, at once and late.

use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::vec::Vec;

use super::platform::Script;
use crate::alloc::{Allocator, HandedOver, OnlineError, Request};
use crate::early::{Early, EarlyError, Want};
use crate::machine::{Layout, Machine, ZoneSpec};
use crate::policy::Policy;
use crate::types::{NodeId, Order, Pfn, ZoneKind};

const PAGE: u64 = 4096;
/// Two nodes with a hole in the first zone, and memory behind the last zone.
const ZONES: [ZoneSpec; 2] = [
    ZoneSpec {
        node: NodeId(0),
        kind: ZoneKind::Dma32,
        start_pfn: 16,
        spanned: 2032,
        present: 1000,
    },
    ZoneSpec {
        node: NodeId(1),
        kind: ZoneKind::Dma32,
        start_pfn: 2048,
        spanned: 1024,
        present: 1024,
    },
];
const MACHINE: Machine<'static> = Machine {
    distances: &[10, 20, 20, 10],
    zones: &ZONES,
    cpus: &[NodeId(0), NodeId(1)],
    cache_slice_bytes: 0,
    caches: &[],
};

fn bytes(pages: Range<u64>) -> Range<u64> {
    pages.start * PAGE..pages.end * PAGE
}

/// Pages 16 to 600 and 1100 to 2048 of node 0, 2048 to 3100 of node 1; an image at 100 to 220.
fn firmware() -> Early<16> {
    let mut early = Early::new();
    early.reserve(bytes(100..220)).unwrap();
    early.add(bytes(16..600), NodeId(0)).unwrap();
    early.add(bytes(1100..3100), NodeId(0)).unwrap();
    early.set_node(bytes(2048..4096), NodeId(1)).unwrap();
    early
}

fn with_allocator(early: &mut Early<16>, run: impl FnOnce(&mut Early<16>, &Allocator<'_, Script>)) {
    let layout = Layout::of(&MACHINE, &Policy::LINUX_6_18).unwrap();
    let mut memory = std::vec![MaybeUninit::uninit(); layout.carve_bytes()];
    let metadata = layout.carve(&mut memory).unwrap();
    let script = Script { gates: Some(true), ..Script::default() };
    let allocator = Allocator::new(&MACHINE, Policy::LINUX_6_18, metadata, script).unwrap();
    run(early, &allocator);
}

/// Takes every page there is.
fn all_of(allocator: &Allocator<'_, Script>) -> BTreeSet<u64> {
    let request =
        Request::new(Order::ZERO).gfp(crate::gfp::Gfp::ATOMIC | crate::gfp::Gfp::MEMALLOC);
    let taken: Vec<Pfn> = core::iter::from_fn(|| allocator.alloc(request).ok()).collect();
    let set: BTreeSet<u64> = taken.iter().map(|pfn| pfn.0).collect();
    assert_eq!(set.len(), taken.len());
    for pfn in taken {
        allocator.free(pfn, Order::ZERO).unwrap();
    }
    set
}

#[test]
fn every_free_page_comes_and_no_reserved_one() {
    let mut early = firmware();
    let taken = early.take(&Want { node: Some(NodeId(0)), ..Want::bytes(5 * PAGE + 1) }).unwrap();
    assert_eq!(taken / PAGE, 2048 - 6);
    with_allocator(&mut early, |early, allocator| {
        let handed = early.hand_over(allocator).unwrap();
        let there: BTreeSet<u64> =
            (16..100).chain(220..600).chain(1100..2042).chain(2048..3072).collect();
        assert_eq!(handed, HandedOver { online: there.len() as u64, outside: 28 });
        allocator.setup();
        allocator.validate().unwrap();
        assert_eq!(all_of(allocator), there);
        let again = OnlineError::Early(EarlyError::HandedOver);
        assert_eq!(early.hand_over(allocator), Err(again));
        assert_eq!(early.take(&Want::bytes(1)), Err(EarlyError::HandedOver));
        assert_eq!(early.add(0..PAGE, NodeId(0)), Err(EarlyError::HandedOver));
        assert_eq!(early.release(taken..taken + 1), Err(EarlyError::HandedOver));
    });
}

#[test]
fn what_is_given_back_late_comes_once_and_in_whole_pages() {
    let mut early = firmware();
    let late = |early: &mut Early<16>, allocator: &Allocator<'_, Script>, range: Range<u64>| {
        early.release_to(allocator, range).map(|handed| handed.online)
    };
    with_allocator(&mut early, |early, allocator| {
        let too_soon = OnlineError::Early(EarlyError::NotHandedOver);
        assert_eq!(late(early, allocator, bytes(100..101)), Err(too_soon));
        early.hand_over(allocator).unwrap();
        allocator.setup();
        let before = allocator.free_pages();
        let image = bytes(100..220);
        // Half a page, the other half, and more.
        assert_eq!(late(early, allocator, image.start..image.start + 100), Ok(0));
        assert_eq!(late(early, allocator, image.start + 100..image.start + PAGE + 7), Ok(1));
        assert_eq!(late(early, allocator, image.start + PAGE + 7..image.end), Ok(119));
        assert_eq!(allocator.free_pages(), before + 120);
        assert_eq!(late(early, allocator, image.end..image.end), Ok(0));
        for again in [image.clone(), image.start..image.start + 1, 0..1, bytes(300..301)] {
            let error = EarlyError::NotReserved(again.start, again.end);
            assert_eq!(late(early, allocator, again), Err(OnlineError::Early(error)));
        }
        assert_eq!(allocator.free_pages(), before + 120);
        allocator.validate().unwrap();
        assert!(all_of(allocator).is_superset(&(100..220).collect()));
    });
}

/// The others came, and those around it were neither reserved any more nor anywhere else.
#[test]
fn what_cannot_come_late_stays_reserved() {
    let mut early = firmware();
    with_allocator(&mut early, |early, allocator| {
        early.hand_over(allocator).unwrap();
        allocator.online(crate::types::ZoneId(0), Pfn(150)..Pfn(151)).unwrap();
        allocator.setup();
        let before = (allocator.free_pages(), early.reserved().collect::<Vec<_>>());
        for pages in [100..220, 140..160, 150..151] {
            let error = early.release_to(allocator, bytes(pages));
            assert!(matches!(error, Err(OnlineError::InUse(_))), "{error:?}");
            let after = (allocator.free_pages(), early.reserved().collect::<Vec<_>>());
            assert_eq!(after, before);
        }
        // Nobody has these.
        assert_eq!(early.release_to(allocator, bytes(100..150)).unwrap().online, 50);
        assert_eq!(early.release_to(allocator, bytes(151..220)).unwrap().online, 69);
        assert_eq!(allocator.free_pages(), before.0 + 119);
        allocator.validate().unwrap();
    });
}

#[test]
fn a_range_that_came_by_itself_is_reported_and_the_others_come() {
    let mut early = firmware();
    with_allocator(&mut early, |early, allocator| {
        allocator.online(crate::types::ZoneId(0), Pfn(16)..Pfn(100)).unwrap();
        assert!(matches!(early.hand_over(allocator), Err(OnlineError::InUse(_))));
        allocator.setup();
        allocator.validate().unwrap();
        assert_eq!(allocator.free_pages(), 84 + 380 + 948 + 1024);
    });
}

#[test]
fn a_block_that_was_handed_out_before_the_early_memory_came_keeps_its_owner() {
    let mut early = Early::new();
    early.add(bytes(2048..3072), NodeId(1)).unwrap();
    with_allocator(&mut early, |early, allocator| {
        allocator.online(crate::types::ZoneId(1), Pfn(2560)..Pfn(3072)).unwrap();
        allocator.setup();
        let free = crate::gfp::Gfp::ATOMIC | crate::gfp::Gfp::MEMALLOC;
        let take = |order| allocator.alloc(Request::new(Order::new(order).unwrap()).gfp(free));
        assert_eq!(take(9), Ok(Pfn(2560)));
        // The largest block of what comes begins in front of the one that is held.
        assert!(matches!(early.hand_over(allocator), Err(OnlineError::InUse(_))));
        assert!(take(10).is_err(), "the held block has a second owner");
        allocator.free(Pfn(2560), Order::new(9).unwrap()).unwrap();
        allocator.validate().unwrap();
    });
}
