//! Counters: exact ones, approximate ones, and their error.
//!
//! | file | holds | LB |
//! |--|--|--|
//! | `variant` | every published way to keep counters, as values of a policy | L |
//! | `threshold` | how far a delta may go, and what a step folds | F.2, F.3 |
//! | `update` | one update of a delta, in every variant | F.3, F.5 |
//! | `numa` | deltas and sums of NUMA events, in every storage | F.6, F.7 |
//! | `folds` | whether deltas are on their way to the sums | F.7 |
//! | `worker` | when a CPU folds its deltas | F.4 |
//! | `percpu_counter` | the generic counter with a batch | F.8 |
//! | `races` | what NUMA events lose to readers: tests | F.7 |
//! | `history` | updates and storages of old kernels, in `src/history/vmstat` | F.3, F.5, F.7 |

mod folds;
#[cfg(feature = "history")]
#[path = "../history/vmstat/mod.rs"]
mod history;
pub mod numa;
pub mod percpu_counter;
#[cfg(test)]
mod races;
pub mod threshold;
pub mod update;
pub mod variant;
pub mod worker;
