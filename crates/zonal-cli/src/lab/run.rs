//! `zonal lab run`: a published experiment, published, simulated and error side by side.

use comfy_table::{CellAlignment, Table as Drawn, presets};
use zonal_lab::experiment::{Experiment, Options, Table};
use zonal_lab::provenance::Label;
use zonal_lab::report;

use super::args::RunArgs;
use super::measure;
use crate::output;
use crate::verdict::Verdict;

/// Runs the command.
///
/// # Errors
/// An unknown experiment, a machine that cannot be, or a file that cannot be written.
pub fn run(args: &RunArgs) -> anyhow::Result<Verdict> {
    let experiment = Experiment::named(&args.experiment)?;
    if args.measure {
        return measure::run(experiment.name, args.json);
    }
    let options = Options { cpus: args.cpus.clone(), ..Options::seeded(args.seed) };
    output::note(&experiment.command(&options));
    let page = args.html.as_deref().map(output::Target::new).transpose()?;
    let steps = output::Steps::new(experiment.name, "runs", 0);
    let table = experiment.run(&options, &mut |done, of| steps.at(done, of))?;
    drop(steps);
    if let Some(page) = page {
        page.write(&report::html(&table))?;
    }
    output::data(&match (args.json, args.csv) {
        (true, _) => serde_json::to_string_pretty(&table)? + "\n",
        (_, true) => report::csv(&table),
        _ => text(&table),
    })?;
    for cell in table.misses() {
        let without = if cell.not_modelled.is_some() { "; not modelled" } else { "" };
        let far = table.distance(cell);
        output::note(&format!("{}, {}: {far}{without}", cell.row, cell.column));
    }
    Ok(if table.misses().next().is_none() { Verdict::Pass } else { Verdict::Failed })
}

fn text(table: &Table) -> String {
    let mut drawn = Drawn::new();
    drawn.load_style(presets::NOTHING);
    drawn.set_header(["row", "column", "published", "simulated", "error %", ""]);
    for cell in &table.cells {
        let published = cell.published.map_or_else(|| "-".into(), report::figure);
        let error = cell.error_percent.map_or_else(|| "-".into(), |error| format!("{error:+.2}"));
        let simulated = report::figure(cell.simulated);
        let mark = cell.label.map_or("", Label::name);
        drawn.add_row([&cell.row, &cell.column, &published, &simulated, &error, mark]);
    }
    for column in drawn.column_iter_mut().skip(2).take(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let notes: String = table.notes.iter().map(|note| format!("note: {note}\n")).collect();
    format!(
        "{} (simulated) on {}, seed {}, result {}\npublished: {}\n{}\n\n{}\n{notes}",
        table.experiment,
        table.machine,
        table.seed,
        &table.result_hash[..16],
        table.source,
        table.conclusion(),
        drawn.trim_fmt(),
    )
}
