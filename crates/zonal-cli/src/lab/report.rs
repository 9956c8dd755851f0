//! `zonal lab report`: everything on one page.

use serde::Serialize;
use zonal_lab::experiment::{EXPERIMENTS, Experiment, Options, SCHEMA_VERSION, Table};
use zonal_lab::recipe::{Recipe, quoted};
use zonal_lab::report::{Part, sweep_part, whole};
use zonal_lab::sweep::{Sweep, axes};

use super::args::ReportArgs;
use super::kept::Kept;
use super::once::machine;
use super::sweep;
use crate::output;
use crate::verdict::{Interrupted, Verdict};

/// The machine, sizes and policies of the report's sweep.
const MACHINE: &str = "sapphire-2023-224";
const SIZES: &str = "cpus=2,8,28,56,112,224,1024/16";
const POLICIES: &str = "policy=linux-6.6,linux-6.18,zonal";
/// Pages that one CPU allocates and another frees: what tells policies apart most.
const WORKLOAD: &str = "handoff";

/// Long enough for lists that tune themselves.
const WARM_US: u64 = 10_000;
const RUN_US: u64 = 2000;

/// What `--json` prints.
#[derive(Serialize)]
struct Reported<'a> {
    schema_version: u32,
    kind: &'static str,
    command: &'a str,
    file: String,
    experiments: Vec<&'a Table>,
}

/// Runs the command.
///
/// # Errors
/// An unknown experiment, or a file that cannot be written.
pub fn run(args: &ReportArgs) -> anyhow::Result<Verdict> {
    let chosen: Result<Vec<Experiment>, _> =
        args.experiment.iter().map(|name| Experiment::named(name)).collect();
    // A comparison with nothing to agree with takes an hour of its own.
    let published = EXPERIMENTS.iter().copied().filter(|known| known.target_percent > 0.0);
    let published: Vec<Experiment> = published.collect();
    let chosen = if args.experiment.is_empty() { published } else { chosen? };
    let only: String = args.experiment.iter().map(|name| format!(" --experiment {name}")).collect();
    let file = quoted(&args.output.display().to_string());
    let command = format!("zonal lab report --seed {}{only} -o {file}", args.seed);
    output::note(&command);
    let page = output::Target::new(&args.output)?;
    let kept = Kept::at(args.output.with_extension("tables.jsonl"))?;
    let mut tables: Vec<(Table, &str)> = Vec::new();
    for experiment in chosen {
        let table = match kept.find(&experiment.command(&Options::seeded(args.seed))) {
            Some(table) => {
                let (name, file) = (experiment.name, kept.file());
                output::note(&format!(
                    "{name}: from {file}, which an interrupted report left; without it it is made \
                     again"
                ));
                table.clone()
            }
            None => made(&experiment, args.seed)?,
        };
        kept.add(&table)?;
        let misses = table.unexplained().count();
        if misses > 0 {
            output::note(&format!(
                "{}: {misses} published cells are beyond their target; the page marks them",
                experiment.name
            ));
        }
        tables.push((table, experiment.about));
    }
    let parts = match args.experiment.is_empty() {
        true => vec![sizes(args)?],
        false => Vec::new(),
    };
    page.write(&whole(&tables, &parts, &command))?;
    kept.remove();
    output::data(&match args.json {
        true => {
            let (schema_version, kind) = (SCHEMA_VERSION, "simulated");
            let experiments = tables.iter().map(|(table, _)| table).collect();
            let (command, file) = (command.as_str(), args.output.display().to_string());
            let all = Reported { schema_version, kind, command, file, experiments };
            serde_json::to_string_pretty(&all)? + "\n"
        }
        false => {
            let experiments = output::counted(tables.len() as u64, "experiment");
            format!("{experiments} in {}\n", args.output.display())
        }
    })?;
    Ok(Verdict::Pass)
}

fn made(experiment: &Experiment, seed: u64) -> anyhow::Result<Table> {
    let steps = output::Steps::new(experiment.name, "runs", 0);
    let options = Options::seeded(seed);
    Ok(experiment.run(&options, &mut |done, of| steps.at(done, of))?)
}

/// Policies at several sizes.
fn sizes(args: &ReportArgs) -> anyhow::Result<Part> {
    let mut base = Recipe::new(MACHINE, "zonal", WORKLOAD);
    base.seed = args.seed;
    (base.warm_us, base.run_us) = (WARM_US, RUN_US);
    let sweep = Sweep::new(&base, axes(&[SIZES.into(), POLICIES.into()])?, &machine)?;
    let file = args.output.with_extension("sweep.csv");
    let command = sweep::command(&base, &sweep, &file);
    let sweep::Made { rows, done, stopped } = sweep::made(&sweep, &file, sweep::threads())?;
    if let Some(signal) = stopped {
        return Err(Interrupted { signal, left: " before the page was written" }.into());
    }
    if done.found > 0 {
        output::note(&format!(
            "{} of the sweep from {}, not made again; without the file all are made",
            output::counted(done.found as u64, "run"),
            file.display()
        ));
    }
    let title = format!("Policies by size: {WORKLOAD} on {MACHINE}");
    Ok(Part { title, body: sweep_part(&sweep, &rows, &command) })
}
