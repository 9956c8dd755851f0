//! What to do, said first.
//!
//! What the allocator costs is counted by the kernel's own moves in the recording; what another
//! setting saves is the difference of two runs of the model, at the same prices. Below half a
//! percent of one CPU nothing is worth a change: a measurement could not tell it from noise.

use serde::Serialize;

use super::row::Row;
use super::saving::{ModelError, PRICE_FACTOR, Saving, WORTH_PERCENT};
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
    pub error: ModelError,
}

impl Case {
    /// One recording; `cost` is what the allocator's waits and refills take of each second, in µs.
    pub(super) fn new(what_if: &WhatIf<'_>, cost: f64, error: ModelError) -> Case {
        Case {
            not_judged: what_if.not_judged().to_vec(),
            seconds: what_if.seconds(),
            allocs: what_if.allocs(),
            cost: (cost / 1e4 * 1e4).round() / 1e4,
            error,
        }
    }

    /// Why the recording says nothing about the load, if so.
    pub(super) fn says_nothing(&self) -> Option<String> {
        let Case { ref not_judged, seconds, allocs, error, .. } = *self;
        let share = unjudged::share(not_judged, seconds);
        if share > NOT_JUDGED_MAX {
            let mut why: Vec<&str> = not_judged.iter().flat_map(|n| n.reason.split("; ")).collect();
            why.sort_unstable();
            why.dedup();
            let percent = share * 100.0;
            return Some(format!(
                "{percent:.0} % of the time cannot be judged: {}",
                why.join("; ")
            ));
        }
        if allocs < ALLOCS_MIN {
            return Some(format!(
                "too few events: {allocs} allocations in {seconds:.1} s, at least {ALLOCS_MIN} \
                 are needed; record for longer"
            ));
        }
        error.most.is_none().then(|| {
            "the recording has no refill and no drain, so nothing says what the \
             allocator costs here; `zonal record` records them, as do the events \
             kmem:mm_page_alloc_zone_locked and kmem:mm_page_pcpu_drain"
                .to_owned()
        })
    }

    /// Decides. `rows` are all changes that were tried.
    pub(super) fn decide(&self, rows: &[Row]) -> (Verdict, String) {
        if let Some(reason) = self.says_nothing() {
            return (Verdict::NotKnown, reason);
        }
        let Case { seconds, cost, error, .. } = *self;
        let off = error.most.unwrap_or(0.0);
        let usable = rows.iter().filter(|row| !row.is_worse && row.setting.is_some());
        let best = usable
            .max_by(|a, b| a.saving_percent_of_cpu.mid.total_cmp(&b.saving_percent_of_cpu.mid));
        // No setting saves more than all of it.
        let most = best.map_or(0.0, |row| row.saving_percent_of_cpu.mid).clamp(0.0, cost.max(0.0));
        let costs = format!(
            "the allocator's waits and refills cost {cost:.3} % of a CPU here, at most {most:.3} % \
             can be saved"
        );
        if cost * PRICE_FACTOR < WORTH_PERCENT {
            return (Verdict::ChangeNothing, costs);
        }
        if off > ERROR_MAX_PERCENT {
            let reason = format!(
                "the model is off by {off:.0} % on this recording; {costs}, if it were right"
            );
            return (Verdict::NotKnown, reason);
        }
        match best.filter(|_| most >= WORTH_PERCENT) {
            None => (Verdict::ChangeNothing, costs),
            Some(row) => {
                let Saving { low, mid, high } = row.saving_percent_of_cpu.at_most(cost);
                let mut reason = format!(
                    "{}: saves {mid:.2} % of a CPU ({low:.2} to {high:.2}), {:.2} CPU seconds of \
                     this recording; at worst {:.1} MiB more on lists; {}",
                    row.setting.as_deref().unwrap_or_default(),
                    mid / 100.0 * seconds,
                    row.memory_mib_worst,
                    row.about,
                );
                reason.extend(row.not_counted.iter().map(|what| format!("; not counted: {what}")));
                (Verdict::WorthTrying, reason)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn off_by(percent: f64) -> ModelError {
        ModelError { most: Some(percent), ..ModelError::default() }
    }

    fn case(cost: f64) -> Case {
        let error = off_by(1.0);
        Case { not_judged: Vec::new(), seconds: 10.0, allocs: 50_000, cost, error }
    }

    fn saves(us_per_s: f64) -> Vec<Row> {
        let saving = Saving::new(us_per_s, case(0.0).error);
        vec![Row {
            change: "numa_stat 0".to_owned(),
            setting: Some("vm.numa_stat=0".to_owned()),
            saving_percent_of_cpu: saving,
            ..Row::default()
        }]
    }

    #[test]
    fn below_half_a_percent_of_a_cpu_nothing_is_changed() {
        let (verdict, reason) = case(0.03).decide(&saves(200.0));
        assert_eq!(verdict, Verdict::ChangeNothing);
        assert!(reason.contains("cost 0.030 % of a CPU here, at most 0.020 %"), "{reason}");
        let (verdict, _) = case(5.0).decide(&saves(4000.0));
        assert_eq!(verdict, Verdict::ChangeNothing, "much is spent, and nothing saves it");
    }

    #[test]
    fn a_setting_that_saves_more_is_worth_trying() {
        let (verdict, reason) = case(5.0).decide(&saves(20_000.0));
        assert_eq!(verdict, Verdict::WorthTrying);
        assert!(reason.starts_with("vm.numa_stat=0: saves 2.00 % of a CPU (1.32 to "), "{reason}");
        assert!(!reason.contains("not counted"), "{reason}");
        let mut longer = saves(20_000.0);
        longer[0].not_counted = Some("longer lists".to_owned());
        let (_, reason) = case(5.0).decide(&longer);
        assert!(reason.ends_with("; not counted: longer lists"), "{reason}");
        let mut worse = saves(20_000.0);
        worse[0].is_worse = true;
        assert_eq!(case(5.0).decide(&worse).0, Verdict::ChangeNothing);
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
}
