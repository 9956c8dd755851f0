//! Memory of programs around the page allocator: faults that give pages, one by one, and unmapping,
//! which gives them back in bulk. Shared by the workloads that map and unmap.
//!
//! Which calls come in which order was recorded under 6.18 with the events of `kmem` and `pagemap`,
//! from a program that maps 64 MiB, writes each page and unmaps them:
//!
//! ```text
//!  fault   one movable page; every 512th asks for a page table, too
//!          new pages reach the LRU list together, 31 at a time
//!  unmap   pages are collected in arrays of 509, each in a page of its own, after 7 without one;
//!          when 19 arrays are full (9,678 pages), and at the end, all of them are freed
//!          an array goes off the LRU list and to the allocator in 16 batches of 31 and one of 13
//! ```
//! Charges of groups come in 64s for each CPU; what a batch frees is given back at once.

use std::collections::VecDeque;

use zonal_core::alloc::Request;
use zonal_core::gfp::Gfp;
use zonal_core::types::{Order, Pfn};

use crate::cost::contents::Access;
use crate::cost::kernel::{COPY_PAGE_NS, FAULT_NS, UNMAP_NS};
use crate::cost::lock::LockClock;
use crate::provenance::{Provenance, given};
use crate::sim::Lab;
use crate::units::PAGE_LINES;

given! {
    /// Of a fault, what is done under the lock of the LRU list: 114 of 1,255 ns of a fault without
    /// allocator and zeroing, by a profile of the recorded program with 1 MiB, where a fault takes
    /// three times as long as [`FAULT_NS`].
    pub(super) LRU_ADD_NS: u64 = 38,
        Provenance::measured(
            "a profile under Linux 6.18 on a virtual EPYC, 2026: 9 percent of a fault without \
             allocator and zeroing are under the lock of the LRU list",
        );
    /// The same of unmapping a page: 71 of 231 ns.
    pub(super) LRU_REMOVE_NS: u64 = 36,
        Provenance::measured(
            "the same profile: 30 percent of unmapping a page without the allocator",
        );
    /// What a fault on a private mapping of a file takes longer, beside copying: the search for its
    /// page and that one's lock. 240 ns in the profile, scaled as [`LRU_ADD_NS`].
    FILE_FAULT_NS: u64 = 80,
        Provenance::measured(
            "the same program with a file in memory: 540 ns longer, of which 300 are the copy, \
             where all else takes three times as long as in this model",
        );
    /// Pages that a call frees together.
    pub(super) FREED_TOGETHER: usize = 31,
        Provenance::measured("events recorded under Linux 6.18, 2026");
    /// Pages of an array that collects what is to be freed.
    ARRAY_PAGES: usize = 509,
        Provenance::measured("events recorded under Linux 6.18, 2026");
    /// Pages that are collected before the first array.
    FIRST_PAGES: usize = 7,
        Provenance::measured("events recorded under Linux 6.18, 2026");
    /// Arrays before what they hold is freed.
    ARRAYS: usize = 19,
        Provenance::measured("events recorded under Linux 6.18, 2026");
    /// Pages that a CPU charges to its group ahead.
    CHARGE_BATCH: u32 = 64,
        Provenance::sourced("MEMCG_CHARGE_BATCH of Linux, since 5.14: 64 pages");
    /// Most pages of one step that are freed or no longer mapped.
    STRIDE: usize = 8,
        Provenance::estimated("finer steps change no result by more than seeds do");
}
/// Pages whose addresses are in one table.
const TABLE_PAGES: usize = 512;

const USERS: Request = Request::new(Order::ZERO).gfp(Gfp::HIGHUSER_MOVABLE);
const TABLES: Request = Request::new(Order::ZERO).gfp(Gfp::KERNEL_ACCOUNT);
const ARRAY: Request = Request::new(Order::ZERO).gfp(Gfp::NOWAIT);

/// What the kernel does for a fault and for unmapping, as a workload sets it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    /// A fault, without the allocator and the page's contents.
    pub fault_ns: u64,
    /// Unmapping a page, without the allocator.
    pub unmap_ns: u64,
    /// Pages that reach the LRU list together.
    pub lru_batch: u32,
    /// Groups, one above the other, that a page is charged to.
    pub groups: u32,
    /// Faults take the lock of their address space, and all programs share one.
    pub shared_lock: bool,
}

impl Default for Setting {
    fn default() -> Setting {
        Setting {
            fault_ns: FAULT_NS,
            unmap_ns: UNMAP_NS,
            lru_batch: FREED_TOGETHER as u32,
            groups: 0,
            shared_lock: false,
        }
    }
}

/// What all programs share.
#[derive(Debug)]
pub(super) struct Memory {
    setting: Setting,
    /// The lock of each node's LRU list.
    lru: Vec<LockClock>,
    /// The counts of each group.
    groups: Vec<LockClock>,
    /// The lock of the shared address space.
    space: LockClock,
    cpus: Vec<Cpu>,
}

#[derive(Clone, Debug, Default)]
struct Cpu {
    /// New pages that have not reached the LRU list.
    fresh: u32,
    /// Pages that are charged ahead.
    charged: u32,
}

/// A part of a program's memory.
#[derive(Debug, Default)]
pub(super) struct Mapping {
    /// Its pages by their addresses. The first `gathered` are not mapped any more.
    pages: VecDeque<Pfn>,
    gathered: usize,
    /// Of these, pages off the LRU list.
    off_list: usize,
    frees: bool,
    tables: Vec<Pfn>,
    arrays: Vec<Pfn>,
}

impl Mapping {
    /// Pages that it has.
    pub(super) fn len(&self) -> usize {
        self.pages.len()
    }

    /// Its page at a place.
    pub(super) fn page(&self, at: usize) -> Option<Pfn> {
        self.pages.get(at).copied()
    }

    /// All blocks that it has, which it has no more.
    fn take(&mut self) -> Vec<Pfn> {
        let mapping = std::mem::take(self);
        mapping.pages.into_iter().chain(mapping.tables).chain(mapping.arrays).collect()
    }

    /// Ends it at once.
    pub(super) fn finish(&mut self, lab: &mut Lab<'_>) {
        self.take().into_iter().for_each(|page| lab.free(page, Order::ZERO));
    }
}

impl Memory {
    /// Of a machine on which `cpus` CPUs take part.
    pub(super) fn new(cpus: u32, setting: Setting) -> Memory {
        Memory {
            setting,
            lru: Vec::new(),
            groups: vec![LockClock::default(); setting.groups as usize],
            space: LockClock::default(),
            cpus: vec![Cpu::default(); cpus as usize],
        }
    }

    /// A fault at the next address of a mapping: `None` if there was no page. `file`: a private
    /// copy of this page is made.
    pub(super) fn fault(
        &mut self,
        lab: &mut Lab<'_>,
        cpu: u32,
        mapping: &mut Mapping,
        file: Option<Pfn>,
    ) -> Option<Pfn> {
        if self.setting.shared_lock {
            lab.change(&mut self.space);
        }
        lab.kernel_ns(self.setting.fault_ns.saturating_sub(LRU_ADD_NS));
        if mapping.pages.len() >= mapping.tables.len() * TABLE_PAGES {
            mapping.tables.extend(self.table(lab, cpu));
        }
        self.charge(lab, cpu);
        let page = lab.request(USERS);
        if let Some(page) = page {
            if let Some(file) = file {
                lab.kernel_ns(FILE_FAULT_NS + COPY_PAGE_NS);
                lab.touch(file, Order::ZERO, PAGE_LINES, Access::Read);
            }
            lab.touch(page, Order::ZERO, PAGE_LINES, Access::Write);
            mapping.pages.push_back(page);
            lab.load.faults += 1;
            self.list(lab, cpu, page);
        }
        if self.setting.shared_lock {
            lab.change(&mut self.space);
        }
        page
    }

    fn table(&mut self, lab: &mut Lab<'_>, cpu: u32) -> Option<Pfn> {
        self.charge(lab, cpu);
        let table = lab.request(TABLES)?;
        lab.touch(table, Order::ZERO, PAGE_LINES, Access::Write);
        Some(table)
    }

    /// Charges a page: a CPU does so ahead.
    fn charge(&mut self, lab: &mut Lab<'_>, cpu: u32) {
        let ahead = &mut self.cpus[cpu as usize].charged;
        if *ahead == 0 {
            *ahead = CHARGE_BATCH;
            self.groups.iter_mut().for_each(|group| lab.change(group));
        }
        *ahead -= 1;
    }

    /// A new page, which reaches the LRU list with others.
    fn list(&mut self, lab: &mut Lab<'_>, cpu: u32, page: Pfn) {
        let fresh = &mut self.cpus[cpu as usize].fresh;
        *fresh += 1;
        if *fresh >= self.setting.lru_batch {
            let pages = u64::from(std::mem::take(fresh));
            lab.hold(self.lru_of(lab, page), pages * LRU_ADD_NS);
        }
    }

    fn lru_of(&mut self, lab: &Lab<'_>, page: Pfn) -> &mut LockClock {
        let node = lab.node_of(page);
        if self.lru.len() <= node {
            self.lru.resize(node + 1, LockClock::default());
        }
        &mut self.lru[node]
    }

    /// A step of unmapping all of it. Returns whether that is done.
    pub(super) fn unmap(&mut self, lab: &mut Lab<'_>, mapping: &mut Mapping) -> bool {
        let all = mapping.pages.len();
        self.unmap_first(lab, mapping, all) && {
            self.end(lab, mapping);
            true
        }
    }

    /// A step of unmapping its first `count` pages. The caller subtracts what `len` went down by.
    /// Returns whether that is done.
    pub(super) fn unmap_first(
        &mut self,
        lab: &mut Lab<'_>,
        mapping: &mut Mapping,
        count: usize,
    ) -> bool {
        if count == 0 || mapping.pages.is_empty() {
            return true;
        }
        if !mapping.frees {
            self.gather(lab, mapping, count.min(mapping.pages.len()));
            return false;
        }
        if mapping.off_list == 0 {
            self.unlist(lab, mapping);
        }
        let some = mapping.off_list.min(STRIDE);
        for page in mapping.pages.drain(..some) {
            lab.free(page, Order::ZERO);
        }
        mapping.off_list -= some;
        mapping.gathered -= some;
        mapping.frees = mapping.gathered > 0;
        if !mapping.frees {
            mapping.arrays.drain(..).for_each(|page| lab.free(page, Order::ZERO));
        }
        count == some
    }

    /// Some pages more are not mapped.
    fn gather(&mut self, lab: &mut Lab<'_>, mapping: &mut Mapping, count: usize) {
        let some = (count - mapping.gathered.min(count)).min(STRIDE);
        let work = self.setting.unmap_ns.saturating_sub(LRU_REMOVE_NS);
        lab.kernel_ns(some as u64 * work);
        mapping.gathered += some;
        let room = FIRST_PAGES + mapping.arrays.len() * ARRAY_PAGES;
        let full = mapping.gathered >= room && mapping.arrays.len() == ARRAYS;
        if mapping.gathered >= count || full {
            mapping.frees = true;
        } else if mapping.gathered >= room {
            match lab.request(ARRAY) {
                Some(array) => mapping.arrays.push(array),
                None => mapping.frees = true,
            }
        }
    }

    /// The next batch goes off the LRU list, and its charge is given back.
    fn unlist(&mut self, lab: &mut Lab<'_>, mapping: &mut Mapping) {
        mapping.off_list = mapping.gathered.min(FREED_TOGETHER);
        let first = mapping.pages[0];
        lab.hold(self.lru_of(lab, first), mapping.off_list as u64 * LRU_REMOVE_NS);
        self.groups.iter_mut().for_each(|group| lab.change(group));
    }

    /// Its page tables go.
    fn end(&mut self, lab: &mut Lab<'_>, mapping: &mut Mapping) {
        mapping.tables.drain(..).for_each(|page| lab.free(page, Order::ZERO));
    }
}
