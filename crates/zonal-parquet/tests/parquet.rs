//! Recordings and tables to Parquet and back.

use std::fs;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;

use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use zonal_parquet::{COLUMNS, Cell, Error, read_events, read_table, write_events, write_table};
use zonal_trace::{Event, EventKind, MachineDescription, MachineFiles, Notice, Recording};
use zonal_trace::{TraceWriter, WriterOptions, samples};

fn on(_: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn events(recording: &Recording) -> Vec<Event> {
    recording.events().map(Result::unwrap).collect()
}

/// One event of each kind, the numbers at their limits.
fn each_kind() -> Vec<EventKind> {
    let pfn = (1 << 52) - 1;
    let (order, migratetype) = (10, 7);
    vec![
        EventKind::Alloc { pfn: Some(pfn), order, migratetype, gfp: u32::MAX },
        EventKind::Alloc { pfn: None, order: 0, migratetype: 0, gfp: 0 },
        EventKind::Free { pfn: 0, order },
        EventKind::FreeBatched { pfn },
        EventKind::ZoneLocked { pfn, order, migratetype, percpu_refill: true },
        EventKind::PcpuDrain { pfn, order, migratetype },
        EventKind::Extfrag {
            pfn,
            alloc_order: 0,
            fallback_order: order,
            alloc_migratetype: 1,
            fallback_migratetype: migratetype,
            change_ownership: false,
        },
        EventKind::VmstatUpdate,
        EventKind::Fork { child: i32::MAX },
        EventKind::Marker("b\u{e4}llebad, \"quoted\"".into()),
        EventKind::Lost { events: 1 << 40 },
        EventKind::Other,
        EventKind::Notice(Notice::KswapdWake { node: 3, order }),
        EventKind::Notice(Notice::KswapdSleep { node: 1023 }),
        EventKind::Notice(Notice::ReclaimBegin { order, gfp: 7 }),
        EventKind::Notice(Notice::ReclaimEnd { pages: u64::MAX }),
        EventKind::Notice(Notice::CompactionBegin { zone_start: pfn, sync: true }),
        EventKind::Notice(Notice::CompactionEnd { zone_start: pfn, sync: false, status: 255 }),
        EventKind::Notice(Notice::Watermarks { node: 0, zone: 5, min: 1, low: 2, high: u64::MAX }),
        EventKind::Notice(Notice::ContentionBegin { lock: u64::MAX, flags: u32::MAX }),
        EventKind::Notice(Notice::ContentionEnd { lock: u64::MAX }),
    ]
}

/// A recording of these events.
fn recorded(path: &Path, kinds: &[EventKind]) -> Recording {
    let sample = samples::zlib_make_j4().unwrap();
    let machine = MachineDescription { cpus: Some(16), ..sample.description().clone() };
    let file = fs::File::create(path).unwrap();
    let files = MachineFiles::default();
    let mut writer = TraceWriter::new(file, &machine, &files, WriterOptions::default()).unwrap();
    for (at, kind) in kinds.iter().enumerate() {
        let (time_ns, cpu) = (1_000_000_007 * at as u64, at as u32 % 16);
        writer.push(&Event { time_ns, cpu, pid: -1, kind: kind.clone() }).unwrap();
    }
    writer.finish().unwrap();
    Recording::open(path).unwrap()
}

#[test]
fn every_kind_of_event_comes_back_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let before = recorded(&path("a.zonal"), &each_kind());
    let written = write_events(&before, &path("a.parquet"), 3, &mut on).unwrap();
    assert_eq!(written.rows, each_kind().len() as u64);
    let read = read_events(&path("a.parquet"), &path("b.zonal"), 3, &mut on).unwrap();
    assert_eq!(read.rows, written.rows);
    assert_eq!(events(&Recording::open(path("b.zonal")).unwrap()), events(&before));
    let left = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 3, "nothing else is left in the folder");
}

#[test]
fn a_recording_comes_back_with_its_machine() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let sample = samples::zlib_make_j4().unwrap();
    write_events(&sample, &path("a.parquet"), 3, &mut on).unwrap();
    read_events(&path("a.parquet"), &path("b.zonal"), 3, &mut on).unwrap();
    let back = Recording::open(path("b.zonal")).unwrap();
    assert!(sample.events().map(Result::unwrap).eq(back.events().map(Result::unwrap)));
    let (before, after) = (sample.description(), back.description());
    assert_eq!((after.zones.len(), after.cpus), (before.zones.len(), before.cpus));
    assert_eq!((&after.name, after.clock.step_ns), (&before.name, before.clock.step_ns));
    assert_eq!(back.machine_files().unwrap(), sample.machine_files().unwrap());
    let over = write_events(&back, &path("b.zonal"), 3, &mut on).unwrap_err();
    assert!(matches!(over, Error::Overwrites(_)), "{over}");
}

#[test]
fn damaged_files_are_refused_without_a_panic_and_leave_nothing() {
    // The decoder's own panics become errors; hundreds of backtraces would tell nothing.
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |told| {
        if !told.location().is_some_and(|place| place.file().contains("/parquet-")) {
            others(told);
        }
    }));
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let before = recorded(&path("a.zonal"), &each_kind());
    write_events(&before, &path("a.parquet"), 3, &mut on).unwrap();
    let whole = fs::read(path("a.parquet")).unwrap();
    let (bad, out) = (path("bad.parquet"), path("out.zonal"));
    let mut refused = 0;
    let mut read = |bytes: &[u8]| {
        fs::write(&bad, bytes).unwrap();
        match read_events(&bad, &out, 1, &mut on) {
            Ok(_) => fs::remove_file(&out).unwrap(),
            Err(error) => {
                refused += 1;
                assert!(!out.exists(), "{error}");
                assert!(error.to_string().contains("bad"), "{error}");
            }
        }
    };
    for end in (0..whole.len()).step_by(101) {
        read(&whole[..end]);
    }
    for at in (0..whole.len()).step_by(7) {
        let mut changed = whole.clone();
        changed[at] ^= 1 << (at % 8);
        read(&changed);
    }
    assert!(refused > whole.len() / 25, "{refused} of {}", whole.len());
    let error = read_events(&path("a.zonal"), &out, 1, &mut on).unwrap_err().to_string();
    assert!(error.contains("a.zonal: no Parquet file that can be read"), "{error}");
    let error = read_events(&path("none"), &out, 1, &mut on).unwrap_err().to_string();
    assert!(error.contains("none: No such file"), "{error}");
}

/// All rows of a table; those that repeat the one before once.
fn table(path: &Path, columns: &[(&str, Cell)]) -> Result<Vec<Vec<String>>, Error> {
    let mut rows = Vec::new();
    read_table(path, columns, &mut |_| ControlFlow::Continue(()), &mut |_, row| {
        rows.push(row.to_vec());
        Ok(())
    })?;
    Ok(rows)
}

#[test]
fn a_table_comes_back_to_the_last_digit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let columns = [("name", Cell::Text), ("busy", Cell::Count), ("value", Cell::Number)];
    let row = |name: &str, busy: &str, value: &str| -> Vec<String> {
        vec![name.into(), busy.into(), value.into()]
    };
    let max = u64::MAX.to_string();
    let rows =
        vec![row("a,\"b\"", "", "0.1"), row("", "7", "18066666.666666668"), row("z", &max, "-0")];
    write_table(&path, &columns, &rows).unwrap();
    assert_eq!(table(&path, &columns).unwrap(), rows);
    write_table(&path, &columns, Vec::<Vec<String>>::new()).unwrap();
    assert_eq!(table(&path, &columns).unwrap().len(), 0);
    let error = write_table(&path, &columns, [row("a", "1", "x")]).unwrap_err().to_string();
    assert!(error.contains("column value: 'x' is no number"), "{error}");
    let error = table(&path, &[("other", Cell::Text)]).unwrap_err().to_string();
    assert!(error.contains("column other: there is none"), "{error}");
    write_table(&path, &columns, &rows).unwrap();
    let error = table(&path, &[("name", Cell::Number)]).unwrap_err().to_string();
    assert!(error.contains("column name: another type; expected double"), "{error}");
}

#[test]
fn a_table_of_equal_rows_is_read_without_keeping_them_and_ends_when_it_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let columns = [("name", Cell::Text), ("busy", Cell::Count), ("value", Cell::Number)];
    let row: Vec<String> = vec!["a".repeat(1000), String::new(), "NaN".into()];
    write_table(&path, &columns, std::iter::repeat_n(&row, 300_000)).unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() < 100_000);
    let (mut told, mut heard) = (0, 0);
    let mut count = |_: u64, fields: &[String]| {
        assert_eq!(fields, row);
        told += 1;
        Ok(())
    };
    let mut on = |rows| {
        heard = rows;
        ControlFlow::Continue(())
    };
    read_table(&path, &columns, &mut on, &mut count).unwrap();
    assert_eq!(heard, 300_000);
    // Once for each batch that is held.
    assert!((1..=300).contains(&told), "{told}");
    let mut stop =
        |rows| if rows < 5000 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
    let stopped = read_table(&path, &columns, &mut stop, &mut |_, _| Ok(()));
    assert!(matches!(stopped, Err(Error::Stopped)));
}

#[test]
fn a_text_that_fills_the_memory_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    write_table(&path, &[("name", Cell::Text)], [["a".repeat((1 << 20) + 1)]]).unwrap();
    let error = table(&path, &[("name", Cell::Text)]).unwrap_err().to_string();
    assert!(error.contains("column name: a text of 1048577 bytes; expected 1048576"), "{error}");
}

#[test]
fn a_table_that_is_no_trace_is_refused_with_the_column() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let always = [("time_ns", Cell::Count), ("cpu", Cell::Count), ("pid", Cell::Count)];
    let with = |more: &[(&'static str, Cell)]| [&always[..], more].concat();
    let row = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let event = with(&[("event", Cell::Text)]);
    let free = with(&[("event", Cell::Text), ("pfn", Cell::Count), ("order", Cell::Count)]);
    let real = with(&[("event", Cell::Text), ("pfn", Cell::Number)]);
    for (columns, rows, expected) in [
        (with(&[]), vec![row(&["1", "0", "1"])], "column event: there is none"),
        (real, vec![row(&["1", "0", "1", "other", "1"])], "column pfn: found DOUBLE"),
        (event.clone(), vec![row(&["1", "0", "1", "mm_page_fry"])], "row 1: event: 'mm_page_fry'"),
        (event.clone(), vec![row(&["1", "99999", "1", "other"])], "row 1: cpu: 99999"),
        (event.clone(), vec![row(&["1", "0", "4294967296", "other"])], "pid: 4294967296"),
        (event.clone(), vec![row(&["", "0", "1", "other"])], "time_ns: nothing"),
        (
            event.clone(),
            vec![row(&["9", "0", "1", "other"]), row(&["8", "0", "1", "other"])],
            "row 2: time_ns: 8; expected 9 or later",
        ),
        (event, vec![row(&["1", "0", "1", "mm_page_free"])], "pfn: nothing; expected a number"),
        (
            free.clone(),
            vec![row(&["1", "0", "1", "mm_page_free", "4503599627370496", "0"])],
            "pfn: 4503599627370496; expected a number below",
        ),
        (free, vec![row(&["1", "0", "1", "mm_page_free", "1", "14"])], "order: 14"),
    ] {
        write_table(&path("t.parquet"), &columns, rows).unwrap();
        let error = read_events(&path("t.parquet"), &path("o.zonal"), 1, &mut on).unwrap_err();
        assert!(error.to_string().contains(expected), "{expected}: {error}");
    }
    assert_eq!(COLUMNS.len(), 29);
    assert_eq!((COLUMNS[0], COLUMNS[3], COLUMNS[28]), ("time_ns", "event", "text"));
}

#[test]
fn work_that_is_told_to_stop_ends_at_once_and_leaves_the_output_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let sample = samples::zlib_make_j4().unwrap();
    let mut told = Vec::new();
    let mut stop = |events| {
        told.push(events);
        ControlFlow::Break(())
    };
    fs::write(path("a.parquet"), "mine").unwrap();
    let error = write_events(&sample, &path("a.parquet"), 1, &mut stop).unwrap_err();
    assert!(matches!(error, Error::Stopped), "{error}");
    assert_eq!(fs::read(path("a.parquet")).unwrap(), b"mine");
    write_events(&sample, &path("b.parquet"), 1, &mut on).unwrap();
    let error = read_events(&path("b.parquet"), &path("b.zonal"), 1, &mut stop).unwrap_err();
    assert!(matches!(error, Error::Stopped), "{error}");
    assert_eq!(told.len(), 2, "each was told once");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing unfinished is left");
}

#[test]
fn an_unfinished_file_or_a_link_of_that_name_is_neither_written_nor_followed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let before = recorded(&path("a.zonal"), &each_kind());
    fs::write(path("precious"), "mine").unwrap();
    let aside = zonal_parquet::part(&path("a.parquet"));
    std::os::unix::fs::symlink(path("precious"), &aside).unwrap();
    // Another call of this process begins in the middle of the first one.
    let inner = |_| {
        write_events(&before, &path("a.parquet"), 1, &mut on).unwrap();
        ControlFlow::Continue(())
    };
    let sample = samples::zlib_make_j4().unwrap();
    write_events(&sample, &path("a.parquet"), 1, &mut { inner }).unwrap();
    assert_eq!(fs::read(path("precious")).unwrap(), b"mine");
    assert!(aside.is_symlink());
    read_events(&path("a.parquet"), &path("b.zonal"), 1, &mut on).unwrap();
    let back = Recording::open(path("b.zonal")).unwrap();
    assert!(sample.events().map(Result::unwrap).eq(back.events().map(Result::unwrap)));
    let mut names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    let mut expected =
        [aside, path("a.parquet"), path("a.zonal"), path("b.zonal"), path("precious")];
    expected.sort();
    assert_eq!(names, expected);
}

#[test]
fn files_of_the_machine_come_back_to_the_byte_and_the_input_is_never_the_output() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let machine = samples::zlib_make_j4().unwrap().description().clone();
    let mut files = MachineFiles::default();
    let bytes: Vec<u8> = (0..=255).collect();
    files.set("comm.txt", bytes.clone());
    files.set("plain.txt", "b\u{e4}llebad\n".into());
    let file = File::create(path("a.zonal")).unwrap();
    let writer = TraceWriter::new(file, &machine, &files, WriterOptions::default()).unwrap();
    writer.finish().unwrap();
    write_events(&Recording::open(path("a.zonal")).unwrap(), &path("a.parquet"), 1, &mut on)
        .unwrap();
    read_events(&path("a.parquet"), &path("b.zonal"), 1, &mut on).unwrap();
    let back = Recording::open(path("b.zonal")).unwrap().machine_files().unwrap();
    assert_eq!(back.get("comm.txt"), Some(&bytes[..]));
    assert_eq!(back.get("plain.txt"), Some("b\u{e4}llebad\n".as_bytes()));
    let whole = fs::read(path("a.parquet")).unwrap();
    std::os::unix::fs::symlink(path("a.parquet"), path("link")).unwrap();
    for output in ["a.parquet", "link", "./a.parquet"] {
        let error = read_events(&path("a.parquet"), &path(output), 1, &mut on).unwrap_err();
        assert!(matches!(error, Error::Overwrites(_)), "{output}: {error}");
    }
    assert_eq!(fs::read(path("a.parquet")).unwrap(), whole);
}

#[test]
fn times_that_are_no_nanoseconds_are_refused_with_their_type() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for (kind, expected) in [
        ("(TIMESTAMP(MICROS,true))", Some("MICROS")),
        ("(TIMESTAMP(MILLIS,false))", Some("MILLIS")),
        ("(TIMESTAMP_MICROS)", Some("MICROS")),
        ("(TIME(NANOS,true))", Some("NANOS")),
        ("(TIMESTAMP(NANOS,true))", None),
        ("(INTEGER(64,true))", None),
        ("", None),
    ] {
        let schema = format!(
            "message events {{ required int64 time_ns {kind}; required int32 cpu; required int32 \
             pid; required binary event (STRING); }}"
        );
        let schema = parse_message_type(&schema).unwrap();
        let file = File::create(path("t.parquet")).unwrap();
        let writer = SerializedFileWriter::new(file, schema.into(), Default::default()).unwrap();
        writer.close().unwrap();
        let read = read_events(&path("t.parquet"), &path("o.zonal"), 1, &mut on);
        match expected {
            None => assert_eq!(read.unwrap().rows, 0, "{kind}"),
            Some(expected) => {
                let error = read.unwrap_err().to_string();
                assert!(error.contains("column time_ns: found INT64 as"), "{kind}: {error}");
                assert!(error.contains(expected), "{kind}: {error}");
            }
        }
    }
}

/// As of a program that keeps the footer and drops rows.
#[test]
fn fewer_events_than_the_footer_tells_of_are_no_recording_and_losses_are_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut files = MachineFiles::default();
    files.set("meta.json", br#"{"cpus": 1, "events": 1}"#.to_vec());
    let machine = MachineDescription::default();
    let file = File::create(path("a.zonal")).unwrap();
    let mut writer = TraceWriter::new(file, &machine, &files, WriterOptions::default()).unwrap();
    for kind in [EventKind::Free { pfn: 5, order: 0 }, EventKind::Lost { events: 1 }] {
        writer.push(&Event { time_ns: 1, cpu: 0, pid: 7, kind }).unwrap();
    }
    writer.finish().unwrap();
    let whole = Recording::open(path("a.zonal")).unwrap();
    write_events(&whole, &path("a.parquet"), 1, &mut on).unwrap();
    assert_eq!(read_events(&path("a.parquet"), &path("b.zonal"), 1, &mut on).unwrap().rows, 2);
    assert_eq!(Recording::open(path("b.zonal")).unwrap().events().map(Result::unwrap).count(), 2);
    let reader = SerializedFileReader::new(File::open(path("a.parquet")).unwrap()).unwrap();
    let footer = reader.metadata().file_metadata();
    let properties = WriterProperties::builder()
        .set_key_value_metadata(footer.key_value_metadata().cloned())
        .build();
    let cut = File::create(path("cut.parquet")).unwrap();
    let schema = footer.schema_descr().root_schema_ptr();
    SerializedFileWriter::new(cut, schema, properties.into()).unwrap().close().unwrap();
    let error = read_events(&path("cut.parquet"), &path("c.zonal"), 1, &mut on).unwrap_err();
    assert!(error.to_string().contains("tells of 1 events; 0 are there"), "{error}");
    assert!(!path("c.zonal").exists());
}
