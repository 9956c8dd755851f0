//! Frees that are refused where no caller can be told: in the drop of [`Pages`](super::Pages), and
//! of a block that the budget withheld. Only unsafe code gets there: a block taken over twice, or
//! by another pool ([`Pages::from_raw`](super::Pages::from_raw)), or freed by somebody who never
//! had it ([`Pool::free_pages`]).

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use zonal_core::types::Order;

use super::{Builder, Pool};
use crate::error::FreeError;
use crate::reclaim::Inside;

/// Who tried to free a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FreedBy {
    /// The drop of [`Pages`](super::Pages), [`OwnedPages`](super::OwnedPages) or
    /// [`PageRange`](super::PageRange), whose order is that of the next larger block.
    Drop,
    /// The budget, which had withheld the block.
    Budget,
}

/// A block that could not be freed where no caller can be told. It stays as it was.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Misuse {
    /// First byte of the block.
    pub start: NonNull<u8>,
    /// Its order.
    pub order: Order,
    /// Why it could not be freed.
    pub error: FreeError,
    /// Who tried.
    pub by: FreedBy,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Misuse { start, order, error, by } = self;
        let (what, look_for) = match by {
            FreedBy::Drop => (
                "were dropped",
                "`Pages::from_raw` of a block that has another owner, or that is another pool's",
            ),
            FreedBy::Budget => (
                "were withheld by the budget",
                "`free_pages` or `free_bulk` of a block that the pool did not hand out",
            ),
        };
        write!(
            f,
            "pages at {start:p} ({order:?}) {what} and could not be freed: {error}. Look for \
             {look_for}"
        )
    }
}

type Hook = Arc<dyn Fn(&Misuse) + Send + Sync>;

/// What a pool does about misuse: [`Builder::on_misuse`]. It is counted in any case.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum OnMisuse {
    /// Says so on stderr: the first time, and whenever the count has doubled.
    #[default]
    Log,
    /// Says so on stderr and aborts the process.
    Abort,
    /// Calls this.
    Call(Hook),
}

impl fmt::Debug for OnMisuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OnMisuse::Log => "Log",
            OnMisuse::Abort => "Abort",
            OnMisuse::Call(_) => "Call",
        })
    }
}

/// A pool's record of misuse.
#[derive(Debug, Default)]
pub(super) struct Misuses {
    pub(super) action: OnMisuse,
    count: AtomicU64,
}

impl Misuses {
    pub(super) fn new(action: OnMisuse) -> Misuses {
        Misuses { action, count: AtomicU64::new(0) }
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    #[cold]
    pub(super) fn tell(&self, misuse: &Misuse) {
        let count = self.count.fetch_add(1, Relaxed) + 1;
        match &self.action {
            OnMisuse::Log if count.is_power_of_two() => {
                eprintln!("zonal: {misuse} ({count} so far)")
            }
            OnMisuse::Log => {}
            OnMisuse::Abort => {
                eprintln!("zonal: {misuse}");
                std::process::abort();
            }
            OnMisuse::Call(hook) => {
                let _inside = Inside::other();
                hook(misuse);
            }
        }
    }
}

impl Builder {
    /// What to do when pages cannot be freed and no caller can be told. Default:
    /// [`OnMisuse::Log`].
    pub fn on_misuse(mut self, action: OnMisuse) -> Builder {
        self.misuse = action;
        self
    }
}

impl Pool {
    /// Blocks that could not be freed where no caller can be told.
    pub fn misuses(&self) -> u64 {
        self.shared.misuses.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Pages;

    #[test]
    fn a_drop_that_cannot_free_is_counted_and_told() {
        let told: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&told);
        let hook: Hook = Arc::new(move |misuse| log.lock().unwrap().push(misuse.to_string()));
        let builder = Pool::builder().size(8 << 20).on_misuse(OnMisuse::Call(hook));
        let pool = builder.refresh_every(None).build().unwrap();
        let other = Pool::builder().size(8 << 20).refresh_every(None).build().unwrap();
        let (start, order) = pool.alloc(Order::ZERO).unwrap().into_raw();
        for _ in 0..2 {
            // SAFETY: violated, for the test: the memory is not used, and the second drop is
            // refused.
            drop(unsafe { Pages::from_raw(&pool, start, order) });
        }
        let (foreign, order) = other.alloc(Order::ZERO).unwrap().into_raw();
        // SAFETY: not kept, as above: the block is another pool's.
        drop(unsafe { Pages::from_raw(&pool, foreign, order) });
        assert_eq!((pool.misuses(), pool.held().misuses), (2, 2));
        let told = told.lock().unwrap();
        assert_eq!(told.len(), 2);
        assert!(told.iter().all(|text| text.contains("could not be freed")), "{told:?}");
        assert!(pool.held().to_string().contains("could not be freed"));
        let metrics = pool.state().openmetrics();
        assert!(metrics.contains("\nzonal_misuses_total 2\n"), "{metrics}");
        // What the pool gave out is free again, and the other's page is still handed out.
        assert_eq!(pool.free_page_count() as usize * 4096, pool.bytes());
        assert_eq!(other.free_page_count() as usize * 4096, other.bytes() - 4096);
        pool.validate().unwrap();
        // Logged, not silent and not a panic, where nothing else was asked for.
        // SAFETY: not kept, as above.
        drop(unsafe { Pages::from_raw(&other, start, order) });
        assert_eq!(other.misuses(), 1);
    }

    #[test]
    fn a_withheld_block_that_somebody_freed_is_counted_and_told() {
        let told: Arc<std::sync::Mutex<Vec<(FreedBy, String, bool)>>> = Arc::default();
        let pools: Arc<std::sync::Mutex<Option<Arc<Pool>>>> = Arc::default();
        let (log, pool_of) = (Arc::clone(&told), Arc::clone(&pools));
        let hook: Hook = Arc::new(move |misuse| {
            let pool = pool_of.lock().unwrap().clone().unwrap();
            // The hook runs inside the change of the budget.
            let changed = pool.set_budget(8 << 20).is_ok();
            log.lock().unwrap().push((misuse.by, misuse.to_string(), changed));
        });
        let builder = Pool::builder().size(8 << 20).on_misuse(OnMisuse::Call(hook));
        let pool = Arc::new(builder.budget(4 << 20).build().unwrap());
        *pools.lock().unwrap() = Some(Arc::clone(&pool));
        assert_eq!(pool.view().blocks().count(), 0, "they are nobody's");
        for (pfn, order) in pool.shared.allocator().allocated().collect::<Vec<_>>() {
            let block = pool.shared.address(pfn);
            // SAFETY: not kept, which is what is tested: nobody uses the memory, but it was never
            // handed out.
            unsafe { pool.free_pages(block, order) }.unwrap();
        }
        pool.set_budget(8 << 20).unwrap();
        assert!(pool.misuses() > 0);
        let told = std::mem::take(&mut *told.lock().unwrap());
        assert_eq!(told.len() as u64, pool.misuses());
        for (by, text, changed) in told {
            assert_eq!((by, changed), (FreedBy::Budget, false), "{text}");
            assert!(text.contains("budget") && text.contains("free_pages"), "{text}");
        }
        assert_eq!(pool.free_page_count() as usize * 4096, pool.bytes());
        pool.validate().unwrap();
        pools.lock().unwrap().take();
    }
}
