//! The walk of a replay: read, judge, build, start, run, report.

use zonal::text::State;
use zonal_core::policy::Policy;
use zonal_text::zoneinfo;
use zonal_trace::{Event, MachineDescription, Recording};

use crate::altered::altered;
use crate::error::ReplayError;
use crate::facts::{LookedAt, Scope, Shown};
use crate::fidelity::{self, Fidelity};
use crate::hotplug::hotplug;
use crate::judge::{self, Judged};
use crate::kernel::KernelMoves;
use crate::locks::LockWaits;
use crate::others::OfOthers;
use crate::program::Program;
use crate::progress::Watch;
use crate::read::{self, ReadOptions};
use crate::readings;
use crate::reclaim::Reclaim;
use crate::report::{Inputs, Memory, Report};
use crate::run::none::{self, Setup};
use crate::run::pool;
use crate::run::timeline::Timeline;
use crate::settings::Settings;
use crate::settle::settle;
use crate::start;
use crate::told::{Recorded, Told};
use crate::unjudged::{self, NotJudged};
use crate::zones::ZoneMap;

/// A recording to replay, and the policy.
///
/// ```
/// use zonal_core::policy::Policy;
/// use zonal_replay::{Replay, unwatched};
///
/// let recording = zonal_trace::samples::zlib_make_j4()?;
/// let replay = Replay::new(&recording).policy(Policy::LINUX_6_18).limit(30_000);
/// let report = replay.without_memory(&Default::default(), &mut unwatched)?;
/// assert_eq!((report.events, report.failed), (30_000, 0));
/// assert!(report.error_percent.refill_pages.is_some_and(|percent| percent.abs() < 10.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Replay<'r> {
    pub(crate) recording: &'r Recording,
    pub(crate) policy: Policy,
    pub(crate) limit: Option<u64>,
    /// Whether to find blocks with pages of files, where reclaim took some.
    files: bool,
}

/// What only a replay without memory can do besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// Recorded facts that the model uses beyond allocations, frees and `zoneinfo`.
    pub told: Recorded,
    /// The allocation to explain, counted from 1.
    pub explain: Option<u64>,
    /// Whether model and kernel are compared bin by bin: [`Report::fidelity`].
    pub over_time: bool,
}

/// How fast the events come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As fast as they can be served.
    Max,
    /// When they came in the recording.
    Recorded,
}

/// Where a recorded machine stands after its trace.
#[derive(Debug)]
pub struct EndState {
    /// The recording.
    pub trace: String,
    /// The reading, taken before anything was cleaned up. Totals count from the making of the
    /// machine, so they hold the few allocations that brought it to the recorded start.
    pub state: State,
    /// Properties that failed, in words.
    pub faults: Vec<String>,
}

impl<'r> Replay<'r> {
    /// A replay of all of `recording`, under the policy `zonal`.
    pub fn new(recording: &'r Recording) -> Replay<'r> {
        Replay { recording, policy: Policy::ZONAL, limit: None, files: false }
    }

    /// Under another policy.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Of this many events at most.
    pub fn limit(mut self, events: u64) -> Self {
        self.limit = Some(events);
        self
    }

    /// With what the program of a changed reserve needs.
    pub(crate) fn with_files(mut self) -> Self {
        self.files = true;
        self
    }

    /// Replays on the recorded machine, rebuilt without memory: one thread plays all CPUs, in the
    /// trace's time. Every choice is also judged by itself, from where the kernel was.
    ///
    /// # Errors
    /// Bad input, a machine that cannot be rebuilt, or [`ReplayError::Stopped`].
    pub fn without_memory(
        &self,
        extras: &Extras,
        watch: &mut Watch<'_>,
    ) -> Result<Report, ReplayError> {
        let Replay { recording, policy, .. } = *self;
        self.require_uses()?;
        let machine = &*start::machine(recording)?;
        let map = ZoneMap::new(machine);
        let Prepared { recorded, program, mut judged, told, shown, not_judged, .. } =
            self.prepare((machine, &map), extras.told, watch)?;
        let recorded = recorded.at_start_of(machine, &program);
        let each = |see: &mut dyn FnMut(&Event)| {
            read::each(machine, recording.events(), self.limit, watch, see)
        };
        let known = (&told, &shown);
        judged.buddy = judge::buddies((machine, &map), &program, policy, known, each)?;
        let is_sampled = extras.over_time || !not_judged.is_empty();
        let mut timeline = is_sampled.then(|| Timeline::new(&program, program.cpus, &map));
        let (explain, samples) = (extras.explain, timeline.as_mut());
        let settings = Settings::of(recording)?;
        let setup = Setup::new(policy, recorded, &program, (&told, &shown, &settings));
        let setup = Setup { timeline: samples, explain, ..setup };
        let (outcome, _) = none::replay(machine, &map, &program, setup, watch)?;
        if let (Some(number), None) = (explain, &outcome.explained) {
            let allocs = outcome.allocs + outcome.failed;
            return Err(ReplayError::NothingToExplain { number, allocs });
        }
        let inputs = Inputs {
            machine,
            map: &map,
            program: &program,
            policy: &policy,
            memory: Memory::None,
            recorded,
            judged: Some(judged),
        };
        let mut report = Report::new(&inputs, outcome);
        if let Some(timeline) = timeline {
            let polls = recording.polls()?;
            let kernel = fidelity::kernel::timeline(recording, &program, &map, &polls)?;
            (report.not_judged, report.reclaim_judged) = settle(not_judged, &timeline, &kernel);
            report.judge_outside(&timeline, &kernel);
            if extras.over_time {
                report.fidelity = Some(Fidelity::new(&program, &map, &timeline, &kernel, &polls));
            }
        }
        report.find_beyond();
        Ok(report)
    }

    /// Replays on a pool of this machine's memory: one thread for each recorded CPU, one word
    /// written to each page and looked for before the free.
    ///
    /// # Errors
    /// Bad input, memory that is not available, or [`ReplayError::Stopped`].
    pub fn on_pool(&self, pace: Pace, watch: &mut Watch<'_>) -> Result<Report, ReplayError> {
        let policy = self.policy;
        self.require_uses()?;
        let machine = self.recording.description();
        let map = ZoneMap::new(machine);
        // Refreshes are not replayed; the recorded ones are counted all the same.
        let recorded = Recorded { decay: true, ..Recorded::default() };
        let options = ReadOptions { limit: self.limit, recorded, ..ReadOptions::default() };
        let program = self.read((machine, &map), options, watch)?;
        let outcome = pool::run(&program, &map, policy, pace == Pace::Recorded, watch)?;
        let inputs = Inputs {
            machine,
            map: &map,
            program: &program,
            policy: &policy,
            memory: Memory::Real,
            recorded: Recorded::default(),
            judged: None,
        };
        Ok(Report::new(&inputs, outcome))
    }

    /// The state that a replay without memory ends in.
    ///
    /// # Errors
    /// As [`without_memory`](Self::without_memory).
    pub fn end_state(&self, watch: &mut Watch<'_>) -> Result<EndState, ReplayError> {
        self.require_uses()?;
        let machine = &*start::machine(self.recording)?;
        let map = ZoneMap::new(machine);
        let Prepared { program, told, shown, .. } =
            self.prepare((machine, &map), Recorded::default(), watch)?;
        let settings = Settings::of(self.recording)?;
        let recorded = Recorded::default().at_start_of(machine, &program);
        let known = (&told, &shown, &settings);
        let setup = Setup::new(self.policy, recorded, &program, known);
        let (outcome, state) = none::replay(machine, &map, &program, setup, watch)?;
        Ok(EndState { trace: machine.name.clone(), state, faults: outcome.faults })
    }

    /// Refuses a recording that has nothing to replay.
    fn require_uses(&self) -> Result<(), ReplayError> {
        let machine = self.recording.description();
        match machine.has_moves_alone() {
            true => Err(ReplayError::MovesAlone { recording: machine.name.clone() }),
            false => Ok(()),
        }
    }

    /// A program for the recorded machine without memory, the verdict on its per-CPU lists, and
    /// what no event says.
    pub(crate) fn prepare(
        &self,
        (machine, map): (&MachineDescription, &ZoneMap),
        recorded: Recorded,
        watch: &mut Watch<'_>,
    ) -> Result<Prepared, ReplayError> {
        let events = self.recording.events();
        let read::FirstLook {
            facts,
            is_whole,
            cpus,
            mut unjudged,
            locks,
            mut changes,
            others,
            cache,
            wakes,
        } = read::facts(machine, events, self.limit, watch)?;
        let judge = |looked: &LookedAt<'_>| judge::lists(machine, map, cpus, looked, self.policy);
        let all = LookedAt::new(&facts, Scope::All, is_whole && facts.shows_drains(machine));
        let (lists, told) = judge(&all)?;
        let recorded = recorded.with_moves(machine, &told, (&facts, is_whole));
        let shown = Shown::new(all);
        let judged = Judged { lists, ..Judged::default() };
        let of_users = match recorded.untraced {
            true => None,
            false => Some(judge(&LookedAt::new(&facts, Scope::Users, false))?.1.of_users()),
        };
        let untraced = of_users.as_deref().unwrap_or(&told.untraced);
        let past_lists: &[usize] = if recorded.past_lists { &told.past_lists } else { &[] };
        let kernel = KernelMoves::new(&facts);
        // Facts and the program together are the most that a long trace would keep in memory.
        drop(facts);
        let files = self.files && cache.has_reclaimed();
        // Where pages of files are looked for, blocks are whole.
        let parts = !self.files && read::frees_parts(machine);
        let reads = ReadOptions { limit: self.limit, recorded, untraced, past_lists, files, parts };
        let mut program = self.read((machine, map), reads, watch)?;
        let polls = self.recording.polls()?;
        let settings = Settings::of(self.recording)?;
        let altered = altered(&polls, machine, &settings, program.start_ns);
        changes.extend(altered.changes.into_iter().chain(hotplug(&polls, machine, &program)));
        program.insert_changes(changes);
        let files = self.recording.machine_files()?;
        let [before, after] = readings::vmstats(&files);
        let reclaimed = unjudged::reclaimed(&before, &after);
        unjudged.polled(&polls, program.start_ns, &machine.zones);
        let zoneinfo = readings::after(&files, "zoneinfo").filter(|_| polls.is_empty());
        // A text that cannot be read says nothing.
        if let Some(Ok(after)) = zoneinfo.map(|text| zoneinfo::parse(&text)) {
            unjudged.ended(&after, &machine.zones);
        }
        altered.lost_ns.into_iter().for_each(|from_ns| unjudged.lost(from_ns));
        let not_judged = unjudged.finish((program.start_ns, program.span_ns.1), reclaimed);
        let lock_waits = locks.finish(machine.flags.lock_waits);
        let of_others = others.share();
        let seconds = program.span_ns.1.saturating_sub(program.start_ns) as f64 / 1e9;
        let known = (machine, &settings);
        let span = (program.start_ns, seconds);
        let reclaim = Reclaim::new((cache, &wakes), &files, known, &polls, span);
        Ok(Prepared {
            recorded,
            program,
            judged,
            told,
            shown,
            kernel,
            not_judged,
            lock_waits,
            of_others,
            reclaim,
        })
    }

    fn read(
        &self,
        (machine, map): (&MachineDescription, &ZoneMap),
        options: ReadOptions<'_>,
        watch: &mut Watch<'_>,
    ) -> Result<Program, ReplayError> {
        read::compile(machine, map, self.recording.events(), options, watch)
    }
}

/// A trace that was read and judged.
pub(crate) struct Prepared {
    /// What the program was made with.
    pub recorded: Recorded,
    pub program: Program,
    pub judged: Judged,
    pub told: Told,
    /// What the events show together.
    pub shown: Shown,
    /// What moved in blocks, as far as single events tell.
    pub kernel: KernelMoves,
    pub not_judged: Vec<NotJudged>,
    pub lock_waits: Option<LockWaits>,
    pub of_others: Option<OfOthers>,
    pub reclaim: Option<Reclaim>,
}
