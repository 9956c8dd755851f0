//! Pages in nanoseconds from the right NUMA node.
//!
//! Zonal is the page allocator of an operating system as a library: nodes and zones, a buddy
//! allocator per zone, per-CPU page lists that tune themselves, watermarks, exact statistics. This
//! crate is its platform in a process: it takes memory from the operating system once and hands out
//! pages of 4 KiB to 4 MiB.
//!
//! ```
//! use zonal::{Order, Pool};
//!
//! let pool = Pool::builder().size(64 << 20).build()?;
//! let mut page = pool.alloc(Order::ZERO)?; // 4 KiB, freed when dropped
//! page[..5].copy_from_slice(b"hello");
//! let huge = pool.alloc_zeroed(Order::new(9).unwrap())?; // 2 MiB, zeroed
//! assert!(huge.iter().all(|byte| *byte == 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! When not to use it: for objects smaller than a page (use a malloc), or for a handful of pages
//! that live as long as the program (use mmap).
//!
//! "LB D.4" is section D.4 of the reference of Linux' behaviour, in the folder `docs/linux` of the
//! repository.

#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "zonal needs a 64-bit target (target_pointer_width = \"64\"): a pool may have 16 TiB; \
     zonal-core is for kernels of 32 bits too"
);

pub mod adapt;
pub mod buffers;
mod error;
pub mod observed;
mod platform;
mod pool;
pub mod process;
pub mod reclaim;
mod rseq;
#[cfg(feature = "stalls")]
pub mod stalls;
#[cfg(not(feature = "stalls"))]
#[path = "no_stalls.rs"]
mod stalls;
pub mod sys;
pub mod text;
mod turn;
#[cfg(doctest)]
mod unsound;
pub mod view;

pub use error::{AllocError, FreeError, FreeFault};
pub use platform::Mode;
pub use pool::{
    Backing, BudgetError, BudgetFault, BuildError, Builder, CpuMap, Explanation, FailAlloc,
    FailCounts, FreedBy, HeldReport, HotPages, MemoryFault, MemoryRange, Missed, MissedFree,
    Misuse, NodeBinding, Notice, OnMisuse, OwnedPages, OwnedRange, PageRange, Pages, Pool,
    PrefaultProgress, RangeError, Ranges, Resident, TrimError, ZoneSize,
};
pub use view::View;
pub use zonal_core::alloc::range::{Obstacle, RangeRefusal, RangeRequest};
pub use zonal_core::alloc::{Fault, NumaEvents, Refusal, Request, Sysctl, SysctlError, ZoneStats};
pub use zonal_core::gfp::Gfp;
pub use zonal_core::policy::Policy;
pub use zonal_core::types::{CpuId, NodeId, Order, PAGE_SIZE, ZoneId, ZoneKind};
