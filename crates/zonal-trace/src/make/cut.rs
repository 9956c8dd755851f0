//! A part of a trace.
//!
//! The machine's files go along. What `meta.json` counts is true of the whole and is left out, and
//! so is what the kernel's threads spent, the state at the start where the cut begins after it, and
//! that at the end where it ends before.
//!
//! The selection must exist: a CPU or thread without an event in the part, or a time outside the
//! trace, is an error that lists the choices, and nothing is written.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::str::FromStr;

use super::error::MakeError;
use super::sink::{Sink, Target, Written};
use super::tick;
use crate::meta::{OF_RUN, Of};
use crate::zt::{What, files_of};
use crate::{Event, EventKind, MachineFiles, Recording};

const NS_PER_SECOND: u64 = 1_000_000_000;
/// Threads that a message names.
const THREADS_NAMED: usize = 6;

/// Which events are kept: those that fit everything that is given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Events of this time or later.
    pub from: Option<Time>,
    /// Events before this time.
    pub to: Option<Time>,
    /// Events of these CPUs.
    pub cpus: Option<Vec<u32>>,
    /// Events of these threads and of those that they fork; empty for all.
    pub threads: Vec<i32>,
}

/// A time in a trace.
///
/// ```
/// use zonal_trace::make::Time;
///
/// assert_eq!("2562.25".parse(), Ok(Time::OfClock(2_562_250_000_000)));
/// assert_eq!("+1.5".parse(), Ok(Time::FromFirst(1_500_000_000)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// Nanoseconds of the trace's clock.
    OfClock(u64),
    /// Nanoseconds from the first event.
    FromFirst(u64),
}

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Time, String> {
        let (seconds, of): (_, fn(u64) -> Time) = match text.strip_prefix('+') {
            Some(seconds) => (seconds, Time::FromFirst),
            None => (text, Time::OfClock),
        };
        let expected = "expected seconds such as 2562.25, or +1.5 from the first event";
        nanoseconds(seconds).map(of).ok_or_else(|| expected.to_owned())
    }
}

/// Writes the selected part of a trace. `progress` gets the number of events written so far.
///
/// # Errors
/// [`MakeError::Selection`] if something that was selected is not in the trace; otherwise as
/// [`convert`](super::convert).
pub fn cut(
    recording: &Recording,
    selection: &Selection,
    target: Target,
    progress: &mut dyn FnMut(u64),
) -> Result<Written, MakeError> {
    let mut part = Part::new(recording, selection)?;
    let mut files = recording.machine_files()?;
    let start = recording.description().start.as_ref();
    let after_start = start.is_some_and(|start| part.from_ns > start.t_end_ns);
    let before_end = selection.to.is_some();
    forget(&mut files, (after_start, before_end), selection.cpus.is_some())?;
    let mut sink = Sink::create(target, recording, recording.description(), &files)?;
    for event in recording.events_from(part.from_ns) {
        let event = event?;
        if event.time_ns >= part.to_ns {
            break;
        }
        if part.keeps(&event) {
            sink.push(&event)?;
            tick(&sink, progress);
        }
    }
    part.check(recording, sink.events())?;
    sink.finish()
}

/// A selection in progress, and what it has met.
struct Part {
    from_ns: u64,
    to_ns: u64,
    cpus: Option<Vec<u32>>,
    threads: Option<HashSet<i32>>,
    asked: Vec<i32>,
    events_of_cpu: BTreeMap<u32, u64>,
    events_of_thread: HashMap<i32, u64>,
}

impl Part {
    fn new(recording: &Recording, selection: &Selection) -> Result<Part, MakeError> {
        let Selection { from, to, cpus, threads } = selection;
        let of_first = |time: &Option<Time>| matches!(time, Some(Time::FromFirst(_)));
        let first_ns = match of_first(from) || of_first(to) {
            true => recording.events().next().transpose()?.map_or(0, |event| event.time_ns),
            false => 0,
        };
        let time = |time: &Option<Time>| {
            time.map(|time| match time {
                Time::OfClock(ns) => ns,
                Time::FromFirst(ns) => first_ns.saturating_add(ns),
            })
        };
        let (from_ns, to_ns) = (time(from).unwrap_or(0), time(to).unwrap_or(u64::MAX));
        if from_ns >= to_ns {
            let text = "the part ends before it begins: expected a time before another";
            return Err(MakeError::Selection(text.to_owned()));
        }
        if let (Some(asked), Some(there)) = (cpus, recording.description().cpus) {
            let outside: Vec<u32> = asked.iter().copied().filter(|cpu| *cpu >= there).collect();
            if !outside.is_empty() {
                let text = format!("no CPU {}: the trace has {}", list(&outside), range(there));
                return Err(MakeError::Selection(text));
            }
        }
        Ok(Part {
            from_ns,
            to_ns,
            cpus: cpus.clone(),
            threads: (!threads.is_empty()).then(|| threads.iter().copied().collect()),
            asked: threads.clone(),
            events_of_cpu: BTreeMap::new(),
            events_of_thread: HashMap::new(),
        })
    }

    fn keeps(&mut self, event: &Event) -> bool {
        *self.events_of_cpu.entry(event.cpu).or_insert(0) += 1;
        let of_threads = match &mut self.threads {
            None => true,
            Some(threads) => {
                *self.events_of_thread.entry(event.pid).or_insert(0) += 1;
                let known = threads.contains(&event.pid);
                if let (true, EventKind::Fork { child }) = (known, &event.kind) {
                    threads.insert(*child);
                }
                known
            }
        };
        let on_cpus = self.cpus.as_ref().is_none_or(|cpus| cpus.contains(&event.cpu));
        of_threads && on_cpus
    }

    /// Refuses a selection of which something was not there.
    fn check(&self, recording: &Recording, kept: u64) -> Result<(), MakeError> {
        let is_all = self.from_ns == 0 && self.to_ns == u64::MAX;
        let text = if self.events_of_cpu.is_empty() && !is_all {
            let (first, last) = bounds(recording)?;
            format!("no event in that time: the trace goes from {first} to {last}")
        } else if let Some(missing) = self.missing_cpus(recording) {
            let there: Vec<u32> = self.events_of_cpu.keys().copied().collect();
            format!("no event on CPU {}: there are events on {}", list(&missing), list(&there))
        } else if let Some(missing) = self.missing_threads() {
            format!("no event of thread {}: {}", list(&missing), self.threads_there())
        } else if kept == 0 && (self.cpus.is_some() || self.threads.is_some()) {
            "no event of these threads on these CPUs".to_owned()
        } else {
            return Ok(());
        };
        Err(MakeError::Selection(text))
    }

    /// CPUs without events, where the number of the machine's is not known or none has any.
    fn missing_cpus(&self, recording: &Recording) -> Option<Vec<u32>> {
        let asked = self.cpus.as_ref()?;
        let missing = asked.iter().copied().filter(|cpu| !self.events_of_cpu.contains_key(cpu));
        let missing: Vec<u32> = missing.collect();
        let may_be_idle = recording.description().cpus.is_some() && missing.len() < asked.len();
        (!missing.is_empty() && !may_be_idle).then_some(missing)
    }

    fn missing_threads(&self) -> Option<Vec<i32>> {
        let missing = self.asked.iter().filter(|pid| !self.events_of_thread.contains_key(pid));
        let missing: Vec<i32> = missing.copied().collect();
        (!missing.is_empty()).then_some(missing)
    }

    /// Those with the most events.
    fn threads_there(&self) -> String {
        let mut threads: Vec<(u64, i32)> =
            self.events_of_thread.iter().map(|(pid, events)| (*events, *pid)).collect();
        threads.sort_unstable_by_key(|(events, pid)| (std::cmp::Reverse(*events), *pid));
        let named = threads.iter().take(THREADS_NAMED);
        let named: Vec<String> =
            named.map(|(events, pid)| format!("{pid} ({events} events)")).collect();
        let more = if threads.len() > named.len() { ", …" } else { "" };
        format!("there are {} threads: {}{more}", threads.len(), named.join(", "))
    }
}

/// The times of the first event and the last.
fn bounds(recording: &Recording) -> Result<(String, String), MakeError> {
    let (mut first, mut last) = (None, 0);
    for event in recording.events() {
        last = event?.time_ns;
        first.get_or_insert(last);
    }
    Ok((seconds(first.unwrap_or(0)), seconds(last)))
}

fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / NS_PER_SECOND, ns % NS_PER_SECOND)
}

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn range(cpus: u32) -> String {
    match cpus {
        1 => "CPU 0 only".to_owned(),
        cpus => format!("CPUs 0 to {}", cpus - 1),
    }
}

/// Removes from `meta.json` what does not hold for a part. Where forks of other CPUs are left out,
/// nothing tells the command's threads.
fn forget(
    files: &mut MachineFiles,
    (after_start, before_end): (bool, bool),
    of_cpus: bool,
) -> Result<(), MakeError> {
    files_of(What::Spent).for_each(|name| files.remove(name));
    if before_end {
        files_of(What::AtEnd).for_each(|name| files.remove(name));
    }
    let Some(meta) = files.get("meta.json") else { return Ok(()) };
    let mut meta: serde_json::Value = serde_json::from_slice(meta)?;
    if let Some(fields) = meta.as_object_mut() {
        let holds = |of: Of| match of {
            Of::Run => true,
            Of::Counts => false,
            Of::Start => !after_start,
            Of::End => !before_end,
        };
        for (field, _) in OF_RUN.into_iter().filter(|(_, of)| !holds(*of)) {
            fields.remove(field);
        }
        if of_cpus {
            fields.remove("command_pid");
        }
    }
    files.set("meta.json", format!("{meta:#}\n").into_bytes());
    Ok(())
}

/// Nanoseconds of decimal seconds, exactly.
fn nanoseconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if fraction.len() > 9 || !digits(whole) || !digits(fraction) {
        return None;
    }
    let fraction: u64 = format!("{fraction:0<9}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(NS_PER_SECOND)?.checked_add(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Part;

    #[test]
    fn a_part_on_some_cpus_no_longer_says_which_command_was_recorded() {
        let directory = tempfile::tempdir().unwrap();
        let text = "# time_ns cpu pid event pfn order migratetype gfp\n\
            10 0 7 alloc 1f 0 1 cc0\n20 1 7 free 1f 0\n30 0 7 alloc 20 0 1 cc0\n";
        let meta = r#"{"cpus": 2, "command_pid": 7, "events": 3, "workload": "make"}"#;
        let parts = vec![
            Part::new("events.txt", text.as_bytes().to_vec()),
            Part::new("meta.json", meta.as_bytes().to_vec()),
        ];
        let whole = Recording::from_parts("whole", parts).unwrap();
        assert_eq!(whole.description().command_pid, Some(7));
        for (cpus, command, events) in [(Some(vec![0]), None, 2), (None, Some(7), 3)] {
            let file = directory.path().join(format!("{events}.zonal"));
            let selection = Selection { cpus, ..Selection::default() };
            cut(&whole, &selection, Target::file(&file), &mut |_| {}).unwrap();
            let part = Recording::open(&file).unwrap();
            assert_eq!(part.description().command_pid, command);
            assert_eq!(part.description().workload.as_deref(), Some("make"));
            assert_eq!(part.events().count(), events);
        }
    }

    #[test]
    fn a_part_has_neither_what_was_spent_in_the_whole_nor_the_state_at_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let text = "# time_ns cpu pid event pfn order migratetype gfp\n\
            10 0 7 alloc 1f 0 1 cc0\n20 0 7 free 1f 0\n";
        let meta = r#"{"cpus": 1, "t_start_ns": 5, "t_end_ns": 25}"#;
        let file = |name: &str, text: &str| Part::new(name, text.as_bytes().to_vec());
        let parts = vec![
            file("events.txt", text),
            file("meta.json", meta),
            file("reclaimers.pre", "kswapd0 1\n"),
            file("reclaimers.post", "kswapd0 9\n"),
            file("buddyinfo.post", "Node 0, zone Normal 1\n"),
        ];
        let whole = Recording::from_parts("whole", parts).unwrap();
        for (to, end) in [(None, true), (Some(Time::OfClock(15)), false)] {
            let path = directory.path().join(format!("{end}.zonal"));
            let selection = Selection { to, ..Selection::default() };
            cut(&whole, &selection, Target::file(&path), &mut |_| {}).unwrap();
            let files = Recording::open(&path).unwrap().machine_files().unwrap();
            assert_eq!(files.get("reclaimers.pre").or(files.get("reclaimers.post")), None);
            assert_eq!(files.get("buddyinfo.post").is_some(), end);
            let meta = String::from_utf8_lossy(files.get("meta.json").unwrap()).into_owned();
            assert_eq!(meta.contains("t_end_ns"), end, "{meta}");
        }
    }

    #[test]
    fn seconds_are_exact() {
        assert_eq!(nanoseconds("2562.165463624"), Some(2_562_165_463_624));
        assert_eq!(nanoseconds("1"), Some(1_000_000_000));
        assert_eq!(nanoseconds("0.5"), Some(500_000_000));
        for bad in ["", "-1", "1.0000000001", "x", "1.x", "99999999999999"] {
            assert_eq!(nanoseconds(bad), None, "{bad}");
        }
        assert_eq!(seconds(2_562_165_463_624), "2562.165463624");
    }
}
