//! Nodes, zones and CPUs as the caller describes them, and whether such a machine can be.

use core::fmt;

use crate::frame::MAX_ZONE_FRAMES;
use crate::pcp::size::{self, HighFraction, SizeInputs, Sizes};
use crate::policy::set::Conflict;
use crate::policy::{OutOfRange, Policy};
use crate::types::{NodeId, PAGEBLOCK_ORDER, ZoneKind, isqrt};
use crate::zone::state::MANAGED_MAX;
use crate::zonelist::order::NODES_MAX;

/// Most zones an allocator has: page words name their pcp's zone in 12 bits.
pub const ZONES_MAX: usize = 1 << 12;
// KiB of all pages, and 16 times that (LB C.1).
const _: () = assert!((ZONES_MAX as u64 * MANAGED_MAX).checked_mul(4 * 16).is_some());
#[cfg(feature = "history")]
const _: () = assert!(ZONES_MAX <= crate::zonelist::cache::POSITIONS_MAX);
/// Most CPUs: page words name the CPU that caches a page in 16 bits, and the last number stands for
/// "on the way".
pub const CPUS_MAX: usize = (1 << 16) - 1;

/// Nodes, zones and CPUs.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'a> {
    /// Distances between nodes, row by row; 10 is local (LB A.3). Its length is nodes squared.
    pub distances: &'a [u8],
    /// Populated zones, by ascending start, none overlapping another.
    pub zones: &'a [ZoneSpec],
    /// The node of each CPU, by CPU id.
    pub cpus: &'a [NodeId],
    /// Bytes of last-level cache that one CPU may count as its own (LB E.5); 0 if not known.
    pub cache_slice_bytes: u64,
    /// The last-level cache of each CPU, by CPU id, as any number; empty if not known.
    pub caches: &'a [u16],
}

/// One populated zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneSpec {
    /// Its node.
    pub node: NodeId,
    /// What it is for.
    pub kind: ZoneKind,
    /// First page frame.
    pub start_pfn: u64,
    /// Pages up to the last frame, holes included.
    pub spanned: u64,
    /// Pages without holes.
    pub present: u64,
}

/// Why a machine cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MachineError {
    /// No zone has a page.
    NoMemory,
    /// There is no CPU.
    NoCpu,
    /// More of something than fits: what, how many, at most.
    TooMany(&'static str, u64, u64),
    /// The distance table has this many entries; it needs that many.
    Distances(usize, usize),
    /// A distance below 10, or a node not at 10 from itself: from, to, value.
    Distance(u16, u16, u8),
    /// A zone (by position) or CPU names a node that does not exist: what, which, the node, and how
    /// many nodes there are.
    NoSuchNode(&'static str, usize, u16, usize),
    /// The zone at this position has no pages, or more present than spanned.
    ZoneSize(usize),
    /// The zone at this position starts before the one in front of it ends.
    ZoneOrder {
        /// Its position.
        position: usize,
        /// The node and kind of the zone.
        zone: (NodeId, ZoneKind),
        /// Where it starts.
        start_pfn: u64,
        /// The node and kind of the one in front of it.
        before: (NodeId, ZoneKind),
        /// The page frame behind that one.
        end_pfn: u64,
    },
    /// The node already has a zone of this kind: position of the second.
    ZoneTwice(usize),
    /// A slice of metadata has fewer records than the layout asks for: which, given, needed.
    Metadata(&'static str, usize, usize),
    /// The memory to cut the metadata from has fewer bytes than that takes: given, needed.
    Memory(usize, usize),
    /// The platform is compiled for one policy, and another was given.
    Policy {
        /// What the policy that is fixed began as.
        fixed: &'static str,
        /// What the other began as.
        given: &'static str,
    },
    /// A number of the policy is not one that its key accepts.
    Number(OutOfRange),
    /// Values of the policy that do not go together.
    Conflict(Conflict),
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            MachineError::NoMemory => f.write_str("no zone has any memory; give at least one page"),
            MachineError::NoCpu => f.write_str("the machine has no CPU; give at least one"),
            MachineError::TooMany(what, given, most) => {
                write!(f, "{given} {what}, but at most {most} are possible")
            }
            MachineError::Distances(given, needed) => {
                write!(f, "the distance table has {given} entries, but nodes squared is {needed}")
            }
            MachineError::Distance(from, to, value) => write!(
                f,
                "distance {value} from node {from} to node {to}: a node is at 10 from itself, \
                 others at 10 to 255"
            ),
            MachineError::NoSuchNode(what, which, node, nodes) => write!(
                f,
                "{what} {which} is on node {node}, which does not exist: nodes are 0 to {}",
                nodes.saturating_sub(1)
            ),
            MachineError::ZoneSize(zone) => {
                write!(f, "zone {zone}: present pages must be at least 1 and at most the span")
            }
            MachineError::ZoneOrder { position, zone, start_pfn, before, end_pfn } => write!(
                f,
                "zone {position} ({:?}, {}) starts before the end of the zone in front of it \
                 ({:?}, {}): at page frame {start_pfn}, and that one ends at {end_pfn}; give zones \
                 by ascending start, none overlapping another",
                zone.0, zone.1, before.0, before.1
            ),
            MachineError::ZoneTwice(zone) => {
                write!(f, "zone {zone}: its node already has a zone of that kind")
            }
            MachineError::Metadata(what, given, needed) => {
                write!(f, "{given} records of {what} were given, the layout needs {needed}")
            }
            MachineError::Memory(given, needed) => write!(
                f,
                "{given} bytes were given for the metadata, but it takes {needed}: see \
                 Layout::carve_bytes"
            ),
            MachineError::Policy { fixed, given } => write!(
                f,
                "the platform is compiled for the policy {fixed} as it is in `Platform::POLICY`, \
                 and {given} or a changed one was given; give the same"
            ),
            MachineError::Number(OutOfRange { key, value, low, high }) => {
                write!(f, "{key} of the policy is {value}; give {low} to {high}")
            }
            MachineError::Conflict(conflict) => write!(f, "the policy cannot be: {conflict}"),
        }
    }
}

impl core::error::Error for MachineError {}

impl Machine<'_> {
    /// Nodes: the distance table is square.
    pub fn nodes(&self) -> usize {
        isqrt(self.distances.len() as u64) as usize
    }

    /// CPUs of a node.
    pub fn node_cpus(&self, node: NodeId) -> u32 {
        self.cpus.iter().filter(|of| **of == node).count() as u32
    }

    /// Whether pageblocks are grouped by mobility: where the policy leaves it open, on machines
    /// that are not too small for it (LB A.5, with the high watermarks still zero).
    pub fn grouping(&self, policy: &Policy) -> bool {
        // The machine may be one that cannot be.
        let pages = self.zones.iter().map(|zone| zone.present).fold(0, u64::saturating_add);
        policy.mobility_grouping.resolve(pages, policy.page)
    }

    /// Pages a pcp's largest stack must hold: what the limits of LB E.4 allow, and the largest
    /// refill. Stores of CPUs on other nodes get together as much as the node's own, so that
    /// metadata stays in proportion. With `SizeRule::SixBatches` a fraction gives *each*
    /// CPU that part of the zone, so there is room for the policy's fraction only: one that is
    /// written later and asks for more fills the stacks, which are then drained as if they were at
    /// their limit.
    fn pcp_pages(&self, (zone, own): (&ZoneSpec, u32), cpu: NodeId, policy: &Policy) -> usize {
        let all = self.cpus.len() as u32;
        // The low watermark may be raised up to the whole zone while the allocator runs; lists that
        // hold more than their share of an eighth would be most of the zone, and are cut there.
        let largest = |fraction| {
            let inputs = SizeInputs {
                managed: zone.present,
                low_watermark: zone.present / u64::from(size::HIGH_FRACTION_MIN),
                node_cpus: own,
                machine_cpus: all,
                cap_pages: policy.pcp.batch_cap_pages,
                fraction,
            };
            size::sizes(policy.pcp.size, &inputs)
        };
        let (set, auto) = (largest(policy.pcp.high_fraction), largest(HighFraction::AUTO));
        let most = |sizes: Sizes| sizes.high_min.max(sizes.high_max);
        let batch = set.batch.max(auto.batch);
        let mut high = most(set).max(most(auto));
        if let Some(most) = policy.pcp.high_most(batch, PAGEBLOCK_ORDER) {
            high = high.min(most);
        }
        // A refill leaves room for a batch below `high` (LB E.6), however often it has doubled.
        let chunk = (batch << policy.pcp.scale_max).min(high);
        let others = all - own;
        if cpu != zone.node && own != 0 && others > own {
            high = (u64::from(high) * u64::from(own) / u64::from(others)) as u32;
        }
        high.max(chunk) as usize + batch as usize
    }

    /// The same for a pcp of this set: 0, or 1 for cold pages. A zone comes with the number of its
    /// node's CPUs: whoever asks for each CPU counts them once.
    pub(crate) fn set_pages(
        &self,
        set: usize,
        zone: (&ZoneSpec, u32),
        cpu: NodeId,
        policy: &Policy,
    ) -> usize {
        match set {
            #[cfg(feature = "history")]
            1 => {
                let cap_pages = policy.pcp.batch_cap_pages;
                let sizes = crate::pcp::history::cold::sizes(zone.0.present, cap_pages);
                (sizes.high_max + sizes.batch) as usize
            }
            _ => self.pcp_pages(zone, cpu, policy),
        }
    }

    /// # Errors
    /// [`MachineError`] where the machine cannot be.
    pub fn check(&self) -> Result<(), MachineError> {
        let nodes = self.nodes();
        if nodes * nodes != self.distances.len() || nodes == 0 {
            let needed = nodes.max(1) * nodes.max(1);
            return Err(MachineError::Distances(self.distances.len(), needed));
        }
        const MOST: [(&str, usize); 3] =
            [("nodes", NODES_MAX), ("zones", ZONES_MAX), ("CPUs", CPUS_MAX)];
        let given = [nodes, self.zones.len(), self.cpus.len()];
        for ((what, most), given) in MOST.iter().zip(&given) {
            if given > most {
                return Err(MachineError::TooMany(what, *given as u64, *most as u64));
            }
        }
        if self.zones.is_empty() {
            return Err(MachineError::NoMemory);
        }
        if self.cpus.is_empty() {
            return Err(MachineError::NoCpu);
        }
        self.check_distances(nodes)?;
        for (cpu, node) in self.cpus.iter().enumerate() {
            if node.0 as usize >= nodes {
                return Err(MachineError::NoSuchNode("CPU", cpu, node.0, nodes));
            }
        }
        self.check_zones(nodes)
    }

    fn check_distances(&self, nodes: usize) -> Result<(), MachineError> {
        for from in 0..nodes {
            for to in 0..nodes {
                let value = self.distances[from * nodes + to];
                if value < 10 || (from == to && value != 10) {
                    return Err(MachineError::Distance(from as u16, to as u16, value));
                }
            }
        }
        Ok(())
    }

    fn check_zones(&self, nodes: usize) -> Result<(), MachineError> {
        let mut end = 0;
        for (position, zone) in self.zones.iter().enumerate() {
            if zone.node.0 as usize >= nodes {
                return Err(MachineError::NoSuchNode("zone", position, zone.node.0, nodes));
            }
            if zone.present == 0 || zone.present > zone.spanned {
                return Err(MachineError::ZoneSize(position));
            }
            if zone.spanned > MAX_ZONE_FRAMES as u64 {
                let most = MAX_ZONE_FRAMES as u64;
                return Err(MachineError::TooMany("pages in one zone", zone.spanned, most));
            }
            let too_far = MachineError::TooMany("page frame numbers", u64::MAX, 1 << 52);
            let next = zone.start_pfn.checked_add(zone.spanned).ok_or(too_far)?;
            if let Some(before) = position.checked_sub(1).map(|before| &self.zones[before])
                && zone.start_pfn < end
            {
                return Err(MachineError::ZoneOrder {
                    position,
                    zone: (zone.node, zone.kind),
                    start_pfn: zone.start_pfn,
                    before: (before.node, before.kind),
                    end_pfn: end,
                });
            }
            if next > 1 << 52 {
                return Err(too_far);
            }
            let before = &self.zones[..position];
            if before.iter().any(|other| (other.node, other.kind) == (zone.node, zone.kind)) {
                return Err(MachineError::ZoneTwice(position));
            }
            end = next;
        }
        Ok(())
    }
}
