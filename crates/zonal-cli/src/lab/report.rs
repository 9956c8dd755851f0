//! `zonal lab report`: everything on one page.

use zonal_lab::experiment::{EXPERIMENTS, Experiment, Options, Table};
use zonal_lab::recipe::{Recipe, quoted};
use zonal_lab::report::{Part, sweep_section, whole};
use zonal_lab::sweep::{Sweep, axes};

use super::args::ReportArgs;
use super::once::machine;
use super::sweep;
use crate::{Verdict, output};

/// The machine, sizes and policies of the report's sweep.
const MACHINE: &str = "broadwell-2017-88";
const SIZES: &str = "cpus=2,8,22,44,88,176,512";
const POLICIES: &str = "policy=linux-5.4,linux-6.6,linux-6.18,zonal";
const WORKLOAD: &str = "burst:hold=4096";

/// Long enough for lists that tune themselves.
const TIME_US: u64 = 10_000;

/// Runs the command.
///
/// # Errors
/// An unknown experiment, or a file that cannot be written.
pub fn run(args: &ReportArgs) -> anyhow::Result<Verdict> {
    let chosen: Result<Vec<Experiment>, _> =
        args.experiment.iter().map(|name| Experiment::named(name)).collect();
    let chosen = if args.experiment.is_empty() { EXPERIMENTS.to_vec() } else { chosen? };
    let only: String = args.experiment.iter().map(|name| format!(" --experiment {name}")).collect();
    let file = quoted(&args.output.display().to_string());
    let command = format!("zonal lab report --seed {}{only} -o {file}", args.seed);
    output::note(&command);
    let page = output::Target::new(&args.output)?;
    let mut tables: Vec<(Table, &str)> = Vec::new();
    for experiment in chosen {
        let bar = output::progress(experiment.name, "runs", Some(0));
        let options = Options { seed: args.seed, cpus: Vec::new() };
        let table = experiment.run(&options, &mut |done, of| {
            bar.set_length(of);
            bar.set_position(done);
        })?;
        bar.finish_and_clear();
        for cell in table.misses() {
            output::note(&format!(
                "{}: {}, {} is beyond the target",
                experiment.name, cell.row, cell.column
            ));
        }
        tables.push((table, experiment.about));
    }
    let parts = match args.experiment.is_empty() {
        true => vec![sizes(args)?],
        false => Vec::new(),
    };
    page.write(&whole(&tables, &parts, &command))?;
    output::data(&format!("{} experiments in {}\n", tables.len(), args.output.display()))?;
    Ok(Verdict::Pass)
}

/// Policies at several sizes.
fn sizes(args: &ReportArgs) -> anyhow::Result<Part> {
    let mut base = Recipe::new(MACHINE, "zonal", WORKLOAD);
    base.seed = args.seed;
    (base.warm_us, base.run_us) = (TIME_US, TIME_US);
    let sweep = Sweep::new(&base, axes(&[SIZES.into(), POLICIES.into()])?, &machine)?;
    let file = args.output.with_extension("sweep.csv");
    let command = sweep::command(&base, &sweep, &file);
    let (rows, _) = sweep::made(&sweep, &file, sweep::threads())?;
    let title = format!("Policies by size: {WORKLOAD} on {MACHINE}");
    Ok(Part { title, body: sweep_section(&sweep, &rows, &command) })
}
