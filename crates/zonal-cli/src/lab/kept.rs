//! Tables that were finished, in a file of lines: what was interrupted goes on from there.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use zonal_lab::LabError;
use zonal_lab::experiment::{Table, ablation};

/// Tables that were finished.
pub struct Kept {
    file: PathBuf,
    found: Vec<Table>,
    /// One at a time writes.
    writes: Mutex<()>,
}

impl Kept {
    /// Those of a file. It need not be there.
    pub fn at(file: PathBuf) -> Kept {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let found = text.lines().filter_map(Table::from_line).collect();
        Kept { file, found, writes: Mutex::new(()) }
    }

    /// The file.
    pub fn file(&self) -> std::path::Display<'_> {
        self.file.display()
    }

    /// The table that this command makes, if it was finished.
    pub fn find(&self, command: &str) -> Option<&Table> {
        self.found.iter().find(|table| table.command == command)
    }

    /// Keeps a table that is finished, on a line of its own, also behind a torn one.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn add(&self, table: &Table) -> anyhow::Result<()> {
        let one = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        let line = table.to_line();
        if text.lines().any(|known| known == line) {
            return Ok(());
        }
        let begin = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        let written = fs::write(&self.file, format!("{text}{begin}{line}\n"));
        drop(one);
        written.with_context(|| format!("cannot write {}", self.file()))
    }

    /// They are not needed any more.
    pub fn remove(self) {
        let _ = fs::remove_file(&self.file);
    }
}

impl ablation::Kept for Kept {
    fn find(&self, command: &str) -> Option<Table> {
        Kept::find(self, command).cloned()
    }
    fn add(&self, table: &Table) -> Result<(), LabError> {
        Kept::add(self, table).map_err(|error| LabError::Kept(format!("{error:#}")))
    }
}
