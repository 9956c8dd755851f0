//! Several recordings of one load: one advice, with the range over them.

use zonal_trace::{MachineDescription, Recording};

use super::changes::policy_of;
use super::one::{Advice, AdvisedOn, Measured, Options, advise, measure};
use super::row::{self, Row, median};
use super::saving::{ModelError, Saving};
use super::verdict::{Case, Verdict};
use crate::error::ReplayError;
use crate::progress::Watch;
use crate::settings::Settings;
use crate::zones::page_rules;

/// Machines with memory that differs by more than this share are two: memory may come and go.
const MEMORY_MAX: f64 = 0.25;

/// Advice from all `recordings` of one load, made on one machine: medians, and of savings the whole
/// range. Those that say nothing by themselves are left out, with a note; so is said which are one.
///
/// # Errors
/// As [`advise()`](advise), and recordings that do not fit together.
pub fn advise_all(
    recordings: &[Recording],
    options: &Options<'_>,
    watch: &mut Watch<'_>,
) -> Result<Advice, ReplayError> {
    let (first, others) = match recordings {
        [] => return Err(ReplayError::NoRecording),
        [one] => return advise(one, options, watch),
        [first, others @ ..] => (first, others),
    };
    others.iter().try_for_each(|other| fits(first, other))?;
    let all: Result<Vec<Measured>, ReplayError> =
        recordings.iter().map(|recording| measure(recording, options, watch)).collect();
    let mut advice = together(&all?);
    advice.notes.splice(0..0, equal(recordings));
    Ok(advice)
}

/// Remarks about recordings that are given more than once.
fn equal(recordings: &[Recording]) -> Vec<String> {
    let anonymous = |recording: &Recording| MachineDescription {
        name: String::new(),
        ..recording.description().clone()
    };
    let described: Vec<MachineDescription> = recordings.iter().map(anonymous).collect();
    let first = |at: usize| (0..at).find(|first| described[*first] == described[at]);
    let equal = (0..recordings.len()).filter_map(|at| Some((first(at)?, at)));
    let name = |at: usize| &recordings[at].description().name;
    let told = equal.map(|(first, at)| {
        format!(
            "recordings {} ({}) and {} ({}) are the same one: it counts more than once",
            first + 1,
            name(first),
            at + 1,
            name(at)
        )
    });
    told.collect()
}

/// Whether two recordings can be of one load on one machine under the same settings.
fn fits(first: &Recording, other: &Recording) -> Result<(), ReplayError> {
    let (a, b) = (first.description(), other.description());
    let policy = policy_of(a.kernel_release.as_deref());
    let settings = |recording: &Recording| -> Result<String, ReplayError> {
        let all = Settings::of(recording)?.recorded(&policy);
        let all: Vec<String> =
            all.into_iter().map(|(name, _, value)| format!("{name}={value}")).collect();
        Ok(if all.is_empty() { "the kernel's own settings".to_owned() } else { all.join(" ") })
    };
    let release = |release: &Option<String>| release.clone().unwrap_or("unknown".to_owned());
    let pages = |machine: &MachineDescription| -> u64 {
        machine.zones.iter().map(|zone| zone.present).sum()
    };
    let recorded = |machine: &MachineDescription| match machine.has_moves_alone() {
        true => "moves alone".to_owned(),
        false => "allocations and frees too".to_owned(),
    };
    let cpus = |cpus: Option<u32>| cpus.map_or("unknown".to_owned(), |cpus| cpus.to_string());
    let (of_a, of_b) = (pages(a), pages(b));
    let is_other_memory = of_a.abs_diff(of_b) as f64 > MEMORY_MAX * of_a.max(of_b) as f64;
    let differing = [
        ("kernel", release(&a.kernel_release), release(&b.kernel_release)),
        ("number of CPUs", cpus(a.cpus), cpus(b.cpus)),
        ("number of nodes", a.nodes.len().to_string(), b.nodes.len().to_string()),
        ("settings", settings(first)?, settings(other)?),
        ("what was recorded", recorded(a), recorded(b)),
    ]
    .into_iter()
    .find(|(_, of_first, of_other)| of_first != of_other)
    .or_else(|| {
        let mib =
            |machine, pages: u64| format!("{} MiB", (page_rules(machine).kbytes() * pages) >> 10);
        is_other_memory.then(|| ("memory", mib(a, of_a), mib(b, of_b)))
    });
    let Some((what, expected, found)) = differing else { return Ok(()) };
    let (first, other) = (a.name.clone(), b.name.clone());
    Err(ReplayError::OtherMachine { first, other, what, expected, found })
}

fn together(all: &[Measured]) -> Advice {
    let recordings: Vec<AdvisedOn> = all
        .iter()
        .map(|Measured { advice, case }| {
            let (verdict, reason) = case.decide(&advice.changes);
            let setting = case.setting(verdict, &advice.changes);
            AdvisedOn { verdict, reason, setting, ..advice.alone() }
        })
        .collect();
    let (notes, faults) = remarks(all);
    let (mut known, mut unknown): (Vec<&Measured>, Vec<&Measured>) =
        all.iter().partition(|one| one.case.says_nothing().is_none());
    let says_nothing = known.is_empty();
    if says_nothing {
        std::mem::swap(&mut known, &mut unknown);
    }
    let recorded: Vec<&Row> = known.iter().map(|one| &one.advice.recorded).collect();
    let recorded = Row { reason: String::new(), ..Row::together(&recorded, &Row::default(), 0) };
    let rows = rows(&known, &unknown, &recorded);
    let middle = |figure: fn(&Measured) -> f64| median(known.iter().map(|one| figure(one)));
    let case = joint_case(&known);
    let (verdict, reason) = match says_nothing {
        true => case.by_reclaim(&rows).unwrap_or_else(|| {
            let all: Vec<String> =
                recordings.iter().map(|one| format!("{}: {}", one.trace, one.reason)).collect();
            (Verdict::NotKnown, all.join("; "))
        }),
        false => case.decide(&rows),
    };
    let names: Vec<&str> = recordings.iter().map(|one| one.trace.as_str()).collect();
    let of_others = |percent: fn(&Advice) -> Option<f64>| {
        let all: Vec<f64> = known.iter().filter_map(|one| percent(&one.advice)).collect();
        (!all.is_empty()).then(|| median(all.into_iter()))
    };
    // At least two were measured, and one part of them is not empty.
    let first = &known[0].advice;
    let is_one_cost = known.iter().all(|one| one.advice.cost == first.cost);
    Advice {
        schema_version: first.schema_version,
        verdict,
        reason,
        setting: case.setting(verdict, &rows),
        simulated: known.iter().any(|one| one.advice.simulated),
        cost_percent_of_cpu: case.cost,
        wait_us_per_s: middle(|one| one.advice.wait_us_per_s),
        modelled_wait_us_per_s: middle(|one| one.advice.modelled_wait_us_per_s),
        wait_check: None,
        lock_waits: None,
        reclaim: None,
        model_error_percent: case.error,
        not_judged: Vec::new(),
        reclaim_judged: Vec::new(),
        of_others_percent: of_others(|advice| advice.of_others_percent),
        of_others_pages_percent: of_others(|advice| advice.of_others_pages_percent),
        trace: names.join(", "),
        kernel_release: first.kernel_release.clone(),
        policy: first.policy,
        cpus: first.cpus,
        seconds: middle(|one| one.advice.seconds),
        allocs: middle(|one| one.advice.allocs as f64).round() as u64,
        recordings,
        modelled: !case.has_moves_alone,
        cost: first.cost.clone().filter(|_| is_one_cost),
        recorded,
        changes: row::joined(rows),
        notes,
        faults,
    }
}

/// What the recordings as one are judged by: medians, and the largest error of the model.
fn joint_case(known: &[&Measured]) -> Case {
    let middle = |figure: fn(&Measured) -> f64| median(known.iter().map(|one| figure(one)));
    let most = |one: &&&Measured| one.case.error.most.unwrap_or(f64::INFINITY);
    let costs: Vec<Saving> = known.iter().filter_map(|one| one.case.reclaim).collect();
    let all_have = costs.len() == known.len();
    let waits: Vec<f64> = known.iter().filter_map(|one| one.case.disk_wait).collect();
    let worst = known.iter().max_by(|a, b| most(a).total_cmp(&most(b)));
    Case {
        not_judged: Vec::new(),
        seconds: middle(|one| one.case.seconds),
        allocs: known.iter().map(|one| one.case.allocs).min().unwrap_or(0),
        cost: middle(|one| one.case.cost),
        unmodelled: middle(|one| one.case.unmodelled),
        price_most: known.iter().map(|one| one.case.price_most).fold(1.0, f64::max),
        error: worst.map_or(ModelError::default(), |one| one.case.error),
        reclaim: all_have.then(|| super::row::over(costs.iter().copied())),
        disk_wait: (!waits.is_empty()).then(|| median(waits.iter().copied())),
        of_rings: known.iter().find_map(|one| one.case.of_rings.clone()),
        wrong: known.iter().find_map(|one| one.case.wrong.clone()),
        has_moves_alone: known.iter().all(|one| one.case.has_moves_alone),
    }
}

/// Notes and faults of all, each with the name of its recording.
fn remarks(all: &[Measured]) -> (Vec<String>, Vec<String>) {
    let (mut notes, mut faults) = (Vec::new(), Vec::new());
    for Measured { advice, case } in all {
        let name = &advice.trace;
        let left_out = case.says_nothing().map(|why| format!("left out: {why}"));
        let own = left_out.iter().chain(&advice.notes).map(|note| format!("{name}: {note}"));
        notes.extend(own);
        faults.extend(advice.faults.iter().map(|fault| format!("{name}: {fault}")));
    }
    (notes, faults)
}

/// Each change that was tried on all recordings, whose medians as recorded are `recorded`. Of those
/// in `left_out`, only what it refuses counts.
fn rows(all: &[&Measured], left_out: &[&Measured], recorded: &Row) -> Vec<Row> {
    let Some(first) = all.first() else { return Vec::new() };
    let mut rows: Vec<Row> = first
        .advice
        .changes
        .iter()
        .filter_map(|change| {
            let same = |one: &&Measured| {
                one.advice.changes.iter().position(|row| row.change == change.change)
            };
            let places: Option<Vec<usize>> = all.iter().map(same).collect();
            let of_all: Vec<&Row> =
                all.iter().zip(places?).map(|(one, place)| &one.advice.changes[place]).collect();
            let elsewhere = left_out.iter().flat_map(|one| &one.advice.changes);
            let elsewhere = elsewhere.filter(|row| row.change == change.change);
            let refused = elsewhere.map(|row| row.refused_more).max().unwrap_or(0);
            Some(Row::together(&of_all, recorded, refused))
        })
        .collect();
    row::sort(&mut rows, recorded);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::unwatched;
    use zonal_trace::samples;

    fn few_options(only: &[String]) -> Options<'_> {
        Options { limit: Some(30_000), only }
    }

    #[test]
    fn recordings_that_are_the_same_have_no_range_beyond_their_own() {
        let only = ["numa_stat".to_owned(), "watermark_scale_factor".to_owned()];
        let recordings = [samples::zlib_make_j4().unwrap(), samples::zlib_make_j4().unwrap()];
        let both = advise_all(&recordings, &few_options(&only), &mut unwatched).unwrap();
        let one = advise(&recordings[0], &few_options(&only), &mut unwatched).unwrap();
        assert_eq!(both.verdict, one.verdict);
        assert_eq!(both.recordings.len(), 2);
        assert_eq!(both.allocs, one.allocs);
        assert!((both.seconds - one.seconds).abs() < 1e-3, "a median is rounded");
        let same = both.notes.iter().any(|note| note.contains("are the same one"));
        assert!(same, "{:?}", both.notes);
        assert_eq!(both.cost_percent_of_cpu, one.cost_percent_of_cpu);
        let savings = |advice: &Advice| -> Vec<_> {
            advice.changes.iter().map(|row| (row.change.clone(), row.counts)).collect()
        };
        assert_eq!(savings(&both), savings(&one));
        assert_eq!(both.trace, format!("{0}, {0}", one.trace));
    }

    /// Parts of one recording: the first has short lists and few holds.
    fn parts() -> [Measured; 3] {
        let only = ["percpu_pagelist_high_fraction".to_owned(), "numa_stat".to_owned()];
        let recording = samples::zlib_make_j4().unwrap();
        [10_000, 30_000, 20_000].map(|events| {
            let options = Options { limit: Some(events), only: &only };
            measure(&recording, &options, &mut unwatched).unwrap()
        })
    }

    #[test]
    fn recordings_give_the_same_advice_in_any_order() {
        let [a, b, c] = parts();
        assert!([&a, &b, &c].iter().all(|one| one.case.says_nothing().is_none()));
        let said = |advice: &Advice| {
            let rows = advice.changes.iter().map(|row| (row, &row.same_as));
            let rows: Vec<String> = rows.map(|row| format!("{row:?}")).collect();
            (advice.reason.clone(), rows)
        };
        let in_order = [a, b, c];
        let first = together(&in_order);
        let [a, b, c] = in_order;
        let second = together(&[c, a, b]);
        assert_eq!(said(&first), said(&second));
        // What changes nothing in any of them says so of all.
        let is_it = |name: &String| name.starts_with("numa_stat");
        let mut rows = first.changes.iter();
        let unchanged = rows.find(|row| is_it(&row.change) || row.same_as.iter().any(is_it));
        let unchanged = unchanged.unwrap();
        assert!(unchanged.reason.starts_with("no notable difference"), "{}", unchanged.reason);
        assert_eq!(unchanged.counts.list_pages_mean, first.recorded.counts.list_pages_mean);
    }

    #[test]
    fn what_only_one_recording_says_stands_under_its_own_name() {
        let mut parts = parts();
        let cost = parts[0].advice.cost.clone();
        let both = together(&parts);
        assert!(both.wait_check.is_none() && both.lock_waits.is_none());
        assert!(both.not_judged.is_empty() && both.reclaim_judged.is_empty());
        assert_eq!((&both.cost, both.has_waits()), (&cost, true), "the same prices in all");
        for (one, part) in both.recordings.iter().zip(&parts) {
            assert!(one.wait_check.is_some());
            assert_eq!(one.wait_check, part.advice.wait_check);
            assert_eq!(one.lock_waits, part.advice.lock_waits);
            assert_eq!(one.reclaim_judged, part.advice.reclaim_judged);
        }
        assert_eq!(both.allocs, parts[2].advice.allocs, "the median");
        assert!((both.seconds - parts[2].advice.seconds).abs() < 1e-3, "rounded");
        parts[1].advice.cost.as_mut().unwrap().hold_ns += 1.0;
        parts[1].advice.wait_check.as_mut().unwrap().is_modelled = false;
        let other = together(&parts);
        assert_eq!((other.cost.is_none(), other.has_waits()), (true, false));
        assert_eq!(other.recordings[0].cost, cost);
    }

    #[test]
    fn no_recording_is_an_error_and_one_is_itself() {
        let only = ["numa_stat".to_owned()];
        let none = advise_all(&[], &few_options(&only), &mut unwatched);
        assert!(matches!(none, Err(ReplayError::NoRecording)));
        let recordings = [samples::zlib_make_j4().unwrap()];
        let one = advise_all(&recordings, &few_options(&only), &mut unwatched).unwrap();
        assert_eq!(one.recordings.len(), 1);
    }

    #[test]
    fn a_recording_that_says_nothing_is_left_out_and_named() {
        let only = ["numa_stat".to_owned()];
        let recording = samples::zlib_make_j4().unwrap();
        let few = measure(&recording, &Options { limit: Some(1000), only: &only }, &mut unwatched);
        let enough = measure(&recording, &few_options(&only), &mut unwatched);
        let (few, enough) = (few.unwrap(), enough.unwrap());
        assert!(few.case.says_nothing().is_some() && enough.case.says_nothing().is_none());
        let cost = enough.advice.cost_percent_of_cpu;
        let both = together(&[few, enough]);
        assert_ne!(both.verdict, Verdict::NotKnown);
        assert_eq!(both.cost_percent_of_cpu, cost);
        assert!(both.notes.iter().any(|note| note.contains("left out")), "{:?}", both.notes);
    }
}
