//! Page allocation traces and tables of sweeps as Parquet files, both ways.
//!
//! ```text
//!  Recording ── events ──► row groups of 524,288 events: each a span of time ──► FILE.parquet
//!            └─ files of the machine ──► key-value pairs of the footer ─────────┘   │
//!  .zonal ◄── events, checked ◄────────────── read ─────────────────────────────────┘
//! ```
//! Events lie in the order of time, so that the least and greatest `time_ns` that Parquet keeps of
//! each row group are an index: a query for a minute reads the groups of that minute. A column is
//! there for each field that any kind of event has ([`COLUMNS`]); it is null where an event has no
//! such field.
//!
//! Both directions hold one row group or less: about 60 MB, for recordings of any size.
//!
//! | module | holds |
//! |--|--|
//! | [`columns`] | events as numbers in columns, and back, checked |
//! | `events` | recordings to Parquet |
//! | `reader` | Parquet to recordings |
//! | `table` | tables of text, counts and numbers |
//! | `sweeps` | files of sweeps that are Parquet |
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod columns;
mod error;
mod events;
mod reader;
mod sweeps;
mod table;

pub use columns::COLUMNS;
pub use error::Error;
pub use events::{Written, part, write_events};
pub use reader::{is_parquet, read_events};
pub use sweeps::{DataSet, join, join_until};
pub use table::{Cell, Take, read_table, write_table};
