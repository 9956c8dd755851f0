//! What work costs, in cycles: the only place with costs beside the machines' files.
//!
//! Work on lines that a core holds exclusively costs the figures of the machine's `work` table.
//! Lines that several cores use go through the [`directory`]; locks through [`lock`]. Both keep a
//! [`calendar`], because calls are played in the order in which they begin and some are long. What
//! pages hold is in [`contents`]: in a [`cache`], or in memory of some [`bandwidth`].

pub mod bandwidth;
pub mod cache;
pub mod calendar;
pub mod clock;
pub mod contents;
pub mod directory;
pub mod kernel;
pub mod lock;
pub mod shared_core;
mod words;

use crate::provenance::Given;

/// Numbers of the model, each with its provenance.
pub(crate) const GIVEN: &[&[Given]] = &[
    bandwidth::GIVEN,
    cache::GIVEN,
    clock::GIVEN,
    contents::GIVEN,
    kernel::GIVEN,
    lock::GIVEN,
    shared_core::GIVEN,
];
