//! The zoned, NUMA-aware page allocator.
//!
//! The core of Zonal: nodes and zones, a buddy allocator per zone, per-CPU page lists that tune
//! themselves, watermarks and counters. It runs in a process (crate `zonal`), in a simulator and in
//! a kernel; what differs between them is one small trait, [`platform::Platform`].
//!
//! No standard library, no allocation after init, no system calls, no dependencies. The caller owns
//! the metadata: [`machine::Layout`] says how much, [`alloc::Allocator::new`] takes it.
//!
//! ```text
//! types → early → gfp → sync → lanes → platform → frame → vmstat → buddy → zone → pcp → policy
//!       → zonelist → machine → reclaim → alloc
//! ```
//! A module uses only modules to its left. "LB D.4" is section D.4 of the reference of Linux'
//! behaviour, in the folder `docs/linux` of the repository.
#![no_std]
#![deny(unsafe_code)]

#[cfg(test)]
extern crate std;
// What tests share names the crate as integration tests do.
#[cfg(test)]
extern crate self as zonal_core;

#[cfg(not(target_has_atomic = "64"))]
compile_error!(
    "zonal-core needs a target with 64-bit atomics (target_has_atomic = \"64\"): a page's word and \
     a per-CPU list's hot word are changed by one 64-bit store or compare-and-exchange"
);

pub mod alloc;
pub mod buddy;
pub mod early;
pub mod frame;
pub mod gfp;
#[cfg(feature = "history")]
pub mod history;
mod lanes;
pub mod machine;
pub mod pcp;
pub mod platform;
pub mod policy;
pub mod prefetch;
pub mod reclaim;
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;
pub mod sync;
pub mod types;
pub mod vmstat;
pub mod zone;
pub mod zonelist;
