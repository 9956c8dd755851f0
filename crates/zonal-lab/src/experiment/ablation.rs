//! What a published table owes to each mechanism of the model: the table as it is beside the table
//! with one mechanism switched off, and then the next.
//!
//! Both are published rows alone, usually played for less time than the experiment itself takes.

use std::cmp::Ordering::Equal;

use serde::Serialize;

use super::rows;
use super::table::{Cell, Experiment, Extent, Options, Progress, Table};
use crate::LabError;
use crate::mechanism::{Mechanism, Mechanisms, OF_FILES, OF_MACHINES};
use crate::provenance::Label;

/// Targets beyond which a cell is shown no further away.
pub const FAR: f64 = 20.0;
/// Parts of a table that the progress hears of.
const PARTS: u64 = 20;
/// Moves of less than this part of a target are left out.
const STILL: f64 = 0.1;

/// Tables that are finished, so that an ablation that was interrupted need not make them again.
pub trait Kept: Sync {
    /// The table that this command makes.
    fn find(&self, command: &str) -> Option<Table>;
    /// Keeps one more.
    ///
    /// # Errors
    /// A file that cannot be written.
    fn add(&self, table: &Table) -> Result<(), LabError>;
}

/// None are.
impl Kept for () {
    fn find(&self, _command: &str) -> Option<Table> {
        None
    }
    fn add(&self, _table: &Table) -> Result<(), LabError> {
        Ok(())
    }
}

/// A table without one mechanism after the other.
#[derive(Clone, Debug)]
pub struct Ablation {
    /// One line about the experiment.
    pub about: &'static str,
    /// How much of it was played.
    pub extent: Extent,
    /// With all mechanisms, played as long as the others.
    pub whole: Table,
    /// Without one each.
    pub without: Vec<Without>,
}

/// A table without a mechanism.
#[derive(Clone, Debug)]
pub struct Without {
    /// Its name.
    pub mechanism: &'static str,
    /// What is left instead.
    pub left: &'static str,
    /// What comes out.
    pub table: Table,
}

/// A published cell, with and without a mechanism. Distances are in targets: 1 is as far from the
/// published figure as the cell may be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Moved<'a> {
    /// The cell's row.
    pub row: &'a str,
    /// Its column.
    pub column: &'a str,
    /// The published figure.
    pub published: f64,
    /// With all mechanisms.
    pub whole: f64,
    /// Without the one.
    pub simulated: f64,
    /// How far it is from the published figure, in targets.
    pub off: f64,
    /// How far it moved, in targets.
    pub moved: f64,
}

/// The mechanisms that a table may owe something to, by the experiment's machine.
pub fn mechanisms(experiment: &Experiment) -> &'static [(Mechanism, &'static str, &'static str)] {
    if experiment.name.starts_with("zone-reclaim") { OF_FILES } else { OF_MACHINES }
}

impl Ablation {
    /// Plays so much of an experiment with all mechanisms, and then without each of those that
    /// `chosen` takes.
    /// Tables that `kept` has are not played again.
    ///
    /// # Errors
    /// As [`Experiment::run`] and [`Kept::add`], and an experiment of which nothing was published.
    pub fn run(
        experiment: &Experiment,
        (seed, extent): (u64, Extent),
        chosen: &dyn Fn(&str) -> bool,
        kept: &dyn Kept,
        progress: Progress<'_>,
    ) -> Result<Ablation, LabError> {
        if experiment.target_percent <= 0.0 {
            return Err(LabError::Plan(format!(
                "{}: nothing of it was published, so no cell can leave its target",
                experiment.name
            )));
        }
        let off = mechanisms(experiment).iter().filter(|(_, name, _)| chosen(name));
        let off: Vec<_> = off.copied().collect();
        let one = |mechanism: Option<Mechanism>| {
            let without =
                mechanism.map_or_else(Mechanisms::default, |one| Mechanisms::default().and(one));
            Options { without, extent, ..Options::seeded(seed) }
        };
        let all: Vec<Options> =
            std::iter::once(None).chain(off.iter().map(|known| Some(known.0))).map(one).collect();
        let mut tables = rows::all(&all, PARTS, progress, |options, looked| {
            if let Some(table) = kept.find(&experiment.command(options)) {
                (0..PARTS).for_each(|_| looked());
                return Ok(table);
            }
            let mut said = 0;
            let table = experiment.run(options, &mut |done, of| {
                while said * of < done * PARTS {
                    said += 1;
                    looked();
                }
            })?;
            kept.add(&table)?;
            Ok(table)
        })?
        .into_iter();
        let whole = tables.next().unwrap_or_else(|| unreachable!("the whole table is a row"));
        let without = off.iter().zip(tables).map(|((_, mechanism, left), table)| Without {
            mechanism,
            left,
            table,
        });
        Ok(Ablation { about: experiment.about, extent, whole, without: without.collect() })
    }

    /// The published cells that say something, as they are without a mechanism; `None`: with all.
    pub fn cells(&self, without: Option<&Without>) -> Vec<Moved<'_>> {
        let says = |cell: &&Cell| {
            !matches!(cell.label, None | Some(Label::Reference | Label::NotModelled))
        };
        let here = without.map_or(&self.whole, |without| &without.table);
        let moved = |cell: &'_ Cell| {
            let same = |other: &&Cell| other.row == cell.row && other.column == cell.column;
            // A row that is not there without it is a count of nothing.
            let simulated = here.cells.iter().find(same).map_or(0.0, |cell| cell.simulated);
            let off = self.off(cell, simulated);
            (simulated, off, (off - self.off(cell, cell.simulated)).abs())
        };
        let known = self.whole.cells.iter().filter(says);
        known
            .filter_map(|cell| {
                let (simulated, off, moved) = moved(cell);
                let (row, column) = (cell.row.as_str(), cell.column.as_str());
                let published = cell.published?;
                let whole = cell.simulated;
                Some(Moved { row, column, published, whole, simulated, off, moved })
            })
            .collect()
    }

    /// How far a figure is from that which was published for the cell, in targets.
    fn off(&self, cell: &Cell, simulated: f64) -> f64 {
        let published = cell.published.unwrap_or_default();
        let off = match (cell.points, cell.factor) {
            (Some(points), _) => (simulated - published) / points,
            (_, Some(factor)) => (simulated / published).ln() / factor.ln(),
            _ => (simulated / published - 1.0) * 100.0 / self.whole.target_percent,
        };
        // Nothing beside nothing is right.
        if off.is_nan() { 0.0 } else { off.clamp(-FAR, FAR) }
    }

    /// What a mechanism does for the table, in one sentence.
    pub fn sentence(&self, without: &Without) -> String {
        let cells = self.cells(Some(without));
        let (before, now) = (near(&self.cells(None)), near(&cells));
        let most = cells.iter().max_by(|one, other| one.moved.total_cmp(&other.moved));
        let Some(most) = most.filter(|most| most.moved >= STILL || before != now) else {
            return "No cell moves by a tenth of its target.".into();
        };
        let far = cells.iter().filter(|cell| cell.moved >= 1.0).count();
        let figure = crate::report::grouped;
        format!(
            "{far} of {} cells move by their target or more, {now} instead of {before} are within \
             it; most moves {}, {}: {} instead of {} ({} published).",
            cells.len(),
            most.row,
            most.column,
            figure(most.simulated),
            figure(most.whole),
            figure(most.published),
        )
    }

    /// What the table owes to which mechanism, in one sentence.
    pub fn conclusion(&self) -> String {
        let moves = |without: &Without| {
            let cells = self.cells(Some(without));
            let far = cells.iter().filter(|cell| cell.moved >= 1.0).count();
            let most = cells.iter().fold(0.0, |most: f64, cell| most.max(cell.moved));
            // A cell that leaves or reaches its target is something, however little it moves.
            let still = most < STILL && near(&cells) == near(&self.cells(None));
            (far, if still { None } else { Some(most) })
        };
        let mut known: Vec<(&str, (usize, Option<f64>))> =
            self.without.iter().map(|one| (one.mechanism, moves(one))).collect();
        known.sort_by(|one, other| {
            other.1.0.cmp(&one.1.0).then(other.1.1.partial_cmp(&one.1.1).unwrap_or(Equal))
        });
        let of = self.cells(None).len();
        let still = known.iter().filter(|(_, (_, most))| most.is_none());
        let still: Vec<&str> = still.map(|(name, _)| *name).collect();
        let rest = match still.len() {
            0 => String::new(),
            _ => format!("; nothing to {}", still.join(", ")),
        };
        let much: Vec<String> = known
            .iter()
            .filter(|(_, (far, _))| *far > 0)
            .take(3)
            .map(|(name, (far, _))| format!("{name} ({far} of {of} cells)"))
            .collect();
        match much.len() {
            0 => format!("No mechanism moves a cell by its target{rest}."),
            _ => format!("The table owes most to {}{rest}.", much.join(", ")),
        }
    }
}

/// How many cells are within their target.
pub fn near(cells: &[Moved<'_>]) -> usize {
    cells.iter().filter(|cell| cell.off.abs() <= 1.0).count()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn a_counter_table_owes_its_cycles_to_folds_and_nothing_to_pages() {
        let experiment = Experiment::named("vmstat-update-cost").unwrap();
        let chosen = |name: &str| ["folds", "contents"].contains(&name);
        let mut parts = 0;
        let ablation =
            Ablation::run(&experiment, (1, Extent::Brief), &chosen, &(), &mut |_, _| parts += 1)
                .unwrap();
        assert_eq!(parts, 3 * PARTS, "the bar comes to its end");
        let [folds, contents] = &ablation.without[..] else { panic!("two are switched off") };
        let whole = ablation.cells(None);
        assert!(whole.iter().all(|cell| cell.moved == 0.0));
        assert_eq!(near(&whole), whole.len());
        let cells = ablation.cells(Some(folds));
        let far: Vec<&str> =
            cells.iter().filter(|cell| cell.moved >= 1.0).map(|cell| cell.row).collect();
        assert_eq!(far, ["cmpxchg_local", "cmpxchg_local"], "its bug folds nearly every time");
        assert!(ablation.sentence(folds).starts_with("2 of 9 cells move"));
        assert_eq!(ablation.sentence(contents), "No cell moves by a tenth of its target.");
        assert_eq!(
            ablation.conclusion(),
            "The table owes most to folds (2 of 9 cells); nothing to contents."
        );
    }

    #[test]
    fn what_takes_a_cell_beyond_its_target_is_not_nothing_however_little_it_moves() {
        let experiment = Experiment::named("vmstat-update-cost").unwrap();
        let chosen = |name: &str| ["contents", "bandwidth"].contains(&name);
        let mut ablation =
            Ablation::run(&experiment, (1, Extent::Brief), &chosen, &(), &mut |_, _| {}).unwrap();
        let target = 1.0 + ablation.whole.target_percent / 100.0;
        let says = |cell: &Cell| cell.label == Some(Label::Fitted) && cell.points.is_none();
        let at = ablation.whole.cells.iter().position(says).unwrap();
        let edge = ablation.whole.cells[at].published.unwrap() * target;
        ablation.whole.cells[at].simulated = edge * 0.9999;
        ablation.without[0].table.cells[at].simulated = edge * 1.0001;
        ablation.without[1].table.cells[at].simulated = edge * 0.9998;
        let [far, still] = &ablation.without[..] else { panic!("two are switched off") };
        let sentence = ablation.sentence(far);
        assert!(sentence.starts_with("0 of 9 cells move"), "{sentence}");
        assert!(sentence.contains(" 8 instead of 9 are within it"), "{sentence}");
        let nothing = format!("nothing to {}.", still.mechanism);
        assert!(ablation.conclusion().ends_with(&nothing), "{}", ablation.conclusion());
    }

    /// Lines of finished tables, and how often one was found among them.
    #[derive(Default)]
    struct Lines(Mutex<(Vec<String>, usize)>);

    impl Kept for Lines {
        fn find(&self, command: &str) -> Option<Table> {
            let mut lines = self.0.lock().unwrap();
            let tables: Vec<Table> =
                lines.0.iter().filter_map(|line| Table::from_line(line)).collect();
            let found = tables.into_iter().find(|table| table.command == command)?;
            lines.1 += 1;
            Some(found)
        }
        fn add(&self, table: &Table) -> Result<(), LabError> {
            self.0.lock().unwrap().0.push(table.to_line());
            Ok(())
        }
    }

    #[test]
    fn what_was_finished_is_not_played_again_and_another_seed_or_mechanism_is() {
        let experiment = Experiment::named("vmstat-update-cost").unwrap();
        let (lines, mut parts) = (Lines::default(), 0);
        let mut run = |seed, of: &[&str]| {
            let chosen = |name: &str| of.contains(&name);
            let all =
                Ablation::run(&experiment, (seed, Extent::Brief), &chosen, &lines, &mut |_, _| {
                    parts += 1
                });
            let all = all.unwrap();
            let lines = lines.0.lock().unwrap();
            (all.whole, all.without.len(), lines.0.len(), lines.1)
        };
        let (whole, without, kept, found) = run(1, &["folds"]);
        assert_eq!((without, kept, found), (1, 2, 0));
        assert_eq!(whole.command, "zonal lab ablation --seed 1 --experiment vmstat-update-cost");
        let (again, without, kept, found) = run(1, &["folds", "reads"]);
        assert_eq!((without, kept, found), (2, 3, 2), "only the new one is played");
        assert_eq!(again, whole);
        let (other, _, kept, found) = run(2, &["folds"]);
        assert_eq!((kept, found), (5, 2));
        assert_eq!(other.seed, 2);
        assert_eq!(parts, 7 * PARTS, "the bar comes to its end");
    }

    #[test]
    fn what_was_never_published_has_no_targets_to_leave() {
        let experiment = Experiment::named("pageblocks-2026").unwrap();
        let error = Ablation::run(&experiment, (1, Extent::Brief), &|_| true, &(), &mut |_, _| {})
            .unwrap_err();
        assert!(error.to_string().contains("nothing of it was published"), "{error}");
    }
}
