//! What other settings would have done with a recorded load.
//!
//! The trace is replayed on the recorded machine without memory, once as it was and once for each
//! change of one thing. Every number is of the model; `cost` computes contention from it.
//!
//! ```
//! use zonal_replay::advise::{Options, advise};
//!
//! let recording = zonal_trace::samples::zlib_make_j4()?;
//! let only = ["numa_stat".to_owned()];
//! let options = Options { limit: Some(10_000), only: &only };
//! let advice = advise(&recording, &options, &mut zonal_replay::unwatched)?;
//! assert_eq!(advice.changes[0].change, "numa_stat 0");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod changes;
mod cost;

use serde::Serialize;
use zonal_core::policy::Policy;
use zonal_trace::Recording;

use self::changes::Change;
pub use self::changes::policy_of;
pub use self::cost::{Contention, HoldCost};
use crate::error::ReplayError;
use crate::error::chain;
use crate::progress::Watch;
use crate::settings::Settings;
use crate::what_if::{Trial, Trialled, WhatIf};

/// A change is better or worse if its waiting or its holds differ by more than this, in percent.
const NOTABLE_PERCENT: f64 = 2.0;

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
    /// The recording.
    pub trace: String,
    /// The recorded kernel's release.
    pub kernel_release: Option<String>,
    /// Rules of the recorded kernel.
    pub policy: &'static str,
    /// CPUs of the recorded machine.
    pub cpus: u32,
    /// Seconds of the part that is replayed.
    pub seconds: f64,
    /// Allocations of the trace.
    pub allocs: u64,
    /// Every number below is of the model.
    pub modelled: bool,
    /// Base of the contention.
    pub cost: HoldCost,
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

/// Result of a trial.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The change.
    pub change: String,
    /// The line to type.
    pub command: Option<String>,
    /// Times a zone lock was taken.
    pub lock_holds: u64,
    /// Refills, one hold of the zone lock each.
    pub refills: u64,
    /// Pages that they took.
    pub refill_pages: u64,
    /// Holds of the zone lock by drains.
    pub drains: u64,
    /// Pages that they gave back.
    pub drain_pages: u64,
    /// Pages on all lists: the mean over the bins.
    pub list_pages_mean: u64,
    /// The most at the end of a bin.
    pub list_pages_max: u64,
    /// Allocations that were refused.
    pub refused: u64,
    /// Requests that took the slow path.
    pub slow_paths: u64,
    /// What its locks would cost.
    #[serde(flatten)]
    pub contention: Contention,
    /// Why it stands where it stands.
    pub reason: String,
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
    let machine = recording.description();
    let policy = changes::policy_of(machine.kernel_release.as_deref());
    let settings = Settings::of(recording)?;
    let changes = changes::all(&settings, &policy, machine.nodes.len());
    let changes = selected(changes, options.only)?;
    let what_if = WhatIf::new(recording, policy, options.limit, watch)?;
    let cost = HoldCost::of_lab()?;
    let seconds = what_if.seconds();
    let mut notes = Vec::new();
    let base = Trial { policy, sysctls: Vec::new(), cpus: 1 };
    let as_recorded = what_if.run(&base, watch)?;
    let faults = as_recorded.faults.clone();
    let recorded =
        Row::new("as recorded", None, &as_recorded, cost.contention(&as_recorded, 1, seconds));
    let mut rows = Vec::new();
    for change in changes {
        match what_if.run(&base.with(&change), watch) {
            Ok(trialled) => {
                let contention = cost.contention(&trialled, change.cpus, seconds);
                let mut row = Row::new(&change.name, change.command.clone(), &trialled, contention);
                row.times(change.cpus);
                row.reason = reason(&row, &recorded, &change);
                rows.push(row);
            }
            Err(ReplayError::Stopped) => return Err(ReplayError::Stopped),
            Err(error) => notes.push(format!("{}: {}", change.name, chain(&error))),
        }
    }
    rows.sort_by(|a, b| a.key(&recorded).total_cmp(&b.key(&recorded)));
    if machine.nodes.len() < 2 {
        notes.push("one node: zone_reclaim_mode changes nothing".to_owned());
    } else {
        let elsewhere = what_if.allocs_elsewhere();
        notes.push(format!("{elsewhere} allocations of the trace went to another node"));
    }
    if settings.min_free_kbytes.is_none() {
        notes.push("the recording has no sysctl.txt: min_free_kbytes is not tried".to_owned());
    }
    notes.extend(faults.iter().map(|fault| format!("FAILED: {fault}")));
    Ok(Advice {
        schema_version: 1,
        trace: machine.name.clone(),
        kernel_release: machine.kernel_release.clone(),
        policy: policy.name,
        cpus: what_if.cpus(),
        seconds,
        allocs: what_if.allocs(),
        modelled: true,
        cost,
        recorded,
        changes: rows,
        notes,
        faults,
    })
}

/// The changes whose names begin with one of `only`; all, if that is empty.
fn selected(mut changes: Vec<Change>, only: &[String]) -> Result<Vec<Change>, ReplayError> {
    let begins = |change: &Change, name: &String| change.name.starts_with(name);
    if let Some(name) = only.iter().find(|name| !changes.iter().any(|c| begins(c, name))) {
        let there = changes.into_iter().map(|change| change.name).collect();
        return Err(ReplayError::NoSuchChange { name: name.clone(), there });
    }
    changes.retain(|change| only.is_empty() || only.iter().any(|name| begins(change, name)));
    Ok(changes)
}

impl Trial {
    fn with(&self, change: &Change) -> Trial {
        let policy: Policy = change.policy.unwrap_or(self.policy);
        let mut sysctls = self.sysctls.clone();
        if let Some((sysctl, value)) = change.sysctl {
            sysctls.retain(|(other, _)| *other != sysctl);
            sysctls.push((sysctl, value));
        }
        Trial { policy, sysctls, cpus: change.cpus }
    }
}

impl Row {
    fn new(
        name: &str,
        command: Option<String>,
        trialled: &Trialled,
        contention: Contention,
    ) -> Row {
        Row {
            change: name.to_owned(),
            command,
            lock_holds: trialled.lock_holds,
            refills: trialled.refills,
            refill_pages: trialled.refill_pages,
            drains: trialled.drains,
            drain_pages: trialled.drain_pages,
            list_pages_mean: trialled.list_pages_mean,
            list_pages_max: trialled.list_pages_max,
            refused: trialled.refused,
            slow_paths: trialled.slow_paths,
            contention,
            reason: String::new(),
        }
    }

    /// All CPUs of a machine that has `times` as many.
    fn times(&mut self, times: u32) {
        let times = u64::from(times);
        for number in [
            &mut self.lock_holds,
            &mut self.refills,
            &mut self.refill_pages,
            &mut self.drains,
            &mut self.drain_pages,
            &mut self.list_pages_mean,
            &mut self.list_pages_max,
            &mut self.refused,
            &mut self.slow_paths,
        ] {
            *number *= times;
        }
    }

    /// Less is better: what is refused first, then waiting, then holds, then pages on lists.
    fn key(&self, recorded: &Row) -> f64 {
        let refused = self.refused.saturating_sub(recorded.refused) as f64;
        let waits = percent(self.contention.wait_us_per_s, recorded.contention.wait_us_per_s);
        let holds = percent(self.lock_holds as f64, recorded.lock_holds as f64);
        let pages = percent(self.list_pages_mean as f64, recorded.list_pages_mean as f64);
        refused * 1e12 + waits + holds / 1e3 + pages / 1e6
    }
}

/// By how much a number is larger than the recorded one, in percent of that.
fn percent(now: f64, recorded: f64) -> f64 {
    if recorded > 0.0 { (now - recorded) * 100.0 / recorded } else { now.min(1.0) * 100.0 }
}

/// Why a change stands where it stands.
fn reason(row: &Row, recorded: &Row, change: &Change) -> String {
    let holds = percent(row.lock_holds as f64, recorded.lock_holds as f64);
    let pages = row.list_pages_mean as i64 - recorded.list_pages_mean as i64;
    let mut parts = Vec::new();
    if row.refused > recorded.refused {
        parts.push(format!("refuses {} allocations", row.refused - recorded.refused));
    }
    if holds.abs() >= NOTABLE_PERCENT {
        parts.push(format!("{holds:+.0} % lock holds"));
    }
    if pages.unsigned_abs() * 50 > recorded.list_pages_mean {
        parts.push(format!("{:+.1} MiB on lists", pages as f64 / 256.0));
    }
    let what = match parts.is_empty() {
        true => "no notable difference for this load".to_owned(),
        false => parts.join(", "),
    };
    format!("{what}: {}", change.about)
}
