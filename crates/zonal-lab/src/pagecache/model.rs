//! The pages of files: which there are, on which list, dirty or being written.

use std::collections::{HashSet, VecDeque};

use zonal_core::policy::walk::ReclaimUnit;
use zonal_core::reclaim::lists::FileLists;

use super::disk::{Disk, Transfer};
use super::frames::{Flag, Frames, List};
use super::slab::Slab;

/// Not in the cache.
pub const ABSENT: u32 = u32::MAX;

/// Sizes of a zone, in pages of the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// On the inactive and on the active list.
    pub listed: [u64; 2],
    /// Dirty, and not being written yet.
    pub dirty: u64,
    /// Being written.
    pub writeback: u64,
    /// Mapped.
    pub mapped: u64,
}

/// The lists of a zone, or of a node where nodes are reclaimed.
#[derive(Debug, Default)]
pub struct Lists {
    /// Pages not used lately.
    pub inactive: List,
    /// Pages used lately.
    pub active: List,
    /// Pages scanned since one was reclaimed.
    pub fruitless: u64,
    /// The background reclaimer found nothing for long (LB G.3, up to 4.7).
    pub given_up: bool,
}

/// A file.
#[derive(Debug, Default)]
pub struct FileState {
    /// Its frames, by place.
    pub pages: Vec<u32>,
    /// Places that became dirty, in that order; some have been cleaned since.
    dirty: VecDeque<u32>,
    /// Since when it is on the list of dirty files.
    since_ns: u64,
    queued: bool,
    /// The last read of it.
    pub last_read: u64,
    /// Pages of the machine that the file system writes with its first one.
    pub extra: u64,
    /// Pages dirty or being written.
    unwritten: u64,
}

/// What went through the cache, in pages of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Read.
    pub read: u64,
    /// Written.
    pub written: u64,
}

/// The page cache and its disk.
#[derive(Debug)]
pub struct Model {
    /// Every page.
    pub frames: Frames,
    /// By zone.
    pub sizes: Vec<Sizes>,
    /// Lists of a zone: where they are.
    pub list_of: Vec<usize>,
    /// All lists.
    pub lists: Vec<Lists>,
    /// Every file.
    pub files: Vec<FileState>,
    dirty_files: VecDeque<u32>,
    /// The disk.
    pub disk: Disk,
    /// Objects of the file system.
    pub slab: Slab,
    /// Dirty pages of all zones.
    pub dirty: u64,
    /// Pages that reclaim wants written soon.
    pub kicked: u64,
    /// What went through.
    pub traffic: Traffic,
    /// Pages reclaimed with their files.
    pub stolen: u64,
    /// Pages that reclaim sent to the disk (`nr_vmscan_write`).
    pub vmscan_writes: u64,
    /// Reads that are not done.
    reading: HashSet<u64>,
    /// Requests that were done, for the interrupts they make.
    pub interrupts: u64,
    /// An event that threads may wait for has happened.
    pub progress: bool,
    /// What is reclaimed as one: the lists' rules are those of the same kernels.
    unit: ReclaimUnit,
    scale: u64,
}

impl Model {
    /// An empty cache over zones that end before these frames, with these lists, on this disk.
    pub fn new(
        zone_ends: &[u64],
        (unit, list_of): (ReclaimUnit, Vec<usize>),
        disk: Disk,
        scale: u64,
    ) -> Model {
        let lists = list_of.iter().max().map_or(0, |most| most + 1);
        Model {
            frames: Frames::new(zone_ends),
            sizes: vec![Sizes::default(); zone_ends.len()],
            list_of,
            lists: (0..lists).map(|_| Lists::default()).collect(),
            files: Vec::new(),
            dirty_files: VecDeque::new(),
            disk,
            slab: Slab::new(zone_ends.len(), unit, scale),
            dirty: 0,
            kicked: 0,
            traffic: Traffic::default(),
            stolen: 0,
            vmscan_writes: 0,
            reading: HashSet::new(),
            interrupts: 0,
            progress: false,
            unit,
            scale,
        }
    }

    /// Pages of files, of all zones.
    pub fn cached(&self) -> u64 {
        self.sizes.iter().map(|sizes| sizes.listed[0] + sizes.listed[1]).sum()
    }

    /// A new file, without pages, and the pages of the machine that the file system writes for it.
    pub fn create(&mut self, extra: u64) -> u32 {
        self.files.push(FileState { extra, ..FileState::default() });
        self.files.len() as u32 - 1
    }

    /// The frame of a page, if it is cached.
    pub fn frame_of(&self, file: u32, index: u32) -> Option<u32> {
        let at = *self.files[file as usize].pages.get(index as usize)?;
        (at != ABSENT).then_some(at)
    }

    /// A frame now holds this page of a file, on the inactive list.
    pub fn insert(&mut self, at: u32, file: u32, index: u32) {
        let pages = &mut self.files[file as usize].pages;
        if pages.len() <= index as usize {
            pages.resize(index as usize + 1, ABSENT);
        }
        pages[index as usize] = at;
        self.frames.own(at, file, index);
        self.put(at, false);
    }

    /// Reclaims the page: its frame may be freed.
    pub fn remove(&mut self, at: u32) {
        self.take_off(at);
        let frame = self.frames.of(at);
        let sizes = &mut self.sizes[frame.zone as usize];
        if frame.clear(Flag::Mapped) {
            sizes.mapped -= 1;
        }
        if frame.clear(Flag::Dirty) {
            sizes.dirty -= 1;
            self.dirty -= 1;
            self.files[frame.file as usize].unwritten -= 1;
        }
        let (file, index) = (frame.file, frame.index);
        self.files[file as usize].pages[index as usize] = ABSENT;
        let lists = &mut self.lists[self.list_of[self.frames.get(at).zone as usize]];
        (lists.fruitless, lists.given_up) = (0, false);
    }

    /// Reclaims objects of files (LB H.7), and with a file its cached pages (`pginodesteal`).
    /// Returns how many objects, and the frames of theirs and of files' pages.
    pub fn prune(&mut self, priority: u32) -> (u64, Vec<u32>, Vec<u32>) {
        let Model { slab, files, .. } = self;
        let pruned = slab.shrink(priority, |file| files[file as usize].unwritten == 0);
        for at in &pruned.pages {
            slab.forget(usize::from(self.frames.get(*at).zone));
        }
        let mut stolen = Vec::new();
        for file in pruned.files {
            let pages = self.files[file as usize].pages.clone();
            for at in pages.into_iter().filter(|at| *at != ABSENT) {
                let frame = self.frames.get(at);
                if !frame.has(Flag::Mapped) && !frame.has(Flag::Reading) {
                    self.remove(at);
                    stolen.push(at);
                }
            }
        }
        self.stolen += stolen.len() as u64;
        (pruned.objects, pruned.pages, stolen)
    }

    /// A frame of heads that the pages cached now do not need.
    pub fn spare_head(&mut self) -> Option<u32> {
        let at = self.slab.spare_head(self.cached())?;
        self.slab.forget(usize::from(self.frames.get(at).zone));
        Some(at)
    }

    /// Pages being written, of all zones.
    pub fn writeback(&self) -> u64 {
        self.sizes.iter().map(|sizes| sizes.writeback).sum()
    }

    /// Whether a list's inactive part is too short. For pages of files the two parts were to be of
    /// one length until 4.6; since then the active one may be longer the more memory there is (LB
    /// H.1).
    pub fn inactive_is_low(&self, list: usize) -> bool {
        let Lists { inactive, active, .. } = &self.lists[list];
        match self.unit {
            ReclaimUnit::Zone => inactive.len < active.len,
            ReclaimUnit::Node => {
                let (inactive, active) = (inactive.len * self.scale, active.len * self.scale);
                FileLists { inactive, active }.inactive_is_low()
            }
        }
    }

    /// Whether pages under write-back wait on the active list (since 4.11); before, they rotate on
    /// the inactive one.
    pub fn moves_unwritten(&self) -> bool {
        self.unit == ReclaimUnit::Node
    }

    /// Puts a frame that is on no list on one, as the newest.
    pub fn put(&mut self, at: u32, active: bool) {
        let frame = self.frames.of(at);
        let zone = frame.zone as usize;
        match active {
            true => frame.set(Flag::Active),
            false => frame.clear(Flag::Active),
        };
        self.sizes[zone].listed[usize::from(active)] += 1;
        let lists = &mut self.lists[self.list_of[zone]];
        let list = if active { &mut lists.active } else { &mut lists.inactive };
        list.push(&mut self.frames, at);
    }

    /// Takes a frame off its list.
    pub fn take_off(&mut self, at: u32) {
        let frame = self.frames.get(at);
        let (zone, active) = (frame.zone as usize, frame.has(Flag::Active));
        self.sizes[zone].listed[usize::from(active)] -= 1;
        let lists = &mut self.lists[self.list_of[zone]];
        let list = if active { &mut lists.active } else { &mut lists.inactive };
        list.unlink(&mut self.frames, at);
    }

    /// A read or a write used the page (`mark_page_accessed`): the second time it becomes active.
    pub fn touch(&mut self, at: u32) {
        let frame = self.frames.of(at);
        if frame.has(Flag::Referenced) && !frame.has(Flag::Active) {
            frame.clear(Flag::Referenced);
            self.take_off(at);
            self.put(at, true);
        } else {
            frame.set(Flag::Referenced);
        }
    }

    /// The page is mapped, and used that way.
    pub fn map(&mut self, at: u32) {
        let frame = self.frames.of(at);
        frame.set(Flag::Young);
        if !frame.set(Flag::Mapped) {
            self.sizes[frame.zone as usize].mapped += 1;
        }
    }

    /// The page is mapped no more.
    pub fn unmap(&mut self, at: u32) {
        let frame = self.frames.of(at);
        if frame.clear(Flag::Mapped) {
            self.sizes[frame.zone as usize].mapped -= 1;
        }
    }

    /// The page was changed.
    pub fn make_dirty(&mut self, at: u32, now_ns: u64) {
        let frame = self.frames.of(at);
        if frame.set(Flag::Dirty) {
            return;
        }
        let (file, index) = (frame.file, frame.index);
        self.sizes[frame.zone as usize].dirty += 1;
        self.dirty += 1;
        let state = &mut self.files[file as usize];
        state.unwritten += 1;
        state.dirty.push_back(index);
        if !state.queued {
            (state.queued, state.since_ns) = (true, now_ns);
            self.dirty_files.push_back(file);
        }
    }

    /// Since when the oldest dirty file is dirty.
    pub fn oldest_dirty_ns(&self) -> Option<u64> {
        self.dirty_files.front().map(|file| self.files[*file as usize].since_ns)
    }

    /// Sends up to `most` dirty pages of the oldest dirty file to the disk, run by run; if it has
    /// more, the other files come first next time. Returns the pages.
    pub fn write_oldest(&mut self, most: u64, now_ns: u64) -> u64 {
        let Some(file) = self.dirty_files.pop_front() else { return 0 };
        let mut sent = 0;
        while sent < most {
            let Some(index) = self.files[file as usize].dirty.pop_front() else { break };
            let Some(at) = self.frame_of(file, index) else { continue };
            if self.start_write(at, now_ns) {
                sent += 1;
            } else if self.frames.get(at).has(Flag::Dirty) {
                // Changed while it is being written: later.
                self.files[file as usize].dirty.push_back(index);
                break;
            }
        }
        let state = &mut self.files[file as usize];
        state.queued = !state.dirty.is_empty();
        if state.queued {
            self.dirty_files.push_back(file);
        }
        self.kicked = self.kicked.saturating_sub(sent);
        sent
    }

    /// Sends one page to the disk. `false`: it is clean, or already under write-back.
    pub fn start_write(&mut self, at: u32, now_ns: u64) -> bool {
        let frame = self.frames.of(at);
        if !frame.has(Flag::Dirty) || frame.has(Flag::Writeback) {
            return false;
        }
        frame.clear(Flag::Dirty);
        frame.set(Flag::Writeback);
        let (file, index) = (frame.file, frame.index);
        let sizes = &mut self.sizes[frame.zone as usize];
        (sizes.dirty, sizes.writeback) = (sizes.dirty - 1, sizes.writeback + 1);
        self.dirty -= 1;
        let mut transfer = Disk::transfer(true, (file, index), vec![at]);
        transfer.extra = std::mem::take(&mut self.files[file as usize].extra);
        self.disk.submit(now_ns, transfer);
        true
    }

    /// Reads pages of a file into these frames, which hold them already. Returns the request.
    pub fn start_read(&mut self, file: u32, index: u32, frames: Vec<u32>, now_ns: u64) -> u64 {
        for at in &frames {
            self.frames.of(*at).set(Flag::Reading);
        }
        let read = self.disk.submit(now_ns, Disk::transfer(false, (file, index), frames));
        self.reading.insert(read);
        read
    }

    /// Whether a read is still to be done.
    pub fn is_reading(&self, read: u64) -> bool {
        self.reading.contains(&read)
    }

    /// Completes the disk's requests that are done by now.
    pub fn advance(&mut self, now_ns: u64) {
        while let Some(done) = self.disk.next_done(now_ns) {
            self.progress = true;
            self.interrupts += 1;
            self.finish(&done);
        }
    }

    fn finish(&mut self, done: &Transfer) {
        let pages = done.frames.len() as u64 * self.scale + done.extra;
        if !done.write {
            self.traffic.read += pages;
            self.reading.remove(&done.id);
            for at in &done.frames {
                self.frames.of(*at).clear(Flag::Reading);
            }
            return;
        }
        self.traffic.written += pages;
        for at in &done.frames {
            let frame = self.frames.of(*at);
            frame.clear(Flag::Writeback);
            self.sizes[frame.zone as usize].writeback -= 1;
            self.files[frame.file as usize].unwritten -= 1;
            // Reclaim met it before: it is looked at next.
            if frame.clear(Flag::Rotate)
                && (self.unit == ReclaimUnit::Node || !frame.has(Flag::Active))
            {
                self.take_off(*at);
                self.put(*at, false);
                let lists = &mut self.lists[self.list_of[self.frames.get(*at).zone as usize]];
                lists.inactive.unlink(&mut self.frames, *at);
                lists.inactive.push_oldest(&mut self.frames, *at);
            }
        }
    }

    /// Walks everything: lists and counts agree. Returns the cached pages.
    ///
    /// # Panics
    /// If they do not.
    pub fn validate(&self) -> u64 {
        let mut sizes = vec![Sizes::default(); self.sizes.len()];
        for (file, state) in self.files.iter().enumerate() {
            for (index, at) in state.pages.iter().enumerate().filter(|page| *page.1 != ABSENT) {
                let frame = self.frames.get(*at);
                assert_eq!((frame.file as usize, frame.index as usize), (file, index));
                let sizes = &mut sizes[frame.zone as usize];
                sizes.listed[usize::from(frame.has(Flag::Active))] += 1;
                sizes.dirty += u64::from(frame.has(Flag::Dirty));
                sizes.mapped += u64::from(frame.has(Flag::Mapped));
                sizes.writeback += u64::from(frame.has(Flag::Writeback));
            }
        }
        assert_eq!(sizes, self.sizes);
        assert_eq!(self.writeback(), sizes.iter().map(|sizes| sizes.writeback).sum::<u64>());
        assert_eq!(self.dirty, sizes.iter().map(|sizes| sizes.dirty).sum::<u64>());
        let listed: u64 = self.lists.iter().map(|l| l.inactive.len + l.active.len).sum();
        assert_eq!(listed, self.cached());
        listed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    /// One zone of 64 frames, the first of which hold pages of a file.
    fn model(unit: ReclaimUnit, scale: u64, pages: u32) -> Model {
        let disk = Machine::named("westmere-2011-24").unwrap().disk.unwrap();
        let mut model = Model::new(&[64], (unit, vec![0]), Disk::new(disk, scale, 1), scale);
        let file = model.create(0);
        (0..pages).for_each(|at| model.insert(at, file, at));
        model
    }

    /// Sizes of the machine decide, not those of the model.
    #[test]
    fn how_long_the_active_list_may_be_changed_with_4_7() {
        // 64 pages of which each is 64 MiB are 4 GiB: isqrt(40) = 6 active ones to an inactive one.
        for (unit, active, low) in [
            (ReclaimUnit::Zone, 32, false),
            (ReclaimUnit::Zone, 33, true),
            (ReclaimUnit::Node, 54, false),
            (ReclaimUnit::Node, 55, true),
        ] {
            let mut model = model(unit, 1 << 14, 64);
            for at in 0..active {
                model.touch(at);
                model.touch(at);
            }
            assert_eq!(model.inactive_is_low(0), low, "{unit:?} {active}");
            model.validate();
        }
    }

    /// Wherever reclaim left it, a page that reclaim met comes to the old end once it is written.
    #[test]
    fn a_page_that_reclaim_met_is_looked_at_next_once_it_is_written() {
        for unit in [ReclaimUnit::Zone, ReclaimUnit::Node] {
            let mut model = model(unit, 1, 8);
            model.make_dirty(5, 0);
            assert!(model.start_write(5, 0));
            model.frames.of(5).set(Flag::Rotate);
            model.take_off(5);
            model.put(5, model.moves_unwritten());
            assert_ne!(model.lists[0].inactive.oldest(), Some(5));
            model.advance(u64::MAX);
            assert_eq!(model.lists[0].inactive.oldest(), Some(5), "{unit:?}");
            assert_eq!(model.validate(), 8);
        }
    }
}
