//! Advice from one recording.

use serde::Serialize;
use zonal_core::policy::Policy;
use zonal_trace::{MachineDescription, Recording};

use super::changes::{self, Change};
use super::cost::{HoldCost, Prices, WaitCheck};
use super::row::{self, Row};
use super::saving::ModelError;
use super::verdict::{Case, Verdict};
use crate::error::ReplayError;
use crate::error::chain;
use crate::locks::LockWaits;
use crate::moves::Moves;
use crate::progress::Watch;
use crate::readings;
use crate::reclaim::{Reclaim, ReclaimCost, own_min_free};
use crate::settings::Settings;
use crate::unjudged::{NotJudged, ReclaimJudged};
use crate::what_if::{Trial, WhatIf};
use crate::zones::page_rules;

/// What is said where nobody timed the recorded host's kernel.
const UNMEASURED: &str = "blocks have the price of another machine; on the host where it was \
    measured they took up to three times as long, and the ends of savings say so: `zonal lab \
    calibrate`, as root, measures it, and recordings made later keep it";

/// What is said where no allocation and no free was recorded.
const MOVES_ALONE: &str = "recorded with --moves: no setting was tried, and the number of \
    allocations is that of the pages of the whole host, by the kernel's own count";

/// The trials.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'o> {
    /// Stop after this many events of the trace.
    pub limit: Option<u64>,
    /// Try only changes whose name begins with one of these; all, if empty.
    pub only: &'o [String],
}

/// The result.
#[derive(Debug, Serialize)]
pub struct Advice {
    /// Counts changes of the JSON that break readers.
    pub schema_version: u32,
    /// What to do.
    pub verdict: Verdict,
    /// Why, in words.
    pub reason: String,
    /// The setting that is worth trying, such as `vm.numa_stat=0`; `None` under another verdict.
    pub setting: Option<String>,
    /// Whether no host made a recording: then what is called measured or the kernel's is simulated.
    pub simulated: bool,
    /// What the allocator's waits and refills take of one CPU: counted by the kernel's own moves,
    /// priced by `cost`.
    pub cost_percent_of_cpu: f64,
    /// Of it, waited for zone locks in each second, by all CPUs together: measured, where the
    /// recording has waits.
    pub wait_us_per_s: f64,
    /// The same by the model alone.
    pub modelled_wait_us_per_s: f64,
    /// Modelled waits beside measured ones; of several recordings `None`: see `recordings`.
    pub wait_check: Option<WaitCheck>,
    /// Waits in the recording, as `perf lock contention` has them; `None`: not recorded, or several
    /// recordings.
    pub lock_waits: Option<LockWaits>,
    /// What reclaim cost; `None`: the recording does not say, or several recordings.
    pub reclaim: Option<ReclaimCost>,
    /// By how much the model is off on this recording.
    pub model_error_percent: ModelError,
    /// Stretches that no prediction covers; of several recordings none: see `recordings`.
    pub not_judged: Vec<NotJudged>,
    /// Stretches with reclaim that the model follows, so that predictions cover them; of several
    /// recordings none: see `recordings`.
    pub reclaim_judged: Vec<ReclaimJudged>,
    /// Share of the allocations that others than the recorded command made, in percent; `None`
    /// where the recording is of no command, or does not tell its process.
    pub of_others_percent: Option<f64>,
    /// The same share of their pages.
    pub of_others_pages_percent: Option<f64>,
    /// What each recording says by itself.
    pub recordings: Vec<AdvisedOn>,
    /// The recording; of several, their names.
    pub trace: String,
    /// The recorded kernel's release.
    pub kernel_release: Option<String>,
    /// Rules of the recorded kernel.
    pub policy: &'static str,
    /// CPUs of the recorded machine.
    pub cpus: u32,
    /// Seconds of the part that is replayed; of several recordings the median.
    pub seconds: f64,
    /// Allocations of the trace; of several recordings the median.
    pub allocs: u64,
    /// Every number below is of the model; false where moves alone were recorded, so that nothing
    /// was tried.
    pub modelled: bool,
    /// Base of the contention; `None`: several recordings with prices of their own, see
    /// `recordings`.
    pub cost: Option<HoldCost>,
    /// The trace as it was recorded.
    pub recorded: Row,
    /// Best first.
    pub changes: Vec<Row>,
    /// Remarks for people.
    pub notes: Vec<String>,
    /// Properties that failed as recorded, in words.
    #[serde(skip)]
    pub faults: Vec<String>,
}

/// What one recording says by itself.
#[derive(Clone, Debug, Serialize)]
pub struct AdvisedOn {
    /// Its name.
    pub trace: String,
    /// What to do, by it alone.
    pub verdict: Verdict,
    /// Why, in words.
    pub reason: String,
    /// The setting that is worth trying by it alone.
    pub setting: Option<String>,
    /// Whether no host made it: then what is called measured is simulated.
    pub simulated: bool,
    /// What the allocator's waits and refills take of one CPU.
    pub cost_percent_of_cpu: f64,
    /// By how much the model is off.
    pub model_error_percent: ModelError,
    /// Modelled waits beside measured ones.
    pub wait_check: Option<WaitCheck>,
    /// Waits in it; `None`: not recorded.
    pub lock_waits: Option<LockWaits>,
    /// What reclaim cost in it; `None`: it does not say.
    pub reclaim: Option<ReclaimCost>,
    /// Stretches that no prediction covers.
    pub not_judged: Vec<NotJudged>,
    /// Stretches with reclaim that the model follows.
    pub reclaim_judged: Vec<ReclaimJudged>,
    /// Base of its contention.
    pub cost: Option<HoldCost>,
    /// Seconds of the part that is replayed.
    pub seconds: f64,
    /// Its allocations.
    pub allocs: u64,
    /// Of them, the share of others than the recorded command, in percent.
    pub of_others_percent: Option<f64>,
    /// The same share of their pages.
    pub of_others_pages_percent: Option<f64>,
}

impl Advice {
    /// Whether waits are modelled in every recording.
    pub fn has_waits(&self) -> bool {
        let mut checks = self.recordings.iter().flat_map(|one| &one.wait_check);
        checks.all(|check| check.is_modelled)
    }

    /// Its beginning.
    pub(super) fn alone(&self) -> AdvisedOn {
        let advice = self;
        AdvisedOn {
            trace: advice.trace.clone(),
            verdict: advice.verdict,
            reason: advice.reason.clone(),
            setting: advice.setting.clone(),
            simulated: advice.simulated,
            cost_percent_of_cpu: advice.cost_percent_of_cpu,
            model_error_percent: advice.model_error_percent,
            wait_check: advice.wait_check,
            lock_waits: advice.lock_waits.clone(),
            reclaim: advice.reclaim.clone(),
            not_judged: advice.not_judged.clone(),
            reclaim_judged: advice.reclaim_judged.clone(),
            cost: advice.cost.clone(),
            seconds: advice.seconds,
            allocs: advice.allocs,
            of_others_percent: advice.of_others_percent,
            of_others_pages_percent: advice.of_others_pages_percent,
        }
    }
}

/// Replays `recording` under each change of one thing.
///
/// # Errors
/// Bad input, with file and line, a name that no change has, a machine that cannot be rebuilt, or
/// [`ReplayError::Stopped`].
pub fn advise(
    recording: &Recording,
    options: &Options<'_>,
    watch: &mut Watch<'_>,
) -> Result<Advice, ReplayError> {
    let Measured { mut advice, case } = measure(recording, options, watch)?;
    (advice.verdict, advice.reason) = case.decide(&advice.changes);
    advice.setting = case.setting(advice.verdict, &advice.changes);
    advice.changes = row::joined(std::mem::take(&mut advice.changes));
    advice.recordings = vec![advice.alone()];
    Ok(advice)
}

/// What one recording says.
pub(super) struct Measured {
    /// Without a verdict, and equal rows apart.
    pub advice: Advice,
    pub case: Case,
}

pub(super) fn measure(
    recording: &Recording,
    options: &Options<'_>,
    watch: &mut Watch<'_>,
) -> Result<Measured, ReplayError> {
    let machine = recording.description();
    let policy = changes::policy_of(machine.kernel_release.as_deref());
    let settings = Settings::of(recording)?;
    let changes = changes::all(&settings, &policy, machine.nodes.len(), own_min_free(machine));
    let changes = selected(changes, options.only, machine)?;
    let what_if = WhatIf::new(recording, policy, options.limit, watch)?;
    let (cost, seconds) = (HoldCost::of_recording(machine)?, what_if.seconds());
    let base = Trial { policy, sysctls: Vec::new(), cpus: 1 };
    let as_recorded = what_if.run(&base, watch)?;
    let error = error_of(machine, &as_recorded.judged, &what_if.kernel().judged);
    let prices = Prices::new(cost, &what_if, &as_recorded);
    let contention = prices.contention(&as_recorded, 1, seconds);
    let recorded = Row::recorded(as_recorded.counts, contention, page_rules(machine));
    let modelled_us_per_s = recorded.contention.wait_us_per_s;
    let beside = Beside { what_if: &what_if, prices: &prices, error, recorded: &recorded };
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    for (place, change) in changes.into_iter().enumerate() {
        match beside.row(&base.with(&change), &change, watch) {
            Ok(row) => rows.push(Row { place, ..row }),
            Err(ReplayError::Stopped) => return Err(ReplayError::Stopped),
            Err(error) => notes.push(format!("{}: {}", change.name, chain(&error))),
        }
    }
    row::sort(&mut rows, &recorded);
    let kernels = prices.cost.work_us_per_s(what_if.kernel(), seconds);
    let waits = prices.check.measured_us_per_s.unwrap_or(modelled_us_per_s);
    let case = Case::new(&what_if, kernels + waits, &prices, error);
    let case = if machine.has_moves_alone() { of_moves(case, &what_if, recording)? } else { case };
    notes.extend(case.wrong.clone());
    notes.extend(remarks(&what_if, machine, &settings));
    notes.extend(unmeasured(&prices.cost, machine));
    notes.extend(as_recorded.faults.iter().map(|fault| format!("FAILED: {fault}")));
    let advice = Advice {
        schema_version: 2,
        verdict: Verdict::NotKnown,
        reason: String::new(),
        setting: None,
        simulated: machine.is_simulated,
        cost_percent_of_cpu: case.cost,
        wait_us_per_s: (waits * 1000.0).round() / 1000.0,
        modelled_wait_us_per_s: modelled_us_per_s,
        wait_check: (!case.has_moves_alone).then_some(prices.check),
        lock_waits: what_if.lock_waits().cloned(),
        reclaim: what_if.reclaim().map(Reclaim::cost),
        model_error_percent: error,
        not_judged: what_if.not_judged().to_vec(),
        reclaim_judged: what_if.reclaim_judged().to_vec(),
        of_others_percent: what_if.of_others().map(|share| share.allocs_percent),
        of_others_pages_percent: what_if.of_others().map(|share| share.pages_percent),
        recordings: Vec::new(),
        trace: machine.name.clone(),
        kernel_release: machine.kernel_release.clone(),
        policy: policy.name,
        cpus: what_if.cpus(),
        seconds,
        allocs: case.allocs,
        modelled: !case.has_moves_alone,
        cost: Some(prices.cost),
        recorded,
        changes: rows,
        notes,
        faults: as_recorded.faults,
    };
    Ok(Measured { advice, case })
}

/// What each trial is held against.
struct Beside<'a, 'r> {
    what_if: &'a WhatIf<'r>,
    prices: &'a Prices,
    error: ModelError,
    recorded: &'a Row,
}

impl Beside<'_, '_> {
    /// Runs a trial.
    fn row(
        &self,
        trial: &Trial,
        change: &Change,
        watch: &mut Watch<'_>,
    ) -> Result<Row, ReplayError> {
        let Beside { what_if, prices, error, recorded } = *self;
        let trialled = what_if.run(trial, watch)?;
        let contention = prices.contention(&trialled, change.cpus, what_if.seconds());
        let saved = prices.spent(&recorded.contention) - prices.spent(&contention);
        let of_marks = what_if.reclaim().map(|own| own.saving(&trial.sysctls));
        let savings = (prices.saving(saved, error), of_marks.unwrap_or_default());
        Ok(Row::new(change, (trialled.counts, contention), savings, recorded))
    }
}

/// The model's error, where there is anything to replay.
fn error_of(machine: &MachineDescription, model: &Moves, kernel: &Moves) -> ModelError {
    match machine.has_moves_alone() {
        true => ModelError::default(),
        false => ModelError::of(model, kernel),
    }
}

/// The case of a recording of moves alone.
fn of_moves(case: Case, what_if: &WhatIf<'_>, recording: &Recording) -> Result<Case, ReplayError> {
    // What came back that others had taken before says nothing of a setting now.
    let is_reclaimed = what_if.reclaim().is_some_and(|own| own.cost().reclaimed_pages > 0);
    let disk_wait = case.disk_wait.filter(|_| is_reclaimed);
    let allocs = allocated_pages(recording)?;
    Ok(Case { allocs, disk_wait, has_moves_alone: true, ..case })
}

/// Pages that the recorded host allocated, by the kernel's own count.
fn allocated_pages(recording: &Recording) -> Result<u64, ReplayError> {
    let files = recording.machine_files()?;
    let [before, after] = readings::vmstats(&files);
    let pages = |text: &str| readings::sum(text, |name| name.starts_with("pgalloc_"));
    Ok(pages(&after).saturating_sub(pages(&before)))
}

/// Says so where nobody timed the recorded host's kernel.
fn unmeasured(cost: &HoldCost, machine: &MachineDescription) -> Option<String> {
    (!cost.is_block_measured && !machine.is_simulated).then(|| UNMEASURED.to_owned())
}

/// What was not tried, and why.
fn remarks(what_if: &WhatIf<'_>, machine: &MachineDescription, settings: &Settings) -> Vec<String> {
    if machine.has_moves_alone() {
        return vec![MOVES_ALONE.to_owned()];
    }
    let nodes = machine.nodes.len();
    let mut notes = Vec::new();
    if nodes < 2 {
        notes.push("one node: zone_reclaim_mode changes nothing".to_owned());
    } else {
        let elsewhere = what_if.allocs_elsewhere();
        notes.push(format!("{elsewhere} allocations of the trace went to another node"));
    }
    if let Some(share) = what_if.of_others() {
        notes.push(format!(
            "{:.1} % of the allocations, {:.1} % of their pages, are of others than the recorded \
             command",
            share.allocs_percent, share.pages_percent
        ));
    }
    notes.extend(what_if.written());
    notes.extend(what_if.silence_note());
    notes.extend(what_if.lost_note());
    if settings.min_free_kbytes.is_none() {
        notes.push("the recording has no sysctl.txt: min_free_kbytes is not tried".to_owned());
    }
    notes
}

/// The changes whose names begin with one of `only`; all, if that is empty. Moves alone leave none
/// to try.
fn selected(
    mut changes: Vec<Change>,
    only: &[String],
    machine: &MachineDescription,
) -> Result<Vec<Change>, ReplayError> {
    let can_try = !machine.has_moves_alone();
    let begins = |change: &Change, name: &String| change.name.starts_with(name);
    if let Some(name) = only.iter().find(|name| !changes.iter().any(|c| begins(c, name))) {
        let there = changes.into_iter().map(|change| change.name).collect();
        return Err(ReplayError::NoSuchChange { name: name.clone(), there });
    }
    let is_wanted =
        |change: &Change| only.is_empty() || only.iter().any(|name| begins(change, name));
    changes.retain(|change| can_try && is_wanted(change));
    Ok(changes)
}

impl Trial {
    fn with(&self, change: &Change) -> Trial {
        let policy: Policy = change.policy.unwrap_or(self.policy);
        let mut sysctls = self.sysctls.clone();
        sysctls.retain(|(other, _)| !change.sysctls.iter().any(|(own, _)| own == other));
        sysctls.extend(&change.sysctls);
        Trial { policy, sysctls, cpus: change.cpus }
    }
}
