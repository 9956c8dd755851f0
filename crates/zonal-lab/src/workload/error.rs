//! Why a text is no workload, or a workload cannot be played.

use thiserror::Error;

/// Why a text is no workload.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum WorkloadError {
    /// No kind has this name.
    #[error("no workload is called '{name}'; there are {known}")]
    Unknown {
        /// The name.
        name: String,
        /// The names there are.
        known: String,
    },
    /// It has no such number.
    #[error("{kind} has no '{name}'; it takes {known}")]
    Parameter {
        /// The workload.
        kind: &'static str,
        /// The text.
        name: String,
        /// The accepted values.
        known: String,
    },
    /// A number is given twice.
    #[error("{kind}: {name} comes twice; expected one value")]
    Twice {
        /// The workload.
        kind: &'static str,
        /// The number's name.
        name: String,
    },
    /// A kind that plays a file, without one.
    #[error("{0}: which file? expected {0}:FILE, and numbers after it, as {0}:FILE,copies=2")]
    NoFile(&'static str),
    /// A recording that cannot be played.
    #[error("trace: {0}")]
    Trace(String),
    /// No jobs of a build.
    #[error("kbuild: {0}")]
    Jobs(String),
    /// A number is none, or cannot be.
    #[error("{kind}: {name} is '{value}'; expected a whole number from {min} to {max}")]
    Value {
        /// The workload.
        kind: &'static str,
        /// The number's name.
        name: &'static str,
        /// The text.
        value: String,
        /// The smallest it may be.
        min: u64,
        /// The largest it may be.
        max: u64,
    },
}
