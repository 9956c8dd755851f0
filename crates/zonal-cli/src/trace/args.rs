//! Flags of `zonal trace`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use zonal_trace::make::Time;

/// What to do with a trace.
#[derive(Subcommand, Debug)]
pub enum TraceCommand {
    /// Prints the description of a trace, without reading its events.
    Info(ReadArgs),
    /// Reads all events and counts them.
    Stats(ReadArgs),
    /// Writes one page for a browser: the verdict of `zonal advise`, and plots of what happened.
    Report(ReportArgs),
    /// Writes the same trace in another form.
    Convert(ConvertArgs),
    /// Writes the part of a trace that lies between two times, on some CPUs, or of some threads.
    Cut(CutArgs),
    /// Writes a trace for more CPUs: copies side by side, each on its own CPUs, nodes and threads.
    Scale(ScaleArgs),
}

/// A trace to read.
#[derive(Args, Clone, Debug)]
pub struct InputArgs {
    /// A trace: .zonal, trace.dat, perf.data, text of tracefs, trace-cmd or perf, or the directory
    /// of a recording. `convert` reads .parquet and Perfetto traces too.
    pub trace: PathBuf,

    /// Take the machine's description from the files of this directory, such as zoneinfo.txt and
    /// meta.json.
    #[arg(long, value_name = "DIR")]
    pub machine: Option<PathBuf>,
}

/// Flags of `zonal trace info` and `stats`.
#[derive(Args, Debug)]
pub struct ReadArgs {
    #[command(flatten)]
    pub input: InputArgs,

    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `zonal trace report`.
#[derive(Args, Debug)]
pub struct ReportArgs {
    #[command(flatten)]
    pub input: InputArgs,

    /// The page.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,

    /// For the verdict, try only changes whose name begins so; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,

    /// Print one JSON object: the page, and the verdict in it.
    #[arg(long)]
    pub json: bool,
}

/// Where to write, and how.
#[derive(Args, Debug)]
pub struct OutputArgs {
    /// Where to write: FILE.zonal, FILE.txt or FILE.txt.zst for lines of text, `-` for a .zonal
    /// file on stdout, or a directory that does not exist yet for a recording in text. `convert`
    /// writes FILE.parquet too, for DuckDB, Polars and pandas, and FILE.perfetto-trace.
    pub output: PathBuf,

    /// Level of compression: 1 is fast, 19 is small.
    #[arg(long, default_value_t = 19, value_parser = clap::value_parser!(i32).range(1..=19))]
    pub level: i32,

    /// Print one JSON object: the file, its events and its bytes.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `zonal trace convert`.
#[derive(Args, Debug)]
pub struct ConvertArgs {
    #[command(flatten)]
    pub input: InputArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Flags of `zonal trace cut`.
#[derive(Args, Debug)]
pub struct CutArgs {
    #[command(flatten)]
    pub input: InputArgs,
    #[command(flatten)]
    pub output: OutputArgs,

    /// Begin at this time, in seconds of the trace's clock, or with `+`, after its first event.
    #[arg(long, value_name = "SECONDS")]
    pub from: Option<Time>,

    /// End before this time.
    #[arg(long, value_name = "SECONDS")]
    pub to: Option<Time>,

    /// Keep only events of these CPUs, such as 0-3,8.
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<String>,

    /// Keep only events of this thread and of those it forks; may be repeated.
    #[arg(long, value_name = "PID")]
    pub pid: Vec<i32>,
}

/// Flags of `zonal trace scale`.
#[derive(Args, Debug)]
pub struct ScaleArgs {
    #[command(flatten)]
    pub input: InputArgs,
    #[command(flatten)]
    pub output: OutputArgs,

    /// How many copies.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub copies: u32,

    /// Each copy begins this many microseconds after the one before it.
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 1000)]
    pub shift: u64,
}
