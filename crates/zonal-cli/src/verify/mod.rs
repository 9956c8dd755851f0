//! `zonal verify`: a setting tried on this host, against a prediction that is written down first.
//!
//! ```text
//!  as it is: once for nothing, once timed, recorded (N times) ─► predicted
//!  the prediction is written down (stderr, -o FILE)
//!  now · tried · now …          timed, not recorded; probe and --metric-cmd end it early
//!  with the setting: once for nothing, recorded (N times) ─► counts
//!  everything put back ─► predicted beside measured ─► --apply writes a file of sysctl.d
//! ```
//! A signal ends the runs: everything is put back, and the verdict is by those that are done.
//! Before the prediction there is none.

mod apply;
pub mod args;
mod live;
mod text;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::ensure;
use zonal_replay::verify::{
    Arm, By, Counts, End, Finding, Hurts, Interruption, Measured, Outcome, Plan, Registered, Run,
    predict, recorded_counts,
};

use self::args::VerifyArgs;
use self::live::{Bench, Signals};
use crate::output::{self, Steps};
use crate::record::{self, ENDS};
use crate::scratch;
use crate::verdict::Verdict;

/// Version of the JSON.
const SCHEMA_VERSION: u32 = 1;

/// Runs the command.
///
/// # Errors
/// A setting that this kernel does not have, a load that fails, a recording that cannot be made;
/// everything is put back before.
pub fn run(args: &VerifyArgs) -> anyhow::Result<Verdict> {
    // One is for the load, which takes it; the other ends the trial.
    let signals = Signals::default();
    for number in ENDS {
        for flag in [&signals.load, &signals.all] {
            signal_hook::flag::register_usize(number, Arc::clone(flag), number as usize)?;
        }
    }
    scratch::command_ends_itself();
    ensure!(
        args.by != Some(By::Time) || args.duration.is_none(),
        "--by time: expected a command that ends by itself; with --duration each run takes the \
         same time, and --metric-cmd is the figure to judge by"
    );
    args.output.iter().try_for_each(|path| output::check_folder("-o", path))?;
    args.apply.iter().try_for_each(|directory| apply::check(directory, &args.setting))?;
    let mut bench = Bench::new(args, &signals)?;
    let before = bench.value()?;
    ensure!(
        before != args.setting.value,
        "{} is {before} already: there is nothing to try",
        args.setting.name
    );
    // Who may not record, or a value that this kernel refuses, is told before the load runs; who
    // has to wait for another waits now.
    let taken = bench.take();
    bench.check()?;
    let mut host = taken?;
    let accepted = bench.try_setting(&mut host);
    record::put_back(host)?;
    accepted?;
    let registered = register(args, &mut bench, before)?;
    store(args, &serde_json::to_string_pretty(&registered)?)?;
    output::note(&text::registered(&registered));

    let plan = Plan::new(args.blocks, registered.seed);
    let Trials { runs, end } = trials(args, &plan, &mut bench)?;
    let counts = if end == End::Done { counts(args, &mut bench) } else { Vec::new() };
    let now = bench.value()?;
    ensure!(
        now == registered.now,
        "{} is {now} now and was {} before: somebody else has changed it, or it could not be put \
         back",
        args.setting.name,
        registered.now
    );
    let measured = Measured::new(&plan, &runs, &counts);
    // A signal while the last recordings were made: the runs are all there, the counts are not.
    let end = match bench.interrupted() {
        Some(signal) if end == End::Done => End::interrupted(signal, &plan, runs.len()),
        _ => end,
    };
    let outcome = Outcome::new(registered, measured, end);
    give(args, &outcome)?;
    Ok(match (outcome.interrupted, outcome.verdict) {
        (Some(Interruption { signal, .. }), _) => Verdict::Interrupted(signal),
        (None, Finding::Confirmed | Finding::NoDifference) => Verdict::Pass,
        (None, Finding::Refuted | Finding::NotKnown) => Verdict::Failed,
    })
}

/// Counts of recordings with the setting: those that were made when a signal comes, or one fails.
/// The runs are worth more.
fn counts(args: &VerifyArgs, bench: &mut Bench<'_>) -> Vec<Counts<f64>> {
    let mut counts = Vec::new();
    // The run before may have been one as it is, and left other files in memory.
    if args.duration.is_none() && bench.interrupted().is_none() {
        output::note("one run with the setting that counts for nothing");
        if let Err(error) = warm_up_with_it(bench) {
            left_out(bench, &error);
            return counts;
        }
    }
    for number in 0..args.recordings {
        if bench.interrupted().is_some() {
            break;
        }
        output::note(&format!("recording with the setting, {} of {}", number + 1, args.recordings));
        let counted = bench.record(Arm::Tried, number).and_then(|recording| {
            bench.work(&mut zonal_replay::unwatched, |watch| recorded_counts(&recording, watch))
        });
        match counted {
            Ok(one) => counts.push(one),
            Err(error) => {
                left_out(bench, &error);
                break;
            }
        }
    }
    counts
}

/// What a signal ended is no news; what is left changed on the host is.
fn left_out(bench: &Bench<'_>, error: &anyhow::Error) {
    if bench.interrupted().is_none() || record::is_left(error) {
        output::note(&format!("left out, counts with the setting: {error:#}"));
    }
}

fn warm_up_with_it(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let mut host = bench.take()?;
    let run = bench.time(&mut host, Arm::Tried, None);
    record::put_back(host)?;
    run.map(drop)
}

/// Gives the result to everybody who wants it: what fails for one of them is an error at the end,
/// because there is nothing else left of the runs.
fn give(args: &VerifyArgs, outcome: &Outcome) -> anyhow::Result<()> {
    let (json, text) = (serde_json::to_string_pretty(outcome)? + "\n", text::outcome(outcome));
    let stored = store(args, &json);
    let printed = output::data_read(if args.json { &json } else { &text });
    let applied = args.apply.as_ref().map_or(Ok(()), |directory| {
        apply::apply(directory, &args.setting, outcome).map(|done| output::note(&done))
    });
    // A reader in a pipeline ends by the same Ctrl-C.
    if !matches!(printed, Ok(true)) {
        output::note(&text);
    }
    stored.and(printed.map(|_| ()).map_err(Into::into)).and(applied)
}

/// Records the load as it is, and predicts.
fn register(args: &VerifyArgs, bench: &mut Bench<'_>, now: String) -> anyhow::Result<Registered> {
    let mut run = None;
    if args.duration.is_none() {
        // So that each later run finds what a run before it left: files, caches.
        output::note("one run that counts for nothing");
        bench.warm_up()?;
        output::note("one run, to know how long it takes while nobody records");
        let (timed, elsewhere_s) = bench.warm_up()?;
        text::elsewhere(&timed, elsewhere_s).iter().for_each(|told| output::note(told));
        run = Some(timed);
    }
    output::note(&text::takes(args, run.map(|run| run.elapsed_s)));
    let mut recordings = Vec::new();
    for number in 0..args.recordings {
        output::note(&format!("recording as it is, {} of {}", number + 1, args.recordings));
        recordings.push(bench.record(Arm::Now, number)?);
    }
    let predicted = bench.work(&mut output::Bar::default().watch(), |watch| {
        predict(&recordings, &args.setting, run.as_ref(), watch)
    })?;
    let judged_by = match (&args.metric_cmd, args.duration) {
        (Some(_), _) => By::Metric,
        (None, Some(_)) => By::Cpu,
        (None, None) => args.by.unwrap_or_else(|| By::of(&predicted)),
    };
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Registered {
        schema_version: SCHEMA_VERSION,
        setting: format!("{}={}", args.setting.name, args.setting.value),
        now,
        load: bench.load(),
        seed: args.seed.unwrap_or(time.as_nanos() as u64 >> 10),
        judged_by,
        predicted,
    })
}

/// Timed runs.
struct Trials {
    /// All of them, or those before the end.
    runs: Vec<(Arm, Run)>,
    end: End,
}

fn trials(args: &VerifyArgs, plan: &Plan, bench: &mut Bench<'_>) -> anyhow::Result<Trials> {
    let hurts = Hurts { probe_times: args.probe_times, metric_times: args.metric_times };
    let steps = Steps::new("running", "runs", plan.runs().count() as u64);
    let mut runs = Vec::new();
    let taken = bench.take();
    if let Some(signal) = bench.interrupted() {
        return Ok(Trials { runs, end: End::interrupted(signal, plan, 0) });
    }
    let mut host = taken?;
    let mut all_runs = || -> anyhow::Result<End> {
        for arm in plan.runs() {
            let limit = hurts.probe_limit_us(&runs).filter(|_| arm == Arm::Tried);
            let timed = bench.time(&mut host, arm, limit);
            if let Some(signal) = bench.interrupted() {
                // The run that it cut off is none, however it ended.
                return Ok(End::interrupted(signal, plan, runs.len()));
            }
            let run = timed?;
            let hurt = Some(arm).filter(|arm| *arm == Arm::Tried);
            let hurt = hurt.and_then(|_| hurts.after(&runs, &run));
            runs.push((arm, run));
            steps.add(1);
            if let Some(why) = hurt {
                return Ok(End::Hurt(why));
            }
        }
        Ok(End::Done)
    };
    let end = all_runs();
    drop(steps);
    // Put back whatever the runs came to.
    record::put_back(host)?;
    Ok(Trials { runs, end: end? })
}

fn store(args: &VerifyArgs, text: &str) -> anyhow::Result<()> {
    let Some(path) = &args.output else { return Ok(()) };
    output::Target::new(path)?.write(text)
}
