//! Blocks going out: smallest fit and split (LB B.5, B.6), one request or a batch (LB E.6).

use core::num::NonZeroU32;

use super::batch::{Batch, Run};
use super::fallback::{Fallback, FallbackPolicy, Fell};
use super::list::End;
use super::request::{Cut, Mode, TakeRequest};
use super::{Buddy, MAX, free};
use crate::frame::Frames;
use crate::types::{Migratetype, Order, PageCount};

/// Pages whose words are on one line.
const LINE: PageCount = PageCount::new(crate::frame::LINE_PAGES);

impl Buddy {
    /// The smallest free block of `mt` that holds `order`, split; no other type is touched
    /// (LB B.5, B.6). Isolate blocks are never taken.
    #[inline(never)]
    pub fn take_smallest(
        &mut self,
        frames: &Frames<'_>,
        order: Order,
        mt: Migratetype,
    ) -> Option<u32> {
        let order = order.get();
        let (first, from) = self.pop_smallest(frames, order, mt)?;
        self.carve(frames, Cut { first, from, order, pieces: 1 }, mt);
        self.account_sub(mt, 1 << order);
        Some(first)
    }

    /// One block: of the type asked for, else by fallback (LB B.7, `rmqueue_one`). Returns its
    /// first frame, whose word is NONE. Calls `report` for each fallback.
    #[inline]
    pub fn take(
        &mut self,
        frames: &Frames<'_>,
        request: TakeRequest,
        policy: &FallbackPolicy,
        report: &mut impl FnMut(Fallback),
    ) -> Option<u32> {
        let mut batch = Batch::new(request, policy);
        let mut first = None;
        batch.ask(1);
        self.take_part(frames, (&mut batch, *policy), report, |idx, _| first = Some(idx));
        first
    }

    /// Up to `n` blocks, told to `out` in the order Linux removes them; returns how many
    /// (LB E.6, `rmqueue_bulk`). Each block's word is NONE when `out` sees it.
    ///
    /// The sequence is that of `n` calls of [`take`](Self::take), except that within the batch the
    /// mode is remembered: after a steal the batch goes on stealing, without asking again whether
    /// a claim would work now (LB B.7).
    #[inline]
    pub fn take_bulk(
        &mut self,
        frames: &Frames<'_>,
        request: TakeRequest,
        n: u32,
        policy: &FallbackPolicy,
        report: &mut impl FnMut(Fallback),
        mut out: impl FnMut(u32),
    ) -> u32 {
        let mut batch = Batch::new(request, policy);
        batch.ask(n);
        self.take_part(frames, (&mut batch, *policy), report, |first, pieces| {
            (0..pieces).for_each(|i| out(first + (i << request.order.get())));
        })
    }

    /// What a batch asks for, in one hold of the lock of several. `out` gets the first of some
    /// blocks, and how many follow one another from there.
    #[inline]
    pub(crate) fn take_part(
        &mut self,
        frames: &Frames<'_>,
        (batch, policy): (&mut Batch, FallbackPolicy),
        report: &mut impl FnMut(Fallback),
        mut out: impl FnMut(u32, u32),
    ) -> u32 {
        while batch.left > 0 {
            let run = self.next_run(frames, batch, policy);
            if batch.boosts > 0 || batch.fell.is_some() {
                batch.report(frames, run, report);
            }
            let Some(run) = run else { break };
            out(run.first, run.pieces.get());
        }
        batch.asked - batch.left
    }

    /// The next blocks of a batch: of its own type, else by fallback. `None`: there are none. What
    /// is done for it is done in functions that lie beside one another on the stack.
    #[inline]
    fn next_run(
        &mut self,
        frames: &Frames<'_>,
        batch: &mut Batch,
        policy: FallbackPolicy,
    ) -> Option<Run> {
        (batch.fell, batch.boosts) = (None, 0);
        loop {
            // `None` behind a fallback: a list led nowhere and was dropped. Look again.
            if let Some(run) = self.take_run(frames, batch) {
                return Some(run);
            }
            if !self.fall_back(frames, batch, policy) {
                return None;
            }
            self.end_claim(frames, batch);
        }
    }

    /// Up to `blocks` whole blocks, of together at most `pages` base pages: each of the order asked
    /// for or larger, up to `most`. The smallest ones first, larger ones cut; no other type is
    /// touched. The last pages stay if a block with whole lines of words would be cut for them: the
    /// rest of their line would go to another CPU. Told to `out` with their orders; each block's
    /// word is NONE when `out` sees it.
    #[inline]
    pub fn take_blocks(
        &mut self,
        frames: &Frames<'_>,
        (request, most): (TakeRequest, Order),
        policy: &FallbackPolicy,
        (pages, blocks): (PageCount, usize),
        mut out: impl FnMut(u32, Order),
    ) {
        let TakeRequest { order: least, mt, .. } = policy.effective(request);
        let mut left = pages;
        for taken in 0..blocks {
            if left.blocks(least) == 0 {
                return;
            }
            if taken > 0 && left < LINE && self.small(least.get(), mt) == 0 {
                return;
            }
            let Some((first, from)) = self.pop_smallest(frames, least.get(), mt) else { return };
            let order = from.min(left.get().ilog2()).min(most.get());
            self.carve(frames, Cut { first, from, order, pieces: 1 }, mt);
            self.account_sub(mt, 1 << order);
            let order = super::list::order_of(order);
            out(first, order);
            left -= PageCount::of_blocks(1, order);
        }
    }

    /// A bit for each order from `least` on that has free blocks of `mt` of less than a line of
    /// words.
    fn small(&self, least: u32, mt: Migratetype) -> u16 {
        self.nonempty[mt.index()] & (LINE.get() as u16 - 1) >> least << least
    }

    /// Takes exactly the block of `order` at frame `idx` out of the free block that holds it, whose
    /// other parts go to the heads of their lists, as in any split (LB B.5). Returns the order of
    /// the block it was cut from; `None`, with nothing changed, if not all of it is free.
    pub fn take_exact(&mut self, frames: &Frames<'_>, idx: u32, order: Order) -> Option<Order> {
        let wanted = order.get();
        if idx >= frames.spanned() || frames.aligned(idx) & ((1 << wanted) - 1) != 0 {
            return None;
        }
        let (head, word) = free::containing_block(frames, idx)?;
        let from = word.order_bits();
        if !word.is_free() || from < wanted {
            return None;
        }
        let mt = frames.pageblock_type(head);
        self.unlink(frames, head, word, from, mt);
        let mut at = head;
        for half in (wanted..from).rev() {
            let upper = at + (1 << half);
            let rest = if idx < upper { upper } else { core::mem::replace(&mut at, upper) };
            self.push(frames, rest, half, mt, End::Head);
        }
        self.account_sub(mt, order.pages());
        Some(super::list::order_of(from))
    }

    /// Takes as many pieces as a batch still wants out of the smallest block that fits, in one
    /// step; one piece of a block of another type.
    ///
    /// Why this is the same as taking one piece at a time: let `k` be the smallest non-empty
    /// order at or above `order`, and `H` the head of its list; the lists of orders `order..k` are
    /// empty. The first single take returns piece 0 of `H` and leaves one block on each of those
    /// lists: piece 1 at `order`, pieces 2-3 at `order + 1`, and so on. As long as pieces of `H`
    /// remain they are the only blocks below `k`, so each next take finds the smallest of them,
    /// which always starts right after the last piece taken (`H`'s remainder is cut like a binary
    /// number: a carry splits the next larger block). So pieces leave in ascending order, and after
    /// `m` of them the `2^(k-order) - m` left form exactly the blocks of that number's binary
    /// digits, each alone on its list. [`carve`](Self::carve) writes those blocks down directly.
    /// (Property test: `tests/properties.rs`, `a_batch_is_the_same_as_single_takes`.)
    #[inline(never)]
    fn take_run(&mut self, frames: &Frames<'_>, batch: &mut Batch) -> Option<Run> {
        let (mt, least) = batch.aim?;
        let own = batch.fell.is_none_or(Fell::becomes_own);
        let Some((first, from)) = self.pop_smallest(frames, least.get(), mt) else {
            batch.aim = None;
            return None;
        };
        let order = batch.request.order.get();
        let pieces = if own { batch.left.min(1 << (from - order)) } else { 1 };
        self.carve(frames, Cut { first, from, order, pieces }, mt);
        self.account_sub(mt, (pieces as u64) << order);
        batch.left -= pieces;
        if batch.fell.is_some() {
            batch.mode = if own { Mode::Normal } else { Mode::Steal };
        }
        if !own {
            batch.aim = None;
        }
        Some(Run { first, pieces: NonZeroU32::new(pieces)? })
    }

    /// Takes the smallest free block of `mt` of this order or more off its list, and tells its
    /// order. Does not account pages. Isolate blocks are never taken.
    #[inline]
    fn pop_smallest(
        &mut self,
        frames: &Frames<'_>,
        order: u32,
        mt: Migratetype,
    ) -> Option<(u32, u32)> {
        if mt == Migratetype::Isolate {
            return None;
        }
        loop {
            let fitting = self.nonempty[mt.index()] >> order;
            if fitting == 0 {
                return None;
            }
            let from = order + fitting.trailing_zeros();
            debug_assert!(from <= MAX);
            // `None` here means a list that led nowhere and was dropped: look again.
            if let Some(first) = self.pop(frames, from, mt) {
                return Some((first, from));
            }
        }
    }

    /// Puts what a cut leaves of its block at the list heads (LB B.5 `expand`, for one piece).
    /// Each piece of the remainder has another order, so it does not matter in which order they
    /// join their lists. Does not account pages.
    #[inline(never)]
    pub(super) fn carve(&mut self, frames: &Frames<'_>, cut: Cut, mt: Migratetype) {
        let all = 1u32 << (cut.from - cut.order);
        debug_assert!(cut.pieces >= 1);
        debug_assert!(cut.pieces <= all);
        let rest = all - cut.pieces;
        let mut digits = rest;
        while digits != 0 {
            let digit = digits.trailing_zeros();
            // Digits from here up fill the block to its end.
            let start = all - (rest >> digit << digit);
            self.push(frames, cut.first + (start << cut.order), cut.order + digit, mt, End::Head);
            digits &= digits - 1;
        }
    }
}
