//! Why a run cannot be.

use thiserror::Error;
use zonal_core::alloc::OnlineError;
use zonal_core::policy::nearest::nearest;

use crate::machine::MachineError;
use crate::workload::WorkloadError;

/// Why a run cannot be.
#[derive(Debug, Error)]
pub enum LabError {
    /// The machine's file.
    #[error("machine: {0}")]
    Machine(#[from] MachineError),
    /// The core does not take the machine.
    #[error("machine: {0}")]
    Core(#[from] zonal_core::machine::MachineError),
    /// Its memory does not come online.
    #[error("machine: {0}")]
    Online(#[from] OnlineError),
    /// No workload.
    #[error("workload: {0}")]
    Workload(#[from] WorkloadError),
    /// A run that cannot be: which figure, and what would do.
    #[error("{0}")]
    Plan(String),
    /// A finished table could not be kept: which file, and why.
    #[error("cannot keep a finished table: {0}")]
    Kept(String),
    /// [`Stop::ask`](crate::Stop::ask) was called.
    #[error("the call was stopped")]
    Stopped,
    /// Nothing has this name.
    #[error("no {what} is called '{name}'{}; there are {known}", guess(name, known))]
    Unknown {
        /// The name looked for.
        what: &'static str,
        /// By which name.
        name: String,
        /// The names there are.
        known: String,
    },
}

/// The name that may have been meant.
fn guess(name: &str, known: &str) -> String {
    let near = nearest(name, known.split(", "));
    near.map_or_else(String::new, |near| format!(" (did you mean '{near}'?)"))
}
