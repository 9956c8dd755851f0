//! One byte budget over everything that a pool holds: pages handed out, pages of registered caches
//! and pages on per-CPU lists and in depots.
//!
//! What is above the budget is taken out of the buddy and given back to the operating system, so
//! the budget cannot be passed by anybody, and no request looks at it: to the watermarks, to
//! reclaim and to a refusal it is memory that is not there. Marks stay those of the whole pool.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use zonal_core::alloc::Request;
use zonal_core::gfp::Gfp;
use zonal_core::types::{NodeId, Order, PAGE_SIZE, Pfn};

use super::{Builder, FreedBy, Misuse, Pool, Shared};
use crate::reclaim::is_inside;
use crate::turn::Turn;

/// Blocks that nobody may have.
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
    /// More is in use, and stays so. The budget in force is as near as was possible, and what is
    /// freed now does not count again until the budget is set anew.
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

    /// Changes the budget, in whole pages. To lower it, lists are emptied and consumers asked for
    /// what is above it. Takes as long as these do, and waits for another change under way.
    ///
    /// # Errors
    /// [`BudgetError`]: more is in use, and as much as could be had is withheld; or the budget is
    /// being changed, and the caller is inside a consumer.
    pub fn set_budget(&self, bytes: usize) -> Result<(), BudgetError> {
        self.shared.set_budget(bytes)
    }
}

impl Budget {
    /// Also keeps the list of blocks as it is, across a fork.
    pub(super) fn lock(&self) -> MutexGuard<'_, Withheld> {
        self.withheld.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In a forked child: a change by another thread of the parent is nobody's. A block that it had
    /// in its hands stays handed out.
    pub(super) fn forked(&self) {
        self.changes.forked();
    }
}

impl Shared {
    pub(super) fn withheld_pages(&self) -> u64 {
        self.budget.lock().all()
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

    /// Frees withheld blocks until at most `pages` are left; [`withhold`](Self::withhold) makes up
    /// for what the last one was too large.
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

    /// Takes blocks of a node out of use until `pages` are, or no more can be had.
    fn withhold(&self, node: usize, pages: u64) {
        let mut missing = pages.saturating_sub(self.budget.lock().pages_of(node));
        let everywhere = Gfp::THISNODE | Gfp::NOWARN | Gfp::HIGHMEM | Gfp::MOVABLE;
        let mut most = Order::MAX;
        while missing > 0 {
            let order = Order::new(missing.ilog2()).unwrap_or(Order::MAX).min(most);
            let request = Request::new(order).on(NodeId(node as u16));
            // Past the watermarks: what is above the budget is nobody's reserve.
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
            // What cannot be given back stays resident, and is nobody's all the same.
            let _ = self.release(pfn, order);
        }
    }
}
