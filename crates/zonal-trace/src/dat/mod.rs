//! `trace.dat` of trace-cmd, versions 6 and 7 (`trace-cmd.dat.v6(5)`, `trace-cmd.dat.v7(5)`).
//!
//! ```text
//!  v6: magic, sizes │ header_page, formats, kallsyms, … │ CPUs │ options ─┬─► place of each CPU's
//!  v7: magic, sizes, compression │ options ─► sections: the same ─────────┘    ring pages
//! ```
//! | file | does |
//! |--|--|
//! | `file` | reads numbers and pieces at offsets, within limits |
//! | `head` | what both versions tell |
//! | `meta` | the parts both versions have: header_page, formats, kallsyms |
//! | `v6`, `v7` | where these parts and the pages are |
//! | `pages` | ring pages, as they are or in compressed chunks |
//!
//! The pages then go through [`ring`](crate::ring) like those of a directory.

mod file;
mod head;
mod meta;
mod pages;
mod v6;
mod v7;

use std::io::{Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;

use self::file::FileReader;
use self::head::Initial;
pub(crate) use self::head::TraceDat;
use self::pages::DatPages;
use crate::bytes::{Damage, Endian};
use crate::error::{Position, TraceError, TraceErrorKind, excerpt};
use crate::ring::RingEvents;
use crate::ring::page::PAGE_BYTES;
use crate::source::{Source, open_seekable};

/// First bytes of the file.
pub(crate) const MAGIC: &[u8] = b"\x17\x08\x44tracing";

/// Clocks whose times are nanoseconds.
const CLOCKS_NS: [&str; 7] = ["local", "global", "perf", "mono", "mono_raw", "boot", "tai"];

impl TraceDat {
    /// Reads the head of `name`.
    pub(crate) fn read(source: &dyn Source, name: &str) -> Result<TraceDat, TraceError> {
        let file = source.display(name);
        let mut reader = FileReader::new(open_seekable(source, name)?, &file)?;
        read_head(&mut reader).map_err(|damage| at(&file, damage))
    }

    /// Refuses a file that ends before the pages of a CPU do.
    pub(crate) fn check_end(&self, source: &dyn Source, name: &str) -> Result<(), TraceError> {
        let file = source.display(name);
        let end = open_seekable(source, name)?.seek(SeekFrom::End(0)).map_err(|error| {
            TraceError::new(&file, Position::Byte(0), crate::lines::read_fault(error))
        })?;
        match self.places.iter().all(|place| place.end(self.compressed) <= end) {
            true => Ok(()),
            false => Err(at(&file, Damage::cut_short(end, "the rest of a CPU's ring pages"))),
        }
    }

    /// The events.
    pub(crate) fn events(
        &self,
        source: &Arc<dyn Source>,
        name: &str,
    ) -> Result<RingEvents, TraceError> {
        let file = source.display(name);
        let input = open_seekable(&**source, name)?;
        let pages = DatPages::new(input, file, self);
        Ok(RingEvents::new(Box::new(pages), self.layout, self.decoder.clone()))
    }
}

fn read_head(reader: &mut FileReader) -> Result<TraceDat, Damage> {
    reader.literal(MAGIC, "magic of a trace.dat", "`\\x17\\x08Dtracing`")?;
    let version_at = reader.offset();
    let version = reader.string(16, "the version of a trace.dat")?;
    let endian_at = reader.offset();
    let endian = match reader.u8("byte order")? {
        0 => Endian::Little,
        1 => Endian::Big,
        other => {
            return Err(foreign(endian_at, "byte order 0 (little) or 1 (big)", other));
        }
    };
    reader.set_endian(endian);
    let long_at = reader.offset();
    let long = match reader.u8("size of a long")? {
        long @ (4 | 8) => usize::from(long),
        other => return Err(foreign(long_at, "a long of 4 or 8 bytes", other)),
    };
    let page_at = reader.offset();
    let page = reader.u32("page size")?;
    if !PAGE_BYTES.contains(&u64::from(page)) {
        return Err(foreign(page_at, "pages of 64 bytes to 4 MiB", page));
    }
    let initial = Initial { endian, long, page: page as usize };
    let dat = match &version[..] {
        b"6" => v6::read(reader, initial)?,
        b"7" => v7::read(reader, initial)?,
        other => {
            let found = excerpt(other);
            return Err(Damage::bad(version_at, "version of a trace.dat", "6 or 7", found));
        }
    };
    let unknown = |clock: &String| !CLOCKS_NS.contains(&clock.as_str());
    if let Some(clock) = dat.clock.clone().filter(unknown) {
        let expected = "one that counts nanoseconds: record with `trace-cmd record -C mono`";
        return Err(Damage::bad(0, "trace clock", expected, clock));
    }
    Ok(dat)
}

#[cold]
fn foreign(offset: u64, expected: &'static str, found: impl ToString) -> Damage {
    let kind = TraceErrorKind::Foreign { expected, found: found.to_string() };
    Damage::new(offset, Box::new(kind))
}

fn at(file: &PathBuf, damage: Damage) -> TraceError {
    TraceError::new(file, Position::Byte(damage.offset), damage.fault)
}
