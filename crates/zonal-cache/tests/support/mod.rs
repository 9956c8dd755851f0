//! A store in memory that fails when told to, and pools of a known size.
#![allow(dead_code, reason = "each test uses a part")]

pub mod backing;
pub mod device;
pub mod fuse;
pub mod program;

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use zonal::Pool;
use zonal_cache::{Cache, Store};

pub const PAGE: u64 = 4096;

/// A small pool: 4 MiB.
pub fn pool() -> Arc<Pool> {
    Arc::new(Pool::builder().size(4 << 20).refresh_every(None).build().unwrap())
}

/// Drops the cache, and checks that every page is back.
pub fn end(cache: Cache, pool: &Pool) {
    // The background may still be at pages, those of closed files above all.
    let since = Instant::now();
    while let Err(what) = cache.validate() {
        assert!(since.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(cache);
    pool.validate().unwrap();
    assert_eq!(pool.free_page_count() * PAGE, pool.bytes() as u64, "pages are lost");
}

/// What a [`MemStore`] holds and does.
#[derive(Default)]
pub struct Mem {
    pub bytes: Mutex<Vec<u8>>,
    pub reads: AtomicU64,
    pub writes: AtomicU64,
    /// This many more reads and writes work, then one fails. Negative: all work.
    pub fail_in: AtomicI64,
    /// All writes fail.
    pub broken: AtomicBool,
    /// All reads fail.
    pub unreadable: AtomicBool,
    /// Writes behind this find the store full; 0: no bound.
    pub capacity: AtomicU64,
    /// Reads take this long.
    pub delay: Mutex<Duration>,
    /// Writes take this long.
    pub write_delay: Mutex<Duration>,
    /// At most this many bytes in one call; 0: no bound.
    pub part: AtomicU64,
}

/// A handle of it.
#[derive(Clone)]
pub struct MemStore(pub Arc<Mem>);

impl MemStore {
    pub fn new(bytes: Vec<u8>) -> MemStore {
        let mem = Mem { bytes: Mutex::new(bytes), fail_in: AtomicI64::new(-1), ..Mem::default() };
        MemStore(Arc::new(mem))
    }
    pub fn bytes(&self) -> Vec<u8> {
        self.0.bytes.lock().unwrap().clone()
    }
    fn count(&self, counter: &AtomicU64) -> io::Result<()> {
        counter.fetch_add(1, SeqCst);
        match self.0.fail_in.load(SeqCst) {
            -1 => Ok(()),
            _ if self.0.fail_in.fetch_sub(1, SeqCst) == 0 => Err(failed()),
            _ => Ok(()),
        }
    }
    fn at_most(&self, len: usize) -> usize {
        match self.0.part.load(SeqCst) {
            0 => len,
            part => len.min(part as usize),
        }
    }
}

pub fn failed() -> io::Error {
    io::Error::from_raw_os_error(5)
}
pub const EIO: Option<i32> = Some(5);
pub const ENOSPC: Option<i32> = Some(28);

impl Store for MemStore {
    fn read_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        self.count(&self.0.reads)?;
        if self.0.unreadable.load(SeqCst) {
            return Err(failed());
        }
        let delay = *self.0.delay.lock().unwrap();
        if !delay.is_zero() {
            std::thread::sleep(delay);
        }
        let bytes = self.0.bytes.lock().unwrap();
        let from = bytes.get(offset as usize..).unwrap_or(&[]);
        let mut rest = &from[..self.at_most(from.len())];
        let mut done = 0;
        for buffer in buffers {
            let part = buffer.len().min(rest.len());
            buffer[..part].copy_from_slice(&rest[..part]);
            rest = &rest[part..];
            done += part;
        }
        Ok(done)
    }

    fn write_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.count(&self.0.writes)?;
        let delay = *self.0.write_delay.lock().unwrap();
        if !delay.is_zero() {
            std::thread::sleep(delay);
        }
        if self.0.broken.load(SeqCst) {
            return Err(failed());
        }
        let mut all: Vec<u8> = buffers.iter().flat_map(|buffer| buffer.iter().copied()).collect();
        all.truncate(self.at_most(all.len()));
        let capacity = self.0.capacity.load(SeqCst);
        if capacity > 0 {
            let room = capacity.saturating_sub(offset) as usize;
            if room == 0 {
                return Err(io::Error::from_raw_os_error(28));
            }
            all.truncate(room);
        }
        let mut bytes = self.0.bytes.lock().unwrap();
        let end = offset as usize + all.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset as usize..end].copy_from_slice(&all);
        Ok(all.len())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.bytes.lock().unwrap().len() as u64)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        if self.0.broken.load(SeqCst) {
            return Err(failed());
        }
        self.0.bytes.lock().unwrap().resize(len as usize, 0);
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes that differ from page to page and from seed to seed.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let word =
        |at: usize| (at as u64 / 8 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed);
    (0..len).map(|at| word(at).rotate_left(17).to_le_bytes()[at % 8]).collect()
}
