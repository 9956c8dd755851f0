//! Tables that were finished, in a file of lines: what was interrupted goes on from there.
//!
//! The file is only ever appended to, a line with one write, so that neither a full disk nor
//! another process that keeps its tables there costs a table that it has.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, ensure};
use zonal_lab::LabError;
use zonal_lab::experiment::{Table, ablation};

/// How each line begins, before and after the build that made it.
const BEGIN: &[u8] = br#"{"version":""#;
const NEXT: &[u8] = br#"","experiment":""#;

/// Tables that were finished.
pub struct Kept {
    file: PathBuf,
    found: Vec<Table>,
    /// How many of them an ablation took.
    taken: AtomicUsize,
    /// One at a time writes.
    open: Mutex<File>,
}

impl Kept {
    /// Those of a file. It need not be there.
    ///
    /// # Errors
    /// A file that cannot be read or written, and one that has something else.
    pub fn at(file: PathBuf) -> anyhow::Result<Kept> {
        let place = file.display();
        let plain = fs::metadata(&file).map_or(true, |found| found.is_file());
        ensure!(plain, "{place}: no plain file, which tables could be kept in");
        let open = OpenOptions::new().read(true).append(true).create(true).open(&file);
        let open = open.with_context(|| format!("cannot open {place} to keep tables in it"))?;
        let (mut found, mut line) = (Vec::new(), Vec::new());
        let mut reader = BufReader::new(&open);
        while reader.read_until(b'\n', &mut line).with_context(|| format!("cannot read {place}"))?
            > 0
        {
            ensure!(
                is_table(line.strip_suffix(b"\n").unwrap_or(&line)),
                "{place}: no tables of `zonal lab`, so nothing is added to it; give another file, \
                 or move this one away"
            );
            // A torn line may end within a letter.
            found.extend(str::from_utf8(&line).ok().and_then(Table::from_line));
            line.clear();
        }
        Ok(Kept { file, found, taken: AtomicUsize::new(0), open: Mutex::new(open) })
    }

    /// The file.
    pub fn file(&self) -> std::path::Display<'_> {
        self.file.display()
    }

    /// The table that this command makes, if it was finished.
    pub fn find(&self, command: &str) -> Option<&Table> {
        self.found.iter().find(|table| table.command == command)
    }

    /// How many tables an ablation took since it was last asked.
    pub fn taken(&self) -> usize {
        self.taken.swap(0, Relaxed)
    }

    /// Keeps a table that is finished, on a line of its own, also behind a torn one.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn add(&self, table: &Table) -> anyhow::Result<()> {
        if self.found.contains(table) {
            return Ok(());
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let written = append(&mut open, table.to_line() + "\n");
        written.with_context(|| format!("cannot write {}", self.file()))
    }

    /// They are not needed any more.
    pub fn remove(self) {
        let _ = fs::remove_file(&self.file);
    }
}

/// Whether a line is a table of any build, or was to be one when it was torn.
fn is_table(line: &[u8]) -> bool {
    let begins = |line: &[u8], begin: &[u8]| line.starts_with(begin) || begin.starts_with(line);
    let Some(rest) = line.strip_prefix(BEGIN) else { return begins(line, BEGIN) };
    let build = rest.iter().take_while(|byte| **byte != b'"').count();
    begins(&rest[build..], NEXT)
}

fn append(file: &mut File, mut line: String) -> io::Result<()> {
    if file.seek(SeekFrom::End(0))? > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            line.insert(0, '\n');
        }
    }
    file.write_all(line.as_bytes())
}

impl ablation::Kept for Kept {
    fn find(&self, command: &str) -> Option<Table> {
        let found = Kept::find(self, command)?;
        self.taken.fetch_add(1, Relaxed);
        Some(found.clone())
    }
    fn add(&self, table: &Table) -> Result<(), LabError> {
        Kept::add(self, table).map_err(|error| LabError::Kept(format!("{error:#}")))
    }
}
