//! The flags of `zonal lab`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use zonal_lab::recipe::KEYS;
use zonal_lab::run::{RUN_US, WARM_US};
use zonal_lab::sweep::Shard;
use zonal_lab::workload::KINDS;

/// What a run is without flags.
const MACHINE: &str = "broadwell-2017-88";
const WORKLOAD: &str = "burst";
const POLICY: &str = "zonal";
const SEED: u64 = 1;

/// Forms of a machine's name.
pub const MACHINE_HELP: &str = "A name of `zonal lab machines`, a FILE.toml, or `this`; \
    another size of it as NAME@CPUS or NAME@CPUS/NODES";

/// What to do in the lab.
#[derive(Subcommand, Debug)]
pub enum LabCommand {
    /// Lists the experiments, the machines, and the workloads with their numbers.
    List(ListArgs),
    /// Lists the machines.
    Machines(ListArgs),
    /// Prints a machine: each figure, and where it is from.
    Machine(MachineArgs),
    /// Measures this machine, and stores it as the machine `this`.
    Calibrate(CalibrateArgs),
    /// Runs an experiment and prints published, simulated and error, cell by cell.
    Run(RunArgs),
    /// Runs one workload on one machine under one policy and prints its figures.
    Once(OnceArgs),
    /// Makes a run for every combination of some values, into one CSV file. An interrupted sweep
    /// goes on where it was.
    Sweep(SweepArgs),
    /// Runs one workload under two policies: what changed, and the counters that explain it.
    Compare(CompareArgs),
    /// Cuts a recorded build into the jobs that the workload kbuild plays, and prints them.
    Jobs(JobsArgs),
    /// Runs every experiment and a sweep over sizes, and writes one page with all tables, plots,
    /// seeds and commands.
    Report(ReportArgs),
    /// Plays each published table again, without one mechanism of the model after the other, and
    /// says what the table owes to it.
    Ablation(AblationArgs),
}

/// Flags of `zonal lab list`.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `zonal lab machine`.
#[derive(Args, Debug)]
pub struct MachineArgs {
    #[arg(help = MACHINE_HELP)]
    pub machine: String,

    /// Print the machine's file instead, to start another one from.
    #[arg(long)]
    pub toml: bool,

    /// Print one JSON object instead of a table.
    #[arg(long, conflicts_with = "toml")]
    pub json: bool,
}

/// Flags of `zonal lab calibrate`.
#[derive(Args, Debug)]
pub struct CalibrateArgs {
    /// Write the machine to this file, instead of where `this` is looked for.
    #[arg(long, short, value_name = "FILE.toml")]
    pub output: Option<PathBuf>,

    /// Measure memory in a smaller buffer, which takes less time and less memory.
    #[arg(long)]
    pub quick: bool,

    /// Change no setting of the host. Without it, root also measures what the kernel takes to move
    /// a block: for some seconds vm.percpu_pagelist_high_fraction is set to 8 and to 1000000, in
    /// turns, and then put back.
    #[arg(long)]
    pub no_touch: bool,

    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `zonal lab run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// The experiment; `zonal lab list` names them.
    pub experiment: String,

    /// What random choices start from. The same seed gives the same result, to the last bit.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// Run the experiment's machine with these numbers of CPUs too, as 2,8,512.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub cpus: Vec<u32>,

    /// Measure on this machine what the experiment simulates, as far as a process can have it,
    /// instead of simulating it. For vmstat-update-cost.
    #[arg(long, conflicts_with_all = ["cpus", "csv", "html", "seed"])]
    pub measure: bool,

    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,

    /// Print one line of comma-separated values for each cell instead of a table.
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,

    /// Write a page with the table and plots to this file too. It needs nothing else to be shown.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Flags of `zonal lab jobs`.
#[derive(Args, Debug)]
pub struct JobsArgs {
    /// A recording of a build, of any form. `--workload kbuild:FILE` takes it too, or what this
    /// prints in a FILE.jobs.
    pub recording: String,

    /// Print one JSON object, which `--workload` does not take.
    #[arg(long)]
    pub json: bool,
}

/// Parameters of a run, besides its policy.
#[derive(Args, Debug)]
pub struct RunOfArgs {
    #[arg(long, default_value = MACHINE, help = MACHINE_HELP)]
    pub machine: String,

    #[arg(long, default_value = WORKLOAD, help = workload_help())]
    pub workload: String,

    /// How many CPUs of the machine take part. Without it: all.
    #[arg(long, value_name = "CPUS")]
    pub busy: Option<u32>,

    /// What random choices start from. The same seed gives the same run, to the last cycle.
    #[arg(long, default_value_t = SEED)]
    pub seed: u64,

    /// Microseconds of virtual time before anything is measured.
    #[arg(long, value_name = "MICROSECONDS", default_value_t = WARM_US)]
    pub warm_us: u64,

    /// Microseconds of virtual time that are measured.
    #[arg(long, value_name = "MICROSECONDS", default_value_t = RUN_US)]
    pub run_us: u64,

    /// Change one thing: a value of the policy, `cpus`, or `workload.PARAMETER`; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

/// Forms of a policy's name.
const POLICY_HELP: &str = "A preset of `zonal policy --json`; with some values changed as \
    NAME+KEY=VALUE+KEY=VALUE";

fn workload_help() -> String {
    let kinds: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
    format!(
        "What the CPUs do, as NAME or NAME:PARAMETER=NUMBER,...: {}. `zonal lab list` says what \
         they are and which numbers they take",
        kinds.join(", ")
    )
}

/// Flags of `zonal lab once`.
#[derive(Args, Debug)]
pub struct OnceArgs {
    #[command(flatten)]
    pub of: RunOfArgs,

    #[arg(long, default_value = POLICY, help = POLICY_HELP)]
    pub policy: String,

    /// Write the run to this file too, as a recording that says which run it is of: from the
    /// machine's start on, warm-up included. The policy must stand for a kernel, as linux-6.18.
    #[arg(long, value_name = "FILE.zonal")]
    pub record: Option<PathBuf>,

    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `zonal lab sweep`.
#[derive(Args, Debug)]
pub struct SweepArgs {
    #[command(flatten)]
    pub of: RunOfArgs,

    #[arg(long, default_value = POLICY, help = POLICY_HELP)]
    pub policy: String,

    #[arg(long, value_name = "KEY=VALUE,VALUE", help = over_help())]
    pub over: Vec<String>,

    /// Make each run with these seeds, as 1,2,3.
    #[arg(long, value_name = "LIST", conflicts_with = "seed")]
    pub seeds: Option<String>,

    /// The file of the runs, one row each. Runs that it has already are not made again. A
    /// FILE.parquet gets them when all are made; until then they are in FILE.parquet.csv.
    #[arg(long, short, value_name = "FILE.csv", required_unless_present = "list")]
    pub output: Option<PathBuf>,

    /// Print the text of each row instead, one line of JSON each: all that its run depends on.
    #[arg(long, conflicts_with_all = ["output", "html", "json", "jobs", "merge"])]
    pub list: bool,

    /// Make only a part of the rows, as 3/8: with N processes or machines, 1/N to N/N.
    #[arg(long, value_name = "I/N", conflicts_with_all = ["html", "merge"])]
    pub shard: Option<Shard>,

    /// Make nothing: join the rows of these files with those that the output has, each row once.
    /// Without --over all of them.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "jobs")]
    pub merge: Vec<PathBuf>,

    /// Also write a page with plots of contention, throughput and memory to this file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Runs at the same time. Without it: one for each CPU of this machine.
    #[arg(long, short, value_name = "THREADS", value_parser = clap::value_parser!(u16).range(1..))]
    pub jobs: Option<u16>,

    /// Print one JSON object with all rows instead of a line.
    #[arg(long)]
    pub json: bool,
}

impl SweepArgs {
    /// Flags that say what runs are like, where they have other values than without them.
    pub fn given(&self) -> Vec<&'static str> {
        let RunOfArgs { machine, workload, busy, seed, warm_us, run_us, set } = &self.of;
        let flags = [
            ("--machine", machine != MACHINE),
            ("--workload", workload != WORKLOAD),
            ("--busy", busy.is_some()),
            ("--seed", *seed != SEED),
            ("--warm-us", *warm_us != WARM_US),
            ("--run-us", *run_us != RUN_US),
            ("--set", !set.is_empty()),
            ("--policy", self.policy != POLICY),
        ];
        flags.into_iter().filter(|(_, is_given)| *is_given).map(|(flag, _)| flag).collect()
    }
}

fn over_help() -> String {
    let keys: Vec<String> = KEYS.iter().map(|(key, what)| format!("{key} ({what})")).collect();
    format!(
        "Make a run for each of these values; may be repeated, for every combination. Values that \
         hold commas are separated by semicolons. Any value of a policy (`zonal policy`), or: {}",
        keys.join(", ")
    )
}

/// Flags of `zonal lab compare`.
#[derive(Args, Debug)]
pub struct CompareArgs {
    #[arg(help = POLICY_HELP)]
    pub one: String,

    /// The policy that it is compared with, in the same form.
    pub other: String,

    #[command(flatten)]
    pub of: RunOfArgs,

    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `zonal lab report`.
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// The page. Rows of its sweep are kept beside it, so that a second report is quick.
    #[arg(long, short, value_name = "FILE.html")]
    pub output: PathBuf,

    /// What random choices start from.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// Only this experiment, and no sweep; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub experiment: Vec<String>,

    /// Print one JSON object with all tables of the experiments instead of a line.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `zonal lab ablation`.
#[derive(Args, Debug)]
pub struct AblationArgs {
    /// Only this experiment; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub experiment: Vec<String>,

    /// Only this mechanism; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub mechanism: Vec<String>,

    /// What random choices start from.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// Play the experiment's own time instead of a part of it.
    #[arg(long)]
    pub whole_time: bool,

    /// List the mechanisms, and what is left without each.
    #[arg(long, conflicts_with_all = ["experiment", "mechanism", "whole_time", "keep"])]
    pub list: bool,

    /// Keep each table in this file as soon as it is finished, and play none again that it has: so
    /// an ablation that was interrupted goes on, and one of all experiments joins those of each.
    #[arg(long, value_name = "FILE.jsonl")]
    pub keep: Option<PathBuf>,

    /// Write a page with a small plot for each experiment.
    #[arg(long, value_name = "FILE.html")]
    pub html: Option<PathBuf>,

    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub json: bool,

    /// Print one line of comma-separated values for each cell instead of tables.
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
}
