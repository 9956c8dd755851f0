//! Blocks whose pages are freed one after the other, and reach a list as the block that they were.

use std::collections::HashMap;

use zonal_trace::ORDER_MAX;

use super::fact::{Fact, FactKind};

/// What is known of the blocks of higher orders that are in use.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    /// Order of each, by its first frame.
    blocks: HashMap<u64, u8>,
    /// By CPU: the block whose pages are being freed in a row.
    rows: HashMap<u16, Row>,
}

/// Pages of one block, freed from the first on.
#[derive(Clone, Debug)]
struct Row {
    first: u64,
    order: u8,
    /// Where each was freed.
    at: Vec<usize>,
}

impl Rows {
    /// Looks at the fact at this position. The free of a block's last page, when all others were
    /// freed right before it by the same CPU, becomes that of the block; returns where those were.
    pub(super) fn see(&mut self, at: usize, fact: &mut Fact) -> Vec<usize> {
        let row = self.rows.remove(&fact.cpu);
        match fact.kind {
            FactKind::Alloc if (1..=ORDER_MAX).contains(&fact.order) => {
                self.blocks.insert(fact.pfn, fact.order);
            }
            // It is another block's page now, or was never in that one.
            FactKind::Alloc => {
                self.blocks.remove(&fact.pfn);
            }
            FactKind::Free if fact.order > 0 => {
                self.blocks.remove(&fact.pfn);
            }
            FactKind::Free => return self.page(at, row, fact),
            _ => {}
        }
        Vec::new()
    }

    fn page(&mut self, at: usize, row: Option<Row>, fact: &mut Fact) -> Vec<usize> {
        let goes_on = row.filter(|row| row.first + row.at.len() as u64 == fact.pfn);
        let starts = || {
            let order = self.blocks.remove(&fact.pfn)?;
            Some(Row { first: fact.pfn, order, at: Vec::new() })
        };
        let Some(mut row) = goes_on.or_else(starts) else { return Vec::new() };
        if row.at.len() + 1 < 1 << row.order {
            row.at.push(at);
            self.rows.insert(fact.cpu, row);
            return Vec::new();
        }
        (fact.pfn, fact.order) = (row.first, row.order);
        row.at
    }
}

#[cfg(test)]
mod tests {
    use FactKind::{Alloc, Free, Refill};

    use super::*;

    /// What becomes of frees, with where their other parts were.
    fn freed(facts: &[(FactKind, u16, u64, u8)]) -> Vec<(u64, u8, Vec<usize>)> {
        let mut rows = Rows::default();
        let fact = |&(kind, cpu, pfn, order)| Fact {
            time_ns: 0,
            pfn,
            cpu,
            kind,
            order,
            migratetype: 0,
            was: 0,
            is: 0,
            broke: order,
        };
        let mut frees = Vec::new();
        for (at, mut fact) in facts.iter().map(fact).enumerate() {
            let parts = rows.see(at, &mut fact);
            if fact.kind == Free {
                frees.push((fact.pfn, fact.order, parts));
            }
        }
        frees
    }

    #[test]
    fn the_pages_of_a_block_in_a_row_are_the_block() {
        let row = [(Alloc, 0, 8, 1), (Free, 1, 8, 0), (Alloc, 0, 99, 0), (Free, 1, 9, 0)];
        assert_eq!(freed(&row), [(8, 0, vec![]), (8, 1, vec![1])]);
    }

    #[test]
    fn others_stay_pages() {
        // Another event of the CPU comes between.
        let between = [(Alloc, 0, 8, 1), (Free, 0, 8, 0), (Refill, 0, 50, 0), (Free, 0, 9, 0)];
        assert_eq!(freed(&between), [(8, 0, vec![]), (9, 0, vec![])]);
        // Not from the first on, by two CPUs, or by nobody seen to allocate a block.
        let turned = [(Alloc, 0, 8, 1), (Free, 0, 9, 0), (Free, 0, 8, 0)];
        assert_eq!(freed(&turned), [(9, 0, vec![]), (8, 0, vec![])]);
        let two = [(Alloc, 0, 8, 1), (Free, 0, 8, 0), (Free, 1, 9, 0)];
        assert_eq!(freed(&two), [(8, 0, vec![]), (9, 0, vec![])]);
        assert_eq!(freed(&two[1..]), [(8, 0, vec![]), (9, 0, vec![])]);
        // The block is gone: freed whole, or its first page is allocated by itself.
        let whole = [(Alloc, 0, 8, 1), (Free, 0, 8, 1), (Free, 0, 8, 0), (Free, 0, 9, 0)];
        assert_eq!(freed(&whole), [(8, 1, vec![]), (8, 0, vec![]), (9, 0, vec![])]);
        let single = [(Alloc, 0, 8, 1), (Alloc, 0, 8, 0), (Free, 0, 8, 0), (Free, 0, 9, 0)];
        assert_eq!(freed(&single), [(8, 0, vec![]), (9, 0, vec![])]);
    }
}
