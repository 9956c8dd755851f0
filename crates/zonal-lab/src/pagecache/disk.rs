//! A disk in virtual time: one head, a queue, reads before writes.
//!
//! A request that goes on where the last one ended takes its pages' time, any other one a seek
//! more, and where the platter stands then is a matter of chance. Requests that go on where the
//! last one in the queue ends are joined to it. Behind a read the disk waits a moment for the next
//! one, as CFQ does.

use std::collections::VecDeque;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::machine::DiskCosts;
use crate::provenance::{Provenance, given};
use crate::units::{MIB_KIB, PAGE_KIB, S_NS, US_NS};

/// A request of one run of pages of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Which one, in the order of their coming.
    pub id: u64,
    /// It writes.
    pub write: bool,
    /// The file, and its first page.
    pub file: u32,
    /// Its first page.
    pub index: u32,
    /// Its frames.
    pub frames: Vec<u32>,
    /// Pages of the machine that the file system writes besides.
    pub extra: u64,
    since_ns: u64,
}

/// The disk.
#[derive(Debug)]
pub struct Disk {
    costs: DiskCosts,
    /// Where the platter stands behind a seek.
    random: Pcg64Mcg,
    /// Pages of the machine in one of the model.
    scale: u64,
    reads: VecDeque<Transfer>,
    writes: VecDeque<Transfer>,
    /// Its current request, and when that ends.
    current: Option<(Transfer, u64)>,
    /// The page after the last one read or written.
    head: (u32, u32),
    free_at_ns: u64,
    /// Until when it waits for another read, behind one.
    idles_until_ns: Option<u64>,
    congested: bool,
    /// Requests so far.
    pub requests: u64,
    /// Seeks so far.
    pub seeks: u64,
    /// When it was busy, in all.
    pub busy_ns: u64,
}

given! {
    /// A turn of the platter at 7200 rpm. A disk whose seeks are shorter has none, or a faster one.
    TURN_US: u64 = 8_333,
        Provenance::sourced("7200 turns a minute");
}

impl Disk {
    /// A disk that does nothing yet.
    pub fn new(costs: DiskCosts, scale: u64, seed: u64) -> Disk {
        Disk {
            costs,
            random: Pcg64Mcg::seed_from_u64(seed),
            scale,
            reads: VecDeque::new(),
            writes: VecDeque::new(),
            current: None,
            head: (u32::MAX, 0),
            free_at_ns: 0,
            idles_until_ns: None,
            congested: false,
            requests: 0,
            seeks: 0,
            busy_ns: 0,
        }
    }

    /// Pages of the model in the largest request, and in one read ahead.
    pub fn request_pages(&self) -> usize {
        (self.costs.request_kib / PAGE_KIB / self.scale).max(1) as usize
    }
    /// Pages of the model that a read fetches.
    pub fn readahead_pages(&self) -> u32 {
        (self.costs.readahead_kib / PAGE_KIB / self.scale).max(1) as u32
    }

    /// One page from elsewhere, on an idle disk.
    pub fn lone_page_ns(&self) -> u64 {
        self.costs.seek_us * US_NS + PAGE_KIB * S_NS / (self.costs.mib_s * MIB_KIB)
    }

    /// Queues a request. Returns its number.
    pub fn submit(&mut self, now_ns: u64, mut transfer: Transfer) -> u64 {
        let most = self.request_pages();
        let queue = if transfer.write { &mut self.writes } else { &mut self.reads };
        if let Some(last) = queue.back_mut()
            && (last.file, last.index as usize + last.frames.len())
                == (transfer.file, transfer.index as usize)
            && last.frames.len() + transfer.frames.len() <= most
            && transfer.write
        {
            last.frames.append(&mut transfer.frames);
            last.extra += transfer.extra;
            return last.id;
        }
        self.requests += 1;
        (transfer.id, transfer.since_ns) = (self.requests, now_ns);
        let read = !transfer.write;
        queue.push_back(transfer);
        if read && self.idles_until_ns.take_if(|until| now_ns <= *until).is_some() {
            self.free_at_ns = self.free_at_ns.max(now_ns);
        }
        // LB H: a queue is congested from 7/8 of its length on.
        self.congested |= self.writes.len() as u64 >= self.costs.requests * 7 / 8;
        self.start();
        self.requests
    }

    /// A request that writes or reads these frames.
    pub fn transfer(write: bool, (file, index): (u32, u32), frames: Vec<u32>) -> Transfer {
        Transfer { id: 0, write, file, index, frames, extra: 0, since_ns: 0 }
    }

    /// When the request at work will be done.
    pub fn done_at_ns(&self) -> Option<u64> {
        let idles = self.idles_until_ns.filter(|_| !self.writes.is_empty());
        self.current.as_ref().map(|(_, done)| *done).or(idles)
    }

    /// The next request that is done by `now_ns`.
    pub fn next_done(&mut self, now_ns: u64) -> Option<Transfer> {
        if let Some(until) = self.idles_until_ns.take_if(|until| *until <= now_ns) {
            self.free_at_ns = self.free_at_ns.max(until);
            self.start();
        }
        let (done, at) = self.current.take_if(|(_, at)| *at <= now_ns)?;
        self.free_at_ns = at;
        if !done.write && self.reads.is_empty() {
            self.idles_until_ns = Some(at + self.costs.idle_us * US_NS);
        }
        self.start();
        // LB H: stays congested until it has shrunk to 13/16.
        self.congested &= self.writes.len() as u64 >= self.costs.requests * 13 / 16;
        Some(done)
    }

    /// Whether its queue is congested: callers that need not wait should not add to it.
    pub fn is_congested(&self) -> bool {
        self.congested
    }

    /// A seek: the mean, and up to half a turn more or less.
    fn seek_ns(&mut self) -> u64 {
        let mean = self.costs.seek_us * US_NS;
        let turn = (TURN_US * US_NS).min(2 * mean);
        let part = (u128::from(self.random.next_u64()) * u128::from(turn + 1)) >> 64;
        mean - turn / 2 + part as u64
    }

    fn start(&mut self) {
        if self.current.is_some() || self.idles_until_ns.is_some() {
            return;
        }
        let Some(next) = self.reads.pop_front().or_else(|| self.writes.pop_front()) else { return };
        let from = self.free_at_ns.max(next.since_ns);
        let pages = next.frames.len() as u64 * self.scale + next.extra;
        let mut takes = pages * PAGE_KIB * S_NS / (self.costs.mib_s * MIB_KIB);
        if self.head != (next.file, next.index) {
            takes += self.seek_ns();
            self.seeks += 1;
        }
        self.head = (next.file, next.index + next.frames.len() as u32);
        self.busy_ns += takes;
        self.current = Some((next, from + takes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages far from each other, one after the other. Returns how long each took.
    fn seeks(seek_us: u64, seed: u64) -> Vec<u64> {
        let costs = DiskCosts {
            mib_s: 100,
            seek_us,
            requests: 128,
            request_kib: 512,
            idle_us: 0,
            readahead_kib: 128,
        };
        let mut disk = Disk::new(costs, 1, seed);
        let mut now_ns = 0;
        let mut took = Vec::new();
        for at in 0..1000 {
            disk.submit(now_ns, Disk::transfer(true, (at, 0), vec![0]));
            let done = disk.done_at_ns().unwrap();
            took.push(done - now_ns);
            now_ns = done;
            disk.next_done(now_ns).unwrap();
        }
        took
    }

    #[test]
    fn a_seek_takes_its_mean_and_up_to_half_a_turn_more_or_less_by_the_seed() {
        let transfer_ns = 4 * S_NS / (100 * MIB_KIB);
        for (seek_us, half_us) in [(8000, TURN_US / 2), (100, 100), (0, 0)] {
            let took = seeks(seek_us, 1);
            let mean_us = (took.iter().sum::<u64>() / 1000 - transfer_ns) / US_NS;
            assert!(mean_us.abs_diff(seek_us) <= half_us / 10, "{seek_us} {mean_us}");
            for ns in &took {
                let us = (ns - transfer_ns) / US_NS;
                assert!(us.abs_diff(seek_us) <= half_us + 1, "{seek_us} {us}");
            }
            assert_eq!(took, seeks(seek_us, 1));
            assert_eq!(took == seeks(seek_us, 2), seek_us == 0, "{seek_us}");
        }
    }
}
