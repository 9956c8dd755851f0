//! A cell of the bench: which loop, how many threads, which order, touched or not.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The loops of the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Bench {
    /// Allocate one block, free it.
    #[serde(rename = "pair")]
    Pair,
    /// Allocate 8 blocks, then free them in the same order.
    #[serde(rename = "8+8")]
    Batch8,
    /// Allocate 32 blocks, then free them in the same order.
    #[serde(rename = "32+32")]
    Batch32,
    /// The same on two CPUs, after each has freed a random half of what both had allocated.
    #[serde(rename = "shuffled")]
    Shuffled,
    /// Allocate 4096 blocks one by one, then free them one by one in the same order.
    #[serde(rename = "singles4096")]
    Singles,
    /// The same through the bulk calls; subjects without one do not take part.
    #[serde(rename = "bulk4096")]
    Bulk,
    /// Allocated on one CPU, freed on another, through a bounded ring.
    #[serde(rename = "stream")]
    Stream,
    /// Random orders and lifetimes from a fixed seed.
    #[serde(rename = "mix")]
    Mix,
    /// Mixed rights with room to spare: what `edge` is held against (`edge.rs`).
    #[serde(rename = "room")]
    Room,
    /// Mixed rights at the edge of memory, while a cache gives way (`edge.rs`).
    #[serde(rename = "edge")]
    Edge,
    /// Pages in a row, exactly as many as are asked for, or the next power of two (`ranges.rs`).
    #[serde(rename = "ranges")]
    Ranges,
    /// A pool's memory faulted in, by one thread or one on each CPU (`prefault.rs`).
    #[serde(rename = "prefault")]
    Prefault,
    /// A page that owns its pool, or borrows it (`owned.rs`).
    #[serde(rename = "owned")]
    Owned,
}

impl Bench {
    /// Every bench, in the order of the report.
    pub const ALL: [Bench; 13] = [
        Bench::Pair,
        Bench::Batch8,
        Bench::Batch32,
        Bench::Shuffled,
        Bench::Singles,
        Bench::Bulk,
        Bench::Stream,
        Bench::Mix,
        Bench::Room,
        Bench::Edge,
        Bench::Ranges,
        Bench::Prefault,
        Bench::Owned,
    ];

    /// Whether every subject runs it, in the cells of the plan.
    pub(crate) const fn is_planned(self) -> bool {
        !matches!(self, Bench::Room | Bench::Edge | Bench::Ranges | Bench::Prefault | Bench::Owned)
    }

    /// Whether its threads need two CPUs and each other's blocks.
    pub(crate) const fn is_of_two(self) -> bool {
        matches!(self, Bench::Stream | Bench::Shuffled)
    }

    /// The orders that a plan asks it for.
    pub(crate) const fn orders(self) -> &'static [u32] {
        match self {
            Bench::Pair => &[0, 3, 4, 9],
            Bench::Batch8 => &[1, 2, 3, 4, 9],
            Bench::Batch32 => &[0, 1, 2, 3, 4, 9],
            Bench::Shuffled => &[0, 3],
            _ => &[0],
        }
    }

    /// Whether it is run with many more threads than CPUs, too: those loops that hold little.
    pub(crate) const fn takes_crowds(self, order: u32) -> bool {
        order == 0 && matches!(self, Bench::Pair | Bench::Batch32 | Bench::Mix)
    }

    /// The name used in rows and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Bench::Pair => "pair",
            Bench::Batch8 => "8+8",
            Bench::Batch32 => "32+32",
            Bench::Shuffled => "shuffled",
            Bench::Singles => "singles4096",
            Bench::Bulk => "bulk4096",
            Bench::Stream => "stream",
            Bench::Mix => "mix",
            Bench::Room => "room",
            Bench::Edge => "edge",
            Bench::Ranges => "ranges",
            Bench::Prefault => "prefault",
            Bench::Owned => "owned",
        }
    }

    /// Operations (the unit of `ns_per_op`) in one iteration of the loop, per thread.
    pub const fn ops_per_iteration(self) -> u64 {
        match self {
            Bench::Pair | Bench::Stream | Bench::Mix => 1,
            Bench::Room | Bench::Edge | Bench::Ranges | Bench::Prefault | Bench::Owned => 1,
            Bench::Batch8 => 8,
            Bench::Batch32 | Bench::Shuffled => 32,
            Bench::Singles | Bench::Bulk => 4096,
        }
    }

    /// Iterations of the checked pass: enough to reach every path of the loop, and the same for
    /// every subject, so that their result hashes can be compared.
    pub(crate) const fn checked_iterations(self) -> u64 {
        match self {
            Bench::Pair => 64,
            Bench::Batch8 => 16,
            Bench::Batch32 | Bench::Shuffled => 4,
            Bench::Singles | Bench::Bulk => 1,
            Bench::Stream | Bench::Mix => 1024,
            Bench::Room | Bench::Edge | Bench::Ranges | Bench::Prefault | Bench::Owned => 0,
        }
    }
}

impl fmt::Display for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One cell: every subject that supports it gives one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cell {
    /// The loop.
    pub bench: Bench,
    /// How many threads run it at once.
    pub threads: u32,
    /// Each thread is pinned to its own CPU. False when there are more threads than CPUs.
    pub pinned: bool,
    /// The order of the blocks: `4096 << order` bytes. `mix` draws its own, this is then 0.
    pub order: u32,
    /// One word of every page is written between its allocation and its free.
    pub touched: bool,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let touched = if self.touched { "touched" } else { "untouched" };
        let (bench, threads, order) = (self.bench, self.threads, self.order);
        write!(f, "{bench} order {order}, {threads} threads, {touched}")
    }
}
