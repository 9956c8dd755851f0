//! What all fuzzers do: read a recording to its end, or to its error.

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
