//! `zonal trace cut`: a part of a trace.
//!
//! The machine's files go along. What `meta.json` counts is true of the whole and is left out, and
//! so is the state at the start where the cut begins after it.

use std::collections::HashSet;

use anyhow::{Context, ensure};
use zonal_trace::{Event, EventKind, MachineFiles, Recording};

use super::args::CutArgs;
use super::convert::finish;
use super::sink::Sink;

/// What of `meta.json` holds for the whole trace only.
const COUNTS: [&str; 4] = ["events", "events_total", "event_share_pct", "stats"];
const STARTS: [&str; 2] = ["pcp_at_start", "t_start_ns"];

/// Which events are kept.
struct Filter {
    from_ns: u64,
    to_ns: u64,
    cpus: Option<Vec<u32>>,
    threads: Option<HashSet<i32>>,
}

pub fn run(args: &CutArgs) -> anyhow::Result<()> {
    let recording = args.input.open()?;
    let mut filter = Filter::new(args, &recording)?;
    let mut files = recording.machine_files()?;
    let start = recording.description().start.as_ref();
    let after_start = start.is_some_and(|start| filter.from_ns > start.t_end_ns);
    forget(&mut files, after_start)?;
    let mut sink = Sink::create(&args.output, recording.description(), &files)?;
    for event in recording.events_from(filter.from_ns) {
        let event = event?;
        if event.time_ns >= filter.to_ns {
            break;
        }
        if filter.keeps(&event) {
            sink.push(&event)?;
        }
    }
    finish(sink)
}

impl Filter {
    fn new(args: &CutArgs, recording: &Recording) -> anyhow::Result<Filter> {
        let relative = [&args.from, &args.to].into_iter().flatten().any(|t| t.starts_with('+'));
        let first_ns = match relative {
            true => recording.events().next().transpose()?.map_or(0, |event| event.time_ns),
            false => 0,
        };
        let time = |flag: &str, text: &Option<String>, or: u64| -> anyhow::Result<u64> {
            let Some(text) = text else { return Ok(or) };
            let (seconds, base) = match text.strip_prefix('+') {
                Some(seconds) => (seconds, first_ns),
                None => (text.as_str(), 0),
            };
            let parsed = nanoseconds(seconds).and_then(|time| base.checked_add(time));
            parsed.with_context(|| {
                format!("{flag} {text}: expected seconds such as 2562.25, or +1.5 from the first")
            })
        };
        let cpus = match &args.cpus {
            Some(list) => {
                let parsed = zonal_text::cpulist::parse(&format!("{list}\n"));
                let parsed = parsed.map_err(|error| anyhow::anyhow!("--cpus {list}: {error}"))?;
                Some(parsed.ids)
            }
            None => None,
        };
        let from_ns = time("--from", &args.from, 0)?;
        let to_ns = time("--to", &args.to, u64::MAX)?;
        ensure!(from_ns < to_ns, "--from and --to: expected a time before another");
        let threads = (!args.pid.is_empty()).then(|| args.pid.iter().copied().collect());
        Ok(Filter { from_ns, to_ns, cpus, threads })
    }

    fn keeps(&mut self, event: &Event) -> bool {
        let of_threads = match &mut self.threads {
            None => true,
            Some(threads) => {
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
}

/// Takes out of `meta.json` what is not true of a part.
pub fn forget(files: &mut MachineFiles, after_start: bool) -> anyhow::Result<()> {
    let Some(meta) = files.get("meta.json") else { return Ok(()) };
    let mut meta: serde_json::Value = serde_json::from_slice(meta).context("meta.json")?;
    if let Some(fields) = meta.as_object_mut() {
        COUNTS.iter().for_each(|field| drop(fields.remove(*field)));
        if after_start {
            STARTS.iter().for_each(|field| drop(fields.remove(*field)));
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
    whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact() {
        assert_eq!(nanoseconds("2562.165463624"), Some(2_562_165_463_624));
        assert_eq!(nanoseconds("1"), Some(1_000_000_000));
        assert_eq!(nanoseconds("0.5"), Some(500_000_000));
        for bad in ["", "-1", "1.0000000001", "x", "1.x", "99999999999999"] {
            assert_eq!(nanoseconds(bad), None, "{bad}");
        }
    }
}
