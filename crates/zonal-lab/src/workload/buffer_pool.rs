//! The buffer pool of a database under a scan: some CPUs read a table, page after page with
//! read-ahead, and throw the oldest pages out of the pool; the others look rows up, which are
//! mostly there. What goes out was read by any CPU, and is freed by who needs its place.
//!
//! A page is as large as InnoDB's. Pages that come are written by the device, which costs no CPU;
//! who reads a page touches all its lines. The pool throws out in the order in which pages came.

use std::collections::VecDeque;

use zonal_core::types::Pfn;

use super::kind::{Kind, Param, order};
use crate::cost::contents::Access;
use crate::provenance::{Provenance, given};
use crate::sim::Lab;
use crate::sim::{Program, Turn};
use crate::units::{MIB_PAGES, PAGE_LINES};

pub(super) const KIND: Kind = Kind {
    name: "buffer-pool",
    about: "a database's pool of pages: some CPUs scan a table through it, the others look up rows",
    params: &[
        Param {
            name: "mib",
            about: "MiB of the pool; at most half of memory",
            default: 1024,
            min: 1,
            max: 1 << 24,
            from: Provenance::estimated("larger than the caches and smaller than the table"),
        },
        Param {
            name: "order",
            about: "order of the pool's pages",
            default: 2,
            min: 0,
            max: 9,
            from: Provenance::sourced("InnoDB, innodb_page_size: 16 KiB by default"),
        },
        Param {
            name: "scanners",
            about: "CPUs that scan, in percent, and one at least unless it is 0",
            default: 25,
            min: 0,
            max: 100,
            from: Provenance::estimated("a report beside the daily work"),
        },
        Param {
            name: "ahead",
            about: "pages that a scan asks for together",
            default: 64,
            min: 1,
            max: 4096,
            from: Provenance::sourced("InnoDB reads an extent of 64 pages ahead"),
        },
        Param {
            name: "scan",
            about: "nanoseconds that a scan works on a page",
            default: 4_000,
            min: 0,
            max: 1_000_000_000,
            from: Provenance::estimated("a hundred rows of 40 ns"),
        },
        Param {
            name: "lookup",
            about: "nanoseconds of a lookup",
            default: 10_000,
            min: 0,
            max: 1_000_000_000,
            from: Provenance::estimated("100,000 queries a second and core"),
        },
        Param {
            name: "misses",
            about: "lookups that find no page, of a thousand",
            default: 50,
            min: 0,
            max: 1000,
            from: Provenance::estimated("hit rates of pools are from 95 to 99 percent"),
        },
    ],
    make: |values, cpus| Box::new(BufferPool::new(cpus, values)),
};

given! {
    /// The pool fills at most one such part of memory.
    POOL_PART: u64 = 2,
        Provenance::estimated("the other half is for sessions, logs and the system");
    /// What a page that comes or goes costs besides its memory: the pool's tables, and the request
    /// to the device.
    PAGE_NS: u64 = 1_500,
        Provenance::estimated("a request of 16 KiB costs a core 1 to 2 us at the device's queue");
    /// Lines of a page that a lookup reads.
    LOOKUP_LINES: u64 = 8,
        Provenance::estimated("a search among its rows, and one row");
    /// Finding a page in the pool, in cycles.
    FOUND_CYCLES: u64 = 100,
        Provenance::estimated("a search in a table in memory");
}

/// The pool and who uses it.
#[derive(Debug)]
pub struct BufferPool {
    pages: u64,
    order: u64,
    scanners: u32,
    ahead: u64,
    scan_ns: u64,
    lookup_ns: u64,
    misses: u64,
    /// The oldest first.
    pool: VecDeque<Pfn>,
    scans: Vec<Scan>,
}

/// A scan on a CPU.
#[derive(Clone, Debug, Default)]
struct Scan {
    /// Pages that it has read ahead.
    read: VecDeque<Pfn>,
    /// It works on them, until none is left.
    works: bool,
}

impl BufferPool {
    /// With the numbers of [`KIND`].
    fn new(cpus: u32, values: &[u64]) -> BufferPool {
        let [mib, order, scanners, ahead, scan_ns, lookup_ns, misses] = *values else {
            unreachable!("a workload has the numbers of its kind")
        };
        BufferPool {
            pages: ((mib * MIB_PAGES) >> order).max(1),
            order,
            scanners: (u64::from(cpus) * scanners).div_ceil(100) as u32,
            ahead,
            scan_ns,
            lookup_ns,
            misses,
            pool: VecDeque::new(),
            scans: vec![Scan::default(); cpus as usize],
        }
    }

    /// A page comes, for which the oldest goes if the pool is full. `None`: it was refused, and an
    /// old one went all the same.
    fn read(&mut self, lab: &mut Lab<'_>) -> Option<Pfn> {
        let order = order(self.order);
        lab.user_ns(PAGE_NS);
        let page = lab.alloc(order);
        if (self.pool.len() as u64 >= self.pages || page.is_none())
            && let Some(old) = self.pool.pop_front()
        {
            lab.free(old, order);
        }
        page
    }

    /// Works on a page that came, and puts it into the pool.
    fn keep(&mut self, lab: &mut Lab<'_>, page: Pfn) {
        lab.user_touch(page, order(self.order), PAGE_LINES << self.order, Access::Read);
        self.pool.push_back(page);
        lab.load.done += 1;
    }

    fn scan(&mut self, lab: &mut Lab<'_>, cpu: u32) {
        if !self.scans[cpu as usize].works {
            let page = self.read(lab);
            let scan = &mut self.scans[cpu as usize];
            scan.read.extend(page);
            scan.works = scan.read.len() as u64 >= self.ahead || page.is_none();
            return;
        }
        match self.scans[cpu as usize].read.pop_front() {
            Some(page) => {
                lab.user_ns(self.scan_ns);
                self.keep(lab, page);
            }
            None => self.scans[cpu as usize].works = false,
        }
    }

    fn look_up(&mut self, lab: &mut Lab<'_>) {
        lab.user_ns(self.lookup_ns);
        if lab.random_below(1000) < self.misses {
            let page = self.read(lab);
            page.into_iter().for_each(|page| self.keep(lab, page));
        } else {
            // It found the page, somewhere in the pool.
            let at = lab.random_below(self.pool.len().max(1) as u64) as usize;
            let page = self.pool.get(at).copied();
            page.into_iter().for_each(|page| {
                lab.user_touch(page, order(self.order), LOOKUP_LINES, Access::Read);
            });
        }
    }
}

impl Program for BufferPool {
    fn step(&mut self, lab: &mut Lab<'_>, cpu: u32) -> Turn {
        lab.allocator.platform().set_idle(cpu, false);
        // Each step takes some time, whatever the numbers are.
        lab.allocator.platform().work(FOUND_CYCLES);
        match cpu < self.scanners {
            true => self.scan(lab, cpu),
            false => self.look_up(lab),
        }
        Turn::More
    }

    /// The pool is full; any CPU has read each of its pages.
    fn scatter(&mut self, lab: &mut Lab<'_>, cpus: u32) {
        let memory = u64::from(lab.machine.nodes()) * lab.machine.memory_mib * MIB_PAGES;
        self.pages = self.pages.min((memory / POOL_PART) >> self.order).max(1);
        lab.allocator.platform().charge(false);
        for _ in 0..self.pages {
            let cpu = lab.random_below(u64::from(cpus)) as u32;
            lab.allocator.platform().turn(cpu, 0);
            self.pool.extend(lab.alloc(order(self.order)));
        }
        lab.allocator.platform().charge(true);
    }

    fn finish(&mut self, lab: &mut Lab<'_>) {
        let read = self.scans.iter_mut().flat_map(|scan| std::mem::take(&mut scan.read));
        let all: Vec<Pfn> = self.pool.drain(..).chain(read).collect();
        all.into_iter().for_each(|page| lab.free(page, order(self.order)));
    }
}
