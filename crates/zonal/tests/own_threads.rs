//! The pool's own threads: how many there are, and that none outlives or outruns its pool.
//!
//! Threads are counted by their names, so each case runs in a process of its own.

mod support;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use support::{Watchdog, exit_now, run_child, wait_child};
use zonal::reclaim::{Scanned, Shrinker};
use zonal::{Gfp, Order, Pool};

/// Says to the child which case it is.
const CASE: &str = "ZONAL_OWN_THREADS";
/// A case takes a second; this is for a machine that has other things to do.
const LIMIT: Duration = Duration::from_secs(240);
/// The system does not allow what the case needs.
const EXIT_SKIPPED: i32 = 77;

type Case = (&'static str, fn());

const CASES: [Case; 6] = [
    ("restarts", restarts_leave_one_refresh_thread),
    ("at once", restarts_at_once_leave_one_refresh_thread),
    ("dropped", a_dropped_pool_leaves_no_thread),
    ("consumer", a_consumer_drops_its_pool_in_a_call_of_the_pools_own_thread),
    ("zero", an_interval_of_zero_changes_nothing),
    ("namespaces", a_child_with_its_parents_number_has_no_threads),
];

/// Threads of this process with this name.
fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.flatten().map(|task| std::fs::read_to_string(task.path().join("comm")));
    // A thread that ends meanwhile has no name.
    names.filter(|task| task.as_ref().is_ok_and(|task| task.trim_end() == name)).count()
}

/// A joined thread may still be listed for a moment.
fn settles(name: &str, count: usize) {
    while threads(name) != count {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn pool() -> Pool {
    Pool::builder().size(16 << 20).build().unwrap()
}

fn restarts_leave_one_refresh_thread() {
    let pool = pool();
    for millis in 1..20 {
        pool.restart_worker(Duration::from_millis(millis), 0).unwrap();
    }
    settles("zonal-refresh", 1);
    drop(pool);
    settles("zonal-refresh", 0);
}

fn restarts_at_once_leave_one_refresh_thread() {
    let pool = pool();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    pool.restart_worker(Duration::from_millis(1), 1 << 20).unwrap();
                    // Reads everything. What it says is not judged: other threads' restarts let
                    // pages move meanwhile.
                    let _ = pool.validate();
                }
            });
        }
    });
    pool.validate().unwrap();
    settles("zonal-refresh", 1);
    drop(pool);
    settles("zonal-refresh", 0);
}

/// Threads that run at full speed while their pools go.
fn a_dropped_pool_leaves_no_thread() {
    for _ in 0..200 {
        let pool = pool();
        pool.restart_worker(Duration::from_micros(1), 1 << 30).unwrap();
        pool.restart_worker(Duration::from_micros(1), 1 << 30).unwrap();
        drop(pool.alloc(Order::ZERO));
    }
    settles("zonal-refresh", 0);
}

/// The pool's memory and threads go once the call is over.
fn a_consumer_drops_its_pool_in_a_call_of_the_pools_own_thread() {
    let pool = Arc::new(Pool::builder().size(16 << 20).build().unwrap());
    let base = pool.base() as usize;
    let (own, dropped) = (Arc::new(Mutex::new(None)), Arc::new(AtomicBool::new(false)));
    let (taken, tells) = (Arc::clone(&own), Arc::clone(&dropped));
    let count = move |_| {
        if std::thread::current().name() == Some("zonal-reclaim-0")
            && let Some(pool) = taken.lock().unwrap().take()
        {
            drop::<Arc<Pool>>(pool);
            tells.store(true, Relaxed);
        }
        1 << 20
    };
    let registered = pool.register_shrinker(Shrinker::new("owner", count, |_| Scanned::Stop));
    // Low, so that the reclaimer looks who could give something up.
    let pages = std::iter::from_fn(|| pool.alloc_pages(Order::ZERO, Gfp::NOWAIT).ok());
    assert!(pages.count() > 1000);
    *own.lock().unwrap() = Some(pool);
    while !dropped.load(Relaxed) {
        std::thread::sleep(Duration::from_millis(1));
    }
    settles("zonal-reclaim-0", 0);
    settles("zonal-refresh", 0);
    let mapped = || std::fs::read_to_string("/proc/self/maps").unwrap();
    while mapped().contains(&format!("{base:x}-")) {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(registered);
}

fn an_interval_of_zero_changes_nothing() {
    let pool = pool();
    let error = pool.restart_worker(Duration::ZERO, 0).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    settles("zonal-refresh", 1);
}

/// Each child is number 1 of a PID namespace of its own.
fn a_child_with_its_parents_number_has_no_threads() {
    let first = || {
        let pool = pool();
        pool.restart_worker(Duration::from_millis(1), 0).unwrap();
        let second = move || {
            assert_eq!((std::process::id(), threads("zonal-refresh")), (1, 0));
            pool.restart_worker(Duration::from_millis(1), 0).unwrap();
            pool.validate().unwrap();
            drop(pool);
        };
        assert_eq!(std::process::id(), 1);
        first_of_its_namespace(second)
    };
    exit_now(first_of_its_namespace(first_as(first)));
}

/// Hands the inner child's exit code on.
fn first_as(body: impl FnOnce() -> i32) -> impl FnOnce() {
    move || exit_now(body())
}

/// Runs `body` as the first process of a new PID namespace. Returns its exit code.
fn first_of_its_namespace(body: impl FnOnce()) -> i32 {
    // SAFETY: (1) takes a constant.
    if unsafe { libc::unshare(libc::CLONE_NEWPID) } != 0 {
        return EXIT_SKIPPED;
    }
    // SAFETY: (1) the child uses the pool, which is made for it, the heap, which libc keeps usable,
    // and no lock that another thread may have held.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        body();
        exit_now(0);
    }
    let status = wait_child(pid, LIMIT / 2).expect("the child hung");
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 1 }
}

/// The other process. Without the variable it is no test.
#[test]
fn case_of_the_child() {
    let Ok(name) = std::env::var(CASE) else { return };
    let _watchdog = Watchdog::new("the case", LIMIT);
    let (_, case) = CASES.iter().find(|(case, _)| *case == name).unwrap();
    case();
}

#[test]
fn a_pool_has_the_threads_it_was_asked_for_and_ends_them() {
    for (name, _) in CASES {
        match run_child("case_of_the_child", CASE, name) {
            Some(EXIT_SKIPPED) => eprintln!("SKIPPED: {name}: not allowed here"),
            code => assert_eq!(code, Some(0), "{name}"),
        }
    }
}
