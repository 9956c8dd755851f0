//! Bad input: file, line, what was found and what was expected.

use std::fmt;
use std::io;

use zonal_core::alloc::{OnlineError, SysctlError};
use zonal_core::machine::MachineError;

use crate::place::Place;

/// Why a capture could not be judged.
///
/// ```
/// use zonal_conform::{Capture, Directory};
///
/// let error = Capture::read("nothing", &Directory("/nowhere".into())).unwrap_err();
/// assert_eq!(error.to_string(), "/nowhere/meta.json: no such file; a capture must have it");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such directory, or what is there is none.
    #[error("{0}: no such directory; expected that of a capture")]
    NoDirectory(String),
    /// A directory that is no capture holds captures.
    #[error(
        "{directory}: no capture, but a directory of captures: give them one by one, {}",
        .captures.join(" ")
    )]
    Captures {
        /// The directory.
        directory: String,
        /// The captures in it.
        captures: Vec<String>,
    },
    /// A text that a capture must have is not there.
    #[error("{0}: no such file; a capture must have it")]
    Missing(String),
    /// The system refused to read a text, or it is none.
    #[error("{file}")]
    Read {
        /// What messages call the file.
        file: String,
        /// The system's error.
        source: io::Error,
    },
    /// No kernel printed this.
    #[error("{}: line {}: {what}", .place.file, .place.line)]
    Bad {
        /// Where it stands.
        place: Place,
        /// The fault.
        what: String,
    },
    /// The running kernel has no such sysctl.
    #[error("this kernel has no {0}")]
    NoSysctl(String),
    /// A sysctl that no kernel takes.
    #[error("{}: line {}", .place.file, .place.line)]
    Sysctl {
        /// Where it stands.
        place: Place,
        /// The core's error.
        source: SysctlError,
    },
    /// The core cannot be such a machine.
    #[error("the machine cannot be rebuilt")]
    Machine(#[from] MachineError),
    /// The core has no such zone.
    #[error("the machine cannot be rebuilt")]
    Zone(#[from] OnlineError),
    /// The machine would take too much memory.
    #[error(
        "the machine needs {} MiB of metadata; at most {} MiB are taken",
        .bytes >> 20,
        .most >> 20
    )]
    TooLarge {
        /// Bytes that it takes.
        bytes: usize,
        /// Bytes that it may take.
        most: usize,
    },
}

impl Error {
    /// Something at a line of a file, counted from 1.
    pub(crate) fn at(file: &str, line: u64, what: &dyn fmt::Display) -> Error {
        Error::Bad { place: Place::new(file, line), what: what.to_string() }
    }

    /// The message with those of its causes, as `zonal conform` prints it.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut next = std::error::Error::source(self);
        while let Some(cause) = next {
            text = format!("{text}: {cause}");
            next = cause.source();
        }
        text
    }
}

/// `error`, unless `holds`.
pub(crate) fn ensure(holds: bool, error: impl FnOnce() -> Error) -> Result<(), Error> {
    if holds { Ok(()) } else { Err(error()) }
}
