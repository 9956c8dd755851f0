//! The core's own fast path: what it serves is what a search serves, value by value, and what it
//! must not serve it leaves to the core.

use std::boxed::Box;
use std::ops::Range;
use std::string::String;
use std::vec::Vec;
use std::{format, vec};

use proptest::prelude::*;

use super::platform::{
    Behaviour, Charging, LISTS_ALONE, Plain, Script, Shape, Stage, masks, on_cpu, steps_of, zone,
};
use super::programs::{GFPS, Op, op, policy, shape};
use super::word_path;
use crate::alloc::fast;
use crate::alloc::pcp_ops::run::Words;
use crate::alloc::range::RangeRequest;
use crate::alloc::{Allocator, FreeError, NumaEvents, Request, Sysctl, hot};
use crate::frame::claim;
use crate::gfp::Gfp;
use crate::pcp::depot::DepotPolicy;
use crate::pcp::owner::Pageblocks;
use crate::pcp::ready::is_ready;
use crate::pcp::word::PcpWord;
use crate::policy::{Grouping, PcpPolicy, Policy};
use crate::sync::{AtomicU64, Ordering::Relaxed};
use crate::types::{CpuId, Migratetype, NodeId, Order, Pfn, ZoneId, ZoneKind};
use crate::zone::state::{BELOW_HIGH, FAST_FREE, Zone};

fn order(order: u32) -> Order {
    Order::new(order).unwrap()
}

/// A pool and the blocks that were got from it.
struct Player<'p, 'a, B> {
    pool: &'p Allocator<'a, Stage<B>>,
    held: Vec<(Pfn, Order)>,
    ranges: Vec<Range<Pfn>>,
    /// What each call returned.
    results: Vec<String>,
}

impl<B: Behaviour> Player<'_, '_, B> {
    fn alloc(&mut self, request: Request) {
        let got = self.pool.alloc(request);
        self.results.push(format!("{got:?}"));
        self.held.extend(got.ok().map(|pfn| (pfn, request.order)));
    }

    fn free(&mut self, which: usize) {
        if let Some(which) = which.checked_rem(self.held.len()) {
            let (pfn, order) = self.held.swap_remove(which);
            self.results.push(format!("{:?}", self.pool.free(pfn, order)));
        }
    }

    /// A range that is a block; every other one is given back at once.
    fn range(&mut self, pages: u64) {
        let got = self.pool.ranges().alloc(RangeRequest::new(pages));
        self.results.push(format!("{got:?}"));
        if let Ok(pfn) = got {
            self.ranges.push(pfn..Pfn(pfn.0 + pages));
        }
        if self.ranges.len().is_multiple_of(2) {
            self.free_range(pages as usize);
        }
    }

    fn free_range(&mut self, which: usize) {
        if let Some(which) = which.checked_rem(self.ranges.len()) {
            let pages = self.ranges.swap_remove(which);
            self.results.push(format!("{:?}", self.pool.ranges().free(pages.clone())));
            self.results.push(format!("{:?}", self.pool.ranges().free(pages)));
        }
    }

    /// Frees that are refused, from whatever the pool has.
    fn misuse(&mut self, which: usize) {
        let (pfn, order) = match which.checked_rem(self.held.len()) {
            Some(which) => self.held[which],
            None => (Pfn(which as u64 % 4096), Order::ZERO),
        };
        for (pfn, order) in [
            (pfn, Order::new(order.get() + 1).unwrap_or(Order::ZERO)),
            (Pfn(pfn.0 + order.pages()), order),
            (Pfn(1 << 40), order),
        ] {
            // What lies behind the block may be one, too.
            if !self.held.contains(&(pfn, order)) {
                self.results.push(format!("{:?}", self.pool.free(pfn, order)));
            }
        }
    }

    fn apply(&mut self, op: &Op) {
        let cpus = self.pool.cpus() as u32;
        match *op {
            Op::Alloc { cpu, order: o, gfp, node, times } => {
                on_cpu(cpu % cpus);
                let request = Request { order: order(o), gfp: GFPS[gfp], node: node.map(NodeId) };
                (0..times).for_each(|_| self.alloc(request));
            }
            Op::Fast { cpu, order: o, times } => {
                on_cpu(cpu % cpus);
                (0..times).for_each(|_| self.alloc(Request::new(order(o))));
                self.range(order(o).pages() << u64::from(times % 4 == 3));
            }
            Op::Free { cpu, which, times } | Op::FastFree { cpu, which, times } => {
                on_cpu(cpu % cpus);
                (0..times).for_each(|i| self.free(which.wrapping_add(i)));
                self.free_range(which);
            }
            Op::Misuse { cpu, which, .. } => {
                on_cpu(cpu % cpus);
                self.misuse(which);
            }
            Op::Bulk { cpu, pages, gfp } => {
                on_cpu(cpu % cpus);
                let mut got = vec![Pfn(0); pages];
                let result =
                    self.pool.alloc_bulk(Request::new(Order::ZERO).gfp(GFPS[gfp]), &mut got);
                self.held.extend(got.iter().take(result.unwrap_or(0)).map(|p| (*p, Order::ZERO)));
                self.results.push(format!("{result:?} {got:?}"));
            }
            Op::FreeBulk { cpu, order: o, at_most } => {
                on_cpu(cpu % cpus);
                let of = |block: &(Pfn, Order)| block.1 == order(o);
                let some: Vec<_> = self.held.iter().copied().filter(of).take(at_most).collect();
                self.held.retain(|block| !some.contains(block));
                let pages: Vec<_> = some.iter().map(|block| block.0).collect();
                self.results.push(format!("{:?}", self.pool.free_bulk(&pages, order(o))));
            }
            Op::Drain { zone, cpu } => {
                let zone = ZoneId(zone % self.pool.zones().len() as u16);
                self.pool.drain(zone, CpuId(cpu % cpus));
            }
            Op::DrainAll => _ = self.pool.drain_all(),
            Op::Refresh { cpu, times } => {
                (0..times).for_each(|_| _ = self.pool.refresh(CpuId(cpu % cpus)));
            }
            Op::Write { sysctl, value } => _ = self.pool.set(sysctl, value),
        }
    }

    /// Everything that can be asked of the pool but the lock holds, which asking changes.
    fn figures(&self) -> String {
        let zones = self.pool.zones().iter().map(|zone| {
            let pcps = (0..self.pool.cpus()).flat_map(|cpu| {
                self.pool.tables().pcps(zone.id(), CpuId(cpu as u32)).map(|pcp| {
                    let word = PcpWord(pcp.word.load(Relaxed));
                    let lists = 0..self.pool.tables().lists().len();
                    let listed: Vec<_> = lists.map(|list| pcp.listed(list)).collect();
                    let tuning = (word.free_count(), word.prev_high_order(), pcp.high());
                    (
                        pcp.count(),
                        listed,
                        tuning,
                        pcp.swing.load(Relaxed),
                        pcp.totals(),
                        pcp.events(),
                    )
                })
            });
            (self.pool.zone_stats(zone.id()), zone.fast.load(Relaxed), pcps.collect::<Vec<_>>())
        });
        format!("{:#?}", zones.collect::<Vec<_>>())
    }
}

/// Plays a program with the fast path and without it, and compares after each operation; on a
/// platform that charges for steps, these too.
fn compare<B: Behaviour + Default>(shape: &Shape, policy: Policy, ops: &[Op]) {
    let play = |gates| {
        shape.scoped_on(policy, 0, Stage::<B> { gates, ..Stage::default() }, |pool| {
            let mut player =
                Player { pool, held: Vec::new(), ranges: Vec::new(), results: Vec::new() };
            let after = ops.iter().map(|op| {
                let steps = steps_of(|| player.apply(op));
                player.pool.validate().unwrap();
                (core::mem::take(&mut player.results), player.figures(), steps)
            });
            after.collect::<Vec<_>>()
        })
    };
    let (by_core, by_gates) = (play(Some(false)), play(Some(true)));
    for (op, (expected, got)) in ops.iter().zip(by_core.iter().zip(&by_gates)) {
        assert_eq!(expected.0, got.0, "{op:?}");
        assert!(!B::CHARGES || expected.2 == got.2, "{op:?}: {:?}\n{:?}", expected.2, got.2);
        assert!(expected.1 == got.1, "{op:?}: by the core {}\nby gates {}", expected.1, got.1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn the_fast_path_changes_no_result_and_no_figure(
        shape in shape(),
        policy in prop_oneof![4 => policy(), 1 => Just(Policy::KERNEL)],
        ops in prop::collection::vec(op(), 1..60),
    ) {
        compare::<Plain>(&shape, policy, &ops);
    }

    #[test]
    fn who_charges_for_steps_is_told_of_the_same_ones(
        shape in shape(),
        policy in prop_oneof![4 => policy(), 1 => Just(Policy::KERNEL)],
        ops in prop::collection::vec(op(), 1..60),
    ) {
        compare::<Charging>(&shape, policy, &ops);
    }

    /// The short way of pageblocks that CPUs own is no fast path by lists.
    #[test]
    fn the_short_way_to_own_pageblocks_changes_no_result_and_no_figure(
        shape in shape(),
        policy in policy(),
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let budget_fraction = Policy::OWNED_2026.pcp.budget_fraction;
        let pcp = PcpPolicy { depot: DepotPolicy::OFF, budget_fraction, ..policy.pcp };
        let free_lists = Policy::OWNED_2026.pcp.free_lists;
        let pcp = PcpPolicy { pageblocks: Pageblocks::Owned, free_lists, ..pcp };
        compare::<Plain>(&shape, Policy { pcp, ..policy }, &ops);
        compare::<Charging>(&shape, Policy { pcp, ..policy }, &ops);
    }
}

fn boot(policy: Policy) -> Allocator<'static, Script> {
    let shape: &'static Shape = Box::leak(Box::new(Shape::uniform(1, 1 << 18, 2)));
    shape.boot_on(policy, Script { gates: Some(true), ..Script::default() })
}

/// Blocks that the CPU got from and gave to the buddy itself.
fn direct(pool: &Allocator<'_, Script>, cpu: u32) -> (u64, u64) {
    let events = pool.pcp(ZoneId(0), CpuId(cpu)).events();
    (events.direct_allocs, events.direct_freed)
}

/// Who interrupts the holder of a gate gets his block from the buddy, and gives it back there.
#[test]
fn a_pcp_that_is_held_is_passed() {
    let pool = boot(LISTS_ALONE);
    let page = pool.alloc(Request::new(Order::ZERO)).unwrap();
    let (zone, before) = (&pool.zones()[0], direct(&pool, 0));
    let pcp = pool.pcp(ZoneId(0), CpuId(0));
    let held = pcp.try_close(pool.platform(), zone, pool.tables.slots).unwrap();
    let nested = pool.alloc(Request::new(Order::ZERO)).unwrap();
    assert_ne!(nested, page);
    pool.free(nested, Order::ZERO).unwrap();
    let got = direct(&pool, 0);
    assert_eq!(got, (before.0 + 1, before.1 + 1));
    drop(held);
    pool.free(page, Order::ZERO).unwrap();
    assert_eq!(direct(&pool, 0), got, "open again: the list takes it");
    assert_eq!(pool.free(page, Order::ZERO).unwrap_err(), {
        FreeError::DoubleFree { pfn: page, order: Order::ZERO, zone: ZoneId(0) }
    });
    pool.validate().unwrap();
}

/// The fast path serves policies with mobility grouping, and those that record each allocation.
#[test]
fn hot_pairs_and_ranges_of_kernels_close_nothing() {
    for policy in Policy::PRESETS.iter().chain([&Policy::KERNEL]) {
        if policy.mobility_grouping == Grouping::Auto && policy.name != "owned-2026" {
            hot_pairs_close_nothing(&boot(*policy));
        }
    }
}

fn hot_pairs_close_nothing(pool: &Allocator<'_, Script>) {
    assert!(pool.tables().grouping());
    let has_list = |o: &Order| pool.tables().map.get(*o, Migratetype::Unmovable).is_some();
    assert!(has_list(&Order::ZERO));
    // Lists of Linux' sizes hold no block of order 9 in a zone of 1 GiB.
    for o in (0..=3).map(order).filter(has_list) {
        let again = |pool: &Allocator<'_, Script>| {
            let block = pool.alloc(Request::new(o)).unwrap();
            pool.free(block, o).unwrap();
            let range = pool.ranges().alloc(RangeRequest::new(o.pages())).unwrap();
            let inside = FreeError::InRange { pfn: range, order: o, zone: ZoneId(0) };
            assert_eq!(pool.free(range, o), Err(inside));
            pool.ranges().free(range..Pfn(range.0 + o.pages())).unwrap();
        };
        // Up to 4.13 readers see only what a worker has folded.
        pool.refresh(CpuId(0));
        again(pool);
        pool.refresh(CpuId(0));
        let pcp = pool.pcp(ZoneId(0), CpuId(0));
        let (events, holds) = (pcp.events(), pool.zones()[0].lock_holds());
        let numa = pool.numa_events(NodeId(0));
        again(pool);
        let name = pool.policy().name;
        assert_eq!((pcp.events(), pool.zones()[0].lock_holds()), (events, holds), "{name} {o:?}");
        pool.refresh(CpuId(0));
        let more = NumaEvents { hit: 2, local: 2, ..NumaEvents::default() };
        assert_eq!(pool.numa_events(NodeId(0)), numa.plus(more), "{name} {o:?}");
    }
    pool.validate().unwrap();
}

/// Where each allocation is recorded no sequence runs, so gates serve a platform that has both;
/// `numa_stat` changes over while the pool runs.
#[test]
fn gates_serve_in_place_of_sequences_while_each_allocation_is_recorded() {
    let shape: &'static Shape = Box::leak(Box::new(Shape::uniform(1, 1 << 18, 2)));
    let pool = shape.boot_on(Policy::LINUX_6_18, Script { both: true, ..Script::default() });
    let sequence = |pool: &Allocator<'_, Script>| {
        let got = word_path::alloc(pool, CpuId(0), Order::ZERO);
        got.map(|page| pool.free(page, Order::ZERO).unwrap()).is_some()
    };
    for _ in 0..3 {
        hot_pairs_close_nothing(&pool);
        assert!(!sequence(&pool), "it would not be recorded");
        pool.set(Sysctl::NumaStat, 0).unwrap();
        let page = pool.alloc(Request::new(Order::ZERO)).unwrap();
        pool.free(page, Order::ZERO).unwrap();
        assert!(sequence(&pool));
        assert!(!pool.pcp(ZoneId(0), CpuId(0)).is_sealed());
        pool.set(Sysctl::NumaStat, 1).unwrap();
    }
    assert!(pool.retire());
    let page = pool.alloc(Request::new(Order::ZERO)).unwrap();
    pool.free(page, Order::ZERO).unwrap();
    let pcp = pool.pcp(ZoneId(0), CpuId(0));
    assert!(fast::alloc(&pool.tables, &Request::new(Order::ZERO)).is_none(), "retired");
    assert!(pcp.is_sealed());
}

/// The path is taken at all: the gate of a hot pair closes nothing and takes no zone lock, and it
/// leaves the limits of the list alone.
#[test]
fn a_hot_pair_of_each_order_with_a_list_closes_nothing() {
    let pool = boot(Policy::ZONAL);
    for o in (0..=9).filter_map(Order::new) {
        let block = pool.alloc(Request::new(o)).unwrap();
        pool.free(block, o).unwrap();
        let pcp = pool.pcp(ZoneId(0), CpuId(0));
        // A closing would write its own.
        pcp.limit.store(77, Relaxed);
        for _ in 0..100 {
            let again = pool.alloc(Request::new(o)).unwrap();
            assert_eq!(again, block, "the hottest");
            pool.free(again, o).unwrap();
        }
        assert_eq!(pcp.limit.load(Relaxed), 77, "{o:?}");
        pool.drain_all();
    }
    pool.validate().unwrap();
}

/// The first free that has nothing to decide makes the pcp ready for the next ones, be they blocks
/// or ranges.
#[test]
fn a_row_of_frees_alone_closes_nothing() {
    for policy in [Policy::ZONAL, Policy::KERNEL, Policy::LINUX_6_18] {
        for (o, is_range) in (0..=3).map(order).flat_map(|o| [(o, true), (o, false)]) {
            let (pool, pages) = (boot(policy), o.pages());
            let blocks = (0..6).map(|_| match is_range {
                true => pool.ranges().alloc(RangeRequest::new(pages)).unwrap(),
                false => pool.alloc(Request::new(o)).unwrap(),
            });
            let blocks: Vec<_> = blocks.collect();
            let free = |block: &Pfn| match is_range {
                true => pool.ranges().free(*block..Pfn(block.0 + pages)).unwrap(),
                false => pool.free(*block, o).unwrap(),
            };
            pool.drain_all();
            // An empty pcp may have to ask for a part of the zone's budget.
            free(&blocks[0]);
            let pcp = pool.pcp(ZoneId(0), CpuId(0));
            // A closing would write its own.
            pcp.limit.store(77, Relaxed);
            let holds = pool.zones()[0].lock_holds();
            free(&blocks[1]);
            let ready = pcp.gate.load(Relaxed);
            assert!(is_ready(ready), "{} {o:?} {is_range}: the gate is {ready}", policy.name);
            blocks[2..].iter().for_each(free);
            let after = (pcp.limit.load(Relaxed), pcp.gate.load(Relaxed));
            assert_eq!(after, (77, ready), "{} {o:?} {is_range}", policy.name);
            assert_eq!(pool.zones()[0].lock_holds(), holds, "{} {o:?} {is_range}", policy.name);
            assert_eq!(u64::from(pcp.count()), 6 * pages);
            pool.validate().unwrap();
        }
    }
}

/// Where `free_count` grows by no free, frees need no core for that.
#[test]
fn frees_that_nothing_counts_in_a_row_stay_on_the_fast_path() {
    let pool = boot(Policy::LINUX_6_6);
    let page = |_| pool.alloc(Request::new(Order::ZERO)).unwrap();
    let pages: Vec<Pfn> = (0..8).map(page).collect();
    assert_eq!(pool.pcp(ZoneId(0), CpuId(0)).free_count_cap.load(Relaxed), 0);
    pages[..2].iter().for_each(|page| pool.free(*page, Order::ZERO).unwrap());
    let is_fast = |page: &Pfn| hot::free(&pool, *page, Order::ZERO).is_ok();
    assert!(pages[2..].iter().all(is_fast));
    pool.validate().unwrap();
}

/// The first free behind one of another kind is no second in a row (LB E.7), and needs no core.
#[test]
fn a_free_behind_one_of_another_kind_stays_on_the_fast_path() {
    let pool = boot(Policy::ZONAL);
    let pcp = pool.pcp(ZoneId(0), CpuId(0));
    let take = |o| pool.alloc(Request::new(order(o))).unwrap();
    for (one, other) in [(0, 3), (3, 0), (4, 1), (1, 9)] {
        let (last, kept) = (take(other), [take(one), take(one)]);
        pool.free(last, order(other)).unwrap();
        let block = take(one);
        let word = PcpWord(pcp.word.load(Relaxed));
        assert_eq!(word.prev_high_order(), (1..=3).contains(&other));
        assert_eq!(hot::free(&pool, block, order(one)), Ok(()), "{one} behind {other}");
        let after = PcpWord(pcp.word.load(Relaxed));
        assert_eq!(after.prev_high_order(), (1..=3).contains(&one));
        assert_eq!(after, word.pushed(1 << one, u32::MAX, (1..=3).contains(&one)));
        kept.iter().for_each(|block| pool.free(*block, order(one)).unwrap());
    }
    pool.validate().unwrap();
}

/// Where no sequence runs on a pcp, be it sealed or be there none, a bulk free claims each page by
/// an exchange, so one of two frees at the same moment is refused.
#[test]
fn bulk_frees_claim_pages_by_exchanges_where_no_sequence_runs() {
    let shape: &'static Shape = Box::leak(Box::new(Shape::uniform(1, 1 << 18, 2)));
    let exchanges = |pool: &Allocator<'_, Script>| {
        let (zone, pcp) = (&pool.zones()[0], pool.pcp(ZoneId(0), CpuId(0)));
        Words::of(zone, &pool.tables, (pcp, 0)).exchanges
    };
    let both = || Script { both: true, ..Script::default() };
    assert!(!exchanges(&shape.boot_on(Policy::ZONAL, both())));
    assert!(exchanges(&boot(Policy::ZONAL)));
    let pool = shape.boot_on(Policy::LINUX_6_18, both());
    assert!(exchanges(&pool), "sealed from the start");
    pool.set(Sysctl::NumaStat, 0).unwrap();
    assert!(!exchanges(&pool));
    pool.set(Sysctl::NumaStat, 1).unwrap();
    assert!(exchanges(&pool), "sealed again");
}

/// A block of which one page is another's stays as it was, wherever that page is.
#[test]
fn of_a_block_in_rows_all_words_are_claimed_or_none() {
    for others in 0..=24 {
        let words: [_; 24] = core::array::from_fn(|at| AtomicU64::new(1 + u64::from(at == others)));
        let (rows, _) = words.as_chunks::<8>();
        assert_eq!(claim::all(rows, 1, 3), others == 24, "page {others} is another's");
        for (at, word) in words.iter().enumerate() {
            let expected = if others == 24 { 3 } else { 1 + u64::from(at == others) };
            assert_eq!(word.load(Relaxed), expected, "page {at} where {others} is another's");
        }
    }
}

/// A change that no ready pcp goes by leaves all of them ready: an order without lists, a zone that
/// no CPU prefers.
#[test]
fn the_epoch_moves_on_for_what_a_pcp_may_be_ready_by() {
    let mut shape = Shape::uniform(1, 1 << 18, 2);
    shape.zones =
        vec![zone(0, ZoneKind::Dma32, 0, 1 << 17), zone(0, ZoneKind::Normal, 1 << 17, 1 << 17)];
    let pool = shape.boot(Policy::KERNEL);
    let (other, preferred) = (&pool.zones()[0], &pool.zones()[1]);
    assert_eq!(pool.tables().preferred_zone(CpuId(0)), preferred.id());
    // Whether the epoch moves on when the zone finds itself without this bit.
    let moves_on = |zone: &Zone, bit: u32| {
        let before = pool.tables.epoch.now();
        zone.fast.fetch_or(bit, Relaxed);
        zone.set_flag(BELOW_HIGH, &pool.tables.epoch);
        zone.clear_flag(BELOW_HIGH);
        pool.tables.epoch.now() != before
    };
    for zone in pool.zones() {
        zone.fast.store(0, Relaxed);
    }
    for order in (0..=10).map(order) {
        let has_list = pool.tables.map.get(order, Migratetype::Movable).is_some();
        assert_eq!(moves_on(preferred, 1 << order.get()), has_list, "{order:?}");
        assert!(!moves_on(other, 1 << order.get()), "{order:?}");
    }
    assert!(moves_on(preferred, FAST_FREE) && !moves_on(other, FAST_FREE));
}

/// Under pressure each operation has something to decide, so none is served by a gate.
#[test]
fn below_the_high_watermark_the_core_decides() {
    let pool = boot(LISTS_ALONE);
    let page = pool.alloc(Request::new(Order::ZERO)).unwrap();
    pool.free(page, Order::ZERO).unwrap();
    let zone = &pool.zones()[0];
    pool.zone_ops(zone.id()).set_flag(BELOW_HIGH);
    let pcp = pool.pcp(ZoneId(0), CpuId(0));
    pcp.limit.store(77, Relaxed);
    let page = pool.alloc(Request::new(Order::ZERO)).unwrap();
    assert_ne!(pcp.limit.load(Relaxed), 77, "the pcp was closed");
    pcp.limit.store(77, Relaxed);
    pool.free(page, Order::ZERO).unwrap();
    assert_ne!(pcp.limit.load(Relaxed), 77);
}

/// A page of another CPU's pcp goes onto the running one's list, as with the core.
#[test]
fn a_page_of_another_cpu_changes_its_pcp() {
    let pool = boot(LISTS_ALONE);
    let page = pool.alloc(Request::new(Order::ZERO)).unwrap();
    on_cpu(1);
    let other = pool.alloc(Request::new(Order::ZERO)).unwrap();
    let before = pool.pcp(ZoneId(0), CpuId(1)).count();
    pool.free(page, Order::ZERO).unwrap();
    assert_eq!(pool.pcp(ZoneId(0), CpuId(1)).count(), before + 1);
    assert_eq!(pool.alloc(Request::new(Order::ZERO)), Ok(page));
    pool.validate().unwrap();
    pool.free(other, Order::ZERO).unwrap();
    on_cpu(0);
}

/// Two copies of a block on two lists, as a racing double free leaves them: one is handed out.
#[test]
fn a_stray_copy_is_dropped_and_counted() {
    let pool = boot(LISTS_ALONE);
    let page = pool.alloc(Request::new(Order::ZERO)).unwrap();
    let word = &pool.words()[page.0 as usize];
    let allocated = word.load(Relaxed);
    pool.free(page, Order::ZERO).unwrap();
    // The other thread had read the word before.
    word.store(allocated, Relaxed);
    on_cpu(1);
    let warm = pool.alloc(Request::new(Order::ZERO)).unwrap();
    pool.free(page, Order::ZERO).unwrap();
    on_cpu(0);
    let other = pool.alloc(Request::new(Order::ZERO)).unwrap();
    assert_ne!(other, page);
    assert_eq!(pool.pcp(ZoneId(0), CpuId(0)).events().double_frees, 1);
    on_cpu(1);
    assert_eq!(pool.alloc(Request::new(Order::ZERO)), Ok(page));
    for block in [page, other, warm] {
        pool.free(block, Order::ZERO).unwrap();
    }
    on_cpu(0);
    pool.validate().unwrap();
}

/// Requests that a search would decide otherwise than by the CPU's own pcp.
#[test]
fn a_request_for_another_node_or_zone_goes_by_the_search() {
    let shape: &'static Shape = Box::leak(Box::new(Shape::uniform(2, 4096, 1)));
    let pool = shape.boot_on(LISTS_ALONE, Script { gates: Some(true), ..Script::default() });
    let own = pool.alloc(Request::new(Order::ZERO)).unwrap();
    let far = pool.alloc(Request::new(Order::ZERO).on(NodeId(1))).unwrap();
    assert!(own.0 < 4096 && far.0 >= 4096);
    pool.free(far, Order::ZERO).unwrap();
    pool.free(own, Order::ZERO).unwrap();
    assert!(pool.alloc(Request::new(Order::ZERO).on(NodeId(2))).is_err());
    let both = Gfp::KERNEL | Gfp::MOVABLE | Gfp::RECLAIMABLE;
    assert!(pool.alloc(Request::new(Order::ZERO).gfp(both)).is_err());
    pool.validate().unwrap();
}

/// Nothing that is held may be interrupted by somebody who waits for it.
#[test]
fn gates_and_zone_locks_are_held_masked() {
    let pool = boot(Policy::ZONAL);
    let taken = masks();
    let page = pool.alloc(Request::new(Order::ZERO)).unwrap();
    pool.free(page, Order::ZERO).unwrap();
    let after = masks();
    assert!(after.made > taken.made + 1 && after.depth == 0 && after.at_unlock > 0);
    let hot = pool.alloc(Request::new(Order::ZERO)).unwrap();
    assert_eq!((masks().made, masks().depth), (after.made + 1, 0), "a hot one masks once");
    pool.free(hot, Order::ZERO).unwrap();
}

#[test]
fn who_holds_everything_is_masked_from_the_first_gate_to_the_last() {
    let pool = boot(Policy::ZONAL);
    let mut held = Vec::new();
    pool.hold_all(&mut |one| {
        assert!(masks().depth > 0, "masked with {} held", held.len());
        held.push(one);
    });
    while held.len() > 1 {
        held.pop();
        assert!(masks().depth > 0, "masked with {} held", held.len());
    }
    drop(held);
    assert_eq!(masks().depth, 0);
}
