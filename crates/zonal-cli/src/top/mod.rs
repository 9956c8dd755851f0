//! `zonal top`: the page allocator of the kernel that runs, or a pool, as it is now.
//!
//! ```text
//!  Source ─ each interval ─► Screen (readings so far, sorting, units)
//!                              ├─► view    a terminal: redrawn for each reading, key and size
//!                              ├─► plain   a pipe, or a terminal that cannot be drawn on
//!                              └─► json    for programs
//! ```

mod cells;
mod json;
mod plain;
mod screen;
mod view;

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use self::screen::{Screen, Sort};
use crate::output;
use crate::record::{ENDS, duration};
use crate::verdict::Verdict;
use crate::watch::source::{Source, SourceArgs};

/// Longest wait for a key: a signal is seen after this.
const KEY_WAIT: Duration = Duration::from_millis(100);

/// Flags of `zonal top`.
#[derive(Args, Debug)]
pub struct TopArgs {
    #[command(flatten)]
    pub source: SourceArgs,

    /// Time between readings, such as 500ms or 2s. A pool has a new one in each of its refresh
    /// intervals.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub every: Duration,

    /// Print this many readings as text and end. Without it: until `q` in a terminal, and one
    /// reading in a pipe.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    /// Order of the zones.
    #[arg(long, value_enum, default_value_t)]
    sort: Sort,

    /// Show memory in MiB, not in pages.
    #[arg(long)]
    pub mib: bool,

    /// Print each reading as one JSON object on a line, in pages. One reading without --count.
    #[arg(long, conflicts_with = "mib")]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// A source that cannot be read; a terminal that cannot be drawn on.
pub fn run(args: &TopArgs) -> anyhow::Result<Verdict> {
    let mut source = Source::new(&args.source);
    let mut screen = Screen::new(args.sort, args.mib);
    screen.add(source.read()?);
    match args.count {
        None if !args.json && can_draw() => draw(args, &mut source, &mut screen)?,
        count => print(args, &mut source, &mut screen, count.unwrap_or(1))?,
    }
    Ok(Verdict::Pass)
}

/// Whether there is a terminal that can be drawn on.
fn can_draw() -> bool {
    let term = std::env::var("TERM").unwrap_or_default();
    std::io::stdout().is_terminal() && !term.is_empty() && term != "dumb"
}

/// Texts, each with what happened since the reading before, until the reader has seen enough.
fn print(
    args: &TopArgs,
    source: &mut Source,
    screen: &mut Screen,
    count: u64,
) -> anyhow::Result<()> {
    for _ in 0..count {
        std::thread::sleep(args.every);
        screen.add(source.read()?);
        let text = if args.json { json::text(screen)? } else { plain::text(screen) };
        if !output::data_read(&text)? {
            break;
        }
    }
    Ok(())
}

/// A terminal, until it is left.
fn draw(args: &TopArgs, source: &mut Source, screen: &mut Screen) -> anyhow::Result<()> {
    let ended = Arc::new(AtomicBool::new(false));
    for number in ENDS {
        signal_hook::flag::register(number, Arc::clone(&ended))?;
    }
    let mut terminal = ratatui::try_init().context("cannot draw on this terminal")?;
    let result = (|| {
        let mut next = Instant::now() + args.every;
        loop {
            terminal.draw(|frame| view::draw(frame, screen))?;
            // Relaxed: the flag carries no data.
            if ended.load(Ordering::Relaxed) {
                return Ok(());
            }
            if event::poll(KEY_WAIT.min(next.saturating_duration_since(Instant::now())))?
                && is_end(&event::read()?, screen)
            {
                return Ok(());
            }
            if Instant::now() >= next {
                next = Instant::now() + args.every;
                match source.read() {
                    Ok(reading) => screen.add(reading),
                    // A program that ends takes its pool with it: the last reading stays.
                    Err(error) => screen.trouble = Some(format!("{error:#}")),
                }
            }
        }
    })();
    ratatui::restore();
    result
}

/// Does what a key asks for. Returns whether to end.
fn is_end(event: &Event, screen: &mut Screen) -> bool {
    let Event::Key(key) = event else { return false };
    if key.kind == KeyEventKind::Release {
        return false;
    }
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
        KeyCode::Char('q') | KeyCode::Esc => return true,
        KeyCode::Char('s') => screen.sort = screen.sort.next(),
        KeyCode::Char('u') => screen.mib = !screen.mib,
        KeyCode::Char('p' | ' ') => screen.paused = !screen.paused,
        KeyCode::Down | KeyCode::Char('j') => screen.choose(1),
        KeyCode::Up | KeyCode::Char('k') => screen.choose(-1),
        _ => {}
    }
    false
}
