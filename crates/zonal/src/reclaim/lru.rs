//! What a cache of pages does for the pool that it gives pages back to.

use zonal_core::platform::reclaimer::{Holdings, Pass, Shrunk, Unit};

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
///             // SAFETY: (1) the page was ours, and is not in use.
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
