//! Forks while other threads use the pool at full speed: parent and child must both go on, with
//! every page accounted for.
//!
//! The child reports through its exit code and prints nothing: another thread may have held the
//! lock of stderr when it was made.

mod support;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use support::{Rng, Watchdog, exit_now, free, order, pool, pool_with, run_child, soon, wait_child};
use zonal::reclaim::{Holdings, PageLru, Pass, Shrunk, Unit};
use zonal::{FailAlloc, Gfp, Order, PAGE_SIZE, Policy, Pool, Sysctl};
use zonal_core::zone::watermark::Watermark;

const MIB: usize = 1 << 20;
const FORKS: u32 = 24;
/// A child that takes longer hangs.
const CHILD_LIMIT: Duration = Duration::from_secs(180);

/// How long a child waits for its refresh thread to put down what it moves.
const SETTLING_MS: u32 = 60_000;

// What a child found wrong.
const EXIT_REFUSED: i32 = 10;
const EXIT_FREE: i32 = 11;
const EXIT_INVALID: i32 = 12;
const EXIT_LOST: i32 = 13;
const EXIT_WORKER: i32 = 14;
const EXIT_FIRST: i32 = 15;
const EXIT_ASKED: i32 = 16;

/// Uses all ways into the pool until told to stop.
fn worker(pool: &Pool, stop: &AtomicBool, seed: u64) {
    let mut rng = Rng::new(seed);
    let mut held = Vec::new();
    let mut pages = [std::ptr::null_mut(); 64];
    while !stop.load(Relaxed) {
        match rng.below(8) {
            0..=2 => {
                let o = order((rng.next() as u32 | 1 << 10).trailing_zeros());
                held.extend(pool.alloc_pages(o, Gfp::KERNEL).map(|b| (b.as_ptr() as usize, o)));
            }
            3 | 4 if !held.is_empty() => {
                let (block, o) = held.swap_remove(rng.below(held.len()));
                free(pool, block, o).unwrap();
            }
            5 => {
                let got = pool.alloc_bulk(Gfp::KERNEL, &mut pages).unwrap_or(0);
                // SAFETY: (1) the pages are ours and not used.
                unsafe { pool.free_bulk(&pages[..got], Order::ZERO) }.unwrap();
            }
            6 if rng.below(64) == 0 => drop(pool.drain_all()),
            _ => {
                for _ in 0..200 {
                    drop(pool.alloc(Order::ZERO));
                }
            }
        }
        if held.len() > 200 {
            held.drain(50..).for_each(|(block, o)| free(pool, block, o).unwrap());
        }
    }
    held.into_iter().for_each(|(block, o)| free(pool, block, o).unwrap());
}

/// Pages that a child never gets: what the parent's threads owned, and what they had on the way to
/// or from a list.
fn handed_out(pool: &Pool) -> u64 {
    let owned = pool.view().blocks().map(|(_, o)| o.pages()).sum::<u64>();
    owned + pool.held().elsewhere / PAGE_SIZE as u64
}

/// A child whose own threads use the pool while it validates, again and again. What the walk finds
/// then may be anything; it must change nothing.
fn child_with_threads(pool: Box<Pool>) -> i32 {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 1..3 {
            let (pool, stop) = (&*pool, &stop);
            scope.spawn(move || worker(pool, stop, seed));
        }
        for _ in 0..20 {
            let _ = pool.validate();
        }
        stop.store(true, Relaxed);
    });
    if pool.validate().is_err() {
        return EXIT_INVALID;
    }
    pool.drain_all();
    if pool.validate().is_err() {
        return EXIT_INVALID;
    }
    let expected = (pool.bytes() / PAGE_SIZE) as u64 - handed_out(&pool);
    match pool.free_page_count() == expected && pool.misuses() == 0 {
        true => 0,
        false => EXIT_LOST,
    }
}

/// The life of a child. It owns the pool: the parent's is another.
fn child(pool: Box<Pool>, number: u32) -> i32 {
    if pool.validate().is_err() {
        return EXIT_FIRST;
    }
    let start = handed_out(&pool);
    if number & 1 == 1 && pool.restart_worker(Duration::from_millis(1), 0).is_err() {
        return EXIT_WORKER;
    }
    for round in 0..200 {
        let o = order(round % 11);
        let Ok(block) = pool.alloc_pages(o, Gfp::KERNEL) else { return EXIT_REFUSED };
        if free(&pool, block.as_ptr() as usize, o).is_err() {
            return EXIT_FREE;
        }
    }
    pool.drain_all();
    if pool.validate().is_err() {
        return EXIT_INVALID;
    }
    let mut got = Vec::new();
    while let Ok(page) = pool.alloc_pages(Order::ZERO, Gfp::KERNEL) {
        got.push(page.as_ptr() as usize);
    }
    // What the parent's threads had stays theirs; all else but the reserve is there.
    let expected = (pool.bytes() / PAGE_SIZE) as u64 - start;
    let reserve = pool.view().zones().map(|zone| zone.watermarks().min).sum::<u64>();
    if got.len() as u64 + reserve + 1 < expected {
        return EXIT_LOST;
    }
    if got.into_iter().any(|page| free(&pool, page, Order::ZERO).is_err()) {
        return EXIT_FREE;
    }
    // A refresh thread that is moving pages has them in its hands for a moment.
    let counted = (0..SETTLING_MS).any(|_| {
        let all = pool.free_page_count() == expected;
        if !all {
            std::thread::sleep(Duration::from_millis(1));
        }
        all
    });
    if pool.validate().is_err() || !counted {
        return EXIT_INVALID;
    }
    drop(pool);
    0
}

#[test]
fn parent_and_child_go_on_after_a_fork_under_fire() {
    let _watchdog = Watchdog::new("the forks", Duration::from_secs(600));
    let failing = Pool::builder().size(64 * MIB).fail_alloc(FailAlloc::never());
    for pool in [pool(64 * MIB, true), pool(64 * MIB, false), failing.build().unwrap()] {
        let pool = Box::new(pool);
        pool.restart_worker(Duration::from_millis(2), 0).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for seed in 1..4 {
                let (pool, stop) = (&*pool, &stop);
                scope.spawn(move || worker(pool, stop, seed));
            }
            let codes: Vec<_> = (0..FORKS / 2).map(|number| fork_once(&pool, number)).collect();
            stop.store(true, Relaxed);
            let good = Some((true, 0));
            let bad: Vec<_> = codes.iter().enumerate().filter(|(_, code)| **code != good).collect();
            assert!(bad.is_empty(), "children: hung (None), or killed, or exit codes: {bad:?}");
        });
        pool.drain_all();
        pool.validate().unwrap();
        let whole = || pool.free_page_count() as usize * PAGE_SIZE == pool.bytes();
        assert!(soon(whole), "{} of {}", pool.free_page_count(), pool.bytes() / PAGE_SIZE);
    }
}

/// Whether the child ended by itself, and its exit code; `None` if it hung.
fn fork_once(pool: &Pool, number: u32) -> Option<(bool, i32)> {
    std::thread::sleep(Duration::from_micros(500 + 700 * u64::from(number % 5)));
    // SAFETY: (1) the child uses the pool, which is made for it, the heap, which libc keeps usable,
    // and no lock that another thread may have held.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        // SAFETY: (1) in this process nobody else uses the pool, and nobody will: it ends here.
        let pool = unsafe { Box::from_raw(std::ptr::from_ref(pool).cast_mut()) };
        exit_now(match number % 4 {
            3 => child_with_threads(pool),
            _ => child(pool, number),
        });
    }
    let status = wait_child(pid, CHILD_LIMIT)?;
    Some((libc::WIFEXITED(status), libc::WEXITSTATUS(status)))
}

/// RANGE-5: blocks become ranges and smaller blocks all the time; wherever a fork meets that, each
/// page is in one block in the child.
#[test]
fn a_child_finds_each_page_in_one_block_while_blocks_come_apart() {
    let _watchdog = Watchdog::new("the forks", Duration::from_secs(300));
    for policy in [Policy::ZONAL, Policy::OWNED_2026] {
        forks_while_blocks_come_apart(&pool_with(16 * MIB, true, policy));
    }
}

fn forks_while_blocks_come_apart(pool: &Pool) {
    let (stop, rounds) = (&AtomicBool::new(false), &AtomicU32::new(0));
    let cuts: [fn(&Pool); 3] = [
        |pool| drop(pool.alloc(Order::ZERO)),
        |pool| drop(pool.alloc(Order::MAX).map(|block| block.split(Order::ZERO).unwrap())),
        |pool| drop([3, 7, 600].map(|pages| pool.ranges().alloc(pages).unwrap())),
    ];
    std::thread::scope(|scope| {
        for cut in cuts {
            scope.spawn(move || {
                while !stop.load(Relaxed) {
                    cut(pool);
                    rounds.fetch_add(1, Relaxed);
                }
            });
        }
        let child = |number: u32| {
            let before = rounds.load(Relaxed);
            assert!(soon(|| rounds.load(Relaxed) > before + number % 3), "the threads stand still");
            // SAFETY: (1) as in `fork_once`.
            let pid = unsafe { libc::fork() };
            assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
            if pid == 0 {
                let whole = handed_out(pool) + pool.free_page_count();
                let bad = if pool.validate().is_err() { EXIT_FIRST } else { EXIT_LOST };
                let good = bad == EXIT_LOST && whole <= (pool.bytes() / PAGE_SIZE) as u64;
                exit_now(if good { 0 } else { bad });
            }
            (number, wait_child(pid, CHILD_LIMIT))
        };
        let bad: Vec<_> = (0..80).map(child).filter(|(_, code)| *code != Some(0)).collect();
        stop.store(true, Relaxed);
        assert!(bad.is_empty(), "forks and what their children ended with; None: hung: {bad:x?}");
    });
}

/// The least that a zone keeps free.
fn min_watermark(pool: &Pool) -> u64 {
    pool.view().zones().map(|zone| zone.watermarks().of(Watermark::Min)).sum()
}

/// A thread of the parent that computes limits is not there in the child: its sysctls were taken
/// and had no effect, for ever, and whoever waited for limits hung.
#[test]
fn a_child_computes_limits_wherever_its_parent_was_with_them() {
    let _watchdog = Watchdog::new("the forks", Duration::from_secs(300));
    let pool = pool(16 * MIB, true);
    let stop = AtomicBool::new(false);
    let set = |kbytes| pool.set(Sysctl::MinFreeKbytes, kbytes).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for kbytes in (512..).step_by(64).take_while(|_| !stop.load(Relaxed)) {
                set(512 + kbytes % 2048);
            }
        });
        let child = |number: u32| {
            std::thread::sleep(Duration::from_micros(100 + 37 * u64::from(number % 16)));
            // SAFETY: (1) as in `fork_once`.
            let pid = unsafe { libc::fork() };
            assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
            if pid == 0 {
                let marks = [512, 4096, 1024].map(|kbytes| {
                    set(kbytes);
                    min_watermark(&pool)
                });
                let good = marks == [128, 1024, 256] && pool.validate().is_ok();
                exit_now(if good { 0 } else { EXIT_INVALID });
            }
            (number, wait_child(pid, CHILD_LIMIT))
        };
        let bad: Vec<_> = (0..60).map(child).filter(|(_, code)| *code != Some(0)).collect();
        stop.store(true, Relaxed);
        assert!(bad.is_empty(), "forks and what their children ended with; None: hung: {bad:x?}");
    });
}

/// A cache that gives up all it has, once it is willing.
struct Cache {
    pool: Pool,
    pages: Mutex<Vec<usize>>,
    willing: AtomicBool,
}

impl PageLru for Cache {
    fn name(&self) -> &str {
        "a parent's cache"
    }
    fn holdings(&self, _unit: Unit) -> Holdings {
        if !self.willing.load(Relaxed) {
            return Holdings::default();
        }
        let pages = self.pages.lock().unwrap().len() as u64;
        Holdings { file: pages, inactive_file: pages, ..Holdings::default() }
    }
    fn shrink_inactive(&self, pages: u64, _pass: &Pass) -> Shrunk {
        let mut held = self.pages.lock().unwrap();
        let keep = held.len() - (pages as usize).min(held.len());
        let going = held.split_off(keep);
        let reclaimed = going.len() as u64;
        going.into_iter().for_each(|page| free(&self.pool, page, Order::ZERO).unwrap());
        Shrunk { scanned: reclaimed, reclaimed, slab: 0 }
    }
    fn shrink_active(&self, _pages: u64, _pass: &Pass) -> u64 {
        0
    }
}

/// The pool is full of the cache's pages. Nobody asks for them before the child says so.
fn child_with_a_cache(cache: &Cache) -> i32 {
    let pool = &cache.pool;
    cache.willing.store(true, Relaxed);
    if pool.alloc_pages(Order::ZERO, Gfp::KERNEL).is_ok() {
        return EXIT_ASKED;
    }
    if pool.restart_reclaim().is_err() || !pool.reclaims_in_background() {
        return EXIT_WORKER;
    }
    if pool.alloc_pages(Order::ZERO, Gfp::KERNEL).is_err() {
        return EXIT_REFUSED;
    }
    0
}

#[test]
fn a_child_asks_its_parents_caches_once_it_says_that_they_are_whole() {
    let _watchdog = Watchdog::new("the fork", Duration::from_secs(300));
    let pool = Pool::builder().size(8 * MIB).build().unwrap();
    let cache = Cache { pool, pages: Mutex::default(), willing: AtomicBool::new(false) };
    let cache = Arc::new(cache);
    let get = || cache.pool.alloc_pages(Order::ZERO, Gfp::KERNEL).ok();
    let pages = std::iter::from_fn(get).map(|page| page.as_ptr() as usize).collect();
    *cache.pages.lock().unwrap() = pages;
    let registered = cache.pool.register_lru(cache.clone());
    // SAFETY: (1) as in `fork_once`; the cache's lock is not held: the background reclaimer does
    // not ask it for pages while it says that it has none.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        exit_now(child_with_a_cache(&cache));
    }
    let status = wait_child(pid, CHILD_LIMIT).expect("the child hung");
    assert!(libc::WIFEXITED(status));
    assert_eq!(libc::WEXITSTATUS(status), 0, "see the exit codes above");
    drop(registered);
}

/// Says to the other process that it is to end with forks.
const ENDS: &str = "ZONAL_FORK_AT_THE_END";
static POOL: OnceLock<Pool> = OnceLock::new();
/// Forks that went well, in threads and in `atexit`.
static FORKED: AtomicU32 = AtomicU32::new(0);

/// Forks when its thread ends.
struct ForksAtTheEnd;

impl Drop for ForksAtTheEnd {
    fn drop(&mut self) {
        fork_at_the_end();
    }
}

thread_local! {
    static EARLY: ForksAtTheEnd = const { ForksAtTheEnd };
    static LATE: ForksAtTheEnd = const { ForksAtTheEnd };
}

/// Parent and child use the pool after the fork.
fn fork_at_the_end() {
    let pool = POOL.get().expect("made before");
    let works = || pool.alloc(Order::ZERO).is_ok() && pool.held().total() > 0;
    // SAFETY: (1) as in `fork_once`.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let restarts = || pool.restart_worker(Duration::from_millis(1), 0).is_ok();
        exit_now(i32::from(!(works() && pool.validate().is_ok() && restarts())));
    }
    if works() && wait_child(pid, CHILD_LIMIT) == Some(0) {
        FORKED.fetch_add(1, Relaxed);
    }
}

/// The last thing that the other process does.
extern "C" fn last() {
    fork_at_the_end();
    exit_now(FORKED.load(Relaxed) as i32);
}

/// The other process. Without the variable it is no test.
#[test]
fn process_that_ends_with_forks() {
    if std::env::var_os(ENDS).is_none() {
        return;
    }
    POOL.get_or_init(|| pool(8 * MIB, true));
    let life = || {
        EARLY.with(|_| ());
        fork_at_the_end();
        LATE.with(|_| ());
    };
    std::thread::spawn(life).join().unwrap();
    // SAFETY: (1) the handler is a plain function that lives as long as the program.
    assert_eq!(unsafe { libc::atexit(last) }, 0);
    std::process::exit(100);
}

/// One fork in the thread, two in destructors of its values, one in `atexit`.
#[test]
fn destructors_of_threads_and_handlers_at_exit_may_fork() {
    assert_eq!(run_child("process_that_ends_with_forks", ENDS, "1"), Some(4));
}
