//! Streams over TCP on the machine itself, as `iperf` with parallel streams: the sender copies its
//! data into fragments, blocks of order 3 (as recorded of TCP under 6.18, workload `redis`), and
//! does the protocol's work for both ends, because packets to the machine itself are delivered on
//! the CPU that sends them. The receiver copies them out and frees them.
//!
//! lmbench's `bw_tcp` does the same with messages of megabytes, which lie in a buffer of each
//! process: what is sent is read from there, and what is received is written there.
//!
//! The sender sleeps when its window is full, until a third of it is free again; the receiver
//! sleeps when there is no data.

use std::collections::VecDeque;

use zonal_core::alloc::Request;
use zonal_core::gfp::Gfp;
use zonal_core::types::{Order, Pfn};

use super::kind::{Kind, Param};
use super::pairs::{self, Crew, FRAGMENT, Pairs, copy};
use super::tasks::Tasks;
use crate::cost::contents::Access;
use crate::cost::kernel::{RECEIVE_NS, SEND_NS};
use crate::provenance::{Provenance, given};
use crate::sim::Lab;
use crate::sim::{Program, Turn};
use crate::units::{KIB, PAGE_KIB, PAGE_LINES};

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

pub(super) const BANDWIDTH: Kind = Kind {
    name: "tcp-bandwidth",
    about: "pairs of processes over TCP with large messages in buffers of their own, as lmbench's \
            bw_tcp",
    params: &[
        Param {
            name: "pairs",
            about: "pairs of processes; 0: one for each CPU that takes part",
            default: 0,
            min: 0,
            max: 4096,
            from: Provenance::sourced("lmbench, bw_tcp -P: as many as there are CPUs"),
        },
        Param {
            name: "message",
            about: "KiB of a message, and of each process' buffer",
            default: 10_240,
            min: FRAGMENT_KIB,
            max: 1 << 20,
            from: Provenance::sourced("lmbench, bw_tcp -m 10m"),
        },
        Param {
            name: "kib",
            about: "most KiB on their way in a stream: tcp_wmem's largest",
            default: 4096,
            min: FRAGMENT_KIB,
            max: 1 << 20,
            from: Provenance::sourced("the default of net.ipv4.tcp_wmem, its largest"),
        },
        Param {
            name: "work",
            about: "nanoseconds of protocol work on 32 KiB",
            default: 1_000,
            min: 0,
            max: 1_000_000_000,
            from: Provenance::estimated("as iperf has"),
        },
    ],
    make: |values, cpus| {
        let pairs = if values[0] == 0 { cpus } else { values[0] as u32 };
        Box::new(Iperf::new(cpus, pairs, values[2], values[3]).messages(values[1]))
    },
};

/// KiB of a fragment.
const FRAGMENT_KIB: u64 = 32;
/// Buffers of processes come in blocks of this size.
const BUFFER_BLOCK: Order = Order::MAX;
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
    /// Fragments of a write.
    write: u64,
    /// Fragments of each process' buffer, if that counts.
    buffer: u64,
    pairs: Vec<Pair>,
}

#[derive(Clone, Debug, Default)]
struct Pair {
    /// Fragments of the write that were sent.
    sent: u64,
    /// The buffers of both, and how many fragments were received into the second.
    buffers: [Buffer; 2],
    received: u64,
    queue: VecDeque<Pfn>,
    sender_sleeps: bool,
    receiver_sleeps: bool,
}

/// Blocks of a process' own memory.
#[derive(Clone, Debug, Default)]
struct Buffer(Vec<Pfn>);

impl Buffer {
    /// A program touches the part that belongs to a fragment. The first time, it gets its memory.
    fn touch(&mut self, lab: &mut Lab<'_>, at: u64, access: Access) {
        let each = BUFFER_BLOCK.pages() * PAGE_KIB / FRAGMENT_KIB;
        let (block, within) = ((at / each) as usize, at % each);
        while self.0.len() <= block {
            let request = Request::new(BUFFER_BLOCK).gfp(Gfp::HIGHUSER_MOVABLE);
            let Some(block) = lab.request(request) else { return };
            self.0.push(block);
        }
        let first = Pfn(self.0[block].0 + within * FRAGMENT.order.pages());
        lab.touch(first, FRAGMENT.order, PAGE_LINES << FRAGMENT.order.get(), access);
    }
}

impl Iperf {
    /// `pairs` streams on `cpus` CPUs, with `kib` KiB on their way in each at most.
    pub fn new(cpus: u32, pairs: u32, kib: u64, work_ns: u64) -> Iperf {
        let most = (kib / FRAGMENT_KIB) as usize;
        Iperf {
            crew: Crew::new(cpus, pairs),
            most,
            work_ns,
            write: WRITE,
            buffer: 0,
            pairs: vec![Pair::default(); pairs as usize],
        }
    }

    /// The same with messages of so many KiB, each a write, which lie in a buffer of each process.
    fn messages(self, kib: u64) -> Iperf {
        let fragments = kib.div_ceil(FRAGMENT_KIB);
        Iperf { write: fragments, buffer: fragments, ..self }
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
        let Some(block) = lab.request(FRAGMENT) else { return };
        if self.buffer > 0 {
            pair.buffers[0].touch(lab, pair.sent, Access::Read);
        }
        pair.sent = (pair.sent + 1) % self.write;
        copy(lab, block, FRAGMENT.order, Access::Write);
        lab.kernel_ns(self.work_ns);
        lab.load.sent += FRAGMENT_KIB * KIB;
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
        if self.buffer > 0 {
            pair.buffers[1].touch(lab, pair.received, Access::Write);
            pair.received = (pair.received + 1) % self.buffer;
        }
        lab.load.received += FRAGMENT_KIB * KIB;
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
        for pair in std::mem::take(&mut self.pairs) {
            pair.queue.into_iter().for_each(|block| lab.free(block, FRAGMENT.order));
            let buffers = pair.buffers.into_iter().flat_map(|buffer| buffer.0);
            buffers.for_each(|block| lab.free(block, BUFFER_BLOCK));
        }
    }
}
