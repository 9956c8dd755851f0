//! `zonal lab list`: what there is.

use comfy_table::{Table as Drawn, presets};
use serde::Serialize;
use zonal_lab::experiment::EXPERIMENTS;
use zonal_lab::machine::Machine;

use super::args::ListArgs;
use crate::{Verdict, output};

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

/// Runs the command.
///
/// # Errors
/// Output that cannot be written.
pub fn run(args: &ListArgs) -> anyhow::Result<Verdict> {
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
