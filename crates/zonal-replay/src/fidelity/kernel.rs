//! What the recorded kernel moved, and what its lists held, in bins of time.

use zonal_trace::{PolledState, Recording, TraceError};

use crate::program::Program;
use crate::read::Watcher;
use crate::run::timeline::{Sample, Timeline};
use crate::zones::ZoneMap;

/// What the recorded kernel did: its events, and its lists as they were polled.
///
/// # Errors
/// An event that cannot be read.
pub fn timeline(
    recording: &Recording,
    program: &Program,
    map: &ZoneMap,
    polls: &[PolledState],
) -> Result<Timeline, TraceError> {
    let mut timeline = Timeline::new(program, program.cpus, map);
    let mut watcher = Watcher::of(map.clone(), recording.description());
    let polled = |now: u64, zone: usize, cpu: u32| {
        let last = polls.partition_point(|poll| poll.t_end_ns <= now).checked_sub(1)?;
        let at = &map.zones()[zone];
        let zones = &polls[last].zones;
        let zone = zones.iter().find(|zone| zone.node == at.node && zone.kind == at.kind)?;
        zone.pagesets.iter().find(|set| set.cpu == cpu)
    };
    let sample = |watcher: &Watcher, now: u64, zone: usize, cpu: u32| {
        let set = polled(now, zone, cpu);
        Sample {
            moves: watcher.moves().get(&(Some(zone), cpu)).copied().unwrap_or_default(),
            count: set.map(|set| set.count),
            high: set.map(|set| set.high),
        }
    };
    for event in recording.events_from(program.start_ns) {
        let event = event?;
        if event.time_ns > program.span_ns.1 {
            break;
        }
        let now = timeline.next_ns();
        timeline.reach(event.time_ns, |zone, cpu| sample(&watcher, now, zone, cpu));
        watcher.see(&event);
    }
    let now = program.span_ns.1;
    timeline.finish(|zone, cpu| sample(&watcher, now, zone, cpu));
    Ok(timeline)
}
