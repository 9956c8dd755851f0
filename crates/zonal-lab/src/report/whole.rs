//! The whole report: every experiment, sweep and machine on one page.

use super::page::{marked, page};
use super::part::part;
use super::text::escape;
use crate::experiment::Table;
use crate::machine::Machine;
use crate::provenance::{Label, Provenance};

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
        let body = format!("<p>{}</p>{}", escape(about), part(table));
        Part { title: table.experiment.to_owned(), body }
    }
}

/// The page: what is on it, each part, and the machines with the source of each figure.
pub fn whole(experiments: &[(Table, &str)], parts: &[Part], command: &str) -> String {
    let near = experiments.iter().enumerate().map(|(at, (table, about))| {
        let known = table.cells.iter().filter(|cell| cell.published.is_some());
        let kept = known.clone().filter(|cell| cell.label == Some(Label::Prediction)).count();
        let without = table.cells.iter().filter(|cell| cell.not_modelled.is_some()).count();
        let (known, misses) = (known.count(), table.unexplained().count());
        let name = format!("{}<small>{}</small>", escape(table.experiment), escape(about));
        let seed = table.seed.to_string();
        let counts = [known, kept, misses, without].map(|count| count.to_string());
        [link(at, &name), escape(&table.machine), seed].into_iter().chain(counts).collect()
    });
    let names = [
        "experiment",
        "machine",
        "seed",
        "published cells",
        "of these predictions",
        "beyond the target",
        "not modelled",
    ];
    let summary = marked("summary", &names, near);
    let more = parts.iter().enumerate().map(|(at, part)| {
        format!("<li>{}</li>", link(experiments.len() + at, &escape(&part.title)))
    });
    let more: String = more.collect();
    let tables = experiments.iter().map(|(table, about)| Part::of(table, about));
    let parts = tables.chain(parts.iter().cloned()).enumerate();
    let body: String = parts.map(|(at, part)| shown(at, &part)).collect();
    let machines: String = Machine::presets().iter().map(machine).collect();
    let intro = format!(
        "<p>Published tables beside what the same core does on simulated machines. Every figure \
         here is simulated unless it says published. A published cell says <i>fitted</i> if a \
         figure was set by it, <i>seen</i> if one was chosen with it in view, <i>reference</i> if \
         others stand against it, <i>not modelled</i> if its cause is missing, so that it says \
         nothing, near or far; the rest are predictions.</p>\
         <p>Make this page again: <code>{}</code></p>",
        escape(command)
    );
    page(
        "The lab (simulated)",
        &format!(
            "{intro}{summary}<ul>{more}<li><a href=\"#machines\">Machines</a></li></ul>{body}\
             <h2 id=\"machines\">Machines</h2><p>Every figure, and where it is from.</p>{machines}"
        ),
    )
}

/// A link to a part; `name` is HTML.
fn link(at: usize, name: &str) -> String {
    format!("<a href=\"#part{at}\">{name}</a>")
}

fn shown(at: usize, part: &Part) -> String {
    format!("<h2 id=\"part{at}\">{}</h2>{}", escape(&part.title), part.body)
}

fn machine(machine: &Machine) -> String {
    let figures = machine.figures().into_iter();
    let rows = figures.map(|known| {
        let source = known.source.as_ref().map_or_else(|| "not said".into(), sourced);
        vec![escape(&known.name), escape(&known.value), source]
    });
    format!(
        "<details><summary><b>{}</b>: {}</summary><p>{}. The same as text: \
         <code>zonal lab machine {}</code></p>{}</details>",
        escape(&machine.name),
        escape(&machine.about),
        escape(machine.sources.get("name").map_or("", Provenance::how)),
        escape(&machine.name),
        marked("words", &["figure", "value", "source"], rows)
    )
}

/// Where a figure is from, with a link to the page that says it; HTML.
fn sourced(from: &Provenance) -> String {
    let text = escape(&from.to_string());
    match from.address().filter(|address| address.contains("://")).map(escape) {
        Some(page) => {
            text.replace(&format!("&lt;{page}&gt;"), &format!("(<a href=\"{page}\">page</a>)"))
        }
        None => text,
    }
}
