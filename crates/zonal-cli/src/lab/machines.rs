//! `zonal lab machines`, `zonal lab machine`, and what `--machine` may say.

use std::path::Path;

use anyhow::{Context, bail};
use comfy_table::{CellAlignment, Table as Drawn, presets};
use serde::Serialize;
use zonal_lab::machine::{Figure, Machine, split_size};
use zonal_lab::provenance::Origin;

use super::args::{ListArgs, MachineArgs};
use super::places::measured_file;
use super::prices::Stored;
use crate::output;
use crate::verdict::Verdict;

const SCHEMA_VERSION: u32 = 1;
/// The machine that the program runs on, as it was measured.
const THIS: &str = "this";

/// One machine, for `--json`.
#[derive(Serialize)]
struct Listed {
    name: String,
    about: String,
    cpus: u32,
    nodes: u32,
    sockets: u32,
    ghz: f64,
}

/// What `lab machines --json` prints.
#[derive(Serialize)]
struct AllListed {
    schema_version: u32,
    machines: Vec<Listed>,
}

/// What `lab machine --json` prints.
#[derive(Serialize)]
struct Shown {
    schema_version: u32,
    #[serde(flatten)]
    listed: Listed,
    /// The machine's description, and its published table.
    source: Option<String>,
    figures: Vec<Figure>,
    /// What this host's kernel takes to move a block, where that was measured just now.
    #[serde(skip_serializing_if = "Option::is_none")]
    prices: Option<Stored>,
}

/// Lists the machines.
///
/// # Errors
/// Output that cannot be written, or a measured machine that cannot be read.
pub fn list(args: &ListArgs) -> anyhow::Result<Verdict> {
    let mut machines = Machine::presets();
    if measured_file().is_some_and(|file| file.exists()) {
        machines.push(named(THIS)?);
    }
    let machines: Vec<Listed> = machines.into_iter().map(Listed::of).collect();
    output::data(&match args.json {
        true => {
            let listed = AllListed { schema_version: SCHEMA_VERSION, machines };
            serde_json::to_string_pretty(&listed)? + "\n"
        }
        false => {
            let mut table = Drawn::new();
            table.load_style(presets::NOTHING).set_header(["machine", "CPUs", "nodes", "GHz", ""]);
            for Listed { name, about, cpus, nodes, ghz, .. } in &machines {
                let (cpus, nodes, ghz) = (cpus.to_string(), nodes.to_string(), ghz.to_string());
                table.add_row([name, &cpus, &nodes, &ghz, about]);
            }
            right(&mut table, 1, 3);
            format!("{}\n", table.trim_fmt())
        }
    })?;
    Ok(Verdict::Pass)
}

/// Prints a machine.
///
/// # Errors
/// A machine that is not there or cannot be.
pub fn show(args: &MachineArgs) -> anyhow::Result<Verdict> {
    let machine = named(&args.machine)?;
    if args.toml {
        output::data(&machine.to_toml())?;
        return Ok(Verdict::Pass);
    }
    print(machine, None, args.json)
}

/// Prints a machine's figures with their sources. `prices`: what its kernel was measured to take.
///
/// # Errors
/// Output that cannot be written.
pub fn print(machine: Machine, prices: Option<Stored>, json: bool) -> anyhow::Result<Verdict> {
    let figures = machine.figures();
    let from = machine.sources.get("name");
    let source = from.map(|from| from.how().to_owned());
    if json {
        let listed = Listed::of(machine);
        let shown = Shown { schema_version: SCHEMA_VERSION, listed, source, figures, prices };
        output::data(&(serde_json::to_string_pretty(&shown)? + "\n"))?;
        return Ok(Verdict::Pass);
    }
    let mut table = Drawn::new();
    table.load_style(presets::NOTHING).set_header(["figure", "value", "source"]);
    for Figure { name, value, source } in figures {
        table.add_row([
            name,
            value,
            source.map_or_else(|| "not said".into(), |from| from.to_string()),
        ]);
    }
    right(&mut table, 1, 1);
    let measured = from.is_some_and(|from| from.origin() == Origin::Measured);
    let kind = if measured { "measured" } else { "simulated" };
    let title = format!("{} ({kind}): {}\n", machine.name, machine.about);
    let source = source.map_or_else(String::new, |source| format!("from: {source}\n"));
    output::data(&format!("{title}{source}\n{}\n", table.trim_fmt()))?;
    Ok(Verdict::Pass)
}

/// The machine that a command line names: a preset, a file, or the measured one, and of which
/// size.
///
/// # Errors
/// With the file and line, or the valid names, and what was expected.
pub fn named(text: &str) -> anyhow::Result<Machine> {
    let (base, size) = split_size(text);
    let machine = if base.ends_with(".toml") {
        Machine::load(Path::new(base))?
    } else if base == THIS {
        let file = measured_file().with_context(|| {
            format!("'{THIS}': neither XDG_DATA_HOME nor HOME is set, below which it is stored")
        })?;
        if !file.exists() {
            bail!("'{THIS}' has not been measured; `zonal lab calibrate` does that");
        }
        Machine::load(&file)?
    } else {
        let with_this = |error: zonal_lab::machine::MachineError| {
            anyhow::anyhow!("{error}; a FILE.toml, or '{THIS}'")
        };
        Machine::named(base).map_err(with_this)?
    };
    match size {
        Some(size) => machine.sized(size).with_context(|| format!("machine {text}")),
        None => Ok(machine),
    }
}

impl Listed {
    fn of(machine: Machine) -> Listed {
        Listed {
            cpus: machine.cpus(),
            nodes: machine.nodes(),
            sockets: machine.sockets,
            ghz: machine.ghz,
            name: machine.name,
            about: machine.about,
        }
    }
}

/// Aligns `many` columns from `first` on to the right.
pub fn right(table: &mut Drawn, first: usize, many: usize) {
    for column in table.column_iter_mut().skip(first).take(many) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}
