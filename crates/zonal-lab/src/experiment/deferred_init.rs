//! `deferred-init` (2019): per-CPU lists that were sized before the memory was online, and the cost
//! for a kernel build on 256 CPUs.
//!
//! Two tables. The first counts the pcps by batch and high; it follows from the zones alone. The
//! second is a build: processes that touch pages and exit, on every node's one Normal zone. With
//! batch 7 the zone locks are taken nine times as often as with 63, and saturate.
//!
//! Three numbers of the workload are set by the three cells of the column without the fix: how much
//! a process works between two new pages (system time), how many processes run (elapsed), how many
//! pages the build touches (user time). What zeroing and writing the pages costs follows from the
//! machine's caches and memory. The column with the fix, and the changes, follow; but what else the
//! kernel works on a fault, and what a shared core gives, were estimated with both columns in view,
//! so they are no blind predictions.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};
use zonal_core::alloc::Allocator;
use zonal_core::platform::Platform;
use zonal_core::policy::Policy;
use zonal_core::types::CpuId;

use super::published::Published;
use super::rows;
use super::table::{Cell, Experiment, Extent, FiguresIn, Options, Progress, Table};
use crate::LabError;
use crate::provenance::{Provenance, given};
use crate::sim::{Lab, Outcome, Spec};
use crate::units::hex;
use crate::workload::{Kernbench, PAGES_OF_A_BUILD};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: NAME,
    about: "2019: a kernel build on 256 CPUs, with lists sized before and after deferred memory",
    target_percent: 10.0,
    sizes: false,
    run,
};

given! {
    /// Milliseconds of virtual time before anything is measured: several lives of a process.
    WARM_MS: f64 = 40.0,
        Provenance::estimated("several lives of a process");
    /// Milliseconds that are measured. With half of it, seeds differ by 3 percent in system time.
    RUN_MS: f64 = 120.0,
        Provenance::estimated("with half of it, seeds differ by 3 percent in system time");
    /// The same where the experiment is to be brief.
    BRIEF_MS: f64 = 20.0,
        Provenance::estimated("a part of it, for ablations");
}

const NAME: &str = "deferred-init";
const MACHINE: &str = "rome-2019-256";
const BUILD: &str = include_str!("../../published/2019-deferred-init-kernbench.csv");
const PAGESETS: &str = include_str!("../../published/2019-deferred-init-pagesets.csv");
/// The columns of the build, the rows of the pagesets, and what ran.
const KERNELS: [(&str, &str, Policy); 2] =
    [("vanilla", "before", Policy::LINUX_5_4), ("resetpcpu", "after", Policy::LINUX_5_4_RESETPCPU)];
const METRICS: [&str; 3] = ["user_amean", "system_amean", "elapsed_amean"];
/// Changes that were published in percent, as the difference of the two columns.
const CHANGE: &str = "change_percent";

/// Parts in which a build is played, for the progress bar.
const PARTS: u64 = 10;

/// Stores by batch and high.
type PcpCounts = BTreeMap<(u32, u32), u64>;

fn run(options: &Options, progress: Progress<'_>) -> Result<Table, LabError> {
    let published = Published::parse(BUILD);
    let machine = options.machine(MACHINE)?;
    let (mut cells, mut hash) = (Vec::new(), Sha256::new());
    let mut figures = Vec::new();
    let played = rows::all(&KERNELS, PARTS, progress, |(_, _, policy), looked| {
        let spec = Spec { machine: machine.clone(), policy: *policy, seed: options.seed };
        spec.run_deferred(|lab| {
            lab.allocator.finish_growth()?;
            let pcp_counts = pcp_counts(&lab.allocator);
            let (seconds, hash) = build(lab, options.extent, looked);
            Ok((pcp_counts, seconds, hash))
        })
    })?;
    for ((column, when, _), (pcp_counts, seconds, run)) in KERNELS.into_iter().zip(played) {
        hash.update(run);
        hash.update(format!("{pcp_counts:?}"));
        cells.extend(compare(when, &pcp_counts));
        for (metric, simulated) in METRICS.into_iter().zip(seconds) {
            cells.push(Cell::new(metric, column, published.figure(metric, column), simulated));
        }
        figures.push(seconds);
    }
    for (at, metric) in METRICS.into_iter().enumerate() {
        let change = |from: f64, to: f64| 100.0 * (to / from - 1.0);
        let known = KERNELS.map(|(column, ..)| published.figure(metric, column));
        let known = known[0].zip(known[1]).map(|(from, to)| change(from, to));
        cells.push(Cell::new(metric, CHANGE, known, change(figures[0][at], figures[1][at])));
    }
    let ran = (machine.name.as_str(), options);
    Ok(Table {
        cells,
        figures_in: FiguresIn::Rows,
        notes: vec![
            format!(
                "{RUN_MS} ms of the build are played, and scaled up to all pages that it touches"
            ),
            "set, each by one cell of the column vanilla: nanoseconds that a process works \
             between two new pages (system), processes that run (elapsed), pages of the build \
             (user)"
                .into(),
            "from the machine's figures: zeroing and writing each page, by where its lines are; \
             waits for zone locks; clocks"
                .into(),
            "estimates, chosen with both columns in view before contents were modelled, and not \
             changed since but for the 0.43 microseconds of zeroing that they held: the rest of a \
             fault, unmapping, a process, what a shared core gives; so the second column is no \
             blind prediction"
                .into(),
        ],
        ..EXPERIMENT.table(ran, published.source, hash)
    })
}

/// User, system and elapsed seconds of the whole build, and a hash of the part that was played.
/// Calls `looked` after each of its parts.
fn build(lab: &mut Lab<'_>, extent: Extent, looked: &mut dyn FnMut()) -> ([f64; 3], String) {
    let cycles = |ms: f64| (ms * lab.machine.ghz * 1e6) as u64;
    let length = cycles(if extent == Extent::Brief { BRIEF_MS } else { RUN_MS });
    let from = cycles(WARM_MS);
    let cpus = lab.machine.cpus();
    let mut build = Kernbench::usual(cpus);
    lab.start(cpus, 0, from / 10);
    lab.play(&mut build, from);
    let before = build.touched;
    let (mut outcome, mut hash) = (Outcome::default(), Sha256::new());
    for part in 1..=PARTS {
        let next = lab.play(&mut build, from + length * part / PARTS);
        hash.update(&next.hash);
        outcome.add(&next);
        looked();
    }
    let part = (build.touched - before) as f64 / PAGES_OF_A_BUILD;
    let hz = lab.machine.ghz * 1e9;
    let user = outcome.spent.user as f64 / hz / part;
    let system = outcome.cycles as f64 / hz / part - user;
    ([user, system, length as f64 / hz / part], hex(&hash.finalize()))
}

fn pcp_counts<P: Platform>(allocator: &Allocator<'_, P>) -> PcpCounts {
    let mut counts = PcpCounts::new();
    for zone in allocator.zones() {
        for cpu in 0..allocator.cpus() {
            let pcp = allocator.pcp(zone.id(), CpuId(cpu as u32));
            *counts.entry((pcp.batch(), pcp.high())).or_insert(0) += 1;
        }
    }
    counts
}

/// One cell for each kind of store, of the published ones and of those that came out.
fn compare(when: &str, simulated: &PcpCounts) -> Vec<Cell> {
    let mut both: BTreeMap<(u32, u32), (Option<f64>, f64)> = BTreeMap::new();
    for line in PAGESETS.lines().filter(|line| line.starts_with(when)) {
        let fields: Vec<u32> = line.split(',').filter_map(|field| field.parse().ok()).collect();
        if let [count, batch, high] = fields[..] {
            both.entry((batch, high)).or_default().0 = Some(f64::from(count));
        }
    }
    for (kind, count) in simulated {
        both.entry(*kind).or_default().1 = *count as f64;
    }
    let cell = |((batch, high), (known, count)): ((u32, u32), (Option<f64>, f64))| {
        // Unpublished rows are absent.
        let row = format!("batch {batch}, high {high}");
        Cell::new(&row, &format!("pagesets {when}"), Some(known.unwrap_or(0.0)), count)
    };
    both.into_iter().map(cell).collect()
}
