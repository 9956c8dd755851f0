//! Whether this is a forked child of the process that made a ring (URING-4).

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Forks between the first process and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);
static HANDLER: Once = Once::new();

extern "C" fn in_child() {
    // Relaxed: a child has one thread.
    FORKS.fetch_add(1, Relaxed);
}

/// Which process this is, as of now: its number among its ancestors, and its id, for children made
/// past the handler, by a bare system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Generation(u32, u32);

/// The running process.
pub(crate) fn generation() -> Generation {
    HANDLER.call_once(|| {
        // SAFETY: (1) a plain function that lives as long as the program.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    Generation(FORKS.load(Relaxed), std::process::id())
}
