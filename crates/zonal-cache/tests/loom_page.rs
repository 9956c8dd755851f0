//! A page's state word under every interleaving: the very files of the crate, `state.rs` and
//! `lock.rs`, compiled a second time with loom's types in place of the machine's.
//!
//! A loom cell stands for the page's bytes: two threads that may change it at once, or one that
//! reads while another changes, are reported by loom. A lost wake-up is a deadlock, which it
//! reports too. The canaries break a rule and must be found: else the model proves nothing.

/// Stands for the crate's `sync`.
mod sync {
    pub use loom::sync::atomic::{AtomicU32, Ordering};
    pub use loom::sync::{Condvar, Mutex};
}
#[path = "../src/lock.rs"]
#[allow(dead_code, reason = "the crate uses all of it")]
mod lock;
#[path = "../src/state.rs"]
#[allow(dead_code, reason = "the crate uses all of it")]
mod state;

use std::process::{Command, Stdio};

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use lock::{Queue, Until, begin_writeback, change, peek, try_change, wait};
use state::PageState;

/// A page that is up to date, and used by nobody.
const IDLE: PageState = PageState::OWNED.with(PageState::UPTODATE);

struct Page {
    word: AtomicU32,
    queue: Queue,
    bytes: UnsafeCell<u32>,
    /// What the store holds.
    store: UnsafeCell<u32>,
    /// The page's number in its engine's log.
    lsn: UnsafeCell<u32>,
}

impl Page {
    fn new(state: PageState) -> Arc<Page> {
        Arc::new(Page {
            word: AtomicU32::new(state.0),
            queue: Queue::default(),
            bytes: UnsafeCell::new(0),
            store: UnsafeCell::new(0),
            lsn: UnsafeCell::new(0),
        })
    }

    /// The page for oneself; `false` if it is the cache's no more.
    fn exclude(&self) -> bool {
        loop {
            match try_change(&self.word, PageState::exclude) {
                Ok(_) => return true,
                Err(state) if !state.has(PageState::OWNED) => return false,
                Err(_) => wait(&self.word, &self.queue, Until::Unused),
            }
        }
    }

    fn share(&self) -> bool {
        loop {
            match try_change(&self.word, PageState::share) {
                Ok(_) => return true,
                Err(state) if !state.has(PageState::OWNED) => return false,
                Err(_) => wait(&self.word, &self.queue, Until::Shareable),
            }
        }
    }

    fn unshare(&self) {
        change(&self.word, || self.queue.wake(), PageState::unshare);
    }
    fn unlock(&self) {
        change(&self.word, || self.queue.wake(), PageState::unlock);
    }

    fn read(&self) -> u32 {
        // SAFETY: (1) loom checks that nobody changes it meanwhile; that is what is tested.
        self.bytes.with(|bytes| unsafe { *bytes })
    }
    fn add(&self) {
        // SAFETY: (1) as for `read`.
        self.bytes.with_mut(|bytes| unsafe { *bytes += 1 });
    }
    /// A change that the log has as `lsn`.
    fn log_and_add(&self, lsn: u32) {
        self.add();
        // SAFETY: (1) as for `read`.
        self.lsn.with_mut(|of| unsafe { *of = lsn });
        change(&self.word, || self.queue.wake(), |state| state.with(PageState::DIRTY));
    }
    /// What write-back does to a page that must wait for its log.
    fn write_back_logged(&self, log: &AtomicU32) {
        if try_change(&self.word, PageState::begin_writeback).is_ok() {
            // SAFETY: (1) as for `read`.
            let lsn = self.lsn.with(|of| unsafe { *of });
            log.fetch_max(lsn, Ordering::AcqRel);
            let bytes = self.read();
            assert!(bytes <= log.load(Ordering::Acquire), "the page passes its log");
            // SAFETY: (1) as for `write_back`.
            self.store.with_mut(|store| unsafe { *store = bytes });
            // SAFETY: (1) the only writer, and no other right may change it (STATE-3).
            self.lsn.with_mut(|of| unsafe { *of = 0 });
            change(&self.word, || self.queue.wake(), |state| state.end_writeback(true));
        }
    }
    /// What write-back does to the store.
    fn write_back(&self) -> bool {
        let begun = try_change(&self.word, PageState::begin_writeback).is_ok();
        if begun {
            let bytes = self.read();
            // SAFETY: (1) as for `read`: WRITEBACK keeps others out.
            self.store.with_mut(|store| unsafe { *store = bytes });
            change(&self.word, || self.queue.wake(), |state| state.end_writeback(true));
        }
        begun
    }
}

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(test);
}

#[test]
fn writers_and_a_reader_exclude_each_other() {
    model(|| {
        let page = Page::new(IDLE);
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let page = Arc::clone(&page);
                thread::spawn(move || {
                    assert!(page.exclude());
                    page.add();
                    page.unlock();
                })
            })
            .collect();
        assert!(page.share());
        assert!(page.read() <= 2);
        page.unshare();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert_eq!(page.read(), 2);
        assert_eq!(peek(&page.word), IDLE);
    });
}

/// A page is read from its store by one thread; others find it and wait.
#[test]
fn readers_wait_for_the_one_who_fills_the_page() {
    model(|| {
        let page = Page::new(PageState::OWNED.with(PageState::EXCLUSIVE));
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let page = Arc::clone(&page);
                thread::spawn(move || {
                    assert!(page.share());
                    assert_eq!(page.read(), 1, "a page is read before it is filled");
                    page.unshare();
                })
            })
            .collect();
        page.add();
        change(&page.word, || page.queue.wake(), |state| state.with(PageState::UPTODATE));
        change(&page.word, || page.queue.wake(), PageState::downgrade);
        assert_eq!(page.read(), 1);
        page.unshare();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

/// Reclaim takes the page away while a reader looks for it: the reader has it, or does not.
#[test]
fn a_page_is_given_up_or_used_and_never_both() {
    model(|| {
        let page = Page::new(IDLE);
        let reclaim = {
            let page = Arc::clone(&page);
            thread::spawn(move || {
                if try_change(&page.word, PageState::exclude).is_ok() {
                    // The next owner changes the bytes.
                    page.add();
                    change(&page.word, || page.queue.wake(), |_| PageState::default());
                }
            })
        };
        if page.share() {
            assert_eq!(page.read(), 0);
            page.unshare();
        }
        reclaim.join().unwrap();
    });
}

/// A writer dirties the page again while it is written back.
#[test]
fn what_is_clean_is_in_the_store() {
    model(|| {
        let page = Page::new(IDLE.with(PageState::DIRTY));
        let writer = {
            let page = Arc::clone(&page);
            thread::spawn(move || {
                assert!(page.exclude());
                page.add();
                change(&page.word, || page.queue.wake(), |state| state.with(PageState::DIRTY));
                page.unlock();
            })
        };
        assert!(page.share());
        assert!(page.write_back(), "a page that is dirty can be written");
        page.unshare();
        writer.join().unwrap();
        // SAFETY: (1) the writer has ended.
        let store = page.store.with(|store| unsafe { *store });
        let is_stored = store == page.read();
        assert_eq!(is_stored, peek(&page.word).is_clean());
    });
}

/// An engine changes a page and logs it first, while two threads write the page back.
#[test]
fn no_page_passes_its_log() {
    model(|| {
        let (page, log) = (Page::new(IDLE), Arc::new(AtomicU32::new(0)));
        assert!(page.exclude());
        page.log_and_add(1);
        page.unlock();
        let flusher = {
            let (page, log) = (Arc::clone(&page), Arc::clone(&log));
            thread::spawn(move || {
                assert!(page.share());
                page.write_back_logged(&log);
                page.unshare();
            })
        };
        assert!(page.exclude());
        page.log_and_add(2);
        page.unlock();
        assert!(page.share());
        page.write_back_logged(&log);
        page.unshare();
        flusher.join().unwrap();
        assert!(peek(&page.word).is_clean());
        assert_eq!(log.load(Ordering::Acquire), 2);
    });
}

/// A page is written by one thread at a time, and who waits for that is woken.
#[test]
fn two_who_write_a_page_back_do_it_once() {
    model(|| {
        let page = Page::new(IDLE.with(PageState::DIRTY));
        let flusher = {
            let page = Arc::clone(&page);
            thread::spawn(move || {
                assert!(page.share());
                let wrote = page.write_back();
                page.unshare();
                wrote
            })
        };
        assert!(page.share());
        let wrote = page.write_back();
        page.unshare();
        while peek(&page.word).has(PageState::WRITEBACK) {
            wait(&page.word, &page.queue, Until::Written);
        }
        assert!(flusher.join().unwrap() != wrote);
        assert_eq!(peek(&page.word), IDLE);
    });
}

/// A sync meets a page whose write by another thread fails.
fn syncs_beside_a_failing_write(looks_twice: bool) {
    model(move || {
        let page = Page::new(IDLE.with(PageState::DIRTY));
        let syncs = {
            let page = Arc::clone(&page);
            thread::spawn(move || {
                assert!(page.share());
                loop {
                    match begin_writeback(&page.word) {
                        Err(_) if looks_twice && !peek(&page.word).has(PageState::WRITEBACK) => {}
                        Err(true) => {
                            wait(&page.word, &page.queue, Until::Written);
                            continue;
                        }
                        Err(false) => {}
                        Ok(()) => {
                            change(
                                &page.word,
                                || page.queue.wake(),
                                |state| state.end_writeback(true),
                            );
                        }
                    }
                    break;
                }
                let written = peek(&page.word).is_clean();
                assert!(written, "a sync leaves a page that nobody has written");
                page.unshare();
            })
        };
        assert!(page.share());
        if begin_writeback(&page.word).is_ok() {
            change(&page.word, || page.queue.wake(), |state| state.end_writeback(false));
        }
        page.unshare();
        syncs.join().unwrap();
    });
}

#[test]
fn a_sync_writes_a_page_whose_write_by_another_thread_has_failed() {
    syncs_beside_a_failing_write(false);
}

/// A device sync fails as the write of a page ends: the page is dirty again, whether it is told
/// before or after that.
#[test]
fn a_page_whose_sync_fails_as_its_write_ends_is_dirty() {
    model(|| {
        let page = Page::new(IDLE.with(PageState::DIRTY));
        // The page was written and is not safe: known under the lock of the file's dirty pages.
        let unsynced = Arc::new(loom::sync::Mutex::new(false));
        let flusher = {
            let (page, unsynced) = (Arc::clone(&page), Arc::clone(&unsynced));
            thread::spawn(move || {
                assert!(page.share());
                assert!(try_change(&page.word, PageState::begin_writeback).is_ok());
                *unsynced.lock().unwrap() = true;
                change(&page.word, || page.queue.wake(), |state| state.end_writeback(true));
                page.unshare();
            })
        };
        assert!(page.share());
        let mut suspect = unsynced.lock().unwrap();
        let told = std::mem::take(&mut *suspect);
        if told {
            // A page that is dirty already is on the list.
            assert!(try_change(&page.word, PageState::soil_again).is_ok());
        }
        drop(suspect);
        page.unshare();
        flusher.join().unwrap();
        assert_eq!(peek(&page.word).has(PageState::DIRTY), told);
    });
}

/// Says to the child which canary it is.
const CANARY: &str = "ZONAL_LOOM_CANARY";

/// Whoever has the page lets others in, and wakes them or not.
fn lets_in(wakes: bool) {
    model(move || {
        let page = Page::new(PageState::OWNED.with(PageState::EXCLUSIVE));
        let waiter = {
            let page = Arc::clone(&page);
            thread::spawn(move || assert!(page.share()))
        };
        if wakes {
            page.unlock();
        } else {
            page.word.store(peek(&page.word).unlock().0, Ordering::Release);
        }
        waiter.join().unwrap();
    });
}

/// A thread reads a page that another one has for itself, with a right or without.
fn reads(with_right: bool) {
    model(move || {
        let page = Page::new(IDLE);
        let writer = {
            let page = Arc::clone(&page);
            thread::spawn(move || {
                assert!(page.exclude());
                page.add();
                page.unlock();
            })
        };
        if with_right {
            assert!(page.share());
        }
        page.read();
        if with_right {
            page.unshare();
        }
        writer.join().unwrap();
    });
}

/// The other process. Without the variable it is no test.
#[test]
fn model_of_the_child() {
    match std::env::var(CANARY).as_deref() {
        Ok("wakes") => lets_in(true),
        Ok("forgets") => lets_in(false),
        Ok("has a right") => reads(true),
        Ok("has none") => reads(false),
        Ok("looks once") => syncs_beside_a_failing_write(false),
        Ok("looks twice") => syncs_beside_a_failing_write(true),
        _ => {}
    }
}

/// Whether loom finds something wrong. In a process of its own: it cannot unwind from a deadlock.
fn is_found(fault: &str) -> bool {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "model_of_the_child", "--nocapture"]).env(CANARY, fault);
    !child.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
}

#[test]
fn a_forgotten_wake_up_is_found() {
    assert!(!is_found("wakes"));
    assert!(is_found("forgets"));
}

#[test]
fn a_read_without_a_right_is_found() {
    assert!(!is_found("has a right"));
    assert!(is_found("has none"));
}

#[test]
fn a_second_look_at_a_page_that_is_written_is_found() {
    assert!(!is_found("looks once"));
    assert!(is_found("looks twice"));
}
