//! Functions of the caller that a pool calls, with what the caller gave for them.
//!
//! Their type is `C-unwind`: an exception that leaves one is stopped by the pool, which ends the
//! process, instead of undefined behaviour.

use std::cell::Cell;
use std::ffi::c_void;

use crate::error::{Failure, zonal_error::ZONAL_E_INSIDE};

/// The caller's pointer for a callback.
#[derive(Clone, Copy)]
pub(crate) struct Data(*mut c_void);

// SAFETY: (1) C-5: the caller lets any thread use it.
unsafe impl Send for Data {}
// SAFETY: (1) as for `Send`.
unsafe impl Sync for Data {}

impl Data {
    pub(crate) fn new(data: *mut c_void) -> Data {
        Data(data)
    }
    pub(crate) fn get(self) -> *mut c_void {
        self.0
    }
}

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// This thread is in a callback, until dropped.
pub(crate) struct Called(());

impl Called {
    pub(crate) fn enter() -> Called {
        let _ = DEPTH.try_with(|depth| depth.set(depth.get() + 1));
        Called(())
    }
}

impl Drop for Called {
    fn drop(&mut self) {
        let _ = DEPTH.try_with(|depth| depth.set(depth.get() - 1));
    }
}

/// Refuses a call that would wait for the callback that it comes from.
pub(crate) fn check_outside(call: &str) -> Result<(), Failure> {
    match DEPTH.try_with(Cell::get) {
        Ok(1..) => Err(Failure::new(
            ZONAL_E_INSIDE,
            format!(
                "{call} was called from inside a callback, which may still need what it ends; \
                 call it when the callback has returned. One that was left by longjmp never \
                 returns: this thread is inside it until it ends"
            ),
        )),
        _ => Ok(()),
    }
}
