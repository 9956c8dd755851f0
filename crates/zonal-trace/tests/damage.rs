//! Damaged recordings: each kind of damage has its own message, and none is a panic.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use zonal_trace::{LINE_BYTES_MAX, Part, Recording, TraceError, TraceErrorKind};

const COMPACT: &str = "# time_ns(CLOCK_MONOTONIC) cpu pid event pfn(hex) order\n\
    10 0 1 alloc 245c9f 0 1 140dca\n\
    20 1 1 free 245c9f 0\n\
    20 1 1 zone_locked 439600 9 1 1\n\
    30 0 1 pcpu_drain 4b11ac 0 1\n";

fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    fs::read(path).unwrap()
}

fn compact_text() -> Vec<u8> {
    zstd::decode_all(&fixture("compact/events.txt.zst")[..]).unwrap()
}

/// The events of a stream alone, or the first error, from opening or from reading.
fn read(name: &str, stream: &[u8]) -> Result<usize, TraceError> {
    let recording = Recording::from_parts("bad", vec![Part::new(name, stream.to_vec())])?;
    let mut events = 0;
    for event in recording.events() {
        event?;
        events += 1;
    }
    Ok(events)
}

fn message(stream: &str) -> String {
    read("events.txt", stream.as_bytes()).unwrap_err().to_string()
}

#[test]
fn each_damage_has_its_message() {
    let with = |line: &str| message(&format!("{COMPACT}{line}\n"));
    for (message, part) in [
        (message(""), "bad/events.txt: file is empty"),
        (message("hello\n"), "bad/events.txt: line 1: unknown format: expected a compact event"),
        (message("# hello\n"), "unknown format"),
        (message("\n"), "unknown format"),
        (message("\n\u{1}x"), "found no text: bytes [0a, 01, 78]"),
        (message(&"é".repeat(200)), "found `éééé"),
        (message(COMPACT.trim_end()), "bad/events.txt: line 5: file is cut short: expected the"),
        (with("19 0 1 free 1 0"), "line 6: events are mis-ordered: expected a time of at least 30"),
        (with("19 0 1 free 1 0"), "on the same cpu), found 19 ns on cpu 0"),
        (with("29 1 1 free 1 0"), "on another cpu), found 29 ns on cpu 1"),
        (with("30 0 1 free 1 11"), "line 6: order out of range: expected an order from 0 to 10"),
        (with("30 0 1 extfrag 5 0 0 1010b"), "expected an order from 0 to 10, found 11"),
        (with("30 0 1 extfrag 5 11 0 10109"), "expected an order from 0 to 10, found 11"),
        (with("30 0 1 kswapd_wake 0 11"), "expected an order from 0 to 10, found 11"),
        (with("30 0 1 free xyz 0"), "line 6: page frame number is not hexadecimal"),
        (with("30 9999 1 free 1 0"), "line 6: cpu out of range: expected a cpu below 8192"),
        (with("30 0 1 free"), "line 6: too few fields in `free`"),
        (with("30 0 1 free 1 0 0"), "line 6: too many fields in `free`"),
        (with(&"x".repeat(LINE_BYTES_MAX + 1)), "line 6: line too long: expected at most 65536"),
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let mut latin = COMPACT.as_bytes().to_vec();
    latin.extend_from_slice(b"30 0 1 fr\xe9e 1 0\n");
    let message = read("events.txt", &latin).unwrap_err().to_string();
    assert!(message.contains("line 6: not UTF-8: expected text, found"), "{message}");
    assert!(message.ends_with("at byte 9"), "{message}");
}

/// A huge page is the largest block where pages are larger.
#[test]
fn the_largest_order_is_that_of_the_pages() {
    for (bytes, most) in [(None, 10), (Some(4096), 10), (Some(16384), 11), (Some(65536), 13)] {
        for order in [9, most, most + 1] {
            let meta = bytes.map(|bytes| format!("{{\"page_size\": {bytes}}}").into_bytes());
            let stream = format!("{COMPACT}30 0 1 free 80000 {order}\n").into_bytes();
            let meta = meta.map(|meta| Part::new("meta.json", meta));
            let parts = meta.into_iter().chain([Part::new("events.txt", stream)]).collect();
            let recording = Recording::from_parts("bad", parts).unwrap();
            let read: Result<Vec<_>, _> = recording.events().collect();
            assert_eq!(read.is_ok(), order <= most, "{bytes:?}, order {order}");
            if let Err(error) = read {
                let said =
                    format!("line 6: order out of range: expected an order from 0 to {most}");
                assert!(error.to_string().contains(&said), "{error}");
            }
        }
    }
}

#[test]
fn time_may_stand_still() {
    assert_eq!(read("events.txt", COMPACT.as_bytes()).unwrap(), 4);
}

#[test]
fn missing_files_are_named() {
    let missing = Recording::from_parts("bad", vec![]).unwrap_err().to_string();
    assert!(missing.contains("expected one of events.txt.zst, events.txt"), "{missing}");
    let directory = tempfile::tempdir().unwrap();
    let error = Recording::open(directory.path()).unwrap_err();
    assert!(matches!(error.kind(), TraceErrorKind::Missing { .. }), "{error}");
    let error = Recording::open(directory.path().join("none")).unwrap_err();
    assert!(matches!(error.kind(), TraceErrorKind::Missing { .. }), "{error}");
    assert!(error.file().ends_with("none"));
}

#[test]
fn a_stream_that_vanishes_is_an_error_of_the_iterator() {
    let directory = tempfile::tempdir().unwrap();
    let stream = directory.path().join("any-name");
    fs::write(&stream, COMPACT).unwrap();
    let recording = Recording::open(&stream).unwrap();
    assert_eq!(recording.events().count(), 4);
    fs::remove_file(&stream).unwrap();
    let items: Vec<_> = recording.events().collect();
    assert_eq!(items.len(), 1);
    assert!(items[0].is_err());
}

#[test]
fn neighbours_describe_only_a_stream_of_a_known_name() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("meta.json"), r#"{"cpus": 1, "events": 4}"#).unwrap();
    let (known, other) = (directory.path().join("events.txt"), directory.path().join("copy"));
    fs::write(&known, COMPACT).unwrap();
    fs::write(&other, COMPACT).unwrap();
    let error = Recording::open(&known).unwrap().events().find_map(Result::err).unwrap();
    assert!(matches!(error.kind(), TraceErrorKind::CpuOutOfRange { cpu: 1, cpus: 1 }), "{error}");
    assert_eq!(error.line(), Some(3));
    assert!(Recording::open(&other).unwrap().events().all(|event| event.is_ok()));
}

#[test]
fn a_cut_between_lines_shows_in_the_count() {
    let lines: Vec<&str> = COMPACT.split_inclusive('\n').collect();
    let parts = |events: u64, lines: &[&str]| {
        let meta = format!("{{\"events\": {events}}}");
        let stream = lines.concat().into_bytes();
        vec![Part::new("meta.json", meta.into_bytes()), Part::new("events.txt", stream)]
    };
    let whole = Recording::from_parts("ok", parts(4, &lines)).unwrap();
    assert!(whole.events().all(|event| event.is_ok()));
    for (events, lines, found) in [(4, &lines[..4], 3), (3, &lines[..], 4)] {
        let recording = Recording::from_parts("bad", parts(events, lines)).unwrap();
        let items: Vec<_> = recording.events().collect();
        let error = items.last().unwrap().as_ref().unwrap_err();
        let expected = format!("expected {events} events (meta.json), found {found}");
        assert!(error.to_string().contains(&expected), "{error}");
    }
}

/// A replay makes room for as many.
#[test]
fn more_pages_on_lists_than_their_zone_has_are_refused() {
    let read = |counts: [u64; 2], polled: u64| {
        let set = |count| format!(r#"{{"count": {count}, "high": 6, "batch": 1}}"#);
        let [first, second] = counts.map(set);
        let marks = r#""free": 900, "min": 1, "low": 2, "high": 3, "managed": 1000"#;
        let pages = r#""spanned": 1000, "present": 1000, "start_pfn": 0"#;
        let meta = format!(
            r#"{{"zones_pre": [{{"node": 0, "zone": "DMA", {marks}, {pages},
                 "pcp": {{"0": {first}, "1": {second}}}}}],
               "pcp_at_start": {{"t_begin_ns": 1, "t_end_ns": 2, "zones": {{"DMA": {{{marks}}}}},
                 "pcp": {{"DMA": {{"0": {}}}}}}}}}"#,
            set(polled)
        );
        let parts = [("meta.json", meta.into_bytes()), ("events.txt", COMPACT.into())];
        let parts = parts.into_iter().map(|(name, bytes)| Part::new(name, bytes)).collect();
        Recording::from_parts("bad", parts).map(|recording| recording.description().zones.len())
    };
    assert_eq!(read([900, 100], 1000).unwrap(), 1);
    for (counts, polled) in [([900, 101], 0), ([u64::MAX, u64::MAX], 0), ([0, 0], 1001)] {
        let error = read(counts, polled).unwrap_err().to_string();
        assert!(error.contains("no more pages on a zone's lists than it has"), "{error}");
        assert!(error.contains("of 1000 of node 0, DMA"), "{error}");
    }
}

#[test]
fn lost_events_do_not_count() {
    let text = format!(
        "# tracer: nop\n{0}mm_page_free: page=1 pfn=0x5 order=0\nCPU:1 [LOST 7 EVENTS]\n",
        "            init-1       [000] d..3.     8.406947: "
    );
    let meta = &b"{\"events\": 1}"[..];
    let parts = vec![Part::new("meta.json", meta), Part::new("trace.txt", text.into_bytes())];
    let recording = Recording::from_parts("lost", parts).unwrap();
    let events: Vec<_> = recording.events().map(Result::unwrap).collect();
    assert_eq!(events.len(), 2);
    assert_eq!((events[1].cpu, events[1].time_ns), (1, 8_406_947_000));
}

#[test]
fn compressed_streams_cut_anywhere_are_refused() {
    let packed = fixture("compact/events.txt.zst");
    let whole = read("events.txt.zst", &packed).unwrap();
    assert!(whole > 50);
    for length in 0..packed.len() {
        let error = read("events.txt.zst", &packed[..length]).unwrap_err();
        match error.kind() {
            TraceErrorKind::Empty { .. } => assert_eq!(length, 0),
            TraceErrorKind::CompressionCutShort => assert!(length > 0),
            other => panic!("cut at {length}: {other:?}"),
        }
    }
}

#[test]
fn plain_streams_cut_anywhere_are_refused_unless_between_lines() {
    for (name, text) in [("events.txt", compact_text()), ("trace.txt", fixture("ftrace/trace.txt"))]
    {
        for length in 0..text.len() {
            let result = read(name, &text[..length]);
            let between_lines = length > 0 && text[length - 1] == b'\n';
            match result {
                Ok(_) => assert!(between_lines, "{name} at {length}"),
                Err(error) => assert!(!between_lines, "{name} at {length}: {error}"),
            }
        }
    }
}

#[test]
fn every_flipped_bit_of_a_compressed_stream_is_survived() {
    let packed = fixture("compact/events.txt.zst");
    for index in 0..packed.len() {
        for bit in 0..8 {
            let mut damaged = packed.clone();
            damaged[index] ^= 1 << bit;
            drop(read("events.txt.zst", &damaged));
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..500)) {
        drop(read("events.txt", &bytes));
        drop(read("events.txt.zst", &bytes));
        let mut framed = b"# tracer: nop\n".to_vec();
        framed.extend_from_slice(&bytes);
        drop(read("trace.txt", &framed));
    }

    #[test]
    fn damaged_streams_are_survived(
        form in 0..2_usize,
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let (name, mut text) = [
            ("events.txt", compact_text()),
            ("trace.txt", fixture("ftrace/trace.txt")),
        ][form].clone();
        for (index, byte) in edits {
            let at = index.index(text.len());
            text[at] = byte;
        }
        drop(read(name, &text));
    }

    #[test]
    fn lines_of_likely_words_are_survived(
        words in proptest::collection::vec(
            prop::sample::select(vec![
                "0", "1", "-1", "99999999999999999999", "alloc", "free", "extfrag", "fork", "zzz",
                "", "#", "CPU:1", "[LOST", "1", "EVENTS]", "a-1", "[001]", "(", ")", ":", "8.5:",
                "mm_page_alloc:", "pfn=0x1", "pfn=", "order=1", "migratetype=1",
                "gfp_flags=GFP_KERNEL|0x", "1010a", "ffffffffffffffff", "\n",
            ]),
            0..60,
        ),
    ) {
        let text = words.join(" ");
        drop(read("events.txt", format!("# time_ns\n{text}\n").as_bytes()));
        drop(read("trace.txt", format!("# tracer: nop\n{text}\n").as_bytes()));
    }

    #[test]
    fn damaged_descriptions_are_survived(
        file in 0..4_usize,
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let name = ["meta.json", "zoneinfo.pre", "buddyinfo.pre", "pagetypeinfo.pre"][file];
        let mut bytes = fixture(&format!("compact/{name}"));
        for (index, byte) in edits {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len() * 2).min(bytes.len()));
        let parts = vec![
            Part::new(name, bytes),
            Part::new("events.txt", COMPACT.as_bytes()),
        ];
        drop(Recording::from_parts("bad", parts));
    }
}
