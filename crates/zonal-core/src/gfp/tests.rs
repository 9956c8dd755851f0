extern crate std;
use std::format;
use std::string::ToString;

use proptest::prelude::*;

use super::*;

/// Every form found in the two recorded 6.12 traces, with the migratetype printed beside it.
const RECORDED_6_12: &[(&str, Migratetype)] = &[
    ("GFP_HIGHUSER_MOVABLE|__GFP_COMP", Migratetype::Movable),
    ("GFP_HIGHUSER_MOVABLE|__GFP_COMP|__GFP_ZERO", Migratetype::Movable),
    ("GFP_TRANSHUGE_LIGHT|__GFP_NORETRY|__GFP_THISNODE", Migratetype::Movable),
    ("GFP_KERNEL_ACCOUNT", Migratetype::Unmovable),
    ("GFP_KERNEL_ACCOUNT|__GFP_ZERO", Migratetype::Unmovable),
    ("GFP_KERNEL_ACCOUNT|__GFP_COMP|__GFP_ZERO", Migratetype::Unmovable),
    ("GFP_HIGHUSER|__GFP_ACCOUNT", Migratetype::Unmovable),
    ("GFP_NOWAIT", Migratetype::Unmovable),
    ("GFP_NOWAIT|__GFP_NORETRY|__GFP_COMP", Migratetype::Unmovable),
    ("GFP_NOWAIT|__GFP_IO|__GFP_FS|__GFP_COMP|__GFP_ACCOUNT", Migratetype::Unmovable),
    ("GFP_NOFS|__GFP_NOWARN|__GFP_NORETRY|__GFP_COMP", Migratetype::Unmovable),
    ("GFP_KERNEL|__GFP_NOWARN|__GFP_NORETRY|__GFP_COMP", Migratetype::Unmovable),
    ("GFP_KERNEL|__GFP_NOWARN|__GFP_NORETRY|__GFP_NOMEMALLOC", Migratetype::Unmovable),
    ("GFP_ATOMIC|__GFP_NOWARN|__GFP_NORETRY|__GFP_COMP", Migratetype::Unmovable),
    (
        "__GFP_IO|__GFP_FS|__GFP_NOWARN|__GFP_NORETRY|__GFP_COMP|__GFP_NOMEMALLOC",
        Migratetype::Unmovable,
    ),
    (
        "__GFP_IO|__GFP_FS|__GFP_NOWARN|__GFP_NORETRY|__GFP_COMP|__GFP_NOMEMALLOC\
         |__GFP_RECLAIMABLE",
        Migratetype::Reclaimable,
    ),
    ("GFP_NOWAIT|__GFP_NORETRY|__GFP_COMP|__GFP_RECLAIMABLE", Migratetype::Reclaimable),
    (
        "GFP_KERNEL|__GFP_NOWARN|__GFP_NORETRY|__GFP_COMP|__GFP_RECLAIMABLE",
        Migratetype::Reclaimable,
    ),
];

#[test]
fn every_recorded_form_is_read_and_printed_back_as_it_was() {
    for &(text, migratetype) in RECORDED_6_12 {
        let gfp = Gfp::parse(text).unwrap();
        assert_eq!(gfp.to_string(), text);
        assert_eq!(format!("{gfp:?}"), text);
        assert_eq!(gfp.migratetype(true), Some(migratetype), "{text}");
    }
}

#[test]
fn names_of_other_releases_and_other_orders_are_read() {
    // 6.18 prints the same flags in order of their bits.
    let a = Gfp::parse("GFP_HIGHUSER_MOVABLE|__GFP_ZERO|__GFP_COMP").unwrap();
    assert_eq!(a, Gfp::HIGHUSER_MOVABLE | Gfp::ZERO | Gfp::COMP);
    // The number is one that a binary trace of 6.18 holds.
    assert_eq!(a, Gfp::from_bits(0x140dca));
    assert_eq!(Gfp::parse("__GFP_DMA|__GFP_DMA32"), Ok(Gfp::DMA | Gfp::DMA32));
    assert_eq!(Gfp::parse("GFP_KERNEL | 0x1000000"), Ok(Gfp::KERNEL | Gfp::NO_OBJ_EXT));
}

#[test]
fn a_name_nobody_knows_is_an_error_that_says_where() {
    let err = Gfp::parse("GFP_KERNEL| __GFP_MAGIC|__GFP_ZERO").unwrap_err();
    assert_eq!(err, GfpParseError { name: "__GFP_MAGIC", offset: 12 });
    assert!(err.to_string().starts_with("byte 12: `__GFP_MAGIC`"));
    for bad in ["", "|", "GFP_KERNEL|", "0x", "0x+1", "0x100000000", "-", "gfp_kernel"] {
        assert!(Gfp::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn no_flag_and_unnamed_bits_print_too() {
    assert_eq!(Gfp::NONE.to_string(), "none");
    assert_eq!(Gfp::parse("none"), Ok(Gfp::NONE));
    assert_eq!(Gfp::from_bits(1 << 31).to_string(), "0x80000000");
    let mixed = Gfp::KERNEL | Gfp::from_bits(0x8000_0200);
    assert_eq!(mixed.to_string(), "GFP_KERNEL|0x80000200");
}

#[test]
fn every_bit_in_use_has_exactly_one_printed_name() {
    for bit in (0..=24).filter(|bit| *bit != 9) {
        let text = Gfp::from_bits(1 << bit).to_string();
        assert!(!text.starts_with("0x"), "bit {bit} has no name");
    }
    assert_eq!(Gfp::from_bits(1 << 9).to_string(), "0x200"); // unused in 6.12
    for (i, row) in NAMES.iter().enumerate() {
        assert!(NAMES[..i].iter().all(|other| other.0 != row.0), "{} is there twice", row.0);
    }
}

#[test]
fn the_zone_bits_choose_a_zone_or_nothing() {
    use ZoneKind::{Dma, Dma32, Movable, Normal};
    let expected: [Option<ZoneKind>; 16] = [
        Some(Normal),
        Some(Dma),
        Some(Normal),
        None,
        Some(Dma32),
        None,
        None,
        None,
        Some(Normal),
        Some(Dma),
        Some(Movable),
        None,
        Some(Dma32),
        None,
        None,
        None,
    ];
    for (bits, want) in (0u32..).zip(expected) {
        let gfp = Gfp::from_bits(bits) | Gfp::KERNEL;
        assert_eq!(gfp.highest_zone(ZoneKinds::ALL), want, "bits {bits}");
        let normal_only = ZoneKinds::NONE.with(Normal);
        let lowered = want.map(|kind| if kind < Normal { Normal } else { kind });
        assert_eq!(gfp.highest_zone(normal_only), lowered, "bits {bits}");
    }
    assert_eq!(Gfp::HIGHUSER_MOVABLE.highest_zone(ZoneKinds::ALL), Some(Movable));
    assert_eq!(Gfp::HIGHUSER.highest_zone(ZoneKinds::ALL), Some(Normal));
}

#[test]
fn a_page_is_movable_or_reclaimable_but_not_both() {
    let both = Gfp::MOVABLE | Gfp::RECLAIMABLE;
    assert_eq!(both.migratetype(true), None);
    assert_eq!(both.migratetype(false), None);
    assert_eq!(Gfp::MOVABLE.migratetype(false), Some(Migratetype::Unmovable));
    assert_eq!(Gfp::RECLAIMABLE.migratetype(true), Some(Migratetype::Reclaimable));
}

#[test]
fn composites_have_the_values_a_kernel_prints_for_them() {
    assert_eq!(Gfp::ATOMIC.bits(), 0x820);
    assert_eq!(Gfp::NOWAIT.bits(), 0x2800);
    assert_eq!(Gfp::KERNEL.bits(), 0xcc0);
    assert_eq!(Gfp::HIGHUSER_MOVABLE.bits(), 0x100cca);
    assert_eq!(Gfp::TRANSHUGE_LIGHT.bits(), 0x1c20ca);
    assert_eq!(Gfp::TRANSHUGE.bits(), 0x1c24ca);
}

#[test]
fn alloc_flags_say_their_mark_first() {
    let flags = AllocFlags::WMARK_LOW | AllocFlags::KSWAPD | AllocFlags::NOFRAGMENT;
    assert_eq!(format!("{flags:?}"), "WMARK_LOW|NOFRAGMENT|KSWAPD");
    assert_eq!(AllocFlags::RESERVES.bits(), 0x238);
    assert!(!AllocFlags::WMARK_HIGH.intersects(AllocFlags::RESERVES));
}

proptest! {
    #[test]
    fn any_word_survives_being_printed_and_read(bits in any::<u32>()) {
        let gfp = Gfp::from_bits(bits);
        let text = gfp.to_string();
        prop_assert_eq!(Gfp::parse(&text), Ok(gfp));
    }
}
