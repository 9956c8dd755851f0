//! The pcps of a real allocator beside the state machine of `pcp::tune` driven alone: what is
//! kept in a packed word, put together lazily, and skipped on fast paths must be the state that the
//! plain machine has, page for page, after every step.

use std::boxed::Box;
use std::collections::VecDeque;
use std::vec::Vec;

use super::platform::{LISTS_ALONE, Script, Shape, on_cpu};
use super::word_path;
use crate::alloc::{Allocator, Request, Sysctl};
use crate::gfp::Gfp;
use crate::pcp::drain::{Chunk, DrainOrder, DrainPolicy};
use crate::pcp::lists::HugeLists;
use crate::pcp::ready::OPEN;
use crate::pcp::size::SizeRule;
use crate::pcp::tune::{self, PcpParams, PcpState, Pressure};
use crate::pcp::tuning::Tuning;
use crate::pcp::word::PcpWord;
use crate::policy::{Grouping, PcpPolicy, Policy};
use crate::sync::Ordering::Relaxed;
use crate::types::{Choice, CpuId, Order, Pfn, ZoneId};
use crate::zone::state::{BELOW_HIGH, RECLAIM_ACTIVE};

const ZONE: ZoneId = ZoneId(0);

/// A pcp as LB E describes it: lists of pages, hot end first, and the state of `pcp::tune`.
struct Plain {
    state: PcpState,
    params: PcpParams,
    drain: DrainPolicy,
    orders: Vec<Order>,
    lists: Vec<VecDeque<Pfn>>,
    refills: u64,
    refilled_pages: u64,
    drains: u64,
    drained_pages: u64,
}

impl Plain {
    fn new(pool: &Allocator<'_, Script>, cpu: CpuId) -> Plain {
        let lists = pool.tables().lists().len();
        Plain {
            state: PcpState { high: pool.pcp(ZONE, cpu).high(), ..PcpState::default() },
            params: pool.pcp(ZONE, cpu).params(&pool.tables.fixed),
            drain: pool.policy().pcp.drain,
            orders: (0..lists).map(|list| pool.tables().lists().of(list).0).collect(),
            lists: std::vec![VecDeque::new(); lists],
            refills: 0,
            refilled_pages: 0,
            drains: 0,
            drained_pages: 0,
        }
    }

    /// LB E.6. `fetched` says what a refill of so many blocks got.
    fn take(
        &mut self,
        list: usize,
        pressure: Pressure,
        fetched: impl FnOnce(u32) -> VecDeque<Pfn>,
    ) -> Pfn {
        tune::on_take(&mut self.state);
        self.take_bulk(list, pressure, fetched)
    }

    /// LB D.9: the same but for `free_count`.
    fn take_bulk(
        &mut self,
        list: usize,
        pressure: Pressure,
        fetched: impl FnOnce(u32) -> VecDeque<Pfn>,
    ) -> Pfn {
        let order = self.orders[list];
        if self.lists[list].is_empty() {
            let n = tune::nr_alloc(&mut self.state, &self.params, pressure, order);
            self.lists[list] = fetched(n);
            assert_eq!(self.lists[list].len() as u32, n, "blocks of a refill");
            tune::on_refill(&mut self.state, n, order);
            self.refills += 1;
            self.refilled_pages += u64::from(n) << order.get();
        }
        tune::on_pop(&mut self.state, order);
        self.lists[list].pop_front().expect("just filled")
    }

    /// LB E.7. Returns whether the zone's flags are to be looked at again.
    fn free(&mut self, list: usize, pfn: Pfn, pressure: Pressure) -> bool {
        self.lists[list].push_front(pfn);
        let order = self.orders[list];
        let bulk = tune::commit_free(&mut self.state, &self.params, pressure, order);
        if let Some(bulk) = bulk {
            self.drain(bulk.pages.get(), list);
        }
        bulk.is_some()
    }

    /// LB E.8.
    fn drain(&mut self, pages: u32, first: usize) {
        let mut left = i64::from(pages.min(self.state.count));
        let growing = self.drain.order.name() == "growing";
        let (mut at, mut share) = if growing { (0, 0) } else { (first, 0) };
        while left > 0 && self.state.count > 0 {
            let in_batches = self.drain.bulk == Chunk::Batch;
            let hold = if in_batches { i64::from(self.params.batch) } else { left };
            let mut rest = left.min(hold);
            left -= rest;
            self.drains += 1;
            while rest > 0 && self.state.count > 0 {
                if growing && (share == 0 || self.lists[at].is_empty()) {
                    loop {
                        share += 1;
                        at = (at + 1) % self.lists.len();
                        if !self.lists[at].is_empty() {
                            break;
                        }
                    }
                    if share == self.lists.len() as i64 {
                        share = rest;
                    }
                }
                match self.lists[at].pop_back() {
                    None => at = (at + 1) % self.lists.len(),
                    Some(_) => {
                        let pages = self.orders[at].pages();
                        rest -= pages as i64;
                        share -= 1;
                        tune::on_freed(&mut self.state, pages as u32);
                        self.drained_pages += pages;
                    }
                }
            }
        }
    }

    fn decay(&mut self) {
        let decay = tune::decay(&mut self.state, &self.params);
        let mut left = decay.pages.get();
        while left > 0 {
            let some = match self.drain.decay {
                Chunk::Whole => left,
                _ => left.min(self.params.batch),
            };
            self.drain(some, 0);
            left -= some;
        }
    }

    fn drain_all(&mut self) {
        while self.state.count > 0 {
            let most = self.params.batch << self.params.scale_max;
            let all = if self.drain.all == Chunk::Whole { u32::MAX } else { most };
            self.drain(all, 0);
        }
    }
}

/// A pool of one zone and two CPUs, and a plain pcp for each CPU.
struct Pair<'p, 'a> {
    pool: &'p Allocator<'a, Script>,
    plain: Vec<Plain>,
    held: Vec<(Pfn, Order)>,
    random: u64,
    fast_ops: u64,
}

/// A list as it is, hot end first.
fn real_list(pool: &Allocator<'_, Script>, cpu: CpuId, list: usize) -> VecDeque<Pfn> {
    peek(pool, cpu, |closed| {
        let frames = closed.frames(list).expect("PCP-2");
        frames.iter().rev().map(|slot| Pfn(u64::from(slot.load(Relaxed)))).collect()
    })
}

/// Looks into a pcp without leaving a trace: opening it again would compute its limits anew.
fn peek<R>(
    pool: &Allocator<'_, Script>,
    cpu: CpuId,
    look: impl FnOnce(&crate::pcp::closed::Closed<'_>) -> R,
) -> R {
    let pcp = pool.pcp(ZONE, cpu);
    let word = pcp.word.load(Relaxed);
    let closed =
        pcp.close(&pool.tables.platform, &pool.zones()[0], pool.tables.slots).expect("one thread");
    let seen = look(&closed);
    core::mem::forget(closed);
    pcp.word.store(word, Relaxed);
    pcp.gate.store(OPEN, Relaxed);
    seen
}

impl Pair<'_, '_> {
    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    fn pressure(&self) -> Pressure {
        let zone = &self.pool.zones()[0];
        Pressure { below_high: zone.has(BELOW_HIGH), reclaim_active: zone.has(RECLAIM_ACTIVE) }
    }

    fn gfp(&mut self) -> Gfp {
        [Gfp::KERNEL, Gfp::KERNEL, Gfp::HIGHUSER_MOVABLE, Gfp::KERNEL | Gfp::RECLAIMABLE]
            [self.random(4) as usize]
    }

    fn alloc(&mut self, cpu: CpuId, order: Order) {
        let (pool, pressure) = (self.pool, self.pressure());
        let mut gfp = self.gfp();
        let fast = match self.random(2) {
            0 if !pool.tables().grouping() => word_path::alloc(pool, cpu, order),
            _ => None,
        };
        if fast.is_some() {
            self.fast_ops += 1;
            gfp = Gfp::KERNEL;
        }
        let pfn = fast.unwrap_or_else(|| pool.alloc(Request::new(order).gfp(gfp)).unwrap());
        let list = pool
            .tables()
            .lists()
            .get(order, gfp.migratetype(pool.tables().grouping()).unwrap())
            .unwrap();
        let fetched = |_| {
            let mut got = real_list(pool, cpu, list);
            got.push_front(pfn);
            got
        };
        let expected = self.plain[cpu.0 as usize].take(list, pressure, fetched);
        assert_eq!(pfn, expected, "an allocation takes the hottest block");
        self.held.push((pfn, order));
    }

    fn alloc_bulk(&mut self, cpu: CpuId, n: usize) {
        let pressure = self.pressure();
        let mut pages = std::vec![Pfn(0); n];
        let got = self.pool.alloc_bulk(Request::new(Order::ZERO), &mut pages).unwrap();
        assert_eq!(got, n);
        for i in 0..n {
            let pool = self.pool;
            let fetched = |n: u32| {
                let mut all: VecDeque<Pfn> = pages[i..].iter().copied().collect();
                all.extend(real_list(pool, cpu, 0));
                all.truncate(n as usize);
                all
            };
            let expected = self.plain[cpu.0 as usize].take_bulk(0, pressure, fetched);
            assert_eq!(pages[i], expected);
            self.held.push((pages[i], Order::ZERO));
        }
    }

    fn free(&mut self, cpu: CpuId) {
        if self.held.is_empty() {
            return;
        }
        let nth = self.random(self.held.len() as u64) as usize;
        let (pfn, order) = self.held.swap_remove(nth);
        let (pool, pressure) = (self.pool, self.pressure());
        let list =
            pool.tables().lists().get(order, pool.zone_ops(ZONE).pageblock_type(pfn)).unwrap();
        let fast = self.random(2) == 0
            && !pool.tables().grouping()
            && word_path::free(pool, ZONE, cpu, (pfn, order));
        self.fast_ops += u64::from(fast);
        if !fast {
            pool.free(pfn, order).unwrap();
        }
        self.plain[cpu.0 as usize].free(list, pfn, pressure);
    }

    /// Frees blocks of one order and list in one call. Where pageblocks have types, each block is
    /// pushed onto its own list, so a run may end early and begin again: the outcome is the same.
    fn free_bulk(&mut self, cpu: CpuId, order: Order, n: usize) {
        let mut blocks: Vec<Pfn> =
            self.held.iter().filter(|(_, o)| *o == order).map(|(pfn, _)| *pfn).collect();
        blocks.truncate(n);
        self.held.retain(|(pfn, _)| !blocks.contains(pfn));
        let mut pressure = self.pressure();
        let types: Vec<usize> = blocks
            .iter()
            .map(|pfn| self.pool.zone_ops(ZONE).pageblock_type(*pfn))
            .map(|mt| self.pool.tables().lists().get(order, mt).unwrap())
            .collect();
        self.pool.free_bulk(&blocks, order).unwrap();
        for (pfn, list) in blocks.into_iter().zip(types) {
            if self.plain[cpu.0 as usize].free(list, pfn, pressure) {
                // The zone has plenty of pages: the first drain ends the pressure.
                pressure.below_high = false;
            }
        }
    }

    fn step(&mut self) {
        let cpu = CpuId(self.random(2) as u32);
        on_cpu(cpu.0);
        // Streaks, so that refills double and frees pile up.
        let streak = 1 + self.random(12) * self.random(2);
        let order = [0, 0, 0, 1, 2, 3, 3, 9][self.random(8) as usize];
        let has_lists = self.pool.policy().pcp.orders & 1 << order != 0;
        let order = Order::new(order).filter(|_| has_lists).unwrap_or(Order::ZERO);
        let streak = if order.get() == 9 { 1 } else { streak };
        match self.random(40) {
            0..17 => (0..streak).for_each(|_| self.alloc(cpu, order)),
            17..34 => (0..streak).for_each(|_| self.free(cpu)),
            34 => {
                let n = self.random(700) as usize;
                self.alloc_bulk(cpu, n.max(1));
            }
            35 => {
                let n = 1 + self.random(900) as usize;
                self.free_bulk(cpu, order, n);
            }
            36 => {
                self.pool.refresh(cpu);
                self.plain[cpu.0 as usize].decay();
            }
            37 if self.random(8) == 0 => {
                self.pool.drain(ZONE, cpu);
                self.plain[cpu.0 as usize].drain_all();
            }
            38 => self.change_flags(),
            39 if self.random(4) == 0 => self.change_limits(),
            _ => {}
        }
        if self.held.len() > 6000 {
            (0..3000).for_each(|_| self.free(cpu));
        }
        self.compare();
    }

    /// What a reclaimer would do, or a request that found the zone low.
    fn change_flags(&mut self) {
        let zone = self.pool.zone_ops(self.pool.zones()[0].id());
        match self.random(3) {
            0 => zone.set_flag(BELOW_HIGH),
            1 => zone.set_flag(RECLAIM_ACTIVE),
            _ => {
                zone.zone.clear_flag(RECLAIM_ACTIVE);
                zone.refresh_fast();
            }
        }
        for cpu in [CpuId(0), CpuId(1)] {
            self.pool.pcp(ZONE, cpu).make_slow();
        }
    }

    fn change_limits(&mut self) {
        // Up to 5.12 an eighth of the zone would be each CPU's; the stacks have no room for that
        // unless the policy began with it.
        let six = self.pool.policy().pcp.size.name() == "six-batches";
        let fractions = if six { [0, 0, 1000, 2000] } else { [0, 0, 8, 500] };
        let fraction = fractions[self.random(4) as usize];
        self.pool.set(Sysctl::HighFraction, fraction).unwrap();
        for cpu in [CpuId(0), CpuId(1)] {
            let plain = &mut self.plain[cpu.0 as usize];
            plain.params = self.pool.pcp(ZONE, cpu).params(&self.pool.tables.fixed);
            if !plain.params.tuning.moves_high() {
                // One bound, which is `high` from the moment it is written.
                plain.state.high = plain.params.high_min;
            }
            // The plain machine clamps `high` on the next free, whichever it is; the real one on
            // the next that needs a decision, and until then keeps to the clamped value without
            // storing it. A free through the core makes both store it.
            on_cpu(cpu.0);
            let page = self.held.iter().position(|(_, order)| *order == Order::ZERO);
            if let Some((pfn, order)) = page.map(|nth| self.held.swap_remove(nth)) {
                let (pool, pressure) = (self.pool, self.pressure());
                let mt = pool.zone_ops(ZONE).pageblock_type(pfn);
                pool.free(pfn, order).unwrap();
                let list = pool.tables().lists().get(order, mt).unwrap();
                self.plain[cpu.0 as usize].free(list, pfn, pressure);
            }
        }
    }

    fn compare(&self) {
        let mut sums = [0; 4];
        for (cpu, plain) in self.plain.iter().enumerate() {
            let cpu = CpuId(cpu as u32);
            let state = peek(self.pool, cpu, |closed| closed.state());
            assert_eq!(state, plain.state);
            for list in 0..plain.lists.len() {
                assert_eq!(real_list(self.pool, cpu, list), plain.lists[list], "list {list}");
            }
            let of = [plain.refills, plain.refilled_pages, plain.drains, plain.drained_pages];
            sums.iter_mut().zip(of).for_each(|(sum, x)| *sum += x);
        }
        let stats = self.pool.zone_stats(ZONE);
        let real = [stats.refills, stats.refilled_pages, stats.drains, stats.drained_pages];
        assert_eq!(real, sums, "refills, refilled, drains, drained");
        assert_eq!((stats.direct_allocs, stats.overflows), (0, 0));
    }
}

fn run(policy: Policy, slice: u64, pages: u64, steps: u32) {
    let mut shape = Shape::uniform(1, pages, 2);
    shape.cache_slice_bytes = slice;
    shape.scoped(policy, 0, |pool| {
        let plain = (0..2).map(|cpu| Plain::new(pool, CpuId(cpu))).collect();
        let mut pair = Pair { pool, plain, held: Vec::new(), random: 0x9e37_79b9, fast_ops: 0 };
        for step in 0..steps {
            pair.step();
            if step % 2000 == 0 {
                pool.validate().unwrap();
            }
        }
        pool.validate().unwrap();
        assert!(
            pool.tables().grouping() || pair.fast_ops > u64::from(steps) / 2,
            "{}",
            pair.fast_ops
        );
        let stats = pool.zone_stats(ZONE);
        assert!(stats.refills > 100 && stats.drains > 100, "{stats:?}");
    });
}

/// 6.12 with mobility grouping, and a cache that holds several chunks.
#[test]
fn pcps_decide_as_the_plain_machine_does_with_linux_lists() {
    let on = Policy { mobility_grouping: Grouping::On, ..Policy::LINUX_6_12 };
    run(on, 0, 1 << 18, 8000);
    run(Policy { mobility_grouping: Grouping::On, ..Policy::LINUX_6_18 }, 8 << 20, 1 << 18, 8000);
}

/// Every order, and fast paths that skip decisions and leave the state to be put together later.
#[test]
fn pcps_decide_as_the_plain_machine_does_on_fast_paths() {
    run(LISTS_ALONE, 0, 1 << 18, 15_000);
    run(LISTS_ALONE, 8 << 20, 1 << 17, 8000);
    let single = PcpPolicy { scale_max: 0, ..Policy::LINUX_6_12.pcp };
    run(Policy { pcp: single, ..LISTS_ALONE }, 0, 1 << 17, 8000);
}

/// Each step of the tuning, on lists sized as they were at its time: the word, whose arithmetic is
/// that of level 9, and the fast operations on it must keep the state of each.
#[test]
fn pcps_decide_as_the_plain_machine_does_at_every_step_of_the_tuning() {
    for (name, tuning) in Tuning::ALL {
        let size = match *tuning {
            #[cfg(feature = "history")]
            Tuning::Fixed => SizeRule::SixBatches,
            step if step.moves_high() => SizeRule::MinMaxBounds,
            _ => SizeRule::LowWatermarkSplit,
        };
        std::println!("tuning {name}");
        let all = LISTS_ALONE.pcp;
        let orders = if *name == "fixed" { 1 } else { all.orders };
        let pcp = PcpPolicy { tuning: *tuning, size, orders, ..all };
        let drain = DrainPolicy { bulk: Chunk::Whole, all: Chunk::Whole, ..pcp.drain };
        run(Policy { pcp, ..LISTS_ALONE }, 0, 1 << 17, 4000);
        run(Policy { pcp: PcpPolicy { drain, ..pcp }, ..LISTS_ALONE }, 8 << 20, 1 << 17, 4000);
    }
}

/// LB E.8 up to 5.17, and the lists of each era.
#[test]
fn pcps_decide_as_the_plain_machine_does_with_older_drains_and_lists() {
    let growing = DrainPolicy {
        order: DrainOrder::named("growing").unwrap_or_default(),
        bulk: Chunk::Whole,
        all: Chunk::Whole,
        decay: Chunk::Whole,
        ..Policy::LINUX_6_12.pcp.drain
    };
    let shared = HugeLists::ALL.iter().filter(|(_, lists)| *lists != HugeLists::ByMovable);
    for &(_, huge_lists) in shared {
        let pcp = PcpPolicy {
            huge_lists,
            tuning: Tuning::Level0,
            size: SizeRule::LowWatermarkSplit,
            drain: growing,
            ..Policy::LINUX_6_12.pcp
        };
        let on = Policy { pcp, mobility_grouping: Grouping::On, ..Policy::LINUX_6_12 };
        run(on, 0, 1 << 18, 8000);
    }
    let pcp = PcpPolicy { drain: growing, ..Policy::LINUX_6_12.pcp };
    run(Policy { pcp, ..LISTS_ALONE }, 0, 1 << 17, 8000);
}

/// LB E.10, level 0: a free of order 1 to 3 empties the lists while frees before it doubled what
/// goes back, whatever the free before it was. Fast operations only look for two in a row.
#[test]
fn at_level_0_a_fast_free_does_not_pass_by_a_forced_drain() {
    let pcp =
        PcpPolicy { tuning: Tuning::Level0, size: SizeRule::LowWatermarkSplit, ..LISTS_ALONE.pcp };
    let shape = Shape::uniform(1, 1 << 17, 2);
    shape.scoped(Policy { pcp, ..LISTS_ALONE }, 0, |pool| {
        let (cpu, two) = (CpuId(0), Order::new(2).unwrap());
        let blocks: Vec<Pfn> =
            (0..40_000).map(|_| pool.alloc(Request::new(Order::ZERO)).unwrap()).collect();
        blocks.into_iter().for_each(|pfn| pool.free(pfn, Order::ZERO).unwrap());
        let grown = peek(pool, cpu, |closed| closed.state().free_count);
        assert!(grown >= 4, "a free_factor of {grown}");
        let block = pool.alloc(Request::new(two)).unwrap();
        let fast = word_path::alloc(pool, cpu, two).expect("the list is active and has blocks");
        let state = peek(pool, cpu, |closed| closed.state());
        assert!(state.free_count > 0 && !state.prev_free_high_order);
        for pfn in [block, fast] {
            let before = pool.zone_stats(ZONE).drained_pages;
            let count = u64::from(pool.pcp(ZONE, cpu).count());
            assert!(!word_path::free(pool, ZONE, cpu, (pfn, two)), "it has to decide");
            pool.free(pfn, two).unwrap();
            assert_eq!(pool.zone_stats(ZONE).drained_pages, before + count + 4);
        }
    });
}

/// The word has 16 bits for `free_count`, and the limit of a large batch is more than that.
#[test]
fn the_largest_batch_of_a_policy_does_not_make_free_count_leave_its_bits() {
    let mut policy = Policy::LINUX_6_18;
    policy.set("pcp.batch_cap", "1048576").unwrap();
    policy.set("pcp.scale_max", "6").unwrap();
    for gates in [true, false] {
        let shape: &'static Shape = Box::leak(Box::new(Shape::uniform(1, 3 << 20, 1)));
        let script = Script { gates: Some(gates), ..Script::default() };
        let pool = shape.boot_on(policy, script);
        let pcp = pool.pcp(ZONE, CpuId(0));
        let params = pcp.params(&pool.tables.fixed);
        assert!(params.bulk_max() > 65_000, "{}", params.bulk_max());
        for (order, blocks) in [(9, 150), (0, 40_000)] {
            let order = Order::new(order).unwrap();
            let take = |_| pool.alloc(Request::new(order)).unwrap();
            let blocks: Vec<Pfn> = (0..blocks).map(take).collect();
            for block in blocks {
                pool.free(block, order).unwrap();
                let word = PcpWord(pcp.word.load(Relaxed));
                assert!(word.free_count() < 31_744 + 512, "{word:?}");
            }
            let word = PcpWord(pcp.word.load(Relaxed));
            assert!(word.free_count() >= 31_744, "{word:?}");
        }
        pool.validate().unwrap();
    }
}
