//! `zonal lab once`: one run, its figures. And what `--machine` to `--set` say of any run.

use anyhow::Context;
use comfy_table::{Table as Drawn, presets};
use serde::Serialize;
use zonal_lab::LabError;
use zonal_lab::machine::Machine;
use zonal_lab::recipe::Recipe;
use zonal_lab::report;
use zonal_lab::run::Figures;
use zonal_lab::tape;

use super::args::{OnceArgs, RunOfArgs};
use super::machines;
use crate::output;
use crate::verdict::Verdict;

const SCHEMA_VERSION: u32 = 1;

/// What `--json` prints.
#[derive(Serialize)]
struct Once {
    schema_version: u32,
    kind: &'static str,
    machine: String,
    policy: String,
    workload: String,
    seed: u64,
    figures: Figures,
    command: String,
}

/// Runs the command.
///
/// # Errors
/// A machine, a policy or a workload that is not there or cannot be.
pub fn run(args: &OnceArgs) -> anyhow::Result<Verdict> {
    let recipe = recipe(&args.of, &args.policy)?;
    let command = recipe.command();
    output::note(&command);
    args.record.iter().try_for_each(|path| output::check_name(path))?;
    let figures = match &args.record {
        None => recipe.plan(&machine)?.run()?,
        Some(path) => {
            let (figures, events) = tape::record(&recipe, &machine, path, &mut |_, _| {})?;
            let events = output::counted(events, "event");
            output::note(&format!("{}: {events} (simulated)", path.display()));
            figures
        }
    };
    if figures.unplayed > 0 {
        output::note(&format!(
            "the run ended {} calls before the recording; expected a longer --run-us for all of it",
            figures.unplayed
        ));
    }
    let [calls, refused] = ["calls", "refused"].map(|name| figures.get(name).unwrap_or(0.0));
    if refused > 0.0 {
        output::note(&format!(
            "{refused} of {calls} calls were refused; expected more memory, or lower marks"
        ));
    }
    if calls == 0.0 {
        output::note(
            "no call in the time measured; expected a longer --warm-us or --run-us, or a workload \
             that has work for this number of CPUs",
        );
    }
    if args.json {
        let Recipe { machine, policy, workload, seed, .. } = recipe;
        let (schema_version, kind) = (SCHEMA_VERSION, "simulated");
        let once = Once { schema_version, kind, machine, policy, workload, seed, figures, command };
        output::data(&(serde_json::to_string_pretty(&once)? + "\n"))?;
        return Ok(Verdict::Pass);
    }
    let mut table = Drawn::new();
    table.load_style(presets::NOTHING).set_header(["figure", "value", ""]);
    for (figure, value) in figures.each() {
        table.add_row([figure.name, &report::figure(value), figure.about]);
    }
    machines::right(&mut table, 1, 1);
    let Recipe { machine, policy, workload, seed, .. } = &recipe;
    let result = &figures.hash[..16];
    output::data(&format!(
        "{workload} (simulated) on {machine} under {policy}, seed {seed}, result {result}\n\n{}\n",
        table.trim_fmt()
    ))?;
    Ok(Verdict::Pass)
}

/// The run that the flags say.
///
/// # Errors
/// A `--set` that is none.
pub fn recipe(args: &RunOfArgs, policy: &str) -> anyhow::Result<Recipe> {
    let mut recipe = Recipe::new(&args.machine, policy, &args.workload);
    (recipe.busy, recipe.seed) = (args.busy, args.seed);
    (recipe.warm_us, recipe.run_us) = (args.warm_us, args.run_us);
    for text in &args.set {
        let (key, value) = text
            .split_once('=')
            .with_context(|| format!("--set {text}: expected KEY=VALUE, as cpus=8"))?;
        recipe.set(key, value).with_context(|| format!("--set {text}"))?;
    }
    Ok(recipe)
}

/// The machine of a recipe: a preset, a file, or the measured one.
///
/// # Errors
/// As [`machines::named`].
pub fn machine(name: &str) -> Result<Machine, LabError> {
    machines::named(name).map_err(|error| LabError::Plan(output::chain(&error)))
}
