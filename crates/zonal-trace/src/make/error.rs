//! Errors of conversions.

use std::io;
use std::path::{Path, PathBuf};

use crate::TraceError;

/// An error of a conversion.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MakeError {
    /// The trace that is read is damaged, or cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A text of the machine cannot be read.
    #[error(transparent)]
    Text(#[from] zonal_text::Error),
    /// `meta.json` of the trace is no JSON.
    #[error("meta.json")]
    Meta(#[from] serde_json::Error),
    /// The output cannot be written.
    #[error("{}: cannot be written, expected a file in an existing folder", .path.display())]
    Output {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The writer that the caller gave failed.
    #[error("cannot write the trace")]
    Writer(#[source] io::Error),
    /// There is a directory where the output should be.
    #[error("{}: expected a new file or directory, found one", .0.display())]
    Directory(PathBuf),
    /// The output's name does not say which form it is to have.
    #[error(
        "{}: expected a name that ends in .zonal, .txt or .txt.zst, or a directory's",
        .0.display()
    )]
    Name(PathBuf),
    /// The output is a file that the trace is read from.
    #[error("{}: the trace is read from this file; write another one", .0.display())]
    Overwrites(PathBuf),
    /// The selection is not in the trace.
    #[error("{0}")]
    Selection(String),
    /// The caller's progress callback stopped it.
    #[error("stopped before the trace was whole")]
    Stopped,
    /// The trace cannot be scaled.
    #[error("{0}")]
    Scale(String),
}

impl MakeError {
    /// The error of an output at `path`.
    pub(super) fn output(path: &Path) -> impl Fn(io::Error) -> MakeError + '_ {
        move |source| MakeError::Output { path: path.to_owned(), source }
    }
}
