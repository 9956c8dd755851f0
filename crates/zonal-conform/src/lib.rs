//! Compares texts of Linux' page allocator with the values that the Zonal core computes for the
//! same machines.
//!
//! A kernel derives watermarks, reserves, sizes of per-CPU lists, thresholds of counters,
//! `min_free_kbytes` and the order of NUMA nodes from its zones, CPUs and sysctls. This crate reads
//! them from a capture of `/proc` and `/sys` (or from those of the running kernel), gives zones,
//! CPUs and sysctls to [`zonal_core`], and compares every value that the kernel printed with the
//! one that the core computes.
//!
//! ```
//! use zonal_conform::{Capture, Directory, judge};
//!
//! # fn main() -> Result<(), zonal_conform::Error> {
//! # let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/captures/7.2-n1-4g-c2");
//! let capture = Capture::read("a machine of 4 GiB", &Directory(directory.into()))?;
//! let case = judge(&capture)?;
//! assert!(case.values > 100);
//! for check in &case.mismatches {
//!     println!("{check}"); // FILE:LINE: WHAT: expected X, computed Y
//! }
//! assert!(case.mismatches.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! [`judge_all`] does that for many captures; one that cannot be read does not keep it from the
//! others.
//!
//! ```text
//!  texts of a kernel ─► capture ─► model: nodes, CPUs and sizes in the core ─► judge ─► report
//!  (directory or live)     │                                                     ▲
//!                          └──────────── what the kernel computed ───────────────┘
//! ```
//! | module | does |
//! |--|--|
//! | `files` | finds texts: in a directory, or in `/proc` and `/sys` |
//! | `zones`, `settings`, `meta`, `capture` | reads them, with the line of each value |
//! | `ints` | numbers in a text that is written to a sysctl |
//! | [`era`] | which rules a release follows |
//! | `model` | the machine in the core |
//! | `stale` | sizes that zones had when limits were computed |
//! | `judge` | comparisons |
//! | `report` | what came out |
//! | `all` | many captures |
//!
//! "LB D.4" is section D.4 of the reference of Linux' behaviour, in the folder `docs/linux` of the
//! repository.

#![forbid(unsafe_code)]

mod all;
mod capture;
pub mod era;
mod error;
mod files;
mod ints;
mod judge;
mod meta;
mod model;
mod place;
mod report;
mod settings;
mod stale;
mod zones;

#[cfg(test)]
mod machine_tests;
#[cfg(test)]
mod reference_tests;
#[cfg(test)]
mod tests;

pub use all::{Progress, Source, judge_all};
pub use capture::Capture;
pub use error::Error;
pub use files::{Directory, Files, Live};
pub use judge::judge;
pub use place::Place;
pub use report::{BadInput, Case, Check, NotJudged, Report, SizeThen, Value};

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
