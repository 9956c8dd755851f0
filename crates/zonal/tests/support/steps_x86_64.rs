//! Instruction by instruction through the restartable sequences. Up to the first one that the
//! program comes to it runs freely: a breakpoint stands in place of the first byte of each. From
//! there on the trap flag raises SIGTRAP behind every instruction of the program.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::sequences;

const TRAP_FLAG: i64 = 0x100;
/// `int3`.
const BREAKPOINT: u8 = 0xcc;

/// The bytes that breakpoints stand in place of.
static STARTS: OnceLock<Vec<(usize, u8)>> = OnceLock::new();
/// Whether they do.
static PLACED: AtomicBool = AtomicBool::new(false);

/// Raises SIGTRAP. Its handler must be installed.
pub fn trap() {
    STARTS.get_or_init(read_starts);
    // SAFETY: (1) the handler goes on behind the instruction.
    unsafe { std::arch::asm!("int3") };
}

/// Where the program goes on.
pub fn at(context: &libc::ucontext_t) -> u64 {
    context.uc_mcontext.gregs[libc::REG_RIP as usize] as u64
}

/// Begins to trace. For the handler of [`trap`].
pub fn begin(_: &mut libc::ucontext_t) {
    place(|_| BREAKPOINT);
    PLACED.store(true, Relaxed);
}

/// Does the next instruction, which is to be this one.
pub fn go_on(context: &mut libc::ucontext_t, next: u64) {
    lift();
    context.uc_mcontext.gregs[libc::REG_RIP as usize] = next as i64;
    context.uc_mcontext.gregs[libc::REG_EFL as usize] |= TRAP_FLAG;
}

/// Traces no longer.
pub fn end(context: &mut libc::ucontext_t) {
    lift();
    context.uc_mcontext.gregs[libc::REG_EFL as usize] &= !TRAP_FLAG;
}

/// Puts the program's own bytes back.
fn lift() {
    if PLACED.swap(false, Relaxed) {
        place(|own| own);
    }
}

/// Writes the first byte of every sequence, out of the program's own.
fn place(byte: impl Fn(u8) -> u8) {
    for (at, own) in STARTS.get().expect("the first trap reads them") {
        // SAFETY: (1) an instruction of a sequence, whose page was made writable; nobody but this
        // thread, which is in a signal handler, runs sequences meanwhile, and its return from there
        // lets the processor forget what it has fetched.
        unsafe { (*at as *mut u8).write_volatile(byte(*own)) };
    }
}

/// Reads the first byte of every sequence, and makes its page writable.
fn read_starts() -> Vec<(usize, u8)> {
    let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    // SAFETY: sysconf (1) only reads.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let start = |sequence: &sequences::Descriptor| {
        let at = sequence.start as usize;
        // SAFETY: (1) a page of this program's instructions, which stays readable and executable.
        let rc = unsafe { libc::mprotect((at & !(page - 1)) as *mut _, page, all) };
        assert_eq!(rc, 0, "mprotect: {}", std::io::Error::last_os_error());
        // SAFETY: (1) an instruction of this program.
        (at, unsafe { (at as *const u8).read_volatile() })
    };
    sequences::all().iter().map(start).collect()
}
