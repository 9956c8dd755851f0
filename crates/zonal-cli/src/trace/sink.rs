//! Where the events of a new trace go.
//!
//! An output is written beside its place and moved there when it is whole, so that a command that
//! fails leaves nothing that looks like a trace. A file on stdout cannot be taken back: it lacks
//! its end marker then, and readers say so.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use zonal_trace::{
    Event, MachineDescription, MachineFiles, TextWriter, TraceWriter, WriterOptions,
};

use super::args::OutputArgs;

type Output = BufWriter<Box<dyn Write>>;

/// A trace that is being written.
pub struct Sink {
    writer: Writer,
    /// Where the output is until it is whole, and where it goes then.
    places: Option<(PathBuf, PathBuf)>,
    pub events: u64,
}

enum Writer {
    Zonal(Box<TraceWriter<Output>>),
    Text(TextWriter<Output>),
    PackedText(TextWriter<zstd::Encoder<'static, Output>>),
}

impl Sink {
    /// Begins an output of the form that its name says.
    ///
    /// # Errors
    /// If it exists and is a directory, or cannot be written.
    pub fn create(
        args: &OutputArgs,
        machine: &MachineDescription,
        files: &MachineFiles,
    ) -> anyhow::Result<Sink> {
        let options = WriterOptions { level: args.level, ..WriterOptions::default() };
        if args.output.as_os_str() == "-" {
            let output: Output = BufWriter::new(Box::new(std::io::stdout()));
            let writer = TraceWriter::new(output, machine, files, options)?;
            let writer = Writer::Zonal(Box::new(writer));
            return Ok(Sink { writer, places: None, events: 0 });
        }
        let name = args.output.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.is_empty() || args.output.is_dir() {
            bail!("{}: expected a new file or directory, found one", args.output.display());
        }
        let aside = args.output.with_file_name(format!(".{name}.{}.part", std::process::id()));
        let create = |path: &Path| -> anyhow::Result<Output> {
            let file = File::create(path).with_context(|| format!("{}", path.display()))?;
            Ok(BufWriter::with_capacity(1 << 16, Box::new(file)))
        };
        let writer = if name.ends_with(".zonal") {
            let writer = TraceWriter::new(create(&aside)?, machine, files, options)?;
            Writer::Zonal(Box::new(writer))
        } else if name.ends_with(".txt") {
            Writer::Text(TextWriter::new(create(&aside)?)?)
        } else if name.ends_with(".txt.zst") {
            Writer::PackedText(TextWriter::new(packed(create(&aside)?, args.level)?)?)
        } else if name.contains('.') {
            bail!(
                "{}: expected a name that ends in .zonal, .txt or .txt.zst, or a directory's",
                args.output.display()
            );
        } else {
            fs::create_dir(&aside).with_context(|| format!("{}", aside.display()))?;
            for (file, content) in files.iter().filter(|(file, _)| *file != "name") {
                let path = aside.join(file);
                fs::write(&path, content).with_context(|| format!("{}", path.display()))?;
            }
            let events = create(&aside.join("events.txt.zst"))?;
            Writer::PackedText(TextWriter::new(packed(events, args.level)?)?)
        };
        Ok(Sink { writer, places: Some((aside, args.output.clone())), events: 0 })
    }

    /// Adds an event.
    ///
    /// # Errors
    /// Those of the output.
    pub fn push(&mut self, event: &Event) -> anyhow::Result<()> {
        self.events += 1;
        match &mut self.writer {
            Writer::Zonal(writer) => writer.push(event)?,
            Writer::Text(writer) => writer.push(event)?,
            Writer::PackedText(writer) => writer.push(event)?,
        }
        Ok(())
    }

    /// Ends the output and moves it to its place. Returns the bytes of a file.
    ///
    /// # Errors
    /// Those of the output.
    pub fn finish(mut self) -> anyhow::Result<Option<u64>> {
        let places = self.places.take();
        match std::mem::replace(&mut self.writer, Writer::Text(TextWriter::new(nowhere())?)) {
            Writer::Zonal(writer) => drop(writer.finish()?),
            Writer::Text(writer) => drop(writer.finish()?),
            Writer::PackedText(writer) => writer.finish()?.finish()?.flush()?,
        }
        let Some((aside, place)) = places else { return Ok(None) };
        fs::rename(&aside, &place).with_context(|| format!("{}", place.display()))?;
        let metadata = fs::metadata(&place)?;
        Ok(metadata.is_file().then_some(metadata.len()))
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if let Some((aside, _)) = &self.places {
            // What is left of a failed command; that it cannot be removed changes nothing.
            let _ = if aside.is_dir() { fs::remove_dir_all(aside) } else { fs::remove_file(aside) };
        }
    }
}

fn nowhere() -> Output {
    BufWriter::new(Box::new(std::io::sink()))
}

fn packed(output: Output, level: i32) -> anyhow::Result<zstd::Encoder<'static, Output>> {
    let mut encoder = zstd::Encoder::new(output, level)?;
    encoder.include_checksum(true)?;
    Ok(encoder)
}
