//! Tests of mappings on this machine's kernel. Where a call may be refused (no huge pages, one
//! node, a seccomp filter), the test asserts the typed answer instead of success.

use super::numa::Residency;
use super::*;
use crate::sys::topology::Topology;
use zonal_core::types::NodeId;

const MIB: usize = 1 << 20;

fn options(bytes: usize) -> MapOptions {
    MapOptions { bytes, align: ALIGN_2M, backing: Backing::KernelDefault }
}

fn store(mapping: &Mapping, offset: usize, value: u8) {
    assert!(offset < mapping.bytes());
    // SAFETY: (1) within the mapping: asserted. (2) committed by the test. (3) This test has the
    // only pointer.
    unsafe { mapping.base().as_ptr().wrapping_add(offset).write_volatile(value) }
}

fn load(mapping: &Mapping, offset: usize) -> u8 {
    assert!(offset < mapping.bytes());
    // SAFETY: as in `store`: (1) within the mapping, (2) committed, (3) the only pointer.
    unsafe { mapping.base().as_ptr().wrapping_add(offset).read_volatile() }
}

fn prefault(mapping: &Mapping, range: Range<usize>) -> Result<Prefaulted, MapError> {
    // SAFETY: (1) the tests commit before; (2) no other thread knows the mapping.
    unsafe { mapping.prefault(range) }
}

fn release(mapping: &Mapping, range: Range<usize>) -> Result<(), MapError> {
    // SAFETY: (1) the tests keep no references.
    unsafe { mapping.release(range) }
}

/// The flags the kernel shows for the mapping that holds `address`; none where it shows none.
fn vm_flags(address: usize) -> Option<Vec<String>> {
    let smaps = std::fs::read_to_string("/proc/self/smaps").ok()?;
    let mut inside = false;
    for line in smaps.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            if inside {
                return Some(flags.split_whitespace().map(str::to_string).collect());
            }
        } else if let Some((range, _)) = line.split_once(' ')
            && let Some((start, end)) = range.split_once('-')
            && let Ok(start) = usize::from_str_radix(start, 16)
            && let Ok(end) = usize::from_str_radix(end, 16)
        {
            inside = (start..end).contains(&address);
        }
    }
    None
}

fn has_flag(mapping: &Mapping, flag: &str) -> Option<bool> {
    let flags = vm_flags(mapping.base().as_ptr() as usize)?;
    Some(flags.iter().any(|name| name == flag))
}

#[test]
fn each_backing_is_aligned_zeroed_and_writable() {
    use Backing::{Huge2M, KernelDefault, Transparent};
    for backing in [KernelDefault, Transparent, Huge2M] {
        for align in [ALIGN_2M, ALIGN_4M] {
            let mapping = Mapping::new(&MapOptions { align, backing, ..options(6 * MIB) }).unwrap();
            assert_eq!(mapping.base().as_ptr() as usize % align, 0, "MAP-4");
            assert_eq!(mapping.bytes(), 6 * MIB);
            let last = mapping.bytes() - 1;
            assert_eq!((load(&mapping, 0), load(&mapping, last)), (0, 0));
            store(&mapping, 0, 7);
            store(&mapping, last, 8);
            assert_eq!((load(&mapping, 0), load(&mapping, last)), (7, 8));
        }
    }
}

#[test]
fn every_weaker_backing_is_reported_with_its_reason() {
    let asked = MapOptions { backing: Backing::Huge2M, ..options(4 * MIB) };
    let mapping = Mapping::new(&asked).unwrap();
    if mapping.backing == Backing::Huge2M {
        assert!(mapping.downgrades().is_empty());
        assert_eq!(mapping.granule(), ALIGN_2M);
        return;
    }
    let first = mapping.downgrades()[0];
    assert_eq!((first.from, first.to), (Backing::Huge2M, Backing::Transparent));
    assert_ne!(first.errno.raw(), 0);
    let last = mapping.downgrades().last().unwrap();
    assert_eq!(last.to, mapping.backing, "the chain ends at what is in force");
    assert_eq!(mapping.granule(), rustix::param::page_size());
}

#[test]
fn advice_reaches_the_kernel() {
    let options = MapOptions { backing: Backing::Transparent, ..options(4 * MIB) };
    let transparent = Mapping::new(&options).unwrap();
    if transparent.backing != Backing::Transparent {
        return; // A kernel without huge pages does not keep the flag.
    }
    assert_ne!(has_flag(&transparent, "hg"), Some(false), "smaps shows it");
}

#[test]
fn prefaulting_brings_pages_in_and_keeps_contents() {
    // Smaller than a huge page, so that what is not asked for stays away.
    let mapping = Mapping::new(&MapOptions { align: 4096, ..options(MIB) }).unwrap();
    store(&mapping, 4096, 9);
    let how = prefault(&mapping, 0..MIB / 2).unwrap();
    assert!(matches!(how, Prefaulted::Populated | Prefaulted::Touched(_)), "{how:?}");
    assert_eq!(load(&mapping, 4096), 9);
    match mapping.residency(8192) {
        Ok(residency) => {
            assert!(matches!(residency, Residency::On(_)), "{residency:?}");
            assert_eq!(mapping.residency(MIB / 2 + 5), Ok(Residency::Absent), "not prefaulted");
        }
        Err(MapError::Os { errno, .. }) => assert_ne!(errno.raw(), 0),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn released_pages_read_as_zeroes() {
    let mapping = Mapping::new(&options(4 * MIB)).unwrap();
    store(&mapping, MIB, 5);
    store(&mapping, 3 * MIB, 6);
    assert_eq!(release(&mapping, 0..2 * MIB), Ok(()));
    assert_eq!((load(&mapping, MIB), load(&mapping, 3 * MIB)), (0, 6));
    assert_eq!(release(&mapping, 2 * MIB..4 * MIB), Ok(()));
    assert_eq!(load(&mapping, 3 * MIB), 0);
    store(&mapping, 3 * MIB, 7);
    assert_eq!(load(&mapping, 3 * MIB), 7, "a write takes the page back");
}

#[test]
fn binding_to_a_present_node_puts_pages_there() {
    let Ok(topology) = Topology::read() else { return };
    let mapping = Mapping::new(&options(2 * MIB)).unwrap();
    for node in topology.nodes().iter().filter(|node| node.has_memory) {
        let all = 0..mapping.bytes();
        release(&mapping, all.clone()).unwrap();
        match mapping.bind(all.clone(), node.id, BindMode::Strict).unwrap() {
            BindOutcome::Bound => {
                prefault(&mapping, all).unwrap();
                if let Ok(residency) = mapping.residency(0) {
                    assert_eq!(residency, Residency::On(node.id));
                }
            }
            BindOutcome::Weakened(errno) | BindOutcome::Unbound(errno) => {
                assert_ne!(errno.raw(), 0);
            }
        }
    }
}

#[test]
fn binding_to_an_absent_node_is_an_outcome_and_not_an_error() {
    let mapping = Mapping::new(&options(2 * MIB)).unwrap();
    let Ok(topology) = Topology::read() else { return };
    let beyond = NodeId(topology.nodes().last().map_or(0, |node| node.id.0) + 1);
    for node in [beyond, NodeId(1023), NodeId(1024), NodeId(u16::MAX)] {
        for mode in [BindMode::Strict, BindMode::Advisory] {
            let outcome = mapping.bind(0..2 * MIB, node, mode).unwrap();
            let BindOutcome::Unbound(errno) = outcome else { panic!("{node:?} {outcome:?}") };
            assert_ne!(errno.raw(), 0);
        }
    }
    store(&mapping, 0, 1);
    assert_eq!(load(&mapping, 0), 1, "the memory is usable all the same");
}

#[test]
fn ranges_outside_or_off_the_granule_are_refused() {
    let mapping = Mapping::new(&options(2 * MIB)).unwrap();
    #[allow(clippy::reversed_empty_ranges, reason = "one of the ranges under test")]
    let wrong = [1..4096, 0..4097, 0..4 * MIB, 4096..4096, 8192..4096, usize::MAX - 4095..0];
    for range in wrong {
        let refused = [
            mapping.bind(range.clone(), NodeId(0), BindMode::Strict).err(),
            prefault(&mapping, range.clone()).err(),
            release(&mapping, range.clone()).err(),
        ];
        for error in refused {
            assert!(matches!(error, Some(MapError::Range { .. })), "{range:?}: {error:?}");
        }
    }
    for beyond in [2 * MIB, usize::MAX] {
        assert!(matches!(mapping.residency(beyond), Err(MapError::Range { .. })));
    }
}

#[test]
fn impossible_options_are_refused() {
    let refused = |options: MapOptions| {
        let error = Mapping::new(&options).unwrap_err();
        assert!(matches!(error, MapError::Options { .. }), "{error}");
    };
    refused(options(0));
    refused(options(usize::MAX));
    refused(MapOptions { align: 3 * MIB, ..options(MIB) });
    refused(MapOptions { align: 0, ..options(MIB) });
    refused(MapOptions { align: 1, ..options(MIB) });
    refused(MapOptions { align: ALIGN_MAX * 2, ..options(MIB) });
    let odd =
        Mapping::new(&MapOptions { align: 4096.max(rustix::param::page_size()), ..options(1) });
    assert_eq!(odd.unwrap().bytes(), rustix::param::page_size(), "rounded up");
}

#[test]
fn more_than_the_address_space_is_an_error_with_errno() {
    let error = Mapping::new(&options(1 << 60)).unwrap_err();
    let MapError::Os { operation, bytes, errno } = error else { panic!("{error}") };
    assert_eq!((operation, bytes), ("mmap", 1 << 60));
    assert_eq!(errno, Errno::NOMEM);
    assert!(error.to_string().contains("ENOMEM"), "{error}");
    assert!(error.to_string().contains("ask for less"), "{error}");
}

#[test]
fn dropping_gives_the_addresses_back() {
    // 64 GiB each: more than the whole address space, if one in a thousand stayed.
    for _ in 0..4096 {
        match place::reserve(64 << 30, ALIGN_4M) {
            Ok(outer) => assert_eq!(outer.aligned(ALIGN_4M).as_ptr() as usize % ALIGN_4M, 0),
            Err(errno) => return assert_eq!(errno, Errno::NOMEM), // ulimit -v
        }
    }
}
