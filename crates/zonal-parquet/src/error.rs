//! Why a file cannot be read or written.

use std::io;
use std::path::{Path, PathBuf};

/// Why a file cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The recording that is read is damaged.
    #[error(transparent)]
    Trace(#[from] zonal_trace::TraceError),
    /// The rows of a sweep.
    #[error(transparent)]
    Lab(#[from] zonal_lab::LabError),
    /// The system refuses.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Its error.
        source: io::Error,
    },
    /// It is no Parquet file, or a damaged one.
    #[error("{}: no Parquet file that can be read: {what}", .path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// What the library found.
        what: String,
    },
    /// A column is missing or of another type.
    #[error("{}: column {column}: {what}", .path.display())]
    Column {
        /// The file.
        path: PathBuf,
        /// Its name.
        column: String,
        /// What was found and expected.
        what: String,
    },
    /// A row that is no event.
    #[error("{}: row {row}: {what}", .path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        row: u64,
        /// What was found and expected.
        what: String,
    },
    /// The output is a file of the input.
    #[error("{}: the trace is read from this file; write another one", .0.display())]
    Overwrites(PathBuf),
    /// The caller's progress asked for it. The output is as it was before.
    #[error("stopped")]
    Stopped,
}

impl Error {
    pub(crate) fn io(path: &Path) -> impl Fn(io::Error) -> Error + '_ {
        move |source| Error::Io { path: path.to_owned(), source }
    }

    pub(crate) fn parquet(path: &Path) -> impl Fn(parquet::errors::ParquetError) -> Error + '_ {
        move |error| Error::Parquet { path: path.to_owned(), what: error.to_string() }
    }

    pub(crate) fn column(path: &Path, column: &str, what: impl Into<String>) -> Error {
        Error::Column { path: path.to_owned(), column: column.to_owned(), what: what.into() }
    }
}
