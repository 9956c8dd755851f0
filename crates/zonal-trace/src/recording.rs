//! A recording: its machine and its stream of events.
//!
//! ```text
//! open(path) ─┬─ directory ─► the first of events.txt.zst, events.txt, trace.txt.zst, trace.txt
//!             └─ file ──────► that file; its neighbours describe the machine only if the file
//!                             has one of those four names
//! ```
//!
//! The form of the stream is told by its beginning: `# time_ns` is the compact form, `# tracer:`
//! is ftrace text, and without either the first line that is no comment must read as a line of one
//! of them. The name decides nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use zonal_text::CPUS_MAX;

use crate::description::MachineDescription;
use crate::error::{Fault, Position, TraceError, TraceErrorKind, excerpt};
use crate::events::Events;
use crate::lines::LineReader;
use crate::source::{Directory, Part, Parts, SingleFile, Source, open_stream};
use crate::{compact, ftrace};

/// Names of streams, most wanted first.
const STREAMS: [&str; 4] = ["events.txt.zst", "events.txt", "trace.txt.zst", "trace.txt"];

/// The form of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceFormat {
    /// One line of columns per event, times in nanoseconds.
    Compact,
    /// What `/sys/kernel/tracing/trace` prints, times in microseconds.
    Ftrace,
}

/// A recorded run of a real machine.
///
/// Cloning is cheap for a recording in memory, and the events can be read any number of times.
#[derive(Clone)]
pub struct Recording {
    source: Arc<dyn Source>,
    stream: String,
    format: TraceFormat,
    description: MachineDescription,
}

impl Recording {
    /// Opens the directory of a recording, or a stream by itself.
    ///
    /// Reads the description and the beginning of the stream.
    ///
    /// # Errors
    /// If there is no stream, if its form is unknown, or if a file that describes the machine
    /// cannot be read.
    pub fn open(path: impl AsRef<Path>) -> Result<Recording, TraceError> {
        let path = path.as_ref();
        let io_error = |source| {
            let kind = TraceErrorKind::Io { action: "open", source };
            TraceError::new(path, Position::File, kind)
        };
        let is_directory = match std::fs::metadata(path) {
            Ok(metadata) => metadata.is_dir(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let expected = "a recording's directory or event stream".to_owned();
                let kind = TraceErrorKind::Missing { expected };
                return Err(TraceError::new(path, Position::File, kind));
            }
            Err(error) => return Err(io_error(error)),
        };
        if is_directory {
            let name = directory_name(path);
            return Recording::from_source(Arc::new(Directory::new(path)), &name);
        }
        let single = SingleFile::new(path);
        let stream = single.name().to_owned();
        let parent = path.parent().unwrap_or(Path::new(""));
        if STREAMS.contains(&stream.as_str()) {
            let name = directory_name(parent);
            return Recording::with_stream(Arc::new(Directory::new(parent)), stream, &name);
        }
        Recording::with_stream(Arc::new(single), stream.clone(), &stream)
    }

    /// A recording that is held in memory: the files of a directory.
    ///
    /// # Errors
    /// As [`Recording::open`].
    pub fn from_parts(name: &str, parts: Vec<Part>) -> Result<Recording, TraceError> {
        Recording::from_source(Arc::new(Parts::new(name, parts)), name)
    }

    /// A recording whose files come from anywhere.
    ///
    /// # Errors
    /// As [`Recording::open`].
    pub fn from_source(source: Arc<dyn Source>, name: &str) -> Result<Recording, TraceError> {
        for stream in STREAMS {
            let opened = source.open(stream).map_err(|error| {
                let kind = TraceErrorKind::Io { action: "open", source: error };
                TraceError::new(source.display(stream), Position::File, kind)
            })?;
            if opened.is_some() {
                return Recording::with_stream(source, stream.to_owned(), name);
            }
        }
        let expected = format!("one of {}", STREAMS.join(", "));
        let kind = TraceErrorKind::Missing { expected };
        Err(TraceError::new(source.display(""), Position::File, kind))
    }

    fn with_stream(
        source: Arc<dyn Source>,
        stream: String,
        name: &str,
    ) -> Result<Recording, TraceError> {
        let head = Head::read(&*source, &stream)?;
        let mut description = MachineDescription::read(&*source, name)?;
        if head.format == TraceFormat::Ftrace {
            description.clock.step_ns = 1000;
        }
        description.cpus = description.cpus.or(head.cpus);
        Ok(Recording { source, stream, format: head.format, description })
    }

    /// The machine, and the state it was in.
    pub fn description(&self) -> &MachineDescription {
        &self.description
    }

    /// The form of the stream.
    pub fn format(&self) -> TraceFormat {
        self.format
    }

    /// The stream's file, as messages call it.
    pub fn stream_path(&self) -> PathBuf {
        self.source.display(&self.stream)
    }

    /// The events from the first on. If the stream cannot be opened again, the first item says so.
    pub fn events(&self) -> Events {
        let path = self.stream_path();
        let cpus = self.description.cpus.unwrap_or(CPUS_MAX);
        match open_required(&*self.source, &self.stream) {
            Ok(reader) => Events::new(reader, path, self.format, cpus, self.description.events),
            Err(error) => Events::failed(error),
        }
    }
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = &self.description.name;
        let stream = self.stream_path();
        f.debug_struct("Recording")
            .field("name", name)
            .field("stream", &stream)
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

/// What the beginning of a stream tells.
struct Head {
    format: TraceFormat,
    cpus: Option<u32>,
}

impl Head {
    fn read(source: &dyn Source, stream: &str) -> Result<Head, TraceError> {
        let mut reader = open_required(source, stream)?;
        let file = || source.display(stream);
        let at_byte = |fault: Fault| TraceError::new(file(), Position::Byte(0), fault);
        let start = reader.peek().map_err(at_byte)?;
        if start.is_empty() {
            let kind = TraceErrorKind::Empty { expected: "a stream of events" };
            return Err(TraceError::new(file(), Position::File, kind));
        }
        match detect(start) {
            Some(head) => Ok(head),
            None => {
                let first = start.split(|&byte| byte == b'\n').next().unwrap_or(start);
                let kind = TraceErrorKind::UnknownFormat { found: excerpt(first) };
                Err(TraceError::new(file(), Position::Line(1), kind))
            }
        }
    }
}

/// The form that a stream with this beginning has.
fn detect(start: &[u8]) -> Option<Head> {
    let mut format = None;
    let mut cpus = None;
    for line in start.split(|&byte| byte == b'\n') {
        if line.starts_with(b"# time_ns") {
            return Some(Head { format: TraceFormat::Compact, cpus: None });
        }
        if line.starts_with(b"# tracer:") {
            format = Some(TraceFormat::Ftrace);
        }
        if line.starts_with(b"#") {
            cpus = cpus.or(ftrace::header_cpus(line)).filter(|cpus| (1..=CPUS_MAX).contains(cpus));
            continue;
        }
        if format.is_none() && ftrace::looks_like(line) {
            format = Some(TraceFormat::Ftrace);
        }
        if format.is_none() && compact::looks_like(line) {
            format = Some(TraceFormat::Compact);
        }
        break;
    }
    format.map(|format| Head { format, cpus })
}

fn open_required(source: &dyn Source, stream: &str) -> Result<LineReader, TraceError> {
    match open_stream(source, stream)? {
        Some(input) => Ok(LineReader::new(input)),
        None => {
            let kind = TraceErrorKind::Missing { expected: "a stream of events".to_owned() };
            Err(TraceError::new(source.display(stream), Position::File, kind))
        }
    }
}

fn directory_name(path: &Path) -> String {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    absolute.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
