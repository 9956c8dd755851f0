//! What describes the machine of a recorded run.

use serde_json::json;
use zonal_core::pcp::size::free_high_batch;
use zonal_trace::{Event, MachineFiles};

use super::zones::Zones;
use crate::LabError;
use crate::machine::Machine;
use crate::recipe::Recipe;
use crate::run::{Figures, Plan};
use crate::sweep::version;

/// Name that a node's files have.
const NAME: &str = "lab";

/// The release of the kernel that a policy stands for.
pub(super) fn release(policy: &str) -> Result<String, LabError> {
    let name = policy.split('+').next().unwrap_or_default();
    let release = name.strip_prefix("linux-").and_then(|rest| rest.split('-').next());
    match release {
        Some(release) if release.split('.').count() == 2 => Ok(format!("{release}.0-{NAME}")),
        Some(release) => Ok(format!("{release}-{NAME}")),
        None => Err(LabError::Plan(format!(
            "policy {policy}: a recording is of a kernel; expected linux-6.18 or another release"
        ))),
    }
}

/// The files of a run's recording.
pub(super) fn files(
    recipe: &Recipe,
    plan: &Plan,
    zones: &Zones,
    figures: &Figures,
    (release, events): (&str, &[Event]),
) -> Result<MachineFiles, LabError> {
    let Plan { machine, policy, .. } = plan;
    let last_ns = events.last().map_or(0, |event| event.time_ns);
    let Recipe { workload, variant, busy, seed, warm_us, run_us, .. } = recipe;
    let meta = json!({
        "name": format!("{} {workload} seed {seed}", recipe.machine),
        "workload": workload,
        "uname": format!("Linux {NAME} {release} #1 SMP PREEMPT_DYNAMIC x86_64 GNU/Linux"),
        "cpus": machine.cpus(),
        "page_size": 4096,
        "pageblock_order": 9,
        "clock": "mono",
        "clock_step_ns": 1,
        "events": events.len(),
        "dropped_events": 0,
        "t_start_ns": 0,
        "t_end_ns": last_ns,
        "cold_pcp_start": true,
        "lock_waits": true,
        "config": {
            "CONFIG_PCP_BATCH_SCALE_MAX": policy.pcp.scale_max,
            "CONFIG_NUMA": true,
            "CONFIG_CMA": false,
            "SHUFFLE_PAGE_ALLOCATOR_built_in": false,
            // From the size of the cache, of which a recording says nothing else.
            "PCPF_FREE_HIGH_BATCH_expected":
                free_high_batch(machine.cache_slice_bytes(), zones.batch),
        },
        "zones_pre": zones.described,
        // What a recording of a host cannot say: the truth.
        "lab": {
            "kind": "simulated",
            "version": version(),
            "machine": recipe.machine,
            "machine_toml": machine.to_toml(),
            "policy": recipe.policy,
            "workload": workload,
            "variant": variant,
            "busy": busy,
            "seed": seed,
            "warm_us": warm_us,
            "run_us": run_us,
            "command": recipe.command(),
            "figures": figures,
        },
    });
    let text = serde_json::to_vec(&meta)
        .map_err(|error| LabError::Plan(format!("the description has no form: {error}")))?;
    let mut files = MachineFiles::default();
    files.set("meta.json", text);
    for node in 0..machine.nodes() {
        files.set(&format!("node{node}-cpulist.txt"), cpulist(machine, node).into_bytes());
        let distances = (0..machine.nodes()).map(|to| machine.distance(node, to).to_string());
        let distances = distances.collect::<Vec<_>>().join(" ") + "\n";
        files.set(&format!("node{node}-distance.txt"), distances.into_bytes());
    }
    Ok(files)
}

fn cpulist(machine: &Machine, node: u32) -> String {
    let own = |cpu: &u32| machine.node_of_core(machine.core_of(*cpu)) == node;
    let cpus = (0..machine.cpus()).filter(own).map(|cpu| cpu.to_string());
    cpus.collect::<Vec<_>>().join(",") + "\n"
}
