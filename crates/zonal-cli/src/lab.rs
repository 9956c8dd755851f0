//! `zonal lab`: published experiments on simulated machines.

use std::fs;

use anyhow::Context;
use comfy_table::{CellAlignment, Table as Drawn, presets};
use serde::Serialize;
use zonal_lab::experiment::{EXPERIMENTS, Experiment, Options, Table};
use zonal_lab::machine::Machine;
use zonal_lab::report;

use crate::cli::{LabCommand, LabListArgs, LabRunArgs};
use crate::{Verdict, output};

/// Runs the command.
///
/// # Errors
/// An unknown experiment, a machine that cannot be, or a file that cannot be written.
pub fn run(command: &LabCommand) -> anyhow::Result<Verdict> {
    match command {
        LabCommand::List(args) => list(args),
        LabCommand::Run(args) => experiment(args),
    }
}

#[derive(Serialize)]
struct Known {
    name: String,
    about: String,
}

#[derive(Serialize)]
struct Listed {
    schema_version: u32,
    experiments: Vec<Known>,
    machines: Vec<Known>,
}

fn list(args: &LabListArgs) -> anyhow::Result<Verdict> {
    let known = |name: &str, about: &str| Known { name: name.to_owned(), about: about.to_owned() };
    let listed = Listed {
        schema_version: zonal_lab::experiment::SCHEMA_VERSION,
        experiments: EXPERIMENTS.iter().map(|e| known(e.name, e.about)).collect(),
        machines: Machine::presets().iter().map(|m| known(&m.name, &m.about)).collect(),
    };
    if args.json {
        output::data(&(serde_json::to_string_pretty(&listed)? + "\n"))?;
        return Ok(Verdict::Pass);
    }
    let section = |title: &str, entries: &[Known]| {
        let mut table = Drawn::new();
        table.load_style(presets::NOTHING);
        for entry in entries {
            table.add_row([&entry.name, &entry.about]);
        }
        format!("{title}\n{}\n", table.trim_fmt())
    };
    let experiments = section("experiments", &listed.experiments);
    output::data(&format!("{experiments}\n{}", section("machines", &listed.machines)))?;
    Ok(Verdict::Pass)
}

fn experiment(args: &LabRunArgs) -> anyhow::Result<Verdict> {
    let experiment = Experiment::named(&args.experiment)?;
    let sizes: String = args.cpus.iter().map(|cpus| format!(" --cpus {cpus}")).collect();
    output::note(&format!("zonal lab run {} --seed {}{sizes}", experiment.name, args.seed));
    let bar = output::progress(experiment.name, "runs", Some(0));
    let options = Options { seed: args.seed, cpus: args.cpus.clone() };
    let table = experiment.run(&options, &mut |done, of| {
        bar.set_length(of);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    if let Some(path) = &args.html {
        let page = report::html(&table);
        fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    output::data(&match (args.json, args.csv) {
        (true, _) => serde_json::to_string_pretty(&table)? + "\n",
        (_, true) => report::csv(&table),
        _ => text(&table),
    })?;
    for cell in table.misses() {
        let error = cell.error_percent.unwrap_or_default();
        output::note(&format!(
            "{}, {}: {error:+.2} %, but the target is {} %",
            cell.row, cell.column, table.target_percent
        ));
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
        let mark = if cell.calibrated { "calibrated" } else { "" };
        drawn.add_row([&cell.row, &cell.column, &published, &simulated, &error, mark]);
    }
    for column in drawn.column_iter_mut().skip(2).take(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let notes: String = table.notes.iter().map(|note| format!("note: {note}\n")).collect();
    format!(
        "{} (simulated) on {}, seed {}, result {}\npublished: {}\n\n{}\n{notes}",
        table.experiment,
        table.machine,
        table.seed,
        &table.result_hash[..16],
        table.source,
        drawn.trim_fmt(),
    )
}
