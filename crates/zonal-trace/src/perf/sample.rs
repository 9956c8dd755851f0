//! What is where in a sample: `perf_event_attr.sample_type` says which fields it has, and their
//! order is fixed (`perf_event_open(2)`).
//!
//! ```text
//!  id │ ip │ pid, tid │ time │ addr │ id │ stream id │ cpu, 0 │ period │ read │ callchain │ raw
//! ```

use crate::bytes::{ByteReader, Damage, Endian};

const IP: u64 = 1 << 0;
const TID: u64 = 1 << 1;
const TIME: u64 = 1 << 2;
const ADDR: u64 = 1 << 3;
const READ: u64 = 1 << 4;
const CALLCHAIN: u64 = 1 << 5;
const ID: u64 = 1 << 6;
const CPU: u64 = 1 << 7;
const PERIOD: u64 = 1 << 8;
const STREAM_ID: u64 = 1 << 9;
const RAW: u64 = 1 << 10;
const IDENTIFIER: u64 = 1 << 16;

const READ_ENABLED: u64 = 1 << 0;
const READ_RUNNING: u64 = 1 << 1;
const READ_ID: u64 = 1 << 2;
const READ_GROUP: u64 = 1 << 3;
const READ_LOST: u64 = 1 << 4;

/// Most counters of a group that are passed over.
const GROUP_MAX: u64 = 4096;

/// The layout of the samples of one attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SampleLayout {
    pub(super) tracepoint: bool,
    /// Whether the kernel left events out: it takes one of several, or so many a second.
    pub(super) leaves_out: bool,
    /// Whether they are those of the command that perf ran, and of no others.
    pub(super) of_command: bool,
    sample_type: u64,
    read_format: u64,
    /// Where in a sample the id is, in bytes.
    pub(super) id_at: Option<usize>,
}

/// The used fields of a sample.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) time: u64,
    pub(super) cpu: u32,
    pub(super) tid: i32,
    /// Where the payload begins in the record's body, and its length.
    pub(super) raw: (usize, usize),
}

impl SampleLayout {
    pub(super) fn new(tracepoint: bool, sample_type: u64, read_format: u64) -> Self {
        let before_id = (sample_type & (IP | TID | TIME | ADDR)).count_ones() as usize * 8;
        let id_at = match sample_type {
            kind if kind & IDENTIFIER != 0 => Some(0),
            kind if kind & ID != 0 => Some(before_id),
            _ => None,
        };
        let (leaves_out, of_command) = (false, false);
        SampleLayout { tracepoint, leaves_out, of_command, sample_type, read_format, id_at }
    }

    /// The same of events of which only each `period`th is taken, or `period` a second.
    pub(super) fn sampled(self, period: u64, by_frequency: bool) -> Self {
        SampleLayout { leaves_out: by_frequency || period > 1, ..self }
    }

    /// The same of events that are switched on when a command starts.
    pub(super) fn of_command(self, of_command: bool) -> Self {
        SampleLayout { of_command, ..self }
    }

    /// Reads the body of a sample, which lies at `offset` of the file. `None` if it is of no
    /// tracepoint.
    pub(super) fn read(
        &self,
        body: &[u8],
        offset: u64,
        endian: Endian,
    ) -> Result<Option<Sample>, Damage> {
        if !self.tracepoint {
            return Ok(None);
        }
        for (bit, what) in [
            (TIME, "samples with times"),
            (CPU, "samples with CPUs (`perf record -a`)"),
            (RAW, "raw samples (`perf record -R`)"),
        ] {
            if self.sample_type & bit == 0 {
                return Err(Damage::bad(offset, "perf sample", what, "none"));
            }
        }
        let has = |bit| self.sample_type & bit != 0;
        let mut fields = ByteReader::new(body, offset, endian);
        let skip = |fields: &mut ByteReader<'_>, bit| match has(bit) {
            true => fields.u64("a perf sample").map(Some),
            false => Ok(None),
        };
        skip(&mut fields, IDENTIFIER)?;
        skip(&mut fields, IP)?;
        let mut tid = 0;
        if has(TID) {
            fields.u32("process id")?;
            tid = fields.u32("thread id")? as i32;
        }
        let time = skip(&mut fields, TIME)?.unwrap_or(0);
        skip(&mut fields, ADDR)?;
        skip(&mut fields, ID)?;
        skip(&mut fields, STREAM_ID)?;
        let cpu = fields.u32("cpu")?;
        fields.u32("cpu")?;
        skip(&mut fields, PERIOD)?;
        if has(READ) {
            self.skip_read(&mut fields)?;
        }
        if has(CALLCHAIN) {
            let frames = fields.u64("length of a call chain")?;
            fields.take(frames.saturating_mul(8), "a call chain")?;
        }
        let bytes = fields.u32("size of a raw sample")?;
        let start = (fields.offset() - offset) as usize;
        fields.take(u64::from(bytes), "a raw sample")?;
        Ok(Some(Sample { time, cpu, tid, raw: (start, bytes as usize) }))
    }

    fn skip_read(&self, fields: &mut ByteReader<'_>) -> Result<(), Damage> {
        let has = |bit| u64::from(self.read_format & bit != 0);
        let times = has(READ_ENABLED) + has(READ_RUNNING);
        let per_counter = 1 + has(READ_ID) + has(READ_LOST);
        let words = match has(READ_GROUP) {
            0 => times + per_counter,
            _ => {
                let offset = fields.offset();
                let counters = fields.u64("number of counters")?;
                if counters > GROUP_MAX {
                    let expected = "at most 4096";
                    return Err(Damage::bad(offset, "number of counters", expected, counters));
                }
                times + counters * per_counter
            }
        };
        fields.take(words * 8, "counters of a perf sample").map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_in_their_order() {
        let layout = SampleLayout::new(
            true,
            IDENTIFIER | IP | TID | TIME | CPU | PERIOD | READ | CALLCHAIN | RAW,
            READ_ID | READ_LOST,
        );
        let mut body = Vec::new();
        for word in [9_u64, 1, 7 << 32 | 6, 1234, 3, 1, 0, 0, 0, 1, 0xff] {
            body.extend(word.to_le_bytes());
        }
        body.extend(4_u32.to_le_bytes());
        body.extend([1, 2, 3, 4]);
        let sample = layout.read(&body, 0, Endian::Little).unwrap().unwrap();
        assert_eq!((sample.time, sample.cpu, sample.tid), (1234, 3, 7));
        assert_eq!(sample.raw, (92, 4));
        for length in 0..body.len() {
            let damage = layout.read(&body[..length], 50, Endian::Little).unwrap_err();
            assert!((50..50 + body.len() as u64).contains(&damage.offset));
        }
    }

    #[test]
    fn samples_without_what_is_needed_say_so() {
        for (kind, part) in [(TIME | CPU, "-R"), (TIME | RAW, "-a"), (CPU | RAW, "times")] {
            let damage = SampleLayout::new(true, kind, 0).read(&[], 0, Endian::Little).unwrap_err();
            assert!(damage.fault.to_string().contains(part));
        }
        assert!(SampleLayout::new(false, 0, 0).read(&[], 0, Endian::Little).unwrap().is_none());
    }
}
