//! Which requests the fast path may serve, and from which list: what follows from the flags, worked
//! out once.

use crate::gfp::{Gfp, ZoneKinds};
use crate::pcp::lists::ListMap;
use crate::pcp::owner::Pageblocks;
use crate::pcp::state::Pcp;
use crate::policy::Policy;
use crate::policy::walk::DirtySpread;
use crate::sync::{AtomicU8, Ordering::Relaxed};
use crate::types::{Migratetype, NR_MIGRATETYPES, NR_ORDERS, Order, PAGEBLOCK_ORDER, Pfn, ZoneId};
use crate::zone::state::Zone;
use crate::zonelist::Node;

/// Flags that name a zone or a migratetype.
const WHAT: u32 = 0x1f;
/// Rows of the tables: orders, up to a power of two, so that no index needs a check.
const ROWS: usize = NR_ORDERS.next_power_of_two();
const NO_LIST: u8 = u8::MAX;
/// Flags that may be for the search, by what the policy and the machine's nodes are: a node with
/// much dirty is passed, one without memory has no zone of its own, and cold pages have lists of
/// their own.
pub(super) const SEARCHED: u32 = Gfp::WRITE.union(Gfp::THISNODE).union(Gfp::COLD).bits();
/// Migratetypes, up to a power of two.
const TYPES: usize = NR_MIGRATETYPES.next_power_of_two();

const _: () = assert!(
    Gfp::DMA
        .union(Gfp::HIGHMEM)
        .union(Gfp::DMA32)
        .union(Gfp::MOVABLE)
        .union(Gfp::RECLAIMABLE)
        .bits()
        == WHAT
);

/// Which kind of request this is: what its flags name.
#[inline(always)]
pub(super) fn kind(gfp: Gfp) -> u32 {
    gfp.bits() & WHAT
}

/// The type that a page's pageblock has now, as a number; `block_shift` is that of the page's zone.
/// `None`: it has no pageblock.
#[inline(always)]
pub(super) fn type_of(blocks: &[AtomicU8], block_shift: u64, pfn: Pfn) -> Option<u32> {
    let at = (pfn.0 >> PAGEBLOCK_ORDER.get()).wrapping_add(block_shift) as usize;
    // Relaxed: written under the zone lock; a reader without it wants a hint.
    Some(u32::from(blocks.get(at)?.load(Relaxed)))
}

/// Whether the search of a request begins at the zone that its CPU prefers, from whichever node.
#[inline(never)]
fn starts_at_preferred(
    gfp: Gfp,
    this_node: bool,
    (zones, kinds): (&[Zone], ZoneKinds),
    (nodes, zonelist): (&[Node], &[ZoneId]),
) -> bool {
    let Some(highest) = gfp.highest_zone(kinds) else { return nodes.is_empty() };
    nodes.iter().all(|node| {
        let mut list = node.zonelist(zonelist, this_node).iter();
        list.find(|id| zones[usize::from(id.0)].kind() <= highest) == Some(&node.preferred())
    })
}

/// Which requests may be served by the fast path, and from which list. Never changes.
#[derive(Debug)]
pub(super) struct Plain {
    /// A request with one of these flags is not plain: any where each allocation is recorded, or
    /// there are no lists.
    pub others: u32,
    /// A request with one of these flags is for the search.
    pub searched: u32,
    /// By the flags of [`WHAT`]: the type of a request whose search begins at the zone that its
    /// CPU prefers.
    types: [Option<Migratetype>; WHAT as usize + 1],
    /// By the order and the flags of [`WHAT`].
    lists: [[u8; WHAT as usize + 1]; ROWS],
    /// By the order and a pageblock's type.
    by_type: [[u8; TYPES]; ROWS],
}

impl Plain {
    /// For a machine with these nodes and zones under `policy`.
    #[inline(never)]
    pub fn new(
        policy: &Policy,
        (map, grouping): (&ListMap, bool),
        (zones, kinds): (&[Zone], ZoneKinds),
        (nodes, zonelist): (&[Node], &[ZoneId]),
    ) -> Plain {
        let no_lists = policy.pcp.pageblocks == Pageblocks::Owned;
        let mut plain = Plain {
            others: if policy.numa.records() || no_lists { u32::MAX } else { 0 },
            searched: 0,
            types: [None; WHAT as usize + 1],
            // Constants are filled in at once, not row by row.
            lists: const { [[NO_LIST; WHAT as usize + 1]; ROWS] },
            by_type: const { [[NO_LIST; TYPES]; ROWS] },
        };
        if policy.zonelist.dirty == DirtySpread::Node {
            plain.searched |= Gfp::WRITE.bits();
        }
        if !starts_at_preferred(Gfp::KERNEL, true, (zones, kinds), (nodes, zonelist)) {
            plain.searched |= Gfp::THISNODE.bits();
        }
        if policy.pcp.free_lists.sets() > 1 {
            plain.searched |= Gfp::COLD.bits();
        }
        debug_assert_eq!(plain.searched & !SEARCHED, 0);
        plain.others |= plain.searched;
        // A walk that remembers full zones passes none before its first one was full (LB G.5), so
        // the preferred zone serves what it would serve under any policy.
        for what in 0..WHAT + 1 {
            let gfp = Gfp::from_bits(what);
            let Some(mt) = gfp.migratetype(grouping) else { continue };
            if !starts_at_preferred(gfp, false, (zones, kinds), (nodes, zonelist)) {
                continue;
            }
            plain.types[what as usize] = Some(mt);
            for order in Order::all() {
                if let Some(list) = map.get(order, mt) {
                    plain.lists[order.index()][what as usize] = list as u8;
                }
            }
        }
        for order in Order::all() {
            for (at, list) in plain.by_type[order.index()].iter_mut().enumerate() {
                // Without grouping there is one list of an order, whatever a pageblock's type.
                let mt = if grouping {
                    Migratetype::new(at as u32)
                } else {
                    Gfp::NONE.migratetype(false)
                };
                let found = mt.and_then(|mt| map.get(order, mt));
                *list = found.map_or(NO_LIST, |list| list as u8);
            }
        }
        plain
    }

    /// Tells each list of a pcp what the fast path may serve from it: a bit for each value of
    /// [`kind`], and one for each type of pageblock.
    #[inline(never)]
    pub fn tell(&self, map: &ListMap, pcps: &mut [Pcp]) {
        for list in 0..map.len() {
            let order = map.of(list).0.index();
            let bits = |row: &[u8]| {
                let ours = row.iter().enumerate().filter(|(_, of)| usize::from(**of) == list);
                ours.fold(0, |bits, (at, _)| bits | 1 << at)
            };
            let (serves, types) = (bits(&self.lists[order]), bits(&self.by_type[order]) as u8);
            pcps.iter_mut().for_each(|pcp| pcp.serve(list, serves, types));
        }
    }

    /// The type of a request that no flag leaves to the search, and whose search begins at the zone
    /// that its CPU prefers.
    #[inline(always)]
    pub fn type_of_request(&self, gfp: Gfp) -> Option<Migratetype> {
        if gfp.bits() & self.searched != 0 {
            return None;
        }
        self.types[kind(gfp) as usize]
    }

    /// The list of a block by the type that its pageblock has now; as [`list`](Self::list).
    #[inline(always)]
    pub fn list_by_type(&self, order: u32, mt: u32) -> usize {
        usize::from(self.by_type[order as usize % ROWS][mt as usize % TYPES])
    }

    /// The list that serves a request; a number that no list has if none does.
    pub fn list(&self, gfp: Gfp, order: Order) -> usize {
        usize::from(self.lists[order.index() % ROWS][(gfp.bits() & WHAT) as usize])
    }
}
