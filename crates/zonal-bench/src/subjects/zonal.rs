//! Zonal itself, as a program would use it: checks, tuning and statistics on.
//!
//! | name | what it is |
//! |--|--|
//! | `zonal` | the default pool; its stores are kept consistent by rseq |
//! | `zonal-lock` | the same pool where rseq cannot be used: a lock per store |
//! | `zonal-nostat` | the default pool with NUMA events switched off |
//! | `zonal-pages` | the default pool through [`Pages`], which borrow it |
//! | `zonal-owned` | the default pool through [`OwnedPages`], which do not |
//!
//! Blocks go through `Pool::alloc_pages` and `Pool::free_pages`, the raw calls; the refresh thread
//! runs once a second, as in any program.

use std::ptr::NonNull;

use zonal::{Gfp, Mode, Order, OwnedPages, Pages, Policy, Pool};

use crate::cell::{Bench, Cell};
use crate::subject::{PAGE, Sizing, Subject, Waiting};

/// Bytes of the pool at least: a small one for a server, so that the pcps may hold what the loops
/// need (an eighth of the pool, LB E.4) as they would there.
const POOL_BYTES_MIN: usize = 1 << 30;

/// A pool under test.
pub struct Zonal {
    name: &'static str,
    pool: Pool,
}

impl Zonal {
    /// The default pool.
    ///
    /// # Errors
    /// Why it cannot run here.
    pub fn rseq(sizing: Sizing) -> Result<Zonal, String> {
        let zonal = Zonal::make("zonal", sizing, true, Policy::ZONAL)?;
        match zonal.pool.mode() {
            Mode::Rseq => Ok(zonal),
            Mode::Lock(why) => Err(format!("rseq cannot be used: {why}")),
        }
    }

    /// The pool with a lock per pcp.
    ///
    /// # Errors
    /// Why it cannot run here.
    pub fn lock(sizing: Sizing) -> Result<Zonal, String> {
        Zonal::make("zonal-lock", sizing, false, Policy::ZONAL)
    }

    /// The default pool without NUMA events.
    ///
    /// # Errors
    /// Why it cannot run here.
    pub fn without_stats(sizing: Sizing) -> Result<Zonal, String> {
        let policy = Policy { numa_stat: false, ..Policy::ZONAL };
        Zonal::make("zonal-nostat", sizing, true, policy)
    }

    fn make(
        name: &'static str,
        sizing: Sizing,
        rseq: bool,
        policy: Policy,
    ) -> Result<Zonal, String> {
        let bytes = (sizing.pages() * PAGE).max(POOL_BYTES_MIN);
        // Faulted in: every subject's memory is, or the first to touch it would pay for it.
        let pool = Pool::builder().size(bytes).rseq(rseq).policy(policy).prefault(true).build();
        Ok(Zonal { name, pool: pool.map_err(|error| error.to_string())? })
    }

    /// The pool, for its counters.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}

#[inline]
fn order_of(order: u32) -> Order {
    Order::new(order).unwrap_or(Order::MAX)
}

// SAFETY: (1) and (2) the pool guarantees them.
unsafe impl Subject for Zonal {
    fn name(&self) -> &str {
        self.name
    }

    #[inline]
    unsafe fn alloc(&self, order: u32) -> *mut u8 {
        // A program knows its order when it is compiled; here one test stands in for that.
        match order {
            0 => self.pool.alloc_raw(Order::ZERO, Gfp::KERNEL),
            order => self.pool.alloc_raw(order_of(order), Gfp::KERNEL),
        }
    }

    #[inline]
    unsafe fn free(&self, block: *mut u8, order: u32) {
        // SAFETY: (1) this function's contract (1): a block is no null.
        let start = unsafe { NonNull::new_unchecked(block) };
        let freed = match order {
            // SAFETY: (1) this function's contract (2).
            0 => unsafe { self.pool.free_pages(start, Order::ZERO) },
            // SAFETY: (1) this function's contract (2).
            order => unsafe { self.pool.free_pages(start, order_of(order)) },
        };
        debug_assert!(freed.is_ok(), "{freed:?}");
    }

    fn has_bulk(&self) -> bool {
        true
    }

    fn supports(&self, cell: &Cell) -> Result<(), String> {
        match cell.bench {
            Bench::Bulk if cell.order > 0 => Err("its bulk calls are for single pages".into()),
            _ => Ok(()),
        }
    }

    fn waiting(&self) -> Option<Waiting> {
        let mut waiting = Waiting { lists: 0, depots: Some(0) };
        for stats in self.pool.zone_stats() {
            waiting.lists += stats.cached_pages - stats.depot_pages;
            waiting.depots = waiting.depots.map(|pages| pages + stats.depot_pages);
        }
        Some(waiting)
    }

    unsafe fn alloc_bulk(&self, order: u32, blocks: &mut [*mut u8]) -> usize {
        debug_assert_eq!(order, 0, "refused by `supports`");
        self.pool.alloc_bulk(Gfp::KERNEL, blocks).unwrap_or(0)
    }

    unsafe fn free_bulk(&self, blocks: &[*mut u8], order: u32) {
        // SAFETY: (1) this function's contract (2).
        let freed = unsafe { self.pool.free_bulk(blocks, order_of(order)) };
        debug_assert!(freed.is_ok(), "{freed:?}");
    }
}

/// The same pool through pages that free themselves.
pub struct ZonalPages<const OWNED: bool>(Zonal);

impl<const OWNED: bool> ZonalPages<OWNED> {
    /// The default pool.
    ///
    /// # Errors
    /// Why it cannot run here.
    pub fn new(sizing: Sizing) -> Result<ZonalPages<OWNED>, String> {
        let name = if OWNED { "zonal-owned" } else { "zonal-pages" };
        Ok(ZonalPages(Zonal { name, ..Zonal::rseq(sizing)? }))
    }
}

// SAFETY: (1) and (2) what the pool promises.
unsafe impl<const OWNED: bool> Subject for ZonalPages<OWNED> {
    fn name(&self) -> &str {
        self.0.name
    }

    fn waiting(&self) -> Option<Waiting> {
        self.0.waiting()
    }

    #[inline]
    unsafe fn alloc(&self, order: u32) -> *mut u8 {
        let order = if order == 0 { Order::ZERO } else { order_of(order) };
        let Ok(pages) = self.0.pool.alloc(order) else { return std::ptr::null_mut() };
        let (start, _) = if OWNED { pages.into_owned().into_raw() } else { pages.into_raw() };
        start.as_ptr()
    }

    #[inline]
    unsafe fn free(&self, block: *mut u8, order: u32) {
        let order = if order == 0 { Order::ZERO } else { order_of(order) };
        // SAFETY: (1) this function's contract (1): a block is no null.
        let start = unsafe { NonNull::new_unchecked(block) };
        if OWNED {
            // SAFETY: (1) from `alloc` of this subject, by contract (1); (2) by contract (2).
            drop(unsafe { OwnedPages::from_raw(&self.0.pool, start, order) });
        } else {
            // SAFETY: (1) as above.
            drop(unsafe { Pages::from_raw(&self.0.pool, start, order) });
        }
    }
}
