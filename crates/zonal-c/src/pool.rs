//! Pools made, destroyed, or given up with what is in them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use zonal::{PAGE_SIZE, Pool};

use crate::callbacks::check_outside;
use crate::error::{Failure, border, zonal_error::ZONAL_E_BUSY, zonal_error::ZONAL_E_HANDLE};
use crate::handle::{self, Kind, Resting};
use crate::options::{builder, zonal_options};

/// A pool of pages, shared by all threads of the process.
pub struct zonal_pool {
    _private: (),
}

/// What a handle of a pool has.
pub(crate) struct Held {
    pub(crate) pool: Pool,
    /// Consumers that are registered.
    pub(crate) consumers: AtomicUsize,
}

impl Kind for Held {
    type Opaque = zonal_pool;
    const LIVE: u32 = 0x706f_6f6c;
    const NAME: &'static str = "pool";
    fn resting() -> &'static Resting<Held> {
        static RESTING: Resting<Held> = Resting::new();
        &RESTING
    }
}

/// How long a destruction waits for pages that the pool's own threads have in their hands.
const OWN_THREADS: Duration = Duration::from_millis(100);

/// The pool behind a handle.
///
/// # Safety
/// 1. C-1.
pub(crate) unsafe fn pool<'a>(at: *const zonal_pool) -> Result<&'a Pool, Failure> {
    // SAFETY: (1) C-1.
    Ok(&unsafe { handle::get::<Held>(at) }?.pool)
}

/// Makes a pool. Null, with the reason in zonal_last_error, if the options cannot be or the
/// operating system refuses. What it did not grant, such as huge pages, is in
/// zonal_text(ZONAL_TEXT_NOTICES).
///
/// # Safety
/// C-2, C-4, C-5, C-6.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_pool_create(options: *const zonal_options) -> *mut zonal_pool {
    border(|| {
        // SAFETY: (1) the caller's contract.
        let builder = unsafe { builder(options) }?;
        let pool = builder.build()?;
        Ok(handle::create(Held { pool, consumers: AtomicUsize::new(0) }))
    })
}

/// Ends a pool whose pages are all free, and returns its memory. ZONAL_E_BUSY, with nothing
/// changed, while blocks are handed out or consumers are registered; ZONAL_E_INSIDE from inside a
/// callback.
///
/// # Safety
/// C-1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_pool_destroy(pool: *mut zonal_pool) -> i32 {
    border(|| {
        // SAFETY: (1) C-1.
        let held = unsafe { handle::get::<Held>(pool) }?;
        check_consumers(held, "zonal_pool_destroy")?;
        if let Some(text) = handed_out(&held.pool) {
            return Err(Failure::new(ZONAL_E_BUSY, text));
        }
        // SAFETY: (1) C-1.
        unsafe { end(pool) }
    })
}

/// Ends a pool with all blocks that are handed out: their memory is unmapped. ZONAL_E_BUSY while
/// consumers are registered; ZONAL_E_INSIDE from inside a callback.
///
/// # Safety
/// C-1; C-3 for all blocks of the pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_pool_discard(pool: *mut zonal_pool) -> i32 {
    border(|| {
        // SAFETY: (1) C-1.
        let held = unsafe { handle::get::<Held>(pool) }?;
        check_consumers(held, "zonal_pool_discard")?;
        // SAFETY: (1) C-1.
        unsafe { end(pool) }
    })
}

/// # Safety
/// 1. C-1.
unsafe fn end(pool: *mut zonal_pool) -> Result<i32, Failure> {
    // SAFETY: (1) C-1: no other call uses it.
    let held = unsafe { handle::retire::<Held>(pool) };
    let gone = || Failure::new(ZONAL_E_HANDLE, "another thread destroyed the pool meanwhile");
    drop(held.ok_or_else(gone)?);
    Ok(0)
}

fn check_consumers(held: &Held, call: &str) -> Result<(), Failure> {
    check_outside(call)?;
    // Acquire: pairs with the Release of `zonal_consumer_remove`.
    match held.consumers.load(Ordering::Acquire) {
        0 => Ok(()),
        consumers => {
            let registered = match consumers {
                1 => "a consumer is registered; remove it".to_owned(),
                _ => format!("{consumers} consumers are registered; remove them"),
            };
            let text = format!("{call}: {registered} by zonal_consumer_remove first");
            Err(Failure::new(ZONAL_E_BUSY, text))
        }
    }
}

/// What is handed out, as a sentence; `None` if nothing is.
fn handed_out(pool: &Pool) -> Option<String> {
    let start = Instant::now();
    // The budget has taken what is above it.
    while pool.free_page_count() as usize * PAGE_SIZE != pool.budget() {
        if start.elapsed() > OWN_THREADS {
            let held = pool.held();
            let bytes = held.users + held.consumers;
            let block = pool.view().blocks().next();
            return block.filter(|_| bytes > 0).map(|(start, order)| {
                let pages = bytes / PAGE_SIZE as u64;
                let are = if pages == 1 { "page is" } else { "pages are" };
                format!(
                    "{pages} {are} handed out, the first in the block of order {} at {start:p}; \
                     free them, or call zonal_pool_discard if nobody uses them",
                    order.get()
                )
            });
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}
