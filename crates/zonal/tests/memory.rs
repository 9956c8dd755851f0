//! Pools of memory that the program brings: anonymous, of a file, shared with another process; and
//! memory faulted in by many threads.

mod support;

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use support::{exit_now, wait_child};
use zonal::{BuildError, Builder, MemoryFault, MemoryRange, Order, PAGE_SIZE, Pool, ZoneKind};

const MIB: usize = 1 << 20;

/// Memory of this test, mapped twice as long as asked for so that it can begin where it must.
struct Map {
    start: NonNull<u8>,
    bytes: usize,
}

impl Map {
    /// `bytes` of a file, or anonymous, from a multiple of 4 MiB on.
    fn new(bytes: usize, file: Option<&File>) -> Map {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let whole = bytes + 4 * MIB;
        // SAFETY: (1) a new mapping, wherever there is room.
        let room = unsafe { libc::mmap(std::ptr::null_mut(), whole, access, anonymous, -1, 0) };
        assert_ne!(room, libc::MAP_FAILED);
        let start = room.wrapping_add((room as usize).wrapping_neg() % (4 * MIB));
        if let Some(file) = file {
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            // SAFETY: (1) replaces a part of the mapping above, which nobody uses.
            let got = unsafe { libc::mmap(start, bytes, access, flags, file.as_raw_fd(), 0) };
            assert_eq!(got, start);
        }
        Map { start: NonNull::new(start.cast()).unwrap(), bytes }
    }

    fn range(&self) -> MemoryRange {
        MemoryRange { node: 0, start: self.start, bytes: self.bytes }
    }

    fn unmap(self) {
        // SAFETY: (1) of `new`, and nobody uses it any more.
        assert_eq!(unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) }, 0);
    }
}

fn memfd(bytes: usize) -> File {
    // SAFETY: (1) a name of text.
    let fd = unsafe { libc::memfd_create(c"zonal".as_ptr(), 0) };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: (1) just made, and nobody else's.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(bytes as u64).unwrap();
    file
}

fn over(ranges: &[MemoryRange]) -> Builder {
    // SAFETY: (1) to (4) memory of this test, which outlives the pool and has no other user.
    unsafe { Pool::builder().memory(ranges) }
}

/// Takes all of a pool, writes to it and gives it back.
fn use_all(pool: &Pool) {
    let mut blocks = Vec::new();
    for order in [Order::MAX, Order::new(9).unwrap(), Order::ZERO] {
        while let Ok(mut block) = pool.alloc(order) {
            block[0] = 1;
            *block.last_mut().unwrap() = 2;
            assert!(block.as_ptr() >= pool.base());
            blocks.push(block);
        }
    }
    assert!(blocks.len() > 1);
    drop(blocks);
    assert_eq!(pool.free_page_count() as usize * PAGE_SIZE, pool.bytes());
    pool.validate().unwrap();
}

#[test]
fn a_pool_of_brought_memory_works_and_lets_go_of_it_at_the_end() {
    for parallel in [false, true] {
        let map = Map::new(24 * MIB, None);
        let released = Arc::new(AtomicUsize::new(0));
        let log = Arc::clone(&released);
        let builder = over(&[map.range()]).on_release(move || {
            log.fetch_add(1, SeqCst);
        });
        let builder = if parallel { builder.prefault_parallel() } else { builder };
        let pool = builder.build().unwrap();
        assert_eq!((pool.base(), pool.bytes()), (map.start.as_ptr().cast_const(), 24 * MIB));
        use_all(&pool);
        assert_eq!(pool.trim(usize::MAX).unwrap(), 0, "what is not the pool's stays");
        pool.set_budget(8 * MIB).unwrap();
        pool.set_budget(24 * MIB).unwrap();
        let page = pool.alloc(Order::ZERO).unwrap().into_owned();
        drop(pool);
        assert_eq!(released.load(SeqCst), 0, "a page is out");
        drop(page);
        assert_eq!(released.load(SeqCst), 1);
        map.unmap();
    }
}

#[test]
fn a_release_waits_for_pools_that_were_made_before_it_was_asked_for() {
    let released = Arc::new(AtomicUsize::new(0));
    let hook = |by: usize| {
        let log = Arc::clone(&released);
        move || _ = log.fetch_add(by, SeqCst)
    };
    let map = Map::new(8 * MIB, None);
    let builder = over(&[map.range()]);
    let pool = builder.clone().build().unwrap();
    drop(builder.on_release(hook(1)).on_release(hook(10)));
    assert_eq!(released.load(SeqCst), 0, "the pool has the memory");
    drop(pool);
    assert_eq!(released.load(SeqCst), 11);
    map.unmap();
}

#[test]
fn a_release_comes_once_for_a_builder_that_makes_no_pool() {
    let released = Arc::new(AtomicUsize::new(0));
    let hook = |log: &Arc<AtomicUsize>| {
        let log = Arc::clone(log);
        move || {
            log.fetch_add(1, SeqCst);
        }
    };
    let map = Map::new(8 * MIB, None);
    let builder = over(&[map.range()]).on_release(hook(&released));
    let clone = builder.clone();
    drop(builder);
    assert_eq!(released.load(SeqCst), 0);
    assert!(clone.refresh_every(Some(Duration::ZERO)).build().is_err());
    assert_eq!(released.load(SeqCst), 1);
    map.unmap();
}

/// A builder over memory of another pool: whatever it fails of, and if it is only dropped.
#[test]
fn memory_that_another_pool_has_is_not_released_by_a_builder_that_is_refused() {
    struct OnDrop(Arc<AtomicUsize>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.fetch_add(100, SeqCst);
        }
    }
    let released = Arc::new(AtomicUsize::new(0));
    let hook = || {
        let log = OnDrop(Arc::clone(&released));
        move || _ = log.0.fetch_add(1, SeqCst)
    };
    let map = Map::new(8 * MIB, None);
    let first = over(&[map.range()]);
    let pool = first.clone().build().unwrap();
    let in_use = MemoryFault::InUse;
    let refused = over(&[map.range()]).on_release(hook()).build();
    assert!(matches!(refused, Err(BuildError::Brought { range: 0, why }) if why == in_use));
    assert!(over(&[map.range()]).on_release(hook()).size(3).zones(&[]).build().is_err());
    drop(over(&[map.range()]).on_release(hook()));
    // A try again does not lose the hook of the builder that it is a clone of.
    let last = over(&[map.range()]).on_release(hook());
    assert!(last.clone().build().is_err());
    assert_eq!(released.load(SeqCst), 0, "the first pool has the memory");
    use_all(&pool);
    drop((pool, first));
    let pool = last.build().unwrap();
    assert_eq!(released.load(SeqCst), 0);
    drop(pool);
    assert_eq!(released.load(SeqCst), 101, "called, and gone");
    map.unmap();
}

/// The list of mappings of such a process is empty.
#[test]
#[cfg(target_os = "linux")]
fn memory_is_looked_at_in_a_process_whose_main_thread_is_gone() {
    let map = Map::new(8 * MIB, None);
    let range = map.range();
    let (start, bytes) = (range.start.as_ptr() as usize, range.bytes);
    // SAFETY: (1) the child calls what this function says and ends by `exit_now`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        std::thread::spawn(move || {
            let is_empty = |maps: Vec<u8>| maps.is_empty();
            while !std::fs::read("/proc/self/maps").is_ok_and(is_empty) {
                std::thread::yield_now();
            }
            let start = NonNull::new(std::ptr::with_exposed_provenance_mut(start)).unwrap();
            let built = over(&[MemoryRange { node: 0, start, bytes }]).refresh_every(None).build();
            exit_now(i32::from(built.is_err()));
        });
        // SAFETY: (1) ends this thread only, whose stack stays as it is.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
    assert_eq!(wait_child(child, Duration::from_secs(60)), Some(0));
    map.unmap();
}

#[test]
fn ranges_that_cannot_be_are_refused_and_say_which() {
    let map = Map::new(16 * MIB, None);
    let range = |offset: usize, bytes: usize| MemoryRange {
        node: 0,
        start: NonNull::new(map.start.as_ptr().wrapping_add(offset)).unwrap(),
        bytes,
    };
    let high = MemoryRange { bytes: PAGE_SIZE, ..range(usize::MAX - (16 * MIB), 0) };
    let refused = |ranges: &[MemoryRange]| match over(ranges).build() {
        Err(BuildError::Brought { range, why }) => Some((range, why)),
        _ => None,
    };
    let cases: [(&[MemoryRange], usize, MemoryFault); 8] = [
        (&[range(PAGE_SIZE, 4 * MIB)], 0, MemoryFault::Start),
        (&[range(1, 4 * MIB)], 0, MemoryFault::Start),
        (&[range(0, 0)], 0, MemoryFault::Length),
        (&[range(0, 4 * MIB + 1)], 0, MemoryFault::Length),
        (&[range(0, usize::MAX - 4095)], 0, MemoryFault::Length),
        (&[range(0, 4 * MIB), range(8 * MIB, 4 * MIB)], 1, MemoryFault::Gap),
        (&[range(4 * MIB, 4 * MIB), range(0, 4 * MIB)], 1, MemoryFault::Gap),
        (&[range(0, 4 * MIB), range(4 * MIB, 0)], 1, MemoryFault::Length),
    ];
    for (ranges, at, why) in cases {
        assert_eq!(refused(ranges), Some((at, why)), "{ranges:?}");
    }
    assert!(refused(&[high]).is_some());
    // Behind it is nothing, or what others mapped.
    let long = refused(&[range(0, 1 << 46)]);
    let faults = [MemoryFault::NotMapped, MemoryFault::NoAccess];
    assert!(faults.map(|why| Some((0, why))).contains(&long), "{long:?}");
    let zones = |bytes| [zonal::ZoneSize { node: 0, kind: ZoneKind::Normal, bytes }];
    let wrong = over(&[range(0, 8 * MIB)]).zones(&zones(4 * MIB)).build();
    assert!(matches!(wrong, Err(BuildError::Brought { why: MemoryFault::Zones, .. })));
    assert!(over(&[range(0, 8 * MIB)]).zones(&zones(8 * MIB)).build().is_ok());
    // Two ranges of one node are one zone too many for the machine.
    assert!(over(&[range(0, 4 * MIB), range(4 * MIB, 4 * MIB)]).build().is_err());
    // None at all is as if it had not been called.
    assert!(over(&[]).size(8 * MIB).build().is_ok());
    map.unmap();
}

#[test]
fn ranges_of_two_nodes_are_their_zones() {
    let map = Map::new(16 * MIB, None);
    let half = |node, offset| MemoryRange {
        node,
        start: NonNull::new(map.start.as_ptr().wrapping_add(offset)).unwrap(),
        bytes: 8 * MIB,
    };
    let builder = over(&[half(0, 0), half(1, 8 * MIB)]);
    let pool = builder.fake_nodes(2, zonal::CpuMap::RoundRobin).build().unwrap();
    let node = |offset| pool.node_of(map.start.as_ptr().wrapping_add(offset)).unwrap().0;
    assert_eq!((node(0), node(8 * MIB - PAGE_SIZE), node(8 * MIB)), (0, 0, 1));
    use_all(&pool);
    drop(pool);
    map.unmap();
}

#[test]
fn what_is_written_to_a_page_of_a_file_mapping_is_in_the_file() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(8 * MIB as u64).unwrap();
    let map = Map::new(8 * MIB, Some(&file));
    let pool = over(&[map.range()]).build().unwrap();
    let mut page = pool.alloc(Order::ZERO).unwrap();
    page[..5].copy_from_slice(b"hello");
    let offset = page.as_ptr() as usize - pool.base() as usize;
    let mut read = [0; 5];
    file.read_exact_at(&mut read, offset as u64).unwrap();
    assert_eq!(&read, b"hello");
    drop(page);
    use_all(&pool);
    drop(pool);
    map.unmap();
}

/// The pool is in this process; the other one maps the same memory elsewhere, gets a page by its
/// offset, and answers in it.
#[test]
fn pages_of_a_memfd_are_handed_to_another_process_by_their_offset() {
    let file = memfd(8 * MIB);
    let map = Map::new(8 * MIB, Some(&file));
    let pool = over(&[map.range()]).build().unwrap();
    let mut page = pool.alloc_zeroed(Order::new(1).unwrap()).unwrap();
    page[..8].copy_from_slice(b"question");
    let offset = page.as_ptr() as usize - pool.base() as usize;
    // SAFETY: (1) the child calls only mmap and `exit_now`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let fd = file.as_raw_fd();
        // SAFETY: (1) a new mapping, wherever there is room.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), 8 * MIB, access, libc::MAP_SHARED, fd, 0) };
        let start = start.cast::<u8>().wrapping_add(offset);
        // SAFETY: (1) the page that was handed over, whose owner waits for this process.
        let page = unsafe { std::slice::from_raw_parts_mut(start, 2 * PAGE_SIZE) };
        if &page[..8] != b"question" {
            exit_now(1);
        }
        page[PAGE_SIZE..PAGE_SIZE + 6].copy_from_slice(b"answer");
        exit_now(0);
    }
    assert_eq!(wait_child(child, Duration::from_secs(60)), Some(0));
    assert_eq!(&page[PAGE_SIZE..PAGE_SIZE + 6], b"answer");
    drop(page);
    drop(pool);
    map.unmap();
}

#[test]
fn progress_is_told_one_call_at_a_time_up_to_all_of_it() {
    for (parallel, nodes) in [(false, 1), (true, 1), (true, 3)] {
        let seen: Arc<Mutex<Vec<(usize, usize)>>> = Arc::default();
        let log = Arc::clone(&seen);
        let builder = Pool::builder().size(120 * MIB).fake_nodes(nodes, zonal::CpuMap::RoundRobin);
        let builder = if parallel { builder.prefault_parallel() } else { builder.prefault(true) };
        let builder = builder.on_prefault(move |now| {
            log.try_lock().expect("one call at a time").push((now.done, now.total));
        });
        let pool = builder.build().unwrap();
        let seen = seen.lock().unwrap();
        assert!(seen.len() > 2 && seen.is_sorted(), "{seen:?}");
        assert!(seen.iter().all(|(_, total)| *total == pool.bytes()));
        assert_eq!(seen.last().unwrap().0, pool.bytes());
        assert_eq!(pool.held().free_absent, 0, "all of it is in memory");
    }
}
