//! What a program does when a pool has nothing left (LB D.5 `may_oom`).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use super::OutOfMemory;
use crate::pool::Builder;
use crate::turn::Turn;

/// How long a request waits for another one's last resort.
const BUSY_WAIT: Duration = Duration::from_millis(1);

/// What came of the last resort.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Memory was freed: the request is tried again.
    Retry,
    /// Nothing could be done: the request is refused.
    Refuse,
}

type Callback = Arc<dyn Fn(&OutOfMemory) -> Answer + Send + Sync>;

/// The callback, called by one request at a time.
#[derive(Clone)]
pub(crate) struct LastResort {
    callback: Callback,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    turn: Turn,
    panicked: AtomicBool,
}

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
        self.last_resort = Some(LastResort { callback: Arc::new(callback), state: Arc::default() });
        self
    }
}

impl LastResort {
    /// Whether the request is worth another try.
    pub(super) fn call(&self, request: &OutOfMemory) -> bool {
        if self.state.panicked.load(Relaxed) {
            return false;
        }
        let Some(_one) = self.state.turn.try_take() else {
            std::thread::sleep(BUSY_WAIT);
            return true;
        };
        let panics = Panics(&self.state);
        let answer = (self.callback)(request);
        std::mem::forget(panics);
        answer == Answer::Retry
    }

    /// In a forked child: another thread's call is nobody's.
    pub(super) fn forked(&self) {
        self.state.turn.forked();
    }
}

/// Dropped where the callback panics: it is not called again.
struct Panics<'a>(&'a State);

impl Drop for Panics<'_> {
    fn drop(&mut self) {
        self.0.panicked.store(true, Relaxed);
    }
}

impl fmt::Debug for LastResort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LastResort")
    }
}
