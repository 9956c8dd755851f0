//! Ranges of a pool: pages in a row, of any number, owned as one and given back in any parts. The
//! work is the core's ([`zonal_core::alloc::range`]); addresses, bytes and owners are here.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::NonNull;

use zonal_core::alloc::range::{self as core_range, Obstacle, RangeRefusal, RangeRequest};
use zonal_core::alloc::{self as core_alloc, Request};
use zonal_core::gfp::Gfp;
use zonal_core::types::{Order, PAGE_SIZE, Pfn, ZoneId};

use super::bytes::owns_bytes;
use super::{FreedBy, Misuse, Pages, Pool, Shared};
use crate::error::FreeError;

/// The ranges of a pool: [`Pool::ranges`].
///
/// ```
/// use zonal::{Pool, RangeRequest};
///
/// let pool = Pool::builder().size(64 << 20).build()?;
/// let mut buffer = pool.ranges().alloc(5)?; // 20 KiB, not 32
/// buffer[20_000] = 1;
/// buffer.try_grow(2)?; // the two pages behind it, if they are free
/// let (front, back) = buffer.split(3)?; // each is freed by itself
/// drop(front);
/// let huge = pool.ranges().alloc_with(RangeRequest::new(3000).aligned(512))?; // 12 MB, at 2 MiB
/// assert_eq!((back.len(), huge.as_ptr() as usize % (2 << 20)), (4 * 4096, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Ranges<'p> {
    pool: &'p Pool,
}

/// Pages in a row, as many as were asked for. Freed when dropped.
pub struct PageRange<'p> {
    pool: &'p Pool,
    start: NonNull<u8>,
    pages: usize,
}

/// Pages in a row in somebody's hands: what an owner asks for, borrowed or not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) start: NonNull<u8>,
    pub(super) pages: usize,
}

/// A refused range. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RangeError {
    base: usize,
    error: core_range::RangeError,
}

owns_bytes!(PageRange<'_>, range: range.pages * PAGE_SIZE);

impl Pool {
    /// Pages in a row: any number, at any address, given back in any parts.
    pub fn ranges(&self) -> Ranges<'_> {
        Ranges { pool: self }
    }
}

impl<'p> Ranges<'p> {
    /// Exactly `pages` pages for ordinary use, from the running CPU's node. No byte is wasted: what
    /// the block of the next order has besides is free at once.
    ///
    /// # Errors
    /// [`RangeError`] names the zone and the watermark, or says that no such run is free.
    pub fn alloc(self, pages: usize) -> Result<PageRange<'p>, RangeError> {
        self.alloc_with(RangeRequest::new(pages as u64))
    }

    /// As [`alloc`](Self::alloc), with alignment, rights and a node of the caller's choice, far
    /// above 4 MiB too. The alignment is that of the address up to 4 MiB, and above that of the
    /// place in the pool.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    pub fn alloc_with(self, request: RangeRequest) -> Result<PageRange<'p>, RangeError> {
        let start = self.alloc_raw(request)?;
        Ok(PageRange { pool: self.pool, start, pages: request.pages as usize })
    }

    /// The `pages` pages from `start` on, an address in the pool's memory. What of them waits on
    /// per-CPU lists is drained first.
    ///
    /// # Errors
    /// [`RangeError`] names the first page that cannot be had, and why.
    pub fn alloc_at(
        self,
        start: *const u8,
        pages: usize,
        gfp: Gfp,
    ) -> Result<PageRange<'p>, RangeError> {
        let shared = &*self.pool.shared;
        let range = shared.range_at(start as usize, pages);
        let refuse = |error| shared.range_error(error);
        is_page(start as usize, &range, pages).map_err(refuse)?;
        shared.inject_range(&RangeRequest::new(pages as u64).gfp(gfp)).map_err(refuse)?;
        let allocator = &shared.allocator;
        allocator.ranges().alloc_at(range.clone(), gfp).map_err(refuse)?;
        shared.prepare_at(range.clone(), gfp).map_err(refuse)?;
        Ok(PageRange { pool: self.pool, start: shared.address(range.start), pages })
    }

    /// A raw range, for [`free_raw`](Self::free_raw) or [`PageRange::from_raw`].
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    pub fn alloc_raw(self, request: RangeRequest) -> Result<NonNull<u8>, RangeError> {
        let shared = &*self.pool.shared;
        let refuse = |error| shared.range_error(error);
        shared.inject_range(&request).map_err(refuse)?;
        // The head of a block of the next order, by one sequence, if this CPU has one.
        let is_possible = request.pages > 0 && request.align.is_power_of_two() && !request.packed;
        if let (Some(order), None, true) = (request.block_order(), request.node, is_possible)
            && let Some(start) = shared.pop_plain(order, request.gfp.without(Gfp::ZERO))
        {
            let pfn = shared.pfn(start.as_ptr() as usize);
            if shared.allocator.ranges().from_block(pfn, order, request.pages).is_ok() {
                shared.zero(pfn, request.pages, request.gfp);
                return Ok(start);
            }
        }
        loop {
            let pfn = shared.allocator.ranges().alloc(request).map_err(refuse)?;
            if shared.prepare_range(pfn..Pfn(pfn.0 + request.pages), request.gfp).is_ok() {
                return Ok(shared.address(pfn));
            }
            // Written to while it was free; those pages stay out of use.
        }
    }

    /// Frees `pages` raw pages from `start` on: a range, any part of one, or whole blocks in a row.
    ///
    /// # Safety
    /// 1. Nobody uses the pages' memory any more.
    ///
    /// # Errors
    /// [`FreeError`], with nothing changed, names the first page that is not the caller's.
    pub unsafe fn free_raw(self, start: NonNull<u8>, pages: usize) -> Result<(), FreeError> {
        self.pool.shared.free_range(start, pages)
    }

    /// Pages of the longest run in a zone that a request could have now; those on per-CPU lists and
    /// in depots do not count. Looks at every block of the zone.
    pub fn longest(self, zone: ZoneId) -> u64 {
        let zones = self.pool.shared.allocator.zones();
        let exists = zones.get(usize::from(zone.0)).is_some();
        if exists { self.pool.shared.allocator.ranges().longest(zone) } else { 0 }
    }
}

impl<'p> PageRange<'p> {
    /// Pages of the range.
    pub fn pages(&self) -> usize {
        self.pages
    }
    /// The raw range and its pages, to be freed by [`Ranges::free_raw`].
    pub fn into_raw(self) -> (NonNull<u8>, usize) {
        let range = ManuallyDrop::new(self);
        (range.start, range.pages)
    }

    /// Takes a raw range over.
    ///
    /// # Safety
    /// 1. `start` is the first of `pages` pages of a range from `pool`, or of a part of one,
    ///    handed out and owned by nobody else.
    pub unsafe fn from_raw(pool: &'p Pool, start: NonNull<u8>, pages: usize) -> PageRange<'p> {
        PageRange { pool, start, pages }
    }

    /// Where it is.
    pub(super) fn extent(&self) -> Extent {
        Extent { start: self.start, pages: self.pages }
    }

    /// The pool that it is borrowed from.
    pub(super) fn pool(&self) -> &'p Pool {
        self.pool
    }

    /// Takes the `more` pages right behind the range, whose bytes are what their last owner left.
    ///
    /// # Errors
    /// [`RangeError`] names the first page that cannot be had. The range is as before.
    pub fn try_grow(&mut self, more: usize) -> Result<(), RangeError> {
        self.extent().grow(&self.pool.shared, more, Gfp::KERNEL)?;
        self.pages += more;
        Ok(())
    }

    /// Frees all but the first `pages` pages. With 0, or at least as many as there are, nothing
    /// happens: a range has at least one page, and [`drop`] frees all of them.
    ///
    /// # Errors
    /// [`FreeError`] only if the range is not this owner's, which takes unsafe code.
    pub fn shrink(&mut self, pages: usize) -> Result<(), FreeError> {
        self.pages -= self.extent().shrink(&self.pool.shared, pages)?;
        Ok(())
    }

    /// Two ranges, the first of `pages` pages.
    ///
    /// # Errors
    /// The reason, if one of them would be empty. The range is freed then.
    pub fn split(self, pages: usize) -> Result<(PageRange<'p>, PageRange<'p>), FreeError> {
        let halves = self.extent().split(&self.pool.shared, pages)?;
        let pool = self.pool;
        let _ = self.into_raw();
        Ok(halves.map(|half| PageRange::new(pool, half)).into())
    }

    /// Frees the pages in `part`, counted from the first, and returns what stays in front of them
    /// and behind them.
    ///
    /// # Errors
    /// The reason, if the part is empty or not inside the range. The range is freed then.
    pub fn free_part(
        self,
        part: Range<usize>,
    ) -> Result<(Option<PageRange<'p>>, Option<PageRange<'p>>), FreeError> {
        let rest = self.extent().free_part(&self.pool.shared, part)?;
        let pool = self.pool;
        let _ = self.into_raw();
        Ok(rest.map(|rest| rest.map(|rest| PageRange::new(pool, rest))).into())
    }

    pub(super) fn new(pool: &'p Pool, Extent { start, pages }: Extent) -> PageRange<'p> {
        PageRange { pool, start, pages }
    }
}

impl<'p> Pages<'p> {
    /// The block as blocks of order `into`, lowest address first, each to be freed by itself.
    ///
    /// # Errors
    /// [`FreeError`] if `into` is larger than the block. The block is freed then.
    pub fn split(self, into: Order) -> Result<Vec<Pages<'p>>, FreeError> {
        let (pool, start, order) = (self.pool(), self.as_ptr() as usize, self.order());
        let shared = &*pool.shared;
        let first = shared.pfn(start);
        let done = shared.allocator.ranges().split_block(first, order, into);
        done.map_err(|error| shared.refused(start as *mut u8, error))?;
        let _ = self.into_raw();
        let blocks = (0..order.pages()).step_by(into.pages() as usize);
        let block = |at| Pages::new(pool, shared.address(Pfn(first.0 + at)), into);
        Ok(blocks.map(block).collect())
    }
}

/// Refuses an address inside a page, of which `range` would be the frames.
fn is_page(start: usize, range: &Range<Pfn>, pages: usize) -> Result<(), core_range::RangeError> {
    let past = start % PAGE_SIZE;
    if past == 0 {
        return Ok(());
    }
    let (pages, why) = (pages as u64, RangeRefusal::Unaligned { past });
    Err(core_range::RangeError { pages, start: Some(range.start), why })
}

impl Extent {
    fn frames(self, shared: &Shared) -> Range<Pfn> {
        shared.range_at(self.start.as_ptr() as usize, self.pages)
    }

    /// The pages from one of them on; `pages` is at most how many there are.
    fn part(self, shared: &Shared, from: usize, pages: usize) -> Extent {
        let frame = self.frames(shared).start.0.saturating_add(from as u64);
        Extent { start: shared.address(Pfn(frame)), pages }
    }

    /// Takes the `more` pages right behind.
    pub(super) fn grow(self, shared: &Shared, more: usize, gfp: Gfp) -> Result<(), RangeError> {
        let range = self.frames(shared);
        let ranges = shared.allocator.ranges();
        let refuse = |error| shared.range_error(error);
        is_page(self.start.as_ptr() as usize, &range, more).map_err(refuse)?;
        ranges.grow(range.clone(), more as u64, gfp).map_err(refuse)?;
        let (at, end) = (range.end, Pfn(range.end.0 + more as u64));
        // Only where they may be refused yet: what is split off becomes a range by itself.
        if shared.poison.is_some() {
            let split = ranges.split(range.start..end, at);
            split.map_err(|error| refuse(not_a_range(more, at, error)))?;
        }
        shared.prepare_at(at..end, gfp).map_err(refuse)?;
        if shared.poison.is_some() {
            let joined = ranges.join(range.start..end, at);
            joined.map_err(|error| refuse(not_a_range(more, at, error)))?;
        }
        Ok(())
    }

    /// Frees all but the first `pages`; none where that is all of them, or nothing. Returns how
    /// many were freed.
    pub(super) fn shrink(self, shared: &Shared, pages: usize) -> Result<usize, FreeError> {
        if pages == 0 || pages >= self.pages {
            return Ok(0);
        }
        let tail = self.part(shared, pages, self.pages - pages);
        tail.free(shared).map(|()| tail.pages)
    }

    pub(super) fn split(self, shared: &Shared, pages: usize) -> Result<[Extent; 2], FreeError> {
        let range = self.frames(shared);
        let at = Pfn(range.start.0.saturating_add(pages as u64));
        let split = shared.allocator.ranges().split(range, at);
        split.map_err(|error| shared.refused_part(self.start, error))?;
        let tail = self.part(shared, pages, self.pages - pages);
        Ok([Extent { pages, ..self }, tail])
    }

    /// Frees a part, and returns what stays in front of it and behind it.
    pub(super) fn free_part(
        self,
        shared: &Shared,
        part: Range<usize>,
    ) -> Result<[Option<Extent>; 2], FreeError> {
        let Range { start: from, end: to } = part;
        if from >= to || to > self.pages {
            let outside = core_alloc::FreeError::Empty(self.frames(shared).end);
            return Err(shared.refused_part(self.start, outside));
        }
        let tail = self.part(shared, to, self.pages - to);
        self.part(shared, from, to - from).free(shared)?;
        let rest = [Extent { pages: from, ..self }, tail];
        Ok(rest.map(|rest| Some(rest).filter(|rest| rest.pages > 0)))
    }

    pub(super) fn free(self, shared: &Shared) -> Result<(), FreeError> {
        shared.free_range(self.start, self.pages)
    }

    /// What is told of pages that could not be freed when their owner was dropped.
    pub(super) fn misuse(self, error: FreeError) -> Misuse {
        let order = RangeRequest::new(self.pages as u64).block_order().unwrap_or(Order::MAX);
        Misuse { start: self.start, order, error, by: FreedBy::Drop }
    }
}

/// A range that could not come apart, or together again: it is not its owner's.
#[cold]
fn not_a_range(more: usize, at: Pfn, error: core_alloc::FreeError) -> core_range::RangeError {
    let why = RangeRefusal::NotARange(error);
    core_range::RangeError { pages: more as u64, start: Some(at), why }
}

impl Shared {
    /// The frames of `pages` pages from an address on; far out of range for one that is not
    /// page-aligned or below the pool.
    fn range_at(&self, address: usize, pages: usize) -> Range<Pfn> {
        let first = self.pfn(address);
        first..Pfn(first.0.saturating_add(pages as u64))
    }

    fn range_error(&self, error: core_range::RangeError) -> RangeError {
        RangeError { base: self.fast.base, error }
    }

    fn inject_range(&self, request: &RangeRequest) -> Result<(), core_range::RangeError> {
        let order = request.block_order().unwrap_or(Order::MAX);
        let RangeRequest { pages, gfp, node, .. } = *request;
        let refuse = |error: core_alloc::AllocError| core_range::RangeError {
            pages,
            start: None,
            why: error.into(),
        };
        self.inject(&Request { order, gfp, node }).map_err(refuse)
    }

    /// Makes the bytes of a new range what the request asked for.
    ///
    /// # Errors
    /// The first page that was written to while it was free. Those pages stay out of use; the
    /// others are free again.
    fn prepare_range(&self, range: Range<Pfn>, gfp: Gfp) -> Result<(), Pfn> {
        if let Some(poison) = &self.poison {
            let mut written = Vec::new();
            for pfn in (range.start.0..range.end.0).map(Pfn) {
                if !poison.check(self.address(pfn), pfn, Order::ZERO) {
                    written.push(pfn);
                }
            }
            if let Some(first) = written.first() {
                self.free_between(range, &written);
                return Err(*first);
            }
        }
        self.zero(range.start, range.end.0 - range.start.0, gfp);
        Ok(())
    }

    /// As [`prepare_range`](Self::prepare_range), for pages that were asked for at their place.
    fn prepare_at(&self, range: Range<Pfn>, gfp: Gfp) -> Result<(), core_range::RangeError> {
        let (start, pages) = (Some(range.start), range.end.0 - range.start.0);
        self.prepare_range(range, gfp).map_err(|pfn| {
            let why = RangeRefusal::InTheWay(pfn, Obstacle::WrittenWhileFree);
            core_range::RangeError { pages, start, why }
        })
    }

    /// Frees the pages of a range but some, in ascending order. The pattern is still in them.
    #[cold]
    fn free_between(&self, range: Range<Pfn>, but: &[Pfn]) {
        let mut from = range.start;
        for end in but.iter().copied().chain([range.end]) {
            if from < end {
                let freed = self.allocator.ranges().free(from..end);
                debug_assert!(freed.is_ok(), "{freed:?}");
            }
            from = Pfn(end.0 + 1);
        }
    }

    fn zero(&self, first: Pfn, pages: u64, gfp: Gfp) {
        if gfp.contains(Gfp::ZERO) {
            let bytes = pages as usize * PAGE_SIZE;
            // SAFETY: (1) the pages were just handed out to this call, so their bytes are ours.
            unsafe { self.address(first).as_ptr().write_bytes(0, bytes) };
        }
    }

    fn free_range(&self, start: NonNull<u8>, pages: usize) -> Result<(), FreeError> {
        let range = self.range_at(start.as_ptr() as usize, pages);
        let ranges = self.allocator.ranges();
        let done = match &self.poison {
            None => ranges.free(range),
            // Only what is really handed out may be written to: a double free must change nothing.
            Some(poison) => ranges.check(range.clone()).and_then(|()| {
                let frames = (range.start.0..range.end.0).map(Pfn);
                frames.for_each(|pfn| poison.fill(self.address(pfn), Order::ZERO));
                ranges.free(range)
            }),
        };
        done.map_err(|error| self.refused_part(start, error))
    }

    /// Why pages from `start` on were not freed: the error names the page that the core names.
    #[cold]
    fn refused_part(&self, start: NonNull<u8>, error: core_alloc::FreeError) -> FreeError {
        let frames = self.pages as u64;
        let page = Some(error.pfn()).filter(|pfn| pfn.0 <= frames && self.pfn_is_real(start));
        let at = page.map_or(start.as_ptr(), |pfn| self.address(pfn).as_ptr());
        self.refused(at, error)
    }

    /// Whether a page of the pool starts at the address.
    fn pfn_is_real(&self, start: NonNull<u8>) -> bool {
        self.pfn(start.as_ptr() as usize).0 < self.pages as u64
    }
}

impl RangeError {
    /// Pages asked for.
    pub fn pages(&self) -> u64 {
        self.error.pages
    }
    /// Why. Page numbers count from the pool's first page ([`Pool::base`]).
    pub fn why(&self) -> RangeRefusal {
        self.error.why
    }
    /// The first page in the way, if there is one.
    pub fn in_the_way(&self) -> Option<*const u8> {
        match self.error.why {
            RangeRefusal::InTheWay(pfn, _) => Some(self.address(pfn) as *const u8),
            _ => None,
        }
    }
    /// Of any page number that was made of an address, in the pool or not.
    fn address(&self, pfn: Pfn) -> usize {
        super::block::address_of(self.base, pfn.0 as usize)
    }

    /// Why pages cannot be added to what is no range of the caller's.
    fn fmt_not_a_range(
        &self,
        f: &mut fmt::Formatter<'_>,
        error: core_alloc::FreeError,
    ) -> fmt::Result {
        use core_alloc::FreeError;
        write!(f, "nothing was added to a range: {:#x} ", self.address(error.pfn()))?;
        match error {
            FreeError::Foreign(_) => f.write_str("is no page of this pool"),
            FreeError::DoubleFree { .. } => f.write_str("is a free page"),
            FreeError::CutsBlock { order, .. } | FreeError::WrongOrder { actual: order, .. } => {
                write!(f, "is in a block of order {order} that was handed out as a whole")
            }
            FreeError::Boundary { .. } => f.write_str("is where another owner's pages begin"),
            FreeError::Empty(_) => f.write_str("begins a range of no pages"),
            FreeError::Corrupt(_) => f.write_str("is a page whose metadata was overwritten"),
            _ => f.write_str("is not in a range"),
        }
    }
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |pfn| self.address(pfn);
        match self.error.why {
            RangeRefusal::InTheWay(pfn, Obstacle::Held(block, order)) => write!(
                f,
                "cannot allocate {} pages in a row: the page at {:#x} is handed out, in the block \
                 of order {order} at {:#x}",
                self.error.pages,
                at(pfn),
                at(block)
            ),
            RangeRefusal::InTheWay(pfn, what) => write!(
                f,
                "cannot allocate {} pages in a row: the page at {:#x} is {what}",
                self.error.pages,
                at(pfn)
            ),
            RangeRefusal::Unaligned { past } => write!(
                f,
                "cannot allocate {} pages in a row: {:#x} is {past} byte{} past the start of a \
                 page",
                self.error.pages,
                // The number of a page that is none keeps the bytes behind its start.
                self.error.start.map_or(0, at),
                if past == 1 { "" } else { "s" }
            ),
            RangeRefusal::NotARange(error) => self.fmt_not_a_range(f, error),
            RangeRefusal::Outside(_) => write!(
                f,
                "cannot allocate {} pages in a row: they are not all in one zone of the pool",
                self.error.pages
            ),
            _ => fmt::Display::fmt(&self.error, f),
        }
    }
}

impl std::error::Error for RangeError {}

impl Drop for PageRange<'_> {
    fn drop(&mut self) {
        let shared = &*self.pool.shared;
        if let Err(error) = self.extent().free(shared) {
            shared.misuses.tell(&self.extent().misuse(error));
        }
    }
}

impl fmt::Debug for PageRange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageRange").field("start", &self.start).field("pages", &self.pages).finish()
    }
}
