//! The pool's own threads: refresh, background reclaim, growth.
//!
//! # Invariants
//! - **THREAD-1** a thread owns a reference to the pool's shared part from before it starts until
//!   it ends, so that all it reads stays valid, also when its handle is dropped (POOL-2).
//! - **THREAD-2** a reference is taken away from a thread, and its handle forgotten, only in a
//!   process that does not have the thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::thread::JoinHandle;

use super::Shared;
use crate::process::{self, Process};

/// A thread of the pool.
///
/// Dropped, it goes on by itself; [`end`](Self::end) waits for its end. Either way a forked child,
/// which does not have the thread, only drops its state.
#[derive(Debug)]
pub(super) struct PoolThread {
    process: Process,
    own: Arc<Own>,
    /// `None` once the thread was joined.
    handle: Option<JoinHandle<()>>,
}

/// State that a thread owns.
#[derive(Debug)]
struct Own {
    /// A reference of the pool's `Arc`; null once the thread has ended (THREAD-1).
    shared: AtomicPtr<Shared>,
    /// The thread's number; 0 before it runs.
    thread: AtomicU64,
}

// What `Own` passes to another thread as a pointer.
const fn is_shared_by_threads<T: Send + Sync>() {}
const _: () = is_shared_by_threads::<Shared>();

impl Own {
    /// Drops the reference, if that was not done before.
    fn let_go(&self) {
        // AcqRel: pairs with itself; the reference is dropped once.
        let shared = self.shared.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if !shared.is_null() {
            // SAFETY: (1) from `Arc::into_raw` in `spawn`; (2) taken out once.
            drop(unsafe { Arc::from_raw(shared) });
        }
    }
}

/// Dropped when the thread ends, by a panic too, or when it could not be started.
struct Ending(Arc<Own>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

impl PoolThread {
    /// Starts a thread that runs `body`.
    pub(super) fn spawn(
        name: String,
        shared: &Arc<Shared>,
        body: impl FnOnce(&Shared) + Send + 'static,
    ) -> std::io::Result<PoolThread> {
        let reference = Arc::into_raw(Arc::clone(shared)).cast_mut();
        let own = Own { shared: AtomicPtr::new(reference), thread: AtomicU64::new(0) };
        let own = Arc::new(own);
        let ending = Ending(Arc::clone(&own));
        let run = move || {
            let own = &ending.0;
            // Relaxed: a thread looks for its own number.
            own.thread.store(process::thread(), Ordering::Relaxed);
            // Relaxed: stored before this thread was made.
            let shared = own.shared.load(Ordering::Relaxed);
            // SAFETY: (1) the reference is this thread's until `ending` is dropped (THREAD-1).
            body(unsafe { &*shared });
        };
        let handle = std::thread::Builder::new().name(name).spawn(run)?;
        Ok(PoolThread { process: Process::this(), own, handle: Some(handle) })
    }

    /// Whether it is the running thread.
    fn is_this(&self) -> bool {
        // Relaxed: a thread looks for its own number.
        self.own.thread.load(Ordering::Relaxed) == process::thread()
    }

    /// Whether this process has it: a forked child has only the thread that forked.
    pub(super) fn is_here(&self) -> bool {
        self.is_this() || self.process.is_this()
    }

    /// Waits for the end of a stopped thread. The running thread goes on to its end by itself.
    pub(super) fn end(mut self) {
        if self.process.is_this()
            && !self.is_this()
            && let Some(handle) = self.handle.take()
        {
            // A panic of the thread was reported when it happened.
            let _ = handle.join();
        }
    }
}

impl Drop for PoolThread {
    fn drop(&mut self) {
        if !self.is_here() {
            // (THREAD-2)
            self.own.let_go();
            // Not dropped: that would tell libc to detach a thread that does not exist.
            std::mem::forget(self.handle.take());
        }
    }
}
