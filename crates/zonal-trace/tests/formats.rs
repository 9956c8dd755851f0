//! The same run in several forms gives the same events.
//!
//! `../shared/traces/formats` holds one run of trace-cmd and perf side by side, and a run recorded
//! as ring pages.

use std::path::{Path, PathBuf};

use zonal_trace::{Event, EventKind, Position, Recording, TraceFormat};

/// A file of the shared samples, or a loud `None` on a machine without them.
fn sample(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces/formats");
    if !path.is_dir() {
        eprintln!("SKIPPED: {} is not on this machine", path.display());
        return None;
    }
    Some(path.join(name))
}

fn read(path: &Path, format: TraceFormat) -> Vec<Event> {
    let recording = Recording::open(path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(recording.format(), format, "{}", path.display());
    let events: Result<Vec<Event>, _> = recording.events().collect();
    events.unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
fn assert_same(left: &[Event], right: &[Event]) {
    for (index, pair) in left.iter().zip(right).enumerate() {
        assert_eq!(pair.0, pair.1, "event {index}");
    }
    assert_eq!(left.len(), right.len());
}

/// Times cut to microseconds: what the kernel's own text keeps.
fn in_microseconds(events: &[Event], round: bool) -> Vec<Event> {
    let cut = |event: &Event| {
        let half = if round { 500 } else { 0 };
        Event { time_ns: (event.time_ns + half) / 1000 * 1000, ..event.clone() }
    };
    events.iter().map(cut).collect()
}

#[test]
fn both_versions_of_trace_dat_and_the_report_agree() {
    let Some(v6) = sample("trace.v6.dat.zst") else { return };
    let v6 = read(&v6, TraceFormat::TraceDat);
    let v7 = read(&sample("trace.v7.dat").unwrap(), TraceFormat::TraceDat);
    let report = read(&sample("trace-cmd-report.txt").unwrap(), TraceFormat::Ftrace);
    assert_eq!(v6.len(), 4222);
    assert_same(&v6, &v7);
    assert_same(&v7, &report);
}

#[test]
fn the_text_of_the_kernel_agrees_with_trace_dat() {
    let Some(text) = sample("trace.txt") else { return };
    let text = read(&text, TraceFormat::Ftrace);
    let dat = read(&sample("trace.v7.dat").unwrap(), TraceFormat::TraceDat);
    let dat = in_microseconds(&dat, true);
    // Somebody has filtered the text: 4222 entries were written, 2988 are left.
    assert_eq!(text.len(), 2988);
    let mut rest = dat.iter();
    for event in &text {
        assert!(rest.any(|other| other == event), "{event:?} is not in trace.v7.dat, or late");
    }
}

#[test]
fn perf_data_and_its_script_agree() {
    let Some(data) = sample("perf.data") else { return };
    let data = read(&data, TraceFormat::PerfData);
    let script = read(&sample("perf-script.txt").unwrap(), TraceFormat::Ftrace);
    assert_eq!(data.len(), 4441);
    // The script was printed with the process (`-F pid`), the samples have the thread.
    let without_pid = |events: Vec<Event>| -> Vec<Event> {
        events.into_iter().map(|event| Event { pid: 0, ..event }).collect()
    };
    let same = data.iter().zip(&script).filter(|(data, script)| data.pid == script.pid).count();
    assert!(same > 4000, "{same}");
    assert_same(&without_pid(data), &without_pid(script));
}

#[test]
fn perf_and_the_kernel_saw_the_same_events() {
    let Some(data) = sample("perf.data") else { return };
    let perf = read(&data, TraceFormat::PerfData);
    let dat = read(&sample("trace.v7.dat").unwrap(), TraceFormat::TraceDat);
    // Both ran at once; each saw some events before or after the other was on. Each tracer reads
    // the clock for itself, so times differ by some hundred nanoseconds.
    let kinds = |events: &[Event], cpu: u32| -> Vec<EventKind> {
        events.iter().filter(|event| event.cpu == cpu).map(|event| event.kind.clone()).collect()
    };
    for cpu in 0..2 {
        let (perf, dat) = (kinds(&perf, cpu), kinds(&dat, cpu));
        let shared = dat.windows(100).filter(|window| perf.windows(100).any(|w| w == *window));
        assert!(shared.count() * 10 > dat.len() * 5, "cpu {cpu}");
    }
}

#[test]
fn ring_pages_are_read_with_their_formats() {
    let Some(raw) = sample("raw") else { return };
    let recording = Recording::open(&raw).unwrap();
    let events = read(&raw, TraceFormat::Ring);
    // `stats` in meta.json: 19572 entries on CPU 0 and 3630 on CPU 1.
    let on = |cpu| events.iter().filter(|event| event.cpu == cpu).count();
    assert_eq!((on(0), on(1)), (19_572, 3630));
    assert!(events.iter().any(|event| event.kind == EventKind::VmstatUpdate));
    // Recorders of today leave this event out; this directory is of one that took it.
    assert!(events.iter().any(|event| matches!(event.kind, EventKind::FreeBatched { .. })));
    assert!(
        events.iter().any(|event| matches!(event.kind, EventKind::Fork { child } if child > 0))
    );
    assert!(recording.description().require_zones().unwrap().len() >= 3);
    let by_stream = read(&raw.join("cpu1.raw"), TraceFormat::Ring);
    assert_eq!(events, by_stream);
}

#[test]
fn a_first_cpu_on_which_nothing_happened_has_an_empty_file() {
    let Some(raw) = sample("raw") else { return };
    let copy = tempfile::tempdir().unwrap();
    let entries = |folder: &std::path::Path| std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    std::fs::create_dir(copy.path().join("formats")).unwrap();
    for entry in entries(&raw).chain(entries(&raw.join("formats"))) {
        if entry.path().is_file() {
            let to = copy.path().join(entry.path().strip_prefix(&raw).unwrap());
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
    std::fs::write(copy.path().join("cpu0.raw"), "").unwrap();
    let events = read(copy.path(), TraceFormat::Ring);
    assert_eq!(events.len(), 3630);
    assert!(events.iter().all(|event| event.cpu == 1));
}

#[test]
fn the_place_of_an_event_is_told() {
    let Some(raw) = sample("raw") else { return };
    let mut events = Recording::open(raw).unwrap().events();
    events.next().unwrap().unwrap();
    assert_eq!(events.position(), Position::Byte(20));
}

#[test]
fn stacks_between_the_lines_and_a_windows_machines_line_ends_change_nothing() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/ftrace");
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(&data).unwrap().map(Result::unwrap) {
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    let plain = read(copy.path(), TraceFormat::Ftrace);
    let text = std::fs::read_to_string(data.join("trace.txt")).unwrap();
    let stacks = [
        " => post_alloc_hook\n => get_page_from_freelist\n",
        "\tffffffff8123 get_page_from_freelist+0x1 ([kernel.kallsyms])\n\n",
    ];
    for stack in stacks {
        let with = |line: &str| match line.starts_with('#') {
            true => format!("{line}\n"),
            false => format!("{line}\n{stack}"),
        };
        let text: String = text.lines().map(with).collect();
        std::fs::write(copy.path().join("trace.txt"), text).unwrap();
        assert_same(&plain, &read(copy.path(), TraceFormat::Ftrace));
    }
    std::fs::write(copy.path().join("trace.txt"), text.replace('\n', "\r\n")).unwrap();
    assert_same(&plain, &read(copy.path(), TraceFormat::Ftrace));
}
