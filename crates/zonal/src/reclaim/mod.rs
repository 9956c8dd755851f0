//! Consumers that give pages of a pool back when it runs low.
//!
//! ```text
//!  background reclaimer ─┐                       ┌─ PageLru: lists of pages, cold ones first
//!  direct reclaim ───────┼─► Pass ─► Registry ───┤
//!  node reclaim ─────────┘                       └─ Shrinker: a cache of objects
//! ```
//! Who asks, for which node and how hard is the core's choice (LB G, H); how many pages or objects
//! that makes is computed here for each consumer; which ones they are is the consumer's own.
//!
//! # Rules for a consumer
//! 1. It is called by any thread that allocates, and by the pool's own. It takes no lock that its
//!    own code holds while it allocates, or only tries to take it.
//! 2. It may free and allocate pages of the pool. Its own allocations come from the reserves, and
//!    never reclaim.
//! 3. It may call any safe function of any pool, come and go, make pools and drop them, and fork.
//!    None of these waits for another call of a consumer: a call that would have to is refused with
//!    an error that says so ([`Pool::set_budget`](crate::Pool::set_budget)), does without
//!    ([`Pool::held`](crate::Pool::held) counts pages of consumers as users') or ends later
//!    ([`Registration`]). A request with `NOFAIL` that finds nothing is refused there.
//! 4. Its reports are checked where a wrong one could do harm. If it panics it is not called again,
//!    and [`Pool::reclaim_report`](crate::Pool::reclaim_report) says so.
//!
//! Rules 1 to 3 hold for the last resort too ([`Builder::on_out_of_memory`](crate::Builder)). If it
//! panics it is not called again either, but the panic goes to the caller of the request, which is
//! refused by that.

mod bell;
mod calls;
mod entry;
mod inside;
mod isolation;
mod last_resort;
mod lru;
mod parking;
mod registry;
mod shrinker;

pub use entry::ConsumerReport;
pub use last_resort::Answer;
pub use lru::PageLru;
pub use registry::Registration;
pub use shrinker::{ScanRequest, Scanned, Shrinker};
pub use zonal_core::platform::reclaimer::{By, Holdings, OutOfMemory, Pass, Shrunk, Unit};

pub(crate) use bell::{Bells, Frozen as FrozenBells};
pub(crate) use inside::{Inside, is_inside};
pub(crate) use last_resort::LastResort;
pub(crate) use registry::{HeldList, Pause, Place, Registry};
