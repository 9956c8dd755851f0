//! Version 7: sections, found through options, each of them compressed or not.

use super::file::FileReader;
use super::head::{Initial, Place, TraceDat, assemble, clock_of, option_text};
use super::meta::{Meta, PART_BYTES_MAX};
use super::v6::cpus_option;
use crate::bytes::{ByteReader, Damage};
use crate::error::{TraceErrorKind, excerpt};
use zonal_text::CPUS_MAX;

const SECTION_OPTIONS: u16 = 0;
const SECTION_BUFFER: u16 = 3;
const SECTION_HEADER_INFO: u16 = 16;
const SECTION_FTRACE: u16 = 17;
const SECTION_EVENTS: u16 = 18;
const SECTION_KALLSYMS: u16 = 19;

const OPTION_DONE: u16 = 0;
const OPTION_BUFFER: u16 = 3;
const OPTION_CLOCK: u16 = 4;
const OPTION_UNAME: u16 = 5;
const OPTION_CPUS: u16 = 8;

const COMPRESSED: u16 = 1;
/// More sections of options than any file has: chains that bite their tail end here.
const OPTION_SECTIONS_MAX: usize = 4096;
/// More parts than any file has.
const PARTS_MAX: usize = 1 << 16;

/// The sections that options point to.
#[derive(Default)]
struct Directory {
    header_info: Option<u64>,
    ftrace: Option<u64>,
    events: Option<u64>,
    kallsyms: Option<u64>,
    /// Offset of the section, and the places in the option that describes it.
    buffers: Vec<(u64, Vec<Place>)>,
    places: usize,
    clock: Option<String>,
    uname: Option<String>,
    cpus: Option<u32>,
}

/// The head of a section.
struct Section {
    compressed: bool,
    bytes: u64,
}

pub(super) fn read(reader: &mut FileReader, initial: Initial) -> Result<TraceDat, Damage> {
    let offset = reader.offset();
    let compression = reader.string(32, "the name of a compression")?;
    reader.string(64, "the version of a compression")?;
    if !matches!(&compression[..], b"zstd" | b"none") {
        let expected = "zstd or none: `trace-cmd convert --compression zstd` makes such a file";
        return Err(Damage::bad(offset, "compression", expected, excerpt(&compression)));
    }
    let mut directory = Directory::default();
    let mut next = reader.u64("offset of the options")?;
    for _ in 0..OPTION_SECTIONS_MAX {
        if next == 0 {
            break;
        }
        next = options(reader, next, &mut directory)?;
    }
    if next != 0 {
        return Err(Damage::bad(next, "options", "at most 4096 sections of them", "more"));
    }
    let mut meta = Meta::default();
    if let Some(mut part) = open(reader, directory.header_info, SECTION_HEADER_INFO)? {
        meta.header_info(&mut part)?;
    }
    if let Some(mut part) = open(reader, directory.ftrace, SECTION_FTRACE)? {
        meta.ftrace_formats(&mut part)?;
    }
    if let Some(mut part) = open(reader, directory.events, SECTION_EVENTS)? {
        meta.event_formats(&mut part)?;
    }
    if let Some(mut part) = open(reader, directory.kallsyms, SECTION_KALLSYMS)? {
        meta.kallsyms(&mut part)?;
    }
    let mut dat = assemble(initial, meta, false)?;
    for (offset, places) in &directory.buffers {
        reader.seek(*offset, "offset of an instance's pages")?;
        let section = section(reader, SECTION_BUFFER)?;
        // One file has one kind: the writer decides it once.
        dat.compressed |= section.compressed && !places.is_empty();
        dat.places.extend(places);
    }
    dat.clock = directory.clock;
    dat.uname = directory.uname;
    dat.cpus = directory.cpus;
    Ok(dat)
}

fn section(reader: &mut FileReader, expected: u16) -> Result<Section, Damage> {
    let offset = reader.offset();
    let id = reader.u16("id of a section")?;
    let compressed = reader.u16("flags of a section")? & COMPRESSED != 0;
    reader.u32("description of a section")?;
    let bytes = reader.u64("size of a section")?;
    if id != expected {
        let found = format!("{id}, where {expected} should be");
        return Err(Damage::bad(offset, "section", "the one that an option names", found));
    }
    Ok(Section { compressed, bytes })
}

/// Reads a whole section into memory and decompresses it.
fn open(
    reader: &mut FileReader,
    offset: Option<u64>,
    id: u16,
) -> Result<Option<FileReader>, Damage> {
    let Some(offset) = offset else { return Ok(None) };
    reader.seek(offset, "offset of a section")?;
    let head = section(reader, id)?;
    let start = reader.offset();
    let part = match head.compressed {
        false => reader.piece(head.bytes, PART_BYTES_MAX, "a section")?,
        true => {
            let packed = reader.u32("compressed size")?;
            let whole = reader.u32("uncompressed size")?;
            let packed = reader.piece(u64::from(packed), PART_BYTES_MAX, "a section")?;
            unpack(&packed, whole, start)?
        }
    };
    Ok(Some(FileReader::of_part(part, start, reader.endian())))
}

/// Decompresses a piece whose size is known.
pub(super) fn unpack(packed: &[u8], whole: u32, offset: u64) -> Result<Vec<u8>, Damage> {
    if u64::from(whole) > PART_BYTES_MAX {
        let kind = TraceErrorKind::TooLarge { limit: PART_BYTES_MAX };
        return Err(Damage::new(offset, Box::new(kind)));
    }
    let damaged =
        |found| Damage::new(offset, Box::new(TraceErrorKind::CompressionDamaged { found }));
    let piece = zstd::bulk::decompress(packed, whole as usize);
    let piece = piece.map_err(|error| damaged(error.to_string()))?;
    if piece.len() != whole as usize {
        return Err(damaged(format!("{} bytes where {whole} were promised", piece.len())));
    }
    Ok(piece)
}

/// Reads a section of options and returns where the next one is.
fn options(reader: &mut FileReader, offset: u64, directory: &mut Directory) -> Result<u64, Damage> {
    let Some(mut part) = open(reader, Some(offset), SECTION_OPTIONS)? else { return Ok(0) };
    let endian = part.endian();
    while !part.is_at_end() {
        let id = part.u16("id of an option")?;
        let bytes = part.u32("size of an option")?;
        let offset = part.offset();
        let data = part.piece(u64::from(bytes), PART_BYTES_MAX, "an option")?;
        let mut fields = ByteReader::new(&data, offset, endian);
        match id {
            OPTION_DONE => return fields.u64("offset of the next options"),
            OPTION_BUFFER => buffer(fields, directory)?,
            OPTION_CLOCK => directory.clock = clock_of(&data).or(directory.clock.take()),
            OPTION_UNAME => directory.uname = option_text(&data),
            OPTION_CPUS => {
                directory.cpus = cpus_option(&data, endian, offset)?.or(directory.cpus);
            }
            SECTION_HEADER_INFO => directory.header_info = Some(fields.u64("offset")?),
            SECTION_FTRACE => directory.ftrace = Some(fields.u64("offset")?),
            SECTION_EVENTS => directory.events = Some(fields.u64("offset")?),
            SECTION_KALLSYMS => directory.kallsyms = Some(fields.u64("offset")?),
            _ => {}
        }
    }
    Ok(0)
}

fn buffer(mut fields: ByteReader<'_>, directory: &mut Directory) -> Result<(), Damage> {
    let start = fields.u64("offset of an instance's pages")?;
    fields.string("the name of an instance")?;
    let clock = fields.string("the clock of an instance")?;
    fields.u32("page size of an instance")?;
    let offset = fields.offset();
    let cpus = fields.u32("number of CPUs of an instance")?;
    directory.places += cpus as usize;
    if cpus > CPUS_MAX || directory.places > PARTS_MAX {
        return Err(Damage::bad(offset, "number of CPUs of an instance", "at most 8192", cpus));
    }
    let mut places = Vec::new();
    for _ in 0..cpus {
        let cpu_at = fields.offset();
        let cpu = fields.u32("id of a CPU")?;
        if cpu >= CPUS_MAX {
            return Err(Damage::bad(cpu_at, "id of a CPU", "a number below 8192", cpu));
        }
        let offset = fields.u64("offset of a CPU's pages")?;
        let bytes = fields.u64("size of a CPU's pages")?;
        if bytes > 0 {
            places.push(Place { cpu, offset, bytes });
        }
    }
    if !places.is_empty() {
        directory.clock = clock_of(clock).or(directory.clock.take());
    }
    directory.buffers.push((start, places));
    Ok(())
}
