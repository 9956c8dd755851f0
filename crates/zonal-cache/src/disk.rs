//! A file, or a program's store, as the backing of pages: pages become bytes at an offset, the end
//! of the file cuts the last one, and calls that do a part are repeated.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use zonal::PAGE_SIZE;

use crate::backing::{Backing, PageWrite, WriteFailed, caught};
use crate::store::{Identity, Lock, Store};

/// The part of a cached file that is outside the cache.
pub struct Disk {
    pub store: Caught,
    /// Identity of the operating system's file, if the store is one.
    pub identity: Option<Identity>,
    lock: Option<Lock>,
    pub writable: bool,
    /// Length in bytes, unwritten data included.
    pub len: AtomicU64,
}

impl Disk {
    pub fn new(
        store: Box<dyn Store>,
        identity: Option<Identity>,
        lock: Option<Lock>,
        writable: bool,
    ) -> io::Result<Disk> {
        let store = Caught(store);
        let len = store.len()?;
        Ok(Disk { store, identity, lock, writable, len: AtomicU64::new(len) })
    }

    /// Fills buffers from a byte of the file on. What lies past the store's end is zero.
    pub fn read_from(&self, offset: u64, buffers: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let bytes: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let mut done = 0;
        while done < bytes {
            let read = self.store.read_at(&mut behind(buffers, done), offset + done as u64)?;
            if read == 0 {
                behind(buffers, done).iter_mut().for_each(|rest| rest.fill(0));
                return Ok(());
            }
            // A store may say that it has read more than it was asked for.
            done += read.min(bytes - done);
        }
        Ok(())
    }

    /// Unlocks the file. The cache neither reads nor writes it any more.
    pub fn unlock(&self) {
        self.lock.iter().for_each(Lock::release);
    }
}

/// What lies behind the first `done` bytes of buffers. Made anew for each call of a store: one that
/// repeats its own reads advances what it was given.
fn behind<'a>(buffers: &'a mut [IoSliceMut<'_>], mut done: usize) -> Vec<IoSliceMut<'a>> {
    let rest = buffers.iter_mut().map(|buffer| {
        let skipped = done.min(buffer.len());
        done -= skipped;
        IoSliceMut::new(&mut buffer[skipped..])
    });
    rest.filter(|rest| !rest.is_empty()).collect()
}

/// The program's store, with its panics as errors.
pub struct Caught(Box<dyn Store>);

impl Caught {
    fn call<T>(&self, call: impl FnOnce(&dyn Store) -> io::Result<T>) -> io::Result<T> {
        caught("the store", || call(&*self.0))?
    }

    pub fn read_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        self.call(|store| store.read_at(buffers, offset))
    }
    fn write_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.call(|store| store.write_at(buffers, offset))
    }
    fn len(&self) -> io::Result<u64> {
        self.call(|store| store.len())
    }
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        self.call(|store| store.set_len(len))
    }
    fn sync(&self) -> io::Result<()> {
        self.call(|store| store.sync())
    }
    pub fn is_direct(&self) -> bool {
        self.call(|store| Ok(store.is_direct())).unwrap_or(false)
    }
}

impl Backing for Disk {
    fn read(&self, page: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.read_run(page, &mut [IoSliceMut::new(bytes)])
    }

    fn read_run(&self, first: u64, pages: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        self.read_from(first * PAGE_SIZE as u64, pages)
    }

    /// Writes pages without a gap, up to the end of the file.
    fn write(&self, batch: &[PageWrite<'_>]) -> Result<(), WriteFailed> {
        let Some(first) = batch.first() else { return Ok(()) };
        let offset = first.page * PAGE_SIZE as u64;
        // The end of the file cannot move below these pages while they are used here.
        let len = self.len.load(Relaxed);
        let bytes = len.saturating_sub(offset).min((batch.len() * PAGE_SIZE) as u64) as usize;
        let mut done = 0;
        while done < bytes {
            let (first, inside) = (done / PAGE_SIZE, done % PAGE_SIZE);
            let slices = batch[first..].iter().enumerate().map_while(|(at, page)| {
                let start = if at == 0 { inside } else { 0 };
                let end = bytes.saturating_sub((first + at) * PAGE_SIZE).min(PAGE_SIZE);
                (end > start).then(|| IoSlice::new(&page.bytes[start..end]))
            });
            let slices: Vec<IoSlice<'_>> = slices.collect();
            let error = match self.store.write_at(&slices, offset + done as u64) {
                Ok(0) => io::ErrorKind::WriteZero.into(),
                Ok(written) => {
                    done = done.saturating_add(written).min(bytes);
                    continue;
                }
                Err(error) => error,
            };
            return Err(WriteFailed { written: done / PAGE_SIZE, error });
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.store.sync()
    }
}
