//! Wrong frees at the same moment: several threads free the same blocks, each in a way of its own,
//! while another empties the lists. Of each block one free may be told that it was its, and in the
//! end no page has two owners and none has none.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, Ordering::Relaxed};
use std::time::Duration;

use zonal::{Gfp, Mode, OnMisuse, Order, OwnedPages, OwnedRange, PageRange, Pages, Policy, Pool};

use super::{Owners, Rng, order};

/// Blocks of each kind in a round: single pages, blocks, ranges.
const SINGLES: usize = 250;
const BLOCKS: usize = 6;
const RANGES: usize = 6;
/// Rounds between two looks at every page of the pool.
const LOOK: u32 = 64;

/// What is freed.
#[derive(Clone, Copy)]
enum What {
    Block(Order),
    Range(usize),
}

/// Somebody's pages.
#[derive(Clone, Copy)]
struct Taken {
    start: NonNull<u8>,
    what: What,
}

// SAFETY: (1) an address, which the threads pass to the pool and do not follow.
unsafe impl Send for Taken {}
// SAFETY: (1) as for `Send`.
unsafe impl Sync for Taken {}

/// What was done.
#[derive(Clone, Copy, Default)]
pub struct Raced {
    /// Blocks that were freed by several threads at once.
    pub blocks: u64,
    /// Frees that were told to have freed one of them: as many, where no sequence runs.
    pub freed: u64,
    /// Frees of them that were tried.
    pub frees: u64,
    /// ... and refused.
    pub refused: u64,
    /// Copies of a page that sequences left on two lists, found and dropped (PCP-3).
    pub strays: u64,
}

impl Raced {
    /// Adds another's.
    pub fn add(&mut self, other: &Raced) {
        self.blocks += other.blocks;
        self.freed += other.freed;
        self.frees += other.frees;
        self.refused += other.refused;
        self.strays += other.strays;
    }
}

impl fmt::Display for Raced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Raced { blocks, frees, refused, strays, .. } = self;
        write!(f, "{blocks} blocks freed {frees} times, {refused} refused, {strays} strays")
    }
}

/// A pool that counts frees which fail in a drop.
pub fn pool(bytes: usize, rseq: bool, policy: Policy) -> Pool {
    let builder = Pool::builder().size(bytes).rseq(rseq).policy(policy).refresh_every(None);
    builder
        .on_misuse(OnMisuse::Call(Arc::new(|_| {})))
        .build()
        .expect("the system gives memory for the pool")
}

/// Threads that free the same blocks, for `rounds` rounds.
pub fn raced_frees(pool: &Pool, threads: usize, rounds: u32, seed: u64) -> Raced {
    let has_sequences = *pool.mode() == Mode::Rseq;
    let mut sum = Raced::default();
    let mut rng = Rng::new(seed);
    for round in 0..rounds {
        let taken = take(pool, &mut rng);
        let (mut freed, frees) = race(pool, threads, &taken, rng.next());
        // What a bulk free did not come to, since it stops at the first refusal.
        freed += taken.iter().filter(|taken| is_freed(pool, taken, 0)).count() as u64;
        sum.blocks += taken.len() as u64;
        sum.freed += freed;
        sum.frees += frees;
        sum.refused += frees.saturating_sub(freed);
        // Two sequences may both be told that a page was theirs: the copies are told apart later.
        if !has_sequences {
            assert_eq!(freed, taken.len() as u64, "round {round} of seed {seed}: frees that count");
        }
        if (round + 1) % LOOK == 0 || round + 1 == rounds {
            look(pool, round);
        }
    }
    sum.strays = strays(pool);
    if !has_sequences {
        assert_eq!(sum.strays, 0, "a page was on two lists");
    }
    sum
}

fn strays(pool: &Pool) -> u64 {
    pool.zone_stats().map(|zone| zone.double_frees).sum()
}

fn take(pool: &Pool, rng: &mut Rng) -> Vec<Taken> {
    let mut taken = Vec::new();
    let mut push = |start: *mut u8, what| {
        taken.push(Taken { start: NonNull::new(start).expect("no page is at 0"), what });
    };
    let mut pages = [std::ptr::null_mut(); SINGLES];
    let got = pool.alloc_bulk(Gfp::KERNEL, &mut pages).expect("there are pages");
    pages[..got].iter().for_each(|page| push(*page, What::Block(Order::ZERO)));
    for _ in 0..BLOCKS {
        let order = order(rng.below(5) as u32);
        let (start, order) = pool.alloc(order).expect("there are blocks").into_raw();
        push(start.as_ptr(), What::Block(order));
    }
    for _ in 0..RANGES {
        let range = pool.ranges().alloc(1 + rng.below(9)).expect("there are ranges");
        let (start, pages) = range.into_raw();
        push(start.as_ptr(), What::Range(pages));
    }
    taken
}

/// All threads free all of `taken` at once. Returns the frees that count, and those tried.
fn race(pool: &Pool, threads: usize, taken: &[Taken], seed: u64) -> (u64, u64) {
    let (freed, tried) = (&AtomicU64::new(0), &AtomicU64::new(0));
    let (stop, ready) = (&AtomicBool::new(false), &AtomicUsize::new(0));
    let misuses = pool.misuses();
    std::thread::scope(|scope| {
        let drainer = scope.spawn(move || {
            while !stop.load(Relaxed) {
                pool.drain_all();
                std::thread::sleep(Duration::from_micros(20));
            }
        });
        let racers: Vec<_> = (0..threads as u64)
            .map(|me| {
                scope.spawn(move || {
                    let mut rng = Rng::new(seed ^ me << 32);
                    // Not a barrier, whose threads wake one after the other.
                    ready.fetch_add(1, Ordering::SeqCst);
                    for turn in 1_u32.. {
                        if ready.load(Ordering::SeqCst) == threads {
                            break;
                        }
                        if turn % 1024 == 0 {
                            std::thread::yield_now();
                        }
                    }
                    let (mut ok, mut all) = (0, 0);
                    let backwards = rng.below(2) == 0;
                    // Beside sequences a bulk free looks and stores: such races are not promised.
                    if me % 2 == 0 && *pool.mode() != Mode::Rseq {
                        (ok, all) = bulk(pool, taken, backwards);
                    }
                    // Who begins at one end meets who begins at the other.
                    let way = rng.below(12);
                    for at in 0..taken.len() {
                        let at = if backwards { taken.len() - 1 - at } else { at };
                        let way = if way < 6 { way } else { rng.below(6) };
                        ok += u64::from(is_freed(pool, &taken[at], way));
                        all += 1;
                    }
                    freed.fetch_add(ok, Relaxed);
                    tried.fetch_add(all, Relaxed);
                })
            })
            .collect();
        racers.into_iter().for_each(|racer| racer.join().expect("no racer panics"));
        stop.store(true, Relaxed);
        drainer.join().expect("the drainer does not panic");
    });
    let in_drops = pool.misuses() - misuses;
    (freed.load(Relaxed) - in_drops, tried.load(Relaxed))
}

/// A bulk free of all single pages. How many it freed, and of how many it told.
fn bulk(pool: &Pool, taken: &[Taken], backwards: bool) -> (u64, u64) {
    let singles = taken.iter().filter(|taken| matches!(taken.what, What::Block(Order::ZERO)));
    let mut pages: Vec<_> = singles.map(|taken| taken.start.as_ptr()).collect();
    if backwards {
        pages.reverse();
    }
    // SAFETY: (1) nobody uses the pages' memory. Not kept, which is what is tested: that nobody
    // else frees them.
    match unsafe { pool.free_bulk(&pages, Order::ZERO) } {
        Ok(()) => (pages.len() as u64, pages.len() as u64),
        Err((freed, _)) => (freed as u64, freed as u64 + 1),
    }
}

/// Frees one block in a way. A drop says nothing here: it counts as one that freed, and the pool
/// counts those that did not.
fn is_freed(pool: &Pool, taken: &Taken, way: usize) -> bool {
    let Taken { start, what } = *taken;
    let raw = |order: Order| {
        // SAFETY: (1) as in `bulk`.
        unsafe { pool.free_pages(start, order) }.is_ok()
    };
    let row = |pages: usize| {
        // SAFETY: (1) as in `bulk`.
        unsafe { pool.ranges().free_raw(start, pages) }.is_ok()
    };
    match (what, way) {
        (What::Block(order), 0 | 1) => return raw(order),
        (What::Block(order), 2) => {
            // SAFETY: (1) as in `bulk`.
            return unsafe { pool.try_free_cached(start, order) } || raw(order);
        }
        // SAFETY: (1) and (2) not kept, which is what is tested; used by nobody before the drop.
        (What::Block(order), 3) => drop(unsafe { Pages::from_raw(pool, start, order) }),
        // SAFETY: (1) and (2) as above.
        (What::Block(order), 4) => drop(unsafe { OwnedPages::from_raw(pool, start, order) }),
        (What::Block(order), _) => return row(order.pages() as usize),
        // SAFETY: (1) and (2) as above.
        (What::Range(pages), 3) => drop(unsafe { PageRange::from_raw(pool, start, pages) }),
        // SAFETY: (1) and (2) as above.
        (What::Range(pages), 4) => drop(unsafe { OwnedRange::from_raw(pool, start, pages) }),
        (What::Range(pages), _) => return row(pages),
    }
    true
}

/// Takes every page that is free, signs it, and gives it back: each has one owner.
fn look(pool: &Pool, round: u32) {
    let owners = Owners::new(pool);
    let everything = Gfp::KERNEL | Gfp::MEMALLOC;
    let mut all = Vec::new();
    while let Ok(page) = pool.alloc_pages(Order::ZERO, everything) {
        owners.claim(page.as_ptr() as usize, Order::ZERO, 1);
        all.push(page);
        assert_eq!(owners.errors(), 0, "a page has two owners, round {round}");
    }
    assert_eq!(all.len() * zonal::PAGE_SIZE, pool.bytes(), "pages of no owner, round {round}");
    for page in all {
        owners.release(page.as_ptr() as usize, Order::ZERO, 1);
        super::free(pool, page.as_ptr() as usize, Order::ZERO).expect("it is ours");
    }
    pool.drain_all();
    pool.validate().expect("every counter agrees");
}
