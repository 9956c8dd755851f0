//! Instruction by instruction through the restartable sequences. A program may not set this
//! processor's own single step for itself, so breakpoints stand in place of every instruction of
//! every sequence and of the one behind its commit, but for the one that is to be done next.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::sequences;

/// `brk #1`.
const BREAKPOINT: u32 = 0xd420_0020;
const INSTRUCTION: usize = size_of::<u32>();

/// The instructions that breakpoints stand in place of.
static PROGRAM: OnceLock<Vec<(usize, u32)>> = OnceLock::new();
/// Where the one is that may be done; 0: none may.
static LIFTED: AtomicUsize = AtomicUsize::new(0);

/// Raises SIGTRAP. Its handler must be installed.
pub fn trap() {
    PROGRAM.get_or_init(read_program);
    // SAFETY: (1) the handler goes on behind the instruction.
    unsafe { std::arch::asm!("brk #0") };
}

/// Where the program goes on.
pub fn at(context: &libc::ucontext_t) -> u64 {
    context.uc_mcontext.pc
}

/// Begins to trace. For the handler of [`trap`].
pub fn begin(context: &mut libc::ucontext_t) {
    context.uc_mcontext.pc += INSTRUCTION as u64;
    program().iter().for_each(|(at, _)| replace(*at, BREAKPOINT));
    LIFTED.store(0, Relaxed);
}

/// Does the next instruction, which is to be this one.
pub fn go_on(context: &mut libc::ucontext_t, next: u64) {
    context.uc_mcontext.pc = next;
    let done = LIFTED.swap(0, Relaxed);
    if done != 0 {
        replace(done, BREAKPOINT);
    }
    if let Some((at, instruction)) = program().iter().find(|(at, _)| *at as u64 == next) {
        replace(*at, *instruction);
        LIFTED.store(*at, Relaxed);
    }
}

/// Traces no longer.
pub fn end(_: &mut libc::ucontext_t) {
    program().iter().for_each(|(at, instruction)| replace(*at, *instruction));
}

fn program() -> &'static [(usize, u32)] {
    PROGRAM.get().expect("the first trap reads it")
}

/// Reads the sequences, and makes their pages writable.
fn read_program() -> Vec<(usize, u32)> {
    let mut program = Vec::new();
    for sequence in sequences::all() {
        let start = sequence.start as usize;
        let end = start + sequence.length.load(Relaxed) as usize;
        // SAFETY: sysconf (1) only reads.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let first = start & !(page - 1);
        let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        // SAFETY: (1) pages of this program's instructions, which stay readable and executable.
        let rc = unsafe { libc::mprotect(first as *mut _, end + INSTRUCTION - first, all) };
        assert_eq!(rc, 0, "mprotect: {}", std::io::Error::last_os_error());
        program.extend((start..=end).step_by(INSTRUCTION).map(|at| {
            // SAFETY: (1) an instruction of this program.
            (at, unsafe { (at as *const u32).read_volatile() })
        }));
    }
    program
}

/// Writes one instruction, so that whoever comes there next does it.
fn replace(at: usize, instruction: u32) {
    // SAFETY: (1) an instruction of a sequence, whose page was made writable; nobody but this
    // thread, which is in a signal handler, runs sequences meanwhile.
    unsafe { (at as *mut u32).write_volatile(instruction) };
    // SAFETY: (1) cleans the line to where instructions are fetched from, and forgets what was
    // fetched before; no memory changes.
    unsafe {
        std::arch::asm!("dc cvau, {at}", "dsb ish", "ic ivau, {at}", "dsb ish", "isb",
            at = in(reg) at, options(nostack, preserves_flags));
    }
}
