//! A `.zonal` file to events, from its beginning or from a time.

use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::block;
use super::chunk::{CHUNK_HEAD_BYTES, ChunkHead, ChunkKind, FileHead, KEY, u64_at};
use super::machine::MachineFiles;
use super::model::Model;
use super::varint::Varints;
use super::writer::BlockPlace;
use crate::bytes::Damage;
use crate::error::{Position, TraceError, TraceErrorKind};
use crate::event::Event;
use crate::lines::read_fault;
use crate::source::{Seekable, Source, open_seekable, open_stream};

/// Bytes of what follows the head of the end chunk.
const END_BYTES: usize = 16;

/// The head of a `.zonal` file.
#[derive(Debug, Clone)]
pub(crate) struct ZonalFile {
    head: FileHead,
    pub(crate) machine: MachineFiles,
}

impl ZonalFile {
    /// Reads the head and the files of the machine.
    pub(crate) fn read(source: &dyn Source, name: &str) -> Result<ZonalFile, TraceError> {
        let file = source.display(name);
        let mut input = open(source, name)?;
        read_head(&mut input).map_err(|damage| at(&file, damage))
    }

    pub(crate) fn clock_step_ns(&self) -> u32 {
        self.head.clock_step_ns
    }

    pub(crate) fn cpus(&self) -> Option<u32> {
        Some(self.head.cpus).filter(|cpus| *cpus > 0)
    }
}

fn open(source: &dyn Source, name: &str) -> Result<Input, TraceError> {
    match open_stream(source, name)? {
        Some(input) => Ok(BufReader::with_capacity(1 << 16, input)),
        None => {
            let kind = TraceErrorKind::Missing { expected: "a .zonal file".to_owned() };
            Err(TraceError::new(source.display(name), Position::File, kind))
        }
    }
}

fn read_head(input: &mut dyn Read) -> Result<ZonalFile, Damage> {
    let (head, bytes) = FileHead::read(input)?;
    let mut file = ZonalFile { head, machine: MachineFiles::default() };
    let missing = || Damage::cut_short(bytes, "the files of the machine");
    let chunk = ChunkHead::read(input, bytes)?.ok_or_else(missing)?;
    if chunk.kind != ChunkKind::Machine {
        return Err(Damage::bad(bytes, "first chunk", "the files of the machine", "another"));
    }
    let offset = bytes + CHUNK_HEAD_BYTES as u64;
    let packed = chunk.payload(input, offset)?;
    let added = file.machine.add_packed(&packed, chunk.count);
    added.map_err(|fault| Damage::new(offset, fault))?;
    Ok(file)
}

fn at(file: &Path, damage: Damage) -> TraceError {
    TraceError::new(file, Position::Byte(damage.offset), damage.fault)
}

type Input = BufReader<Box<dyn Read + Send>>;

/// The events of a file.
pub(crate) struct ZonalEvents {
    input: Input,
    file: PathBuf,
    /// Offset of the next chunk.
    offset: u64,
    /// Offset of the block that events come from.
    block_at: u64,
    model: Model,
    block: std::vec::IntoIter<Event>,
    /// Events read, or `None` if reading began in the middle.
    events: Option<u64>,
    ended: bool,
    key_seen: bool,
}

impl ZonalEvents {
    /// All events.
    pub(crate) fn open(
        zonal: &ZonalFile,
        source: &dyn Source,
        name: &str,
    ) -> Result<ZonalEvents, TraceError> {
        let file = source.display(name);
        let mut input = open(source, name)?;
        let (_, offset) = FileHead::read(&mut input).map_err(|damage| at(&file, damage))?;
        Ok(ZonalEvents::new(zonal, input, file, offset, Some(0)))
    }

    /// The events from the block on that has the first event of `time_ns` or later, or from a block
    /// before it. A file whose index cannot be read is read from its beginning.
    pub(crate) fn open_at(
        zonal: &ZonalFile,
        source: &dyn Source,
        name: &str,
        time_ns: u64,
    ) -> Result<ZonalEvents, TraceError> {
        let file = source.display(name);
        let mut input = open_seekable(source, name)?;
        let Ok(Some(offset)) = block_before(&mut *input, time_ns) else {
            return ZonalEvents::open(zonal, source, name);
        };
        let sought = input.seek(SeekFrom::Start(offset));
        sought.map_err(|error| at(&file, Damage::new(offset, Box::new(read_fault(error)))))?;
        let input = BufReader::with_capacity(1 << 16, Box::new(input) as Box<dyn Read + Send>);
        Ok(ZonalEvents::new(zonal, input, file, offset, None))
    }

    fn new(
        zonal: &ZonalFile,
        input: Input,
        file: PathBuf,
        offset: u64,
        events: Option<u64>,
    ) -> ZonalEvents {
        ZonalEvents {
            input,
            file,
            offset,
            block_at: offset,
            model: Model::new(&zonal.head.zone_starts),
            block: Vec::new().into_iter(),
            events,
            ended: false,
            key_seen: false,
        }
    }

    /// The next event.
    pub(crate) fn next_event(&mut self) -> Result<Option<Event>, TraceError> {
        loop {
            if let Some(event) = self.block.next() {
                return Ok(Some(event));
            }
            if self.ended {
                return Ok(None);
            }
            self.next_chunk().map_err(|damage| at(&self.file, damage))?;
        }
    }

    /// The file, and the offset of the block that the last event came from.
    pub(crate) fn place(&self) -> (PathBuf, Position) {
        (self.file.clone(), Position::Byte(self.block_at))
    }

    fn next_chunk(&mut self) -> Result<(), Damage> {
        let start = self.offset;
        let Some(head) = ChunkHead::read(&mut self.input, start)? else {
            return Err(Damage::cut_short(start, "the end marker of a .zonal file"));
        };
        let body = start + CHUNK_HEAD_BYTES as u64;
        let payload = head.payload(&mut self.input, body)?;
        self.offset = body + payload.len() as u64;
        match head.kind {
            ChunkKind::Machine | ChunkKind::Index => Ok(()),
            ChunkKind::Data => self.block(head, &payload, start),
            ChunkKind::End => self.end(&payload, body),
        }
    }

    fn block(&mut self, head: ChunkHead, payload: &[u8], start: u64) -> Result<(), Damage> {
        if head.flags & KEY != 0 {
            self.model.reset();
            self.key_seen = true;
        }
        if !self.key_seen {
            return Err(Damage::bad(start, "first block", "a key block", "another"));
        }
        let events = block::read(payload, &mut self.model);
        let events = events.map_err(|fault| Damage::new(start, fault))?;
        let times = events.first().zip(events.last());
        let times = times.map(|(first, last)| (first.time_ns, last.time_ns));
        if times != Some((head.first_ns, head.last_ns)) || events.len() != head.count as usize {
            let expected = "the times and the number of events of its head";
            return Err(Damage::bad(start, "block", expected, "others"));
        }
        self.events = self.events.map(|sum| sum + events.len() as u64);
        self.block_at = start;
        self.block = events.into_iter();
        Ok(())
    }

    fn end(&mut self, payload: &[u8], offset: u64) -> Result<(), Damage> {
        if payload.len() != END_BYTES {
            return Err(Damage::bad(offset, "end marker", "16 bytes", payload.len()));
        }
        let promised = u64_at(payload, 0);
        if let Some(found) = self.events.filter(|found| *found != promised) {
            let kind = TraceErrorKind::EventCountDiffers {
                expected: promised,
                declared_by: "the end marker",
                found,
            };
            return Err(Damage::new(offset, Box::new(kind)));
        }
        self.ended = true;
        Ok(())
    }
}

/// Offset of the key block to begin at for events from `time_ns` on. `None` to begin with the
/// first: no block is before that time, or the index does not match the file.
fn block_before(input: &mut dyn Seekable, time_ns: u64) -> Result<Option<u64>, Damage> {
    let places = read_index(input)?;
    // The first event of this time may be the last of the block before the one that begins at it.
    let block = places.partition_point(|place| place.first_ns < time_ns).saturating_sub(1);
    let until = &places[..places.len().min(block + 1)];
    let Some(place) = until.iter().rev().find(|place| place.is_key) else { return Ok(None) };
    let offset = place.offset;
    let io = |error| Damage::new(offset, Box::new(read_fault(error)));
    input.seek(SeekFrom::Start(offset)).map_err(io)?;
    let head = ChunkHead::read(input, offset)?;
    // Blocks are in order of time: what lies before one that begins earlier is earlier still.
    let right = head.is_some_and(|head| {
        head.kind == ChunkKind::Data && head.flags & KEY != 0 && head.first_ns == place.first_ns
    });
    Ok((right && place.first_ns < time_ns).then_some(offset))
}

/// Refuses a file without its end marker.
pub(crate) fn check_end(source: &dyn Source, name: &str) -> Result<(), TraceError> {
    let mut input = open_seekable(source, name)?;
    read_end(&mut *input).map(drop).map_err(|damage| at(&source.display(name), damage))
}

/// The end marker, the last bytes of a whole file.
fn read_end(mut input: &mut dyn Seekable) -> Result<Vec<u8>, Damage> {
    let io = |error| Damage::new(0, Box::new(read_fault(error)));
    let end_bytes = (CHUNK_HEAD_BYTES + END_BYTES) as u64;
    let length = input.seek(SeekFrom::End(0)).map_err(io)?;
    let missing = || Damage::cut_short(length, "the end marker of a .zonal file");
    let end_at = length.checked_sub(end_bytes).ok_or_else(missing)?;
    input.seek(SeekFrom::Start(end_at)).map_err(io)?;
    let head = ChunkHead::read(&mut input, end_at).ok().flatten().ok_or_else(missing)?;
    let payload = head.payload(&mut input, end_at + CHUNK_HEAD_BYTES as u64)?;
    if head.kind != ChunkKind::End || payload.len() != END_BYTES {
        return Err(missing());
    }
    Ok(payload)
}

/// The index, found through the end marker.
fn read_index(mut input: &mut dyn Seekable) -> Result<Vec<BlockPlace>, Damage> {
    let io = |error| Damage::new(0, Box::new(read_fault(error)));
    let wrong = |offset| Damage::cut_short(offset, "the index of a .zonal file");
    let payload = read_end(input)?;
    let index_at = u64_at(&payload, 8);
    input.seek(SeekFrom::Start(index_at)).map_err(io)?;
    let head = ChunkHead::read(&mut input, index_at)?.ok_or_else(|| wrong(index_at))?;
    let payload = head.payload(&mut input, index_at + CHUNK_HEAD_BYTES as u64)?;
    let mut fields = Varints::new(&payload);
    let mut places = Vec::new();
    let (mut offset, mut time) = (0_u64, 0_u64);
    let bad = |fault| Damage::new(index_at, fault);
    while !fields.is_at_end() {
        offset = offset.saturating_add(fields.varint().map_err(bad)?);
        let events = fields.varint().map_err(bad)?;
        time = time.saturating_add(fields.varint().map_err(bad)?);
        let is_key = fields.varint().map_err(bad)? & 1 != 0;
        places.push(BlockPlace { offset, events, first_ns: time, is_key });
    }
    Ok(places)
}
