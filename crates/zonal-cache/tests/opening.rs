//! Which file is opened, and who may have it.

mod support;

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use support::{PAGE, end, pattern, pool};
use zonal_cache::Cache;

fn read_only(cache: &Cache, path: &Path) -> std::io::Result<zonal_cache::CachedFile> {
    cache.open_file(File::open(path).unwrap())
}

#[test]
fn a_file_that_was_only_read_can_be_written_after_its_last_handle() {
    for direct in [false, true] {
        let (pool, dir) = (pool(), tempfile::tempdir().unwrap());
        let cache = Cache::builder(pool.clone()).direct(direct).build().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, pattern(1, 9000)).unwrap();
        let reader = read_only(&cache, &path).unwrap();
        assert_eq!(reader.pin(1).unwrap()[..], pattern(1, 9000)[4096..8192]);
        assert_eq!(cache.open(&path).unwrap_err().kind(), ErrorKind::InvalidInput);
        drop(reader);
        let writer = cache.open(&path).unwrap();
        assert_eq!(writer.pin(1).unwrap()[..], pattern(1, 9000)[4096..8192]);
        writer.write_at(b"written", 5000).unwrap();
        writer.sync().unwrap();
        assert_eq!(fs::read(&path).unwrap()[5000..5007], *b"written");
        // The other way round it is the same file, and a reader's handle stays one.
        let reader = read_only(&cache, &path).unwrap();
        writer.write_at(b"WRITTEN", 5000).unwrap();
        assert_eq!(reader.pin(1).unwrap()[904..911], *b"WRITTEN");
        assert_eq!(reader.write_at(b"x", 0).unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert_eq!(reader.pin_mut(0).unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert_eq!(reader.set_len(0).unwrap_err().kind(), ErrorKind::PermissionDenied);
        drop((reader, writer));
        assert_eq!(cache.open(&path).unwrap().len(), 9000);
        end(cache, &pool);
        assert_eq!(fs::read(&path).unwrap()[5000..5007], *b"WRITTEN");
    }
}

#[test]
fn a_file_is_known_by_what_it_is_and_not_by_its_name() {
    let (pool, dir) = (pool(), tempfile::tempdir().unwrap());
    let cache = Cache::new(pool.clone()).unwrap();
    let [path, other, link] = ["file", "other", "link"].map(|name| dir.path().join(name));
    cache.create(&path).unwrap().write_at(b"first", 0).unwrap();
    // Renamed: the file that lingers.
    fs::rename(&path, &other).unwrap();
    let renamed = cache.open(&other).unwrap();
    assert_eq!(renamed.pin(0).unwrap()[..], *b"first");
    // Another file under the old name, and a second name of the first one.
    cache.create(&path).unwrap().write_at(b"second", 0).unwrap();
    fs::hard_link(&other, &link).unwrap();
    cache.open(&link).unwrap().write_at(b"F", 0).unwrap();
    assert_eq!(renamed.pin(0).unwrap()[..], *b"First");
    // Deleted while it is open, and made anew: the old one lives as long as it is used.
    fs::remove_file(&path).unwrap();
    fs::write(&path, "third").unwrap();
    assert_eq!(cache.open(&path).unwrap().pin(0).unwrap()[..], *b"third");
    fs::remove_file(&other).unwrap();
    fs::remove_file(&link).unwrap();
    renamed.write_at(b"of no name", 0).unwrap();
    renamed.sync().unwrap();
    assert_eq!(renamed.pin(0).unwrap()[..], *b"of no name");
    // Many deleted and made anew: no old page shows, whichever inode they get.
    for at in 0..50 {
        fs::remove_file(&path).unwrap();
        fs::write(&path, pattern(at, 5000)).unwrap();
        let file = read_only(&cache, &path).unwrap();
        let mut bytes = vec![0; 5000];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 5000);
        assert_eq!(bytes, pattern(at, 5000));
    }
    drop(renamed);
    end(cache, &pool);
}

#[test]
fn descriptors_that_a_cache_cannot_use_are_refused() {
    let (pool, dir) = (pool(), tempfile::tempdir().unwrap());
    let cache = Cache::new(pool.clone()).unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "text").unwrap();
    let refused = |options: &mut fs::OpenOptions| {
        let file = options.open(&path).unwrap();
        let error = cache.open_file(file).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        error.to_string()
    };
    assert!(refused(File::options().read(true).append(true)).contains("appending"));
    assert!(refused(File::options().write(true)).contains("for writing only"));
    let mut direct = File::options();
    direct.read(true).write(true).custom_flags(libc::O_DIRECT);
    match direct.open(&path) {
        Ok(_) => assert!(refused(&mut direct).contains("O_DIRECT")),
        Err(error) => eprintln!("skipped: no O_DIRECT in {}: {error}", dir.path().display()),
    }
    end(cache, &pool);
}

#[test]
fn what_one_cache_writes_no_other_cache_has() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "text").unwrap();
    let pools = [pool(), pool()];
    let [first, second] = [0, 1].map(|at| Cache::new(pools[at].clone()).unwrap());
    let busy = |cache: &Cache| {
        let error = cache.open(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}");
        assert!(error.to_string().contains("CachedFile::close"), "{error}");
    };
    let writer = first.open(&path).unwrap();
    busy(&second);
    assert_eq!(read_only(&second, &path).unwrap_err().kind(), ErrorKind::ResourceBusy);
    // Closed, it lingers; closed in so many words, it does not.
    writer.write_at(b"TEXT", 0).unwrap();
    drop(writer);
    busy(&second);
    first.open(&path).unwrap().close().unwrap();
    assert_eq!(first.stats().pages, 0);
    let reader = read_only(&second, &path).unwrap();
    assert_eq!(reader.pin(0).unwrap()[..], *b"TEXT");
    // Readers share it, and a writer waits for them all.
    let another = read_only(&first, &path).unwrap();
    drop(another);
    busy(&first);
    drop(reader);
    busy(&first);
    read_only(&second, &path).unwrap().close().unwrap();
    first.open(&path).unwrap().write_at(b"Text", 0).unwrap();
    // Not asked to lock, a cache opens what another one has.
    let unlocked = Cache::builder(pools[1].clone()).lock_files(false).build().unwrap();
    assert_eq!(unlocked.open(&path).unwrap().len(), 4);
    // A cache that ends gives its files back, also those of which a forked child has a copy.
    // SAFETY: (1) the child waits, and ends by a signal.
    let child = unsafe { libc::fork() };
    if child == 0 {
        loop {
            // SAFETY: (1) waits.
            unsafe { libc::pause() };
        }
    }
    end(first, &pools[0]);
    assert_eq!(second.open(&path).unwrap().pin(0).unwrap()[..], *b"Text");
    // SAFETY: (1) a child of this process, which nobody has waited for.
    assert_eq!(unsafe { libc::kill(child, libc::SIGKILL) }, 0);
    // SAFETY: (1) as above.
    assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
    drop(unlocked);
    end(second, &pools[1]);
}

/// Names the file for the other process.
const FILE: &str = "ZONAL_CACHE_TEST_FILE";

/// The other process. Without the variable it is no test.
#[test]
fn another_process() {
    let Ok(path) = std::env::var(FILE) else { return };
    let pool = pool();
    let cache = Cache::new(pool.clone()).unwrap();
    match cache.open(&path) {
        Err(error) if error.kind() == ErrorKind::ResourceBusy => println!("refused"),
        Err(error) => panic!("{error}"),
        Ok(file) => {
            println!("opened");
            // Ends with the lock, by a signal.
            file.write_at(b"never written", 0).unwrap();
            // SAFETY: (1) ends this process.
            unsafe { libc::raise(libc::SIGKILL) };
        }
    }
}

#[test]
fn what_a_cache_of_another_process_has_is_refused() {
    let (pool, dir) = (pool(), tempfile::tempdir().unwrap());
    let path = dir.path().join("file");
    let other = || {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "another_process", "--nocapture"]).env(FILE, &path);
        let output = child.stderr(Stdio::null()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        ["refused", "opened"].into_iter().find(|said| text.contains(said)).map(str::to_owned)
    };
    let cache = Cache::new(pool.clone()).unwrap();
    let file = cache.create(&path).unwrap();
    file.write_at(b"mine", 0).unwrap();
    assert_eq!(other().as_deref(), Some("refused"));
    file.close().unwrap();
    assert_eq!(other().as_deref(), Some("opened"));
    // It was killed, and its lock is gone with it.
    assert_eq!(cache.open(&path).unwrap().pin(0).unwrap()[..], *b"mine");
    end(cache, &pool);
    assert_eq!(fs::metadata(&path).unwrap().len() % PAGE, 4);
}
