//! One update of a CPU's delta, in every published variant (LB F.3, F.5).
//!
//! ```text
//!  change ──► update (pure) ──► the delta            this CPU's own line
//!                          └──► fold: shared counters    lines that others read
//! ```
//! [`update`] is the arithmetic, [`change`] the same on atomics, with the steps that a simulated
//! platform charges for. In this library no interrupt comes between the steps of an update, so the
//! variants differ in what they fold and in what they cost; what each loses to interrupts in a
//! kernel is shown in `history/vmstat/races.rs`.
//!
//! - **FOLD-2** `diff + fold + lost` after an update is `diff + delta` before it, and `lost` is 0
//!   in every variant but `Update::LocalIncPosted` (feature `history`).

use crate::platform::{Instruction, Line, Platform, Step};
use crate::sync::{AtomicI64, Ordering::Relaxed};
use crate::types::ZoneId;
#[cfg(feature = "history")]
use crate::vmstat::history::update as history;
use crate::vmstat::threshold::{Overstep, fold_cmpxchg, fold_mod_times, fold_plain};
use crate::vmstat::variant::Update;

/// Operations on a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// One up.
    Inc,
    /// One down.
    Dec,
    /// Any step.
    Mod(i64),
}

/// Which of its two forms a primitive is called in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// `inc_zone_page_state`: an interrupt may count the same item meanwhile.
    Guarded,
    /// `__inc_zone_page_state`: the caller keeps interrupts out. The free-page counter, which is
    /// kept under the zone lock, and NUMA events up to 5.13.
    Raw,
}

/// Result of an update.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Updated {
    /// The delta now.
    pub diff: i64,
    /// Added to the shared counters.
    pub fold: i64,
    /// Counted nowhere.
    pub lost: i64,
}

/// Where an update belongs, for a platform that charges for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The zone of the counter.
    pub zone: ZoneId,
    /// The lines that a fold writes: the zone's and the machine's.
    pub lines: [Line; 2],
}

impl Change {
    /// Its addend.
    pub const fn delta(self) -> i64 {
        match self {
            Change::Inc => 1,
            Change::Dec => -1,
            Change::Mod(delta) => delta,
        }
    }
}

impl Place {
    /// A zone's ordinary items.
    pub const fn items(zone: ZoneId) -> Place {
        Place { zone, lines: [Line::Zone(zone), Line::Machine] }
    }
}

/// One update of a delta.
pub const fn update(how: Update, form: Form, change: Change, diff: i64, threshold: i64) -> Updated {
    let (delta, overstep) = (change.delta(), overstep(change));
    let (diff, fold) = match (how, form) {
        (Update::ThisCpuCmpxchg, Form::Guarded) => fold_cmpxchg(diff, threshold, delta, overstep),
        (Update::ThisCpuCmpxchg, Form::Raw) => fold_plain(diff, threshold, delta, overstep),
        #[cfg(feature = "history")]
        (past, _) => match history::update(past, delta, overstep, diff, threshold) {
            Some(done) => done,
            None => return Updated { diff, fold: 0, lost: delta },
        },
    };
    Updated { diff, fold, lost: 0 }
}

/// `times` updates by `step` in a row, in the raw form. With it, how many folded.
pub const fn update_times(
    how: Update,
    step: i64,
    times: u32,
    diff: i64,
    threshold: i64,
) -> (Updated, u32) {
    match how {
        #[cfg(feature = "history")]
        past if history::goes_step_by_step(past) => {
            let mut all = Updated { diff, fold: 0, lost: 0 };
            let (mut folds, mut done) = (0, 0);
            while done < times {
                let one = update(past, Form::Raw, Change::Mod(step), all.diff, threshold);
                all.diff = one.diff;
                all.fold += one.fold;
                all.lost += one.lost;
                folds += (one.fold != 0) as u32;
                done += 1;
            }
            (all, folds)
        }
        _ => {
            let (diff, fold, folds) = fold_mod_times(diff, threshold, step, times);
            (Updated { diff, fold, lost: 0 }, folds)
        }
    }
}

const fn overstep(change: Change) -> Overstep {
    match change {
        Change::Inc => Overstep::Up,
        Change::Dec => Overstep::Down,
        Change::Mod(_) => Overstep::None,
    }
}

/// The instructions that an update of this variant and form is made of.
pub const fn instruction(how: Update, form: Form) -> Instruction {
    match (how, form) {
        (Update::ThisCpuCmpxchg, Form::Guarded) => Instruction::Cmpxchg,
        (Update::ThisCpuCmpxchg, Form::Raw) => Instruction::Plain,
        #[cfg(feature = "history")]
        (past, Form::Guarded) => history::instruction_guarded(past),
        #[cfg(feature = "history")]
        (past, Form::Raw) => history::instruction_raw(past),
    }
}

/// Updates a delta and, when it is due, the shared counter. Threads that share a CPU's number lose
/// nothing to each other.
#[inline]
pub fn change<P: Platform>(
    platform: &P,
    place: Place,
    (how, form): (Update, Form),
    change: Change,
    (diff, threshold): (&AtomicI64, i64),
    shared: &AtomicI64,
) {
    let next = |old| update(how, form, change, old, threshold);
    change_by(platform, place, instruction(how, form), next, diff, shared);
}

/// As [`change`], by a rule of the caller's.
#[inline]
pub(super) fn change_by<P: Platform>(
    platform: &P,
    place: Place,
    by: Instruction,
    next: impl Fn(i64) -> Updated,
    diff: &AtomicI64,
    shared: &AtomicI64,
) {
    let mut done = Updated::default();
    // Relaxed: sums of single values; nothing else depends on them.
    let _ = diff.fetch_update(Relaxed, Relaxed, |old| {
        done = next(old);
        Some(done.diff)
    });
    platform.cost(Step::Update { zone: place.zone, by, times: 1 });
    if done.fold != 0 {
        shared.fetch_add(done.fold, Relaxed);
        place.lines.iter().for_each(|line| platform.cost(Step::Fold(*line)));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::types::Choice;

    /// Folds of `steps` equal changes from 0.
    fn folds(how: Update, form: Form, change: Change, threshold: i64, steps: usize) -> usize {
        let mut diff = 0;
        let stepped = (0..steps).map(|_| {
            let done = update(how, form, change, diff, threshold);
            diff = done.diff;
            done.fold != 0
        });
        stepped.filter(|folded| *folded).count()
    }

    #[test]
    fn ten_thousand_increments_fold_as_published() {
        // LB F.5 and K.4, threshold 32.
        for form in [Form::Guarded, Form::Raw] {
            for change in [Change::Inc, Change::Dec] {
                assert_eq!(folds(Update::ThisCpuCmpxchg, form, change, 32, 10_000), 204);
            }
        }
    }

    fn any_change() -> impl Strategy<Value = Change> {
        prop_oneof![Just(Change::Inc), Just(Change::Dec), (-600i64..600).prop_map(Change::Mod),]
    }

    proptest! {
        #[test]
        fn every_variant_keeps_the_sum(
            threshold in 1i64..=125,
            changes in prop::collection::vec(any_change(), 0..200),
            guarded: bool,
        ) {
            let form = if guarded { Form::Guarded } else { Form::Raw };
            for (name, how) in Update::ALL {
                let (mut diff, mut shared, mut lost, mut sum) = (0, 0, 0, 0);
                for change in &changes {
                    let done = update(*how, form, *change, diff, threshold);
                    diff = done.diff;
                    shared += done.fold;
                    lost += done.lost;
                    sum += change.delta();
                    prop_assert_eq!(diff + shared + lost, sum, "{}", name); // FOLD-2
                    prop_assert!(diff.abs() <= threshold, "{}: {}", name, diff);
                }
                prop_assert!(lost == 0 || *name == "local_inc_posted");
            }
        }
    }
}
