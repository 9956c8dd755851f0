//! The head of a file and the heads of its chunks. All numbers are little-endian.

use std::io::Read;

use crate::bytes::Damage;
use crate::error::{Fault, TraceErrorKind};
use crate::lines::read_fault;

/// First bytes of a file. The first one is no text, and the line ends show a transfer as text.
pub(crate) const MAGIC: &[u8; 8] = b"\x89ZONAL\r\n";
/// The version that is written. Earlier ones are read too: they have fewer kinds of events.
pub(super) const VERSION: u16 = 4;

/// Bytes of the head before the zones.
pub(super) const FILE_HEAD_BYTES: usize = 24;
/// Most zones whose first frame a head may list.
pub(super) const ZONES_MAX: usize = 4096;
/// Bytes of a chunk's head.
pub(super) const CHUNK_HEAD_BYTES: usize = 40;
/// Most bytes of a chunk without its head.
pub(super) const CHUNK_BYTES_MAX: u32 = 128 << 20;
/// Flag of a block that needs no block before it.
pub(super) const KEY: u32 = 1;

/// The head of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct FileHead {
    pub(super) clock_step_ns: u32,
    /// 0 if unknown.
    pub(super) cpus: u32,
    pub(super) zone_starts: Vec<u64>,
}

/// The kind of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChunkKind {
    /// Files that describe the machine.
    Machine,
    /// A block of events.
    Data,
    /// Where the blocks are.
    Index,
    /// The end, with the number of all events.
    End,
}

/// The head of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkHead {
    pub(super) kind: ChunkKind,
    pub(super) bytes: u32,
    /// Events of a block, uncompressed bytes of files, blocks of an index.
    pub(super) count: u32,
    pub(super) flags: u32,
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
    pub(super) checksum: u32,
}

impl ChunkKind {
    const ALL: [(ChunkKind, [u8; 4]); 4] = [
        (ChunkKind::Machine, *b"MACH"),
        (ChunkKind::Data, *b"DATA"),
        (ChunkKind::Index, *b"INDX"),
        (ChunkKind::End, *b"END\n"),
    ];

    fn name(self) -> [u8; 4] {
        Self::ALL[self as usize].1
    }
}

impl FileHead {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((self.zone_starts.len() as u16).to_le_bytes());
        bytes.extend(self.clock_step_ns.to_le_bytes());
        bytes.extend(self.cpus.to_le_bytes());
        bytes.extend(0_u32.to_le_bytes());
        bytes.extend(self.zone_starts.iter().flat_map(|start| start.to_le_bytes()));
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes
    }

    /// Reads the head; returns it with its length.
    pub(super) fn read(input: &mut dyn Read) -> Result<(FileHead, u64), Damage> {
        let mut bytes = vec![0; FILE_HEAD_BYTES];
        fill(input, &mut bytes, 0, "the head of a .zonal file")?;
        if !bytes.starts_with(MAGIC) {
            let found = crate::error::excerpt(&bytes[..8]);
            return Err(Damage::bad(0, "magic", "`\\x89ZONAL\\r\\n`", found));
        }
        let version = u16_at(&bytes, 8);
        if !(1..=VERSION).contains(&version) {
            let expected = "1 to 4, which this program knows";
            return Err(Damage::bad(8, "version of a .zonal file", expected, version));
        }
        let zones = usize::from(u16_at(&bytes, 10));
        if zones > ZONES_MAX {
            return Err(Damage::bad(10, "number of zones", "at most 4096", zones));
        }
        bytes.resize(FILE_HEAD_BYTES + zones * 8 + 4, 0);
        let offset = FILE_HEAD_BYTES as u64;
        fill(input, &mut bytes[FILE_HEAD_BYTES..], offset, "the head of a .zonal file")?;
        let (head, checksum) = bytes.split_at(bytes.len() - 4);
        check(head, u32_at(checksum, 0)).map_err(|fault| Damage::new(0, fault))?;
        let starts = head[FILE_HEAD_BYTES..].as_chunks::<8>().0.iter();
        let head = FileHead {
            clock_step_ns: u32_at(head, 12),
            cpus: u32_at(head, 16),
            zone_starts: starts.map(|start| u64::from_le_bytes(*start)).collect(),
        };
        if head.clock_step_ns == 0 || head.cpus > zonal_text::CPUS_MAX {
            return Err(Damage::bad(12, "clock or CPUs", "a step of 1 ns and more", "0"));
        }
        Ok((head, bytes.len() as u64))
    }
}

impl ChunkHead {
    pub(super) fn to_bytes(self) -> [u8; CHUNK_HEAD_BYTES] {
        let mut bytes = [0; CHUNK_HEAD_BYTES];
        bytes[..4].copy_from_slice(&self.kind.name());
        bytes[4..8].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.count.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.flags.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.first_ns.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.last_ns.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.checksum.to_le_bytes());
        let own = crc32fast::hash(&bytes[..36]);
        bytes[36..].copy_from_slice(&own.to_le_bytes());
        bytes
    }

    /// Reads a head that lies at `offset`. `None` at the end of the input.
    pub(super) fn read(input: &mut dyn Read, offset: u64) -> Result<Option<Self>, Damage> {
        let mut bytes = [0; CHUNK_HEAD_BYTES];
        match input.read(&mut bytes[..1]) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(Damage::new(offset, Box::new(read_fault(error)))),
        }
        fill(input, &mut bytes[1..], offset, "the head of a chunk")?;
        let name = [bytes[0], bytes[1], bytes[2], bytes[3]];
        check(&bytes[..36], u32_at(&bytes, 36)).map_err(|fault| Damage::new(offset, fault))?;
        let kind = ChunkKind::ALL.into_iter().find(|(_, known)| *known == name);
        let Some((kind, _)) = kind else {
            let found = crate::error::excerpt(&name);
            return Err(Damage::bad(offset, "chunk", "MACH, DATA, INDX or END", found));
        };
        let head = ChunkHead {
            kind,
            bytes: u32_at(&bytes, 4),
            count: u32_at(&bytes, 8),
            flags: u32_at(&bytes, 12),
            first_ns: u64_at(&bytes, 16),
            last_ns: u64_at(&bytes, 24),
            checksum: u32_at(&bytes, 32),
        };
        if head.bytes > CHUNK_BYTES_MAX {
            let limit = u64::from(CHUNK_BYTES_MAX);
            return Err(Damage::new(offset, Box::new(TraceErrorKind::TooLarge { limit })));
        }
        Ok(Some(head))
    }

    /// Reads what follows the head. Memory grows with the bytes present, not with the length
    /// promised.
    pub(super) fn payload(&self, input: &mut dyn Read, offset: u64) -> Result<Vec<u8>, Damage> {
        let mut payload = Vec::new();
        let read = input.take(u64::from(self.bytes)).read_to_end(&mut payload);
        read.map_err(|error| Damage::new(offset, Box::new(read_fault(error))))?;
        if payload.len() < self.bytes as usize {
            let expected = format!("{} bytes of a chunk", self.bytes);
            return Err(Damage::cut_short(offset + payload.len() as u64, &expected));
        }
        check(&payload, self.checksum).map_err(|fault| Damage::new(offset, fault))?;
        Ok(payload)
    }
}

fn check(bytes: &[u8], expected: u32) -> Result<(), Fault> {
    let found = crc32fast::hash(bytes);
    // A fuzzer cannot guess a checksum: if it were compared, no input would get past it.
    match found == expected || cfg!(fuzzing) {
        true => Ok(()),
        false => Err(Box::new(TraceErrorKind::ChecksumDiffers { expected, found })),
    }
}

fn fill(
    input: &mut dyn Read,
    bytes: &mut [u8],
    offset: u64,
    what: &'static str,
) -> Result<(), Damage> {
    input.read_exact(bytes).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Damage::cut_short(offset, what),
        _ => Damage::new(offset, Box::new(read_fault(error))),
    })
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
