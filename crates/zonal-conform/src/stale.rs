//! Marks that were computed when zones had other sizes.
//!
//! A kernel computes its watermarks early in the boot and frees more memory later: its own init
//! code, the initial RAM disk, with lazy initialisation most of the memory. Until a write makes it
//! recompute them, `zoneinfo` then prints marks that do not belong to the sizes beside them.
//!
//! This module asks whether there are sizes from which *all* printed marks follow at once: sizes
//! that each zone can have had (not above what it manages now, or, if that fails, not above what is
//! present), that agree with what else was computed from them (`high_max`, `batch`, rows of
//! `protection`), and that add up to the sum which every zone's share was taken of.
//!
//! A zone's marks grow with its size if the sum is held, so for each sum every zone has one
//! interval of sizes. The sum must then lie between the sums of the ends. No formula is inverted
//! here: it searches over the core's results.

use zonal_core::pcp::size::{self, HighFraction, HighInputs};
use zonal_core::types::{PageRules, ZoneKind};
use zonal_core::zone::watermark::{MovableMin, WatermarkInputs, Watermarks};

/// Sums that are tried before giving up.
const TRIES_MAX: u64 = 4096;
/// Sums that are tried one by one; then steps grow.
const TRIES_CLOSE: u64 = 64;

/// Facts about one zone at the time when its watermarks were computed.
#[derive(Debug, Clone)]
pub struct Evidence {
    /// Its kind.
    pub kind: ZoneKind,
    /// The printed watermarks, without the boost; kernels before 6.12 leave out the last.
    pub watermarks: [Option<u64>; 4],
    /// Sizes that it can have had: first and last.
    pub sizes: (u64, u64),
}

/// What marks follow from beside sizes.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// The sysctl.
    pub min_free_kbytes: u32,
    /// The sysctl.
    pub scale_factor: u32,
    /// How movable zones are treated.
    pub movable: MovableMin,
    /// The size of a page.
    pub page: PageRules,
}

/// Which lists of a zone a size has.
#[derive(Debug, Clone, Copy)]
pub struct Lists {
    /// CPUs of the zone's node.
    pub node_cpus: u32,
    /// CPUs of the machine.
    pub machine_cpus: u32,
    /// Cap of the batch.
    pub cap_pages: u64,
}

impl Rules {
    fn watermarks(&self, kind: ZoneKind, managed: u64, sum: u64) -> [u64; 4] {
        let watermarks = Watermarks::compute(&WatermarkInputs {
            kind,
            managed,
            lowmem_managed: sum,
            movable: self.movable,
            min_free_kbytes: self.min_free_kbytes,
            scale_factor: self.scale_factor,
            page: self.page,
        });
        [watermarks.min, watermarks.low, watermarks.high, watermarks.promo]
    }

    /// Whether a zone's pages are part of the sum.
    fn counts(&self, kind: ZoneKind) -> bool {
        kind != ZoneKind::Movable || self.movable == MovableMin::Share
    }

    /// The sizes of a zone that give its watermarks if all zones together have `sum` pages.
    fn sizes(&self, zone: &Evidence, sum: u64) -> Option<(u64, u64)> {
        let (first, last) = zone.sizes;
        let printed = |watermarks: [u64; 4]| watermarks.into_iter().zip(zone.watermarks);
        let reached = |managed| {
            printed(self.watermarks(zone.kind, managed, sum)).all(|(m, p)| p.is_none_or(|p| m >= p))
        };
        let passed = |managed| {
            printed(self.watermarks(zone.kind, managed, sum)).any(|(m, p)| p.is_some_and(|p| m > p))
        };
        let low = first_where(first, last, reached)?;
        let high =
            first_where(low, last, passed).map_or(Some(last), |first| first.checked_sub(1))?;
        (low <= high).then_some((low, high))
    }

    /// Sizes from which all printed marks follow, as near to the upper ends as can be.
    pub fn solve(&self, zones: &[Evidence]) -> Option<Vec<u64>> {
        // Contradictory watermarks follow from no sizes, which needs no search.
        if !zones.iter().all(|zone| self.is_of_some_size(zone)) {
            return None;
        }
        let counted = || zones.iter().filter(|zone| self.counts(zone.kind));
        let (least, most) =
            counted().fold((0, 0), |(low, high), zone| (low + zone.sizes.0, high + zone.sizes.1));
        // With a larger sum each zone needs more pages for the same marks: from some sum on one of
        // them needs more than it can have had.
        let too_large = |sum| zones.iter().any(|zone| self.lacks(zone, sum));
        let start = match first_where(least.max(1), most, too_large) {
            Some(first) => first.checked_sub(1)?,
            None => most,
        };
        let mut sum = start;
        for tries in 0..TRIES_MAX {
            if sum < least {
                return None;
            }
            if let Some(sizes) = self.at(zones, sum) {
                return Some(sizes);
            }
            sum = sum.checked_sub(1 + tries / TRIES_CLOSE)?;
        }
        None
    }

    /// Whether a zone's largest size gives less than its watermarks.
    fn lacks(&self, zone: &Evidence, sum: u64) -> bool {
        let watermarks = self.watermarks(zone.kind, zone.sizes.1, sum);
        watermarks
            .into_iter()
            .zip(zone.watermarks)
            .any(|(watermark, printed)| printed.is_some_and(|p| watermark < p))
    }

    /// Sizes that give the watermarks and add up to `sum`.
    fn at(&self, zones: &[Evidence], sum: u64) -> Option<Vec<u64>> {
        let ranges: Option<Vec<(u64, u64)>> =
            zones.iter().map(|zone| self.sizes(zone, sum)).collect();
        let ranges = ranges?;
        let counted = |index: &usize| self.counts(zones[*index].kind);
        let total: u64 = (0..zones.len()).filter(counted).map(|index| ranges[index].1).sum();
        let mut excess = total.checked_sub(sum)?;
        let mut sizes: Vec<u64> = ranges.iter().map(|range| range.1).collect();
        for index in (0..zones.len()).filter(counted) {
            let take = excess.min(ranges[index].1 - ranges[index].0);
            sizes[index] -= take;
            excess -= take;
        }
        (excess == 0).then_some(sizes)
    }

    /// Whether a zone's marks fit together, for any sizes of the others.
    fn is_of_some_size(&self, zone: &Evidence) -> bool {
        let [Some(min), Some(low), Some(high), promo] = zone.watermarks else { return true };
        if zone.kind == ZoneKind::Movable && self.movable == MovableMin::Capped {
            return true;
        }
        let Some(gap) = low.checked_sub(min) else { return false };
        let watermarks = self.with(zone, min, gap);
        watermarks.is_some_and(|watermarks| {
            watermarks[..3] == [min, low, high] && promo.is_none_or(|p| p == watermarks[3])
        })
    }

    /// The printed marks with those replaced that cannot be right whatever size the zone had: at
    /// most one of a zone, which the others then contradict.
    pub fn repaired(&self, zone: &Evidence) -> [Option<u64>; 4] {
        let [Some(min), Some(low), Some(high), promo] = zone.watermarks else {
            return zone.watermarks;
        };
        if zone.kind == ZoneKind::Movable && self.movable == MovableMin::Capped {
            return evenly_spaced(zone.watermarks);
        }
        let gaps = [low.wrapping_sub(min), high.wrapping_sub(low), high.wrapping_sub(min) / 2];
        let mut best = (usize::MAX, zone.watermarks);
        for gap in gaps.into_iter().filter(|gap| *gap <= high) {
            for share in [min, low.wrapping_sub(gap)] {
                let Some(watermarks) = self.with(zone, share, gap) else { continue };
                let pairs = watermarks.into_iter().zip(zone.watermarks);
                let wrong = pairs.filter(|(m, p)| p.is_some_and(|p| *m != p)).count();
                if wrong < best.0 {
                    best = (
                        wrong,
                        [
                            Some(watermarks[0]),
                            Some(watermarks[1]),
                            Some(watermarks[2]),
                            promo.and(Some(watermarks[3])),
                        ],
                    );
                }
            }
        }
        if best.0 <= 1 { best.1 } else { zone.watermarks }
    }

    /// The watermarks of a zone whose share of the minimum is `share` pages and whose gap is `gap`,
    /// if a size gives that.
    fn with(&self, zone: &Evidence, share: u64, gap: u64) -> Option<[u64; 4]> {
        // A zone that is all there is has the whole minimum as its share.
        let kbytes = share.checked_mul(self.page.kbytes())?;
        let alone = Rules { min_free_kbytes: u32::try_from(kbytes).ok()?, ..*self };
        let wide = |managed| {
            let watermarks = alone.watermarks(zone.kind, managed, managed);
            watermarks[1] - watermarks[0] >= gap
        };
        let managed = first_where(1, zone.sizes.1.max(1), wide)?;
        Some(alone.watermarks(zone.kind, managed, managed))
    }
}

impl Lists {
    /// The sizes within `sizes` whose lists have this upper bound and batch. A batch that no size
    /// has says nothing.
    pub fn narrow(
        &self,
        sizes: (u64, u64),
        high_max: Option<u64>,
        batch: Option<u64>,
    ) -> Option<(u64, u64)> {
        let mut range = sizes;
        let of_batch = |managed| u64::from(size::batch(managed, self.cap_pages));
        let of_high = |managed| {
            let inputs = HighInputs {
                managed,
                low_watermark: 0,
                node_cpus: self.node_cpus,
                machine_cpus: self.machine_cpus,
                batch: size::batch(managed, self.cap_pages),
            };
            u64::from(size::high_bounds(&inputs, HighFraction::AUTO).max)
        };
        if let Some(batch) = batch {
            range = preimage(range, of_batch, batch).unwrap_or(range);
        }
        if let Some(high_max) = high_max {
            range = preimage(range, of_high, high_max)?;
        }
        Some(range)
    }
}

/// Four marks without the one that keeps them from being evenly spaced.
fn evenly_spaced(watermarks: [Option<u64>; 4]) -> [Option<u64>; 4] {
    let [Some(min), Some(low), Some(high), Some(promo)] = watermarks else { return watermarks };
    let (low_gap, high_gap, promo_gap) =
        (low.wrapping_sub(min), high.wrapping_sub(low), promo.wrapping_sub(high));
    let even = [low_gap == high_gap, high_gap == promo_gap];
    let mut kept = watermarks;
    match even {
        [true, true] => {}
        [false, true] => kept[0] = None,
        [true, false] => kept[3] = None,
        [false, false] if high.wrapping_sub(min) == promo_gap.wrapping_mul(2) => kept[1] = None,
        [false, false] if promo.wrapping_sub(low) == low_gap.wrapping_mul(2) => kept[2] = None,
        [false, false] => {}
    }
    kept
}

/// Where in `range` a function that never falls has this value.
fn preimage(range: (u64, u64), of: impl Fn(u64) -> u64, value: u64) -> Option<(u64, u64)> {
    let low = first_where(range.0, range.1, |x| of(x) >= value)?;
    let high = first_where(low, range.1, |x| of(x) > value).map_or(range.1, |first| first - 1);
    (low <= high && of(low) == value).then_some((low, high))
}

/// The first number of `low..=high` for which `holds`, which then holds for all above; `None`
/// without one.
pub fn first_where(low: u64, high: u64, holds: impl Fn(u64) -> bool) -> Option<u64> {
    if low > high || !holds(high) {
        return None;
    }
    let (mut low, mut high) = (low, high);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules {
        min_free_kbytes: 67_584,
        scale_factor: 10,
        movable: MovableMin::Capped,
        page: PageRules::OWN,
    };

    /// The watermarks of zones of these sizes, with upper ends `spare` above them.
    fn evidence(rules: &Rules, sizes: &[u64], spare: u64) -> Vec<Evidence> {
        let kinds = [ZoneKind::Dma, ZoneKind::Dma32, ZoneKind::Normal];
        let sum = sizes.iter().sum();
        let zone = |(kind, size): (ZoneKind, &u64)| Evidence {
            kind,
            watermarks: rules.watermarks(kind, *size, sum).map(Some),
            sizes: (1, size + spare),
        };
        kinds.into_iter().zip(sizes).map(zone).collect()
    }

    #[test]
    fn sizes_that_give_the_marks_are_found_however_many_pages_came_since() {
        for spare in [0, 1, 17, 2000, 60_000] {
            let zones = evidence(&RULES, &[3840, 752_000, 240_000], spare);
            let sizes = RULES.solve(&zones).expect("there is a solution");
            let sum = sizes.iter().sum();
            for (zone, size) in zones.iter().zip(&sizes) {
                assert_eq!(RULES.watermarks(zone.kind, *size, sum).map(Some), zone.watermarks);
                assert!(*size <= zone.sizes.1);
            }
        }
    }

    #[test]
    fn marks_that_follow_from_no_size_are_found_out() {
        for watermark in 0..4 {
            let mut zones = evidence(&RULES, &[3840, 752_000, 240_000], 3000);
            let right = zones[1].watermarks;
            zones[1].watermarks[watermark] = right[watermark].map(|value| value + 1);
            assert_eq!(RULES.solve(&zones), None, "watermark {watermark}");
            assert_eq!(RULES.repaired(&zones[1]), right, "watermark {watermark}");
        }
    }

    #[test]
    fn the_mark_that_is_not_evenly_spaced_is_left_out() {
        let right = [128, 8320, 16_512, 24_704].map(Some);
        assert_eq!(evenly_spaced(right), right);
        for watermark in 0..4 {
            let mut wrong = right;
            wrong[watermark] = right[watermark].map(|pages| pages - 1);
            let mut left = right;
            left[watermark] = None;
            assert_eq!(evenly_spaced(wrong), left);
        }
    }

    #[test]
    fn a_size_is_narrowed_by_what_else_followed_from_it() {
        let lists = Lists { node_cpus: 2, machine_cpus: 2, cap_pages: 256 };
        // LB K.2: high_max 48307 with two CPUs is an eighth of 772912 to 772927 pages.
        assert_eq!(lists.narrow((1, 1 << 20), Some(48_307), Some(63)), Some((772_912, 772_927)));
        assert_eq!(lists.narrow((1, 1 << 20), None, Some(31)), Some((90_112, 176_127)));
        assert_eq!(lists.narrow((1, 1 << 20), Some(48_307), Some(31)), None);
        assert_eq!(lists.narrow((1, 1 << 20), None, Some(2)), Some((1, 1 << 20)));
        assert_eq!(lists.narrow((1, 700_000), Some(48_307), None), None);
    }
}
