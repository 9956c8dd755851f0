//! Events to a `.zonal` file, in one pass.

use std::io::{self, Write};

use super::block;
use super::chunk::{ChunkHead, ChunkKind, FileHead, KEY, ZONES_MAX};
use super::machine::MachineFiles;
use super::model::Model;
use super::varint::put_varint;
use crate::description::MachineDescription;
use crate::event::Event;

/// Blocks from one key block to the next: 16 make a million events, which is how far back reading
/// from a time may have to begin.
const BLOCKS_PER_KEY: usize = 16;

/// How to write.
#[derive(Debug, Clone, Copy)]
pub struct WriterOptions {
    /// Level of zstd: 1 is fast, 19 is small.
    pub level: i32,
    /// Events of a block, up to 131,072: more are smaller, fewer come out sooner.
    pub block_events: usize,
}

impl Default for WriterOptions {
    fn default() -> Self {
        WriterOptions { level: 19, block_events: 1 << 16 }
    }
}

/// Writes a `.zonal` file.
pub struct TraceWriter<W: Write> {
    output: W,
    offset: u64,
    options: WriterOptions,
    step: u64,
    model: Model,
    pending: Vec<Event>,
    latest_ns: u64,
    events: u64,
    blocks: Vec<BlockPlace>,
}

/// A block, for the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockPlace {
    pub(super) offset: u64,
    pub(super) events: u64,
    pub(super) first_ns: u64,
    pub(super) is_key: bool,
}

impl<W: Write> TraceWriter<W> {
    /// Begins a file about `machine`, with the files that describe it.
    ///
    /// # Errors
    /// Those of `output`.
    pub fn new(
        output: W,
        machine: &MachineDescription,
        files: &MachineFiles,
        options: WriterOptions,
    ) -> io::Result<TraceWriter<W>> {
        let populated = machine.zones.iter().filter(|zone| zone.is_populated());
        let mut zone_starts: Vec<u64> = populated.map(|zone| zone.start_pfn).collect();
        zone_starts.sort_unstable();
        zone_starts.truncate(ZONES_MAX);
        let head = FileHead {
            clock_step_ns: machine.clock.step_ns.max(1),
            cpus: machine.cpus.unwrap_or(0),
            zone_starts,
        };
        let mut writer = TraceWriter {
            output,
            offset: 0,
            options: WriterOptions {
                block_events: options.block_events.clamp(1, block::BLOCK_EVENTS_MAX),
                ..options
            },
            step: u64::from(head.clock_step_ns),
            model: Model::new(&head.zone_starts),
            pending: Vec::new(),
            latest_ns: 0,
            events: 0,
            blocks: Vec::new(),
        };
        writer.put(&head.to_bytes())?;
        let bytes = files.to_bytes();
        let packed = zstd::bulk::compress(&bytes, options.level)?;
        let whole = u32::try_from(bytes.len()).map_err(|_| too_much("files of the machine"))?;
        writer.chunk(ChunkKind::Machine, &packed, whole, 0, (0, 0))?;
        Ok(writer)
    }

    /// Adds an event.
    ///
    /// # Errors
    /// Those of the output; `InvalidInput` if the event is earlier than the one before it.
    pub fn push(&mut self, event: &Event) -> io::Result<()> {
        if event.time_ns < self.latest_ns {
            let text = format!(
                "events are mis-ordered: expected a time of at least {} ns, found {} ns",
                self.latest_ns, event.time_ns
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        self.latest_ns = event.time_ns;
        self.pending.push(event.clone());
        if self.pending.len() >= self.options.block_events {
            self.flush_block()?;
        }
        Ok(())
    }

    /// Writes the rest, the index and the end.
    ///
    /// # Errors
    /// Those of the output.
    pub fn finish(mut self) -> io::Result<W> {
        self.flush_block()?;
        let index_at = self.offset;
        let mut index = Vec::new();
        let (mut offset, mut time) = (0, 0);
        for place in &self.blocks {
            put_varint(&mut index, place.offset - offset);
            put_varint(&mut index, place.events);
            put_varint(&mut index, place.first_ns - time);
            put_varint(&mut index, u64::from(place.is_key));
            (offset, time) = (place.offset, place.first_ns);
        }
        let blocks = u32::try_from(self.blocks.len()).map_err(|_| too_much("blocks"))?;
        self.chunk(ChunkKind::Index, &index, blocks, 0, (0, 0))?;
        let mut end = self.events.to_le_bytes().to_vec();
        end.extend(index_at.to_le_bytes());
        self.chunk(ChunkKind::End, &end, 0, 0, (0, 0))?;
        self.output.flush()?;
        Ok(self.output)
    }

    fn flush_block(&mut self) -> io::Result<()> {
        let (Some(first), Some(last)) = (self.pending.first(), self.pending.last()) else {
            return Ok(());
        };
        let times = (first.time_ns, last.time_ns);
        let is_key = self.blocks.len().is_multiple_of(BLOCKS_PER_KEY);
        if is_key {
            self.model.reset();
        }
        let events = self.pending.len();
        let block = block::write(&self.pending, self.step, self.options.level, &mut self.model);
        let block = block
            .map_err(|fault| io::Error::new(io::ErrorKind::InvalidInput, fault.to_string()))?;
        self.pending.clear();
        let place =
            BlockPlace { offset: self.offset, events: events as u64, first_ns: times.0, is_key };
        self.blocks.push(place);
        self.events += events as u64;
        let flags = if is_key { KEY } else { 0 };
        self.chunk(ChunkKind::Data, &block, events as u32, flags, times)
    }

    fn chunk(
        &mut self,
        kind: ChunkKind,
        payload: &[u8],
        count: u32,
        flags: u32,
        (first_ns, last_ns): (u64, u64),
    ) -> io::Result<()> {
        let bytes = u32::try_from(payload.len()).ok();
        let bytes = bytes.filter(|bytes| *bytes <= super::chunk::CHUNK_BYTES_MAX);
        let bytes = bytes.ok_or_else(|| too_much("bytes in a chunk"))?;
        let checksum = crc32fast::hash(payload);
        let head = ChunkHead { kind, bytes, count, flags, first_ns, last_ns, checksum };
        self.put(&head.to_bytes())?;
        self.put(payload)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.output.write_all(bytes)?;
        self.offset += bytes.len() as u64;
        Ok(())
    }
}

fn too_much(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("too many {what} for a .zonal file"))
}
