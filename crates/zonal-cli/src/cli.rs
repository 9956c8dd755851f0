//! The command line: one definition per flag. Help and errors come from it.

use clap::{Parser, Subcommand};

use crate::advise::AdviseArgs;
use crate::bench::BenchArgs;
use crate::conform::ConformArgs;
use crate::exporter::ExporterArgs;
use crate::lab::args::LabCommand;
use crate::policy::ShowPolicyArgs;
use crate::pressure::PressureArgs;
use crate::record::RecordArgs;
use crate::replay::args::ReplayArgs;
use crate::shell::{CompletionsArgs, ManArgs};
use crate::state::args::{NodeArgs, StateArgs, VmstatArgs};
use crate::top::TopArgs;
use crate::trace::args::TraceCommand;
use crate::verify::args::VerifyArgs;

/// The zoned page allocator of an operating system, as a library: its tools.
#[derive(Parser, Debug)]
#[command(name = "zonal", version, about, max_term_width = 100)]
#[command(after_help = "Exit codes: 0 pass, 1 a property failed, 2 usage or bad input; 128 and a \
                        signal's number where that ended the work early.")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Feeds a recorded trace of a kernel's page allocations and frees to the allocator, and prints
    /// its moves beside the kernel's.
    Replay(ReplayArgs),
    /// Looks at traces, and makes others of them.
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Records the page allocator of the kernel that runs into a .zonal file. Needs root.
    Record(RecordArgs),
    /// Replays a trace under other settings, releases and numbers of CPUs, and prints the effect of
    /// each. Every figure it prints is modelled.
    Advise(AdviseArgs),
    /// Tries a setting on this host: predicts, runs a load with and without it in random order, and
    /// says whether the prediction came true. Everything is put back. Needs root.
    Verify(VerifyArgs),
    /// Shows the page allocator of the kernel that runs, or a pool of another program, as it is
    /// now: zones, watermarks, lists, what moves in a second.
    Top(TopArgs),
    /// Serves the same as OpenMetrics over HTTP, for Prometheus.
    Exporter(ExporterArgs),
    /// Restores settings after a recorder has ended.
    #[command(name = crate::record::GUARD, hide = true)]
    RecordGuard,
    /// Compares texts of kernels (watermarks, reserves, sizes of per-CPU lists, node order) with
    /// the values that the allocator computes for the same machines.
    Conform(ConformArgs),
    /// Measures the pool beside other allocators, all in the same loops of the same run.
    Bench(BenchArgs),
    /// Runs loads of files on a page cache over a pool that is too small for them, and prints
    /// reclaim's figures beside those published in 2011.
    Pressure(PressureArgs),
    /// Lists the values of a policy, their meaning and what each accepts.
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
    /// Prints a script with which a shell completes the words of this program. For bash: `zonal
    /// completions bash > ~/.local/share/bash-completion/completions/zonal`.
    Completions(CompletionsArgs),
    /// Writes the pages of the manual into a directory.
    #[command(hide = true)]
    Man(ManArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use zonal_core::policy::Policy;

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
