//! A program that reads, writes, cuts and syncs a file at random, and knows what is in it.

use rand_core::Rng;
use rand_pcg::Pcg64;
use zonal_cache::{CachedFile, LostWrites};

use super::device::DeviceStore;
use super::{PAGE, pattern};

const PAGES: u64 = 24;

/// A program, its file as it should be, and what it was told.
pub struct Program {
    pub file: CachedFile,
    pub store: DeviceStore,
    pub model: Vec<u8>,
    pub told: u32,
}

fn is_loss(error: &std::io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<LostWrites>())
}

impl Program {
    pub fn step(&mut self, random: &mut Pcg64) {
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
    pub fn replay(&mut self) {
        for range in self.file.lost() {
            let range = range.start as usize..self.model.len().min(range.end as usize);
            if !range.is_empty() {
                let bytes = self.model[range.clone()].to_vec();
                let _ = self.file.write_at(&bytes, range.start as u64);
            }
        }
    }

    /// Syncs until that works, as it must soon, and checks that all is safe then.
    pub fn end_well(&mut self, what: &dyn std::fmt::Debug) {
        let mut tries = 0;
        while self.file.sync().is_err() {
            self.told += 1;
            self.replay();
            tries += 1;
            assert!(tries < 4, "{what:?}: it does not get well: {:?}", self.file.lost());
        }
        let safe = self.store.safe();
        if safe != self.model {
            let at = safe.iter().zip(&self.model).position(|(a, b)| a != b);
            let (len, expected) = (safe.len(), self.model.len());
            panic!("{what:?}: {len} bytes of {expected}, other from {at:?} on");
        }
    }
}
