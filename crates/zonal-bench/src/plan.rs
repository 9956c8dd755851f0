//! Which cells a run has, and how long it may take.

use crate::cell::{Bench, Cell};
use crate::cpus::Cpus;
use std::time::Duration;

/// Threads on each CPU, of the loops that are run so ([`Bench::takes_crowds`]).
const CROWDS: [u32; 2] = [4, 8];

/// How a run is done.
#[derive(Clone, Debug)]
pub struct Options {
    /// The short run: fewer cells, and the whole of it within 60 s of measuring.
    pub quick: bool,
    /// Only these subjects; empty means all. The limit subject always runs, for the ratio.
    pub only: Vec<String>,
    /// Only these benches; empty means all.
    pub benches: Vec<Bench>,
    /// Rounds to aim for in each cell. Many short ones: a burst of 2-3 ms fits into one time slice,
    /// so on a busy machine most rounds run undisturbed and the median does not see the others.
    pub rounds: u32,
    /// How often each cell is visited, from the first to the last again: the rounds of a cell are
    /// of so many moments, and a machine that is slower for a minute slows no row down alone.
    pub visits: u32,
    /// Measuring time to aim for, all cells and subjects together; `None` means `slot` decides.
    pub budget: Option<Duration>,
    /// Longest time for one subject in one cell.
    pub slot: Duration,
    /// Allocation calls to read the clock around in the latency pass.
    pub latency_calls: u64,
}

impl Options {
    /// The full run: the figures that are published.
    pub fn full() -> Options {
        Options {
            quick: false,
            only: Vec::new(),
            benches: Vec::new(),
            rounds: 61,
            visits: 5,
            budget: None,
            slot: Duration::from_millis(300),
            latency_calls: 200_000,
        }
    }

    /// The quick run. Its budget leaves 15 s below the 60 for subjects that overrun a slot, which
    /// those do whose shortest burst is longer than it (mmap in `singles4096`).
    pub fn quick() -> Options {
        Options {
            quick: true,
            rounds: 21,
            budget: Some(Duration::from_secs(45)),
            slot: Duration::from_millis(150),
            latency_calls: 20_000,
            ..Options::full()
        }
    }

    /// The same in so many minutes, or what its shortest rounds take; `None` changes nothing.
    pub fn within(self, minutes: Option<u64>) -> Options {
        let asked = minutes.map(|minutes| Duration::from_secs(minutes.saturating_mul(60)));
        Options { budget: asked.or(self.budget), ..self }
    }

    /// A run of milliseconds, for tests: every path is taken, no figure means anything.
    pub fn smoke() -> Options {
        Options {
            rounds: 3,
            visits: 2,
            budget: Some(Duration::from_secs(1)),
            slot: Duration::from_millis(1),
            latency_calls: 100,
            ..Options::quick()
        }
    }

    /// Whether `subject` takes part.
    pub fn wants(&self, subject: &str) -> bool {
        let chosen = |only: &String| only == subject;
        self.only.is_empty() || subject == crate::LIMIT || self.only.iter().any(chosen)
    }
}

/// The cells of a run on `cpus`, in the order of the report.
///
/// Cells of two pinned threads need two CPUs and are left out where there is one. A quick run
/// leaves out what the headline figures do not need: touched blocks above order 0, bursts of other
/// orders than 0 and 3, oversubscription above order 0 and in the bulk bench, and more than two
/// threads on a CPU.
pub fn plan(options: &Options, cpus: &Cpus) -> Vec<Cell> {
    let mut cells = Vec::new();
    for bench in Bench::ALL.into_iter().filter(|bench| bench.is_planned()) {
        if !options.benches.is_empty() && !options.benches.contains(&bench) {
            continue;
        }
        for &order in bench.orders() {
            for touched in [false, true] {
                for (threads, pinned) in thread_counts(bench, order, cpus) {
                    let cell = Cell { bench, threads, pinned, order, touched };
                    if !options.quick || in_quick(&cell, cpus) {
                        cells.push(cell);
                    }
                }
            }
        }
    }
    cells
}

fn thread_counts(bench: Bench, order: u32, cpus: &Cpus) -> Vec<(u32, bool)> {
    let count = cpus.count() as u32;
    let mut threads = Vec::new();
    if !bench.is_of_two() {
        threads.push((1, true));
    }
    if count >= 2 {
        threads.push((2, true));
    }
    // 32 blocks of 2 MiB for each of twice as many threads as CPUs are more than most pools have.
    let holds_too_much = bench == Bench::Batch32 && order == 9;
    if !bench.is_of_two() && !holds_too_much {
        threads.push((count * 2, false));
    }
    if bench.takes_crowds(order) {
        threads.extend(CROWDS.map(|times| (count * times, false)));
    }
    threads
}

fn in_quick(cell: &Cell, cpus: &Cpus) -> bool {
    if cell.threads as usize > cpus.count() * 2 {
        return false;
    }
    let oversubscribed = !cell.pinned;
    let headline = cell.bench == Bench::Pair || cell.order == 3;
    match cell.order {
        0 => !is_bulk_extra(cell),
        _ => headline && !cell.touched && !oversubscribed,
    }
}

fn is_bulk_extra(cell: &Cell) -> bool {
    cell.bench == Bench::Bulk && !cell.pinned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_is_there_once_and_quick_is_a_part_of_full() {
        let cpus = Cpus::of_process();
        let full = plan(&Options::full(), &cpus);
        let quick = plan(&Options::quick(), &cpus);
        for (i, cell) in full.iter().enumerate() {
            assert!(!full[..i].contains(cell), "{cell} is named twice");
        }
        assert!(quick.iter().all(|cell| full.contains(cell)));
        assert!(quick.len() < full.len());
        assert!(full.iter().all(|c| !c.pinned || c.threads as usize <= cpus.count()));
    }

    #[test]
    fn the_limit_always_takes_part() {
        let options = Options { only: vec!["mimalloc".into()], ..Options::quick() };
        assert!(options.wants("mimalloc") && options.wants(crate::LIMIT));
        assert!(!options.wants("mmap"));
    }
}
