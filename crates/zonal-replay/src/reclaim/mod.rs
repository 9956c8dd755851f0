//! What reclaim costs, and how much of that another setting would save.
//!
//! Marks decide how many pages stay free. Pages that stay free hold no cache, and a page of a file
//! that was reclaimed and is read again costs twice: to reclaim and to read. So:
//!
//! ```text
//!  reclaimed ··· n others are reclaimed ··· the same page is read again      n: refault distance
//!  a setting under which E pages fewer stay free keeps those with n <= E
//! ```
//! That is the kernel's own measure of how much more memory a page would have needed to stay. The
//! recorder has each 64th page of a file, so distances are scaled by the kernel's counter of
//! reclaimed pages.
//!
//! | what | from |
//! |--|--|
//! | processor time of background reclaim and compaction | the kernel's threads, before and after |
//! | time in direct reclaim, waiting and all | its events |
//! | pages reclaimed, and read again | `/proc/vmstat`, before and after |
//! | time that tasks waited for disks and for memory | `waits`, from pressure files; `times` |
//! | how much of that is elapsed time | `readers` |
//! | which come back, and after how many others | `cache` |
//! | how many of those would have stayed, with and without the recorder's rings | `distances` |
//! | pages that stay free under another setting | `marks`, the kernel's formula |
//! | which blocks are pages of files, and which of them reclaim took | `pages` |
//! | what is left to do where they stay | `stays` |
//! | what a run leaves in memory for the next | `left` |
//! | for which blocks reclaim was asked | `wakes` |
//!
//! Measured are the costs; what another setting saves of them is modelled. Reading a page again has
//! no measured price: `REREAD_NS` is a range.

mod cache;
mod cost;
mod distances;
mod left;
mod marks;
mod pages;
mod readers;
mod stays;
mod times;
mod waits;
mod wakes;

pub(crate) use self::cache::Cache;
pub use self::cost::ReclaimCost;
pub(crate) use self::cost::{Reclaim, RunTimes};
pub(crate) use self::marks::own_min_free;
pub use self::pages::FilePages;
pub(crate) use self::pages::Filer;
pub(crate) use self::stays::{Stays, stays};
pub use self::times::HostTimes;
pub use self::wakes::AskedFor;
pub(crate) use self::wakes::Wakes;

use crate::advise::Saving;

/// Of all reclaimed pages, those that would have stayed: between the two.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Share {
    least: f64,
    mid: f64,
    most: f64,
}

impl Share {
    fn all() -> Share {
        Share::between(1.0, 1.0)
    }

    fn between(least: f64, most: f64) -> Share {
        Share { least, mid: f64::midpoint(least, most), most }
    }

    /// The same, where something else says what it is; 0: it does not.
    fn knowing(self, mid: f64) -> Share {
        let mid = mid.min(1.0);
        match mid > 0.0 {
            true => Share { least: self.least.min(mid), mid, most: self.most.max(mid) },
            false => self,
        }
    }
}

/// What other marks save.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct MarksSaving {
    /// Of reclaim and of reading again, in percent of one CPU.
    pub of_cpu: Saving,
    /// Of waiting for disks, in percent of the recording's time; nothing where it has no waits.
    pub of_time: Saving,
}
