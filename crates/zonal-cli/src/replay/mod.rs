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
//! | `program` | events to steps; what does not fit is counted |
//! | `kernel` | refills and drains as the kernel recorded them |
//! | `machine`, `start` | the recorded machine in the core, in the state it was in |
//! | `none` | runs a program there, in trace time, on one thread |
//! | `memory`, `real` | runs a program on a pool of this machine's memory, in threads |
//! | `latency`, `outcome`, `report` | what came out |
//! | `end` | the state that a replay on no memory ends in |

mod end;
mod kernel;
mod latency;
mod machine;
mod memory;
mod none;
mod outcome;
mod program;
mod real;
mod report;
mod start;
mod zones;

pub use end::{EndState, end_state};

use anyhow::ensure;
use zonal_core::policy::Policy;
use zonal_trace::{Recording, samples};

use self::memory::{PoolMemory, Reading};
use self::outcome::Outcome;
use self::program::Program;
use self::real::Stage;
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
    ensure!(
        args.speed == Speed::Max || args.memory == Memory::Real,
        "--speed recorded needs --memory real: without memory the clock is the trace's anyway"
    );
    let policy = args.policy.policy()?;
    let recording = match &args.trace {
        Some(path) => crate::trace::open(path, args.machine.as_deref())?,
        None => samples::zlib_make_j4()?,
    };
    let machine = recording.description();
    let map = ZoneMap::new(machine);
    let program = read(&recording, &map, args.limit)?;
    let bar = output::progress("replaying", "events", Some(program.ops.len() as u64));
    let outcome = match args.memory {
        Memory::None => none::replay(machine, &map, &program, policy, &bar)?,
        Memory::Real => on_pool(args.speed, policy, &map, &program, &bar)?,
    };
    bar.finish_and_clear();
    let inputs =
        Inputs { machine, map: &map, program: &program, policy: &policy, memory: args.memory };
    let report = Report::new(&inputs, outcome);
    report.remarks().for_each(|remark| output::note(&remark));
    output::data(&if args.json { report.json()? } else { report.text() })?;
    Ok(if report.passed() { Verdict::Pass } else { Verdict::Failed })
}

fn read(recording: &Recording, map: &ZoneMap, limit: Option<u64>) -> anyhow::Result<Program> {
    let machine = recording.description();
    let bar = output::progress("reading", "events", limit.or(machine.events));
    let tick = |read: u64| {
        if read.is_multiple_of(TICK_EVENTS) {
            bar.set_position(read);
        }
    };
    let program = Program::compile(machine, map, recording.events(), limit, tick)?;
    bar.finish_and_clear();
    Ok(program)
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
