//! The flags of `zonal lab`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What a machine may be called.
pub const MACHINE_HELP: &str = "A name of `zonal lab machines`, a FILE.toml, or `this`; \
    another size of it as NAME@CPUS or NAME@CPUS/NODES";

/// What to do in the lab.
#[derive(Subcommand, Debug)]
pub enum LabCommand {
    /// Lists the experiments and the machines.
    List(ListArgs),
    /// Lists the machines.
    Machines(ListArgs),
    /// Prints a machine: each figure, and where it is from.
    Machine(MachineArgs),
    /// Measures this machine, and stores it as the machine `this`.
    Calibrate(CalibrateArgs),
    /// Runs an experiment and prints published, simulated and error, cell by cell.
    Run(RunArgs),
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
