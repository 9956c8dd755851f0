//! Page allocation traces as Perfetto traces, both ways.
//!
//! ```text
//!  Recording ── events ─────────► bundles of ftrace events, by CPU ───► FILE.perfetto-trace
//!            ├─ samples ────────► counters: free pages, watermarks, lists       │
//!            ├─ moves, waits ───► counters: refilled, drained, waiting          │
//!            └─ machine's files ► annotations of one instant event              │
//!  .zonal ◄─ merged by time, checked ◄── packets, one at a time ◄───────────────┘
//! ```
//! A trace of Perfetto's own recorder (`linux.ftrace` with the events of `kmem`) is read as well as
//! one of ours. It says nothing about zones and lists: give the files of the machine beside it.
//!
//! Reading holds the place of each bundle of events, a bundle for each CPU (a million events at
//! most), the names of threads and the files of the machine; what was compressed goes to a
//! temporary file. Writing holds 32,768 events and the samples of the recording.
//!
//! | module | holds |
//! |--|--|
//! | `proto` | the messages, with the numbers of the published definitions |
//! | `packets` | packets of a file, compressed or not |
//! | `kinds` | events in both forms |
//! | `found` | what the first pass over a trace finds |
//! | `reader`, `writer` | Perfetto to recordings, recordings to Perfetto |
//! | `counters` | counter tracks |
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod counters;
mod error;
mod found;
mod kinds;
mod packets;
mod proto;
mod reader;
mod writer;

pub use error::Error;
pub use packets::is_perfetto;
pub use reader::{Read, read_trace};
pub use writer::write_trace;

/// How names of Perfetto traces end.
pub const EXTENSIONS: [&str; 2] = ["perfetto-trace", "pftrace"];

/// Before the name of a file of the machine, as the name of an annotation.
const FILE_KEY: &str = "zonal.file.";
/// The same for a file that is no UTF-8: each byte as the character with its number.
const BYTES_KEY: &str = "zonal.bytes.";
/// The symbol whose work is the statistics worker's.
const VMSTAT_UPDATE: &[u8] = b"vmstat_update";
