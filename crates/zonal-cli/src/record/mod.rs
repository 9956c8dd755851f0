//! `zonal record`: a trace of the kernel that runs, as a `.zonal` file.
//!
//! ```text
//!  zonal record ── takes the host: one recorder at a time; undoes what a killed one left
//!       ├─ starts ──► zonal record-guard      puts every setting back, however we end
//!       ├─ begins, runs the command or waits, finishes: a folder of ring pages beside FILE
//!       └─ reads that, writes FILE, removes it; a signal meanwhile ends that, and the pages stay
//! ```

pub mod command;
mod json;
pub mod load;
mod rings;
mod times;
mod windows;

use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args;
use zonal_trace::make::{MakeError, Target, Written};
use zonal_trace::record::{
    COLD, Guard, Host, RecordOptions, Recorded, Recorder, Roots, Step, StoreError, Touched, serve,
};

use self::load::{LOOK, Load, Output, is_running};
use self::rings::Rings;
pub use self::times::{duration, wait_time};
use crate::lab::prices;
use crate::output;
use crate::verdict::{Interrupted, Verdict};
use crate::written;

/// The hidden command that a guard is.
pub const GUARD: &str = "record-guard";

/// Signals that end a recording as if its time were up.
pub const ENDS: [i32; 3] =
    [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP];

/// Flags of `zonal record`.
#[derive(Args, Clone, Debug)]
pub struct RecordArgs {
    /// The .zonal file to write. A name without a dot is a new directory, for the ring pages as the
    /// kernel made them: that costs no processor time, and takes ten times the room.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,

    /// Record until this process ends. All processes are recorded, because they share the lists;
    /// `zonal trace cut --pid` keeps one.
    #[arg(long, conflicts_with = "command", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: Option<i32>,

    /// End after this time, such as 10s or 500ms; plain numbers are seconds. A command that still
    /// runs then gets SIGTERM.
    #[arg(long, value_parser = duration)]
    pub duration: Option<Duration>,

    /// Record a window of --for, then again this long after its beginning, such as 60s, until
    /// --duration is over, the process of --pid ends, or Ctrl-C. FILE.zonal names the files
    /// FILE-000001.zonal and so on. No setting of the host is changed, as with --no-touch.
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "window",
          conflicts_with = "command")]
    pub every: Option<Duration>,

    /// Length of a window.
    #[arg(long = "for", value_name = "TIME", value_parser = duration, requires = "every")]
    pub window: Option<Duration>,

    /// With --every, remove the oldest window of this run when all of them need more MiB.
    #[arg(long, value_name = "MIB", default_value_t = 1024, requires = "every",
          value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub max_mib: u64,

    /// MiB of ring for each CPU. Without it an eighth of the available memory, at most 256 MiB
    /// each. A page event takes about 32 bytes.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=65536))]
    pub buffer: Option<u64>,

    /// Change no setting of the host: only a trace instance is made, and removed. Without it the
    /// per-CPU lists are kept small for two seconds first, through
    /// vm.percpu_pagelist_high_fraction, because no file says which pages they hold.
    #[arg(long, alias = "warm")]
    pub no_touch: bool,

    /// Record only what moves between the per-CPU lists and the buddies, waits and reclaim: no
    /// allocation and no free, which are most of what recording costs, and no page of a file that
    /// comes or goes. No setting of the host is changed. `zonal advise` says what the allocator
    /// costs; what a setting would save it cannot say, and there is nothing to replay.
    #[arg(long)]
    pub moves: bool,

    /// Record no waits for spinlocks (lock:contention_begin and _end), of which busy hosts have
    /// many.
    #[arg(long)]
    pub no_locks: bool,

    /// Print what would be touched, who records now, and what a killed recorder left; touch
    /// nothing.
    #[arg(long)]
    pub dry_run: bool,

    /// Print one JSON object: the file, its events and bytes, and how many were dropped; of
    /// --dry-run, what would be touched. With --every a line for each window. What the command
    /// prints goes to standard error then.
    #[arg(long)]
    pub json: bool,

    /// Wait this long for another recorder to end. There is one at a time on a host.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = wait_time)]
    pub wait: Duration,

    /// Write the trace although events were dropped. Without it that is an error.
    #[arg(long)]
    pub allow_drops: bool,

    /// Time between samples of /proc/zoneinfo.
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = duration)]
    pub poll: Duration,

    /// Level of compression of the .zonal file: 1 is fast, 19 is small.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(i32).range(1..=19))]
    pub level: i32,

    /// What to run. The recording ends with it, and is written however it ends: its exit status
    /// is printed, and is not that of `zonal record`. Without it, --pid and --duration: until
    /// Ctrl-C.
    #[arg(last = true)]
    pub command: Vec<String>,
}

/// The guard: undoes the recorder's changes once that has ended.
pub fn guard() -> ExitCode {
    // It ends when its input does; whoever signals all of them must not keep it from its work.
    let ignored = Arc::new(AtomicUsize::new(0));
    for signal in ENDS {
        let _ = signal_hook::flag::register_usize(signal, Arc::clone(&ignored), 1);
    }
    let failures = serve(std::io::stdin().lock());
    failures.iter().for_each(|failure| output::note(failure));
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

impl RecordArgs {
    /// A recording to `output`, as without any flag.
    pub fn to(output: PathBuf) -> RecordArgs {
        RecordArgs {
            output,
            pid: None,
            duration: None,
            every: None,
            window: None,
            max_mib: 1024,
            buffer: None,
            no_touch: false,
            moves: false,
            no_locks: false,
            dry_run: false,
            json: false,
            wait: Duration::ZERO,
            allow_drops: false,
            poll: Duration::from_millis(20),
            level: 3,
            command: Vec::new(),
        }
    }
}

/// What signals do until the host is taken.
#[derive(Clone, Copy, Debug)]
pub enum Signals<'a> {
    /// They end the program; then they are caught.
    Ends,
    /// They are caught already, by the same flag.
    Caught,
    /// The same; and a recording that this flag ends is wanted no more: it is not written.
    Trial(&'a AtomicUsize),
}

/// Takes the host, and waits for it as long as a flag is zero.
///
/// # Errors
/// If somebody else records, or what was left cannot be undone.
fn take_host(wait: Duration, signal: &AtomicUsize) -> anyhow::Result<Host> {
    // Names of files need not be UTF-8.
    let own = std::env::args_os().skip(1);
    let own: Vec<String> = own.map(|word| word.to_string_lossy().into_owned()).collect();
    let begin = Instant::now();
    loop {
        let left = wait.saturating_sub(begin.elapsed());
        match Host::take(&Roots::default(), &own.join(" "), left.min(10 * LOOK)) {
            Ok(host) => {
                host.notes.iter().for_each(|note| output::note(note));
                return Ok(host);
            }
            // Relaxed: the flag carries no data.
            Err(error)
                if error.is_held()
                    && begin.elapsed() < wait
                    && signal.load(Ordering::Relaxed) == 0 => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Takes the host, and starts the guard that puts everything back.
///
/// # Errors
/// As [`take_host`], or a guard that cannot be started.
pub fn take_guard(wait: Duration, signal: &AtomicUsize) -> anyhow::Result<Guard> {
    guarded(take_host(wait, signal)?)
}

fn guarded(host: Host) -> anyhow::Result<Guard> {
    let this = std::env::current_exe().context("cannot find this program")?;
    Ok(Guard::start(host, Command::new(this).arg(GUARD))?)
}

/// Makes a recording, with a setting changed meanwhile: its file and its value. A signal's number
/// in `signal` ends it.
///
/// # Errors
/// The step that failed; dropped events, unless they are allowed. Everything is put back.
pub fn make(
    args: &RecordArgs,
    (signal, signals): (&Arc<AtomicUsize>, Signals<'_>),
    setting: Option<(&Path, &str)>,
    output: Output,
) -> anyhow::Result<()> {
    // Before this a signal ends the program at once: nothing is changed yet.
    let host = take_host(args.wait, signal)?;
    if let Signals::Ends = signals {
        for number in ENDS {
            signal_hook::flag::register_usize(number, Arc::clone(signal), number as usize)?;
        }
    }
    rings::clean(&args.output).iter().for_each(|note| output::note(note));
    let rings = Rings::beside(&args.output)?;
    let recorded = record(args, rings.path(), signal, (host, setting, output));
    // The signal that ended the recording does not end its writing, another one does.
    let first = signal.swap(0, Ordering::Relaxed);
    let ends = if let Signals::Trial(all) = signals { all } else { signal };
    let written = recorded.and_then(|recorded| write(args, rings.path(), &recorded, ends));
    let _ = signal.compare_exchange(0, first, Ordering::Relaxed, Ordering::Relaxed);
    // Many windows would fill the disk, and a trial's recordings go with it.
    let is_kept = args.every.is_none() && !matches!(signals, Signals::Trial(_));
    settle(is_kept, rings.path(), written)
}

/// Removes the ring pages. Those that could not be made into a file may be kept, because they are
/// all there is of the recording.
fn settle(is_kept: bool, rings: &Path, written: anyhow::Result<()>) -> anyhow::Result<()> {
    match &written {
        Err(_) if is_kept && rings::is_whole(rings) => output::note(&rings::remedy(rings)),
        _ if rings.exists() => {
            std::fs::remove_dir_all(rings).with_context(|| format!("{}", rings.display()))?;
        }
        // They are the recording.
        _ => {}
    }
    written
}

/// Whether an earlier recording has the name. Windows take new ones.
fn is_replaced(args: &RecordArgs) -> bool {
    args.every.is_none() && args.output.exists()
}

/// Says what a recording would do.
fn dry_run(args: &RecordArgs) -> anyhow::Result<Verdict> {
    let touched = Touched::by(&Roots::default(), &options(args));
    if args.json {
        json::dry_run(&touched, &args.output, is_replaced(args), &args.command)?;
        return Ok(Verdict::Pass);
    }
    let mut text = touched.to_string();
    let replaced = if is_replaced(args) { ", which replaces what is there" } else { "" };
    text.push_str(&format!("write  {}{replaced}\n", args.output.display()));
    if !args.command.is_empty() {
        text.push_str(&format!("run    {}\n", args.command.join(" ")));
    }
    output::data(&text)?;
    Ok(Verdict::Pass)
}

/// Refuses a process that is not there and a command that cannot be run, before anything is
/// prepared.
fn check_load(args: &RecordArgs) -> anyhow::Result<()> {
    if let Some(pid) = args.pid {
        ensure!(
            is_running(pid),
            "--pid {pid}: there is no such process that runs; `pgrep -a NAME` finds one"
        );
    }
    check_command(&args.command)
}

/// Refuses a command that cannot be run.
///
/// # Errors
/// What was expected.
pub fn check_command(command: &[String]) -> anyhow::Result<()> {
    let Some(program) = command.first() else { return Ok(()) };
    let found = match program.contains('/') {
        true => is_program(Path::new(program)),
        false => {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).any(|place| is_program(&place.join(program)))
        }
    };
    let place = if program.contains('/') { "a file" } else { "a program of PATH" };
    ensure!(found, "cannot run {program}: expected {place} that may be executed");
    Ok(())
}

/// Whether this process may execute a file.
fn is_program(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Records into the directory `rings`.
fn record(
    args: &RecordArgs,
    rings: &Path,
    signal: &AtomicUsize,
    (host, setting, output): (Host, Option<(&Path, &str)>, Output),
) -> anyhow::Result<Recorded> {
    let mut guard = guarded(host)?;
    let set = setting.map_or(Ok(()), |(path, value)| guard.set(path, value));
    let recorded = match set {
        Ok(()) => with_guard(args, rings, signal, &mut guard, output),
        Err(error) => Err(error.into()),
    };
    put_back(guard)?;
    recorded
}

/// What could not be put back.
#[derive(Debug)]
struct Left(String);

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not everything could be put back: {}", self.0)
    }
}

impl std::error::Error for Left {}

/// Whether an error says that the host is left changed.
pub fn is_left(error: &anyhow::Error) -> bool {
    error.is::<Left>()
}

/// Puts everything back that was changed.
///
/// # Errors
/// What could not be put back: [`is_left`].
pub fn put_back(guard: Guard) -> anyhow::Result<()> {
    let failures = guard.finish().context("cannot wait for the guard")?;
    match failures.is_empty() {
        true => Ok(()),
        false => Err(Left(failures.join("; ")).into()),
    }
}

/// How to record.
fn options(args: &RecordArgs) -> RecordOptions {
    let workload = match (&args.command[..], args.pid) {
        ([], Some(pid)) => format!("process {pid}"),
        ([], None) => "whatever ran".to_owned(),
        (command, _) => command.join(" "),
    };
    let name = args.output.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    RecordOptions {
        name,
        workload,
        ring_bytes: args.buffer.map(|mib| mib << 20),
        // Windows change nothing; and which pages lists hold is asked by a replay alone.
        cold: !args.no_touch && !args.moves && args.every.is_none(),
        uses: !args.moves,
        locks: !args.no_locks,
        prices: prices::of_this_host(),
        poll_every: args.poll,
        ..RecordOptions::default()
    }
}

fn with_guard(
    args: &RecordArgs,
    rings: &Path,
    signal: &AtomicUsize,
    guard: &mut Guard,
    output: Output,
) -> anyhow::Result<Recorded> {
    let options = options(args);
    if Touched::by(&Roots::default(), &options).sysctl.is_some() {
        let cold_s = COLD.as_secs();
        output::note(&format!("keeping the per-CPU lists small for {cold_s} seconds"));
    }
    let mut recorder = Recorder::begin(Roots::default(), options, guard)?;
    recorder.notes.iter().for_each(|note| output::note(note));
    if !args.command.is_empty() {
        // Relaxed: the flag carries no data.
        match signal.load(Ordering::Relaxed) {
            0 => {}
            number => {
                let left = " before the command was started: nothing is recorded";
                return Err(Interrupted { signal: number as i32, left }.into());
            }
        }
    }
    // Without a load there is nothing to finish, and the guard removes what was prepared.
    let mut load = Load::start(&args.command, args.pid, output)?;
    load.command().into_iter().for_each(|pid| recorder.command(pid));
    let waited = load.wait(args.duration, signal, &mut || true);
    let recorded = recorder.finish(rings);
    waited.and_then(|()| load.end(signal))?;
    // The pages' own folder is hidden.
    let recorded = recorded.map_err(|error| match error.step() {
        Step::Rings => anyhow::Error::new(error).context(args.output.display().to_string()),
        _ => error.into(),
    })?;
    let polls = recorded.polls;
    if polls.no_room + polls.failed > 0 {
        output::note(&format!(
            "{} samples of /proc/zoneinfo had no room, {} failed",
            polls.no_room, polls.failed
        ));
    }
    Ok(recorded)
}

/// Makes the file out of the ring pages, until a signal's number is in `ends`.
fn write(
    args: &RecordArgs,
    rings: &Path,
    recorded: &Recorded,
    ends: &AtomicUsize,
) -> anyhow::Result<()> {
    if let Err(dropped) = recorded.check_drops() {
        let flags = "`--buffer` makes them larger, `--allow-drops` writes the trace all the same";
        ensure!(args.allow_drops, "{dropped}; {flags}");
        output::note(&dropped.to_string());
    }
    if is_directory(&args.output) {
        recorded.keep(rings, &args.output)?;
        let written = Written { events: recorded.entries, bytes: Some(recorded.bytes) };
        return tell(args, written, recorded);
    }
    let bar = output::progress("writing", "events", Some(recorded.entries));
    let target = Target::file(&args.output).level(args.level);
    let written = recorded.store(rings, target, &mut |events| {
        bar.set_position(events);
        // Relaxed: the flag carries no data.
        match ends.load(Ordering::Relaxed) {
            0 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    });
    bar.finish_and_clear();
    let written = written.map_err(|error| match error {
        StoreError::Make(MakeError::Stopped) => {
            let signal = ends.load(Ordering::Relaxed) as i32;
            let stopped = Interrupted { signal, left: " while it was written" };
            anyhow::Error::new(stopped).context(args.output.display().to_string())
        }
        error => anyhow::Error::new(error).context(args.output.display().to_string()),
    })?;
    tell(args, written, recorded)
}

/// Says what was recorded.
fn tell(args: &RecordArgs, written: Written, recorded: &Recorded) -> anyhow::Result<()> {
    match args.json {
        true => json::made(&args.output, written, recorded)?,
        false => written::note(written),
    }
    Ok(())
}

/// Whether ring pages are kept as they are: where the output's name is one of a directory.
fn is_directory(output: &Path) -> bool {
    output.file_name().is_some_and(|name| !name.to_string_lossy().contains('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_pages_of_a_recording_that_failed_stay_and_those_of_a_window_go() {
        let directory = tempfile::tempdir().unwrap();
        let failed = |is_kept: bool| {
            let rings = directory.path().join("rings");
            std::fs::create_dir_all(&rings).unwrap();
            std::fs::write(rings.join("meta.json"), "{}").unwrap();
            let error = settle(is_kept, &rings, Err(anyhow::anyhow!("3 events were dropped")));
            assert!(error.unwrap_err().to_string().contains("dropped"));
            rings.exists()
        };
        assert!(failed(true));
        assert!(!failed(false));
    }
}
