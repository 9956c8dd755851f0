//! Recording the page allocator of the running kernel.
//!
//! ```text
//!  guard ◄─ how to undo ── Recorder ──► tracefs/instances/zonal-PID: rings in memory, events
//!                             │   └───► percpu_pagelist_high_fraction, for two seconds
//!                             └──────── Poller: /proc/zoneinfo every 20 ms
//!  begin ──► the load runs ──► finish: rings and machine's files into a directory of a recording
//! ```
//! | file | does |
//! |--|--|
//! | `tracefs` | the instance, its switches, its rings |
//! | `host` | the lock, and what a recorder left that was killed |
//! | `guard`, `undo` | the guard, which puts everything back however the recorder ends |
//! | `options`, `plan` | what is asked for; what is touched, before it is |
//! | `poll` | samples of `/proc/zoneinfo`, without allocating |
//! | `machine` | the files that describe the machine |
//! | `store` | what was recorded, to a trace |
//! | `values` | settings written, and put back |
//! | `error` | which step failed, and what works without it |
//!
//! # What is touched
//! An instance of tracefs, which has its own rings and switches: recordings of others go on. For
//! two seconds, unless nothing may be touched, `vm.percpu_pagelist_high_fraction`. The guard puts
//! both back (UNDO-2), or the next recorder does (HOST-2). Where a zone is boosted then,
//! `vm.watermark_scale_factor` is written as it is (UNDO-6); nothing else is. Recorders come one at
//! a time: a second one would take the first one's temporary value for an old one.
//!
//! # Why
//! - *In memory, no overwrite*: writing a file while recording would be recorded. A full ring drops
//!   and counts new events, so the kept events have a gap only at the end.
//! - *Cold start*: which pages a list holds is in no file; an empty list needs none.

mod error;
mod guard;
mod host;
mod machine;
mod options;
mod plan;
mod poll;
mod store;
mod tracefs;
mod undo;
mod values;

#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

pub use self::error::{RecordError, Step};
pub use self::guard::Guard;
pub use self::host::Host;
pub use self::machine::Roots;
pub use self::options::{COLD, RecordOptions};
pub use self::plan::{SysctlTouched, Touched};
pub use self::poll::{PollCounts, Sampler};
pub use self::store::StoreError;
pub use self::undo::serve;

use self::options::FRACTION_LARGE;
use self::plan::{Settings, event_path, workers};
use self::poll::{Poller, now_ns};
use self::tracefs::{Instance, Tracefs};
use self::undo::{Journal, Undo};
use self::values::write;
use crate::polls::parse as parse_polls;
use crate::ring::directory::stream_name;
use crate::tracefs::recorded_events;
use crate::zt::MachineFiles;

/// How often CPUs are made to look at their lists while these are kept small.
const TOUCHES: u32 = 20;
/// What is wrong when a host has that value, and no list of changes says since when.
const OWN_VALUE: &str = "it is 1000000, the value that a recorder sets for two seconds: set it to \
    what it should be (0 is the kernel's own), as in `sysctl vm.percpu_pagelist_high_fraction=0`";
/// Between the first sample and the load.
const SETTLE: Duration = Duration::from_millis(100);
const PAGE_BYTES_USUAL: usize = 4096;

/// Result of a recording, beside its files.
#[derive(Debug, Clone, Default)]
pub struct Recorded {
    /// Events in the rings.
    pub entries: u64,
    /// Events that had no room.
    pub dropped: u64,
    /// Bytes of ring pages.
    pub bytes: u64,
    /// Samples of `/proc/zoneinfo`.
    pub polls: PollCounts,
}

/// A recorder whose events are on.
#[derive(Debug)]
pub struct Recorder {
    roots: Roots,
    instance: Instance,
    tracefs: Tracefs,
    page: usize,
    options: RecordOptions,
    files: MachineFiles,
    meta: Value,
    poller: Poller,
    /// Remarks for people.
    pub notes: Vec<String>,
}

impl Recorder {
    /// Sets everything up and begins to record. The guard undoes every change.
    ///
    /// # Errors
    /// The step that failed.
    pub fn begin(
        roots: Roots,
        options: RecordOptions,
        guard: &mut Guard,
    ) -> Result<Recorder, RecordError> {
        let tracefs = guard.tracefs();
        Recorder::begin_at(tracefs, roots, options, guard)
    }

    fn begin_at(
        tracefs: Tracefs,
        roots: Roots,
        mut options: RecordOptions,
        journal: &mut dyn Journal,
    ) -> Result<Recorder, RecordError> {
        let mut notes = Vec::new();
        if options.cold && !roots.can_empty_lists() {
            options.cold = false;
            notes.push(
                "kernels before 5.14 cannot empty their per-CPU lists: recorded with lists as they \
                 are"
                    .to_owned(),
            );
        }
        for path in tracefs.abandoned() {
            let removed = fs::remove_dir(&path);
            let what = if removed.is_ok() { "removed" } else { "could not remove" };
            notes.push(format!("{what} {}, left by a recorder that was killed", path.display()));
        }
        let instance = tracefs.instance();
        let undo = Undo::Remove { path: instance.path.clone() };
        note(journal, &undo)?;
        let made = tracefs.make(&instance);
        made.map_err(|error| RecordError::new(Step::Instance, &instance.path, error))?;
        notes.extend(set_up(&tracefs, &instance, &roots, &options)?);
        let mut files = MachineFiles::default();
        roots.fixed(&mut files);
        let zoneinfo = roots.proc.join("zoneinfo");
        let sampler = Sampler::new(&zoneinfo, options.poll_bytes);
        let machine = |error| RecordError::new(Step::Machine, &zoneinfo, error);
        let poller = Poller::start(sampler.map_err(machine)?, options.poll_every);
        let poller = poller.map_err(machine)?;
        let mut recorder = Recorder {
            page: page_bytes(&tracefs),
            roots,
            instance,
            tracefs,
            options,
            files,
            meta: json!({}),
            poller,
            notes,
        };
        recorder.switch_on(journal)?;
        Ok(recorder)
    }

    /// Empties the lists, switches tracing on, lets the lists grow again, and waits for a sample.
    fn switch_on(&mut self, journal: &mut dyn Journal) -> Result<(), RecordError> {
        let fraction = self.roots.high_fraction();
        let cold = |error| RecordError::new(Step::ColdStart, &fraction, error);
        let mut before = None;
        if self.options.cold {
            let value = fs::read_to_string(&fraction).map_err(cold)?.trim().to_owned();
            if value == FRACTION_LARGE {
                // HOST-2.
                return Err(cold(io::Error::other(OWN_VALUE)));
            }
            let ours = FRACTION_LARGE.to_owned();
            let undo = Undo::Write { path: fraction.clone(), value, ours };
            note(journal, &undo)?;
            write(&fraction, FRACTION_LARGE).map_err(cold)?;
            before = Some(undo);
            for _ in 0..TOUCHES {
                machine::touch_lists().map_err(cold)?;
                thread::sleep(COLD / TOUCHES);
            }
        }
        self.roots.state(&mut self.files, ".pre")?;
        let switched = self.instance.set("tracing_on", "1");
        let path = self.instance.file("tracing_on");
        switched.map_err(|error| RecordError::new(Step::Switch, &path, error))?;
        self.meta["t_trace_on_ns"] = now_ns().into();
        if let Some(undo) = before {
            undo.run(self.tracefs.remove).map_err(cold)?;
            journal.done(&fraction).map_err(cold)?;
        }
        self.meta["t_lists_ns"] = now_ns().into();
        self.poller.wait_for_sample();
        thread::sleep(SETTLE);
        self.meta["t_start_ns"] = now_ns().into();
        Ok(())
    }

    /// Takes note of the process of the command that is recorded, so that readers can tell its
    /// events from those of others. Without a command: do not call it.
    pub fn command(&mut self, pid: i32) {
        self.meta["command_pid"] = pid.into();
    }

    /// Switches tracing off and writes the recording to `directory`, which must exist.
    ///
    /// # Errors
    /// The step that failed.
    pub fn finish(mut self, directory: &Path) -> Result<Recorded, RecordError> {
        self.meta["t_end_ns"] = now_ns().into();
        let off = self.instance.file("tracing_on");
        let switched = self.instance.set("tracing_on", "0");
        switched.map_err(|error| RecordError::new(Step::Switch, &off, error))?;
        let proc = self.roots.proc.clone();
        let sampler = self.poller.finish();
        let sampler = sampler.map_err(|error| RecordError::new(Step::Machine, &proc, error))?;
        self.roots.state(&mut self.files, ".post")?;
        self.files.set("sysctl.post", self.roots.sysctls().into_bytes());
        let rings = |path: &Path, error| RecordError::new(Step::Rings, path, error);
        // Not in every kernel, and advice alone depends on it.
        if let Some(kib) = self.instance.ring_kib() {
            self.meta["ring_kib"] = kib.into();
        }
        let per_cpu = self.instance.file("per_cpu");
        let mut recorded = Recorded { polls: sampler.counts, ..Recorded::default() };
        for cpu in self.instance.cpus().map_err(|error| rings(&per_cpu, error))? {
            let stats = self.instance.stats(cpu).map_err(|error| rings(&per_cpu, error))?;
            recorded.entries += stats.entries;
            recorded.dropped += stats.dropped;
            let output = directory.join(stream_name(cpu));
            let bytes = self.instance.take_pages(cpu, self.page, &output);
            recorded.bytes += bytes.map_err(|error| rings(&output, error))?;
        }
        self.files.set("zpoll.txt", sampler.lines().to_vec());
        if let Ok(comms) = fs::read(self.tracefs.root.join("saved_cmdlines")) {
            self.files.set("comms", comms);
        }
        let meta = self.describe(&sampler, &recorded);
        self.files.set("meta.json", format!("{meta:#}\n").into_bytes());
        let put = |path: PathBuf, content: &[u8]| {
            fs::write(&path, content).map_err(|error| rings(&path, error))
        };
        for (name, content) in self.files.iter() {
            put(directory.join(name), content)?;
        }
        let formats = directory.join("formats");
        fs::create_dir(&formats).map_err(|error| rings(&formats, error))?;
        for name in recorded_events() {
            let path = event_path(&self.tracefs.root, name).join("format");
            if let Ok(format) = fs::read(path) {
                put(formats.join(name), &format)?;
            }
        }
        if let Ok(header) = tracefs::header_page(&self.tracefs.root) {
            put(formats.join("header_page"), &header)?;
        }
        Ok(recorded)
    }

    /// What `meta.json` says.
    fn describe(&mut self, sampler: &Sampler, recorded: &Recorded) -> Value {
        let (uname, release) = machine::uname();
        let mut meta = std::mem::take(&mut self.meta);
        meta["name"] = self.options.name.as_str().into();
        meta["workload"] = self.options.workload.as_str().into();
        meta["uname"] = uname.into();
        meta["cpus"] = self.roots.cpus().into();
        meta["clock"] = "mono".into();
        meta["page_size"] = rustix::param::page_size().into();
        meta["cold_pcp_start"] = self.options.cold.into();
        if let Some(prices) = &self.options.prices {
            meta["prices"] = json!(prices);
        }
        meta["lock_waits"] = Settings::of(&self.tracefs, &self.roots, &self.options).locks.into();
        meta["uses_recorded"] = self.options.uses.into();
        meta["dropped_events"] = recorded.dropped.into();
        let text = String::from_utf8_lossy(sampler.lines());
        let polls = parse_polls(&text).unwrap_or_default();
        let lists = |polls: &crate::PolledState| {
            let sets = polls.zones.iter().flat_map(|zone| &zone.pagesets);
            sets.map(|set| set.batch).max()
        };
        let batch = polls.first().and_then(lists).unwrap_or(0);
        meta["config"] = json!({
            "CONFIG_PCP_BATCH_SCALE_MAX":
                self.roots.config(&release, "CONFIG_PCP_BATCH_SCALE_MAX"),
            "PCPF_FREE_HIGH_BATCH_expected": self.roots.free_high_batch(batch),
        });
        let from = meta["t_lists_ns"].as_u64().unwrap_or(0);
        if let Some(start) = polls.iter().find(|poll| poll.t_begin_ns >= from) {
            meta["pcp_at_start"] = crate::polls::to_meta(start);
        }
        if let Some(end) = polls.last() {
            meta["pcp_at_end"] = crate::polls::to_meta(end);
        }
        meta
    }
}

fn note(journal: &mut dyn Journal, undo: &Undo) -> Result<(), RecordError> {
    let noted = journal.note(undo);
    noted.map_err(|error| RecordError::new(Step::Guard, Path::new("guard"), error))
}

/// Bytes of a page of the rings.
fn page_bytes(tracefs: &Tracefs) -> usize {
    let header = tracefs::header_page(&tracefs.root).unwrap_or_default();
    crate::ring::directory::page_and_long(&header).map_or(PAGE_BYTES_USUAL, |(page, _)| page)
}

/// Chooses clock, sizes and events. Returns remarks.
fn set_up(
    tracefs: &Tracefs,
    instance: &Instance,
    roots: &Roots,
    options: &RecordOptions,
) -> Result<Vec<String>, RecordError> {
    let set = |name: &str, value: &str| {
        let set = instance.set(name, value);
        set.map_err(|error| RecordError::new(Step::Settings, &instance.file(name), error))
    };
    let Settings { all, workers: by_name, mut notes, .. } = Settings::of(tracefs, roots, options);
    for (name, value) in &all {
        set(name, value)?;
    }
    let workers = workers();
    let filter = |value: String| instance.set(&format!("{workers}/filter"), &value).is_ok();
    let by_address = || roots.vmstat_update().map(|at| format!("function == {at:#x}"));
    if filter(by_name) || by_address().is_some_and(filter) {
        set(&format!("{workers}/enable"), "1")?;
    } else {
        notes.push(
            "the statistics workers cannot be told from others here: when lists decay is not \
             recorded"
                .to_owned(),
        );
    }
    Ok(notes)
}
