//! A device with a volatile cache, under a kernel as Linux is: writes are seen at once and safe
//! after a sync; a sync that fails is told of once, and forgets what it could not write.
//!
//! Every call can be made to fail, by number or by kind. Power can fail at any time: what a sync
//! has acknowledged is there afterwards, of everything later any set of 512-byte sectors.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use zonal_cache::Store;

pub const SECTOR: usize = 512;

/// Calls of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    Read,
    Write,
    Len,
    SetLen,
    Sync,
}

/// How a call fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// With this errno; nothing is done.
    Errno(i32),
    /// With this errno; half of it is done.
    Half(i32),
    /// It does a part, and says so.
    Short,
    /// It panics.
    Panic,
}

/// What was done since the last good sync.
enum Later {
    Write { offset: usize, bytes: Vec<u8> },
    SetLen(usize),
}

struct State {
    /// What the kernel gives to readers.
    seen: Vec<u8>,
    /// What survives a power loss for sure, but for `later`.
    safe: Vec<u8>,
    later: Vec<Later>,
    random: Pcg64,
    /// Calls by now, of each kind, in order.
    calls: Vec<Call>,
}

pub struct Device {
    state: Mutex<State>,
    /// So many more calls work, then one fails. Negative: all work.
    fail_in: AtomicI64,
    fault: Mutex<Fault>,
    /// So many syncs in a row fail from now on.
    pub failing_syncs: AtomicU64,
    /// So many writes in a row fail from now on.
    pub failing_writes: AtomicU64,
}

/// A handle of it.
#[derive(Clone)]
pub struct DeviceStore(pub Arc<Device>);

fn put(bytes: &mut Vec<u8>, offset: usize, part: &[u8]) {
    let end = offset + part.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset..end].copy_from_slice(part);
}

/// Takes a random set of the sectors of what came later, and of the lengths, or all of these.
fn tear(safe: &mut Vec<u8>, later: &[Later], keeps_lengths: bool, random: &mut Pcg64) {
    // All, none, or each with its own chance.
    let chance = [0, 1, 50, 99, 100][(random.next_u64() % 5) as usize];
    for change in later {
        match change {
            Later::SetLen(len) => {
                if keeps_lengths || random.next_u64() % 100 < chance {
                    safe.resize(*len, 0);
                }
            }
            Later::Write { offset, bytes } => {
                let mut at = 0;
                while at < bytes.len() {
                    let end = ((offset + at) / SECTOR + 1) * SECTOR - offset;
                    let end = end.min(bytes.len());
                    if random.next_u64() % 100 < chance {
                        put(safe, offset + at, &bytes[at..end]);
                    }
                    at = end;
                }
            }
        }
    }
}

impl DeviceStore {
    pub fn new(bytes: Vec<u8>, seed: u64) -> DeviceStore {
        let random = Pcg64::seed_from_u64(seed);
        let (seen, later, calls) = (bytes.clone(), Vec::new(), Vec::new());
        DeviceStore(Arc::new(Device {
            state: Mutex::new(State { seen, safe: bytes, later, random, calls }),
            fail_in: AtomicI64::new(-1),
            fault: Mutex::new(Fault::Errno(5)),
            failing_syncs: AtomicU64::new(0),
            failing_writes: AtomicU64::new(0),
        }))
    }

    /// The call after `calls` more fails.
    pub fn fail_after(&self, calls: i64, fault: Fault) {
        *self.0.fault.lock().unwrap() = fault;
        self.0.fail_in.store(calls, SeqCst);
    }

    /// Whether the failure has come.
    pub fn has_failed(&self) -> bool {
        self.0.fail_in.load(SeqCst) < -1
    }

    /// What is safe for sure.
    pub fn safe(&self) -> Vec<u8> {
        self.0.state.lock().unwrap().safe.clone()
    }

    /// What readers see.
    pub fn seen(&self) -> Vec<u8> {
        self.0.state.lock().unwrap().seen.clone()
    }

    /// Calls so far.
    pub fn calls(&self) -> Vec<Call> {
        self.0.state.lock().unwrap().calls.clone()
    }

    /// What the device holds after a power loss now.
    pub fn after_power_loss(&self) -> Vec<u8> {
        let mut state = self.0.state.lock().unwrap();
        let State { safe, later, random, .. } = &mut *state;
        let mut left = safe.clone();
        tear(&mut left, later, false, random);
        left
    }

    fn begin(&self, call: Call) -> Option<Fault> {
        self.0.state.lock().unwrap().calls.push(call);
        let next = |left: i64| match left {
            0 => Some(-2),
            1.. => Some(left - 1),
            _ => None,
        };
        let before = self.0.fail_in.fetch_update(SeqCst, SeqCst, next);
        (before == Ok(0)).then(|| *self.0.fault.lock().unwrap())
    }
}

fn fail(fault: Fault) -> io::Error {
    match fault {
        Fault::Errno(errno) | Fault::Half(errno) => io::Error::from_raw_os_error(errno),
        Fault::Short => io::ErrorKind::WriteZero.into(),
        Fault::Panic => panic!("this store panics on purpose"),
    }
}

/// Takes one from a count that is not 0.
fn counts_down(count: &AtomicU64) -> bool {
    count.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok()
}

impl Store for DeviceStore {
    fn read_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        let fault = self.begin(Call::Read);
        let state = self.0.state.lock().unwrap();
        let mut rest = state.seen.get(offset as usize..).unwrap_or(&[]);
        match fault {
            Some(Fault::Short) => rest = &rest[..rest.len().min(100)],
            Some(fault) => {
                drop(state);
                return Err(fail(fault));
            }
            None => {}
        }
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
        let fault = self.begin(Call::Write);
        if counts_down(&self.0.failing_writes) {
            return Err(io::Error::from_raw_os_error(5));
        }
        let mut bytes: Vec<u8> = buffers.iter().flat_map(|buffer| buffer.iter().copied()).collect();
        match fault {
            Some(Fault::Short) => bytes.truncate(100),
            Some(Fault::Half(_)) => bytes.truncate(bytes.len() / 2),
            Some(fault) => return Err(fail(fault)),
            None => {}
        }
        let mut state = self.0.state.lock().unwrap();
        put(&mut state.seen, offset as usize, &bytes);
        let len = bytes.len();
        state.later.push(Later::Write { offset: offset as usize, bytes });
        match fault {
            Some(Fault::Half(_)) => Err(fail(fault.unwrap())),
            _ => Ok(len),
        }
    }

    fn len(&self) -> io::Result<u64> {
        if let Some(fault) = self.begin(Call::Len).filter(|fault| *fault != Fault::Short) {
            return Err(fail(fault));
        }
        Ok(self.0.state.lock().unwrap().seen.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if let Some(fault) = self.begin(Call::SetLen).filter(|fault| *fault != Fault::Short) {
            return Err(fail(fault));
        }
        let mut state = self.0.state.lock().unwrap();
        state.seen.resize(len as usize, 0);
        state.later.push(Later::SetLen(len as usize));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let fault = self.begin(Call::Sync).filter(|fault| *fault != Fault::Short);
        if fault == Some(Fault::Panic) {
            return Err(fail(Fault::Panic));
        }
        let mut state = self.0.state.lock().unwrap();
        let State { seen, safe, later, random, .. } = &mut *state;
        let later = std::mem::take(later);
        if fault.is_none() && !counts_down(&self.0.failing_syncs) {
            for change in later {
                match change {
                    Later::Write { offset, bytes } => put(safe, offset, &bytes),
                    Later::SetLen(len) => safe.resize(len, 0),
                }
            }
            return Ok(());
        }
        // Some of it has arrived. The rest is clean for the kernel, and never written. Lengths are
        // the file system's, which keeps them.
        tear(safe, &later, true, random);
        safe.resize(seen.len(), 0);
        if random.next_u64().is_multiple_of(2) {
            // The kernel drops its copy too, or another file needs the memory.
            seen.clone_from(safe);
        }
        Err(fault.map_or_else(|| io::Error::from_raw_os_error(5), fail))
    }
}
