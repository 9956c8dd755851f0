//! A process that may have few files open. A test of its own: the limit is the whole process's.

mod support;

use std::fs;

use support::{end, pattern, pool};
use zonal_cache::Cache;

#[test]
fn files_without_handles_are_dropped_when_descriptors_run_out() {
    let (pool, dir) = (pool(), tempfile::tempdir().unwrap());
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: (1) `limit` is ours.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }, 0);
    limit.rlim_cur = 64;
    // SAFETY: (1) as above.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    let cache = Cache::builder(pool.clone()).direct(true).closed_files(10_000).build().unwrap();
    let path = |at: u64| dir.path().join(at.to_string());
    let held = cache.create(path(0)).unwrap();
    held.write_at(&pattern(0, 100), 0).unwrap();
    for at in 1..400 {
        let file = cache.create(path(at)).unwrap();
        file.write_at(&pattern(at, 100), 0).unwrap();
    }
    for at in 0..400 {
        let mut bytes = [0; 100];
        assert_eq!(cache.open(path(at)).unwrap().read_at(&mut bytes, 0).unwrap(), 100);
        assert_eq!(bytes[..], pattern(at, 100));
    }
    drop(held);
    end(cache, &pool);
    for at in 0..400 {
        assert_eq!(fs::read(path(at)).unwrap(), pattern(at, 100));
    }
}
