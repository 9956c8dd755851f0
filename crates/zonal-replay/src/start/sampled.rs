//! The state at the start where no reading was made for it: the sample nearest to it.
//!
//! `zoneinfo` beside a trace is of some time before it, and lists move meanwhile: in one recording
//! of a machine that went on working, one CPU's held 26,109 pages then, and 8,893 when the trace
//! began.

use std::borrow::Cow;

use zonal_trace::{MachineDescription, PolledState, Recording, TraceError};

/// The recorded machine. Without a reading of its own for the start, it starts in the last sample
/// before the first event, if samples were taken on both sides of that event: of another clock, or
/// another time, they are not.
///
/// # Errors
/// If the samples cannot be read.
pub fn machine(recording: &Recording) -> Result<Cow<'_, MachineDescription>, TraceError> {
    let described = recording.description();
    let polls = match described.start {
        Some(_) => Vec::new(),
        None => recording.polls()?,
    };
    // Who reads the events tells what is wrong with the first.
    let first = match polls.is_empty() {
        true => None,
        false => recording.events().next().and_then(Result::ok),
    };
    let state = first.and_then(|event| at(&polls, event.time_ns));
    Ok(match state {
        Some(start) => Cow::Owned(MachineDescription { start: Some(start), ..described.clone() }),
        None => Cow::Borrowed(described),
    })
}

/// The last sample before this time, if there is one after it too.
fn at(polls: &[PolledState], time_ns: u64) -> Option<PolledState> {
    let before = polls.partition_point(|poll| poll.t_end_ns <= time_ns);
    polls.get(before)?;
    polls[..before].last().cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_sample_before_the_first_event_is_the_start_if_others_follow() {
        let poll = |end| PolledState { t_begin_ns: end - 1, t_end_ns: end, zones: Vec::new() };
        let polls = [poll(10), poll(20), poll(30)];
        assert_eq!(at(&polls, 25), Some(poll(20)));
        assert_eq!(at(&polls, 20), Some(poll(20)));
        assert_eq!(at(&polls, 9), None, "none is before it");
        assert_eq!(at(&polls, 30), None, "none is after it");
        assert_eq!(at(&[], 5), None);
    }
}
