//! Which per-CPU list a block belongs to (LB E.1).

use crate::pcp::word::NR_LISTS;
use crate::types::{Migratetype, NR_MIGRATETYPES, NR_ORDERS, Order, PAGEBLOCK_ORDER, choice};

const NONE: u8 = u8::MAX;

choice! {
    /// How huge pages are filed where pageblocks have types (LB E.1).
    #[derive(Default)]
    pub enum HugeLists {
        /// By type, like other orders; with orders 0 to 3 that makes 15 lists: 5.13 to 5.19.
        ByType = "by-type" if "history",
        /// All on one list, the 13th: 6.0 to 6.9.
        Together = "together",
        /// As movable or not, 14 lists: 6.10 on.
        #[default]
        ByMovable = "by-movable",
    }
}

choice! {
    /// How many sets of lists a CPU has for each zone (LB E.11).
    #[derive(Default)]
    pub enum FreeLists {
        /// One for pages that are likely in the CPU's cache, and a smaller one for those that are
        /// not: about 2.6.24. Callers say which by a hint.
        HotCold = "hot-cold" if "history",
        /// One. The hint is not read.
        #[default]
        Single = "single",
    }
}

impl FreeLists {
    /// Sets of lists for each zone and CPU.
    pub const fn sets(self) -> usize {
        match self {
            #[cfg(feature = "history")]
            FreeLists::HotCold => 2,
            FreeLists::Single => 1,
        }
    }
}

/// Rows of the map, orders, and their columns, migratetypes: up to a power of two, so that no index
/// needs a check.
const ROWS: usize = NR_ORDERS.next_power_of_two();
const COLUMNS: usize = NR_MIGRATETYPES.next_power_of_two();

/// From (order, migratetype) to a list's index and back.
#[derive(Clone, Copy, Debug)]
pub struct ListMap {
    index: [[u8; COLUMNS]; ROWS],
    of: [(Order, Migratetype); NR_LISTS],
    len: usize,
}

impl ListMap {
    /// The lists of `orders`, bit `o` for order `o`. With mobility grouping: Linux' order,
    /// `3 * order + type` for orders 0 to 3, then the highest order as `huge` says: a huge page's,
    /// which is 9 with pages of 4 KiB, 8 on s390x and 5 with 64 KiB. Without: one list per order.
    pub fn new(orders: u16, huge: HugeLists, grouping: bool) -> ListMap {
        use Migratetype::{Movable, Reclaimable, Unmovable};
        let mut map = ListMap {
            // A constant is filled in at once, not row by row.
            index: const { [[NONE; COLUMNS]; ROWS] },
            of: [(Order::ZERO, Unmovable); NR_LISTS],
            len: 0,
        };
        let huge: &[&[Migratetype]] = match huge {
            #[cfg(feature = "history")]
            HugeLists::ByType => &[&[Unmovable], &[Movable], &[Reclaimable]],
            HugeLists::Together => &[&[Unmovable, Movable, Reclaimable]],
            HugeLists::ByMovable => &[&[Unmovable, Reclaimable], &[Movable]],
        };
        let highest = (orders & ((2 << PAGEBLOCK_ORDER.get()) - 1)).checked_ilog2();
        for order in Order::all().filter(|order| orders & (1 << order.get()) != 0) {
            let lists: &[&[Migratetype]] = match order {
                _ if order > PAGEBLOCK_ORDER => &[],
                _ if !grouping => &[&[Unmovable]],
                _ if order <= Order::COSTLY => &[&[Unmovable], &[Movable], &[Reclaimable]],
                _ if highest == Some(order.get()) => huge,
                _ => &[],
            };
            lists.iter().for_each(|types| map.add(order, types));
        }
        map
    }

    fn add(&mut self, order: Order, types: &[Migratetype]) {
        let row = &mut self.index[order.index() % ROWS];
        for mt in types {
            row[mt.index() % COLUMNS] = self.len as u8;
        }
        row[Migratetype::HighAtomic.index()] = row[Migratetype::Movable.index()];
        self.of[self.len] = (order, types[0]);
        self.len += 1;
    }

    /// The list of a block, if its order has one. HighAtomic blocks go with Movable (LB E.1);
    /// Isolate blocks have no list.
    #[inline]
    pub fn get(&self, order: Order, mt: Migratetype) -> Option<usize> {
        let index = self.index[order.index() % ROWS][mt.index() % COLUMNS];
        (index != NONE).then_some(index as usize)
    }

    /// Lists in use.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Contents of a list.
    ///
    /// # Panics
    /// If `list` is not below [`NR_LISTS`].
    pub fn of(&self, list: usize) -> (Order, Migratetype) {
        self.of[list]
    }

    /// Slots of one list where the largest holds `pages` pages: a tenth more than the limit, so
    /// that a stack that wanders up is moved down rarely, and room for the smallest refill.
    ///
    /// # Panics
    /// If `list` is not below [`NR_LISTS`].
    pub fn capacity(&self, list: usize, pages: usize) -> usize {
        let (order, _) = self.of[list];
        let blocks = pages >> order.get();
        blocks + (blocks / 8).max(2)
    }

    /// Slots of all lists of one pcp.
    pub fn slots(&self, pages: usize) -> usize {
        (0..self.len).map(|list| self.capacity(list, pages)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINUX: u16 = 0b10_0000_1111;
    const ALL: u16 = 0b11_1111_1111;

    #[test]
    fn linux_lists_are_in_linux_order() {
        let map = ListMap::new(LINUX, HugeLists::ByMovable, true);
        assert_eq!(map.len(), 14);
        let order = |o| Order::new(o).unwrap();
        assert_eq!(map.get(order(2), Migratetype::Reclaimable), Some(8));
        assert_eq!(map.get(order(9), Migratetype::Unmovable), Some(12));
        assert_eq!(map.get(order(9), Migratetype::Reclaimable), Some(12));
        assert_eq!(map.get(order(9), Migratetype::Movable), Some(13));
        assert_eq!(map.get(order(0), Migratetype::HighAtomic), Some(1));
        assert_eq!(map.get(order(4), Migratetype::Movable), None);
        assert_eq!(map.get(order(0), Migratetype::Isolate), None);
    }

    #[test]
    fn each_era_has_its_number_of_lists_and_its_place_for_huge_pages() {
        use Migratetype::{Movable, Reclaimable, Unmovable};
        // orders, era, lists, list of unmovable, movable, reclaimable huge pages
        for (orders, huge, len, place) in [
            (1, HugeLists::ByMovable, 3, [None; 3]),
            #[cfg(feature = "history")]
            (LINUX, HugeLists::ByType, 15, [Some(12), Some(13), Some(14)]),
            (LINUX, HugeLists::Together, 13, [Some(12); 3]),
            (LINUX, HugeLists::ByMovable, 14, [Some(12), Some(13), Some(12)]),
            (ALL, HugeLists::ByMovable, 14, [Some(12), Some(13), Some(12)]),
        ] {
            let map = ListMap::new(orders, huge, true);
            assert_eq!(map.len(), len, "{huge:?}");
            let of = |mt| map.get(PAGEBLOCK_ORDER, mt);
            assert_eq!([of(Unmovable), of(Movable), of(Reclaimable)], place, "{huge:?}");
            for list in 0..map.len() {
                let (order, mt) = map.of(list);
                assert_eq!(map.get(order, mt), Some(list), "{huge:?}");
                let by_rule = if list < 12 { list as u32 / 3 } else { 9 };
                assert_eq!(order.get(), by_rule, "LB E.1: the order from the index");
            }
        }
    }

    /// Kernels whose huge pages are of another order than 9.
    #[test]
    fn the_highest_order_is_that_of_huge_pages() {
        let order = |o| Order::new(o).unwrap();
        for huge in [4, 5, 8] {
            let map = ListMap::new(0b1111 | 1 << huge, HugeLists::ByMovable, true);
            assert_eq!(map.len(), 14, "{huge}");
            assert_eq!(map.get(order(huge), Migratetype::Unmovable), Some(12), "{huge}");
            assert_eq!(map.get(order(huge), Migratetype::Movable), Some(13), "{huge}");
            assert_eq!(map.get(PAGEBLOCK_ORDER, Migratetype::Movable), None, "{huge}");
        }
        assert_eq!(ListMap::new(0b1111, HugeLists::ByMovable, true).len(), 12);
    }

    #[test]
    fn a_pool_has_a_list_for_every_order_to_nine() {
        let map = ListMap::new(ALL, HugeLists::ByMovable, false);
        assert_eq!(map.len(), 10);
        for order in Order::all().take(10) {
            assert_eq!(map.get(order, Migratetype::Unmovable), Some(order.index()));
        }
        assert_eq!(map.get(Order::MAX, Migratetype::Unmovable), None);
        assert_eq!(ListMap::new(1, HugeLists::Together, false).len(), 1);
        assert_eq!(ListMap::new(LINUX, HugeLists::Together, false).len(), 5);
    }
}
