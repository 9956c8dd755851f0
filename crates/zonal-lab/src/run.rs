//! One run: a machine, a policy, a workload and a seed in, figures out. Sweeps and comparisons use
//! these.
//!
//! Each run starts with a warm-up that is not measured, so that lists are filled and CPUs are out
//! of step.

use serde::{Serialize, Serializer, ser::SerializeMap};
use sha2::{Digest, Sha256};
use zonal_core::policy::Policy;
use zonal_core::types::CpuId;

use crate::LabError;
use crate::machine::Machine;
use crate::platform::Work;
use crate::sim::{Lab, Outcome, Spec};
use crate::units::{BYTE_BITS, PAGE_BYTES, hex};
use crate::variant::Variant;
use crate::workload::{Program, Workload};

/// Everything that a run depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The machine.
    pub machine: Machine,
    /// The policy.
    pub policy: Policy,
    /// What its CPUs do.
    pub workload: Workload,
    /// What its kernel does that the policy does not say.
    pub variant: Variant,
    /// How many of its CPUs do it: the first ones. `None`: all.
    pub cpus: Option<u32>,
    /// What random choices start from.
    pub seed: u64,
    /// Time before anything is measured, in microseconds of virtual time.
    pub warm_us: u64,
    /// Time that is measured, in microseconds of virtual time.
    pub run_us: u64,
}

/// Default warm-up time.
pub const WARM_US: u64 = 2000;
/// Default measured time.
pub const RUN_US: u64 = 2000;

/// Result of a run. All of it is simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    values: [f64; FIGURES.len()],
    /// Work apart from the allocator's.
    pub(crate) work: Work,
    /// Hash of the run: every CPU's clock, where the cycles went, what moved.
    pub hash: String,
    /// Calls of a recording that were not reached before the run was over.
    pub unplayed: u64,
}

/// A figure of a run.
#[derive(Debug)]
pub struct Figure {
    /// Its name, in JSON and CSV.
    pub name: &'static str,
    /// Its meaning and unit.
    pub about: &'static str,
    of: fn(&Measured) -> f64,
}

/// What figures are computed from.
#[derive(Debug)]
struct Measured {
    cpus: f64,
    /// Cycles in a second.
    hz: f64,
    outcome: Outcome,
    moves: Moves,
    /// Pages on the lists of all zones at its end.
    listed: u64,
    /// The most that were seen on them.
    listed_most: u64,
    /// The most that were seen on them and with programs together.
    memory_most: u64,
}

impl Measured {
    fn elapsed_s(&self) -> f64 {
        self.outcome.elapsed as f64 / self.hz
    }
    fn calls(&self) -> f64 {
        self.outcome.count.calls() as f64
    }
    fn per_call(&self, cycles: u64) -> f64 {
        ratio(cycles as f64, self.calls())
    }
    fn cache_miss_percent(&self) -> f64 {
        let lines = &self.outcome.happened.lines;
        100.0 * ratio(lines.misses() as f64, lines.references() as f64)
    }
    /// A count in a second of virtual time.
    fn per_s(&self, count: u64) -> f64 {
        ratio(count as f64, self.elapsed_s())
    }
    fn mbps(&self, bytes: u64) -> f64 {
        self.per_s(bytes) * BYTE_BITS / 1e6
    }
    /// Cycles in which CPUs worked for the kernel.
    fn system(&self) -> f64 {
        self.outcome.cycles.saturating_sub(self.outcome.spent.user) as f64
    }
    /// Nanoseconds of the kernel's work for each of a count.
    fn system_ns_of(&self, count: u64) -> f64 {
        ratio(self.system() / self.hz * 1e9, count as f64)
    }
    fn percent_of_cycles(&self, cycles: u64) -> f64 {
        100.0 * ratio(cycles as f64, self.outcome.cycles as f64)
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Every figure of a run, in the order in which they are printed.
pub const FIGURES: &[Figure] = &[
    Figure {
        name: "elapsed_us",
        about: "measured time, in microseconds of virtual time",
        of: |m| m.elapsed_s() * 1e6,
    },
    Figure {
        name: "calls",
        about: "blocks allocated and freed, and requests refused",
        of: Measured::calls,
    },
    Figure {
        name: "calls_per_s",
        about: "calls of all CPUs in a second of virtual time",
        of: |m| ratio(m.calls(), m.elapsed_s()),
    },
    Figure {
        name: "cycles_per_call",
        about: "cycles of one call, waiting included",
        of: |m| m.per_call(m.outcome.cycles),
    },
    Figure {
        name: "busy_percent",
        about: "part of the time in which the CPUs were not idle",
        of: |m| 100.0 * ratio(m.outcome.busy as f64, m.cpus * m.outcome.elapsed as f64),
    },
    Figure {
        name: "lock_holds",
        about: "times a zone lock was taken",
        of: |m| m.outcome.happened.lock_holds as f64,
    },
    Figure {
        name: "lock_contended",
        about: "times a zone lock was found taken",
        of: |m| m.outcome.happened.lock_contended as f64,
    },
    Figure {
        name: "lock_wait_percent",
        about: "part of the cycles spent waiting for zone locks: lock contention",
        of: |m| m.percent_of_cycles(m.outcome.spent.lock_waits),
    },
    Figure {
        name: "free_lock_wait_percent",
        about: "part of the cycles spent waiting for zone locks in calls that free",
        of: |m| m.percent_of_cycles(m.outcome.waits.frees),
    },
    Figure {
        name: "free_lock_wait_ms",
        about: "the same, in milliseconds of all CPUs together",
        of: |m| m.outcome.waits.frees as f64 / m.hz * 1e3,
    },
    Figure {
        name: "free_lock_contended",
        about: "times calls that free found a zone lock taken",
        of: |m| m.outcome.waits.frees_contended as f64,
    },
    Figure {
        name: "owner_lock_holds",
        about: "times the lock of a CPU's own pageblocks was taken",
        of: |m| m.outcome.owners.holds as f64,
    },
    Figure {
        name: "owner_lock_contended",
        about: "times it was found taken",
        of: |m| m.outcome.owners.contended as f64,
    },
    Figure {
        name: "owner_lock_wait_percent",
        about: "part of the cycles spent waiting for such locks",
        of: |m| m.percent_of_cycles(m.outcome.owners.waited),
    },
    Figure {
        name: "kernel_lock_wait_percent",
        about: "part of the cycles spent waiting for other locks and lines of the kernel, as those \
                of LRU lists, of groups' charges and of address spaces",
        of: |m| m.percent_of_cycles(m.outcome.waits.kernel),
    },
    Figure {
        name: "pages_percent",
        about: "part of the cycles spent moving pages between lists, depots and zones",
        of: |m| m.percent_of_cycles(m.outcome.spent.pages),
    },
    Figure {
        name: "counters_percent",
        about: "part of the cycles spent on counters: updates and folds",
        of: |m| m.percent_of_cycles(m.outcome.spent.updates + m.outcome.spent.folds),
    },
    Figure {
        name: "reads_percent",
        about: "part of the cycles spent waiting for lines that others wrote",
        of: |m| m.percent_of_cycles(m.outcome.spent.reads),
    },
    Figure {
        name: "contents_percent",
        about: "part of the cycles spent on what pages hold: zeroing, writing, reading",
        of: |m| m.percent_of_cycles(m.outcome.spent.contents),
    },
    Figure {
        name: "cache_references",
        about: "lines of pages asked of last-level caches",
        of: |m| m.outcome.happened.lines.references() as f64,
    },
    Figure {
        name: "cache_misses",
        about: "of these, lines that were not there or under it: from another cache or memory",
        of: |m| m.outcome.happened.lines.misses() as f64,
    },
    Figure {
        name: "cache_miss_percent",
        about: "cache-miss rate: misses per reference, as perf prints it",
        of: Measured::cache_miss_percent,
    },
    Figure {
        name: "lines_l2",
        about: "lines of pages found in the core's own L2",
        of: |m| m.outcome.happened.lines.own as f64,
    },
    Figure {
        name: "lines_llc",
        about: "lines of pages from the last-level cache",
        of: |m| m.outcome.happened.lines.llc as f64,
    },
    Figure {
        name: "lines_core",
        about: "lines of pages from another core under the same last-level cache",
        of: |m| m.outcome.happened.lines.core as f64,
    },
    Figure {
        name: "lines_socket",
        about: "lines of pages from another last-level cache of the socket",
        of: |m| m.outcome.happened.lines.socket as f64,
    },
    Figure {
        name: "lines_remote",
        about: "lines of pages from another socket's caches",
        of: |m| m.outcome.happened.lines.remote as f64,
    },
    Figure {
        name: "lines_memory",
        about: "lines of pages from memory of the core's node",
        of: |m| m.outcome.happened.lines.memory as f64,
    },
    Figure {
        name: "lines_memory_remote",
        about: "lines of pages from memory of another node",
        of: |m| m.outcome.happened.lines.memory_remote as f64,
    },
    Figure {
        name: "lines_written_back",
        about: "changed lines of pages that went to memory to make room",
        of: |m| m.outcome.happened.lines.written_back as f64,
    },
    Figure {
        name: "folds",
        about: "folds of a per-CPU counter into shared ones",
        of: |m| m.outcome.happened.folds as f64,
    },
    Figure {
        name: "fetches",
        about: "cache lines that came from another core",
        of: |m| m.outcome.happened.fetches as f64,
    },
    Figure {
        name: "refills",
        about: "zone lock holds that filled a per-CPU list",
        of: |m| m.moves.refills as f64,
    },
    Figure {
        name: "refilled_pages",
        about: "pages moved from zones to per-CPU lists",
        of: |m| m.moves.refilled_pages as f64,
    },
    Figure {
        name: "drains",
        about: "zone lock holds that drained a per-CPU list",
        of: |m| m.moves.drains as f64,
    },
    Figure {
        name: "drained_pages",
        about: "pages moved from per-CPU lists to zones",
        of: |m| m.moves.drained_pages as f64,
    },
    Figure {
        name: "forced_drains",
        about: "drains that a stream of large frees forced, not a full list (LB E.10: free_high)",
        of: |m| m.moves.forced as f64,
    },
    Figure {
        name: "direct_pages",
        about: "pages allocated from zones past the lists",
        of: |m| m.moves.direct_pages as f64,
    },
    Figure {
        name: "depot_batches",
        about: "batches that per-CPU lists left in depots or took from them",
        of: |m| m.moves.depot_batches as f64,
    },
    Figure {
        name: "listed_pages",
        about: "pages held on per-CPU lists, in depots and in CPUs' pageblocks at the end",
        of: |m| m.listed as f64,
    },
    Figure {
        name: "listed_pages_max",
        about: "the most pages seen there, 16 looks",
        of: |m| m.listed_most as f64,
    },
    Figure {
        name: "memory_pages_max",
        about: "the most pages seen with programs and there together, 16 looks",
        of: |m| m.memory_most as f64,
    },
    Figure {
        name: "faults",
        about: "pages that page faults gave to programs",
        of: |m| m.outcome.load.faults as f64,
    },
    Figure {
        name: "faults_per_s",
        about: "the same, in a second of virtual time",
        of: |m| m.per_s(m.outcome.load.faults),
    },
    Figure {
        name: "faults_gb_s",
        about: "the same, in gigabytes (10^9) of pages a second",
        of: |m| m.per_s(m.outcome.load.faults * PAGE_BYTES) / 1e9,
    },
    Figure {
        name: "system_percent",
        about: "part of the cycles spent in the kernel",
        of: |m| 100.0 * ratio(m.system(), m.outcome.cycles as f64),
    },
    Figure {
        name: "system_ns_per_fault",
        about: "the kernel's time for each of these pages, in nanoseconds",
        of: |m| m.system_ns_of(m.outcome.load.faults),
    },
    Figure {
        name: "sent_mbps",
        about: "megabits (10^6) that programs sent in a second, dropped or not",
        of: |m| m.mbps(m.outcome.load.sent),
    },
    Figure {
        name: "received_mbps",
        about: "megabits that programs received in a second",
        of: |m| m.mbps(m.outcome.load.received),
    },
    Figure {
        name: "done_per_s",
        about: "pieces of work in a second: messages, rounds, jobs, tokens or pages, as the \
                workload says",
        of: |m| m.per_s(m.outcome.load.done),
    },
    Figure {
        name: "system_ns_per_done",
        about: "the kernel's time for each piece of work, in nanoseconds",
        of: |m| m.system_ns_of(m.outcome.load.done),
    },
    Figure {
        name: "refused",
        about: "requests that were refused",
        of: |m| m.outcome.count.refused as f64,
    },
];

impl Figures {
    /// Every figure with its name.
    pub fn each(&self) -> impl Iterator<Item = (&'static Figure, f64)> {
        FIGURES.iter().zip(self.values)
    }

    /// The figure of this name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.each().find_map(|(figure, value)| (figure.name == name).then_some(value))
    }
}

impl Serialize for Figures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(FIGURES.len() + 1))?;
        self.each().try_for_each(|(figure, value)| map.serialize_entry(figure.name, &value))?;
        map.serialize_entry("result_hash", &self.hash)?;
        map.end()
    }
}

/// Samples the pages on lists while a run is measured.
pub const LOOKS: u64 = 16;

impl Plan {
    /// All CPUs of `machine` at `workload`, for the usual time.
    pub fn new(machine: Machine, policy: Policy, workload: Workload, seed: u64) -> Plan {
        Plan {
            machine,
            policy,
            workload,
            variant: Variant::default(),
            cpus: None,
            seed,
            warm_us: WARM_US,
            run_us: RUN_US,
        }
    }

    /// Whether the machine has the CPUs, and the time is one. Returns how many CPUs take part.
    ///
    /// # Errors
    /// [`LabError::Plan`] with what would do.
    pub fn check(&self) -> Result<u32, LabError> {
        self.workload.check()?;
        let cpus = self.cpus.unwrap_or(self.machine.cpus());
        if !(1..=self.machine.cpus()).contains(&cpus) {
            let (name, most) = (&self.machine.name, self.machine.cpus());
            return Err(LabError::Plan(format!("busy: {cpus} CPUs; {name} has 1 to {most}")));
        }
        for (name, us, least) in [("warm_us", self.warm_us, 0), ("run_us", self.run_us, 1)] {
            if !(least..=US_MAX).contains(&us) {
                let what = format!("{name}: {us}; expected {least} to {US_MAX} microseconds");
                return Err(LabError::Plan(what));
            }
        }
        Ok(cpus)
    }

    /// Runs it. The same plan gives the same figures, to the last bit.
    ///
    /// # Errors
    /// [`LabError`] if the machine has fewer CPUs, the time is none or too long, or the core does
    /// not take the machine.
    pub fn run(&self) -> Result<Figures, LabError> {
        self.run_watched(&mut |_, _| {})
    }

    /// The same; `progress` hears of each part that is done, and of how many.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_watched(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Figures, LabError> {
        Ok(self.run_with(&mut |_| {}, progress, |_| ())?.0)
    }

    /// The same; `before` has the machine before its program begins, `after` when it is over.
    pub(crate) fn run_with<T>(
        &self,
        before: &mut dyn FnMut(&mut Lab<'_>),
        progress: &mut dyn FnMut(u64, u64),
        after: impl FnOnce(&mut Lab<'_>) -> T,
    ) -> Result<(Figures, T), LabError> {
        let cpus = self.check()?;
        let spec = Spec { machine: self.machine.clone(), policy: self.policy, seed: self.seed };
        let mut program = self.workload.program(cpus)?;
        let mut done = 0;
        let mut looked = || {
            done += 1;
            progress(done, 2 * LOOKS);
        };
        spec.run(|lab| {
            before(lab);
            let figures = self.measure(lab, cpus, program.as_mut(), &mut looked);
            Ok((figures, after(lab)))
        })
    }

    /// Plays a program on the first `cpus` CPUs of a fresh machine, as [`run`](Self::run) does.
    /// Calls `looked` [`LOOKS`] times during the warm-up, and as often during the measured time.
    pub fn measure(
        &self,
        lab: &mut Lab<'_>,
        cpus: u32,
        program: &mut dyn Program,
        looked: &mut dyn FnMut(),
    ) -> Figures {
        let cycles = |us: u64| (us as f64 * self.machine.ghz * 1000.0) as u64;
        let (from, length) = (cycles(self.warm_us), cycles(self.run_us).max(1));
        lab.set_variant(self.variant);
        program.scatter(lab, cpus);
        lab.start(cpus, 0, from / 2);
        for part in 1..=LOOKS {
            lab.play(program, from * part / LOOKS);
            looked();
        }
        let (before, mut listed_most) = look(lab);
        let mut memory_most = listed_most + lab.pages();
        let mut whole: Option<Outcome> = None;
        let mut hash = Sha256::new();
        for part in 1..=LOOKS {
            let part = lab.play(program, from + length * part / LOOKS);
            let listed = look(lab).1;
            listed_most = listed_most.max(listed);
            memory_most = memory_most.max(listed + lab.pages());
            looked();
            hash.update(&part.hash);
            match &mut whole {
                None => whole = Some(part),
                Some(whole) => whole.add(&part),
            }
        }
        let (after, listed) = look(lab);
        hash.update(format!("{after:?} {listed}"));
        let mut outcome = whole.expect("there is a look at least");
        outcome.elapsed = length;
        let moves = after.since(&before);
        let work = outcome.work;
        let cpus = f64::from(cpus);
        let hz = self.machine.ghz * 1e9;
        let measured = Measured { cpus, hz, outcome, moves, listed, listed_most, memory_most };
        let values = std::array::from_fn(|at| (FIGURES[at].of)(&measured));
        Figures { values, work, hash: hex(&hash.finalize()), unplayed: program.unplayed() }
    }
}

/// The longest time of a run: ten minutes.
const US_MAX: u64 = 600_000_000;

/// What moved between lists and zones, over all zones and CPUs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moves {
    refills: u64,
    refilled_pages: u64,
    drains: u64,
    drained_pages: u64,
    forced: u64,
    direct_pages: u64,
    depot_batches: u64,
}

counts!(Moves: refills, refilled_pages, drains, drained_pages, forced, direct_pages, depot_batches);

/// What moved so far, and the pages on all lists and in depots. Looks at the pcps and depots
/// alone: reading a zone's statistics may fold its deltas, which those who run would notice.
pub(crate) fn look(lab: &Lab<'_>) -> (Moves, u64) {
    let allocator = &lab.allocator;
    let (mut moves, mut listed) = (Moves::default(), 0);
    let cpus = 0..allocator.cpus() as u32;
    for (zone, cpu) in allocator.zones().iter().flat_map(|z| cpus.clone().map(|cpu| (z.id(), cpu)))
    {
        for pcp in allocator.tables().pcps(zone, CpuId(cpu)) {
            let (totals, events) = (pcp.totals(), pcp.events());
            listed += u64::from(pcp.count());
            moves = moves.plus(&Moves {
                refills: events.refills,
                refilled_pages: totals.refilled_pages,
                drains: events.drains,
                drained_pages: totals.drained_pages,
                forced: events.forced,
                direct_pages: events.direct_pages,
                depot_batches: events.depot_puts + events.depot_takes,
            });
        }
    }
    let zones = allocator.zones().iter();
    let stats = allocator.stats();
    listed +=
        zones.map(|zone| stats.depot_pages(zone.id()) + stats.owned_pages(zone.id())).sum::<u64>();
    (moves, listed)
}
