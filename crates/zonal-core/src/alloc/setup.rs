//! The tables of an allocator, made from a machine, a policy and the caller's records.

use super::plain::Plain;
use super::tables::{Events, Tables};
use super::tunables::Tunables;
use crate::frame::Frames;
use crate::gfp::ZoneKinds;
use crate::machine::depots::ZoneDepots;
use crate::machine::{Layout, Machine, MachineError, Metadata, PcpOrder, zonelists};
use crate::pcp::lists::ListMap;
use crate::pcp::state::Pcp;
use crate::pcp::tune::PcpParams;
use crate::platform::Platform;
use crate::policy::Policy;
use crate::reclaim::ReclaimControl;
use crate::sync::AtomicU32;
use crate::types::{CpuId, Migratetype, PAGEBLOCK_ORDER, PageCount, ZoneId, ZoneKind};
use crate::zone::epoch::FastEpoch;
use crate::zone::state::{FAST_FREE, Zone};
use crate::zonelist::Node;

impl<'a, P: Platform> Tables<'a, P> {
    /// The records of a machine whose memory is not online yet.
    pub(super) fn new(
        machine: &Machine<'a>,
        policy: Policy,
        metadata: Metadata<'a>,
        platform: P,
    ) -> Result<Tables<'a, P>, MachineError> {
        // Where it is fixed by that reference: what only others need is left out of all below.
        let policy = match Policy::fixed_for::<P>() {
            Some(fixed) if *fixed != policy => {
                return Err(MachineError::Policy { fixed: fixed.name, given: policy.name });
            }
            fixed => fixed.unwrap_or(&policy),
        };
        Layout::of(machine, policy)?.check(&metadata)?;
        let grouping = machine.grouping(policy);
        let map = policy.pcp.map(grouping);
        let Metadata { zones, pcps, words, blocks, slots, nodes, zonelist, numa, owners, owned } =
            metadata;
        zonelists::build(machine, &policy.zonelist, nodes, zonelist);
        fill_zones(machine, policy, zones);
        let zones = &mut zones[..machine.zones.len()];
        let sets = policy.pcp.free_lists.sets();
        let pcps = &mut pcps[..sets * zones.len() * machine.cpus.len()];
        let nodes = &nodes[..machine.nodes()];
        fill_pcps(machine, policy, &map, zones, (pcps, P::PCPS_FROM_END), (&*slots, nodes));
        tell_preferred(machine, &map, nodes, zones);
        // Each allocation is recorded, so sequences serve none; the core's fast path does.
        if policy.numa.records() && policy.numa_stat && platform.uses_gates() {
            pcps.iter_mut().for_each(Pcp::seal_unused);
        }
        let kinds = kinds_of(machine);
        let plain = Plain::new(policy, (&map, grouping), (zones, kinds), (nodes, zonelist));
        plain.tell(&map, pcps);
        let tables = Tables {
            platform,
            policy: *policy,
            grouping,
            kinds,
            map,
            plain,
            fixed: policy.pcp.fixed(),
            zones,
            pcps,
            words,
            blocks,
            slots,
            nodes,
            zonelist,
            distances: machine.distances,
            cpu_nodes: machine.cpus,
            cache_slice_bytes: machine.cache_slice_bytes,
            numa,
            owners,
            owned,
            tunables: Tunables::new(policy),
            reclaim: ReclaimControl::new(machine, &policy.node_reclaim),
            growing: AtomicU32::new(0),
            sized: AtomicU32::new(0),
            limits: AtomicU32::new(0),
            coming: AtomicU32::new(0),
            events: Events::default(),
            epoch: FastEpoch::default(),
        };
        if grouping {
            tables.zones.iter().for_each(|zone| {
                zone.frames(tables.words, tables.blocks).fill_pageblock_types(Migratetype::Movable);
            });
        }
        Ok(tables)
    }
}

/// The core's fast path serves a CPU from the zone that it prefers.
fn tell_preferred(machine: &Machine<'_>, map: &ListMap, nodes: &[Node], zones: &mut [Zone]) {
    let orders = (0..map.len()).fold(0, |bits, list| bits | 1 << map.of(list).0.get());
    for node in machine.cpus {
        zones[usize::from(nodes[node.0 as usize].preferred().0)].ready_by = orders | FAST_FREE;
    }
}

/// The kinds of zones that a machine has.
fn kinds_of(machine: &Machine<'_>) -> ZoneKinds {
    let exists = |kind| machine.zones.iter().any(|zone| zone.kind == kind);
    let kinds = ZoneKind::ALL.into_iter().filter(|kind| exists(*kind));
    kinds.fold(ZoneKinds::NONE, ZoneKinds::with)
}

fn fill_zones(machine: &Machine<'_>, policy: &Policy, zones: &mut [Zone]) {
    let (mut frame_base, mut block_base) = (0, 0);
    for (id, (spec, zone)) in machine.zones.iter().zip(zones).enumerate() {
        zone.id = ZoneId(id as u16);
        zone.node = spec.node;
        zone.kind = Some(spec.kind);
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
        frame_base += spec.spanned as usize;
        block_base += zone.block_count;
    }
}

/// Gives every pcp its identity, its lists and their slots, and behind those the depots theirs.
fn fill_pcps(
    machine: &Machine<'_>,
    policy: &Policy,
    map: &ListMap,
    zones: &[Zone],
    (pcps, from_end): (&mut [Pcp], bool),
    (slots, nodes): (&[AtomicU32], &[crate::zonelist::Node]),
) {
    let mut base = 0;
    let sets = policy.pcp.free_lists.sets();
    let order = PcpOrder { sets, cpus: machine.cpus.len(), zones: zones.len(), from_end };
    for (cpu, node) in machine.cpus.iter().enumerate() {
        let preferred = nodes[node.0 as usize].preferred().0 as usize;
        let places = (0..zones.len()).flat_map(|rank| (0..order.sets).map(move |set| (rank, set)));
        for (rank, set) in places {
            let zone = (preferred + rank) % zones.len();
            let cpus = machine.cpus.len();
            let pcp = &mut pcps[order.position(set, cpu, rank)];
            pcp.zone = ZoneId(zone as u16);
            pcp.cpu = CpuId(cpu as u32);
            pcp.owner = CpuId((set * cpus + cpu) as u32);
            pcp.tuning = policy.pcp.tuning;
            pcp.tracks_swing = policy.pcp.fixed().tracks_swing();
            (pcp.first_frame, pcp.frames) =
                (zones[zone].frame_base as u32, zones[zone].spanned as u32);
            pcp.start_pfn = zones[zone].start_pfn;
            pcp.ready.page_shift = pcp.start_pfn.wrapping_sub(u64::from(pcp.first_frame));
            pcp.ready.block_shift = zones[zone].block_shift;
            *pcp.batch.get_mut() = PcpParams::BOOT.batch;
            let spec = &machine.zones[zone];
            let pages = machine.set_pages(set, spec, *node, policy);
            for list in 0..map.len() {
                let cap = map.capacity(list, pages);
                pcp.set_list(list, rank as u16, map.of(list), slots, (base, cap));
                base += cap;
            }
        }
    }
    for (zone, spec) in machine.zones.iter().enumerate() {
        let depots = ZoneDepots::new(machine, spec, policy);
        let limit = match policy.pcp.budget_fraction {
            0 => 0,
            fraction => (spec.present / u64::from(fraction)).max(1) as u32,
        };
        zones[zone].budget.set_up(PageCount::new(limit), depots.pages());
        for (cpu, node) in machine.cpus.iter().enumerate() {
            let preferred = nodes[node.0 as usize].preferred().0 as usize;
            let rank = (zone + zones.len() - preferred) % zones.len();
            let pcp = &mut pcps[order.position(0, cpu, rank)];
            pcp.depot_cpu = CpuId(depots.of(cpu) as u32);
            let size = depots.size(cpu);
            pcp.depot.set_up(slots, base, size);
            base += size.slots();
        }
    }
}
