//! Flags of the commands that print a state.

use std::path::PathBuf;

use clap::Args;
use zonal::text::Layout;

use crate::policy_args::PolicyArgs;

/// Flags of `zonal zoneinfo` and the other texts.
#[derive(Args, Debug)]
pub struct StateArgs {
    /// Directory of a recording, or its event stream: it is replayed on no memory, and the state
    /// it ends in is printed. Without it: the bundled recording.
    pub trace: Option<PathBuf>,

    #[command(flatten)]
    pub policy: PolicyArgs,

    /// Print as this kernel does, from 6.1 on. Without it: as the kernels that the policy stands
    /// for; 6.14 for those that stand for none.
    #[arg(long, value_name = "RELEASE")]
    pub layout: Option<Layout>,

    /// Stop after this many events of the trace.
    #[arg(long, value_name = "EVENTS", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,

    /// Read this file of a kernel instead and print it again; `-` is stdin.
    #[arg(long, value_name = "FILE")]
    #[arg(conflicts_with_all = ["trace", "policy", "set", "layout", "limit"])]
    pub of: Option<PathBuf>,

    /// Print one JSON object instead of the text.
    #[arg(long)]
    pub json: bool,
}

/// Flags of the texts that there are one of per node.
#[derive(Args, Debug)]
pub struct NodeArgs {
    /// Only this node, as the kernel's file of the node.
    #[arg(long, value_name = "NODE", conflicts_with = "of")]
    pub node: Option<u16>,

    #[command(flatten)]
    pub state: StateArgs,
}

/// Flags of `zonal vmstat`.
#[derive(Args, Debug)]
pub struct VmstatArgs {
    #[command(flatten)]
    pub node: NodeArgs,

    /// Print every counter that the allocator has as OpenMetrics text, zone by zone.
    #[arg(long, conflicts_with_all = ["of", "json", "node", "layout"])]
    pub openmetrics: bool,
}
