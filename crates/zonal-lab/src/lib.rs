//! The lab: a machine of any size in virtual time, around the same core that hands out real memory.
//!
//! ```text
//!  machine (TOML) ─► home: virtual CPUs, clock ◄── cost hooks ── zonal-core, unchanged
//!  policy, seed   ─► sim:  the CPU that is behind makes the next call of its workload
//!                      └──► outcome ─► experiment: published | simulated | error ─► report
//! ```
//! | module | holds |
//! |--|--|
//! | `machine` | machines as data, each figure with its source |
//! | `cost` | who has which line and lock, and what the next access costs |
//! | `home` | the core's home: virtual CPUs and their clocks |
//! | `sim` | runs a workload on it |
//! | `workload` | what the CPUs do, as data and at work |
//! | `run` | one run: machine, policy, workload, seed in, figures out |
//! | `experiment` | the published tables |
//!
//! Everything printed by the lab is simulated, and says so.

#[macro_use]
mod counts;
pub mod cost;
mod error;
pub mod experiment;
pub mod home;
pub mod machine;
pub mod records;
pub mod report;
pub mod run;
pub mod sim;
pub mod workload;

pub use error::LabError;
