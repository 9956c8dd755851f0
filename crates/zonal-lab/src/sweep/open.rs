//! A sweep at work: its file, the rows that it has, and those that are missing.

use std::borrow::Borrow;
use std::path::{Path, PathBuf};

use super::file::{self, Rows};
use super::lock::Held;
use super::merge::taken;
use super::point::Sweep;
use super::row::Row;
use super::text::RowText;
use crate::LabError;

/// What became of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Runs made.
    pub made: usize,
    /// Runs that were in the file already.
    pub found: usize,
}

/// The file of a sweep while rows are added. Whoever makes the rows, here or elsewhere, hands them
/// to [`add`](Open::add).
#[derive(Debug)]
pub struct Open<S> {
    sweep: S,
    path: PathBuf,
    held: Held,
    rows: Vec<Option<Row>>,
    /// Rows of the file that belong to other sweeps.
    others: Rows,
    found: usize,
    made: usize,
}

impl Sweep {
    /// Opens the file at `path` for this sweep, and takes the rows that it has.
    ///
    /// # Errors
    /// The file is not of a sweep, has rows of another version, is in use, or cannot be written.
    pub fn open(&self, path: &Path) -> Result<Open<&Sweep>, LabError> {
        Open::new(self, path)
    }

    /// Takes the rows of this sweep's points out of `rows`, by their number.
    pub(super) fn take(&self, rows: &mut Rows) -> Vec<Option<Row>> {
        let take = |at| {
            let mut row = rows.remove(&Row::key_of(&self.text(at).key()))?;
            row.relabel(&self.label(&self.points[at]));
            Some(row)
        };
        (0..self.points.len()).map(take).collect()
    }
}

impl<S: Borrow<Sweep>> Open<S> {
    /// As [`Sweep::open`], for a sweep that is owned or shared.
    ///
    /// # Errors
    /// As [`Sweep::open`].
    pub fn new(sweep: S, path: &Path) -> Result<Open<S>, LabError> {
        let (mut held, mut others) = taken(path)?;
        file::trim(&mut held.file, path)?;
        let rows = sweep.borrow().take(&mut others);
        let found = rows.iter().flatten().count();
        Ok(Open { sweep, path: path.to_owned(), held, rows, others, found, made: 0 })
    }

    /// The sweep.
    pub fn sweep(&self) -> &Sweep {
        self.sweep.borrow()
    }

    /// Numbers of the points whose rows are missing.
    pub fn missing(&self) -> impl Iterator<Item = usize> {
        (0..self.rows.len()).filter(|at| self.rows[*at].is_none())
    }

    /// Rows that were in the file already.
    pub fn found(&self) -> usize {
        self.found
    }

    /// Adds the row of point `at`, and writes it. A row that is there already is not written again.
    ///
    /// # Errors
    /// The row is of another point or version, contradicts the one that is there, or cannot be
    /// written.
    ///
    /// # Panics
    /// If there is no such point.
    pub fn add(&mut self, at: usize, mut row: Row) -> Result<(), LabError> {
        let sweep = self.sweep.borrow();
        let text: RowText = sweep.text(at);
        if row.key() != Row::key_of(&text.key()) {
            return Err(LabError::Plan(format!(
                "the row of `{}` came as that of `{}`; expected the row that was asked for",
                row.get("command").unwrap_or_default(),
                text.recipe().command(),
            )));
        }
        row.relabel(&sweep.label(&sweep.points[at]));
        if let Some(known) = &self.rows[at] {
            let mut rows = Rows::from([(known.key().to_owned(), known.clone())]);
            return file::add(&mut rows, row);
        }
        file::write(&mut self.held.file, &row)?;
        self.rows[at] = Some(row);
        self.made += 1;
        Ok(())
    }

    /// Writes the file again in the order of the points, and returns their rows; those that are
    /// missing are left out.
    ///
    /// # Errors
    /// The file cannot be written; the rows in it are kept.
    pub fn finish(self) -> Result<(Vec<Row>, Done), LabError> {
        file::rewrite(&self.path, self.rows.iter().flatten().chain(self.others.values()))?;
        let done = Done { made: self.made, found: self.found };
        Ok((self.rows.into_iter().flatten().collect(), done))
    }
}
