//! `zonal trace`: looks at traces and makes others of them, by crate `zonal-trace`.

pub mod args;

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::path::Path;

use anyhow::bail;
use zonal_parquet::{is_parquet, read_events, write_events};
use zonal_trace::make::{Copies, MakeError, Selection, Target, Written, convert, cut, scale};
use zonal_trace::{Info, Recording, Stats};

use zonal_replay::advise::{Options, advise};
use zonal_replay::overview::{self, Overview};

use self::args::{CutArgs, InputArgs, OutputArgs, ReadArgs, ReportArgs, TraceCommand};
use crate::output;
use crate::scratch::Scratch;
use crate::verdict::Verdict;

/// Runs the command.
///
/// # Errors
/// Bad input, with file and place, a selection that matches nothing, or an output that cannot be
/// written.
pub fn run(command: &TraceCommand) -> anyhow::Result<Verdict> {
    match command {
        TraceCommand::Info(args) => info(args)?,
        TraceCommand::Stats(args) => stats(args)?,
        TraceCommand::Report(args) => report(args)?,
        TraceCommand::Convert(args) => converted(&args.input, &args.output)?,
        TraceCommand::Cut(args) => {
            let selection = args.selection()?;
            make(&args.input, &args.output, |recording, target, told| {
                cut(recording, &selection, target, told)
            })?;
        }
        TraceCommand::Scale(args) => {
            let copies = Copies { count: args.copies, shift_us: args.shift };
            make(&args.input, &args.output, |recording, target, told| {
                scale(recording, copies, target, told)
            })?;
        }
    }
    Ok(Verdict::Pass)
}

/// Opens a trace of any form, with the machine of another directory if one is given.
///
/// # Errors
/// If either cannot be read.
pub fn open(trace: &Path, machine: Option<&Path>) -> anyhow::Result<Recording> {
    let recording = Recording::open(trace)?;
    Ok(match machine {
        Some(directory) => recording.with_machine(directory)?,
        None => recording,
    })
}

fn info(args: &ReadArgs) -> anyhow::Result<()> {
    let recording = args.input.open()?;
    let info = Info::of(&recording);
    output::data(&if args.json { serde_json::to_string(&info)? + "\n" } else { info.to_string() })?;
    match &info.damage {
        Some(damage) => bail!("{damage}"),
        None => Ok(()),
    }
}

fn stats(args: &ReadArgs) -> anyhow::Result<()> {
    let recording = args.input.open()?;
    let bar = output::progress("reading", "events", recording.description().events);
    let stats = Stats::read(&recording, &mut |events| bar.set_position(events))?;
    bar.finish_and_clear();
    let text = if args.json { serde_json::to_string(&stats)? + "\n" } else { stats.to_string() };
    output::data(&text)?;
    Ok(())
}

/// Writes a trace in another form.
fn converted(input: &InputArgs, output: &OutputArgs) -> anyhow::Result<()> {
    let target = output.output.as_path();
    let writes = target.extension() == Some(OsStr::new("parquet"));
    match (is_parquet(&input.trace), writes) {
        (false, false) => make(input, output, convert),
        (false, true) => {
            let recording = input.open()?;
            let _part = Scratch::file(zonal_parquet::part(target))?;
            let bar = output::progress("writing", "events", recording.description().events);
            let told = &mut |events| {
                bar.set_position(events);
                ControlFlow::Continue(())
            };
            let written = write_events(&recording, target, output.level, told);
            bar.finish_and_clear();
            let zonal_parquet::Written { rows, bytes } = written?;
            say(Written { events: rows, bytes: Some(bytes) });
            Ok(())
        }
        (true, false) => {
            // By way of a .zonal file, whose reader checks what came out of the columns.
            let scratch = Scratch::directory_in(&std::env::temp_dir())?;
            let name = input.trace.file_stem().unwrap_or_default();
            let between = scratch.path().join(name).with_extension("zonal");
            let bar = output::progress("reading", "events", None);
            let read = read_events(&input.trace, &between, 1, &mut |rows| {
                bar.set_position(rows);
                ControlFlow::Continue(())
            });
            bar.finish_and_clear();
            read?;
            make(&InputArgs { trace: between, machine: input.machine.clone() }, output, convert)
        }
        (true, true) => bail!(
            "{} is a Parquet file already; expected another form for one of the two",
            input.trace.display()
        ),
    }
}

/// Writes the page of a recording.
fn report(args: &ReportArgs) -> anyhow::Result<()> {
    let target = output::Target::new(&args.output)?;
    let recording = args.input.open()?;
    let seen = Overview::of(&recording, &mut output::Bar::default().watch())?;
    let options = Options { limit: None, only: &args.only };
    let advice = advise(&recording, &options, &mut output::Bar::default().watch())?;
    target.write(&overview::html(&advice, &seen))
}

/// Makes a trace of another, and says how large it is.
fn make(
    input: &InputArgs,
    output: &OutputArgs,
    make: impl FnOnce(&Recording, Target, &mut dyn FnMut(u64)) -> Result<Written, MakeError>,
) -> anyhow::Result<()> {
    let recording = input.open()?;
    let target = output.target();
    let _part = target.part().map(Scratch::file).transpose()?;
    let bar = output::progress("writing", "events", recording.description().events);
    let written = make(&recording, target, &mut |events| bar.set_position(events));
    bar.finish_and_clear();
    say(written?);
    Ok(())
}

/// Says how large a trace is.
pub fn say(Written { events, bytes }: Written) {
    match bytes {
        Some(bytes) => {
            let each = bytes as f64 / events.max(1) as f64;
            output::note(&format!("{events} events, {bytes} bytes, {each:.3} per event"));
        }
        None => output::note(&format!("{events} events")),
    }
}

impl InputArgs {
    fn open(&self) -> anyhow::Result<Recording> {
        open(&self.trace, self.machine.as_deref())
    }
}

impl OutputArgs {
    /// Where to write; `-` is stdout.
    fn target(&self) -> Target {
        let target = match self.output.as_os_str() == "-" {
            true => Target::writer(output::Stdout),
            false => Target::file(&self.output),
        };
        target.level(self.level)
    }
}

impl CutArgs {
    fn selection(&self) -> anyhow::Result<Selection> {
        let cpus = self.cpus.as_ref().map(|list| {
            let parsed = zonal_text::cpulist::parse(&format!("{list}\n"));
            parsed.map_err(|error| anyhow::anyhow!("--cpus {list}: {error}"))
        });
        Ok(Selection {
            from: self.from,
            to: self.to,
            cpus: cpus.transpose()?.map(|list| list.ids),
            threads: self.pid.clone(),
        })
    }
}
