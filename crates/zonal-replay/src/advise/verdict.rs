//! What to do, said first.
//!
//! What the allocator costs is counted by the kernel's own moves in the recording; what another
//! setting saves is the difference of two runs of the model, at the same prices. Below half a
//! percent of one CPU nothing is worth a change: a measurement could not tell it from noise.

use serde::Serialize;

use super::cost::Prices;
use super::row::{Row, quoted};
use super::saving::{ModelError, Saving, WORTH_PERCENT};
use crate::reclaim::Reclaim;
use crate::unjudged::{self, NotJudged};
use crate::what_if::WhatIf;

/// A model that is further off, in percent, predicts nothing.
const ERROR_MAX_PERCENT: f64 = 25.0;
/// Where more of the time than this cannot be judged, nothing is predicted.
const NOT_JUDGED_MAX: f64 = 0.05;
/// Fewer allocations say nothing about a load.
const ALLOCS_MIN: u64 = 1000;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Verdict {
    /// No setting saves anything that counts.
    #[serde(rename = "change nothing")]
    ChangeNothing,
    /// One does, by the model.
    #[serde(rename = "worth trying")]
    WorthTrying,
    /// The recording or the model does not tell.
    #[serde(rename = "not known")]
    NotKnown,
}

impl Verdict {
    /// As it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::ChangeNothing => "change nothing",
            Verdict::WorthTrying => "worth trying",
            Verdict::NotKnown => "not known",
        }
    }
}

/// What a verdict rests on: one recording, or several together.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub not_judged: Vec<NotJudged>,
    pub seconds: f64,
    pub allocs: u64,
    /// What the allocator's waits and refills take, in percent of a CPU.
    pub cost: f64,
    /// Of it, measured waits that the model does not have, so that no saving counts them.
    pub unmodelled: f64,
    /// How many times too low the prices of `cost` may be.
    pub price_most: f64,
    pub error: ModelError,
    /// What reclaim takes, where that is known.
    pub reclaim: Option<Saving>,
    /// Time in which some task waited for a disk, in percent, where that is known.
    pub disk_wait: Option<f64>,
    /// What the recorder's own rings account for, in words.
    pub of_rings: Option<String>,
    /// A setting that is wrong on its face, in words.
    pub wrong: Option<String>,
    /// Only moves between lists and buddies were recorded: no setting can be tried by the model.
    pub has_moves_alone: bool,
}

impl Case {
    /// One recording; `cost` is what the allocator's waits and refills take of each second, in µs.
    pub(super) fn new(
        what_if: &WhatIf<'_>,
        cost: f64,
        Prices { cost: of_hold, check }: &Prices,
        error: ModelError,
    ) -> Case {
        let waits = check.measured_us_per_s.filter(|_| !check.is_modelled);
        Case {
            not_judged: what_if.not_judged().to_vec(),
            seconds: what_if.seconds(),
            allocs: what_if.allocs(),
            cost: (cost / 1e4 * 1e4).round() / 1e4,
            unmodelled: waits.unwrap_or(0.0) / 1e4,
            price_most: of_hold.most(),
            error,
            reclaim: what_if.reclaim().map(|reclaim| reclaim.cost().percent_of_cpu),
            disk_wait: what_if.reclaim().and_then(Reclaim::disk_wait_percent),
            of_rings: what_if.reclaim().and_then(Reclaim::of_rings),
            wrong: what_if.reclaim().and_then(Reclaim::wrong),
            has_moves_alone: false,
        }
    }

    /// Why the recording says nothing about the load, if so.
    pub(super) fn says_nothing(&self) -> Option<String> {
        let Case { ref not_judged, seconds, error, .. } = *self;
        if self.has_moves_alone {
            return None;
        }
        let share = unjudged::share(not_judged, seconds);
        if share > NOT_JUDGED_MAX && !self.is_little() {
            let mut why: Vec<&str> = not_judged.iter().flat_map(|n| n.reason.split("; ")).collect();
            why.sort_unstable();
            why.dedup();
            let percent = share * 100.0;
            return Some(format!(
                "{percent:.0} % of the time cannot be judged: {}",
                why.join("; ")
            ));
        }
        let is_silent = error.most.is_none().then(|| {
            "the recording has no refill and no drain, so nothing says what the \
             allocator costs here; `zonal record` records them, as do the events \
             kmem:mm_page_alloc_zone_locked and kmem:mm_page_pcpu_drain"
                .to_owned()
        });
        self.too_few().or(is_silent)
    }

    /// Whether the recording is too short to say anything, in words.
    fn too_few(&self) -> Option<String> {
        let Case { seconds, allocs, has_moves_alone, .. } = *self;
        let counted = if has_moves_alone { "pages were allocated" } else { "allocations" };
        (allocs < ALLOCS_MIN).then(|| {
            format!(
                "too few events: {allocs} {counted} in {seconds:.1} s, at least {ALLOCS_MIN} are \
                 needed; record for longer"
            )
        })
    }

    /// The most that the kernel may have spent on its lists and on reclaim, in percent of a CPU.
    fn spent_most(&self) -> f64 {
        self.cost * self.price_most + self.reclaim.unwrap_or_default().high
    }

    /// Whether all that the kernel spent on its lists and on reclaim, which is measured, is not
    /// worth a change, so that no setting is, whatever the model says.
    fn is_little(&self) -> bool {
        self.reclaim.is_some() && self.spent_most() < WORTH_PERCENT
    }

    /// What is known by reclaim alone, which the model of the lists has no part in.
    pub(super) fn by_reclaim(&self, rows: &[Row]) -> Option<(Verdict, String)> {
        let reclaim = self.reclaim.filter(|_| self.allocs >= ALLOCS_MIN)?;
        if let Some(reason) = self.by_waits(rows, reclaim) {
            return Some((Verdict::WorthTrying, reason));
        }
        let best = best(usable(rows), |row| row.reclaim_saving_percent_of_cpu)?;
        let of_best = best.reclaim_saving_percent_of_cpu;
        let high = of_best.at_most(reclaim.high).high;
        (high >= WORTH_PERCENT).then(|| {
            let facts = self.facts();
            let setting = best.setting.as_deref().unwrap_or_default();
            let reason = format!(
                "{}; {setting} may save up to {high:.2} %, or nothing, which the recording cannot \
                 tell: `zonal verify --setting {}` can{facts}",
                self.reclaim_costs(),
                quoted(setting)
            );
            (Verdict::NotKnown, reason)
        })
    }

    /// The setting that saves most of the time that is waited for disks, if that is worth a change.
    fn best_by_waits<'r>(&self, rows: &'r [Row]) -> Option<&'r Row> {
        self.reclaim.filter(|_| self.allocs >= ALLOCS_MIN)?;
        let worth = usable(rows).filter(|row| row.saving_percent_of_time.low >= WORTH_PERCENT);
        best(worth, |row| row.saving_percent_of_time)
    }

    /// The setting that `verdict` names as worth trying.
    pub(super) fn setting(&self, verdict: Verdict, rows: &[Row]) -> Option<String> {
        if verdict != Verdict::WorthTrying {
            return None;
        }
        let named = self.best_by_waits(rows).or_else(|| named_of_cpu(rows))?;
        named.setting.clone()
    }

    /// Why that setting is worth trying.
    fn by_waits(&self, rows: &[Row], reclaim: Saving) -> Option<String> {
        let best = self.best_by_waits(rows)?;
        let Saving { low, mid, high } = best.saving_percent_of_time;
        let of_cpu = best.reclaim_saving_percent_of_cpu.at_most(reclaim.high).high;
        let mut more = self.facts();
        let whole = best.saving_percent_of_cpu;
        if whole.mid < 0.0 {
            more.push_str(&format!(
                "; by the model of the lists it costs {:.2} % of a CPU (up to {:.2})",
                -whole.mid, -whole.low
            ));
        }
        if best.memory_mib_worst >= 0.1 {
            more.push_str(&format!("; at worst {:.1} MiB more on lists", best.memory_mib_worst));
        }
        more.extend(best.not_counted.iter().map(|what| format!("; not counted: {what}")));
        Some(format!(
            "{}: saves {mid:.1} % of the elapsed time ({low:.1} to {high:.1}), because less is \
             read again: {:.1} % of the time some task waited for a disk here; of a CPU up to \
             {of_cpu:.2} %, or nothing{more}; {}",
            best.setting.as_deref().unwrap_or_default(),
            self.disk_wait.unwrap_or(0.0),
            best.about,
        ))
    }

    /// What else is known of reclaim.
    fn facts(&self) -> String {
        self.wrong.iter().chain(&self.of_rings).map(|fact| format!("; {fact}")).collect()
    }

    fn reclaim_costs(&self) -> String {
        let Some(Saving { low, high, .. }) = self.reclaim else { return String::new() };
        format!(
            "reclaim, and reading again what it took, cost {low:.2} to {high:.2} % of a CPU here"
        )
    }

    fn worth(&self, row: &Row, Saving { low, mid, high }: Saving) -> String {
        let mut reason = format!(
            "{}: saves {mid:.2} % of a CPU ({low:.2} to {high:.2}), {:.2} CPU seconds of \
             this recording; at worst {:.1} MiB more on lists; {}",
            row.setting.as_deref().unwrap_or_default(),
            mid / 100.0 * self.seconds,
            row.memory_mib_worst,
            row.about,
        );
        reason.extend(row.not_counted.iter().map(|what| format!("; not counted: {what}")));
        reason
    }

    /// Decides by what the kernel moved, where no setting can be tried: none saves more than all
    /// that the allocator and reclaim cost.
    fn by_moves(&self) -> (Verdict, String) {
        let Case { cost, price_most, disk_wait, .. } = *self;
        if let Some(reason) = self.too_few() {
            return (Verdict::NotKnown, reason);
        }
        let costs = format!(
            "the allocator's waits and refills cost {cost:.3} % of a CPU here (at most {:.3})",
            cost * price_most
        );
        let of_reclaim = self.reclaim.unwrap_or_default();
        let is_little = self.spent_most() < WORTH_PERCENT;
        // Little of a CPU may be much of a disk's time.
        let is_waited_for = of_reclaim.high > 0.0 && disk_wait.unwrap_or(0.0) >= WORTH_PERCENT;
        if is_little && !is_waited_for && self.wrong.is_none() {
            return (
                Verdict::ChangeNothing,
                format!("{costs}, and no setting saves more than that"),
            );
        }
        let mut parts = vec![costs];
        if of_reclaim.high >= WORTH_PERCENT / 100.0 {
            parts.push(self.reclaim_costs());
        }
        if is_waited_for {
            parts.push(format!(
                "some task waited for a disk {:.1} % of the time, and what was reclaimed was read \
                 again",
                disk_wait.unwrap_or(0.0)
            ));
        }
        parts.extend(self.wrong.clone());
        parts.push(
            "what a setting saves of it is not known without allocations and frees: record \
             without --moves, in windows (--every, --for) where that costs too much"
                .to_owned(),
        );
        (Verdict::NotKnown, parts.join("; "))
    }

    /// Decides. `rows` are all changes that were tried.
    pub(super) fn decide(&self, rows: &[Row]) -> (Verdict, String) {
        if self.has_moves_alone {
            return self.by_moves();
        }
        if let Some(known) = self.by_reclaim(rows) {
            return known;
        }
        if let Some(reason) = self.says_nothing() {
            let costs = self.reclaim.filter(|reclaim| reclaim.high >= WORTH_PERCENT);
            let costs = costs.map_or(String::new(), |_| format!("; {}", self.reclaim_costs()));
            return (Verdict::NotKnown, format!("{reason}{costs}{}", self.facts()));
        }
        let Case { cost, price_most, error, .. } = *self;
        let off = error.most.unwrap_or(0.0);
        let best = best_of_cpu(rows);
        // No setting saves more than all of it.
        let all = cost.max(0.0) + self.reclaim.map_or(0.0, |reclaim| reclaim.mid);
        let most = best.map_or(0.0, |row| row.saving_percent_of_cpu.mid).clamp(0.0, all);
        let mut costs = format!(
            "the allocator's waits and refills cost {cost:.3} % of a CPU here, at most {most:.3} % \
             can be saved"
        );
        if self.reclaim.is_some_and(|reclaim| reclaim.high >= WORTH_PERCENT) {
            costs.push_str(&format!("; {}, and no setting saves that", self.reclaim_costs()));
            costs.extend(self.of_rings.iter().map(|fact| format!("; {fact}")));
        }
        if cost * price_most < WORTH_PERCENT {
            return (Verdict::ChangeNothing, costs);
        }
        if off > ERROR_MAX_PERCENT {
            let reason = format!(
                "the model is off by {off:.0} % on this recording; {costs}, if it were right"
            );
            return (Verdict::NotKnown, reason);
        }
        match named_of_cpu(rows).filter(|_| most >= WORTH_PERCENT) {
            None if self.unmodelled >= WORTH_PERCENT => {
                let reason = format!(
                    "{costs}; but {:.3} % of a CPU are waits that the model does not have, so \
                     what a setting saves of them is not known{}",
                    self.unmodelled,
                    best.and_then(|row| row.setting.as_deref()).map_or(String::new(), |setting| {
                        format!(": `zonal verify --setting {}` tells of one", quoted(setting))
                    })
                );
                (Verdict::NotKnown, reason)
            }
            None => (Verdict::ChangeNothing, costs),
            Some(row) => {
                let saving = row.saving_percent_of_cpu.at_most(all);
                (Verdict::WorthTrying, self.worth(row, saving))
            }
        }
    }
}

/// Settings that are not worse.
fn usable(rows: &[Row]) -> impl Iterator<Item = &Row> {
    rows.iter().filter(|row| !row.is_worse && row.setting.is_some())
}

/// The row whose saving is the largest. Of those that are equally good the first: the kernel's own
/// choice is before others, and equal rows become one under the first one's name.
fn best<'r>(rows: impl Iterator<Item = &'r Row>, saving: fn(&Row) -> Saving) -> Option<&'r Row> {
    rows.max_by(|a, b| saving(a).mid.total_cmp(&saving(b).mid).then(b.place.cmp(&a.place)))
}

/// The usable setting that saves most of a CPU, worth it or not.
fn best_of_cpu(rows: &[Row]) -> Option<&Row> {
    best(usable(rows), |row| row.saving_percent_of_cpu)
}

/// The setting that is named for what it saves of a CPU: the best, or what the kernel has by itself
/// where that may save as much. The longest lists save a little more than lists that tune
/// themselves, and may hold several times the memory.
fn named_of_cpu(rows: &[Row]) -> Option<&Row> {
    let best_row = best_of_cpu(rows)?;
    let least = best_row.saving_percent_of_cpu.low.max(WORTH_PERCENT);
    let own = usable(rows).filter(|row| row.is_own && row.saving_percent_of_cpu.mid >= least);
    Some(best(own, |row| row.saving_percent_of_cpu).unwrap_or(best_row))
}

#[cfg(test)]
mod tests {
    use super::super::saving::PRICE_FACTOR;
    use super::*;

    fn off_by(percent: f64) -> ModelError {
        ModelError { most: Some(percent), ..ModelError::default() }
    }

    fn case(cost: f64) -> Case {
        let error = off_by(1.0);
        Case {
            not_judged: Vec::new(),
            seconds: 10.0,
            allocs: 50_000,
            cost,
            unmodelled: 0.0,
            price_most: PRICE_FACTOR,
            error,
            reclaim: None,
            of_rings: None,
            disk_wait: None,
            wrong: None,
            has_moves_alone: false,
        }
    }

    fn saves(us_per_s: f64) -> Vec<Row> {
        let saving = Saving::new(us_per_s, case(0.0).error, PRICE_FACTOR);
        vec![Row {
            change: "numa_stat 0".to_owned(),
            setting: Some("vm.numa_stat=0".to_owned()),
            saving_percent_of_cpu: saving,
            ..Row::default()
        }]
    }

    #[test]
    fn by_moves_alone_little_is_nothing_and_more_is_not_known() {
        let by = |change: fn(&mut Case)| {
            let mut case =
                Case { has_moves_alone: true, error: ModelError::default(), ..case(0.1) };
            change(&mut case);
            let (verdict, reason) = case.decide(&[]);
            (verdict == Verdict::ChangeNothing, reason)
        };
        let (is_nothing, reason) = by(|_| ());
        assert!(is_nothing && reason.contains("cost 0.100 % of a CPU here (at most 0.150)"));
        // Prices may be too low, reclaim costs too, and whoever waits for a disk pays in time.
        let reclaim = |high| Some(Saving { low: 0.0, mid: 0.0, high });
        assert!(!by(|case| case.cost = 0.4).0);
        assert!(!by(|case| case.reclaim = Some(Saving { low: 0.1, mid: 0.2, high: 0.4 })).0);
        let waits = |case: &mut Case| case.disk_wait = Some(30.0);
        assert!(by(waits).0, "not to read what was reclaimed");
        assert!(by(|case| case.allocs = 999).1.starts_with("too few events"));
        let mut waiting = Case { has_moves_alone: true, reclaim: reclaim(0.01), ..case(0.0) };
        waits(&mut waiting);
        assert_eq!(waiting.decide(&[]).0, Verdict::NotKnown);
    }

    #[test]
    fn below_half_a_percent_of_a_cpu_nothing_is_changed() {
        let (verdict, reason) = case(0.03).decide(&saves(200.0));
        assert_eq!(verdict, Verdict::ChangeNothing);
        assert!(reason.contains("cost 0.030 % of a CPU here, at most 0.020 %"), "{reason}");
        let (verdict, _) = case(5.0).decide(&saves(4000.0));
        assert_eq!(verdict, Verdict::ChangeNothing, "much is spent, and nothing saves it");
        // What is little by prices that may be three times too low may be much.
        let off = Case { error: off_by(60.0), ..case(0.3) };
        assert_eq!(off.decide(&saves(200.0)).0, Verdict::ChangeNothing);
        let unmeasured = Case { price_most: 3.0, ..off };
        assert_eq!(unmeasured.decide(&saves(200.0)).0, Verdict::NotKnown);
    }

    #[test]
    fn a_setting_that_saves_more_is_worth_trying() {
        let (verdict, reason) = case(5.0).decide(&saves(20_000.0));
        assert_eq!(verdict, Verdict::WorthTrying);
        assert!(reason.starts_with("vm.numa_stat=0: saves 2.00 % of a CPU (1.32 to "), "{reason}");
        assert!(!reason.contains("not counted"), "{reason}");
        let rows = saves(20_000.0);
        let named = case(5.0).setting(verdict, &rows);
        assert_eq!(named.as_deref(), Some("vm.numa_stat=0"));
        assert_eq!(case(5.0).setting(Verdict::ChangeNothing, &rows), None);
        let other = Row { setting: Some("x=1".to_owned()), place: 1, ..rows[0].clone() };
        let two = [rows[0].clone(), other];
        assert!(case(5.0).decide(&two).1.starts_with("vm.numa_stat=0: "), "the first of equals");
        let mut longer = saves(20_000.0);
        longer[0].not_counted = Some("longer lists".to_owned());
        let (_, reason) = case(5.0).decide(&longer);
        assert!(reason.ends_with("; not counted: longer lists"), "{reason}");
        let mut worse = saves(20_000.0);
        worse[0].is_worse = true;
        assert_eq!(case(5.0).decide(&worse).0, Verdict::ChangeNothing);
    }

    #[test]
    fn what_the_kernel_has_by_itself_is_named_where_it_may_save_as_much() {
        let row = |setting: &str, mid: f64, is_own| Row {
            setting: Some(setting.to_owned()),
            saving_percent_of_cpu: Saving { low: mid / 1.5, mid, high: mid * 1.5 },
            is_own,
            ..Row::default()
        };
        let named = |own: f64| {
            let rows = [row("fraction=8", 3.0, false), row("fraction=0", own, true)];
            let (verdict, reason) = case(5.0).decide(&rows);
            let named = case(5.0).setting(verdict, &rows);
            assert!(reason.starts_with(named.as_deref().unwrap_or_default()), "{reason}");
            (verdict, named)
        };
        let worth = |setting: &str| (Verdict::WorthTrying, Some(setting.to_owned()));
        assert_eq!(named(2.5), worth("fraction=0"));
        assert_eq!(named(1.5), worth("fraction=8"), "it saves clearly less");
        let little = [row("fraction=8", 0.6, false), row("fraction=0", 0.45, true)];
        assert_eq!(case(5.0).setting(Verdict::WorthTrying, &little), Some("fraction=8".to_owned()));
    }

    #[test]
    fn waits_that_the_model_does_not_have_may_be_what_a_setting_saves() {
        let unmodelled = Case { unmodelled: 4.5, ..case(5.0) };
        let (verdict, reason) = unmodelled.decide(&saves(200.0));
        assert_eq!(verdict, Verdict::NotKnown);
        assert!(reason.contains("4.500 % of a CPU are waits that the model"), "{reason}");
        assert!(reason.contains("`zonal verify --setting vm.numa_stat=0`"), "{reason}");
        assert_eq!(unmodelled.decide(&saves(20_000.0)).0, Verdict::WorthTrying);
        let few = Case { unmodelled: 0.02, ..case(5.0) };
        assert_eq!(few.decide(&saves(200.0)).0, Verdict::ChangeNothing);
    }

    #[test]
    fn what_cannot_be_judged_is_not_known() {
        let stretch = NotJudged { from_s: 1.0, to_s: 9.0, reason: "reclaim: direct".to_owned() };
        let reclaim = Case { not_judged: vec![stretch], ..case(5.0) };
        let (verdict, reason) = reclaim.decide(&saves(20_000.0));
        assert_eq!(verdict, Verdict::NotKnown);
        assert_eq!(reason, "80 % of the time cannot be judged: reclaim: direct");
        let few = Case { allocs: 10, ..case(5.0) };
        assert!(few.decide(&saves(20_000.0)).1.contains("too few events"));
        let without = Case { error: ModelError::default(), ..case(0.0) };
        let (verdict, reason) = without.decide(&saves(0.0));
        assert_eq!(verdict, Verdict::NotKnown);
        assert!(reason.contains("has no refill and no drain"), "{reason}");
        let wrong = Case { error: off_by(60.0), ..case(5.0) };
        let (verdict, reason) = wrong.decide(&saves(20_000.0));
        assert_eq!(verdict, Verdict::NotKnown);
        assert!(reason.contains("off by 60 %"), "{reason}");
    }

    /// A setting that saves this much of reclaim.
    fn of_reclaim(low: f64, mid: f64, high: f64) -> Vec<Row> {
        let saving = Saving { low, mid, high };
        vec![Row {
            setting: Some("vm.min_free_kbytes=67584".to_owned()),
            saving_percent_of_cpu: saving,
            reclaim_saving_percent_of_cpu: saving,
            ..Row::default()
        }]
    }

    /// All of the time is not judged.
    fn under_reclaim(reclaim: Saving) -> Case {
        let stretch = NotJudged { from_s: 0.0, to_s: 10.0, reason: "reclaim: direct".to_owned() };
        let wrong = Some("vm.min_free_kbytes is 186 times too much".to_owned());
        Case { not_judged: vec![stretch], reclaim: Some(reclaim), wrong, ..case(0.1) }
    }

    #[test]
    fn what_reclaim_costs_decides_where_the_lists_cannot_be_judged() {
        let cost = Saving { low: 20.0, mid: 30.0, high: 60.0 };
        let (verdict, reason) = under_reclaim(cost).decide(&of_reclaim(0.0, 20.0, 80.0));
        assert_eq!(verdict, Verdict::NotKnown);
        let expected = "vm.min_free_kbytes=67584 may save up to 60.00 %, or nothing";
        assert!(reason.contains(expected), "{reason}");
        assert!(reason.contains("186 times too much"), "{reason}");
        let (verdict, reason) = under_reclaim(cost).decide(&of_reclaim(0.0, 0.0, 0.0));
        assert_eq!(verdict, Verdict::NotKnown, "the lists cannot be judged, nor are they all");
        assert!(reason.contains("reclaim: direct; reclaim, and reading again"), "{reason}");
    }

    #[test]
    fn waiting_that_a_setting_saves_is_worth_trying_whatever_it_saves_of_a_cpu() {
        let cost = Saving { low: 20.0, mid: 30.0, high: 60.0 };
        let case = Case { disk_wait: Some(62.0), ..under_reclaim(cost) };
        let of_time = |low: f64, place: usize, setting: &str| Row {
            setting: Some(setting.to_owned()),
            saving_percent_of_time: Saving { low, mid: 40.0, high: 55.0 },
            place,
            ..of_reclaim(0.0, 4.0, 8.0).remove(0)
        };
        let rows =
            [of_time(20.0, 6, "vm.min_free_kbytes=9"), of_time(20.0, 5, "vm.min_free_kbytes=7")];
        let (verdict, reason) = case.decide(&rows);
        assert_eq!(verdict, Verdict::WorthTrying);
        let expected = "vm.min_free_kbytes=7: saves 40.0 % of the elapsed time (20.0 to 55.0)";
        assert!(reason.starts_with(expected), "the first of equal ones: {reason}");
        let named = case.setting(verdict, &rows);
        assert_eq!(named.as_deref(), Some("vm.min_free_kbytes=7"), "the reason's");
        let saves_more_of_a_cpu = Row {
            setting: Some("vm.numa_stat=0".to_owned()),
            saving_percent_of_cpu: Saving { low: 9.0, mid: 9.0, high: 9.0 },
            ..Row::default()
        };
        let mixed = [saves_more_of_a_cpu, of_time(20.0, 5, "vm.min_free_kbytes=7")];
        assert_eq!(case.setting(case.decide(&mixed).0, &mixed), named);
        let (waited, of_cpu) =
            ("62.0 % of the time some task", "of a CPU up to 8.00 %, or nothing");
        assert!(reason.contains(waited) && reason.contains(of_cpu), "{reason}");
        assert!(reason.contains("nothing; vm.min_free_kbytes is 186 times too much; "), "{reason}");
        // An end of the range that is next to nothing is none, and what refuses memory is no help.
        assert_eq!(case.decide(&[of_time(0.4, 5, "x=1")]).0, Verdict::NotKnown);
        let refuses = Row { is_worse: true, ..of_time(20.0, 5, "x=1") };
        assert_ne!(case.decide(&[refuses]).0, Verdict::WorthTrying);
    }

    #[test]
    fn what_costs_next_to_nothing_needs_no_model() {
        let little = Saving { low: 0.0, mid: 0.1, high: 0.2 };
        let (verdict, reason) = under_reclaim(little).decide(&of_reclaim(0.0, 0.0, 0.2));
        assert_eq!(verdict, Verdict::ChangeNothing, "{reason}");
        // What only the recorder's rings kept out is said beside it.
        let of_rings = Some("98 % of what was read again had no room".to_owned());
        let rings = Saving { low: 9.0, mid: 9.0, high: 9.0 };
        let rings = Case { reclaim: Some(rings), of_rings, ..case(0.1) };
        let (verdict, reason) = rings.decide(&of_reclaim(0.0, 0.0, 0.0));
        assert_eq!(verdict, Verdict::ChangeNothing);
        assert!(
            reason.ends_with("saves that; 98 % of what was read again had no room"),
            "{reason}"
        );
        // A stream through the cache: reclaim has its price, and nothing saves it.
        let stream = Case { reclaim: Some(Saving { low: 9.0, mid: 9.0, high: 9.0 }), ..case(0.1) };
        let (verdict, reason) = stream.decide(&of_reclaim(0.0, 0.0, 0.0));
        assert_eq!(verdict, Verdict::ChangeNothing);
        assert!(reason.contains("and no setting saves that"), "{reason}");
    }
}
