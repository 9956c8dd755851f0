//! Stores, errors and callbacks that are safe code and do what nobody expects of them.

mod support;

use std::fmt;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use support::{MemStore, PAGE, end, pattern, pool};
use zonal::{Gfp, Order, Pages, Pool, Request};
use zonal_cache::{Cache, Store};

/// What the last owner of every page left.
const FOREIGN: u8 = 0xaa;

/// A pool whose free pages all hold somebody's bytes.
fn used_pool() -> Arc<Pool> {
    let pool = pool();
    let mut pages = take_all(&pool);
    pages.iter_mut().for_each(|page| page.fill(FOREIGN));
    drop(pages);
    pool
}

/// Every page that there is.
fn take_all(pool: &Pool) -> Vec<Pages<'_>> {
    let gfp = Gfp::HIGHUSER_MOVABLE | Gfp::NORETRY | Gfp::NOWARN;
    let request = Request::new(Order::ZERO).gfp(gfp);
    std::iter::from_fn(|| pool.alloc_with(request).ok()).collect()
}

fn quiet(pool: &Arc<Pool>) -> Cache {
    let cache = Cache::builder(pool.clone()).writeback_every(Duration::from_secs(3600));
    cache.build().unwrap()
}

/// What a store does besides what it is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trick {
    /// Reads a part at a time, and advances the slices that it was given.
    Advances,
    /// Says that it read or wrote more than it was asked to.
    Exaggerates,
    /// Panics once, with a payload that panics when it is dropped.
    Explodes,
    /// Fails once, with an error that panics when it is printed.
    Stammers,
}

struct Tricky {
    store: MemStore,
    trick: Trick,
    once: AtomicBool,
    calls: Arc<AtomicU64>,
}

impl Tricky {
    fn new(bytes: Vec<u8>, trick: Trick) -> Tricky {
        let store = MemStore::new(bytes);
        Tricky { store, trick, once: AtomicBool::new(true), calls: Arc::default() }
    }

    /// What is done in place of a call.
    fn begin(&self) -> io::Result<()> {
        self.calls.fetch_add(1, SeqCst);
        match self.trick {
            Trick::Explodes if self.once.swap(false, SeqCst) => panic_any(Bomb),
            Trick::Stammers if self.once.swap(false, SeqCst) => Err(io::Error::other(Unprintable)),
            _ => Ok(()),
        }
    }
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("the payload of a panic panics");
        }
    }
}

#[derive(Debug)]
struct Unprintable;

impl fmt::Display for Unprintable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("an error without words")
    }
}

impl std::error::Error for Unprintable {}

impl Store for Tricky {
    fn read_at(&self, mut buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        self.begin()?;
        match self.trick {
            Trick::Advances => {
                let mut done = 0;
                self.store.0.part.store(1000, SeqCst);
                while !buffers.is_empty() {
                    let read = self.store.read_at(buffers, offset + done as u64)?;
                    if read == 0 {
                        break;
                    }
                    IoSliceMut::advance_slices(&mut buffers, read);
                    done += read;
                }
                Ok(done)
            }
            Trick::Exaggerates => self.store.read_at(buffers, offset).map(|read| read + 5000),
            _ => self.store.read_at(buffers, offset),
        }
    }
    fn write_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.begin()?;
        let written = self.store.write_at(buffers, offset)?;
        Ok(if self.trick == Trick::Exaggerates { usize::MAX } else { written })
    }
    fn len(&self) -> io::Result<u64> {
        self.store.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.store.set_len(len)
    }
    fn sync(&self) -> io::Result<()> {
        self.store.sync()
    }
}

#[test]
fn a_store_that_advances_its_slices_itself_leaves_no_byte_of_a_page_to_its_last_owner() {
    let pool = used_pool();
    let cache = quiet(&pool);
    let bytes = pattern(1, 3 * PAGE as usize + 1000);
    let file = cache.open_store(Tricky::new(bytes.clone(), Trick::Advances)).unwrap();
    let mut seen = vec![0; bytes.len()];
    assert_eq!(file.read_at(&mut seen, 0).unwrap(), bytes.len());
    assert!(seen == bytes, "what the store has");
    file.set_len(4 * PAGE).unwrap();
    let page = file.pin(3).unwrap();
    assert!(page[1000..].iter().all(|byte| *byte == 0), "past the old end of the file");
    drop(page);
    drop(file);
    end(cache, &pool);
}

#[test]
fn a_store_that_says_too_much_was_read_or_written_is_taken_at_what_was_asked() {
    let pool = used_pool();
    let cache = quiet(&pool);
    let bytes = pattern(2, 4 * PAGE as usize);
    let store = Tricky::new(bytes.clone(), Trick::Exaggerates);
    let mem = store.store.clone();
    let file = cache.open_store(store).unwrap();
    let mut seen = vec![0; PAGE as usize];
    // Without a free page the read goes past the cache.
    let all = take_all(&pool);
    file.read_at(&mut seen, 0).unwrap();
    assert_eq!(seen, bytes[..PAGE as usize]);
    assert_eq!(cache.stats().bypassed, 1);
    drop(all);
    file.read_at(&mut seen, PAGE).unwrap();
    assert_eq!(seen, bytes[PAGE as usize..2 * PAGE as usize]);
    // Two runs, with a gap between them.
    for index in [0, 1, 3] {
        file.write_at(&pattern(3 + index, PAGE as usize), index * PAGE).unwrap();
    }
    file.sync().unwrap();
    assert_eq!(cache.stats().dirty, 0);
    assert_eq!(mem.bytes()[3 * PAGE as usize..], pattern(6, PAGE as usize));
    drop(file);
    end(cache, &pool);
}

/// A page that is read, and one that is written, while the store misbehaves once.
fn fails_once(trick: Trick) {
    let pool = used_pool();
    let cache = quiet(&pool);
    let bytes = pattern(4, 2 * PAGE as usize);

    let file = cache.open_store(Tricky::new(bytes.clone(), trick)).unwrap();
    // A read that failed is tried once more, for the first page alone.
    let first = catch_unwind(AssertUnwindSafe(|| file.pin(0).map(drop)));
    assert!(first.is_ok(), "the panic is an error");
    assert_eq!(file.pin(0).unwrap()[..], bytes[..PAGE as usize]);
    drop(file);

    let store = Tricky::new(bytes, trick);
    let mem = store.store.clone();
    let file = cache.open_store(store).unwrap();
    file.write_at(&pattern(5, PAGE as usize), 0).unwrap();
    let failed = catch_unwind(AssertUnwindSafe(|| file.sync()));
    let failed = failed.expect("the panic is an error").unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Other);
    assert_eq!(cache.stats().dirty, 1, "what was not written stays dirty");
    file.sync().unwrap();
    assert_eq!(mem.bytes()[..PAGE as usize], pattern(5, PAGE as usize));
    drop(file);
    end(cache, &pool);
}

#[test]
fn a_panic_whose_payload_panics_is_an_error_of_one_call() {
    fails_once(Trick::Explodes);
}

#[test]
fn an_error_that_cannot_be_printed_is_an_error_of_one_call() {
    fails_once(Trick::Stammers);
}

/// The write-back thread meets both, and goes on.
#[test]
fn the_write_back_thread_outlives_what_a_store_throws_at_it() {
    for trick in [Trick::Explodes, Trick::Stammers] {
        let pool = pool();
        let cache = Cache::builder(pool.clone())
            .writeback_every(Duration::from_millis(1))
            .dirty_expire(Duration::ZERO)
            .build()
            .unwrap();
        let store = Tricky::new(Vec::new(), trick);
        let mem = store.store.clone();
        let calls = store.calls.clone();
        let file = cache.open_store(store).unwrap();
        file.write_at(&pattern(6, PAGE as usize), 0).unwrap();
        let since = Instant::now();
        while cache.stats().dirty > 0 {
            assert!(since.elapsed() < Duration::from_secs(180), "{:?}", cache.stats());
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(calls.load(SeqCst) >= 2);
        assert_eq!(mem.bytes(), pattern(6, PAGE as usize));
        drop(file);
        end(cache, &pool);
    }
}

#[test]
fn a_page_with_all_the_pins_it_can_have_is_refused_and_not_waited_for() {
    let pool = pool();
    let cache = quiet(&pool);
    let file = cache.open_store(MemStore::new(pattern(8, PAGE as usize))).unwrap();
    file.write_at(b"dirty", 0).unwrap();
    let mut pins: Vec<_> = (1..1 << 20).map(|_| file.pin(0).unwrap()).collect();
    let busy = |called: io::Result<()>| called.is_err_and(|e| e.kind() == ErrorKind::ResourceBusy);
    assert!(busy(file.pin(0).map(drop)));
    assert!(busy(file.read_at(&mut [0; 9], 0).map(drop)));
    assert!(busy(file.sync()), "it was not written");
    pins.pop();
    drop(file.pin(0).unwrap());
    file.sync().unwrap();
    drop(pins);
    drop(file);
    end(cache, &pool);
}

#[test]
fn an_interval_without_end_is_one_and_an_interval_of_nothing_is_refused() {
    let pool = pool();
    let make = |interval| Cache::builder(pool.clone()).writeback_every(interval).build();
    assert_eq!(make(Duration::ZERO).unwrap_err().kind(), ErrorKind::InvalidInput);
    let cache = make(Duration::MAX).unwrap();
    let store = MemStore::new(Vec::new());
    let file = cache.open_store(store.clone()).unwrap();
    // The thread is alive: more than the limit is written by it.
    for index in 0..500 {
        file.write_at(&pattern(index, PAGE as usize), index * PAGE).unwrap();
    }
    let since = Instant::now();
    while store.0.writes.load(SeqCst) == 0 {
        assert!(since.elapsed() < Duration::from_secs(180), "{:?}", cache.stats());
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(file);
    end(cache, &pool);
}

#[test]
fn a_last_resort_that_panics_costs_the_cache_none_of_its_room() {
    let builder = Pool::builder().size(4 << 20).refresh_every(None);
    let pool = builder.on_out_of_memory(|_| panic!("nothing is left")).build().unwrap();
    let pool = Arc::new(pool);
    let cache = Cache::builder(pool.clone()).max_pages(4).build().unwrap();
    let bytes = pattern(7, 8 * PAGE as usize);
    let file = cache.open_store(MemStore::new(bytes.clone())).unwrap();
    let all = take_all(&pool);
    let refused = catch_unwind(AssertUnwindSafe(|| file.pin(0).map(drop)));
    assert!(refused.is_err(), "the panic is the caller's");
    assert_eq!(cache.stats().pages, 0, "a page is reserved that nobody has");
    drop(all);
    for index in 0..8 {
        let at = (index * PAGE) as usize;
        assert_eq!(file.pin(index).unwrap()[..], bytes[at..at + PAGE as usize]);
    }
    drop(file);
    end(cache, &pool);
}
