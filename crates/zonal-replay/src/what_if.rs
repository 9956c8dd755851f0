//! One trace on the recorded machine under other rules, settings and numbers of CPUs.
//!
//! The trace is read once; each trial runs the same program on a machine brought into the same
//! state, and is sampled in bins of 100 ms. With a factor for CPUs the machine has that many times
//! as many, with the same zones, so each CPU's share is smaller. The added ones do nothing here;
//! the reader of the result multiplies.

use std::borrow::Cow;

use serde::Serialize;
use zonal_core::alloc::Sysctl;
use zonal_core::policy::Policy;
use zonal_trace::{MachineDescription, Recording};

use crate::error::ReplayError;
use crate::facts::Shown;
use crate::fidelity;
use crate::kernel::KernelMoves;
use crate::locks::LockWaits;
use crate::moves::{Moves, total};
use crate::others::OfOthers;
use crate::program::Program;
use crate::progress::Watch;
use crate::reclaim::{Reclaim, Stays, stays};
use crate::replay::{Prepared, Replay};
use crate::run::holds::{Hold, Holds};
use crate::run::none::{self, Setup};
use crate::run::timeline::Timeline;
use crate::settings::Settings;
use crate::settle::settle;
use crate::start;
use crate::told::{Recorded, Told};
use crate::unjudged::{NotJudged, ReclaimJudged};
use crate::world::{Change, is_set};
use crate::zones::ZoneMap;

/// A trace that is ready to be run again and again.
pub struct WhatIf<'r> {
    machine: Cow<'r, MachineDescription>,
    program: Program,
    told: Told,
    shown: Shown,
    settings: Settings,
    not_judged: Vec<NotJudged>,
    reclaim_judged: Vec<ReclaimJudged>,
    lock_waits: Option<LockWaits>,
    of_others: Option<OfOthers>,
    reclaim: Option<Reclaim>,
    kernel: KernelMoves,
}

/// Changes of a trial.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The rules.
    pub policy: Policy,
    /// Settings over the recorded ones.
    pub sysctls: Vec<(Sysctl, i64)>,
    /// How many times as many CPUs.
    pub cpus: u32,
}

/// What a trial counted. Every number is of the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TrialCounts {
    /// Times a zone lock was taken.
    pub lock_holds: u64,
    /// Refills, one hold of the zone lock each.
    pub refills: u64,
    /// Pages that they took.
    pub refill_pages: u64,
    /// Holds of the zone lock by drains.
    pub drains: u64,
    /// Pages that they gave back.
    pub drain_pages: u64,
    /// Pages on all lists: the mean over the bins.
    pub list_pages_mean: u64,
    /// The most at the end of a bin.
    pub list_pages_max: u64,
    /// Allocations that were refused.
    pub refused: u64,
    /// Requests that went through the core.
    pub slow_paths: u64,
}

impl TrialCounts {
    /// The same `times` over.
    pub fn times(self, times: u32) -> TrialCounts {
        let times = u64::from(times);
        TrialCounts {
            lock_holds: self.lock_holds * times,
            refills: self.refills * times,
            refill_pages: self.refill_pages * times,
            drains: self.drains * times,
            drain_pages: self.drain_pages * times,
            list_pages_mean: self.list_pages_mean * times,
            list_pages_max: self.list_pages_max * times,
            refused: self.refused * times,
            slow_paths: self.slow_paths * times,
        }
    }
}

/// Result of a trial. Every number is of the model.
#[derive(Clone, Debug, Default)]
pub struct Trialled {
    /// What it counted.
    pub counts: TrialCounts,
    /// What moved while the model can be judged.
    pub judged: Moves,
    /// Width of the bins in which a lock is busiest.
    pub bin_ns: u64,
    /// Begin and length of the run.
    pub span_ns: (u64, u64),
    /// By zone: holds of its lock, in the order of time.
    pub zones: Vec<Vec<Hold>>,
    /// CPUs of the recorded machine.
    pub cpus: u32,
    /// Blocks of a base page between buddy and lists: one, or less where blocks are larger.
    pub blocks_per_page: f64,
    /// Properties that failed.
    pub faults: Vec<String>,
}

impl<'r> WhatIf<'r> {
    /// Reads a recording.
    ///
    /// # Errors
    /// Bad input, with file and line, or a machine that cannot be rebuilt.
    pub fn new(
        recording: &'r Recording,
        policy: Policy,
        limit: Option<u64>,
        watch: &mut Watch<'_>,
    ) -> Result<WhatIf<'r>, ReplayError> {
        let replay = Replay::new(recording).policy(policy);
        let replay = limit.map_or(replay, |events| replay.limit(events));
        WhatIf::of(replay, watch)
    }

    /// Reads a recording for trials under whose settings more pages of files have room, too.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn with_files(
        recording: &'r Recording,
        policy: Policy,
        watch: &mut Watch<'_>,
    ) -> Result<WhatIf<'r>, ReplayError> {
        WhatIf::of(Replay::new(recording).policy(policy).with_files(), watch)
    }

    fn of(replay: Replay<'r>, watch: &mut Watch<'_>) -> Result<WhatIf<'r>, ReplayError> {
        let Replay { recording, policy, limit, .. } = replay;
        let machine = start::machine(recording)?;
        let map = ZoneMap::new(&machine);
        let settings = Settings::of(recording)?;
        let prepared = replay.prepare((&machine, &map), Recorded::default(), watch)?;
        let Prepared { program, told, shown, not_judged, lock_waits, .. } = prepared;
        let kernel = KernelMoves { moves: total(&program.kernel), ..prepared.kernel };
        let mut what_if = WhatIf {
            machine,
            program,
            told,
            shown,
            settings,
            not_judged,
            reclaim_judged: Vec::new(),
            lock_waits,
            of_others: prepared.of_others,
            // Of a part, the counters of the whole say nothing.
            reclaim: prepared.reclaim.filter(|_| limit.is_none()),
            kernel,
        };
        what_if.settle(recording, policy, watch)?;
        Ok(what_if)
    }

    /// Finds out by a run of the recorded machine where the model is near under reclaim.
    fn settle(
        &mut self,
        recording: &Recording,
        policy: Policy,
        watch: &mut Watch<'_>,
    ) -> Result<(), ReplayError> {
        self.kernel.judged = self.kernel.moves;
        if self.not_judged.is_empty() {
            return Ok(());
        }
        let map = ZoneMap::new(&self.machine);
        let theirs = fidelity::kernel::timeline(recording, &self.program, &map, &[])?;
        let mut ours = Timeline::new(&self.program, self.program.cpus, &map);
        let known = (&self.told, &self.shown, &self.settings);
        let recorded = Recorded::default().at_start_of(&self.machine, &self.program);
        let setup = Setup::new(policy, recorded, &self.program, known);
        let setup = Setup { timeline: Some(&mut ours), ..setup };
        none::replay(&self.machine, &map, &self.program, setup, watch)?;
        let stretches = std::mem::take(&mut self.not_judged);
        (self.not_judged, self.reclaim_judged) = settle(stretches, &ours, &theirs);
        self.kernel.judged = theirs.moves_outside(&self.not_judged);
        Ok(())
    }

    /// Allocations of the trace.
    pub fn allocs(&self) -> u64 {
        self.program.counts.allocs
    }

    /// Of them, those whose page lies on another node than their CPU.
    pub fn allocs_elsewhere(&self) -> u64 {
        self.program.counts.numa_other
    }

    /// Seconds of the part that is run, without stretches in which nothing happened at all.
    pub fn seconds(&self) -> f64 {
        let span = self.program.span_ns.1.saturating_sub(self.program.start_ns);
        span.saturating_sub(self.program.silences.ns()) as f64 / 1e9
    }

    /// What is said of such stretches.
    pub(crate) fn silence_note(&self) -> Option<String> {
        let note = self.program.silences.note(self.program.start_ns)?;
        Some(format!("{note}; shares of a CPU and figures a second leave that time out"))
    }

    /// CPUs of the recorded machine.
    pub fn cpus(&self) -> u32 {
        self.program.cpus
    }

    /// What the kernel itself moved.
    pub fn kernel(&self) -> &KernelMoves {
        &self.kernel
    }

    /// Waits for locks in the recording, if it has them.
    pub fn lock_waits(&self) -> Option<&LockWaits> {
        self.lock_waits.as_ref()
    }

    /// What is said of a trace that is not whole.
    pub(crate) fn lost_note(&self) -> Option<String> {
        self.program.counts.lost_note()
    }

    /// Settings that somebody wrote meanwhile, and CPUs that went or came, in words.
    pub(crate) fn written(&self) -> impl Iterator<Item = String> {
        let start_ns = self.program.start_ns;
        let seen = self.program.changes.iter().filter_map(move |changed| {
            let told = changed.written(start_ns)?;
            let is_set = matches!(changed.change, Change::Set(..)) && changed.time_ns != start_ns;
            Some(match is_set {
                true => format!("{told}: somebody set it while this was recorded"),
                false => told,
            })
        });
        let is_told = |sysctl| is_set(&self.program.changes, sysctl);
        seen.chain(self.settings.altered_unseen(is_told))
    }

    /// What others than the recorded command allocated.
    pub fn of_others(&self) -> Option<OfOthers> {
        self.of_others
    }

    /// What reclaim did, where the recording says it.
    pub(crate) fn reclaim(&self) -> Option<&Reclaim> {
        self.reclaim.as_ref()
    }

    /// Stretches in which the model cannot be judged.
    pub fn not_judged(&self) -> &[NotJudged] {
        &self.not_judged
    }

    /// Stretches with reclaim that are judged because the model is near there.
    pub fn reclaim_judged(&self) -> &[ReclaimJudged] {
        &self.reclaim_judged
    }

    /// Runs a trial under whose settings more pages of files have room: what stays is not read
    /// again. Returns also how many pages that are; `None`: no more have room. For a recording that
    /// was read [with files](Self::with_files).
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub(crate) fn run_with_room(
        &self,
        trial: &Trial,
        watch: &mut Watch<'_>,
    ) -> Result<Option<(Trialled, u64)>, ReplayError> {
        let room = self.reclaim.as_ref().map_or(0, |own| own.room(&trial.sysctls));
        if room == 0 {
            return Ok(None);
        }
        let Stays { program, pages } = stays(&self.program, room);
        Ok(Some((self.run_program(&program, trial, watch)?, pages)))
    }

    /// Runs a trial.
    ///
    /// # Errors
    /// A setting that the policy refuses, or a machine that cannot be rebuilt.
    pub fn run(&self, trial: &Trial, watch: &mut Watch<'_>) -> Result<Trialled, ReplayError> {
        self.run_program(&self.program, trial, watch)
    }

    fn run_program(
        &self,
        program: &Program,
        trial: &Trial,
        watch: &mut Watch<'_>,
    ) -> Result<Trialled, ReplayError> {
        let mut machine = MachineDescription::clone(&self.machine);
        for node in &mut machine.nodes {
            let own = node.cpus.clone();
            let copy = |copy: u32| own.iter().map(move |cpu| cpu + copy * self.program.cpus);
            node.cpus.extend((1..trial.cpus).flat_map(copy));
        }
        machine.cpus = Some(self.program.cpus * trial.cpus);
        let map = ZoneMap::new(&machine);
        let cpus = program.cpus * trial.cpus;
        let mut timeline = Timeline::new(program, cpus, &map);
        let mut holds = Holds::default();
        let recorded = Recorded::default().at_start_of(&self.machine, program);
        let known = (&self.told, &self.shown, &self.settings);
        let setup = Setup {
            cpus,
            sysctls: &trial.sysctls,
            timeline: Some(&mut timeline),
            holds: Some(&mut holds),
            ..Setup::new(trial.policy, recorded, program, known)
        };
        let (outcome, _) = none::replay(&machine, &map, program, setup, watch)?;
        let mut counts = TrialCounts {
            lock_holds: outcome.counted.lock.0,
            refused: outcome.failed,
            slow_paths: outcome.counted.slow_paths,
            ..TrialCounts::default()
        };
        let result = Trialled {
            judged: timeline.moves_outside(&self.not_judged),
            bin_ns: timeline.bin_ns(),
            span_ns: (program.start_ns, program.span_ns.1.saturating_sub(program.start_ns)),
            zones: holds.zones,
            cpus: self.program.cpus,
            blocks_per_page: self.kernel.blocks_per_page(),
            faults: outcome.faults,
            ..Trialled::default()
        };
        let mut held = vec![0; timeline.len()];
        for zone in 0..map.zones().len() {
            for cpu in 0..cpus {
                for (bin, sample) in timeline.of(zone, cpu).enumerate() {
                    let moves = sample.moves;
                    counts.refills += moves.refill_holds;
                    counts.refill_pages += moves.refill_pages;
                    counts.drains += moves.drain_holds;
                    counts.drain_pages += moves.drain_pages;
                    held[bin] += sample.count.unwrap_or(0);
                }
            }
        }
        counts.list_pages_max = held.iter().copied().max().unwrap_or(0);
        counts.list_pages_mean = held.iter().sum::<u64>() / (held.len() as u64).max(1);
        Ok(Trialled { counts, ..result })
    }
}
