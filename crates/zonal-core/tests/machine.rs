//! Machines that cannot be, and what the metadata of those that can be costs.

mod support;

use std::collections::BTreeSet;

use support::{Script, Shape};
use zonal_core::alloc::{Allocator, Request};
use zonal_core::machine::{CPUS_MAX, Layout, Machine, MachineError, Metadata, ZONES_MAX, ZoneSpec};
use zonal_core::pcp::owner::{OwnedBlock, Owner};
use zonal_core::policy::Policy;
use zonal_core::types::{NodeId, Order, PAGE_SIZE, Pfn, ZoneId, ZoneKind};
use zonal_core::vmstat::numa::NumaDeltas;

const ONE_NODE: &[u8] = &[10];
const TWO_NODES: &[u8] = &[10, 20, 20, 10];
const ONE_CPU: &[NodeId] = &[NodeId(0)];
const ONE_ZONE: &[ZoneSpec] = &[zone(0, ZoneKind::Normal, 0, 1024)];

const fn zone(node: u16, kind: ZoneKind, start_pfn: u64, pages: u64) -> ZoneSpec {
    ZoneSpec { node: NodeId(node), kind, start_pfn, spanned: pages, present: pages }
}

fn machine<'a>(distances: &'a [u8], zones: &'a [ZoneSpec], cpus: &'a [NodeId]) -> Machine<'a> {
    Machine { distances, zones, cpus, cache_slice_bytes: 0, caches: &[] }
}

fn error(distances: &[u8], zones: &[ZoneSpec], cpus: &[NodeId]) -> MachineError {
    let machine = machine(distances, zones, cpus);
    Layout::of(&machine, &Policy::ZONAL).expect_err("the machine cannot be")
}

#[track_caller]
fn says(error: MachineError, expected: MachineError, words: &[&str]) {
    assert_eq!(error, expected);
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "`{text}` does not say `{word}`");
    }
}

#[test]
fn a_machine_without_memory_or_cpus_or_nodes_is_refused() {
    says(error(ONE_NODE, &[], ONE_CPU), MachineError::NoMemory, &["at least one page"]);
    says(error(ONE_NODE, ONE_ZONE, &[]), MachineError::NoCpu, &["no CPU", "at least one"]);
    says(error(&[], ONE_ZONE, ONE_CPU), MachineError::Distances(0, 1), &["0 entries", "is 1"]);
}

/// A program writes the fields of a policy itself; `Policy::set` refuses these by text.
#[test]
fn a_policy_with_numbers_that_cannot_be_is_refused() {
    let with = |change: fn(&mut Policy)| {
        let mut policy = Policy::LINUX_6_18;
        change(&mut policy);
        Layout::of(&machine(ONE_NODE, ONE_ZONE, ONE_CPU), &policy).unwrap_err().to_string()
    };
    let text = with(|policy| policy.pcp.scale_max = 32);
    assert!(text.contains("pcp.scale_max") && text.contains("is 32; give 0 to 6"), "{text}");
    let text = with(|policy| policy.page.shift = 64);
    assert!(text.contains("page.shift") && text.contains("is 64; give 12 to 20"), "{text}");
    // A bulk call filled less than it said.
    let text = with(|policy| policy.pcp.bulk_block = 1);
    assert!(text.contains("pcp.bulk_block") && text.contains("set 0"), "{text}");
    with(|policy| policy.pcp.batch_cap_pages = u64::MAX);
    with(|policy| policy.watermark.scale_factor = u32::MAX);
}

#[test]
fn distances_that_are_no_distances_are_refused() {
    let three = error(&[10, 20, 20], ONE_ZONE, ONE_CPU);
    says(three, MachineError::Distances(3, 1), &["3 entries"]);
    let near = error(&[10, 9, 20, 10], ONE_ZONE, ONE_CPU);
    says(near, MachineError::Distance(0, 1, 9), &["distance 9 from node 0 to node 1"]);
    let own = error(&[10, 20, 20, 11], ONE_ZONE, ONE_CPU);
    says(own, MachineError::Distance(1, 1, 11), &["10 from itself"]);
}

#[test]
fn zones_and_cpus_on_nodes_that_do_not_exist_are_refused() {
    let cpu = error(ONE_NODE, ONE_ZONE, &[NodeId(0), NodeId(1)]);
    says(cpu, MachineError::NoSuchNode("CPU", 1, 1, 1), &["CPU 1 is on node 1"]);
    let far = [zone(2, ZoneKind::Normal, 0, 8)];
    let error = error(TWO_NODES, &far, ONE_CPU);
    says(error, MachineError::NoSuchNode("zone", 0, 2, 2), &["zone 0 is on node 2", "0 to 1"]);
}

#[test]
fn zones_that_are_empty_or_overlap_or_come_twice_are_refused() {
    let with = |second: ZoneSpec| {
        let zones = [zone(0, ZoneKind::Dma, 0, 100), second];
        error(TWO_NODES, &zones, ONE_CPU)
    };
    let empty = zone(0, ZoneKind::Normal, 100, 0);
    says(with(empty), MachineError::ZoneSize(1), &["zone 1", "at least 1"]);
    let holes = ZoneSpec { present: 9, ..zone(0, ZoneKind::Normal, 100, 8) };
    says(with(holes), MachineError::ZoneSize(1), &["at most the span"]);
    let overlapping = zone(0, ZoneKind::Normal, 99, 8);
    let order = MachineError::ZoneOrder {
        position: 1,
        zone: (NodeId(0), ZoneKind::Normal),
        start_pfn: 99,
        before: (NodeId(0), ZoneKind::Dma),
        end_pfn: 100,
    };
    let parts = ["zone 1 (node 0, Normal) starts before the end", "(node 0, DMA)", "99", "100"];
    says(with(overlapping), order, &parts);
    let twice = zone(0, ZoneKind::Dma, 100, 8);
    says(with(twice), MachineError::ZoneTwice(1), &["zone 1", "of that kind"]);
}

#[test]
fn machines_too_large_are_refused_with_the_limit() {
    fn says_most(error: MachineError, what: &str, most: u64) {
        let MachineError::TooMany(of, given, limit) = error else { panic!("{error}") };
        assert_eq!((of, limit), (what, most));
        assert!(given > limit);
        says(error, error, &[what, "at most", &most.to_string()]);
    }
    let cpus = vec![NodeId(0); CPUS_MAX + 1];
    says_most(error(ONE_NODE, ONE_ZONE, &cpus), "CPUs", 65_535);
    let zones: Vec<_> = (0..=ZONES_MAX as u64).map(|i| zone(0, ZoneKind::Normal, i, 1)).collect();
    says_most(error(ONE_NODE, &zones, ONE_CPU), "zones", 4096);
    let nodes = 1025;
    let distances: Vec<u8> =
        (0..nodes * nodes).map(|i| if i % (nodes + 1) == 0 { 10 } else { 20 }).collect();
    says_most(error(&distances, ONE_ZONE, ONE_CPU), "nodes", 1024);
    let wide = [zone(0, ZoneKind::Normal, 0, 1 << 29)];
    says_most(error(ONE_NODE, &wide, ONE_CPU), "pages in one zone", (1 << 29) - 1);
    for start in [u64::MAX - 1, 1 << 52] {
        let high = [zone(0, ZoneKind::Normal, start, 8)];
        says_most(error(ONE_NODE, &high, ONE_CPU), "page frame numbers", 1 << 52);
    }
    // Nine zones just below the limit of one have more frames than 32 bits count.
    let most = (1 << 29) - 1;
    let distances: Vec<u8> = (0..81).map(|i| if i % 10 == 0 { 10 } else { 20 }).collect();
    let zones: Vec<_> = (0..9).map(|i| zone(i as u16, ZoneKind::Normal, i * most, most)).collect();
    says_most(error(&distances, &zones, ONE_CPU), "page frames", u32::MAX.into());
}

/// 16 TiB on two nodes: the pages can be counted, the slots of pcps that hold an eighth of them
/// for each order and type cannot.
#[test]
fn slots_beyond_32_bits_are_refused() {
    let most = (1 << 29) - 1;
    let zones: Vec<_> = (0..8u16)
        .map(|i| zone(i / 4, ZoneKind::ALL[usize::from(i % 4)], u64::from(i) * most, most))
        .collect();
    let machine = machine(TWO_NODES, &zones, &[NodeId(0), NodeId(1)]);
    let error = Layout::of(&machine, &Policy::LINUX_6_18).unwrap_err();
    let MachineError::TooMany(what, given, limit) = error else { panic!("{error}") };
    assert_eq!((what, limit), ("per-CPU slots", u32::MAX.into()));
    assert!(given > limit);
    assert!(Layout::of(&machine, &Policy::ZONAL).is_ok());
}

#[test]
fn metadata_with_a_record_too_few_is_refused_by_name() {
    let machine = machine(ONE_NODE, ONE_ZONE, ONE_CPU);
    // Policies that together need records of every kind.
    for policy in [Policy::LINUX_6_18, Policy::OWNED_2026] {
        refuses_a_record_too_few(&machine, policy);
    }
}

fn refuses_a_record_too_few(machine: &Machine<'_>, policy: Policy) {
    let layout = Layout::of(machine, &policy).unwrap();
    let full = [
        layout.zones,
        layout.pcps,
        layout.words,
        layout.blocks,
        layout.slots,
        layout.nodes,
        layout.zonelist,
        layout.numa,
        layout.owners,
        layout.owned,
    ];
    let names = [
        "zones",
        "pcps",
        "page words",
        "pageblocks",
        "slots",
        "nodes",
        "zonelist entries",
        "NUMA deltas",
        "owners",
        "owned pageblocks",
    ];
    let needed = names.into_iter().enumerate().filter(|(at, _)| full[*at] > 0);
    for (short, name) in needed {
        let len = |which: usize| full[which] - usize::from(which == short);
        let (mut zones, mut pcps) = (Vec::new(), Vec::new());
        zones.resize_with(len(0), Default::default);
        pcps.resize_with(len(1), Default::default);
        let (mut words, mut blocks, mut slots) = (Vec::new(), Vec::new(), Vec::new());
        words.resize_with(len(2), Default::default);
        blocks.resize_with(len(3), Default::default);
        slots.resize_with(len(4), Default::default);
        let mut nodes = Vec::new();
        nodes.resize_with(len(5), Default::default);
        let metadata = Metadata {
            zones: &mut zones,
            pcps: &mut pcps,
            words: &mut words,
            blocks: &mut blocks,
            slots: &mut slots,
            nodes: &mut nodes,
            zonelist: &mut vec![ZoneId(0); len(6)],
            numa: &mut std::iter::repeat_with(NumaDeltas::default).take(len(7)).collect::<Vec<_>>(),
            owners: &mut std::iter::repeat_with(Owner::default).take(len(8)).collect::<Vec<_>>(),
            owned: &mut std::iter::repeat_with(OwnedBlock::default)
                .take(len(9))
                .collect::<Vec<_>>(),
        };
        let error = Allocator::new(machine, policy, metadata, Script::default()).err();
        let (given, needed) = (full[short] - 1, full[short]);
        let expected = MachineError::Metadata(name, given, needed);
        says(error.expect(name), expected, &[name, &given.to_string(), &needed.to_string()]);
    }
}

/// What the first one left on lists, in depots, in its buddy and in hands is none of the second's.
#[test]
fn records_of_an_allocator_that_is_gone_serve_another_one() {
    for policy in Policy::PRESETS {
        let mut memory = [0..4096, 3000..8192].into_iter();
        let shape = Shape::uniform(1, 8192, 2);
        shape.one_after_the_other(*policy, [Script::default(), Script::default()], |on| {
            let pages = memory.next().unwrap();
            on.online(ZoneId(0), Pfn(pages.start)..Pfn(pages.end)).unwrap();
            on.setup();
            let mut had = BTreeSet::new();
            while let Ok(pfn) = on.alloc(Request::new(Order::ZERO)) {
                assert!(pages.contains(&pfn.0), "{}: {pfn:?} is not there", policy.name);
                assert!(had.insert(pfn), "{}: {pfn:?} has two owners", policy.name);
            }
            assert!(had.len() as u64 > (pages.end - pages.start) / 2, "{}", policy.name);
            let elsewhere = (0..8192).filter(|pfn| !pages.contains(pfn)).map(Pfn);
            for pfn in elsewhere {
                assert!(on.free(pfn, Order::ZERO).is_err(), "{}: {pfn:?}", policy.name);
            }
            // A third stays in hands.
            had.iter().step_by(3).for_each(|pfn| on.free(*pfn, Order::ZERO).unwrap());
            had.iter().skip(1).step_by(3).for_each(|pfn| on.free(*pfn, Order::ZERO).unwrap());
            on.validate().unwrap();
        });
    }
}

/// Pages of one zone, nodes, CPUs of each node.
fn layout(gib: u64, nodes: usize, cpus: usize, policy: &Policy) -> Layout {
    let pages = (gib << 30) / PAGE_SIZE as u64 / nodes as u64;
    let distances: Vec<u8> =
        (0..nodes * nodes).map(|i| if i % (nodes + 1) == 0 { 10 } else { 20 }).collect();
    let zones: Vec<_> = (0..nodes)
        .map(|node| zone(node as u16, ZoneKind::Normal, node as u64 * pages, pages))
        .collect();
    let cpus: Vec<NodeId> = (0..nodes * cpus).map(|cpu| NodeId((cpu / cpus) as u16)).collect();
    Layout::of(&machine(&distances, &zones, &cpus), policy).unwrap()
}

/// Where something grows with the square of the CPUs this takes seconds; nothing asserts that.
#[test]
fn a_machine_with_as_many_cpus_as_there_can_be_is_laid_out() {
    let cpus = vec![NodeId(0); CPUS_MAX];
    let machine = machine(ONE_NODE, ONE_ZONE, &cpus);
    for policy in [Policy::ZONAL, Policy::LINUX_6_18] {
        let layout = Layout::of(&machine, &policy).unwrap();
        assert_eq!(layout.pcps, CPUS_MAX);
        // Each CPU has the same slots; one depot has its own.
        let one = Layout::of(&Machine { cpus: &cpus[1..], ..machine }, &policy).unwrap();
        let each = layout.slots - one.slots;
        assert!((CPUS_MAX * each..CPUS_MAX * each + 4096).contains(&layout.slots), "{layout:?}");
    }
}

/// DESIGN section 3: at most 0.25 % of the memory managed. Run with `--nocapture` for the table.
#[test]
fn metadata_is_at_most_a_quarter_of_a_percent_of_the_memory() {
    println!("policy      GiB nodes CPUs/node   bytes       slots       percent");
    for policy in Policy::PRESETS {
        for (gib, nodes, cpus) in [
            (1, 1, 2),
            (1, 1, 64),
            (64, 1, 2),
            (64, 1, 64),
            (8, 2, 2),
            (64, 2, 32),
            (256, 2, 112),
            (1024, 8, 16),
        ] {
            let layout = layout(gib, nodes, cpus, policy);
            let percent = layout.overhead() * 100.0;
            let (bytes, slots) = (layout.bytes(), layout.slots);
            let name = policy.name;
            println!("{name:11} {gib:3} {nodes:5} {cpus:9} {bytes:11} {slots:11} {percent:9.4}");
            assert_eq!(layout.words * PAGE_SIZE, (gib << 30) as usize);
            assert_eq!(percent, bytes as f64 * 100.0 / (gib << 30) as f64);
            if policy.name == Policy::default().name && nodes == 1 {
                assert!(percent <= 0.25, "{gib} GiB, {cpus} CPUs: {percent} %");
            }
        }
    }
}
