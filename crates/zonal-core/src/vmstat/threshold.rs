//! How far a per-CPU delta may drift before it is folded into the shared counter, and the folding.
//!
//! ```text
//!  counter            what everybody reads; off by at most CPUs * threshold
//!     ^  fold         rare: writes a line that every CPU of the node reads
//!  diff  diff  diff   one per CPU; |diff| <= threshold
//! ```
//! Every fold function here maps `(diff, threshold[, delta])` to `(new diff, pages folded)` and
//! keeps one invariant:
//!
//! - **FOLD-1** `new diff + pages folded == diff + delta`
//!
//! Comparisons are strict: a delta equal to the threshold stays (LB M.10). The functions work on
//! `i64` so that one text serves the 8-bit deltas of zone counters and the 16-bit deltas the NUMA
//! counters once had; the storage narrows the result.

/// Largest threshold: a delta is stored in a signed byte (LB F.2).
pub const THRESHOLD_MAX: u32 = 125;
/// Threshold of the NUMA counters when their deltas were signed 16-bit (LB F.7, seed 000 v1).
pub const NUMA_THRESHOLD_S16: i64 = 32_765;
/// The same for unsigned 16-bit deltas, 4.14 to 5.13 (LB F.7, v2). Folds with [`fold_mod`].
pub const NUMA_THRESHOLD_U16: i64 = 65_533;

/// A zone grows the threshold by one step each time its size in these units doubles: 128 MiB.
const SIZE_UNIT_SHIFT: u32 = 15;

/// Which way a step goes past the threshold when it folds (LB F.3): the half threshold beyond zero
/// makes a counter that keeps going the same way fold a third less often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overstep {
    /// To zero only: for steps of any size.
    None,
    /// Below zero, expecting more steps up.
    Up,
    /// Above zero, expecting more steps down.
    Down,
}

/// Position of the highest set bit, counted from 1; 0 for 0 (LB conventions).
pub const fn fls(value: u64) -> u32 {
    u64::BITS - value.leading_zeros()
}

/// The threshold of a zone's counters (LB F.2): more with more CPUs, because the shared line is
/// then dearer, and with a larger zone, because an error then matters less. A node's threshold is
/// the largest of its populated zones.
pub const fn normal(managed: u64, cpus: u32) -> u32 {
    let threshold = 2 * fls(cpus as u64) * (1 + fls(managed >> SIZE_UNIT_SHIFT));
    if threshold < THRESHOLD_MAX { threshold } else { THRESHOLD_MAX }
}

/// The threshold while the background reclaimer of the zone's node is awake (LB F.2): the error of
/// all CPUs together then stays within the gap between the low and the min watermark.
pub const fn pressure(low_watermark: u64, min_watermark: u64, cpus: u32) -> u32 {
    let cpus = if cpus == 0 { 1 } else { cpus as u64 };
    let share = low_watermark.saturating_sub(min_watermark) / cpus;
    if share > THRESHOLD_MAX as u64 {
        THRESHOLD_MAX
    } else if share == 0 {
        1
    } else {
        share as u32
    }
}

/// Below how many pages the counter may hide that the min watermark was crossed (LB F.2), or `None`
/// where it cannot. Marks include the boost. Once set it is never cleared, so the caller keeps the
/// old value on `None`; only zones with a drift mark ever get the [`pressure`] threshold.
pub const fn drift_mark(
    min_watermark: u64,
    low_watermark: u64,
    high_watermark: u64,
    normal: u32,
    cpus: u32,
) -> Option<u64> {
    let drift = cpus as u64 * normal as u64;
    if drift > low_watermark.saturating_sub(min_watermark) {
        Some(high_watermark + drift)
    } else {
        None
    }
}

/// `__mod` (LB F.3): any delta, no overstep.
#[inline]
pub const fn fold_mod(diff: i64, threshold: i64, delta: i64) -> (i64, i64) {
    let sum = diff + delta;
    if sum > threshold || sum < -threshold { (0, sum) } else { (sum, 0) }
}

/// `times` steps of [`fold_mod`], in a row: the delta, the folded value, and the number of folds.
/// As fast for many as for two.
pub const fn fold_mod_times(diff: i64, threshold: i64, step: i64, times: u32) -> (i64, i64, u32) {
    if times == 0 {
        return (diff, 0, 0);
    }
    // The first step may find a delta left beyond a threshold that was lowered since.
    let (mut diff, mut folded) = fold_mod(diff, threshold, step);
    let mut folds = (folded != 0) as u32;
    let left = times as i64 - 1;
    if left == 0 || step == 0 {
        return (diff, folded, folds);
    }
    let room = if step > 0 { threshold - diff } else { threshold + diff };
    // This many stay within the threshold; the next one folds.
    let within = room / step.abs();
    if left <= within {
        return (diff + left * step, folded, folds);
    }
    folded += diff + (within + 1) * step;
    folds += 1;
    let left = left - within - 1;
    // From zero on each fold takes as many.
    let each = threshold / step.abs() + 1;
    let more = left / each;
    diff = left % each * step;
    folded += more * each * step;
    (diff, folded, folds + more as u32)
}

/// `__inc` (LB F.3): one up; folding, it goes on half a threshold below zero.
#[inline]
pub const fn fold_inc(diff: i64, threshold: i64) -> (i64, i64) {
    let sum = diff + 1;
    let overstep = threshold >> 1;
    if sum > threshold { (-overstep, sum + overstep) } else { (sum, 0) }
}

/// `__dec` (LB F.3): one down; folding, it goes on half a threshold above zero.
#[inline]
pub const fn fold_dec(diff: i64, threshold: i64) -> (i64, i64) {
    let sum = diff - 1;
    let overstep = threshold >> 1;
    if sum < -threshold { (overstep, sum - overstep) } else { (sum, 0) }
}

/// One turn of the compare-and-exchange loop that x86-64 has used since 2.6.38 (LB F.3). It differs
/// from the three above after the threshold was lowered: a delta left beyond the new threshold is
/// folded by the next step whichever way that goes.
#[inline]
pub const fn fold_cmpxchg(diff: i64, threshold: i64, delta: i64, overstep: Overstep) -> (i64, i64) {
    let sum = diff + delta;
    if sum <= threshold && sum >= -threshold {
        return (sum, 0);
    }
    let beyond = match overstep {
        Overstep::None => 0,
        Overstep::Up => threshold >> 1,
        Overstep::Down => -(threshold >> 1),
    };
    (-beyond, sum + beyond)
}

/// The plain steps, with the overstep of the primitive: `__inc`, `__dec` or `__mod`.
#[inline]
pub const fn fold_plain(diff: i64, threshold: i64, delta: i64, overstep: Overstep) -> (i64, i64) {
    match overstep {
        Overstep::Up => fold_inc(diff, threshold),
        Overstep::Down => fold_dec(diff, threshold),
        Overstep::None => fold_mod(diff, threshold, delta),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::support::folds;

    #[test]
    fn increments_fold_at_the_threshold_and_then_every_one_and_a_half() {
        let seen = folds(10_000, |diff| fold_inc(diff, 32));
        assert_eq!(seen[..3], [(33, 49, -16), (82, 49, -16), (131, 49, -16)]);
        assert_eq!(seen.len(), 204);
        let seen = folds(1000, |diff| fold_inc(diff, 125));
        assert_eq!(seen[..2], [(126, 188, -62), (314, 188, -62)]);
    }

    #[test]
    fn steps_of_one_through_mod_fold_without_overstep() {
        let seen = folds(100, |diff| fold_mod(diff, 32, 1));
        assert_eq!(seen, [(33, 33, 0), (66, 33, 0), (99, 33, 0)]);
    }

    #[test]
    fn a_large_delta_folds_at_once() {
        assert_eq!(fold_mod(0, 125, 200), (0, 200));
        assert_eq!(fold_mod(0, 125, 125), (125, 0));
        assert_eq!(fold_mod(-100, 125, -26), (0, -126));
        assert_eq!(fold_mod(0, 0, 0), (0, 0));
    }

    #[test]
    fn the_numa_counters_of_seed_000_fold_as_published() {
        let v1 = folds(100_000, |diff| fold_inc(diff, NUMA_THRESHOLD_S16));
        assert_eq!(v1, [(32_766, 49_148, -16_382), (81_914, 49_148, -16_382)]);
        let v2 = folds(200_000, |diff| fold_mod(diff, NUMA_THRESHOLD_U16, 1));
        assert_eq!(v2[..2], [(65_534, 65_534, 0), (131_068, 65_534, 0)]);
    }

    #[test]
    fn a_lowered_threshold_is_noticed_by_cmpxchg_in_both_directions() {
        assert_eq!(fold_inc(-100, 1), (-99, 0));
        assert_eq!(fold_cmpxchg(-100, 1, 1, Overstep::Up), (0, -99));
    }

    #[test]
    fn fls_counts_from_one() {
        assert_eq!([0, 1, 2, 4, 224].map(fls), [0, 1, 2, 3, 8]);
        assert_eq!(fls(u64::MAX), 64);
    }

    #[test]
    fn thresholds_are_those_of_a_live_kernel() {
        // LB K.2: two CPUs; DMA, DMA32 and three sizes of Normal.
        let managed = [3840, 772_917, 294_912, 1_146_880, 3_211_264];
        assert_eq!(managed.map(|pages| normal(pages, 2)), [4, 24, 20, 28, 32]);
        assert_eq!(normal(u64::MAX, u32::MAX), 125);
    }

    #[test]
    fn the_pressure_threshold_is_between_one_and_its_cap() {
        assert_eq!(pressure(647, 167, 64), 7);
        assert_eq!(pressure(4, 1, 64), 1);
        assert_eq!(pressure(1 << 40, 0, 1), 125);
        assert_eq!(pressure(0, 0, 0), 1);
    }

    #[test]
    fn a_drift_mark_exists_only_where_drift_exceeds_the_gap() {
        assert_eq!(drift_mark(167, 647, 1127, 70, 64), Some(5607));
        assert_eq!(drift_mark(0, 128, 256, 64, 2), None);
        assert_eq!(drift_mark(0, 127, 254, 64, 2), Some(382));
    }

    proptest! {
        #[test]
        fn many_steps_at_once_are_many_steps(
            start in -300i64..300, threshold in 0i64..130, step in -600i64..600, times in 0u32..90,
        ) {
            let (mut diff, mut folded, mut folds) = (start, 0, 0);
            for _ in 0..times {
                let (now, fold) = fold_mod(diff, threshold, step);
                (diff, folded) = (now, folded + fold);
                folds += u32::from(fold != 0);
            }
            let at_once = fold_mod_times(start, threshold, step, times);
            prop_assert_eq!(at_once, (diff, folded, folds));
        }

        #[test]
        fn nothing_is_lost_and_the_threshold_holds(
            diff in -125i64..=125,
            threshold in 0i64..=125,
            delta in -2000i64..=2000,
        ) {
            let start = diff.clamp(-threshold, threshold);
            let cases = [
                (fold_mod(start, threshold, delta), delta),
                (fold_inc(start, threshold), 1),
                (fold_dec(start, threshold), -1),
                (fold_cmpxchg(start, threshold, delta, Overstep::None), delta),
                (fold_cmpxchg(start, threshold, 1, Overstep::Up), 1),
                (fold_cmpxchg(start, threshold, -1, Overstep::Down), -1),
            ];
            for ((next, fold), delta) in cases {
                prop_assert_eq!(next + fold, start + delta); // FOLD-1
                prop_assert!(next.abs() <= threshold);
            }
            prop_assert_eq!(fold_inc(start, threshold),
                fold_cmpxchg(start, threshold, 1, Overstep::Up));
            prop_assert_eq!(fold_dec(start, threshold),
                fold_cmpxchg(start, threshold, -1, Overstep::Down));
        }
    }
}
