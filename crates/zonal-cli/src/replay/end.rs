//! The state that a replay on no memory ends in.

use std::path::Path;

use zonal::text::State;
use zonal_core::policy::Policy;
use zonal_trace::{Recording, samples};

use super::none::Setup;
use super::recorded::Recorded;
use super::{ZoneMap, none, prepare};
use crate::output;

/// Where a recorded machine stands after its trace.
#[derive(Debug)]
pub struct EndState {
    /// The recording.
    pub trace: String,
    /// The reading, taken before anything was cleaned up. Totals count from the making of the
    /// machine, so they hold the few allocations that brought it to the recorded start.
    pub state: Option<State>,
    /// Properties that failed, in words.
    pub faults: Vec<String>,
}

/// Replays the recording at `trace`, or the bundled one, on no memory.
///
/// # Errors
/// Bad input, with file and line, or a machine that cannot be rebuilt.
pub fn end_state(
    trace: Option<&Path>,
    policy: Policy,
    limit: Option<u64>,
) -> anyhow::Result<EndState> {
    let recording = match trace {
        Some(path) => Recording::open(path)?,
        None => samples::zlib_make_j4()?,
    };
    let machine = recording.description();
    let map = ZoneMap::new(machine);
    let recorded = Recorded::default();
    let (program, _, told) = prepare(&recording, &map, limit, policy, recorded)?;
    let bar = output::progress("replaying", "events", Some(program.ops.len() as u64));
    let outcome = none::replay(machine, &map, &program, Setup::new(policy, recorded, &told), &bar)?;
    bar.finish_and_clear();
    Ok(EndState { trace: machine.name.clone(), state: outcome.state, faults: outcome.faults })
}
