//! Objects of a file system, packed into pages.
//!
//! Reclaim takes names and inodes, oldest first, and with an inode the cached pages of its file
//! (`pginodesteal`). An inode with something unwritten cannot go.
//!
//! Heads (the block layer's and the index's records of cached pages) cannot be reclaimed: they go
//! with their pages. They still count as reclaimable, which takes a zone over the limit from which
//! on node reclaim asks for objects (LB G.2, G.3).

use std::collections::VecDeque;

use crate::provenance::{Provenance, given};
use crate::units::PAGE_BYTES;
use zonal_core::policy::walk::ReclaimUnit;
use zonal_core::reclaim::shrinker::{BATCH_DEFAULT, SEEKS_DEFAULT, ShrinkPass};

given! {
    /// Objects of one file: a name and an inode.
    FILE_OBJECTS: u64 = 2,
        Provenance::sourced("a dentry and an inode");
    /// Times an object is looked at before it goes: the first time it counts as used.
    LOOKS: u64 = 2,
        Provenance::sourced("DCACHE_REFERENCED: the first look counts as use");
    /// Cached pages whose heads fill a page: of buffer heads (`buffer_head`, 104 bytes) a page
    /// holds 39; of nodes of files' indices (`radix_tree_node`, 560 bytes, 64 pages), 7.
    HEADS_PER_PAGE: u64 = 39 * 448 / (39 + 448),
        Provenance::sourced("buffer_head 104 bytes, radix_tree_node 560, kernels of these years");
    /// Bytes of what is kept of a file: a name and an inode (`dentry`, 192, and `ext4_inode_cache`,
    /// about 1000 in kernels of these years).
    FILE_BYTES: u64 = 1200,
        Provenance::sourced(
            "dentry 192 bytes, ext4_inode_cache about 1000, kernels of these years",
        );
}

/// A page of objects.
#[derive(Debug)]
struct SlabPage {
    frame: u32,
    /// The files they belong to, oldest first.
    files: VecDeque<u32>,
    objects: u64,
    /// Scans until all of them are reclaimed.
    looks: u64,
}

/// Objects that a pass reclaimed.
#[derive(Debug, Default)]
pub struct Pruned {
    /// Objects.
    pub objects: u64,
    /// Files without objects.
    pub files: Vec<u32>,
    /// Pages of objects.
    pub pages: Vec<u32>,
}

/// All of them.
#[derive(Debug)]
pub struct Slab {
    pages: VecDeque<SlabPage>,
    /// Pages with heads of cached pages, oldest first. Not reclaimable: they go with their cached
    /// pages.
    heads: VecDeque<u32>,
    objects: u64,
    per_page: u64,
    deferred: u64,
    unit: ReclaimUnit,
    /// Pages by zone.
    pub by_zone: Vec<u64>,
    /// Objects looked at so far.
    pub scanned: u64,
}

impl Slab {
    /// None yet; `scale` pages of the machine are one of the model.
    pub fn new(zones: usize, unit: ReclaimUnit, scale: u64) -> Slab {
        Slab {
            pages: VecDeque::new(),
            heads: VecDeque::new(),
            objects: 0,
            per_page: PAGE_BYTES * scale / FILE_BYTES * FILE_OBJECTS,
            deferred: 0,
            unit,
            by_zone: vec![0; zones],
            scanned: 0,
        }
    }

    /// A file was made. The first: its objects begin a page of the machine; the second: there is
    /// room for them in a page of the model, and they are known.
    pub fn add_file(&mut self, file: u32) -> (bool, bool) {
        let page = |files: u64| files * FILE_BYTES / PAGE_BYTES;
        let begins = page(u64::from(file)) != page(u64::from(file) + 1);
        let known = match self.pages.back_mut() {
            Some(page) if page.objects < self.per_page => {
                page.files.push_back(file);
                page.objects += FILE_OBJECTS;
                page.looks += FILE_OBJECTS * LOOKS;
                self.objects += FILE_OBJECTS;
                true
            }
            _ => false,
        };
        (begins, known)
    }

    /// A page for more objects.
    pub fn add_page(&mut self, frame: u32, zone: usize) {
        self.by_zone[zone] += 1;
        self.pages.push_back(SlabPage { frame, files: VecDeque::new(), objects: 0, looks: 0 });
    }

    /// Whether this number of cached pages needs another page for its heads.
    pub fn lacks_head(&self, cached: u64) -> bool {
        (self.heads.len() as u64) * HEADS_PER_PAGE < cached
    }

    /// A page for more heads.
    pub fn add_head(&mut self, frame: u32, zone: usize) {
        self.by_zone[zone] += 1;
        self.heads.push_back(frame);
    }

    /// A page of heads that this number of cached pages does not need.
    pub fn spare_head(&mut self, cached: u64) -> Option<u32> {
        let spare = (self.heads.len() as u64) > cached.div_ceil(HEADS_PER_PAGE);
        if spare { self.heads.pop_front() } else { None }
    }

    /// One pass (LB H.7), up to the first file that is not settled. [`forget`](Self::forget) takes
    /// pages that became free off their zones' counts.
    pub fn shrink(&mut self, priority: u32, is_settled: impl Fn(u32) -> bool) -> Pruned {
        let (objects, deferred) = (self.objects, self.deferred);
        let mut pruned = Pruned::default();
        if self.unit == ReclaimUnit::Zone {
            // As long as zones were reclaimed, all that was put off came back with the next pass.
            let part = (objects >> priority) * 4 / u64::from(SEEKS_DEFAULT);
            let mut due = (deferred + part).min(2 * objects);
            while due >= BATCH_DEFAULT {
                let looked = self.look_at(BATCH_DEFAULT, &is_settled, &mut pruned);
                if looked == 0 {
                    break;
                }
                (due, self.scanned) = (due - looked, self.scanned + looked);
            }
            self.deferred = due;
            pruned.objects = objects - self.objects;
            return pruned;
        }
        let mut pass = ShrinkPass::new(objects, deferred, priority, SEEKS_DEFAULT, BATCH_DEFAULT);
        while let Some(asked) = pass.next() {
            let looked = self.look_at(asked, &is_settled, &mut pruned);
            if looked == 0 {
                break;
            }
            pass.did(looked, 0);
        }
        self.deferred = pass.put_off();
        self.scanned += pass.scanned();
        pruned.objects = objects - self.objects;
        pruned
    }

    /// A page is free now.
    pub fn forget(&mut self, zone: usize) {
        self.by_zone[zone] -= 1;
    }

    /// Pages there are.
    pub fn pages(&self) -> u64 {
        (self.pages.len() + self.heads.len()) as u64
    }

    /// Returns the looks that there was something for.
    fn look_at(
        &mut self,
        most: u64,
        is_settled: &impl Fn(u32) -> bool,
        pruned: &mut Pruned,
    ) -> u64 {
        let mut looks = most;
        // The page being filled stays.
        while looks > 0 && self.pages.len() > 1 {
            let Some(page) = self.pages.front_mut() else { break };
            if !page.files.iter().all(|file| is_settled(*file)) {
                break;
            }
            let now = looks.min(page.looks);
            (page.looks, looks) = (page.looks - now, looks - now);
            let left = page.objects.min(page.looks.div_ceil(LOOKS));
            self.objects -= page.objects - left;
            page.objects = left;
            while page.files.len() as u64 * FILE_OBJECTS > left {
                pruned.files.extend(page.files.pop_front());
            }
            if page.looks == 0 {
                pruned.pages.push(page.frame);
                self.pages.pop_front();
            }
        }
        most - looks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes files, with a page of objects whenever one is missing.
    fn slab_of(files: u32, unit: ReclaimUnit) -> Slab {
        let mut slab = Slab::new(1, unit, 1);
        for file in 0..files {
            if !slab.add_file(file).1 {
                slab.add_page(1000 + file, 0);
                assert!(slab.add_file(file).1);
            }
        }
        slab
    }

    /// 1200 bytes a file: three to a page, of two objects each, each looked at twice. Priority 0
    /// asks for all of them twice, in whole batches: `600 * 2 / 128` is 9, `9 * 128 / 4` are 288.
    #[test]
    fn the_oldest_files_go_first_in_whole_batches() {
        let mut slab = slab_of(300, ReclaimUnit::Zone);
        assert_eq!((slab.by_zone[0], slab.pages()), (100, 100));
        let pruned = slab.shrink(0, |_| true);
        assert_eq!(pruned.files, (0..288).collect::<Vec<_>>());
        assert_eq!((pruned.objects, pruned.pages.len()), (2 * 288, 96));
        assert_eq!((pruned.pages[0], pruned.pages[95]), (1000, 1000 + 95 * 3));
        assert_eq!(slab.scanned, 9 * 128);
    }

    #[test]
    fn files_with_something_unwritten_stay_and_so_do_those_behind() {
        let mut slab = slab_of(300, ReclaimUnit::Zone);
        let pruned = slab.shrink(0, |file| file != 100);
        // File 100 is in the page of 99 to 101.
        assert_eq!(pruned.files, (0..99).collect::<Vec<_>>());
        assert!(slab.shrink(0, |file| file != 100).files.is_empty());
        assert_eq!(slab.shrink(0, |_| true).files[0], 99);
    }

    /// Each pass of priority 4 over 600 objects is due `600 / 16 * 2` = 74 looks, less than a batch
    /// of 128: the second of two passes makes it where all is brought back; where a part is, `74 +
    /// 74 / 16` is still too little.
    #[test]
    fn what_was_put_off_comes_back_whole_where_zones_are_reclaimed() {
        for (unit, looks) in [(ReclaimUnit::Zone, 128), (ReclaimUnit::Node, 0)] {
            let mut slab = slab_of(300, unit);
            slab.shrink(4, |_| true);
            assert_eq!(slab.scanned, 0, "{unit:?}");
            slab.shrink(4, |_| true);
            assert_eq!(slab.scanned, looks, "{unit:?}");
        }
    }

    #[test]
    fn heads_come_and_go_with_cached_pages() {
        let mut slab = Slab::new(1, ReclaimUnit::Zone, 1);
        let mut frame = 0;
        while slab.lacks_head(10_000) {
            slab.add_head(frame, 0);
            frame += 1;
        }
        // 104 bytes of a buffer head and 560 of 64 pages' node: 112.75 of 4096, a little more for
        // what does not fit at the end of a page.
        let exact = 10_000.0 * 112.75 / 4096.0;
        assert!((exact..1.05 * exact).contains(&(frame as f64)), "{frame} {exact}");
        assert_eq!(slab.spare_head(10_000), None);
        assert_eq!(slab.spare_head(9000), Some(0), "the oldest first");
        assert!(slab.shrink(0, |_| true).pages.is_empty(), "nobody can be asked for them");
    }
}
