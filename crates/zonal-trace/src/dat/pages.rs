//! The ring pages of a `trace.dat`: as they are, or in compressed chunks.
//!
//! ```text
//!  plain: │ page │ page │ …          chunks: │ number │ packed, whole, zstd │ packed, whole, … │
//! ```
//! Of each CPU at most one chunk is in memory. trace-cmd writes chunks of ten pages.

use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use super::head::{Place, TraceDat};
use super::v7::unpack;
use crate::bytes::{Damage, Endian};
use crate::error::TraceErrorKind;
use crate::lines::read_fault;
use crate::ring::Pages;
use crate::source::Seekable;

/// Largest chunk, in bytes, compressed or not.
const CHUNK_BYTES_MAX: u32 = 16 << 20;

pub(super) struct DatPages {
    input: Box<dyn Seekable>,
    file: PathBuf,
    endian: Endian,
    page: usize,
    cpus: Vec<u32>,
    lanes: Vec<Lane>,
    compressed: bool,
}

/// The pages of one CPU.
struct Lane {
    /// The unread rest of the file.
    next: u64,
    end: u64,
    /// Chunks that follow; `None` before their number was read.
    chunks: Option<u32>,
    chunk: Vec<u8>,
    chunk_at: usize,
    /// Offset of the chunk in the file.
    chunk_offset: u64,
}

impl DatPages {
    pub(super) fn new(input: Box<dyn Seekable>, file: PathBuf, dat: &TraceDat) -> Self {
        let lane = |place: &Place| Lane {
            next: place.offset,
            end: place.end(dat.compressed),
            chunks: None,
            chunk: Vec::new(),
            chunk_at: 0,
            chunk_offset: place.offset,
        };
        DatPages {
            input,
            file,
            endian: dat.layout.endian,
            page: dat.layout.page,
            cpus: dat.places.iter().map(|place| place.cpu).collect(),
            lanes: dat.places.iter().map(lane).collect(),
            compressed: dat.compressed,
        }
    }

    /// Reads up to `bytes` of a CPU's part of the file. Fewer only at its end.
    fn read(&mut self, index: usize, bytes: u64, into: &mut Vec<u8>) -> Result<u64, Damage> {
        let lane = &mut self.lanes[index];
        let offset = lane.next;
        let wanted = bytes.min(lane.end - offset.min(lane.end));
        into.clear();
        let read = self
            .input
            .seek(SeekFrom::Start(offset))
            .and_then(|_| (&mut self.input).take(wanted).read_to_end(into));
        read.map_err(|error| Damage::new(offset, Box::new(read_fault(error))))?;
        lane.next += into.len() as u64;
        if (into.len() as u64) < wanted {
            return Err(Damage::cut_short(lane.next, "the rest of a CPU's ring pages"));
        }
        Ok(offset)
    }

    fn number(&mut self, index: usize, what: &'static str) -> Result<u32, Damage> {
        let mut bytes = Vec::with_capacity(4);
        let offset = self.read(index, 4, &mut bytes)?;
        let bytes = bytes.first_chunk::<4>().ok_or_else(|| Damage::cut_short(offset, what))?;
        Ok(self.endian.u32(*bytes))
    }

    /// Reads the next chunk of a CPU; false at the end.
    fn next_chunk(&mut self, index: usize) -> Result<bool, Damage> {
        let left = match self.lanes[index].chunks {
            Some(left) => left,
            None => self.number(index, "the number of chunks")?,
        };
        self.lanes[index].chunks = Some(left.saturating_sub(1));
        if left == 0 {
            return Ok(false);
        }
        let packed = self.number(index, "the size of a chunk")?;
        let whole = self.number(index, "the uncompressed size of a chunk")?;
        let offset = self.lanes[index].next;
        if packed > CHUNK_BYTES_MAX || whole > CHUNK_BYTES_MAX {
            let kind = TraceErrorKind::TooLarge { limit: u64::from(CHUNK_BYTES_MAX) };
            return Err(Damage::new(offset - 8, Box::new(kind)));
        }
        let mut bytes = Vec::new();
        self.read(index, u64::from(packed), &mut bytes)?;
        if bytes.len() < packed as usize {
            return Err(Damage::cut_short(offset, "a whole chunk"));
        }
        let lane = &mut self.lanes[index];
        lane.chunk = unpack(&bytes, whole, offset)?;
        lane.chunk_at = 0;
        lane.chunk_offset = offset;
        Ok(true)
    }
}

impl Pages for DatPages {
    fn cpus(&self) -> &[u32] {
        &self.cpus
    }

    fn next_page(&mut self, index: usize, page: &mut Vec<u8>) -> Result<Option<u64>, Damage> {
        if !self.compressed {
            let offset = self.read(index, self.page as u64, page)?;
            return match page.len() {
                0 => Ok(None),
                length if length == self.page => Ok(Some(offset)),
                length => Err(Damage::cut_short(offset + length as u64, "a whole ring page")),
            };
        }
        while self.lanes[index].chunk_at == self.lanes[index].chunk.len() {
            if !self.next_chunk(index)? {
                return Ok(None);
            }
        }
        let lane = &mut self.lanes[index];
        let Some(bytes) = lane.chunk.get(lane.chunk_at..lane.chunk_at + self.page) else {
            return Err(Damage::cut_short(lane.chunk_offset, "whole ring pages in a chunk"));
        };
        page.clear();
        page.extend_from_slice(bytes);
        lane.chunk_at += self.page;
        Ok(Some(lane.chunk_offset))
    }

    fn file(&self, _index: usize) -> PathBuf {
        self.file.clone()
    }
}
