//! One byte budget over everything that a pool holds: pages handed out, pages of registered caches
//! and pages on per-CPU lists and in depots.
//!
//! Memory above the budget is taken out of the buddy and returned to the operating system, so no
//! request can exceed the budget, and none tests it: for watermarks, reclaim and refusals that
//! memory does not exist. Marks stay those of the whole pool.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use zonal_core::alloc::Request;
use zonal_core::gfp::Gfp;
use zonal_core::types::{NodeId, Order, PAGE_SIZE, Pfn};

use super::poison::Poison;
use super::{Builder, FreedBy, Misuse, Pool, Shared};
use crate::reclaim::is_inside;
use crate::turn::Turn;

/// Withheld blocks.
#[derive(Debug, Default)]
pub(super) struct Budget {
    /// Who changes it: takes blocks and gives them back, which may call consumers.
    changes: Turn,
    /// Never locked while pages are taken.
    withheld: Mutex<Withheld>,
}

/// The blocks, by node.
#[derive(Debug, Default)]
pub(super) struct Withheld {
    nodes: Vec<Blocks>,
}

/// Those of one node.
#[derive(Clone, Debug, Default)]
struct Blocks {
    blocks: Vec<(Pfn, Order)>,
    pages: u64,
}

/// A budget that is not in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct BudgetError {
    /// Bytes asked for.
    pub asked: usize,
    /// Bytes in force.
    pub in_force: usize,
    /// Why.
    pub why: BudgetFault,
}

/// Why a budget is not in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BudgetFault {
    /// More is in use, and stays so. The budget in force is as near as was possible; memory freed
    /// now is withheld only when the budget is set again.
    InUse,
    /// Nothing was changed: the call came from inside a consumer while the budget was being
    /// changed, perhaps by the thread that called the consumer.
    BeingChanged,
}

impl fmt::Display for BudgetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BudgetError { asked, in_force, why } = self;
        match why {
            BudgetFault::InUse => write!(
                f,
                "a budget of {asked} bytes cannot be reached: more is in use, and the consumers \
                 that are registered do not give it up. {in_force} bytes are in force; free \
                 pages, or register a consumer, and set it again"
            ),
            BudgetFault::BeingChanged => write!(
                f,
                "a budget of {asked} bytes was not set: the budget is being changed, and a \
                 consumer's call cannot wait for that. {in_force} bytes are in force now; set it \
                 outside the call"
            ),
        }
    }
}

impl std::error::Error for BudgetError {}

impl Withheld {
    fn pages_of(&self, node: usize) -> u64 {
        self.nodes.get(node).map_or(0, |blocks| blocks.pages)
    }

    fn all(&self) -> u64 {
        self.nodes.iter().map(|blocks| blocks.pages).sum()
    }

    fn push(&mut self, node: usize, pfn: Pfn, order: Order) {
        if self.nodes.len() <= node {
            self.nodes.resize(node + 1, Blocks::default());
        }
        self.nodes[node].blocks.push((pfn, order));
        self.nodes[node].pages += order.pages();
    }

    fn pop(&mut self, node: usize) -> Option<(Pfn, Order)> {
        let blocks = self.nodes.get_mut(node)?;
        let (pfn, order) = blocks.blocks.pop()?;
        blocks.pages -= order.pages();
        Some((pfn, order))
    }
}

impl Builder {
    /// Bytes that may be in use at once: handed out, held by registered caches, on per-CPU lists,
    /// or in depots. Default: all of the pool. Not together with [`deferred`](Builder::deferred).
    ///
    /// ```
    /// let pool = zonal::Pool::builder().size(64 << 20).budget(16 << 20).build()?;
    /// let mut pages = Vec::new();
    /// while let Ok(page) = pool.alloc(zonal::Order::ZERO) {
    ///     pages.push(page);
    /// }
    /// assert!(pages.len() <= 4096);
    /// println!("{}", pool.held());
    /// # drop(pages);
    /// pool.set_budget(32 << 20)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn budget(mut self, bytes: usize) -> Builder {
        self.budget = Some(bytes);
        self
    }
}

impl Pool {
    /// Bytes that may be in use at once.
    pub fn budget(&self) -> usize {
        self.shared.budget_bytes()
    }

    /// Changes the budget, in whole pages. To lower it, lists are drained and consumers are asked
    /// for the excess. Takes as long as these do, and waits for another change under way.
    ///
    /// # Errors
    /// [`BudgetError`]: more is in use, and all that was available is withheld, so that requests
    /// find nothing until pages are freed or it is set again; or another thread changes the
    /// budget, and the caller is inside a consumer.
    pub fn set_budget(&self, bytes: usize) -> Result<(), BudgetError> {
        self.shared.set_budget(bytes)
    }
}

impl Budget {
    /// Also keeps the list of blocks as it is, across a fork.
    pub(super) fn lock(&self) -> MutexGuard<'_, Withheld> {
        self.withheld.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In a forked child: ends a change by another thread of the parent. A block that it had in its
    /// hands stays handed out.
    pub(super) fn forked(&self) {
        self.changes.forked();
    }
}

impl Shared {
    pub(super) fn withheld_pages(&self) -> u64 {
        self.budget.lock().all()
    }

    /// First pages of the blocks that are handed out and are nobody's: those that the budget
    /// withholds, and those that stay out of use.
    pub(crate) fn nobodys_blocks(&self) -> HashSet<u64> {
        let withheld = self.budget.lock();
        let withheld = withheld.nodes.iter().flat_map(|node| &node.blocks).map(|(pfn, _)| pfn.0);
        let mut blocks: HashSet<u64> = withheld.collect();
        blocks.extend(self.poison.iter().flat_map(Poison::lost_blocks));
        blocks
    }

    /// Bytes that the budget leaves.
    pub(super) fn budget_bytes(&self) -> usize {
        self.pages * PAGE_SIZE - self.withheld_pages() as usize * PAGE_SIZE
    }

    pub(super) fn set_budget(&self, bytes: usize) -> Result<(), BudgetError> {
        let failed = |why| BudgetError { asked: bytes, in_force: self.budget_bytes(), why };
        let turn = match is_inside() {
            true => self.budget.changes.try_take(),
            false => Some(self.budget.changes.take()),
        };
        let Some(_turn) = turn else { return Err(failed(BudgetFault::BeingChanged)) };
        let all = self.pages as u64;
        let wanted = all - ((bytes / PAGE_SIZE) as u64).min(all);
        let nodes = self.allocator.nodes().len();
        let mut left = wanted;
        for node in 0..nodes {
            let zones = self.allocator.zones().iter();
            let zones = zones.filter(|zone| usize::from(zone.node().0) == node);
            let pages: u64 = zones.map(|zone| zone.spanned()).sum();
            // Rounded up, so that the shares are enough together.
            let share = u128::from(wanted) * u128::from(pages);
            let share = (share.div_ceil(u128::from(all)) as u64).min(left);
            left -= share;
            self.give_back(node, share);
            self.withhold(node, share);
        }
        // One node's users may hold more than its share of the budget; others have room.
        for node in 0..nodes {
            let withheld = self.budget.lock();
            let missing = wanted.saturating_sub(withheld.all());
            let to = withheld.pages_of(node) + missing;
            drop(withheld);
            self.withhold(node, to);
        }
        if self.withheld_pages() < wanted { Err(failed(BudgetFault::InUse)) } else { Ok(()) }
    }

    /// Frees withheld blocks until at most `pages` are left; [`withhold`](Self::withhold) returns
    /// the excess of the last block.
    fn give_back(&self, node: usize, pages: u64) {
        loop {
            let mut withheld = self.budget.lock();
            let block = match withheld.pages_of(node) > pages {
                true => withheld.pop(node),
                false => None,
            };
            drop(withheld);
            let Some((pfn, order)) = block else { return };
            if let Err(error) = self.allocator.free(pfn, order) {
                let start = self.address(pfn);
                let error = self.refused(start.as_ptr(), error);
                self.misuses.tell(&Misuse { start, order, error, by: FreedBy::Budget });
            }
        }
    }

    /// Withholds blocks of a node until there are `pages`, or no more are available.
    fn withhold(&self, node: usize, pages: u64) {
        let mut missing = pages.saturating_sub(self.budget.lock().pages_of(node));
        let everywhere = Gfp::THISNODE | Gfp::NOWARN | Gfp::HIGHMEM | Gfp::MOVABLE;
        let mut most = Order::MAX;
        while missing > 0 {
            let order = Order::new(missing.ilog2()).unwrap_or(Order::MAX).min(most);
            let request = Request::new(order).on(NodeId(node as u16));
            // Ignores watermarks: memory above the budget is no reserve.
            let past_marks = request.gfp(everywhere | Gfp::MEMALLOC);
            let got = self.allocator.alloc(past_marks).ok().or_else(|| {
                let may_wait = request.gfp(Gfp::KERNEL | Gfp::RETRY_MAYFAIL | everywhere);
                (order == Order::ZERO).then(|| self.allocator.alloc(may_wait).ok()).flatten()
            });
            let Some(pfn) = got else {
                match order.get().checked_sub(1).and_then(Order::new) {
                    Some(lower) => most = lower,
                    None => return,
                }
                continue;
            };
            missing -= order.pages();
            self.budget.lock().push(node, pfn, order);
            // A block that cannot be returned stays resident, and withheld all the same.
            let _ = self.release(pfn, order);
        }
    }
}
