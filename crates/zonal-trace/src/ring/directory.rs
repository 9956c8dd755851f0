//! A directory of ring pages: `cpuN.raw`, and `formats/SYSTEM:EVENT` with their format files.
//!
//! `zonal record` writes such directories. Beside the pages there may be `formats/header_page`,
//! which tells the size of a page and of a `long`, and `kallsyms`. Without `header_page` pages of
//! 4 KiB are taken, and the first header tells the kind of kernel. Without `kallsyms`,
//! `workqueue_execute_start` is taken for what the recorder lets through: `vmstat_update`.

use std::io::{BufReader, Read};
use std::path::PathBuf;
use std::sync::Arc;

use super::merge::Pages;
use super::page::{PAGE_BYTES, PageLayout};
use crate::bytes::{Damage, Endian};
use crate::error::{Position, TraceError, TraceErrorKind};
use crate::lines::read_fault;
use crate::source::{Source, open_stream, read_bytes};
use crate::tracefs::format::EventFormat;
use crate::tracefs::{Decoder, Symbols, recorded_events};
use zonal_text::CPUS_MAX;

/// Events that directories hold besides those that are recorded today: markers that a program wrote
/// into the trace, and what earlier recorders took.
const OTHER_EVENTS: [&str; 2] = ["ftrace:print", "kmem:mm_page_free_batched"];

const PAGE_BYTES_USUAL: usize = 4096;
/// Bytes read of a CPU's file at once.
const INPUT_BYTES: usize = 64 << 10;

/// The name of a CPU's pages.
pub(crate) fn stream_name(cpu: u32) -> String {
    format!("cpu{cpu}.raw")
}

/// Whether `name` is one of a CPU's pages: `cpu0.raw`.
pub(crate) fn is_stream(name: &str) -> bool {
    let number = name.strip_prefix("cpu").and_then(|name| name.strip_suffix(".raw"));
    number.is_some_and(|number| crate::fields::decimal(number.as_bytes()).is_some())
}

/// State for every read of the directory.
pub(crate) struct RingDirectory {
    pub(crate) layout: PageLayout,
    pub(crate) decoder: Decoder,
}

impl RingDirectory {
    /// Reads the formats, and the first page of the first CPU that has one.
    pub(crate) fn read(source: &dyn Source) -> Result<RingDirectory, TraceError> {
        let header_page = read_bytes(source, "formats/header_page")?;
        let fail = |kind: TraceErrorKind| {
            TraceError::new(source.display("formats/header_page"), Position::File, kind)
        };
        let (page, long) = match &header_page {
            Some(text) => page_and_long(text).ok_or_else(|| {
                let expected = "tracefs' events/header_page".to_owned();
                fail(TraceErrorKind::Missing { expected })
            })?,
            None => (PAGE_BYTES_USUAL, None),
        };
        let guessed = first_page(source, page)?.and_then(|start| PageLayout::guess(&start, page));
        let usual = PageLayout { endian: Endian::Little, page, long: 8 };
        let mut layout = guessed.unwrap_or(usual);
        layout.long = long.unwrap_or(layout.long);
        let kallsyms = read_bytes(source, "kallsyms")?;
        let symbols = kallsyms.and_then(|text| Symbols::parse(&text));
        let symbols = symbols.unwrap_or(Symbols::OnlyVmstatUpdate);
        let mut decoder = Decoder::new(layout.endian, symbols);
        for name in recorded_events().chain(OTHER_EVENTS) {
            let name = format!("formats/{name}");
            if let Some(text) = read_bytes(source, &name)? {
                decoder.learn(&text).map_err(|fault| {
                    TraceError::new(source.display(&name), Position::File, fault)
                })?;
            }
        }
        if decoder.is_empty() {
            let expected = "format files of kmem events, such as kmem:mm_page_alloc".to_owned();
            let kind = TraceErrorKind::Missing { expected };
            return Err(TraceError::new(source.display("formats"), Position::File, kind));
        }
        Ok(RingDirectory { layout, decoder })
    }
}

/// The size of a page and of a `long` that `header_page` tells.
pub(crate) fn page_and_long(header_page: &[u8]) -> Option<(usize, Option<usize>)> {
    // The text has fields, but neither name nor id.
    let named = [b"name: header_page\nID: 0\n", header_page].concat();
    let format = EventFormat::parse(&named).ok()?;
    let (commit, data) = (format.field("commit")?, format.field("data")?);
    let page = usize::from(data.offset) + usize::from(data.size);
    let long = usize::from(commit.size);
    let usable = PAGE_BYTES.contains(&(page as u64))
        && matches!(long, 4 | 8)
        && usize::from(data.offset) == 8 + long;
    usable.then_some((page, Some(long)))
}

fn first_page(source: &dyn Source, page: usize) -> Result<Option<Vec<u8>>, TraceError> {
    for cpu in 0..CPUS_MAX {
        if let Some(input) = open_cpu(source, cpu)? {
            let mut start = Vec::new();
            let read = input.take(page as u64).read_to_end(&mut start);
            read.map_err(|error| {
                let file = source.display(&stream_name(cpu));
                TraceError::new(file, Position::Byte(0), read_fault(error))
            })?;
            return Ok(Some(start));
        }
    }
    Ok(None)
}

/// The pages of a CPU, if there are any.
fn open_cpu(source: &dyn Source, cpu: u32) -> Result<Option<Box<dyn Read + Send>>, TraceError> {
    match open_stream(source, &stream_name(cpu)) {
        // A CPU on which nothing happened has an empty file.
        Err(error) if matches!(error.kind(), TraceErrorKind::Empty { .. }) => Ok(None),
        opened => opened,
    }
}

/// The pages of a directory.
pub(crate) struct DirectoryPages {
    source: Arc<dyn Source>,
    cpus: Vec<u32>,
    inputs: Vec<Input>,
    page: usize,
}

struct Input {
    input: BufReader<Box<dyn Read + Send>>,
    offset: u64,
}

impl DirectoryPages {
    /// Opens the pages of the CPUs below `cpus`.
    pub(crate) fn open(
        source: &Arc<dyn Source>,
        page: usize,
        cpus: u32,
    ) -> Result<Self, TraceError> {
        let mut pages =
            DirectoryPages { source: source.clone(), cpus: Vec::new(), inputs: Vec::new(), page };
        for cpu in 0..cpus {
            if let Some(input) = open_cpu(&**source, cpu)? {
                pages.cpus.push(cpu);
                let input = BufReader::with_capacity(INPUT_BYTES, input);
                pages.inputs.push(Input { input, offset: 0 });
            }
        }
        Ok(pages)
    }
}

impl Pages for DirectoryPages {
    fn cpus(&self) -> &[u32] {
        &self.cpus
    }

    fn next_page(&mut self, index: usize, page: &mut Vec<u8>) -> Result<Option<u64>, Damage> {
        let Input { input, offset } = &mut self.inputs[index];
        let start = *offset;
        page.clear();
        let read = input.take(self.page as u64).read_to_end(page);
        read.map_err(|error| Damage::new(start, Box::new(read_fault(error))))?;
        *offset += page.len() as u64;
        match page.len() {
            0 => Ok(None),
            length if length == self.page => Ok(Some(start)),
            _ => Err(Damage::cut_short(*offset, "a whole ring page")),
        }
    }

    fn file(&self, index: usize) -> PathBuf {
        let cpu = self.cpus.get(index).copied().unwrap_or(0);
        self.source.display(&stream_name(cpu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_streams() {
        assert!(is_stream("cpu0.raw") && is_stream("cpu117.raw"));
        assert!(!is_stream("cpu.raw") && !is_stream("cpu0") && !is_stream("cpux.raw"));
    }

    #[test]
    fn header_page_tells_sizes() {
        let text = |commit: u32, data: u32| {
            format!(
                "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
                 \tfield: local_t commit;\toffset:8;\tsize:{commit};\tsigned:1;\n\
                 \tfield: char data;\toffset:{};\tsize:{data};\tsigned:0;\n",
                8 + commit
            )
        };
        assert_eq!(page_and_long(text(8, 4080).as_bytes()), Some((4096, Some(8))));
        assert_eq!(page_and_long(text(4, 4084).as_bytes()), Some((4096, Some(4))));
        assert_eq!(page_and_long(text(2, 4086).as_bytes()), None);
        assert_eq!(page_and_long(text(8, 0).as_bytes()), None);
        assert_eq!(page_and_long(b""), None);
    }
}
