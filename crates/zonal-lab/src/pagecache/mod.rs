//! A page cache and a disk around the unchanged core, in virtual time.
//!
//! ```text
//!  load (threads on node 0's CPUs) ── write, read, fault, delete ─► machine ─ alloc ─► zonal-core
//!                                                                   │                    │ passes
//!  flusher ── writes what is dirty ──► disk ── interrupts           └─ model ◄ platform ◄┘
//!  a background reclaimer for each node ── background_step ─────────────────────────────►
//! ```
//! | module | holds |
//! |--|--|
//! | `frames` | what is known of each page frame; lists of frames |
//! | `model` | files, the inactive and active lists, dirty pages, pages being written |
//! | `slab` | objects of the file system |
//! | `disk` | one head and a queue |
//! | `platform` | the core's platform: what a pass of reclaim finds |
//! | `boot` | the machine at its start, scaled |
//! | `files` | what a load can do with files |
//! | `machine` | threads, their waits, and what they can do with files |
//! | `fsmark`, `largedd`, `streamwriter` | the three loads of 2011 |
//!
//! # Scale
//! A page of the model stands for [`CacheMachine::scale`] pages of the machine: memory, files, disk
//! requests and read-ahead have that many times fewer pages, and each takes that many times as
//! long. Times, numbers of files, requests and seeks are those of the machine. Counts of pages are
//! multiplied when they are reported. Passes still look at 32 pages of a list at a time.

mod boot;
mod disk;
mod files;
mod frames;
mod fsmark;
mod largedd;
mod machine;
mod model;
mod platform;
mod slab;
mod streamwriter;

pub use boot::Setup;
pub use fsmark::FsMark;
pub use largedd::LargeDd;
pub use machine::{CacheMachine, Figures, Load, Turn, Until};
pub use platform::{CacheAllocator, CachePlatform};
pub use streamwriter::StreamWriter;

use crate::provenance::Given;

/// Numbers of the loads and of what is around them, each with its provenance.
pub(crate) const GIVEN: &[&[Given]] = &[
    disk::GIVEN,
    files::GIVEN,
    fsmark::GIVEN,
    largedd::GIVEN,
    machine::GIVEN,
    platform::GIVEN,
    slab::GIVEN,
    streamwriter::GIVEN,
];
