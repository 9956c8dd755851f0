//! Pairs of processes that send messages over SCTP on the machine's own network, as netperf's
//! SCTP_STREAM_MANY: as many processes as CPUs, which sleep and are woken all the time.
//!
//! The sender copies its message into a chunk, a block of order 3 that it keeps until the message
//! is acknowledged, and the chunk into a packet, another one. The packet is delivered on the
//! sender's CPU. The receiver copies it out and frees it. If the receiver was asleep, the
//! acknowledgement comes at once, and the chunk is freed on the sender's CPU; otherwise the packet
//! waits in the socket's backlog, and the receiver acknowledges it and frees both on its own.

use std::collections::VecDeque;

use zonal_core::alloc::Request;
use zonal_core::gfp::Gfp;
use zonal_core::types::{Order, Pfn};

use super::kind::{Kind, Param};
use super::pairs::{self, Crew, Pairs, copy_bytes};
use super::tasks::Tasks;
use crate::cost::contents::Access;
use crate::provenance::{Provenance, cells, given};
use crate::sim::Lab;
use crate::sim::{Program, Turn};
use crate::units::{KIB, PAGE_BYTES};

pub(super) const KIND: Kind = Kind {
    name: "sctp-many",
    about: "pairs of processes over SCTP: two blocks for each message, freed where it is read",
    params: &[
        Param {
            name: "pairs",
            about: "pairs of processes",
            default: 64,
            min: 1,
            max: 4096,
            from: Provenance::sourced("netperf SCTP_STREAM_MANY: one for each two CPUs of 128"),
        },
        Param {
            name: "depth",
            about: "messages that are on their way: a buffer of 208 KiB over a message's memory",
            default: 6,
            min: 1,
            max: 1024,
            from: Provenance::sourced(
                "a buffer of 208 KiB (net.core.wmem_default) over a message's memory",
            ),
        },
        Param {
            name: "work",
            about: "nanoseconds of protocol work on a message, on each side",
            default: 36_000,
            min: 0,
            max: 1_000_000_000,
            from: Provenance::fitted(
                "protocol work of a message",
                cells!["pcp-sctp/base/lock_contention_percent"],
            ),
        },
        Param {
            name: "bytes",
            about: "bytes of a message; with its overhead it takes the next power of two",
            default: 16 * KIB,
            min: 1,
            max: 512 * KIB,
            from: Provenance::estimated("messages of 16 KiB: blocks of order 3, as published"),
        },
    ],
    make: |values, cpus| {
        let (pairs, depth) = (values[0] as u32, values[1] as usize);
        Box::new(SctpMany::new(cpus, pairs, depth, values[2]).messages(values[3]))
    },
};

given! {
    /// Bytes of a message's memory beside its own.
    OVERHEAD: u64 = 512,
        Provenance::estimated("a chunk's headers, and the descriptor at the end of its memory");
}

/// Pairs at work.
#[derive(Debug)]
pub struct SctpMany {
    crew: Crew,
    depth: usize,
    work_ns: u64,
    bytes: u64,
    /// Of a message.
    block: Request,
    pairs: Vec<Pair>,
}

#[derive(Clone, Debug, Default)]
struct Pair {
    /// The message being sent: its chunk, then its packet.
    chunk: Option<Pfn>,
    /// Packets to read, each with the chunk that the reader has to acknowledge, if it has.
    queue: VecDeque<(Pfn, Option<Pfn>)>,
    /// Blocks that the receiver has to free.
    done: VecDeque<Pfn>,
    sender_sleeps: bool,
    receiver_sleeps: bool,
}

impl SctpMany {
    /// `pairs` pairs on `cpus` CPUs.
    pub fn new(cpus: u32, pairs: u32, depth: usize, work_ns: u64) -> SctpMany {
        SctpMany {
            crew: Crew::new(cpus, pairs),
            depth,
            work_ns,
            bytes: 0,
            block: Request::new(Order::ZERO),
            pairs: vec![Pair::default(); pairs as usize],
        }
        .messages(16 * KIB)
    }

    /// The same with messages of so many bytes, 512 KiB at most.
    fn messages(self, bytes: u64) -> SctpMany {
        let pages = (bytes + OVERHEAD).div_ceil(PAGE_BYTES).next_power_of_two();
        let order = Order::new(pages.trailing_zeros()).unwrap_or(Order::MAX);
        SctpMany { bytes, block: Request::new(order).gfp(Gfp::KERNEL), ..self }
    }
}

impl Pairs for SctpMany {
    fn crew(&mut self) -> &mut Crew {
        &mut self.crew
    }

    fn send(&mut self, lab: &mut Lab<'_>, tasks: &mut Tasks, cpu: u32, at: usize) {
        let pair = &mut self.pairs[at];
        let Some(chunk) = pair.chunk else {
            if pair.queue.len() >= self.depth {
                pair.sender_sleeps = true;
                return tasks.sleep(cpu);
            }
            pair.chunk = lab.request(self.block);
            if let Some(chunk) = pair.chunk {
                copy_bytes(lab, chunk, 0, self.bytes, Access::Write);
            }
            return;
        };
        let Some(packet) = lab.request(self.block) else { return };
        pair.chunk = None;
        copy_bytes(lab, chunk, 0, self.bytes, Access::Read);
        copy_bytes(lab, packet, 0, self.bytes, Access::Write);
        lab.kernel_ns(self.work_ns);
        lab.load.sent += self.bytes;
        if std::mem::take(&mut pair.receiver_sleeps) {
            pair.queue.push_back((packet, None));
            tasks.wake(lab, pairs::receiver(at), cpu, true);
            lab.free(chunk, self.block.order);
        } else {
            pair.queue.push_back((packet, Some(chunk)));
        }
    }

    fn receive(&mut self, lab: &mut Lab<'_>, tasks: &mut Tasks, cpu: u32, at: usize) {
        let pair = &mut self.pairs[at];
        if let Some(block) = pair.done.pop_front() {
            return lab.free(block, self.block.order);
        }
        let Some((packet, chunk)) = pair.queue.pop_front() else {
            pair.receiver_sleeps = true;
            return tasks.sleep(cpu);
        };
        lab.kernel_ns(self.work_ns);
        copy_bytes(lab, packet, 0, self.bytes, Access::Read);
        lab.load.received += self.bytes;
        lab.load.done += 1;
        pair.done.extend([Some(packet), chunk].into_iter().flatten());
        if std::mem::take(&mut pair.sender_sleeps) {
            tasks.wake(lab, pairs::sender(at), cpu, true);
        }
    }
}

impl Program for SctpMany {
    fn step(&mut self, lab: &mut Lab<'_>, cpu: u32) -> Turn {
        pairs::step(self, lab, cpu)
    }

    fn finish(&mut self, lab: &mut Lab<'_>) {
        for pair in std::mem::take(&mut self.pairs) {
            let queued = pair.queue.into_iter().flat_map(|(packet, chunk)| [Some(packet), chunk]);
            let rest = queued.flatten().chain(pair.done).chain(pair.chunk);
            rest.for_each(|block| lab.free(block, self.block.order));
        }
    }
}
