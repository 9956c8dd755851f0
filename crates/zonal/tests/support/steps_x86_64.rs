//! Instruction by instruction through the restartable sequences: with the trap flag, which raises
//! SIGTRAP behind every instruction of the program.

const TRAP_FLAG: i64 = 0x100;

/// Raises SIGTRAP. Its handler must be installed.
pub fn trap() {
    // SAFETY: (1) the handler goes on behind the instruction.
    unsafe { std::arch::asm!("int3") };
}

/// Where the program goes on.
pub fn at(context: &libc::ucontext_t) -> u64 {
    context.uc_mcontext.gregs[libc::REG_RIP as usize] as u64
}

/// Begins to trace. For the handler of [`trap`].
pub fn begin(context: &mut libc::ucontext_t) {
    context.uc_mcontext.gregs[libc::REG_EFL as usize] |= TRAP_FLAG;
}

/// Does the next instruction, which is to be this one.
pub fn go_on(context: &mut libc::ucontext_t, next: u64) {
    context.uc_mcontext.gregs[libc::REG_RIP as usize] = next as i64;
}

/// Traces no longer.
pub fn end(context: &mut libc::ucontext_t) {
    context.uc_mcontext.gregs[libc::REG_EFL as usize] &= !TRAP_FLAG;
}
