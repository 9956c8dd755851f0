//! Traces both ways, and files that a hostile or confused user would give.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use zonal_perfetto::{Error, is_perfetto, read_trace, write_trace};
use zonal_trace::make::{Selection, Target, convert, cut};
use zonal_trace::{CachedPage, Event, EventKind, MachineDescription, MachineFiles, Notice, Part};
use zonal_trace::{Recording, TraceWriter, WriterOptions, samples};

fn go_on(_: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// The first tenth of a second of a build: some thousand events.
fn short() -> Recording {
    let recording = samples::zlib_make_j4().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("short.zonal");
    let selection = Selection { to: Some("+0.1".parse().unwrap()), ..Selection::default() };
    cut(&recording, &selection, Target::file(&file).level(1), &mut |_| {}).unwrap();
    let events = fs::read(&file).unwrap();
    Recording::from_parts("short", vec![Part::new("trace.zonal", events)]).unwrap()
}

fn perfetto(recording: &Recording) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.perfetto-trace");
    let file = fs::File::create(&path).unwrap();
    write_trace(recording, file, &mut go_on).unwrap();
    fs::read(path).unwrap()
}

fn back(bytes: &[u8]) -> Result<(Vec<Event>, Recording), Error> {
    let directory = tempfile::tempdir().unwrap();
    let (path, output) =
        (directory.path().join("t.perfetto-trace"), directory.path().join("t.zonal"));
    fs::write(&path, bytes).unwrap();
    read_trace(&path, &output, 1, &mut go_on)?;
    let recording = Recording::open(&output).unwrap();
    let events = recording.events().map(Result::unwrap).collect();
    // The file is read again in other tests: keep the texts alone.
    let files = recording.machine_files().unwrap();
    let mut parts: Vec<Part> = files.iter().map(|(n, c)| Part::new(n, c.to_vec())).collect();
    parts.push(Part::new(
        "events.txt",
        b"# time_ns cpu pid event pfn order migratetype gfp\n".to_vec(),
    ));
    Ok((events, Recording::from_parts("t", parts).unwrap()))
}

#[test]
fn a_recording_comes_back_event_by_event_with_its_machine() {
    let recording = samples::zlib_make_j4().unwrap();
    let bytes = perfetto(&recording);
    let (events, machine) = back(&bytes).unwrap();
    let expected: Vec<Event> = recording.events().map(Result::unwrap).collect();
    assert_eq!(events.len(), expected.len());
    // Within one nanosecond the order of two CPUs is not in a trace of bundles.
    let by_cpu = |events: &[Event]| {
        let mut events = events.to_vec();
        events.sort_by_key(|event| event.cpu);
        events
    };
    for (event, expected) in by_cpu(&events).iter().zip(by_cpu(&expected)) {
        assert_eq!(*event, expected);
    }
    assert_eq!(machine.description().zones, recording.description().zones);
    assert_eq!(machine.polls().unwrap(), recording.polls().unwrap());
}

/// `zonal record --moves`, and a second in which nothing happened.
#[test]
fn recordings_without_a_page_that_is_used_come_back() {
    let header = "# time_ns cpu pid event pfn order migratetype gfp\n";
    for line in ["1000000 0 7 zone_locked 10 0 1 1\n", ""] {
        let text = format!("{header}{line}").into_bytes();
        let meta = b"{\"events_wanted\": [\"kmem:mm_page_alloc_zone_locked\"]}\n".to_vec();
        let parts = vec![Part::new("events.txt", text), Part::new("meta.json", meta)];
        let recording = Recording::from_parts("moves", parts).unwrap();
        let expected: Vec<Event> = recording.events().map(Result::unwrap).collect();
        assert_eq!(expected.len(), usize::from(!line.is_empty()));
        assert!(expected.iter().all(|event| event.kind.name() == "mm_page_alloc_zone_locked"));
        let (events, _) = back(&perfetto(&recording)).unwrap();
        assert_eq!(events, expected);
    }
}

#[test]
fn each_kind_of_event_comes_back() {
    let text = "# time_ns cpu pid event pfn order migratetype gfp\n\
        10 0 7 alloc 1f 0 1 cc0\n";
    let parts = vec![Part::new("events.txt", text.as_bytes().to_vec())];
    let seed = Recording::from_parts("seed", parts).unwrap();
    let page = CachedPage { device: 254 << 20, inode: u64::MAX, index: 1 << 40, order: 9 };
    let kinds = [
        EventKind::Alloc { pfn: None, order: 10, migratetype: 2, gfp: 0x14_0cca },
        EventKind::Alloc { pfn: Some(0), order: 0, migratetype: 0, gfp: 0 },
        EventKind::Free { pfn: (1 << 52) - 1, order: 3 },
        EventKind::FreeBatched { pfn: 5 },
        EventKind::ZoneLocked { pfn: 6, order: 9, migratetype: 1, percpu_refill: true },
        EventKind::ZoneLocked { pfn: 6, order: 4, migratetype: 1, percpu_refill: false },
        EventKind::PcpuDrain { pfn: 7, order: 2, migratetype: 2 },
        EventKind::Extfrag {
            pfn: 8,
            alloc_order: 1,
            fallback_order: 9,
            alloc_migratetype: 0,
            fallback_migratetype: 1,
            change_ownership: true,
        },
        EventKind::VmstatUpdate,
        EventKind::Fork { child: 99 },
        EventKind::Marker("a text".into()),
        EventKind::Lost { events: 12 },
        EventKind::Other,
        EventKind::Notice(Notice::KswapdWake { node: 3, order: 4 }),
        EventKind::Notice(Notice::KswapdSleep { node: 3 }),
        EventKind::Notice(Notice::ReclaimBegin { order: 2, gfp: 0xcc0 }),
        EventKind::Notice(Notice::ReclaimEnd { pages: 1 << 40 }),
        EventKind::Notice(Notice::CompactionBegin { zone_start: 4096, sync: true }),
        EventKind::Notice(Notice::CompactionEnd { zone_start: 4096, sync: false, status: 8 }),
        EventKind::Notice(Notice::Watermarks { node: 1, zone: 2, min: 3, low: 4, high: 5 }),
        EventKind::Notice(Notice::ContentionBegin { lock: u64::MAX, flags: 1 }),
        EventKind::Notice(Notice::ContentionEnd { lock: u64::MAX }),
        EventKind::Notice(Notice::CacheAdd(page)),
        EventKind::Notice(Notice::CacheRemove(page)),
        EventKind::Free { pfn: 9, order: 0 },
    ];
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kinds.zonal");
    let (machine, files) = (seed.description(), seed.machine_files().unwrap());
    let mut writer = TraceWriter::new(
        fs::File::create(&file).unwrap(),
        machine,
        &files,
        WriterOptions::default(),
    )
    .unwrap();
    let event = |(at, kind): (usize, &EventKind)| Event {
        time_ns: 1000 + at as u64,
        cpu: (at % 3) as u32,
        pid: at as i32,
        kind: kind.clone(),
    };
    let expected: Vec<Event> = kinds.iter().enumerate().map(event).collect();
    for event in &expected {
        writer.push(event).unwrap();
    }
    writer.finish().unwrap();
    let (events, _) = back(&perfetto(&Recording::open(&file).unwrap())).unwrap();
    assert_eq!(events, expected);
}

#[test]
fn packets_that_were_compressed_are_read() {
    let bytes = perfetto(&short());
    let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packer, &bytes).unwrap();
    let packed = packer.finish().unwrap();
    // `TracePacket.compressed_packets`: field 50, length-delimited.
    let mut inner = vec![0x92, 0x03];
    prost::encoding::encode_varint(packed.len() as u64, &mut inner);
    inner.extend(packed);
    let mut outer = vec![0x0a];
    prost::encoding::encode_varint(inner.len() as u64, &mut outer);
    outer.extend(inner);
    assert_eq!(back(&outer).unwrap().0.len(), back(&bytes).unwrap().0.len());
}

#[test]
fn damaged_files_are_refused_with_their_place() {
    let bytes = perfetto(&short());
    let told = |bytes: &[u8]| back(bytes).map(drop).unwrap_err().to_string();
    assert!(
        told(&bytes[..bytes.len() - 3]).contains("cut short"),
        "{}",
        told(&bytes[..bytes.len() - 3])
    );
    assert!(told(b"").contains("no ftrace event of pages"));
    assert!(told(b"hello").contains("expected a packet"));
    // A packet of 2^60 bytes, and a number without end.
    assert!(
        told(&[0x0a, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10]).contains("at most")
    );
    assert!(
        told(&[0x0a; 1].iter().chain(&[0xff; 11]).copied().collect::<Vec<_>>())
            .contains("10 bytes")
    );
    // CPU 2^31: a bundle with `cpu` alone.
    assert!(told(&[0x0a, 8, 0x0a, 6, 8, 0x80, 0x80, 0x80, 0x80, 8]).contains("cpu: 2147483648"));
    // An order of 14: FtraceEvent { timestamp: 1, mm_page_free { order: 14, pfn: 1 } }.
    let event = [0x0a, 13, 0x0a, 11, 0x12, 9, 8, 1, 0xb2, 0x13, 4, 8, 14, 0x18, 1];
    assert!(told(&event).contains("order: 14; expected a number below 14"), "{}", told(&event));
}

/// A packet of these fields.
fn packet(fields: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x0a];
    prost::encoding::encode_varint(fields.len() as u64, &mut packet);
    packet.extend(fields);
    packet
}

/// A bundle of CPU 0 with a free at this time, and with these fields before it.
fn free_at(time: u8, fields: &[u8]) -> Vec<u8> {
    let mut bundle = fields.to_vec();
    bundle.extend([0x12, 9, 8, time, 0xb2, 0x13, 4, 8, 0, 0x18, 1]);
    packet(&[&[0x0a, bundle.len() as u8], &bundle[..]].concat())
}

#[test]
fn a_packet_of_millions_of_empty_messages_is_refused_before_it_is_decoded() {
    // Threads of a process tree, symbols, annotations: decoded, each would take some fifty bytes.
    for field in [0x12_u8, 0x62, 0x5a] {
        let mut fields = vec![field];
        let empty = [0x12, 0].repeat((2 << 20) + 1);
        prost::encoding::encode_varint(empty.len() as u64, &mut fields);
        fields.extend(empty);
        let error = back(&packet(&fields)).map(drop).unwrap_err().to_string();
        assert!(error.contains("more than 2097152 parts"), "{error}");
    }
}

#[test]
fn a_name_that_is_cut_in_a_character_is_no_damage() {
    // process_tree { threads { tid: 7, name } }
    let names = packet(&[0x12, 11, 0x12, 9, 8, 7, 0x12, 5, b'a', b'b', b'c', 0xe4, 0xb8]);
    let (events, _) = back(&[names, free_at(1, &[])].concat()).unwrap();
    assert_eq!(events.len(), 1);
}

#[test]
fn a_loss_without_an_event_is_told_where_the_next_one_is() {
    let (only_lost, free) = (packet(&[0x0a, 2, 0x18, 1]), free_at(9, &[]));
    let times = |bytes: &[Vec<u8>]| -> Vec<u64> {
        back(&bytes.concat()).unwrap().0.iter().map(|event| event.time_ns).collect()
    };
    assert_eq!(times(&[only_lost.clone(), free.clone()]), [9]);
    assert_eq!(times(&[free.clone(), only_lost.clone(), free.clone()]), [9, 9, 9]);
    assert_eq!(times(&[free, only_lost]), [9, 9]);
}

#[test]
fn clocks_that_differ_from_cpu_to_cpu_are_refused() {
    let told = back(&free_at(1, &[0x28, 3])).map(drop).unwrap_err().to_string();
    assert!(told.contains("clock local"), "{told}");
    assert!(back(&free_at(1, &[0x28, 2])).is_ok());
    let mixed = [free_at(1, &[]), free_at(2, &[0x28, 2])].concat();
    assert!(back(&mixed).map(drop).unwrap_err().to_string().contains("expected one clock"));
}

#[test]
fn packets_that_are_twice_in_a_file_are_refused() {
    let bytes = perfetto(&short());
    let told = back(&[&bytes[..], &bytes].concat()).map(drop).unwrap_err().to_string();
    assert!(told.contains("each once"), "{told}");
}

/// A fuzzer found it: 43 are told, and one event of the file is no longer one of pages.
#[test]
fn fewer_events_than_the_trace_tells_are_no_recording() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/perfetto");
    let bytes = fs::read(corpus.join("a-count-that-lies")).unwrap();
    let told = back(&bytes).map(drop).unwrap_err().to_string();
    assert!(told.contains("tells of 43 events; 42 are there"), "{told}");
}

#[test]
fn losses_are_not_among_the_events_that_a_trace_tells_of() {
    let mut files = MachineFiles::default();
    files.set("meta.json", br#"{"cpus": 1, "events": 1}"#.to_vec());
    let machine = MachineDescription::default();
    let mut writer =
        TraceWriter::new(Vec::new(), &machine, &files, WriterOptions::default()).unwrap();
    for (time_ns, kind) in
        [(1, EventKind::Free { pfn: 5, order: 0 }), (2, EventKind::Lost { events: 1 })]
    {
        writer.push(&Event { time_ns, cpu: 0, pid: 7, kind }).unwrap();
    }
    let parts = vec![Part::new("trace.zonal", writer.finish().unwrap())];
    let recording = Recording::from_parts("lossy", parts).unwrap();
    let before: Vec<Event> = recording.events().map(Result::unwrap).collect();
    assert_eq!(back(&perfetto(&recording)).unwrap().0, before);
}

#[test]
fn mutated_files_neither_panic_nor_hang() {
    let bytes = perfetto(&short());
    let bytes = &bytes[..bytes.len().min(100_000)];
    let mut state = 1_u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % below
    };
    for _ in 0..60 {
        let mut other = bytes.to_vec();
        for _ in 0..random(4) + 1 {
            let at = random(other.len());
            other[at] = random(256) as u8;
        }
        let _ = back(&other);
    }
}

#[test]
fn a_trace_is_told_from_other_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x");
    let is = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        is_perfetto(&path)
    };
    assert!(is(&perfetto(&short())[..1000]));
    for other in [&b""[..], b"\n", b"\n# tracer: nop\n", b"# time_ns", b"PAR1", b"\n\n\n\n"] {
        assert!(!is(other), "{other:?}");
    }
    assert!(!is_perfetto(directory.path()) && !is_perfetto(Path::new("/no/such/file")));
}

#[test]
fn progress_stops_the_work_and_leaves_no_whole_trace() {
    let recording = samples::zlib_make_j4().unwrap();
    let stopped = write_trace(&recording, Vec::new(), &mut |_| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(Error::Stopped)), "{stopped:?}");
}

#[test]
fn what_was_read_is_a_recording_like_any_other() {
    let recording = short();
    let directory = tempfile::tempdir().unwrap();
    let (pf, zonal) = (directory.path().join("a.pftrace"), directory.path().join("a.zonal"));
    fs::write(&pf, perfetto(&recording)).unwrap();
    let read = read_trace(&pf, &zonal, 1, &mut go_on).unwrap();
    assert_eq!((read.left_out, read.late), (0, 0));
    let text = directory.path().join("a.txt");
    convert(&Recording::open(&zonal).unwrap(), Target::file(&text), &mut |_| {}).unwrap();
    let lines = fs::read_to_string(&text).unwrap().lines().filter(|l| !l.starts_with('#')).count();
    assert_eq!(lines as u64, read.events);
}
