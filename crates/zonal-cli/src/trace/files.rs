//! Traces that are read, and where others go.

use std::path::Path;

use zonal_trace::Recording;
use zonal_trace::make::{MakeError, Target, Written};

use super::args::{InputArgs, OutputArgs};
use crate::output;
use crate::scratch::Scratch;
use crate::written;

/// Opens a trace of any form, with the machine of another directory if one is given.
///
/// # Errors
/// If either cannot be read.
pub fn open(trace: &Path, machine: Option<&Path>) -> anyhow::Result<Recording> {
    refuse_url(trace)?;
    let recording = Recording::open(trace)?;
    Ok(match machine {
        Some(directory) => recording.with_machine(directory)?,
        None => recording,
    })
}

/// Refuses a URL by what reads one, not as a file that is missing.
///
/// # Errors
/// For a URL that is no file's name.
pub fn refuse_url(trace: &Path) -> anyhow::Result<()> {
    let name = trace.to_string_lossy();
    let is_url = name.split_once("://").is_some_and(|(scheme, _)| {
        !scheme.is_empty()
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+')
    });
    anyhow::ensure!(
        !is_url || trace.exists(),
        "{name}: a URL, which this program does not read: copy it to a file first, or use the \
         Python package, whose zonal.fleet reads s3://, gs:// and others by fsspec"
    );
    Ok(())
}

/// Makes a trace of another, and says how large it is.
pub fn make(
    input: &InputArgs,
    output: &OutputArgs,
    make: impl FnOnce(&Recording, Target, &mut dyn FnMut(u64)) -> Result<Written, MakeError>,
) -> anyhow::Result<()> {
    let recording = input.open()?;
    let target = output.target()?;
    let _part = target.part().map(Scratch::file).transpose()?;
    let bar = output::progress("writing", "events", recording.description().events);
    let written = make(&recording, target, &mut |events| bar.set_position(events));
    bar.finish_and_clear();
    written::tell(&output.output, written?, output.json)
}

impl InputArgs {
    /// Opens the trace.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn open(&self) -> anyhow::Result<Recording> {
        open(&self.trace, self.machine.as_deref())
    }
}

impl OutputArgs {
    /// Where to write; `-` is stdout, by its other name too.
    fn target(&self) -> anyhow::Result<Target> {
        let is_stdout = ["-", "/dev/stdout"].iter().any(|name| self.output == Path::new(name));
        anyhow::ensure!(
            !(is_stdout && self.json),
            "--json: the trace itself goes to standard output; name a file"
        );
        let target = match is_stdout {
            true => Target::writer(output::Stdout),
            false => Target::file(&self.output),
        };
        Ok(target.level(self.level))
    }
}
