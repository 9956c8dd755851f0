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
// No module there, so that this is the only error.

#[cfg(target_has_atomic = "64")]
pub mod alloc;
#[cfg(target_has_atomic = "64")]
pub mod buddy;
#[cfg(target_has_atomic = "64")]
pub mod early;
#[cfg(target_has_atomic = "64")]
pub mod frame;
#[cfg(target_has_atomic = "64")]
pub mod gfp;
#[cfg(feature = "history")]
#[cfg(target_has_atomic = "64")]
pub mod history;
#[cfg(target_has_atomic = "64")]
mod lanes;
#[cfg(target_has_atomic = "64")]
pub mod machine;
#[cfg(target_has_atomic = "64")]
pub mod pcp;
#[cfg(target_has_atomic = "64")]
pub mod platform;
#[cfg(target_has_atomic = "64")]
pub mod policy;
#[cfg(target_has_atomic = "64")]
pub mod prefetch;
#[cfg(target_has_atomic = "64")]
pub mod reclaim;
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
#[cfg(target_has_atomic = "64")]
mod support;
#[cfg(target_has_atomic = "64")]
pub mod sync;
#[cfg(target_has_atomic = "64")]
pub mod types;
#[cfg(target_has_atomic = "64")]
pub mod vmstat;
#[cfg(target_has_atomic = "64")]
pub mod zone;
#[cfg(target_has_atomic = "64")]
pub mod zonelist;
