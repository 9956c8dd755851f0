//! `perf.data` with raw samples of tracepoints (`perf record -R -e kmem:…`).
//!
//! ```text
//!  header ─► attributes (what a sample holds) ─┐
//!  features: tracing data (formats), nrcpus ───┼─► records ─► samples ─► rounds ─► Events
//!  data ───────────────────────────────────────┘
//! ```
//! | file | does |
//! |--|--|
//! | `header` | sections, attributes, the tracing data |
//! | `sample` | one sample: time, CPU, thread, payload |
//! | `command` | what perf's command line says of that |
//! | `whose` | whether the events are those of all threads on all CPUs |
//! | `records` | the records of the data section, compressed ones too, sorted by rounds |
//!
//! The framing is read here and not by the crate `linux-perf-data` (0.13), because that one trusts
//! the file: it allocates what a section's size says, adds sizes without a check, and unwraps on
//! record types that are neither the kernel's nor perf's. A damaged file must be an error with an
//! offset.

mod command;
mod header;
mod records;
mod sample;
mod whose;

pub(crate) use self::command::of_text;
pub(crate) use self::header::PerfData;
pub(crate) use self::records::PerfEvents;

/// First bytes of a little-endian file.
pub(crate) const MAGIC: &[u8] = b"PERFILE2";
/// First bytes of a big-endian file.
pub(crate) const MAGIC_SWAPPED: &[u8] = b"2ELIFREP";
