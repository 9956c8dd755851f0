//! Per-CPU page lists: where blocks wait, how large the lists are and how they tune themselves.

pub mod closed;
pub(crate) mod closing;
pub mod depot;
pub mod drain;
pub(crate) mod front;
pub(crate) mod gated;
#[cfg(feature = "history")]
#[path = "../history/pcp/mod.rs"]
pub(crate) mod history;
pub mod lists;
mod look;
pub mod offsets;
pub mod owner;
#[cfg(test)]
#[path = "owner/tests.rs"]
mod owner_tests;
pub(crate) mod parked;
mod parking;
pub(crate) mod ready;
pub(crate) mod sink;
pub mod size;
pub mod stack;
pub mod state;
pub mod tune;
pub mod tuning;
pub mod word;
