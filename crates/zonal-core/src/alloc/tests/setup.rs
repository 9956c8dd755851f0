//! What `setup` computes, and in which order (LB C.3).

use std::vec;

use super::platform::*;
use crate::alloc::forked::{catch_up, limits_gone};
use crate::alloc::limits::{BUSY, UNDER_WAY, WATERMARKS};
use crate::alloc::{OnlineError, Sysctl};
use crate::policy::{MinFreeRule, Policy, WatermarkPolicy};
use crate::sync::Ordering::Relaxed;
use crate::types::{NodeId, ZoneId, ZoneKind};
use crate::zone::state::MANAGED_MAX;
use crate::zone::watermark::{MIN_FREE_KBYTES_CEILING_5_6, MovableMin, Watermark};

/// One node with two CPUs.
fn shape(zones: &[(ZoneKind, u64, u64)]) -> Shape {
    Shape {
        distances: distances(1),
        zones: zones.iter().map(|&(kind, start, pages)| zone(0, kind, start, pages)).collect(),
        cpus: vec![NodeId(0); 2],
        cache_slice_bytes: 0,
        caches: std::vec::Vec::new(),
    }
}

/// The figures are a 6.12 kernel's after a boot with 700 MiB.
#[test]
fn what_huge_pages_ask_for_is_capped_by_what_is_above_the_first_marks() {
    let zones = shape(&[(ZoneKind::Dma, 0, 3840), (ZoneKind::Dma32, 4096, 159_412)]);
    let allocator = zones.boot(Policy::LINUX_6_12);
    assert_eq!(allocator.stats().min_free_kbytes(), 32_408);
    let watermarks = [Watermark::Min, Watermark::Low, Watermark::High, Watermark::Promo];
    let of = |zone: usize| {
        watermarks.map(|watermark| allocator.zones()[zone].watermarks().of(watermark))
    };
    assert_eq!(of(0), [190, 237, 284, 331]);
    assert_eq!(of(1), [7911, 9888, 11_865, 13_842]);
    // LB A.7: the DMA zone keeps back 622 pages of 159412 above it.
    assert_eq!(allocator.stats().total_reserve(), 622 + 284 + 11_865);
    assert_eq!(allocator.stats().allocatable_pages(), 3840 - 284 + 159_412 - 11_865);
}

/// The figures are those of 6.12 kernels booted with huge pages off: with 256 MiB they are not even
/// set up; with 1 GiB the rule is applied again.
#[test]
fn with_huge_pages_off_the_rule_is_applied_again_to_what_is_above_the_marks() {
    let min_free = |dma32: u64| {
        let min_free = MinFreeRule::LinuxThpOff;
        let watermark = WatermarkPolicy { min_free, ..Policy::LINUX_6_12.watermark };
        let zones = shape(&[(ZoneKind::Dma, 0, 3840), (ZoneKind::Dma32, 4096, dma32)]);
        zones.boot(Policy { watermark, ..Policy::LINUX_6_12 }).stats().min_free_kbytes()
    };
    assert_eq!(min_free(48_050), 1822);
    assert_eq!(min_free(241_400), 3949);
}

#[test]
fn a_movable_zone_shares_in_the_minimum_only_where_the_policy_says_so() {
    let zones = [(ZoneKind::Normal, 0, 4096), (ZoneKind::Movable, 4096, 4096)];
    let min = |movable_min| {
        let watermark = WatermarkPolicy { movable_min, ..Policy::LINUX_6_12.watermark };
        let allocator = shape(&zones).boot(Policy { watermark, ..Policy::LINUX_6_12 });
        let kbytes = allocator.stats().min_free_kbytes();
        (kbytes, [0, 1].map(|zone| allocator.zones()[zone].watermarks().of(Watermark::Min)))
    };
    // isqrt(4096 * 4 * 16) is 512; huge pages may raise it to a twentieth of what is above.
    let (kbytes, [normal, movable]) = min(MovableMin::Capped);
    assert_eq!((normal, movable), (u64::from(kbytes) / 4, 32));
    let (kbytes, [normal, movable]) = min(MovableMin::Share);
    assert_eq!((normal, movable), (u64::from(kbytes) / 8, u64::from(kbytes) / 8));
}

#[test]
fn the_square_root_rule_ends_at_the_policys_ceiling() {
    let min_free = |min_free_max_kbytes| {
        let watermark = WatermarkPolicy { min_free_max_kbytes, ..Policy::LINUX_6_12.watermark };
        let allocator =
            shape(&[(ZoneKind::Normal, 0, 16)]).boot(Policy { watermark, ..Policy::LINUX_6_12 });
        allocator.withhold(ZoneId(0), 1 << 32).unwrap();
        allocator.setup();
        allocator.stats().min_free_kbytes()
    };
    assert_eq!(min_free(MIN_FREE_KBYTES_CEILING_5_6), 65_536);
    assert_eq!(min_free(Policy::LINUX_6_12.watermark.min_free_max_kbytes), 262_144);
}

#[test]
fn pages_withheld_count_as_managed_and_limits_follow_with_the_next_setup() {
    let allocator = shape(&[(ZoneKind::Normal, 0, 4096)]).boot(Policy::LINUX_6_12);
    let zone = &allocator.zones()[0];
    let before = (zone.watermarks(), zone.pcp_sizes(), zone.stat_threshold());
    allocator.withhold(ZoneId(0), 1 << 20).unwrap();
    assert_eq!((zone.watermarks(), zone.pcp_sizes(), zone.stat_threshold()), before);
    assert_eq!((zone.managed(), zone.withheld()), (4096 + (1 << 20), 1 << 20));
    allocator.setup();
    assert!(zone.watermarks().min > before.0.min);
    assert_eq!(zone.pcp_sizes().0, 63);
    assert_eq!(zone.free_counter(), 4096);
    allocator.validate().unwrap();
    let nowhere = allocator.withhold(ZoneId(1), 7);
    assert_eq!(nowhere, Err(OnlineError::OutsideZone(ZoneId(1), 0, 7)));
    for pages in [MANAGED_MAX - (1 << 20) - 4095, u64::MAX] {
        let most = allocator.withhold(ZoneId(0), pages);
        assert_eq!(most, Err(OnlineError::OutsideZone(ZoneId(0), 0, pages)));
    }
    assert_eq!((zone.managed(), zone.withheld()), (4096 + (1 << 20), 1 << 20));
}

/// As in a forked child, where the thread that computes limits is not: sysctls were taken, had no
/// effect, and who waited for limits waited for ever.
#[test]
fn limits_that_a_thread_left_behind_are_computed_by_the_next() {
    let allocator = shape(&[(ZoneKind::Normal, 0, 1 << 18)]).boot(Policy::LINUX_6_12);
    let min = || allocator.zones()[0].watermarks().min;
    let set = |kbytes| allocator.set(Sysctl::MinFreeKbytes, kbytes).unwrap();
    set(4096);
    assert_eq!(min(), 1024);
    // Another thread has taken what `set` asked for, and is gone.
    let left = allocator.tables.limits.fetch_or(BUSY | WATERMARKS << UNDER_WAY, Relaxed);
    assert_eq!(left, 0);
    set(8192);
    assert_eq!(min(), 1024, "somebody is at it");
    limits_gone(&allocator);
    catch_up(&allocator);
    assert_eq!((min(), allocator.tables.limits.load(Relaxed)), (2048, 0));
    // Nobody asked for anything since.
    allocator.tables.limits.store(BUSY | WATERMARKS << UNDER_WAY, Relaxed);
    allocator.tables.tunables.write_min_free_kbytes(16_384);
    limits_gone(&allocator);
    assert_eq!(min(), 2048);
    catch_up(&allocator);
    assert_eq!((min(), allocator.tables.limits.load(Relaxed)), (4096, 0));
    // Nothing is left over, so nothing is computed.
    let holds = allocator.zones()[0].lock_holds();
    limits_gone(&allocator);
    catch_up(&allocator);
    assert_eq!(allocator.zones()[0].lock_holds(), holds);
}
