//! Stretches of a recording that the model cannot be judged by.
//!
//! Reclaim is not in a replay: what it frees and when, which lists it keeps short, and the boost of
//! watermarks. A recording with the events of `vmscan` says when it was at work; one without them
//! says at its end whether it was.

use std::collections::BTreeMap;

use serde::Serialize;
use zonal_trace::{Event, EventKind, Notice, PolledState};

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
}

impl Why {
    fn words(self) -> &'static str {
        match self {
            Why::Background => "reclaim: background",
            Why::Direct => "reclaim: direct",
            Why::Unknown => "reclaim: pages were reclaimed, and no event says when",
            Why::Changed => "watermarks or memory are other than at the start",
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
    /// The recording has events of reclaim.
    is_told: bool,
}

impl Unjudged {
    /// Takes note of an event.
    pub fn see(&mut self, event: &Event) {
        let now = event.time_ns;
        let first = *self.first_ns.get_or_insert(now);
        self.last_ns = now;
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

    /// Looks at the samples of `/proc/zoneinfo`: the replay has the watermarks and the memory of
    /// its start.
    pub fn polled(&mut self, polls: &[PolledState], start_ns: u64) {
        let marks = |poll: &PolledState| -> Vec<[u64; 4]> {
            poll.zones.iter().map(|zone| [zone.min, zone.low, zone.high, zone.managed]).collect()
        };
        let at_start = polls.partition_point(|poll| poll.t_begin_ns < start_ns);
        let Some(first) = polls.get(at_start).or(polls.last()) else { return };
        let own = marks(first);
        for pair in polls[at_start.min(polls.len())..].windows(2) {
            if marks(&pair[1]) != own {
                self.found.push((pair[0].t_begin_ns, pair[1].t_end_ns, Why::Changed));
            }
        }
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

/// Pages that were reclaimed between two readings of `/proc/vmstat`.
pub fn reclaimed(before: &str, after: &str) -> u64 {
    let sum = |text: &str| -> u64 {
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        let own = lines.filter(|(name, _)| {
            matches!(*name, "pgsteal_kswapd" | "pgsteal_direct" | "pgsteal_khugepaged")
        });
        own.filter_map(|(_, value)| value.trim().parse::<u64>().ok()).sum()
    };
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
    }
}
