//! Replays recorded page allocations of Linux kernels against the allocator of `zonal-core`, and
//! compares its moves with the kernel's.
//!
//! ```
//! use zonal_core::policy::Policy;
//! use zonal_replay::{Extras, Replay, unwatched};
//!
//! let recording = zonal_trace::samples::zlib_make_j4()?;
//! let replay = Replay::new(&recording).policy(Policy::LINUX_6_18).limit(30_000);
//! let report = replay.without_memory(&Extras::default(), &mut unwatched)?;
//! println!("{} refills, Linux did {}", report.model.refill_holds, report.kernel.refill_holds);
//! assert!(report.passed());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What can be asked
//!
//! | question | call |
//! |--|--|
//! | What does the allocator do on the recorded machine? | [`Replay::without_memory`] |
//! | How fast is it here, and has each page one owner at a time? | [`Replay::on_pool`] |
//! | In which state does the machine end? | [`Replay::end_state`], [`state`] |
//! | What would other settings and releases have done? | [`WhatIf`], [`advise()`] |
//! | Does a setting do what was predicted? | [`verify`] |
//! | What did the kernel itself move, event by event? | [`Watcher`] |
//! | What is in a recording, in pictures? | [`overview`] |
//!
//! Results are plain data that `serde` writes. Long calls tell a [`Watch`] how far they are, and
//! stop when it says so. Nothing here prints.
//!
//! # How a replay goes
//!
//! ```text
//!  recording ─► read ─► judge ─► build ─► start ─► run ─► report
//!               │        │        │        │        ├ none: trace time, one thread, no memory
//!               │        │        │        │        └ real: a pool, a thread for each CPU
//!               │        │        │        └ each frame free, in use, or on a list, as recorded
//!               │        │        └ the machine in the core, without memory
//!               │        └ the core's choices one at a time; what no event says
//!               └ which block is each event about? what moved between buddies and lists?
//! ```
//! | module | does |
//! |--|--|
//! | `zones`, `moves`, `told`, `facts`, `program`, `by_page` | what the others share |
//! | `locks`, `others` | measured waits for locks; what is not of the recorded command |
//! | `unjudged`, `silence` | when the model may not be judged; when nothing happened |
//! | `reclaim` | what reclaim cost, and which pages came back |
//! | `world`, `altered`, `hotplug` | what reclaim did, who wrote settings, which CPUs went |
//! | `settle` | where the model follows that |
//! | `read` | events to steps; what does not fit is counted |
//! | `build` | the recorded machine in the core |
//! | `start` | the state it was in |
//! | `judge` | the core's choices, one step at a time from where the kernel was |
//! | `run` | the steps, with or without memory |
//! | `report`, `fidelity` | what came out, beside what the kernel did |
//! | `replay` | the walk through all of these |
//! | `verify` | a prediction beside runs with and without the setting |
//! | `what_if`, `advise` | the same trace under other policies and settings |
//! | `overview` | one page of a recording |
//! | `state` | the state at the end, in the kernel's own texts |
#![deny(unsafe_code)]

pub mod advise;
mod altered;
mod build;
mod by_page;
mod error;
mod facts;
pub mod fidelity;
mod hotplug;
mod judge;
mod kernel;
mod locks;
mod moves;
mod others;
pub mod overview;
mod program;
mod progress;
mod read;
mod readings;
mod reclaim;
mod replay;
pub mod report;
mod run;
mod settings;
mod settle;
mod silence;
mod start;
pub mod state;
mod told;
mod unjudged;
pub mod verify;
mod what_if;
mod world;
mod zones;

pub use advise::{advise, advise_all};
pub use error::ReplayError;
pub use judge::{BuddyDifferences, BuddyVerdict, ListDifferences, ListVerdict};
pub use kernel::KernelMoves;
pub use locks::{LockRow, LockWaits};
pub use moves::{Moves, MovesByPlace, total};
pub use others::OfOthers;
pub use progress::{Phase, Progress, Watch, unwatched};
pub use read::Watcher;
pub use reclaim::{AskedFor, ReclaimCost};
pub use replay::{EndState, Extras, Pace, Replay};
pub use report::Report;
pub use run::explain::Explained;
pub use run::holds::Hold;
pub use run::latency::{EVERY, Latency};
pub use run::outcome::Placement;
pub use start::StartReport;
pub use told::Recorded;
pub use unjudged::{NotJudged, ReclaimJudged};
pub use what_if::{Trial, TrialCounts, Trialled, WhatIf};
pub use zones::{ZoneAt, ZoneMap};

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
