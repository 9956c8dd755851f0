//! `pageblocks-2026`: pageblocks owned by CPUs (RFC of April 2026), depots, and Linux 6.19, beside
//! each other: who waits, who hoards, and what hours leave of the pageblocks. Nothing was published
//! for any of it, so no cell has a target, and no number of the model was chosen with one of these
//! in view.

use sha2::{Digest, Sha256};

use super::aging::{Aging, FULL, FULLER, Left, ORDERS, RECLAIM, RETRIES, left};
use super::pcp::rest;
use super::rows;
use super::table::{Cell, Experiment, Options, Progress, Table};
use crate::LabError;
use crate::machine::Machine;
use crate::provenance::{Provenance, given};
use crate::recipe;
use crate::run::{LOOKS, Plan, look};
use crate::sim::Spec;
use crate::units::{PAGE_BYTES, hex};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "pageblocks-2026",
    about: "2026: pageblocks owned by CPUs, depots and Linux 6.19 on four loads, 2 to 1024 CPUs",
    target_percent: 0.0,
    sizes: true,
    run,
};

given! {
    /// Milliseconds that are played, after as many that are not counted.
    RUN_MS: u64 = 10,
        Provenance::estimated("short, so that the runs of 1024 CPUs end within minutes");
    /// CPUs of a node.
    NODE_CPUS: u32 = 64, Provenance::estimated("half of a socket with 64 cores and their threads");
    /// Hours of the server.
    HOURS: u64 = 3,
        Provenance::estimated("as many as can be played within minutes");
    /// Its CPUs.
    AGING_CPUS: u32 = 8, Provenance::estimated("a small server");
    /// MiB of its memory.
    AGING_MIB: u64 = 2048, Provenance::estimated("turned over some ten times in an hour");
}

const MACHINE: &str = "sapphire-2023-224";
/// Sizes.
const SIZES: [u32; 5] = [2, 16, 64, 256, 1024];
const LOADS: [&str; 4] = ["purge", "process-exit", "unix-stream", "kbuild:groups=1,jobs=0"];
/// The first one is what times stand against.
const POLICIES: [&str; 4] = ["linux-6.18", "linux-6.19", "owned-2026", "zonal"];
const AGING: &str = "server for hours";
/// The same with little memory left.
const SHORT: &str = "server short of memory for hours";
/// Zonal has no pageblock types, which a server with unmovable pages needs.
const AGING_POLICIES: [&str; 4] =
    ["linux-6.18", "linux-6.19", "owned-2026", "zonal+mobility_grouping=on"];

/// A row to be run.
struct Row {
    machine: Machine,
    load: &'static str,
    policy: &'static str,
}

/// What it came to: the columns, of which the first are relative to the first policy.
struct Run {
    values: Vec<(String, f64, bool)>,
    hash: String,
}

fn run(options: &Options, progress: Progress<'_>) -> Result<Table, LabError> {
    let machine = options.machine(MACHINE)?;
    let sizes = if options.cpus.is_empty() { &SIZES[..] } else { &options.cpus };
    let mut rows = Vec::new();
    for load in LOADS {
        for cpus in sizes {
            let sized = sized(&machine, *cpus)?;
            rows.extend(POLICIES.map(|policy| Row { machine: sized.clone(), load, policy }));
        }
    }
    let mut small = machine.resized_nodes(AGING_CPUS, 1)?;
    small.memory_mib = AGING_MIB;
    for load in [AGING, SHORT] {
        rows.extend(AGING_POLICIES.map(|policy| Row { machine: small.clone(), load, policy }));
    }
    // The longest first.
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(rows[*at].machine.cpus()));
    let runs =
        rows::all(&order, 2 * LOOKS, progress, |at, looked| one(&rows[*at], options.seed, looked))?;
    let mut of_row: Vec<Option<Run>> = rows.iter().map(|_| None).collect();
    order.iter().zip(runs).for_each(|(at, run)| of_row[*at] = Some(run));
    let of_row: Vec<Run> = of_row.into_iter().flatten().collect();
    let (mut cells, mut hash) = (Vec::new(), Sha256::new());
    for (at, (row, run)) in rows.iter().zip(&of_row).enumerate() {
        hash.update(&run.hash);
        let base = &of_row[at - at % POLICIES.len()];
        let (load, _) = row.load.split_once(':').unwrap_or((row.load, ""));
        let name = format!("{load}, {} CPUs, {}", row.machine.cpus(), row.policy);
        for ((column, value, relative), (_, whole, _)) in run.values.iter().zip(&base.values) {
            let value =
                if *relative { 100.0 * value / whole.max(f64::MIN_POSITIVE) } else { *value };
            cells.push(Cell::new(&name, column, None, value));
        }
    }
    let source = "nothing was published".to_owned();
    Ok(Table { cells, notes: notes(), ..EXPERIMENT.table((MACHINE, options), source, hash) })
}

fn sized(machine: &Machine, cpus: u32) -> Result<Machine, LabError> {
    let nodes = if cpus.is_multiple_of(NODE_CPUS) { cpus / NODE_CPUS } else { 1 };
    Ok(machine.resized_nodes(cpus, nodes)?)
}

fn one(row: &Row, seed: u64, looked: &mut dyn FnMut()) -> Result<Run, LabError> {
    match row.load {
        AGING => aged(row, FULL, seed, looked),
        SHORT => aged(row, FULLER, seed, looked),
        load => loaded(row, load, seed, looked),
    }
}

fn loaded(row: &Row, load: &str, seed: u64, looked: &mut dyn FnMut()) -> Result<Run, LabError> {
    let policy = recipe::policy(row.policy)?;
    let mut plan = Plan::new(row.machine.clone(), policy, load.parse()?, seed);
    (plan.warm_us, plan.run_us) = (RUN_MS * 1000, RUN_MS * 1000);
    let cpus = plan.check()?;
    let mut program = plan.workload.program(cpus)?;
    Spec { machine: row.machine.clone(), policy, seed }.run(|lab| {
        let figures = plan.measure(lab, cpus, program.as_mut(), looked);
        lab.allocator.platform().charge(false);
        program.stop(lab);
        let rested = rest(lab);
        let get = |name: &str| figures.get(name).unwrap_or_default();
        let mib = |pages: f64| pages * PAGE_BYTES as f64 / f64::from(1 << 20);
        let system = get("cycles_per_call") * get("system_percent");
        let values = [
            ("time", 1.0 / get("calls_per_s").max(f64::MIN_POSITIVE), true),
            ("system_time", system, true),
            ("zone_lock_wait_percent", get("lock_wait_percent"), false),
            ("owner_lock_wait_percent", get("owner_lock_wait_percent"), false),
            ("held_mib_max", mib(get("listed_pages_max")), false),
            ("held_mib_after_a_minute", mib(rested as f64), false),
        ];
        let values = values.map(|(name, value, relative)| (name.to_owned(), value, relative));
        Ok(Run { values: values.into(), hash: figures.hash })
    })
}

fn aged(row: &Row, full: u64, seed: u64, looked: &mut dyn FnMut()) -> Result<Run, LabError> {
    let policy = recipe::policy(row.policy)?;
    Spec { machine: row.machine.clone(), policy, seed }.run(|lab| {
        let hour = (row.machine.ghz * 3600.0 * 1e9) as u64;
        let cpus = row.machine.cpus();
        let (mut program, mut hash) = (Aging::new(full), Sha256::new());
        lab.start(cpus, 0, hour / 3600);
        let (mut values, mut held) = (Vec::new(), 0);
        let parts = 2 * LOOKS;
        for part in 1..=parts {
            let outcome = lab.play(&mut program, HOURS * hour * part / parts);
            hash.update(&outcome.hash);
            held = held.max(look(lab).1);
            looked();
        }
        lab.allocator.platform().charge(false);
        let Left { unusable, mixed } = left(lab);
        for (order, percent) in ORDERS.iter().zip(unusable) {
            values.push((format!("unusable_percent_order_{}", order.get()), percent, false));
        }
        values.push(("mixed_pageblocks_percent".to_owned(), mixed, false));
        let mib = |pages: u64| (pages * PAGE_BYTES) as f64 / f64::from(1 << 20);
        values.push(("held_mib_max".to_owned(), mib(held), false));
        values.push(("refused_slabs_percent".to_owned(), program.refused(), false));
        values.push(("reclaimed_mib".to_owned(), mib(program.reclaimed), false));
        hash.update(format!("{values:?}"));
        Ok(Run { values, hash: hex(&hash.finalize()) })
    })
}

fn notes() -> Vec<String> {
    vec![
        format!(
            "time: of the same number of calls, and system_time: of the kernel in them; both \
             against {} on the same CPUs, which is 100. Machines of {MACHINE}'s parts, with a node \
             for each {NODE_CPUS} CPUs; {RUN_MS} ms are played after as many that are not counted",
            POLICIES[0]
        ),
        "held: pages on lists, in depots and free in CPUs' own pageblocks; after_a_minute in which \
         nothing runs"
            .into(),
        format!(
            "{AGING}: {AGING_CPUS} CPUs, {AGING_MIB} MiB, {FULL} % in use (short of memory: \
             {FULLER} %), {HOURS} hours of processes, files and slabs, then all lists, depots and \
             pageblocks of CPUs are emptied. unusable: part of the free pages outside free blocks \
             of at least that order; mixed: of the pageblocks in use, those with pages of more \
             than one migratetype. A slab that is refused asks again up to {RETRIES} times, each \
             after {RECLAIM} pages of files are gone: reclaimed; refused: not served by that"
        ),
        "left out: lines of page structures that a CPU's pageblocks may keep near it; interrupts \
         that take a lock of an owner; what a kernel does where it may not wait for such a lock"
            .into(),
    ]
}
