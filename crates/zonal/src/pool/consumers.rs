//! Consumers that come and go, and what is done when they have nothing left.

use std::sync::Arc;

use super::{Builder, Pool};
use crate::reclaim::{
    Answer, ConsumerReport, LastResort, OutOfMemory, PageLru, Registration, Shrinker,
};

impl Builder {
    /// What to do when a request that would not give up finds nothing, after everything was
    /// reclaimed and drained: `callback` frees memory by any means, such as ending a job. It is
    /// called by the thread that allocates, by one at a time, and at most 16 times for one request;
    /// it may allocate, and gets what is left without a look at the watermarks.
    ///
    /// Not called for requests that must not wait, that would rather fail (`NORETRY`,
    /// `RETRY_MAYFAIL`, `THISNODE`, without `FS`), or of orders above 3 (LB D.5).
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use zonal::reclaim::Answer;
    /// use zonal::{Order, Pool};
    ///
    /// let calls = Arc::new(Mutex::new(0));
    /// let counted = Arc::clone(&calls);
    /// let pool = Pool::builder()
    ///     .size(16 << 20)
    ///     .on_out_of_memory(move |_| {
    ///         *counted.lock().unwrap() += 1;
    ///         Answer::Refuse
    ///     })
    ///     .build()?;
    /// let mut pages = Vec::new();
    /// while let Ok(page) = pool.alloc(Order::ZERO) {
    ///     pages.push(page);
    /// }
    /// assert_eq!(*calls.lock().unwrap(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_out_of_memory(
        mut self,
        callback: impl Fn(&OutOfMemory) -> Answer + Send + Sync + 'static,
    ) -> Builder {
        self.last_resort = Some(LastResort::new(callback));
        self
    }
}

impl Pool {
    /// Registers a cache of pages, to be asked for pages when the pool runs low.
    pub fn register_lru(&self, lru: Arc<dyn PageLru>) -> Registration {
        let registration = self.shared.consumers().add_lru(lru);
        self.expect_pressure();
        registration
    }

    /// Registers a cache of objects, to be asked for some when the pool runs low.
    pub fn register_shrinker(&self, shrinker: Shrinker) -> Registration {
        let registration = self.shared.consumers().add_shrinker(shrinker);
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
        self.shared.consumers().report()
    }
}
