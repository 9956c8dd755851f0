//! Buffers with back-pressure: by threads, by hand-made tasks and by tokio.

mod support;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

use support::soon;
use zonal::buffers::{BufferPool, BufferPoolError};
use zonal::{FailAlloc, PAGE_SIZE, Pool};

fn pool() -> Pool {
    Pool::builder().size(64 << 20).build().unwrap()
}

/// Counts how often it was woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn sizes_and_limits_that_cannot_be_are_refused() {
    let make = |bytes, limit| BufferPool::new(pool(), bytes, limit).map(|_| ());
    assert_eq!(make(0, 1), Err(BufferPoolError::Bytes(0)));
    assert_eq!(make((4 << 20) + 1, 1), Err(BufferPoolError::Bytes((4 << 20) + 1)));
    assert_eq!(make(usize::MAX, 1), Err(BufferPoolError::Bytes(usize::MAX)));
    assert_eq!(make(1, 0), Err(BufferPoolError::Limit));
    for (bytes, limit) in [(1, 1), (4 << 20, usize::MAX), (5000, 3)] {
        let buffers = BufferPool::new(pool(), bytes, limit).unwrap();
        assert_eq!(buffers.get_blocking().unwrap().len(), bytes);
    }
}

#[test]
fn at_most_so_many_are_out_and_those_who_wait_come_in_order() {
    let buffers = BufferPool::new(pool(), PAGE_SIZE, 2).unwrap();
    let first = buffers.try_get().unwrap().unwrap();
    let second = buffers.get_blocking().unwrap();
    assert!(buffers.try_get().unwrap().is_none());
    let counts: [Arc<Count>; 3] = Default::default();
    let wakers = counts.clone().map(Waker::from);
    let mut tasks = [(); 3].map(|()| Box::pin(buffers.get()));
    for (task, waker) in tasks.iter_mut().zip(&wakers) {
        assert!(task.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    }
    assert_eq!((buffers.in_use(), buffers.waiting()), (2, 3));
    drop(first);
    let woken = || counts.each_ref().map(|count| count.0.load(SeqCst));
    assert_eq!(woken(), [1, 0, 0]);
    assert!(buffers.try_get().unwrap().is_none(), "nobody overtakes");
    // A task that is dropped passes its permit on.
    let [mut one, two, mut three] = tasks;
    drop(two);
    drop(second);
    assert_eq!(woken(), [1, 0, 1]);
    let poll = |task: &mut std::pin::Pin<Box<zonal::buffers::Get>>, at: usize| {
        task.as_mut().poll(&mut Context::from_waker(&wakers[at]))
    };
    let Poll::Ready(Ok(one)) = poll(&mut one, 0) else { panic!("woken, so it has its turn") };
    let Poll::Ready(Ok(three)) = poll(&mut three, 2) else { panic!("as above") };
    drop((one, three));
    assert_eq!((buffers.in_use(), buffers.waiting()), (0, 0));
    assert_eq!(buffers.pool().free_page_count() as usize * PAGE_SIZE, buffers.pool().bytes());
}

#[test]
fn a_task_that_is_dropped_with_its_turn_passes_it_on() {
    let buffers = BufferPool::new(pool(), PAGE_SIZE, 1).unwrap();
    let held = buffers.get_blocking().unwrap();
    let counts: [Arc<Count>; 2] = Default::default();
    let wakers = counts.clone().map(Waker::from);
    let mut tasks = [(); 2].map(|()| Box::pin(buffers.get()));
    for (task, waker) in tasks.iter_mut().zip(&wakers) {
        assert!(task.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    }
    drop(held);
    let [granted, mut next] = tasks;
    drop(granted);
    assert_eq!(counts[1].0.load(SeqCst), 1);
    assert!(next.as_mut().poll(&mut Context::from_waker(&wakers[1])).is_ready());
}

/// A waker whose last drop gives a buffer back.
struct Keeps(
    #[expect(dead_code, reason = "only dropped")] std::sync::Mutex<Option<zonal::buffers::Buffer>>,
);

impl Wake for Keeps {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn the_last_drop_of_a_waker_may_give_a_buffer_back() {
    let _watchdog = support::Watchdog::new("a waker's drop", std::time::Duration::from_secs(60));
    let buffers = BufferPool::new(pool(), PAGE_SIZE, 2).unwrap();
    for asked_again in [false, true] {
        let first = buffers.try_get().unwrap();
        let second = buffers.try_get().unwrap();
        let keeps = Waker::from(Arc::new(Keeps(std::sync::Mutex::new(second))));
        {
            let mut waiting = pin!(buffers.get());
            assert!(waiting.as_mut().poll(&mut Context::from_waker(&keeps)).is_pending());
            drop(keeps);
            if asked_again {
                // The waker that was there is replaced.
                let other = Waker::from(Arc::new(Count::default()));
                let _ = waiting.as_mut().poll(&mut Context::from_waker(&other));
            }
        }
        drop(first);
        let both = [buffers.try_get().unwrap(), buffers.try_get().unwrap()];
        assert!(both.iter().all(Option::is_some));
    }
}

#[test]
fn below_the_low_watermark_those_who_wait_come_in_groups() {
    let buffers = BufferPool::with_low(pool(), PAGE_SIZE, 4, 1).unwrap();
    let mut held: Vec<_> = (0..4).map(|_| buffers.get_blocking().unwrap()).collect();
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut context = Context::from_waker(&waker);
    let mut tasks: Vec<_> = (0..5).map(|_| Box::pin(buffers.get())).collect();
    assert!(tasks.iter_mut().all(|task| task.as_mut().poll(&mut context).is_pending()));
    held.truncate(2);
    assert_eq!(count.0.load(SeqCst), 0);
    held.truncate(1);
    assert_eq!((count.0.load(SeqCst), buffers.in_use(), buffers.waiting()), (3, 4, 2));
}

#[test]
fn a_refusal_of_the_pool_is_told_and_gives_the_turn_back() {
    let pool = Pool::builder().size(16 << 20).fail_alloc(FailAlloc::every(1)).build().unwrap();
    let buffers = BufferPool::new(pool, PAGE_SIZE, 1).unwrap();
    assert!(buffers.get_blocking().is_err());
    assert!(buffers.try_get().is_err());
    assert_eq!((buffers.in_use(), buffers.waiting()), (0, 0));
}

#[test]
fn threads_wait_for_one_another() {
    let buffers = BufferPool::new(pool(), 3 * PAGE_SIZE, 2).unwrap();
    let most = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for number in 0..6u8 {
            let (buffers, most) = (&buffers, &most);
            scope.spawn(move || {
                for _ in 0..500 {
                    let mut buffer = buffers.get_blocking().unwrap();
                    most.fetch_max(buffers.in_use(), SeqCst);
                    buffer.fill(number);
                    assert!(buffer.iter().all(|byte| *byte == number));
                }
            });
        }
    });
    assert!((1..=2).contains(&most.into_inner()));
    assert_eq!(buffers.in_use(), 0);
}

#[test]
fn tasks_of_tokio_wait_for_one_another_on_all_its_threads() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().unwrap();
    let buffers = BufferPool::new(pool(), PAGE_SIZE, 3).unwrap();
    let tasks: Vec<_> = (0..40u8)
        .map(|number| {
            let buffers = buffers.clone();
            runtime.spawn(async move {
                for _ in 0..50 {
                    let mut buffer = buffers.get().await.unwrap();
                    assert!(buffers.in_use() <= 3);
                    buffer.fill(number);
                    tokio::task::yield_now().await;
                    assert!(buffer.iter().all(|byte| *byte == number));
                }
            })
        })
        .collect();
    // Some of them are cut off at any point.
    for task in tasks.iter().step_by(5) {
        task.abort();
    }
    runtime.block_on(async {
        for task in tasks {
            let ended = task.await;
            assert!(ended.is_ok() || ended.unwrap_err().is_cancelled());
        }
    });
    assert!(soon(|| buffers.in_use() == 0 && buffers.waiting() == 0), "{buffers:?}");
    let mut last = pin!(buffers.get());
    assert!(last.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
}

/// Panics when it is woken.
struct Dud;

impl Wake for Dud {
    fn wake(self: Arc<Self>) {
        panic!("a task that cannot be woken")
    }
}

#[test]
fn a_waker_that_panics_keeps_nobody_else_asleep() {
    // Of two that are in use both come back before anybody is served: two are woken at once.
    let buffers = BufferPool::with_low(pool(), PAGE_SIZE, 2, 0).unwrap();
    let held = [(); 2].map(|()| buffers.get_blocking().unwrap());
    let count = Arc::new(Count::default());
    let wakers = [Waker::from(Arc::new(Dud)), Waker::from(count.clone())];
    let mut tasks = [(); 2].map(|()| Box::pin(buffers.get()));
    for (task, waker) in tasks.iter_mut().zip(&wakers) {
        assert!(task.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    }
    let [first, last] = held;
    drop(first);
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(last)));
    assert!(dropped.is_err(), "the panic goes to the one who gave the buffer back");
    assert_eq!(count.0.load(SeqCst), 1, "a task whose turn it was still sleeps");
    drop(tasks);
    assert_eq!((buffers.in_use(), buffers.waiting()), (0, 0));
}

#[test]
fn a_forked_child_gets_no_buffer_and_drops_those_of_its_parent() {
    let buffers = BufferPool::new(pool(), PAGE_SIZE, 4).unwrap();
    let mut buffer = buffers.get_blocking().unwrap();
    buffer.fill(7);
    // SAFETY: (1) the child calls what is under test, and _exit.
    match unsafe { libc::fork() } {
        0 => {
            // A child that hangs is ended. SAFETY: (1) takes a number.
            unsafe { libc::alarm(60) };
            let reads = buffer.iter().all(|byte| *byte == 7);
            let gets = !matches!(buffers.try_get(), Ok(None));
            let is_told = (buffers.in_use(), buffers.waiting()) == (1, 0);
            drop((buffer, buffers));
            // SAFETY: (1) ends the child at once.
            unsafe { libc::_exit(i32::from(gets || !reads || !is_told)) };
        }
        child => {
            let mut status = -1;
            // SAFETY: (1) `status` is ours.
            unsafe { libc::waitpid(child, &mut status, 0) };
            assert_eq!(status, 0);
        }
    }
    assert_eq!(buffers.in_use(), 1);
    drop(buffer);
    assert!(buffers.try_get().unwrap().is_some());
}
