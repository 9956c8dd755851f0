//! Counter tracks: what Perfetto draws as lines.
//!
//! | group | counters |
//! |--|--|
//! | a zone | free pages, the three watermarks, pages on all lists, and on each CPU's |
//! | lists | pages refilled and drained since the beginning |
//! | spinlocks | threads that wait, and the time that was waited since the beginning |
//!
//! A value is written where it changes.

use std::collections::HashMap;

use zonal_trace::{Event, EventKind, Notice, PolledState, PolledZone};

use crate::proto::{
    COUNTER, CounterDescriptor, TracePacket, TrackDescriptor, TrackEvent, UNIT_COUNT, UNIT_TIME_NS,
};

/// The track of the machine's files; counters come behind it.
pub(crate) const MACHINE_TRACK: u64 = 0x7a6f_6e61_6c00;
/// Moves are counted once in this time.
const STEP_NS: u64 = 1_000_000;

/// Tracks that were described, and their values.
#[derive(Default)]
pub(crate) struct Counters {
    tracks: HashMap<(String, String), Track>,
    groups: HashMap<String, u64>,
    uuids: u64,
    refilled: u64,
    drained: u64,
    moves_at: u64,
    /// By CPU and thread, since when it waits: thread 0 is on each CPU, and who waits stays there.
    waiting: HashMap<(u32, i32), u64>,
    waited_ns: u64,
    /// Packets that were not taken yet.
    pub(crate) packets: Vec<TracePacket>,
}

struct Track {
    uuid: u64,
    value: Option<u64>,
}

impl Counters {
    /// A sample of `/proc/zoneinfo`, at the end of its reading.
    pub(crate) fn sample(&mut self, sample: &PolledState) {
        for zone in &sample.zones {
            let group = format!("{} (node {})", zone.kind, zone.node);
            let pages = zone.pagesets.iter().map(|set| set.count).sum();
            for (name, value) in marks(zone).into_iter().chain([("on lists", pages)]) {
                self.set(sample.t_end_ns, &group, name, value, UNIT_COUNT);
            }
            for set in &zone.pagesets {
                let name = format!("on the list of CPU {}", set.cpu);
                self.set(sample.t_end_ns, &group, &name, set.count, UNIT_COUNT);
            }
        }
    }

    /// The next event.
    pub(crate) fn event(&mut self, event: &Event) {
        match &event.kind {
            EventKind::ZoneLocked { order, percpu_refill: true, .. } => {
                self.refilled += 1 << order;
            }
            EventKind::PcpuDrain { order, .. } => self.drained += 1 << order,
            EventKind::Notice(Notice::ContentionBegin { .. }) => {
                self.waiting.insert((event.cpu, event.pid), event.time_ns);
                self.waits(event.time_ns);
            }
            EventKind::Notice(Notice::ContentionEnd { .. }) => {
                if let Some(since) = self.waiting.remove(&(event.cpu, event.pid)) {
                    self.waited_ns += event.time_ns.saturating_sub(since);
                    self.waits(event.time_ns);
                }
            }
            // The end of a wait may be among what is lost.
            EventKind::Lost { .. } if !self.waiting.is_empty() => {
                self.waiting.retain(|(cpu, _), _| *cpu != event.cpu);
                self.waits(event.time_ns);
            }
            _ => {}
        }
        if event.time_ns >= self.moves_at {
            self.moves(event.time_ns);
            self.moves_at = event.time_ns + STEP_NS;
        }
    }

    /// The values at the end.
    pub(crate) fn moves(&mut self, time_ns: u64) {
        let group = "per-CPU lists";
        self.set(time_ns, group, "pages refilled", self.refilled, UNIT_COUNT);
        self.set(time_ns, group, "pages drained", self.drained, UNIT_COUNT);
    }

    fn waits(&mut self, time_ns: u64) {
        let waiting = self.waiting.len() as u64;
        self.set(time_ns, "spinlocks", "threads that wait", waiting, UNIT_COUNT);
        self.set(time_ns, "spinlocks", "waited", self.waited_ns, UNIT_TIME_NS);
    }

    fn set(&mut self, time_ns: u64, group: &str, name: &str, value: u64, unit: i32) {
        let key = (group.to_owned(), name.to_owned());
        if !self.tracks.contains_key(&key) {
            let parent = self.group(group);
            let counter = CounterDescriptor {
                unit: Some(unit),
                unit_name: (unit == UNIT_COUNT && group != "spinlocks").then(|| "pages".to_owned()),
            };
            let uuid = self.describe(name, Some(parent), Some(counter));
            self.tracks.insert(key.clone(), Track { uuid, value: None });
        }
        let Some(track) = self.tracks.get_mut(&key) else { return };
        if track.value == Some(value) {
            return;
        }
        track.value = Some(value);
        let event = TrackEvent {
            r#type: Some(COUNTER),
            track_uuid: Some(track.uuid),
            counter_value: Some(i64::try_from(value).unwrap_or(i64::MAX)),
            ..TrackEvent::default()
        };
        self.packets.push(TracePacket {
            timestamp: Some(time_ns),
            track_event: Some(event),
            ..TracePacket::default()
        });
    }

    fn group(&mut self, name: &str) -> u64 {
        if let Some(uuid) = self.groups.get(name) {
            return *uuid;
        }
        let uuid = self.describe(name, None, None);
        self.groups.insert(name.to_owned(), uuid);
        uuid
    }

    fn describe(
        &mut self,
        name: &str,
        parent_uuid: Option<u64>,
        counter: Option<CounterDescriptor>,
    ) -> u64 {
        self.uuids += 1;
        let uuid = MACHINE_TRACK + self.uuids;
        let name = Some(name.to_owned());
        self.packets.push(TracePacket {
            track_descriptor: Some(TrackDescriptor {
                uuid: Some(uuid),
                name,
                parent_uuid,
                counter,
            }),
            ..TracePacket::default()
        });
        uuid
    }
}

fn marks(zone: &PolledZone) -> [(&'static str, u64); 4] {
    [
        ("free", zone.free),
        ("watermark min", zone.min),
        ("watermark low", zone.low),
        ("watermark high", zone.high),
    ]
}
