//! Which pages were used recently: an active and an inactive list per zone of the pool, and the age
//! of shadows (LB H.1, H.6).
//!
//! A page begins on the inactive list. A second use there moves it to the active one; reclaim takes
//! pages from the old end of the inactive list, and moves old active ones over when the active list
//! is the longer one. A zone's clock counts pages given up and moved to the active list. A page
//! that is read again within as many ticks as the active list has pages would have survived on the
//! active list, so it goes there.
//!
//! # Invariants
//! - **LRU-1** a frame is on a list exactly while its state has `LISTED`; `ACTIVE` says which one.
//!   Both change under the zone's lock, by a thread with a right to the page.
//! - **LRU-2** lists are doubly linked through the frames, and their lengths are right.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::frames::{Exclusive, Frames};
use crate::state::PageState;

const NONE: u32 = u32::MAX;

/// A zone's lists.
#[derive(Debug, Default)]
pub struct ZoneLru {
    lists: Mutex<Lists>,
    /// Copies of the lengths, for decisions without the lock.
    inactive: AtomicU64,
    active: AtomicU64,
    /// The clock (`nonresident_age`).
    age: AtomicU64,
    /// Dirty pages of this zone, and pages being written.
    pub dirty: AtomicU64,
    /// Those of them that are being written.
    pub writeback: AtomicU64,
    /// Pages used through mapped handles.
    pub mapped: AtomicU64,
    /// Pages looked at since one was given up.
    pub fruitless: AtomicU64,
}

#[derive(Debug, Default)]
struct Lists {
    inactive: List,
    active: List,
}

/// Newest first.
#[derive(Debug)]
struct List {
    head: u32,
    tail: u32,
    len: u64,
}

impl Default for List {
    fn default() -> List {
        List { head: NONE, tail: NONE, len: 0 }
    }
}

impl List {
    fn push_head(&mut self, frames: &Frames, at: u32) {
        let frame = frames.get(at);
        frame.prev.store(NONE, Relaxed);
        frame.next.store(self.head, Relaxed);
        match self.head {
            NONE => self.tail = at,
            head => frames.get(head).prev.store(at, Relaxed),
        }
        self.head = at;
        self.len += 1;
    }

    fn push_tail(&mut self, frames: &Frames, at: u32) {
        let frame = frames.get(at);
        frame.next.store(NONE, Relaxed);
        frame.prev.store(self.tail, Relaxed);
        match self.tail {
            NONE => self.head = at,
            tail => frames.get(tail).next.store(at, Relaxed),
        }
        self.tail = at;
        self.len += 1;
    }

    fn unlink(&mut self, frames: &Frames, at: u32) {
        let frame = frames.get(at);
        let (prev, next) = (frame.prev.load(Relaxed), frame.next.load(Relaxed));
        match prev {
            NONE => self.head = next,
            prev => frames.get(prev).next.store(next, Relaxed),
        }
        match next {
            NONE => self.tail = prev,
            next => frames.get(next).prev.store(prev, Relaxed),
        }
        self.len -= 1;
    }
}

/// Where on a list a page goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The new end.
    New,
    /// The old end: looked at first.
    Old,
}

impl ZoneLru {
    fn lock(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies the lengths. Relaxed: readers want a figure.
    fn publish(&self, lists: &Lists) {
        self.inactive.store(lists.inactive.len, Relaxed);
        self.active.store(lists.active.len, Relaxed);
    }

    /// Pages on the inactive and on the active list.
    pub fn sizes(&self) -> (u64, u64) {
        (self.inactive.load(Relaxed), self.active.load(Relaxed))
    }

    /// Puts pages on the list that their state names.
    pub fn add(&self, frames: &Frames, pages: &[Exclusive<'_>], end: End) {
        let mut lists = self.lock();
        for page in pages {
            let active = page.state().has(PageState::ACTIVE);
            let list = if active { &mut lists.active } else { &mut lists.inactive };
            match end {
                End::New => list.push_head(frames, page.frame()),
                End::Old => list.push_tail(frames, page.frame()),
            }
            page.set(PageState::LISTED);
        }
        self.publish(&lists);
    }

    /// Takes a page off its list, if it is on one.
    pub fn remove(&self, frames: &Frames, page: &Exclusive<'_>) {
        let mut lists = self.lock();
        let state = page.state();
        if state.has(PageState::LISTED) {
            let active = state.has(PageState::ACTIVE);
            let list = if active { &mut lists.active } else { &mut lists.inactive };
            list.unlink(frames, page.frame());
            page.clear(PageState::LISTED);
            self.publish(&lists);
        }
    }

    /// Moves a page that the caller has a right to onto the active list. Returns whether it was on
    /// the other one.
    pub fn activate(&self, frames: &Frames, frame: u32) -> bool {
        let mut lists = self.lock();
        let state = frames.state(frame);
        if !state.has(PageState::LISTED) || state.has(PageState::ACTIVE) {
            return false;
        }
        lists.inactive.unlink(frames, frame);
        lists.active.push_head(frames, frame);
        frames.mark_active(frame);
        self.publish(&lists);
        self.age.fetch_add(1, Relaxed);
        true
    }

    /// Takes up to `wanted` pages from the old end of a list, exclusively. Pages in use go to the
    /// new end. Returns how many were looked at.
    pub fn isolate<'a>(
        &self,
        frames: &'a Frames,
        active: bool,
        wanted: u64,
        pages: &mut Vec<Exclusive<'a>>,
    ) -> u64 {
        let mut lists = self.lock();
        let list = if active { &mut lists.active } else { &mut lists.inactive };
        let scanned = wanted.min(list.len);
        for _ in 0..scanned {
            let frame = list.tail;
            list.unlink(frames, frame);
            match frames.exclude(frame) {
                Ok(page) => {
                    page.clear(PageState::LISTED);
                    pages.push(page);
                }
                Err(_) => list.push_head(frames, frame),
            }
        }
        self.publish(&lists);
        scanned
    }

    /// The clock, when a page is given up.
    pub fn evict(&self) -> u64 {
        self.age.fetch_add(1, Relaxed)
    }

    /// Pages given up or activated since the clock showed `then`.
    pub fn distance(&self, then: u64) -> u64 {
        self.age.load(Relaxed).wrapping_sub(then)
    }

    /// Whether a page that was given up at `then` would still be here, had it been active.
    pub fn was_needed(&self, then: u64) -> bool {
        self.distance(then) <= self.active.load(Relaxed)
    }

    /// Walks both lists (LRU-1, LRU-2). Call it while the cache is idle.
    pub fn validate(&self, frames: &Frames) -> Result<(), String> {
        let lists = self.lock();
        for (list, active) in [(&lists.inactive, false), (&lists.active, true)] {
            let (mut at, mut prev, mut len) = (list.head, NONE, 0);
            while at != NONE {
                let state = frames.state(at);
                let right = state.has(PageState::LISTED.with(PageState::OWNED))
                    && state.has(PageState::ACTIVE) == active
                    && frames.get(at).prev.load(Relaxed) == prev;
                if !right || len == list.len {
                    return Err(format!(
                        "LRU-1: frame {at} on the list active={active}: {state:?}"
                    ));
                }
                (prev, at) = (at, frames.get(at).next.load(Relaxed));
                len += 1;
            }
            if len != list.len || list.tail != prev {
                return Err(format!("LRU-2: {len} frames on a list of {}", list.len));
            }
        }
        Ok(())
    }
}
