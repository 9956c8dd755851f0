//! The command line: one definition per flag. Help and errors come from it.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Parser, Subcommand, ValueEnum};
use zonal_bench::Bench;
use zonal_core::policy::Policy;

use crate::advise::AdviseArgs;
use crate::conform::ConformArgs;
use crate::lab::args::LabCommand;
use crate::pressure::args::PressureArgs;
use crate::record::RecordArgs;
use crate::trace::args::TraceCommand;

use crate::state::args::{NodeArgs, StateArgs, VmstatArgs};

/// The zoned page allocator of an operating system, as a library: its tools.
#[derive(Parser, Debug)]
#[command(name = "zonal", version, about, max_term_width = 100)]
#[command(after_help = "Exit codes: 0 pass, 1 a property failed, 2 usage or bad input.")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Feeds a recorded trace of a kernel's page allocations and frees to the allocator, and prints
    /// what it did beside what the kernel did.
    Replay(ReplayArgs),
    /// Looks at traces, and makes others of them.
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Records the page allocator of the kernel that runs into a .zonal file. Needs root.
    Record(RecordArgs),
    /// Replays a trace under other settings, releases and numbers of CPUs, and says what each would
    /// have done. Every figure it prints is modelled.
    Advise(AdviseArgs),
    /// Puts back what a recorder changed, once that has ended.
    #[command(name = crate::record::GUARD, hide = true)]
    RecordGuard,
    /// Holds what kernels printed (watermarks, reserves, sizes of per-CPU lists, node order)
    /// to what the allocator computes for the same machines.
    Conform(ConformArgs),
    /// Measures the pool beside other allocators, all in the same loops of the same run.
    Bench(BenchArgs),
    /// Runs loads of files on a page cache over a pool that is too small for them, and prints what
    /// reclaim did beside what was published in 2011.
    Pressure(PressureArgs),
    /// Lists the values of a policy, what each decides and what it accepts.
    Policy(ShowPolicyArgs),
    /// Runs published experiments on simulated machines. Every figure it prints is simulated.
    #[command(subcommand)]
    Lab(LabCommand),
    /// Prints the state a replay ends in as /proc/zoneinfo.
    Zoneinfo(StateArgs),
    /// Prints the state a replay ends in as /proc/buddyinfo.
    Buddyinfo(StateArgs),
    /// Prints the state a replay ends in as /proc/pagetypeinfo.
    Pagetypeinfo(StateArgs),
    /// Prints the state a replay ends in as /proc/vmstat, or as a node's vmstat.
    Vmstat(VmstatArgs),
    /// Prints the state a replay ends in as the nodes' numastat.
    Numastat(NodeArgs),
    /// Prints the state a replay ends in as the nodes' meminfo.
    Meminfo(NodeArgs),
}

/// Flags of `zonal bench`.
#[derive(Args, Debug)]
pub struct BenchArgs {
    /// At most 60 seconds of measuring: fewer cells, fewer and shorter rounds.
    #[arg(long)]
    pub quick: bool,

    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub json: bool,

    /// Print the summary as Markdown.
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,

    /// Write every row to this file too.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Measure only this subject, beside the limit; may be repeated.
    #[arg(long, value_name = "SUBJECT")]
    pub only: Vec<String>,

    /// Measure only this bench; may be repeated.
    #[arg(long, value_name = "BENCH", value_parser = bench)]
    pub bench: Vec<Bench>,
}

fn bench(name: &str) -> Result<Bench, String> {
    let names = || Bench::ALL.map(Bench::name).join(", ");
    let found = Bench::ALL.into_iter().find(|bench| bench.name() == name);
    found.ok_or_else(|| format!("no such bench; there are {}", names()))
}

/// Flags of `zonal replay`.
#[derive(Args, Debug)]
pub struct ReplayArgs {
    /// A trace of any form (see `zonal trace`), or the directory of a recording. Without it: the
    /// bundled recording of a build of zlib (make -j4) on Linux 6.18.
    pub trace: Option<PathBuf>,

    /// Take the machine's description from the files of this directory, such as zoneinfo.txt and
    /// meta.json.
    #[arg(long, value_name = "DIR", requires = "trace")]
    pub machine: Option<PathBuf>,

    #[command(flatten)]
    pub policy: PolicyArgs,

    /// Where the pages are.
    #[arg(long, value_enum, default_value_t = Memory::Real)]
    pub memory: Memory,

    /// How fast the events come. `recorded` needs `--memory real`.
    #[arg(long, value_enum, default_value_t = Speed::Max)]
    pub speed: Speed,

    /// What the kernel recorded of its own doings that the model is told, beyond allocations, frees
    /// and zoneinfo; separated by commas. Needs `--memory none`.
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',')]
    pub use_recorded: Vec<UseRecorded>,

    /// Write a page with plots of model and kernel over time to this file too, and the numbers to
    /// the report. Needs `--memory none`.
    #[arg(long, value_name = "FILE")]
    pub fidelity: Option<PathBuf>,

    /// Stop after this many events of the trace.
    #[arg(long, value_name = "EVENTS", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,

    /// Explain this allocation of the trace, counted from 1: each zone the walk comes to, what it
    /// has and needs, and the step that answers or refuses. "LB D.4" is the rule's section in
    /// docs/linux. Needs `--memory none`.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub explain: Option<u64>,

    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
}

/// Flags that say whose rules the allocator follows.
#[derive(Args, Clone, Debug)]
pub struct PolicyArgs {
    #[arg(long, value_name = "POLICY", default_value = "zonal", value_parser = preset)]
    #[arg(help = policy_help())]
    policy: Policy,

    /// Change one value of the policy; may be repeated. `zonal policy` lists the keys.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// Flags of `zonal policy`.
#[derive(Args, Debug)]
pub struct ShowPolicyArgs {
    #[command(flatten)]
    pub policy: PolicyArgs,

    /// Show only the values that differ from those of this policy.
    #[arg(long, value_name = "POLICY", value_parser = preset)]
    pub against: Option<Policy>,

    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// Where the pages of a replay are.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Memory {
    /// A pool of real memory on this machine, one thread per recorded CPU, one word written to
    /// each page.
    Real,
    /// Nowhere: one thread plays all CPUs of the recorded machine, with its zones, in its time.
    None,
}

/// What the kernel recorded of its own doings.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum UseRecorded {
    /// When each CPU's statistics worker ran, on which lists decay. Without it: each whole second
    /// of the trace's clock. Where the trace has no events of the workers: in the rhythm that the
    /// drains without a free show.
    Decay,
    /// The migratetypes of pageblocks, as refills, drains and fallbacks of the whole trace tell
    /// them. Without it: Movable, or what most allocations in the pageblock asked for.
    Blocktypes,
    /// Which pages each list held at the start: those that leave it without having been seen to
    /// come. Without it: the first that a CPU allocates.
    Lists,
    /// Allocations that no event shows (the kernel's bulk allocator has none) as far as refills
    /// tell them. Without it: those that a free of a page last seen freed tells.
    Untraced,
}

/// How fast the events of a replay come.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Speed {
    /// As fast as they can be served.
    Max,
    /// When they came in the recording.
    Recorded,
}

impl PolicyArgs {
    /// The policy, with the values that were set.
    ///
    /// # Errors
    /// A key that is none, or a value that is not accepted or does not go with the others.
    pub fn policy(&self) -> anyhow::Result<Policy> {
        let mut policy = self.policy;
        apply(&mut policy, &self.set)?;
        Ok(policy)
    }
}

/// Changes values of a policy, each given as `KEY=VALUE`.
///
/// # Errors
/// A key that is none, or a value that is not accepted or does not go with the others.
pub fn apply(policy: &mut Policy, settings: &[String]) -> anyhow::Result<()> {
    for text in settings {
        let (key, value) = text.split_once('=').with_context(|| {
            format!("--set {text}: expected KEY=VALUE, as --set pcp.scale_max=3")
        })?;
        let set = policy.set(key, value);
        set.map_err(|error| anyhow::anyhow!("--set {text}: {error}"))?;
    }
    Ok(())
}

fn preset_names() -> String {
    Policy::PRESETS.map(|policy| policy.name).join(", ")
}

fn policy_help() -> String {
    format!("Whose rules the allocator follows: {}", preset_names())
}

/// A preset by name.
pub fn preset(name: &str) -> Result<Policy, String> {
    Policy::preset(name).ok_or_else(|| format!("no such policy; there are {}", preset_names()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_names_every_policy() {
        let mut command = Cli::command();
        let replay = command.find_subcommand_mut("replay").unwrap();
        let help = replay.render_long_help().to_string();
        for preset in Policy::PRESETS {
            assert!(help.contains(preset.name), "{} is missing in: {help}", preset.name);
        }
    }
}
