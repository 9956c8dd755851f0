//! Operations of a load on files.

use zonal_core::gfp::Gfp;
use zonal_core::platform::Platform;
use zonal_core::types::{Order, Pfn};

use super::frames::Flag;
use super::machine::{CacheMachine, Until};
use super::model::ABSENT;
use crate::cost::kernel::{FAULT_NS, UNMAP_NS, WRITE_PAGE_NS};
use crate::provenance::{Provenance, given};

given! {
    /// Pages of a file that one block of its map covers (ext3: 1024 numbers of 4 bytes).
    MAP_BLOCK_PAGES: u64 = 1024,
        Provenance::sourced("ext3: 1024 block numbers of 4 bytes");
}

impl CacheMachine<'_, '_> {
    /// A new file, with a name and an inode, and the pages that the file system writes besides its
    /// data.
    pub fn create(&mut self, extra: u64) -> u32 {
        let platform = self.allocator.platform();
        let file = platform.model().create(extra);
        let (asks, known) = platform.model().slab.add_file(file);
        if asks && let Some(at) = self.take_page(Gfp::KERNEL.union(Gfp::RECLAIMABLE)) {
            self.give(Pfn(u64::from(at)), Order::ZERO);
        }
        if !known && let Some(at) = self.take_page(Gfp::KERNEL.union(Gfp::RECLAIMABLE)) {
            let mut model = platform.model();
            let zone = usize::from(model.frames.get(at).zone);
            model.slab.add_page(at, zone);
            model.slab.add_file(file);
        }
        file
    }

    /// A page of a file is cached now; it has a buffer head.
    fn add_head(&mut self) {
        let platform = self.allocator.platform();
        let model = platform.model();
        let lacks = model.slab.lacks_head(model.cached());
        drop(model);
        let gfp = Gfp::KERNEL.union(Gfp::RECLAIMABLE).without(Gfp::FS);
        if lacks && let Some(at) = self.take_page(gfp) {
            let mut model = platform.model();
            let zone = usize::from(model.frames.get(at).zone);
            model.slab.add_head(at, zone);
        }
    }

    /// Writes a page of a file. `Err`: there was no memory; what to wait for before the next try.
    ///
    /// # Errors
    /// See above.
    pub fn write(&mut self, file: u32, index: u32) -> Result<(), Until> {
        // The file system is at work already.
        let gfp = Gfp::HIGHUSER_MOVABLE.union(Gfp::WRITE).without(Gfp::FS);
        let at = self.page_of(file, index, gfp)?;
        let platform = self.allocator.platform();
        platform.work_on_pages(1, WRITE_PAGE_NS);
        let mut model = platform.model();
        model.touch(at);
        model.make_dirty(at, platform.now_ns());
        Ok(())
    }

    /// Writes a page of a file through a mapping.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn fault(&mut self, file: u32, index: u32) -> Result<(), Until> {
        let at = self.page_of(file, index, Gfp::HIGHUSER_MOVABLE)?;
        let platform = self.allocator.platform();
        platform.work_on_pages(1, FAULT_NS);
        let mut model = platform.model();
        model.map(at);
        model.make_dirty(at, platform.now_ns());
        Ok(())
    }

    /// Reads a page of a file that was written once.
    ///
    /// # Errors
    /// It is not there yet, or there is no memory: what to wait for before the next try.
    pub fn read(&mut self, file: u32, index: u32) -> Result<(), Until> {
        let platform = self.allocator.platform();
        let mut model = platform.model();
        if let Some(at) = model.frame_of(file, index) {
            if model.frames.get(at).has(Flag::Reading) {
                let read = model.files[file as usize].last_read;
                return Err(Until::Read(read));
            }
            model.touch(at);
            drop(model);
            platform.work_on_pages(1, WRITE_PAGE_NS);
            return Ok(());
        }
        let ahead = model.disk.readahead_pages();
        let end = (model.files[file as usize].pages.len() as u32).min(index + ahead);
        let wanted = (index..end).take_while(|index| model.frame_of(file, *index).is_none());
        let wanted = wanted.count() as u32;
        drop(model);
        let mut frames = Vec::new();
        for index in index..index + wanted {
            let Some(at) = self.take_page(Gfp::HIGHUSER_MOVABLE) else { break };
            let mut model = platform.model();
            model.insert(at, file, index);
            // It must not go before it was read.
            model.frames.of(at).set(Flag::Reading);
            drop(model);
            frames.push(at);
            self.add_head();
        }
        if frames.is_empty() {
            return Err(self.refused());
        }
        let mut model = platform.model();
        let read = model.start_read(file, index, frames, platform.now_ns());
        model.files[file as usize].last_read = read;
        Err(Until::Read(read))
    }

    /// Deletes a file without pages under write-back. A block of its map came with the first page
    /// that it covers: where that page is not cached, nor is the block, which is then read first.
    pub fn delete(&mut self, file: u32) {
        let platform = self.allocator.platform();
        let mut model = platform.model();
        let pages = model.files[file as usize].pages.clone();
        let is_cached = |at: &u32| *at != ABSENT;
        let covered = (MAP_BLOCK_PAGES / self.scale).max(1) as usize;
        let lost = pages.chunks(covered).filter(|part| part[0] == ABSENT).count() as u64;
        let cached: Vec<u32> = pages.into_iter().filter(is_cached).collect();
        for at in &cached {
            model.remove(*at);
        }
        model.files[file as usize].pages = Vec::new();
        model.traffic.read += lost;
        let read_ns = model.disk.lone_page_ns();
        drop(model);
        platform.pass_ns(lost * read_ns);
        platform.work_on_pages(cached.len() as u64, UNMAP_NS);
        platform.give_back(&cached);
    }

    /// The load waits until everything is written.
    pub fn sync(&mut self) -> Until {
        self.syncing = true;
        self.allocator.platform().model().progress = true;
        Until::Written
    }

    /// The frame of a page of a file, new if need be.
    fn page_of(&mut self, file: u32, index: u32, gfp: Gfp) -> Result<u32, Until> {
        let platform = self.allocator.platform();
        if let Some(at) = platform.model().frame_of(file, index) {
            return Ok(at);
        }
        let at = self.take_page(gfp).ok_or_else(|| self.refused())?;
        platform.model().insert(at, file, index);
        self.add_head();
        Ok(at)
    }
}
