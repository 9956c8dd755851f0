//! What the calls of a thread waited for: for programs that look for their longest ones, with the
//! feature `stalls`.
//!
//! ```text
//!   stalls::watch(true)
//!   stalls::take()              forgets what was before
//!   pool.alloc_pages(...)       slow paths add to the thread's account
//!   let waits = stalls::take()
//! ```
//! Without the feature there is nothing of it in the program. With it, and off, the slow paths of a
//! pool look at one flag; the fast paths do not know of it. While it is on, a hold of a zone lock
//! costs three readings of the clock and one of the thread's switches more.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use zonal_core::platform::Step;
use zonal_core::types::ZoneId;

use crate::sys::{clock, switches};

static WATCHED: AtomicBool = AtomicBool::new(false);

/// What one thread waited for and did in slow paths, of all pools, since the last [`take`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waits {
    /// Until zone locks were free, nanoseconds.
    pub lock_ns: u64,
    /// The longest of these waits.
    pub lock_longest_ns: u64,
    /// Who had the lock while this thread waited, by its number in the system; 0: nobody that is
    /// known of, so the wait was for something else, such as a CPU.
    pub holder: u32,
    /// Pages that the holder moved into or out of the buddy.
    pub holder_pages: u32,
    /// Times a zone lock was taken.
    pub holds: u32,
    /// The longest of these holds, nanoseconds.
    pub hold_longest_ns: u64,
    /// Pages that it moved.
    pub hold_pages: u32,
    /// Pages that went between the buddy and a pcp: by an allocation a refill, by a free a drain.
    pub moved_pages: u32,
    /// Blocks that went between a pcp and a depot.
    pub depot_blocks: u32,
    /// Pcps of other CPUs that were emptied.
    pub remote_drains: u32,
    /// Times another CPU was interrupted for its pcp.
    pub fences: u32,
    /// Until it was, nanoseconds.
    pub fence_ns: u64,
    /// Passes over consumers of memory.
    pub reclaims: u32,
    /// In these, nanoseconds.
    pub reclaim_ns: u64,
    /// Until the background reclaimer or others had freed memory, nanoseconds.
    pub memory_ns: u64,
    /// For a pcp that another thread had closed, or between two tries of a request, nanoseconds.
    pub yield_ns: u64,
}

/// Number of sizes that [`Holds`] tells apart.
pub const SIZES: usize = 40;

/// Holds of zone locks that moved pages between a buddy and a pcp or a caller, of all threads since
/// [`watch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holds {
    /// How many took from `2^n` nanoseconds on, and less than twice that. Of holds in which the
    /// thread kept its CPU.
    pub by_size: [u64; SIZES],
    /// The longest of them, nanoseconds.
    pub longest_ns: u64,
    /// Pages that it moved.
    pub longest_pages: u32,
    /// Most pages that a hold moved, and how long the longest of those holds took is not kept.
    pub most_pages: u32,
    /// Holds in which the thread lost its CPU.
    pub preempted: u64,
}

static BY_SIZE: [AtomicU64; SIZES] = [const { AtomicU64::new(0) }; SIZES];
/// Nanoseconds above 20 bits of pages.
static LONGEST: AtomicU64 = AtomicU64::new(0);
static MOST_PAGES: AtomicU64 = AtomicU64::new(0);
static PREEMPTED: AtomicU64 = AtomicU64::new(0);
const PAGES: u64 = (1 << 20) - 1;

/// Zones of several pools share places, and zones beyond these, too.
const PLACES: usize = 64;
/// The last holder of each zone's lock: its thread above its pages.
static HOLDERS: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];
/// When that one let go of it.
static RELEASED: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

thread_local! {
    static WAITS: Cell<Waits> = const { Cell::new(NOTHING) };
    /// By the zone's place: a thread may hold the locks of several zones at once.
    static HOLDS: [Cell<Hold>; PLACES] = const { [const { Cell::new(Hold::NONE) }; PLACES] };
    static NUMBER: Cell<u32> = const { Cell::new(0) };
}

const NOTHING: Waits = Waits {
    lock_ns: 0,
    lock_longest_ns: 0,
    holder: 0,
    holder_pages: 0,
    holds: 0,
    hold_longest_ns: 0,
    hold_pages: 0,
    moved_pages: 0,
    depot_blocks: 0,
    remote_drains: 0,
    fences: 0,
    fence_ns: 0,
    reclaims: 0,
    reclaim_ns: 0,
    memory_ns: 0,
    yield_ns: 0,
};

/// A hold of a zone lock under way.
#[derive(Clone, Copy)]
struct Hold {
    asked_ns: u64,
    got_ns: u64,
    switches: u64,
}

impl Hold {
    const NONE: Hold = Hold { asked_ns: 0, got_ns: 0, switches: 0 };
}

/// A hold shorter than this was not interrupted for long, whatever the switches say.
const SHORT_NS: u64 = 2000;

/// Begins to watch all threads of the process, or ends it.
pub fn watch(on: bool) {
    if on {
        BY_SIZE.iter().chain([&LONGEST, &MOST_PAGES, &PREEMPTED]).for_each(|n| n.store(0, Relaxed));
    }
    WATCHED.store(on, Relaxed);
}

/// What the calling thread waited for since the last time.
pub fn take() -> Waits {
    WAITS.replace(NOTHING)
}

/// Holds of zone locks since [`watch`].
pub fn holds() -> Holds {
    let longest = LONGEST.load(Relaxed);
    Holds {
        by_size: std::array::from_fn(|at| BY_SIZE[at].load(Relaxed)),
        longest_ns: longest >> 20,
        longest_pages: (longest & PAGES) as u32,
        most_pages: MOST_PAGES.load(Relaxed) as u32,
        preempted: PREEMPTED.load(Relaxed),
    }
}

/// What a thread does for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    Fence,
    Reclaim,
    Memory,
    Yield,
}

/// Time that counts for what is done, until dropped.
pub(crate) struct Span(Option<(Doing, u64)>);

pub(crate) fn span(doing: Doing) -> Span {
    Span(is_on().then(|| (doing, clock::monotonic_ns())))
}

impl Drop for Span {
    fn drop(&mut self) {
        let Some((doing, begun)) = self.0 else { return };
        let took = clock::monotonic_ns().saturating_sub(begun);
        add(|waits| match doing {
            Doing::Fence => {
                (waits.fences, waits.fence_ns) = (waits.fences + 1, waits.fence_ns + took)
            }
            Doing::Reclaim => {
                (waits.reclaims, waits.reclaim_ns) = (waits.reclaims + 1, waits.reclaim_ns + took);
            }
            Doing::Memory => waits.memory_ns += took,
            Doing::Yield => waits.yield_ns += took,
        });
    }
}

#[inline]
fn is_on() -> bool {
    // Relaxed: a thread that sees it late misses a step.
    WATCHED.load(Relaxed)
}

fn add(change: impl FnOnce(&mut Waits)) {
    let mut waits = WAITS.get();
    change(&mut waits);
    WAITS.set(waits);
}

/// A step of the core.
#[inline]
pub(crate) fn step(step: Step) {
    if is_on() {
        count(step);
    }
}

#[cold]
fn count(step: Step) {
    match step {
        Step::ZoneLock(zone) => {
            let (asked_ns, switches) = (clock::monotonic_ns(), switches::switches());
            HOLDS.with(|holds| holds[place_of(zone)].set(Hold { asked_ns, got_ns: 0, switches }));
        }
        Step::ZoneLocked(zone) => locked(zone),
        Step::ZoneUnlock { zone, pages, .. } => unlocked(zone, pages),
        Step::Moved { pages, .. } => add(|waits| waits.moved_pages += pages),
        Step::Depot { blocks, .. } => add(|waits| waits.depot_blocks += blocks),
        Step::DrainRemote(..) => add(|waits| waits.remote_drains += 1),
        _ => {}
    }
}

fn place_of(zone: ZoneId) -> usize {
    zone.0 as usize % PLACES
}

fn locked(zone: ZoneId) {
    let (got_ns, place) = (clock::monotonic_ns(), place_of(zone));
    let hold = HOLDS.with(|holds| {
        let hold = Hold { got_ns, ..holds[place].get() };
        holds[place].set(hold);
        hold
    });
    // Who had let go of it before this thread asked kept nobody waiting.
    let held = RELEASED[place].load(Relaxed) >= hold.asked_ns;
    let before = if held { HOLDERS[place].load(Relaxed) } else { 0 };
    let waited = got_ns.saturating_sub(hold.asked_ns);
    add(|waits| {
        waits.holds += 1;
        waits.lock_ns += waited;
        if waited > waits.lock_longest_ns {
            waits.lock_longest_ns = waited;
            (waits.holder, waits.holder_pages) = ((before >> 32) as u32, before as u32);
        }
    });
}

fn unlocked(zone: ZoneId, pages: u32) {
    let (now, place) = (clock::monotonic_ns(), place_of(zone));
    let hold = HOLDS.with(|holds| holds[place].get());
    let took = now.saturating_sub(hold.got_ns);
    HOLDERS[place].store(u64::from(number()) << 32 | u64::from(pages), Relaxed);
    RELEASED[place].store(now, Relaxed);
    add(|waits| {
        if took > waits.hold_longest_ns {
            (waits.hold_longest_ns, waits.hold_pages) = (took, pages);
        }
    });
    if pages == 0 {
        return;
    }
    if took > SHORT_NS && switches::switches() != hold.switches {
        PREEMPTED.fetch_add(1, Relaxed);
        return;
    }
    BY_SIZE[(took.max(1).ilog2() as usize).min(SIZES - 1)].fetch_add(1, Relaxed);
    LONGEST.fetch_max(took << 20 | u64::from(pages).min(PAGES), Relaxed);
    MOST_PAGES.fetch_max(u64::from(pages), Relaxed);
}

/// The thread's number in the system, as in `/proc/self/task`.
fn number() -> u32 {
    if NUMBER.get() == 0 {
        NUMBER.set(switches::thread());
    }
    NUMBER.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_two_locks_has_two_holds_and_only_who_kept_others_waiting_is_named() {
        take();
        let lock = |zone| count(Step::ZoneLock(ZoneId(zone)));
        let (outer, inner) = (60, 61);
        lock(outer);
        locked(ZoneId(outer));
        std::thread::sleep(std::time::Duration::from_millis(2));
        lock(inner);
        locked(ZoneId(inner));
        unlocked(ZoneId(inner), 3);
        assert!(take().hold_longest_ns < 2_000_000, "the inner one alone");
        unlocked(ZoneId(outer), 5);
        let waits = take();
        assert!(waits.hold_longest_ns >= 2_000_000 && waits.hold_pages == 5, "{waits:?}");
        // It is free now: whoever takes it, however late, waits for nobody.
        lock(outer);
        std::thread::sleep(std::time::Duration::from_millis(1));
        locked(ZoneId(outer));
        assert_eq!(take().holder, 0);
        // Another one asks meanwhile.
        let (asked, let_go) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                lock(outer);
                asked.wait();
                let_go.wait();
                locked(ZoneId(outer));
                take()
            });
            asked.wait();
            unlocked(ZoneId(outer), 7);
            let_go.wait();
            let waits = other.join().unwrap();
            assert_eq!((waits.holder, waits.holder_pages), (number(), 7));
        });
    }
}
