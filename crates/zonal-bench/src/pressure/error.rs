//! Why a load could not be run to its end.

use std::io;
use std::path::PathBuf;

use zonal::BuildError;
use zonal::sys::affinity::AffinityError;

/// Why a load could not be run to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PressureError {
    /// A directory for the files cannot be made.
    #[error("cannot make a directory in {}", .place.display())]
    Directory {
        /// Where.
        place: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file of the load cannot be made.
    #[error("{}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The pool cannot be made.
    #[error(transparent)]
    Pool(#[from] BuildError),
    /// A file in the cache failed.
    #[error(transparent)]
    Cache(#[from] io::Error),
    /// A thread cannot be kept on a CPU.
    #[error(transparent)]
    Affinity(#[from] AffinityError),
    /// There is no CPU to run on.
    #[error("no CPU to run on")]
    NoCpu,
    /// A thread panicked.
    #[error("{0} panicked; its message is above")]
    Panicked(&'static str),
    /// The pool is not as it should be at the end.
    #[error("{0}")]
    Pages(String),
    /// The published table, which is part of the program, cannot be read.
    #[error("{0}")]
    Published(String),
}
