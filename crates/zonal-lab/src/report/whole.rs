//! The whole report: every experiment, sweep and machine on one page.

use super::escape;
use super::page::{page, section, table};
use crate::experiment::Table;
use crate::machine::Machine;

/// A part of the report: its title, and what stands below it.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its title.
    pub title: String,
    /// What stands below it, as HTML.
    pub body: String,
}

impl Part {
    /// The part of an experiment.
    pub fn of(table: &Table, about: &str) -> Part {
        let body = format!("<p>{}</p>{}", escape(about), section(table));
        Part { title: table.experiment.to_owned(), body }
    }
}

/// The page: what is on it, each part, and the machines with the source of each figure.
pub fn whole(experiments: &[(Table, &str)], parts: &[Part], command: &str) -> String {
    let near = experiments.iter().map(|(table, _)| {
        let known = table.cells.iter().filter(|cell| cell.published.is_some());
        let predicted = known.clone().filter(|cell| !cell.calibrated).count();
        let misses = table.misses().count();
        let target = format!("{} %", table.target_percent);
        let (machine, seed) = (table.machine.clone(), table.seed.to_string());
        let cells = format!("{} ({predicted} predicted)", known.count());
        vec![table.experiment.to_owned(), machine, seed, cells, target, misses.to_string()]
    });
    let names = ["experiment", "machine", "seed", "published cells", "target", "cells beyond it"];
    let summary = table("words", &names, near);
    let tables = experiments.iter().map(|(table, about)| Part::of(table, about));
    let body: String = tables.chain(parts.iter().cloned()).map(|part| shown(&part)).collect();
    let machines: String = Machine::presets().iter().map(machine).collect();
    let intro = format!(
        "<p>Published tables beside what the same core does on simulated machines. Every figure \
         here is simulated unless it says published. Figures of a machine that were set by a \
         published cell mark that cell as calibrated; all others are predictions.</p>\
         <p>Make this page again: <code>{}</code></p>",
        escape(command)
    );
    page("The lab (simulated)", &format!("{intro}{summary}{body}<h2>Machines</h2>{machines}"))
}

fn shown(part: &Part) -> String {
    format!("<h2>{}</h2>{}", escape(&part.title), part.body)
}

fn machine(machine: &Machine) -> String {
    let figures = machine.figures().into_iter();
    let rows = figures.map(|known| {
        vec![known.name, known.value, known.source.unwrap_or_else(|| "not said".into())]
    });
    format!(
        "<h3>{}</h3><p>{}. {}</p>{}",
        escape(&machine.name),
        escape(&machine.about),
        escape(machine.sources.get("name").map_or("", String::as_str)),
        table("words", &["figure", "value", "source"], rows)
    )
}
