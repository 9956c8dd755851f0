//! What one update of a per-CPU counter costs here: the three ways that were compared in 2007, as a
//! process can have them.
//!
//! | 2007 | here |
//! |--|--|
//! | interrupts masked around load, add, compare, store | a lock per CPU around them |
//! | a loop around an unlocked compare-and-exchange | the same, in a restartable sequence |
//! | one increment in memory, then a compare | the same: its one instruction is the sequence |
//!
//! The second function is for a caller that keeps others out already, so nothing guards it; the
//! third is one addition and nothing else. All fold into a shared counter as then: above 32, half
//! more than that.
//!
//! Everything here is measured, and is compared with nothing simulated: it is another machine,
//! and a process is no kernel.

#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
mod sections;

use serde::Serialize;

use crate::Machine;

/// One way and one function.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CounterCost {
    /// The way.
    pub row: &'static str,
    /// The function of 2007.
    pub column: &'static str,
    /// Cycles of the time stamp counter per call: the median of the rounds.
    pub cycles: f64,
    /// A tenth of the rounds took less.
    pub p10: f64,
    /// A tenth took more.
    pub p90: f64,
}

/// All of them.
#[derive(Clone, Debug, Serialize)]
pub struct CounterCosts {
    /// Version of this form; it changes when readers would break.
    pub schema_version: u32,
    /// Everything here is measured.
    pub kind: &'static str,
    /// Where.
    pub machine: Machine,
    /// Calls of a round.
    pub calls: u32,
    /// Rounds.
    pub rounds: usize,
    /// The figures.
    pub cells: Vec<CounterCost>,
}

/// The ways, as rows.
pub const ROWS: [&str; 3] = ["mask by lock", "cmpxchg under rseq", "add under rseq"];
/// The functions, as columns.
pub const COLUMNS: [&str; 3] = ["inc_zone_page_state", "__dec_zone_page_state", "count_vm_event"];

/// Measures on the CPU this thread runs on, to which it is pinned.
///
/// # Errors
/// Why it cannot be done here.
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
pub fn measure() -> Result<CounterCosts, String> {
    /// Calls of a round, as averaged in 2007.
    const CALLS: u32 = 10_000;
    /// Rounds of each cell; a row is their median.
    const ROUNDS: usize = 201;
    let cpus = crate::Cpus::of_process();
    crate::cpus::restrict_thread(&[cpus.pin(0)]);
    let counters = sections::Counters::new()?;
    let mut times = vec![Vec::with_capacity(ROUNDS); ROWS.len() * COLUMNS.len()];
    // Interleaved, so that a change of clock speed meets all cells alike.
    for round in 0..ROUNDS + 1 {
        for (cell, times) in times.iter_mut().enumerate() {
            let cycles = counters.round(cell / COLUMNS.len(), cell % COLUMNS.len(), CALLS);
            // The first round warms up.
            if round > 0 {
                times.push(cycles as f64 / f64::from(CALLS));
            }
        }
    }
    crate::cpus::restrict_thread(cpus.all());
    let cells = times.into_iter().enumerate().map(|(cell, mut times)| {
        times.sort_by(f64::total_cmp);
        let part = |percent: usize| times[(times.len() - 1) * percent / 100];
        CounterCost {
            row: ROWS[cell / COLUMNS.len()],
            column: COLUMNS[cell % COLUMNS.len()],
            cycles: part(50),
            p10: part(10),
            p90: part(90),
        }
    });
    Ok(CounterCosts {
        schema_version: 1,
        kind: "measured",
        machine: Machine::read(cpus.count()),
        calls: CALLS,
        rounds: ROUNDS,
        cells: cells.collect(),
    })
}

/// Measures, where there are restartable sequences.
///
/// # Errors
/// Not supported here.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")))]
pub fn measure() -> Result<CounterCosts, String> {
    Err("counter updates are measured on x86-64 Linux with glibc only".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_is_measured_or_it_is_said_why_not() {
        match measure() {
            Ok(costs) => {
                assert_eq!(costs.cells.len(), ROWS.len() * COLUMNS.len());
                for cell in &costs.cells {
                    assert!(0.0 < cell.p10 && cell.p10 <= cell.cycles && cell.cycles <= cell.p90);
                }
            }
            Err(why) => assert!(!why.is_empty()),
        }
    }
}
