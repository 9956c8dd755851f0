//! The state of a machine in the kernel's own texts, or as JSON.
//!
//! ```text
//!   Replay::end_state ──► State ──► Document ──► the kernel's bytes, or JSON
//!                a kernel's text ──┘
//! ```
//!
//! ```
//! use zonal_replay::state::{Document, Text};
//! use zonal_replay::{Replay, unwatched};
//!
//! let recording = zonal_trace::samples::zlib_make_j4()?;
//! let end = Replay::new(&recording).limit(1000).end_state(&mut unwatched)?;
//! let buddyinfo = Document::of(Text::Buddyinfo, &end.state, None, Default::default());
//! assert!(buddyinfo.to_string().starts_with("Node 0, zone      DMA"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod document;
mod json;

pub use self::document::{Document, Text};
pub use self::json::{Origin, json};
