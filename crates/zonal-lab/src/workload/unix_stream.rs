//! Pairs of processes that send bytes over a stream socket of the machine itself (AF_UNIX), as
//! lmbench's `bw_unix`: the sender fills socket buffers with pages and copies a message into them,
//! the receiver copies it out and frees them, each on the CPU where it runs.
//!
//! A message of 64 KiB lies in four blocks, of orders 3, 2, 1 and 0, allocated and freed in this
//! order (recorded under 6.12 and 6.18). The sender sleeps when the socket is full, until the
//! receiver has emptied it; the receiver sleeps when there is nothing.

use std::collections::VecDeque;

use zonal_core::alloc::Request;
use zonal_core::gfp::Gfp;
use zonal_core::types::{Order, Pfn};

use super::pairs::{self, Pairs, copy};
use super::tasks::Tasks;
use super::{Kind, Param, Program, Turn};
use crate::cost::contents::Access;
use crate::cost::kernel::SOCKET_NS;
use crate::sim::Lab;

pub(super) const KIND: Kind = Kind {
    name: "unix-stream",
    about: "pairs of processes over AF_UNIX: blocks allocated by the one, freed by the other",
    params: &[
        Param { name: "pairs", about: "pairs of processes", default: 16, min: 1, max: 4096 },
        Param {
            name: "depth",
            about: "messages that a socket holds: its buffer of 208 KiB over a message's memory",
            default: 4,
            min: 1,
            max: 1024,
        },
    ],
    make: |values, cpus| Box::new(UnixStream::new(cpus, values[0] as u32, values[1] as usize)),
};

/// Orders of a message's blocks: what is left is asked for in the largest order that fits.
const ORDERS: [u32; 4] = [3, 2, 1, 0];

type Message = VecDeque<(Pfn, Order)>;

/// Pairs at work.
#[derive(Debug)]
pub struct UnixStream {
    cpus: u32,
    depth: usize,
    tasks: Option<Tasks>,
    pairs: Vec<Pair>,
}

#[derive(Clone, Debug, Default)]
struct Pair {
    /// What the sender is filling.
    filling: Message,
    /// Orders of it that are allocated.
    filled: usize,
    queue: VecDeque<Message>,
    /// What the receiver is emptying.
    emptying: Message,
    sender_sleeps: bool,
    receiver_sleeps: bool,
}

impl UnixStream {
    /// `pairs` pairs on `cpus` CPUs.
    pub fn new(cpus: u32, pairs: u32, depth: usize) -> UnixStream {
        UnixStream { cpus, depth, tasks: None, pairs: vec![Pair::default(); pairs as usize] }
    }
}

impl Pairs for UnixStream {
    fn tasks(&mut self) -> &mut Option<Tasks> {
        &mut self.tasks
    }
    fn sizes(&self) -> (u32, u32) {
        (self.cpus, self.pairs.len() as u32)
    }

    /// One block more, or the message on its way.
    fn send(&mut self, lab: &mut Lab<'_>, tasks: &mut Tasks, cpu: u32, at: usize) {
        let pair = &mut self.pairs[at];
        if pair.filled < ORDERS.len() {
            if pair.filled == 0 {
                if pair.queue.len() + usize::from(!pair.emptying.is_empty()) >= self.depth {
                    pair.sender_sleeps = true;
                    return tasks.sleep(cpu);
                }
                lab.kernel_ns(SOCKET_NS);
            }
            let order = Order::new(ORDERS[pair.filled]).unwrap_or(Order::ZERO);
            let request = Request::new(order).gfp(Gfp::KERNEL_ACCOUNT);
            pair.filling.extend(lab.request(request).map(|block| (block, order)));
            pair.filled += 1;
            return;
        }
        for (block, order) in &pair.filling {
            copy(lab, *block, *order, Access::Write);
        }
        pair.queue.push_back(std::mem::take(&mut pair.filling));
        pair.filled = 0;
        if std::mem::take(&mut pair.receiver_sleeps) {
            tasks.wake(lab, pairs::receiver(at), cpu, true);
        }
    }

    /// A message copied out, or one block of it freed.
    fn receive(&mut self, lab: &mut Lab<'_>, tasks: &mut Tasks, cpu: u32, at: usize) {
        let pair = &mut self.pairs[at];
        if let Some((block, order)) = pair.emptying.pop_front() {
            lab.free(block, order);
            if pair.emptying.is_empty()
                && pair.queue.is_empty()
                && std::mem::take(&mut pair.sender_sleeps)
            {
                tasks.wake(lab, pairs::sender(at), cpu, true);
            }
            return;
        }
        let Some(message) = pair.queue.pop_front() else {
            pair.receiver_sleeps = true;
            return tasks.sleep(cpu);
        };
        lab.kernel_ns(SOCKET_NS);
        for (block, order) in &message {
            copy(lab, *block, *order, Access::Read);
        }
        pair.emptying = message;
    }
}

impl Program for UnixStream {
    fn step(&mut self, lab: &mut Lab<'_>, cpu: u32) -> Turn {
        pairs::step(self, lab, cpu)
    }

    fn finish(&mut self, lab: &mut Lab<'_>) {
        for mut pair in std::mem::take(&mut self.pairs) {
            pair.queue.extend([pair.filling, pair.emptying]);
            pair.queue.into_iter().flatten().for_each(|(block, order)| lab.free(block, order));
        }
    }
}
