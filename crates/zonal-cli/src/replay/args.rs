//! Flags of `zonal replay`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use zonal_replay::Recorded;

use crate::policy_args::PolicyArgs;

/// Flags of `zonal replay`.
///
/// Without a trace and without flags that choose a run, two runs of the bundled recording: its own
/// kernel's policy without memory, then the policy `zonal` on real memory.
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

    /// Where the pages are [default: real].
    #[arg(long, value_enum)]
    memory: Option<Memory>,

    /// How fast the events come. `recorded` needs `--memory real`.
    #[arg(long, value_enum, default_value_t = Speed::Max)]
    pub speed: Speed,

    /// Recorded actions of the kernel that the model uses, beyond allocations, frees and zoneinfo;
    /// separated by commas. Needs `--memory none`.
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

impl ReplayArgs {
    /// Where the pages are.
    pub fn memory(&self) -> Memory {
        self.memory.unwrap_or(Memory::Real)
    }

    /// Whether no argument selects a run: the first run shows both kinds.
    pub fn is_first_run(&self) -> bool {
        let chosen = self.trace.is_some() || self.memory.is_some() || self.speed != Speed::Max;
        let extras =
            self.explain.is_some() || self.fidelity.is_some() || !self.use_recorded.is_empty();
        self.policy.is_empty() && !chosen && !extras
    }
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

/// Recorded actions of the kernel.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum UseRecorded {
    /// When each CPU's statistics worker ran, on which lists decay; told in any case where the
    /// trace has events of the workers. Where it has none: in the rhythm that the drains without a
    /// free show. Without it: each whole second of the trace's clock.
    Decay,
    /// The migratetypes of pageblocks, as refills, drains and fallbacks of the whole trace tell
    /// them. Without it: Movable, or what most allocations in the pageblock asked for.
    Blocktypes,
    /// Which pages each list held at the start: those that leave it without having been seen to
    /// come; told in any case where they hold much and no event was lost. Without it: the first
    /// that a CPU allocates.
    Lists,
    /// Allocations that no event shows (the kernel's bulk allocator has none) as far as refills
    /// tell them; told in any case where they are many and no event was lost. Without it: those
    /// that a free of a page last seen freed tells.
    Untraced,
    /// Frees that went to the buddy because an interrupt came while its CPU used the lists; told in
    /// any case where they are many, all drains have events and none was lost. Without it: every
    /// free finds its lists.
    PastLists,
}

/// How fast the events of a replay come.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Speed {
    /// As fast as they can be served.
    Max,
    /// When they came in the recording.
    Recorded,
}

/// What a list of them asks to be taken from the recording.
pub fn recorded(list: &[UseRecorded]) -> Recorded {
    Recorded {
        decay: list.contains(&UseRecorded::Decay),
        blocktypes: list.contains(&UseRecorded::Blocktypes),
        lists: list.contains(&UseRecorded::Lists),
        untraced: list.contains(&UseRecorded::Untraced),
        past_lists: list.contains(&UseRecorded::PastLists),
    }
}
