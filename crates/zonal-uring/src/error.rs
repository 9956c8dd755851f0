//! What goes wrong with a ring, and what to do about it.

use std::fmt;
use std::io;

use zonal::AllocError;

use crate::Buffer;

/// Why a ring could not be made, or an operation not be begun.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// The kernel makes no ring for this process.
    #[error(
        "io_uring is not available ({0}): the kernel is older than 5.1, or a sandbox (seccomp) or \
         the sysctl kernel.io_uring_disabled forbids it; allow it there, or read and write without \
         a ring"
    )]
    Unavailable(io::Error),
    /// A ring without entries.
    #[error("a ring of 0 entries; expected at least 1 (`Options::entries`)")]
    Entries,
    /// The pool is larger than what this process may lock in memory.
    #[error(
        "{bytes} bytes of the pool cannot be locked in memory: RLIMIT_MEMLOCK allows {limit} to \
         all rings of the user together; raise it (`ulimit -l`, `LimitMEMLOCK=` of a systemd \
         unit), give the process CAP_IPC_LOCK, make the pool smaller, or do without fixed buffers \
         (`Options::fixed(false)`)"
    )]
    MemLock {
        /// Bytes to be locked.
        bytes: usize,
        /// Bytes that may be.
        limit: u64,
    },
    /// The kernel does not register memory of this kind.
    #[error(
        "the kernel does not register this pool's memory: {0}. It takes anonymous memory, memfd, \
         shared memory and huge pages, but no mapping of a file on a disk; choose another origin, \
         or do without fixed buffers (`Options::fixed(false)`)"
    )]
    Backing(io::Error),
    /// The pool has more pieces than a ring has fixed buffers.
    #[error("the pool takes {0} fixed buffers of 1 GiB, and a ring has 16384; make several pools")]
    TooLarge(usize),
    /// The kernel does not know a call.
    #[error("{what} needs Linux {since} or newer: {error}")]
    TooOld {
        /// What was asked for.
        what: &'static str,
        /// The first release that has it.
        since: &'static str,
        /// The kernel's answer.
        error: io::Error,
    },
    /// The system refused a call.
    #[error("{call} failed: {error}")]
    System {
        /// What was called.
        call: &'static str,
        /// The kernel's answer.
        error: io::Error,
    },
    /// The buffer is another pool's, whose memory this ring does not have.
    #[error(
        "the buffer is not one of the ring's pool; take it from that, or make a ring of its own"
    )]
    Foreign,
    /// The part is empty, or not inside the buffer.
    #[error("the bytes {from}..{to} are not a part of a buffer of {len} bytes")]
    Part {
        /// First byte.
        from: usize,
        /// The byte behind the last one.
        to: usize,
        /// Bytes of the buffer.
        len: usize,
    },
    /// The submission queue is full and the kernel takes nothing more at this moment.
    #[error("the submission queue is full; take completions (`Ring::next`) and try again")]
    Full,
    /// A group of provided buffers has no room for another one, or no such number.
    #[error("group {group}: {why}")]
    Group {
        /// The group.
        group: u16,
        /// What is wrong.
        why: &'static str,
    },
    /// The pool has no page for a group, which is there nevertheless.
    #[error("no pages to provide: {0}; free some and call `Ring::refill`: the group is there")]
    Pages(#[from] AllocError),
    /// The pool has no block for the entries of a group, which is not there.
    #[error("no memory for the entries of a group: {0}; free some and call `Ring::provide` again")]
    GroupMemory(AllocError),
    /// This is a forked child of the process that made the ring.
    #[error(
        "the ring belongs to the process that made it; make one of this process after the fork"
    )]
    Forked,
}

/// An operation that was not begun; its buffer comes back.
pub struct Refused {
    /// Why.
    pub error: RingError,
    /// What it was to use.
    pub buffer: Buffer,
}

impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused").field("error", &self.error).finish_non_exhaustive()
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl std::error::Error for Refused {}
