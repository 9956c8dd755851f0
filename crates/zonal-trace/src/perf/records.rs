//! The records of the data section, in order of time.
//!
//! perf copies the rings of the CPUs one after the other, round by round. What is later than all
//! of the round before can still be overtaken by the next round, and nothing else can: at the end
//! of each round (`PERF_RECORD_FINISHED_ROUND`) all that is not later than the latest of the round
//! before comes out, sorted by time and, among equals, by place in the file.
//!
//! - **PERF-1** at most [`WAITING_MAX`] events wait; a file whose rounds are longer is refused
//!
//! `PERF_RECORD_COMPRESSED` (`perf record -z`) holds a piece of one zstd stream of records.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::io::{BufReader, Read, Seek, SeekFrom, Take};
use std::path::PathBuf;

use zonal_text::CPUS_MAX;
use zstd::stream::raw::{Decoder as ZstdDecoder, InBuffer, Operation, OutBuffer};

use super::header::{PerfData, at};
use super::whose::{self, RECORD_ID_INDEX, RECORD_THREAD_MAP, Whose};
use crate::bytes::{ByteReader, Damage, Endian};
use crate::error::{TraceError, TraceErrorKind};
use crate::event::{Event, EventKind};
use crate::lines::read_fault;
use crate::source::{Seekable, Source, open_seekable};

/// Most events that may wait for the end of a round: 4 Mi, some 300 MB. perf's rings hold 8 MB per
/// CPU at most by default, which is 65 Ki samples.
pub(super) const WAITING_MAX: usize = 4 << 20;

/// Most bytes that one compressed record may make.
const UNPACKED_BYTES_MAX: usize = 64 << 20;

const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;
const RECORD_LOST_SAMPLES: u32 = 13;
const RECORD_FINISHED_ROUND: u32 = 68;
const RECORD_AUXTRACE: u32 = 71;
const RECORD_COMPRESSED: u32 = 81;
const RECORD_COMPRESSED2: u32 = 83;

/// The events of a `perf.data`.
pub(crate) struct PerfEvents {
    perf: PerfData,
    file: PathBuf,
    input: Take<BufReader<Box<dyn Seekable>>>,
    offset: u64,
    body: Vec<u8>,
    unpacker: Option<ZstdDecoder<'static>>,
    unpacked: Vec<u8>,
    waiting: BinaryHeap<Waiting>,
    /// All up to this time may come out.
    safe_until: Option<u64>,
    latest: u64,
    /// The latest time of all rounds that have ended.
    round_latest: Option<u64>,
    ended: bool,
    whose: Whose,
    seen: u64,
    last_offset: u64,
}

struct Waiting {
    event: Event,
    /// Place in the stream.
    number: u64,
    offset: u64,
}

impl Waiting {
    fn key(&self) -> (u64, u64) {
        (self.event.time_ns, self.number)
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    /// The earliest is the greatest, for the heap.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl PerfEvents {
    pub(crate) fn open(
        perf: &PerfData,
        source: &dyn Source,
        name: &str,
    ) -> Result<PerfEvents, TraceError> {
        let file = source.display(name);
        let mut input = BufReader::with_capacity(1 << 16, open_seekable(source, name)?);
        let sought = input.seek(SeekFrom::Start(perf.data.offset));
        sought.map_err(|error| {
            at(&file, Damage::new(perf.data.offset, Box::new(read_fault(error))))
        })?;
        Ok(PerfEvents {
            input: input.take(perf.data.bytes),
            offset: perf.data.offset,
            perf: perf.clone(),
            file,
            body: Vec::new(),
            unpacker: None,
            unpacked: Vec::new(),
            waiting: BinaryHeap::new(),
            safe_until: None,
            latest: 0,
            round_latest: None,
            ended: false,
            whose: Whose::default(),
            seen: 0,
            last_offset: 0,
        })
    }

    /// The next event.
    pub(crate) fn next_event(&mut self) -> Result<Option<Event>, TraceError> {
        loop {
            let ready = self.waiting.peek().is_some_and(|first| {
                self.ended || self.safe_until.is_some_and(|until| first.event.time_ns <= until)
            });
            if ready || self.ended {
                let first = self.waiting.pop();
                self.last_offset = first.as_ref().map_or(self.last_offset, |first| first.offset);
                return Ok(first.map(|first| first.event));
            }
            self.next_record().map_err(|damage| at(&self.file, damage))?;
        }
    }

    /// Byte of the record of the event that was returned last.
    pub(crate) fn event_offset(&self) -> u64 {
        self.last_offset
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.file.clone()
    }

    fn next_record(&mut self) -> Result<(), Damage> {
        let start = self.offset;
        let mut head = [0; 8];
        if self.input.limit() == 0 {
            self.ended = true;
            return match self.unpacked.is_empty() {
                true => Ok(()),
                false => Err(Damage::cut_short(start, "the rest of a compressed record")),
            };
        }
        self.fill(&mut head, "the head of a perf record")?;
        let (kind, bytes) = record_head(&head, start, self.perf.endian)?;
        let mut body = std::mem::take(&mut self.body);
        body.resize(bytes, 0);
        self.fill(&mut body, "a perf record")?;
        let done = match kind {
            RECORD_COMPRESSED => self.unpack(&body, start),
            RECORD_COMPRESSED2 => {
                let mut fields = ByteReader::new(&body, start + 8, self.perf.endian);
                let bytes = fields.u64("size of compressed data")?;
                let data = fields.take(bytes, "compressed data")?;
                self.unpack(data, start)
            }
            RECORD_AUXTRACE => {
                let mut fields = ByteReader::new(&body, start + 8, self.perf.endian);
                let bytes = fields.u64("size of an aux trace")?;
                self.skip(bytes)
            }
            _ => self.take(kind, &body, start),
        };
        self.body = body;
        done
    }

    fn fill(&mut self, bytes: &mut [u8], what: &'static str) -> Result<(), Damage> {
        match self.input.read_exact(bytes) {
            Ok(()) => {
                self.offset += bytes.len() as u64;
                Ok(())
            }
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(Damage::cut_short(self.offset, what))
            }
            Err(error) => Err(Damage::new(self.offset, Box::new(read_fault(error)))),
        }
    }

    fn skip(&mut self, bytes: u64) -> Result<(), Damage> {
        if bytes > self.input.limit() {
            return Err(Damage::cut_short(self.offset, "an aux trace"));
        }
        let skipped = std::io::copy(&mut (&mut self.input).take(bytes), &mut std::io::sink());
        skipped.map_err(|error| Damage::new(self.offset, Box::new(read_fault(error))))?;
        self.offset += bytes;
        Ok(())
    }

    /// Unpacks a piece of the compressed stream and takes the whole records in it.
    fn unpack(&mut self, packed: &[u8], offset: u64) -> Result<(), Damage> {
        let damaged = |found: String| {
            Damage::new(offset, Box::new(TraceErrorKind::CompressionDamaged { found }))
        };
        let mut unpacker = match self.unpacker.take() {
            Some(unpacker) => unpacker,
            None => ZstdDecoder::new().map_err(|error| damaged(error.to_string()))?,
        };
        let mut unpacked = std::mem::take(&mut self.unpacked);
        let mut input = InBuffer::around(packed);
        let mut piece = vec![0; 1 << 16];
        loop {
            let mut output = OutBuffer::around(&mut piece[..]);
            let run = unpacker.run(&mut input, &mut output);
            run.map_err(|error| damaged(error.to_string()))?;
            let full = output.pos() == output.capacity();
            unpacked.extend_from_slice(output.as_slice());
            if unpacked.len() > UNPACKED_BYTES_MAX {
                let kind = TraceErrorKind::TooLarge { limit: UNPACKED_BYTES_MAX as u64 };
                return Err(Damage::new(offset, Box::new(kind)));
            }
            if input.pos() == packed.len() && !full {
                break;
            }
        }
        self.unpacker = Some(unpacker);
        let mut at = 0;
        while let Some(head) = unpacked.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
            let (kind, bytes) = record_head(head, offset, self.perf.endian)?;
            let Some(body) = unpacked.get(at + 8..at + 8 + bytes) else { break };
            self.take(kind, body, offset)?;
            at += 8 + bytes;
        }
        unpacked.drain(..at);
        self.unpacked = unpacked;
        Ok(())
    }

    fn take(&mut self, kind: u32, body: &[u8], offset: u64) -> Result<(), Damage> {
        match kind {
            RECORD_SAMPLE => self.sample(body, offset),
            RECORD_LOST | RECORD_LOST_SAMPLES => {
                let mut fields = ByteReader::new(body, offset + 8, self.perf.endian);
                if kind == RECORD_LOST {
                    fields.u64("id of lost events")?;
                }
                let events = fields.u64("number of lost events")?;
                // The record has no time that can be relied on: it stands where it was written.
                let event = Event {
                    time_ns: self.latest,
                    cpu: 0,
                    pid: 0,
                    kind: EventKind::Lost { events },
                };
                self.wait(event, offset)
            }
            RECORD_ID_INDEX | RECORD_THREAD_MAP => {
                self.whose.see(kind, (body, offset + 8), &self.perf)
            }
            RECORD_FINISHED_ROUND => {
                self.safe_until = self.round_latest.replace(self.latest);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn sample(&mut self, body: &[u8], offset: u64) -> Result<(), Damage> {
        let body_at = offset + 8;
        let Some(layout) = self.layout_of(body) else {
            return Err(Damage::bad(body_at, "perf sample", "the id of an attribute", "another"));
        };
        let endian = self.perf.endian;
        let Some(sample) = layout.read(body, body_at, endian)? else { return Ok(()) };
        if sample.cpu >= CPUS_MAX {
            return Err(Damage::bad(body_at, "cpu", "a number below 8192", sample.cpu));
        }
        let (start, length) = sample.raw;
        let decoded = self.perf.decoder.decode(&body[start..start + length]);
        let (_, kind) = decoded.map_err(|fault| Damage::new(body_at + start as u64, fault))?;
        if matches!(kind, EventKind::Other) {
            // Of no page: whoever it is of.
        } else if layout.of_command {
            return Err(whose::of_command(body_at));
        } else if layout.leaves_out {
            let expected = "samples of all events (`perf record -c 1`)";
            return Err(Damage::bad(body_at, "perf sample", expected, "samples of some"));
        }
        if self.seen == 0 {
            self.whose.check((self.perf.cpus, self.perf.left_out), body_at)?;
        }
        self.latest = self.latest.max(sample.time);
        let event = Event { time_ns: sample.time, cpu: sample.cpu, pid: sample.tid, kind };
        self.wait(event, offset)
    }

    fn layout_of(&self, body: &[u8]) -> Option<super::sample::SampleLayout> {
        let index = match self.perf.layouts.first()?.id_at {
            Some(_) if self.perf.ids.is_empty() => 0,
            Some(at) => {
                let id = body.get(at..)?.first_chunk::<8>()?;
                *self.perf.ids.get(&self.perf.endian.u64(*id))?
            }
            None => 0,
        };
        self.perf.layouts.get(index).copied()
    }

    fn wait(&mut self, event: Event, offset: u64) -> Result<(), Damage> {
        if self.waiting.len() >= WAITING_MAX {
            let expected = "the end of a round within 4 Mi events";
            return Err(Damage::bad(offset, "perf round", expected, "none"));
        }
        self.seen += 1;
        self.waiting.push(Waiting { event, number: self.seen, offset });
        Ok(())
    }
}

/// The type of a record and the bytes that follow its head.
fn record_head(head: &[u8; 8], offset: u64, endian: Endian) -> Result<(u32, usize), Damage> {
    let [a, b, c, d, _, _, x, y] = *head;
    let size = endian.u16([x, y]);
    match usize::from(size).checked_sub(8) {
        Some(bytes) => Ok((endian.u32([a, b, c, d]), bytes)),
        None => Err(Damage::bad(offset + 6, "size of a perf record", "8 bytes and more", size)),
    }
}
