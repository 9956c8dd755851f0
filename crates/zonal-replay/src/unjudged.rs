//! Stretches of a recording that the model cannot be judged by.
//!
//! What reclaim does to lists is part of a replay as far as the events of `vmscan` tell it
//! (`world`). When it wakes, and what it frees, is the recording's; a boost of watermarks, memory
//! that comes, and reclaim without events are not told. So stretches with any of these are found
//! here, and count where the model is near the kernel (`settle`); those in which the recorder lost
//! events of a CPU never do, because what the kernel moved is missing, too. A recording without
//! those events of reclaim says at its end whether there was any. A boost of a zone that has far
//! more free pages than its marks makes no such stretch.

use std::collections::BTreeMap;

use serde::Serialize;
use zonal_text::zoneinfo::Document;
use zonal_trace::{Event, EventKind, Notice, PolledState, PolledZone, ZoneDescription};

use crate::readings;

/// Reclaim that no event tells of.
pub(crate) const UNKNOWN: &str = "reclaim: pages were reclaimed, and no event says when";
/// Events that are not in the recording.
const LOST: &str = "events were lost";
/// Stretches with less than this between them are one.
const JOIN_NS: u64 = 100_000_000;

/// A stretch that is not judged.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NotJudged {
    /// Seconds from the start of the replay.
    pub from_s: f64,
    /// Seconds from the start of the replay.
    pub to_s: f64,
    /// Why.
    pub reason: String,
}

impl NotJudged {
    /// Whether events or samples tell what went on.
    pub(crate) fn is_told(&self) -> bool {
        !self.reason.contains(UNKNOWN)
    }

    /// Whether events are missing in it, so that what the kernel did is not known either.
    pub(crate) fn is_lost(&self) -> bool {
        self.reason.contains(LOST)
    }
}

/// A stretch with reclaim, or other watermarks or memory, that is judged because the model is near.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReclaimJudged {
    /// Seconds from the start of the replay.
    pub from_s: f64,
    /// Seconds from the start of the replay.
    pub to_s: f64,
    /// What went on.
    pub reason: String,
    /// By how many percent of the kernel's number the model's refilled pages are more.
    pub refill_percent: Option<f64>,
    /// The same of drained pages.
    pub drain_percent: Option<f64>,
    /// It is near by itself. Otherwise all stretches together are, and it is too short to tell.
    pub is_near: bool,
}

/// Share of a time that is not judged.
pub fn share(stretches: &[NotJudged], seconds: f64) -> f64 {
    let sum: f64 = stretches.iter().map(|stretch| stretch.to_s - stretch.from_s).sum();
    if seconds > 0.0 { (sum / seconds).min(1.0) } else { 0.0 }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    Background,
    Direct,
    Unknown,
    Changed,
    Memory,
    Lost,
}

impl Why {
    fn words(self) -> &'static str {
        match self {
            Why::Background => "reclaim: background",
            Why::Direct => "reclaim: direct",
            Why::Unknown => UNKNOWN,
            Why::Changed => "watermarks are other than at the start",
            Why::Memory => "memory came or went",
            Why::Lost => LOST,
        }
    }
}

/// Collects stretches while a trace is read.
#[derive(Debug, Default)]
pub struct Unjudged {
    first_ns: Option<u64>,
    last_ns: u64,
    /// By node: since when background reclaim is at work.
    awake: BTreeMap<u32, u64>,
    /// By thread: since when it reclaims.
    direct: BTreeMap<i32, u64>,
    found: Vec<(u64, u64, Why)>,
    /// By CPU: its last event.
    last_of: BTreeMap<u32, u64>,
    /// The recording has events of reclaim.
    is_told: bool,
}

impl Unjudged {
    /// Takes note of an event.
    pub fn see(&mut self, event: &Event) {
        let now = event.time_ns;
        let first = *self.first_ns.get_or_insert(now);
        self.last_ns = now;
        let before = self.last_of.insert(event.cpu, now);
        if let EventKind::Lost { .. } = event.kind {
            self.found.push((before.unwrap_or(first), now, Why::Lost));
        }
        let EventKind::Notice(notice) = &event.kind else { return };
        match *notice {
            Notice::KswapdWake { node, .. } => {
                self.is_told = true;
                self.awake.entry(node).or_insert(now);
            }
            Notice::KswapdSleep { node } => {
                // Without its wake-up it was at work since before the trace.
                let from = self.awake.remove(&node).filter(|_| self.is_told).unwrap_or(first);
                self.is_told = true;
                self.found.push((from, now, Why::Background));
            }
            Notice::ReclaimBegin { .. } => {
                self.is_told = true;
                self.direct.insert(event.pid, now);
            }
            Notice::ReclaimEnd { .. } => {
                self.is_told = true;
                let from = self.direct.remove(&event.pid).unwrap_or(first);
                self.found.push((from, now, Why::Direct));
            }
            _ => {}
        }
    }

    /// Looks at the samples of `/proc/zoneinfo`. The replay has the watermarks without a boost,
    /// and the memory, of the machine's `zones`; with zones that are not described, those of the
    /// first sample. What the last sample shows lasts to the end.
    pub fn polled(&mut self, polls: &[PolledState], start_ns: u64, zones: &[ZoneDescription]) {
        let at_start = polls.partition_point(|poll| poll.t_begin_ns < start_ns);
        let Some(first) = polls.get(at_start).or(polls.last()) else { return };
        let own: Vec<Marks<'_>> = first.zones.iter().map(|zone| own_marks(zone, zones)).collect();
        let has_own_memory = |poll: &PolledState| {
            let own = own.iter().map(|(zone, _, managed)| (*zone, *managed));
            own.eq(poll.zones.iter().map(|zone| ((zone.node, zone.kind.as_str()), zone.managed)))
        };
        for (index, poll) in polls.iter().enumerate().skip(at_start) {
            let matters = |(zone, own): (&PolledZone, &Marks<'_>)| {
                marks(zone) != *own && !is_far_above_boost(zone, own)
            };
            let is_same = poll.zones.len() == own.len();
            if is_same && !poll.zones.iter().zip(&own).any(matters) {
                continue;
            }
            // It became so after the sample before, and stays until that after it.
            let before = index.checked_sub(1).filter(|_| index > at_start);
            let from = before.map_or(start_ns, |before| polls[before].t_begin_ns);
            let to = polls.get(index + 1).unwrap_or(poll).t_end_ns;
            let to = if index + 1 == polls.len() { u64::MAX } else { to };
            let why = if has_own_memory(poll) { Why::Changed } else { Why::Memory };
            self.found.push((from, to, why));
        }
    }

    /// Looks at the `/proc/zoneinfo` of the end, for recordings without samples: where memory
    /// came or went, nothing tells when.
    pub fn ended(&mut self, after: &Document, zones: &[ZoneDescription]) {
        let changed = after.zones.iter().any(|zone| {
            let is_same = |own: &&ZoneDescription| own.node == zone.node && own.kind == zone.name;
            let before = zones.iter().find(is_same).map_or(0, |own| own.managed);
            zone.page_count("managed").is_some_and(|pages| pages != before)
        });
        if changed {
            self.found.push((0, u64::MAX, Why::Memory));
        }
    }

    /// From here on nothing tells which watermarks there were.
    pub fn lost(&mut self, from_ns: u64) {
        self.found.push((from_ns, u64::MAX, Why::Changed));
    }

    /// All stretches of the replayed part. `reclaimed`: pages by the counters before and after.
    pub fn finish(mut self, (start_ns, end_ns): (u64, u64), reclaimed: u64) -> Vec<NotJudged> {
        let last = self.last_ns;
        let open = self.awake.into_values().map(|from| (from, last, Why::Background));
        self.found.extend(open);
        self.found.extend(self.direct.into_values().map(|from| (from, last, Why::Direct)));
        if !self.is_told && reclaimed > 0 {
            self.found.push((start_ns, end_ns, Why::Unknown));
        }
        let mut found: Vec<_> = self
            .found
            .into_iter()
            .filter(|(from, to, _)| *to >= start_ns && *from <= end_ns)
            .map(|(from, to, why)| (from.max(start_ns), to.min(end_ns), vec![why]))
            .collect();
        found.sort();
        let mut joined: Vec<(u64, u64, Vec<Why>)> = Vec::new();
        for (from, to, why) in found {
            match joined.last_mut() {
                Some(last) if from <= last.1.saturating_add(JOIN_NS) => {
                    last.1 = last.1.max(to);
                    last.2.extend(why);
                }
                _ => joined.push((from, to, why)),
            }
        }
        let seconds = |ns: u64| ((ns - start_ns) as f64 / 1e6).round() / 1e3;
        let stretch = |(from, to, mut why): (u64, u64, Vec<Why>)| {
            why.sort();
            why.dedup();
            let reason: Vec<&str> = why.into_iter().map(Why::words).collect();
            NotJudged { from_s: seconds(from), to_s: seconds(to), reason: reason.join("; ") }
        };
        joined.into_iter().map(stretch).collect()
    }
}

/// Node and kind of a zone, its watermarks, and its managed pages.
type Marks<'z> = ((u32, &'z str), [u64; 3], u64);

fn marks(zone: &PolledZone) -> Marks<'_> {
    ((zone.node, &zone.kind), [zone.min, zone.low, zone.high], zone.managed)
}

/// Whether nothing but a boost sets a zone's watermarks apart, and the zone has twice the pages of
/// its boosted high one. Watermarks are compared with free pages alone; lists keep the bounds that
/// they have.
fn is_far_above_boost(zone: &PolledZone, (id, own, managed): &Marks<'_>) -> bool {
    let (zone_id, marks, zone_managed) = marks(zone);
    let boost = zone.boost.unwrap_or(0);
    let without = marks.map(|mark| mark.saturating_sub(boost));
    (zone_id, without, zone_managed) == (*id, *own, *managed) && zone.free >= 2 * zone.high
}

/// What the replay has for a zone.
fn own_marks<'z>(zone: &'z PolledZone, zones: &[ZoneDescription]) -> Marks<'z> {
    let is_same = |other: &&ZoneDescription| other.node == zone.node && other.kind == zone.kind;
    zones.iter().find(is_same).map_or(marks(zone), |own| {
        let marks = [own.min, own.low, own.high].map(|m| m.saturating_sub(own.boost));
        ((zone.node, &zone.kind), marks, own.managed)
    })
}

/// Pages that were reclaimed between two readings of `/proc/vmstat`.
pub fn reclaimed(before: &str, after: &str) -> u64 {
    let own = ["pgsteal_kswapd", "pgsteal_direct", "pgsteal_khugepaged", "pgsteal_proactive"];
    let sum = |text| readings::sum(text, |name| own.contains(&name));
    sum(after).saturating_sub(sum(before))
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn of(events: &[(u64, i32, Notice)], reclaimed: u64) -> Vec<(f64, f64, String)> {
        let mut unjudged = Unjudged::default();
        let see = |unjudged: &mut Unjudged, time_ns, pid, kind| {
            unjudged.see(&Event { time_ns, cpu: 0, pid, kind });
        };
        see(&mut unjudged, S, 1, EventKind::VmstatUpdate);
        for (at, pid, notice) in events {
            see(&mut unjudged, *at, *pid, EventKind::Notice(*notice));
        }
        see(&mut unjudged, 11 * S, 1, EventKind::VmstatUpdate);
        let all = unjudged.finish((S, 11 * S), reclaimed);
        all.into_iter().map(|one| (one.from_s, one.to_s, one.reason)).collect()
    }

    const WAKE: Notice = Notice::KswapdWake { node: 0, order: 0 };
    const SLEEP: Notice = Notice::KswapdSleep { node: 0 };

    #[test]
    fn reclaim_is_from_its_first_wake_up_to_its_sleep() {
        let background = || Why::Background.words().to_owned();
        let events = [(3 * S, 9, WAKE), (4 * S, 9, WAKE), (6 * S, 9, SLEEP)];
        assert_eq!(of(&events, 7), [(2.0, 5.0, background())]);
        assert_eq!(of(&[(3 * S, 9, SLEEP)], 7), [(0.0, 2.0, background())], "since before");
        assert_eq!(of(&[(9 * S, 9, WAKE)], 7), [(8.0, 10.0, background())], "to the end");
    }

    /// Stretches of samples one second apart, of a machine whose marks are 10, 20 and 30.
    fn polled(boosts: &[u64], boost_before: u64) -> Vec<(f64, f64)> {
        with_free(boosts, boost_before, (0, false))
    }

    /// The same where so many pages are free, and samples tell the boost or do not.
    fn with_free(
        boosts: &[u64],
        boost_before: u64,
        (free, is_told): (u64, bool),
    ) -> Vec<(f64, f64)> {
        let zone = |boost: u64| PolledZone {
            free,
            boost: is_told.then_some(boost),
            kind: "Normal".to_owned(),
            min: 10 + boost,
            low: 20 + boost,
            high: 30 + boost,
            managed: 1000,
            ..PolledZone::default()
        };
        let polls: Vec<PolledState> = boosts
            .iter()
            .zip(1..)
            .map(|(boost, second)| PolledState {
                t_begin_ns: second * S,
                t_end_ns: second * S,
                zones: vec![zone(*boost)],
            })
            .collect();
        let own = zone(boost_before);
        let described = ZoneDescription {
            kind: own.kind,
            min: own.min,
            low: own.low,
            high: own.high,
            managed: own.managed,
            boost: boost_before,
            ..ZoneDescription::default()
        };
        let mut unjudged = Unjudged::default();
        unjudged.polled(&polls, S, &[described]);
        let all = unjudged.finish((S, 11 * S), 0);
        all.into_iter().map(|one| (one.from_s, one.to_s)).collect()
    }

    #[test]
    fn a_zone_that_is_boosted_at_the_first_sample_is_not_judged_until_it_is_not() {
        assert_eq!(polled(&[5, 5, 0, 0, 0], 5), [(0.0, 2.0)]);
        assert_eq!(polled(&[5, 5, 0, 0, 0], 0), [(0.0, 2.0)]);
        assert_eq!(polled(&[0, 0, 5, 0, 0], 0), [(1.0, 3.0)]);
        assert_eq!(polled(&[0, 0, 0, 0, 0], 5), []);
    }

    #[test]
    fn a_boost_far_below_the_free_pages_changes_nothing() {
        let boosts = [5, 5, 0, 9, 0];
        assert_eq!(with_free(&boosts, 5, (78, true)), []);
        assert_eq!(with_free(&boosts, 5, (77, true)), [(2.0, 4.0)], "39 is the highest mark");
        assert_eq!(with_free(&boosts, 5, (1_000, false)), [(0.0, 4.0)], "it may be a setting");
        assert_eq!(with_free(&boosts, 0, (1_000, true)), []);
    }

    #[test]
    fn where_memory_came_the_rest_is_not_judged_until_it_goes_again() {
        let zone = |kind: &str, managed| PolledZone {
            kind: kind.to_owned(),
            managed,
            ..PolledZone::default()
        };
        let of = |sizes: &[&[(&str, u64)]]| -> Vec<(f64, f64, String)> {
            let poll = |(zones, second): (&&[(&str, u64)], u64)| PolledState {
                t_begin_ns: second * S,
                t_end_ns: second * S,
                zones: zones.iter().map(|(kind, managed)| zone(kind, *managed)).collect(),
            };
            let polls: Vec<PolledState> = sizes.iter().zip(1..).map(poll).collect();
            let own = ZoneDescription {
                kind: "DMA32".to_owned(),
                managed: 1000,
                ..ZoneDescription::default()
            };
            let mut unjudged = Unjudged::default();
            unjudged.polled(&polls, S, &[own]);
            let all = unjudged.finish((S, 11 * S), 0);
            all.into_iter().map(|one| (one.from_s, one.to_s, one.reason)).collect()
        };
        let came = || Why::Memory.words().to_owned();
        let same: &[(&str, u64)] = &[("DMA32", 1000)];
        let grown: &[(&str, u64)] = &[("DMA32", 1500)];
        let other: &[(&str, u64)] = &[("DMA32", 1000), ("Normal", 500)];
        assert_eq!(of(&[same, same, same]), []);
        assert_eq!(of(&[same, grown, grown]), [(0.0, 10.0, came())], "to the end");
        assert_eq!(of(&[same, other, other]), [(0.0, 10.0, came())], "a zone that was empty");
        assert_eq!(of(&[same, same, grown, same, same]), [(1.0, 3.0, came())]);
    }

    #[test]
    fn without_samples_the_end_tells_that_memory_came() {
        let own = |managed| ZoneDescription {
            kind: "DMA32".to_owned(),
            managed,
            ..ZoneDescription::default()
        };
        let text = "Node 0, zone    DMA32\n  pages free     900\n        min      1\n        \
                    low      2\n        high     3\n        spanned  2048\n        present  \
                    2048\n        managed  1000\n        protection: (0)\n  pagesets\n    \
                    cpu: 0\n              count: 0\n              high:  6\n              \
                    batch: 1\n  start_pfn:           1048576\n";
        let after = zonal_text::zoneinfo::parse(text).unwrap();
        let of = |zones: &[ZoneDescription]| {
            let mut unjudged = Unjudged::default();
            unjudged.ended(&after, zones);
            unjudged.finish((S, 11 * S), 0).len()
        };
        assert_eq!([of(&[own(1000)]), of(&[own(900)]), of(&[])], [0, 1, 1]);
    }

    #[test]
    fn where_the_marks_are_lost_the_rest_is_not_judged() {
        let mut unjudged = Unjudged::default();
        unjudged.lost(4 * S);
        let all = unjudged.finish((S, 11 * S), 0);
        assert_eq!((all.len(), all[0].from_s, all[0].to_s), (1, 3.0, 10.0));
        assert_eq!(all[0].reason, Why::Changed.words());
    }

    #[test]
    fn where_events_of_a_cpu_were_lost_nothing_is_judged_since_its_last_one() {
        let mut unjudged = Unjudged::default();
        let mut see = |time_ns, cpu, kind| unjudged.see(&Event { time_ns, cpu, pid: 1, kind });
        see(S, 0, EventKind::VmstatUpdate);
        see(3 * S, 1, EventKind::VmstatUpdate);
        see(5 * S, 0, EventKind::VmstatUpdate);
        see(6 * S, 1, EventKind::Lost { events: 9 });
        let all = unjudged.finish((S, 11 * S), 0);
        assert_eq!((all.len(), all[0].from_s, all[0].to_s), (1, 2.0, 5.0));
        assert!(all[0].is_lost(), "{all:?}");
    }

    #[test]
    fn stretches_that_touch_are_one() {
        let begin = Notice::ReclaimBegin { order: 0, gfp: 0 };
        let end = Notice::ReclaimEnd { pages: 1 };
        let events = [(3 * S, 9, WAKE), (4 * S, 5, begin), (6 * S, 9, SLEEP), (7 * S, 5, end)];
        let all = of(&events, 7);
        assert_eq!(all, [(2.0, 6.0, "reclaim: background; reclaim: direct".to_owned())]);
    }

    #[test]
    fn without_events_the_counters_tell_that_there_was_some() {
        assert_eq!(of(&[], 0), []);
        assert_eq!(of(&[], 7), [(0.0, 10.0, Why::Unknown.words().to_owned())]);
        let before = "pgsteal_kswapd 5\npgsteal_direct 1\nnr_free_pages 3\n";
        assert_eq!(reclaimed(before, "pgsteal_kswapd 9\npgsteal_direct 1\nnr_free_pages 9\n"), 4);
        assert_eq!(reclaimed("pgsteal_proactive 2\n", "pgsteal_proactive 5\n"), 3, "by a cgroup");
    }
}
