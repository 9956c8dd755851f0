//! Whole recordings: the committed fixtures, the bundled sample, and all that lie in `../shared`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use zonal_trace::{Event, EventKind, Recording, TraceFormat, samples};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// The directory `name` of the shared material, or a loud `None` on a machine without it.
fn shared(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared").join(name);
    if !path.is_dir() {
        eprintln!("SKIPPED: {} is not on this machine", path.display());
        return None;
    }
    Some(path)
}

fn kernel_name(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::Alloc { .. } => "mm_page_alloc",
        EventKind::Free { .. } => "mm_page_free",
        EventKind::FreeBatched { .. } => "mm_page_free_batched",
        EventKind::ZoneLocked { .. } => "mm_page_alloc_zone_locked",
        EventKind::PcpuDrain { .. } => "mm_page_pcpu_drain",
        EventKind::Extfrag { .. } => "mm_page_alloc_extfrag",
        EventKind::VmstatUpdate => "vmstat_update",
        EventKind::Fork { .. } => "fork",
        EventKind::Marker(_) => "tracing_mark_write",
        EventKind::Lost { .. } => "lost",
        _ => "other",
    }
}

/// Reads all events and counts them by kind.
fn counts(recording: &Recording) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for event in recording.events() {
        let event = event.unwrap_or_else(|error| panic!("{error}"));
        *counts.entry(kernel_name(&event.kind)).or_insert(0) += 1;
    }
    counts
}

fn check_declared(recording: &Recording) -> BTreeMap<&'static str, u64> {
    let counts = counts(recording);
    let machine = recording.description();
    assert_eq!(Some(counts.values().sum()), machine.events, "{recording:?}");
    for declared in &machine.events_by_name {
        let found = counts.get(declared.name.as_str());
        assert_eq!(found, Some(&declared.events), "{recording:?}: {}", declared.name);
    }
    counts
}

#[test]
fn compact_fixture_is_read() {
    let recording = Recording::open(fixture("compact")).unwrap();
    assert_eq!(recording.format(), TraceFormat::Compact);
    let counts = check_declared(&recording);
    for name in ["mm_page_alloc", "mm_page_free", "mm_page_alloc_extfrag", "vmstat_update", "fork"]
    {
        assert!(counts.contains_key(name), "{name}");
    }
    let machine = recording.description();
    assert_eq!(machine.kernel_release.as_deref(), Some("6.18.44-fc-v657"));
    assert_eq!((machine.cpus, machine.clock.step_ns), (Some(2), 1));
    assert_eq!(machine.flags.free_high_batch_expected, Some(true));
    assert_eq!(machine.flags.batch_scale_max, Some(5));
    assert_eq!(machine.buddyinfo.len(), 3);
    assert_eq!(machine.pagetypeinfo[0].blocks.len(), 3);
    assert_eq!(machine.require_zones().unwrap().len(), 5);
    let normal = machine.zone(0, "Normal").unwrap();
    assert_eq!((normal.start_pfn, normal.managed), (1_048_576, 3_997_696));
    assert_eq!(normal.pagesets[1].high_max, Some(249_856));
    let start = machine.start.as_ref().unwrap();
    assert!(start.t_begin_ns < start.t_end_ns);
    assert_eq!(start.zones[2].kind, "Normal");
    assert_eq!(machine.pageset_changes[0].high_min, 9072);
}

#[test]
fn ftrace_fixture_is_read() {
    let recording = Recording::open(fixture("ftrace")).unwrap();
    assert_eq!(recording.format(), TraceFormat::Ftrace);
    let counts = check_declared(&recording);
    assert_eq!(counts["tracing_mark_write"], 4);
    let machine = recording.description();
    assert_eq!((machine.cpus, machine.clock.step_ns), (Some(4), 1000));
    assert_eq!(machine.clock.name.as_deref(), Some("global"));
    assert_eq!(machine.nodes[1].cpus, [2, 3]);
    assert_eq!(machine.nodes[1].distances, [20, 10]);
    assert_eq!(machine.zone(1, "DMA32").unwrap().pagesets.len(), 4);
    assert!(!machine.zone(1, "Normal").unwrap().is_populated());
    assert_eq!(machine.zone(0, "DMA32").unwrap().pagesets[0].high_min, None);
    let first: Event = recording.events().next().unwrap().unwrap();
    assert_eq!(first.kind, EventKind::Marker("FX before begin".into()));
    assert_eq!((first.time_ns, first.cpu, first.pid), (8_644_540_000, 2, 1));
}

#[test]
fn a_stream_by_its_path_is_the_same_recording() {
    let whole = Recording::open(fixture("ftrace")).unwrap();
    let stream = Recording::open(fixture("ftrace/trace.txt")).unwrap();
    assert_eq!(whole.description(), stream.description());
}

#[test]
fn bundled_sample_is_whole() {
    let recording = samples::zlib_make_j4().unwrap();
    let counts = check_declared(&recording);
    assert_eq!(counts["mm_page_alloc"], 165_879);
    assert_eq!(counts["mm_page_free"], 167_007);
    assert_eq!(counts["mm_page_free_batched"], 156_976);
    assert_eq!(counts["mm_page_alloc_zone_locked"], 21_929);
    assert_eq!(counts["mm_page_pcpu_drain"], 8_028);
    assert_eq!((counts["vmstat_update"], counts["fork"]), (30, 359));
    let start = recording.description().start.as_ref().unwrap();
    assert_eq!(start.t_end_ns, 2_562_178_371_071);
}

#[test]
fn bundled_sample_is_the_shared_recording() {
    let Some(directory) = shared("traces/zlib-make-j4") else { return };
    let on_disk = Recording::open(directory).unwrap();
    assert_eq!(samples::zlib_make_j4().unwrap().description(), on_disk.description());
}

#[test]
fn every_shared_recording_has_the_events_it_declares() {
    let Some(traces) = shared("traces") else { return };
    for name in
        ["zlib-make-j4", "fsmark", "redis", "uxping", "6.12-files-n2-1g-c4", "6.12-unixbw-n2-1g-c4"]
    {
        let recording = Recording::open(traces.join(name)).unwrap();
        let counts = check_declared(&recording);
        assert!(!counts.contains_key("other"), "{name}: {counts:?}");
        assert_eq!(recording.description().name, name);
    }
    // Filtered by whoever made it: 4222 entries in the header, 2988 lines.
    let filtered = Recording::open(traces.join("formats/trace.txt")).unwrap();
    assert_eq!(counts(&filtered).values().sum::<u64>(), 2988);
    assert_eq!(filtered.description().cpus, Some(2));
}

#[test]
fn every_captured_machine_is_described() {
    let Some(conformance) = shared("conformance") else { return };
    for case in std::fs::read_dir(conformance).unwrap() {
        let path = case.unwrap().path();
        let source = zonal_trace::Directory::new(&path);
        let machine = zonal_trace::MachineDescription::read(&source, "case")
            .unwrap_or_else(|error| panic!("{error}"));
        assert!(!machine.zones.is_empty(), "{}", path.display());
        assert!(!machine.buddyinfo.is_empty(), "{}", path.display());
        assert!(!machine.pagetypeinfo.is_empty(), "{}", path.display());
        let nodes = machine.nodes.len();
        assert!(machine.nodes.iter().all(|node| node.distances.len() == nodes), "{path:?}");
        // Free blocks and the zone's own count differ only by what moved between two reads.
        let blocks: u64 = machine.buddyinfo.iter().map(|zone| zone.free_pages()).sum();
        assert!(blocks > 0, "{}", path.display());
    }
}
