//! The refresh thread's work in each interval.
//!
//! ```text
//!  shepherd, workers: counters fold, lists decay, depots drain what was not needed (LB F.4)
//!        │ memory is to go back to the operating system
//!        ▼
//!  pcps that were idle for an interval are drained ── free pages merge ── trim, 2 MiB and up
//! ```
//! A list decays by an eighth in an interval. Its pages lie anywhere, and each keeps its 2 MiB from
//! being whole; so a pool that is to give memory back does not wait for lists that are idle anyway.

use zonal_core::types::{CpuId, ZoneId};
use zonal_core::vmstat::worker::StatWorker;

use super::Shared;

/// State from one interval to the next.
#[derive(Debug)]
pub(super) struct Upkeep {
    workers: Vec<StatWorker>,
    /// Pages that went through each pcp, by zone and CPU.
    seen: Vec<u64>,
}

impl Upkeep {
    pub(super) fn new(shared: &Shared, now_ns: u64) -> Upkeep {
        let allocator = &shared.allocator;
        let mut workers = vec![StatWorker::default(); allocator.cpus()];
        allocator.shepherd(&mut workers, now_ns);
        Upkeep { workers, seen: vec![0; allocator.zones().len() * allocator.cpus()] }
    }

    /// An interval has passed. Returns up to `trim_bytes` to the operating system.
    pub(super) fn interval(&mut self, shared: &Shared, now_ns: u64, trim_bytes: usize) {
        let allocator = &shared.allocator;
        // One moment for all: a worker that comes back is due when this thread does.
        allocator.shepherd(&mut self.workers, now_ns);
        for (cpu, worker) in self.workers.iter_mut().enumerate() {
            allocator.run_worker(CpuId(cpu as u32), worker, now_ns);
        }
        if trim_bytes > 0 {
            self.empty_idle(shared);
            // What cannot be given back now is tried again next time.
            let _ = shared.trim(trim_bytes);
        }
    }

    /// Empties the pcps through which nothing went since the last call.
    fn empty_idle(&mut self, shared: &Shared) {
        let allocator = &shared.allocator;
        let cpus = allocator.cpus();
        for (at, seen) in self.seen.iter_mut().enumerate() {
            let (zone, cpu) = (ZoneId((at / cpus) as u16), CpuId((at % cpus) as u32));
            let through = |pages: u64, totals: zonal_core::pcp::state::PcpTotals| {
                pages.wrapping_add(totals.popped_pages).wrapping_add(totals.pushed_pages)
            };
            let now = allocator.tables().pcps(zone, cpu).map(|pcp| pcp.totals()).fold(0, through);
            if std::mem::replace(seen, now) == now {
                allocator.drain(zone, cpu);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use super::*;
    use crate::{Gfp, HeldReport, Order, Pool};

    const MIB: u64 = 1 << 20;
    const SECOND_NS: u64 = 1_000_000_000;

    /// All of the pool, each page touched.
    fn burst(pool: &Pool) -> Vec<NonNull<u8>> {
        let pages: Vec<NonNull<u8>> =
            std::iter::from_fn(|| pool.alloc_pages(Order::ZERO, Gfp::KERNEL).ok()).collect();
        // SAFETY: (1) the page is ours.
        pages.iter().for_each(|page| unsafe { page.as_ptr().write(1) });
        pages
    }

    /// Frees in an order that leaves pages of every 2 MiB on the lists.
    fn end(pool: &Pool, mut pages: Vec<NonNull<u8>>) {
        pages.sort_by_key(|page| (page.as_ptr() as usize >> 12) % 509);
        for page in pages {
            // SAFETY: (1) the page is ours.
            unsafe { pool.free_pages(page, Order::ZERO) }.unwrap();
        }
    }

    fn resident(held: &HeldReport) -> u64 {
        held.free_resident + held.in_use()
    }

    /// The clock is the test's: seconds pass as it says.
    #[test]
    fn after_a_burst_memory_goes_back_at_the_rate_that_was_asked_for() {
        if cfg!(zonal_portable) {
            return eprintln!("SKIPPED: no page is given back here");
        }
        let pool = Pool::builder().size(64 << 20).refresh_every(None).build().unwrap();
        let mut upkeep = Upkeep::new(&pool.shared, 0);
        let mut now_ns = 0;
        let mut second = |rate: u64| {
            now_ns += SECOND_NS;
            upkeep.interval(&pool.shared, now_ns, rate as usize);
            pool.held()
        };
        second(16 * MIB);
        let pages = burst(&pool);
        let full = resident(&second(16 * MIB));
        assert!(full > 60 * MIB, "{full}");
        end(&pool, pages);
        assert!(pool.held().lists > 0);
        // Without a rate nothing goes.
        assert!(resident(&second(0)) > 60 * MIB);
        // Pages went through the lists since the last look at them.
        second(16 * MIB);
        let mut before = resident(&pool.held());
        for seconds in 1..=5 {
            let held = second(16 * MIB);
            assert_eq!(held.lists, 0, "idle for an interval");
            let left = resident(&held);
            // The last block may exceed the rest of the rate.
            let most = 16 * MIB + Order::MAX.bytes() as u64;
            assert!(left <= before && before - left < most, "second {seconds}: {held}");
            before = left;
        }
        assert_eq!(before, 0, "five seconds for 64 MiB at 16 MiB a second\n{}", pool.held());
        pool.validate().unwrap();
    }

    #[test]
    fn lists_in_use_are_left_alone() {
        let pool = Pool::builder().size(64 << 20).refresh_every(None).build().unwrap();
        let mut upkeep = Upkeep::new(&pool.shared, 0);
        end(&pool, burst(&pool));
        for second in 1..4 {
            upkeep.interval(&pool.shared, second * SECOND_NS, usize::MAX);
            // On whichever CPU: each pcp of this zone is used.
            let used: Vec<_> = (0..pool.view().cpus()).map(|_| pool.alloc(Order::ZERO)).collect();
            drop(used);
            assert!(pool.held().lists > 0);
        }
    }

    #[test]
    fn what_a_budget_withholds_stays_withheld() {
        if cfg!(zonal_portable) {
            return eprintln!("SKIPPED: no page is given back here");
        }
        let builder = Pool::builder().size(64 << 20).budget(24 << 20).refresh_every(None);
        let pool = builder.build().unwrap();
        let mut upkeep = Upkeep::new(&pool.shared, 0);
        for second in 1..=8 {
            if second == 1 {
                end(&pool, burst(&pool));
            }
            upkeep.interval(&pool.shared, second * SECOND_NS, usize::MAX);
            let held = pool.held();
            assert_eq!(held.withheld, 40 * MIB);
            assert!(held.in_use() <= 24 * MIB);
        }
        assert_eq!(resident(&pool.held()), 0, "{}", pool.held());
        // And all of the budget is available again.
        let pages = burst(&pool);
        assert!(pool.held().in_use() <= 24 * MIB && pages.len() as u64 * 4096 > 22 * MIB);
        end(&pool, pages);
        pool.validate().unwrap();
    }
}
