//! Readers for recorded page allocation traces of Linux kernels.
//!
//! A *recording* is one run of a real machine: a stream of page events (who allocated which page
//! frame, who freed it, when the kernel refilled or drained a per-CPU list) and a description of
//! the machine they happened on (its nodes, zones, watermarks and lists). `zonal replay` feeds the
//! stream to an allocator and compares its moves with the kernel's.
//!
//! ```text
//!   directory, file or embedded bytes                            what a caller sees
//!   ---------------------------------                            ------------------
//!            ┌── lines ──────────► compact | ftrace ─┐
//!   Source ──┼── ring pages ─────► ring ─────────────┼─ order ─► Events: Event, Event, …
//!            ├── trace.dat ──► dat ──┘               │
//!            ├── perf.data ──────► perf ─────────────┤
//!            ├── .zonal ─────────► zt ───────────────┘
//!            └── meta.json, zoneinfo, buddyinfo, … ────────────► MachineDescription
//! ```
//!
//! # The forms of the stream
//!
//! | form | file | times |
//! |--|--|--|
//! | [`Compact`](TraceFormat::Compact) | `events.txt`: one line of columns per event | ns |
//! | [`Ftrace`](TraceFormat::Ftrace) | what tracefs, trace-cmd or perf print | µs or ns |
//! | [`Ring`](TraceFormat::Ring) | `cpuN.raw` and `formats/`: the kernel's ring pages | ns |
//! | [`TraceDat`](TraceFormat::TraceDat) | `trace.dat` of trace-cmd, versions 6 and 7 | ns |
//! | [`PerfData`](TraceFormat::PerfData) | `perf.data` of `perf record -R` | ns |
//! | [`Zonal`](TraceFormat::Zonal) | `.zonal`: our own, small, with the machine inside | ns or µs |
//!
//! Each may be compressed with zstd as a whole. [`Recording::open`] finds out which one it has by
//! looking at the content; only ring pages, which begin with a time, are known by their name.
//!
//! # Invariants of what comes out
//!
//! - **EVENT-1** times never go backwards: `e[i].time_ns <= e[i + 1].time_ns`
//! - **EVENT-2** `cpu <` the machine's number of CPUs, and below 8192 where that is not known
//! - **EVENT-3** `order <= 10`, or 13 where pages are larger, `migratetype <= 7`, `pfn < 2^52`:
//!   `(pfn + (1 << order)) * 4096` never overflows
//! - **EVENT-4** `gfp` has the bits of Linux 6.12, for every recorded kernel
//! - **EVENT-5** if `meta.json` says how many events there are, a stream that ends without an error
//!   held exactly that many
//!
//! A stream ends with its first error. Each error names the file, the line or byte, what was
//! expected and what was found ([`TraceError`]). Nothing in this crate panics on any input, and no
//! input makes it hold more than a few hundred KiB for a stream of text (plus the window of the
//! compressor), a page or a chunk of 16 MiB per CPU of ring pages, or 4 Mi events of a `perf.data`
//! that wait for the end of a round; nor read more than [`DESCRIPTION_BYTES_MAX`] of a file that
//! describes the machine.
//!
//! # What this crate does not do
//!
//! It does not judge the events: a trace may free a page twice, and the replay decides how to
//! handle it. [`zonal_text`] reads the kernel's texts that describe a machine. This crate does not
//! depend on `zonal-core`; flags are plain numbers here.
//!
//! [`record`] records the running kernel, [`make`] converts, cuts and scales traces.
//!
//! # Example
//!
//! ```
//! use zonal_trace::{EventKind, samples};
//!
//! let recording = samples::zlib_make_j4()?;
//! let mut pages = 0_u64;
//! for event in recording.events().take(1000) {
//!     if let EventKind::Alloc { pfn: Some(_), order, .. } = event?.kind {
//!         pages += 1 << order;
//!     }
//! }
//! assert!(pages > 0);
//! # Ok::<(), zonal_trace::TraceError>(())
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod bytes;
mod compact;
mod dat;
mod description;
mod ending;
mod error;
mod event;
mod events;
mod fields;
mod format;
mod ftrace;
pub mod gfp;
mod info;
mod lacks;
mod limits;
mod lines;
pub mod make;
mod meta;
mod notice;
mod perf;
pub mod place;
mod polled;
mod polls;
mod prices;
#[cfg(target_os = "linux")]
pub mod record;
mod recording;
mod ring;
pub mod samples;
mod source;
mod stats;
mod text;
mod tracefs;
mod zt;

pub use description::{Clock, Flags, MachineDescription, NodeDescription, ZoneDescription};
pub use error::{Position, TraceError, TraceErrorKind};
pub use event::{Event, EventKind};
pub use events::Events;
pub use format::TraceFormat;
pub use info::Info;
pub use limits::{MIGRATETYPE_MAX, ORDER_MAX, PFN_LIMIT};
pub use lines::LINE_BYTES_MAX;
pub use meta::{EventCount, PagesetChange};
pub use notice::{CachedPage, Notice, ZONE_KINDS};
pub use polled::{PolledState, PolledZone};
pub use polls::parse as parse_polls;
pub use prices::HoldPrices;
pub use recording::Recording;
pub use source::{DESCRIPTION_BYTES_MAX, Directory, Part, Parts, Seekable, Source};
pub use stats::Stats;
pub use text::TextWriter;
pub use zonal_text::zoneinfo::Pageset;
pub use zonal_text::{CPUS_MAX, Stat};
pub use zt::{EXTENSION, MachineFiles, TraceWriter, WriterOptions};
