//! What was predicted beside what was measured, and the verdict.

use std::fmt;

use serde::Serialize;

use super::interval::{Interval, mean_of, range_of, saving_of};
use super::left::left_in_memory;
use super::plan::{Arm, RUNS_OF_BLOCK};
use super::predict::{Counts, Predicted};
use super::{Plan, Run};
use crate::advise::WORTH_PERCENT;

/// What a verdict is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// Processor time.
    Cpu,
    /// Elapsed time.
    Time,
    /// The load's own figure.
    Metric,
}

impl By {
    /// Elapsed time where some of it was predicted to be saved, or else processor time.
    pub fn of(predicted: &Predicted) -> By {
        match predicted.saving_percent_of_time.mid >= WORTH_PERCENT {
            true => By::Time,
            false => By::Cpu,
        }
    }

    /// As it is printed.
    pub fn name(self) -> &'static str {
        match self {
            By::Cpu => "processor time",
            By::Time => "elapsed time",
            By::Metric => "the load's own figure",
        }
    }
}

/// What a trial came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Finding {
    /// It saves what was predicted.
    #[serde(rename = "confirmed")]
    Confirmed,
    /// Nothing that can be told from chance.
    #[serde(rename = "no difference")]
    NoDifference,
    /// Something else than was predicted.
    #[serde(rename = "refuted")]
    Refuted,
    /// The trial was interrupted before two blocks were done: one has no interval. Or its runs as
    /// it is were not as it is.
    #[serde(rename = "not known")]
    NotKnown,
}

/// How the timed runs ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// As planned.
    Done,
    /// The setting hurts; why.
    Hurt(String),
    /// By a signal.
    Interrupted(Interruption),
}

/// Where a signal ended the timed runs. A run that it cut off is not among those that are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Interruption {
    /// The signal's number.
    pub signal: i32,
    /// Runs that are done.
    pub runs: usize,
    /// Runs of the plan.
    pub runs_planned: usize,
    /// Blocks of which all runs are done: the verdict is by these.
    pub blocks: usize,
    /// Blocks of the plan.
    pub blocks_planned: usize,
}

impl End {
    /// The end by a signal after so many runs of `plan`.
    pub fn interrupted(signal: i32, plan: &Plan, runs: usize) -> End {
        let blocks_planned = plan.blocks.len();
        End::Interrupted(Interruption {
            signal,
            runs,
            runs_planned: plan.runs().count(),
            blocks: runs / RUNS_OF_BLOCK,
            blocks_planned,
        })
    }
}

impl fmt::Display for Interruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Interruption { signal, runs, runs_planned, blocks, blocks_planned } = self;
        write!(
            f,
            "interrupted by signal {signal} after {runs} of {runs_planned} runs, {blocks} of \
             {blocks_planned} blocks"
        )
    }
}

impl Finding {
    /// As it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Finding::Confirmed => "confirmed",
            Finding::NoDifference => "no difference",
            Finding::Refuted => "refuted",
            Finding::NotKnown => "not known",
        }
    }
}

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Measured {
    /// What is saved, in percent of one CPU: processor time by elapsed time. `None` of this and of
    /// what follows: fewer than two complete blocks have no interval.
    pub saving_percent_of_cpu: Option<Interval>,
    /// What is saved of the elapsed time, in percent of the time without the setting; below -100 it
    /// takes more than twice as long.
    pub saving_percent_of_time: Option<Interval>,
    /// What is saved of the load's own figure, in percent of the figure without the setting.
    pub saving_percent_of_metric: Option<Interval>,
    /// As the first, between runs that differ in nothing.
    pub same_percent_of_cpu: Option<Interval>,
    /// As the second, between runs that differ in nothing.
    pub same_percent_of_time: Option<Interval>,
    /// As the third, between runs that differ in nothing.
    pub same_percent_of_metric: Option<Interval>,
    /// What the host read from its disks in a run as it is, in GiB: over those runs.
    pub read_gib_now: Option<Interval>,
    /// The same with the setting.
    pub read_gib: Option<Interval>,
    /// Counts of the kernel with the setting: over its recordings.
    #[serde(flatten)]
    pub counts: Option<Counts<Interval>>,
    /// Runs without the setting, and with it.
    pub runs: (usize, usize),
}

/// The prediction, as it is written down before the first run.
#[derive(Clone, Debug, Serialize)]
pub struct Registered {
    /// Counts changes of the JSON that break readers.
    pub schema_version: u32,
    /// `vm.NAME=VALUE`.
    pub setting: String,
    /// Its value now.
    pub now: String,
    /// The load, in words.
    pub load: String,
    /// What the order of the runs is drawn from.
    pub seed: u64,
    /// What the verdict will be about.
    pub judged_by: By,
    /// What the model says.
    pub predicted: Predicted,
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// What was written down.
    #[serde(flatten)]
    pub registered: Registered,
    /// What was found.
    pub measured: Measured,
    /// What came of it.
    pub verdict: Finding,
    /// Why, in words.
    pub reason: String,
    /// Why the runs ended early, if the setting hurt.
    pub stopped: Option<String>,
    /// Where a signal ended the trial, if one did.
    pub interrupted: Option<Interruption>,
}

impl Measured {
    /// From the runs in the order of `plan`. Differences are those of complete blocks; what was
    /// read, and how many runs there were, is of all that are done.
    /// `counts`: of each recording with the setting.
    pub fn new(plan: &Plan, runs: &[(Arm, Run)], counts: &[Counts<f64>]) -> Measured {
        let blocks: Vec<Block> =
            plan.blocks.iter().zip(runs.chunks_exact(RUNS_OF_BLOCK)).map(block).collect();
        let diffs = |of: fn(&Run, &Run) -> f64, mean: fn(&[f64]) -> Option<Interval>| {
            let saved: Vec<f64> = blocks
                .iter()
                .map(|one| (of(&one.now.0, &one.tried) + of(&one.now.1, &one.tried)) / 2.0)
                .collect();
            let same: Vec<f64> = blocks.iter().map(|one| of(&one.now.0, &one.now.1)).collect();
            (mean(&saved), mean(&same))
        };
        let of_cpu = |now: &Run, tried: &Run| percent(now.cpu_s - tried.cpu_s, now.elapsed_s);
        let (cpu, same) = diffs(of_cpu, mean_of);
        let (time, same_time) =
            diffs(|now, tried| ratio(now.elapsed_s, tried.elapsed_s), saving_of);
        let has_metric = !runs.is_empty() && runs.iter().all(|(_, run)| run.metric.is_some());
        let metric = has_metric.then(|| {
            let of_metric = |now: &Run, tried: &Run| {
                ratio(now.metric.unwrap_or(0.0), tried.metric.unwrap_or(0.0))
            };
            diffs(of_metric, saving_of)
        });
        let count = |arm: Arm| runs.iter().filter(|(other, _)| *other == arm).count();
        let read = |arm: Arm| {
            let of_arm = runs.iter().filter(|(other, _)| *other == arm);
            let read: Option<Vec<f64>> = of_arm.map(|(_, run)| run.read_gib).collect();
            range_of(&read?)
        };
        let over = |figure: fn(&Counts<f64>) -> f64| {
            range_of(&counts.iter().map(figure).collect::<Vec<f64>>()).unwrap_or_default()
        };
        Measured {
            saving_percent_of_cpu: cpu,
            saving_percent_of_time: time,
            saving_percent_of_metric: metric.and_then(|(saved, _)| saved),
            same_percent_of_cpu: same,
            same_percent_of_time: same_time,
            same_percent_of_metric: metric.and_then(|(_, same)| same),
            read_gib_now: read(Arm::Now),
            read_gib: read(Arm::Tried),
            counts: (!counts.is_empty()).then(|| Counts {
                refill_pages: over(|one| one.refill_pages),
                drain_pages: over(|one| one.drain_pages),
                lock_holds: over(|one| one.lock_holds),
            }),
            runs: (count(Arm::Now), count(Arm::Tried)),
        }
    }
}

struct Block {
    now: (Run, Run),
    tried: Run,
}

fn block((arms, runs): (&[Arm; RUNS_OF_BLOCK], &[(Arm, Run)])) -> Block {
    debug_assert!(arms.iter().eq(runs.iter().map(|(arm, _)| arm)));
    let mut block = Block { now: (Run::default(), Run::default()), tried: Run::default() };
    let mut seen = 0;
    for (arm, run) in runs {
        match (arm, seen) {
            (Arm::Tried, _) => block.tried = *run,
            (Arm::Now, 0) => (block.now.0, seen) = (*run, 1),
            (Arm::Now, _) => block.now.1 = *run,
        }
    }
    block
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part * 100.0 / whole } else { 0.0 }
}

/// The logarithm of `tried` by `now`; none of what is not above zero.
fn ratio(now: f64, tried: f64) -> f64 {
    if now > 0.0 && tried > 0.0 { (tried / now).ln() } else { 0.0 }
}

impl Outcome {
    /// Decides by the runs that are done.
    pub fn new(registered: Registered, measured: Measured, end: End) -> Outcome {
        let (stopped, interrupted) = match end {
            End::Done => (None, None),
            End::Hurt(why) => (Some(why), None),
            End::Interrupted(early) => (None, Some(early)),
        };
        let (verdict, reason) = match &stopped {
            Some(why) => (Finding::Refuted, format!("it hurts: {why}; no more runs were made")),
            None => {
                let predicted = &registered.predicted;
                let (verdict, reason) = decide(registered.judged_by, predicted, &measured);
                match left_in_memory(predicted.recorded_read_gib, measured.read_gib_now) {
                    Some(why) => (Finding::NotKnown, format!("{reason}; {why}")),
                    None => (verdict, reason),
                }
            }
        };
        Outcome { registered, measured, verdict, reason, stopped, interrupted }
    }
}

fn decide(by: By, predicted: &Predicted, measured: &Measured) -> (Finding, String) {
    let (of_cpu, of_time) = (predicted.saving_percent_of_cpu, predicted.saving_percent_of_time);
    let figures = match by {
        By::Metric => measured.saving_percent_of_metric.zip(measured.same_percent_of_metric),
        By::Time => measured.saving_percent_of_time.zip(measured.same_percent_of_time),
        By::Cpu => measured.saving_percent_of_cpu.zip(measured.same_percent_of_cpu),
    };
    let Some((saved, same)) = figures else {
        // Every run has a processor time: without an interval of that there are too few of them.
        let (verdict, why) = match measured.saving_percent_of_cpu {
            None => (Finding::NotKnown, "a verdict needs 2 blocks at least"),
            Some(_) => (Finding::NoDifference, "not every run has the load's own figure"),
        };
        return (verdict, why.to_owned());
    };
    let of = match by {
        By::Metric => "of the load's own figure",
        By::Time => "of the elapsed time",
        By::Cpu => "of a CPU",
    };
    let Interval { low, mid, high } = saved;
    let found = format!("saves {mid:.2} % {of} ({low:.2} to {high:.2})");
    // Of a CPU, differences are of one figure; of times, they are ratios.
    let is_within = within(&saved, &same, if by == By::Cpu { |own| own } else { log });
    let is_clear = saved.is_clear() && !is_within && mid.abs() >= WORTH_PERCENT;
    if !is_clear {
        let among = format!("{:.2} to {:.2} %", same.low, same.high);
        let why = format!("{found}; runs that differ in nothing differ by {among}");
        return (Finding::NoDifference, why);
    }
    let (expected, of) = match by {
        By::Time => (of_time, of),
        By::Cpu | By::Metric => (of_cpu, "of a CPU"),
    };
    let predicts = format!(
        "predicted {:.2} % {of} ({:.2} to {:.2})",
        expected.mid, expected.low, expected.high
    );
    // A figure of the load's own has no prediction of its size.
    let is_as_predicted = match by {
        By::Metric => mid > 0.0 && (of_cpu.mid > 0.0 || of_time.mid > 0.0),
        By::Time | By::Cpu => mid.signum() == expected.mid.signum() && saved.meets(&expected),
    };
    match is_as_predicted {
        true => (Finding::Confirmed, format!("{found}; {predicts}")),
        false => {
            let saves_more = mid.signum() == expected.mid.signum() && low > expected.high;
            let more = if saves_more { ", more than predicted" } else { "" };
            (Finding::Refuted, format!("{found}{more}; {predicts}"))
        }
    }
}

/// Whether the middle of what was saved lies in what equal runs differ by, in either direction, on
/// the scale on which a difference has no direction.
fn within(saved: &Interval, same: &Interval, scale: fn(f64) -> f64) -> bool {
    scale(saved.mid).abs() <= scale(same.low).abs().max(scale(same.high).abs())
}

/// The logarithm of the ratio that a saving in percent comes from: half of a time saves 50 %, and
/// twice the time loses 100 %, and the two are as far from no difference.
fn log(saved_percent: f64) -> f64 {
    (1.0 - saved_percent / 100.0).max(f64::MIN_POSITIVE).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn predicted(mid: f64) -> Predicted {
        let saving = Interval { low: mid * 0.5, mid, high: mid * 1.5 };
        Predicted {
            saving_percent_of_cpu: saving,
            saving_percent_of_time: Interval::default(),
            read_gib: None,
            recorded_read_gib: None,
            counts: Counts::default(),
            recorded: Counts::default(),
            model_error_percent: Some(1.0),
            not_judged_percent: 0.0,
        }
    }

    fn registered(mid: f64) -> Registered {
        Registered {
            schema_version: 1,
            setting: "vm.numa_stat=0".to_owned(),
            now: "1".to_owned(),
            load: "make".to_owned(),
            seed: 1,
            judged_by: By::of(&predicted(mid)),
            predicted: predicted(mid),
        }
    }

    /// Runs of ten seconds that take 10 s of CPU, `saved` less with the setting, and differ by
    /// `noise` from one to the next.
    fn runs(plan: &Plan, saved: f64, noise: f64) -> Vec<(Arm, Run)> {
        let step = |index: usize| noise * ((index * 7 % 5) as f64 / 2.0 - 1.0);
        let run = |(index, arm): (usize, Arm)| {
            let less = if arm == Arm::Tried { saved } else { 0.0 };
            let run = Run { cpu_s: 10.0 - less + step(index), elapsed_s: 10.0, ..Run::default() };
            (arm, run)
        };
        plan.runs().enumerate().map(run).collect()
    }

    fn verdict(predicted_percent: f64, saved: f64, noise: f64) -> Finding {
        let plan = Plan::new(6, 3);
        let measured = Measured::new(&plan, &runs(&plan, saved, noise), &[]);
        Outcome::new(registered(predicted_percent), measured, End::Done).verdict
    }

    #[test]
    fn runs_that_find_what_the_setting_left_in_memory_are_not_as_it_is() {
        let plan = Plan::new(6, 3);
        let verdict = |now: f64| {
            let same = |gib| Some(Interval { low: gib, mid: gib, high: gib });
            let mut registered = registered(10.0);
            registered.predicted.recorded_read_gib = same(3.28);
            let measured = Measured::new(&plan, &runs(&plan, 1.0, 0.01), &[]);
            let measured = Measured { read_gib_now: same(now), ..measured };
            Outcome::new(registered, measured, End::Done).verdict
        };
        assert_eq!((verdict(3.0), verdict(0.1)), (Finding::Confirmed, Finding::NotKnown));
    }

    #[test]
    fn the_verdict_is_by_prediction_and_by_what_equal_runs_differ() {
        // 0.5 s of 10 s are 5 % of a CPU.
        assert_eq!(verdict(5.0, 0.5, 0.02), Finding::Confirmed);
        assert_eq!(verdict(5.0, 0.0, 0.02), Finding::NoDifference);
        assert_eq!(verdict(0.1, 0.0, 0.02), Finding::NoDifference);
        assert_eq!(verdict(5.0, -0.5, 0.02), Finding::Refuted, "it costs");
        assert_eq!(verdict(0.1, 0.5, 0.02), Finding::Refuted, "more than was predicted");
        assert_eq!(verdict(5.0, 0.5, 3.0), Finding::NoDifference, "lost in noise");
        assert_eq!(verdict(5.0, 0.03, 0.0), Finding::NoDifference, "0.3 % is nothing");
    }

    #[test]
    fn what_hurts_is_refuted_and_says_why() {
        let end = End::Hurt("the probe's p99 was 900 us".to_owned());
        let outcome = Outcome::new(registered(5.0), Measured::default(), end);
        assert_eq!(outcome.verdict, Finding::Refuted);
        assert!(outcome.reason.contains("it hurts: the probe's p99 was 900 us"));
    }

    #[test]
    fn an_interrupted_trial_is_judged_by_its_complete_blocks() {
        let plan = Plan::new(6, 3);
        let all = runs(&plan, 0.5, 0.02);
        let after = |done: usize| {
            let measured = Measured::new(&plan, &all[..done], &[]);
            Outcome::new(registered(5.0), measured, End::interrupted(2, &plan, done))
        };
        for (done, blocks, verdict) in [
            (0, 0, Finding::NotKnown),
            (5, 1, Finding::NotKnown),
            (9, 3, Finding::Confirmed),
            (11, 3, Finding::Confirmed),
        ] {
            let outcome = after(done);
            let early = outcome.interrupted.unwrap();
            assert_eq!((early.runs, early.runs_planned), (done, 18));
            assert_eq!((early.blocks, early.blocks_planned), (blocks, 6));
            assert_eq!(outcome.verdict, verdict, "after {done}: {}", outcome.reason);
        }
        assert_eq!(
            after(11).interrupted.unwrap().to_string(),
            "interrupted by signal 2 after 11 of 18 runs, 3 of 6 blocks"
        );
        // What is not complete has no part in the verdict.
        assert_eq!(
            after(11).measured.saving_percent_of_cpu,
            after(9).measured.saving_percent_of_cpu
        );
    }

    #[test]
    fn differences_are_those_inside_blocks() {
        let plan = Plan::new(5, 9);
        // The machine gets slower from block to block; the setting saves a second each time.
        let run = |(index, arm): (usize, Arm)| {
            let drift = (index / 3) as f64 * 5.0;
            let less = if arm == Arm::Tried { 1.0 } else { 0.0 };
            (arm, Run { cpu_s: 10.0 + drift - less, elapsed_s: 10.0, ..Run::default() })
        };
        let runs: Vec<(Arm, Run)> = plan.runs().enumerate().map(run).collect();
        let counts = [Counts { refill_pages: 5.0, ..Counts::default() }];
        let measured = Measured::new(&plan, &runs, &counts);
        let all = Interval { low: 10.0, mid: 10.0, high: 10.0 };
        assert_eq!(measured.saving_percent_of_cpu, Some(all));
        assert_eq!(measured.same_percent_of_cpu, Some(Interval::default()));
        assert_eq!(measured.runs, (10, 5));
        assert_eq!(measured.counts.unwrap().refill_pages.mid, 5.0);
        // A block that was cut off is not used.
        let cut = Measured::new(&plan, &runs[..13], &[]);
        assert_eq!((cut.saving_percent_of_cpu, cut.counts), (Some(all), None));
        let done = |arm: Arm| runs[..13].iter().filter(|(other, _)| *other == arm).count();
        assert_eq!(cut.runs, (done(Arm::Now), done(Arm::Tried)));
        assert_eq!(cut.runs.0 + cut.runs.1, 13);
        // One block has no interval, and what was not measured is not zero.
        let one = Measured::new(&plan, &runs[..5], &[]);
        assert_eq!((one.saving_percent_of_cpu, one.same_percent_of_time), (None, None));
    }

    #[test]
    fn times_that_are_far_apart_save_no_more_than_all() {
        let plan = Plan::new(5, 4);
        let mut runs = runs(&plan, 0.0, 0.0);
        for (index, (arm, run)) in runs.iter_mut().enumerate() {
            let is_slow = *arm == Arm::Tried && index % 2 == 0;
            run.elapsed_s = if is_slow { 90.0 } else { 10.0 };
        }
        let measured = Measured::new(&plan, &runs, &[]);
        let time = measured.saving_percent_of_time.unwrap();
        assert!(time.says_nothing() && time.high < 100.0, "{time:?}");
        assert_eq!(measured.same_percent_of_time, Some(Interval::default()));
    }

    #[test]
    fn equal_runs_that_are_far_apart_do_not_hide_what_saves_more() {
        let saved = |low, mid, high| Interval { low, mid, high };
        // Equal runs differ by 0.6 to 1.7 times; the setting takes 0.5 times the time.
        let same = saved(-70.0, 0.0, 40.0);
        assert!(!within(&saved(45.0, 50.0, 55.0), &same, log));
        // On the scale of percent, 50 would lie below 70.
        assert!(within(&saved(45.0, 50.0, 55.0), &same, |own| own));
        assert!(within(&saved(-70.0, -60.0, -50.0), &same, log));
        assert!(!within(&saved(-120.0, -110.0, -105.0), &same, log));
        assert!(!within(&saved(99.0, 100.0, 100.0), &same, log), "all of it");
    }

    #[test]
    fn the_loads_own_figure_decides_where_there_is_one() {
        let plan = Plan::new(5, 2);
        let mut runs = runs(&plan, 0.5, 0.0);
        for (arm, run) in &mut runs {
            run.metric = Some(if *arm == Arm::Tried { 120.0 } else { 100.0 });
        }
        let measured = Measured::new(&plan, &runs, &[]);
        assert_eq!(measured.saving_percent_of_metric.unwrap().mid, -20.0);
        let by_metric = Registered { judged_by: By::Metric, ..registered(5.0) };
        let outcome = Outcome::new(by_metric.clone(), measured, End::Done);
        assert_eq!(outcome.verdict, Finding::Refuted, "less CPU, and the load is slower");
        // A run that was cut off has no figure.
        runs[2].1.metric = None;
        let without = Outcome::new(by_metric, Measured::new(&plan, &runs, &[]), End::Done);
        assert_eq!(without.verdict, Finding::NoDifference);
        assert!(without.reason.contains("not every run has the load's own figure"));
    }

    /// Waiting: with the setting, runs take `factor` of ten seconds and read as much less, all with
    /// the same processor time.
    fn waiting(plan: &Plan, factor: f64, noise: f64) -> Measured {
        let run = |(index, (arm, run)): (usize, (Arm, Run))| {
            let factor = if arm == Arm::Tried { factor } else { 1.0 };
            let noise = 1.0 + noise * ((index * 7 % 5) as f64 / 2.0 - 1.0);
            let read_gib = Some(16.0 * factor);
            (arm, Run { elapsed_s: 10.0 * factor * noise, read_gib, ..run })
        };
        let runs: Vec<(Arm, Run)> = runs(plan, 0.0, 0.0).into_iter().enumerate().map(run).collect();
        Measured::new(plan, &runs, &[])
    }

    #[test]
    fn a_prediction_of_time_is_judged_by_elapsed_time() {
        let of_time = |low, mid, high| {
            let saving_percent_of_time = Interval { low, mid, high };
            let predicted = Predicted { saving_percent_of_time, ..predicted(0.0) };
            Registered { judged_by: By::of(&predicted), predicted, ..registered(0.0) }
        };
        let plan = Plan::new(5, 8);
        let find = |registered: &Registered, factor: f64, noise: f64| {
            Outcome::new(registered.clone(), waiting(&plan, factor, noise), End::Done)
        };
        let predicted = of_time(20.0, 40.0, 60.0);
        assert_eq!(predicted.judged_by, By::Time);
        let half = find(&predicted, 0.5, 0.02);
        assert_eq!(half.verdict, Finding::Confirmed, "{}", half.reason);
        assert!(half.reason.contains("predicted 40.00 % of the elapsed time"), "{}", half.reason);
        let read = |read: Option<Interval>| read.unwrap().mid;
        assert_eq!((read(half.measured.read_gib_now), read(half.measured.read_gib)), (16.0, 8.0));
        let [more, less, slower] = [0.1, 0.9, 1.5].map(|factor| find(&predicted, factor, 0.02));
        for (outcome, is_more) in [(&more, true), (&less, false), (&slower, false)] {
            assert_eq!(outcome.verdict, Finding::Refuted, "{}", outcome.reason);
            assert_eq!(outcome.reason.contains(", more than predicted"), is_more);
        }
        assert_eq!(find(&predicted, 1.0, 0.02).verdict, Finding::NoDifference);
        assert_eq!(find(&predicted, 0.9, 0.8).verdict, Finding::NoDifference, "lost in noise");
        // By processor time, which is the same, there is nothing to see.
        let by_cpu = Registered { judged_by: By::Cpu, ..of_time(20.0, 40.0, 60.0) };
        assert_eq!(find(&by_cpu, 0.5, 0.02).verdict, Finding::NoDifference);
        assert_eq!(By::of(&of_time(0.0, 0.4, 0.5).predicted), By::Cpu, "next to nothing");
    }
}
