//! Hours of a small server, for what they leave of its pageblocks: processes that come and go,
//! files that stay until memory is short, slabs of the kernel that live for seconds or for hours.
//! Every step is a batch of requests and of what has come to its end; whoever steps next frees it,
//! so most blocks are freed by another CPU than the one that asked.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use zonal_core::alloc::Request;
use zonal_core::frame::PageState;
use zonal_core::gfp::Gfp;
use zonal_core::types::{Order, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES, Pfn};

use crate::provenance::{Provenance, given};
use crate::sim::{Lab, Program, Turn};

given! {
    /// Steps of a CPU in a second.
    STEPS: u64 = 10,
        Provenance::estimated("a mostly idle server, so that hours can be played");
    /// Pages of processes that a step asks for.
    PROCESS: u64 = 8, Provenance::estimated("twice as many as of files");
    /// Seconds until they exit, at most; the mean is half of it.
    PROCESS_S: u64 = 20, Provenance::estimated("most processes of a server live for seconds");
    /// Pages of files that a step brings in.
    FILES: u64 = 4,
        Provenance::estimated("a gigabyte of files in some two hours, again and again");
    /// Percent of the memory in use beyond which the oldest pages of files go.
    pub(super) FULL: u64 = 85,
        Provenance::estimated("what reclaim leaves free of a small machine, and some more");
    /// The same where memory is short: no free pageblocks are left, and types fall back.
    pub(super) FULLER: u64 = 97,
        Provenance::estimated("a server's page cache takes all that the watermarks leave it");
    /// One step of so many asks for a slab of each kind.
    SLAB_EVERY: u64 = 4, Provenance::estimated("inodes, sockets, page tables of the processes");
    /// Seconds that most slabs live at most.
    SHORT_S: u64 = 4, Provenance::estimated("buffers and page tables");
    /// The same of reclaimable ones.
    RECLAIMABLE_S: u64 = 1200, Provenance::estimated("inodes and names of the files in memory");
    /// The same of the few that live long.
    LONG_S: u64 = 7200, Provenance::estimated("what a service keeps until it is started anew");
    /// Pages of files that go when a slab is refused, before it is asked for again.
    pub(super) RECLAIM: usize = 32,
        Provenance::sourced("SWAP_CLUSTER_MAX of Linux: 32 pages that a request in need reclaims");
    /// How often it is asked for again.
    pub(super) RETRIES: usize = 16,
        Provenance::sourced("MAX_RECLAIM_RETRIES of Linux: 16 rounds");
    /// One slab of so many does.
    LONG_EVERY: u64 = 8, Provenance::estimated("most of what a kernel allocates dies young");
}

/// A server.
#[derive(Debug)]
pub(super) struct Aging {
    /// Percent of the memory in use beyond which the oldest pages of files go.
    full: u64,
    /// What comes to its end, by the cycle.
    ends: BinaryHeap<Reverse<(u64, u64, u32)>>,
    /// Pages of files, the oldest first.
    files: VecDeque<Pfn>,
    /// Slabs that were asked for, and those that were refused to the end.
    slabs: [u64; 2],
    /// Pages of files that went because a slab was refused.
    pub(super) reclaimed: u64,
}

/// What is left of a machine's pageblocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Left {
    /// Percent of the free pages that lie in no free block of an order.
    pub unusable: [f64; 2],
    /// Percent of the pageblocks in use that hold pages of more than one migratetype.
    pub mixed: f64,
}

/// The orders of [`Left::unusable`].
pub(super) const ORDERS: [Order; 2] = [Order::COSTLY, PAGEBLOCK_ORDER];

impl Aging {
    /// A server that uses so many percent of its memory.
    pub(super) fn new(full: u64) -> Aging {
        let (ends, files) = (BinaryHeap::new(), VecDeque::new());
        Aging { full, ends, files, slabs: [0; 2], reclaimed: 0 }
    }

    /// Percent of the slabs that were refused.
    pub(super) fn refused(&self) -> f64 {
        percent(self.slabs[1], self.slabs[0])
    }

    /// A slab: where it is refused files go for it, as a request that may wait reclaims. So all
    /// designs hold nearly the same slabs. A design that refused more would hold less and mix less.
    fn slab(&mut self, lab: &mut Lab<'_>, asked: (Gfp, u64), now: u64, most_s: u64) {
        self.slabs[0] += 1;
        for _ in 0..RETRIES {
            if self.ask(lab, asked, now, most_s) {
                return;
            }
            let oldest = self.files.drain(..RECLAIM.min(self.files.len()));
            self.reclaimed += oldest.len() as u64;
            oldest.for_each(|page| lab.free(page, Order::ZERO));
        }
        self.slabs[1] += u64::from(!self.ask(lab, asked, now, most_s));
    }

    /// Whether it was given.
    fn ask(&mut self, lab: &mut Lab<'_>, (gfp, order): (Gfp, u64), now: u64, most_s: u64) -> bool {
        let order = Order::new(order as u32).unwrap_or(Order::ZERO);
        let Some(block) = lab.request(Request::new(order).gfp(gfp)) else { return false };
        let most = (most_s as f64 * lab.machine.ghz * 1e9) as u64;
        let end = now + lab.random_below(most.max(1));
        self.ends.push(Reverse((end, block.0, order.get())));
        true
    }

    fn file(&mut self, lab: &mut Lab<'_>) {
        let request = Request::new(Order::ZERO).gfp(Gfp::HIGHUSER_MOVABLE);
        self.files.extend(lab.request(request));
        let managed: u64 = lab.allocator.zones().iter().map(|zone| zone.managed()).sum();
        while lab.pages() * 100 > managed * self.full {
            let Some(oldest) = self.files.pop_front() else { return };
            lab.free(oldest, Order::ZERO);
        }
    }
}

impl Program for Aging {
    fn step(&mut self, lab: &mut Lab<'_>, _cpu: u32) -> Turn {
        let now = lab.allocator.platform().clock();
        while let Some(Reverse((end, block, order))) = self.ends.peek().copied()
            && end <= now
        {
            self.ends.pop();
            lab.free(Pfn(block), Order::new(order).unwrap_or(Order::ZERO));
        }
        for _ in 0..PROCESS {
            self.ask(lab, (Gfp::HIGHUSER_MOVABLE, 0), now, PROCESS_S);
        }
        for _ in 0..FILES {
            self.file(lab);
        }
        if lab.random_below(SLAB_EVERY) == 0 {
            let long = lab.random_below(LONG_EVERY) == 0;
            let order = lab.random_below(u64::from(Order::COSTLY.get()) + 1);
            self.slab(lab, (Gfp::KERNEL, order), now, if long { LONG_S } else { SHORT_S });
            let reclaimable = Gfp::KERNEL.union(Gfp::RECLAIMABLE);
            self.slab(lab, (reclaimable, order), now, if long { LONG_S } else { RECLAIMABLE_S });
        }
        let apart = (lab.machine.ghz * 1e9) as u64 / STEPS;
        Turn::Until(now + apart / 2 + lab.random_below(apart))
    }
}

/// What is left, with lists, depots and CPUs' pageblocks emptied into the zones.
pub(super) fn left(lab: &Lab<'_>) -> Left {
    let allocator = &lab.allocator;
    allocator.drain_all();
    let (mut free, mut usable) = (0, [0; ORDERS.len()]);
    let (mut used, mut mixed) = (0, 0);
    for zone in allocator.zones() {
        let stats = allocator.zone_stats(zone.id());
        free += stats.free_pages;
        for (usable, least) in usable.iter_mut().zip(ORDERS) {
            let orders = Order::all().filter(|order| *order >= least);
            *usable += orders.map(|o| u64::from(stats.nr_free[o.index()]) << o.get()).sum::<u64>();
        }
        for block in 0..zone.spanned() / PAGEBLOCK_PAGES {
            let first = zone.frame_base() as u64 + block * PAGEBLOCK_PAGES;
            let types =
                (first..first + PAGEBLOCK_PAGES).fold(0_u32, |types, frame| {
                    match allocator.frame_state(frame as usize) {
                        PageState::Allocated { mt, .. } => types | 1 << mt.index(),
                        _ => types,
                    }
                });
            used += u64::from(types != 0);
            mixed += u64::from(types.count_ones() > 1);
        }
    }
    Left {
        unusable: usable.map(|usable| percent(free - usable, free)),
        mixed: percent(mixed, used),
    }
}

fn percent(part: u64, of: u64) -> f64 {
    100.0 * part as f64 / of.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::sim::Spec;

    /// What a server of one CPU and 64 MiB comes to in ten minutes: percent of the slabs that were
    /// refused, pages of files that went for slabs, and whether every page is known.
    fn server(full: u64) -> (f64, u64, bool) {
        let machine = Machine::named("sapphire-2023-224").unwrap();
        let mut machine = machine.resized_nodes(1, 1).unwrap();
        machine.memory_mib = 64;
        let policy = crate::recipe::policy("zonal+mobility_grouping=on").unwrap();
        let run = Spec { machine: machine.clone(), policy, seed: 1 }.run(|lab| {
            let second = (machine.ghz * 1e9) as u64;
            let mut server = Aging::new(full);
            lab.start(1, 0, second);
            lab.play(&mut server, 600 * second);
            let held = server.ends.iter().map(|Reverse((_, _, order))| 1 << order).sum::<u64>();
            let known = held + server.files.len() as u64 == lab.pages();
            Ok((server.refused(), server.reclaimed, known))
        });
        run.unwrap()
    }

    #[test]
    fn files_make_room_for_slabs_only_where_memory_is_short() {
        assert_eq!(server(50), (0.0, 0, true));
        let (refused, reclaimed, known) = server(FULLER);
        assert!(known, "a page is a file's, or waits for its end");
        assert!(reclaimed > 0, "nothing was ever refused");
        assert!((0.0..20.0).contains(&refused), "{refused}");
    }
}
