//! `zonal lab list`: experiments, machines and workloads.

use comfy_table::{Table as Drawn, presets};
use serde::Serialize;
use zonal_lab::experiment::EXPERIMENTS;
use zonal_lab::machine::Machine;
use zonal_lab::workload::{KINDS, Kind, Param};

use super::args::ListArgs;
use crate::output;
use crate::verdict::Verdict;

#[derive(Serialize)]
struct Known {
    name: String,
    about: String,
}

#[derive(Serialize)]
struct KnownWorkload {
    name: &'static str,
    about: &'static str,
    parameters: Vec<Parameter>,
}

#[derive(Serialize)]
struct Parameter {
    name: &'static str,
    about: &'static str,
    default: u64,
    min: u64,
    max: u64,
    /// Where the default is from.
    source: String,
}

#[derive(Serialize)]
struct Listed {
    schema_version: u32,
    experiments: Vec<Known>,
    machines: Vec<Known>,
    workloads: Vec<KnownWorkload>,
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
        workloads: workloads(),
    };
    if args.json {
        output::data(&(serde_json::to_string_pretty(&listed)? + "\n"))?;
        return Ok(Verdict::Pass);
    }
    let part = |title: &str, entries: &[Known]| {
        let mut table = Drawn::new();
        table.load_style(presets::NOTHING);
        for entry in entries {
            table.add_row([&entry.name, &entry.about]);
        }
        format!("{title}\n{}\n", table.trim_fmt())
    };
    let experiments = part("experiments", &listed.experiments);
    let machines = part("machines", &listed.machines);
    let workloads = numbers(&listed.workloads);
    output::data(&format!("{experiments}\n{machines}\n{workloads}"))?;
    Ok(Verdict::Pass)
}

fn workloads() -> Vec<KnownWorkload> {
    let parameter = |param: &'static Param| {
        let Param { name, about, default, min, max, ref from } = *param;
        Parameter { name, about, default, min, max, source: from.to_string() }
    };
    let workload = |kind: &'static Kind| {
        let parameters = kind.params.iter().map(parameter).collect();
        KnownWorkload { name: kind.name, about: kind.about, parameters }
    };
    KINDS.iter().map(workload).collect()
}

/// Each workload, and below it its numbers.
fn numbers(workloads: &[KnownWorkload]) -> String {
    let mut text = "workloads, as NAME:PARAMETER=NUMBER,...\n".to_owned();
    for workload in workloads {
        text += &format!(" {}: {}\n", workload.name, workload.about);
        let mut table = Drawn::new();
        table.load_style(presets::NOTHING);
        for Parameter { name, about, default, min, max, source } in &workload.parameters {
            let range = format!("{min} to {max}");
            table.add_row([&format!("  {name}={default}"), &range, &format!("{about} ({source})")]);
        }
        text += &format!("{}\n", table.trim_fmt());
    }
    text
}
