//! Whole allocators under test.

mod areas;
mod background;
mod blocks;
mod counters;
mod deferred;
mod depot;
mod double_free;
mod exhaustive;
mod explain;
mod home;
mod hot_cold;
mod model;
mod node_reclaim;
mod numa;
mod paths;
mod placement;
mod pressure;
mod programs;
mod refresh;
mod refusal;
mod runs;
mod setup;
mod tuning;
mod word_path;
mod zlc;
mod zlc_model;
