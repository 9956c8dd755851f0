//! One line of advice: a change, what it came to, and what that is worth.

use std::borrow::Cow;

use serde::Serialize;
use zonal_core::types::PageRules;

use super::changes::Change;
use super::cost::Contention;
use super::saving::{Saving, WORTH_PERCENT};
use crate::reclaim::MarksSaving;
use crate::verify::range_of;
use crate::what_if::TrialCounts;

/// A change is better or worse if its waiting or its holds differ by more than this, in percent.
const NOTABLE_PERCENT: f64 = 2.0;
/// A change that saves less than it loses, by more than this in percent of a CPU, is worse.
const NOTABLE_CPU_PERCENT: f64 = 0.01;
/// What longer lists cost beside what is counted: pages come back from them colder. Found by runs
/// of the lab with and without the advised setting (`results/2026-11-23-python-2.md`). No recording
/// has what its own caches would do.
const CACHES: &str = "what longer lists cost in caches; of 20 simulated hosts with such a change a \
                      call took 15 to 64 % more cycles on 6, and 0.2 to 36 % fewer on 14, so \
                      measure before and after";

/// What one trial came to.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Row {
    /// What was changed.
    pub change: String,
    /// The line to type; none for what is not worth it, or is no setting.
    pub command: Option<String>,
    /// What was counted.
    #[serde(flatten)]
    pub counts: TrialCounts,
    /// What its locks would cost.
    #[serde(flatten)]
    pub contention: Contention,
    /// Why it stands where it stands.
    pub reason: String,
    /// The sysctl and its value, if it is one.
    pub setting: Option<String>,
    /// What it saves.
    pub saving_percent_of_cpu: Saving,
    /// Of it, what it saves of reclaim and of reading pages of files again.
    pub reclaim_saving_percent_of_cpu: Saving,
    /// What it saves of waiting for disks, in percent of the recording's time; nothing where the
    /// recording has no waits.
    pub saving_percent_of_time: Saving,
    /// Holds of zone locks against the recorded ones, in percent.
    pub lock_holds_percent: f64,
    /// Memory that lists hold more at worst.
    pub memory_mib_worst: f64,
    /// A cost that no figure here counts, if lists hold more.
    pub not_counted: Option<String>,
    /// Other changes with the same numbers.
    pub same_as: Vec<String>,
    /// It refuses more, or costs notably more.
    pub is_worse: bool,
    /// Its place among the changes that are tried, for those that are equally good.
    #[serde(skip)]
    pub(super) place: usize,
    /// Whether it is what the kernel has by itself.
    #[serde(skip)]
    pub(super) is_own: bool,
    /// Allocations that it refuses and that were not refused as recorded; of several recordings, in
    /// the worst one.
    #[serde(skip)]
    pub(super) refused_more: u64,
    /// What else it changes.
    #[serde(skip)]
    pub about: String,
    /// The size of a page.
    #[serde(skip)]
    pub(super) page: PageRules,
}

/// The line that sets it.
fn command(setting: &str) -> String {
    format!("sysctl {}", quoted(setting))
}

/// A setting as one word of a shell: one of several numbers in quotes.
pub(crate) fn quoted(setting: &str) -> Cow<'_, str> {
    match setting.contains(' ') {
        true => Cow::Owned(format!("'{setting}'")),
        false => Cow::Borrowed(setting),
    }
}

impl Row {
    /// The trace as it was recorded.
    pub(super) fn recorded(counts: TrialCounts, contention: Contention, page: PageRules) -> Row {
        Row { change: "as recorded".to_owned(), counts, contention, page, ..Row::default() }
    }

    /// MiB of pages.
    fn mib(&self, pages: f64) -> f64 {
        pages * self.page.kbytes() as f64 / 1024.0
    }

    /// A change beside the recorded run.
    pub(super) fn new(
        change: &Change,
        (counts, contention): (TrialCounts, Contention),
        (of_lists, of_marks): (Saving, MarksSaving),
        recorded: &Row,
    ) -> Row {
        let MarksSaving { of_cpu: of_reclaim, of_time } = of_marks;
        let saving = of_lists.plus(of_reclaim);
        let counts = counts.times(change.cpus);
        let holds = percent(counts.lock_holds as f64, recorded.counts.lock_holds as f64);
        let more = counts.list_pages_max.saturating_sub(recorded.counts.list_pages_max);
        let refused_more = counts.refused.saturating_sub(recorded.counts.refused);
        let is_worse = is_worse(refused_more, (saving, of_time), holds);
        let is_worth = of_lists.mid >= WORTH_PERCENT || of_time.low >= WORTH_PERCENT;
        let mut row = Row {
            change: change.name.clone(),
            // What is saved of reclaim's processor time begins at nothing.
            command: change.setting.as_deref().filter(|_| !is_worse && is_worth).map(command),
            counts,
            contention,
            setting: change.setting.clone(),
            saving_percent_of_cpu: saving,
            reclaim_saving_percent_of_cpu: of_reclaim,
            saving_percent_of_time: of_time,
            lock_holds_percent: (holds * 100.0).round() / 100.0,
            memory_mib_worst: (recorded.mib(more as f64) * 100.0).round() / 100.0,
            is_worse,
            is_own: change.is_own,
            refused_more,
            about: change.about.clone(),
            ..Row::default()
        };
        row.tell(recorded, holds);
        row
    }

    /// Says why it stands where it stands, and what is not counted.
    fn tell(&mut self, recorded: &Row, holds: f64) {
        self.reason = reason(self, recorded, holds);
        let (counts, before) = (&self.counts, &recorded.counts);
        let is_more = |now: u64, before: u64| percent(now as f64, before as f64) > NOTABLE_PERCENT;
        let is_longer = is_more(counts.list_pages_mean, before.list_pages_mean)
            || is_more(counts.list_pages_max, before.list_pages_max);
        self.not_counted = is_longer.then(|| CACHES.to_owned());
    }

    /// The same change in several recordings: medians, of savings the whole range, of memory and
    /// refusals the worst. `refused_elsewhere`: what it refuses more in those that are left out,
    /// because memory that is refused in any is a reason against it.
    pub(super) fn together(rows: &[&Row], recorded: &Row, refused_elsewhere: u64) -> Row {
        let Some(first) = rows.first() else { return Row::default() };
        let middle = |figure: &dyn Fn(&Row) -> f64| median(rows.iter().map(|row| figure(row)));
        let saving = over(rows.iter().map(|row| row.saving_percent_of_cpu));
        let of_time = over(rows.iter().map(|row| row.saving_percent_of_time));
        let refused_more = rows.iter().map(|row| row.refused_more).max();
        let refused_more = refused_more.unwrap_or(0).max(refused_elsewhere);
        let holds = middle(&|row| row.lock_holds_percent);
        let mut row = Row {
            change: first.change.clone(),
            counts: middle_counts(rows),
            contention: Contention {
                busy_percent_max: middle(&|row| row.contention.busy_percent_max),
                contended_percent: middle(&|row| row.contention.contended_percent),
                wait_us_per_s: middle(&|row| row.contention.wait_us_per_s),
                work_us_per_s: middle(&|row| row.contention.work_us_per_s),
            },
            setting: first.setting.clone(),
            saving_percent_of_cpu: saving,
            reclaim_saving_percent_of_cpu: over(
                rows.iter().map(|row| row.reclaim_saving_percent_of_cpu),
            ),
            saving_percent_of_time: of_time,
            lock_holds_percent: holds,
            memory_mib_worst: rows.iter().map(|row| row.memory_mib_worst).fold(0.0, f64::max),
            is_worse: is_worse(refused_more, (saving, of_time), holds),
            place: rows.iter().map(|row| row.place).min().unwrap_or(0),
            is_own: first.is_own,
            refused_more,
            about: first.about.clone(),
            ..Row::default()
        };
        let of_lists = saving.mid - row.reclaim_saving_percent_of_cpu.mid;
        let is_worth = of_lists >= WORTH_PERCENT || of_time.low >= WORTH_PERCENT;
        let setting = row.setting.as_deref().filter(|_| is_worth && !row.is_worse);
        row.command = setting.map(command);
        row.tell(recorded, holds);
        row
    }

    /// Less is better: what is refused first, then waiting for disks and what reclaim costs, time
    /// for zone locks, holds, pages on lists.
    fn key(&self, recorded: &Row) -> f64 {
        let refused = self.refused_more as f64;
        let spent = |row: &Row| row.contention.wait_us_per_s + row.contention.work_us_per_s;
        let spent = percent(spent(self), spent(recorded));
        let holds = percent(self.counts.lock_holds as f64, recorded.counts.lock_holds as f64);
        let (now, before) = (self.counts.list_pages_mean, recorded.counts.list_pages_mean);
        let pages = percent(now as f64, before as f64);
        let reclaim = self.reclaim_saving_percent_of_cpu.mid + self.saving_percent_of_time.mid;
        refused * 1e12 - reclaim * 1e6 + spent + holds / 1e3 + pages / 1e6
    }

    /// Whether another setting came to the same in every number.
    fn is_same(&self, other: &Row) -> bool {
        self.setting.is_some()
            && other.setting.is_some()
            && self.counts == other.counts
            && self.contention == other.contention
            && self.saving_percent_of_cpu == other.saving_percent_of_cpu
            && self.saving_percent_of_time == other.saving_percent_of_time
            && self.refused_more == other.refused_more
    }
}

/// The whole range of some savings, with their median.
pub(super) fn over(savings: impl Iterator<Item = Saving> + Clone) -> Saving {
    let low = savings.clone().map(|saving| saving.low).fold(f64::INFINITY, f64::min);
    let high = savings.clone().map(|saving| saving.high).fold(f64::NEG_INFINITY, f64::max);
    Saving { low, mid: median(savings.map(|saving| saving.mid)), high }
}

/// The best first.
pub(super) fn sort(rows: &mut [Row], recorded: &Row) {
    let key = |row: &Row| row.key(recorded);
    rows.sort_by(|a, b| key(a).total_cmp(&key(b)).then(a.place.cmp(&b.place)));
}

/// Whether a change refuses more, or costs notably more and saves no waiting. `saving`: of a CPU,
/// and of the time.
fn is_worse(refused_more: u64, (saving, of_time): (Saving, Saving), holds: f64) -> bool {
    let costs_more =
        saving.mid < -NOTABLE_CPU_PERCENT || (saving.mid <= 0.0 && holds > NOTABLE_PERCENT);
    refused_more > 0 || (costs_more && of_time.low < WORTH_PERCENT)
}

/// The middle one of some figures, or between the two in the middle.
pub(super) fn median(figures: impl Iterator<Item = f64>) -> f64 {
    range_of(&figures.collect::<Vec<f64>>()).map_or(0.0, |range| range.mid)
}

fn middle_counts(rows: &[&Row]) -> TrialCounts {
    let middle = |figure: fn(&TrialCounts) -> u64| {
        median(rows.iter().map(|row| figure(&row.counts) as f64)).round() as u64
    };
    TrialCounts {
        lock_holds: middle(|counts| counts.lock_holds),
        refills: middle(|counts| counts.refills),
        refill_pages: middle(|counts| counts.refill_pages),
        drains: middle(|counts| counts.drains),
        drain_pages: middle(|counts| counts.drain_pages),
        list_pages_mean: middle(|counts| counts.list_pages_mean),
        list_pages_max: middle(|counts| counts.list_pages_max),
        refused: rows.iter().map(|row| row.counts.refused).max().unwrap_or(0),
        slow_paths: middle(|counts| counts.slow_paths),
    }
}

/// Makes one row of those that are equal, the first one's.
pub(super) fn joined(rows: Vec<Row>) -> Vec<Row> {
    let mut joined: Vec<Row> = Vec::new();
    for row in rows {
        match joined.iter_mut().find(|first| first.is_same(&row)) {
            Some(first) => first.same_as.push(row.change),
            None => joined.push(row),
        }
    }
    joined
}

/// By how much a number is larger than the recorded one, in percent of that.
fn percent(now: f64, recorded: f64) -> f64 {
    if recorded > 0.0 { (now - recorded) * 100.0 / recorded } else { now.min(1.0) * 100.0 }
}

/// Why a change stands where it stands.
fn reason(row: &Row, recorded: &Row, holds: f64) -> String {
    let (counts, before) = (&row.counts, &recorded.counts);
    let pages = counts.list_pages_mean as i64 - before.list_pages_mean as i64;
    let mut parts = Vec::new();
    if row.refused_more > 0 {
        parts.push(format!("refuses {} allocations", row.refused_more));
    }
    if holds.abs() >= NOTABLE_PERCENT {
        parts.push(format!("{holds:+.0} % lock holds"));
    }
    if pages.unsigned_abs() * 50 > before.list_pages_mean {
        parts.push(format!("{:+.1} MiB on lists", recorded.mib(pages as f64)));
    }
    if row.saving_percent_of_time.mid >= WORTH_PERCENT {
        parts.push(format!("{:.1} % of the time less waiting", row.saving_percent_of_time.mid));
    }
    let what = match parts.is_empty() {
        true => "no notable difference for this load".to_owned(),
        false => parts.join(", "),
    };
    format!("{what}: {}", row.about)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(setting: &str, lock_holds: u64) -> Row {
        let counts = TrialCounts { lock_holds, ..TrialCounts::default() };
        let setting = Some(setting.to_owned()).filter(|setting| !setting.is_empty());
        let change = setting.clone().unwrap_or_default();
        Row { change, setting, counts, ..Row::default() }
    }

    #[test]
    fn a_change_in_several_recordings_has_medians_and_the_whole_range() {
        let of = |holds, mid: f64, memory_mib_worst| Row {
            saving_percent_of_cpu: Saving { low: mid / 2.0, mid, high: mid * 2.0 },
            memory_mib_worst,
            about: "about".to_owned(),
            ..row("vm.numa_stat=0", holds)
        };
        let rows = [of(10, 3.0, 1.0), of(30, 1.0, 9.0), of(20, 2.0, 4.0)];
        let together = Row::together(&rows.iter().collect::<Vec<_>>(), &row("", 100), 0);
        assert_eq!(together.counts.lock_holds, 20);
        assert_eq!(together.saving_percent_of_cpu, Saving { low: 0.5, mid: 2.0, high: 6.0 });
        assert_eq!(together.memory_mib_worst, 9.0);
        assert_eq!(together.command.as_deref(), Some("sysctl vm.numa_stat=0"));
        assert_eq!(Row::together(&[], &row("", 100), 0).change, "");
    }

    #[test]
    fn what_refuses_memory_in_any_recording_is_worse_in_all() {
        let of = |refused_more| Row {
            saving_percent_of_cpu: Saving { low: 1.0, mid: 2.0, high: 3.0 },
            counts: TrialCounts { refused: refused_more, ..TrialCounts::default() },
            refused_more,
            ..row("vm.min_free_kbytes=67584", 50)
        };
        let together = |all: &[Row], elsewhere| {
            Row::together(&all.iter().collect::<Vec<_>>(), &row("", 100), elsewhere)
        };
        let (fine, refuses) = (together(&[of(0), of(0)], 0), together(&[of(0), of(1000)], 0));
        assert!(!fine.is_worse && fine.command.is_some());
        let of_three = together(&[of(0), of(0), of(7)], 0);
        let left_out = together(&[of(0), of(0)], 3);
        for (row, more) in [(refuses, 1000), (of_three, 7), (left_out, 3)] {
            assert!(row.is_worse && row.command.is_none(), "{row:?}");
            assert!(row.reason.contains(&format!("refuses {more} allocations")), "{row:?}");
            assert!(row.key(&Row::default()) > fine.key(&Row::default()));
        }
    }

    #[test]
    fn equal_settings_are_one_row_and_machines_are_not() {
        let rows = joined(vec![row("a", 5), row("", 5), row("b", 5), row("c", 6), row("d", 5)]);
        let told: Vec<(&str, usize)> =
            rows.iter().map(|row| (row.change.as_str(), row.same_as.len())).collect();
        assert_eq!(told, [("a", 2), ("", 0), ("c", 0)]);
        assert_eq!(rows[0].same_as, ["b", "d"]);
    }

    #[test]
    fn longer_lists_say_that_caches_are_not_counted() {
        let of = |list_pages_mean, list_pages_max| {
            let counts = TrialCounts { list_pages_mean, list_pages_max, ..TrialCounts::default() };
            Row { counts, ..row("vm.percpu_pagelist_high_fraction=8", 10) }
        };
        let recorded = of(1000, 2000);
        for (mean, max, is_told) in [(1000, 2000, false), (900, 2000, false), (1100, 2000, true)] {
            let rows = [of(mean, max), of(mean, max)];
            let row = Row::together(&rows.iter().collect::<Vec<_>>(), &recorded, 0);
            assert_eq!(row.not_counted.is_some(), is_told, "{row:?}");
        }
        let row = Row::together(&[&of(1000, 2100)], &recorded, 0);
        assert!(row.not_counted.is_some_and(|told| told.contains("caches")));
    }

    #[test]
    fn what_is_worse_has_no_command() {
        let change = Change {
            name: "numa_stat 0".to_owned(),
            setting: Some("vm.numa_stat=0".to_owned()),
            policy: None,
            sysctls: Vec::new(),
            is_own: false,
            cpus: 1,
            about: "about".to_owned(),
        };
        let recorded = row("", 100);
        let of = |holds, mid| {
            let counts = TrialCounts { lock_holds: holds, ..TrialCounts::default() };
            let saving = Saving { low: mid, mid, high: mid };
            let saving = (saving, MarksSaving::default());
            Row::new(&change, (counts, Contention::default()), saving, &recorded)
        };
        let better = of(50, 0.6);
        assert_eq!(better.command.as_deref(), Some("sysctl vm.numa_stat=0"));
        assert_eq!((better.setting.as_deref(), better.is_worse), (Some("vm.numa_stat=0"), false));
        let little = of(50, 0.1);
        assert_eq!((little.command, little.is_worse), (None, false), "it saves next to nothing");
        for worse in [of(150, -0.5), of(150, 0.0)] {
            assert_eq!((worse.command, worse.is_worse), (None, true));
        }
        // More holds, and less waiting for the disk, is better all the same.
        let of_time = Saving { low: 10.0, mid: 20.0, high: 30.0 };
        let counts = TrialCounts { lock_holds: 150, ..TrialCounts::default() };
        let saving = (Saving::default(), MarksSaving { of_time, ..MarksSaving::default() });
        let waits = Row::new(&change, (counts, Contention::default()), saving, &recorded);
        assert!(waits.command.is_some() && !waits.is_worse);
        assert!(waits.reason.contains("20.0 % of the time less waiting"), "{}", waits.reason);
        let several = Row::together(&[&waits, &waits], &recorded, 0);
        assert_eq!((several.saving_percent_of_time, several.command), (of_time, waits.command));
    }
}
