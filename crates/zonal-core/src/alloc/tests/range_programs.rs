//! Random programs of ranges and blocks against a table of owners, one entry per page.

use std::vec::Vec;

use proptest::prelude::*;

use super::platform::{LISTS_ALONE, Script, Shape, on_cpu};
use crate::alloc::range::{Obstacle, RangeRefusal, RangeRequest};
use crate::alloc::{Allocator, Request};
use crate::gfp::Gfp;
use crate::policy::Policy;
use crate::types::{Order, Pfn};

const ANY: Gfp = Gfp::KERNEL.union(Gfp::MEMALLOC);
const PAGES: u64 = 3000;

/// What a step does, and two numbers that it makes what it needs of.
type Step = (u8, u64, u64);

struct Twin<'p, 'a> {
    pool: &'p Allocator<'a, Script>,
    /// The owner of each page; 0: none.
    owners: Vec<u32>,
    /// Each owner's pages: first, how many, and the order if it is a block.
    owned: Vec<(u32, u64, u64, Option<Order>)>,
    next: u32,
}

impl Twin<'_, '_> {
    fn own(&mut self, first: u64, pages: u64, block: Option<Order>) {
        self.next += 1;
        for owner in &mut self.owners[first as usize..(first + pages) as usize] {
            assert_eq!(core::mem::replace(owner, self.next), 0, "page has an owner");
        }
        self.owned.push((self.next, first, pages, block));
    }
    fn disown(&mut self, first: u64, pages: u64) {
        self.owners[first as usize..(first + pages) as usize].fill(0);
    }
    fn pick(&self, of: u64, block: bool) -> Option<usize> {
        let fits =
            |(_, owned): &(usize, &(u32, u64, u64, Option<Order>))| owned.3.is_some() == block;
        let all: Vec<usize> =
            self.owned.iter().enumerate().filter(fits).map(|(at, _)| at).collect();
        all.get((of as usize).checked_rem(all.len())?).copied()
    }

    fn step(&mut self, (what, a, b): Step) {
        on_cpu((a % 2) as u32);
        let r = self.pool.ranges();
        match what {
            0 => {
                let (pages, align) = (b % 70 + 1, 1 << (a % 5));
                let request = RangeRequest::new(pages).aligned(align).gfp(ANY);
                if let Ok(first) = r.alloc(request) {
                    assert_eq!(first.0 % align, 0);
                    self.own(first.0, pages, None);
                } else {
                    let runs = (0..PAGES).filter(|p| p % align == 0 && p + pages <= PAGES);
                    let free = |p: u64| {
                        self.owners[p as usize..(p + pages) as usize].iter().all(|o| *o == 0)
                    };
                    assert_eq!(runs.clone().find(|p| free(*p)), None, "{request:?} was refused");
                }
            }
            1 => {
                let (first, pages) = (a % PAGES, (b % 90 + 1).min(PAGES - a % PAGES));
                let taken = (first..first + pages).find(|p| self.owners[*p as usize] != 0);
                match (r.alloc_at(Pfn(first)..Pfn(first + pages), ANY), taken) {
                    (Ok(()), None) => self.own(first, pages, None),
                    (Err(error), Some(taken)) => {
                        let RangeRefusal::InTheWay(pfn, Obstacle::Held(..)) = error.why else {
                            panic!("{error}")
                        };
                        assert_eq!(pfn.0, taken);
                    }
                    (got, taken) => panic!("{got:?}, {taken:?}"),
                }
            }
            2 => {
                let order = Order::new((a % 5) as u32).unwrap();
                if let Ok(first) = self.pool.alloc(Request::new(order).gfp(ANY)) {
                    self.own(first.0, order.pages(), Some(order));
                }
            }
            3 => {
                let Some(at) = self.pick(a, true) else { return };
                let (_, first, pages, order) = self.owned.swap_remove(at);
                self.pool.free(Pfn(first), order.unwrap()).unwrap();
                self.disown(first, pages);
            }
            4..=6 => self.change(what, a, b),
            7 => self.again(a, b),
            _ => {
                // Pages of more than one owner, or of nobody: refused.
                let (first, pages) = (a % PAGES, (b % 40 + 2).min(PAGES - a % PAGES));
                let owner = |p: u64| self.owners[p as usize];
                if (first..first + pages).any(|p| owner(p) == 0) {
                    r.free(Pfn(first)..Pfn(first + pages)).unwrap_err();
                }
            }
        }
    }

    /// A whole range freed and taken again, then some of its size.
    fn again(&mut self, a: u64, b: u64) {
        let Some(at) = self.pick(a, false) else { return };
        let r = self.pool.ranges();
        let (_, first, pages, _) = self.owned.swap_remove(at);
        for _ in 0..=b % 2 {
            r.free(Pfn(first)..Pfn(first + pages)).unwrap();
            r.free(Pfn(first)..Pfn(first + pages)).unwrap_err();
            r.alloc_at(Pfn(first)..Pfn(first + pages), ANY).unwrap();
        }
        r.free(Pfn(first)..Pfn(first + pages)).unwrap();
        self.disown(first, pages);
        for _ in 0..b % 4 {
            if let Ok(first) = r.alloc(RangeRequest::new(pages).gfp(ANY)) {
                self.own(first.0, pages, None);
            }
        }
    }

    /// Part of a range freed, a range grown, a range made two.
    fn change(&mut self, what: u8, a: u64, b: u64) {
        let r = self.pool.ranges();
        match what {
            4 => {
                let Some(at) = self.pick(a, false) else { return };
                let (_, first, pages, _) = self.owned.swap_remove(at);
                let from = b % pages;
                let to = from + (b / pages) % (pages - from) + 1;
                r.free(Pfn(first + from)..Pfn(first + to)).unwrap();
                self.disown(first, pages);
                for (first, pages) in [(first, from), (first + to, pages - to)] {
                    if pages > 0 {
                        self.own(first, pages, None);
                    }
                }
            }
            5 => {
                let Some(at) = self.pick(a, false) else { return };
                let (_, first, pages, _) = self.owned[at];
                let (end, more) = (first + pages, (b % 20 + 1).min(PAGES - first - pages));
                if more == 0 {
                    return;
                }
                let free = (end..end + more).all(|p| self.owners[p as usize] == 0);
                let grown = r.grow(Pfn(first)..Pfn(end), more, ANY);
                assert_eq!(grown.is_ok(), free, "{grown:?}");
                if free {
                    self.owned.swap_remove(at);
                    self.disown(first, pages);
                    self.own(first, pages + more, None);
                }
            }
            _ => {
                let Some(at) = self.pick(a, false) else { return };
                let (_, first, pages, _) = self.owned[at];
                let middle = b % pages;
                let split = r.split(Pfn(first)..Pfn(first + pages), Pfn(first + middle));
                assert_eq!(split.is_ok(), middle > 0);
                if middle > 0 {
                    self.owned.swap_remove(at);
                    self.disown(first, pages);
                    self.own(first, middle, None);
                    self.own(first + middle, pages - middle, None);
                }
            }
        }
    }

    fn check(&self) {
        self.pool.validate().unwrap();
        let free = self.owners.iter().filter(|owner| **owner == 0).count() as u64;
        assert_eq!(self.pool.free_pages(), free);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 40,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn random_programs_of_ranges_match_a_table_of_owners(
        steps in prop::collection::vec((0..9u8, any::<u64>(), any::<u64>()), 1..80),
        policy in prop::sample::select(&[Policy::ZONAL, Policy::LINUX_6_18, LISTS_ALONE][..]),
        gates in any::<bool>(),
    ) {
        let script = Script { gates: Some(gates), ..Script::default() };
        Shape::uniform(1, PAGES, 2).scoped_on(policy, 0, script, |pool| {
            let owners = std::vec![0; PAGES as usize];
            let mut twin = Twin { pool, owners, owned: Vec::new(), next: 0 };
            for step in steps {
                twin.step(step);
                twin.check();
            }
            for (_, first, pages, block) in core::mem::take(&mut twin.owned) {
                match block {
                    Some(order) => pool.free(Pfn(first), order).unwrap(),
                    None => pool.ranges().free(Pfn(first)..Pfn(first + pages)).unwrap(),
                }
            }
            pool.drain_all();
            pool.validate().unwrap();
            assert_eq!(pool.free_pages(), PAGES);
        });
    }
}
