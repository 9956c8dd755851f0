//! Pairs of processes that send bytes over a stream socket of the machine itself (AF_UNIX), as
//! lmbench's `bw_unix`: the sender fills socket buffers with pages and copies a message into them,
//! the receiver copies it out and frees them, each on the CPU where it runs.
//!
//! A message of 64 KiB lies in two buffers, as recorded under 6.12 and 6.18: one with a block of
//! order 3, and one with blocks of orders 2, 1 and 0. Each is sent as soon as it is filled. When it
//! is copied out, the socket is no longer charged for it, and then its blocks are freed. The sender
//! sleeps when buffers take up as much memory as the socket may have, until three quarters of that
//! are free again; the receiver sleeps when there is nothing.

use std::collections::VecDeque;

use zonal_core::alloc::Request;
use zonal_core::gfp::Gfp;
use zonal_core::types::{Order, Pfn};

use super::kind::{Kind, Param};
use super::pairs::{self, Crew, Pairs, Place, copy};
use super::tasks::Tasks;
use crate::cost::contents::Access;
use crate::cost::kernel::{RECEIVE_NS, SEND_NS, SEND_PAGE_NS};
use crate::provenance::{Provenance, given};
use crate::sim::Lab;
use crate::sim::{Program, Turn};
use crate::units::{KIB, PAGE_BYTES};

pub(super) const KIND: Kind = Kind {
    name: "unix-stream",
    about: "pairs of processes over AF_UNIX: blocks allocated by the one, freed by the other",
    params: &[
        Param {
            name: "pairs",
            about: "pairs of processes",
            default: 16,
            min: 1,
            max: 4096,
            from: Provenance::sourced("the announcement: 16 pairs"),
        },
        Param {
            name: "kib",
            about: "memory that a socket's buffers may take (net.core.wmem_default)",
            default: 208,
            min: 1,
            max: 1 << 20,
            from: Provenance::sourced("the default of net.core.wmem_default"),
        },
    ],
    make: |values, cpus| Box::new(UnixStream::new(cpus, values[0] as u32, values[1])),
};

given! {
    /// Order of the largest block of a buffer.
    LARGEST: u32 = 3,
        Provenance::sourced("32 KiB: UNIX_SKB_FRAGS_SZ");
    /// Bytes that the socket is charged for the first besides its pages.
    LONG_HEAD: u64 = 4096 + 256,
        Provenance::sourced("a head with its tail room in a page, and the 256 of a descriptor");
    /// The same for the second.
    SHORT_HEAD: u64 = 704 + 256,
        Provenance::sourced("a head of 704, an object of its own cache, and a descriptor");
}
/// Orders of the blocks of a message's buffers.
const BUFFERS: [&[u32]; 2] = [&[LARGEST], &[2, 1, 0]];
/// What the socket is charged for each of them besides its pages.
const HEADS: [u64; 2] = [LONG_HEAD, SHORT_HEAD];

/// Pairs at work.
#[derive(Debug)]
pub struct UnixStream {
    crew: Crew,
    /// Bytes that a socket may be charged.
    limit: u64,
    pairs: Vec<Pair>,
}

#[derive(Clone, Debug, Default)]
struct Buffer {
    /// Which one of its message.
    at: usize,
    blocks: VecDeque<(Pfn, Order)>,
}

impl Buffer {
    /// Bytes of its pages.
    fn bytes(&self) -> u64 {
        let pages: u64 = BUFFERS[self.at].iter().map(|order| 1 << order).sum();
        pages * PAGE_BYTES
    }

    /// Bytes that the socket is charged for it.
    fn charged(&self) -> u64 {
        self.bytes() + HEADS[self.at]
    }
}

#[derive(Clone, Debug, Default)]
struct Pair {
    /// The buffer that the sender fills.
    filling: Buffer,
    /// Blocks of it that were asked for.
    filled: usize,
    queue: VecDeque<Buffer>,
    /// The buffer that the receiver empties.
    emptying: Option<Buffer>,
    /// Bytes charged to the socket.
    charged: u64,
    sender_sleeps: bool,
    receiver_sleeps: bool,
}

impl UnixStream {
    /// `pairs` pairs on `cpus` CPUs, each with a socket for `kib` KiB.
    pub fn new(cpus: u32, pairs: u32, kib: u64) -> UnixStream {
        UnixStream {
            crew: Crew::new(cpus, pairs).at(Place::Even),
            limit: kib * KIB,
            pairs: vec![Pair::default(); pairs as usize],
        }
    }
}

impl Pairs for UnixStream {
    fn crew(&mut self) -> &mut Crew {
        &mut self.crew
    }

    /// Adds a block, or sends the buffer.
    fn send(&mut self, lab: &mut Lab<'_>, tasks: &mut Tasks, cpu: u32, at: usize) {
        let pair = &mut self.pairs[at];
        let orders = BUFFERS[pair.filling.at];
        if pair.filled < orders.len() {
            if pair.filled == 0 {
                if pair.charged >= self.limit {
                    pair.sender_sleeps = true;
                    return tasks.sleep(cpu);
                }
                if pair.filling.at == 0 {
                    lab.kernel_ns(SEND_NS);
                }
            }
            let order = Order::new(orders[pair.filled]).unwrap_or(Order::ZERO);
            let request = Request::new(order).gfp(Gfp::KERNEL_ACCOUNT);
            pair.filling.blocks.extend(lab.request(request).map(|block| (block, order)));
            pair.filled += 1;
            return;
        }
        for (block, order) in &pair.filling.blocks {
            lab.kernel_ns(SEND_PAGE_NS << order.get());
            copy(lab, *block, *order, Access::Write);
        }
        let next = Buffer { at: (pair.filling.at + 1) % BUFFERS.len(), ..Buffer::default() };
        let full = std::mem::replace(&mut pair.filling, next);
        pair.filled = 0;
        pair.charged += full.charged();
        lab.load.sent += full.bytes();
        pair.queue.push_back(full);
        if std::mem::take(&mut pair.receiver_sleeps) {
            tasks.wake(lab, pairs::receiver(at), cpu, true);
        }
    }

    /// A buffer copied out, or one block of it freed.
    fn receive(&mut self, lab: &mut Lab<'_>, tasks: &mut Tasks, cpu: u32, at: usize) {
        let pair = &mut self.pairs[at];
        if let Some(buffer) = &mut pair.emptying {
            if let Some((block, order)) = buffer.blocks.pop_front() {
                return lab.free(block, order);
            }
            pair.emptying = None;
        }
        let Some(buffer) = pair.queue.pop_front() else {
            pair.receiver_sleeps = true;
            return tasks.sleep(cpu);
        };
        if buffer.at == 0 {
            lab.kernel_ns(RECEIVE_NS);
        }
        for (block, order) in &buffer.blocks {
            copy(lab, *block, *order, Access::Read);
        }
        pair.charged -= buffer.charged();
        lab.load.received += buffer.bytes();
        pair.emptying = Some(buffer);
        if pair.sender_sleeps && 4 * pair.charged <= self.limit {
            pair.sender_sleeps = false;
            tasks.wake(lab, pairs::sender(at), cpu, true);
        }
    }
}

impl Program for UnixStream {
    fn step(&mut self, lab: &mut Lab<'_>, cpu: u32) -> Turn {
        pairs::step(self, lab, cpu)
    }

    fn finish(&mut self, lab: &mut Lab<'_>) {
        for mut pair in std::mem::take(&mut self.pairs) {
            pair.queue.extend([pair.filling, pair.emptying.unwrap_or_default()]);
            let blocks = pair.queue.into_iter().flat_map(|buffer| buffer.blocks);
            blocks.for_each(|(block, order)| lab.free(block, order));
        }
    }
}
