//! How per-CPU page lists tune themselves: when a list is empty, how much to fetch; when there is
//! too much, how much to give back.
//!
//! ```text
//!  count   pages on the lists now
//!  high    what they may hold: high_min <= high <= high_max, moves with use
//!          up    by each refill, and when frees overflow it
//!          down  by an eighth each second, under pressure, and by streams of large frees
//!  alloc_factor   each order-0 refill in a row fetches twice as much; each free halves it
//!  free_count     pages freed in a row; each allocation halves it; decides how much goes back
//! ```
//! How much of this happens is a value, [`Tuning`], which lists the steps: the picture is that of
//! 6.7 on. Below level 7 `high` is `high_min` and does not move; below level 9 `free_factor` has
//! the place of `free_count`: how often the drain size has doubled.
//!
//! # Order of calls
//! - allocation: [`on_take`]; list empty: [`nr_alloc`], fetch, [`on_refill`]; pop: [`on_pop`]
//! - free: [`commit_free`] (which is [`on_push`] and [`overflow`]); `Some`: free that many pages
//!   from the tails, starting at the list just pushed to (LB E.8), then [`on_freed`]
//! - each refresh of the statistics: [`decay`], free, [`on_freed`]
//!
//! # Invariants
//! - **TUNE-1** `alloc_factor <= scale_max`, that of the last refill
//! - **TUNE-2** from level 9 on `free_count < (batch << scale_max) + 512`, and below
//!   `FREE_COUNT_CAP_MAX + 512`: what is added last may exceed the limit;
//!   at levels 4 to 8 `free_factor <= scale_max`; `scale_max` as of what was added last
//! - **TUNE-3** draining changes `count` and nothing else (LB M.6)
//!
//! It does not know lists, locks or zones: pages freed and blocks fetched are reported to it. The
//! caller keeps its per-CPU state as it likes and hands in a [`PcpState`]. All its numbers are base
//! pages, so they are plain; only a refill is in blocks ([`nr_alloc`], [`on_refill`]). What leaves
//! for the lists is a [`PageCount`].

use crate::pcp::tuning::Tuning;
use crate::pcp::word::FREE_COUNT_CAP_MAX;
use crate::types::{Order, PageCount};

/// Default of the build option that limits how often a chunk doubles (LB E.6).
pub const SCALE_MAX_DEFAULT: u8 = 5;
/// Its largest value.
pub const SCALE_MAX_LIMIT: u8 = 6;

/// Parameters of the tuning of one zone's lists. `high_min` may exceed `high_max` (LB E.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PcpParams {
    /// Chunk, in pages (LB E.3); at least 1.
    pub batch: u32,
    /// Lower bound of `high`, in pages (LB E.4).
    pub high_min: u32,
    /// Upper bound of `high`, in pages; equal to `high_min` to switch tuning off. Not read below
    /// level 7.
    pub high_max: u32,
    /// How often a chunk may double; at most [`SCALE_MAX_LIMIT`]. Not read below level 4.
    pub scale_max: u8,
    /// The CPU's cache holds several chunks: a stream of large frees may leave one behind (LB E.5).
    /// Not read below level 3.
    pub free_high_batch: bool,
    /// Pages that make a stream of large frees: freed in a row, and on the lists beyond the CPU's
    /// swing; 0: by the steps of the tuning and the cache. Not read below level 9.
    pub stream: u32,
    /// Which steps of the tuning are in force.
    pub tuning: Tuning,
}

/// The tuned state of one CPU's lists of one zone (LB E.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PcpState {
    /// Base pages on all lists.
    pub count: u32,
    /// Limit of the lists, in pages.
    pub high: u32,
    /// Left shift of the next order-0 refill.
    pub alloc_factor: u8,
    /// Pages freed in a row, decaying; below level 9 the `free_factor`, the left shift of the next
    /// full list's drain. Halved by each allocation either way.
    pub free_count: u32,
    /// The last free was of order 1 to 3.
    pub prev_free_high_order: bool,
    /// The CPU's swing: pages fetched and not given back yet, as far as the CPU's share of the
    /// last-level cache holds them, or four batches. Frees of no more than that are no stream of
    /// large frees: the CPU may take those pages again. 0 where the swing is not tracked.
    pub swing: u32,
}

/// Flags of the zone that restrain its lists (LB B.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pressure {
    /// An allocation found the zone at or below its high watermark.
    pub below_high: bool,
    /// The background reclaimer is at work on the zone.
    pub reclaim_active: bool,
}

/// Pages to give back to the zone. Whole blocks are freed, so the last may exceed `pages`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BulkFree {
    /// Least number of base pages, at most `count`. 0 where `high` is one batch.
    pub pages: PageCount,
    /// A stream of large frees forced it, not a full list.
    pub forced: bool,
}

/// Outcome of [`decay`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decay {
    /// Pages to free, starting with list 0; in chunks of at most `batch` (LB E.9).
    pub pages: PageCount,
    /// There was something to do, so the worker should come back.
    pub still_decaying: bool,
}

/// The kernel's `clamp` since 6.1 (LB conventions): `hi` is tested first, so with `lo > hi` values
/// from `hi` up give `hi`, and those below give `lo`.
#[inline]
pub const fn clamp_hi_first(value: u32, lo: u32, hi: u32) -> u32 {
    if value >= hi {
        hi
    } else if value <= lo {
        lo
    } else {
        value
    }
}

impl PcpParams {
    /// The lists before a zone's size is known (LB E.1): each free goes through to the zone and
    /// each refill fetches one block.
    pub const BOOT: PcpParams = PcpParams {
        batch: 1,
        high_min: 0,
        high_max: 0,
        scale_max: SCALE_MAX_DEFAULT,
        free_high_batch: false,
        stream: 0,
        tuning: Tuning::Release615,
    };

    /// The most that goes back in one step, in pages: `batch << scale_max`.
    #[inline]
    pub const fn bulk_max(&self) -> u32 {
        self.batch << self.scale_max
    }

    /// Whether `high` moves at all (LB E.4).
    #[inline]
    pub const fn tunes(&self) -> bool {
        self.tuning.moves_high() && self.high_min != self.high_max
    }

    /// The `high` that counts: between the bounds if it moves, else the lower one.
    #[inline]
    const fn clamp_high(&self, high: u32) -> u32 {
        if self.tuning.moves_high() {
            clamp_hi_first(high, self.high_min, self.high_max)
        } else {
            self.high_min
        }
    }

    /// Drain size in pages that the last frees ask for: their number in a row, or the batch doubled
    /// by each drain in a row.
    #[inline]
    const fn asked(&self, state: &PcpState) -> u32 {
        if self.tuning.has(Tuning::Level9) {
            return state.free_count;
        }
        let pages = (self.batch as u64) << min(state.free_count, 31);
        if pages > u32::MAX as u64 { u32::MAX } else { pages as u32 }
    }

    /// `high` after giving up `pages` of it, not below its lower bound.
    #[inline]
    const fn lowered(&self, high: u32, pages: u32) -> u32 {
        max(high.saturating_sub(pages), self.high_min)
    }

    /// Whether pcps track their CPU's swing ([`PcpState::swing`]). No kernel does.
    #[inline]
    pub const fn tracks_swing(&self) -> bool {
        self.stream > 0 && self.tuning.has(Tuning::Level9)
    }

    /// From how many pages on the lists on a stream of large frees leaves them (LB E.5).
    #[inline]
    const fn stream_least(&self, state: &PcpState) -> u32 {
        if self.tracks_swing() {
            stream_least(self.stream, state.swing)
        } else if self.tuning.has(Tuning::Level3) && self.free_high_batch {
            self.batch
        } else {
            0
        }
    }

    /// From which `free_count`, or `free_factor`, on large frees are a stream (LB E.7, E.10).
    #[inline]
    pub const fn free_high_threshold(&self) -> u32 {
        if self.tracks_swing() {
            return stream_shortest(self.stream);
        }
        match self.tuning {
            #[cfg(feature = "history")]
            Tuning::Fixed | Tuning::Doubling => u32::MAX,
            Tuning::Release615 => self.batch.saturating_add(self.high_min / 2),
            Tuning::Level9 => self.batch,
            _ => 1,
        }
    }

    /// `free_count` grows with each free that finds it below this (LB E.7); a `free_factor` never
    /// does. The hot word bounds it: only a policy with a larger `pcp.batch_cap` than any kernel's
    /// gets there.
    #[inline]
    pub const fn free_count_cap(&self) -> u32 {
        if self.tuning.has(Tuning::Level9) { min(self.bulk_max(), FREE_COUNT_CAP_MAX) } else { 0 }
    }
}

/// The largest block whose frees make a stream, in pages. The free that is judged is in the pages
/// on the lists already, and not yet in `free_count`.
const LARGEST: u32 = 1 << Order::COSTLY.get();

/// From which `free_count` on frees may be a stream of `stream` pages.
const fn stream_shortest(stream: u32) -> u32 {
    stream.saturating_sub(LARGEST)
}

/// From how many pages on the lists on a stream of `stream` pages leaves them.
const fn stream_least(stream: u32, swing: u32) -> u32 {
    stream.saturating_add(swing)
}

/// Where the swing is tracked: when fast operations ask whether their frees are a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StreamAsk {
    /// From this `free_count` on, a free of order 1 to 3 behind another.
    pub free_count: u32,
    /// From so many pages on the lists on, any free.
    pub pages: u32,
}

/// When frees may be a stream of `stream` pages, at the earliest: the lists hold `state.count`
/// pages now, and each page freed from here on is one more there and in `free_count`. Where
/// `free_count` stops before, at `cap`, the pages on the lists tell. A stream that pops interrupt
/// is found at most as many pages later as they took off `free_count`.
#[inline]
pub(crate) const fn stream_ask(stream: u32, state: &PcpState, cap: u32) -> StreamAsk {
    // With bits to spare: no sum has to stop at the last number.
    let least = stream as u64 + state.swing as u64;
    let missing = least.saturating_sub(state.count as u64 + LARGEST as u64);
    // The last free may have brought it above the cap. Behind a pop it comes to the cap again, and
    // no further.
    let now = min(state.free_count, cap);
    let from = now as u64 + missing;
    if missing == 0 || from <= cap as u64 {
        let free_count = max(from as u32, stream_shortest(stream));
        return StreamAsk { free_count, pages: u32::MAX };
    }
    let pages = if least > u32::MAX as u64 { u32::MAX } else { least as u32 };
    StreamAsk { free_count: u32::MAX, pages }
}

/// Before a block is taken from a list, whether or not the list has one (LB E.6). The bulk
/// allocator leaves this out (LB D.9).
#[inline]
pub const fn on_take(state: &mut PcpState) {
    state.free_count >>= 1;
}

/// Blocks were fetched from the zone (LB E.6).
#[inline]
pub const fn on_refill(state: &mut PcpState, blocks: u32, order: Order) {
    state.count += blocks << order.get();
}

/// The swing after `pages` pages came to the lists from elsewhere than the caller; never more than
/// `most`.
#[inline]
pub const fn fetched(swing: u32, pages: u32, most: u32) -> u32 {
    min(swing.saturating_add(pages), most)
}

/// A block left a list for the caller (LB E.6).
#[inline]
pub const fn on_pop(state: &mut PcpState, order: Order) {
    state.count -= 1 << order.get();
}

/// Pages left the lists for the zone, for any reason (TUNE-3).
#[inline]
pub const fn on_freed(state: &mut PcpState, pages: u32) {
    state.count -= pages;
}

/// How many *blocks* of `order` a refill fetches, at most (LB E.6). From level 5 on refills in a
/// row double, up to the room there is; from level 7 on `high` grows with them unless the zone is
/// short.
pub const fn nr_alloc(
    state: &mut PcpState,
    params: &PcpParams,
    pressure: Pressure,
    order: Order,
) -> u32 {
    let batch = params.batch;
    if !params.tuning.has(Tuning::Level5) {
        return blocks(batch, order);
    }
    state.high = params.clamp_high(state.high);
    if state.high < batch {
        return 1;
    }
    // Greater if the last refill was under pressure and chunks were larger then.
    if state.alloc_factor > params.scale_max {
        state.alloc_factor = params.scale_max;
    }
    let mut pages = if order.get() == 0 { batch << state.alloc_factor } else { batch };
    let short = match params.tuning.watches_high_watermark() {
        true => pressure.below_high,
        false => pressure.reclaim_active,
    };
    if params.tunes() && !short {
        grow(state, params, pages);
    }
    if order.get() == 0 {
        let room = max(state.high.saturating_sub(state.count).saturating_sub(batch), batch);
        if pages <= room && state.alloc_factor < params.scale_max {
            state.alloc_factor += 1;
        }
        pages = min(pages, room);
    }
    blocks(pages, order)
}

/// A refill of `pages` pages came from a depot: `high` grows as with one from the zone
/// ([`nr_alloc`]), so that pages a CPU needs repeatedly stay with it.
pub const fn on_batch(state: &mut PcpState, params: &PcpParams, pressure: Pressure, pages: u32) {
    if params.tunes() && !pressure.below_high {
        state.high = params.clamp_high(state.high);
        grow(state, params, pages);
    }
}

/// `high` grows for a refill of `pages` pages.
const fn grow(state: &mut PcpState, params: &PcpParams, pages: u32) {
    state.high = min(state.high.saturating_add(pages), params.high_max);
}

/// Blocks of `order` for `pages` pages. One block alone would make the next allocation refill
/// again.
const fn blocks(pages: u32, order: Order) -> u32 {
    if pages > 1 { max(pages >> order.get(), 2) } else { pages }
}

/// A block was freed to the lists (LB E.7): everything that happens to the state, in its order.
/// `Some` says how much must go back to the zone now; afterwards, if the zone is marked below its
/// high watermark and order 0 passes that watermark for [`ZoneKind::Movable`], the caller clears
/// the flag.
///
/// [`ZoneKind::Movable`]: crate::types::ZoneKind::Movable
#[inline]
pub const fn commit_free(
    state: &mut PcpState,
    params: &PcpParams,
    pressure: Pressure,
    order: Order,
) -> Option<BulkFree> {
    let stream = on_push(state, params, order);
    overflow(state, params, pressure, stream)
}

/// The first half of [`commit_free`]: counts the block, and tells whether it belongs to a stream of
/// large frees. The stream is judged by the flag and `free_count` as they were *before* this free
/// and by `count` after it (LB M.4).
#[inline]
pub const fn on_push(state: &mut PcpState, params: &PcpParams, order: Order) -> bool {
    let pages = 1 << order.get();
    let tuning = params.tuning;
    state.alloc_factor >>= 1;
    state.count += pages;
    let high_order = order.get() > 0 && order.get() <= Order::COSTLY.get();
    let large = high_order
        && (state.prev_free_high_order || !tuning.has(Tuning::Level1))
        && state.free_count >= params.free_high_threshold();
    let stream = large && state.count >= params.stream_least(state);
    state.prev_free_high_order = high_order;
    if state.free_count < params.free_count_cap() {
        state.free_count += pages;
    }
    stream
}

/// The second half of [`commit_free`]: whether the lists hold too much. `stream` is what
/// [`on_push`] said.
#[inline]
pub const fn overflow(
    state: &mut PcpState,
    params: &PcpParams,
    pressure: Pressure,
    stream: bool,
) -> Option<BulkFree> {
    let high = nr_high(state, params, pressure, stream);
    if state.count < high {
        return None;
    }
    let pages = min(nr_free(state, params, high, stream), state.count);
    Some(BulkFree { pages: PageCount::new(pages), forced: stream })
}

/// What the lists may hold at this moment (LB E.7, `nr_high`); also moves `high` for later.
const fn nr_high(
    state: &mut PcpState,
    params: &PcpParams,
    pressure: Pressure,
    stream: bool,
) -> u32 {
    let tuning = params.tuning;
    let high = params.clamp_high(state.high);
    state.high = high;
    if high == 0 || !tuning.doubles() {
        return high;
    }
    if stream {
        state.high = params.lowered(high, params.bulk_max());
        return 0;
    }
    let given_up = max(params.asked(state), params.batch);
    if pressure.reclaim_active {
        state.high = params.lowered(high, given_up);
        return min(params.batch * 4, state.high);
    }
    if !params.tunes() {
        return high;
    }
    if tuning.watches_high_watermark() && pressure.below_high {
        state.high = params.lowered(high, given_up);
        return max(state.count, params.high_min);
    }
    if state.count >= high {
        let need = params.asked(state).saturating_add(params.batch);
        if high < need {
            state.high = params.clamp_high(need);
        }
    }
    // The value before it was raised: one bulk free happens all the same (LB M.5).
    high
}

/// How many pages go back once `count` has reached `high` (LB E.7, E.10, `nr_free`).
const fn nr_free(state: &mut PcpState, params: &PcpParams, high: u32, stream: bool) -> u32 {
    let tuning = params.tuning;
    let batch = params.batch;
    if !tuning.doubles() {
        return batch;
    }
    if stream {
        return if tuning.moves_high() { params.bulk_max() } else { state.count };
    }
    if high < batch {
        return 1;
    }
    let most = high - batch;
    let pages = params.asked(state);
    if !tuning.has(Tuning::Level9) {
        let fits = if tuning.moves_high() { pages <= most } else { pages < most };
        let limited = tuning.has(Tuning::Level4);
        if fits && !(limited && state.free_count >= params.scale_max as u32) {
            state.free_count += 1;
        }
    }
    clamp_hi_first(pages, batch, most)
}

/// One refresh of the statistics has passed (LB E.9): `high` sinks by an eighth, faster if the
/// lists are far below it being used, and what exceeds it is freed. Never below `high_min`. Before
/// level 7 nothing decays.
pub const fn decay(state: &mut PcpState, params: &PcpParams) -> Decay {
    if !params.tuning.moves_high() {
        return Decay { pages: PageCount::ZERO, still_decaying: false };
    }
    let mut still_decaying = false;
    state.swing -= state.swing.div_ceil(2);
    if state.high > params.high_min {
        let used = state.count.saturating_sub(params.bulk_max());
        let sunk = state.high - (state.high >> 3);
        state.high = max(max(used, sunk), params.high_min);
        still_decaying = state.high > params.high_min;
    }
    let pages = PageCount::new(state.count.saturating_sub(state.high));
    Decay { pages, still_decaying: still_decaying || !pages.is_zero() }
}

/// `high` where a zone's lists want more than its budget: each gives up half of its unused part,
/// and those that need it grow again.
pub const fn halved(state: &PcpState, params: &PcpParams) -> u32 {
    max(max(state.high / 2, state.count), params.high_min)
}

/// Pages to free when the lists of a remote zone have been idle for three refreshes (LB F.4).
pub const fn expired_pages(state: &PcpState, params: &PcpParams) -> PageCount {
    PageCount::new(min(state.count, params.batch))
}

// `Ord::min` cannot be called in a `const fn`.
const fn min(a: u32, b: u32) -> u32 {
    if a < b { a } else { b }
}
const fn max(a: u32, b: u32) -> u32 {
    if a > b { a } else { b }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
