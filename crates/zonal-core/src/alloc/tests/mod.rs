//! Whole allocators under test.

use crate::support as platform;

mod areas;
mod background;
mod blocks;
mod counters;
#[cfg(feature = "history")]
#[path = "../../history/alloc/tests/counters.rs"]
mod counters_before;
mod deferred;
mod depot;
mod double_free;
mod exhaustive;
mod explain;
mod fixed;
mod fronts;
mod gates;
mod handover;
#[cfg(feature = "history")]
#[path = "../../history/alloc/tests/hot_cold.rs"]
mod hot_cold;
mod ids;
mod large;
mod lines;
mod model;
mod node_reclaim;
mod numa;
mod owned;
#[cfg(feature = "history")]
#[path = "../../history/alloc/tests/pagesets.rs"]
mod pagesets_before;
mod parked;
mod paths;
mod placement;
mod planted;
mod pressure;
mod programs;
mod proposals;
mod races;
mod range_places;
mod range_programs;
mod ranges;
mod refresh;
mod refusal;
mod runs;
mod sealed;
mod setup;
mod steady;
mod strays;
mod streams;
mod tuning;
mod wide;
mod word_path;
#[cfg(feature = "history")]
#[path = "../../history/alloc/tests/zlc.rs"]
mod zlc;
#[cfg(feature = "history")]
#[path = "../../history/alloc/tests/zlc_model.rs"]
mod zlc_model;
