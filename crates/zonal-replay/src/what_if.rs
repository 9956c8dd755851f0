//! One trace on the recorded machine under other rules, settings and numbers of CPUs.
//!
//! The trace is read once; each trial runs the same program on a machine brought into the same
//! state, and is sampled in bins of 100 ms. With a factor for CPUs the machine has that many times
//! as many, with the same zones, so each CPU's share is smaller. The added ones do nothing here;
//! the reader of the result multiplies.

use zonal_core::alloc::Sysctl;
use zonal_core::policy::Policy;
use zonal_trace::{MachineDescription, Recording};

use crate::error::ReplayError;
use crate::moves::{Moves, total};
use crate::program::Program;
use crate::progress::Watch;
use crate::replay::{Prepared, Replay};
use crate::run::none::{self, Setup};
use crate::run::timeline::Timeline;
use crate::settings::Settings;
use crate::told::{Recorded, Told};
use crate::unjudged::NotJudged;
use crate::zones::ZoneMap;

/// A trace that is ready to be run again and again.
pub struct WhatIf<'r> {
    machine: &'r MachineDescription,
    program: Program,
    told: Told,
    settings: Settings,
    not_judged: Vec<NotJudged>,
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

/// Result of a trial. Every number is of the model.
#[derive(Clone, Debug, Default)]
pub struct Trialled {
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
    /// By zone, bin by bin: holds of its lock, and pages moved under it.
    pub zones: Vec<Vec<(u64, u64)>>,
    /// CPUs that use each zone without leaving their node.
    pub cpus_of_zone: Vec<u32>,
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
        let machine = recording.description();
        let map = ZoneMap::new(machine);
        let replay = Replay::new(recording).policy(policy);
        let replay = limit.map_or(replay, |events| replay.limit(events));
        let settings = Settings::of(recording)?;
        let Prepared { program, told, not_judged, .. } =
            replay.prepare(&map, Recorded::default(), watch)?;
        Ok(WhatIf { machine, program, told, settings, not_judged })
    }

    /// Allocations of the trace.
    pub fn allocs(&self) -> u64 {
        self.program.counts.allocs
    }

    /// Of them, those whose page lies on another node than their CPU.
    pub fn allocs_elsewhere(&self) -> u64 {
        self.program.counts.numa_other
    }

    /// Seconds of the part that is run.
    pub fn seconds(&self) -> f64 {
        self.program.span_ns.1.saturating_sub(self.program.start_ns) as f64 / 1e9
    }

    /// CPUs of the recorded machine.
    pub fn cpus(&self) -> u32 {
        self.program.cpus
    }

    /// What the kernel itself moved.
    pub fn kernel(&self) -> Moves {
        total(&self.program.kernel)
    }

    /// Stretches in which the model cannot be judged.
    pub fn not_judged(&self) -> &[NotJudged] {
        &self.not_judged
    }

    /// Runs a trial.
    ///
    /// # Errors
    /// A setting that the policy refuses, or a machine that cannot be rebuilt.
    pub fn run(&self, trial: &Trial, watch: &mut Watch<'_>) -> Result<Trialled, ReplayError> {
        let mut machine = self.machine.clone();
        for node in &mut machine.nodes {
            let own = node.cpus.clone();
            let copy = |copy: u32| own.iter().map(move |cpu| cpu + copy * self.program.cpus);
            node.cpus.extend((1..trial.cpus).flat_map(copy));
        }
        machine.cpus = Some(self.program.cpus * trial.cpus);
        let map = ZoneMap::new(&machine);
        let mut program = self.program.clone();
        program.cpus *= trial.cpus;
        let mut timeline = Timeline::new(&program, &map);
        let setup = Setup {
            sysctls: &trial.sysctls,
            timeline: Some(&mut timeline),
            ..Setup::new(trial.policy, Recorded::default(), &self.told, &self.settings)
        };
        let (outcome, _) = none::replay(&machine, &map, &program, setup, watch)?;
        let mut result = Trialled {
            lock_holds: outcome.counted.lock.0,
            refused: outcome.failed,
            slow_paths: outcome.counted.slow_paths,
            faults: outcome.faults,
            ..Trialled::default()
        };
        let mut held = vec![0; timeline.len()];
        for (zone, at) in map.zones().iter().enumerate() {
            let mut bins = vec![(0, 0); timeline.len()];
            for cpu in 0..program.cpus {
                for (bin, sample) in timeline.of(zone, cpu).enumerate() {
                    let moves = sample.moves;
                    result.refills += moves.refill_holds;
                    result.refill_pages += moves.refill_pages;
                    result.drains += moves.drain_holds;
                    result.drain_pages += moves.drain_pages;
                    bins[bin].0 += moves.refill_holds + moves.drain_holds;
                    bins[bin].1 += moves.refill_pages + moves.drain_pages + moves.direct_pages;
                    held[bin] += sample.count.unwrap_or(0);
                }
            }
            result.zones.push(bins);
            let local = (0..program.cpus).filter(|cpu| map.node_of_cpu(*cpu) == at.node_index);
            result.cpus_of_zone.push(local.count() as u32);
        }
        result.list_pages_max = held.iter().copied().max().unwrap_or(0);
        result.list_pages_mean = held.iter().sum::<u64>() / (held.len() as u64).max(1);
        Ok(result)
    }
}
