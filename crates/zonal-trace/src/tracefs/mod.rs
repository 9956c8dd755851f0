//! What tracefs says about the events in its rings: their fields, by name, and what flags mean.
//!
//! ```text
//!  events/kmem/mm_page_alloc/format ─► format: names, offsets, sizes ─► decode: payload ─► Event
//!                                       └ print fmt ─► flags: recorded bit ─► portable bit
//!  /proc/kallsyms ─► symbols: where vmstat_update is ─────────────────────┘
//! ```
//! The same texts are in directories of ring pages, in `trace.dat` and in `perf.data`, so the three
//! readers share this.

pub(crate) mod decode;
pub(crate) mod flags;
pub(crate) mod format;
pub(crate) mod symbols;

pub(crate) use decode::Decoder;
pub(crate) use symbols::Symbols;
