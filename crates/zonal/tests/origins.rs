//! Pools of memory from elsewhere: reserved huge pages, memory that is pinned, and memory that is
//! no longer what it was. What this system does not grant is SKIPPED, and says so.

mod support;

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use support::{alone, exit_now, wait_child};
use zonal::{BuildError, MemoryFault, MemoryRange, Order, PAGE_SIZE, Pool};

const MIB: usize = 1 << 20;
const BYTES: usize = 16 * MIB;
const RESERVED: &str = "/proc/sys/vm/nr_hugepages";

/// `bytes` of memory, from a multiple of 4 MiB on, mapped over with a file or with `flags`. `None`:
/// the system refuses such a mapping.
fn map(bytes: usize, flags: i32, file: Option<&File>) -> Option<NonNull<u8>> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let room = bytes + 4 * MIB;
    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: (1) a new mapping, wherever there is room.
    let found = unsafe { libc::mmap(std::ptr::null_mut(), room, access, anonymous, -1, 0) };
    assert_ne!(found, libc::MAP_FAILED);
    let start = found.wrapping_add((found as usize).wrapping_neg() % (4 * MIB));
    let (flags, fd) = match file {
        Some(file) => (flags | libc::MAP_SHARED | libc::MAP_FIXED, file.as_raw_fd()),
        None => (flags | anonymous | libc::MAP_FIXED, -1),
    };
    // SAFETY: (1) replaces a part of the mapping above, which nobody uses.
    let got = unsafe { libc::mmap(start, bytes, access, flags, fd, 0) };
    (got == start).then(|| NonNull::new(start.cast()).unwrap())
}

/// A pool over the memory, and a count of its releases, which unmap it.
fn pool_over(start: NonNull<u8>, bytes: usize) -> (Pool, Arc<AtomicUsize>) {
    let released = Arc::new(AtomicUsize::new(0));
    let log = Arc::clone(&released);
    let address = start.as_ptr() as usize;
    let range = MemoryRange { node: 0, start, bytes };
    // SAFETY: (1) to (4) memory of this test, which is unmapped by the release and has no other
    // user.
    let builder = unsafe { Pool::builder().memory(&[range]) };
    let builder = builder.on_release(move || {
        // SAFETY: (1) mapped above, and nobody uses it any more.
        assert_eq!(unsafe { libc::munmap(address as *mut _, bytes) }, 0);
        log.fetch_add(1, SeqCst);
    });
    (builder.build().unwrap(), released)
}

/// Takes all of a pool, writes to it, gives it back, and lets go of the memory.
fn use_all((pool, released): (Pool, Arc<AtomicUsize>)) {
    let mut blocks = Vec::new();
    for order in [Order::MAX, Order::new(9).unwrap(), Order::ZERO] {
        while let Ok(mut block) = pool.alloc(order) {
            block.chunks_mut(PAGE_SIZE).for_each(|page| page[0] = 1);
            blocks.push(block.into_owned());
        }
    }
    assert!(blocks.len() > 1);
    let last = blocks.pop();
    drop(blocks);
    pool.validate().unwrap();
    assert_eq!(pool.trim(usize::MAX).unwrap(), 0, "brought memory stays as it is");
    drop(pool);
    assert_eq!(released.load(SeqCst), 0, "a block is out");
    drop(last);
    assert_eq!(released.load(SeqCst), 1);
}

fn memfd(flags: u32) -> Option<File> {
    // SAFETY: (1) a name of text.
    let fd = unsafe { libc::memfd_create(c"zonal".as_ptr(), flags) };
    // SAFETY: (1) just made, and nobody else's.
    (fd >= 0).then(|| unsafe { File::from_raw_fd(fd) })
}

/// More reserved huge pages, while it lives.
struct MoreReserved(String);

impl MoreReserved {
    fn new(pages: usize) -> Option<MoreReserved> {
        let before = std::fs::read_to_string(RESERVED).ok()?;
        let wanted = before.trim().parse::<usize>().ok()? + pages;
        let more = MoreReserved(before);
        std::fs::write(RESERVED, wanted.to_string()).ok()?;
        let now = std::fs::read_to_string(RESERVED).ok()?;
        (now.trim().parse::<usize>().ok()? >= wanted).then_some(more)
    }
}

impl Drop for MoreReserved {
    fn drop(&mut self) {
        let _ = std::fs::write(RESERVED, self.0.trim());
    }
}

#[test]
fn reserved_huge_pages_make_a_pool_by_a_file_and_without_one() {
    let _alone = alone();
    let Some(_more) = MoreReserved::new(BYTES / (2 * MIB) * 2) else {
        eprintln!("SKIPPED: no 2 MiB pages can be reserved here ({RESERVED})");
        return;
    };
    let anonymous = map(BYTES, libc::MAP_HUGETLB | libc::MAP_HUGE_2MB, None);
    match anonymous {
        Some(start) => use_all(pool_over(start, BYTES)),
        None => eprintln!("SKIPPED: MAP_HUGETLB is refused"),
    }
    let Some(file) = memfd(libc::MFD_HUGETLB) else {
        eprintln!("SKIPPED: memfd_create(MFD_HUGETLB) is refused");
        return;
    };
    file.set_len(BYTES as u64).unwrap();
    let start = map(BYTES, 0, Some(&file)).expect("the pages are reserved");
    use_all(pool_over(start, BYTES));
}

/// What a device driver or a GPU's library pins is memory that is locked.
#[test]
fn a_pinned_host_pool_stays_in_memory() {
    let _alone = alone();
    let start = map(BYTES, 0, None).unwrap();
    // SAFETY: (1) the mapping above.
    if unsafe { libc::mlock(start.as_ptr().cast(), BYTES) } != 0 {
        let error = std::io::Error::last_os_error();
        eprintln!("SKIPPED: mlock of 16 MiB is refused ({error}); see `ulimit -l`");
        return;
    }
    let (pool, released) = pool_over(start, BYTES);
    let resident = |pool: &Pool| pool.held().free_absent;
    assert_eq!(resident(&pool), 0, "all of it is in memory before anybody touched it");
    pool.set_budget(BYTES / 2).unwrap();
    pool.set_budget(BYTES).unwrap();
    assert_eq!(resident(&pool), 0, "and stays");
    use_all((pool, released));
}

/// A window of a device or of persistent memory is a shared mapping; a file is its stand-in. What
/// was written is there when it is mapped again.
#[test]
fn a_window_keeps_what_was_written_when_the_pool_is_gone() {
    let _alone = alone();
    let file = memfd(0).unwrap();
    file.set_len(BYTES as u64).unwrap();
    let (pool, released) = pool_over(map(BYTES, 0, Some(&file)).unwrap(), BYTES);
    let mut page = pool.alloc(Order::ZERO).unwrap();
    page[..5].copy_from_slice(b"stays");
    let offset = page.as_ptr() as usize - pool.base() as usize;
    drop(page);
    drop(pool);
    assert_eq!(released.load(SeqCst), 1);
    let (pool, released) = pool_over(map(BYTES, 0, Some(&file)).unwrap(), BYTES);
    let at = pool.base().wrapping_add(offset);
    let page = pool.ranges().alloc_at(at, 1, zonal::Gfp::KERNEL).unwrap();
    assert_eq!(&page[..5], b"stays");
    drop(page);
    use_all((pool, released));
}

#[test]
fn a_file_that_is_shorter_than_its_mapping_is_refused_at_the_start() {
    let _alone = alone();
    let file = memfd(0).unwrap();
    for bytes in [0, BYTES - PAGE_SIZE, BYTES - 1] {
        file.set_len(bytes as u64).unwrap();
        let start = map(BYTES, 0, Some(&file)).unwrap();
        let range = MemoryRange { node: 0, start, bytes: BYTES };
        // SAFETY: not kept, which is what is tested: the last page has no file behind it.
        let built = unsafe { Pool::builder().memory(&[range]) }.build();
        // A last page that the file has a byte of is there.
        match bytes {
            _ if bytes == BYTES - 1 => assert!(built.is_ok()),
            _ => {
                let absent = MemoryFault::NotBacked;
                let Err(BuildError::Brought { range: 0, why }) = built else {
                    panic!("{bytes}: {:?}", built.map(|_| ()))
                };
                assert_eq!(why, absent);
                assert!(why.to_string().contains("SIGBUS"));
            }
        }
    }
}

fn fault_of(start: NonNull<u8>, bytes: usize) -> Option<MemoryFault> {
    let range = MemoryRange { node: 0, start, bytes };
    // SAFETY: not kept, which is what is tested; a pool that is made all the same is not used.
    match unsafe { Pool::builder().memory(&[range]).prefault(true) }.build() {
        Ok(_) => None,
        Err(BuildError::Brought { range: 0, why }) => Some(why),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn memory_with_a_hole_or_without_rights_in_its_middle_is_refused() {
    let _alone = alone();
    let start = map(BYTES, 0, None).unwrap();
    let middle = start.as_ptr().wrapping_add(BYTES / 2).cast();
    for rights in [libc::PROT_READ, libc::PROT_WRITE, libc::PROT_NONE] {
        // SAFETY: (1) pages of the mapping above, which nobody uses.
        assert_eq!(unsafe { libc::mprotect(middle, PAGE_SIZE, rights) }, 0);
        assert_eq!(fault_of(start, BYTES), Some(MemoryFault::NoAccess), "{rights}");
    }
    // SAFETY: (1) as above.
    assert_eq!(unsafe { libc::munmap(middle, PAGE_SIZE) }, 0);
    assert_eq!(fault_of(start, BYTES), Some(MemoryFault::NotMapped));
    assert_eq!(fault_of(start, BYTES / 2), None);
    // SAFETY: (1) what is left of it.
    assert_eq!(unsafe { libc::munmap(start.as_ptr().cast(), BYTES) }, 0);
}

#[test]
fn memory_of_a_pool_makes_no_other_pool_until_it_is_let_go_of() {
    let _alone = alone();
    let start = map(BYTES, 0, None).unwrap();
    let at = |offset: usize| NonNull::new(start.as_ptr().wrapping_add(offset)).unwrap();
    let range = MemoryRange { node: 0, start: at(4 * MIB), bytes: 8 * MIB };
    // SAFETY: (1) to (4) memory of this test.
    let pool = unsafe { Pool::builder().memory(&[range]) }.build().unwrap();
    let page = pool.alloc(Order::ZERO).unwrap().into_owned();
    let taken = || [(0, BYTES), (4 * MIB, 4 * MIB), (8 * MIB, 8 * MIB), (0, 4 * MIB + PAGE_SIZE)];
    for (offset, bytes) in taken() {
        assert_eq!(fault_of(at(offset), bytes), Some(MemoryFault::InUse), "{offset}");
    }
    assert_eq!(fault_of(at(0), 4 * MIB), None);
    assert_eq!(fault_of(at(12 * MIB), 4 * MIB), None);
    drop(pool);
    assert_eq!(fault_of(at(0), BYTES), Some(MemoryFault::InUse), "an owned block is left");
    drop(page);
    for (offset, bytes) in taken() {
        assert_eq!(fault_of(at(offset), bytes), None, "{offset}");
    }
    // SAFETY: (1) mapped above, and no pool has it any more.
    assert_eq!(unsafe { libc::munmap(start.as_ptr().cast(), BYTES) }, 0);
}

#[test]
fn memory_that_disappears_below_a_pool_is_told() {
    let _alone = alone();
    let file = memfd(0).unwrap();
    file.set_len(BYTES as u64).unwrap();
    let (pool, _) = pool_over(map(BYTES, 0, Some(&file)).unwrap(), BYTES);
    assert_eq!(pool.view().check_memory(), Ok(()));
    file.set_len((BYTES / 2) as u64).unwrap();
    assert_eq!(pool.view().check_memory(), Err(MemoryFault::NotBacked));
    // The books are elsewhere.
    pool.validate().unwrap();
    file.set_len(BYTES as u64).unwrap();
    assert_eq!(pool.view().check_memory(), Ok(()));
    let middle = pool.base().wrapping_add(BYTES / 2).cast_mut();
    // SAFETY: (1) a page of the pool that nobody has.
    assert_eq!(unsafe { libc::mprotect(middle.cast(), PAGE_SIZE, libc::PROT_READ) }, 0);
    assert_eq!(pool.view().check_memory(), Err(MemoryFault::NoAccess));
    // SAFETY: (1) as above.
    assert_eq!(unsafe { libc::munmap(middle.cast(), PAGE_SIZE) }, 0);
    assert_eq!(pool.view().check_memory(), Err(MemoryFault::NotMapped));
    let own = Pool::builder().size(8 * MIB).build().unwrap();
    assert_eq!(own.view().check_memory(), Ok(()));
}

/// Whoever touches a file that was cut gets the signal that the contract of `Builder::memory`
/// names.
#[test]
fn a_file_that_is_cut_below_a_pool_is_a_sigbus() {
    let _alone = alone();
    let file = memfd(0).unwrap();
    file.set_len(BYTES as u64).unwrap();
    let start = map(BYTES, 0, Some(&file)).unwrap();
    // SAFETY: (1) the child calls the pool and `exit_now`, and is expected to be killed.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let (pool, _) = pool_over(start, BYTES);
        let mut page = pool.alloc(Order::ZERO).unwrap();
        page[0] = 1;
        file.set_len(0).unwrap();
        page[0] = 2;
        exit_now(0);
    }
    let status = wait_child(child, Duration::from_secs(60)).expect("it ends");
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGBUS, "{status:#x}");
}

/// The observer's file cannot be: found when the memory is the pool's already.
#[test]
fn memory_of_a_pool_that_was_not_made_makes_another() {
    let _alone = alone();
    let start = map(BYTES, 0, None).unwrap();
    let range = MemoryRange { node: 0, start, bytes: BYTES };
    let released = Arc::new(AtomicUsize::new(0));
    for attempt in 1..=3 {
        let log = Arc::clone(&released);
        // SAFETY: (1) to (4) memory of this test.
        let builder = unsafe { Pool::builder().memory(&[range]) };
        let builder = builder.on_release(move || _ = log.fetch_add(1, SeqCst));
        let built = builder.observe("/no/such/directory/pool").build();
        assert!(matches!(built, Err(BuildError::Observe { .. })), "{:?}", built.map(|_| ()));
        assert_eq!(released.load(SeqCst), attempt, "the hook is called where it fails, too");
    }
    assert_eq!(fault_of(start, BYTES), None, "it is nobody's");
    // SAFETY: (1) mapped above, and no pool has it.
    assert_eq!(unsafe { libc::munmap(start.as_ptr().cast(), BYTES) }, 0);
}

#[test]
fn hooks_come_in_their_order_when_the_memory_may_make_another_pool() {
    let _alone = alone();
    let start = map(BYTES, 0, None).unwrap();
    let range = MemoryRange { node: 0, start, bytes: BYTES };
    let (tell, told) = std::sync::mpsc::channel();
    // SAFETY: (1) to (4) memory of this test.
    let mut builder = unsafe { Pool::builder().memory(&[range]) };
    let address = start.as_ptr() as usize;
    for number in 0..3 {
        let tell = tell.clone();
        builder = builder.on_release(move || {
            let start = NonNull::new(address as *mut u8).unwrap();
            tell.send((number, fault_of(start, BYTES))).unwrap();
        });
    }
    let pool = builder.clone().build().unwrap();
    // The builder keeps the hooks back, not the memory.
    drop(pool);
    assert!(told.try_recv().is_err());
    assert_eq!(fault_of(start, BYTES), None);
    let pool = builder.build().unwrap();
    let page = pool.alloc(Order::ZERO).unwrap().into_owned();
    drop(pool);
    assert!(told.try_recv().is_err(), "a page is out");
    drop(page);
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [(0, None), (1, None), (2, None)]);
    // SAFETY: (1) mapped above, and no pool has it.
    assert_eq!(unsafe { libc::munmap(start.as_ptr().cast(), BYTES) }, 0);
}

/// The kernel gives the addresses of a mapping that is gone to the next one.
#[test]
fn addresses_that_a_pool_had_may_be_those_of_the_next_one_once_it_is_gone() {
    let _alone = alone();
    let start = map(BYTES, 0, None).unwrap();
    let again = |bytes: usize| {
        // SAFETY: (1) the mapping of this test: its pages become others.
        assert_eq!(unsafe { libc::munmap(start.as_ptr().cast(), bytes) }, 0);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: (1) where nothing is.
        let got = unsafe { libc::mmap(start.as_ptr().cast(), bytes, access, flags, -1, 0) };
        assert_eq!(got, start.as_ptr().cast());
    };
    for bytes in [BYTES, 4 * MIB, 8 * MIB] {
        let range = MemoryRange { node: 0, start, bytes };
        // SAFETY: (1) to (4) memory of this test.
        let pool = unsafe { Pool::builder().memory(&[range]) }.build().unwrap();
        pool.alloc(Order::ZERO).unwrap()[0] = 1;
        // Behind the pool's back: it is still there, and does not know of it.
        again(bytes);
        assert_eq!(fault_of(start, bytes), Some(MemoryFault::InUse));
        assert_eq!(pool.alloc(Order::ZERO).unwrap()[0], 0);
        drop(pool);
        again(bytes);
        assert_eq!(fault_of(start, bytes), None);
    }
    // SAFETY: (1) mapped above, and no pool has it.
    assert_eq!(unsafe { libc::munmap(start.as_ptr().cast(), BYTES) }, 0);
}

#[test]
fn a_child_that_lets_go_of_its_copy_leaves_the_parents_pool_as_it_is() {
    let _alone = alone();
    let start = map(BYTES, 0, None).unwrap();
    let (pool, released) = pool_over(start, BYTES);
    let mut page = pool.alloc(Order::ZERO).unwrap().into_owned();
    page[0] = 7;
    // SAFETY: (1) the child calls the pool, maps memory, and ends by `exit_now`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let taken = fault_of(start, BYTES) == Some(MemoryFault::InUse);
        page[0] = 8;
        drop(pool);
        let kept = released.load(SeqCst) == 0 && fault_of(start, BYTES).is_some();
        drop(page);
        // The hook has unmapped the child's copy.
        let gone = fault_of(start, BYTES) == Some(MemoryFault::NotMapped);
        let seen = [taken, kept, released.load(SeqCst) == 1, gone, another_pool_works()];
        exit_now(seen.iter().position(|seen| !seen).map_or(0, |at| at as i32 + 1));
    }
    let status = wait_child(child, Duration::from_secs(60)).expect("it ends");
    assert!(libc::WIFEXITED(status), "{status:#x}");
    assert_eq!(libc::WEXITSTATUS(status), 0, "which of the child's looks failed");
    assert_eq!((page[0], released.load(SeqCst)), (7, 0));
    assert_eq!(fault_of(start, BYTES), Some(MemoryFault::InUse));
    drop(page);
    use_all((pool, released));
    assert_eq!(fault_of(start, BYTES), Some(MemoryFault::NotMapped));
}

fn another_pool_works() -> bool {
    let start = map(BYTES, 0, None).unwrap();
    let (pool, released) = pool_over(start, BYTES);
    let works = pool.alloc(Order::MAX).is_ok() && fault_of(start, BYTES).is_some();
    drop(pool);
    works && released.load(SeqCst) == 1
}
