//! Every call of a store fails once: the nth, for every n, in every way. What `sync` calls safe is
//! safe, what reads give is what was written, and every error is told.

mod support;

use std::time::Duration;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use support::device::{Call, DeviceStore, Fault};
use support::{PAGE, end, pattern, pool};
use zonal::Pool;
use zonal_cache::{Cache, CachedFile, LostWrites};

const PAGES: u64 = 24;
const STEPS: u64 = 50;

/// A program, its file as it should be, and what it was told.
struct Program {
    file: CachedFile,
    store: DeviceStore,
    model: Vec<u8>,
    told: u32,
}

fn is_loss(error: &std::io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<LostWrites>())
}

impl Program {
    fn step(&mut self, random: &mut Pcg64) {
        let offset = random.next_u64() % (PAGES * PAGE);
        let len = [100, 4096, 9000][(random.next_u64() % 3) as usize];
        let offset = if len == 4096 { offset / PAGE * PAGE } else { offset };
        match random.next_u64() % 20 {
            0..7 => self.write(offset, &pattern(random.next_u64(), len)),
            7..15 => self.read(offset, len),
            15..17 => self.sync(),
            17 => self.set_len(offset),
            _ => self.pin(offset / PAGE, random.next_u64()),
        }
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        match self.file.write_at(bytes, offset) {
            Ok(done) => {
                let end = offset as usize + done;
                self.model.resize(self.model.len().max(end), 0);
                self.model[offset as usize..end].copy_from_slice(&bytes[..done]);
                self.told += u32::from(done < bytes.len());
            }
            Err(_) => self.told += 1,
        }
    }

    fn read(&mut self, offset: u64, len: usize) {
        let mut buffer = vec![0xee; len];
        let from = self.model.get(offset as usize..).unwrap_or(&[]);
        match self.file.read_at(&mut buffer, offset) {
            Ok(done) => {
                assert_eq!(done, len.min(from.len()));
                assert!(buffer[..done] == from[..done], "wrong bytes at {offset}");
            }
            Err(_) => self.told += 1,
        }
    }

    fn pin(&mut self, index: u64, seed: u64) {
        let start = (index * PAGE) as usize;
        let len = self.model.len();
        match self.file.pin_mut(index) {
            Ok(mut page) => {
                let range = start..len.min(start + PAGE as usize);
                assert!(*page == self.model[range.clone()], "wrong bytes in page {index}");
                page.copy_from_slice(&pattern(seed, range.len()));
                self.model[range.clone()].copy_from_slice(&pattern(seed, range.len()));
            }
            Err(_) => self.told += u32::from(start < len),
        }
    }

    fn set_len(&mut self, len: u64) {
        match self.file.set_len(len) {
            Ok(()) => self.model.resize(len as usize, 0),
            Err(_) => self.told += 1,
        }
        assert_eq!(self.file.len(), self.model.len() as u64);
    }

    fn sync(&mut self) {
        match self.file.sync() {
            Ok(()) => assert!(self.store.safe() == self.model, "called safe and is not"),
            Err(error) => {
                self.told += 1;
                if is_loss(&error) {
                    self.replay();
                }
            }
        }
    }

    /// What a program with a log does about lost bytes.
    fn replay(&mut self) {
        for range in self.file.lost() {
            let range = range.start as usize..self.model.len().min(range.end as usize);
            if !range.is_empty() {
                let bytes = self.model[range.clone()].to_vec();
                let _ = self.file.write_at(&bytes, range.start as u64);
            }
        }
    }
}

/// A program in which one call fails. Returns whether there were so many calls, and how many of
/// each kind.
fn with_failure(pool: &std::sync::Arc<Pool>, seed: u64, nth: i64, fault: Fault) -> Option<Call> {
    let cache = Cache::builder(pool.clone())
        .max_pages(6)
        .read_ahead(3)
        .dirty_percent(1, 100)
        .writeback_every(Duration::from_secs(3600))
        .build()
        .unwrap();
    let model = pattern(seed, 15 * PAGE as usize + 77);
    let store = DeviceStore::new(model.clone(), seed ^ nth as u64);
    store.fail_after(nth, fault);
    let file = match cache.open_store(store.clone()) {
        Ok(file) => file,
        Err(error) => {
            assert_eq!((nth, store.calls()), (0, vec![Call::Len]), "{error}");
            end(cache, pool);
            return Some(Call::Len);
        }
    };
    let mut program = Program { file, store: store.clone(), model, told: 0 };
    let mut random = Pcg64::seed_from_u64(seed);
    for _ in 0..STEPS {
        program.step(&mut random);
    }
    // Now the device works, unless the failure has not come yet: it ends well all the same.
    let mut tries = 0;
    while program.file.sync().is_err() {
        program.told += 1;
        program.replay();
        tries += 1;
        assert!(tries < 4, "it does not get well: {:?}", program.file.lost());
    }
    let safe = store.safe();
    if safe != program.model {
        let at = safe.iter().zip(&program.model).position(|(a, b)| a != b);
        panic!(
            "seed {seed}, call {nth} ({:?}), {fault:?}: {} bytes of {}, other from {at:?} on",
            store.calls().get(nth as usize),
            safe.len(),
            program.model.len(),
        );
    }
    let failed = store.has_failed().then(|| store.calls()[nth as usize]);
    match failed {
        // Nobody asked for what is read ahead.
        Some(Call::Read) | None => {}
        // A short call is no failure.
        Some(_) if fault == Fault::Short => assert_eq!(program.told, 0),
        Some(call) => assert!(program.told > 0, "a failed {call:?} was told to nobody"),
    }
    let Program { file, .. } = program;
    drop(file);
    end(cache, pool);
    failed
}

fn whichever_call_fails(fault: Fault) {
    let pool = pool();
    let mut failed = Vec::new();
    for seed in 0..3 {
        failed.extend((0..).map_while(|nth| with_failure(&pool, seed, nth, fault)));
    }
    for (call, at_least) in
        [(Call::Read, 50), (Call::Write, 50), (Call::Sync, 10), (Call::SetLen, 5), (Call::Len, 3)]
    {
        let count = failed.iter().filter(|failed| **failed == call).count();
        let at_least = if (call, fault) == (Call::Len, Fault::Short) { 0 } else { at_least };
        assert!(count >= at_least, "only {count} of {call:?}");
    }
}

#[test]
fn whichever_call_fails_what_is_called_safe_is_safe() {
    whichever_call_fails(Fault::Errno(5));
}

#[test]
fn whichever_call_fails_half_way_what_is_called_safe_is_safe() {
    whichever_call_fails(Fault::Half(28));
}

#[test]
fn whichever_call_is_short_nothing_is_missing() {
    whichever_call_fails(Fault::Short);
}

#[test]
fn whichever_call_panics_what_is_called_safe_is_safe() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload().downcast_ref::<&str>();
        if text.is_none_or(|text| !text.contains("on purpose")) {
            hook(panic);
        }
    }));
    whichever_call_fails(Fault::Panic);
}
