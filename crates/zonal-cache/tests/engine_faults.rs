//! Backings of an engine that fail, panic, call back, lie, or go away; and forks.

mod support;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex, Weak};
use std::time::Duration;

use support::backing::{Call, HeapBacking, PAGE, end, failed, fill, quiet};
use support::{EIO, pattern, pool};
use zonal::Pool;
use zonal_cache::{Backing, EngineCache, LostWrites, PageWrite, Pager, WriteFailed};

#[test]
fn a_backing_that_calls_its_cache_gets_an_error_and_nothing_waits() {
    let (pool, others, heap) = (pool(), pool(), HeapBacking::new());
    let cache = quiet(&pool).max_pages(8).build().unwrap();
    let other = quiet(&others).max_pages(8).build().unwrap();
    let pager = Arc::new(cache.open(heap.clone()).unwrap());
    let elsewhere = other.open(HeapBacking::new()).unwrap();
    let (back, calls) = (Arc::downgrade(&pager), Arc::new(AtomicU64::new(0)));
    let (counted, its_cache) = (calls.clone(), cache.clone());
    heap.hook(move |_| {
        let pager: Arc<Pager> = Weak::upgrade(&back).ok_or_else(failed)?;
        let kinds = [
            pager.pin(1).map(drop),
            pager.pin_mut(2).map(drop),
            pager.pin_new(3).map(drop),
            pager.pin_owned(1).map(drop),
            pager.pin_mut_owned(1).map(drop),
            pager.truncate(0),
            pager.checkpoint(),
            pager.accept_loss().map(drop),
            its_cache.checkpoint(),
            its_cache.open(HeapBacking::new()).map(drop),
        ]
        .map(|called| called.unwrap_err().kind());
        assert_eq!(kinds, [io::ErrorKind::Deadlock; 10]);
        assert_eq!(its_cache.evict(5), 0);
        pager.prefetch(0..9);
        drop(pager.clone());
        // Another cache is no concern of this one.
        fill(&elsewhere, counted.fetch_add(1, SeqCst), 1);
        Ok(())
    });
    for page in 0..30 {
        let mut pin = pager.pin_mut(page).unwrap();
        pin.set_lsn(page + 1);
        pin[0] = page as u8;
    }
    cache.evict(3);
    pager.checkpoint().unwrap();
    assert!(calls.load(SeqCst) > 60);
    heap.0.hook.lock().unwrap().take();
    drop(pager);
    end(cache, &pool);
    end(other, &others);
}

#[test]
fn a_panic_in_a_backing_is_an_error_of_the_call_and_loses_nothing() {
    for panics in [Call::Read(7), Call::Write(7), Call::Log(7), Call::Sync] {
        let (pool, heap) = (pool(), HeapBacking::new());
        let cache = quiet(&pool).build().unwrap();
        let pager = cache.open(heap.clone()).unwrap();
        heap.hook(move |call| match call == panics {
            true => panic!("the engine has a bug in {call:?}"),
            false => Ok(()),
        });
        let change = || -> io::Result<()> {
            let mut pin = pager.pin_mut(7)?;
            pin.set_lsn(7);
            pin.copy_from_slice(&pattern(7, PAGE));
            drop(pin);
            pager.checkpoint()
        };
        for _ in 0..2 {
            let error = change().unwrap_err();
            assert!(error.to_string().contains("the backing panicked: the engine has"), "{error}");
        }
        heap.hook(|_| Ok(()));
        change().unwrap();
        assert_eq!(heap.safe(7).unwrap(), pattern(7, PAGE), "{panics:?}");
        drop(pager);
        end(cache, &pool);
    }
}

#[test]
fn the_log_is_safe_before_a_page_is_written_or_the_page_is_not_written() {
    let (pool, heap) = (pool(), HeapBacking::new());
    let cache = quiet(&pool).build().unwrap();
    let pager = cache.open(heap.clone()).unwrap();
    for lsn in [5, 3] {
        let mut pin = pager.pin_mut(1).unwrap();
        pin.set_lsn(lsn);
    }
    fill(&pager, 2, 2);
    let (sent, calls) = channel();
    let sent = Mutex::new(sent);
    heap.hook(move |call| {
        sent.lock().unwrap().send(call).unwrap();
        if matches!(call, Call::Log(_)) { Err(failed()) } else { Ok(()) }
    });
    assert_eq!(pager.checkpoint().unwrap_err().raw_os_error(), EIO);
    let seen: Vec<Call> = calls.try_iter().collect();
    assert_eq!(seen, [Call::Log(5), Call::Sync], "nothing is written without the log");
    assert_eq!(cache.stats().dirty, 2);
    heap.hook(|_| Ok(()));
    pager.checkpoint().unwrap();
    assert_eq!(heap.0.log.load(SeqCst), 5, "the highest number counts");
    // Written: the next write needs no log.
    fill(&pager, 1, 1);
    heap.hook(|call| if matches!(call, Call::Log(_)) { Err(failed()) } else { Ok(()) });
    pager.checkpoint().unwrap();
    drop(pager);
    end(cache, &pool);
}

#[test]
fn a_failed_write_leaves_its_pages_dirty_and_counts_those_before_it() {
    let (pool, heap) = (pool(), HeapBacking::new());
    let cache = quiet(&pool).build().unwrap();
    let pager = cache.open(heap.clone()).unwrap();
    (0..6).for_each(|page| fill(&pager, page * 2, page));
    heap.hook(|call| if call == Call::Write(6) { Err(failed()) } else { Ok(()) });
    assert_eq!(pager.checkpoint().unwrap_err().raw_os_error(), EIO);
    assert_eq!(cache.stats().dirty, 3, "three were written before the fourth failed");
    heap.hook(|_| Ok(()));
    pager.checkpoint().unwrap();
    (0..6).for_each(|page| assert_eq!(heap.safe(page * 2).unwrap(), pattern(page, PAGE)));
    drop(pager);
    end(cache, &pool);
}

#[test]
fn a_checkpoint_tells_of_a_write_by_another_thread_that_it_waited_for() {
    let (pool, heap) = (pool(), HeapBacking::new());
    let cache = quiet(&pool).build().unwrap();
    let pager = cache.open(heap.clone()).unwrap();
    let (writing, waits) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (begun, other, first) = (writing.clone(), waits.clone(), AtomicU64::new(1));
    heap.hook(move |call| match call {
        Call::Write(7) if first.swap(0, SeqCst) == 1 => {
            begun.wait();
            // The other thread comes to page 7.
            other.wait();
            Err(failed())
        }
        Call::Write(3) => {
            other.wait();
            Ok(())
        }
        _ => Ok(()),
    });
    fill(&pager, 7, 7);
    let second = pager.clone();
    std::thread::scope(|scope| {
        let fails = scope.spawn(|| pager.checkpoint());
        writing.wait();
        fill(&second, 3, 3);
        assert_eq!(second.checkpoint().unwrap_err().raw_os_error(), EIO);
        assert_eq!(fails.join().unwrap().unwrap_err().raw_os_error(), EIO);
    });
    [3, 7].iter().for_each(|at| assert_eq!(heap.safe(*at).unwrap(), pattern(*at, PAGE)));
    drop((pager, second));
    end(cache, &pool);
}

#[test]
fn a_backing_may_wait_for_a_thread_that_pins_other_pages_while_the_storage_is_cut() {
    let (pool, heap) = (pool(), HeapBacking::new());
    let cache = quiet(&pool).build().unwrap();
    let pager = cache.open(heap.clone()).unwrap();
    let (ask, asked) = channel::<()>();
    let (answer, answered) = channel::<()>();
    let (reads, reading) = channel::<()>();
    let ends = Mutex::new((reads, ask, answered));
    heap.hook(move |call| {
        if call == Call::Read(1) {
            let (reads, ask, answered) = &*ends.lock().unwrap();
            reads.send(()).unwrap();
            // The other thread comes to cut the storage.
            std::thread::sleep(Duration::from_millis(100));
            ask.send(()).unwrap();
            return answered.recv_timeout(Duration::from_secs(20)).map_err(|_| failed());
        }
        Ok(())
    });
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| pager.pin(1).map(drop));
        let pages = &pager;
        let helper = scope.spawn(move || {
            asked.recv().unwrap();
            pages.pin(2)?;
            fill(pages, 3, 3);
            // The reader is gone if it has waited in vain.
            let _ = answer.send(());
            io::Result::Ok(())
        });
        reading.recv().unwrap();
        pager.truncate(9).unwrap();
        reader.join().unwrap().expect("the helper of the backing has waited for the cut");
        helper.join().unwrap().unwrap();
    });
    heap.hook(|_| Ok(()));
    drop(pager);
    end(cache, &pool);
}

#[test]
fn a_storage_is_cut_while_readers_come_without_a_pause() {
    let (pool, heap) = (pool(), HeapBacking::new());
    let cache = quiet(&pool).build().unwrap();
    let pager = cache.open(heap).unwrap();
    (0..4).for_each(|page| fill(&pager, page, page));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for page in 0..4 {
            let (pager, over) = (&pager, &over);
            scope.spawn(move || {
                while !over.load(SeqCst) {
                    assert_eq!(pager.pin(page).unwrap()[..], pattern(page, PAGE));
                }
            });
        }
        (0..50).for_each(|_| pager.truncate(4).unwrap());
        over.store(true, SeqCst);
    });
    drop(pager);
    end(cache, &pool);
}

/// A backing that says that it wrote more than it was given.
#[test]
fn a_backing_that_counts_wrong_does_not_make_pages_clean_that_it_did_not_get() {
    struct Liar;
    impl Backing for Liar {
        fn read(&self, _: u64, bytes: &mut [u8]) -> io::Result<()> {
            bytes.fill(0);
            Ok(())
        }
        fn write(&self, _: &[PageWrite<'_>]) -> Result<(), WriteFailed> {
            Err(WriteFailed { written: usize::MAX, error: failed() })
        }
        fn sync(&self) -> io::Result<()> {
            Ok(())
        }
    }
    let pool = pool();
    let cache = quiet(&pool).build().unwrap();
    let pager = cache.open(Liar).unwrap();
    fill(&pager, 1, 1);
    assert!(pager.checkpoint().is_err());
    assert_eq!(cache.stats().dirty, 0, "it said so");
    drop(pager);
    end(cache, &pool);
}

#[test]
fn every_handle_is_told_of_an_error_once() {
    let (pool, heap) = (pool(), HeapBacking::new());
    let cache = quiet(&pool).build().unwrap();
    let first = cache.open(heap.clone()).unwrap();
    let (second, clone) = (first.clone(), cache.clone());
    fill(&first, 1, 1);
    heap.0.failing_writes.store(1, SeqCst);
    assert_eq!(first.checkpoint().unwrap_err().raw_os_error(), EIO);
    let late = first.clone();
    first.checkpoint().unwrap();
    late.checkpoint().expect("a clone knows what its original knows");
    assert_eq!(second.checkpoint().unwrap_err().raw_os_error(), EIO);
    second.checkpoint().expect("once");
    for cache in [&cache, &clone] {
        assert_eq!(cache.checkpoint().unwrap_err().raw_os_error(), EIO);
        cache.checkpoint().expect("once");
    }
    // Behind the program's back: reclaim cannot write, and somebody is told.
    fill(&first, 1, 1);
    heap.0.failing_writes.store(1, SeqCst);
    cache.evict(100);
    assert_eq!(cache.stats().write_errors, 2);
    for handle in [&first, &second, &late] {
        assert_eq!(handle.checkpoint().unwrap_err().raw_os_error(), EIO);
        handle.checkpoint().expect("once");
    }
    drop((first, second, late, clone));
    end(cache, &pool);
}

#[test]
fn after_a_failed_sync_pages_in_memory_are_written_again_and_others_are_lost() {
    let (pool, heap) = (pool(), HeapBacking::new());
    let cache = quiet(&pool).max_pages(8).build().unwrap();
    let pager = cache.open(heap.clone()).unwrap();
    (0..20).for_each(|page| fill(&pager, page, page));
    heap.0.failing_syncs.store(1, SeqCst);
    assert_eq!(pager.checkpoint().unwrap_err().raw_os_error(), EIO);
    let lost = pager.lost();
    let pages: u64 = lost.iter().map(|range| range.end - range.start).sum();
    assert!((12..20).contains(&pages), "{lost:?}");
    let error = pager.checkpoint().unwrap_err();
    let told = error.get_ref().and_then(|error| error.downcast_ref::<LostWrites>()).unwrap();
    assert_eq!(told.ranges[0].start, lost[0].start * PAGE as u64);
    let page = lost[0].start;
    assert!(pager.pin(page).is_err() && pager.pin_mut(page).is_err());
    // Written anew: not lost.
    fill(&pager, page, 77);
    assert_eq!(pager.pin(page).unwrap()[..], pattern(77, PAGE));
    let accepted = pager.accept_loss().unwrap();
    assert!(!accepted.iter().any(|range| range.contains(&page)) && pager.lost().is_empty());
    // The engine replays its log.
    for at in accepted.into_iter().flatten() {
        fill(&pager, at, at);
    }
    pager.checkpoint().unwrap();
    (0..20).filter(|at| *at != page).for_each(|at| {
        assert_eq!(heap.safe(at).unwrap(), pattern(at, PAGE), "page {at}");
    });
    drop(pager);
    end(cache, &pool);
}

/// Every call of the backing fails once, and each time the engine sees it and gets on.
#[test]
fn the_nth_call_of_a_backing_may_fail_for_every_n() {
    for n in 0.. {
        let (pool, heap) = (pool(), HeapBacking::new());
        let cache = quiet(&pool).max_pages(4).build().unwrap();
        let pager = cache.open(heap.clone()).unwrap();
        heap.0.fail_in.store(n, SeqCst);
        let mut failures = 0;
        for page in 0..8 {
            let mut pin = loop {
                match pager.pin_mut(page) {
                    Ok(pin) => break pin,
                    Err(error) => assert_eq!(error.raw_os_error(), EIO, "{error}"),
                }
                failures += 1;
                assert!(failures < 20, "one failure is told again and again");
                // Writes are tried again after a pause.
                std::thread::sleep(Duration::from_millis(20));
            };
            pin.set_lsn(page + 1);
            pin.copy_from_slice(&pattern(page, PAGE));
        }
        while pager.checkpoint().is_err() {
            failures += 1;
            assert!(failures < 24, "it does not get well");
            // A failed sync may have lost pages: the engine replays.
            for page in pager.accept_loss().unwrap().into_iter().flatten() {
                fill(&pager, page, page);
            }
        }
        let over = heap.0.fail_in.load(SeqCst) >= 0;
        for page in 0..8 {
            assert_eq!(heap.safe(page).unwrap(), pattern(page, PAGE), "n {n}, page {page}");
        }
        drop(pager);
        end(cache, &pool);
        if over {
            assert!(n > 16 && failures == 0, "{n} calls");
            return;
        }
    }
}

/// Until the cache of the pool has ended in another thread.
fn wait_for_the_end(pool: &Arc<Pool>) {
    for _ in 0..1000 {
        // The last reference of the cache goes once everything else of it has gone.
        if Arc::strong_count(pool) == 1 && pool.free_page_count() << 12 == pool.bytes() as u64 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the cache does not end");
}

#[test]
fn a_backing_may_drop_the_last_handle_of_its_cache() {
    let (pool, heap) = (pool(), HeapBacking::new());
    let cache = quiet(&pool).build().unwrap();
    let pager = Arc::new(cache.open(heap.clone()).unwrap());
    fill(&pager, 1, 1);
    let last = Mutex::new(Some((pager.clone(), cache.clone())));
    let gate = Arc::new(Barrier::new(2));
    let wait = gate.clone();
    heap.hook(move |call| {
        if call == Call::Read(9)
            && let Some(last) = last.lock().unwrap().take()
        {
            wait.wait();
            wait.wait();
            drop(last);
        }
        Ok(())
    });
    // The thread that reads ahead has the last handles.
    pager.prefetch(9..10);
    gate.wait();
    drop((pager, cache));
    gate.wait();
    wait_for_the_end(&pool);
    assert_eq!(heap.seen(1).unwrap(), pattern(1, PAGE));
}

/// A backing that has a handle of its own cache, and says when it goes.
struct Holder {
    heap: HeapBacking,
    gone: Arc<AtomicBool>,
    _cache: EngineCache,
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.gone.store(true, SeqCst);
    }
}

impl Backing for Holder {
    fn read(&self, page: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.heap.read(page, bytes)
    }
    fn write(&self, batch: &[PageWrite<'_>]) -> Result<(), WriteFailed> {
        self.heap.write(batch)
    }
    fn sync(&self) -> io::Result<()> {
        self.heap.sync()
    }
}

#[test]
fn a_cache_thread_may_drop_the_last_handle_of_the_cache() {
    let (pool, heap, other) = (pool(), HeapBacking::new(), HeapBacking::new());
    let every = Duration::from_millis(10);
    let cache = quiet(&pool).writeback_every(every).build().unwrap();
    let gone = Arc::new(AtomicBool::new(false));
    let holder = Holder { heap: heap.clone(), gone: gone.clone(), _cache: cache.clone() };
    // No write works: both storages stay after their last pagers.
    heap.hook(|call| if call == Call::Write(1) { Err(failed()) } else { Ok(()) });
    other.hook(move |_| if gone.load(SeqCst) { Ok(()) } else { Err(failed()) });
    let pagers = [cache.open(holder).unwrap(), cache.open(other.clone()).unwrap()];
    pagers.iter().for_each(|pager| fill(pager, 1, 1));
    drop((pagers, cache));
    assert!(heap.seen(1).is_none());
    // The write-back thread writes the first, and drops it with the last handle. The end of the
    // cache writes the second.
    heap.hook(|_| Ok(()));
    wait_for_the_end(&pool);
    [heap, other].iter().for_each(|heap| assert_eq!(heap.seen(1).unwrap(), pattern(1, PAGE)));
}

#[test]
fn a_forked_child_is_refused_everything_and_writes_nothing() {
    let (pool, heap) = (pool(), HeapBacking::new());
    let cache = quiet(&pool).build().unwrap();
    let pager = Arc::new(cache.open(heap.clone()).unwrap());
    fill(&pager, 1, 1);
    let (held, other) = (pager.pin_mut(2).unwrap(), pager.pin(1).unwrap());
    // SAFETY: (1) the child calls the cache, whose calls are under test, and _exit.
    match unsafe { libc::fork() } {
        0 => {
            let read = other[..] == pattern(1, PAGE);
            let clone = pager.clone();
            let refused = [
                pager.pin(1).map(drop),
                pager.try_pin(1).map(drop),
                clone.pin(1).map(drop),
                pager.pin(2).map(drop),
                pager.pin(3).map(drop),
                pager.pin_mut(1).map(drop),
                pager.pin_new(1).map(drop),
                pager.truncate(0),
                pager.checkpoint(),
                pager.accept_loss().map(drop),
                cache.checkpoint(),
                cache.open(HeapBacking::new()).map(drop),
            ]
            .iter()
            .all(|called| {
                called.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Unsupported)
            });
            let evicted = cache.evict(9);
            pager.prefetch(0..9);
            let refused = refused && cache.validate().is_err() && pager.lost().is_empty();
            drop((held, other, clone));
            drop((pager, cache));
            let wrote = heap.0.writes.load(SeqCst);
            let bad = !read || !refused || evicted != 0 || wrote != 0;
            // SAFETY: (1) ends the child at once.
            unsafe { libc::_exit(i32::from(bad)) };
        }
        child => {
            let mut status = -1;
            // SAFETY: (1) `status` is ours.
            unsafe { libc::waitpid(child, &mut status, 0) };
            assert_eq!(status, 0, "the child did something else");
        }
    }
    drop((held, other));
    pager.checkpoint().unwrap();
    drop(pager);
    assert_eq!(heap.safe(1).unwrap(), pattern(1, PAGE));
    end(cache, &pool);
}
