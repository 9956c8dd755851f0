//! Counters: what is exact, what is approximate, and by how much.

pub mod percpu_counter;
pub mod threshold;
