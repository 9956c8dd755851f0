//! Which pages of one file are in the cache, and which were not long ago.
//!
//! The pages of a file are spread over a few stripes, each a map behind a lock of its own. A page
//! is looked up and its state word changed in one hold of the stripe's lock, so **INDEX-1** a right
//! obtained here is to the requested page: a page leaves the map only under its stripe's lock, by
//! its exclusive owner. No thread waits for a page, takes one from the pool or calls a store while
//! it holds a stripe.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::frames::{Exclusive, Frames, Shared};
use crate::state::PageState;

/// Stripes of a file.
const STRIPES: usize = 16;
/// Neighbours are in one stripe: 16 pages.
const RUN_SHIFT: u32 = 4;
/// Fewest shadows for which a stripe is swept.
const SHADOWS_MIN: usize = 64;

/// The shadow of a reclaimed page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shadow {
    /// Index of its zone.
    pub zone: u16,
    /// The zone's clock at that time.
    pub age: u64,
}

#[derive(Clone, Copy, Debug)]
enum Entry {
    Page(u32),
    Shadow(Shadow),
}

/// Result of a look-up.
#[derive(Debug)]
pub enum Found<T> {
    /// The page, and its state before.
    Page(T, PageState),
    /// The page's frame: another thread holds it.
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

    /// The page, exclusively.
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

    /// Inserts a page. `Err`: there is one already. `Ok`: the shadow of the last one.
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

    /// Removes a page and leaves a shadow. Where there are too many, drops those for which
    /// `is_of_use` is false.
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

    /// Removes a page without a shadow.
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

    /// Drops the shadows of pages from `first` on.
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
