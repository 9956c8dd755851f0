//! Which process this is: a forked child is told from its parent. And which thread.
//!
//! A forked child has only the thread that forked, under the addresses of its parent, so state of
//! the parent must be told from the child's own. The number of the process does not tell them
//! apart: in a PID namespace of its own a child may have its parent's.
//!
//! Thread-local values here have no destructor, so they can be read at any time in a thread's life,
//! in the destructors of other thread-local values and in `atexit` too.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Forks that led to this process, since the handlers of `pool/fork.rs` were registered.
static FORKS: AtomicU64 = AtomicU64::new(0);
/// Numbers of threads handed out.
static THREADS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

/// A process, for state that its forked children must not use: they are other processes, also where
/// they have their parent's number. Forks count from the first [`Pool`](crate::Pool) on.
///
/// ```
/// # let _pool = zonal::Pool::builder().size(4 << 20).build()?;
/// let mine = zonal::process::Process::this();
/// assert!(mine.is_this() && !mine.was_forked());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process {
    forks: u64,
    /// For children made past the handlers, by a bare system call.
    pid: u32,
}

impl Process {
    /// The running one.
    pub fn this() -> Process {
        Process { forks: FORKS.load(Relaxed), pid: std::process::id() }
    }

    /// Whether it is the running one.
    pub fn is_this(self) -> bool {
        self == Process::this()
    }

    /// Whether the running one is a child of it, as far as a load tells: not of a child that was
    /// made past the handlers of `fork`, by a bare system call.
    #[inline]
    pub fn was_forked(self) -> bool {
        // Relaxed: a child has one thread at first.
        self.forks != FORKS.load(Relaxed)
    }
}

/// This process is a child that was just forked.
pub(crate) fn forked() {
    // Relaxed: the child has one thread.
    FORKS.fetch_add(1, Relaxed);
}

/// The running thread's number: above 0, and never another thread's. A forked child's thread keeps
/// the number of the thread that forked.
pub(crate) fn thread() -> u64 {
    THREAD.with(|thread| {
        if thread.get() == 0 {
            thread.set(THREADS.fetch_add(1, Relaxed) + 1);
        }
        thread.get()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_numbers_of_their_own() {
        let mine = thread();
        assert_eq!(thread(), mine);
        let other = std::thread::spawn(thread).join().unwrap();
        assert!(mine != 0 && other != 0 && other != mine);
    }
}
