//! The end of a pool's last handle, while others free pages of it and one's range grows, under
//! every interleaving (LIFE-1, LIFE-2): the very file of the library, `pool/life/entries.rs`,
//! compiled a second time with loom's types.
//!
//! The pool's memory is a loom cell: an access that is not ordered before its end is reported. What
//! is never freed, or freed while a page is out, fails an assertion.

/// Stands for the library's module of that name.
mod sync {
    pub use loom::sync::atomic::{AtomicUsize, Ordering};
    pub use loom::sync::{Mutex, MutexGuard};
    pub use loom::thread::yield_now;
}

#[path = "../src/pool/life/entries.rs"]
#[allow(dead_code, unreachable_pub, reason = "the library uses all of it")]
mod entries;
mod support;

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use entries::Entries;
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex};
use support::interleavings::{self, is_found};

/// What is left out, or done otherwise.
const SOUND: u32 = 0;
/// A free touches the pool behind its subtraction.
const TOUCHES_BEHIND: u32 = 1;
/// The last handle counts without keeping frees out.
const COUNTS_AT_ONCE: u32 = 2;
/// A free of an orphan does not subtract.
const DOES_NOT_SUBTRACT: u32 = 3;
/// A range that grows in an orphan is not added.
const GROWS_UNSEEN: u32 = 4;

/// The pool of the model: as many handed-out pages, and what its memory is.
struct Pool {
    entries: Entries<Keep>,
    handed_out: Mutex<u64>,
    memory: UnsafeCell<()>,
    /// How often the memory was unmapped.
    ends: AtomicU32,
}

/// What the pool goes with. The model's memory of the pool itself stays, for loom to look at.
struct Keep(Arc<Pool>);

impl Drop for Keep {
    fn drop(&mut self) {
        self.0.memory.with_mut(|_| ());
        self.0.ends.fetch_add(1, SeqCst);
        assert_eq!(*self.0.handed_out.lock().unwrap(), 0, "a page is out");
    }
}

impl Pool {
    /// Pages of an owner come back (`-1`) or are added (`1`), as `life::visit` does it.
    fn visit(&self, pages: i64, canary: u32) {
        let work = || {
            self.memory.with(|_| ());
            let mut handed_out = self.handed_out.lock().unwrap();
            *handed_out = handed_out.checked_add_signed(pages).expect("freed twice");
        };
        if self.entries.enter() {
            work();
            // SAFETY: (1) alive: this thread is inside.
            unsafe { Entries::leave(&raw const self.entries) };
            if canary == TOUCHES_BEHIND {
                self.memory.with(|_| ());
            }
            return;
        }
        let mut orphan = self.entries.lock();
        work();
        let unseen =
            (pages < 0 && canary == DOES_NOT_SUBTRACT) || (pages > 0 && canary == GROWS_UNSEEN);
        let last = if unseen { None } else { orphan.moved(pages) };
        drop(orphan);
        drop(last);
    }

    /// The last handle goes, as in `life::orphan`.
    fn let_go(this: &Arc<Pool>, canary: u32) {
        let handle = Keep(Arc::clone(this));
        if canary == COUNTS_AT_ONCE {
            let pages = *this.handed_out.lock().unwrap();
            let mut orphan = this.entries.close();
            if pages > 0 {
                orphan.keep(handle, pages);
            }
            return;
        }
        let mut orphan = this.entries.close();
        let pages = *this.handed_out.lock().unwrap();
        if pages > 0 {
            orphan.keep(handle, pages);
        } else {
            drop(orphan);
            drop(handle);
        }
    }
}

/// One thread frees a page; another's range grows and is then freed; the last handle goes.
fn scene(canary: u32) {
    let pool = Arc::new(Pool {
        entries: Entries::new(),
        handed_out: Mutex::new(2),
        memory: UnsafeCell::new(()),
        ends: AtomicU32::new(0),
    });
    let threads = [false, true].map(|grows| {
        let pool = Arc::clone(&pool);
        loom::thread::spawn(move || {
            if grows {
                pool.visit(1, canary);
                pool.visit(-2, canary);
            } else {
                pool.visit(-1, canary);
            }
        })
    });
    Pool::let_go(&pool, canary);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(pool.ends.load(SeqCst), 1, "the pool goes once");
}

#[test]
fn a_pool_goes_with_its_last_page_and_not_before() {
    let seen = interleavings::explore(Some(3), || scene(SOUND));
    assert!(seen > 100, "{seen} interleavings");
}

#[test]
fn what_is_left_out_is_found() {
    assert!(is_found(TOUCHES_BEHIND), "the memory is gone by then");
    assert!(is_found(COUNTS_AT_ONCE), "a page that comes back meanwhile is counted for ever");
    assert!(is_found(DOES_NOT_SUBTRACT), "the pool stays for ever");
    assert!(is_found(GROWS_UNSEEN), "the pool goes with a page out");
}

#[test]
fn model_of_the_child() {
    let Some(canary) = interleavings::canary() else { return };
    let canary = canary.parse().unwrap();
    interleavings::explore(Some(3), move || scene(canary));
}
