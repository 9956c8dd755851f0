//! What other settings would have done with a recorded load.
//!
//! The trace is replayed on the recorded machine without memory, once as it was and once for each
//! change of one thing. Every number is of the model; `cost` says how contention is made of it,
//! `verdict` what to do.
//!
//! ```
//! use zonal_replay::advise::{Options, advise};
//!
//! let recording = zonal_trace::samples::zlib_make_j4()?;
//! let only = ["numa_stat".to_owned()];
//! let options = Options { limit: Some(10_000), only: &only };
//! let advice = advise(&recording, &options, &mut zonal_replay::unwatched)?;
//! assert_eq!(advice.changes[0].change, "numa_stat 0");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod changes;
mod cost;
mod one;
mod queue;
mod row;
mod saving;
mod together;
mod verdict;

pub use self::changes::policy_of;
pub(crate) use self::cost::Prices;
pub use self::cost::{Contention, HoldCost, WaitCheck};
pub use self::one::{Advice, AdvisedOn, Options, advise};
pub use self::row::Row;
pub use self::saving::{ModelError, Saving};
pub(crate) use self::saving::{PRICE_FACTOR, WORTH_PERCENT};
pub use self::together::advise_all;
pub use self::verdict::Verdict;
