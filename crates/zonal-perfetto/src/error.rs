//! Why a trace cannot be read or written.

use std::io;
use std::path::{Path, PathBuf};

/// Why a trace cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The recording that is read is damaged.
    #[error(transparent)]
    Trace(#[from] zonal_trace::TraceError),
    /// The system refuses.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Its error.
        source: io::Error,
    },
    /// The output refuses.
    #[error("the trace cannot be written: {0}")]
    Output(io::Error),
    /// It is no Perfetto trace, or a damaged one.
    #[error("{}: byte {at}: {what}", .path.display())]
    Packet {
        /// The file.
        path: PathBuf,
        /// Where the packet begins.
        at: u64,
        /// What was found and expected.
        what: String,
    },
    /// A trace without page events.
    #[error(
        "{}: no ftrace event of pages; record with the data source linux.ftrace and ftrace_events \
         kmem/mm_page_alloc, kmem/mm_page_free, kmem/mm_page_alloc_zone_locked and \
         kmem/mm_page_pcpu_drain", .0.display()
    )]
    NoPages(PathBuf),
    /// The caller's progress asked for it.
    #[error("stopped")]
    Stopped,
}

impl Error {
    pub(crate) fn io(path: &Path) -> impl Fn(io::Error) -> Error + '_ {
        move |source| Error::Io { path: path.to_owned(), source }
    }

    pub(crate) fn packet(path: &Path, at: u64, what: impl Into<String>) -> Error {
        Error::Packet { path: path.to_owned(), at, what: what.into() }
    }
}
