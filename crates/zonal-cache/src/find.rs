//! Looks pages up for a program: to read or to change them, with waits for those who hold them.

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{PoisonError, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::thread::sleep;
use std::time::Duration;

use crate::file::File;
use crate::fill::Touch;
use crate::frames::{Exclusive, Shared};
use crate::index::Found;
use crate::inner::Inner;
use crate::lock::Until;
use crate::readahead::Window;
use crate::state::PageState;
use crate::stats::count;

/// What a change needs from a page that is not in the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// What the file holds there.
    Bytes,
    /// Any page: all zero, not up to date.
    Page,
    /// Nothing: the file ends before it.
    Nothing,
}

/// Pause of a thread that waits to cut a file, and of those that let it go first.
const LOOK_AGAIN: Duration = Duration::from_micros(100);
/// Pauses of a thread that lets another cut the file first, at most.
const POLITE: u32 = 20;

/// Held shared while a page below the end is looked up. A right to the page keeps the file from
/// being cut there, so no thread waits for a page with this held.
///
/// A thread that is about to cut the file goes first, for a bounded time: the one who holds this
/// now may be inside a backing that waits for the caller.
pub fn uncut(file: &File) -> RwLockReadGuard<'_, ()> {
    for _ in 0..POLITE {
        // Relaxed: only politeness depends on it.
        if file.cutting.load(Relaxed) == 0 {
            break;
        }
        sleep(LOOK_AGAIN);
    }
    file.resize.read().unwrap_or_else(PoisonError::into_inner)
}

/// Held while a file is cut. Never in the queue of the lock, where it would keep out readers that
/// those inside wait for.
pub fn cut(file: &File) -> RwLockWriteGuard<'_, ()> {
    // Relaxed: see `uncut`.
    file.cutting.fetch_add(1, Relaxed);
    let cut = loop {
        match file.resize.try_write() {
            Ok(cut) => break cut,
            Err(TryLockError::Poisoned(cut)) => break cut.into_inner(),
            Err(TryLockError::WouldBlock) => sleep(LOOK_AGAIN),
        }
    };
    file.cutting.fetch_sub(1, Relaxed);
    cut
}

/// The pages of one file, for a program.
#[derive(Clone, Copy)]
pub struct Pages<'a> {
    pub inner: &'a Inner,
    pub file: &'a File,
    /// What to do if another thread holds the page.
    pub held: Held,
}

/// What to do if another thread holds a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held {
    /// Wait for it.
    Wait,
    /// Return without the page.
    Leave,
}

impl<'a> Pages<'a> {
    /// # Errors
    /// What was written to the page is lost.
    pub fn check_not_lost(self, index: u64) -> io::Result<()> {
        self.file.is_lost(index).then(|| self.inner.loss(self.file)).flatten().map_or(Ok(()), Err)
    }

    /// A right to read a page, its state before, and what `exists` says of it; `None` if that says
    /// that the file has no such page, or if another thread holds it and is not waited for.
    /// `window`: what to read if it is not there.
    pub fn page<T>(
        self,
        index: u64,
        touch: Touch,
        exists: impl Fn() -> Option<T>,
        window: impl Fn() -> Window,
    ) -> io::Result<Option<(Shared<'a>, PageState, T)>> {
        // Before any lock is taken.
        self.inner.entry.check_not_forked()?;
        let mut missed = None;
        loop {
            let busy = {
                let _uncut = uncut(self.file);
                let Some(what) = exists() else { return Ok(None) };
                self.check_not_lost(index)?;
                match self.look(index, touch) {
                    Found::Page(page, before) => {
                        if missed.is_none() {
                            count(&self.inner.counters.hits, 1);
                        }
                        return Ok(Some((page, before, what)));
                    }
                    Found::Busy(frame) => frame,
                    Found::Absent => {
                        self.inner.entry.check_here()?;
                        let window = *missed.get_or_insert_with(|| {
                            count(&self.inner.counters.misses, 1);
                            window()
                        });
                        match self.inner.fill(self.file, window, touch)? {
                            Some(page) => return Ok(Some((page, PageState::default(), what))),
                            None => continue,
                        }
                    }
                }
            };
            self.inner.entry.check_here()?;
            self.inner.frames.check_room(busy)?;
            if self.held == Held::Leave {
                return Ok(None);
            }
            self.inner.frames.wait(busy, Until::Shareable);
        }
    }

    fn look(self, index: u64, touch: Touch) -> Found<Shared<'a>> {
        let flag = match touch {
            Touch::Used => PageState::REFERENCED,
            Touch::Again => PageState::default(),
        };
        let found = self.file.index.share(&self.inner.frames, index, flag);
        if let Found::Page(page, before) = &found
            && touch == Touch::Used
        {
            self.inner.touched(page.frame(), *before);
        }
        found
    }

    /// An exclusive right to a page, and which bytes it keeps, as `need` says. `None` if it keeps
    /// nothing, or as for [`page`](Self::page).
    pub fn page_to_change(
        self,
        index: u64,
        need: impl Fn() -> Need,
    ) -> io::Result<Option<(Exclusive<'a>, Need)>> {
        self.inner.entry.check_not_forked()?;
        let mut missed = false;
        loop {
            let busy = {
                let _uncut = uncut(self.file);
                let need = need();
                if need == Need::Nothing {
                    return Ok(None);
                }
                if need == Need::Bytes {
                    self.check_not_lost(index)?;
                }
                match self.file.index.exclude(&self.inner.frames, index) {
                    Found::Page(page, _) => {
                        count(&self.inner.counters.hits, u64::from(!missed));
                        return Ok(Some((page, need)));
                    }
                    Found::Busy(frame) => frame,
                    Found::Absent => {
                        self.inner.entry.check_here()?;
                        count(&self.inner.counters.misses, u64::from(!missed));
                        missed = true;
                        if let Some(page) = self.make_to_change(index, need)? {
                            return Ok(Some((page, need)));
                        }
                        continue;
                    }
                }
            };
            self.inner.entry.check_here()?;
            if self.held == Held::Leave {
                return Ok(None);
            }
            self.inner.frames.wait(busy, Until::Unused);
        }
    }

    /// Reads a page that is not here, or makes one that need not be read. `None`: look again.
    fn make_to_change(self, index: u64, need: Need) -> io::Result<Option<Exclusive<'a>>> {
        if need == Need::Bytes {
            let window = Window { start: index, pages: 1, marker: None };
            self.inner.fill(self.file, window, Touch::Again)?;
            return Ok(None);
        }
        let mut page = self.inner.take_for_write()?;
        page.bytes_mut().fill(0);
        if self.inner.insert(self.file, index, &page) {
            return Ok(Some(page));
        }
        page.release();
        Ok(None)
    }

    /// All pages from `first` on, for the caller alone, who holds `resize` alone. `Err`: the frame
    /// of one that another thread holds.
    pub fn hold_from(self, first: u64) -> Result<Vec<(u64, Exclusive<'a>)>, u32> {
        let mut held = Vec::new();
        for index in self.file.index.pages(first) {
            match self.file.index.exclude(&self.inner.frames, index) {
                Found::Page(page, _) => held.push((index, page)),
                Found::Busy(frame) => return Err(frame),
                Found::Absent => {}
            }
        }
        Ok(held)
    }
}
