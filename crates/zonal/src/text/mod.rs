//! What an allocator looks like in the kernel's own texts: `zoneinfo`, `buddyinfo`,
//! `pagetypeinfo`, `vmstat`, and of each node `numastat`, `meminfo` and `vmstat` (LB I).
//!
//! ```text
//!   Pool, Allocator ── State::of ──► State ──► zoneinfo(layout), vmstat(layout), …  ──► text
//! ```
//! One [`State`] is one reading, and all texts made of it agree with each other. Names, order and
//! layouts are those of [`zonal_text::counters`]; this module knows the values.
//!
//! ```
//! use zonal::{Order, Pool, text::Layout};
//!
//! let pool = Pool::builder().size(64 << 20).build()?;
//! let _page = pool.alloc(Order::ZERO)?;
//! let zoneinfo = pool.state().zoneinfo(Layout::Linux6_12).to_string();
//! assert!(zoneinfo.contains("        managed  16384\n"));
//! println!("{zoneinfo}{}", pool.state().buddyinfo());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | file | does |
//! |--|--|
//! | `reading` | numbers out of an allocator |
//! | `values` | counter to number |
//! | `documents` | numbers to texts |
//!
//! # Where a pool differs from a kernel
//! - Counts of free pages are exact; a kernel prints its counter without what CPUs still hold back.
//! - Zones are `spanned`, `present` and numbered as the pool has them; frame 0 is its first page.
//! - What a page allocator by itself never does (swap, compaction) prints as 0. Pages of caches are
//!   those that registered consumers tell of.

mod documents;
mod reading;
#[cfg(test)]
mod tests;
mod values;

pub use reading::State;
pub use zonal_text::Layout;

use zonal_core::policy::Policy;

/// The layout of the kernels that a policy stands for; the newest before 7.0 for a policy that
/// stands for none, and the oldest known one for kernels before that. The series `pcp-patch1` and
/// so on was posted for 6.6 (LB E.10).
pub fn layout_of(policy: &Policy) -> Layout {
    match policy.name.strip_prefix("linux-") {
        Some(release) => Layout::of_release(release).unwrap_or(Layout::Linux6_1),
        None if policy.name.starts_with("pcp-patch") => Layout::Linux6_1,
        None => Layout::Linux6_14,
    }
}
