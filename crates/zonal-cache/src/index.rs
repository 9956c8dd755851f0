//! Which pages of one file are in the cache, and which were not long ago.
//!
//! The pages of a file are spread over a few stripes, each a map behind a lock of its own. A page
//! is looked up and its state word changed in one hold of the stripe's lock, so **INDEX-1** a right
//! that was got here is to the page that was asked for: a page leaves the map only under its
//! stripe's lock, by someone who has it for itself. Nobody waits for a page, takes one from the
//! pool or calls a store while holding a stripe.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::frames::{Exclusive, Frames, Shared};
use crate::state::PageState;

/// Stripes of a file.
const STRIPES: usize = 16;
/// Neighbours are in one stripe: 16 pages.
const RUN_SHIFT: u32 = 4;
/// A stripe with fewer shadows than this is not worth sweeping.
const SHADOWS_MIN: usize = 64;

/// What is left of a page that was given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shadow {
    /// Its zone, by place.
    pub zone: u16,
    /// What the zone's clock showed.
    pub age: u64,
}

#[derive(Clone, Copy, Debug)]
enum Entry {
    Page(u32),
    Shadow(Shadow),
}

/// What a look-up found.
#[derive(Debug)]
pub enum Found<T> {
    /// The page, and its state before.
    Page(T, PageState),
    /// The page's frame: somebody else is in the way.
    Busy(u32),
    /// No page.
    Absent,
}

#[derive(Debug, Default)]
struct Stripe {
    map: HashMap<u64, Entry>,
    shadows: usize,
    sweep_at: usize,
}

/// The pages of one file.
#[derive(Debug)]
pub struct Index {
    stripes: [RwLock<Stripe>; STRIPES],
}

impl Default for Index {
    fn default() -> Index {
        Index { stripes: std::array::from_fn(|_| RwLock::default()) }
    }
}

impl Index {
    fn stripe(&self, index: u64) -> &RwLock<Stripe> {
        &self.stripes[(index >> RUN_SHIFT) as usize % STRIPES]
    }
    fn read(&self, index: u64) -> RwLockReadGuard<'_, Stripe> {
        self.stripe(index).read().unwrap_or_else(PoisonError::into_inner)
    }
    fn write(&self, index: u64) -> RwLockWriteGuard<'_, Stripe> {
        self.stripe(index).write().unwrap_or_else(PoisonError::into_inner)
    }

    /// A right to read the page; its state gets `touch` besides.
    pub fn share<'a>(&self, frames: &'a Frames, index: u64, touch: PageState) -> Found<Shared<'a>> {
        let stripe = self.read(index);
        let Some(&Entry::Page(frame)) = stripe.map.get(&index) else { return Found::Absent };
        match frames.share(frame, touch) {
            Ok((page, before)) => Found::Page(page, before),
            Err(_) => Found::Busy(frame),
        }
    }

    /// The page for the caller alone.
    pub fn exclude<'a>(&self, frames: &'a Frames, index: u64) -> Found<Exclusive<'a>> {
        let stripe = self.read(index);
        let Some(&Entry::Page(frame)) = stripe.map.get(&index) else { return Found::Absent };
        match frames.exclude(frame) {
            Ok(page) => {
                let before = page.state();
                Found::Page(page, before)
            }
            Err(_) => Found::Busy(frame),
        }
    }

    /// Whether the page is here, in whatever state.
    pub fn has(&self, index: u64) -> bool {
        matches!(self.read(index).map.get(&index), Some(Entry::Page(_)))
    }

    /// Puts a page in. `Err`: there is one already. Else what was left of the last one.
    pub fn insert(&self, index: u64, page: &Exclusive<'_>) -> Result<Option<Shadow>, ()> {
        let mut stripe = self.write(index);
        let before = match stripe.map.get(&index) {
            Some(Entry::Page(_)) => return Err(()),
            Some(Entry::Shadow(shadow)) => Some(*shadow),
            None => None,
        };
        stripe.shadows -= usize::from(before.is_some());
        stripe.map.insert(index, Entry::Page(page.frame()));
        Ok(before)
    }

    /// Takes a page out and leaves a shadow. Where there are too many, those go that `is_of_use`
    /// does not want to keep.
    pub fn evict(&self, index: u64, shadow: Shadow, is_of_use: impl Fn(Shadow) -> bool) {
        let mut guard = self.write(index);
        let stripe = &mut *guard;
        stripe.map.insert(index, Entry::Shadow(shadow));
        stripe.shadows += 1;
        if stripe.shadows >= stripe.sweep_at.max(SHADOWS_MIN) {
            stripe.map.retain(|_, entry| match entry {
                Entry::Page(_) => true,
                Entry::Shadow(shadow) => is_of_use(*shadow),
            });
            let shadows = stripe.map.values().filter(|entry| matches!(entry, Entry::Shadow(_)));
            stripe.shadows = shadows.count();
            // Twice what is of use: each shadow pays for one look at one other.
            stripe.sweep_at = stripe.shadows * 2;
        }
    }

    /// Takes a page out, and leaves nothing.
    pub fn remove(&self, index: u64) {
        self.write(index).map.remove(&index);
    }

    /// Pages from `first` on, in order.
    pub fn pages(&self, first: u64) -> Vec<u64> {
        let mut pages = Vec::new();
        for stripe in &self.stripes {
            let stripe = stripe.read().unwrap_or_else(PoisonError::into_inner);
            let here = stripe.map.iter().filter(|(_, entry)| matches!(entry, Entry::Page(_)));
            pages.extend(here.map(|(index, _)| *index).filter(|index| *index >= first));
        }
        pages.sort_unstable();
        pages
    }

    /// Forgets what was left of pages from `first` on.
    pub fn forget(&self, first: u64) {
        for stripe in &self.stripes {
            let mut guard = stripe.write().unwrap_or_else(PoisonError::into_inner);
            let stripe = &mut *guard;
            let before = stripe.map.len();
            stripe.map.retain(|index, entry| matches!(entry, Entry::Page(_)) || *index < first);
            stripe.shadows -= before - stripe.map.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shadows_are_bounded_by_those_of_use() {
        let index = Index::default();
        let of_use = 1000;
        for age in 0..100_000 {
            index.evict(age, Shadow { zone: 0, age }, |old| age - old.age < of_use);
        }
        let shadows: usize =
            index.stripes.iter().map(|stripe| stripe.read().unwrap().shadows).sum();
        let kept: usize = index.stripes.iter().map(|stripe| stripe.read().unwrap().map.len()).sum();
        assert_eq!(shadows, kept);
        // Twice those of use, and those that are not worth a sweep.
        assert!(kept >= of_use as usize && kept <= 2 * of_use as usize + STRIPES * SHADOWS_MIN);
        index.forget(0);
        assert!(index.stripes.iter().all(|stripe| stripe.read().unwrap().shadows == 0));
    }
}
