//! The numbers of a policy that are of a range, and whether they are.
//!
//! [`Policy::set`] refuses others by text. A program may write the fields itself, so whoever makes
//! something of a policy asks [`Policy::check_numbers`]: a shift by more bits than a number has, or
//! a division by a page of nothing, would come of them.

use core::ops::RangeInclusive;

use super::Policy;

/// Sysctls are C ints.
pub(super) const MAX_INT: u32 = i32::MAX as u32;

/// A number of a policy that its key does not accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutOfRange {
    /// The key.
    pub key: &'static str,
    /// The number.
    pub value: u64,
    /// The least that is accepted.
    pub low: u64,
    /// The most.
    pub high: u64,
}

/// One range for each: its name, the key, the place, the type, the numbers.
macro_rules! numbers {
    ($($name:ident $key:literal $($place:ident).+ : $kind:ident in $range:expr;)*) => {
        $(pub(super) const $name: RangeInclusive<$kind> = $range;)*

        impl Policy {
            /// Whether each number is one that its key accepts, however it was written.
            ///
            /// # Errors
            /// The first that is not.
            pub const fn check_numbers(&self) -> Result<(), OutOfRange> {
                $({
                    let value = self.$($place).+;
                    let (low, high) = (*$name.start(), *$name.end());
                    if value < low || value > high {
                        let (value, low, high) = (value as u64, low as u64, high as u64);
                        return Err(OutOfRange { key: $key, value, low, high });
                    }
                })*
                Ok(())
            }
        }

        #[cfg(test)]
        const KEYS: &[(&str, fn(&mut Policy, u64))] =
            &[$(($key, |policy, value| policy.$($place).+ = value as $kind),)*];
    };
}

numbers! {
    BATCH_CAP "pcp.batch_cap" pcp.batch_cap_pages: u64 in 1..=1 << 20;
    SCALE_MAX "pcp.scale_max" pcp.scale_max: u8 in 0..=6;
    HIGH_BATCHES "pcp.high_batches" pcp.high_batches: u32 in 0..=1 << 20;
    BULK_BLOCK "pcp.bulk_block" pcp.bulk_block: u8 in 0..=9;
    HOLD "pcp.hold" pcp.hold: u16 in 0..=1 << 15;
    BUDGET_FRACTION "pcp.budget_fraction" pcp.budget_fraction: u32 in 0..=1 << 20;
    STREAM "pcp.stream" pcp.stream: u32 in 0..=1 << 15;
    MAGAZINES "depot.batches" pcp.depot.magazines: u16 in 0..=MAGAZINES_MAX;
    DEPOT_BLOCK "depot.block" pcp.depot.block: u8 in 0..=10;
    MIN_FREE_MAX "watermark.min_free_max" watermark.min_free_max_kbytes: u32 in 0..=MAX_INT;
    SCALE_FACTOR "watermark.scale_factor" watermark.scale_factor: u32 in 0..=3000;
    SCALE_FACTOR_MAX "watermark.scale_factor_max" watermark.scale_factor_max: u32 in 0..=3000;
    BOOST_FACTOR "watermark.boost_factor" watermark.boost_factor: u32 in 0..=MAX_INT;
    MIN_UNMAPPED "node_reclaim.min_unmapped_ratio" node_reclaim.min_unmapped_ratio: u32 in 0..=100;
    MIN_SLAB "node_reclaim.min_slab_ratio" node_reclaim.min_slab_ratio: u32 in 0..=100;
    NUMA_THRESHOLD "numa.threshold" numa.threshold: u16 in 0..=65_533;
    PAGE_SHIFT "page.shift" page.shift: u8 in 12..=20;
    PAGE_BLOCK "page.block" page.block_order: u8 in 0..=14;
}

/// Magazines of a depot, as the field has them.
const MAGAZINES_MAX: u16 = crate::pcp::depot::MAGAZINES_MAX as u16;

#[cfg(test)]
mod tests {
    use super::super::set::{SETTINGS, Setting};
    use super::*;
    use std::string::ToString;

    extern crate std;

    /// The range that a setting says it accepts, if it is one.
    fn range(setting: &Setting) -> Option<(u64, u64)> {
        let text = setting.accepted().to_string();
        let (low, high) = text.split_once(" to ")?;
        Some((low.parse().ok()?, high.parse().ok()?))
    }

    #[test]
    fn every_number_with_a_range_is_checked_however_it_was_written() {
        let ranges = SETTINGS.iter().filter_map(|setting| Some((setting.key, range(setting)?)));
        let mut checked = 0;
        for (key, (low, high)) in ranges {
            let write = KEYS.iter().find(|(name, _)| *name == key).expect(key).1;
            let check = |value| {
                let mut policy = Policy::ZONAL;
                write(&mut policy, value);
                policy.check_numbers()
            };
            assert_eq!((check(low), check(high)), (Ok(()), Ok(())), "{key}");
            for value in [low.wrapping_sub(1), high + 1].into_iter().filter(|value| *value != !0) {
                assert_eq!(check(value), Err(OutOfRange { key, value, low, high }));
            }
            checked += 1;
        }
        assert_eq!(checked, KEYS.len(), "a number without a setting");
        for preset in Policy::PRESETS {
            assert_eq!(preset.check_numbers(), Ok(()), "{}", preset.name);
        }
    }
}
