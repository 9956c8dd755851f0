//! Which per-CPU list a block belongs to (LB E.1).

use crate::pcp::store::NR_LISTS;
use crate::types::{Migratetype, NR_ORDERS, NR_PCP_MIGRATETYPES, Order, PAGEBLOCK_ORDER};

const NONE: u8 = u8::MAX;

/// From (order, migratetype) to a list's index and back.
#[derive(Clone, Copy, Debug)]
pub struct ListMap {
    index: [[u8; NR_PCP_MIGRATETYPES]; NR_ORDERS],
    of: [(Order, Migratetype); NR_LISTS],
    len: usize,
}

impl ListMap {
    /// The lists of `orders`, bit `o` for order `o`. With mobility grouping: Linux' order,
    /// `3 * order + type` for orders 0 to 3, then order 9 as movable or not. Without: one list per
    /// order.
    pub fn new(orders: u16, grouping: bool) -> ListMap {
        let mut map = ListMap {
            index: [[NONE; NR_PCP_MIGRATETYPES]; NR_ORDERS],
            of: [(Order::ZERO, Migratetype::Unmovable); NR_LISTS],
            len: 0,
        };
        let wanted = |order: Order| orders & (1 << order.get()) != 0;
        if !grouping {
            for order in Order::all().filter(|o| wanted(*o) && *o <= PAGEBLOCK_ORDER) {
                map.add(order, &[Migratetype::Unmovable]);
            }
            return map;
        }
        for order in Order::all().filter(|o| wanted(*o) && *o <= Order::COSTLY) {
            for mt in [Migratetype::Unmovable, Migratetype::Movable, Migratetype::Reclaimable] {
                map.add(order, &[mt]);
            }
        }
        if wanted(PAGEBLOCK_ORDER) {
            map.add(PAGEBLOCK_ORDER, &[Migratetype::Unmovable, Migratetype::Reclaimable]);
            map.add(PAGEBLOCK_ORDER, &[Migratetype::Movable]);
        }
        map
    }

    fn add(&mut self, order: Order, types: &[Migratetype]) {
        for mt in types {
            self.index[order.index()][mt.index()] = self.len as u8;
        }
        self.of[self.len] = (order, types[0]);
        self.len += 1;
    }

    /// The list of a block, if its order has one. HighAtomic blocks go with Movable (LB E.1);
    /// Isolate blocks have none.
    #[inline]
    pub fn get(&self, order: Order, mt: Migratetype) -> Option<usize> {
        let mt = match mt {
            Migratetype::HighAtomic => Migratetype::Movable,
            Migratetype::Isolate => return None,
            mt => mt,
        };
        let index = self.index[order.index()][mt.index()];
        (index != NONE).then_some(index as usize)
    }

    /// Lists in use.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What a list holds.
    pub fn of(&self, list: usize) -> (Order, Migratetype) {
        self.of[list]
    }

    /// Slots of one list where the largest holds `pages` pages: a tenth more than the limit, so
    /// that a stack that wanders up is moved down rarely, and room for the smallest refill.
    pub fn capacity(&self, list: usize, pages: usize) -> usize {
        let (order, _) = self.of[list];
        let blocks = pages >> order.get();
        blocks + (blocks / 8).max(2)
    }

    /// Slots of all lists of one store.
    pub fn slots(&self, pages: usize) -> usize {
        (0..self.len).map(|list| self.capacity(list, pages)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_lists_are_in_linux_order() {
        let map = ListMap::new(0b10_0000_1111, true);
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
    fn a_pool_has_a_list_for_every_order_to_nine() {
        let map = ListMap::new(0b11_1111_1111, false);
        assert_eq!(map.len(), 10);
        for order in Order::all().take(10) {
            assert_eq!(map.get(order, Migratetype::Unmovable), Some(order.index()));
        }
        assert_eq!(map.get(Order::MAX, Migratetype::Unmovable), None);
    }
}
