//! An rseq area of our own, for a libc that registers none: musl.
//!
//! A thread is registered when it first reads its CPU's number here and finds none, and the
//! registration is taken back before the thread ends: musl unmaps the stack of a detached thread,
//! and with it this area, while the thread still runs.
//!
//! ```text
//!   Fresh ── join ──> Joined ── destructors of the thread ──> Ended
//!     '───── the kernel refuses ──> Refused
//! ```
//! A forked child keeps the registration of the thread that forked, and has a copy of its area. A
//! thread in `Ended` still may use a pool, in destructors that run later: it then reads -1 for its
//! CPU, which every sequence refuses.
//!
//! # Invariants
//! - **OWN-1** The area is a thread-local value without a destructor, so it lies in the thread's
//!   TLS block, from before the thread's first instruction to after its last.
//! - **OWN-2** An area is registered only while its thread has a destructor to run that takes the
//!   registration back.
//! - **OWN-3** [`distance`] answers only where the area lies in the TLS block of the main program.
//!   libc places that one at the same distance from the thread pointer in every thread; it may
//!   place that of a shared library anywhere.

use super::Errno;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// What precedes every abort handler; the kernel kills the process when it is not there.
#[cfg(target_arch = "x86_64")]
pub const RSEQ_SIGNATURE: u32 = 0x5305_3053;
/// What precedes every abort handler; the kernel kills the process when it is not there.
#[cfg(target_arch = "aarch64")]
pub const RSEQ_SIGNATURE: u32 = 0xd428_bc00;
/// There are no sequences for this processor.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub const RSEQ_SIGNATURE: u32 = 0;

/// `struct rseq`, as Linux 6.3 knows it. The fields are written by the kernel and by sequences.
#[repr(C, align(32))]
struct Area {
    cpu_id_start: AtomicU32,
    cpu_id: AtomicU32,
    rseq_cs: AtomicU64,
    flags: AtomicU32,
    node_id: AtomicU32,
    mm_cid: AtomicU32,
    end: AtomicU32,
}

/// Length that every kernel takes.
pub(super) const AREA_BYTES: u32 = size_of::<Area>() as u32;
const _: () = assert!(AREA_BYTES == 32);

/// No registration: what the kernel leaves in `cpu_id` when it takes one back.
const NOT_REGISTERED: u32 = -1_i32 as u32;
/// The flag that takes a registration back.
const UNREGISTER: c_int = 1;

#[derive(Clone, Copy)]
enum State {
    Fresh,
    Joined,
    Refused(Errno),
    Ended,
}

/// Takes the registration back when the thread ends (OWN-2).
struct AtEnd;

impl Drop for AtEnd {
    fn drop(&mut self) {
        if let State::Joined = STATE.replace(State::Ended) {
            // It fails only if somebody else took the registration back, and then nothing is left
            // to do.
            let _ = AREA.with(|area| call(area, UNREGISTER));
        }
    }
}

thread_local! {
    static AREA: Area = const {
        Area {
            cpu_id_start: AtomicU32::new(0),
            cpu_id: AtomicU32::new(NOT_REGISTERED),
            rseq_cs: AtomicU64::new(0),
            flags: AtomicU32::new(0),
            node_id: AtomicU32::new(0),
            mm_cid: AtomicU32::new(0),
            end: AtomicU32::new(0),
        }
    };
    static STATE: Cell<State> = const { Cell::new(State::Fresh) };
    static AT_END: AtEnd = const { AtEnd };
}

/// Registers the calling thread, unless it is registered.
///
/// # Errors
/// The kernel's answer: `EINVAL` where another area of this thread is registered, `ENOSYS` without
/// rseq. `ESRCH` in a thread whose destructors run.
pub(super) fn join() -> Result<(), Errno> {
    match STATE.get() {
        State::Joined => Ok(()),
        State::Refused(errno) => Err(errno),
        State::Ended => Err(Errno::new(libc::ESRCH)),
        State::Fresh => {
            // The first use of the value has its destructor run at the end (OWN-2).
            if AT_END.try_with(|_| ()).is_err() {
                STATE.set(State::Ended);
                return Err(Errno::new(libc::ESRCH));
            }
            let joined = AREA.with(|area| {
                // A sequence that found no CPU has left its descriptor here. Relaxed: the thread's
                // own, and the kernel's from the call on.
                area.rseq_cs.store(0, Relaxed);
                call(area, 0)
            });
            STATE.set(joined.map_or_else(State::Refused, |()| State::Joined));
            joined
        }
    }
}

/// The system call.
fn call(area: &Area, flags: c_int) -> Result<(), Errno> {
    // SAFETY: the kernel (1) writes the area of this thread until the registration is taken back:
    // it lives that long (OWN-1, OWN-2), and all its fields are atomic; (2) aborts only to handlers
    // behind this signature, which all sequences of this program have (FAST-3).
    let rc = unsafe {
        libc::syscall(libc::SYS_rseq, std::ptr::from_ref(area), AREA_BYTES, flags, RSEQ_SIGNATURE)
    };
    if rc == 0 { Ok(()) } else { Err(Errno::last()) }
}

/// Distance from `thread_pointer`, the calling thread's, to its area, if it is that of every thread
/// (OWN-3).
pub(super) fn distance(thread_pointer: usize) -> Option<isize> {
    let address = AREA.with(|area| std::ptr::from_ref(area) as usize);
    let mut block = Block { address, is_in: false };
    // SAFETY: (1) `look` is called with the pointer given here, which outlives the call, and with
    // descriptions that are valid meanwhile.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut block).cast()) };
    block.is_in.then(|| address.wrapping_sub(thread_pointer) as isize)
}

/// The search for an address in the main program's TLS block.
struct Block {
    address: usize,
    is_in: bool,
}

/// Looks at the first object, which is the main program, and ends the walk.
///
/// # Safety
/// 1. `info` describes a loaded object, and `block` is a [`Block`] that nothing else uses.
unsafe extern "C" fn look(
    info: *mut libc::dl_phdr_info,
    _bytes: usize,
    block: *mut c_void,
) -> c_int {
    // SAFETY: (1) this function's contract (1).
    let info = unsafe { &*info };
    // SAFETY: (1) this function's contract (1).
    let block = unsafe { &mut *block.cast::<Block>() };
    let start = info.dlpi_tls_data as usize;
    for index in 0..usize::from(info.dlpi_phnum) {
        // SAFETY: (1) an object has as many headers as it says.
        let header = unsafe { &*info.dlpi_phdr.wrapping_add(index) };
        if header.p_type == libc::PT_TLS && start != 0 {
            let end = start.wrapping_add(header.p_memsz as usize);
            block.is_in = (start..end).contains(&block.address);
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::affinity;
    use crate::sys::rseq_abi::{RseqArea, getcpu};

    fn cpu_id() -> u32 {
        AREA.with(|area| area.cpu_id.load(Relaxed))
    }

    /// Runs `body` in a thread without libc's registration, where the kernel has rseq.
    fn without_libc(body: impl FnOnce() + Send) {
        let Ok(area) = RseqArea::find() else { return eprintln!("SKIPPED: no rseq here") };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if !area.is_own() {
                    let (address, flags) = (area.address(), UNREGISTER);
                    // SAFETY: (1) takes back this thread's registration; no sequence is under way.
                    let rc = unsafe {
                        libc::syscall(libc::SYS_rseq, address, 32, flags, RSEQ_SIGNATURE)
                    };
                    assert_eq!(rc, 0, "{}", Errno::last());
                }
                body();
            });
        });
    }

    #[test]
    fn a_thread_that_joined_is_followed_from_cpu_to_cpu() {
        without_libc(|| {
            assert_eq!(cpu_id(), NOT_REGISTERED);
            assert_eq!(join(), Ok(()));
            assert_eq!(join(), Ok(()), "twice is once");
            let followed = affinity::run_on_each(|cpu| {
                assert_eq!(cpu_id(), cpu.0);
                assert_eq!(getcpu(), cpu);
            });
            assert!(followed.is_ok() || cpu_id() != NOT_REGISTERED);
        });
    }

    #[test]
    fn a_thread_that_libc_registered_is_refused_and_stays_as_it_was() {
        let Ok(area) = RseqArea::find() else { return eprintln!("SKIPPED: no rseq here") };
        if area.is_own() {
            return eprintln!("SKIPPED: this libc registers no thread");
        }
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(join(), Err(Errno::INVAL));
                assert_eq!(join(), Err(Errno::INVAL), "asked once, and remembered");
                assert_eq!(cpu_id(), NOT_REGISTERED);
                assert_eq!(area.check_thread(), Ok(()));
            });
        });
    }

    #[test]
    fn a_destructor_that_runs_later_finds_the_registration_taken_back() {
        struct Later(std::sync::mpsc::Sender<(u32, bool)>);
        impl Drop for Later {
            fn drop(&mut self) {
                let joined = join().is_ok();
                let _ = self.0.send((cpu_id(), joined));
            }
        }
        thread_local! {
            static LATER: Cell<Option<Later>> = const { Cell::new(None) };
        }
        let (tell, told) = std::sync::mpsc::channel();
        let mut runs = false;
        without_libc(|| {
            runs = true;
            // What was used first is destroyed last.
            LATER.set(Some(Later(tell)));
            assert_eq!(join(), Ok(()));
        });
        if runs {
            assert_eq!(told.recv().unwrap(), (NOT_REGISTERED, false), "OWN-2");
        }
    }

    /// Other processors have no thread pointer here to count from.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    #[test]
    fn every_thread_has_its_area_at_the_same_distance() {
        let here = RseqArea::own_distance();
        assert!(here.is_some(), "a test is a main program (OWN-3)");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert_eq!(RseqArea::own_distance(), here));
            }
        });
    }

    #[test]
    fn an_address_outside_of_the_main_programs_block_is_none_of_it() {
        let outside = 0_u8;
        let mut block = Block { address: (&raw const outside) as usize, is_in: false };
        // SAFETY: (1) as in `distance`.
        unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut block).cast()) };
        assert!(!block.is_in);
    }
}
