//! A recording: its machine and its stream of events.
//!
//! ```text
//! open(path) ─┬─ directory ─► the first of the names in STREAMS that is there
//!             └─ file ──────► that file; its neighbours describe the machine only if the file
//!                             has one of those names
//! ```
//!
//! The first bytes show the form of the stream: `# time_ns` is the compact form, `# tracer:` is
//! ftrace text, and without either the first line that is no comment must read as a line of one of
//! them. The name decides nothing.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zonal_text::CPUS_MAX;

use crate::dat::TraceDat;
use crate::description::MachineDescription;
use crate::ending::{check_pages, check_text};
use crate::error::{Fault, Position, TraceError, TraceErrorKind, excerpt};
use crate::events::{Events, Input, TextInput};
use crate::format::TraceFormat;
use crate::lines::{LineReader, read_fault};
use crate::perf::{PerfData, PerfEvents};
use crate::polled::PolledState;
use crate::ring::directory::{DirectoryPages, RingDirectory, stream_name};
use crate::ring::{self, RingEvents};
use crate::source::{Directory, Part, Parts, Seekable, SingleFile, Source, open_stream};
use crate::zt::{MachineFiles, ZonalEvents, ZonalFile};
use crate::{compact, dat, ftrace, lacks, perf, zt};

/// Names of streams, most wanted first.
const STREAMS: [&str; 9] = [
    "events.txt.zst",
    "events.txt",
    "trace.txt.zst",
    "trace.txt",
    "trace.zonal",
    "trace.dat",
    "perf.data",
    "cpu0.raw",
    "cpu1.raw",
];

/// Bytes that tell a binary form.
const MAGIC_BYTES: usize = 16;

/// Checks whether a stream ends as its head promises; else returns the byte and the fault.
type EndCheck<'a> = &'a dyn Fn(&mut dyn Seekable) -> Result<(), (u64, Fault)>;

/// A recorded run of a real machine.
///
/// Cloning is cheap for a recording in memory, and the events can be read any number of times.
#[derive(Clone)]
pub struct Recording {
    source: Arc<dyn Source>,
    stream: String,
    form: Form,
    description: MachineDescription,
    /// Where the description is from, if not from the stream's neighbours.
    machine: Option<Arc<Directory>>,
}

/// The form of a stream, with what its head told.
#[derive(Clone)]
enum Form {
    Text(TraceFormat),
    Ring(Arc<RingDirectory>),
    TraceDat(Arc<TraceDat>),
    PerfData(Arc<PerfData>),
    Zonal(Arc<ZonalFile>),
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
            Ok(metadata) if metadata.is_dir() => true,
            Ok(metadata) if metadata.is_file() => false,
            // A pipe, which nobody reads twice, or a device.
            Ok(_) => {
                let what = "a pipe or device; expected a file: write it to one first";
                return Err(io_error(std::io::Error::new(std::io::ErrorKind::InvalidInput, what)));
            }
            // By habit a name of standard input, which may be a pipe.
            Err(_) if path.as_os_str() == "-" => {
                let what = "standard input is not read; expected a file: write it to one first";
                return Err(io_error(std::io::Error::new(std::io::ErrorKind::InvalidInput, what)));
            }
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
        if STREAMS.contains(&stream.as_str()) || ring::directory::is_stream(&stream) {
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
        if !ring::directory::is_stream(&stream) && starts_with(&*source, &stream, zt::MAGIC)? {
            return Recording::with_zonal(source, stream, name);
        }
        let mut description = MachineDescription::read(&*source, name)?;
        let form = match binary_form(&*source, &stream)? {
            Some(form) => form,
            None => {
                let head = Head::read(&*source, &stream)?;
                description.clock.step_ns = head.step_ns.unwrap_or(description.clock.step_ns);
                description.cpus = description.cpus.or(head.cpus);
                Form::Text(head.format)
            }
        };
        form.describe(&mut description);
        Ok(Recording { source, stream, form, description, machine: None })
    }

    /// A recording in one file: neighbours of that file say nothing about it.
    fn with_zonal(
        source: Arc<dyn Source>,
        stream: String,
        name: &str,
    ) -> Result<Recording, TraceError> {
        let zonal = ZonalFile::read(&*source, &stream)?;
        let files = Parts::new(source.display(&stream).to_string_lossy(), zonal.machine.to_parts());
        let kept = zonal.machine.get("name").map(String::from_utf8_lossy);
        let kept = kept.as_deref().map(str::trim_end);
        let mut description = MachineDescription::read(&files, kept.unwrap_or(name))?;
        description.clock.step_ns = zonal.clock_step_ns();
        description.cpus = description.cpus.or(zonal.cpus());
        let form = Form::Zonal(Arc::new(zonal));
        Ok(Recording { source, stream, form, description, machine: None })
    }

    /// The files that describe the machine, which a `.zonal` file keeps beside the events.
    ///
    /// # Errors
    /// The first file that exists and cannot be read.
    pub fn machine_files(&self) -> Result<MachineFiles, TraceError> {
        let mut files = match (&self.machine, &self.form) {
            (Some(directory), _) => {
                let mut files = MachineFiles::collect(&**directory)?;
                files.take_run_of(&self.own_files()?);
                files
            }
            (None, Form::Zonal(zonal)) => return Ok(zonal.machine.clone()),
            (None, _) => self.own_files()?,
        };
        self.complete(&mut files);
        Ok(files)
    }

    /// The files that came with the stream.
    fn own_files(&self) -> Result<MachineFiles, TraceError> {
        match &self.form {
            Form::Zonal(zonal) => Ok(zonal.machine.clone()),
            _ => MachineFiles::collect(&*self.source),
        }
    }

    /// Adds what the stream's head says, where no file does.
    fn complete(&self, files: &mut MachineFiles) {
        let machine = &self.description;
        if files.get("name").is_none() {
            files.set("name", format!("{}\n", machine.name).into_bytes());
        }
        if let Some(meta) = files.get(crate::meta::FILE) {
            let Ok(serde_json::Value::Object(mut meta)) = serde_json::from_slice(meta) else {
                return;
            };
            // The text of a kernel shows its step; other forms of the same events do not.
            let step = machine.clock.step_ns;
            if step != 1 {
                meta.insert("clock_step_ns".to_owned(), step.into());
            }
            let meta = serde_json::Value::Object(meta);
            files.set(crate::meta::FILE, format!("{meta:#}\n").into_bytes());
        } else {
            let release = machine.kernel_release.as_deref();
            let uname = machine.uname.clone();
            let uname = uname.or_else(|| release.map(|release| format!("Linux - {release}")));
            let meta = serde_json::json!({
                "uname": uname,
                "cpus": machine.cpus,
                "clock": machine.clock.name,
                "clock_step_ns": machine.clock.step_ns,
            });
            files.set(crate::meta::FILE, format!("{meta:#}\n").into_bytes());
        }
    }

    /// The machine, and the state it was in.
    pub fn description(&self) -> &MachineDescription {
        &self.description
    }

    /// The form of the stream.
    pub fn format(&self) -> TraceFormat {
        match &self.form {
            Form::Text(format) => *format,
            Form::Ring(_) => TraceFormat::Ring,
            Form::TraceDat(_) => TraceFormat::TraceDat,
            Form::PerfData(_) => TraceFormat::PerfData,
            Form::Zonal(_) => TraceFormat::Zonal,
        }
    }

    /// The stream's file, as messages call it.
    pub fn stream_path(&self) -> PathBuf {
        self.source.display(&self.stream)
    }

    /// Whether `path` is a file of this recording, under any name or link.
    pub fn reads_from(&self, path: &Path) -> bool {
        // Before it is opened: a pipe would be waited for.
        if !std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) {
            return false;
        }
        let is_read = |source: &dyn Source, name: &str| {
            let own = source.display(name);
            let is_file = std::fs::metadata(&own).is_ok_and(|metadata| metadata.is_file());
            let same = is_file && same_file::is_same_file(own, path).unwrap_or(false);
            same && source.open(name).is_ok_and(|file| file.is_some())
        };
        let of_stream = match &self.form {
            Form::Ring(_) => (0..CPUS_MAX).any(|cpu| is_read(&*self.source, &stream_name(cpu))),
            _ => is_read(&*self.source, &self.stream),
        };
        let machine = match (&self.machine, &self.form) {
            (Some(directory), _) => Some(&**directory as &dyn Source),
            (None, Form::Zonal(_)) => None,
            (None, _) => Some(&*self.source),
        };
        let names = MachineFiles::names;
        of_stream || machine.is_some_and(|source| names().any(|name| is_read(source, &name)))
    }

    /// The same events, on the machine that the files of `directory` describe. What they tell of a
    /// run, such as counters before and after it, is left out where the recording tells of its own.
    ///
    /// # Errors
    /// If the directory cannot be read, or describes no machine.
    pub fn with_machine(mut self, directory: impl AsRef<Path>) -> Result<Recording, TraceError> {
        let directory = directory.as_ref();
        let source = Arc::new(Directory::new(directory));
        let own = std::mem::take(&mut self.description);
        let mut files = MachineFiles::collect(&*source)?;
        files.take_run_of(&self.own_files()?);
        let parts = Parts::new(directory.to_string_lossy(), files.to_parts());
        let mut machine = MachineDescription::read(&parts, &own.name)?;
        machine.require_zones().map_err(|error| error.in_file(directory))?;
        // The stream's own values stay: clock, number of events.
        machine.name = own.name;
        machine.clock = own.clock;
        machine.cpus = machine.cpus.max(own.cpus);
        machine.kernel_release = own.kernel_release.or(machine.kernel_release);
        machine.uname = own.uname.or(machine.uname);
        machine.events = own.events;
        machine.events_by_name = own.events_by_name;
        machine.events_dropped = own.events_dropped;
        self.description = machine;
        self.machine = Some(source);
        Ok(self)
    }

    /// Samples of `/proc/zoneinfo` that the recorder took; none if it took none.
    ///
    /// # Errors
    /// The first line that is none.
    pub fn polls(&self) -> Result<Vec<PolledState>, TraceError> {
        let files = self.machine_files()?;
        let Some(text) = files.get(crate::polls::FILE) else { return Ok(Vec::new()) };
        crate::polls::parse(&String::from_utf8_lossy(text))
    }

    /// Looks at the end of the stream, without reading its events, and refuses one that is cut
    /// short. A text that was cut between two lines looks whole.
    ///
    /// # Errors
    /// The missing part, or the error of reading.
    pub fn check_end(&self) -> Result<(), TraceError> {
        match &self.form {
            Form::Zonal(_) => zt::check_end(&*self.source, &self.stream),
            Form::TraceDat(dat) => dat.check_end(&*self.source, &self.stream),
            // Its sections were compared with the file when it was opened.
            Form::PerfData(_) => Ok(()),
            Form::Ring(ring) => {
                let page = ring.layout.page as u64;
                let check = |cpu| self.check_stream(&stream_name(cpu), &|i| check_pages(i, page));
                (0..CPUS_MAX).try_for_each(check)
            }
            Form::Text(_) => self.check_stream(&self.stream, &check_text),
        }
    }

    /// Checks the end of a file, if there is one that can be read at any place.
    fn check_stream(&self, name: &str, check: EndCheck<'_>) -> Result<(), TraceError> {
        let Ok(Some(mut input)) = self.source.open_seekable(name) else { return Ok(()) };
        let at = |(byte, fault): (u64, Fault)| {
            TraceError::new(self.source.display(name), Position::Byte(byte), fault)
        };
        check(&mut *input).map_err(at)
    }

    /// The events from the first on. If the stream cannot be opened again, the first item says so.
    pub fn events(&self) -> Events {
        match self.input() {
            Ok(input) => Events::new(input, self.limits(), self.description.events),
            Err(error) => Events::failed(error),
        }
    }

    /// The events from `time_ns` on. A `.zonal` file is entered near there; other forms are read
    /// from their beginning.
    pub fn events_from(&self, time_ns: u64) -> Events {
        let Form::Zonal(zonal) = &self.form else {
            return self.events().starting_at(time_ns);
        };
        match ZonalEvents::open_at(zonal, &*self.source, &self.stream, time_ns) {
            Ok(zonal) => {
                let input = Input::Zonal(Box::new(zonal));
                Events::new(input, self.limits(), None).starting_at(time_ns)
            }
            Err(error) => Events::failed(error),
        }
    }

    /// CPUs, and bytes of a page.
    fn limits(&self) -> (u32, u32) {
        (self.description.cpus.unwrap_or(CPUS_MAX), self.description.page_size)
    }

    fn input(&self) -> Result<Input, TraceError> {
        let source = &self.source;
        Ok(match &self.form {
            Form::Text(format) => Input::Lines(Box::new(TextInput {
                reader: open_required(&**source, &self.stream)?,
                file: self.stream_path(),
                format: *format,
            })),
            Form::Ring(ring) => {
                let cpus = self.description.cpus.unwrap_or(CPUS_MAX);
                let pages = DirectoryPages::open(source, ring.layout.page, cpus)?;
                let events = RingEvents::new(Box::new(pages), ring.layout, ring.decoder.clone());
                Input::Ring(Box::new(events))
            }
            Form::TraceDat(dat) => Input::Ring(Box::new(dat.events(source, &self.stream)?)),
            Form::PerfData(perf) => {
                Input::Perf(Box::new(PerfEvents::open(perf, &**source, &self.stream)?))
            }
            Form::Zonal(zonal) => {
                Input::Zonal(Box::new(ZonalEvents::open(zonal, &**source, &self.stream)?))
            }
        })
    }
}

impl Form {
    /// Completes the description from the stream's head.
    fn describe(&self, machine: &mut MachineDescription) {
        let (cpus, clock, uname) = match self {
            Form::Text(_) | Form::Ring(_) | Form::Zonal(_) => return,
            Form::TraceDat(dat) => (dat.cpus, dat.clock.clone(), dat.uname.clone()),
            Form::PerfData(perf) => {
                machine.kernel_release = machine.kernel_release.take().or(perf.release.clone());
                (perf.cpus, None, None)
            }
        };
        machine.cpus = machine.cpus.or(cpus);
        machine.clock.name = machine.clock.name.take().or(clock);
        if machine.uname.is_none() {
            machine.kernel_release = machine.kernel_release.take().or_else(|| {
                uname
                    .as_deref()
                    .and_then(|uname| uname.split_ascii_whitespace().nth(2))
                    .map(str::to_owned)
            });
            machine.uname = uname;
        }
    }
}

fn beginning(source: &dyn Source, stream: &str) -> Result<Vec<u8>, TraceError> {
    let mut start = Vec::new();
    if let Some(input) = open_stream(source, stream)? {
        let read = input.take(MAGIC_BYTES as u64).read_to_end(&mut start);
        read.map_err(|error| {
            TraceError::new(source.display(stream), Position::Byte(0), read_fault(error))
        })?;
    }
    Ok(start)
}

fn starts_with(source: &dyn Source, stream: &str, magic: &[u8]) -> Result<bool, TraceError> {
    Ok(beginning(source, stream)?.starts_with(magic))
}

/// The form of a stream that is no text.
fn binary_form(source: &dyn Source, stream: &str) -> Result<Option<Form>, TraceError> {
    if ring::directory::is_stream(stream) {
        return Ok(Some(Form::Ring(Arc::new(RingDirectory::read(source)?))));
    }
    let start = beginning(source, stream)?;
    if start.starts_with(dat::MAGIC) {
        return Ok(Some(Form::TraceDat(Arc::new(TraceDat::read(source, stream)?))));
    }
    if start.starts_with(perf::MAGIC) || start.starts_with(perf::MAGIC_SWAPPED) {
        return Ok(Some(Form::PerfData(Arc::new(PerfData::read(source, stream)?))));
    }
    Ok(None)
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = &self.description.name;
        let stream = self.stream_path();
        f.debug_struct("Recording")
            .field("name", name)
            .field("stream", &stream)
            .field("format", &self.format())
            .finish_non_exhaustive()
    }
}

/// Bytes of a file that is no trace that are looked at for whether it is text.
const OPENING_BYTES: usize = 256;

/// The form, by the beginning of a stream.
struct Head {
    format: TraceFormat,
    cpus: Option<u32>,
    /// Resolution of times in nanoseconds, where the lines show it.
    step_ns: Option<u32>,
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
        let lines = start.split(|&byte| byte == b'\n').take_while(|line| line.starts_with(b"#"));
        for (line, number) in lines.zip(1..) {
            if let Some(fault) = perf::of_text(line) {
                return Err(TraceError::new(file(), Position::Line(number), fault));
            }
        }
        match detect(start) {
            Some(head) => Ok(head),
            None => {
                let unknown = || TraceErrorKind::UnknownFormat { found: opening(start) };
                let kind = lacks::of(start).unwrap_or_else(unknown);
                Err(TraceError::new(file(), Position::Line(1), kind))
            }
        }
    }
}

/// The first line of what is no trace, quoted, or its first bytes where they are no text either.
fn opening(start: &[u8]) -> String {
    let is_text = |c: char| !c.is_control() || c.is_ascii_whitespace();
    let cut = &start[..start.len().min(OPENING_BYTES)];
    let chunk = cut.utf8_chunks().next();
    // A character that the cut goes through is text, too.
    let text =
        chunk.filter(|chunk| chunk.invalid().len() < 4 && chunk.valid().chars().all(is_text));
    match text.filter(|chunk| chunk.valid().len() + chunk.invalid().len() == cut.len()) {
        Some(chunk) => {
            format!("`{}`", excerpt(chunk.valid().lines().next().unwrap_or("").as_bytes()))
        }
        None => format!("no text: bytes {:02x?}", &start[..start.len().min(8)]),
    }
}

/// The form that a stream with this beginning has.
fn detect(start: &[u8]) -> Option<Head> {
    let mut head = Head { format: TraceFormat::Compact, cpus: None, step_ns: None };
    let mut is_ftrace = false;
    for line in start.split(|&byte| byte == b'\n') {
        if line.starts_with(b"# time_ns") {
            return Some(head);
        }
        is_ftrace |= line.starts_with(b"# tracer:");
        if line.starts_with(b"#") || ftrace::is_remark(line) {
            let cpus = head.cpus.or(ftrace::header_cpus(line));
            head.cpus = cpus.filter(|cpus| (1..=CPUS_MAX).contains(cpus));
            continue;
        }
        if is_ftrace || ftrace::looks_like(line) {
            head.format = TraceFormat::Ftrace;
            head.step_ns = Some(ftrace::step_ns(line).unwrap_or(1000));
            return Some(head);
        }
        return compact::looks_like(line).then_some(head);
    }
    is_ftrace.then_some(Head { format: TraceFormat::Ftrace, ..head })
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
