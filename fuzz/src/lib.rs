//! What all fuzzers do: read a recording to its end, or to its error.

use std::fs;
use std::ops::ControlFlow;

use zonal_trace::{Part, Recording};

/// Most events that are read of one input: compressed inputs may hold very many.
const EVENTS_MAX: usize = 1 << 18;

/// Reads all of a recording, and part of it again from a time in its middle.
///
/// # Panics
/// If the events are not what every reader promises: not in order, or out of range.
pub fn read(parts: Vec<Part>) {
    let Ok(recording) = Recording::from_parts("fuzz", parts) else { return };
    let mut times = Vec::new();
    for event in recording.events().take(EVENTS_MAX) {
        match event {
            Ok(event) => {
                assert!(times.last().is_none_or(|before| *before <= event.time_ns));
                assert!(event.cpu < zonal_trace::CPUS_MAX);
                times.push(event.time_ns);
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                return;
            }
        }
    }
    if let Some(time) = times.get(times.len() / 2)
        && times.len() < EVENTS_MAX
    {
        let later = times.iter().filter(|other| *other >= time).count();
        // An index that lies may lead to an error, but never past an event.
        if let Ok(from) = recording.events_from(*time).collect::<Result<Vec<_>, _>>() {
            assert_eq!(from.len(), later);
        }
    }
}

/// Reads a Perfetto trace to the end, or to its error, and the recording that it becomes. An input
/// that says it is very long is stopped.
///
/// # Panics
/// If a damaged trace leaves a recording, or the events are not in order.
pub fn read_perfetto(data: &[u8]) {
    let directory = tempfile::tempdir().expect("a directory for temporary files");
    let (from, to) = (directory.path().join("in.pftrace"), directory.path().join("out.zonal"));
    fs::write(&from, data).expect("room for the input");
    let mut stop = |events: u64| match events < EVENTS_MAX as u64 {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    };
    match zonal_perfetto::read_trace(&from, &to, 1, &mut stop) {
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert!(!to.exists(), "an error leaves no file");
        }
        Ok(read) => {
            let recording = Recording::open(&to).expect("what was written can be read");
            let mut before = 0;
            let mut events = 0;
            for event in recording.events() {
                let event = event.expect("what was written can be read");
                assert!(before <= event.time_ns);
                before = event.time_ns;
                events += 1;
            }
            assert_eq!(events, read.events);
        }
    }
}
