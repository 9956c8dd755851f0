//! Whose events a `perf.data` has: only those of all threads on all CPUs are a trace.
//!
//! | in the file | says |
//! |--|--|
//! | `PERF_RECORD_ID_INDEX` | CPU and thread of each id; no thread: all of them |
//! | `PERF_RECORD_THREAD_MAP` | the threads that were named; -1: all of them |
//! | `enable_on_exec` of an attribute | those of the command that was run (`perf_event_open(2)`) |
//!
//! Lists are shared by all: what others take from them and bring back is nowhere in a recording of
//! one program, so a replay of it would be of another machine than was recorded. Filters and groups
//! of processes are in a file as words of the command line alone (`command`), and in its text that
//! is all there is.

use std::collections::BTreeSet;

use super::command::ALL;
use super::header::PerfData;
use crate::bytes::{ByteReader, Damage, Endian};

pub(super) const RECORD_ID_INDEX: u32 = 69;
pub(super) const RECORD_THREAD_MAP: u32 = 73;

/// Bytes of an entry of an id index, and of a thread map: number and name.
const ID_BYTES: u64 = 32;
const THREAD_BYTES: u64 = 8 + 16;

/// The CPUs whose events a file has, as far as it says.
#[derive(Debug, Default)]
pub(super) struct Whose {
    cpus: BTreeSet<i64>,
}

impl Whose {
    /// Takes note of a record of one of the two types, whose body lies at `offset`.
    pub(super) fn see(
        &mut self,
        kind: u32,
        (body, offset): (&[u8], u64),
        perf: &PerfData,
    ) -> Result<(), Damage> {
        let mut fields = ByteReader::new(body, offset, perf.endian);
        match kind {
            RECORD_ID_INDEX => self.id_index(&mut fields, perf),
            _ => thread_map(&mut fields),
        }
    }

    fn id_index(&mut self, fields: &mut ByteReader<'_>, perf: &PerfData) -> Result<(), Damage> {
        // Newer versions have the guest of each id after all of these.
        let count = fields.u64("number of ids")?;
        let at = fields.offset();
        let bytes = fields.take(count.saturating_mul(ID_BYTES), "an index of ids")?;
        for entry in bytes.chunks_exact(ID_BYTES as usize) {
            let [id, _, cpu, thread] = words(entry, perf.endian);
            let layout = perf.ids.get(&id).and_then(|index| perf.layouts.get(*index));
            if layout.is_some_and(|layout| layout.tracepoint) {
                of_all(thread as i64, at)?;
                self.cpus.insert(cpu as i64);
            }
        }
        Ok(())
    }

    /// Whether all CPUs are there and nothing is left out, once all ids are known; `offset` is that
    /// of the first sample.
    pub(super) fn check(
        &self,
        (cpus, left_out): (Option<u32>, Option<&'static str>),
        offset: u64,
    ) -> Result<(), Damage> {
        if let Some(found) = left_out {
            return Err(Damage::bad(offset, "perf events", ALL, found));
        }
        let (own, all) = (self.cpus.len(), cpus.map_or(0, |cpus| cpus as usize));
        if own > 0 && own < all {
            let found = format!("those of {own} of {all} CPUs");
            return Err(Damage::bad(offset, "perf events", ALL, found));
        }
        Ok(())
    }
}

/// What is wrong with events that are switched on when a command starts.
pub(super) fn of_command(offset: u64) -> Damage {
    Damage::bad(offset, "perf events", ALL, "those of one command")
}

fn thread_map(fields: &mut ByteReader<'_>) -> Result<(), Damage> {
    let count = fields.u64("number of threads")?;
    let at = fields.offset();
    for _ in 0..count {
        let thread = fields.u64("a map of threads")? as i64;
        fields.take(THREAD_BYTES - 8, "a map of threads")?;
        of_all(thread, at)?;
    }
    Ok(())
}

fn of_all(thread: i64, offset: u64) -> Result<(), Damage> {
    match thread < 0 {
        true => Ok(()),
        false => {
            let found = format!("those of thread {thread} and what it started");
            Err(Damage::bad(offset, "perf events", ALL, found))
        }
    }
}

fn words(entry: &[u8], endian: Endian) -> [u64; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(entry.as_chunks::<8>().0) {
        *word = endian.u64(*bytes);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_without_events_are_told() {
        let whose = Whose { cpus: BTreeSet::from([0]) };
        let of = |whose: &Whose, cpus| whose.check((cpus, None), 9);
        let message = of(&whose, Some(2)).unwrap_err().fault.to_string();
        assert!(message.contains("those of 1 of 2 CPUs"), "{message}");
        assert!(of(&whose, Some(1)).is_ok() && of(&whose, None).is_ok());
        assert!(of(&Whose::default(), Some(2)).is_ok(), "nothing says");
        let filtered = whose.check((None, Some("those that pass a filter")), 9).unwrap_err();
        assert!(filtered.fault.to_string().contains("that pass a filter"), "{filtered:?}");
    }
}
