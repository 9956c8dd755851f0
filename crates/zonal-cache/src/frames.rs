//! The pages themselves: one record per block of the pool that can be a page of the cache, and
//! rights to a page's bytes. The only file of the crate with `unsafe` in it.
//!
//! A page of the cache is a block of the pool's order [`Frames::order`]; a *frame* here is such a
//! block's number: its first page frame divided by its pages.
//!
//! # Invariants
//! - **FRAME-1** a frame whose state is `OWNED` was taken from the pool by [`Frames::take`] and not
//!   given back: [`Exclusive::release`] is the only way back, and clears the flag first.
//! - **FRAME-2** rights exist only to owned frames: they are made by transitions that ask for
//!   `OWNED` (STATE-2), and while one exists the flag stays.
//! - **FRAME-3** an [`Exclusive`] is the only right to its frame (STATE-1), so it alone may change
//!   bytes; the [`Shared`] ones read.
//! - **FRAME-4** the pool lives as long as the table, which holds a reference to it.
//! - **FRAME-5** a [`Kept`] right refers to a table that its `Arc` leads to, and goes before it.
//! - **FRAME-6** a frame is a block of the table's order: it is taken and freed with that order,
//!   and its bytes are those of the block.

use std::io;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use zonal::process::Process;
use zonal::view::ZoneView;
use zonal::{AllocError, Gfp, NodeId, Order, Pool, Request, ZoneId, ZoneKind};

use crate::lock::{self, Queue, Until};
use crate::state::PageState;

/// Threads that wait for pages share this many queues.
const QUEUES: usize = 64;

/// Record of one frame. All zero: not the cache's.
#[derive(Debug, Default)]
pub struct Frame {
    pub state: AtomicU32,
    /// Links of the list it is on; under that list's lock.
    pub prev: AtomicU32,
    pub next: AtomicU32,
    /// File and index of the page: constant while it is owned and on a list.
    file: AtomicU32,
    index: AtomicU64,
}

const _: () = assert!(size_of::<Frame>() == 24);

/// A zone of the pool.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub zone: ZoneId,
    pub node: NodeId,
    pub kind: ZoneKind,
    start: u64,
    end: u64,
}

/// All frames of a pool.
#[derive(Debug)]
pub struct Frames {
    pool: Arc<Pool>,
    table: Box<[Frame]>,
    queues: [Queue; QUEUES],
    spans: Box<[Span]>,
    owned: AtomicU64,
    order: Order,
    /// The process that made it.
    process: Process,
    /// By frame, for pages that are written in the order of a log; empty without.
    lsn: Box<[AtomicU64]>,
}

impl Frames {
    /// Pages of `order`; with numbers of a log if `logged`.
    pub fn new(pool: Arc<Pool>, order: Order, logged: bool) -> Frames {
        let len = pool.bytes() / order.bytes();
        let table = Box::new_zeroed_slice(len);
        // SAFETY: (1) a `Frame` is made of atomic integers, for which zero is a value.
        let table = unsafe { table.assume_init() };
        let span = |zone: ZoneView<'_>| Span {
            zone: zone.id(),
            node: zone.node(),
            kind: zone.kind(),
            start: zone.first_page(),
            end: zone.first_page() + zone.spanned(),
        };
        let spans = pool.view().zones().map(span).collect();
        let queues = std::array::from_fn(|_| Queue::default());
        let lsn = (0..if logged { len } else { 0 }).map(|_| AtomicU64::default()).collect();
        let process = Process::this();
        Frames { pool, table, queues, spans, owned: AtomicU64::new(0), order, process, lsn }
    }

    /// The order of a page of the cache, and its bytes.
    pub fn order(&self) -> Order {
        self.order
    }
    /// Pages of the cache in pages of the pool.
    pub fn in_pool(&self, pages: u64) -> u64 {
        pages << self.order.get()
    }
    pub fn page_bytes(&self) -> usize {
        self.order.bytes()
    }

    pub fn pool(&self) -> &Pool {
        &self.pool
    }
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }
    /// Frames of the pool.
    pub fn len(&self) -> u32 {
        self.table.len() as u32
    }
    /// Pages of the cache now, with those that are reserved.
    pub fn owned(&self) -> u64 {
        self.owned.load(Relaxed)
    }
    /// Index of the frame's zone.
    pub fn zone_of(&self, frame: u32) -> usize {
        let at = u64::from(frame) << self.order.get();
        self.spans.iter().position(|span| (span.start..span.end).contains(&at)).unwrap_or(0)
    }
    pub fn get(&self, frame: u32) -> &Frame {
        &self.table[frame as usize]
    }
    pub fn state(&self, frame: u32) -> PageState {
        lock::peek(&self.get(frame).state)
    }
    fn queue(&self, frame: u32) -> &Queue {
        &self.queues[frame as usize % QUEUES]
    }

    /// Waits for a page that another thread holds. The caller holds no lock and looks the page up
    /// again.
    pub fn wait(&self, frame: u32, until: Until) {
        lock::wait(&self.get(frame).state, self.queue(frame), until);
    }

    /// # Errors
    /// The page has as many users as can be counted: it is not waited for.
    pub fn check_room(&self, frame: u32) -> io::Result<()> {
        if !self.state(frame).is_full() {
            return Ok(());
        }
        let text = "the page has 1048575 pins, the most that it can have; drop some";
        Err(io::Error::new(io::ErrorKind::ResourceBusy, text))
    }

    /// Reserves one page, unless there are `bound`. `true`: [`take`](Self::take) it now.
    pub fn reserve(&self, bound: u64) -> bool {
        // Relaxed: a count; nothing is read by it.
        let more = |owned: u64| (owned < bound).then_some(owned + 1);
        self.owned.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// Takes a page that was [reserved](Self::reserve) from the pool, exclusively. Its bytes are
    /// the last owner's. On failure, and if a callback of the pool panics, the reservation is
    /// dropped.
    pub fn take(&self, gfp: Gfp, node: Option<NodeId>) -> Result<Exclusive<'_>, AllocError> {
        // The pool may call the program, which may panic.
        let reserved = Reserved(&self.owned);
        let taken = self.take_from_pool(gfp, node)?;
        std::mem::forget(reserved);
        Ok(taken)
    }

    fn take_from_pool(&self, gfp: Gfp, node: Option<NodeId>) -> Result<Exclusive<'_>, AllocError> {
        let start = match node {
            None => self.pool.alloc_pages(self.order, gfp)?,
            Some(_) => self.pool.alloc_with(Request { order: self.order, gfp, node })?.into_raw().0,
        };
        let frame = (start.as_ptr() as usize - self.pool.base() as usize) / self.page_bytes();
        let frame = frame as u32;
        let claimed = lock::try_change(&self.get(frame).state, PageState::claim);
        // Always: a second owner of the page would break FRAME-3.
        assert!(claimed.is_ok(), "frame {frame} came out of the pool twice: {claimed:?}");
        self.set_lsn(frame, 0);
        Ok(Exclusive { frames: self, frame })
    }

    /// The page's number in its engine's log; 0: none, or written since. Changed under an exclusive
    /// right, or by the page's one writer (STATE-3).
    pub fn lsn(&self, frame: u32) -> u64 {
        // Relaxed: its changes are under rights to the page.
        self.lsn.get(frame as usize).map_or(0, |lsn| lsn.load(Relaxed))
    }
    fn set_lsn(&self, frame: u32, to: u64) {
        self.lsn.get(frame as usize).into_iter().for_each(|lsn| lsn.store(to, Relaxed));
    }

    /// A right to read the page, with `touch` added to its state. `Err`: its state.
    pub fn share(
        &self,
        frame: u32,
        touch: PageState,
    ) -> Result<(Shared<'_>, PageState), PageState> {
        let shared = |state: PageState| state.share().map(|state| state.with(touch));
        let before = lock::try_change(&self.get(frame).state, shared)?;
        Ok((Shared { frames: self, frame }, before))
    }

    /// The page for the caller alone. `Err`: its state.
    pub fn exclude(&self, frame: u32) -> Result<Exclusive<'_>, PageState> {
        lock::try_change(&self.get(frame).state, PageState::exclude)?;
        Ok(Exclusive { frames: self, frame })
    }

    /// Marks a page, to which the caller has a right, as on the active list.
    pub fn mark_active(&self, frame: u32) {
        self.change(frame, |state| state.with(PageState::ACTIVE).without(PageState::REFERENCED));
    }

    /// Adds flags to a page to which the caller has a right. Returns the state before.
    pub fn mark(&self, frame: u32, flags: PageState) -> PageState {
        self.change(frame, |state| state.with(flags))
    }

    fn change(&self, frame: u32, to: impl FnMut(PageState) -> PageState) -> PageState {
        // Nobody waits in a forked child, whose parent may have had the queue locked.
        let wake = || {
            if self.process.is_this() {
                self.queue(frame).wake();
            }
        };
        lock::change(&self.get(frame).state, wake, to)
    }

    fn start(&self, frame: u32) -> NonNull<u8> {
        let base = self.pool.base().cast_mut();
        debug_assert!((frame as usize) < self.table.len());
        // SAFETY: (1) frames of the table lie inside the pool's mapping (POOL-1, FRAME-4).
        let start = unsafe { base.add(frame as usize * self.page_bytes()) };
        // SAFETY: (1) a mapping does not begin at address 0.
        unsafe { NonNull::new_unchecked(start) }
    }

    /// The bytes of a page, all of them initialised: an anonymous mapping is.
    fn bytes(&self, frame: u32) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(self.start(frame), self.page_bytes())
    }
}

/// A page that is reserved and was not taken. Dropping it gives the reservation back.
struct Reserved<'a>(&'a AtomicU64);

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A right to read a page, shared with others.
#[derive(Debug)]
pub struct Shared<'a> {
    frames: &'a Frames,
    frame: u32,
}

impl<'a> Shared<'a> {
    pub fn frame(&self) -> u32 {
        self.frame
    }
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: (1) the frame is owned while this right exists (FRAME-1, FRAME-2) and nobody
        // changes it (FRAME-3).
        unsafe { self.frames.bytes(self.frame).as_ref() }
    }
    /// Makes an unchanged page dirty. `false`: it already is.
    pub fn soil_again(&self) -> bool {
        lock::try_change(&self.frames.get(self.frame).state, PageState::soil_again).is_ok()
    }
    /// Begins write-back by this user. `Err`: whether another user writes it; if not, it is clean.
    pub fn begin_writeback(&self) -> Result<(), bool> {
        lock::begin_writeback(&self.frames.get(self.frame).state)
    }
    /// Ends it. A page that was written waits for the log no more.
    pub fn end_writeback(&self, written: bool) {
        if written {
            self.frames.set_lsn(self.frame, 0);
        }
        self.frames.change(self.frame, |state| state.end_writeback(written));
    }
    /// Takes flags away. Returns the state before.
    pub fn clear(&self, flags: PageState) -> PageState {
        self.frames.change(self.frame, |state| state.without(flags))
    }
}

impl Drop for Shared<'_> {
    fn drop(&mut self) {
        self.frames.change(self.frame, PageState::unshare);
    }
}

/// An exclusive right to a page.
#[derive(Debug)]
pub struct Exclusive<'a> {
    frames: &'a Frames,
    frame: u32,
}

impl<'a> Exclusive<'a> {
    pub fn frame(&self) -> u32 {
        self.frame
    }
    pub fn state(&self) -> PageState {
        self.frames.state(self.frame)
    }
    pub fn set(&self, flags: PageState) {
        self.frames.change(self.frame, |state| state.with(flags));
    }
    pub fn clear(&self, flags: PageState) {
        self.frames.change(self.frame, |state| state.without(flags));
    }
    /// File and index of the page.
    pub fn owner(&self) -> (u32, u64) {
        let frame = self.frames.get(self.frame);
        (frame.file.load(Relaxed), frame.index.load(Relaxed))
    }
    /// Sets file and index of the page. Relaxed: readers load the page's state after this.
    pub fn set_owner(&self, file: u32, index: u64) {
        let frame = self.frames.get(self.frame);
        frame.file.store(file, Relaxed);
        frame.index.store(index, Relaxed);
    }
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: (1) the frame is owned while this right exists (FRAME-1, FRAME-2); the right is
        // borrowed, so nobody changes it (FRAME-3).
        unsafe { self.frames.bytes(self.frame).as_ref() }
    }
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: (1) as for `bytes`, and `&mut self` is the only way to it (FRAME-3).
        unsafe { self.frames.bytes(self.frame).as_mut() }
    }
    /// The log must reach `lsn` before the page is written.
    pub fn raise_lsn(&mut self, lsn: u64) {
        self.frames.set_lsn(self.frame, lsn.max(self.frames.lsn(self.frame)));
    }
    /// Turns it into a shared right.
    pub fn downgrade(self) -> Shared<'a> {
        let exclusive = std::mem::ManuallyDrop::new(self);
        exclusive.frames.change(exclusive.frame, PageState::downgrade);
        Shared { frames: exclusive.frames, frame: exclusive.frame }
    }
    /// Returns the page to the pool. It is on no list, in no file, and clean or discarded.
    pub fn release(self) {
        let exclusive = std::mem::ManuallyDrop::new(self);
        let Exclusive { frames, frame } = *exclusive;
        let start = frames.start(frame);
        let before = frames.change(frame, |_| PageState::default());
        debug_assert!(!before.has(PageState::LISTED), "released while on a list: {before:?}");
        frames.owned.fetch_sub(1, Relaxed);
        // SAFETY: (1) the frame was ours (FRAME-1) and no right to it exists any more (FRAME-3).
        let freed = unsafe { frames.pool.free_pages(start, frames.order) };
        debug_assert!(freed.is_ok(), "{freed:?}");
    }
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        self.frames.change(self.frame, PageState::unlock);
    }
}

/// What a right gives back when it ends.
pub trait Right {
    /// The state of its page afterwards.
    fn end(state: PageState) -> PageState;
}

impl Right for Shared<'_> {
    fn end(state: PageState) -> PageState {
        state.unshare()
    }
}

impl Right for Exclusive<'_> {
    fn end(state: PageState) -> PageState {
        state.unlock()
    }
}

/// A right that keeps the table it refers to, instead of borrowing it (FRAME-5).
///
/// A pointer, not a `&'static Frames`: a reference in a value passed to a function must stay valid
/// until that function returns, and dropping this may free the table.
pub struct Kept<R: Right> {
    frames: NonNull<Frames>,
    frame: u32,
    /// Leads to the table. Dropped after the right has ended.
    _keep: Arc<dyn Send + Sync>,
    right: PhantomData<R>,
}

// SAFETY: (1) a right is a number and a way to `Frames`, which threads share (it is `Sync`, see
// below); what it keeps is `Send` and `Sync`.
unsafe impl<R: Right> Send for Kept<R> {}
// SAFETY: (1) as for `Send`; `&Kept` gives no more than `&[u8]` (FRAME-3).
unsafe impl<R: Right> Sync for Kept<R> {}

const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    shared::<Frames>();
};

impl<R: Right> Kept<R> {
    /// # Panics
    /// If `of` leads to another table than the right's: a bug of the crate.
    fn new<K: Send + Sync + 'static>(
        (frames, frame): (&Frames, u32),
        keep: &Arc<K>,
        of: fn(&K) -> &Frames,
    ) -> Kept<R> {
        assert!(std::ptr::eq(of(keep), frames), "a right to a page of another cache");
        let keep: Arc<K> = Arc::clone(keep);
        Kept { frames: NonNull::from(frames), frame, _keep: keep, right: PhantomData }
    }

    fn frames(&self) -> &Frames {
        // SAFETY: (1) the table is reached by a shared reference to what `_keep` holds, so it stays
        // where it is while that exists: longer than this borrow (FRAME-5).
        unsafe { self.frames.as_ref() }
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: (1) the frame is owned while this right exists (FRAME-1, FRAME-2); a shared right
        // lets nobody change it, and an exclusive one is borrowed here (FRAME-3).
        unsafe { self.frames().bytes(self.frame).as_ref() }
    }
}

impl Kept<Exclusive<'_>> {
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: (1) as for `bytes`, and `&mut self` is the only way to it (FRAME-3).
        unsafe { self.frames().bytes(self.frame).as_mut() }
    }
    /// As [`Exclusive::raise_lsn`].
    pub fn raise_lsn(&mut self, lsn: u64) {
        let frames = self.frames();
        frames.set_lsn(self.frame, lsn.max(frames.lsn(self.frame)));
    }
}

impl<R: Right> Drop for Kept<R> {
    fn drop(&mut self) {
        self.frames().change(self.frame, R::end);
    }
}

impl Shared<'_> {
    /// The same right, which keeps `keep` from now on; `of` leads from there to its table.
    pub fn keep<K: Send + Sync + 'static>(
        self,
        keep: &Arc<K>,
        of: fn(&K) -> &Frames,
    ) -> Kept<Shared<'static>> {
        let shared = std::mem::ManuallyDrop::new(self);
        Kept::new((shared.frames, shared.frame), keep, of)
    }
}

impl Exclusive<'_> {
    /// As [`Shared::keep`].
    pub fn keep<K: Send + Sync + 'static>(
        self,
        keep: &Arc<K>,
        of: fn(&K) -> &Frames,
    ) -> Kept<Exclusive<'static>> {
        let exclusive = std::mem::ManuallyDrop::new(self);
        Kept::new((exclusive.frames, exclusive.frame), keep, of)
    }
}
