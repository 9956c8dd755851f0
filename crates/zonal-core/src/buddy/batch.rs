//! Blocks that are taken one after the other, and what one step of that found.

use core::num::NonZeroU32;

use super::fallback::{Fallback, FallbackPolicy, Fell};
use super::request::{Mode, TakeRequest};
use crate::frame::Frames;
use crate::types::{Migratetype, Order};

/// Pieces taken from one block: so many blocks of the requested order, ascending from `first`. Two
/// registers, also where there is none.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub first: u32,
    pub pieces: NonZeroU32,
}

/// Blocks that are taken one after the other. In memory, so that the frames above the buddy's own
/// are small. The policy is no part of it: of one that is compiled in only its rule is in the code.
pub(crate) struct Batch {
    pub(super) request: TakeRequest,
    pub(super) mode: Mode,
    /// The type and the least order of the blocks that are to be looked for; `None`: those that
    /// were are used up.
    pub(super) aim: Option<(Migratetype, Order)>,
    /// Blocks that it asked for last, and those that it still wants.
    pub(super) asked: u32,
    pub(super) left: u32,
    /// [`Fallback::Boost`]s of the last step.
    pub(super) boosts: u32,
    /// The block that the last step fell back to.
    pub(super) fell: Option<Fell>,
}

impl Batch {
    #[inline]
    pub fn new(request: TakeRequest, policy: &FallbackPolicy) -> Batch {
        Batch {
            request: policy.effective(request),
            mode: Mode::Normal,
            aim: None,
            asked: 0,
            left: 0,
            boosts: 0,
            fell: None,
        }
    }

    /// Asks for so many more, in a hold of the lock of its own: others may have freed blocks of its
    /// type since the last one.
    #[inline]
    pub fn ask(&mut self, blocks: u32) {
        (self.asked, self.left) = (blocks, blocks);
        self.aim = Some((self.request.mt, self.request.order));
    }

    /// Looks for what it fell back to from now on.
    #[inline]
    pub(super) fn aim_at(&mut self, fell: Fell) {
        let own = (self.request.mt, self.request.order);
        self.aim = Some(if fell.becomes_own() { own } else { fell.block() });
        self.fell = Some(fell);
    }

    /// The block that it fell back to in this step.
    #[inline]
    pub(super) fn fell(&self) -> Option<Fell> {
        self.fell
    }

    /// Tells how the last step fell back.
    #[cold]
    #[inline(never)]
    pub(super) fn report(
        &self,
        frames: &Frames<'_>,
        run: Option<Run>,
        report: &mut impl FnMut(Fallback),
    ) {
        (0..self.boosts).for_each(|_| report(Fallback::Boost));
        if let (Some(fell), Some(run)) = (self.fell, run) {
            report(fell.taken(frames, run.first, self.request));
        }
    }
}
