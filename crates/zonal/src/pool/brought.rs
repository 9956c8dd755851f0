//! Memory that a program brings, and the hooks that give it back.

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering::Acquire, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use super::Shared;
use crate::sys::map::look::{self, Flaw};
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

impl MemoryRange {
    fn addresses(&self) -> Range<usize> {
        let start = self.start.as_ptr() as usize;
        start..start.saturating_add(self.bytes)
    }
}

/// Memory that a program brings. Its zones are the builder's.
#[derive(Clone, Default)]
pub(super) struct Brought {
    pub(super) ranges: Vec<MemoryRange>,
    /// Shared with clones of the builder and with the pools made of it.
    release: Arc<Release>,
}

/// Memory that pools were made of, which makes no other pool. Nobody waits for it for ever: in a
/// forked child the thread that had it may not be there. Memory that was not entered is not looked
/// for.
static IN_USE: Mutex<Vec<Entry>> = Mutex::new(Vec::new());
/// How long the list is tried for: it is held for microseconds, by a thread that may lose its CPU.
const PATIENCE: Duration = Duration::from_millis(500);

/// Memory of a pool that is there while its [`Claimed`] is. What is no longer is taken off by the
/// next pool, so that to let go of memory takes no lock.
struct Entry {
    memory: Range<usize>,
    pool: Weak<()>,
}

fn in_use() -> Option<MutexGuard<'static, Vec<Entry>>> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        match IN_USE.try_lock() {
            Ok(list) => return Some(list),
            Err(TryLockError::Poisoned(list)) => return Some(list.into_inner()),
            // Asleep, so that a thread of a lower priority has the CPU.
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_micros(50)),
        }
    }
    None
}

/// Whether a pool that is there has a part of the memory.
fn is_taken(list: &[Entry], memory: &Range<usize>) -> bool {
    let overlaps = |other: &Range<usize>| memory.start < other.end && other.start < memory.end;
    list.iter().any(|entry| entry.pool.strong_count() > 0 && overlaps(&entry.memory))
}

/// A pool has the memory. The order of fields is that of their drops: a hook may make another pool
/// of the memory.
struct Claimed {
    _pool: Arc<()>,
    _release: Arc<Release>,
}

/// Calls the hooks when nobody has the memory any more; never while another pool has it, as far as
/// the list can be looked at.
#[derive(Default)]
struct Release(Mutex<Told>);

#[derive(Default)]
struct Told {
    hooks: Vec<Hook>,
    /// All that this builder or a clone was given.
    memory: Vec<Range<usize>>,
}

type Hook = Box<dyn FnOnce() + Send + Sync>;

impl Release {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        let told = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Told { hooks, memory } = std::mem::take(told);
        // What was made of it is off the list by now: what is there is another pool's.
        let is_used =
            || in_use().is_some_and(|list| memory.iter().any(|range| is_taken(&list, range)));
        for hook in hooks {
            // Asked for each: a hook may make a pool of the memory.
            match is_used() {
                true => keep(hook),
                false => hook(),
            }
        }
    }
}

/// Keeps a hook that is not called for ever. It is not dropped either: what it owns may be what
/// unmaps the memory. It stays where a leak checker finds it, most often.
fn keep(hook: Hook) {
    static KEPT: Mutex<Vec<Hook>> = Mutex::new(Vec::new());
    match KEPT.try_lock() {
        Ok(mut kept) => kept.push(hook),
        Err(TryLockError::Poisoned(kept)) => kept.into_inner().push(hook),
        // Another thread keeps one, or is not there in a forked child: nobody waits for it.
        Err(TryLockError::WouldBlock) => std::mem::forget(hook),
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
    /// A part of it is not mapped. Without `/proc` only its first and last page are looked at.
    NotMapped,
    /// A part of it is mapped, but may not be both read and written. Not looked at without `/proc`.
    NoAccess,
    /// A part of it is mapped, but an access would be SIGBUS: the file is shorter than the mapping,
    /// or no huge page is left. Only where the kernel tells (Linux 5.14).
    NotBacked,
    /// Another pool that is still there was made of it by
    /// [`Builder::memory`](super::Builder::memory).
    /// Blocks of a pool that mapped its memory itself are not looked for.
    InUse,
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
            MemoryFault::NotMapped => "a part of it is not mapped; map all of it first",
            MemoryFault::NoAccess => {
                "a part of it may not be read and written; map it with PROT_READ | PROT_WRITE"
            }
            MemoryFault::NotBacked => {
                "nothing is behind a part of it, so an access would be SIGBUS; make the file as \
                 long as the mapping, or reserve more huge pages (vm.nr_hugepages)"
            }
            MemoryFault::InUse => {
                "another pool is made of it; let that one go, with all its owned blocks, first"
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
        self.release.told().hooks.push(hook);
    }

    pub(super) fn set_ranges(&mut self, ranges: &[MemoryRange]) {
        self.release.told().memory.extend(ranges.iter().map(MemoryRange::addresses));
        self.ranges = ranges.to_vec();
    }

    /// The memory as a mapping of the pool; `None` without ranges.
    ///
    /// # Errors
    /// The first range that another pool has.
    pub(super) fn mapping(&self, bytes: usize) -> Option<Result<Mapping, usize>> {
        let start = self.ranges.first()?.start;
        let memory = MemoryRange { node: 0, start, bytes }.addresses();
        let pool = Arc::new(());
        if let Some(mut list) = in_use() {
            list.retain(|entry| entry.pool.strong_count() > 0);
            // Acquire: pairs with the Release of the last drop of a pool's `Arc`, so that all that
            // the pool did to the memory is done.
            fence(Acquire);
            let is_taken = |range: &MemoryRange| is_taken(&list, &range.addresses());
            if let Some(taken) = self.ranges.iter().position(is_taken) {
                return Some(Err(taken));
            }
            list.push(Entry { memory, pool: Arc::downgrade(&pool) });
        }
        let keep = Arc::new(Claimed { _pool: pool, _release: Arc::clone(&self.release) }) as Keep;
        // SAFETY: (1) and (2) what the program promised (`Builder::memory`), of ranges side by side
        // (`check_memory`).
        Some(Ok(unsafe { Mapping::brought(start, bytes, Some(keep)) }))
    }
}

/// What is wrong with memory that others mapped, as far as the system tells.
pub(super) fn fault_of(memory: Range<usize>) -> Option<MemoryFault> {
    look::flaw(memory).map(|flaw| match flaw {
        Flaw::NotMapped => MemoryFault::NotMapped,
        Flaw::NoAccess => MemoryFault::NoAccess,
        Flaw::NotBacked => MemoryFault::NotBacked,
    })
}

impl Shared {
    /// What is wrong with memory that the program brought, if something is.
    pub(crate) fn brought_fault(&self) -> Option<MemoryFault> {
        let start = self.memory.base().as_ptr() as usize;
        if self.memory.is_own() { None } else { fault_of(start..start + self.memory.bytes()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pool;
    use crate::pool::BuildError;

    const BYTES: usize = 4 << 20;

    fn pool_of(start: NonNull<u8>) -> Result<Pool, BuildError> {
        let range = MemoryRange { node: 0, start, bytes: BYTES };
        // SAFETY: (1) to (4) memory of a test, which lets nobody else use it.
        unsafe { Pool::builder().refresh_every(None).memory(&[range]) }.build()
    }

    /// As when the thread that has the list lost its CPU, and as in a child without that thread.
    #[test]
    fn memory_that_is_let_go_of_while_the_list_is_taken_makes_another_pool() {
        let layout = std::alloc::Layout::from_size_align(BYTES, BYTES).unwrap();
        // SAFETY: (1) the size is not 0.
        let start = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).unwrap();
        let pool = pool_of(start).unwrap();
        let taken = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        drop(pool);
        // Nobody waits for it; what is not entered is not found.
        let unseen = pool_of(start).unwrap();
        drop(taken);
        drop(unseen);
        let pool = pool_of(start).expect("nobody has it");
        assert!(matches!(
            pool_of(start),
            Err(BuildError::Brought { range: 0, why: MemoryFault::InUse })
        ));
        drop(pool);
        // SAFETY: (1) allocated above with this layout, and no pool has it.
        unsafe { std::alloc::dealloc(start.as_ptr(), layout) };
    }
}
