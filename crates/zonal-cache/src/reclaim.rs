//! Returns pages when the pool asks (LB H.6), or when the cache is at its own bound.
//!
//! Reclaim may run inside any allocation, so it never waits for a page: it skips pages in use. It
//! takes, one at a time and each for a moment: a zone's list, a stripe of a file's index, a file's
//! list of dirty pages. None of these is ever held while a page is taken from the pool.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use zonal::reclaim::{By, Holdings, PageLru, Pass, Shrunk, Unit};
use zonal::{Gfp, NodeId, Order, ZoneKind};
use zonal_core::reclaim::PRIORITY_GENTLE;
use zonal_core::reclaim::lists::{FileLists, Lists, shrink_lists};

use crate::file::{Ask, File};
use crate::frames::Exclusive;
use crate::inner::Inner;
use crate::lru::{End, ZoneLru};
use crate::options::Replacement;
use crate::state::PageState;
use crate::stats::count;

/// Pages freed in one go for the cache's own bound.
const CHUNK: u64 = 32;
/// Passes with a priority below this may write, in any thread (LB H.4).
const PRIORITY_WRITES: u32 = 10;
/// A zone is exhausted once its pages were looked at this often without one reclaimed.
const FRUITLESS_TIMES: u64 = 6;
/// How long direct reclaim waits for the write-back thread if all pages it meets are dirty (LB
/// H.4).
const WRITEBACK_WAIT: Duration = Duration::from_millis(100);

impl PageLru for Inner {
    fn name(&self) -> &str {
        "page cache"
    }

    fn holdings(&self, unit: Unit) -> Holdings {
        let mut held = Holdings { all_unreclaimable: true, ..Holdings::default() };
        for lru in self.zones_in(unit, ZoneKind::Device) {
            let (inactive, active) = lru.sizes();
            held.inactive_file += self.frames.in_pool(inactive);
            held.active_file += self.frames.in_pool(active);
            held.file += self.frames.in_pool(inactive + active);
            // Pages under write-back no longer count as dirty (`NR_FILE_DIRTY`).
            let written = lru.writeback.load(Relaxed);
            held.file_dirty += self.frames.in_pool(lru.dirty.load(Relaxed).saturating_sub(written));
            held.file_mapped += self.frames.in_pool(lru.mapped.load(Relaxed));
            let given_up = FRUITLESS_TIMES * (inactive + active);
            held.all_unreclaimable &= lru.fruitless.load(Relaxed) >= given_up;
        }
        held
    }

    fn shrink_inactive(&self, pages: u64, pass: &Pass) -> Shrunk {
        let at_work = self.begin_work();
        // Only the background reclaimer writes, and node reclaim if its mode allows it (LB G.3,
        // H.6).
        let may_write = pass.may_write && pass.by != By::Direct;
        let met_dirty = Cell::new(false);
        let may = May {
            write: may_write,
            unmap: pass.may_unmap,
            // The last look takes what it can get.
            chance: pass.priority > 0 && self.options.replacement == Replacement::SecondChance,
        };
        let scan = |lru: &ZoneLru, pages| self.scan_inactive(lru, pages, may, &met_dirty);
        let came = self.share_out(pass, pages, |lru| lru.sizes().0, scan);
        drop(at_work);
        let may_wait = pass.gfp.contains(Gfp::IO) && !pass.gfp.contains(Gfp::NORETRY);
        if pass.by == By::Direct && came.reclaimed == 0 && met_dirty.get() && may_wait {
            self.flusher.wait_progress(WRITEBACK_WAIT);
        }
        came
    }

    fn shrink_active(&self, pages: u64, pass: &Pass) -> u64 {
        let _at_work = self.begin_work();
        let scan = |lru: &ZoneLru, pages| Shrunk {
            scanned: self.deactivate(lru, pages),
            ..Shrunk::default()
        };
        self.share_out(pass, pages, |lru| lru.sizes().1, scan).scanned
    }
}

impl Inner {
    /// Lists of a unit's zones that a request can use.
    fn zones_in(&self, unit: Unit, highest: ZoneKind) -> impl Iterator<Item = &ZoneLru> {
        let zones = self.frames.spans().iter().zip(&self.lru);
        let inside = zones.filter(move |(span, _)| match unit {
            Unit::Node(node) => span.node == node && span.kind <= highest,
            Unit::Zone(zone) => span.zone == zone,
        });
        inside.map(|(_, lru)| lru)
    }

    /// Gives each zone of a pass its part of the pages to look at, by the length of its list.
    /// Counts pages of the pool, as the pool does; the zones' lists count the cache's.
    fn share_out(
        &self,
        pass: &Pass,
        pages: u64,
        len: impl Fn(&ZoneLru) -> u64,
        scan: impl Fn(&ZoneLru, u64) -> Shrunk,
    ) -> Shrunk {
        let pages = pages.div_ceil(self.frames.in_pool(1));
        let all: u64 = self.zones_in(pass.unit, pass.highest).map(&len).sum();
        let mut came = Shrunk::default();
        for lru in self.zones_in(pass.unit, pass.highest) {
            let part = (pages * len(lru)).div_ceil(all.max(1)).min(pages - came.scanned.min(pages));
            if part > 0 {
                came = came.plus(scan(lru, part));
            }
        }
        count(&self.counters.scanned, came.scanned);
        Shrunk {
            scanned: self.frames.in_pool(came.scanned),
            reclaimed: self.frames.in_pool(came.reclaimed),
            ..came
        }
    }

    /// Returns up to `pages` pages.
    pub fn shrink_by(&self, pages: u64) {
        let before = self.counters.evicted.load(Relaxed);
        let freed = || self.counters.evicted.load(Relaxed) - before;
        self.shrink_while(&|| pages.saturating_sub(freed()));
    }

    /// Returns pages until the cache is a little below its own bound. `false`: it is not, and
    /// nothing can be reclaimed.
    pub fn shrink_to_bound(&self) -> bool {
        let bound = self.options.max_pages;
        // Several at a time, so that not every new page has to reclaim.
        let aim = bound - (bound / 16).clamp(1, CHUNK).min(bound);
        self.shrink_while(&|| self.frames.owned().saturating_sub(aim));
        self.frames.owned() < bound
    }

    /// Reclaims with falling priority while pages are `missing`.
    pub fn shrink_while(&self, missing: &dyn Fn() -> u64) {
        let nodes: Vec<NodeId> = self.frames.spans().iter().map(|span| span.node).collect();
        for priority in (0..=PRIORITY_GENTLE).rev() {
            for (at, node) in nodes.iter().enumerate() {
                let wanted = missing();
                if wanted == 0 {
                    return;
                }
                if !nodes[..at].contains(node) {
                    self.shrink_node(*node, priority, wanted);
                }
            }
        }
    }

    /// A pass of the cache itself: it may write at low priorities.
    fn shrink_node(&self, node: NodeId, priority: u32, wanted: u64) {
        let pass = Pass {
            by: By::Background,
            unit: Unit::Node(node),
            priority,
            wanted: self.frames.in_pool(wanted),
            gfp: Gfp::KERNEL,
            order: Order::ZERO,
            highest: ZoneKind::Device,
            may_write: priority < PRIORITY_WRITES,
            may_unmap: true,
            may_swap: false,
        };
        shrink_lists(&mut Own { inner: self, pass: &pass }, &pass);
    }

    /// Moves old active pages to the inactive list, used since or not (LB H.6).
    fn deactivate(&self, lru: &ZoneLru, chunk: u64) -> u64 {
        let mut pages = Vec::with_capacity(chunk as usize);
        let scanned = lru.isolate(&self.frames, true, chunk, &mut pages);
        for page in &pages {
            page.clear(PageState::ACTIVE.with(PageState::REFERENCED));
        }
        count(&self.counters.deactivations, pages.len() as u64);
        lru.add(&self.frames, &pages, End::New);
        scanned
    }

    fn scan_inactive(&self, lru: &ZoneLru, chunk: u64, may: May, met_dirty: &Cell<bool>) -> Shrunk {
        let mut pages = Vec::with_capacity(chunk as usize);
        let scanned = lru.isolate(&self.frames, false, chunk, &mut pages);
        let (mut reclaimed, mut dirty) = (0, Vec::new());
        let mut last: Option<Arc<File>> = None;
        for page in pages {
            let (id, index) = page.owner();
            let Some(file) = self.owner(id, &mut last) else {
                lru.add(&self.frames, &[page], End::New);
                continue;
            };
            if self.stays_mapped(&page, may) {
                lru.add(&self.frames, &[page], End::New);
            } else if may.chance && page.state().has(PageState::REFERENCED) {
                page.clear(PageState::REFERENCED);
                lru.add(&self.frames, &[page], End::New);
            } else if page.state().is_clean() {
                match self.evict(&file, page) {
                    Ok(()) => reclaimed += 1,
                    Err(page) => lru.add(&self.frames, &[page], End::New),
                }
            } else if may.write && file.may_try(Ask::Write) {
                // Reclaimed first once it is written.
                lru.add(&self.frames, &[page], End::Old);
                dirty.push((file, index));
            } else {
                lru.add(&self.frames, &[page], End::New);
                met_dirty.set(true);
                self.flusher.kick_for_reclaim();
            }
        }
        // No page is held any more: write-back looks each up again.
        for (file, index) in dirty {
            self.write_around(&file, index);
        }
        // Relaxed: a hint.
        match reclaimed {
            0 => count(&lru.fruitless, scanned),
            _ => lru.fruitless.store(0, Relaxed),
        }
        Shrunk { scanned, reclaimed, slab: 0 }
    }

    /// Whether a mapped page is kept: always if it may not be unmapped, else once if it was used
    /// since the last look (LB H.6). If not, it is unmapped.
    fn stays_mapped(&self, page: &Exclusive<'_>, may: May) -> bool {
        let state = page.state();
        if !state.has(PageState::MAPPED) {
            return false;
        }
        if may.unmap {
            page.clear(PageState::REFERENCED);
        }
        let stays = !may.unmap || state.has(PageState::REFERENCED);
        if !stays {
            self.unmap(page);
        }
        stays
    }

    /// The file of a page. Neighbours on a list often share one.
    fn owner(&self, id: u32, last: &mut Option<Arc<File>>) -> Option<Arc<File>> {
        if last.as_ref().is_none_or(|file| file.id != id) {
            *last = self.files().by_id.get(&id).cloned();
        }
        last.clone()
    }
}

/// What a look at the inactive list may do.
#[derive(Clone, Copy, Debug)]
struct May {
    /// Dirty pages may be written.
    write: bool,
    /// Mapped pages may be unmapped.
    unmap: bool,
    /// Pages used since the last look stay once more.
    chance: bool,
}

/// The cache's lists, for a pass of its own.
struct Own<'a> {
    inner: &'a Inner,
    pass: &'a Pass,
}

impl Lists for Own<'_> {
    fn lengths(&mut self) -> FileLists {
        let held = self.inner.holdings(self.pass.unit);
        FileLists { inactive: held.inactive_file, active: held.active_file }
    }
    fn shrink_inactive(&mut self, pages: u64) -> Shrunk {
        self.inner.shrink_inactive(pages, self.pass)
    }
    fn shrink_active(&mut self, pages: u64) {
        PageLru::shrink_active(self.inner, pages, self.pass);
    }
}
