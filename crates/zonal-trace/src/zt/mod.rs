//! `.zonal`: traces in about one byte and a half per event, with their machine inside.
//!
//! ```text
//!  head │ MACH: files that describe the machine │ DATA │ DATA │ … │ INDX │ END
//!                                                 └ key   └ needs the blocks from the key on
//! ```
//! `FORMAT.md` of this crate has every byte. A file can be written to a pipe and read from
//! one; with an index and key blocks, reading can also begin at a time.
//!
//! | file | does |
//! |--|--|
//! | `chunk` | the head of the file and of its chunks, checksums |
//! | `machine` | the files that describe the machine |
//! | `writer`, `reader` | events to a file and back |
//! | `block` | a block's events as columns |
//! | `columns`, `varint` | numbers in them |
//! | `shape` | what events have in common |
//! | `model` | guesses of pages |
//!
//! - **ZONAL-1** nothing of a chunk is used before its checksum was compared
//! - **ZONAL-2** a block has at most 131,072 events, 64 MiB of columns, and a chunk 128 MiB, so
//!   memory is bounded for every file
//! - **ZONAL-3** a file without its end marker was cut short

mod block;
mod chunk;
mod columns;
mod kinds;
mod machine;
mod model;
mod reader;
mod shape;
mod varint;
mod writer;

pub(crate) use chunk::MAGIC;
pub use machine::MachineFiles;
pub(crate) use machine::{What, files_of};
pub(crate) use reader::{ZonalEvents, ZonalFile, check_end};
pub use writer::{TraceWriter, WriterOptions};

/// The usual ending of a file's name.
pub const EXTENSION: &str = "zonal";
