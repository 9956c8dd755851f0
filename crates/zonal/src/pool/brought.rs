//! Memory that a program brings, and the hooks that give it back.

use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use crate::sys::map::{Keep, Mapping};

/// A stretch of memory that a program brings: [`Builder::memory`](super::Builder::memory).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryRange {
    /// The node its bytes are on, by position.
    pub node: u16,
    /// First byte.
    pub start: NonNull<u8>,
    /// Bytes, a multiple of the page size.
    pub bytes: usize,
}

/// Memory that a program brings. Its zones are the builder's.
#[derive(Clone, Default)]
pub(super) struct Brought {
    pub(super) ranges: Vec<MemoryRange>,
    /// Shared with clones of the builder and with the pools made of it.
    release: Arc<Release>,
}

/// Calls the hooks when nobody has the memory any more.
#[derive(Default)]
struct Release(Mutex<Vec<Hook>>);

type Hook = Box<dyn FnOnce() + Send + Sync>;

impl Drop for Release {
    fn drop(&mut self) {
        let hooks = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(hooks).into_iter().for_each(|hook| hook());
    }
}

// SAFETY: (1) addresses; whoever gave them lets any thread use what is there (`Builder::memory`).
unsafe impl Send for Brought {}
// SAFETY: (1) as for `Send`.
unsafe impl Sync for Brought {}

impl fmt::Debug for Brought {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Brought").field("ranges", &self.ranges).finish_non_exhaustive()
    }
}

/// Why memory that a program brings makes no pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MemoryFault {
    /// The first byte is not at a multiple of 4 MiB, to which the largest blocks are aligned.
    Start,
    /// The length is zero, not a multiple of the page size, or passes the end of the address space.
    Length,
    /// It does not begin where the range before it ends.
    Gap,
    /// Its first or last page is not mapped.
    NotMapped,
    /// Its first or last page is mapped, but an access would be SIGBUS: the file is shorter than
    /// the mapping, or no huge page is left. Looked at once, and only where the kernel tells (Linux
    /// 5.14).
    NotBacked,
    /// The zones that were given after it are not as long as all ranges together.
    Zones,
}

impl fmt::Display for MemoryFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MemoryFault::Start => {
                "the first range must start at a multiple of 4 MiB; map 4 MiB more and begin there"
            }
            MemoryFault::Length => {
                "expected a multiple of 4096 bytes, above zero, within the address space"
            }
            MemoryFault::Gap => {
                "it must begin where the range before it ends; map them side by side, or make a \
                 pool of each"
            }
            MemoryFault::NotMapped => "its first or last page is not mapped",
            MemoryFault::NotBacked => {
                "nothing is behind its first or last page, so an access would be SIGBUS; make the \
                 file as long as the mapping, or reserve more huge pages (vm.nr_hugepages)"
            }
            MemoryFault::Zones => {
                "the zones must be as long as all ranges together; call zones() with the same sum, \
                 or not at all"
            }
        })
    }
}

impl Brought {
    pub(super) fn on_release(&self, hook: Hook) {
        self.release.0.lock().unwrap_or_else(PoisonError::into_inner).push(hook);
    }

    /// The memory as a mapping of the pool; `None` without ranges.
    pub(super) fn mapping(&self, bytes: usize) -> Option<Mapping> {
        let start = self.ranges.first()?.start;
        let keep = Some(Arc::clone(&self.release) as Keep);
        // SAFETY: (1) and (2) what the program promised (`Builder::memory`), of ranges side by side
        // (`check_memory`).
        Some(unsafe { Mapping::brought(start, bytes, keep) })
    }
}
