//! A child that the number of its process does not tell from its parent: both are the first of a
//! PID namespace, as where a container's first process makes another container.

mod support;

use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};

use support::{MemStore, PAGE, pattern, pool};
use zonal_cache::Cache;

/// What a process ends with that may not make namespaces.
const EXIT_SKIPPED: i32 = 77;

/// Runs it in a forked child. Returns what that ends with; -1 if a signal ended it.
fn in_child(body: impl FnOnce() -> i32) -> i32 {
    // SAFETY: (1) the child does what is under test, and ends by _exit.
    match unsafe { libc::fork() } {
        0 => {
            // A child that hangs is ended. SAFETY: (1) takes a number.
            unsafe { libc::alarm(60) };
            // A panic must not get out: the child would end as a test that was run.
            let code = catch_unwind(AssertUnwindSafe(body)).unwrap_or(4);
            // SAFETY: (1) ends the child at once.
            unsafe { libc::_exit(code) }
        }
        child => {
            let mut status = -1;
            // SAFETY: (1) `status` is ours.
            unsafe { libc::waitpid(child, &mut status, 0) };
            if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -1 }
        }
    }
}

/// Runs it in the first process of a PID namespace.
fn in_namespace(body: impl FnOnce() -> i32) -> i32 {
    // SAFETY: (1) takes a number, and changes what later children are.
    match unsafe { libc::unshare(libc::CLONE_NEWPID) } {
        0 => in_child(|| if std::process::id() == 1 { body() } else { 2 }),
        _ => EXIT_SKIPPED,
    }
}

fn parent() -> i32 {
    let cache = Cache::new(pool()).unwrap();
    let store = MemStore::new(Vec::new());
    let file = cache.open_store(store.clone()).unwrap();
    file.write_at(&pattern(1, PAGE as usize), 0).unwrap();
    in_namespace(|| {
        let unsupported = |error: std::io::Error| error.kind() == ErrorKind::Unsupported;
        let refused = file.sync().is_err_and(unsupported) && file.pin(0).is_err_and(unsupported);
        drop((file, cache));
        if refused && store.bytes().is_empty() { 0 } else { 3 }
    })
}

#[test]
fn a_child_with_the_number_of_its_parent_is_a_child_all_the_same() {
    // A process that has left for a namespace starts no threads, so this one stays.
    match in_child(|| in_namespace(parent)) {
        EXIT_SKIPPED => eprintln!("SKIPPED: this process may not make PID namespaces"),
        code => assert_eq!(code, 0, "-1: it hung"),
    }
}
