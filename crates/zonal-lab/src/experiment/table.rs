//! An experiment and its result: a table of published figures beside simulated ones.

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::label::label;
use super::not_modelled;
use crate::LabError;
use crate::machine::Machine;
use crate::mechanism::Mechanisms;
use crate::provenance::{Given, Label, Provenance, given};
use crate::units::hex;

given! {
    /// Cells whose moves differ by fewer cycles move alike.
    ALIKE: f64 = 0.5,
        Provenance::sourced("the published table of 2007 has whole cycles: half of one");
}

/// One figure of a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// Its row.
    pub row: String,
    /// Its column.
    pub column: String,
    /// The published figure, if any.
    pub published: Option<f64>,
    /// The simulated figure.
    pub simulated: f64,
    /// By how much they differ, in percent of the published figure.
    pub error_percent: Option<f64>,
    /// Whether it agrees because a figure was set by it, or because others stand against it:
    /// `label` says which.
    pub calibrated: bool,
    /// What may be said of it; nothing if it was not published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<Label>,
    /// Why it is not modelled, with what is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_modelled: Option<&'static str>,
    /// For counts whose target is a factor, not a percentage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
    /// How near it has to be, in points: for percentages, and for figures relative to a first row.
    /// Without it the experiment's target counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub points: Option<f64>,
    /// How far it moves with each cost twice as high that was not fitted, where that is known, and
    /// until it has its label.
    #[serde(skip)]
    pub(super) moves: Option<f64>,
}

/// Result of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// Version of this form; it changes when readers would break.
    pub schema_version: u32,
    /// Which experiment.
    pub experiment: &'static str,
    /// Everything here is simulated.
    pub kind: &'static str,
    /// On which machine.
    pub machine: String,
    /// From which seed.
    pub seed: u64,
    /// The command line that makes it again.
    pub command: String,
    /// Where the published figures are from.
    pub source: String,
    /// How near a simulated figure has to be to the published one, in percent of it.
    pub target_percent: f64,
    /// Hash over all runs.
    pub result_hash: String,
    /// The figures.
    pub cells: Vec<Cell>,
    /// Which way they lie.
    #[serde(skip)]
    pub figures_in: FiguresIn,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// Which figures of a table are of one kind and comparable: a column or a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FiguresIn {
    /// Each column is one.
    Columns,
    /// Each row is one.
    Rows,
}

/// How much of an experiment is played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// All rows, for their own time.
    #[default]
    Whole,
    /// Published rows alone, for their own time.
    Published,
    /// Published rows alone, for a part of it.
    Brief,
}

/// Options of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// What random choices start from.
    pub seed: u64,
    /// Other machine sizes to run too, where the experiment has them; none: those it has.
    pub cpus: Vec<u32>,
    /// Mechanisms of the model that are switched off.
    pub without: Mechanisms,
    /// How much is played.
    pub extent: Extent,
}

impl Options {
    /// The whole experiment from this seed.
    pub fn seeded(seed: u64) -> Options {
        Options { seed, cpus: Vec::new(), without: Mechanisms::default(), extent: Extent::Whole }
    }

    /// A machine of the lab, without what is switched off.
    pub(super) fn machine(&self, name: &str) -> Result<Machine, LabError> {
        Ok(Machine { without: self.without, ..Machine::named(name)? })
    }
}

/// A published table that the lab reproduces.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// How near a simulated figure has to be to the published one, in percent of it.
    pub target_percent: f64,
    /// Whether it runs on machines of other sizes too.
    pub sizes: bool,
    pub(super) run: Run,
}

pub(super) type Run = fn(&Options, Progress<'_>) -> Result<Table, LabError>;
/// Hears of each run done, and of how many.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// Version of [`Table`].
pub const SCHEMA_VERSION: u32 = 1;

impl Experiment {
    /// The command line that runs it.
    pub fn command(&self, options: &Options) -> String {
        if options.extent != Extent::Whole {
            let time = if options.extent == Extent::Brief { "" } else { " --whole-time" };
            let off: String =
                options.without.names().map(|name| format!(" --mechanism {name}")).collect();
            return format!(
                "zonal lab ablation --seed {} --experiment {}{time}{off}",
                options.seed, self.name
            );
        }
        let cpus: Vec<String> = options.cpus.iter().map(u32::to_string).collect();
        let cpus = match cpus.is_empty() {
            true => String::new(),
            false => format!(" --cpus {}", cpus.join(",")),
        };
        format!("zonal lab run {} --seed {}{cpus}", self.name, options.seed)
    }

    /// Its table without cells and notes: what ran (machine, seed), where the published figures are
    /// from, and the hash over all runs.
    pub(super) fn table(
        &self,
        (machine, options): (&str, &Options),
        source: String,
        hash: Sha256,
    ) -> Table {
        Table {
            schema_version: SCHEMA_VERSION,
            experiment: self.name,
            kind: "simulated",
            machine: machine.to_owned(),
            seed: options.seed,
            command: self.command(options),
            source,
            target_percent: self.target_percent,
            result_hash: hex(&hash.finalize()),
            cells: Vec::new(),
            figures_in: FiguresIn::Columns,
            notes: Vec::new(),
        }
    }
}

impl Table {
    /// Says of each published cell what the provenance of every figure allows.
    pub(super) fn label(&mut self, machine: &Machine, more: &'static [&'static [Given]]) {
        for cell in &mut self.cells {
            let of_cell = |_| label(machine, more, [self.experiment, &cell.row, &cell.column]);
            cell.label = cell.label.max(cell.published.map(of_cell));
            let why = |_| not_modelled::why([self.experiment, &cell.row, &cell.column]);
            cell.not_modelled = cell.published.and_then(why);
            cell.label = cell.label.max(cell.not_modelled.map(|_| Label::NotModelled));
        }
        self.label_what_fitted_costs_make();
        self.label_repeated();
        for cell in &mut self.cells {
            cell.calibrated = matches!(cell.label, Some(Label::Fitted | Label::Reference));
        }
        let count = |wanted| self.cells.iter().filter(|cell| cell.label == Some(wanted)).count();
        self.notes.push(format!(
            "published cells: {} predictions; {} seen, when a figure was chosen; {} set a figure; \
             {} are what others stand against; {} are not modelled",
            count(Label::Prediction),
            count(Label::Seen),
            count(Label::Fitted),
            count(Label::Reference),
            count(Label::NotModelled)
        ));
        let mut known: Vec<&str> = Vec::new();
        for why in self.cells.iter().filter_map(|cell| cell.not_modelled) {
            if !known.contains(&why) {
                known.push(why);
            }
        }
        for why in known {
            let of = self.cells.iter().filter(|cell| cell.not_modelled == Some(why));
            let cells: Vec<String> = of.map(|c| format!("{} {}", c.row, c.column)).collect();
            self.notes.push(format!("not modelled: {}: {why}", cells.join(", ")));
        }
    }

    /// A cell that differs from a fitted one by nothing but costs that were fitted is as much a
    /// sum of them: what was not fitted moves both alike.
    fn label_what_fitted_costs_make(&mut self) {
        let fitted: Vec<f64> = self
            .cells
            .iter()
            .filter(|cell| cell.label == Some(Label::Fitted))
            .filter_map(|cell| cell.moves)
            .collect();
        let alike = |moves: f64| fitted.iter().any(|known| (known - moves).abs() < ALIKE);
        for cell in &mut self.cells {
            if cell.moves.take().is_some_and(alike) {
                cell.label = cell.label.max(cell.published.map(|_| Label::Fitted));
            }
        }
    }

    /// A cell that comes out to the last bit as another of its kind says that one's again: it is no
    /// more of a prediction, whatever its own name is.
    fn label_repeated(&mut self) {
        let known: Vec<(u64, String, Label)> = self
            .cells
            .iter()
            .filter_map(|cell| {
                let label = cell.label.filter(|label| [Label::Seen, Label::Fitted].contains(label));
                Some((cell.simulated.to_bits(), self.kind_of(cell).to_owned(), label?))
            })
            .collect();
        for at in 0..self.cells.len() {
            let cell = &self.cells[at];
            let same = |(bits, kind, _): &&(u64, String, Label)| {
                *bits == cell.simulated.to_bits() && kind == self.kind_of(cell)
            };
            let of_others = known.iter().filter(same).map(|(.., label)| *label).max();
            let label = of_others.filter(|_| cell.published.is_some()).max(cell.label);
            self.cells[at].label = label;
        }
    }

    /// What its figures are called that are of one kind with a cell's.
    fn kind_of<'a>(&self, cell: &'a Cell) -> &'a str {
        match self.figures_in {
            FiguresIn::Columns => &cell.column,
            FiguresIn::Rows => &cell.row,
        }
    }

    /// What the table comes to, in one sentence: how many published cells are within their target,
    /// how many changes against the first case go the published way, and which cell is furthest.
    pub fn conclusion(&self) -> String {
        let published = || self.cells.iter().filter(|cell| cell.published.is_some());
        if published().next().is_none() {
            return "Nothing was published that these figures could agree with.".into();
        }
        let modelled = |cell: &&Cell| cell.label != Some(Label::NotModelled);
        let known: Vec<&Cell> = published().filter(modelled).collect();
        let without = match published().count() - known.len() {
            0 => String::new(),
            1 => "; one more is not modelled".into(),
            count => format!("; {count} more are not modelled"),
        };
        let near = known.iter().filter(|cell| !self.is_miss(cell)).count();
        let changes: Vec<bool> = known.iter().filter_map(|cell| self.same_way(cell)).collect();
        let ways = match changes.len() {
            0 => String::new(),
            count => format!(
                ", {} of {count} changes against the first of their kind go the published way",
                changes.iter().filter(|same| **same).count()
            ),
        };
        let error = |cell: &Cell| cell.error_percent.unwrap_or_default().abs();
        let misses = known.iter().filter(|cell| self.is_miss(cell));
        let furthest = misses.max_by(|one, other| error(one).total_cmp(&error(other)));
        let furthest = furthest.map_or_else(String::new, |cell| {
            format!("; furthest is {}, {}: {}", cell.row, cell.column, self.distance(cell))
        });
        let count = known.len();
        format!(
            "{near} of {count} published cells are within their target{ways}{furthest}{without}."
        )
    }

    /// Whether a published cell lies to the side of the first one of its kind that was published;
    /// nothing for that first one itself, and where the publication has no change.
    fn same_way(&self, cell: &Cell) -> Option<bool> {
        let of_kind =
            |other: &&Cell| self.kind_of(other) == self.kind_of(cell) && other.published.is_some();
        let first = self.cells.iter().find(of_kind)?;
        let published = cell.published? - first.published?;
        (published != 0.0).then_some((cell.simulated - first.simulated) * published > 0.0)
    }

    /// The cells that are further from the published figure than their target.
    pub fn misses(&self) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(|cell| self.is_miss(cell))
    }

    /// Of these, the cells that claim to be modelled.
    pub fn unexplained(&self) -> impl Iterator<Item = &Cell> {
        self.misses().filter(|cell| cell.label != Some(Label::NotModelled))
    }

    /// Whether a cell is further from the published figure than its target.
    pub fn is_miss(&self, cell: &Cell) -> bool {
        match (cell.points, cell.factor, cell.published) {
            (Some(points), _, Some(published)) => (cell.simulated - published).abs() > points,
            (_, Some(factor), Some(known)) => {
                cell.simulated > known * factor || cell.simulated * factor < known
            }
            _ => cell.error_percent.is_some_and(|error| error.abs() > self.target_percent),
        }
    }

    /// How far a cell is from the published figure, and what its target is, as people read it.
    pub fn distance(&self, cell: &Cell) -> String {
        let error = cell.error_percent.unwrap_or_default();
        match (cell.points, cell.factor, cell.published) {
            (Some(points), _, Some(published)) => format!(
                "{:+.2} points, but the target is {points} points",
                cell.simulated - published
            ),
            (_, Some(factor), _) => {
                format!("{error:+.2} %, but the target is a factor of {factor}")
            }
            _ => format!("{error:+.2} %, but the target is {} %", self.target_percent),
        }
    }
}

impl Cell {
    /// A figure beside the published one.
    pub fn new(row: &str, column: &str, published: Option<f64>, simulated: f64) -> Cell {
        // Nothing where nothing was published is right.
        let error = |p: f64| if simulated == p { 0.0 } else { (simulated / p - 1.0) * 100.0 };
        let error_percent = published.map(error);
        Cell {
            row: row.to_owned(),
            column: column.to_owned(),
            published,
            simulated,
            error_percent,
            calibrated: false,
            label: published.map(|_| Label::Prediction),
            not_modelled: None,
            factor: None,
            points: None,
            moves: None,
        }
    }
}
