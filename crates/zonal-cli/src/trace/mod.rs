//! `zonal trace`: looks at traces and makes others of them, by crate `zonal-trace`.

pub mod args;
mod convert;
mod files;

use anyhow::bail;
use serde::Serialize;
use zonal_trace::make::{Copies, Selection, cut, not_scaled, scale};
use zonal_trace::{Info, Stats};

use zonal_replay::advise::{Options, advise};
use zonal_replay::overview::{self, Overview};

pub use self::convert::remedy;
pub use self::files::open;

use self::args::{CutArgs, ReadArgs, ReportArgs, TraceCommand};
use self::files::make;
use crate::output;
use crate::verdict::Verdict;
use crate::written;

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
        TraceCommand::Convert(args) => convert::run(&args.input, &args.output)?,
        TraceCommand::Cut(args) => {
            let selection = args.selection()?;
            make(&args.input, &args.output, |recording, target, told| {
                cut(recording, &selection, target, told)
            })?;
        }
        TraceCommand::Scale(args) => {
            let copies = Copies { count: args.copies, shift_us: args.shift };
            make(&args.input, &args.output, |recording, target, told| {
                let written = scale(recording, copies, target, told)?;
                let files = recording.machine_files()?;
                let left_out: Vec<&str> = not_scaled(files.iter().map(|(name, _)| name)).collect();
                if !left_out.is_empty() {
                    let names = left_out.join(", ");
                    output::note(&format!("left out, because they are of one machine: {names}"));
                }
                Ok(written)
            })?;
        }
    }
    Ok(Verdict::Pass)
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

/// Writes the page of a recording.
fn report(args: &ReportArgs) -> anyhow::Result<()> {
    let recording = args.input.open()?;
    let target = output::Target::apart_from(&recording, &args.output)?;
    let seen = Overview::of(&recording, &mut output::Bar::default().watch())?;
    let options = Options { limit: None, only: &args.only };
    let advice = advise(&recording, &options, &mut output::Bar::default().watch())?;
    target.write(&overview::html(&advice, &seen))?;
    if args.json {
        let said = Said { verdict: advice.verdict.name(), reason: &advice.reason };
        written::print(&args.output, &said)?;
    }
    Ok(())
}

/// What `report --json` prints besides the page's name.
#[derive(Serialize)]
struct Said<'a> {
    verdict: &'a str,
    reason: &'a str,
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
