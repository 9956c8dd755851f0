//! Two threads on the first CPU, switched by the timer wherever they are.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};

use crate::{arch, image};

/// The stack of the thread that does not run.
static OTHER: AtomicUsize = AtomicUsize::new(0);
static ON: AtomicBool = AtomicBool::new(false);
pub static SWITCHES: AtomicU64 = AtomicU64::new(0);

/// Lets a second thread run on the first CPU, beside the caller, until it calls `end`.
pub fn start(stack_top: usize, entry: extern "C" fn() -> !) {
    OTHER.store(arch::new_stack(stack_top, entry), SeqCst);
    ON.store(true, SeqCst);
}

/// The second thread has ended: the first goes on alone.
pub fn end() -> ! {
    arch::mask();
    ON.store(false, SeqCst);
    swap();
    unreachable!("nobody switches to a thread that has ended")
}

/// Whether the second thread runs still.
pub fn is_running() -> bool {
    ON.load(SeqCst)
}

/// At the end of a handler, masked.
pub fn switch() {
    if arch::this_cpu() == 0 && ON.load(SeqCst) {
        SWITCHES.fetch_add(1, SeqCst);
        swap();
    }
}

fn swap() {
    let new = OTHER.load(SeqCst);
    // SAFETY: (1) `new` is the stack of the thread that does not run, left by `switch_stacks` or
    // made by `new_stack`; (2) masked, so nobody else switches on this CPU.
    unsafe { image::switch_stacks(OTHER.as_ptr(), new) }
}
