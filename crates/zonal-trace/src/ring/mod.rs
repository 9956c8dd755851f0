//! Pages of the kernel's trace rings, as `per_cpu/cpuN/trace_pipe_raw` gives them.
//!
//! ```text
//!  Pages: cpu0 ▒▒▒▒  ──► PageCursor: records with their times ─┐
//!         cpu1 ▒▒▒▒  ──► PageCursor ───────────────────────────┼─► RingEvents: in order of time
//!         …                                                    ┘
//! ```
//! | file | does |
//! |--|--|
//! | `page` | one page: its header, its records, their times |
//! | `merge` | pages of all CPUs to one stream, earliest first, lowest CPU first among equals |
//! | `directory` | `cpuN.raw` and `formats/` of a directory |
//!
//! A `trace.dat` holds the same pages and uses the same two files.

pub(crate) mod directory;
pub(crate) mod merge;
pub(crate) mod page;

pub(crate) use merge::{Pages, RingEvents};
pub(crate) use page::PageLayout;
