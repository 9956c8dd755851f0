//! Whether the running thread is inside code of the user that the pool calls (`PF_MEMALLOC`), and
//! in which call.
//!
//! Inside, no function of a pool waits for other calls: they may wait for this one. Requests do not
//! reclaim, and get the reserves instead.

use std::cell::Cell;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    static CALL: Cell<Option<Call>> = const { Cell::new(None) };
}

/// A call of a consumer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Call {
    /// Address of the registry.
    pub(super) registry: usize,
    /// The consumer; 0 for the last resort.
    pub(super) entry: u64,
}

/// This thread is inside, until dropped.
pub(crate) struct Inside {
    before: (bool, Option<Call>),
}

impl Inside {
    /// In a call of a consumer or of the last resort.
    pub(super) fn call(call: Call) -> Inside {
        Inside { before: (INSIDE.replace(true), CALL.replace(Some(call))) }
    }

    /// In other code of the user.
    pub(crate) fn other() -> Inside {
        Inside { before: (INSIDE.replace(true), CALL.get()) }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(self.before.0);
        CALL.set(self.before.1);
    }
}

/// Whether this thread is inside.
pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

/// The call that this thread is in.
pub(super) fn current() -> Option<Call> {
    CALL.get()
}
