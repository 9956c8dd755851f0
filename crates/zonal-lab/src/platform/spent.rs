//! What a run of the virtual machine counts: cycles by what took them, and what happened.

use crate::cost::contents::Lines;

/// Where the cycles of a run went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Programs' own work, and the lines they touch.
    pub user: u64,
    /// Updates of per-CPU counters, and looking at those of other CPUs.
    pub updates: u64,
    /// Reads of lines that others write.
    pub reads: u64,
    /// Folds into shared counters.
    pub folds: u64,
    /// Waiting for zone locks.
    pub lock_waits: u64,
    /// Moving pages between the lists, depots and the buddy, and reaching other CPUs' lists.
    pub pages: u64,
    /// Touching what pages hold, for programs and for the kernel.
    pub contents: u64,
}

/// What happened in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Happened {
    /// Folds of a per-CPU counter.
    pub folds: u64,
    /// Pages moved between the lists and the buddy.
    pub pages_moved: u64,
    /// Zone locks taken.
    pub lock_holds: u64,
    /// Of these, found taken.
    pub lock_contended: u64,
    /// Line fetches.
    pub fetches: u64,
    /// Lines of pages touched.
    pub lines: Lines,
}

/// Cycles waited for locks, besides what [`Spent`] says of zone locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Of the waits for zone locks, those of calls that free.
    pub frees: u64,
    /// Times that calls that free found a zone lock taken.
    pub frees_contended: u64,
    /// Waiting for locks of the kernel that are no zone's, and for lines that they share.
    pub kernel: u64,
}

/// What happened to the locks of CPUs' own pageblocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerLocks {
    /// Times taken.
    pub holds: u64,
    /// Times found taken.
    pub contended: u64,
    /// Cycles waited for them.
    pub waited: u64,
}

/// Cycles of work that is none of the allocator's locks, lists and counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Programs' own, without the pages that they touch.
    pub(crate) programs: u64,
    /// The allocator's calls: what each of them takes before anything moves.
    pub(crate) calls: u64,
    /// The kernel's around the allocator, and what it does under locks of its own.
    pub(crate) kernel: u64,
    /// What CPUs lost to work that others sent them.
    pub(crate) sent: u64,
}

counts!(Work: programs, calls, kernel, sent);
counts!(OwnerLocks: holds, contended, waited);
counts!(Waits: frees, frees_contended, kernel);
counts!(Spent: user, updates, reads, folds, lock_waits, pages, contents);
counts!(Happened: folds, pages_moved, lock_holds, lock_contended, fetches, lines);
