//! What the tests of rings share.
#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::Arc;

use zonal::{PAGE_SIZE, Pool};
use zonal_uring::{Options, Ring, RingError};

pub const MIB: usize = 1 << 20;

pub fn pool() -> Pool {
    Pool::builder().size(16 * MIB).refresh_every(None).build().unwrap()
}

/// A ring; `None`, said aloud, where this system makes none.
pub fn ring(pool: &Pool, options: &Options) -> Option<Ring> {
    match Ring::new(pool, options) {
        Ok(ring) => Some(ring),
        Err(RingError::Unavailable(error)) => {
            eprintln!("SKIPPED: io_uring is refused here: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Rings with fixed buffers and without, each with its pool.
pub fn rings() -> Vec<(Pool, Ring)> {
    let make = |fixed| {
        let pool = pool();
        ring(&pool, &Options::new().fixed(fixed)).map(|ring| (pool, ring))
    };
    [true, false].into_iter().filter_map(make).collect()
}

pub fn is_whole(pool: &Pool) -> bool {
    pool.validate().unwrap();
    pool.free_page_count() as usize * PAGE_SIZE == pool.bytes()
}

pub fn shared(file: impl Into<OwnedFd>) -> Arc<OwnedFd> {
    Arc::new(file.into())
}

/// Runs one test of this binary in a process of its own, with the environment variable `name` set.
/// Returns its exit code; `None` if a signal killed it.
pub fn run_child(test: &str, name: &str, value: &str) -> Option<i32> {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture"]).env(name, value);
    let output = child.stdin(Stdio::null()).output().unwrap();
    if !output.status.success() {
        eprintln!("{value}: {}", output.status);
        eprintln!("{}", String::from_utf8_lossy(&output.stdout));
        eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    }
    output.status.code()
}
