//! Storages of NUMA events up to 5.13: deltas of 8 and of 16 bits that fold when they are full
//! (LB F.7).

use crate::platform::{Instruction, Line, Platform};
use crate::sync::AtomicI64;
use crate::types::ZoneId;
use crate::vmstat::threshold::fold_mod;
use crate::vmstat::update::{Change, Form, Place, Updated, change, change_by};
use crate::vmstat::variant::{NumaStorage, Update};

/// Counts `count` events on a CPU's delta. Storages of signed deltas are updated as the zone's
/// other items are.
pub fn record<P: Platform>(
    platform: &P,
    zone: ZoneId,
    (storage, update): (NumaStorage, Update),
    (diff, threshold): (&AtomicI64, i64),
    shared: &AtomicI64,
    count: u32,
) {
    let place = match storage {
        NumaStorage::S8InZoneStats => Place::items(zone),
        _ => Place { zone, lines: [Line::ZoneNuma(zone), Line::MachineNuma] },
    };
    for _ in 0..count {
        if storage == NumaStorage::U16 {
            let next = |old| {
                let (diff, fold) = fold_mod(old, threshold, 1);
                Updated { diff, fold, lost: 0 }
            };
            change_by(platform, place, Instruction::Plain, next, diff, shared);
        } else {
            let how = (update, Form::Raw);
            change(platform, place, how, Change::Inc, (diff, threshold), shared);
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;
    use crate::support::Script;
    use crate::vmstat::numa::{NumaCounters, NumaDeltas, NumaItem, NumaRule, plus};
    use crate::vmstat::variant::NumaPolicy;

    /// After how many hits the zone's counter moved, and by how much, for the first two folds.
    fn folds(policy: NumaPolicy, zone_threshold: u32, events: usize) -> Vec<(usize, i64)> {
        let rule = NumaRule { policy, update: Update::Irq, zone_threshold, zone: ZoneId(0) };
        let (deltas, zone) = (NumaDeltas::default(), NumaCounters::default());
        let mut seen = Vec::new();
        let mut before = 0;
        for event in 1..=events {
            deltas.record(&Script::default(), &rule, NumaItem::Hit, 1, &zone);
            let now = zone.get()[0];
            if now != before {
                seen.push((event, now - before));
            }
            before = now;
        }
        assert_eq!(plus(zone.get(), deltas.peek())[0], events as i64);
        seen
    }

    #[test]
    fn each_storage_folds_where_it_did() {
        // LB F.7 and K.4.
        assert_eq!(folds(NumaPolicy::V4_13, 125, 400), [(126, 188), (314, 188)]);
        let v1 = folds(NumaPolicy::SPLIT_V1, 125, 100_000);
        assert_eq!(v1, [(32_766, 49_148), (81_914, 49_148)]);
        let v2 = folds(NumaPolicy::V4_14, 125, 140_000);
        assert_eq!(v2, [(65_534, 65_534), (131_068, 65_534)]);
        assert_eq!(folds(NumaPolicy::V5_14, 125, 140_000), []);
    }

    #[test]
    fn a_threshold_of_ones_own_is_that_of_the_table_of_2017() {
        let policy = NumaPolicy { threshold: 64, ..NumaPolicy::SPLIT_V1 };
        assert_eq!(folds(policy, 125, 200), [(65, 97), (162, 97)]);
        let policy = NumaPolicy { threshold: 64, ..NumaPolicy::V4_14 };
        assert_eq!(folds(policy, 125, 200), [(65, 65), (130, 65), (195, 65)]);
    }
}
