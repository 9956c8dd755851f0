//! The parts that both versions of `trace.dat` have, each a section in version 7.

use super::file::FileReader;
use crate::bytes::Damage;
use crate::ring::directory::page_and_long;
use crate::tracefs::Symbols;
use crate::tracefs::decode::is_known;
use crate::tracefs::format::{FORMAT_BYTES_MAX, name_of};

/// Largest single part, in bytes: `/proc/kallsyms` of a large kernel has 20 MB.
pub(super) const PART_BYTES_MAX: u64 = 64 << 20;

/// More event formats, and more systems, than any kernel has.
const FORMATS_MAX: u32 = 1 << 16;

/// The bytes found.
#[derive(Debug, Default)]
pub(super) struct Meta {
    /// Bytes of a page, and of a `long`.
    pub(super) page: Option<(usize, Option<usize>)>,
    /// Format files of events that the crate knows, with their offsets.
    pub(super) formats: Vec<(u64, Vec<u8>)>,
    pub(super) symbols: Option<Symbols>,
}

impl Meta {
    /// `header_page` and `header_event`.
    pub(super) fn header_info(&mut self, reader: &mut FileReader) -> Result<(), Damage> {
        reader.literal(b"header_page\0", "header of a ring page", "`header_page`")?;
        let bytes = reader.u64("size of header_page")?;
        let offset = reader.offset();
        let text = reader.piece(bytes, FORMAT_BYTES_MAX, "header_page")?;
        self.page = Some(page_and_long(&text).ok_or_else(|| {
            let expected = "tracefs' events/header_page with a commit of 4 or 8 bytes";
            Damage::bad(offset, "header_page", expected, crate::error::excerpt(&text))
        })?);
        reader.literal(b"header_event\0", "header of a ring record", "`header_event`")?;
        let bytes = reader.u64("size of header_event")?;
        reader.skip(bytes, "header_event")
    }

    /// The formats of events of ftrace itself.
    pub(super) fn ftrace_formats(&mut self, reader: &mut FileReader) -> Result<(), Damage> {
        let formats = count(reader, "number of ftrace formats")?;
        (0..formats).try_for_each(|_| self.format(reader))
    }

    /// The formats of all other events, by system.
    pub(super) fn event_formats(&mut self, reader: &mut FileReader) -> Result<(), Damage> {
        for _ in 0..count(reader, "number of event systems")? {
            reader.string(256, "the name of an event system")?;
            let formats = count(reader, "number of event formats")?;
            (0..formats).try_for_each(|_| self.format(reader))?;
        }
        Ok(())
    }

    fn format(&mut self, reader: &mut FileReader) -> Result<(), Damage> {
        let bytes = reader.u64("size of an event format")?;
        let offset = reader.offset();
        let text = reader.piece(bytes, FORMAT_BYTES_MAX, "an event format")?;
        if name_of(&text).is_some_and(is_known) {
            self.formats.push((offset, text));
        }
        Ok(())
    }

    /// `/proc/kallsyms`.
    pub(super) fn kallsyms(&mut self, reader: &mut FileReader) -> Result<(), Damage> {
        let bytes = reader.u32("size of kallsyms")?;
        let text = reader.piece(u64::from(bytes), PART_BYTES_MAX, "kallsyms")?;
        self.symbols = Symbols::parse(&text);
        Ok(())
    }
}

fn count(reader: &mut FileReader, what: &'static str) -> Result<u32, Damage> {
    let offset = reader.offset();
    match reader.u32(what)? {
        number if number <= FORMATS_MAX => Ok(number),
        number => Err(Damage::bad(offset, what, "at most 65536", number)),
    }
}
