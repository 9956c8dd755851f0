//! `pcp-kbuild`, `pcp-unix`, `pcp-sctp` (2023): per-CPU lists that tune themselves, step by step:
//! a build on 224 CPUs, and two socket benchmarks on 128.
//!
//! Each published column is a figure of the run. Relative ones stand against the kernel before the
//! series (base, 100). The build and `bw_unix` do a fixed amount of work, so their counts are per
//! call; netperf runs for a fixed time, so its are per second. What is called `free_high` counts
//! bulk frees that a stream of large frees forced: pages freed because lists are full cannot fall
//! to a tenth while as many pages as before are allocated from the zone.
//!
//! The base row's contention sets one number of the workloads of the build and of SCTP. Below the
//! published rows stand a later kernel and our own policy, and of each row the memory on lists: at
//! its peak, and after a minute in which the machine is idle.

use sha2::{Digest, Sha256};
use zonal_core::types::CpuId;

use super::published::Published;
use super::rows;
use super::table::{Cell, Experiment, Extent, Options, Progress, Table};
use crate::LabError;
use crate::machine::Machine;
use crate::provenance::{Label, Provenance, given};
use crate::recipe;
use crate::run::{Figures, LOOKS, Plan, look};
use crate::sim::{Lab, Spec};

/// The build.
pub const KBUILD: Experiment = Experiment {
    name: "pcp-kbuild",
    about: "2023: kernel builds on 224 CPUs, by the steps of the per-CPU lists' tuning",
    target_percent: 3.0,
    sizes: true,
    run: |options, progress| STUDIES[0].run(&KBUILD, options, progress),
};

/// Local sockets.
pub const UNIX: Experiment = Experiment {
    name: "pcp-unix",
    about: "2023: lmbench over AF_UNIX on 128 CPUs, by the steps of the per-CPU lists' tuning",
    target_percent: 10.0,
    sizes: true,
    run: |options, progress| STUDIES[1].run(&UNIX, options, progress),
};

/// SCTP.
pub const SCTP: Experiment = Experiment {
    name: "pcp-sctp",
    about: "2023: netperf over SCTP on 128 CPUs, by the steps of the per-CPU lists' tuning",
    target_percent: 10.0,
    sizes: true,
    run: |options, progress| STUDIES[2].run(&SCTP, options, progress),
};

/// The workload, and how its figures become the table's.
struct Study {
    table: &'static str,
    /// What the announcement says of memory.
    memory: Option<&'static str>,
    machine: &'static str,
    workload: &'static str,
    warm_us: u64,
    run_us: u64,
    /// One of so many parts is played where the experiment is to be brief.
    brief_part: u64,
    columns: &'static [Column],
    /// Known omissions that may explain cells beyond their target.
    left_out: &'static str,
}

struct Column {
    name: &'static str,
    of: fn(&Run) -> f64,
    /// Against the base row, which is 100; by the inverse, for times.
    relative: bool,
    /// How near it has to be, in points.
    points: Option<f64>,
}

/// Result of a row.
struct Run {
    figures: Figures,
    /// Pages on lists after a minute of rest.
    rested: u64,
    /// Pages of files that are in memory then.
    files: u64,
}

impl Run {
    fn get(&self, name: &str) -> f64 {
        self.figures.get(name).unwrap_or_default()
    }
    fn per_call(&self, name: &str) -> f64 {
        self.get(name) / self.get("calls").max(1.0)
    }
}

const CONTENTION: Column = Column {
    name: "lock_contention_percent",
    of: |run| run.get("lock_wait_percent"),
    relative: false,
    points: Some(3.0),
};
const MEMORY: Column = Column {
    name: "memory_peak",
    of: |run| run.get("memory_pages_max"),
    relative: true,
    points: Some(10.0),
};
const MEMORY_END: Column = Column {
    name: "memory_end",
    of: |run| (run.files + run.rested) as f64,
    relative: true,
    points: Some(10.0),
};
const LISTS_PEAK: Column = Column {
    name: "lists_peak_pages",
    of: |run| run.get("listed_pages_max"),
    relative: false,
    points: None,
};
const LISTS_END: Column =
    Column { name: "lists_end_pages", of: |run| run.rested as f64, relative: false, points: None };
/// Of the total of a run that does a fixed amount of work.
const fn per_work(name: &'static str, of: fn(&Run) -> f64) -> Column {
    Column { name, of, relative: true, points: Some(10.0) }
}
const SCORE: Column =
    Column { name: "score", of: |run| run.get("calls_per_s"), relative: true, points: Some(10.0) };
const MISSES: Column = Column {
    name: "cache_miss_rate_percent",
    of: |run| run.get("cache_miss_percent"),
    relative: false,
    points: Some(3.0),
};

given! {
    /// Refreshes of a rest: one a second for a minute.
    REST: u32 = 60,
        Provenance::sourced("vm.stat_interval: a second; a minute until lists are empty");
}

/// The source of the tables that name another table's.
const SERIES: &str = "Huang Ying, \"mm: PCP high auto-tuning\" v3, linux-mm, 2023.";

static STUDIES: [Study; 3] = [
    Study {
        table: include_str!("../../published/2023-pcp-autotune-kbuild.csv"),
        memory: Some(include_str!("../../published/2023-pcp-autotune-kbuild-memory.csv")),
        machine: "sapphire-2023-224",
        workload: "kbuild",
        warm_us: 1_000_000,
        run_us: 1_000_000,
        brief_part: 50,
        columns: &[
            Column {
                name: "build_time",
                of: |run| 1.0 / run.get("calls_per_s").max(1.0),
                relative: true,
                points: Some(3.0),
            },
            CONTENTION,
            per_work("free_high", |run| run.per_call("forced_drains")),
            per_work("alloc_zone", |run| {
                run.per_call("refilled_pages") + run.per_call("direct_pages")
            }),
            MEMORY,
            MEMORY_END,
            LISTS_PEAK,
            LISTS_END,
        ],
        left_out: "left out: the kernel's own memory, caches of other builds, and that sources \
                   of a kernel differ less in size than those of the recording, which memory_peak \
                   depends on; the end of a build, with one linker at a time, in which nothing is \
                   contended; tasks that are moved while they run, and blocks of slabs that are \
                   then freed behind a process' pages (free_high of patch1)",
    },
    Study {
        table: include_str!("../../published/2023-pcp-autotune-lmbench-af-unix.csv"),
        memory: None,
        machine: "icelake-2023-128",
        workload: "unix-stream",
        warm_us: 50_000,
        run_us: 50_000,
        brief_part: 10,
        columns: &[
            SCORE,
            CONTENTION,
            per_work("free_high", |run| run.per_call("forced_drains")),
            per_work("alloc_zone", |run| {
                run.per_call("refilled_pages") + run.per_call("direct_pages")
            }),
            MISSES,
            LISTS_PEAK,
            LISTS_END,
        ],
        left_out: "lines of a hold and of a block are those of every machine (cost::lock); 7 to 11 \
                   lines a hold, and two to three a block, would bring rows base and patch3 \
                   nearer; left out: locks of the sockets, work of a hold that is done before its \
                   lock is taken, and what moves tasks by the clock: pairs are even from the \
                   beginning",
    },
    Study {
        table: include_str!("../../published/2023-pcp-autotune-netperf-sctp-stream-many.csv"),
        memory: None,
        machine: "icelake-2023-128",
        workload: "sctp-many",
        warm_us: 50_000,
        run_us: 50_000,
        brief_part: 10,
        columns: &[
            SCORE,
            CONTENTION,
            per_work("free_high", |run| run.get("forced_drains")),
            per_work("alloc_zone", |run| run.get("refilled_pages") + run.get("direct_pages")),
            MISSES,
            LISTS_PEAK,
            LISTS_END,
        ],
        left_out: "left out: what moves tasks that are awake; locks other than the zones', and \
                   data other than pages', of which base's cache misses and the contention that \
                   is left in patch3 may be made",
    },
];

/// How many of [`ROWS`] were published.
const PUBLISHED_ROWS: usize = 6;
/// Rows of the tables, and rows that were never published, with what ran. The announcement's lists
/// held 361 and 367 pages before the series: its kernels had no huge pages that raise the reserve.
const ROWS: [(&str, &str); 8] = [
    ("base", "linux-6.6+watermark.min_free=linux"),
    ("patch1", "pcp-patch1+watermark.min_free=linux"),
    ("patch3", "pcp-patch3+watermark.min_free=linux"),
    ("patch5", "pcp-patch5+watermark.min_free=linux"),
    ("patch7", "pcp-patch7+watermark.min_free=linux"),
    ("patch9", "pcp-patch9+watermark.min_free=linux"),
    ("linux-6.18", "linux-6.18+watermark.min_free=linux"),
    ("zonal", "zonal"),
];

impl Study {
    fn run(
        &self,
        experiment: &Experiment,
        options: &Options,
        progress: Progress<'_>,
    ) -> Result<Table, LabError> {
        let published = Published::parse(self.table);
        let memory = self.memory.map(Published::parse);
        let machine = options.machine(self.machine)?;
        let mut rows: Vec<(String, Machine, &str)> = Vec::new();
        let played = match options.extent {
            Extent::Whole => &ROWS[..],
            Extent::Published | Extent::Brief => &ROWS[..PUBLISHED_ROWS],
        };
        for (row, policy) in played {
            rows.push(((*row).to_owned(), machine.clone(), *policy));
        }
        for cpus in &options.cpus {
            let sized = machine.resized(*cpus)?;
            for (row, policy) in played {
                rows.push((format!("{row}, {cpus} CPUs"), sized.clone(), *policy));
            }
        }
        let runs = rows::all(&rows, 2 * LOOKS, progress, |(_, machine, policy), looked| {
            self.one(machine, policy, options, looked)
        })?;
        let (mut cells, mut hash) = (Vec::new(), Sha256::new());
        for (at, ((row, ..), run)) in rows.iter().zip(&runs).enumerate() {
            let base = &runs[at - at % played.len()];
            hash.update(&run.figures.hash);
            for column in self.columns {
                let value = (column.of)(run);
                let whole = (column.of)(base);
                let relative = if whole == 0.0 { 0.0 } else { 100.0 * value / whole };
                let simulated = if column.relative { relative } else { value };
                let known = published.figure(row, column.name);
                let known = known.or_else(|| memory.as_ref()?.figure(row, column.name));
                let mut cell = Cell::new(row, column.name, known, simulated);
                cell.points = column.points;
                if row == ROWS[0].0 && column.relative {
                    cell.label = cell.label.map(|_| Label::Reference);
                }
                cells.push(cell);
            }
        }
        let ran = (machine.name.as_str(), options);
        let source = match published.source.split_once(" Same source") {
            Some((what, _)) => format!("{what} Source: {SERIES}"),
            None => published.source,
        };
        Ok(Table { cells, notes: self.notes(), ..experiment.table(ran, source, hash) })
    }

    fn one(
        &self,
        machine: &Machine,
        policy: &str,
        options: &Options,
        looked: &mut dyn FnMut(),
    ) -> Result<Run, LabError> {
        let (policy, seed) = (recipe::policy(policy)?, options.seed);
        let mut plan = Plan::new(machine.clone(), policy, self.workload.parse()?, seed);
        let part = if options.extent == Extent::Brief { self.brief_part } else { 1 };
        (plan.warm_us, plan.run_us) = (self.warm_us / part, self.run_us / part);
        let cpus = plan.check()?;
        let spec = Spec { machine: machine.clone(), policy, seed };
        let mut program = plan.workload.program(cpus)?;
        spec.run(|lab| {
            let figures = plan.measure(lab, cpus, program.as_mut(), looked);
            lab.allocator.platform().charge(false);
            program.stop(lab);
            let rested = rest(lab);
            Ok(Run { figures, rested, files: lab.pages() })
        })
    }

    fn notes(&self) -> Vec<String> {
        vec![
            format!(
                "{} ms of {} are played, after as many that are not counted",
                self.run_us / 1000,
                self.workload
            ),
            "rows linux-6.18 and zonal, and lists_*, were never published; lists_end is after a \
             minute in which nothing runs"
                .into(),
            "contention: cycles of waiting for zone locks over all cycles of busy CPUs. free_high: \
             bulk frees that streams of large frees forced"
                .into(),
            self.left_out.into(),
        ]
    }
}

/// Nothing runs for a minute: lists shrink. Returns the pages that stay on them.
pub(super) fn rest(lab: &mut Lab<'_>) -> u64 {
    for cpu in (0..REST).flat_map(|_| 0..lab.machine.cpus()) {
        lab.allocator.platform().turn(cpu, 0);
        lab.allocator.refresh(CpuId(cpu));
    }
    look(lab).1
}
