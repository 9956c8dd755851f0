//! The head of a `perf.data`: where its sections are and what its samples hold.
//!
//! ```text
//!  0       8      16          24          40       56            72
//!  ├ magic ┼ size ┼ attr size ┼ attrs ────┼ data ──┼ event types ┼ 256 bits of features ┤
//!                               offset, size each
//!  attribute: perf_event_attr (attr size - 16 bytes), offset and size of its ids
//!  after data: offset and size of each feature whose bit is set, in the order of the bits
//! ```

use std::collections::HashMap;
use std::io::SeekFrom;
use std::path::Path;

use super::MAGIC;
use super::command::Command;
use super::sample::SampleLayout;
use crate::bytes::{ByteReader, Damage, Endian};
use crate::error::{Position, TraceError, TraceErrorKind};
use crate::lines::read_fault;
use crate::ring::directory::page_and_long;
use crate::source::{Seekable, Source, open_seekable};
use crate::tracefs::{Decoder, Symbols};
use zonal_text::CPUS_MAX;

const HEADER_BYTES: u64 = 104;
const PIPE_HEADER_BYTES: u64 = 16;
/// Smallest `perf_event_attr` that exists, and one larger than any.
const ATTR_BYTES: std::ops::RangeInclusive<u64> = 64..=4096;
/// Largest section that is read into memory, in bytes: formats and symbols have some megabytes.
const SECTION_BYTES_MAX: u64 = 64 << 20;

const FEATURE_TRACING_DATA: u32 = 1;
const FEATURE_OS_RELEASE: u32 = 4;
const FEATURE_CPUS: u32 = 7;
const FEATURE_COMMAND: u32 = 11;

/// `perf_event_attr.type` of tracepoints.
const TYPE_TRACEPOINT: u32 = 2;
/// `perf_event_attr.freq`: the sample period is one of samples a second.
const FREQUENCY: u64 = 1 << 10;
/// `perf_event_attr.enable_on_exec`: the event counts from the next `exec` of its thread on.
const ENABLE_ON_EXEC: u64 = 1 << 12;

/// The head.
#[derive(Debug, Clone)]
pub(crate) struct PerfData {
    pub(super) endian: Endian,
    pub(super) decoder: Decoder,
    /// Layouts of the samples, by attribute.
    pub(super) layouts: Vec<SampleLayout>,
    /// Sample id to index of its attribute.
    pub(super) ids: HashMap<u64, usize>,
    pub(super) data: Section,
    pub(crate) cpus: Option<u32>,
    pub(crate) release: Option<String>,
    /// What left events out, by perf's command line.
    pub(super) left_out: Option<&'static str>,
}

/// A part of the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Section {
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

impl PerfData {
    /// Reads the head of `name`.
    pub(crate) fn read(source: &dyn Source, name: &str) -> Result<PerfData, TraceError> {
        let file = source.display(name);
        let input = open_seekable(source, name)?;
        read_head(input).map_err(|damage| at(&file, damage))
    }
}

pub(super) fn at(file: &Path, damage: Damage) -> TraceError {
    TraceError::new(file, Position::Byte(damage.offset), damage.fault)
}

fn read_head(mut input: Box<dyn Seekable>) -> Result<PerfData, Damage> {
    let seek = input.seek(SeekFrom::End(0));
    let length = seek.map_err(|error| Damage::new(0, Box::new(read_fault(error))))?;
    let whole = Section { offset: 0, bytes: length };
    let head = read_section(&mut *input, Section { offset: 0, bytes: 16 }, whole, "header")?;
    let endian = if head.starts_with(MAGIC) { Endian::Little } else { Endian::Big };
    let header_bytes = ByteReader::new(&head[8..], 8, endian).u64("size of the header")?;
    if header_bytes == PIPE_HEADER_BYTES {
        let expected = "a file with sections: `perf record -o FILE`, not a pipe";
        return Err(Damage::bad(8, "perf.data header", expected, "pipe mode"));
    }
    let header = Section { offset: 0, bytes: HEADER_BYTES };
    let bytes = read_section(&mut *input, header, whole, "header")?;
    let mut fields = ByteReader::new(&bytes, 0, endian);
    fields.take(16, "header")?;
    let attr_bytes_at = fields.offset();
    let attr_bytes = fields.u64("size of an attribute")?;
    let attrs = section(&mut fields, whole, "attributes")?;
    let data = section(&mut fields, whole, "data")?;
    fields.take(16, "event types")?;
    let features: Vec<u64> =
        (0..4).map(|_| fields.u64("features")).collect::<Result<_, Damage>>()?;
    if !ATTR_BYTES.contains(&attr_bytes.saturating_sub(16)) {
        let expected = "a perf_event_attr of 64 to 4096 bytes, and 16";
        return Err(Damage::bad(attr_bytes_at, "size of an attribute", expected, attr_bytes));
    }
    let mut perf = PerfData {
        endian,
        decoder: Decoder::new(endian, Symbols::Unknown),
        layouts: Vec::new(),
        ids: HashMap::new(),
        data,
        cpus: None,
        release: None,
        left_out: None,
    };
    perf.attributes(&mut *input, attrs, attr_bytes, whole)?;
    perf.features(&mut *input, &features, whole)?;
    if perf.decoder.is_empty() {
        let expected = "tracing data with kmem events: `perf record -R -e 'kmem:*'`";
        return Err(Damage::bad(72, "event formats", expected, "none"));
    }
    Ok(perf)
}

fn section(
    fields: &mut ByteReader<'_>,
    whole: Section,
    what: &'static str,
) -> Result<Section, Damage> {
    let at = fields.offset();
    let section = Section { offset: fields.u64(what)?, bytes: fields.u64(what)? };
    let inside = section.offset.checked_add(section.bytes).is_some_and(|end| end <= whole.bytes);
    if !inside {
        let expected = format!("{} bytes of {what} from byte {}", section.bytes, section.offset);
        return Err(Damage::cut_short(at, &expected));
    }
    Ok(section)
}

fn read_section(
    input: &mut dyn Seekable,
    section: Section,
    whole: Section,
    what: &'static str,
) -> Result<Vec<u8>, Damage> {
    if section.bytes > SECTION_BYTES_MAX {
        let kind = TraceErrorKind::TooLarge { limit: SECTION_BYTES_MAX };
        return Err(Damage::new(section.offset, Box::new(kind)));
    }
    if section.offset.checked_add(section.bytes).is_none_or(|end| end > whole.bytes) {
        return Err(Damage::cut_short(whole.bytes, &format!("{} bytes of {what}", section.bytes)));
    }
    let mut bytes = vec![0; section.bytes as usize];
    let read =
        input.seek(SeekFrom::Start(section.offset)).and_then(|_| input.read_exact(&mut bytes));
    read.map_err(|error| Damage::new(section.offset, Box::new(read_fault(error))))?;
    Ok(bytes)
}

impl PerfData {
    fn attributes(
        &mut self,
        input: &mut dyn Seekable,
        attrs: Section,
        attr_bytes: u64,
        whole: Section,
    ) -> Result<(), Damage> {
        let bytes = read_section(input, attrs, whole, "attributes")?;
        for (index, attr) in bytes.chunks_exact(attr_bytes as usize).enumerate() {
            let base = attrs.offset + index as u64 * attr_bytes;
            let mut fields = ByteReader::new(attr, base, self.endian);
            let kind = fields.u32("type of an attribute")?;
            fields.take(12, "an attribute")?;
            let period = fields.u64("sample period")?;
            let sample_type = fields.u64("sample type")?;
            let read_format = fields.u64("read format")?;
            let flags = fields.u64("flags of an attribute")?;
            // Fields of one bit, which compilers of big-endian machines count from the other end.
            let has = |bit: u64| match self.endian {
                Endian::Little => flags & bit != 0,
                Endian::Big => flags & bit.reverse_bits() != 0,
            };
            let layout = SampleLayout::new(kind == TYPE_TRACEPOINT, sample_type, read_format)
                .sampled(period, has(FREQUENCY))
                .of_command(has(ENABLE_ON_EXEC));
            let mut places = ByteReader::new(&attr[attr.len() - 16..], base, self.endian);
            let ids = section(&mut places, whole, "sample ids")?;
            let index = self.layouts.len();
            let ids = read_section(input, ids, whole, "sample ids")?;
            for id in ids.as_chunks::<8>().0 {
                self.ids.insert(self.endian.u64(*id), index);
            }
            self.layouts.push(layout);
        }
        if self.layouts.is_empty() {
            return Err(Damage::bad(attrs.offset, "attributes", "one at least", "none"));
        }
        let first = self.layouts[0].id_at;
        if self.layouts.iter().any(|layout| layout.id_at != first) {
            let expected = "samples that all have their id at one place (PERF_SAMPLE_IDENTIFIER)";
            return Err(Damage::bad(attrs.offset, "attributes", expected, "several places"));
        }
        Ok(())
    }

    fn features(
        &mut self,
        input: &mut dyn Seekable,
        features: &[u64],
        whole: Section,
    ) -> Result<(), Damage> {
        let mut at = self.data.offset + self.data.bytes;
        for feature in 0..256_u32 {
            if features[feature as usize / 64] >> (feature % 64) & 1 == 0 {
                continue;
            }
            let place = Section { offset: at, bytes: 16 };
            let bytes = read_section(input, place, whole, "a feature")?;
            let place = section(&mut ByteReader::new(&bytes, at, self.endian), whole, "feature")?;
            at += 16;
            match feature {
                FEATURE_TRACING_DATA => {
                    let bytes = read_section(input, place, whole, "tracing data")?;
                    tracing_data(&bytes, place.offset, &mut self.decoder, self.endian)?;
                }
                FEATURE_OS_RELEASE => {
                    let bytes = read_section(input, place, whole, "release")?;
                    let text = bytes.get(4..).unwrap_or_default();
                    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
                    self.release = Some(String::from_utf8_lossy(text).into_owned());
                }
                FEATURE_CPUS => {
                    let bytes = read_section(input, place, whole, "number of CPUs")?;
                    let available = bytes.get(4..8).and_then(|bytes| self.endian.number(bytes));
                    let available = available.and_then(|cpus| u32::try_from(cpus).ok());
                    self.cpus = available.filter(|cpus| (1..=CPUS_MAX).contains(cpus));
                }
                FEATURE_COMMAND => {
                    let bytes = read_section(input, place, whole, "command line")?;
                    let mut fields = ByteReader::new(&bytes, place.offset, self.endian);
                    let words = command_line(&mut fields)?;
                    self.left_out = Command::read(words.iter().map(String::as_str)).leaves_out();
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The words of the command line: each with its length, and zeros up to that.
fn command_line(fields: &mut ByteReader<'_>) -> Result<Vec<String>, Damage> {
    let count = fields.u32("number of words of the command line")?;
    let mut words = Vec::new();
    for _ in 0..count {
        let bytes = fields.u32("size of a word of the command line")?;
        let word = fields.take(bytes.into(), "a word of the command line")?;
        let word = word.split(|byte| *byte == 0).next().unwrap_or_default();
        words.push(String::from_utf8_lossy(word).into_owned());
    }
    Ok(words)
}

/// The formats, which perf writes as version 0.5 or 0.6 of what trace-cmd writes first.
fn tracing_data(
    bytes: &[u8],
    base: u64,
    decoder: &mut Decoder,
    endian: Endian,
) -> Result<(), Damage> {
    let mut fields = ByteReader::new(bytes, base, endian);
    fields.literal(crate::dat::MAGIC, "magic of the tracing data", "`\\x17\\x08Dtracing`")?;
    fields.string("version of the tracing data")?;
    fields.u8("byte order")?;
    fields.u8("size of a long")?;
    fields.u32("page size")?;
    fields.literal(b"header_page\0", "header of a ring page", "`header_page`")?;
    let length = fields.u64("size of header_page")?;
    let header_page = fields.take(length, "header_page")?;
    // Samples need no ring pages; a `long` that makes no sense still means a foreign machine.
    if length > 0 && page_and_long(header_page).is_none() {
        let found = crate::error::excerpt(header_page);
        return Err(Damage::bad(base, "header_page", "tracefs' events/header_page", found));
    }
    fields.literal(b"header_event\0", "header of a ring record", "`header_event`")?;
    let length = fields.u64("size of header_event")?;
    fields.take(length, "header_event")?;
    for _ in 0..fields.u32("number of ftrace formats")? {
        format(&mut fields, decoder)?;
    }
    for _ in 0..fields.u32("number of event systems")? {
        fields.string("the name of an event system")?;
        for _ in 0..fields.u32("number of event formats")? {
            format(&mut fields, decoder)?;
        }
    }
    // Old versions of perf keep /proc/kallsyms here, newer ones nothing.
    let length = fields.u32("size of kallsyms").unwrap_or(0);
    if let Some(symbols) = fields.take(u64::from(length), "kallsyms").ok().and_then(Symbols::parse)
    {
        decoder.set_symbols(symbols);
    }
    Ok(())
}

fn format(fields: &mut ByteReader<'_>, decoder: &mut Decoder) -> Result<(), Damage> {
    let length = fields.u64("size of an event format")?;
    let offset = fields.offset();
    let text = fields.take(length, "an event format")?;
    decoder.learn(text).map_err(|fault| Damage::new(offset, fault))
}
