//! What the model says of a setting, from recordings of the load.

use serde::Serialize;
use zonal_core::alloc::Sysctl;
use zonal_trace::Recording;

use super::Run;
use super::interval::{Interval, range_of};
use crate::advise::{HoldCost, ModelError, Prices, Saving, policy_of};
use crate::error::ReplayError;
use crate::moves::Moves;
use crate::progress::Watch;
use crate::reclaim::{MarksSaving, Reclaim, RunTimes};
use crate::settings::Settings;
use crate::unjudged;
use crate::what_if::{Trial, Trialled, WhatIf};

/// Pages of 4 KiB.
const PAGES_OF_GIB: f64 = 262_144.0;

/// A setting that is tried, such as `vm.numa_stat=0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// The sysctl's name, `vm.` and all.
    pub name: String,
    /// The value to write.
    pub value: String,
    /// Entry by entry.
    sysctls: Vec<(Sysctl, i64)>,
}

impl Tried {
    /// Reads `vm.NAME=VALUE`.
    ///
    /// # Errors
    /// What was expected instead, in words.
    pub fn parse(text: &str) -> Result<Tried, String> {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| format!("`{text}`: expected vm.NAME=VALUE, such as vm.numa_stat=0"))?;
        let (name, value) = (name.trim(), value.trim());
        let known = name.strip_prefix("vm.").and_then(|short| Settings::written_by(short, value));
        let sysctls = known.ok_or_else(|| {
            let all: Vec<String> = Settings::names().map(|name| format!("vm.{name}")).collect();
            format!("`{name}`: the model follows {}", all.join(", "))
        })??;
        for (sysctl, number) in &sysctls {
            sysctl.check(*number).map_err(|error| {
                format!("{name} cannot be {number}: accepted are {}", error.accepted)
            })?;
        }
        let numbers: Vec<String> = sysctls.iter().map(|(_, number)| number.to_string()).collect();
        Ok(Tried { name: name.to_owned(), value: numbers.join(" "), sysctls })
    }

    /// Its file below `/proc/sys`.
    pub fn file(&self) -> String {
        self.name.replace('.', "/")
    }
}

/// What a kernel did in one run of the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Counts<T> {
    /// Pages from buddies to lists.
    pub refill_pages: T,
    /// Pages from lists to buddies.
    pub drain_pages: T,
    /// Holds of zone locks for both.
    pub lock_holds: T,
}

impl<T> Counts<T> {
    /// The same figures of something else.
    pub fn map<U>(self, to: impl Fn(T) -> U) -> Counts<U> {
        Counts {
            refill_pages: to(self.refill_pages),
            drain_pages: to(self.drain_pages),
            lock_holds: to(self.lock_holds),
        }
    }

    /// Both, figure by figure.
    pub fn with<U>(self, other: Counts<U>) -> Counts<(T, U)> {
        Counts {
            refill_pages: (self.refill_pages, other.refill_pages),
            drain_pages: (self.drain_pages, other.drain_pages),
            lock_holds: (self.lock_holds, other.lock_holds),
        }
    }
}

impl From<&Moves> for Counts<f64> {
    fn from(moves: &Moves) -> Counts<f64> {
        Counts {
            refill_pages: moves.refill_pages as f64,
            drain_pages: moves.drain_pages as f64,
            lock_holds: (moves.refill_holds + moves.drain_holds) as f64,
        }
    }
}

/// What the model says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Predicted {
    /// What is saved, in percent of one CPU.
    pub saving_percent_of_cpu: Interval,
    /// What is saved of the elapsed time, in percent: of waiting for disks, and of reclaiming and
    /// reading again what stays. Nothing where the recordings have no waits.
    pub saving_percent_of_time: Interval,
    /// What the host reads from its disks in a run with the setting, in GiB: over the recordings;
    /// `None` where they have no waits.
    pub read_gib: Option<Interval>,
    /// What it read in the recordings themselves.
    pub recorded_read_gib: Option<Interval>,
    /// Counts of a run with the setting: over the recordings.
    #[serde(flatten)]
    pub counts: Counts<Interval>,
    /// What the recordings were like themselves.
    pub recorded: Counts<Interval>,
    /// The model's largest error on them, in percent; `None`: nothing was moved.
    pub model_error_percent: Option<f64>,
    /// The largest share of their time that is not judged, in percent.
    pub not_judged_percent: f64,
}

/// What the kernel moved in a recording.
///
/// # Errors
/// Bad input, or [`ReplayError::Stopped`].
pub fn recorded_counts(
    recording: &Recording,
    watch: &mut Watch<'_>,
) -> Result<Counts<f64>, ReplayError> {
    let policy = policy_of(recording.description().kernel_release.as_deref());
    let what_if = WhatIf::new(recording, policy, None, watch)?;
    Ok(Counts::from(&what_if.kernel().moves))
}

/// Predicts from recordings of the load as it is, at least one. `run` is one as it is that was not
/// recorded, if the load ends by itself: recording makes it longer, and what is saved in it a
/// smaller part. What it waited for disks and did in the kernel is taken from it, too.
///
/// # Errors
/// Bad input, a value that the model's policy refuses, or [`ReplayError::Stopped`].
pub fn predict(
    recordings: &[Recording],
    tried: &Tried,
    run: Option<&Run>,
    watch: &mut Watch<'_>,
) -> Result<Predicted, ReplayError> {
    let mut all = Vec::new();
    for recording in recordings {
        all.push(of_one(recording, tried, run, watch)?);
    }
    let range = |figure: &dyn Fn(&One) -> f64| {
        range_of(&all.iter().map(figure).collect::<Vec<f64>>()).unwrap_or_default()
    };
    let counts = |which: fn(&One) -> Counts<f64>| Counts {
        refill_pages: range(&|one| which(one).refill_pages),
        drain_pages: range(&|one| which(one).drain_pages),
        lock_holds: range(&|one| which(one).lock_holds),
    };
    let has_reads = all.iter().all(|one| one.read.is_some());
    Ok(Predicted {
        saving_percent_of_cpu: over(all.iter().map(|one| one.saving)),
        saving_percent_of_time: over(all.iter().map(|one| one.of_time)),
        read_gib: has_reads.then(|| over(all.iter().filter_map(|one| Some(one.read?.1)))),
        recorded_read_gib: has_reads.then(|| range(&|one| one.read.map_or(0.0, |read| read.0))),
        counts: counts(|one| one.predicted),
        recorded: counts(|one| one.recorded),
        model_error_percent: all.iter().filter_map(|one| one.error.most).reduce(f64::max),
        not_judged_percent: range(&|one| one.not_judged * 100.0).high,
    })
}

/// The smallest low end, the middle one, the largest high end.
fn over(savings: impl Iterator<Item = Saving> + Clone) -> Interval {
    let of = |end: fn(Saving) -> f64| {
        range_of(&savings.clone().map(end).collect::<Vec<f64>>()).unwrap_or_default()
    };
    Interval {
        low: of(|one| one.low).low,
        mid: of(|one| one.mid).mid,
        high: of(|one| one.high).high,
    }
}

/// From one recording.
struct One {
    saving: Saving,
    of_time: Saving,
    /// GiB, as recorded and as predicted.
    read: Option<(f64, Saving)>,
    predicted: Counts<f64>,
    recorded: Counts<f64>,
    error: ModelError,
    not_judged: f64,
}

fn of_one(
    recording: &Recording,
    tried: &Tried,
    run: Option<&Run>,
    watch: &mut Watch<'_>,
) -> Result<One, ReplayError> {
    let machine = recording.description();
    let policy = policy_of(machine.kernel_release.as_deref());
    let what_if = WhatIf::with_files(recording, policy, watch)?;
    let seconds = what_if.seconds();
    let now = Trial { policy, sysctls: Vec::new(), cpus: 1 };
    let then = Trial { sysctls: tried.sysctls.clone(), ..now.clone() };
    let reclaim = what_if.reclaim();
    let (least, most) = reclaim.map_or((0.0, 0.0), |own| own.pages_kept(&then.sysctls));
    let (with_room, then_sysctls) = (what_if.run_with_room(&then, watch)?, then.sysctls.clone());
    let (now, then) = (what_if.run(&now, watch)?, what_if.run(&then, watch)?);
    // The trace itself says of each page whether it stays; shares of samples say how sure that is.
    let kept = with_room.as_ref().map_or(0.0, |(_, pages)| *pages as f64);
    let read = reclaim.and_then(Reclaim::read_gib).map(|read| {
        let left = |pages: f64| (read - pages / PAGES_OF_GIB).max(0.0);
        (read, Saving { low: left(most.max(kept)), mid: left(kept), high: left(least.min(kept)) })
    });
    let prices = Prices::new(HoldCost::of_recording(machine)?, &what_if, &now);
    let error = ModelError::of(&now.judged, &what_if.kernel().judged);
    let spent = |trialled: &Trialled| prices.spent(&prices.contention(trialled, 1, seconds));
    let recorded = Counts::from(&what_if.kernel().moves);
    let of_model = |trialled: &Trialled| Counts {
        refill_pages: trialled.counts.refill_pages as f64,
        drain_pages: trialled.counts.drain_pages as f64,
        lock_holds: (trialled.counts.refills + trialled.counts.drains) as f64,
    };
    // What the model is off by, it is off by in both runs of the same program.
    let scaled = |(recorded, (now, then)): (f64, (f64, f64))| match now > 0.0 && recorded > 0.0 {
        true => recorded * then / now,
        false => then,
    };
    // What is saved in the recording's seconds is saved in those of a run.
    let run_s = run.map(|run| run.elapsed_s).filter(|run_s| *run_s > 0.0);
    let longer = run_s.map_or(1.0, |run_s| seconds / run_s);
    let stay = with_room.as_ref().map_or(0, |(_, pages)| *pages);
    let times = run.and_then(times_of);
    let of_marks = reclaim.map(|own| own.saving_in(&then_sysctls, stay, times));
    let MarksSaving { of_cpu, of_time } = of_marks.unwrap_or_default();
    // What its waits and the kernel took of the run is of the run already.
    let of_cpu = if times.is_some() { of_cpu } else { of_cpu.times(longer) };
    let saving = prices.saving(spent(&now) - spent(&then), error).times(longer).plus(of_cpu);
    Ok(One {
        saving,
        of_time,
        read,
        predicted: match &with_room {
            // Most of what it is off by under reclaim lies in moves that are not in this run.
            Some((trialled, _)) => of_model(trialled),
            None => recorded.with(of_model(&now).with(of_model(&then))).map(scaled),
        },
        recorded,
        error,
        not_judged: unjudged::share(what_if.not_judged(), seconds),
    })
}

/// What a run as it is took, if it was measured.
fn times_of(run: &Run) -> Option<RunTimes> {
    let Run { elapsed_s, times, .. } = *run;
    Some(RunTimes { elapsed_s, times: times? }).filter(|run| run.elapsed_s > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal_core::types::ZoneKind;

    #[test]
    fn settings_are_those_that_the_model_follows() {
        let tried = Tried::parse("vm.percpu_pagelist_high_fraction=8").unwrap();
        assert_eq!(tried.file(), "vm/percpu_pagelist_high_fraction");
        assert!(Tried::parse("vm.min_free_kbytes=67584").is_ok());
        let several = Tried::parse("vm.lowmem_reserve_ratio=256\t128 32  0 0").unwrap();
        assert_eq!((several.value.as_str(), several.sysctls.len()), ("256 128 32 0 0", 5));
        assert_eq!(several.sysctls[1], (Sysctl::LowmemReserveRatio(ZoneKind::Dma32), 128));
        for (text, expected) in [
            ("numa_stat", "expected vm.NAME=VALUE"),
            ("numa_stat=0", "the model follows vm."),
            ("vm.swappiness=10", "the model follows vm."),
            ("vm.../../kernel/panic=10", "the model follows vm."),
            ("vm.numa_stat=off", "expected a whole number"),
            ("vm.numa_stat=2", "vm.numa_stat cannot be 2: accepted are 0 and 1"),
            ("vm.percpu_pagelist_high_fraction=7", "accepted are 0, and 8 to 2147483647"),
            ("vm.watermark_scale_factor=3001", "accepted are 1 to 3000"),
            (
                "vm.lowmem_reserve_ratio=",
                "expected numbers for vm.lowmem_reserve_ratio with blanks",
            ),
            ("vm.lowmem_reserve_ratio=256 off", "such as '256 256 32 0 0'"),
            ("vm.min_free_kbytes=-1", "accepted are 0 to 2147483647"),
        ] {
            let error = Tried::parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    fn predict_seconds(recording: &Recording) -> f64 {
        let policy = policy_of(recording.description().kernel_release.as_deref());
        WhatIf::new(recording, policy, None, &mut crate::unwatched).unwrap().seconds()
    }

    #[test]
    fn larger_lists_are_predicted_to_need_fewer_holds() {
        let recording = [zonal_trace::samples::zlib_make_j4().unwrap()];
        let tried = Tried::parse("vm.percpu_pagelist_high_fraction=8").unwrap();
        let predicted = predict(&recording, &tried, None, &mut crate::unwatched).unwrap();
        assert!(predicted.counts.lock_holds.mid < predicted.recorded.lock_holds.mid);
        assert!(predicted.saving_percent_of_cpu.mid > 0.0);
        // A run that takes half as long has the same moves in it.
        let elapsed_s = predict_seconds(&recording[0]) / 2.0;
        let half = Run { elapsed_s, ..Run::default() };
        let in_half = predict(&recording, &tried, Some(&half), &mut crate::unwatched).unwrap();
        let times = in_half.saving_percent_of_cpu.mid / predicted.saving_percent_of_cpu.mid;
        assert!((times - 2.0).abs() < 0.01, "{times}");
        assert_eq!(in_half.counts, predicted.counts);
        let kernel = recorded_counts(&recording[0], &mut crate::unwatched).unwrap();
        // A recording of before there were waits promises no time.
        assert_eq!(predicted.saving_percent_of_time, Interval::default());
        assert_eq!((predicted.read_gib, predicted.recorded_read_gib), (None, None));
        assert_eq!(predicted.recorded.refill_pages.mid, kernel.refill_pages);
        // The setting that it has already changes nothing.
        let same = Tried::parse("vm.percpu_pagelist_high_fraction=0").unwrap();
        let same = predict(&recording, &same, None, &mut crate::unwatched).unwrap();
        assert_eq!(same.counts, same.recorded);
        assert_eq!(same.saving_percent_of_cpu.mid, 0.0);
    }
}
