//! The refresh thread: once per interval (`upkeep`) it is the shepherd and the workers of all CPUs,
//! as the policy has them, which fold counters, let per-CPU lists decay and send pages of other
//! nodes home (LB F.4); and it gives free memory back if asked to. The interval is
//! `vm.stat_interval`.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use zonal_core::platform::Platform;

use super::Shared;
use super::upkeep::Upkeep;

/// A running refresh thread. Dropping it stops and joins it, but for a forked child, where the
/// thread does not exist: it cannot be joined there, and may be said to hold its lock for ever.
#[derive(Debug)]
pub(super) struct Worker {
    /// The thread holds the lock but while it waits.
    stop: Arc<(Mutex<bool>, Condvar)>,
    process: u32,
    thread: Option<JoinHandle<()>>,
}

/// The pool's shared part, for the thread.
struct SharedRef(*const Shared);
// SAFETY: (1) `Shared` is shared between threads by reference already; (2) the pool joins the
// thread before it drops `Shared` (POOL-2).
unsafe impl Send for SharedRef {}

impl Worker {
    /// Starts the thread, with this interval until `vm.stat_interval` is written. `shared` must
    /// outlive the returned value (POOL-2).
    pub(super) fn start(
        shared: &Shared,
        interval: Duration,
        trim_rate: usize,
    ) -> std::io::Result<Worker> {
        shared.allocator.set_stat_interval(interval);
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let signal = Arc::clone(&stop);
        let shared = SharedRef(shared);
        let thread = std::thread::Builder::new().name("zonal-refresh".into()).spawn(move || {
            let shared = shared;
            // SAFETY: (1) alive until the thread is joined (POOL-2).
            let shared = unsafe { &*shared.0 };
            run(shared, &signal, trim_rate);
        })?;
        Ok(Worker { stop, process: std::process::id(), thread: Some(thread) })
    }

    /// Whether the thread exists in this process: a forked child has only the thread that forked.
    fn is_here(&self) -> bool {
        self.process == std::process::id()
    }

    /// Keeps the thread from working until the result is dropped.
    pub(super) fn pause(&self) -> Option<MutexGuard<'_, bool>> {
        self.is_here().then(|| self.stop.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Forgets a thread that does not exist in this process.
    pub(super) fn forget(mut self) {
        // Not dropped: that would tell libc to detach it.
        std::mem::forget(self.thread.take());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if !self.is_here() {
            std::mem::forget(thread);
            return;
        }
        let (stop, wake) = &*self.stop;
        *stop.lock().unwrap_or_else(PoisonError::into_inner) = true;
        wake.notify_all();
        // A panic of the thread was reported when it happened.
        let _ = thread.join();
    }
}

fn run(shared: &Shared, (stop, wake): &(Mutex<bool>, Condvar), trim_rate: usize) {
    let allocator = &shared.allocator;
    let mut upkeep = Upkeep::new(shared, allocator.platform().now_ns());
    let mut stopped = stop.lock().unwrap_or_else(PoisonError::into_inner);
    while !*stopped {
        let interval = allocator.stat_interval();
        let waited = wake.wait_timeout(stopped, interval);
        stopped = waited.unwrap_or_else(PoisonError::into_inner).0;
        if *stopped {
            return;
        }
        let trim_bytes = trim_rate as f64 * interval.as_secs_f64();
        upkeep.interval(shared, allocator.platform().now_ns(), trim_bytes as usize);
    }
}
