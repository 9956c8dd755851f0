//! A cell of the bench: which loop, how many threads, which order, touched or not.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The loops of the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Bench {
    /// Allocate one block, free it.
    #[serde(rename = "pair")]
    Pair,
    /// Allocate 32 blocks, then free them in the same order.
    #[serde(rename = "32+32")]
    Batch32,
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
}

impl Bench {
    /// Every bench, in the order of the report.
    pub const ALL: [Bench; 8] = [
        Bench::Pair,
        Bench::Batch32,
        Bench::Singles,
        Bench::Bulk,
        Bench::Stream,
        Bench::Mix,
        Bench::Room,
        Bench::Edge,
    ];

    /// Whether every subject runs it, in the cells of the plan.
    pub(crate) const fn is_planned(self) -> bool {
        !matches!(self, Bench::Room | Bench::Edge)
    }

    /// The name used in rows and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Bench::Pair => "pair",
            Bench::Batch32 => "32+32",
            Bench::Singles => "singles4096",
            Bench::Bulk => "bulk4096",
            Bench::Stream => "stream",
            Bench::Mix => "mix",
            Bench::Room => "room",
            Bench::Edge => "edge",
        }
    }

    /// Operations (the unit of `ns_per_op`) in one iteration of the loop, per thread.
    pub const fn ops_per_iteration(self) -> u64 {
        match self {
            Bench::Pair | Bench::Stream | Bench::Mix | Bench::Room | Bench::Edge => 1,
            Bench::Batch32 => 32,
            Bench::Singles | Bench::Bulk => 4096,
        }
    }

    /// Iterations of the checked pass: enough to reach every path of the loop, and the same for
    /// every subject, so that their result hashes can be compared.
    pub(crate) const fn checked_iterations(self) -> u64 {
        match self {
            Bench::Pair => 64,
            Bench::Batch32 => 4,
            Bench::Singles | Bench::Bulk => 1,
            Bench::Stream | Bench::Mix => 1024,
            Bench::Room | Bench::Edge => 0,
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
