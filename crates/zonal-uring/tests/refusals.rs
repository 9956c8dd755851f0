//! Systems that refuse: sandboxes, limits and memory of the wrong kind. Each in a process of its
//! own, because neither a filter nor a lost right comes back.

mod support;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use support::{MIB, pool, ring, run_child};
use zonal::{MemoryRange, Pool};
use zonal_uring::{Options, Ring, RingError};

/// Says to the child what it is to test.
const CHILD: &str = "ZONAL_URING_CHILD";
const EXIT_SKIPPED: i32 = 77;

/// Runs this program's `child` with a value.
fn child_says_yes(value: &str) {
    match run_child("child", CHILD, value) {
        Some(EXIT_SKIPPED) => eprintln!("SKIPPED: {value}: this system does not do it"),
        code => assert_eq!(code, Some(0), "{value}"),
    }
}

#[test]
fn a_sandbox_that_refuses_rings_is_an_error_that_says_so() {
    child_says_yes("EPERM");
    child_says_yes("ENOSYS");
}

#[test]
fn a_pool_above_the_limit_of_locked_memory_is_refused_with_both_numbers() {
    child_says_yes("memlock");
}

#[test]
fn a_ring_of_no_entries_is_refused_with_what_is_expected() {
    let error = Ring::new(&pool(), &Options::new().entries(0)).unwrap_err();
    assert!(matches!(error, RingError::Entries), "{error:?}");
    assert!(error.to_string().contains("expected at least 1"), "{error}");
}

#[test]
fn child() {
    let Ok(what) = std::env::var(CHILD) else { return };
    let passed = match what.as_str() {
        "EPERM" => is_unavailable(libc::EPERM),
        "ENOSYS" => is_unavailable(libc::ENOSYS),
        _ => is_limited(),
    };
    std::process::exit(passed.map_or(EXIT_SKIPPED, |passed| i32::from(!passed)));
}

/// Whether a ring is refused as it should be, with a filter that answers `errno`.
fn is_unavailable(errno: i32) -> Option<bool> {
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    let step = |code: u32, k: u32, jf: u8| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let mut steps = [
        step(LOAD, 0, 0),
        step(EQUAL, libc::SYS_io_uring_setup as u32, 1),
        step(RETURN, libc::SECCOMP_RET_ERRNO | errno as u32, 0),
        step(RETURN, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: (1) takes numbers only; all this process does afterwards is this test.
    let rc = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(rc, 0);
    // SAFETY: (1) the program is a live value whose steps are a live array of its length.
    let rc =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &program) };
    if rc != 0 {
        return None;
    }
    let error = Ring::new(&pool(), &Options::new()).unwrap_err();
    let says_what_to_do = error.to_string().contains("seccomp");
    Some(matches!(error, RingError::Unavailable(_)) && says_what_to_do)
}

/// Whether 16 MiB are refused where 1 MiB may be locked, and taken without fixed buffers.
fn is_limited() -> Option<bool> {
    ring(&pool(), &Options::new())?;
    let limit = libc::rlimit { rlim_cur: MIB as u64, rlim_max: MIB as u64 };
    // SAFETY: (1) the limit is a live value.
    let rc = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) };
    assert_eq!(rc, 0);
    // SAFETY: (1) takes numbers only. Root may lock what it likes, so this is nobody from here on.
    let rc = unsafe { libc::setresuid(65534, 65534, 65534) };
    // SAFETY: (1) takes nothing.
    if rc != 0 && unsafe { libc::geteuid() } == 0 {
        return None;
    }
    let pool = pool();
    let limited = Ring::new(&pool, &Options::new()).unwrap_err();
    eprintln!("{limited}");
    let both = matches!(limited, RingError::MemLock { bytes, limit }
        if bytes == 16 * MIB && limit == MIB as u64);
    let without = Ring::new(&pool, &Options::new().fixed(false)).is_ok();
    Some(both && without && pool.trim(0).is_ok())
}

#[test]
fn a_pool_in_a_file_on_a_disk_is_refused_and_one_in_a_memfd_is_not() {
    let Some(_) = ring(&pool(), &Options::new()) else { return };
    // SAFETY: (1) a name of text.
    let fd = unsafe { libc::memfd_create(c"zonal".as_ptr(), 0) };
    assert!(fd >= 0);
    // SAFETY: (1) just made, and nobody else's.
    let memory: File = unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) };
    assert!(of_file(&memory).is_ok());
    let folder = std::env::current_dir().unwrap();
    let Ok(disk) = tempfile::tempfile_in(folder) else {
        eprintln!("SKIPPED: no file can be made here");
        return;
    };
    match of_file(&disk) {
        Err(RingError::Backing(_)) => {}
        Ok(_) => eprintln!("SKIPPED: the file system here is one of memory"),
        Err(error) => panic!("{error}"),
    }
}

/// A ring over a pool in a file. The mapping stays: it is the test's until its end.
fn of_file(file: &File) -> Result<Ring, RingError> {
    const BYTES: usize = 8 * MIB;
    file.set_len(BYTES as u64).unwrap();
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: (1) a new mapping, wherever there is room.
    let room =
        unsafe { libc::mmap(std::ptr::null_mut(), BYTES + 4 * MIB, access, anonymous, -1, 0) };
    assert_ne!(room, libc::MAP_FAILED);
    let start = room.wrapping_add((room as usize).wrapping_neg() % (4 * MIB));
    let flags = libc::MAP_SHARED | libc::MAP_FIXED;
    // SAFETY: (1) replaces a part of the mapping above, which nobody uses.
    let got = unsafe { libc::mmap(start, BYTES, access, flags, file.as_raw_fd(), 0) };
    assert_eq!(got, start);
    let range = MemoryRange { node: 0, start: NonNull::new(start.cast()).unwrap(), bytes: BYTES };
    // SAFETY: (1) to (4) memory of this test, which is never unmapped and has no other user.
    let pool = unsafe { Pool::builder().memory(&[range]) }.build().unwrap();
    Ring::new(&pool, &Options::new())
}
