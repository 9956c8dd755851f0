//! `zonal replay` without arguments: the recorded kernel's own policy without memory, to see how
//! near the model is, then the policy `zonal` on real memory.

use serde::Serialize;
use zonal_replay::advise::policy_of;
use zonal_replay::{Extras, Pace, Recorded, Replay, Report};
use zonal_trace::Recording;

use super::text::{self, remarks};
use crate::output;
use crate::verdict::Verdict;

/// What `--json` prints: the fields of the run on real memory, and the other run beside them.
#[derive(Serialize)]
struct Both<'r> {
    #[serde(flatten)]
    real: &'r Report,
    /// The recorded kernel's own policy, without memory.
    own_policy: &'r Report,
}

/// Makes both runs and prints them.
///
/// # Errors
/// Memory that is not available.
pub fn run(
    replay: &Replay<'_>,
    recording: &Recording,
    json: bool,
    mut bar: output::Bar,
) -> anyhow::Result<Verdict> {
    let own = policy_of(recording.description().kernel_release.as_deref());
    // Allocations without event change what lists hold; the kernel's refills tell of them.
    let told = Recorded { decay: true, untraced: true, ..Recorded::default() };
    let extras = Extras { told, ..Extras::default() };
    let own = replay.policy(own).without_memory(&extras, &mut bar.watch())?;
    let real = replay.on_pool(Pace::Max, &mut bar.watch())?;
    drop(bar);
    remarks(&own).chain(remarks(&real)).for_each(|remark| output::note(&remark));
    output::data(&match json {
        true => serde_json::to_string_pretty(&Both { real: &real, own_policy: &own })? + "\n",
        false => text::both(&own, &real),
    })?;
    Ok(if own.passed() && real.passed() { Verdict::Pass } else { Verdict::Failed })
}
