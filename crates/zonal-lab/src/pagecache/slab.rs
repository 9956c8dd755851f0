//! Objects of a file system (names and inodes), packed into pages, given up oldest first.

use std::collections::VecDeque;

use zonal_core::reclaim::shrinker::{BATCH_DEFAULT, SEEKS_DEFAULT, ShrinkPass};

/// Bytes of what is kept of a file: a name and an inode (`dentry`, 192, and `ext4_inode_cache`,
/// about 1000 in kernels of these years).
const FILE_BYTES: u64 = 1200;
/// Objects of one file: a name and an inode.
const FILE_OBJECTS: u64 = 2;
/// Times an object is looked at before it goes: the first time it counts as used.
const LOOKS: u64 = 2;
const PAGE_BYTES: u64 = 4096;

/// A page of objects.
#[derive(Debug)]
struct SlabPage {
    frame: u32,
    objects: u64,
    /// Looks until all of them are given up.
    looks: u64,
}

/// All of them.
#[derive(Debug)]
pub struct Slab {
    pages: VecDeque<SlabPage>,
    objects: u64,
    per_page: u64,
    deferred: u64,
    /// Pages by zone.
    pub by_zone: Vec<u64>,
    /// Objects looked at so far.
    pub scanned: u64,
}

impl Slab {
    /// None yet; `scale` pages of the machine are one of the model.
    pub fn new(zones: usize, scale: u64) -> Slab {
        Slab {
            pages: VecDeque::new(),
            objects: 0,
            per_page: PAGE_BYTES * scale / FILE_BYTES * FILE_OBJECTS,
            deferred: 0,
            by_zone: vec![0; zones],
            scanned: 0,
        }
    }

    /// A file was made. `false`: a page is missing.
    pub fn add_file(&mut self) -> bool {
        match self.pages.back_mut() {
            Some(page) if page.objects < self.per_page => {
                page.objects += FILE_OBJECTS;
                page.looks += FILE_OBJECTS * LOOKS;
                self.objects += FILE_OBJECTS;
                true
            }
            _ => false,
        }
    }

    /// A page for more objects.
    pub fn add_page(&mut self, frame: u32, zone: usize) {
        self.by_zone[zone] += 1;
        self.pages.push_back(SlabPage { frame, objects: 0, looks: 0 });
    }

    /// One pass (LB H.7). Pages that became free are added to `free`; [`forget`](Self::forget)
    /// takes them off their zones' counts. Returns the objects given up.
    pub fn shrink(&mut self, priority: u32, free: &mut Vec<u32>) -> u64 {
        let (objects, deferred) = (self.objects, self.deferred);
        let mut pass = ShrinkPass::new(objects, deferred, priority, SEEKS_DEFAULT, BATCH_DEFAULT);
        while let Some(asked) = pass.next() {
            let freed = self.look_at(asked, free);
            pass.did(asked, freed);
        }
        self.deferred = pass.put_off();
        self.scanned += pass.scanned();
        pass.freed()
    }

    /// A page is free now.
    pub fn forget(&mut self, zone: usize) {
        self.by_zone[zone] -= 1;
    }

    /// Pages there are.
    pub fn pages(&self) -> u64 {
        self.pages.len() as u64
    }

    fn look_at(&mut self, mut looks: u64, free: &mut Vec<u32>) -> u64 {
        let before = self.objects;
        // The page being filled stays.
        while looks > 0 && self.pages.len() > 1 {
            let Some(page) = self.pages.front_mut() else { break };
            let now = looks.min(page.looks);
            (page.looks, looks) = (page.looks - now, looks - now);
            let left = page.objects.min(page.looks.div_ceil(LOOKS));
            self.objects -= page.objects - left;
            page.objects = left;
            if page.looks == 0 {
                free.push(page.frame);
                self.pages.pop_front();
            }
        }
        before - self.objects
    }
}
