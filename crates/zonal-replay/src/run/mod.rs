//! A program's run: on the recorded machine without memory, or on a pool of real memory.
//!
//! | file | does |
//! |--|--|
//! | `none` | runs a program on the rebuilt machine, in trace time, on one thread |
//! | `real`, `entries` | runs a program on real memory, one thread for each recorded CPU |
//! | `pool` | the pool of this machine's memory that `real` runs on |
//! | `counters`, `timeline` | counters before and after, and in bins of time |
//! | `changes` | what happened to the recorded machine, done to the model |
//! | `holds` | holds of zone locks, each at its time |
//! | `latency` | how long calls take |
//! | `explain` | one request, told zone by zone |

pub mod changes;
pub mod counters;
pub mod entries;
pub mod explain;
pub mod holds;
pub mod latency;
pub mod none;
pub mod outcome;
pub mod pool;
pub mod real;
pub mod timeline;
