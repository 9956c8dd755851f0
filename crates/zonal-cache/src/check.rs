//! Checks the whole cache.

use std::sync::atomic::Ordering::Relaxed;

use crate::inner::Inner;
use crate::state::PageState;

impl Inner {
    /// Checks lists, indexes and counts against each other.
    pub fn validate(&self) -> Result<(), String> {
        self.lru.iter().try_for_each(|lru| lru.validate(&self.frames))?;
        let files = self.files();
        let pages: usize = files.by_id.values().map(|file| file.index.pages(0).len()).sum();
        let stats = self.stats();
        if pages as u64 != stats.pages || stats.active + stats.inactive != stats.pages {
            return Err(format!("INDEX: {pages} pages in files, {stats:?}"));
        }
        let in_use: usize =
            (0..self.frames.len()).filter(|at| self.frames.state(*at).users() > 0).count();
        let mapped =
            (0..self.frames.len()).filter(|at| self.frames.state(*at).has(PageState::MAPPED));
        let by_zone: u64 = self.lru.iter().map(|lru| lru.mapped.load(Relaxed)).sum();
        let mapped = mapped.count();
        if in_use != 0 || mapped as u64 != by_zone {
            return Err(format!(
                "STATE: {in_use} pages in use, {mapped} mapped, {by_zone} in zones"
            ));
        }
        let dirty: usize = files.by_id.values().map(|file| file.dirty_pages().len()).sum();
        let by_zone: u64 = self.lru.iter().map(|lru| lru.dirty.load(Relaxed)).sum();
        let written: u64 = self.lru.iter().map(|lru| lru.writeback.load(Relaxed)).sum();
        if dirty as u64 != stats.dirty || by_zone != stats.dirty || written != 0 {
            return Err(format!(
                "DIRTY: {dirty} in files, {by_zone} in zones, {written} being written, {stats:?}"
            ));
        }
        Ok(())
    }
}
