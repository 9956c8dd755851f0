//! Streams over TCP on the machine itself, as `iperf` with parallel streams: the sender copies its
//! data into fragments, blocks of order 3 (as recorded of TCP under 6.18, workload `redis`), and
//! does the protocol's work for both ends, because packets to the machine itself are delivered on
//! the CPU that sends them. The receiver copies them out and frees them.
//!
//! The sender sleeps when its window is full, until a third of it is free again; the receiver
//! sleeps when there is no data.

use std::collections::VecDeque;

use zonal_core::types::Pfn;

use super::kind::{Kind, Param};
use super::pairs::{self, Crew, FRAGMENT, Pairs, copy};
use super::tasks::Tasks;
use crate::cost::contents::Access;
use crate::cost::kernel::{RECEIVE_NS, SEND_NS};
use crate::provenance::{Provenance, given};
use crate::sim::Lab;
use crate::sim::{Program, Turn};

pub(super) const KIND: Kind = Kind {
    name: "iperf",
    about: "streams over TCP: blocks of order 3 allocated by the sender, freed by the receiver",
    params: &[
        Param {
            name: "pairs",
            about: "streams",
            default: 16,
            min: 1,
            max: 4096,
            from: Provenance::estimated("as unix-stream has"),
        },
        Param {
            name: "kib",
            about: "most KiB on their way in a stream: tcp_wmem's largest",
            default: 4096,
            min: 32,
            max: 1 << 20,
            from: Provenance::sourced("the default of net.ipv4.tcp_wmem, its largest"),
        },
        Param {
            name: "work",
            about: "nanoseconds of protocol work on 32 KiB",
            default: 1_000,
            min: 0,
            max: 1_000_000_000,
            from: Provenance::estimated(
                "half a microsecond for each packet of 64 KiB and its acknowledgement, at each end",
            ),
        },
    ],
    make: |values, cpus| Box::new(Iperf::new(cpus, values[0] as u32, values[1], values[2])),
};

/// KiB of a fragment.
const FRAGMENT_KIB: u64 = 32;
given! {
    /// Fragments of one write: 128 KiB.
    WRITE: u64 = 4,
        Provenance::sourced("iperf -l: 128 KiB");
}

/// Streams at work.
#[derive(Debug)]
pub struct Iperf {
    crew: Crew,
    /// Fragments on their way at most.
    most: usize,
    work_ns: u64,
    pairs: Vec<Pair>,
}

#[derive(Clone, Debug, Default)]
struct Pair {
    /// Fragments of the write that were sent.
    sent: u64,
    queue: VecDeque<Pfn>,
    sender_sleeps: bool,
    receiver_sleeps: bool,
}

impl Iperf {
    /// `pairs` streams on `cpus` CPUs, with `kib` KiB on their way in each at most.
    pub fn new(cpus: u32, pairs: u32, kib: u64, work_ns: u64) -> Iperf {
        let most = (kib / FRAGMENT_KIB) as usize;
        Iperf {
            crew: Crew::new(cpus, pairs),
            most,
            work_ns,
            pairs: vec![Pair::default(); pairs as usize],
        }
    }
}

impl Pairs for Iperf {
    fn crew(&mut self) -> &mut Crew {
        &mut self.crew
    }

    fn send(&mut self, lab: &mut Lab<'_>, tasks: &mut Tasks, cpu: u32, at: usize) {
        let pair = &mut self.pairs[at];
        if pair.queue.len() >= self.most {
            pair.sender_sleeps = true;
            return tasks.sleep(cpu);
        }
        if pair.sent == 0 {
            lab.kernel_ns(SEND_NS);
        }
        pair.sent = (pair.sent + 1) % WRITE;
        let Some(block) = lab.request(FRAGMENT) else { return };
        copy(lab, block, FRAGMENT.order, Access::Write);
        lab.kernel_ns(self.work_ns);
        pair.queue.push_back(block);
        if std::mem::take(&mut pair.receiver_sleeps) {
            tasks.wake(lab, pairs::receiver(at), cpu, false);
        }
    }

    fn receive(&mut self, lab: &mut Lab<'_>, tasks: &mut Tasks, cpu: u32, at: usize) {
        let pair = &mut self.pairs[at];
        let Some(block) = pair.queue.pop_front() else {
            pair.receiver_sleeps = true;
            return tasks.sleep(cpu);
        };
        lab.kernel_ns(RECEIVE_NS);
        copy(lab, block, FRAGMENT.order, Access::Read);
        lab.free(block, FRAGMENT.order);
        if pair.sender_sleeps && 3 * pair.queue.len() <= 2 * self.most {
            pair.sender_sleeps = false;
            tasks.wake(lab, pairs::sender(at), cpu, pair.queue.is_empty());
        }
    }
}

impl Program for Iperf {
    fn step(&mut self, lab: &mut Lab<'_>, cpu: u32) -> Turn {
        pairs::step(self, lab, cpu)
    }

    fn finish(&mut self, lab: &mut Lab<'_>) {
        let blocks = std::mem::take(&mut self.pairs).into_iter().flat_map(|pair| pair.queue);
        blocks.for_each(|block| lab.free(block, FRAGMENT.order));
    }
}
