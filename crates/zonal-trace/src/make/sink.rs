//! Where the events of a new trace go.
//!
//! A file is written beside its place and moved there when it is whole, so that a call that fails
//! leaves nothing that looks like a trace. Bytes in a caller's writer cannot be taken back: on an
//! error the trace lacks its end marker, and readers report that.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::error::MakeError;
use crate::place;
use crate::{
    Event, MachineDescription, MachineFiles, Recording, TextWriter, TraceWriter, WriterOptions,
};

/// Bytes that are written at once.
const BUFFER_BYTES: usize = 1 << 16;

type Output = BufWriter<Box<dyn Write>>;

/// Where a new trace goes, and how small it becomes.
pub struct Target {
    to: To,
    level: i32,
}

enum To {
    File(PathBuf),
    Writer(Box<dyn Write>),
}

/// A trace that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Events in it.
    pub events: u64,
    /// Bytes of the file; `None` for a directory and for a caller's writer.
    pub bytes: Option<u64>,
}

/// A trace that is being written.
pub(super) struct Sink {
    writer: Writer,
    /// Where the output is until it is whole, and where it goes then.
    places: Option<(PathBuf, PathBuf)>,
    events: u64,
}

/// The form of an output.
enum Form {
    Zonal,
    Text,
    PackedText,
    Directory,
}

impl Form {
    /// The form that a name stands for.
    fn of(name: &str) -> Option<Form> {
        Some(match name {
            name if name.ends_with(".zonal") => Form::Zonal,
            name if name.ends_with(".txt") => Form::Text,
            name if name.ends_with(".txt.zst") => Form::PackedText,
            name if name.contains('.') => return None,
            _ => Form::Directory,
        })
    }
}

enum Writer {
    Zonal(Box<TraceWriter<Output>>),
    Text(TextWriter<Output>),
    PackedText(TextWriter<zstd::Encoder<'static, Output>>),
}

impl Target {
    /// Level of compression that [`Target`]s begin with: the smallest files.
    pub const LEVEL: i32 = 19;

    /// A file, or a directory that does not exist yet. Its name says the form: `FILE.zonal`,
    /// `FILE.txt` or `FILE.txt.zst` for lines of text, a name without a dot for a directory with
    /// the texts of a recording.
    pub fn file(path: impl Into<PathBuf>) -> Target {
        Target { to: To::File(path.into()), level: Target::LEVEL }
    }

    /// A `.zonal` file to this writer.
    pub fn writer(writer: impl Write + 'static) -> Target {
        Target { to: To::Writer(Box::new(writer)), level: Target::LEVEL }
    }

    /// Where a file or directory is until it is whole: beside its place.
    pub fn part(&self) -> Option<PathBuf> {
        let To::File(path) = &self.to else { return None };
        place::part(&place::plain(path).unwrap_or_else(|_| path.clone()))
    }

    /// The same with another level of compression: 1 is fast, 19 is small.
    #[must_use]
    pub fn level(mut self, level: i32) -> Target {
        self.level = level;
        self
    }
}

impl Sink {
    /// Begins an output of the form that its name says. `input` is the source trace: none of its
    /// files is overwritten.
    ///
    /// # Errors
    /// If the output is a directory or a file of `input`, has no known form, or cannot be written.
    pub(super) fn create(
        target: Target,
        input: &Recording,
        machine: &MachineDescription,
        files: &MachineFiles,
    ) -> Result<Sink, MakeError> {
        let level = target.level;
        let part = target.part();
        let options = WriterOptions { level, ..WriterOptions::default() };
        let zonal = |output: Output| TraceWriter::new(output, machine, files, options);
        let path = match target.to {
            To::File(path) => path,
            To::Writer(writer) => {
                let writer = zonal(BufWriter::new(writer)).map_err(MakeError::Writer)?;
                return Ok(Sink {
                    writer: Writer::Zonal(Box::new(writer)),
                    places: None,
                    events: 0,
                });
            }
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let aside = match part {
            Some(part) if !path.is_dir() => part,
            _ => return Err(MakeError::Directory(path)),
        };
        if input.reads_from(&path) {
            return Err(MakeError::Overwrites(path));
        }
        let form = Form::of(&name).ok_or_else(|| MakeError::Name(path.clone()))?;
        // The name says the form, also of what it leads to.
        let path = match form {
            Form::Directory => path,
            _ => place::plain(&path).map_err(MakeError::output(&path))?,
        };
        let begun = match form {
            Form::Zonal => {
                create(&aside).and_then(zonal).map(|writer| Writer::Zonal(Box::new(writer)))
            }
            Form::Text => create(&aside).and_then(TextWriter::new).map(Writer::Text),
            Form::PackedText => packed(&aside, level).map(Writer::PackedText),
            Form::Directory => directory(&aside, files)
                .and_then(|()| packed(&aside.join("events.txt.zst"), level))
                .map(Writer::PackedText),
        };
        match begun {
            Ok(writer) => Ok(Sink { writer, places: Some((aside, path)), events: 0 }),
            Err(error) => {
                remove(&aside);
                Err(MakeError::output(&path)(error))
            }
        }
    }

    /// Events so far.
    pub(super) fn events(&self) -> u64 {
        self.events
    }

    /// Adds an event.
    ///
    /// # Errors
    /// Those of the output.
    pub(super) fn push(&mut self, event: &Event) -> Result<(), MakeError> {
        self.events += 1;
        let pushed = match &mut self.writer {
            Writer::Zonal(writer) => writer.push(event),
            Writer::Text(writer) => writer.push(event),
            Writer::PackedText(writer) => writer.push(event),
        };
        pushed.map_err(|error| self.failed(error))
    }

    /// Ends the output and moves it to its place.
    ///
    /// # Errors
    /// Those of the output.
    pub(super) fn finish(mut self) -> Result<Written, MakeError> {
        let events = self.events;
        let nowhere = TextWriter::new(BufWriter::new(Box::new(io::sink()) as Box<dyn Write>));
        let nowhere = Writer::Text(nowhere.map_err(|error| self.failed(error))?);
        let ended = match std::mem::replace(&mut self.writer, nowhere) {
            Writer::Zonal(writer) => writer.finish().map(drop),
            Writer::Text(writer) => writer.finish().map(drop),
            Writer::PackedText(writer) => writer
                .finish()
                .and_then(zstd::Encoder::finish)
                .and_then(|mut output| output.flush()),
        };
        ended.map_err(|error| self.failed(error))?;
        let Some((aside, place)) = self.places.take() else {
            return Ok(Written { events, bytes: None });
        };
        let moved = fs::rename(&aside, &place).and_then(|()| fs::metadata(&place));
        let metadata = moved.map_err(|error| {
            remove(&aside);
            MakeError::output(&place)(error)
        })?;
        Ok(Written { events, bytes: metadata.is_file().then_some(metadata.len()) })
    }

    fn failed(&self, error: io::Error) -> MakeError {
        match &self.places {
            Some((_, path)) => MakeError::output(path)(error),
            None => MakeError::Writer(error),
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if let Some((aside, _)) = &self.places {
            remove(aside);
        }
    }
}

/// Removes what is left of a failed call; that it cannot be removed changes nothing.
fn remove(aside: &Path) {
    let _ = if aside.is_dir() { fs::remove_dir_all(aside) } else { fs::remove_file(aside) };
}

fn create(path: &Path) -> io::Result<Output> {
    Ok(BufWriter::with_capacity(BUFFER_BYTES, Box::new(File::create(path)?)))
}

/// A new directory with the files of the machine.
fn directory(path: &Path, files: &MachineFiles) -> io::Result<()> {
    fs::create_dir(path)?;
    let mut files = files.iter().filter(|(file, _)| *file != "name");
    files.try_for_each(|(file, content)| fs::write(path.join(file), content))
}

fn packed(path: &Path, level: i32) -> io::Result<TextWriter<zstd::Encoder<'static, Output>>> {
    let mut encoder = zstd::Encoder::new(create(path)?, level)?;
    encoder.include_checksum(true)?;
    TextWriter::new(encoder)
}
