//! Consumers that give pages of a pool back when it runs low.
//!
//! ```text
//!  background reclaimer ─┐                       ┌─ PageLru: lists of pages, cold ones first
//!  direct reclaim ───────┼─► Pass ─► Registry ───┤
//!  node reclaim ─────────┘                       └─ Shrinker: a cache of objects
//! ```
//! Who asks, for which node and how hard is the core's choice (LB G, H); how many pages or objects
//! that makes is computed here for each consumer; which ones they are is the consumer's own.
//!
//! # Rules for a consumer
//! 1. It is called by any thread that allocates, and by the pool's own. It takes no lock that its
//!    own code holds while it allocates, or only tries to, and gives up where it cannot have it.
//! 2. It may free and allocate pages of the pool. What it allocates comes from the reserves, and
//!    never reclaims.
//! 3. It may call any safe function of any pool, come and go, make pools and drop them, and fork.
//!    None of these waits for another call of a consumer: what would have to is refused with an
//!    error that says so ([`Pool::set_budget`](crate::Pool::set_budget)), does without
//!    ([`Pool::held`](crate::Pool::held) counts pages of consumers as users') or ends later
//!    ([`Registration`]). A request with `NOFAIL` that finds nothing is refused there.
//! 4. What it says is not believed where that could do harm. If it panics it is not called again,
//!    and [`Pool::reclaim_report`](crate::Pool::reclaim_report) says so.
//!
//! The same holds for the last resort ([`Builder::on_out_of_memory`](crate::Builder)).

mod bell;
mod calls;
mod entry;
mod inside;
mod isolation;
mod last_resort;
mod parking;
mod registry;
mod shrinker;

pub use last_resort::Answer;
pub use registry::{ConsumerReport, Registration};
pub use shrinker::{ScanRequest, Scanned, Shrinker};
pub use zonal_core::platform::reclaimer::{By, Holdings, OutOfMemory, Pass, Shrunk, Unit};

pub(crate) use bell::{Bells, Frozen as FrozenBells};
pub(crate) use inside::{Inside, is_inside};
pub(crate) use last_resort::LastResort;
pub(crate) use registry::{HeldList, Pause, Place, Registry};

/// A cache of pages with an active and an inactive list for each node (LB H.1).
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use zonal::reclaim::{Holdings, PageLru, Pass, Shrunk, Unit};
/// use zonal::{Order, Pool};
///
/// /// Keeps pages until the pool wants them back, the oldest first.
/// struct Hoard {
///     pool: Arc<Pool>,
///     pages: Mutex<std::collections::VecDeque<usize>>,
/// }
///
/// impl PageLru for Hoard {
///     fn name(&self) -> &str {
///         "hoard"
///     }
///     fn holdings(&self, _unit: Unit) -> Holdings {
///         let pages = self.pages.lock().unwrap().len() as u64;
///         Holdings { file: pages, inactive_file: pages, ..Holdings::default() }
///     }
///     fn shrink_inactive(&self, pages: u64, _pass: &Pass) -> Shrunk {
///         let mut held = self.pages.lock().unwrap();
///         let count = pages.min(held.len() as u64);
///         for page in held.drain(..count as usize) {
///             let start = std::ptr::NonNull::new(page as *mut u8).unwrap();
///             // SAFETY: (1) the page was ours, and nobody uses it.
///             unsafe { self.pool.free_pages(start, Order::ZERO) }.unwrap();
///         }
///         Shrunk { scanned: count, reclaimed: count, slab: 0 }
///     }
///     fn shrink_active(&self, _pages: u64, _pass: &Pass) -> u64 {
///         0
///     }
/// }
///
/// let pool = Arc::new(Pool::builder().size(16 << 20).build()?);
/// let hoard = Arc::new(Hoard { pool: Arc::clone(&pool), pages: Mutex::default() });
/// let registered = pool.register_lru(hoard.clone());
/// for _ in 0..10_000 {
///     // Far more than the pool has: the oldest pages make room.
///     let (page, _) = pool.alloc(Order::ZERO)?.into_raw();
///     hoard.pages.lock().unwrap().push_back(page.as_ptr() as usize);
/// }
/// drop(registered); // no call is under way, and none will come
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait PageLru: Send + Sync {
    /// What reports call it.
    fn name(&self) -> &str;

    /// What it holds of the unit now, in base pages. Called often: answer from counters.
    fn holdings(&self, unit: Unit) -> Holdings;

    /// Takes up to `pages` pages from the cold end of the unit's inactive list. Those used
    /// meanwhile go to the active list or round once more; dirty ones are written only if
    /// `pass.may_write`, and only by the background reclaimer (`pass.by`), LB H.6; mapped ones stay
    /// unless `pass.may_unmap`. The rest is freed. Never asked for more than 32 at a time.
    fn shrink_inactive(&self, pages: u64, pass: &Pass) -> Shrunk;

    /// Moves up to `pages` pages from the cold end of the unit's active list to its inactive list,
    /// because that has become too short (LB H.1). Returns the pages looked at.
    fn shrink_active(&self, pages: u64, pass: &Pass) -> u64;
}

impl crate::Pool {
    /// Registers a cache of pages, to be asked for pages when the pool runs low.
    pub fn register_lru(&self, lru: std::sync::Arc<dyn PageLru>) -> Registration {
        let registration = self.consumers().add_lru(lru);
        self.expect_pressure();
        registration
    }

    /// Registers a cache of objects, to be asked for some when the pool runs low.
    pub fn register_shrinker(&self, shrinker: Shrinker) -> Registration {
        let registration = self.consumers().add_shrinker(shrinker);
        self.expect_pressure();
        registration
    }

    /// Starts the background reclaimers with the first consumer.
    fn expect_pressure(&self) {
        if let Err(error) = self.start_background() {
            eprintln!(
                "zonal: no thread could be started to reclaim in the background ({error}); \
                 requests reclaim for themselves"
            );
        }
    }

    /// What each registered consumer did so far, and which of them are not called any more.
    pub fn reclaim_report(&self) -> Vec<ConsumerReport> {
        self.consumers().report()
    }
}
