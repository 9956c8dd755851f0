//! How deltas were updated before 2.6.38, and how patches of 2007 would have (LB F.3, F.5).
//!
//! `races.rs` has what each variant loses to interrupts.

use crate::platform::Instruction;
use crate::vmstat::threshold::{Overstep, fold_plain};
use crate::vmstat::variant::Update;

/// The delta and the pages folded after one update. `None`: it was counted nowhere.
pub const fn update(
    how: Update,
    delta: i64,
    overstep: Overstep,
    diff: i64,
    threshold: i64,
) -> Option<(i64, i64)> {
    Some(match how {
        Update::CmpxchgPostedUnsigned => fold_cmpxchg_posted(diff, threshold, delta, overstep),
        Update::LocalIncIntended => match delta {
            1 => fold_local_inc(diff, threshold),
            -1 => fold_local_dec(diff, threshold),
            // Larger steps pass the delta by.
            _ => (diff, delta),
        },
        Update::LocalIncPosted => match delta {
            1 | -1 => return None,
            _ => (diff, delta),
        },
        // The loop of 2007, as intended, compares as the plain steps do.
        _ => fold_plain(diff, threshold, delta, overstep),
    })
}

/// Whether many equal updates must be made one by one: they do not fold as plain steps do.
pub const fn goes_step_by_step(how: Update) -> bool {
    matches!(how, Update::CmpxchgPostedUnsigned | Update::LocalIncIntended | Update::LocalIncPosted)
}

/// Instructions of an update that an interrupt may come between.
pub const fn instruction_guarded(how: Update) -> Instruction {
    match how {
        Update::Irq => Instruction::Masked,
        Update::PreemptOnly => Instruction::PreemptOff,
        _ => instruction_raw(how),
    }
}

/// Instructions of an update whose caller keeps interrupts out.
pub const fn instruction_raw(how: Update) -> Instruction {
    match how {
        Update::CmpxchgPostedUnsigned | Update::CmpxchgSigned => Instruction::Cmpxchg,
        Update::LocalIncIntended | Update::LocalIncPosted => Instruction::LocalInc,
        _ => Instruction::Plain,
    }
}

/// The compare-and-exchange loop as it was posted in 2007 (LB F.5, variant 2): the sum and the
/// threshold are unsigned words, the delta a signed byte. A negative delta comes back as a huge
/// number, so every step beyond the first overstep folds: the totals are right, batching is lost.
#[inline]
pub const fn fold_cmpxchg_posted(
    diff: i64,
    threshold: i64,
    delta: i64,
    overstep: Overstep,
) -> (i64, i64) {
    let sum = diff.wrapping_add(delta) as u64;
    let (above, below) = (threshold as u64, threshold.wrapping_neg() as u64);
    let (folds, beyond) = match overstep {
        Overstep::None => (sum > above || sum < below, 0),
        Overstep::Up => (sum > above, threshold >> 1),
        Overstep::Down => (sum < below, -(threshold >> 1)),
    };
    if folds { (-beyond, sum as i64 + beyond) } else { (sum as i64, 0) }
}

/// The local increment proposed in 2007, as intended (LB F.5, variant 3): it folds when the delta
/// *reaches* the threshold.
#[inline]
pub const fn fold_local_inc(diff: i64, threshold: i64) -> (i64, i64) {
    let sum = diff + 1;
    let overstep = threshold / 2;
    if sum >= threshold { (-overstep, sum + overstep) } else { (sum, 0) }
}

/// The local decrement of the same proposal: the mirror image of [`fold_local_inc`].
#[inline]
pub const fn fold_local_dec(diff: i64, threshold: i64) -> (i64, i64) {
    let (diff, fold) = fold_local_inc(-diff, threshold);
    (-diff, -fold)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::support::folds;
    use crate::types::Choice;
    use crate::vmstat::threshold::fold_cmpxchg;
    use crate::vmstat::update::{Change, Form, Updated, update};

    /// Folds of `steps` equal changes from 0.
    fn count(how: Update, form: Form, change: Change, threshold: i64, steps: usize) -> usize {
        let step = |diff| {
            let done = update(how, form, change, diff, threshold);
            (done.diff, done.fold)
        };
        folds(steps, step).len()
    }

    #[test]
    fn the_local_increment_of_2007_folds_on_reaching_the_threshold() {
        let seen = folds(200, |diff| fold_local_inc(diff, 32));
        assert_eq!(seen[..3], [(32, 48, -16), (80, 48, -16), (128, 48, -16)]);
        let seen = folds(200, |diff| fold_local_dec(diff, 32));
        assert_eq!(seen[..2], [(32, -48, 16), (80, -48, 16)]);
    }

    #[test]
    fn the_sign_bug_of_2007_folds_almost_every_step() {
        // LB F.5: 10,000 increments at a threshold of 32.
        let posted = |overstep, delta| {
            folds(10_000, move |diff| fold_cmpxchg_posted(diff, 32, delta, overstep))
        };
        let up = posted(Overstep::Up, 1);
        assert_eq!(up.len(), 9968);
        assert_eq!(up[..3], [(33, 49, -16), (34, 1, -16), (35, 1, -16)]);
        assert_eq!(folds(10_000, |diff| fold_cmpxchg(diff, 32, 1, Overstep::Up)).len(), 204);
        assert_eq!(posted(Overstep::None, 1).len(), 10_000);
        // The decrement is its mirror image.
        let down = posted(Overstep::Down, -1);
        assert_eq!(down[..2], [(33, -49, 16), (34, -1, 16)]);
        assert_eq!(down.len(), 9968);
    }

    #[test]
    fn ten_thousand_increments_fold_as_published() {
        // LB F.5 and K.4, threshold 32; the local increment folds at 32 and every 48 from there.
        let table = [
            (Update::Irq, 204),
            (Update::CmpxchgPostedUnsigned, 9968),
            (Update::CmpxchgSigned, 204),
            (Update::LocalIncIntended, (10_000 - 32) / 48 + 1),
            (Update::LocalIncPosted, 0),
            (Update::ThisCpuCmpxchg, 204),
            (Update::PreemptOnly, 204),
        ];
        assert_eq!(table.len(), Update::ALL.len());
        for (how, expected) in table {
            for form in [Form::Guarded, Form::Raw] {
                for change in [Change::Inc, Change::Dec] {
                    let folds = count(how, form, change, 32, 10_000);
                    assert_eq!(folds, expected, "{how:?} {form:?} {change:?}");
                }
            }
        }
    }

    #[test]
    fn steps_of_one_through_mod_fold_every_time_with_the_sign_bug() {
        let one = |how| count(how, Form::Raw, Change::Mod(1), 32, 10_000);
        assert_eq!(one(Update::CmpxchgPostedUnsigned), 10_000);
        assert_eq!(one(Update::Irq), 10_000 / 33);
    }

    #[test]
    fn larger_steps_of_the_local_variant_pass_the_delta_by() {
        for delta in [-5, 0, 2, 200] {
            let done = update(Update::LocalIncIntended, Form::Raw, Change::Mod(delta), 7, 32);
            assert_eq!(done, Updated { diff: 7, fold: delta, lost: 0 });
        }
        for (step, one) in [(1, Change::Inc), (-1, Change::Dec)] {
            for diff in -32..=32 {
                let of = |change| update(Update::LocalIncIntended, Form::Raw, change, diff, 32);
                assert_eq!(of(Change::Mod(step)), of(one), "steps of one are increments");
            }
        }
        let kept = update(Update::Irq, Form::Raw, Change::Mod(-5), 7, 32);
        assert_eq!(kept, Updated { diff: 2, fold: 0, lost: 0 });
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_the_threshold_holds(
            diff in -125i64..=125,
            threshold in 0i64..=125,
            delta in -2000i64..=2000,
        ) {
            let start = diff.clamp(-threshold, threshold);
            let local = [
                (fold_local_inc(start, threshold), 1),
                (fold_local_dec(start, threshold), -1),
            ];
            for ((next, fold), delta) in local {
                prop_assert_eq!(next + fold, start + delta); // FOLD-1
                prop_assert!(next.abs() <= threshold);
            }
            for (overstep, delta) in
                [(Overstep::None, delta), (Overstep::Up, 1), (Overstep::Down, -1)]
            {
                let (next, fold) = fold_cmpxchg_posted(start, threshold, delta, overstep);
                prop_assert_eq!(next + fold, start + delta); // FOLD-1, sign bug or not
            }
        }
    }
}
