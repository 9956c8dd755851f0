//! `zonal replay`: a recorded trace of a kernel's page allocations, fed to the allocator.
//!
//! ```text
//!  recording ─► program: which block is each event about? ─┬─► none: the recorded machine, rebuilt
//!               kernel:  what moved between the lists?     └─► real: a pool and a thread per CPU
//!                              │                                            │
//!                              └──────────────► report ◄────────────────────┘
//! ```
//! | file | does |
//! |--|--|
//! | `zones` | page frame to zone and node |
//! | `program`, `frames` | events to steps; what does not fit is counted |
//! | `facts`, `workers` | what no event says, told by all of them |
//! | `kernel` | refills and drains as the kernel recorded them |
//! | `machine`, `start`, `cached` | the recorded machine in the core, in the state it was in |
//! | `judge` | the core's choices, one step at a time from where the kernel was |
//! | `none` | runs a program there, in trace time, on one thread |
//! | `memory`, `real` | runs a program on a pool of this machine's memory, in threads |
//! | `explain` | one request, told zone by zone |
//! | `recorded` | what the model is told beyond allocations and frees |
//! | `latency`, `outcome`, `report` | what came out |
//! | `fidelity` | model and kernel over time, with plots |
//! | `what_if` | the same trace under other rules and settings |
//! | `end` | the state that a replay on no memory ends in |

mod cached;
mod end;
mod explain;
mod facts;
mod fidelity;
mod frames;
mod judge;
mod kernel;
mod latency;
mod machine;
mod memory;
mod none;
mod outcome;
mod program;
mod real;
mod recorded;
mod report;
mod start;
mod what_if;
mod workers;
mod zones;

pub use end::{EndState, end_state};
pub use fidelity::timeline::BIN_NS;
pub use what_if::{Trial, Trialled, WhatIf};

use anyhow::{Context, bail, ensure};
use zonal_core::policy::Policy;
use zonal_trace::{MachineDescription, Recording, samples};

use self::facts::Untraced;
use self::fidelity::Fidelity;
use self::fidelity::timeline::Timeline;
use self::judge::{Judged, Told};
use self::memory::{PoolMemory, Reading};
use self::none::Setup;
use self::outcome::Outcome;
use self::program::{Program, ReadOptions};
use self::real::Stage;
use self::recorded::Recorded;
use self::report::{Inputs, Report};
use self::zones::ZoneMap;
use crate::cli::{Memory, ReplayArgs, Speed};
use crate::{Verdict, output};

/// Events between two looks at the progress bar.
const TICK_EVENTS: u64 = 1 << 13;

/// Runs the command.
///
/// # Errors
/// Bad input, with file and line, or a machine that cannot be had.
pub fn run(args: &ReplayArgs) -> anyhow::Result<Verdict> {
    check(args)?;
    let policy = args.policy.policy()?;
    let recording = match &args.trace {
        Some(path) => crate::trace::open(path, args.machine.as_deref())?,
        None => samples::zlib_make_j4()?,
    };
    let machine = recording.description();
    let map = ZoneMap::new(machine);
    let recorded = Recorded::of(&args.use_recorded);
    ensure!(
        recorded == Recorded::default() || args.memory == Memory::None,
        "--use-recorded needs --memory none: a pool on real memory follows its own clock and has \
         no pageblock types"
    );
    let (program, judged, told) = match args.memory {
        Memory::None => {
            let (program, mut judged, told) =
                prepare(&recording, &map, args.limit, policy, recorded)?;
            judged.buddy = none::judge_buddies(machine, &map, &program, policy, &told)?;
            (program, Some(judged), told)
        }
        Memory::Real => {
            // Refreshes are not replayed; the recorded ones are counted all the same.
            let recorded = Recorded { decay: true, ..recorded };
            let options = ReadOptions { limit: args.limit, recorded, ..ReadOptions::default() };
            (read(&recording, &map, options)?, None, Told::default())
        }
    };
    let bar = output::progress("replaying", "events", Some(program.ops.len() as u64));
    let mut timeline = args.fidelity.as_ref().map(|_| Timeline::new(&program, &map));
    let outcome = match args.memory {
        Memory::None => {
            let timeline = timeline.as_mut();
            let explain = args.explain;
            let setup = Setup { timeline, explain, ..Setup::new(policy, recorded, &told) };
            none::replay(machine, &map, &program, setup, &bar)?
        }
        Memory::Real => on_pool(args.speed, policy, &map, &program, &bar)?,
    };
    bar.finish_and_clear();
    if let (Some(number), None) = (args.explain, &outcome.explained) {
        let allocs = outcome.allocs + outcome.failed;
        bail!(
            "--explain {number}: the trace, up to where it was replayed, has {allocs} allocations"
        );
    }
    let inputs = Inputs {
        machine,
        map: &map,
        program: &program,
        policy: &policy,
        memory: args.memory,
        recorded,
        judged,
    };
    let mut report = Report::new(&inputs, outcome);
    if let (Some(timeline), Some(path)) = (&timeline, &args.fidelity) {
        report.set_fidelity(Fidelity::new(&recording, &program, &map, timeline)?);
        std::fs::write(path, report.html()).with_context(|| format!("{}", path.display()))?;
    }
    report.remarks().for_each(|remark| output::note(&remark));
    output::data(&if args.json { report.json()? } else { report.text() })?;
    Ok(if report.passed() { Verdict::Pass } else { Verdict::Failed })
}

/// Flags that only one kind of memory can honour.
fn check(args: &ReplayArgs) -> anyhow::Result<()> {
    ensure!(
        args.speed == Speed::Max || args.memory == Memory::Real,
        "--speed recorded needs --memory real: without memory the clock is the trace's anyway"
    );
    ensure!(
        args.explain.is_none() || args.memory == Memory::None,
        "--explain needs --memory none: on real memory several threads allocate at once"
    );
    ensure!(
        args.fidelity.is_none() || args.memory == Memory::None,
        "--fidelity needs --memory none: a pool on real memory is not the recorded machine"
    );
    Ok(())
}

/// A program for the recorded machine on no memory, how its per-CPU lists are judged, and what no
/// event says.
fn prepare(
    recording: &Recording,
    map: &ZoneMap,
    limit: Option<u64>,
    policy: Policy,
    recorded: Recorded,
) -> anyhow::Result<(Program, Judged, Told)> {
    let machine = recording.description();
    let options = ReadOptions { limit, facts: true, recorded, untraced: &[] };
    let program = read(recording, map, options)?;
    let (judged, told) = none::judge(machine, map, &program, &program.facts, policy)?;
    let untraced = match recorded.untraced {
        true => told.untraced.clone(),
        false => untraced(machine, map, &program, policy)?,
    };
    if untraced.is_empty() {
        return Ok((program, judged, told));
    }
    let program = read(recording, map, ReadOptions { untraced: &untraced, ..options })?;
    Ok((program, judged, told))
}

fn read(recording: &Recording, map: &ZoneMap, options: ReadOptions<'_>) -> anyhow::Result<Program> {
    let machine = recording.description();
    let bar = output::progress("reading", "events", options.limit.or(machine.events));
    let tick = |read: u64| {
        if read.is_multiple_of(TICK_EVENTS) {
            bar.set_position(read);
        }
    };
    let program = Program::compile(machine, map, recording.events(), options, tick)?;
    bar.finish_and_clear();
    Ok(program)
}

/// Allocations without event, as far as allocations and frees alone tell.
fn untraced(
    machine: &MachineDescription,
    map: &ZoneMap,
    program: &Program,
    policy: Policy,
) -> anyhow::Result<Vec<Untraced>> {
    let (users, places) = program.facts.of_users();
    let (_, mut told) = none::judge(machine, map, program, &users, policy)?;
    // Without refills and drains, a page that is never seen again may have been drained.
    told.untraced.retain(|untraced| untraced.freed);
    told.untraced.iter_mut().for_each(|untraced| untraced.at = places[untraced.at]);
    Ok(told.untraced)
}

/// Runs `program` on a pool of this machine's memory.
fn on_pool(
    speed: Speed,
    policy: Policy,
    map: &ZoneMap,
    program: &Program,
    bar: &indicatif::ProgressBar,
) -> anyhow::Result<Outcome> {
    // Threads that are ahead hold what others have not freed yet.
    let pages = program.counts.peak_pages + program.burst_pages(real::ahead_max(program.cpus));
    let memory = PoolMemory::new(policy, map, program.cpus, pages)?;
    let pool = memory.pool();
    let unused = pool.free_page_count();
    let stage = Stage::new(program, &memory);
    let before = Reading::take(pool);
    let mut outcome = stage.run(speed == Speed::Recorded, bar);
    Reading::take(pool).difference(&before, &mut outcome);
    let fault = pool.validate().err();
    outcome.faults.extend(fault.map(|fault| format!("after the replay: {fault}")));
    stage.finish(&mut outcome);
    pool.drain_all();
    if let Err(fault) = pool.validate() {
        outcome.faults.push(format!("with all blocks back: {fault}"));
    }
    let (free, expected) = (pool.free_page_count(), unused);
    if free != expected {
        let fault = format!("{free} pages are free with all blocks back, {expected} should be");
        outcome.faults.push(fault);
    }
    let cpus: Vec<u32> = memory.cpus().iter().map(|cpu| cpu.0).collect();
    outcome.notes.push(format!(
        "pool of {} MiB, metadata {:.3} % of it, stores: {}; recorded CPUs run on CPUs {cpus:?}",
        pool.bytes() >> 20,
        pool.metadata_bytes() as f64 * 100.0 / pool.bytes() as f64,
        pool.mode()
    ));
    outcome.notes.extend(memory.notes.iter().cloned());
    Ok(outcome)
}
