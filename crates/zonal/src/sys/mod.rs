//! The operating-system layer: everything in this library that calls the kernel or libc.
//!
//! ```text
//!   topology   sysfs -> nodes, CPUs, distances, last-level caches; and made-up ones
//!   map        mmap, madvise, mbind: the memory a pool hands out
//!   mask       masks of CPUs
//!   affinity   which CPUs this thread may use; pinning
//!   rseq_abi   where libc keeps this thread's rseq area; which CPU am I
//!   rseq_own   an area of our own, for a libc that has none
//!   rdpid      which CPU am I, by one instruction, where there is no area
//!   membarrier stop the sequences of another CPU
//!   futex      park and wake
//!   cgroup     how much memory the control groups of this process allow
//!   clock      monotonic nanoseconds
//!   files      files of sysfs, read at one moment
//!   machine    what machine this is, as reports name it
//!   os         the calls behind all that: `os_linux`, or `os_portable` where there are none
//! ```
//!
//! # Rules of this folder
//! - **SYS-1** No module outside `sys` calls libc, rustix or inline assembly that reads kernel
//!   state.
//! - **SYS-2** A call that an old kernel, a container or a seccomp filter may refuse never panics.
//!   It returns a typed value that carries the errno; where something weaker was done instead, the
//!   value says what (`Downgrade`, `BindOutcome`, `Prefaulted`, `WaitOutcome`).
//! - **SYS-3** Nothing here reads environment variables or keeps global state: the caller decides.
//! - **SYS-4** Files are read below roots given by the caller, so that tests can forge them.
//!
//! It does *not* decide policy: which node, how much, and when belong to the layers above.
//!
//! Public is what describes the machine and where a thread runs. What gives out memory, parks
//! threads or stops the sequences of other CPUs is the pool's alone.

use std::fmt;

pub mod affinity;
pub(crate) mod cgroup;
pub(crate) mod clock;
pub mod files;
pub(crate) mod futex;
pub mod machine;
pub(crate) mod map;
mod mask;
pub(crate) mod membarrier;
#[cfg_attr(all(target_os = "linux", not(zonal_portable)), path = "os_linux.rs")]
#[cfg_attr(not(all(target_os = "linux", not(zonal_portable))), path = "os_portable.rs")]
mod os;
pub(crate) mod rdpid;
pub mod rseq_abi;
#[cfg_attr(not(all(target_os = "linux", not(zonal_portable))), path = "rseq_none.rs")]
mod rseq_own;
pub(crate) mod slice;
#[cfg(feature = "stalls")]
pub(crate) mod switches;
pub mod topology;

pub use map::MapError;
pub(crate) use os::{at_fork, stay_loaded};

/// Memory and swap of a machine that does not tell: bytes of the address space.
const MEMORY_UNKNOWN: (u64, u64) = (1 << 47, 0);

/// An error number of the kernel, without the sign: `ENOMEM` is 12.
///
/// Our own type, so that errors of this library stay `Copy` and name no dependency.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(i32);

impl Errno {
    /// The call is not permitted.
    pub const PERM: Errno = Errno(libc::EPERM);
    /// The machine or a limit has no more memory.
    pub const NOMEM: Errno = Errno(libc::ENOMEM);
    /// An argument the kernel does not know.
    pub const INVAL: Errno = Errno(libc::EINVAL);
    /// The kernel has no such system call.
    pub const NOSYS: Errno = Errno(libc::ENOSYS);
    /// There is nothing at the address.
    pub(crate) const FAULT: Errno = Errno(libc::EFAULT);
    /// Not now.
    pub(crate) const AGAIN: Errno = Errno(libc::EAGAIN);
    /// A signal handler ran.
    pub(crate) const INTR: Errno = Errno(libc::EINTR);
    /// The time is over.
    pub(crate) const TIMEDOUT: Errno = Errno(libc::ETIMEDOUT);

    /// The error number `raw`.
    pub const fn new(raw: i32) -> Errno {
        Errno(raw)
    }

    /// The error number that the last libc call of this thread left behind.
    pub fn last() -> Errno {
        Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }

    /// The number.
    pub const fn raw(self) -> i32 {
        self.0
    }

    /// The name in `errno.h`, for the errors this layer meets.
    pub const fn name(self) -> &'static str {
        match self.0 {
            libc::EPERM => "EPERM",
            libc::ENOENT => "ENOENT",
            libc::ESRCH => "ESRCH",
            libc::EINTR => "EINTR",
            libc::EIO => "EIO",
            libc::EAGAIN => "EAGAIN",
            libc::ENOMEM => "ENOMEM",
            libc::EACCES => "EACCES",
            libc::EFAULT => "EFAULT",
            libc::EBUSY => "EBUSY",
            libc::EEXIST => "EEXIST",
            libc::ENODEV => "ENODEV",
            libc::EINVAL => "EINVAL",
            libc::ENOSYS => "ENOSYS",
            libc::EOPNOTSUPP => "EOPNOTSUPP",
            libc::ETIMEDOUT => "ETIMEDOUT",
            133 if cfg!(target_os = "linux") => "EHWPOISON",
            _ => "errno",
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // std prints "Cannot allocate memory (os error 12)".
        write!(f, "{}: {}", self.name(), std::io::Error::from_raw_os_error(self.0))
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errno_prints_its_name_and_number() {
        let text = Errno::NOMEM.to_string();
        assert!(text.starts_with("ENOMEM: "), "{text}");
        assert!(text.contains("12"), "{text}");
        assert_eq!(format!("{:?}", Errno::new(9999)), "errno(9999)");
    }
}
