//! `.zonal` files: what goes in comes out, from any time, and damage is told.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use zonal_trace::{
    Event, EventKind, MachineDescription, MachineFiles, Notice, Part, Parts, Recording, TextWriter,
    TraceError, TraceErrorKind, TraceFormat, TraceWriter, WriterOptions, samples,
};

/// Bytes per event that no sample may exceed.
const BYTES_PER_EVENT_MAX: f64 = 3.0;

fn options(block_events: usize) -> WriterOptions {
    WriterOptions { level: 3, block_events }
}

fn pack(events: &[Event], block_events: usize) -> Vec<u8> {
    let machine = MachineDescription::default();
    let files = MachineFiles::default();
    let mut writer = TraceWriter::new(Vec::new(), &machine, &files, options(block_events)).unwrap();
    events.iter().for_each(|event| writer.push(event).unwrap());
    writer.finish().unwrap()
}

fn open(bytes: &[u8]) -> Result<Recording, TraceError> {
    let parts = Parts::new("p", vec![Part::new("trace.zonal", bytes.to_vec())]);
    Recording::from_source(Arc::new(parts), "p")
}

fn unpack(bytes: &[u8]) -> Result<Vec<Event>, TraceError> {
    open(bytes)?.events().collect()
}

fn sample_events(count: usize) -> Vec<Event> {
    let events = samples::zlib_make_j4().unwrap().events();
    events.take(count).map(Result::unwrap).collect()
}

fn convert(recording: &Recording, options: WriterOptions) -> Vec<u8> {
    let files = recording.machine_files().unwrap();
    let mut writer =
        TraceWriter::new(Vec::new(), recording.description(), &files, options).unwrap();
    for event in recording.events() {
        writer.push(&event.unwrap()).unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn a_recording_comes_back_with_its_machine() {
    let fixture = |name| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    for name in ["compact", "ftrace"] {
        let recording = Recording::open(fixture(name)).unwrap();
        let back = open(&convert(&recording, options(1000))).unwrap();
        assert_eq!(back.format(), TraceFormat::Zonal);
        assert_eq!(back.description(), recording.description());
        let events = |recording: &Recording| -> Vec<Event> {
            recording.events().map(Result::unwrap).collect()
        };
        assert_eq!(events(&back), events(&recording));
    }
}

#[test]
fn the_bundled_sample_is_small_and_whole() {
    let recording = samples::zlib_make_j4().unwrap();
    let bytes = convert(&recording, WriterOptions { level: 3, ..WriterOptions::default() });
    let per_event = bytes.len() as f64 / 520_208.0;
    assert!(per_event < BYTES_PER_EVENT_MAX, "{per_event}");
    let back = open(&bytes).unwrap();
    assert_eq!(back.description(), recording.description());
    assert!(back.events().map(Result::unwrap).eq(recording.events().map(Result::unwrap)));
}

#[test]
fn every_shared_sample_is_small_and_whole() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    if !path.is_dir() {
        eprintln!("SKIPPED: {} is not on this machine", path.display());
        return;
    }
    for name in ["6.12-unixbw-n2-1g-c4", "formats/raw", "formats/trace.v7.dat"] {
        let recording = Recording::open(path.join(name)).unwrap();
        let bytes = convert(&recording, WriterOptions { level: 3, ..WriterOptions::default() });
        let events: Vec<Event> = recording.events().map(Result::unwrap).collect();
        if events.len() > 100_000 {
            let per_event = bytes.len() as f64 / events.len() as f64;
            assert!(per_event < BYTES_PER_EVENT_MAX, "{name}: {per_event}");
        }
        let back = open(&bytes).unwrap();
        assert_eq!(back.description().zones, recording.description().zones, "{name}");
        assert_eq!(back.description().cpus, recording.description().cpus, "{name}");
        assert!(back.events().map(Result::unwrap).eq(events), "{name}");
    }
}

#[test]
fn reading_from_a_time_gives_what_is_not_earlier() {
    let mut events = sample_events(5000);
    // Many events of one time, across several blocks.
    let time = events[2000].time_ns;
    events[2000..2300].iter_mut().for_each(|event| event.time_ns = time);
    events[2300..].iter_mut().for_each(|event| event.time_ns = event.time_ns.max(time));
    let recording = open(&pack(&events, 100)).unwrap();
    let last = events.last().unwrap().time_ns;
    let starts =
        [0, events[0].time_ns, events[1].time_ns, time - 1, time, time + 1, last, last + 1];
    for start in starts.into_iter().chain((0..50).map(|n| events[n * 99].time_ns)) {
        let expected: Vec<&Event> = events.iter().filter(|event| event.time_ns >= start).collect();
        let found: Vec<Event> = recording.events_from(start).map(Result::unwrap).collect();
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "from {start}");
    }
}

#[test]
fn without_an_index_reading_from_a_time_begins_at_the_beginning() {
    let events = sample_events(1000);
    let mut bytes = pack(&events, 100);
    bytes.truncate(bytes.len() - 20);
    let recording = open(&bytes).unwrap();
    let start = events[500].time_ns;
    let found: Vec<_> = recording.events_from(start).collect();
    let expected = events.iter().filter(|event| event.time_ns >= start).count();
    assert_eq!(found.len(), expected + 1);
    assert!(found.last().unwrap().is_err());
}

#[test]
fn an_empty_trace_is_a_trace() {
    assert_eq!(unpack(&pack(&[], 10)).unwrap(), []);
    assert_eq!(open(&pack(&[], 10)).unwrap().events_from(5).count(), 0);
}

#[test]
fn events_out_of_order_are_not_written() {
    let events = sample_events(10);
    let machine = MachineDescription::default();
    let files = MachineFiles::default();
    let mut writer = TraceWriter::new(Vec::new(), &machine, &files, options(10)).unwrap();
    writer.push(&events[9]).unwrap();
    let error = writer.push(&events[0]).unwrap_err().to_string();
    assert!(error.contains("mis-ordered"), "{error}");
}

#[test]
fn files_cut_anywhere_are_refused() {
    let bytes = pack(&sample_events(300), 100);
    for length in 0..bytes.len() {
        let error = unpack(&bytes[..length]).unwrap_err();
        let cut = matches!(
            error.kind(),
            TraceErrorKind::CutShort { .. }
                | TraceErrorKind::Empty { .. }
                | TraceErrorKind::UnknownFormat { .. }
        );
        assert!(cut, "at {length}: {error}");
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    let bytes = pack(&sample_events(60), 30);
    for index in 0..bytes.len() {
        for bit in [0, 3, 7] {
            let mut damaged = bytes.clone();
            damaged[index] ^= 1 << bit;
            assert!(unpack(&damaged).is_err(), "byte {index}, bit {bit}");
        }
    }
}

#[test]
fn blocks_in_another_order_are_noticed() {
    let events = sample_events(400);
    let bytes = pack(&events, 100);
    let starts: Vec<usize> =
        bytes.windows(4).enumerate().filter(|(_, w)| *w == b"DATA").map(|(at, _)| at).collect();
    let index = bytes.windows(4).position(|window| window == b"INDX").unwrap();
    assert_eq!(starts.len(), 4);
    let (a, b, c) = (starts[1], starts[2], starts[3]);
    let swapped = [&bytes[..a], &bytes[b..c], &bytes[a..b], &bytes[c..]].concat();
    assert!(unpack(&swapped).is_err());
    let missing = [&bytes[..c], &bytes[index..]].concat();
    let message = unpack(&missing).unwrap_err().to_string();
    assert!(message.contains("expected 400 events (the end marker), found 300"), "{message}");
}

fn notice_strategy() -> impl Strategy<Value = Notice> {
    let (node, order, frame) = (0..1024_u32, 0..=10_u8, 0..(1_u64 << 52));
    prop_oneof![
        (node.clone(), order.clone()).prop_map(|(node, order)| Notice::KswapdWake { node, order }),
        node.clone().prop_map(|node| Notice::KswapdSleep { node }),
        (order, any::<u32>()).prop_map(|(order, gfp)| Notice::ReclaimBegin { order, gfp }),
        any::<u64>().prop_map(|pages| Notice::ReclaimEnd { pages }),
        (frame.clone(), any::<bool>())
            .prop_map(|(zone_start, sync)| Notice::CompactionBegin { zone_start, sync }),
        (frame, any::<bool>(), any::<u8>()).prop_map(|(zone_start, sync, status)| {
            Notice::CompactionEnd { zone_start, sync, status }
        }),
        (node, 0..6_u8, any::<[u64; 3]>()).prop_map(|(node, zone, [min, low, high])| {
            Notice::Watermarks { node, zone, min, low, high }
        }),
    ]
}

fn event_strategy() -> impl Strategy<Value = Event> {
    let pfn = prop_oneof![0..64_u64, 0x10_0000..0x10_0040_u64, 0..(1_u64 << 52)];
    let pfn = pfn.boxed();
    let kind = prop_oneof![
        (pfn.clone(), 0..=10_u8, 0..=7_u8, any::<u32>()).prop_map(
            |(pfn, order, migratetype, gfp)| {
                EventKind::Alloc { pfn: Some(pfn), order, migratetype, gfp }
            }
        ),
        (0..=10_u8, 0..=7_u8, any::<u32>()).prop_map(|(order, migratetype, gfp)| {
            EventKind::Alloc { pfn: None, order, migratetype, gfp }
        }),
        (pfn.clone(), 0..=10_u8).prop_map(|(pfn, order)| EventKind::Free { pfn, order }),
        (pfn.clone(), 0..=1_u8).prop_map(|(pfn, order)| EventKind::Free { pfn, order }),
        pfn.clone().prop_map(|pfn| EventKind::FreeBatched { pfn }),
        (pfn.clone(), 0..=1_u8, 0..=1_u8, any::<bool>()).prop_map(
            |(pfn, order, migratetype, percpu_refill)| EventKind::ZoneLocked {
                pfn,
                order,
                migratetype,
                percpu_refill
            }
        ),
        (pfn.clone(), 0..=1_u8, 0..=1_u8)
            .prop_map(|(pfn, order, migratetype)| EventKind::PcpuDrain { pfn, order, migratetype }),
        (pfn, 0..=10_u8, 0..=10_u8, 0..=7_u8, 0..=7_u8, any::<bool>()).prop_map(
            |(pfn, a, b, c, d, change_ownership)| EventKind::Extfrag {
                pfn,
                alloc_order: a,
                fallback_order: b,
                alloc_migratetype: c,
                fallback_migratetype: d,
                change_ownership
            }
        ),
        Just(EventKind::VmstatUpdate),
        any::<i32>().prop_map(|child| EventKind::Fork { child }),
        "[a-z \\\\\n]{0,20}".prop_map(|text| EventKind::Marker(text.into())),
        any::<u64>().prop_map(|events| EventKind::Lost { events }),
        Just(EventKind::Other),
        notice_strategy().prop_map(EventKind::Notice),
    ];
    let cpu = prop_oneof![4 => 0..3_u32, 1 => 0..8192_u32];
    let pid = prop_oneof![4 => 0..5_i32, 1 => any::<i32>()];
    let step = prop_oneof![3 => Just(0_u64), 3 => 0..2000_u64, 1 => 0..(1_u64 << 40)];
    // The times are made of steps afterwards.
    (step, cpu, pid, kind).prop_map(|(time_ns, cpu, pid, kind)| Event { time_ns, cpu, pid, kind })
}

fn events_strategy() -> impl Strategy<Value = Vec<Event>> {
    proptest::collection::vec(event_strategy(), 0..300).prop_map(|mut events| {
        let mut time = 0_u64;
        for event in &mut events {
            time += event.time_ns;
            event.time_ns = time;
        }
        events
    })
}

proptest! {
    #[test]
    fn any_events_come_back(events in events_strategy(), block_events in 1..400_usize) {
        let bytes = pack(&events, block_events);
        prop_assert_eq!(unpack(&bytes).unwrap(), events);
    }

    #[test]
    fn any_events_come_back_from_text(events in events_strategy()) {
        let mut writer = TextWriter::new(Vec::new()).unwrap();
        events.iter().for_each(|event| writer.push(event).unwrap());
        let text = writer.finish().unwrap();
        let parts = vec![Part::new("events.txt", text)];
        let back: Vec<Event> =
            Recording::from_parts("p", parts).unwrap().events().map(Result::unwrap).collect();
        // Flags that mean something else in each kernel are not read, and page 0 is a failure.
        let expected: Vec<Event> = events.into_iter().map(|mut event| {
            if let EventKind::Alloc { pfn, gfp, .. } = &mut event.kind {
                *gfp &= zonal_trace::gfp::PORTABLE;
                *pfn = pfn.filter(|pfn| *pfn != 0);
            }
            event
        }).collect();
        prop_assert_eq!(back, expected);
    }

    #[test]
    fn any_bytes_behind_a_head_are_survived(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut file = pack(&[], 10);
        file.truncate(file.len().saturating_sub(100));
        file.extend_from_slice(&bytes);
        drop(unpack(&file));
    }
}

#[test]
fn version_1_is_still_read() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/zonal/whole");
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(bytes[8..10], [1, 0], "a file of version 1");
    let parts = vec![Part::new("trace.zonal", bytes)];
    let recording = Recording::from_parts("old", parts).unwrap();
    let events: Vec<Event> = recording.events().map(Result::unwrap).collect();
    assert!(!events.is_empty());
}
