//! A recording as a file: ring pages and the machine's files in a directory become a `.zonal` file.

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use super::Recorded;
use crate::make::{MakeError, TICK_EVENTS, Target, Written, copy};
use crate::{EventKind, Recording, TraceError};

/// Why a recording could not be stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The rings had no room for some events.
    #[error("the rings had no room for {dropped} of {} events", .dropped + .entries)]
    Dropped {
        /// Events without room.
        dropped: u64,
        /// Events found.
        entries: u64,
    },
    /// The pages do not hold what the rings counted.
    #[error("the rings counted {counted} events, their pages hold {found}")]
    Counts {
        /// Events by the rings' counters.
        counted: u64,
        /// Events in the pages.
        found: u64,
    },
    /// A file of the directory cannot be read or written.
    #[error("{}: {source}", .path.display())]
    Files {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The pages are damaged.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The file cannot be written.
    #[error(transparent)]
    Make(#[from] MakeError),
}

impl Recorded {
    /// Refuses a recording with holes.
    ///
    /// # Errors
    /// [`StoreError::Dropped`].
    pub fn check_drops(&self) -> Result<(), StoreError> {
        let Recorded { dropped, entries, .. } = *self;
        if dropped > 0 { Err(StoreError::Dropped { dropped, entries }) } else { Ok(()) }
    }

    /// Makes a trace of what [`Recorder::finish`](super::Recorder::finish) wrote to `directory`,
    /// whose events are counted again meanwhile. `progress` gets the number of events so far, and
    /// may stop it.
    ///
    /// # Errors
    /// The pages differ from the rings' counts, the trace cannot be written, or `progress` stopped
    /// it ([`MakeError::Stopped`]).
    pub fn store(
        &self,
        directory: &Path,
        target: Target,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Written, StoreError> {
        // A whole recording is counted while it is converted: the reader holds it against the
        // number in `meta.json`. Where events were dropped, events of their own say how many.
        let found = if self.dropped == 0 { self.entries } else { count(directory, progress)? };
        if found != self.entries {
            return Err(StoreError::Counts { counted: self.entries, found });
        }
        note_events(&directory.join(crate::meta::FILE), found)?;
        Ok(copy(&Recording::open(directory)?, target, progress)?)
    }
}

impl Recorded {
    /// Makes a recording of the directory that [`Recorder::finish`](super::Recorder::finish) wrote
    /// to, without reading its events, and moves it to `place`, on the same file system.
    ///
    /// # Errors
    /// If there is something at `place`, or the system refuses.
    pub fn keep(&self, directory: &Path, place: &Path) -> Result<(), StoreError> {
        let failed = |source| StoreError::Files { path: place.to_owned(), source };
        if place.exists() {
            let what = "it is there already; expected a new directory";
            return Err(failed(io::Error::new(io::ErrorKind::AlreadyExists, what)));
        }
        if self.dropped == 0 {
            note_events(&directory.join(crate::meta::FILE), self.entries)?;
        }
        fs::rename(directory, place).map_err(failed)
    }
}

/// Events in the pages, but those that tell of others without room.
fn count(
    directory: &Path,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<u64, StoreError> {
    let mut found = 0;
    for (read, event) in (0_u64..).zip(Recording::open(directory)?.events()) {
        found += u64::from(!matches!(event?.kind, EventKind::Lost { .. }));
        // Nothing is written yet.
        if read.is_multiple_of(TICK_EVENTS) && progress(0).is_break() {
            return Err(MakeError::Stopped.into());
        }
    }
    Ok(found)
}

/// Notes the number of events in `meta.json`.
fn note_events(path: &Path, events: u64) -> Result<(), StoreError> {
    let noted = fs::read_to_string(path).and_then(|text| {
        let mut meta: serde_json::Value = serde_json::from_str(&text)?;
        meta["events"] = events.into();
        fs::write(path, format!("{meta:#}\n"))
    });
    noted.map_err(|source| StoreError::Files { path: path.to_owned(), source })
}
