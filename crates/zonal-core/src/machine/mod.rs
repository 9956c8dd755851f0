//! The machine that an allocator is made for, and how much metadata it needs.
//!
//! The caller describes nodes, zones and CPUs in slices, asks [`Layout::of`] how many records of
//! each kind that takes, makes them where it likes or cuts them from one piece of memory
//! ([`Layout::carve`]), and hands them over as [`Metadata`].

pub(crate) mod carve;
pub(crate) mod depots;
mod spec;
pub(crate) mod zonelists;

pub use spec::{CPUS_MAX, Machine, MachineError, ZONES_MAX, ZoneSpec};

use crate::frame::Frames;
use crate::pcp::owner::{OwnedBlock, Owner, Pageblocks};
use crate::pcp::state::Pcp;
use crate::policy::Policy;
use crate::sync::{AtomicU8, AtomicU32, AtomicU64};
use crate::types::{Order, PAGE_SIZE, ZoneId};
use crate::vmstat::numa::NumaDeltas;
use crate::zone::state::Zone;
use crate::zonelist::Node;
use depots::ZoneDepots;

/// Records of metadata that a machine needs under a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Zones.
    pub zones: usize,
    /// Per-CPU pcps: zones times CPUs. The first one of the table is CPU 0's of the zone it
    /// prefers, behind it lies CPU 1's, and so on; behind those the CPUs' pcps of the zones behind.
    /// So a platform finds the pcp that its fast path wants by the CPU's number and the table's
    /// beginning ([`PCP_BYTES`](crate::pcp::state::PCP_BYTES) apart). With
    /// [`Platform::PCPS_FROM_END`](crate::platform::Platform::PCPS_FROM_END) all of it is the other
    /// way round: CPU 0's is the last.
    pub pcps: usize,
    /// Page frame words.
    pub words: usize,
    /// Pageblock types.
    pub blocks: usize,
    /// Slots of the per-CPU stacks.
    pub slots: usize,
    /// Nodes.
    pub nodes: usize,
    /// Zonelist entries: nodes times zones; sorted by zones, each zone once more.
    pub zonelist: usize,
    /// Deltas of NUMA events: zones times CPUs, where the policy records each event; else none.
    pub numa: usize,
    /// CPUs' pageblocks: zones times CPUs, where the policy has CPUs own them; else none.
    pub owners: usize,
    /// What is known of each pageblock, where the policy has CPUs own them; else none.
    pub owned: usize,
}

/// The records, owned by the caller. The allocator has each of them for itself: a copy of a
/// reference would let its owner change what is whose, and a second allocator over the same words
/// would hand out the same pages. Once it is gone another one may have them: what they hold then
/// does not count ([`Allocator::new`](crate::alloc::Allocator::new)).
///
/// ```compile_fail,E0382
/// use zonal_core::machine::Metadata;
///
/// fn kept<'a>(metadata: Metadata<'a>) -> (Metadata<'a>, &'a [zonal_core::sync::AtomicU64]) {
///     let words = metadata.words;
///     (metadata, words)
/// }
/// ```
#[derive(Debug)]
pub struct Metadata<'a> {
    /// [`Layout::zones`] records.
    pub zones: &'a mut [Zone],
    /// [`Layout::pcps`] records.
    pub pcps: &'a mut [Pcp],
    /// [`Layout::words`] words.
    pub words: &'a mut [AtomicU64],
    /// [`Layout::blocks`] bytes.
    pub blocks: &'a mut [AtomicU8],
    /// [`Layout::slots`] slots.
    pub slots: &'a mut [AtomicU32],
    /// [`Layout::nodes`] records.
    pub nodes: &'a mut [Node],
    /// [`Layout::zonelist`] entries.
    pub zonelist: &'a mut [ZoneId],
    /// [`Layout::numa`] records.
    pub numa: &'a mut [NumaDeltas],
    /// [`Layout::owners`] records.
    pub owners: &'a mut [Owner],
    /// [`Layout::owned`] records.
    pub owned: &'a mut [OwnedBlock],
}

/// Where each pcp lies in the table of pcps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PcpOrder {
    /// Stores of a (zone, CPU): 1, or 2 where there are cold ones.
    pub(crate) sets: usize,
    pub(crate) cpus: usize,
    pub(crate) zones: usize,
    /// Counted from the end.
    pub(crate) from_end: bool,
}

impl PcpOrder {
    /// Position of a CPU's pcp of the zone with this rank: 0 is the zone that the CPU prefers,
    /// the others follow by number, round. Cold pcps lie behind all others.
    #[inline]
    pub(crate) fn position(self, set: usize, cpu: usize, rank: usize) -> usize {
        let pcps = self.cpus * self.zones;
        let at = set * pcps + rank * self.cpus + cpu;
        if self.from_end { self.sets * pcps - 1 - at } else { at }
    }
}

impl Layout {
    /// The records that `machine` needs under `policy`.
    ///
    /// # Errors
    /// [`MachineError`] where the machine cannot be, or the policy.
    pub fn of(machine: &Machine<'_>, policy: &Policy) -> Result<Layout, MachineError> {
        machine.check()?;
        policy.check_numbers().map_err(MachineError::Number)?;
        policy.check().map_err(MachineError::Conflict)?;
        let lists = policy.pcp.map(machine.grouping(policy));
        let mut layout = Layout {
            zones: machine.zones.len(),
            pcps: machine.zones.len() * machine.cpus.len() * policy.pcp.free_lists.sets(),
            words: 0,
            blocks: 0,
            slots: 0,
            nodes: machine.nodes(),
            zonelist: zonelists::entries(machine, &policy.zonelist),
            numa: 0,
            owners: 0,
            owned: 0,
        };
        if policy.numa.records() {
            layout.numa = machine.zones.len() * machine.cpus.len();
        }
        let owners = (machine.cpus.len() * policy.pcp.free_lists.sets()) as u64;
        if policy.pcp.free_lists.sets() > 1 && owners > CPUS_MAX as u64 {
            return Err(MachineError::TooMany("CPUs with lists", owners, CPUS_MAX as u64));
        }
        for zone in machine.zones {
            layout.words += zone.spanned as usize;
            layout.blocks += Frames::pageblocks_for(zone.start_pfn, zone.spanned);
            let zone_cpus = (zone, machine.node_cpus(zone.node));
            for node in machine.cpus {
                for set in 0..policy.pcp.free_lists.sets() {
                    layout.slots += lists.slots(machine.set_pages(set, zone_cpus, *node, policy));
                }
            }
            // A policy that is compiled in and has no depots leaves their code out.
            if policy.pcp.depot.magazines != 0 {
                layout.slots += ZoneDepots::new(machine, zone, policy).slots();
            }
        }
        if policy.pcp.pageblocks == Pageblocks::Owned {
            layout.owners = machine.zones.len() * machine.cpus.len();
            layout.owned = layout.blocks;
        }
        if layout.words > u32::MAX as usize {
            let most = u64::from(u32::MAX);
            return Err(MachineError::TooMany("page frames", layout.words as u64, most));
        }
        if layout.slots > u32::MAX as usize {
            let most = u64::from(u32::MAX);
            return Err(MachineError::TooMany("per-CPU slots", layout.slots as u64, most));
        }
        Ok(layout)
    }

    /// Bytes of all records; `usize::MAX` where they are more than there are addresses.
    pub const fn bytes(&self) -> usize {
        let all = [
            (self.zones, size_of::<Zone>()),
            (self.pcps, size_of::<Pcp>()),
            (self.words, size_of::<AtomicU64>()),
            (self.blocks, size_of::<AtomicU8>()),
            (self.slots, size_of::<AtomicU32>()),
            (self.nodes, size_of::<Node>()),
            (self.zonelist, size_of::<ZoneId>()),
            (self.numa, size_of::<NumaDeltas>()),
            (self.owners, size_of::<Owner>()),
            (self.owned, size_of::<OwnedBlock>()),
        ];
        let (mut bytes, mut at) = (0usize, 0);
        while at < all.len() {
            bytes = bytes.saturating_add(all[at].0.saturating_mul(all[at].1));
            at += 1;
        }
        bytes
    }

    /// Bytes of metadata for each byte of memory.
    pub const fn overhead(&self) -> f64 {
        self.bytes() as f64 / (self.words as f64 * PAGE_SIZE as f64)
    }

    /// Whether `metadata` has as many records as the layout asks for.
    pub(crate) fn check(&self, metadata: &Metadata<'_>) -> Result<(), MachineError> {
        const NAMES: [&str; 10] = [
            "zones",
            "pcps",
            "page words",
            "pageblocks",
            "slots",
            "nodes",
            "zonelist entries",
            "NUMA deltas",
            "owners",
            "owned pageblocks",
        ];
        let given = [
            metadata.zones.len(),
            metadata.pcps.len(),
            metadata.words.len(),
            metadata.blocks.len(),
            metadata.slots.len(),
            metadata.nodes.len(),
            metadata.zonelist.len(),
            metadata.numa.len(),
            metadata.owners.len(),
            metadata.owned.len(),
        ];
        let needed = [
            self.zones,
            self.pcps,
            self.words,
            self.blocks,
            self.slots,
            self.nodes,
            self.zonelist,
            self.numa,
            self.owners,
            self.owned,
        ];
        for (at, what) in NAMES.iter().enumerate() {
            if given[at] < needed[at] {
                return Err(MachineError::Metadata(what, given[at], needed[at]));
            }
        }
        Ok(())
    }
}

const _: () = assert!(Order::MAX.get() < 16, "page words name the order in 4 bits");
