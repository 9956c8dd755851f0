//! What can go wrong in a bench run, said so that the reader can act on it.

use std::path::PathBuf;

use crate::cell::Cell;

/// Why a bench run, or one subject of it, stopped.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// An allocation was refused while a loop was being measured.
    #[error("{failed} of {asked} allocations failed")]
    Refused {
        /// Allocations that returned null.
        failed: u64,
        /// Allocations asked for.
        asked: u64,
    },
    /// A cell that the subject or the harness does not run.
    #[error("{cell}: {reason}")]
    Unsupported {
        /// The cell.
        cell: Cell,
        /// Why not.
        reason: String,
    },
    /// The checked pass found an error in a block of the subject.
    #[error("the checked pass found: {0}")]
    Wrong(String),
    /// The checked pass did other work than the harness asked for.
    #[error("result hash {got:016x}, expected {want:016x}: the subject did other work")]
    Hash {
        /// The subject's hash.
        got: u64,
        /// The hash of the work asked for.
        want: u64,
    },
    /// A worker thread ended before its burst did.
    #[error("a worker thread panicked; its message is on stderr")]
    WorkerGone,
    /// The process of a peer ended or stopped answering.
    #[error("the process of {subject} {what}")]
    Child {
        /// Which subject it ran.
        subject: String,
        /// What happened to it.
        what: String,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    Os {
        /// The call and its purpose.
        what: &'static str,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
}

impl BenchError {
    /// Whether the subject did something wrong, as opposed to not being able to take part.
    pub fn is_fault(&self) -> bool {
        matches!(self, BenchError::Wrong(_) | BenchError::Hash { .. })
    }
}
