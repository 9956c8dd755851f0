//! Files of the operating system.

mod support;

use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use support::{PAGE, end, pattern, pool};
use zonal_cache::{Cache, FileStore, Store};

#[test]
fn a_file_under_two_names_is_one_file() {
    let (pool, dir) = (pool(), tempfile::tempdir().unwrap());
    let cache = Cache::new(pool.clone()).unwrap();
    let (path, link) = (dir.path().join("a"), dir.path().join("b"));
    let first = cache.create(&path).unwrap();
    fs::hard_link(&path, &link).unwrap();
    let second = cache.open(&link).unwrap();
    first.write_at(b"seen at once", 0).unwrap();
    let mut buffer = [0; 12];
    assert_eq!(second.read_at(&mut buffer, 0).unwrap(), 12);
    assert_eq!(&buffer, b"seen at once");
    assert_eq!(fs::read(&path).unwrap(), b"", "nothing is written yet");
    drop(first);
    second.sync().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"seen at once");
    drop(second);
    end(cache, &pool);
}

#[test]
fn pages_of_a_closed_file_stay_until_there_are_too_many_files() {
    let (pool, dir) = (pool(), tempfile::tempdir().unwrap());
    let cache = Cache::builder(pool.clone()).closed_files(4).build().unwrap();
    let name = |at: u64| dir.path().join(at.to_string());
    for at in 0..20 {
        cache.create(name(at)).unwrap().write_at(&pattern(at, 5000), 0).unwrap();
    }
    let before = cache.stats().misses;
    assert_eq!(cache.open(name(19)).unwrap().pin(0).unwrap()[..], pattern(19, 5000)[..4096]);
    assert_eq!(cache.stats().misses, before, "the page of the last file is still there");
    let since = std::time::Instant::now();
    while cache.stats().pages > 2 * 5 {
        assert!(since.elapsed().as_secs() < 180, "closed files stay: {:?}", cache.stats());
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    for at in 0..20 {
        let mut bytes = vec![0; 6000];
        assert_eq!(cache.open(name(at)).unwrap().read_at(&mut bytes, 0).unwrap(), 5000);
        assert_eq!(bytes[..5000], pattern(at, 5000));
    }
    end(cache, &pool);
    for at in 0..20 {
        assert_eq!(fs::read(name(at)).unwrap(), pattern(at, 5000));
    }
}

#[test]
fn a_file_made_anew_is_empty_in_the_cache_too() {
    let (pool, dir) = (pool(), tempfile::tempdir().unwrap());
    let cache = Cache::new(pool.clone()).unwrap();
    let path = dir.path().join("file");
    cache.create(&path).unwrap().write_at(&[1; 9000], 0).unwrap();
    let file = cache.create(&path).unwrap();
    assert_eq!((file.len(), file.read_at(&mut [0; 10], 0).unwrap()), (0, 0));
    file.write_at(b"end", 5000).unwrap();
    drop(file);
    end(cache, &pool);
    assert_eq!(fs::read(&path).unwrap(), [&[0; 5000][..], b"end"].concat());
}

#[test]
fn direct_or_not_the_bytes_are_the_same() {
    let dir = tempfile::tempdir().unwrap();
    for direct in [false, true] {
        let (pool, path) = (pool(), dir.path().join(format!("direct-{direct}")));
        let cache = Cache::builder(pool.clone()).direct(direct).max_pages(32).build().unwrap();
        let file = cache.create(&path).unwrap();
        eprintln!("direct asked for: {direct}, granted: {}", file.is_direct());
        assert!(direct || !file.is_direct());
        // The end is not a whole page, so it goes the other way.
        let bytes = pattern(8, 100 * PAGE as usize + 123);
        for (at, part) in bytes.chunks(10_000).enumerate() {
            assert_eq!(file.write_at(part, at as u64 * 10_000).unwrap(), part.len());
        }
        let mut back = vec![0; bytes.len()];
        assert_eq!(file.read_at(&mut back, 0).unwrap(), bytes.len());
        assert!(back == bytes);
        file.set_len(50 * PAGE + 7).unwrap();
        file.sync().unwrap();
        assert!(fs::read(&path).unwrap() == bytes[..50 * 4096 + 7]);
        drop(file);
        end(cache, &pool);
    }
}

/// Memory file systems take no direct reads and writes, or do: either way the bytes are right.
#[test]
fn a_file_system_without_direct_access_is_used_all_the_same() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        eprintln!("skipped: no /dev/shm on this machine");
        return;
    };
    let pool = pool();
    let cache = Cache::builder(pool.clone()).direct(true).build().unwrap();
    let file = cache.create(dir.path().join("file")).unwrap();
    eprintln!("direct granted: {}", file.is_direct());
    file.write_at(&pattern(2, 40_000), 0).unwrap();
    file.sync().unwrap();
    assert_eq!(fs::read(dir.path().join("file")).unwrap(), pattern(2, 40_000));
    drop(file);
    end(cache, &pool);
}

#[test]
fn a_file_that_may_only_be_read_is_read() {
    let (pool, dir) = (pool(), tempfile::tempdir().unwrap());
    let cache = Cache::new(pool.clone()).unwrap();
    let path = dir.path().join("file");
    fs::write(&path, b"read me").unwrap();
    let file = cache.open_file(fs::File::open(&path).unwrap()).unwrap();
    assert_eq!(&*file.pin(0).unwrap(), b"read me");
    let denied = std::io::ErrorKind::PermissionDenied;
    assert_eq!(file.write_at(b"x", 0).unwrap_err().kind(), denied);
    assert_eq!(file.pin_mut(0).unwrap_err().kind(), denied);
    assert_eq!(file.set_len(0).unwrap_err().kind(), denied);
    // Two caches of one file would not agree.
    let refused = cache.open(&path).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput, "{refused}");
    drop(file);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    end(cache, &pool);
}

#[test]
fn a_forked_child_drops_a_cache_without_writing() {
    let (pool, dir) = (pool(), tempfile::tempdir().unwrap());
    let cache = Cache::new(pool.clone()).unwrap();
    let path = dir.path().join("file");
    let file = cache.create(&path).unwrap();
    file.write_at(b"the parent's to write", 0).unwrap();
    // SAFETY: (1) the child calls nothing but the drops under test and _exit.
    match unsafe { libc::fork() } {
        0 => {
            drop((file, cache));
            let written = fs::metadata(&path).map_or(1, |file| file.len());
            // SAFETY: (1) ends the child at once.
            unsafe { libc::_exit(i32::from(written != 0)) };
        }
        child => {
            let mut status = -1;
            // SAFETY: (1) `status` is ours.
            unsafe { libc::waitpid(child, &mut status, 0) };
            assert_eq!(status, 0, "the child wrote, or did not come to its end");
        }
    }
    drop(file);
    end(cache, &pool);
    assert_eq!(fs::read(&path).unwrap(), b"the parent's to write");
}

#[test]
fn files_are_read_and_written_through_stores_of_the_programs_own() {
    /// Counts what goes by.
    struct Counting(FileStore, Arc<AtomicU64>);
    impl Store for Counting {
        fn read_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
            self.0.read_at(buffers, offset)
        }
        fn write_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
            let written = self.0.write_at(buffers, offset)?;
            self.1.fetch_add(written as u64, Relaxed);
            Ok(written)
        }
        fn len(&self) -> io::Result<u64> {
            self.0.len()
        }
        fn set_len(&self, len: u64) -> io::Result<()> {
            self.0.set_len(len)
        }
        fn sync(&self) -> io::Result<()> {
            self.0.sync()
        }
    }
    let (pool, dir, bytes) = (pool(), tempfile::tempdir().unwrap(), Arc::new(AtomicU64::new(0)));
    let counted = bytes.clone();
    let make = move |file| Box::new(Counting(file, counted.clone())) as Box<dyn Store>;
    let cache = Cache::builder(pool.clone()).stores(make).build().unwrap();
    for name in ["a", "b"] {
        let file = cache.create(dir.path().join(name)).unwrap();
        file.write_at(&[7; 5000], 0).unwrap();
        file.sync().unwrap();
    }
    assert_eq!(bytes.load(Relaxed), 10_000);
    assert_eq!(fs::read(dir.path().join("b")).unwrap(), [7; 5000]);
    end(cache, &pool);
}
