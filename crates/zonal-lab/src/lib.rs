//! The lab: a machine of any size in virtual time, around the same core that hands out real memory.
//!
//! ```text
//!  machine (TOML) ─► platform: virtual CPUs, clock ◄── cost hooks ── zonal-core, unchanged
//!  policy, seed   ─► sim:  the CPU that is behind makes the next call of its workload
//!                      └──► outcome ─► experiment: published | simulated | error ─► report
//! ```
//! | module | holds |
//! |--|--|
//! | `machine` | machines as data, each figure with its source |
//! | `provenance` | where each figure is from, and what may be said of a published cell |
//! | `cost` | who has which line and lock, and what the next access costs |
//! | `platform` | the core's platform: virtual CPUs and their clocks |
//! | `sim` | runs a workload on it |
//! | `pagecache` | files, a disk and reclaim around the core, for loads that use files |
//! | `workload` | what the CPUs do, as data and at work |
//! | `run` | one run: machine, policy, workload, seed in, figures out |
//! | `recipe` | a run as people write it, and the command line that makes it again |
//! | `sweep` | many runs: every combination of some values, into one file that can be resumed |
//! | `tape` | a run as a recording, whose truth is known |
//! | `compare` | two runs that differ in their policy, and what explains the difference |
//! | `experiment` | the published tables |
//! | `predict` | predictions of measurements that were not looked at, as rows |
//! | `mechanism` | parts of the model that can be switched off, one by one |
//! | `variant` | kernels that differ from every policy, as switches |
//! | `ranges` | a week of a mixed load of ranges: what is left in a row |
//! | `huge` | large tables in large pages of the host |
//! | `one_thread` | what the thread that plays a run uses alone |
//! | `calibrate` | this machine, measured (feature `calibrate`) |
//! | `report` | lines of values, and pages with plots that need nothing else |
//!
//! Everything printed by the lab is simulated, and says so.
//!
//! "LB D.4" is section D.4 of the reference of Linux' behaviour, in the folder `docs/linux` of the
//! repository.

#[macro_use]
mod counts;
#[cfg(feature = "calibrate")]
pub mod calibrate;
pub mod compare;
pub mod cost;
mod error;
pub mod experiment;
mod huge;
pub mod machine;
pub mod mechanism;
mod one_thread;
pub mod pagecache;
pub mod platform;
pub mod predict;
pub mod provenance;
pub mod ranges;
pub mod recipe;
pub mod records;
pub mod report;
pub mod run;
pub mod sim;
mod stop;
pub mod sweep;
pub mod tape;
mod units;
pub mod variant;
pub mod workload;

pub use error::LabError;
pub use stop::Stop;
