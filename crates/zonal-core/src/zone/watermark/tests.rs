use super::*;

const CEILING: u32 = MIN_FREE_KBYTES_CEILING;
const OWN: PageRules = PageRules::OWN;

/// The zone of LB K.5: min 1000, reserve 200, nothing set aside, blocks of every order and type.
fn vector_zone(free: u64) -> ZoneSnapshot {
    let every_order = (1 << crate::types::NR_ORDERS) - 1;
    let mut by_type = [0; NR_MIGRATETYPES];
    by_type[Migratetype::Movable.index()] = every_order;
    let blocks = FreeBlocks { by_type, cma: 0 };
    ZoneSnapshot { free, reserve: 200, blocks, ..ZoneSnapshot::default() }
}

const WATERMARKS: Watermarks =
    Watermarks { min: 1000, low: 1250, high: 1500, promo: 1750, boost: 0 };
const KERNEL: AllocFlags = AllocFlags::WMARK_MIN;
const HIGH: AllocFlags = AllocFlags::MIN_RESERVE;
const OOM: AllocFlags = AllocFlags::OOM;

fn atomic() -> AllocFlags {
    AllocFlags::MIN_RESERVE | AllocFlags::NON_BLOCK
}

/// Checks that `ok` and `ok_fast` hold above `threshold` free pages, and not at it.
fn assert_threshold(
    threshold: u64,
    order: u32,
    flags: AllocFlags,
    change: impl Fn(&mut ZoneSnapshot),
) {
    let order = Order::new(order).unwrap();
    for (free, want) in [(threshold - 1, false), (threshold, false), (threshold + 1, true)] {
        let mut zone = vector_zone(free);
        change(&mut zone);
        assert_eq!(zone.ok(order, WATERMARKS.min, flags), want, "{order:?} {flags:?} free {free}");
        assert_eq!(
            zone.ok_fast(order, &WATERMARKS, Watermark::Min, flags),
            want,
            "{order:?} {flags:?}"
        );
    }
}

#[test]
fn an_order_zero_request_passes_above_its_threshold_only() {
    assert_threshold(1200, 0, KERNEL, |_| ());
    assert_threshold(700, 0, HIGH, |_| ());
    assert_threshold(575, 0, atomic(), |_| ());
    assert_threshold(700, 0, OOM, |_| ());
    assert_threshold(450, 0, HIGH | OOM, |_| ());
    // A right to not block alone lowers nothing (LB C.5).
    assert_threshold(1200, 0, AllocFlags::NON_BLOCK, |_| ());
}

/// LB C.5, the rule up to 6.3, for the zone of K.5.
#[test]
fn up_to_6_3_a_request_that_cannot_block_has_a_right_of_its_own() {
    let old = |zone: &mut ZoneSnapshot| zone.rights = ReserveRights::HighHarder;
    assert_threshold(1200, 0, KERNEL, old);
    assert_threshold(700, 0, HIGH, old);
    assert_threshold(750 + 200, 0, AllocFlags::NON_BLOCK, old);
    assert_threshold(375 + 200, 0, atomic(), old);
    assert_threshold(700, 0, OOM, old);
    // The right of a task that is killed takes the place of the other.
    assert_threshold(250 + 200, 0, atomic() | OOM, old);
}

#[test]
fn an_order_three_request_leaves_the_mark_behind_it_and_needs_a_block() {
    assert_threshold(1207, 3, KERNEL, |_| ());
    assert_threshold(582, 3, atomic() | AllocFlags::HIGHATOMIC, |_| ());
    let order = Order::new(3).unwrap();
    let mut zone = vector_zone(5000);
    zone.blocks = FreeBlocks::default();
    zone.blocks.by_type[Migratetype::Unmovable.index()] = 0b0111;
    zone.blocks.by_type[Migratetype::HighAtomic.index()] = 0b1000;
    zone.blocks.by_type[Migratetype::Isolate.index()] = 0b1000;
    assert!(!zone.ok(order, 1000, KERNEL));
    assert!(!zone.ok(order, 1000, atomic()));
    assert!(zone.ok(order, 1000, atomic() | AllocFlags::HIGHATOMIC));
    assert!(zone.ok(order, 1000, OOM));
    zone.blocks = FreeBlocks { cma: 1 << 10, ..FreeBlocks::default() };
    assert!(!zone.ok(order, 1000, KERNEL));
    assert!(zone.ok(order, 1000, AllocFlags::CMA));
}

#[test]
fn pages_set_aside_count_only_for_those_they_are_set_aside_for() {
    let highatomic = |zone: &mut ZoneSnapshot| zone.highatomic_free = 300;
    assert_threshold(1500, 0, KERNEL, highatomic);
    assert_threshold(700, 0, HIGH, highatomic);
    assert_threshold(1200, 0, AllocFlags::NON_BLOCK, highatomic);
    let cma = |zone: &mut ZoneSnapshot| zone.cma_free = 50;
    assert_threshold(1250, 0, KERNEL, cma);
    assert_threshold(1200, 0, AllocFlags::CMA, cma);
}

#[test]
fn more_pages_set_aside_than_free_is_a_failed_test_and_no_overflow() {
    let zone = ZoneSnapshot { highatomic_free: 9, cma_free: 9, ..vector_zone(3) };
    assert!(!zone.ok(Order::MAX, 0, KERNEL));
    assert!(!zone.ok_fast(Order::ZERO, &Watermarks::default(), Watermark::Min, KERNEL));
}

#[test]
fn as_many_orders_are_said_to_pass_as_do() {
    let flags = [KERNEL, HIGH, atomic(), OOM, AllocFlags::CMA, AllocFlags::HIGHATOMIC];
    let frees = (0..12).flat_map(|bits| [0, 1, 2].map(|less| 1209 + (1u64 << bits) - less));
    for free in frees.chain([0, 3, 1200, 5000]) {
        for (listed, highatomic_free) in [(0, 0), (1, 0), (1 << 3, 9), (1 << 10, 9), (0b1001, 2)] {
            for (mt, flags) in flags.iter().enumerate() {
                let mut zone = ZoneSnapshot { highatomic_free, ..vector_zone(free) };
                zone.blocks = FreeBlocks { cma: 1 << 5, ..FreeBlocks::default() };
                zone.blocks.by_type[mt % NR_MIGRATETYPES] = listed;
                let passes = |order: &Order| zone.ok(*order, WATERMARKS.min, *flags);
                let orders = Order::all().filter(passes).count() as u32;
                assert_eq!(zone.orders_ok(WATERMARKS.min, *flags), orders, "{zone:?} {flags:?}");
            }
        }
    }
}

#[test]
fn other_marks_take_the_place_of_min() {
    assert!(!vector_zone(1700).ok_fast(Order::ZERO, &WATERMARKS, Watermark::High, KERNEL));
    assert!(vector_zone(1701).ok_fast(Order::ZERO, &WATERMARKS, Watermark::High, KERNEL));
    assert!(!vector_zone(1950).ok_fast(Order::ZERO, &WATERMARKS, Watermark::Promo, KERNEL));
    assert!(vector_zone(1951).ok_fast(Order::ZERO, &WATERMARKS, Watermark::Promo, KERNEL));
    // With the same rights as at min: half of 1500 or 1750, then a quarter off.
    for (watermark, high, atomic_left) in
        [(Watermark::High, 750, 563), (Watermark::Promo, 875, 657)]
    {
        for (flags, left) in [(HIGH, high), (atomic(), atomic_left)] {
            let ok = |free| vector_zone(free).ok(Order::ZERO, WATERMARKS.of(watermark), flags);
            assert!(!ok(left + 200) && ok(left + 201), "{watermark} {flags:?}");
        }
    }
    assert!(!vector_zone(1450).ok_fast(Order::ZERO, &WATERMARKS, Watermark::Low, KERNEL));
    assert!(vector_zone(1451).ok_fast(Order::ZERO, &WATERMARKS, Watermark::Low, KERNEL));
}

#[test]
fn a_boost_holds_up_all_but_small_requests_with_a_right_to_the_reserve() {
    let watermarks = Watermarks { boost: 4000, ..WATERMARKS };
    assert_eq!(watermarks.of(Watermark::Min), 5000);
    // min 5000: half of it and the reserve is 2700; unboosted: half of 1000 and 200.
    let zone = vector_zone(701);
    assert!(!zone.ok(Order::ZERO, watermarks.of(Watermark::Min), HIGH));
    assert!(zone.ok_fast(Order::ZERO, &watermarks, Watermark::Min, HIGH));
    assert!(!vector_zone(700).ok_fast(Order::ZERO, &watermarks, Watermark::Min, HIGH));
    assert!(!zone.ok_fast(Order::ZERO, &watermarks, Watermark::Min, OOM));
    assert!(!zone.ok_fast(Order::ZERO, &watermarks, Watermark::Low, HIGH | AllocFlags::WMARK_LOW));
    let order = Order::new(1).unwrap();
    assert!(!zone.ok_fast(order, &watermarks, Watermark::Min, HIGH));
}

#[test]
fn the_fast_path_through_agrees_with_the_full_test() {
    for free in 0..2000 {
        let zone = ZoneSnapshot { highatomic_free: 100, cma_free: 20, ..vector_zone(free) };
        for flags in [KERNEL, HIGH, OOM, atomic(), AllocFlags::CMA] {
            let full = zone.ok(Order::ZERO, WATERMARKS.min, flags);
            assert_eq!(zone.ok_fast(Order::ZERO, &WATERMARKS, Watermark::Min, flags), full);
        }
    }
}

#[test]
fn the_safe_test_counts_exactly_below_the_drift_mark() {
    assert_eq!(free_pages_safe(4000, Some(5000), || 3800), 3800);
    assert_eq!(free_pages_safe(5000, Some(5000), || unreachable!()), 5000);
    assert_eq!(free_pages_safe(4000, None, || unreachable!()), 4000);
}

#[test]
fn min_free_kbytes_stays_in_bounds_and_respects_what_was_written() {
    assert_eq!(min_free_kbytes(131_072, None, CEILING, OWN), MinFree::Computed(2896));
    assert_eq!(min_free_kbytes(100, None, CEILING, OWN).kbytes(), 128);
    assert_eq!(min_free_kbytes(1 << 40, None, CEILING, OWN).kbytes(), 262_144);
    assert_eq!(
        min_free_kbytes(131_072, Some(2896), CEILING, OWN),
        MinFree::KeptUser { user: 2896, computed: 2896 }
    );
    assert_eq!(min_free_kbytes(131_072, Some(2895), CEILING, OWN).kbytes(), 2896);
    // 6.18, THP off for an instant (LB K.2).
    assert_eq!(min_free_kbytes(6_171_023 - 26_439, None, CEILING, OWN).kbytes(), 19_830);
    assert_eq!(lowmem_pages([(100, 30), (10, 20)]), 70);
}

#[test]
fn huge_pages_raise_min_free_kbytes_but_never_lower_it() {
    assert_eq!(min_free_kbytes_for_thp(11_522, 3, 2_073_760, OWN), 67_584);
    assert_eq!(min_free_kbytes_for_thp(80_000, 3, 2_073_760, OWN), 80_000);
    assert_eq!(min_free_kbytes_for_thp(0, 3, 200_000, OWN), 40_000);
}

/// LB K.2: watermarks read from a running 6.18 with 67584 KiB, at three sizes of its Normal zone.
#[test]
fn marks_are_those_of_a_live_kernel() {
    let live: [([u64; 3], [[u64; 4]; 3]); 2] = [
        (
            [3840, 772_917, 294_912],
            [[60, 75, 90, 105], [12185, 15231, 18277, 21323], [4649, 5811, 6973, 8135]],
        ),
        (
            [3840, 772_917, 1_146_880],
            [[33, 41, 49, 57], [6788, 8485, 10182, 11879], [10073, 12591, 15109, 17627]],
        ),
    ];
    for (managed, watermarks) in live {
        for (i, want) in watermarks.iter().enumerate() {
            let got = Watermarks::compute(&WatermarkInputs {
                kind: ZoneKind::ALL[i],
                managed: managed[i],
                lowmem_managed: managed.iter().sum(),
                movable: MovableMin::Capped,
                min_free_kbytes: 67_584,
                scale_factor: SCALE_FACTOR_DEFAULT,
                page: OWN,
            });
            assert_eq!([got.min, got.low, got.high, got.promo], *want);
        }
    }
}

/// Linux 6.12 on arm64 with pages of 16 KiB, and 6.1 on ppc64le with 64: one zone is all there is
/// (`results/2026-11-29-architectures.md`).
#[test]
fn larger_pages_have_the_marks_of_their_kernels() {
    for (shift, block_order, managed, [by_rule, kbytes], want) in [
        (14, 11, 62_751, [49_888, 49_680], [3105, 3881, 4657, 5433]),
        (16, 5, 15_466, [22_528, 22_528], [352, 440, 528, 616]),
    ] {
        let page = PageRules { shift, block_order };
        let first = min_free_kbytes(managed, None, CEILING, page).kbytes();
        // The high watermark by the first value comes off.
        let zone = |min_free_kbytes| WatermarkInputs {
            kind: ZoneKind::Normal,
            managed,
            lowmem_managed: managed,
            movable: MovableMin::Capped,
            min_free_kbytes,
            scale_factor: SCALE_FACTOR_DEFAULT,
            page,
        };
        let lowmem = managed - Watermarks::compute(&zone(first)).high;
        assert_eq!(min_free_kbytes_for_thp(first, 1, lowmem, page), by_rule);
        // The kernel's own is of the boot, when its zone was a little smaller.
        let got = Watermarks::compute(&zone(kbytes));
        assert_eq!([got.min, got.low, got.high, got.promo], want);
    }
    assert_eq!(PageRules { shift: 16, block_order: 5 }.kbytes(), 64);
    assert_eq!(PageRules::OWN.kbytes(), 4);
}

#[test]
fn a_movable_zone_has_a_token_min_and_an_uncapped_gap() {
    let mut zone = WatermarkInputs {
        kind: ZoneKind::Movable,
        managed: 1 << 22,
        lowmem_managed: 1 << 20,
        movable: MovableMin::Capped,
        min_free_kbytes: 40_000,
        scale_factor: 10,
        page: OWN,
    };
    let watermarks = Watermarks::compute(&zone);
    assert_eq!((watermarks.min, watermarks.low), (128, 128 + 10_000));
    zone.managed = 0;
    let watermarks = Watermarks::compute(&zone);
    assert_eq!((watermarks.min, watermarks.promo), (32, 32));
    zone.kind = ZoneKind::Device;
    assert_eq!(Watermarks::compute(&zone), Watermarks::default());
    zone = WatermarkInputs { kind: ZoneKind::Movable, movable: MovableMin::Share, ..zone };
    assert_eq!(Watermarks::compute(&zone), Watermarks::default());
}

#[test]
fn a_boost_grows_by_pageblocks_to_its_limit_and_falls_by_what_was_seen() {
    let mut watermarks = WATERMARKS;
    assert!(watermarks.raise_boost(1 << 20, BOOST_FACTOR_DEFAULT, OWN));
    assert_eq!(watermarks.boost, 512);
    for _ in 0..9 {
        watermarks.raise_boost(1 << 20, BOOST_FACTOR_DEFAULT, OWN);
    }
    assert_eq!(watermarks.boost, 1500 * 3 / 2); // of the stored high watermark, without the boost
    watermarks.lower_boost(512);
    assert_eq!(watermarks.boost, 2250 - 512);
    assert!(!watermarks.raise_boost(1 << 20, 0, OWN));
    assert!(!watermarks.raise_boost(4 * 512 - 1, BOOST_FACTOR_DEFAULT, OWN));
    assert_eq!(watermarks.boost, 2250 - 512);
    // A tiny factor still allows one pageblock; none at all allows nothing.
    let mut small = WATERMARKS;
    assert!(small.raise_boost(1 << 20, 10, OWN));
    assert_eq!(small.boost, 512);
    // The smallest zone that gains from it.
    let mut edge = WATERMARKS;
    assert!(edge.raise_boost(4 * 512, BOOST_FACTOR_DEFAULT, OWN));
    assert!(!Watermarks::default().raise_boost(1 << 20, BOOST_FACTOR_DEFAULT, OWN));
}

/// LB K.2, `protection` of the live kernel, and the odd ratios tried there.
#[test]
fn lowmem_reserves_are_those_of_a_live_kernel() {
    let managed = [3840, 772_917, 294_912, 0, 0];
    let got = lowmem_reserves(&managed, &LOWMEM_RATIO_DEFAULT);
    assert_eq!(got[0], [0, 3019, 4171, 4171, 4171]);
    assert_eq!(got[1], [0, 0, 1152, 1152, 1152]);
    assert_eq!(got[2..], [[0; NR_ZONE_KINDS]; 3]);
    let ratio = [0, -5, 1000, 1, 1].map(lowmem_ratio_stored);
    assert_eq!(ratio, [0, 0, 1000, 1, 1]);
    assert_eq!(lowmem_reserves(&managed, &ratio)[..2], [[0; NR_ZONE_KINDS]; 2]);
    // A zone without pages keeps nothing back.
    assert_eq!(lowmem_reserves(&[0, 10, 512, 0, 0], &LOWMEM_RATIO_DEFAULT)[0], [0; 5]);
}

#[test]
fn the_total_reserve_of_a_zone_is_at_most_the_zone() {
    let watermarks = Watermarks { high: 11, ..Watermarks::default() };
    assert_eq!(total_reserve(3840, &[0, 2968, 8088, 8088, 8088], &watermarks), 3840);
    assert_eq!(total_reserve(9000, &[0, 2968, 8088, 8088, 8088], &watermarks), 8099);
}

/// The figures are those of a 6.12 kernel with two nodes, whose `MemAvailable` is 3806788 kB.
#[test]
fn available_is_what_is_free_beyond_reserves_and_half_of_what_can_be_had_back() {
    let memory = Memory {
        free: 988_324,
        total_reserve: (1955 + 128) + 16_863 + (988 + 8269) + 8526,
        low_watermarks: 107 + 14_053 + 6891 + 7105 + 2 * 32,
        file_lru: 0,
        reclaimable: 203,
    };
    assert_eq!(available_pages(&memory) * 4, 3_806_788);
    // Of large caches the low watermarks are kept, not the half.
    let cached = Memory { file_lru: 100_000, ..memory };
    assert_eq!(
        available_pages(&cached) - available_pages(&memory),
        100_000 - memory.low_watermarks
    );
    assert_eq!(available_pages(&Memory { free: 0, ..memory }), 0);
}

/// Whoever computes with other pages than a policy accepts gets a number.
#[test]
fn pages_that_no_kernel_has_divide_nothing_by_nothing() {
    for shift in [0, 41, 64, u8::MAX] {
        let page = PageRules { shift, block_order: u8::MAX };
        assert!(page.kbytes() > 0 && u32::try_from(page.kbytes()).is_ok(), "{shift}");
        let kbytes = min_free_kbytes(u64::MAX, None, u32::MAX, page).kbytes();
        assert!(min_free_kbytes_for_thp(kbytes, u32::MAX, u64::MAX, page) >= kbytes);
        let zone = WatermarkInputs {
            kind: ZoneKind::Normal,
            managed: 1 << 20,
            lowmem_managed: 1 << 20,
            movable: MovableMin::Capped,
            min_free_kbytes: kbytes,
            scale_factor: 10,
            page,
        };
        assert!(Watermarks::compute(&zone).high >= Watermarks::compute(&zone).min);
    }
}
