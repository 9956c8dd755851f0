//! What is done with one pcp that is closed for us: filled, drained, pushed to, and its
//! blocks handed out.
//!
//! | file | does | LB |
//! |--|--|--|
//! | `refill` | an empty list filled from the depot or the buddy; blocks handed out | E.6 |
//! | `drain` | pushes, and what is too much back to the zone | E.7, E.8, E.9 |
//! | `depot` | whole magazines between the pcp and its depot | |
//! | `blocks` | whole blocks in the bulk calls | |
//! | `bulk` | many order-0 pages to and from a list | D.9 |
//! | `of_policy` | a closed pcp opened, by the policy that is compiled in | |
//! | `run` | page words of neighbouring frames | |

mod blocks;
mod bulk;
mod depot;
mod drain;
mod of_policy;
mod refill;
pub(super) mod run;

pub(super) use of_policy::OfPolicy;

use super::zone_ops::ZoneOps;
use crate::buddy::largest_blocks;
use crate::frame::{PageWord, claim};
use crate::pcp::closing::Shut;
use crate::pcp::state::Pcp;
use crate::platform::Platform;
use crate::policy::Policy;
use crate::sync::Masked;
use crate::types::{Migratetype, PageCount};

/// A closed pcp and its zone. Opens the pcp when dropped.
#[derive(Debug)]
pub(super) struct PcpOps<'s, 'a, P: Platform> {
    pub ops: ZoneOps<'s, 'a, P>,
    pub closed: OfPolicy<'a, P>,
    /// Dropped behind the closed pcp: nothing interrupts while it is closed.
    _masked: Masked<'s, P>,
}

impl<'s, 'a, P: Platform> PcpOps<'s, 'a, P> {
    /// Closes a pcp of the zone, unless another thread has it closed or the platform cannot fence.
    #[inline]
    pub fn try_close(ops: ZoneOps<'s, 'a, P>, pcp: &'a Pcp) -> Option<Self> {
        Self::close_if(ops, pcp, true)
    }

    /// The same, waiting while another thread has it closed. `None` only if the platform cannot
    /// fence.
    #[inline]
    pub fn close(ops: ZoneOps<'s, 'a, P>, pcp: &'a Pcp) -> Option<Self> {
        Self::close_if(ops, pcp, false)
    }

    /// The one or (not `at_once`) the other. One function for all: a closing is much code.
    #[inline(never)]
    pub fn close_if(ops: ZoneOps<'s, 'a, P>, pcp: &'a Pcp, at_once: bool) -> Option<Self> {
        let _masked = Masked::new(&ops.on.platform);
        let platform = &ops.on.platform;
        let shut = if at_once { pcp.shut(platform) } else { pcp.shut_patiently(platform) };
        let shut = shut?;
        if P::KEEPS_RANGES && pcp.parked.pages() != 0 {
            return Some(Self::unparked(ops, shut, _masked));
        }
        // Made where it stays: a copy takes as much as the closing.
        let closed = OfPolicy::new(shut.closed(ops.zone, ops.on.slots));
        Some(PcpOps { ops, closed, _masked })
    }

    /// [`Closed::cover`], which needs no code where a policy without a budget is compiled in.
    #[inline]
    fn cover(&mut self, pages: PageCount) -> PageCount {
        match Policy::fixed_for::<P>().is_some_and(|policy| policy.pcp.budget_fraction == 0) {
            true => PageCount::MAX,
            false => self.closed.cover(pages),
        }
    }

    /// Lets the pcp open as ready for the next operation on the active list.
    #[inline]
    pub fn stay_ready(&mut self) {
        let on = self.ops.on;
        if on.enters(self.closed.pcp) && !on.policy().numa.records() {
            self.closed.ready_in(on.epoch.now());
        }
    }

    /// Whatever is parked goes first (PARK-1).
    #[cold]
    #[inline(never)]
    fn unparked(ops: ZoneOps<'s, 'a, P>, shut: Shut<'a>, _masked: Masked<'s, P>) -> Self {
        let closed = OfPolicy::new(shut.closed(ops.zone, ops.on.slots));
        let mut closed = PcpOps { ops, closed, _masked };
        closed.unpark();
        closed
    }

    /// Frees the blocks of a parked range.
    fn unpark(&mut self) {
        let (ops, pcp) = (self.ops, self.closed.pcp);
        let Some((frame, pages)) = pcp.parked.take() else { return };
        let words = ops.frames();
        let start = frame - ops.zone.frame_base as u32;
        let blocks = || largest_blocks(&words, start..start + pages);
        // None continues a range any more, before the first one has its next owner. That is
        // written last (PARK-3).
        claim::write_range(blocks().filter_map(|(head, order)| {
            let word = PageWord::moving(order, Migratetype::Unmovable, None);
            Some((words.word(head)?, word.bits()))
        }));
        for (head, order) in blocks() {
            let (pfn, frame) = (words.pfn(head), ops.zone.frame(words.pfn(head)));
            let list = ops.on.map.get(order, words.pageblock_type(head));
            if !list.is_some_and(|list| self.push_claimed(list, frame, order)) {
                ops.free_direct(pcp, pfn, order);
            }
        }
        // Who holds everything reads what is on the lists now.
        self.closed.publish();
    }
}
