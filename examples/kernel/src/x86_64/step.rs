//! An interrupt at a chosen instruction: the processor traps behind each one, and the handler of
//! the trap counts.

use core::arch::asm;
use core::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use crate::{inject, kernel};

/// The bit of the flags that traps behind each instruction.
const TRAP: u64 = 1 << 8;
/// The bit of the flags that lets interrupts in.
const OPEN: u64 = 1 << 9;

/// Instructions up to the one in front of which the interrupt comes.
static LEFT: AtomicU64 = AtomicU64::new(0);
/// The chosen instruction was reached.
static REACHED: AtomicBool = AtomicBool::new(false);

/// What an interrupt at a chosen instruction came to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stepped {
    /// It came, and was handled.
    Handled,
    /// Interrupts are masked there: it cannot come.
    Masked,
    /// There are fewer instructions.
    Behind,
}

/// What a trap leaves on the stack: nine registers, and what the processor pushed.
#[repr(C)]
pub struct TrapFrame {
    registers: [u64; 9],
    at: u64,
    code: u64,
    flags: u64,
}

/// Runs `body`, and `inject::handle` in front of its instruction number `n`, as an interrupt that
/// comes there would run it. On the first CPU, while no other interrupt comes.
pub fn interrupted_at(n: u64, body: impl FnOnce()) -> Stepped {
    REACHED.store(false, SeqCst);
    LEFT.store(n + 1, SeqCst);
    let handled = kernel::STEPPED.load(SeqCst);
    // SAFETY: (1) the trap's entry is in the table of interrupts, and puts back all that it uses.
    unsafe { asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
    body();
    // SAFETY: (1) as above.
    unsafe { asm!("pushfq", "and qword ptr [rsp], -0x101", "popfq") };
    match (REACHED.load(SeqCst), kernel::STEPPED.load(SeqCst) > handled) {
        (_, true) => Stepped::Handled,
        (true, false) => Stepped::Masked,
        _ => Stepped::Behind,
    }
}

#[unsafe(no_mangle)]
extern "C" fn on_step(frame: &mut TrapFrame) {
    // Relaxed: one CPU.
    let left = LEFT.load(Relaxed);
    LEFT.store(left.saturating_sub(1), Relaxed);
    if left != 1 {
        return;
    }
    // The rest runs without traps.
    frame.flags &= !TRAP;
    REACHED.store(true, Relaxed);
    if frame.flags & OPEN != 0 {
        frame.at = kernel::return_address(frame.at as usize) as u64;
        kernel::count(&kernel::STEPPED);
        inject::handle();
    }
}
