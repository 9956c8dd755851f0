//! Sizes of the per-CPU page lists: the batch they move, and the bounds of their contents.
//!
//! Pure arithmetic on a zone's size, its low watermark and its CPUs. A separate setting decides
//! when it is called (LB E.4 triggers, E.11): a change of `managed` alone recomputes nothing.

#[cfg(feature = "history")]
use crate::pcp::history;
use crate::types::choice;

/// Largest chunk before it is divided and rounded, in pages: 1 MiB since 4.19 (LB E.3).
pub const BATCH_CAP_PAGES: u64 = 256;
/// The same up to 4.18: 512 KiB (LB E.3).
pub const BATCH_CAP_PAGES_4_18: u64 = 128;
/// Lists of a CPU may always hold this many batches (LB E.4).
pub const BATCHES_MIN: u32 = 4;
/// Smallest `percpu_pagelist_high_fraction` that is not 0 (LB E.4).
pub const HIGH_FRACTION_MIN: u32 = 8;

choice! {
    /// How the sizes follow from a zone (LB E.4, E.11).
    #[derive(Default)]
    pub enum SizeRule {
        /// Each CPU's lists hold six chunks, or `1/f` of the zone where `percpu_pagelist_fraction`
        /// is `f`, which sets the chunk too. Up to 5.12.
        SixBatches = "six-batches" if "history",
        /// The CPUs of the node share its low watermark, or `1/f` of the zone where
        /// `percpu_pagelist_high_fraction` is `f`. 5.13 to 6.6.
        LowWatermarkSplit = "low-mark",
        /// As before for the lower bound; the upper one is a share of an eighth of the zone. 6.7
        /// on.
        #[default]
        MinMaxBounds = "bounds",
    }
}

/// Which share of the last-level cache a CPU counts as its own (LB E.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CacheSlice {
    /// By the machine.
    #[default]
    Machine,
    /// A number of bytes; 0 keeps nothing back from streams of large frees.
    Bytes(u64),
}

impl CacheSlice {
    /// The share in bytes on a machine that says `machine` bytes.
    pub const fn bytes(self, machine: u64) -> u64 {
        match self {
            CacheSlice::Machine => machine,
            CacheSlice::Bytes(bytes) => bytes,
        }
    }
}

/// What [`sizes`] looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeInputs {
    /// Managed pages of the zone.
    pub managed: u64,
    /// Its low watermark, boost included.
    pub low_watermark: u64,
    /// Online CPUs of its node, and one more while a CPU comes online.
    pub node_cpus: u32,
    /// Online CPUs of the machine, which share the zones of nodes without CPUs.
    pub machine_cpus: u32,
    /// [`BATCH_CAP_PAGES`] or its older value.
    pub cap_pages: u64,
    /// The sysctl `percpu_pagelist_high_fraction`, up to 5.12 `percpu_pagelist_fraction`.
    pub fraction: HighFraction,
}

/// Sizes of one CPU's lists of one zone, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sizes {
    /// The chunk, at least 1.
    pub batch: u32,
    /// The lists' limit: the lower bound, or the upper one.
    pub high_min: u32,
    /// The upper bound; up to 6.6 the same.
    pub high_max: u32,
}

/// `percpu_pagelist_high_fraction`: 0 lets the lists tune themselves, `f` fixes their size at the
/// `f`-th part of the zone, shared by its CPUs (LB E.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HighFraction(u32);

/// A fraction of 1 to 7, or below 0: the kernel answers EINVAL and keeps the old value (LB E.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvalidFraction(i32);

/// Inputs of the bounds of one zone's lists (LB E.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HighInputs {
    /// Managed pages of the zone.
    pub managed: u64,
    /// Its low watermark, boost included.
    pub low_watermark: u64,
    /// Online CPUs of its node; the CPU that is just coming online counts, although its node does
    /// not list it yet.
    pub node_cpus: u32,
    /// Online CPUs of the machine, which share the zones of nodes without CPUs.
    pub machine_cpus: u32,
    /// The chunk, from [`batch`].
    pub batch: u32,
}

/// Bounds of the pages on one CPU's lists of one zone. `min` may exceed `max`: for a zone without
/// pages, or with a low watermark above an eighth of it (LB E.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HighBounds {
    /// Lists of this size are always allowed.
    pub min: u32,
    /// Lists never grow beyond it.
    pub max: u32,
}

impl HighFraction {
    /// No fraction: the lists tune themselves.
    pub const AUTO: HighFraction = HighFraction(0);

    /// The fraction as written by a user.
    ///
    /// # Errors
    /// [`InvalidFraction`] for a value that is neither 0 nor at least [`HIGH_FRACTION_MIN`].
    pub const fn new(written: i32) -> Result<HighFraction, InvalidFraction> {
        if written == 0 || written >= HIGH_FRACTION_MIN as i32 {
            Ok(HighFraction(written as u32))
        } else {
            Err(InvalidFraction(written))
        }
    }

    /// The fraction; 0 for [`HighFraction::AUTO`].
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// The chunk before it is raised to 1, in pages: 0 to 63, one less than a power of two (LB E.3), so
/// that CPUs that refill in turn do not each get one half of the page colours. `cap_pages` is
/// [`BATCH_CAP_PAGES`] or its older value. Up to 5.12 a raw chunk of 0 switched the lists off
/// (LB E.11).
pub const fn batch_raw(managed: u64, cap_pages: u64) -> u32 {
    let share = managed >> 10;
    let capped = if share < cap_pages { share } else { cap_pages };
    let quarter = if capped / 4 > 1 { capped / 4 } else { 1 };
    let wide = quarter + quarter / 2;
    ((1u64 << wide.ilog2()) - 1) as u32
}

/// Pages that move between a zone and a list at a time (LB E.3).
pub const fn batch(managed: u64, cap_pages: u64) -> u32 {
    let raw = batch_raw(managed, cap_pages);
    if raw > 1 { raw } else { 1 }
}

/// The bounds for this fraction (LB E.4). With [`HighFraction::AUTO`] the floor follows from the
/// low watermark, so that full lists alone cannot push the zone below it, and the ceiling is an
/// eighth of the zone; with a fraction both are the same, which also stops the tuning.
pub const fn high_bounds(zone: &HighInputs, fraction: HighFraction) -> HighBounds {
    if fraction.0 == 0 {
        let eighth = zone.managed / HIGH_FRACTION_MIN as u64;
        HighBounds { min: high_share(zone, zone.low_watermark), max: high_share(zone, eighth) }
    } else {
        let high = high_share(zone, zone.managed / fraction.0 as u64);
        HighBounds { min: high, max: high }
    }
}

/// The sizes of one CPU's lists of a zone by any release's rule (LB E.3, E.4, E.11).
pub const fn sizes(rule: SizeRule, zone: &SizeInputs) -> Sizes {
    let &SizeInputs { managed, low_watermark, node_cpus, machine_cpus, cap_pages, fraction } = zone;
    let batch = batch(managed, cap_pages);
    let inputs = HighInputs { managed, low_watermark, node_cpus, machine_cpus, batch };
    match rule {
        #[cfg(feature = "history")]
        SizeRule::SixBatches => {
            let chunks = (batch, batch_raw(managed, cap_pages));
            let (batch, high) = history::six_batches(managed, chunks, fraction.0);
            Sizes { batch, high_min: high, high_max: high }
        }
        SizeRule::LowWatermarkSplit => {
            let high = high_bounds(&inputs, fraction).min;
            Sizes { batch, high_min: high, high_max: high }
        }
        SizeRule::MinMaxBounds => {
            let HighBounds { min, max } = high_bounds(&inputs, fraction);
            Sizes { batch, high_min: min, high_max: max }
        }
    }
}

/// The part of the last-level cache that one CPU may count as its own, in bytes (LB E.5).
/// `llc_bytes` is `None` where the last cache leaf holds instructions or is not known; the flag of
/// [`free_high_batch`] is then off.
pub const fn cache_slice_bytes(llc_bytes: Option<u64>, sharers: u32) -> u64 {
    match llc_bytes {
        Some(bytes) if sharers > 0 => bytes / sharers as u64,
        _ => 0,
    }
}

/// Whether the cache holds enough of the lists that a chunk of freed blocks above order 0 should
/// stay on them (LB E.5, `FREE_HIGH_BATCH`).
pub const fn free_high_batch(slice_bytes: u64, batch: u32) -> bool {
    slice_bytes >> crate::types::PAGE_SHIFT > 3 * batch as u64
}

/// What a CPU may take and give back in turn and find in its cache, in pages: its share of the
/// last-level cache, but four chunks at least.
pub const fn swing_most(slice_bytes: u64, batch: u32) -> u32 {
    let (share, floor) =
        (slice_bytes >> crate::types::PAGE_SHIFT, batch as u64 * BATCHES_MIN as u64);
    saturated(if share > floor { share } else { floor })
}

/// One CPU's share of `total` pages, at least four chunks (LB E.4, `highsize`).
const fn high_share(zone: &HighInputs, total: u64) -> u32 {
    let cpus = if zone.node_cpus != 0 { zone.node_cpus } else { zone.machine_cpus };
    let share = if cpus == 0 { total } else { total / cpus as u64 };
    let floor = zone.batch as u64 * BATCHES_MIN as u64;
    let pages = if share > floor { share } else { floor };
    saturated(pages)
}

const fn saturated(pages: u64) -> u32 {
    if pages > u32::MAX as u64 { u32::MAX } else { pages as u32 }
}

impl core::fmt::Display for InvalidFraction {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "percpu_pagelist_high_fraction is {}; expected 0 (tune automatically) or at least {}",
            self.0, HIGH_FRACTION_MIN
        )
    }
}
impl core::error::Error for InvalidFraction {}

#[cfg(test)]
mod tests {
    use super::*;

    /// LB E.3 and K.1: the smallest zone of each raw chunk.
    const RAW: [(u64, u32); 7] =
        [(0, 0), (8192, 1), (12_288, 3), (24_576, 7), (45_056, 15), (90_112, 31), (176_128, 63)];

    #[test]
    fn each_chunk_starts_at_its_zone_size() {
        for (i, &(managed, raw)) in RAW.iter().enumerate() {
            assert_eq!(batch_raw(managed, BATCH_CAP_PAGES), raw);
            assert_eq!(batch(managed, BATCH_CAP_PAGES), raw.max(1));
            if i > 0 {
                assert_eq!(batch_raw(managed - 1, BATCH_CAP_PAGES), RAW[i - 1].1);
            }
        }
        assert_eq!(batch_raw(u64::MAX, BATCH_CAP_PAGES), 63);
    }

    #[test]
    fn the_cap_of_4_18_ends_at_31() {
        for &(managed, raw) in &RAW {
            assert_eq!(batch_raw(managed, BATCH_CAP_PAGES_4_18), raw.min(31));
        }
        assert_eq!(batch(u64::MAX, BATCH_CAP_PAGES_4_18), 31);
    }

    const ZONE: SizeInputs = SizeInputs {
        managed: 0,
        low_watermark: 0,
        node_cpus: 4,
        machine_cpus: 4,
        cap_pages: BATCH_CAP_PAGES,
        fraction: HighFraction::AUTO,
    };

    #[test]
    fn from_5_13_the_low_mark_is_shared_and_from_6_7_there_is_a_ceiling() {
        let zone = SizeInputs { managed: 1_310_720, low_watermark: 3129, ..ZONE };
        let of = |rule, fraction| {
            let fraction = HighFraction::new(fraction).unwrap();
            let Sizes { batch, high_min, high_max } = sizes(rule, &SizeInputs { fraction, ..zone });
            (batch, high_min, high_max)
        };
        // Machine E2 of LB K.
        assert_eq!(of(SizeRule::LowWatermarkSplit, 0), (63, 782, 782));
        assert_eq!(of(SizeRule::MinMaxBounds, 0), (63, 782, 40_960));
        assert_eq!(of(SizeRule::LowWatermarkSplit, 8), (63, 40_960, 40_960));
        assert_eq!(of(SizeRule::MinMaxBounds, 8), (63, 40_960, 40_960));
        #[cfg(feature = "history")]
        assert_eq!(of(SizeRule::SixBatches, 0), (63, 378, 378));
        // One CPU more, while it comes online (LB E.4).
        let more = SizeInputs { node_cpus: 5, ..zone };
        assert_eq!(sizes(SizeRule::MinMaxBounds, &more).high_min, 3129 / 5);
    }

    #[test]
    fn fractions_one_to_seven_are_refused() {
        for written in [-1, 1, 7] {
            assert_eq!(HighFraction::new(written), Err(InvalidFraction(written)));
        }
        assert_eq!(HighFraction::new(0), Ok(HighFraction::AUTO));
        assert_eq!(HighFraction::new(8).map(HighFraction::get), Ok(8));
    }

    #[test]
    fn a_fraction_fixes_both_bounds() {
        let zone = HighInputs {
            managed: 3_300_000,
            low_watermark: 6574,
            node_cpus: 8,
            machine_cpus: 8,
            batch: 63,
        };
        let fixed = high_bounds(&zone, HighFraction::new(8).unwrap());
        assert_eq!(fixed, HighBounds { min: 51_562, max: 51_562 });
        let auto = high_bounds(&zone, HighFraction::AUTO);
        assert_eq!(auto, HighBounds { min: 821, max: 51_562 });
    }

    #[test]
    fn the_floor_may_be_above_the_ceiling() {
        // An empty movable zone with four CPUs (LB E.4).
        let zone =
            HighInputs { managed: 0, low_watermark: 32, node_cpus: 4, machine_cpus: 4, batch: 1 };
        assert_eq!(high_bounds(&zone, HighFraction::AUTO), HighBounds { min: 8, max: 4 });
    }

    #[test]
    fn a_node_without_cpus_shares_its_zone_among_all() {
        let zone = HighInputs {
            managed: 8_192_000,
            low_watermark: 13_307,
            node_cpus: 0,
            machine_cpus: 16,
            batch: 63,
        };
        assert_eq!(high_bounds(&zone, HighFraction::AUTO), HighBounds { min: 831, max: 64_000 });
    }

    #[test]
    fn a_slice_of_760_kib_is_large_enough_for_a_chunk_of_63() {
        assert!(free_high_batch(190 << 12, 63));
        assert!(!free_high_batch((190 << 12) - 1, 63));
        assert_eq!(swing_most(190 << 12, 63), 4 * 63);
        assert_eq!(swing_most(300 << 12, 63), 300);
        assert_eq!(cache_slice_bytes(Some(32 << 20), 8), 4 << 20);
        assert_eq!(cache_slice_bytes(None, 8), 0);
        assert_eq!(cache_slice_bytes(Some(1), 0), 0);
    }
}
