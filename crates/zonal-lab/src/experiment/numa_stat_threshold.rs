//! `numa-stat-threshold` (2017): what NUMA statistics cost 88 CPUs that all allocate and free one
//! page, by the threshold of their per-CPU counters.
//!
//! The published rows ran one patched kernel with different thresholds: the split with overstep
//! (LB F.7), the threshold being the only change. Below them stand what the paper could not show:
//! the later storages, and machines of other sizes.

use sha2::{Digest, Sha256};
use zonal_core::policy::Policy;
use zonal_core::types::Order;

use super::published::Published;
use super::rows;
use super::table::{Cell, Experiment, Extent, Options, Progress, Table};
use crate::LabError;
use crate::machine::Machine;
use crate::provenance::{Provenance, given};
use crate::sim::Spec;
use crate::units::hex;
use crate::workload::{PageBench, Program};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: NAME,
    about: "2017: cycles of an allocation and a free on 88 CPUs, by the threshold of NUMA counters",
    target_percent: 3.0,
    sizes: true,
    run,
};

given! {
    /// Pairs that each CPU would make in a round if nothing but its own work cost anything.
    PAIRS: u64 = 1024,
        Provenance::estimated("eight folds of the largest published threshold but three");
    /// Rounds. In each, CPUs begin anywhere between two folds: what folds cost depends on how they
    /// happen to fall, and nothing shuffles them while a round lasts.
    ROUNDS: u64 = 8,
        Provenance::estimated("rows differ by less than a percent between seeds");
}

const NAME: &str = "numa-stat-threshold";
const MACHINE: &str = "broadwell-2017-88";
const TABLE: &str = include_str!("../../published/2017-numa-stat-threshold.csv");
const CYCLES: &str = "cpu_cycles_per_page";
const THROUGHPUT: &str = "throughput_88_threads";
/// Machine sizes that are run too, unless the caller names others.
const SIZES: [u32; 6] = [2, 8, 22, 44, 176, 512];
/// The workload.
const SIZED: [&str; 7] = ["32", "125", "32765", "u16", "ulong", "exact", "off"];
/// Storages that came later, by the name of their row.
const LATER: [(&str, &str); 3] =
    [("u16", "u16_thr65533"), ("ulong", "ulong_fold_on_read"), ("exact", "ulong_exact")];

/// One row on one machine.
struct Run {
    cycles_per_pair: f64,
    pairs_per_s: f64,
    hash: String,
}

fn run(options: &Options, progress: Progress<'_>) -> Result<Table, LabError> {
    let published = Published::parse(TABLE);
    let machine = options.machine(MACHINE)?;
    let rows: Vec<&str> = published.rows().collect();
    let sizes = match options.cpus.is_empty() {
        _ if options.extent != Extent::Whole => &[],
        true => &SIZES[..],
        false => &options.cpus,
    };
    let later = if options.extent == Extent::Whole { &LATER[..] } else { &[] };
    // Each with its name, and whether it was published.
    let mut all: Vec<(Machine, &str, String, bool)> = Vec::new();
    all.extend(rows.iter().map(|row| (machine.clone(), *row, (*row).to_owned(), true)));
    all.extend(later.iter().map(|(row, _)| (machine.clone(), *row, (*row).to_owned(), false)));
    for cpus in sizes {
        let sized = machine.resized(*cpus)?;
        all.extend(SIZED.map(|row| (sized.clone(), row, format!("{row}, {cpus} CPUs"), false)));
    }
    let runs = rows::all(&all, 1, progress, |(machine, row, ..), looked| {
        let run = pairs(machine, policy(row), options.seed)?;
        looked();
        Ok(run)
    })?;
    let (mut cells, mut hash) = (Vec::new(), Sha256::new());
    for ((_, row, name, known), run) in all.iter().zip(&runs) {
        hash.update(&run.hash);
        for (column, simulated) in [(CYCLES, run.cycles_per_pair), (THROUGHPUT, run.pairs_per_s)] {
            let figure = if *known { published.figure(row, column) } else { None };
            cells.push(Cell::new(name, column, figure, simulated));
        }
    }
    let ran = (machine.name.as_str(), options);
    Ok(Table {
        cells,
        notes: vec![
            "throughput is the CPUs' clock over the cycles, so that both cells of a row are one \
             prediction; rows 20000 and 30000 fold so rarely that they say little more than 32765, \
             which set a figure"
                .into(),
            "rows u16, ulong and exact, and machines of other sizes, were never published".into(),
        ],
        ..EXPERIMENT.table(ran, published.source, hash)
    })
}

/// The policy of a row: the split of 2017 with a threshold, a later storage, or none.
fn policy(row: &str) -> Policy {
    let base = Policy::LINUX_6_18;
    let set = |pairs: &[(&str, &str)]| {
        pairs.iter().fold(base, |mut policy, (key, value)| {
            policy.set(key, value).expect("the row's settings are accepted");
            policy
        })
    };
    if row == "off" {
        return set(&[("numa.storage", "u16_thr65533"), ("numa.stat", "off")]);
    }
    match LATER.iter().find(|(name, _)| *name == row) {
        Some((_, storage)) => set(&[("numa.storage", storage)]),
        None => set(&[("numa.storage", "s16_thr32765_overstep"), ("numa.threshold", row)]),
    }
}

fn pairs(machine: &Machine, policy: Policy, seed: u64) -> Result<Run, LabError> {
    let spec = Spec { machine: machine.clone(), policy, seed };
    spec.run(|lab| {
        let cpus = machine.cpus();
        let mut bench = PageBench::new(cpus, Order::ZERO);
        let (mut cycles, mut calls, mut hash) = (0, 0, Sha256::new());
        for round in 0..ROUNDS {
            match round {
                0 => bench.scatter(lab, cpus),
                _ => bench.shuffle(lab, cpus),
            }
            let pair = machine.work.alloc + machine.work.free;
            let from = lab.latest();
            lab.start(cpus, from, pair);
            let outcome = lab.play(&mut bench, from + PAIRS * pair);
            cycles += outcome.cycles;
            calls += outcome.count.calls();
            hash.update(outcome.hash);
        }
        let cycles_per_pair = 2.0 * cycles as f64 / calls as f64;
        let pairs_per_s = f64::from(cpus) * machine.ghz * 1e9 / cycles_per_pair;
        Ok(Run { cycles_per_pair, pairs_per_s, hash: hex(&hash.finalize()) })
    })
}
