//! Zones, CPUs and memory of a pool to be, worked out before anything is taken from the system.

use std::ops::Range;

use zonal_core::machine::{Machine, ZoneSpec};
use zonal_core::types::{CpuId, Migratetype, NodeId, Order, PAGE_SIZE, ZoneKind};

use super::PoolAllocator;
use super::builder::{BuildError, Builder, ZoneSize};
use crate::rseq::{Fast, NO_OFFSET, list_offset};
use crate::sys::topology::Topology;

/// Zones, CPUs and where each zone lies in the mapping.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) zones: Vec<ZoneSpec>,
    pub(super) ranges: Vec<Range<usize>>,
    pub(super) cpus: Vec<NodeId>,
    distances: Vec<u8>,
    pub(super) pages: u64,
    cache_slice_bytes: u64,
    caches: Vec<u16>,
}

impl Plan {
    /// Bytes of the pool.
    pub(super) fn bytes(&self) -> usize {
        self.pages as usize * PAGE_SIZE
    }
    /// Each zone, and where it lies in the mapping.
    pub(super) fn zones_with_ranges(&self) -> impl Iterator<Item = (&ZoneSpec, &Range<usize>)> {
        self.zones.iter().zip(&self.ranges)
    }
    /// The node, by position, of the zone that a byte of the mapping is in; 0 behind them.
    pub(super) fn node_at(&self, byte: usize) -> usize {
        let zone = self.zones_with_ranges().find(|(_, range)| range.contains(&byte));
        zone.map_or(0, |(zone, _)| usize::from(zone.node.0))
    }
    /// The node, by position, of a CPU.
    pub(super) fn node_of(&self, cpu: CpuId) -> Option<usize> {
        self.cpus.get(cpu.0 as usize).map(|node| usize::from(node.0))
    }

    /// Whether a flag that names a zone means anything.
    pub(super) fn several_kinds(&self) -> bool {
        self.zones.iter().any(|zone| zone.kind != ZoneKind::Normal)
    }

    /// What the fast path knows; an offset of 0 turns it off. Where lists are looked up (`by_list`)
    /// `Typed` knows them.
    pub(super) fn header(
        &self,
        allocator: &PoolAllocator,
        base: usize,
        offset: isize,
        by_list: bool,
    ) -> Fast {
        let use_fast = offset != 0 && !by_list;
        Fast {
            rseq_offset: offset,
            base,
            frames: if use_fast { self.pages as usize } else { 0 },
            lists: std::array::from_fn(|order| {
                let list = Order::new(order as u32).filter(|_| use_fast).and_then(|order| {
                    allocator.tables().lists().get(order, Migratetype::Unmovable)
                });
                list.map_or(NO_OFFSET, list_offset)
            }),
            several_kinds: self.several_kinds(),
        }
    }

    /// The machine, for as long as the plan is borrowed.
    pub(super) fn borrowed(&self) -> Machine<'_> {
        Machine {
            distances: &self.distances,
            zones: &self.zones,
            cpus: &self.cpus,
            cache_slice_bytes: self.cache_slice_bytes,
            caches: &self.caches,
        }
    }

    /// The machine, borrowed for longer than the compiler can follow.
    ///
    /// # Safety
    /// 1. The plan outlives every use of the result and is not changed meanwhile.
    pub(super) unsafe fn machine(&self) -> Machine<'static> {
        unsafe fn extend<T>(items: &[T]) -> &'static [T] {
            // SAFETY: (1) the same items; how long they live is this function's contract.
            unsafe { std::slice::from_raw_parts(items.as_ptr(), items.len()) }
        }
        Machine {
            // SAFETY: (1) this function's contract (1).
            distances: unsafe { extend(&self.distances) },
            // SAFETY: (1) as above.
            zones: unsafe { extend(&self.zones) },
            // SAFETY: (1) as above.
            cpus: unsafe { extend(&self.cpus) },
            cache_slice_bytes: self.cache_slice_bytes,
            // SAFETY: (1) as above.
            caches: unsafe { extend(&self.caches) },
        }
    }

    pub(super) fn new(builder: &Builder, topology: &Topology) -> Result<Plan, BuildError> {
        let nodes = topology.nodes();
        let sizes = match builder.zones.is_empty() {
            false => builder.zones.clone(),
            true => even_zones(builder.bytes, topology),
        };
        let mut plan = Plan {
            zones: Vec::new(),
            ranges: Vec::new(),
            cpus: cpu_nodes(topology),
            distances: Vec::new(),
            pages: 0,
            cache_slice_bytes: 0,
            caches: topology.caches(),
        };
        for size in sizes {
            let pages = (size.bytes / PAGE_SIZE) as u64;
            plan.zones.push(ZoneSpec {
                node: NodeId(size.node),
                kind: size.kind,
                start_pfn: plan.pages,
                spanned: pages,
                present: pages,
            });
            let start = plan.pages as usize * PAGE_SIZE;
            plan.ranges.push(start..start + size.bytes);
            plan.pages += pages;
        }
        for from in nodes {
            for to in nodes {
                plan.distances.push(topology.distance(from.id, to.id).unwrap_or(10));
            }
        }
        let slices = topology.possible_cpus().iter().filter_map(|c| topology.llc_slice_bytes(*c));
        plan.cache_slice_bytes = slices.min().unwrap_or(0);
        Ok(plan)
    }
}

/// One Normal zone for each node with memory, equally large, of whole 4 MiB blocks.
fn even_zones(bytes: usize, topology: &Topology) -> Vec<ZoneSize> {
    let nodes = topology.nodes();
    let with_memory = |index: &usize| nodes[*index].has_memory;
    let mut places: Vec<usize> = (0..nodes.len()).filter(with_memory).collect();
    if places.is_empty() {
        places.push(0);
    }
    let block = Order::MAX.bytes();
    let share = bytes.div_ceil(places.len()).next_multiple_of(block);
    let zone = |node: &usize| ZoneSize { node: *node as u16, kind: ZoneKind::Normal, bytes: share };
    places.iter().map(zone).collect()
}

/// The node, by position, of each CPU up to the largest possible number.
fn cpu_nodes(topology: &Topology) -> Vec<NodeId> {
    let position = |cpu: u32| {
        let node = topology.node_of_cpu(CpuId(cpu));
        let index = node.and_then(|node| topology.node_index(node)).unwrap_or(0);
        NodeId(index as u16)
    };
    (0..topology.cpu_ids_max().max(1)).map(position).collect()
}
