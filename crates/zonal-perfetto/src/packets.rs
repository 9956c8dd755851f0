//! Packets of a file: `Trace` is a message with one repeated field, so that a file is read a packet
//! at a time, and a file with more packets behind it is a longer trace.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

use flate2::read::ZlibDecoder;
use prost::Message;
use tempfile::SpooledTempFile;

use crate::error::Error;
use crate::proto::PacketHead;

/// The key of `Trace.packet`: field 1, length-delimited.
pub(crate) const PACKET_KEY: u8 = 0x0a;
/// Largest packet. Perfetto's own are some KiB; a file of a machine may be larger.
const PACKET_BYTES_MAX: u64 = 64 << 20;
/// Most parts of a packet's messages. A bundle has an event for each; of others there are fewer.
const PARTS_MAX: u64 = 2 << 20;
/// Most bytes of packets that were compressed: a thousand of zeros are one in a file.
const INFLATED_BYTES_MAX: u64 = 4 << 30;
/// What a packet counts for besides its bytes, since something is kept about each.
const PACKET_COST: u64 = 64;
/// Inflated bytes that stay in memory.
const MEMORY_BYTES: usize = 16 << 20;
/// Most bytes of a varint.
const VARINT_BYTES: u32 = 10;

/// Refuses a packet whose messages have more parts than any trace has: decoded, an empty part of
/// two bytes takes some fifty.
pub(crate) fn check_parts(packet: &[u8]) -> Result<(), String> {
    let mut parts = 0_u64;
    for message in Parts(packet) {
        parts += Parts(message).count() as u64;
        if parts > PARTS_MAX {
            return Err(format!("a packet of more than {PARTS_MAX} parts"));
        }
    }
    Ok(())
}

/// The length-delimited fields of a message, as far as it is one.
struct Parts<'b>(&'b [u8]);

impl<'b> Parts<'b> {
    fn take(&mut self, bytes: u64) -> Option<&'b [u8]> {
        let (part, rest) = self.0.split_at_checked(usize::try_from(bytes).ok()?)?;
        self.0 = rest;
        Some(part)
    }

    fn number(&mut self) -> Option<u64> {
        varint(&mut self.0).ok().flatten()
    }
}

impl<'b> Iterator for Parts<'b> {
    type Item = &'b [u8];

    fn next(&mut self) -> Option<&'b [u8]> {
        loop {
            // The kind of a field is in the lowest three bits of its key.
            match self.number()? & 7 {
                0 => drop(self.number()?),
                1 => drop(self.take(8)?),
                2 => {
                    let bytes = self.number()?;
                    return self.take(bytes);
                }
                5 => drop(self.take(4)?),
                _ => return None,
            }
        }
    }
}

/// Whether a file begins with a packet whose fields can be read.
pub fn is_perfetto(path: &Path) -> bool {
    // Before it is opened: a pipe would be waited for.
    let is_file = fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    let Some(mut packets) = is_file.then(|| Packets::open(path).ok()).flatten() else {
        return false;
    };
    let mut buffer = Vec::new();
    let first = packets.next(&mut buffer);
    let is_packet = || check_parts(&buffer).is_ok() && PacketHead::decode(&*buffer).is_ok();
    matches!(first, Ok(Some(_)) if !buffer.is_empty() && is_packet())
}

/// Where a packet lies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    is_inflated: bool,
    /// The packet's first byte, behind its length.
    pub(crate) at: u64,
    pub(crate) bytes: u32,
}

/// What is done with each packet that was compressed.
type Each<'a> = dyn FnMut(Place, &[u8]) -> Result<(), Error> + 'a;

/// The packets of a file.
pub(crate) struct Packets<'a> {
    path: &'a Path,
    file: BufReader<File>,
    at: u64,
    /// What was compressed.
    inflated: SpooledTempFile,
    inflated_bytes: u64,
    /// Their bytes, and the cost of each.
    inflated_cost: u64,
}

impl<'a> Packets<'a> {
    pub(crate) fn open(path: &'a Path) -> Result<Packets<'a>, Error> {
        let file = File::open(path).map_err(Error::io(path))?;
        let inflated = tempfile::spooled_tempfile(MEMORY_BYTES);
        Ok(Packets {
            path,
            file: BufReader::new(file),
            at: 0,
            inflated,
            inflated_bytes: 0,
            inflated_cost: 0,
        })
    }

    /// The next packet of the file, into `buffer`; `None` at the end.
    pub(crate) fn next(&mut self, buffer: &mut Vec<u8>) -> Result<Option<Place>, Error> {
        let begin = self.at;
        let wrong = |what: String| Error::packet(self.path, begin, what);
        let head = packet_head(&mut self.file).map_err(|error| wrong(told(&error)))?;
        let Some(bytes) = head else { return Ok(None) };
        let length = length(bytes).map_err(wrong)?;
        buffer.resize(length as usize, 0);
        self.file.read_exact(buffer).map_err(|error| wrong(told(&error)))?;
        let at = self.file.stream_position().map_err(Error::io(self.path))?;
        self.at = at;
        Ok(Some(Place { is_inflated: false, at: at - bytes, bytes: length }))
    }

    /// Unpacks packets that were compressed together, and calls `each` for them.
    pub(crate) fn inflate(
        &mut self,
        packed: &[u8],
        at: u64,
        each: &mut Each<'_>,
    ) -> Result<(), Error> {
        let wrong = |what: String| Error::packet(self.path, at, format!("compressed: {what}"));
        let mut input = BufReader::new(ZlibDecoder::new(packed));
        let mut buffer = Vec::new();
        while let Some(bytes) = packet_head(&mut input).map_err(|error| wrong(told(&error)))? {
            let length = length(bytes).map_err(wrong)?;
            self.inflated_cost += bytes + PACKET_COST;
            if self.inflated_cost > INFLATED_BYTES_MAX {
                let most = INFLATED_BYTES_MAX >> 30;
                return Err(wrong(format!(
                    "more than {most} GiB in all; record for a shorter time"
                )));
            }
            buffer.resize(length as usize, 0);
            input.read_exact(&mut buffer).map_err(|error| wrong(told(&error)))?;
            self.inflated.write_all(&buffer).map_err(Error::io(self.path))?;
            let place = Place { is_inflated: true, at: self.inflated_bytes, bytes: length };
            self.inflated_bytes += bytes;
            each(place, &buffer)?;
        }
        Ok(())
    }

    /// Reads a packet again.
    pub(crate) fn read(&mut self, place: Place, buffer: &mut Vec<u8>) -> Result<(), Error> {
        let file = |error| Error::io(self.path)(error);
        buffer.resize(place.bytes as usize, 0);
        let input: &mut dyn ReadSeek =
            if place.is_inflated { &mut self.inflated } else { &mut self.file };
        input.seek(SeekFrom::Start(place.at)).map_err(file)?;
        input.read_exact(buffer).map_err(file)
    }
}

trait ReadSeek: Read + Seek {}

impl<T: Read + Seek> ReadSeek for T {}

/// Bytes of the next packet; `None` at the end.
fn packet_head(input: &mut impl Read) -> io::Result<Option<u64>> {
    let bad = |what| Err(io::Error::new(io::ErrorKind::InvalidData, what));
    match varint(input)? {
        None => Ok(None),
        Some(key) if key == u64::from(PACKET_KEY) => match varint(input)? {
            Some(bytes) => Ok(Some(bytes)),
            None => bad("the file ends in a packet"),
        },
        Some(_) => bad("expected a packet of a Perfetto trace"),
    }
}

fn varint(input: &mut impl Read) -> io::Result<Option<u64>> {
    let mut value = 0;
    for place in 0..VARINT_BYTES {
        let mut byte = [0];
        if input.read(&mut byte)? == 0 {
            let cut = io::Error::new(io::ErrorKind::UnexpectedEof, "the file ends in a number");
            return if place == 0 { Ok(None) } else { Err(cut) };
        }
        value |= u64::from(byte[0] & 0x7f) << (7 * place).min(63);
        if byte[0] & 0x80 == 0 {
            return Ok(Some(value));
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "a number of more than 10 bytes"))
}

fn length(bytes: u64) -> Result<u32, String> {
    match bytes {
        0..=PACKET_BYTES_MAX => Ok(bytes as u32),
        more => Err(format!("a packet of {more} bytes; expected {PACKET_BYTES_MAX} at most")),
    }
}

fn told(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the file ends in a packet: it was cut short".to_owned(),
        _ => error.to_string(),
    }
}
