//! The subjects that need no C or C++ peer, each in a file of its own.
//!
//! | name | what it shows |
//! |--|--|
//! | `rseq-bare` | the limit: per-CPU stacks, one rseq section per operation, no checks |
//! | `zonal`, `zonal-lock`, `zonal-nostat` | the pool under test, see `zonal.rs` |
//! | `zonal-pages`, `zonal-owned` | the same through pages that free themselves |
//! | `thread-vec` | a thread-local Vec of pages: what an application writes first |
//! | `mutex-buddy` | a global lock around a buddy with full merging: what a kernel starts with |
//! | `mmap`, `mmap-populate`, `populate-write` | Linux itself, see `linux.rs` |
//! | `glibc-malloc` | `aligned_alloc` and `free` of the C library |
//! | `buddy_system_allocator` | the crate most Rust kernels use, behind a std Mutex |
//! | `bitmap-allocator` | the other one, behind a std Mutex |

mod bitmap;
mod buddy_system;
mod depot;
mod libc_malloc;
mod linux;
mod mutex_buddy;
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
pub(crate) mod rseq_asm;
mod rseq_bare;
mod thread_vec;
mod zonal;

pub use bitmap::BitmapAllocator;
pub use buddy_system::BuddySystemAllocator;
pub use libc_malloc::LibcMalloc;
pub use linux::{Mmap, PopulateWrite};
pub use mutex_buddy::MutexBuddy;
pub use rseq_bare::RseqBare;
pub use thread_vec::ThreadVec;
pub use zonal::{Zonal, ZonalPages};

use crate::error::BenchError;
use crate::row::Skip;
use crate::runner::{Local, Runner};
use crate::subject::{Sizing, Subject};
use crate::{Crew, LIMIT};
use std::sync::Arc;

/// The names of all subjects in this module, in the order of [`all`].
pub const NAMES: [&str; 14] = [
    LIMIT,
    "zonal",
    "zonal-lock",
    "zonal-nostat",
    "zonal-pages",
    "zonal-owned",
    "thread-vec",
    "mutex-buddy",
    "mmap",
    "mmap-populate",
    "populate-write",
    "glibc-malloc",
    "buddy_system_allocator",
    "bitmap-allocator",
];

/// Every subject of this module that can run here, and the others with the reason.
pub fn all(crew: &Arc<Crew>) -> (Vec<Box<dyn Runner>>, Vec<Skip>) {
    let sizing = Sizing::of(crew.cpus());
    let made: [Result<Box<dyn Runner>, String>; NAMES.len()] = [
        RseqBare::new(sizing).map(|subject| Local::boxed(subject, crew)),
        Zonal::rseq(sizing).map(|subject| Local::boxed(subject, crew)),
        Zonal::lock(sizing).map(|subject| Local::boxed(subject, crew)),
        Zonal::without_stats(sizing).map(|subject| Local::boxed(subject, crew)),
        ZonalPages::<false>::new(sizing).map(|subject| Local::boxed(subject, crew)),
        ZonalPages::<true>::new(sizing).map(|subject| Local::boxed(subject, crew)),
        boxed(ThreadVec::new(sizing), crew),
        boxed(MutexBuddy::new(sizing), crew),
        Ok(Local::boxed(Mmap::<false>, crew)),
        Ok(Local::boxed(Mmap::<true>, crew)),
        boxed(PopulateWrite::new(sizing), crew),
        Ok(Local::boxed(LibcMalloc::new("glibc-malloc"), crew)),
        boxed(BuddySystemAllocator::new(sizing), crew),
        boxed(BitmapAllocator::new(sizing), crew),
    ];
    let (mut runners, mut skipped) = (Vec::new(), Vec::new());
    for (name, made) in NAMES.into_iter().zip(made) {
        match made {
            Ok(runner) => runners.push(runner),
            Err(reason) => skipped.push(Skip::subject(name, reason)),
        }
    }
    (runners, skipped)
}

fn boxed<S: Subject>(
    made: Result<S, BenchError>,
    crew: &Arc<Crew>,
) -> Result<Box<dyn Runner>, String> {
    made.map(|subject| Local::boxed(subject, crew)).map_err(|error| error.to_string())
}
