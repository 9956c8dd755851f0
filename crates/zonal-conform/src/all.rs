//! Many captures, one after the other.

use std::path::{Path, PathBuf};

use crate::capture::Capture;
use crate::error::{Error, ensure};
use crate::files::{Directory, Live};
use crate::judge::judge;
use crate::meta;
use crate::report::{BadInput, Case, Report};

/// Where a kernel's texts are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// In this directory.
    Directory(PathBuf),
    /// In `/proc` and `/sys` of the running kernel, which are only read.
    Live,
}

/// A capture that has been judged, or refused.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Progress<'a> {
    /// Captures done, this one included.
    pub done: usize,
    /// Captures in all.
    pub total: usize,
    /// Its name in the report.
    pub name: &'a str,
}

impl Source {
    /// What reports call it, unless its `meta.json` has a name.
    pub fn name(&self) -> String {
        let Source::Directory(path) = self else { return "live".to_owned() };
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        name.unwrap_or_else(|| path.display().to_string())
    }

    /// Reads and judges it.
    ///
    /// # Errors
    /// [`Error`] if it is no capture, or one of its texts is not as a kernel prints it.
    pub fn judge(&self) -> Result<Case, Error> {
        let capture = match self {
            Source::Directory(path) => {
                check(path)?;
                Capture::read(&self.name(), &Directory(path.clone()))
            }
            Source::Live => Capture::live(&Live::below("/")),
        };
        judge(&capture?)
    }
}

/// Judges captures, and tells `progress` after each. What cannot be read is in
/// [`Report::bad_input`], and the others are judged.
///
/// ```
/// use zonal_conform::{Source, judge_all};
///
/// let report = judge_all(&[Source::Directory("/nowhere".into())], &mut |step| {
///     eprintln!("{} of {}: {}", step.done, step.total, step.name);
/// });
/// assert_eq!((report.cases.len(), report.bad_input.len()), (0, 1));
/// ```
pub fn judge_all(sources: &[Source], progress: &mut dyn FnMut(Progress<'_>)) -> Report {
    let mut report = Report::default();
    for (source, done) in sources.iter().zip(1..) {
        let name = source.name();
        match source.judge() {
            Ok(case) => report.push(case),
            Err(error) => {
                report.bad_input.push(BadInput { name: name.clone(), error: error.chain() });
            }
        }
        progress(Progress { done, total: sources.len(), name: &name });
    }
    report
}

/// Refuses files, and a directory of captures.
fn check(path: &Path) -> Result<(), Error> {
    let directory = || path.display().to_string();
    ensure(path.is_dir(), || Error::NoDirectory(directory()))?;
    if path.join(meta::FILE).exists() {
        return Ok(());
    }
    let captures = captures_in(path);
    ensure(captures.is_empty(), || Error::Captures { directory: directory(), captures })
}

/// The captures that lie in a directory, by their names.
fn captures_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let captures = entries.filter(|entry| entry.path().join(meta::FILE).is_file());
    let mut names: Vec<String> =
        captures.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
