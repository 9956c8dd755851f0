//! Zones, nodes and distances from what firmware says.
//!
//! ```text
//!  memory map  ── Early::add ──────► bytes of memory, each of a node
//!  affinities  ── Early::set_node ─►     │  Early::memory
//!                                        ▼  whole pages; cut where the node or the kind changes
//!  zones         node 0 DMA, node 0 DMA32, node 1 DMA32, node 1 Normal
//! ```
//! [`Early`](zonal_core::early::Early) takes the ranges in any order and in pieces that overlap.
//! Firmware's tables are input from outside: nothing in them panics, and no page is given to two
//! zones. What is left open is settled:
//!
//! - Pages that are only partly there are left out.
//! - Memory of a node that lies between two pieces of another node's zone of the same kind: the
//!   first zone ends there, and what comes behind belongs to the zone that it lies in.
//!   [`Found::misplaced`] counts such pages: they work, and are farther away than firmware says.
//! - Proximity domains are any numbers; nodes are numbered from 0 by ascending domain. A domain
//!   with CPUs and no memory is a node all the same.
//!
//! Two nodes, from the `reg` and `numa-node-id` of a device tree's `memory` and `cpu` nodes, which
//! a crate such as `dtoolkit` reads; affinities of ACPI's SRAT go the same way:
//!
//! ```
//! use zonal_core::early::Early;
//! use zonal_core::machine::Machine;
//! use zonal_kernel::zones::{self, Limits, NO_ZONE};
//!
//! let memory = [(0x8000_0000..0x8600_0000, 7), (0x8600_0000..0x8c00_0000, 3)];
//! let cpus = [3, 7];
//! // Numbers first: domain 3 becomes node 0, domain 7 node 1.
//! let mut domains = [0; 8];
//! let all = memory.iter().map(|(_, domain)| *domain).chain(cpus);
//! let nodes = zones::nodes(all, &mut domains)?;
//! let node_of = |domain| zones::node_of(&domains[..nodes], domain).expect("it was numbered");
//! // Then memory, and what of it is in use; then zones, for which each node may need three places.
//! let mut early = Early::<64>::new();
//! for (range, domain) in memory {
//!     early.add(range, node_of(domain))?;
//! }
//! early.reserve(0x8000_0000..0x8030_0000)?;
//! let mut found = [NO_ZONE; 3 * 8];
//! let count = zones::find(early.memory(), Limits::RISCV64, &mut found)?.zones;
//! // A `distance-map` may name one direction only, and no node to itself.
//! let known = |from, to| matches!((from, to), (3, 7) | (7, 3)).then_some(21);
//! let mut distances = [0; 8 * 8];
//! zones::distances(&domains[..nodes], known, &mut distances)?;
//! let machine = Machine {
//!     distances: &distances[..nodes * nodes],
//!     zones: &found[..count],
//!     cpus: &cpus.map(node_of),
//!     cache_slice_bytes: 0,
//!     caches: &[],
//! };
//! machine.check()?;
//! assert_eq!((machine.zones.len(), machine.distances), (2, &[10, 21, 21, 10][..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::fmt;
use core::ops::Range;

use zonal_core::machine::ZoneSpec;
use zonal_core::types::{NodeId, PAGE_SIZE, ZoneKind};

/// Where kinds of zones end, in page frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// End of `DMA`; 0: there is none.
    pub dma: u64,
    /// End of `DMA32`; not above `dma`: there is none.
    pub dma32: u64,
}

impl Limits {
    /// 16 MiB for devices of the ISA bus, and 4 GiB.
    pub const X86_64: Limits = Limits { dma: 0x1000, dma32: 0x10_0000 };
    /// 4 GiB for devices with 32 address lines, all of it `DMA`.
    pub const AARCH64: Limits = Limits { dma: 0x10_0000, dma32: 0 };
    /// 4 GiB for devices with 32 address lines, all of it `DMA32`.
    pub const RISCV64: Limits = Limits { dma: 0, dma32: 0x10_0000 };

    /// The kind of a page frame, and where that kind ends.
    fn kind(&self, pfn: u64) -> (ZoneKind, u64) {
        if pfn < self.dma {
            (ZoneKind::Dma, self.dma)
        } else if pfn < self.dma32 {
            (ZoneKind::Dma32, self.dma32)
        } else {
            (ZoneKind::Normal, u64::MAX)
        }
    }
}

/// Why firmware's tables cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FirmwareError {
    /// No range has a whole page.
    NoMemory,
    /// More of something than there is room for: what, and the room.
    Room(&'static str, usize),
}

impl fmt::Display for FirmwareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            FirmwareError::NoMemory => f.write_str("the memory map has no whole page of memory"),
            FirmwareError::Room(what, room) => {
                write!(f, "there are more {what} than the {room} that there is room for")
            }
        }
    }
}

impl core::error::Error for FirmwareError {}

/// Numbers nodes: proximity domains, ascending. Fills `domains` from the front and returns how many
/// there are; a machine without affinities has domain 0 alone.
///
/// # Errors
/// [`FirmwareError::Room`] if `domains` is too short.
pub fn nodes(
    all: impl IntoIterator<Item = u32>,
    domains: &mut [u32],
) -> Result<usize, FirmwareError> {
    let room = domains.len();
    let full = || FirmwareError::Room("proximity domains", room);
    let mut count = 0;
    for domain in all {
        if let Err(at) = domains[..count].binary_search(&domain) {
            *domains.get_mut(count).ok_or_else(full)? = domain;
            count += 1;
            domains[at..count].rotate_right(1);
        }
    }
    if count == 0 {
        *domains.first_mut().ok_or_else(full)? = 0;
        count = 1;
    }
    Ok(count)
}

/// The node of a domain, if it has one.
pub fn node_of(domains: &[u32], domain: u32) -> Option<NodeId> {
    domains.binary_search(&domain).ok().and_then(|node| u16::try_from(node).ok()).map(NodeId)
}

/// Fills the distances of nodes, row by row, from those between domains, which ACPI's SLIT or a
/// device tree's `distance-map` has; a map may name one direction only, so let `known` look for
/// both. What is not known or cannot be (below 10, or not 10 from a node to itself) becomes 10 for
/// a node itself and 20 for others. Returns how many were replaced.
///
/// # Errors
/// [`FirmwareError::Room`] if `distances` is shorter than nodes squared.
pub fn distances(
    domains: &[u32],
    known: impl Fn(u32, u32) -> Option<u8>,
    distances: &mut [u8],
) -> Result<usize, FirmwareError> {
    let (nodes, room) = (domains.len(), distances.len());
    if room < nodes.saturating_mul(nodes) {
        return Err(FirmwareError::Room("distances", room));
    }
    let mut replaced = 0;
    for (from, row) in domains.iter().zip(distances.chunks_mut(nodes.max(1))) {
        for (to, distance) in domains.iter().zip(row) {
            let default = if from == to { 10 } else { 20 };
            let known = known(*from, *to).filter(|&known| match from == to {
                true => known == 10,
                false => known >= 10,
            });
            replaced += usize::from(known.is_none());
            *distance = known.unwrap_or(default);
        }
    }
    Ok(replaced)
}

/// What [`find`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// How many zones were filled in.
    pub zones: usize,
    /// Pages, of all zones.
    pub present: u64,
    /// Pages in a zone of another node than firmware says.
    pub misplaced: u64,
}

/// Finds the zones of memory that comes by rising address, as
/// [`Early::memory`](zonal_core::early::Early::memory) tells it: bytes and their node. Those of
/// `zones` that are filled in, from the front, are for
/// [`Machine::zones`](zonal_core::machine::Machine::zones).
///
/// # Errors
/// [`FirmwareError`].
pub fn find(
    memory: impl IntoIterator<Item = (Range<u64>, NodeId)>,
    limits: Limits,
    zones: &mut [ZoneSpec],
) -> Result<Found, FirmwareError> {
    let page = PAGE_SIZE as u64;
    let mut found = Found { zones: 0, present: 0, misplaced: 0 };
    let mut at = 0;
    for (bytes, node) in memory {
        let end = bytes.end / page;
        at = bytes.start.div_ceil(page).max(at);
        while at < end {
            let (kind, kind_end) = limits.kind(at);
            let next = end.min(kind_end);
            add(zones, &mut found, (node, kind), at..next)?;
            at = next;
        }
    }
    match found.zones {
        0 => Err(FirmwareError::NoMemory),
        _ => Ok(found),
    }
}

/// Adds pages behind all that were added before.
fn add(
    zones: &mut [ZoneSpec],
    found: &mut Found,
    (node, kind): (NodeId, ZoneKind),
    pages: Range<u64>,
) -> Result<(), FirmwareError> {
    let room = zones.len();
    let count = pages.end - pages.start;
    found.present += count;
    let (before, free) = zones.split_at_mut(found.zones);
    let is_it = |zone: &ZoneSpec| (zone.node, zone.kind) == (node, kind);
    let has_one = before.iter().any(is_it);
    if has_one && let Some(last) = before.last_mut() {
        // Zones do not overlap, and kinds ascend: where the node's zone of this kind has ended, the
        // last one is of the same kind.
        found.misplaced += if is_it(last) { 0 } else { count };
        last.spanned = pages.end - last.start_pfn;
        last.present += count;
        return Ok(());
    }
    let new = free.first_mut().ok_or(FirmwareError::Room("zones", room))?;
    *new = ZoneSpec { node, kind, start_pfn: pages.start, spanned: count, present: count };
    found.zones += 1;
    Ok(())
}

/// A zone that is not filled in.
pub const NO_ZONE: ZoneSpec =
    ZoneSpec { node: NodeId(0), kind: ZoneKind::Normal, start_pfn: 0, spanned: 0, present: 0 };
