//! The storage backend by itself: it is its storage, byte for byte.

use std::io;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redb::{BackendError, StorageBackend};
use zonal_cache::EngineCache;
use zonal_redb::Cached;

/// A storage in memory that counts, and fails when told to.
#[derive(Clone, Debug, Default)]
struct Memory(Arc<State>);

#[derive(Debug, Default)]
struct State {
    bytes: Mutex<Vec<u8>>,
    reads: AtomicU64,
    broken: AtomicBool,
    /// Locks that are held.
    locked: AtomicU64,
}

impl Memory {
    fn bytes(&self) -> Vec<u8> {
        self.0.bytes.lock().unwrap().clone()
    }
}

impl StorageBackend for Memory {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.bytes.lock().unwrap().len() as u64)
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.reads.fetch_add(1, SeqCst);
        let bytes = self.0.bytes.lock().unwrap();
        let from = bytes.get(offset as usize..offset as usize + out.len());
        out.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.bytes.lock().unwrap().resize(len as usize, 0);
        Ok(())
    }
    fn sync_data(&self) -> io::Result<()> {
        match self.0.broken.load(SeqCst) {
            true => Err(io::Error::from_raw_os_error(5)),
            false => Ok(()),
        }
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.0.broken.load(SeqCst) {
            return Err(io::Error::from_raw_os_error(5));
        }
        let mut bytes = self.0.bytes.lock().unwrap();
        let end = offset as usize + data.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset as usize..end].copy_from_slice(data);
        Ok(())
    }
    fn close(&self) -> io::Result<()> {
        self.0.locked.store(0, SeqCst);
        Ok(())
    }
    fn try_lock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<bool, BackendError> {
        self.0.locked.fetch_add(1, SeqCst);
        Ok(true)
    }
    fn unlock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<(), BackendError> {
        self.0.locked.fetch_sub(1, SeqCst);
        Ok(())
    }
}

fn cache(page_bytes: usize) -> EngineCache {
    let pool = Arc::new(zonal::Pool::builder().size(4 << 20).build().unwrap());
    EngineCache::builder(pool).page_bytes(page_bytes).max_pages(8).build().unwrap()
}

fn alone(memory: &Memory, cache: &EngineCache) -> Cached<Memory> {
    let cached = Cached::new(memory.clone(), cache).unwrap();
    assert!(cached.try_lock_range(Bound::Unbounded, Bound::Unbounded).unwrap());
    cached
}

#[test]
fn a_storage_in_a_cache_is_a_vector_of_bytes() {
    let mut seed = 88_172_645_463_325_252_u64;
    let mut random = |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    for round in 0..40 {
        let (memory, cache) = (Memory::default(), cache(4096 << (round % 5)));
        let cached = alone(&memory, &cache);
        let mut model: Vec<u8> = Vec::new();
        for _ in 0..150 {
            let offset = random(400_000) as usize;
            let len = [1, 100, 4096, 20_000, 70_000][random(5) as usize];
            match random(8) {
                0..3 => {
                    let data = vec![random(255) as u8 + 1; len];
                    cached.write(offset as u64, &data).unwrap();
                    model.resize(model.len().max(offset + len), 0);
                    model[offset..offset + len].copy_from_slice(&data);
                }
                3..6 => {
                    let mut out = vec![0; len];
                    let read = cached.read(offset as u64, &mut out);
                    match model.get(offset..offset + len) {
                        Some(bytes) => assert!(read.is_ok() && out == bytes),
                        None => assert_eq!(read.unwrap_err().kind(), io::ErrorKind::UnexpectedEof),
                    }
                }
                6 => {
                    cached.set_len(offset as u64).unwrap();
                    model.resize(offset, 0);
                }
                _ => {
                    cached.sync_data().unwrap();
                    let stored = memory.bytes();
                    assert!(stored == model[..stored.len()]);
                    assert!(model[stored.len()..].iter().all(|byte| *byte == 0));
                }
            }
            assert_eq!(cached.len().unwrap(), model.len() as u64);
        }
        cached.close().unwrap();
        let stored = memory.bytes();
        assert!(stored == model[..stored.len()]);
    }
}

#[test]
fn without_a_lock_on_all_of_it_the_storage_is_read_each_time() {
    let (memory, cache) = (Memory::default(), cache(4096));
    let cached = Cached::new(memory.clone(), &cache).unwrap();
    cached.write(0, &[1; 5000]).unwrap();
    let mut out = [0; 100];
    assert!(cached.try_lock_range(Bound::Included(1 << 62), Bound::Unbounded).unwrap());
    (0..3).for_each(|_| cached.read(0, &mut out).unwrap());
    assert_eq!((memory.bytes().len(), memory.0.reads.load(SeqCst)), (5000, 3));
    // Another process changes it.
    memory.write(0, &[2; 100]).unwrap();
    assert!(cached.try_lock_range(Bound::Unbounded, Bound::Unbounded).unwrap());
    (0..3).for_each(|_| cached.read(0, &mut out).unwrap());
    assert_eq!((out, memory.0.reads.load(SeqCst)), ([2; 100], 4), "one page is read once");
}

#[test]
fn a_storage_that_fails_says_so_at_the_sync_and_keeps_the_bytes() {
    let (memory, cache) = (Memory::default(), cache(4096));
    let cached = alone(&memory, &cache);
    cached.write(0, &[7; 9000]).unwrap();
    memory.0.broken.store(true, SeqCst);
    assert_eq!(cached.sync_data().unwrap_err().raw_os_error(), Some(5));
    memory.0.broken.store(false, SeqCst);
    cached.sync_data().unwrap();
    assert_eq!(memory.bytes(), [7; 9000]);
}

#[test]
fn what_could_not_be_written_at_the_end_is_never_written_over_the_next_engine() {
    type Leave = fn(&Cached<Memory>) -> bool;
    let close: Leave = |cached| cached.close().is_ok();
    let unlock: Leave = |cached| cached.unlock_range(Bound::Unbounded, Bound::Unbounded).is_ok();
    for (leave, drops) in [(close, false), (close, true), (unlock, false), (unlock, true)] {
        let (memory, cache) = (Memory::default(), cache(4096));
        let first = alone(&memory, &cache);
        first.write(0, &[7; 9000]).unwrap();
        memory.0.broken.store(true, SeqCst);
        assert!(!leave(&first), "it says that the bytes are not safe");
        assert_eq!(memory.0.locked.load(SeqCst), 0, "others may lock the storage");
        memory.0.broken.store(false, SeqCst);
        let first = (!drops).then_some(first);
        let second = alone(&memory, &cache);
        second.write(0, &[8; 9000]).unwrap();
        second.close().unwrap();
        // Another process: the cache sees nothing of it.
        memory.write(0, &[9; 9000]).unwrap();
        // Writes every dirty page that the cache has; tells of the failure above.
        let _ = cache.checkpoint();
        assert!(memory.bytes() == [9; 9000]);
        drop(first);
    }
}

/// The first call that grows it is slow.
#[derive(Debug, Default)]
struct Slow {
    memory: Memory,
    growing: Arc<AtomicBool>,
}

impl StorageBackend for Slow {
    fn len(&self) -> io::Result<u64> {
        self.memory.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.memory.read(offset, out)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        if !self.growing.swap(true, SeqCst) {
            std::thread::sleep(Duration::from_millis(200));
        }
        self.memory.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.memory.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.memory.write(offset, data)
    }
    fn close(&self) -> io::Result<()> {
        self.memory.close()
    }
    fn try_lock_range(&self, from: Bound<u64>, to: Bound<u64>) -> Result<bool, BackendError> {
        self.memory.try_lock_range(from, to)
    }
}

#[test]
fn of_two_writes_past_the_end_the_shorter_does_not_cut_the_longer() {
    let (memory, cache) = (Memory::default(), cache(4096));
    let slow = Arc::new(AtomicBool::new(false));
    let storage = Slow { memory: memory.clone(), growing: Arc::clone(&slow) };
    let cached = Cached::new(storage, &cache).unwrap();
    assert!(cached.try_lock_range(Bound::Unbounded, Bound::Unbounded).unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| cached.write(0, &[1; 5000]).unwrap());
        while !slow.load(SeqCst) {
            std::thread::yield_now();
        }
        cached.write(5000, &[2; 45_000]).unwrap();
    });
    assert_eq!(cached.len().unwrap(), 50_000);
    cached.close().unwrap();
    let expected = [vec![1; 5000], vec![2; 45_000]].concat();
    assert!(memory.bytes() == expected);
}
