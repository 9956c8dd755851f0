//! Ranges: pages in a row, of any number, handed out as one and given back in any parts.
//!
//! ```text
//!  page      16   17   18   19   20   21   22   23   24
//!  word     R2f    0    0    0   R0   --   --   --   --     five pages from page 16
//!           |<------ order 2 -------->|<o0>|
//! ```
//! A range is tiled by blocks that are aligned to their size, each with a word of its own
//! (RANGE in [`crate::frame`]); the first one's says that the range begins there. A word per block
//! rather than per page: a range of `n` pages is written with at most `2 log2 n` words below 4 MiB
//! and one for each 4 MiB above, so it costs what its blocks cost; and each of its pages can still
//! be checked, since the block around a page is found by at most eleven loads. A free that begins
//! or ends inside a block cuts it, which writes the words of the parts that stay.
//!
//! | file | does |
//! |--|--|
//! | `free` | any part of a range, or whole blocks in a row, back (`free_contig_range`) |
//! | `cut` | a block made a range or smaller blocks (`split_page`); a range made two |
//! | `offline` | pages out of their zone, for memory that leaves (`offline_pages`) |
//! | `owned` | who has the pages of a range, and the words changed for all of them |
//! | `error` | requests and refusals |
//! | `../search/range` | the search: anywhere, at a place (`alloc_contig_range`), behind a range |
//!
//! # Invariants
//! - **RANGE-1** the blocks of a range lie side by side in one zone; the word of the first says
//!   "first", those of the others do not. So where a block of a range does not say "first", the
//!   page in front of it belongs to the same range.
//! - **RANGE-2** a RANGE word changes under the zone lock, or by the compare-and-exchange of a
//!   caller who gives the whole range back, by all of its words, which are undone where the range
//!   goes on, or by the one that tells its length (RANGE-6). Before a call changes a part of a
//!   range it exchanges the first word for one that tells nothing. So two callers who give parts
//!   of one range back at the same time are served one after the other.
//! - **RANGE-3** a call hands over no page before it has found every page of its range as it must
//!   be. If it is refused, the first word of the range may tell nothing any more, and each page has
//!   the owner that it had.
//! - **RANGE-4** blocks are added behind a range, by a growth or a join, with its last block in
//!   nobody's hands; who gives a range back without the zone lock asks whether it goes on once it
//!   has claimed its last block. Until a block has left its range, its word says that it continues
//!   it, also while the block is in nobody's hands (`PageWord::moving`), and of blocks that are
//!   written anew the first is written last. So whoever gives the front of a range back sees that
//!   it goes on, and no block is left that continues a range which is not there.
//! - **RANGE-5** which frames begin a block in somebody's hands changes under the zone lock, or
//!   under the gate of the pcp that has the block or gets it; also while that block is in nobody's.
//!   So who holds everything, gates and zone locks, for a fork or to count what is handed out,
//!   finds each page in one block; who holds a zone lock alone does not.
//! - **RANGE-6** the first word of a range that is the front of a block, of fewer than 512 pages,
//!   may tell how many. Then the range is exactly these pages, and all of it comes back by one
//!   exchange of that word (PARK-3). Who is to do anything else with the range, or with a part of
//!   it, exchanges the word first for one that tells nothing, and goes by the words of the blocks
//!   from there. One of the two gets it. A range that tells nothing becomes one that tells in
//!   nobody's hands only.
//!
//! # What it does not do
//! It moves no pages: a range at a place can be taken if its pages are free, on a per-CPU list or
//! in a depot. It keeps no room for ranges; a program that needs one later takes it early.

mod cut;
mod error;
mod free;
mod offline;
mod owned;

pub use error::{Obstacle, RangeError, RangeRefusal, RangeRequest};
pub(super) use owned::{Owned, Then};

use core::fmt;
use core::num::NonZeroU64;
use core::ops::Range;

use super::Allocator;
use super::fast;
use super::request::FreeError;
use super::search::Search;
use super::tables::Tables;
use super::zone_ops::ZoneOps;
use crate::gfp::Gfp;
use crate::platform::Platform;
use crate::sync::Ordering::Relaxed;
use crate::types::{Order, PAGEBLOCK_ORDER, Pfn, ZoneId};

/// The ranges of an allocator: [`Allocator::ranges`].
pub struct Ranges<'s, 'a, P> {
    on: &'s Tables<'a, P>,
}

impl<P> Clone for Ranges<'_, '_, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P> Copy for Ranges<'_, '_, P> {}

impl<P> fmt::Debug for Ranges<'_, '_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.on, f)
    }
}

impl<'a, P: Platform> Allocator<'a, P> {
    /// Pages in a row: any number, at any place, given back in any parts.
    pub fn ranges(&self) -> Ranges<'_, 'a, P> {
        Ranges { on: &self.tables }
    }
}

impl<P: Platform> Ranges<'_, '_, P> {
    /// Exactly `request.pages` pages in a row. Up to 4 MiB they are the front of a block of the
    /// next order, whose other pages are free at once, most often on per-CPU lists. Where there is
    /// no such block, and above 4 MiB, they are taken from free blocks side by side, of the first
    /// zone that has them and may spare them. That search looks once at each free block and once
    /// for each `request.pages` pages of a zone, at most a thousand times in one hold of the zone
    /// lock.
    ///
    /// # Errors
    /// [`RangeError`]: as for one page, and [`Refusal::Fragmented`](super::Refusal::Fragmented)
    /// where no zone has the pages in a row.
    #[inline]
    pub fn alloc(self, request: RangeRequest) -> Result<Pfn, RangeError> {
        let is_plain = request.align.is_power_of_two() && !request.packed;
        let listed = match block_of(request.pages) {
            _ if !is_plain => None,
            Some(order) if request.align <= request.pages => {
                fast::alloc_range(self.on, &request.of_block(order))
            }
            _ => {
                let RangeRequest { pages, align, gfp, node, .. } = request;
                let parked = match NonZeroU64::new(pages) {
                    Some(pages) if align <= pages.get() => {
                        fast::alloc_parked(self.on, pages, gfp, node)
                    }
                    _ => None,
                };
                parked.or_else(|| self.alloc_front(request))
            }
        };
        match listed {
            Some(pfn) => Ok(pfn),
            None => self.alloc_by_core(request),
        }
    }

    /// The front of a block, by the fast path.
    #[inline(never)]
    fn alloc_front(self, request: RangeRequest) -> Option<Pfn> {
        let order = request.block_order().filter(|order| *order <= PAGEBLOCK_ORDER)?;
        if request.pages <= order.pages() / 2 || request.pages == order.pages() {
            return None;
        }
        fast::alloc_front(self.on, &request.of_block(order), request.pages as u32)
    }

    #[inline(never)]
    fn alloc_by_core(self, request: RangeRequest) -> Result<Pfn, RangeError> {
        let refuse = |why| RangeError { pages: request.pages, start: None, why };
        if request.pages == 0 {
            return Err(refuse(RangeRefusal::Empty));
        }
        if !request.align.is_power_of_two() {
            return Err(refuse(RangeRefusal::Align(request.align)));
        }
        let order = request.block_order().unwrap_or(Order::MAX);
        if request.block_order().is_some()
            && !request.packed
            && let Some(pfn) = fast::alloc_listed(self.on, &request.of_block(order))
            && self.from_block(pfn, order, request.pages).is_ok()
        {
            return Ok(pfn);
        }
        let search = Search::new(self.on, &request.of_block(order));
        let mut search = search.map_err(|error| refuse(error.into()))?;
        // Nothing is drained, reclaimed or waited for where no zone can ever have the pages.
        let longest = search.longest_possible(request.align);
        if request.pages > longest {
            return Err(refuse(RangeRefusal::TooLong { longest, align: request.align }));
        }
        // The head of a block, where a zone has one to spare: nothing is reclaimed or waited for,
        // since a run that is no block may be free.
        if request.block_order().is_some()
            && !request.packed
            && let Some(pfn) = search.scan(search.first_flags())
            // A former owner's second free may have taken the block again: the search follows.
            && self.from_block(pfn, order, request.pages).is_ok()
        {
            return Ok(pfn);
        }
        let why = match search.range(request.pages, request.align) {
            Ok(pfn) => return Ok(pfn),
            Err(why) => why,
        };
        // A request that must not fail waits for a block, as others of its size do. What refuses
        // it counts it.
        if request.gfp.contains(Gfp::NOFAIL) && request.block_order().is_some() {
            if let Ok(pfn) = search.block()
                && self.from_block(pfn, order, request.pages).is_ok()
            {
                return Ok(pfn);
            }
        } else {
            self.on.events.failures.fetch_add(1, Relaxed);
        }
        Err(refuse(why))
    }

    /// Exactly these pages. What of them waits on a per-CPU list or in a depot is drained first.
    ///
    /// # Errors
    /// [`RangeError`] names the first page that cannot be had.
    pub fn alloc_at(self, pages: Range<Pfn>, gfp: Gfp) -> Result<(), RangeError> {
        self.take_at(pages, gfp, Then::Range)
    }

    fn take_at(self, pages: Range<Pfn>, gfp: Gfp, then: Then<'_, '_, P>) -> Result<(), RangeError> {
        let count = pages.end.0.saturating_sub(pages.start.0);
        let refuse = |why| RangeError { pages: count, start: Some(pages.start), why };
        if count == 0 {
            return Err(refuse(RangeRefusal::Empty));
        }
        let (zone, frames) = self.inside(pages.clone()).map_err(refuse)?;
        let request = RangeRequest::new(count).gfp(gfp).on(zone.zone.node);
        let search = Search::new(self.on, &request.of_block(Order::ZERO));
        let search = search.map_err(|error| refuse(error.into()))?;
        search.range_at(zone, frames, then).map_err(refuse)
    }

    /// Takes the `more` pages right behind a range; all of them are one range then.
    ///
    /// # Errors
    /// [`RangeError`] names the first page that cannot be had, or says why `range` is none.
    pub fn grow(self, range: Range<Pfn>, more: u64, gfp: Gfp) -> Result<(), RangeError> {
        let refuse = |why| RangeError { pages: more, start: Some(range.end), why };
        if more == 0 {
            return Err(refuse(RangeRefusal::Empty));
        }
        let owned = Owned::find(self.on, range.clone());
        let owned = owned.map_err(|error| refuse(RangeRefusal::NotARange(error)))?;
        let end = Pfn(range.end.0.saturating_add(more));
        let (zone, frames) = self.inside(range.start..end).map_err(refuse)?;
        let request = RangeRequest::new(more).gfp(gfp).on(zone.zone.node);
        let search = Search::new(self.on, &request.of_block(Order::ZERO));
        let search = search.map_err(|error| refuse(error.into()))?;
        let behind = owned.frames().end..frames.end;
        search.range_at(zone, behind, Then::Behind(owned)).map_err(refuse)
    }

    /// The longest run of pages in a zone that a request could have now, those on per-CPU lists
    /// and in depots not counted. One look at each block of the zone. 0 without such a zone.
    pub fn longest(self, zone: ZoneId) -> u64 {
        let zone = self.on.zones.get(usize::from(zone.0));
        zone.map_or(0, |zone| ZoneOps::new(self.on, zone).longest_run())
    }

    /// The zone that has all of these pages, and their frames in it.
    fn inside(&self, pages: Range<Pfn>) -> Result<(ZoneOps<'_, '_, P>, Range<u32>), RangeRefusal> {
        owned::frames_of(self.on, &pages).map_err(|error| match error {
            FreeError::Foreign(pfn) | FreeError::Boundary { pfn, .. } => RangeRefusal::Outside(pfn),
            error => RangeRefusal::NotARange(error),
        })
    }
}

/// The order of the smallest block that has so many pages, at most some 2^62.
#[inline(always)]
fn order_over(pages: u64) -> Option<Order> {
    // The next power of two, without a look at how many bits there are.
    Order::new(((2 * pages).saturating_sub(1) | 1).ilog2())
}

/// The order of a block of exactly so many pages.
#[inline(always)]
fn block_of(pages: u64) -> Option<Order> {
    if pages & pages.wrapping_sub(1) != 0 {
        return None;
    }
    Order::new(pages.trailing_zeros())
}
