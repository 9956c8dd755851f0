//! An allocator is made: its tables, from a machine, a policy and the caller's records.

use super::Allocator;
use super::plain::Plain;
use super::tables::{Events, Tables};
use super::tunables::Tunables;
use crate::frame::Frames;
use crate::machine::carve::reset;
use crate::machine::depots::ZoneDepots;
use crate::machine::{Layout, Machine, MachineError, Metadata, PcpOrder, ZoneSpec, zonelists};
use crate::pcp::lists::ListMap;
use crate::pcp::state::Pcp;
use crate::pcp::tune::PcpParams;
use crate::platform::Platform;
use crate::policy::Policy;
use crate::reclaim::ReclaimControl;
use crate::sync::{AtomicU32, AtomicU64};
use crate::types::{CpuId, Migratetype, PAGEBLOCK_ORDER, PageCount, ZoneId, ZoneKind};
use crate::zone::epoch::FastEpoch;
use crate::zone::state::{FAST_FREE, Zone};
use crate::zonelist::Node;

impl<'a, P: Platform> Allocator<'a, P> {
    /// An allocator for `machine` over `metadata`, without any memory yet: bring it online zone by
    /// zone, then call [`setup`](Self::setup). Whatever the records hold is forgotten, so those of
    /// an allocator that is gone serve another one. For that each page word is looked at, which
    /// [`new_over_fresh`](super::new_over_fresh) does not.
    ///
    /// # Errors
    /// [`MachineError`] where the machine cannot be or the metadata is too small for it.
    #[inline]
    pub fn new(
        machine: &Machine<'a>,
        policy: Policy,
        mut metadata: Metadata<'a>,
        platform: P,
    ) -> Result<Allocator<'a, P>, MachineError> {
        accepted::<P>(machine, &policy, &metadata)?;
        forget_words(metadata.words);
        forget(&mut metadata);
        made(machine, &policy, metadata, platform)
    }
}

/// As [`Allocator::new`], over records that nobody has used.
#[inline(always)]
pub(super) fn new_over_fresh<'a, P: Platform>(
    machine: &Machine<'a>,
    policy: Policy,
    metadata: Metadata<'a>,
    platform: P,
) -> Result<Allocator<'a, P>, MachineError> {
    accepted::<P>(machine, &policy, &metadata)?;
    made(machine, &policy, metadata, platform)
}

/// Whether the platform accepts the policy, the machine can be, and the metadata suffices.
#[inline]
fn accepted<P: Platform>(
    machine: &Machine<'_>,
    policy: &Policy,
    metadata: &Metadata<'_>,
) -> Result<(), MachineError> {
    match Policy::fixed_for::<P>() {
        Some(fixed) if fixed != policy => {
            Err(MachineError::Policy { fixed: fixed.name, given: policy.name })
        }
        fixed => check(machine, fixed.unwrap_or(policy), metadata),
    }
}

/// Clears page words. Those that are zero are not written to: pages of the system's that nobody has
/// touched stay away.
#[inline(never)]
fn forget_words(words: &mut [AtomicU64]) {
    for word in words.iter_mut().map(AtomicU64::get_mut).filter(|word| **word != 0) {
        *word = 0;
    }
}

/// Brings all other records into their default state but slots, which nobody reads before they are
/// written, and the zonelists.
#[inline(never)]
fn forget(metadata: &mut Metadata<'_>) {
    reset(metadata.zones);
    reset(metadata.pcps);
    reset(metadata.nodes);
    reset(metadata.numa);
    reset(metadata.owners);
    reset(metadata.owned);
    reset(metadata.blocks);
}

/// An allocator, under a policy that the platform accepts. Its tables are made where they stay: not
/// inlined, and no part of this returns them.
#[inline(never)]
fn made<'a, P: Platform>(
    machine: &Machine<'a>,
    policy: &Policy,
    metadata: Metadata<'a>,
    platform: P,
) -> Result<Allocator<'a, P>, MachineError> {
    // Where it is fixed by that reference: what only others need is left out of all below.
    let policy = Policy::fixed_for::<P>().unwrap_or(policy);
    let grouping = machine.grouping(policy);
    let map = policy.pcp.map(grouping);
    zonelists::build(machine, &policy.zonelist, metadata.nodes, metadata.zonelist);
    fill_zones(machine, policy, metadata.zones);
    if grouping {
        metadata.blocks.iter_mut().for_each(|of| *of.get_mut() = Migratetype::Movable as u8);
    }
    let zones = &mut metadata.zones[..machine.zones.len()];
    let sets = policy.pcp.free_lists.sets();
    let pcps = &mut metadata.pcps[..sets * zones.len() * machine.cpus.len()];
    let nodes = &metadata.nodes[..machine.nodes()];
    fill_pcps::<P>(machine, policy, &map, zones, pcps, (metadata.slots, nodes));
    tell_preferred(machine, &map, nodes, zones);
    // Each allocation is recorded, so sequences serve none; the core's fast path does.
    if policy.numa.records() && policy.numa_stat && platform.uses_gates() {
        pcps.iter_mut().for_each(Pcp::seal_unused);
    }
    let kinds = machine.zones.iter().map(|zone| zone.kind).collect();
    let plain = Plain::new(policy, (&map, grouping), (zones, kinds), (nodes, metadata.zonelist));
    plain.tell(&map, pcps);
    // First what is worked out, then what is copied: the other way round it waits on the stack.
    let tables = Tables {
        platform,
        plain,
        map,
        fixed: policy.pcp.fixed(),
        policy: *policy,
        tunables: Tunables::new(policy),
        reclaim: ReclaimControl::new(machine, &policy.node_reclaim),
        growing: AtomicU32::new(0),
        sized: AtomicU32::new(0),
        limits: AtomicU32::new(0),
        coming: AtomicU32::new(0),
        events: Events::default(),
        epoch: FastEpoch::default(),
        grouping,
        kinds,
        zones,
        pcps,
        words: metadata.words,
        blocks: metadata.blocks,
        slots: metadata.slots,
        nodes,
        zonelist: metadata.zonelist,
        cpu_nodes: machine.cpus,
        distances: machine.distances,
        cache_slice_bytes: machine.cache_slice_bytes,
        numa: metadata.numa,
        owners: metadata.owners,
        owned: metadata.owned,
    };
    Ok(Allocator { tables })
}

/// Whether the machine can be, and the metadata suffices.
#[inline(never)]
fn check(
    machine: &Machine<'_>,
    policy: &Policy,
    metadata: &Metadata<'_>,
) -> Result<(), MachineError> {
    Layout::of(machine, policy)?.check(metadata)
}

/// The core's fast path serves a CPU from the zone that it prefers.
#[inline(never)]
fn tell_preferred(machine: &Machine<'_>, map: &ListMap, nodes: &[Node], zones: &mut [Zone]) {
    let orders = (0..map.len()).fold(0, |bits, list| bits | 1 << map.of(list).0.get());
    for node in machine.cpus {
        zones[usize::from(nodes[node.0 as usize].preferred().0)].ready_by = orders | FAST_FREE;
    }
}

/// Whether requests of a zone may fall back to a DMA32 zone of its node.
fn has_dma32_below(machine: &Machine<'_>, zone: &ZoneSpec) -> bool {
    let is_below = |other: &ZoneSpec| {
        other.kind == ZoneKind::Dma32 && (machine.nodes() == 1 || other.node == zone.node)
    };
    zone.kind == ZoneKind::Normal && machine.zones.iter().any(is_below)
}

#[inline(never)]
fn fill_zones(machine: &Machine<'_>, policy: &Policy, zones: &mut [Zone]) {
    let (mut frame_base, mut block_base) = (0, 0);
    for (id, (spec, zone)) in machine.zones.iter().zip(zones).enumerate() {
        zone.id = ZoneId(id as u16);
        zone.node = spec.node;
        zone.kind = spec.kind;
        zone.has_dma32_below = has_dma32_below(machine, spec);
        zone.start_pfn = spec.start_pfn;
        zone.spanned = spec.spanned;
        zone.present = spec.present;
        zone.update = policy.stat.update;
        zone.rights = policy.reserves;
        zone.highatomic = policy.highatomic.count;
        zone.set_recorded(policy.numa.records() && policy.numa_stat);
        zone.frame_base = frame_base;
        zone.stream = policy.pcp.stream;
        zone.block_base = block_base;
        let first_block = spec.start_pfn >> PAGEBLOCK_ORDER.get();
        zone.block_shift = (block_base as u64).wrapping_sub(first_block);
        zone.block_count = Frames::pageblocks_for(spec.start_pfn, spec.spanned);
        let limit = match policy.pcp.budget_fraction {
            0 => 0,
            fraction => (spec.present / u64::from(fraction)).max(1) as u32,
        };
        zone.budget.set_up(PageCount::new(limit), PageCount::ZERO);
        frame_base += spec.spanned as usize;
        block_base += zone.block_count;
    }
}

/// Gives every pcp its identity, its lists and their slots, and behind those the depots theirs.
#[inline(never)]
fn fill_pcps<P: Platform>(
    machine: &Machine<'_>,
    policy: &Policy,
    map: &ListMap,
    zones: &[Zone],
    pcps: &mut [Pcp],
    (slots, nodes): (&[AtomicU32], &[Node]),
) {
    let mut base = 0;
    let sets = policy.pcp.free_lists.sets();
    let (cpus, from_end) = (machine.cpus.len(), P::PCPS_FROM_END);
    let order = PcpOrder { sets, cpus, zones: zones.len(), from_end };
    for (cpu, node) in machine.cpus.iter().enumerate() {
        let preferred = nodes[node.0 as usize].preferred().0 as usize;
        let places = (0..zones.len()).flat_map(|rank| (0..order.sets).map(move |set| (rank, set)));
        for (rank, set) in places {
            let zone = (preferred + rank) % zones.len();
            let pcp = &mut pcps[order.position(set, cpu, rank)];
            pcp.zone = ZoneId(zone as u16);
            pcp.cpu = CpuId(cpu as u32);
            pcp.owner = CpuId((set * cpus + cpu) as u32);
            pcp.depot_cpu = CpuId(cpu as u32);
            pcp.tuning = policy.pcp.tuning;
            pcp.tracks_swing = policy.pcp.fixed().tracks_swing();
            (pcp.first_frame, pcp.frames) =
                (zones[zone].frame_base as u32, zones[zone].spanned as u32);
            pcp.start_pfn = zones[zone].start_pfn;
            pcp.ready.page_shift = pcp.start_pfn.wrapping_sub(u64::from(pcp.first_frame));
            pcp.ready.block_shift = zones[zone].block_shift;
            *pcp.batch.get_mut() = PcpParams::BOOT.batch;
            let spec = &machine.zones[zone];
            let zone_cpus = (spec, nodes[usize::from(spec.node.0)].cpus());
            let pages = machine.set_pages(set, zone_cpus, *node, policy);
            for list in 0..map.len() {
                let cap = map.capacity(list, pages);
                pcp.set_list(list, rank as u16, map.of(list), slots, (base, cap));
                base += cap;
            }
        }
    }
    if policy.pcp.depot.magazines != 0 {
        fill_depots(machine, policy, zones, (pcps, order), (slots, nodes, base));
    }
}

/// Gives the pcps of each zone their depots, whose slots are those from `base` on.
fn fill_depots(
    machine: &Machine<'_>,
    policy: &Policy,
    zones: &[Zone],
    (pcps, order): (&mut [Pcp], PcpOrder),
    (slots, nodes, mut base): (&[AtomicU32], &[Node], usize),
) {
    for (zone, spec) in machine.zones.iter().enumerate() {
        let depots = ZoneDepots::new(machine, spec, policy);
        zones[zone].budget.force(depots.pages());
        let mut of = 0;
        for (cpu, node) in machine.cpus.iter().enumerate() {
            let preferred = nodes[node.0 as usize].preferred().0 as usize;
            let rank = (zone + zones.len() - preferred) % zones.len();
            let pcp = &mut pcps[order.position(0, cpu, rank)];
            of = if depots.is_beside(cpu) { of } else { depots.of(cpu) };
            pcp.depot_cpu = CpuId(of as u32);
            let size = depots.size(cpu);
            pcp.depot.set_up(slots, base, size);
            base += size.slots();
        }
    }
}
