//! `zonal replay`: a recorded trace of a kernel's page allocations, fed to the allocator.

pub mod args;
mod first;
mod text;

use anyhow::ensure;
use zonal_replay::fidelity::page;
use zonal_replay::{Extras, Pace, Recorded, Replay};
use zonal_trace::samples;

use self::args::{Memory, ReplayArgs, Speed, recorded};
use crate::output;
use crate::verdict::Verdict;

/// Runs the command.
///
/// # Errors
/// Bad input, with file and line, or a machine that cannot be built.
pub fn run(args: &ReplayArgs) -> anyhow::Result<Verdict> {
    check(args)?;
    let policy = args.policy.policy()?;
    let recording = match &args.trace {
        Some(path) => crate::trace::open(path, args.machine.as_deref())?,
        None => samples::zlib_make_j4()?,
    };
    let target = |path| output::Target::apart_from(&recording, path);
    let target = args.fidelity.as_deref().map(target).transpose()?;
    let mut replay = Replay::new(&recording).policy(policy);
    if let Some(events) = args.limit {
        replay = replay.limit(events);
    }
    let mut bar = output::Bar::default();
    if args.is_first_run() {
        return first::run(&replay, &recording, args.json, bar);
    }
    let report = match args.memory() {
        Memory::None => {
            let told = recorded(&args.use_recorded);
            let over_time = args.fidelity.is_some();
            let extras = Extras { told, explain: args.explain, over_time };
            replay.without_memory(&extras, &mut bar.watch())?
        }
        Memory::Real => {
            let pace = match args.speed {
                Speed::Max => Pace::Max,
                Speed::Recorded => Pace::Recorded,
            };
            replay.on_pool(pace, &mut bar.watch())?
        }
    };
    drop(bar);
    let text = text::text(&report);
    if let (Some(fidelity), Some(target)) = (&report.fidelity, target) {
        let title = format!("{} under {}", report.trace.name, report.policy);
        target.write(&page::html(&title, &text, fidelity))?;
    }
    text::remarks(&report).for_each(|remark| output::note(&remark));
    output::data(&match args.json {
        true => serde_json::to_string_pretty(&report)? + "\n",
        false => text,
    })?;
    Ok(if report.passed() { Verdict::Pass } else { Verdict::Failed })
}

/// Flags that only one kind of memory can honour.
fn check(args: &ReplayArgs) -> anyhow::Result<()> {
    ensure!(
        args.speed == Speed::Max || args.memory() == Memory::Real,
        "--speed recorded needs --memory real: without memory the clock is the trace's anyway"
    );
    ensure!(
        args.explain.is_none() || args.memory() == Memory::None,
        "--explain needs --memory none: on real memory several threads allocate at once"
    );
    ensure!(
        args.fidelity.is_none() || args.memory() == Memory::None,
        "--fidelity needs --memory none: a pool on real memory is not the recorded machine"
    );
    ensure!(
        recorded(&args.use_recorded) == Recorded::default() || args.memory() == Memory::None,
        "--use-recorded needs --memory none: a pool on real memory follows its own clock and has \
         no pageblock types"
    );
    Ok(())
}
