//! Sizes of the lists of cold pages, about 2.6.24 (LB E.11).

use crate::pcp::size::{Sizes, batch_raw};

/// The sizes of the lists of pages that are in no CPU's cache (about 2.6.24). No fraction changes
/// them.
pub const fn sizes(managed: u64, cap_pages: u64) -> Sizes {
    let raw = batch_raw(managed, cap_pages);
    let batch = if raw / 2 > 1 { raw / 2 } else { 1 };
    Sizes { batch, high_min: 2 * raw, high_max: 2 * raw }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcp::size::{
        BATCH_CAP_PAGES, BATCH_CAP_PAGES_4_18, HighFraction, SizeInputs, SizeRule, sizes,
    };

    /// LB E.3 and K.1: the smallest zone of each raw chunk.
    const RAW: [(u64, u32); 7] =
        [(0, 0), (8192, 1), (12_288, 3), (24_576, 7), (45_056, 15), (90_112, 31), (176_128, 63)];

    const ZONE: SizeInputs = SizeInputs {
        managed: 0,
        low_watermark: 0,
        node_cpus: 4,
        machine_cpus: 4,
        cap_pages: BATCH_CAP_PAGES,
        fraction: HighFraction::AUTO,
    };

    #[test]
    fn up_to_5_12_lists_hold_six_raw_chunks() {
        for cap_pages in [BATCH_CAP_PAGES, BATCH_CAP_PAGES_4_18] {
            let of = |(managed, _)| {
                sizes(SizeRule::SixBatches, &SizeInputs { managed, cap_pages, ..ZONE })
            };
            let last = if cap_pages == BATCH_CAP_PAGES { 63 } else { 31 };
            // LB E.11: a raw chunk of 0 switches the lists off, with a batch of 1.
            assert_eq!(RAW.map(of).map(|s| s.high_min), [0, 6, 18, 42, 90, 186, 6 * last]);
            assert_eq!(RAW.map(of).map(|s| s.high_max), RAW.map(of).map(|s| s.high_min));
            assert_eq!(RAW.map(of).map(|s| s.batch), [1, 1, 3, 7, 15, 31, last]);
        }
    }

    #[test]
    fn up_to_5_12_a_fraction_sets_the_chunk_too() {
        // managed, fraction, batch, high: a quarter of high, from 1 to 96 (LB E.11).
        for (managed, fraction, batch, high) in [
            (1_000_000, 8, 96, 125_000),
            (3840, 8, 96, 480),
            (3840, 64, 15, 60),
            (3840, 2000, 1, 1),
        ] {
            let fraction = HighFraction::new(fraction).unwrap();
            let zone = SizeInputs { managed, fraction, ..ZONE };
            let expected = Sizes { batch, high_min: high, high_max: high };
            assert_eq!(sizes(SizeRule::SixBatches, &zone), expected);
        }
    }

    #[test]
    fn cold_lists_are_a_third_of_the_hot_ones() {
        let of = |managed| super::sizes(managed, BATCH_CAP_PAGES_4_18);
        assert_eq!(of(1 << 20), Sizes { batch: 15, high_min: 62, high_max: 62 });
        assert_eq!(of(8192), Sizes { batch: 1, high_min: 2, high_max: 2 });
        assert_eq!(of(100), Sizes { batch: 1, high_min: 0, high_max: 0 });
    }
}
