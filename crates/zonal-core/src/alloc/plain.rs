//! Which requests the fast path may serve, and from which list: what follows from the flags, worked
//! out once.

use crate::gfp::{Gfp, ZoneKinds};
use crate::pcp::lists::ListMap;
use crate::policy::Policy;
use crate::policy::walk::{DirtySpread, ZonelistCaching};
use crate::sync::{AtomicU8, Ordering::Relaxed};
use crate::types::{Migratetype, NR_MIGRATETYPES, Order, PAGEBLOCK_ORDER, Pfn, ZoneId};
use crate::zone::state::Zone;
use crate::zonelist::Node;

/// Flags that name a zone or a migratetype.
const WHAT: u32 = 0x1f;
/// Orders of one row of the table.
const ROW: usize = 16;
const NO_LIST: u8 = u8::MAX;
/// Migratetypes, up to a power of two.
const TYPES: u8 = NR_MIGRATETYPES.next_power_of_two() as u8;

const _: () = assert!(
    Gfp::DMA
        .union(Gfp::HIGHMEM)
        .union(Gfp::DMA32)
        .union(Gfp::MOVABLE)
        .union(Gfp::RECLAIMABLE)
        .bits()
        == WHAT
);

/// Which requests may be served by the fast path, and from which list. Never changes.
#[derive(Debug)]
pub(super) struct Plain {
    /// A request with one of these flags is for the search.
    pub others: u32,
    /// By the flags of [`WHAT`] and the order.
    lists: [u8; ROW * (WHAT as usize + 1)],
    /// By a pageblock's type and the order.
    by_type: [u8; ROW * TYPES as usize],
}

impl Plain {
    /// For a machine with these nodes and zones under `policy`.
    pub fn new(
        policy: &Policy,
        (map, grouping): (&ListMap, bool),
        (zones, kinds): (&[Zone], ZoneKinds),
        (nodes, zonelist): (&[Node], &[ZoneId]),
    ) -> Plain {
        let mut plain = Plain {
            others: 0,
            lists: [NO_LIST; ROW * (WHAT as usize + 1)],
            by_type: [NO_LIST; ROW * TYPES as usize],
        };
        // The first zone that a request from the node may use.
        let first = |node: &Node, gfp: Gfp, this_node| {
            let highest = gfp.highest_zone(kinds)?;
            let list = node.zonelist(zonelist, this_node);
            list.iter().copied().find(|id| zones[usize::from(id.0)].kind() <= highest)
        };
        let starts_at_preferred = |gfp, this_node| {
            nodes.iter().all(|node| first(node, gfp, this_node) == Some(node.preferred()))
        };
        if policy.zonelist.dirty == DirtySpread::Node {
            plain.others |= Gfp::WRITE.bits();
        }
        if !starts_at_preferred(Gfp::KERNEL, true) {
            plain.others |= Gfp::THISNODE.bits();
        }
        // Each allocation is recorded, zones found full are passed, cold pages have lists of their
        // own: always for the search.
        if policy.numa.records()
            || policy.zonelist.cache != ZonelistCaching::None
            || policy.pcp.free_lists.sets() > 1
        {
            return plain;
        }
        for what in 0..=WHAT {
            let gfp = Gfp::from_bits(what);
            let Some(mt) = gfp.migratetype(grouping) else { continue };
            if !starts_at_preferred(gfp, false) {
                continue;
            }
            for order in Order::all() {
                if let Some(list) = map.get(order, mt) {
                    plain.lists[what as usize * ROW + order.index()] = list as u8;
                }
            }
        }
        for mt in Migratetype::ALL {
            for order in Order::all() {
                if let Some(list) = map.get(order, mt) {
                    plain.by_type[mt.index() * ROW + order.index()] = list as u8;
                }
            }
        }
        plain
    }

    /// The list of a block by the type that its pageblock has now; as [`list`](Self::list).
    #[inline(always)]
    pub fn list_by_type(&self, blocks: &[AtomicU8], zone: &Zone, pfn: Pfn, order: Order) -> usize {
        let at = (pfn.0 >> PAGEBLOCK_ORDER.get()).wrapping_add(zone.block_shift) as usize;
        // Relaxed: written under the zone lock; a reader without it wants a hint.
        let mt = blocks.get(at).map_or(0, |mt| mt.load(Relaxed));
        let at = usize::from(mt & (TYPES - 1)) * ROW + (order.index() & (ROW - 1));
        usize::from(self.by_type[at])
    }

    /// The list that serves a request; a number that no list has if none does.
    #[inline(always)]
    pub fn list(&self, gfp: Gfp, order: Order) -> usize {
        let at = (gfp.bits() & WHAT) as usize * ROW + (order.index() & (ROW - 1));
        usize::from(self.lists[at])
    }
}
