//! Kinds of workloads and their numbers, as data.

use zonal_core::types::Order;

use crate::provenance::Provenance;
use crate::sim::Program;
use crate::units::PAGE_LINES;

/// A kind of workload.
#[derive(Debug)]
pub struct Kind {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Its numbers, in the order in which they are printed.
    pub params: &'static [Param],
    pub(super) make: fn(&[u64], u32) -> Box<dyn Program>,
}

/// A number of a workload.
#[derive(Debug)]
pub struct Param {
    /// Its name.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Its default.
    pub default: u64,
    /// The smallest it may be.
    pub min: u64,
    /// The largest it may be.
    pub max: u64,
    /// Where its default is from.
    pub from: Provenance,
}

/// The order of the blocks, as most workloads have it.
pub(super) const ORDER: Param = Param {
    name: "order",
    about: "order of each block",
    default: 0,
    min: 0,
    max: 9,
    from: Provenance::estimated("the size that is asked for most"),
};

/// Lines that are written of a new block: a whole page.
pub(super) const LINES: Param = Param {
    name: "lines",
    about: "lines written of each block that is allocated, from its first on",
    default: PAGE_LINES,
    min: 0,
    max: PAGE_LINES << 9,
    from: Provenance::estimated("who asks for a page writes it"),
};

/// An order that has passed its parameter's bounds.
pub(super) fn order(value: u64) -> Order {
    Order::new(value as u32).unwrap_or(Order::MAX)
}
