//! Counters: what is exact, what is approximate, and by how much.

pub mod threshold;
