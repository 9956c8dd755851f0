//! Pairs of processes over UDP on the machine itself, as netperf's UDP_STREAM: the sender sends one
//! message after the other and never waits; what does not fit into the receiver's buffer is
//! dropped.
//!
//! As recorded under 6.18: a sender copies its messages into a block of order 3, one behind the
//! other, and asks for the next block where that one is full, or starts over where nothing else
//! holds the block any more. So messages of 65,507 bytes take two blocks each, of 16 KiB half of
//! one, and dropped ones hardly any. A packet is delivered on the sender's CPU, which drops it
//! there; the receiver copies it out and frees what nothing else holds.

use std::collections::{BTreeMap, VecDeque};

use zonal_core::types::Pfn;

use super::kind::{Kind, Param};
use super::pairs::{self, Crew, FRAGMENT, Pairs, Place, copy_bytes};
use super::tasks::Tasks;
use crate::cost::contents::Access;
use crate::provenance::{Provenance, given};
use crate::sim::Lab;
use crate::sim::{Program, Turn};
use crate::units::PAGE_BYTES;

pub(super) const KIND: Kind = Kind {
    name: "udp-stream",
    about: "pairs of processes over UDP: blocks of order 3 freed by the receiver, and drops",
    params: &[
        Param {
            name: "pairs",
            about: "pairs of processes",
            default: 16,
            min: 1,
            max: 4096,
            from: Provenance::estimated("as unix-stream has"),
        },
        Param {
            name: "place",
            about: "0: where the scheduler puts them; bound to 1: two cores, 2: two threads of a \
                    core, 3: cores of two sockets",
            default: 0,
            min: 0,
            max: 3,
            from: Provenance::sourced("netperf binds nothing unless it is told to (-T)"),
        },
        Param {
            name: "bytes",
            about: "bytes of a message",
            default: 65_507,
            min: 1,
            max: 65_507,
            from: Provenance::sourced("netperf UDP_STREAM: as much as a datagram holds"),
        },
        Param {
            name: "buffer",
            about: "bytes that may wait at a receiver (net.core.rmem_default)",
            default: 212_992,
            min: 1,
            max: 1 << 30,
            from: Provenance::sourced("the default of net.core.rmem_default"),
        },
        Param {
            name: "send",
            about: "nanoseconds of a call that sends and delivers a message, beside its pages",
            default: 2_450,
            min: 0,
            max: 1_000_000_000,
            from: Provenance::measured(
                "messages of 1 KiB between two CPUs of a virtual EPYC under load, Linux 6.18, 2026",
            ),
        },
        Param {
            name: "receive",
            about: "nanoseconds of a call that receives a message, beside its pages",
            default: 3_130,
            min: 0,
            max: 1_000_000_000,
            from: Provenance::measured(
                "messages of 1 KiB between two CPUs of a virtual EPYC under load, Linux 6.18, 2026",
            ),
        },
    ],
    make: |values, cpus| Box::new(UdpStream::new(cpus, values)),
};

given! {
    /// Bytes that a message takes of a receiver's buffer besides its own.
    OVERHEAD: u64 = 960,
        Provenance::estimated("a descriptor of 256 bytes and a head of 704, as unix-stream has");
}
const BLOCK_BYTES: u64 = PAGE_BYTES << FRAGMENT.order.get();

/// Pairs at work.
#[derive(Debug)]
pub struct UdpStream {
    crew: Crew,
    bytes: u64,
    buffer: u64,
    send_ns: u64,
    receive_ns: u64,
    pairs: Vec<Pair>,
}

#[derive(Clone, Debug, Default)]
struct Pair {
    /// The sender's block, and the bytes of it that are used.
    current: Option<(Pfn, u64)>,
    /// How many hold each block: its sender, and messages.
    holders: BTreeMap<Pfn, u32>,
    queue: VecDeque<Message>,
    /// Bytes that the receiver's buffer is charged.
    charged: u64,
    receiver_sleeps: bool,
}

/// A message: parts of blocks.
type Message = Vec<Part>;

/// Bytes of a block from a place on.
#[derive(Clone, Copy, Debug)]
struct Part {
    block: Pfn,
    from: u64,
    bytes: u64,
}

impl UdpStream {
    /// With the numbers of [`KIND`].
    fn new(cpus: u32, values: &[u64]) -> UdpStream {
        let [pairs, place, bytes, buffer, send_ns, receive_ns] = *values else {
            unreachable!("a workload has the numbers of its kind")
        };
        let place = match place {
            0 => Place::Free,
            1 => Place::Cores,
            2 => Place::Threads,
            _ => Place::Sockets,
        };
        UdpStream {
            crew: Crew::new(cpus, pairs as u32).at(place),
            bytes,
            buffer,
            send_ns,
            receive_ns,
            pairs: vec![Pair::default(); pairs as usize],
        }
    }
}

impl Pair {
    /// One holder of a block less.
    fn put(&mut self, lab: &mut Lab<'_>, block: Pfn) {
        let Some(holders) = self.holders.get_mut(&block) else { return };
        *holders -= 1;
        if *holders == 0 {
            self.holders.remove(&block);
            lab.free(block, FRAGMENT.order);
        }
    }

    /// Room in the sender's block, and from where on. `None`: there was no block.
    fn room(&mut self, lab: &mut Lab<'_>) -> Option<(Pfn, u64)> {
        if let Some((block, used)) = self.current {
            if self.holders.get(&block) == Some(&1) {
                return Some((block, 0));
            }
            if used < BLOCK_BYTES {
                return Some((block, used));
            }
            self.current = None;
            self.put(lab, block);
        }
        let block = lab.request(FRAGMENT)?;
        self.holders.insert(block, 1);
        Some((block, 0))
    }

    /// Copies a message into blocks. `None`: there was no block.
    fn fill(&mut self, lab: &mut Lab<'_>, bytes: u64) -> Option<Message> {
        let (mut left, mut message) = (bytes, Message::new());
        while left > 0 {
            let Some((block, from)) = self.room(lab) else {
                self.drop(lab, message);
                return None;
            };
            let some = left.min(BLOCK_BYTES - from);
            copy_bytes(lab, block, from, some, Access::Write);
            self.current = Some((block, from + some));
            self.holders.entry(block).and_modify(|holders| *holders += 1);
            message.push(Part { block, from, bytes: some });
            left -= some;
        }
        Some(message)
    }

    fn drop(&mut self, lab: &mut Lab<'_>, message: Message) {
        message.into_iter().for_each(|part| self.put(lab, part.block));
    }
}

impl Pairs for UdpStream {
    fn crew(&mut self) -> &mut Crew {
        &mut self.crew
    }

    fn send(&mut self, lab: &mut Lab<'_>, tasks: &mut Tasks, cpu: u32, at: usize) {
        let pair = &mut self.pairs[at];
        lab.kernel_ns(self.send_ns);
        let Some(message) = pair.fill(lab, self.bytes) else { return };
        lab.load.sent += self.bytes;
        if pair.charged > self.buffer {
            return pair.drop(lab, message);
        }
        pair.charged += self.bytes + OVERHEAD;
        pair.queue.push_back(message);
        if std::mem::take(&mut pair.receiver_sleeps) {
            tasks.wake(lab, pairs::receiver(at), cpu, false);
        }
    }

    fn receive(&mut self, lab: &mut Lab<'_>, tasks: &mut Tasks, cpu: u32, at: usize) {
        let pair = &mut self.pairs[at];
        let Some(message) = pair.queue.pop_front() else {
            pair.receiver_sleeps = true;
            return tasks.sleep(cpu);
        };
        lab.kernel_ns(self.receive_ns);
        for Part { block, from, bytes } in &message {
            copy_bytes(lab, *block, *from, *bytes, Access::Read);
        }
        pair.drop(lab, message);
        pair.charged -= self.bytes + OVERHEAD;
        lab.load.received += self.bytes;
        lab.load.done += 1;
    }
}

impl Program for UdpStream {
    fn step(&mut self, lab: &mut Lab<'_>, cpu: u32) -> Turn {
        pairs::step(self, lab, cpu)
    }

    fn finish(&mut self, lab: &mut Lab<'_>) {
        let blocks = std::mem::take(&mut self.pairs).into_iter().flat_map(|pair| pair.holders);
        blocks.for_each(|(block, _)| lab.free(block, FRAGMENT.order));
    }
}
