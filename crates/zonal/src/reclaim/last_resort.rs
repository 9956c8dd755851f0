//! What a program does when a pool has nothing left (LB D.5 `may_oom`).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use zonal_core::platform::reclaimer::OutOfMemory;

use crate::turn::Turn;

/// How long a request waits for another one's last resort.
const BUSY_WAIT: Duration = Duration::from_millis(1);

/// Result of the last resort.
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

impl LastResort {
    pub(crate) fn new(
        callback: impl Fn(&OutOfMemory) -> Answer + Send + Sync + 'static,
    ) -> LastResort {
        LastResort { callback: Arc::new(callback), state: Arc::default() }
    }

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

    /// In a forked child: ends another thread's call.
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
