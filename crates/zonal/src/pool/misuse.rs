//! Frees that are refused where no caller can be told: in the drop of [`Pages`](super::Pages).
//! Only unsafe code gets there: a block taken over twice, or by another pool
//! ([`Pages::from_raw`](super::Pages::from_raw)).

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use zonal_core::types::Order;

use super::{Builder, Pool};
use crate::error::FreeError;
use crate::reclaim::Inside;

/// A block that was dropped and could not be freed. It stays as it was.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Misuse {
    /// First byte of the block.
    pub start: NonNull<u8>,
    /// Its order.
    pub order: Order,
    /// Why it could not be freed.
    pub error: FreeError,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Misuse { start, order, error } = self;
        write!(
            f,
            "pages at {start:p} ({order:?}) were dropped and could not be freed: {error}. Look for \
             `Pages::from_raw` of a block that has another owner, or that is another pool's"
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

/// What a pool knows of misuse.
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
    /// What to do when pages are dropped that cannot be freed. Default: [`OnMisuse::Log`].
    pub fn on_misuse(mut self, action: OnMisuse) -> Builder {
        self.misuse = action;
        self
    }
}

impl Pool {
    /// Blocks that were dropped and could not be freed.
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
            // SAFETY: not kept, which is what is tested: nobody uses the memory, the second drop is
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
        // What the pool gave out is free again, and the other's page is still handed out.
        assert_eq!(pool.free_page_count() as usize * 4096, pool.bytes());
        assert_eq!(other.free_page_count() as usize * 4096, other.bytes() - 4096);
        pool.validate().unwrap();
        // Logged, not silent and not a panic, where nothing else was asked for.
        // SAFETY: not kept, as above.
        drop(unsafe { Pages::from_raw(&other, start, order) });
        assert_eq!(other.misuses(), 1);
    }
}
