//! A disk that fails for real: a loop device over a sparse file, on a memory file system that is
//! too small for it. What does not fit fails in the kernel's write-back, and `fsync` tells of that
//! once. Skipped, with a line on stderr, where this process may not mount or make loop devices.
//!
//! Linux' loop driver reports a request as done of which the file below took only a part: `pwrite`
//! and `fsync` succeed, and the rest is gone. Such a disk lies, and no program can tell. So each
//! request is one page here, which the file takes as a whole or not at all.

mod support;

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use support::{PAGE, end, pattern, pool};
use tempfile::TempDir;
use zonal::Pool;
use zonal_cache::{Cache, CachedFile, LostWrites};

const DISK: usize = 6 << 20;

/// The disk, until it is dropped.
struct Disk {
    dir: TempDir,
    node: PathBuf,
    /// The size of a request that the device had before, in KiB. The device keeps it for its next
    /// user.
    request: Option<String>,
}

fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().into()),
        false => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

impl Disk {
    /// A disk of 6 MiB, of which the first few are written in vain.
    fn new() -> Result<Disk, String> {
        let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
        let mut disk = Disk { dir, node: PathBuf::new(), request: None };
        run(Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=2m", "zonal-cache-test"])
            .arg(disk.dir.path()))?;
        let backing = fs::File::create(disk.backing()).map_err(|error| error.to_string())?;
        backing.set_len(DISK as u64).map_err(|error| error.to_string())?;
        disk.node = run(Command::new("losetup").args(["-f", "--show"]).arg(disk.backing()))?.into();
        disk.limit_requests().map_err(|error| format!("{}: {error}", disk.limit().display()))?;
        Ok(disk)
    }

    /// The device's limit on the size of a request.
    fn limit(&self) -> PathBuf {
        let name = self.node.file_name().unwrap_or_default();
        Path::new("/sys/block").join(name).join("queue/max_sectors_kb")
    }

    /// Makes each request one page.
    fn limit_requests(&mut self) -> std::io::Result<()> {
        let before = fs::read_to_string(self.limit())?;
        fs::write(self.limit(), (PAGE / 1024).to_string())?;
        self.request = Some(before);
        Ok(())
    }

    fn or_skip() -> Option<Disk> {
        let made = Disk::new();
        made.inspect_err(|why| eprintln!("skipped: no loop device on a small tmpfs: {why}")).ok()
    }

    fn backing(&self) -> PathBuf {
        self.dir.path().join("disk")
    }

    /// The disk in a cache that holds all of it.
    fn cached(&self, direct: bool) -> (Arc<Pool>, Cache, CachedFile) {
        let builder = Pool::builder().size(16 << 20).refresh_every(None);
        let pool = Arc::new(builder.build().unwrap());
        let cache = Cache::builder(pool.clone()).direct(direct).build().unwrap();
        let file = cache.open(&self.node).unwrap();
        (pool, cache, file)
    }

    /// There is room for all of it now.
    fn repair(&self) {
        run(Command::new("mount").args(["-o", "remount,size=16m"]).arg(self.dir.path())).unwrap();
    }

    /// What the disk holds.
    fn bytes(&self) -> Vec<u8> {
        fs::read(self.backing()).unwrap()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Some(before) = &self.request {
            let _ = fs::write(self.limit(), before);
        }
        if self.node != Path::new("") {
            let _ = run(Command::new("losetup").arg("-d").arg(&self.node));
        }
        let _ = run(Command::new("umount").arg("-l").arg(self.dir.path()));
    }
}

#[test]
fn what_a_full_disk_did_not_take_is_written_when_it_has_room() {
    for direct in [false, true] {
        let Some(disk) = Disk::or_skip() else { return };
        let (pool, cache, file) = disk.cached(direct);
        let bytes = pattern(5, DISK);
        let mut done = 0;
        let mut told = 0;
        while done < DISK {
            match file.write_at(&bytes[done..(done + 100_000).min(DISK)], done as u64) {
                Ok(part) => done += part,
                Err(error) => {
                    told += 1;
                    eprintln!("a write is refused: {error}");
                    break;
                }
            }
        }
        let error = file.sync().unwrap_err();
        eprintln!("direct {} ({}): {error}, {told} refused", direct, file.is_direct());
        assert!(disk.bytes() != bytes);
        for _ in 0..3 {
            file.sync().expect_err("there is still no room");
        }
        // Linux says nothing more by itself. What is in memory is written again.
        disk.repair();
        file.sync().unwrap();
        assert!(disk.bytes()[..done] == bytes[..done], "called safe, and is not");
        while done < DISK {
            done += file.write_at(&bytes[done..(done + 100_000).min(DISK)], done as u64).unwrap();
        }
        file.sync().unwrap();
        assert!(disk.bytes() == bytes, "called safe, and is not");
        drop(file);
        end(cache, &pool);
    }
}

#[test]
fn a_write_of_which_only_a_part_fits_is_not_called_safe() {
    for direct in [false, true] {
        let Some(disk) = Disk::or_skip() else { return };
        let (pool, cache, file) = disk.cached(direct);
        let bytes = pattern(7, 520 * PAGE as usize);
        // There is room for 512 pages.
        let (fits, rest) = bytes.split_at(504 * PAGE as usize);
        assert_eq!(file.write_at(fits, 0).unwrap(), fits.len());
        file.sync().unwrap();
        assert_eq!(file.write_at(rest, fits.len() as u64).unwrap(), rest.len());
        file.sync().expect_err("there is no room for all of it");
        disk.repair();
        file.sync().unwrap();
        assert!(disk.bytes()[..bytes.len()] == bytes, "called safe, and is not");
        drop(file);
        end(cache, &pool);
    }
}

#[test]
fn what_was_given_up_before_the_disk_failed_is_lost() {
    let Some(disk) = Disk::or_skip() else { return };
    let pool = pool();
    let cache = Cache::builder(pool.clone()).max_pages(64).build().unwrap();
    let file = cache.open(&disk.node).unwrap();
    let bytes = pattern(6, DISK);
    assert_eq!(file.write_at(&bytes, 0).unwrap(), DISK);
    eprintln!("{}", file.sync().unwrap_err());
    disk.repair();
    let error = file.sync().unwrap_err();
    assert!(error.get_ref().is_some_and(|inner| inner.is::<LostWrites>()), "{error}");
    // A program with a log.
    for range in file.lost() {
        let range = range.start as usize..range.end as usize;
        assert_eq!(file.write_at(&bytes[range.clone()], range.start as u64).unwrap(), range.len());
    }
    file.sync().unwrap();
    assert!(disk.bytes() == bytes, "called safe, and is not");
    drop(file);
    end(cache, &pool);
}

#[test]
fn two_nodes_of_one_disk_are_one_file() {
    let Some(disk) = Disk::or_skip() else { return };
    let (pool, dir) = (pool(), tempfile::tempdir().unwrap());
    let alias = dir.path().join("alias");
    let name = CString::new(alias.as_os_str().as_bytes()).unwrap();
    let device = fs::metadata(&disk.node).unwrap().rdev();
    // SAFETY: (1) a string that ends with a zero byte.
    if unsafe { libc::mknod(name.as_ptr(), libc::S_IFBLK | 0o600, device) } != 0 {
        eprintln!("skipped: no device node: {}", std::io::Error::last_os_error());
        return;
    }
    let cache = Cache::new(pool.clone()).unwrap();
    let first = cache.open(&disk.node).unwrap();
    let second = match cache.open(&alias) {
        Ok(second) => second,
        Err(error) => {
            eprintln!("skipped: a node in {} cannot be opened: {error}", dir.path().display());
            drop(first);
            return end(cache, &pool);
        }
    };
    first.write_at(b"seen at once", 3 * PAGE).unwrap();
    assert_eq!(second.pin(3).unwrap()[..12], *b"seen at once");
    drop((first, second));
    end(cache, &pool);
}
