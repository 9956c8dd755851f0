//! Real threads on one allocator. Every page has a word that says who has it: a page handed out
//! twice is seen at once, at every order. And since 5 % of the blocks are free at all times, no
//! request may be refused.
//!
//! The platform has no restartable sections, so every access closes a pcp's gate; threads change
//! their CPU at random, so two of them often meet at one pcp.

mod support;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use support::{HUNG, Plain, Script, Shape, Stage, meet, on_cpu, stagger};
use zonal_core::alloc::{Allocator, Request, Sysctl};
use zonal_core::gfp::Gfp;
use zonal_core::policy::Policy;
use zonal_core::types::{CpuId, Order, Pfn, ZoneId};

type Pool = Allocator<'static, Script>;

/// Who has each page: 0 nobody, else a thread's number plus one.
struct Owners(Vec<AtomicU32>);

impl Owners {
    fn take(&self, pfn: Pfn, order: Order, who: u32) {
        assert_eq!(pfn.0 % order.pages(), 0);
        for page in &self.0[pfn.0 as usize..][..order.pages() as usize] {
            let had = page.swap(who, SeqCst);
            assert_eq!(had, 0, "{pfn:?} {order:?}: thread {who} got what thread {had} has");
        }
    }

    fn give(&self, pfn: Pfn, order: Order, who: u32) {
        for page in &self.0[pfn.0 as usize..][..order.pages() as usize] {
            assert_eq!(page.swap(0, SeqCst), who, "{pfn:?} {order:?} was taken from its owner");
        }
    }
}

/// What the threads share.
struct Arena {
    pool: Pool,
    owners: Owners,
    orders: Vec<Order>,
    /// Base pages handed out or asked for.
    out: AtomicI64,
    out_max: i64,
    stop: AtomicBool,
    allocs: AtomicU64,
    /// Blocks on their way to a thread that frees what it did not allocate.
    passed: Mutex<Vec<(Pfn, Order)>>,
}

/// Stands for whoever frees a block that was passed on.
const PASSED: u32 = u32::MAX;

struct Worker<'a> {
    arena: &'a Arena,
    who: u32,
    random: u64,
    held: Vec<(Pfn, Order)>,
}

impl Worker<'_> {
    fn random(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % below as u64) as usize
    }

    fn run(mut self) {
        let arena = self.arena;
        while !arena.stop.load(SeqCst) {
            if self.random(64) == 0 {
                let cpu = self.random(arena.pool.cpus());
                on_cpu(cpu as u32);
            }
            // Waves: up to the limit, then down again.
            let grow = self.random >> 20 & 3 != 0;
            match self.random(16) {
                0 => self.bulk(),
                1 => self.free_bulk(),
                2 => self.pass_on(),
                _ if grow => self.alloc(),
                _ => self.free(),
            }
        }
        while !self.held.is_empty() {
            self.free();
        }
    }

    /// Books pages before they are asked for, so that what is booked and not had is free.
    fn book(&self, pages: i64) -> bool {
        let arena = self.arena;
        if arena.out.fetch_add(pages, SeqCst) + pages <= arena.out_max {
            return true;
        }
        arena.out.fetch_sub(pages, SeqCst);
        false
    }

    fn alloc(&mut self) {
        let order = self.arena.orders[self.random(self.arena.orders.len())];
        if !self.book(order.pages() as i64) {
            return self.free();
        }
        match self.arena.pool.alloc(Request::new(order)) {
            Ok(pfn) => self.got(pfn, order),
            // Blocks of many orders may leave no whole one; of one order they cannot.
            Err(error) if self.arena.orders.len() == 1 => panic!("{error}"),
            Err(_) => drop(self.arena.out.fetch_sub(order.pages() as i64, SeqCst)),
        }
    }

    fn got(&mut self, pfn: Pfn, order: Order) {
        self.arena.owners.take(pfn, order, self.who);
        self.arena.allocs.fetch_add(1, SeqCst);
        self.held.push((pfn, order));
    }

    fn bulk(&mut self) {
        let mut pages = [Pfn(0); 40];
        let n = self.random(pages.len()) + 1;
        if self.arena.orders[0] != Order::ZERO || !self.book(n as i64) {
            return self.free();
        }
        let got = self.arena.pool.alloc_bulk(Request::new(Order::ZERO), &mut pages[..n]);
        let got = got.unwrap_or_else(|error| panic!("{error}"));
        pages[..got].iter().for_each(|pfn| self.got(*pfn, Order::ZERO));
        self.arena.out.fetch_sub((n - got) as i64, SeqCst);
    }

    fn free(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let nth = self.random(self.held.len());
        let (pfn, order) = self.held.swap_remove(nth);
        self.arena.owners.give(pfn, order, self.who);
        self.arena.pool.free(pfn, order).unwrap();
        self.arena.out.fetch_sub(order.pages() as i64, SeqCst);
    }

    fn free_bulk(&mut self) {
        let Some((_, order)) = self.held.last().copied() else { return };
        let n = 1 + self.random(30);
        let from = self.held.len().saturating_sub(n);
        let from = from + self.held[from..].iter().rposition(|b| b.1 != order).map_or(0, |i| i + 1);
        let blocks: Vec<Pfn> = self.held.drain(from..).map(|(pfn, _)| pfn).collect();
        blocks.iter().for_each(|pfn| self.arena.owners.give(*pfn, order, self.who));
        self.arena.pool.free_bulk(&blocks, order).unwrap();
        self.arena.out.fetch_sub((blocks.len() as i64) << order.get(), SeqCst);
    }

    /// Gives a block to another thread and frees one that another gave.
    fn pass_on(&mut self) {
        if let Some((pfn, order)) = self.held.pop() {
            self.arena.owners.give(pfn, order, self.who);
            self.arena.owners.take(pfn, order, PASSED);
            self.arena.passed.lock().unwrap().push((pfn, order));
        }
        let mut passed = self.arena.passed.lock().unwrap();
        let taken = (passed.len() > 4).then(|| passed.swap_remove(0));
        drop(passed);
        taken.into_iter().for_each(|block| self.arena.free_passed(block));
    }
}

impl Arena {
    fn free_passed(&self, (pfn, order): (Pfn, Order)) {
        self.owners.give(pfn, order, PASSED);
        self.pool.free(pfn, order).unwrap();
        self.out.fetch_sub(order.pages() as i64, SeqCst);
    }

    /// What the platform's own threads do meanwhile.
    fn disturb(&self) {
        let mut round = 0u32;
        while !self.stop.load(SeqCst) {
            round += 1;
            let cpu = CpuId(round % self.pool.cpus() as u32);
            match round % 4 {
                0 => drop(self.pool.drain_all()),
                1 => drop(self.pool.set(Sysctl::HighFraction, i64::from(round / 4 % 2 * 8))),
                2 => drop(self.pool.drain(ZoneId(0), cpu)),
                _ => drop(self.pool.refresh(cpu)),
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Allocations without which a run proves nothing.
const ALLOCS_MIN: u64 = 100;

/// Runs `threads` threads on `pages` pages; at least `free_percent` of them are free all the time.
fn stress(orders: &[u32], pages: u64, threads: u32, free_percent: u64, time: Duration) -> u64 {
    let pool = boot(Shape::uniform(2, pages / 2, 2));
    let orders: Vec<Order> = orders.iter().map(|order| Order::new(*order).unwrap()).collect();
    let block = orders.iter().map(|order| order.pages()).max().unwrap();
    let arena = Arena {
        pool,
        owners: Owners((0..pages).map(|_| AtomicU32::new(0)).collect()),
        orders,
        out: AtomicI64::new(0),
        out_max: (pages - (pages * free_percent / 100).max(block)) as i64,
        stop: AtomicBool::new(false),
        allocs: AtomicU64::new(0),
        passed: Mutex::new(Vec::new()),
    };
    thread::scope(|scope| {
        for who in 1..=threads {
            let random = 0x1234_5678_9abc_def1 ^ u64::from(who) << 40;
            let worker = Worker { arena: &arena, who, random, held: Vec::new() };
            scope.spawn(move || {
                // A thread that panics ends the others too.
                let _stop = StopOnPanic(&worker.arena.stop);
                on_cpu(who % 4);
                worker.run();
            });
        }
        scope.spawn(|| arena.disturb());
        let start = Instant::now();
        // On a busy machine the workers may not have run at all by then.
        let is_young = || arena.allocs.load(SeqCst) <= ALLOCS_MIN && start.elapsed() < HUNG;
        while (start.elapsed() < time || is_young()) && !arena.stop.load(SeqCst) {
            thread::sleep(Duration::from_millis(5));
        }
        arena.stop.store(true, SeqCst);
    });
    let passed = std::mem::take(&mut *arena.passed.lock().unwrap());
    passed.into_iter().for_each(|block| arena.free_passed(block));
    finish(&arena.pool, pages);
    assert_eq!(arena.out.load(SeqCst), 0);
    arena.allocs.load(SeqCst)
}

struct StopOnPanic<'a>(&'a AtomicBool);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, SeqCst);
        }
    }
}

/// Everything is back, and nothing was counted that should not happen.
fn finish(pool: &Pool, pages: u64) {
    pool.validate().unwrap();
    pool.drain_all();
    pool.validate().unwrap();
    let stats: Vec<_> = pool.zones().iter().map(|zone| pool.zone_stats(zone.id())).collect();
    assert_eq!(stats.iter().map(|s| s.free_pages).sum::<u64>(), pages);
    assert_eq!(stats.iter().map(|s| s.double_frees).sum::<u64>(), 0);
    let sum = |of: fn(&zonal_core::alloc::ZoneStats) -> u64| stats.iter().map(of).sum::<u64>();
    assert_eq!(sum(|s| s.allocated_pages), sum(|s| s.freed_pages));
    // LB F.6, the sum law.
    assert_eq!(sum(|s| s.numa.hit + s.numa.miss), sum(|s| s.allocs));
    assert_eq!(sum(|s| s.numa.local + s.numa.other), sum(|s| s.allocs));
    assert_eq!(sum(|s| s.numa.miss), sum(|s| s.numa.foreign));
}

/// A pool for threads, whose zones keep no reserve.
fn boot(shape: Shape) -> Pool {
    let mut policy = Policy::ZONAL;
    policy.watermark.min_free = zonal_core::policy::MinFreeRule::Kbytes(0);
    let shape: &'static Shape = Box::leak(Box::new(shape));
    shape.boot_on(policy, Stage::for_threads(Plain))
}

#[test]
fn at_every_order_no_block_has_two_owners_and_none_is_refused_while_5_percent_are_free() {
    for order in 0..=10 {
        for threads in [2, 4] {
            // 64 blocks of the largest order, 8192 pages at least.
            let pages = (64 << order).max(8192);
            let time = Duration::from_millis(60);
            let allocs = stress(&[order], pages, threads, 5, time);
            assert!(allocs > ALLOCS_MIN, "order {order}: {allocs} allocations");
        }
    }
}

/// So few pages that pcps, refills and drains are all of one or two blocks, and that whoever
/// refills has most of what is free.
#[test]
fn a_handful_of_pages_is_neither_handed_out_twice_nor_lost() {
    for (order, pages) in [(0, 64), (1, 256), (2, 64), (3, 512), (0, 600)] {
        stress(&[order], pages, 3, 5, Duration::from_millis(60));
    }
}

#[test]
fn blocks_of_all_orders_in_one_pool_do_not_overlap() {
    stress(&[0, 1, 2, 3, 0, 4, 5, 0, 6, 7, 8, 9, 10], 1 << 15, 4, 30, Duration::from_millis(300));
}

/// Two threads free the same block at the same moment: one of them is told that it did.
#[test]
fn of_two_threads_that_free_one_block_at_once_one_is_refused() {
    let pool = boot(Shape::uniform(1, 1 << 12, 2));
    let (turn, page, freed) = (AtomicU32::new(0), AtomicU64::new(0), AtomicU32::new(0));
    let rounds = 10_000;
    thread::scope(|scope| {
        for cpu in 0..2 {
            let (pool, turn, page, freed) = (&pool, &turn, &page, &freed);
            scope.spawn(move || {
                on_cpu(cpu);
                for round in 0..rounds {
                    // Two arrivals begin a round, two more end it.
                    meet(turn, round * 4 + 2, || {
                        if cpu == 0 {
                            let pfn = pool.alloc(Request::new(Order::ZERO).gfp(Gfp::KERNEL));
                            page.store(pfn.unwrap().0, SeqCst);
                            freed.store(0, SeqCst);
                        }
                    });
                    stagger(round, cpu);
                    let ok = pool.free(Pfn(page.load(SeqCst)), Order::ZERO).is_ok();
                    freed.fetch_add(u32::from(ok), SeqCst);
                    meet(turn, round * 4 + 4, || {});
                    if cpu == 0 {
                        assert_eq!(freed.load(SeqCst), 1);
                    }
                    if cpu == 0 && round % 16 == 0 {
                        pool.drain_all();
                    }
                }
            });
        }
    });
    finish(&pool, 1 << 12);
}
