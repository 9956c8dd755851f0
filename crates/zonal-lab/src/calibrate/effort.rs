//! How long a measurement of this machine may take, and why it could not be made.

use thiserror::Error;
use zonal::sys::affinity::AffinityError;
use zonal::sys::topology::TopologyError;

use crate::machine::MachineError;

/// How long a measurement may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Buffers of up to 1 GiB: seven to ten seconds.
    Full,
    /// Buffers of up to 64 MiB: about a second; memory may come out too fast.
    Quick,
}

/// Why this machine could not be measured.
#[derive(Debug, Error)]
pub enum CalibrateError {
    /// Sysfs does not describe it.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A CPU could not be used.
    #[error(transparent)]
    Affinity(#[from] AffinityError),
    /// The measured figures do not form a valid machine.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// No CPU is online and allowed.
    #[error("this process may use none of the online CPUs")]
    NoCpu,
    /// No buffer on another node is available.
    #[error("no memory for {0} bytes")]
    NoMemory(u64),
    /// A figure that every machine has was not timed once.
    #[error("nothing was timed")]
    NothingTimed,
}
