//! How far replays without memory are from recorded kernels: a row for each recording.
//!
//! ```text
//! cargo run --release -p zonal-replay --example errors -- \
//!     [--machine DIRECTORY] [--decay] RECORDING…
//! ```
//! `--machine` is for the recordings after it: streams with no description of their machine. So is
//! `--decay`: the times of statistics workers are told.

use std::error::Error;

use zonal_replay::advise::policy_of;
use zonal_replay::report::{Report, Side};
use zonal_replay::{Extras, Replay, unwatched};
use zonal_trace::Recording;

fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "| recording | kernel | refill pages | holds | drain pages | holds | the same, whole run \
         | not judged | judged with reclaim | too far off |\n\
         |--|--|--:|--:|--:|--:|--|--:|--:|--|"
    );
    let (mut machine, mut extras) = (None, Extras::default());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--machine" {
            machine = arguments.next();
            continue;
        }
        if argument == "--decay" {
            extras.told.decay = true;
            continue;
        }
        let mut recording = Recording::open(&argument)?;
        if let Some(directory) = &machine {
            recording = recording.with_machine(directory)?;
        }
        let policy = policy_of(recording.description().kernel_release.as_deref());
        let report =
            Replay::new(&recording).policy(policy).without_memory(&extras, &mut unwatched)?;
        row(&argument, &report);
    }
    Ok(())
}

fn row(path: &str, report: &Report) {
    let percent = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:+.1}"));
    let (error, whole) = (&report.error_percent, &report.whole_error_percent);
    let Side { refill_pages, refill_holds, drain_pages, drain_holds, .. } = report.kernel;
    let of = |error, kernel| format!("{} of {kernel}", percent(error));
    let all = [whole.refill_pages, whole.refill_holds, whole.drain_pages, whole.drain_holds];
    let kernel = match &report.judged {
        Some(sides) => sides.kernel,
        None => report.kernel,
    };
    let beyond: Vec<String> =
        report.beyond.iter().map(|one| one.figure.replace('_', " ")).collect();
    println!(
        "| {} | {} | {} | {} | {} | {} | {} of {refill_pages}, {refill_holds}, {drain_pages}, \
         {drain_holds} | {:.0} % | {} | {} |",
        path.trim_end_matches('/').rsplit('/').next().unwrap_or(path),
        report.trace.kernel_release.as_deref().unwrap_or("-"),
        of(error.refill_pages, kernel.refill_pages),
        of(error.refill_holds, kernel.refill_holds),
        of(error.drain_pages, kernel.drain_pages),
        of(error.drain_holds, kernel.drain_holds),
        all.map(percent).join(", "),
        100.0 * report.not_judged_share().abs(),
        report.reclaim_judged.len(),
        beyond.join(", "),
    );
}
