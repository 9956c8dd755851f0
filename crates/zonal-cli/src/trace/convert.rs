//! `zonal trace convert`: traces in other forms, those of other programs among them.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{anyhow, bail};
use zonal_lab::recipe::quoted;
use zonal_parquet::{is_parquet, read_events, write_events};
use zonal_perfetto::{is_perfetto, read_trace, write_trace};
use zonal_trace::TraceErrorKind;
use zonal_trace::make::{MakeError, Written, convert};

use super::args::{InputArgs, OutputArgs};
use super::files::{make, refuse_url};
use crate::cause::of_trace;
use crate::output;
use crate::scratch::Scratch;
use crate::written;

/// A form of other programs, which `zonal-trace` neither reads nor writes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Foreign {
    Parquet,
    Perfetto,
}

impl Foreign {
    /// The form of a file that is there.
    fn of_file(path: &Path) -> Option<Foreign> {
        match path {
            path if is_parquet(path) => Some(Foreign::Parquet),
            path if is_perfetto(path) => Some(Foreign::Perfetto),
            _ => None,
        }
    }

    /// The form that a name stands for.
    fn of_name(path: &Path) -> Option<Foreign> {
        let ending = path.extension().and_then(OsStr::to_str)?;
        match ending {
            "parquet" => Some(Foreign::Parquet),
            ending if zonal_perfetto::EXTENSIONS.contains(&ending) => Some(Foreign::Perfetto),
            _ => None,
        }
    }
}

/// What to do about a file that no reader of traces knows, where a form of other programs has a way
/// here, and about one that is damaged.
pub fn remedy(whole: &anyhow::Error) -> Option<String> {
    let error = of_trace(whole)?;
    if is_damage(error.kind()) {
        let text = output::chain(whole);
        return Some(format!("{text}; copy it again from where it was recorded, or record again"));
    }
    let path = Some(error.file()).filter(|_| {
        let kind = error.kind();
        matches!(kind, TraceErrorKind::UnknownFormat { .. } | TraceErrorKind::Missing { .. })
    })?;
    let form = Foreign::of_file(path)?;
    let zonal = path.with_extension("zonal");
    // The one that it may have been made of stays.
    let zonal = if zonal.exists() { path.with_extension("converted.zonal") } else { zonal };
    let [from, to] = [path, &zonal].map(|path| quoted(&path.display().to_string()));
    Some(format!(
        "{}: a {form:?} file, which `zonal trace convert` alone reads: make a .zonal file of it \
         first, `zonal trace convert {from} {to}`",
        path.display()
    ))
}

/// Whether a file is not as it was written.
fn is_damage(kind: &TraceErrorKind) -> bool {
    matches!(
        kind,
        TraceErrorKind::Empty { .. }
            | TraceErrorKind::CutShort { .. }
            | TraceErrorKind::CompressionCutShort
            | TraceErrorKind::CompressionDamaged { .. }
            | TraceErrorKind::ChecksumDiffers { .. }
    )
}

/// Writes a trace in another form.
pub fn run(input: &InputArgs, output: &OutputArgs) -> anyhow::Result<()> {
    refuse_url(&input.trace)?;
    match (Foreign::of_file(&input.trace), Foreign::of_name(&output.output)) {
        (None, None) => make(input, output, convert).map_err(with_all_names),
        (None, Some(form)) => export(input, output, form),
        (Some(form), None) => import(input, output, form),
        (Some(form), Some(_)) => bail!(
            "{} is a {form:?} file already; expected another form for one of the two: convert it \
             to FILE.zonal first",
            input.trace.display()
        ),
    }
}

/// The library knows its own forms only.
fn with_all_names(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<MakeError>() {
        Some(MakeError::Name(_)) => {
            let perfetto = zonal_perfetto::EXTENSIONS.join(" or .");
            anyhow!("{error}; for other programs .parquet, .{perfetto}")
        }
        _ => error,
    }
}

fn export(input: &InputArgs, output: &OutputArgs, form: Foreign) -> anyhow::Result<()> {
    let (recording, target) = (input.open()?, output.output.as_path());
    let bar = output::progress("writing", "events", recording.description().events);
    let told = &mut |events| {
        bar.set_position(events);
        ControlFlow::Continue(())
    };
    let written = match form {
        Foreign::Parquet => {
            let _part = Scratch::file(zonal_parquet::part(target))?;
            let written = write_events(&recording, target, output.level, told)?;
            Written { events: written.rows, bytes: Some(written.bytes) }
        }
        Foreign::Perfetto => {
            let events = output::Target::apart_from(&recording, target)?
                .fill(|file| Ok(write_trace(&recording, file, told)?))?;
            Written { events, bytes: Some(std::fs::metadata(target)?.len()) }
        }
    };
    bar.finish_and_clear();
    written::tell(target, written, output.json)
}

/// By way of a .zonal file, whose reader checks what came in.
fn import(input: &InputArgs, output: &OutputArgs, form: Foreign) -> anyhow::Result<()> {
    if output::same(&input.trace, &output.output) {
        return Err(MakeError::Overwrites(output.output.clone()).into());
    }
    let scratch = Scratch::directory_in(&std::env::temp_dir())?;
    let name = input.trace.file_stem().unwrap_or_default();
    let between = scratch.path().join(name).with_extension("zonal");
    let bar = output::progress("reading", "events", None);
    let told = &mut |events| {
        bar.set_position(events);
        ControlFlow::Continue(())
    };
    let notes = match form {
        Foreign::Parquet => read_events(&input.trace, &between, 1, told).map(|_| Vec::new())?,
        Foreign::Perfetto => read_trace(&input.trace, &between, 1, told)?.notes(),
    };
    bar.finish_and_clear();
    notes.iter().for_each(|note| output::note(note));
    make(&InputArgs { trace: between, machine: input.machine.clone() }, output, convert)
}
