//! Why a replay could not be done.

use zonal::sys::affinity::AffinityError;
use zonal_core::alloc::{OnlineError, SysctlError};
use zonal_core::machine::MachineError;
use zonal_core::types::Pfn;
use zonal_trace::TraceError;

/// Why a replay could not be done. That a replay went wrong is no error but a fault in its report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The recording cannot be read; the error names file and place.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The recording has no allocations and frees.
    #[error(
        "{recording} was recorded without allocations and frees (--moves), so there is nothing to \
         replay; `zonal advise` says what the moves in it cost, and a recording without --moves, \
         in windows (--every, --for) where that costs too much, can be replayed"
    )]
    MovesAlone {
        /// The recording.
        recording: String,
    },
    /// The recorded machine cannot exist.
    #[error("the recorded machine")]
    Machine(#[source] MachineError),
    /// The core does not know a zone of this kind.
    #[error("{machine}: zone {kind} cannot be rebuilt")]
    ZoneKind {
        /// The recording.
        machine: String,
        /// The zone's name.
        kind: String,
    },
    /// The kernel was built with a scale that no kernel can be built with.
    #[error("{machine}: a batch scale of {scale}, above 6")]
    BatchScale {
        /// The recording.
        machine: String,
        /// `CONFIG_PCP_BATCH_SCALE_MAX`.
        scale: u32,
    },
    /// The machine is too large to be rebuilt here.
    #[error("the recorded machine needs {mib} MiB of metadata; at most {mib_max} MiB are taken")]
    TooLarge {
        /// MiB that it would take.
        mib: usize,
        /// MiB that it may take.
        mib_max: usize,
    },
    /// The trace spans more time than its steps can be of.
    #[error(
        "the trace spans {seconds} s on {cpus} CPUs with so few events that at most {seconds_max} \
         s are taken: its times may be damaged"
    )]
    TooLong {
        /// Seconds from its start to its last event.
        seconds: u64,
        /// CPUs, each of which has a worker that runs each second.
        cpus: u32,
        /// Seconds that it may take.
        seconds_max: u64,
    },
    /// The core refused memory of the start state: a bug.
    #[error("zone {zone}")]
    Online {
        /// The zone.
        zone: String,
        /// Why.
        #[source]
        source: OnlineError,
    },
    /// The core gave out another block of the start state than the one it was given: a bug.
    #[error("zone {zone}: {expected:#x} came back as {found:?}: a bug")]
    StartBlock {
        /// The zone.
        zone: String,
        /// First frame of the block.
        expected: u64,
        /// The received value.
        found: Option<Pfn>,
    },
    /// A setting that the core refuses.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    /// The recording's `sysctl.txt` is none.
    #[error(transparent)]
    Settings(#[from] zonal_text::Error),
    /// A machine of the lab, for its costs, cannot be loaded.
    #[error(transparent)]
    Lab(#[from] zonal_lab::machine::MachineError),
    /// No change has a name that begins so.
    #[error("no change begins with '{name}'; there are {}", there.join(", "))]
    NoSuchChange {
        /// The request.
        name: String,
        /// The names of all changes for this recording.
        there: Vec<String>,
    },
    /// Nothing to advise on.
    #[error("no recording is given; expected at least one")]
    NoRecording,
    /// Recordings that cannot be of one load on one machine.
    #[error(
        "{first} and {other} do not fit together: {what} {expected} in the first, {found} in the \
         other; recordings of one load are made on one machine, under one kernel and the same \
         settings. Ask about each by itself"
    )]
    OtherMachine {
        /// The recording that the others are held to.
        first: String,
        /// The one that differs.
        other: String,
        /// What differs.
        what: &'static str,
        /// Of the first.
        expected: String,
        /// Of the other.
        found: String,
    },
    /// The trace has no allocation of this number.
    #[error(
        "allocation {number} cannot be explained: the trace, up to where it was replayed, has \
         {allocs} allocations"
    )]
    NothingToExplain {
        /// The number asked for.
        number: u64,
        /// Allocations of the trace.
        allocs: u64,
    },
    /// The system does not tell which CPUs may be used.
    #[error("cannot tell which CPUs may be used")]
    Cpus(#[source] AffinityError),
    /// The trace needs more memory at a time than there are addresses.
    #[error("the trace holds more memory at a time than this machine can address")]
    TooMuchMemory,
    /// This machine does not grant the memory.
    #[error("cannot make a pool of {mib} MiB for this trace")]
    Pool {
        /// The pool's size.
        mib: usize,
        /// Why.
        #[source]
        source: zonal::BuildError,
    },
    /// The caller's [`Watch`](crate::Watch) stopped the call.
    #[error("stopped")]
    Stopped,
}

/// An error and its causes on one line.
pub fn chain(error: &ReplayError) -> String {
    let mut line = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        line = format!("{line}: {error}");
        cause = error.source();
    }
    line
}
