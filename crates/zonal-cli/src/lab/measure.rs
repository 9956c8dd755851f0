//! `zonal lab run vmstat-update-cost --measure`: the updates of 2007 as a process can have them,
//! measured here. Never in one table with simulated figures.

use anyhow::{bail, ensure};
use comfy_table::{CellAlignment, Table, presets};
use zonal_bench::counters::{COLUMNS, CounterCosts, ROWS, measure};

use crate::output;
use crate::verdict::Verdict;

/// The experiment that can be measured.
const MEASURABLE: &str = "vmstat-update-cost";

/// Measures and prints.
///
/// # Errors
/// An experiment that cannot be measured, or a machine without restartable sequences.
pub fn run(experiment: &str, json: bool) -> anyhow::Result<Verdict> {
    ensure!(
        experiment == MEASURABLE,
        "{experiment} is simulated only; --measure is for {MEASURABLE}"
    );
    ensure!(!cfg!(debug_assertions), "a debug build measures nothing; use `cargo run --release`");
    let costs = match measure() {
        Ok(costs) => costs,
        Err(why) => bail!("counter updates cannot be measured here: {why}"),
    };
    output::data(&if json { serde_json::to_string_pretty(&costs)? + "\n" } else { text(&costs) })?;
    Ok(Verdict::Pass)
}

fn text(costs: &CounterCosts) -> String {
    let mut drawn = Table::new();
    drawn.load_style(presets::NOTHING);
    drawn.set_header(["way"].iter().chain(&COLUMNS));
    for row in ROWS {
        let cells = costs.cells.iter().filter(|cell| cell.row == row);
        let cycles = cells.map(|c| format!("{:.1} ({:.1} to {:.1})", c.cycles, c.p10, c.p90));
        drawn.add_row([row.to_owned()].into_iter().chain(cycles));
    }
    for column in drawn.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!(
        "{MEASURABLE} (measured) on {}\ncycles of the time stamp counter per call: median of {} \
         rounds of {} calls (a tenth less, a tenth more)\n\n{}\nnote: another machine and a \
         process, not a kernel; the simulated table is that of 2007\n",
        costs.machine.line(),
        costs.rounds,
        costs.calls,
        drawn.trim_fmt(),
    )
}
