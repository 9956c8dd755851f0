//! A disk of 2011 around this machine's: each read and write takes at least as long, in real time,
//! as it would have taken there.
//!
//! One head and no cache: a request that goes on where the last one ended takes the time of its
//! bytes, any other one a seek more, and requests are served in the order of their coming.

use std::collections::HashSet;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use zonal_cache::{FileStore, Store};

/// Bytes of a MiB.
const MIB: f64 = 1_048_576.0;

/// The disk.
#[derive(Debug)]
pub struct Disk {
    bytes_per_s: f64,
    seek: Duration,
    head: Mutex<Head>,
    requests: AtomicU64,
    files: AtomicU64,
}

/// Where the head is when all that was asked for is done, and when that will be.
#[derive(Debug)]
struct Head {
    file: u64,
    offset: u64,
    free_at: Instant,
}

impl Disk {
    /// A disk with this rate in MiB/s and this seek time.
    pub fn new(mib_s: u64, seek: Duration) -> Disk {
        let head = Head { file: 0, offset: 0, free_at: Instant::now() };
        Disk {
            bytes_per_s: mib_s as f64 * MIB,
            seek,
            head: Mutex::new(head),
            requests: 0.into(),
            files: 0.into(),
        }
    }

    /// Requests so far.
    pub fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    /// A file on this disk.
    pub fn store(self: &Arc<Disk>, file: FileStore) -> Box<dyn Store> {
        let id = self.files.fetch_add(1, Relaxed) + 1;
        Box::new(OnDisk { disk: Arc::clone(self), id, file, written: Mutex::default() })
    }

    /// When a request that comes now will be done.
    fn done_at(&self, now: Instant, file: u64, offset: u64, bytes: usize) -> Instant {
        let mut head = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        let mut takes = Duration::from_secs_f64(bytes as f64 / self.bytes_per_s);
        if (head.file, head.offset) != (file, offset) {
            takes += self.seek;
        }
        (head.file, head.offset) = (file, offset + bytes as u64);
        head.free_at = head.free_at.max(now) + takes;
        head.free_at
    }
}

/// A file of the operating system on such a disk.
struct OnDisk {
    disk: Arc<Disk>,
    id: u64,
    file: FileStore,
    /// Pages that were written. Others are holes: the file system does not read them.
    written: Mutex<HashSet<u64>>,
}

/// The pages of some bytes.
fn pages(offset: u64, bytes: usize) -> impl Iterator<Item = u64> {
    let page = zonal::PAGE_SIZE as u64;
    offset / page..(offset + bytes as u64).div_ceil(page)
}

impl OnDisk {
    fn request(
        &self,
        offset: u64,
        bytes: usize,
        real: impl FnOnce() -> io::Result<usize>,
    ) -> io::Result<usize> {
        let done_at = self.disk.done_at(Instant::now(), self.id, offset, bytes);
        let outcome = real();
        std::thread::sleep(done_at.saturating_duration_since(Instant::now()));
        self.disk.requests.fetch_add(1, Relaxed);
        outcome
    }
}

impl Store for OnDisk {
    fn read_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        let bytes = buffers.iter().map(|buffer| buffer.len()).sum();
        let hole = {
            let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
            pages(offset, bytes).all(|page| !written.contains(&page))
        };
        if hole {
            return self.file.read_at(buffers, offset);
        }
        self.request(offset, bytes, || self.file.read_at(buffers, offset))
    }
    fn write_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let bytes = buffers.iter().map(|buffer| buffer.len()).sum();
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.extend(pages(offset, bytes));
        drop(written);
        self.request(offset, bytes, || self.file.write_at(buffers, offset))
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
    /// The disk has no cache: each write was waited for. What the real one does with its own is no
    /// matter of a load whose files are removed.
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
    fn is_direct(&self) -> bool {
        self.file.is_direct()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_take_their_bytes_time_a_seek_and_their_turn() {
        let disk = Disk::new(1, Duration::from_millis(7));
        let start = disk.head.lock().unwrap().free_at;
        let ms = |at: Instant| (at - start).as_millis();
        let mib = 1 << 20;
        assert_eq!(ms(disk.done_at(start, 1, 0, mib)), 1007, "from where the head was");
        assert_eq!(ms(disk.done_at(start, 1, mib as u64, mib)), 2007, "behind the first, no seek");
        assert_eq!(ms(disk.done_at(start, 2, 2 * mib as u64, mib / 2)), 2514, "another file");
        let later = start + Duration::from_secs(10);
        assert_eq!(ms(disk.done_at(later, 2, 0, mib)), 11_007, "an idle disk begins at once");
    }
}
