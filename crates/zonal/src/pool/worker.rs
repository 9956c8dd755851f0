//! The refresh thread: once per interval (`upkeep`) it is the shepherd and the workers of all CPUs,
//! as the policy has them, which fold counters, decay per-CPU lists and drain pages of other nodes
//! (LB F.4); with a trim rate it returns free memory to the system. The interval is
//! `vm.stat_interval`.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use zonal_core::platform::Platform;

use super::thread::PoolThread;
use super::upkeep::Upkeep;
use super::{Pool, Shared};

/// A running refresh thread, or one that the parent of this process has.
#[derive(Debug)]
pub(super) struct Worker {
    stop: Arc<Stop>,
    thread: PoolThread,
}

/// The thread holds the lock but while it waits.
type Stop = (Mutex<bool>, Condvar);

impl Worker {
    /// Starts the thread, with this interval until `vm.stat_interval` is written.
    pub(super) fn start(
        shared: &Arc<Shared>,
        interval: Duration,
        trim_rate: usize,
    ) -> std::io::Result<Worker> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let signal = Arc::clone(&stop);
        shared.allocator.set_stat_interval(interval);
        let body = move |shared: &Shared| run(shared, &signal, trim_rate);
        let thread = PoolThread::spawn("zonal-refresh".into(), shared, body)?;
        Ok(Worker { stop, thread })
    }

    /// What keeps the thread from working while it is locked; `None` in a process that does not
    /// have the thread, where it may be locked for ever.
    pub(super) fn lock(&self) -> Option<Arc<Stop>> {
        self.thread.is_here().then(|| Arc::clone(&self.stop))
    }

    /// Stops the thread and waits for its end. In a forked child there is nothing to wait for.
    pub(super) fn end(self) {
        if self.thread.is_here() {
            let (stop, wake) = &*self.stop;
            *locked(stop) = true;
            wake.notify_all();
        }
        self.thread.end();
    }
}

/// Keeps the thread from working until the result is dropped.
pub(super) fn pause(stop: &Stop) -> MutexGuard<'_, bool> {
    locked(&stop.0)
}

fn locked(stop: &Mutex<bool>) -> MutexGuard<'_, bool> {
    stop.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// Stops the refresh thread, if one runs, and starts one: to change its interval and rate, in a
    /// pool that was built without one, and in a forked child.
    ///
    /// # Errors
    /// The operating system could not start a thread: none runs then. `InvalidInput`, with nothing
    /// changed, for an interval of zero.
    pub fn restart_worker(&self, interval: Duration, trim_rate: usize) -> std::io::Result<()> {
        if interval.is_zero() {
            let expected = "the refresh interval must be above zero";
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, expected));
        }
        // Not locked while a thread ends: a fork takes this lock.
        let old = self.shared.worker().take();
        old.into_iter().for_each(Worker::end);
        let new = Worker::start(&self.shared, interval, trim_rate)?;
        let beaten = self.shared.worker().replace(new);
        beaten.into_iter().for_each(Worker::end);
        Ok(())
    }
}

fn run(shared: &Shared, (stop, wake): &Stop, trim_rate: usize) {
    let allocator = &shared.allocator;
    let mut upkeep = Upkeep::new(shared, allocator.platform().now_ns());
    let mut stopped = locked(stop);
    while !*stopped {
        let interval = allocator.stat_interval();
        let waited = wake.wait_timeout(stopped, interval);
        stopped = waited.unwrap_or_else(PoisonError::into_inner).0;
        if *stopped {
            return;
        }
        let trim_bytes = trim_rate as f64 * interval.as_secs_f64();
        upkeep.interval(shared, allocator.platform().now_ns(), trim_bytes as usize);
        // A full disk, or a directory that is gone: it is tried again in the next interval.
        let _ = shared.show();
    }
}
