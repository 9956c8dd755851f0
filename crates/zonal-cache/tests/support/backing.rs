//! A backing in memory with a volatile cache, that fails when told to, keeps an engine's log in
//! order, and loses power.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use zonal::Pool;
use zonal_cache::{Backing, EngineBuilder, EngineCache, PageWrite, Pager, WriteFailed};

use super::pattern;

/// Bytes of a page of a [`quiet`] cache.
pub const PAGE: usize = 8 << 10;

/// A cache whose thread does nothing by itself.
pub fn quiet(pool: &Arc<Pool>) -> EngineBuilder {
    EngineCache::builder(pool.clone()).page_bytes(PAGE).writeback_every(Duration::from_secs(3600))
}

/// Drops the cache, and checks that every page is back.
pub fn end(cache: EngineCache, pool: &Pool) {
    cache.validate().unwrap();
    drop(cache);
    pool.validate().unwrap();
    assert_eq!(pool.free_page_count() << 12, pool.bytes() as u64, "pages are lost");
}

pub fn fill(pager: &Pager, page: u64, seed: u64) {
    pager.pin_new(page).unwrap().copy_from_slice(&pattern(seed, pager.page_bytes()));
}

/// A call of the backing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    Read(u64),
    Write(u64),
    Sync,
    Log(u64),
}

type Hook = Box<dyn Fn(Call) -> io::Result<()> + Send + Sync>;

#[derive(Default)]
pub struct Heap {
    /// Safe.
    pub safe: Mutex<BTreeMap<u64, Vec<u8>>>,
    /// Written since the last sync, oldest first.
    pub pending: Mutex<Vec<(u64, Vec<u8>)>>,
    pub reads: AtomicU64,
    pub writes: AtomicU64,
    pub syncs: AtomicU64,
    /// This many more calls work, then one fails. Negative: all work.
    pub fail_in: AtomicI64,
    /// A failed sync drops what was written before it, as Linux does.
    pub failing_syncs: AtomicU64,
    pub failing_writes: AtomicU64,
    pub unreadable: AtomicBool,
    /// The log is safe up to here.
    pub log: AtomicU64,
    /// Called first in every call.
    pub hook: Mutex<Option<Arc<Hook>>>,
}

/// A handle of it.
#[derive(Clone, Default)]
pub struct HeapBacking(pub Arc<Heap>);

/// Counts down to 0. `false`: it is there. In one step: the thread that writes and the one that
/// reclaims are in the backing at once.
fn one_less(count: &AtomicU64) -> bool {
    count.fetch_update(SeqCst, SeqCst, |count| count.checked_sub(1)).is_ok()
}

pub fn failed() -> io::Error {
    io::Error::from_raw_os_error(5)
}

impl HeapBacking {
    pub fn new() -> HeapBacking {
        HeapBacking(Arc::new(Heap { fail_in: AtomicI64::new(-1), ..Heap::default() }))
    }

    pub fn hook(&self, hook: impl Fn(Call) -> io::Result<()> + Send + Sync + 'static) {
        *self.0.hook.lock().unwrap() = Some(Arc::new(Box::new(hook)));
    }

    fn begin(&self, call: Call) -> io::Result<()> {
        let hook = self.0.hook.lock().unwrap().clone();
        hook.map_or(Ok(()), |hook| hook(call))?;
        if self.0.fail_in.load(SeqCst) >= 0 && self.0.fail_in.fetch_sub(1, SeqCst) == 0 {
            return Err(failed());
        }
        Ok(())
    }

    /// What a read returns now.
    pub fn seen(&self, page: u64) -> Option<Vec<u8>> {
        let pending = self.0.pending.lock().unwrap();
        let newest = pending.iter().rev().find(|(at, _)| *at == page);
        let newest = newest.map(|(_, bytes)| bytes.clone());
        newest.or_else(|| self.0.safe.lock().unwrap().get(&page).cloned())
    }

    pub fn safe(&self, page: u64) -> Option<Vec<u8>> {
        self.0.safe.lock().unwrap().get(&page).cloned()
    }

    /// What may be there after power was lost now: of what was not synced, any subset.
    pub fn after_power_loss(&self, seed: u64) -> BTreeMap<u64, Vec<u8>> {
        let mut random = Pcg64::seed_from_u64(seed);
        let mut left = self.0.safe.lock().unwrap().clone();
        for (page, bytes) in self.0.pending.lock().unwrap().iter() {
            if random.next_u64().is_multiple_of(2) {
                left.insert(*page, bytes.clone());
            }
        }
        left
    }
}

impl Backing for HeapBacking {
    fn read(&self, page: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.0.reads.fetch_add(1, SeqCst);
        self.begin(Call::Read(page))?;
        if self.0.unreadable.load(SeqCst) {
            return Err(failed());
        }
        match self.seen(page) {
            Some(stored) => bytes.copy_from_slice(&stored),
            None => bytes.fill(0),
        }
        Ok(())
    }

    fn write(&self, batch: &[PageWrite<'_>]) -> Result<(), WriteFailed> {
        assert!(batch.windows(2).all(|two| two[0].page < two[1].page), "out of order");
        for (written, write) in batch.iter().enumerate() {
            self.0.writes.fetch_add(1, SeqCst);
            let fails = one_less(&self.0.failing_writes);
            let begun = self.begin(Call::Write(write.page));
            if let Err(error) = begun.and(if fails { Err(failed()) } else { Ok(()) }) {
                return Err(WriteFailed { written, error });
            }
            self.0.pending.lock().unwrap().push((write.page, write.bytes.to_vec()));
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.syncs.fetch_add(1, SeqCst);
        self.begin(Call::Sync)?;
        let pending = std::mem::take(&mut *self.0.pending.lock().unwrap());
        if one_less(&self.0.failing_syncs) {
            // The pages are clean now, and gone.
            return Err(failed());
        }
        self.0.safe.lock().unwrap().extend(pending);
        Ok(())
    }

    fn before_write(&self, lsn: u64) -> io::Result<()> {
        self.begin(Call::Log(lsn))?;
        self.0.log.fetch_max(lsn, SeqCst);
        Ok(())
    }
}
