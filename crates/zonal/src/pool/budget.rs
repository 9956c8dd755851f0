//! One byte budget over everything that a pool holds: pages handed out, pages of registered caches
//! and pages on per-CPU lists and in depots.
//!
//! What is above the budget is taken out of the buddy and given back to the operating system, so
//! the budget cannot be passed by anybody, and no request looks at it: to the marks, to reclaim and
//! to a refusal it is memory that is not there. Marks stay those of the whole pool.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use zonal_core::alloc::Request;
use zonal_core::gfp::Gfp;
use zonal_core::types::{NodeId, Order, PAGE_SIZE, Pfn};

use super::{Builder, Pool, Shared};

/// Blocks that nobody may have.
#[derive(Debug, Default)]
pub(super) struct Budget {
    withheld: Mutex<Withheld>,
}

/// The blocks, by node.
#[derive(Debug, Default)]
pub(super) struct Withheld {
    nodes: Vec<Vec<(Pfn, Order)>>,
}

/// A budget that could not be reached: more is in use, and stays so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BudgetError {
    /// Bytes asked for.
    pub asked: usize,
    /// Bytes in force: as near as was possible, and what is freed now does not count again until
    /// the budget is set anew.
    pub in_force: usize,
}

impl fmt::Display for BudgetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BudgetError { asked, in_force } = self;
        write!(
            f,
            "a budget of {asked} bytes cannot be reached: more is in use, and the consumers that \
             are registered do not give it up. {in_force} bytes are in force; free pages, or \
             register a consumer, and set it again"
        )
    }
}

impl std::error::Error for BudgetError {}

impl Withheld {
    fn pages(blocks: &[(Pfn, Order)]) -> u64 {
        blocks.iter().map(|(_, order)| order.pages()).sum()
    }

    fn all(&self) -> u64 {
        self.nodes.iter().map(|blocks| Withheld::pages(blocks)).sum()
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
        self.bytes() - self.shared.withheld_pages() as usize * PAGE_SIZE
    }

    /// Changes the budget, in whole pages. To lower it, lists are emptied and consumers asked for
    /// what is above it. Takes as long as these do.
    ///
    /// # Errors
    /// [`BudgetError`]: more is in use. As much as could be had is withheld.
    pub fn set_budget(&self, bytes: usize) -> Result<(), BudgetError> {
        self.shared.set_budget(bytes)
    }
}

impl Budget {
    /// Also keeps the budget as it is, across a fork.
    pub(super) fn lock(&self) -> MutexGuard<'_, Withheld> {
        self.withheld.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    pub(super) fn withheld_pages(&self) -> u64 {
        self.budget.lock().all()
    }

    pub(super) fn set_budget(&self, bytes: usize) -> Result<(), BudgetError> {
        let all = self.pages as u64;
        let wanted = all - ((bytes / PAGE_SIZE) as u64).min(all);
        let mut withheld = self.budget.lock();
        let nodes = self.allocator.nodes().len();
        withheld.nodes.resize_with(nodes, Vec::new);
        let mut left = wanted;
        for (node, blocks) in withheld.nodes.iter_mut().enumerate() {
            let node = NodeId(node as u16);
            let zones = self.allocator.zones().iter().filter(|zone| zone.node() == node);
            let pages: u64 = zones.map(|zone| zone.spanned()).sum();
            // Rounded up, so that the shares are enough together.
            let share = (wanted * pages).div_ceil(all).min(left);
            left -= share;
            self.give_back(blocks, share);
            self.withhold(node, blocks, share);
        }
        // One node's users may hold more than its share of the budget; others have room.
        for node in 0..nodes {
            let missing = wanted.saturating_sub(withheld.all());
            let blocks = &mut withheld.nodes[node];
            let to = Withheld::pages(blocks) + missing;
            self.withhold(NodeId(node as u16), blocks, to);
        }
        if withheld.all() < wanted {
            let in_force = (all - withheld.all()) as usize * PAGE_SIZE;
            return Err(BudgetError { asked: bytes, in_force });
        }
        Ok(())
    }

    /// Frees withheld blocks until at most `pages` are left; [`withhold`](Self::withhold) makes up
    /// for what the last one was too large.
    fn give_back(&self, blocks: &mut Vec<(Pfn, Order)>, pages: u64) {
        let mut held = Withheld::pages(blocks);
        while held > pages {
            let Some((pfn, order)) = blocks.pop() else { return };
            held -= order.pages();
            let freed = self.allocator.free(pfn, order);
            debug_assert!(freed.is_ok(), "{freed:?}");
        }
    }

    /// Takes blocks of a node out of use until `pages` are, or no more can be had.
    fn withhold(&self, node: NodeId, blocks: &mut Vec<(Pfn, Order)>, pages: u64) {
        let mut missing = pages.saturating_sub(Withheld::pages(blocks));
        let everywhere = Gfp::THISNODE | Gfp::NOWARN | Gfp::HIGHMEM | Gfp::MOVABLE;
        let mut most = Order::MAX;
        while missing > 0 {
            let order = Order::new(missing.ilog2()).unwrap_or(Order::MAX).min(most);
            // Past the marks: what is above the budget is nobody's reserve.
            let request = Request::new(order).gfp(everywhere | Gfp::MEMALLOC).on(node);
            let got = self.allocator.alloc(request).ok().or_else(|| {
                let may_wait = Gfp::KERNEL | Gfp::RETRY_MAYFAIL | everywhere;
                let request = Request::new(order).gfp(may_wait).on(node);
                (order == Order::ZERO).then(|| self.allocator.alloc(request).ok()).flatten()
            });
            let Some(pfn) = got else {
                match order.get().checked_sub(1).and_then(Order::new) {
                    Some(lower) => most = lower,
                    None => return,
                }
                continue;
            };
            missing -= order.pages();
            blocks.push((pfn, order));
            // What cannot be given back stays resident, and is nobody's all the same.
            let _ = self.release(pfn, order);
        }
    }
}
