//! Zones from firmware's tables: what real tables give, and that no table loses or doubles a page.

use std::ops::Range;

use proptest::prelude::*;
use zonal_core::early::Early;
use zonal_core::machine::{Machine, ZoneSpec};
use zonal_core::types::{NodeId, PAGE_SIZE, ZoneKind};
use zonal_kernel::zones::{self, FirmwareError, Found, Limits, NO_ZONE};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

type Bytes = Range<u64>;
type Near<'a> = &'a [(Bytes, u16)];

fn zone(node: u16, kind: ZoneKind, start_pfn: u64, spanned: u64, present: u64) -> ZoneSpec {
    ZoneSpec { node: NodeId(node), kind, start_pfn, spanned, present }
}

fn early(memory: &[Bytes], near: Near<'_>) -> Early<64> {
    let mut early = Early::new();
    for bytes in memory {
        early.add(bytes.clone(), NodeId(0)).unwrap();
    }
    for (bytes, node) in near {
        early.set_node(bytes.clone(), NodeId(*node)).unwrap();
    }
    early
}

fn found(memory: &[Bytes], near: Near<'_>) -> (Vec<ZoneSpec>, u64) {
    let mut room = [NO_ZONE; 16];
    let found = zones::find(early(memory, near).memory(), Limits::X86_64, &mut room).unwrap();
    (room[..found.zones].to_vec(), found.misplaced)
}

#[test]
fn a_pc_with_two_nodes_has_the_zones_that_linux_gives_it() {
    let memory = [0..0x9fc00, MIB..0xbffe_0000, 4 * GIB..5 * GIB];
    let near = [(0..2 * GIB, 0), (2 * GIB..3 * GIB, 1), (4 * GIB..5 * GIB, 1)];
    let (zones, misplaced) = found(&memory, &near);
    // Page 0x9f is only partly there.
    let dma = zone(0, ZoneKind::Dma, 0, 0x1000, 0x9f + 0xf00);
    let dma32 = zone(0, ZoneKind::Dma32, 0x1000, 0x7_f000, 0x7_f000);
    let second = zone(1, ZoneKind::Dma32, 0x8_0000, 0x3_ffe0, 0x3_ffe0);
    let normal = zone(1, ZoneKind::Normal, 0x10_0000, 0x4_0000, 0x4_0000);
    assert_eq!((zones, misplaced), (vec![dma, dma32, second, normal], 0));
}

#[test]
fn each_architecture_has_its_kinds() {
    for (limits, kinds) in [
        (Limits::X86_64, vec![ZoneKind::Dma, ZoneKind::Dma32, ZoneKind::Normal]),
        (Limits::AARCH64, vec![ZoneKind::Dma, ZoneKind::Normal]),
        (Limits::RISCV64, vec![ZoneKind::Dma32, ZoneKind::Normal]),
    ] {
        let mut room = [NO_ZONE; 3];
        let found = zones::find([(0..8 * GIB, NodeId(0))], limits, &mut room).unwrap();
        let of: Vec<_> = room[..found.zones].iter().map(|zone| zone.kind).collect();
        assert_eq!(of, kinds);
    }
}

#[test]
fn interleaved_nodes_keep_every_page() {
    let near = [(4 * GIB..5 * GIB, 0), (5 * GIB..6 * GIB, 1), (6 * GIB..7 * GIB, 0)];
    let (zones, misplaced) = found(std::slice::from_ref(&(4 * GIB..7 * GIB)), &near);
    assert_eq!(zones[1], zone(1, ZoneKind::Normal, 0x14_0000, 0x8_0000, 0x8_0000));
    assert_eq!((zones.len(), misplaced), (2, 0x4_0000));
}

#[test]
fn memory_that_makes_no_zone_is_refused() {
    let mut room = [NO_ZONE; 2];
    let mut find = |memory: &[Bytes]| {
        let memory = memory.iter().map(|bytes| (bytes.clone(), NodeId(0)));
        zones::find(memory, Limits::X86_64, &mut room)
    };
    assert_eq!(find(&[]), Err(FirmwareError::NoMemory));
    assert_eq!(find(&[1..4096, 8191..8192]), Err(FirmwareError::NoMemory));
    assert_eq!(find(&[0..GIB, GIB..6 * GIB]), Err(FirmwareError::Room("zones", 2)));
    // Not by rising address: what was passed already is not added again.
    let all = Found { zones: 1, present: 2, misplaced: 0 };
    let backwards = Bytes { start: 12288, end: 0 };
    assert_eq!(find(&[4096..12288, 0..8192, backwards]), Ok(all));
}

#[test]
fn nodes_are_numbered_by_ascending_domain() {
    let mut domains = [0; 4];
    let count = zones::nodes([7, 2, 7, 2, 900], &mut domains).unwrap();
    assert_eq!(&domains[..count], [2, 7, 900]);
    assert_eq!(zones::node_of(&domains[..count], 900), Some(NodeId(2)));
    assert_eq!(zones::node_of(&domains[..count], 3), None);
    assert_eq!(zones::nodes([], &mut domains), Ok(1));
    assert_eq!(domains[0], 0);
    let full = zones::nodes(0..5, &mut domains);
    assert_eq!(full, Err(FirmwareError::Room("proximity domains", 4)));
}

#[test]
fn distances_that_cannot_be_are_replaced() {
    let mut table = [0; 4];
    let known = |from, to| match (from, to) {
        (0, 0) => Some(10),
        (0, 5) => Some(9),
        (5, 0) => Some(31),
        _ => Some(11),
    };
    assert_eq!(zones::distances(&[0, 5], known, &mut table), Ok(2));
    assert_eq!(table, [10, 20, 31, 10]);
    assert!(zones::distances(&[0, 1, 2], known, &mut table).is_err());
}

#[test]
fn nothing_to_work_on_is_no_accident() {
    let none = |_, _| None;
    let mut table = [7; 4];
    assert_eq!(zones::distances(&[], none, &mut table), Ok(0));
    assert_eq!(table, [7; 4]);
    assert_eq!(zones::distances(&[], none, &mut []), Ok(0));
    assert_eq!(zones::distances(&[0], none, &mut []), Err(FirmwareError::Room("distances", 0)));
    assert_eq!(zones::nodes([], &mut []), Err(FirmwareError::Room("proximity domains", 0)));
    assert_eq!(zones::nodes([3], &mut []), Err(FirmwareError::Room("proximity domains", 0)));
    assert_eq!(zones::node_of(&[], 0), None);
    let no_limits = Limits { dma: 0, dma32: 0 };
    let page = [(0..PAGE_SIZE as u64, NodeId(0))];
    assert_eq!(zones::find(page.clone(), no_limits, &mut []), Err(FirmwareError::Room("zones", 0)));
    assert_eq!(zones::find([], no_limits, &mut []), Err(FirmwareError::NoMemory));
    let mut one = [NO_ZONE];
    assert_eq!(zones::find(page, no_limits, &mut one).map(|found| found.zones), Ok(1));
    assert_eq!(one, [zone(0, ZoneKind::Normal, 0, 1, 1)]);
    let last = [(u64::MAX..u64::MAX, NodeId(0)), (u64::MAX - 1..u64::MAX, NodeId(0))];
    assert_eq!(zones::find(last, no_limits, &mut one), Err(FirmwareError::NoMemory));
}

#[test]
fn a_domain_behind_the_last_node_has_no_node() {
    let domains: Vec<u32> = (0..0x1_0002).collect();
    assert_eq!(zones::node_of(&domains, 0xffff), Some(NodeId(0xffff)));
    assert_eq!(zones::node_of(&domains, 0x1_0001), None);
}

/// Ranges that touch, overlap and end in the middle of pages.
fn ranges(most: usize) -> impl Strategy<Value = Vec<Bytes>> {
    let range = (0..600_u64, 0..80_u64, 0..3_u64, 0..3_u64);
    let bytes = |(start, pages, head, tail): (u64, u64, u64, u64)| {
        // Around 16 MiB and 4 GiB, where the kind changes.
        let start = if start < 300 { start + 0xf00 } else { start + 0xf_fd00 };
        let start = start * PAGE_SIZE as u64 + head * 700;
        start..start + pages * PAGE_SIZE as u64 + tail * 1500
    };
    prop::collection::vec(range.prop_map(bytes), 0..most)
}

proptest! {
    #[test]
    fn every_page_is_in_one_zone(
        memory in ranges(8),
        near in prop::collection::vec((ranges(2), 0..3_u16), 0..5),
    ) {
        let near = near.into_iter();
        let near: Vec<(Bytes, u16)> =
            near.flat_map(|(all, node)| all.into_iter().map(move |bytes| (bytes, node))).collect();
        let early = early(&memory, &near);
        let page = PAGE_SIZE as u64;
        let mut room = [NO_ZONE; 32];
        let found = match zones::find(early.memory(), Limits::X86_64, &mut room) {
            Ok(found) => found,
            Err(error) => {
                prop_assert_eq!(error, FirmwareError::NoMemory);
                return Ok(());
            }
        };
        let zones = &room[..found.zones];
        let machine = Machine {
            distances: &[10, 20, 20, 20, 10, 20, 20, 20, 10],
            zones,
            cpus: &[NodeId(0)],
            cache_slice_bytes: 0,
            caches: &[],
        };
        prop_assert_eq!(machine.check(), Ok(()));
        // A page whose halves are two nodes' is in no zone.
        let whole = |pfn: &u64| {
            early.memory().any(|(b, _)| b.start <= pfn * page && (pfn + 1) * page <= b.end)
        };
        let mut present = 0;
        for pfn in (0xe00..0x1200).chain(0xf_fc00..0x10_0400).filter(whole) {
            let spans = |zone: &&ZoneSpec| pfn.wrapping_sub(zone.start_pfn) < zone.spanned;
            prop_assert_eq!(zones.iter().filter(spans).count(), 1, "{:#x}", pfn);
            present += 1;
        }
        prop_assert_eq!(zones.iter().map(|zone| zone.present).sum::<u64>(), present);
        prop_assert_eq!(found.present, present);
    }
}
