//! Pairs of a sending and a receiving process, for the loads over sockets.

use zonal_core::alloc::Request;
use zonal_core::gfp::Gfp;
use zonal_core::types::{Order, Pfn};

use super::tasks::{TaskId, Tasks};
use crate::cost::contents::Access;
use crate::cost::kernel::COPY_PAGE_NS;
use crate::machine::Machine;
use crate::sim::Lab;
use crate::sim::Turn;
use crate::units::{LINE_BYTES, PAGE_BYTES, PAGE_LINES};

/// What TCP sends from: a block of order 3, asked for without waiting (recorded under 6.18).
pub(super) const FRAGMENT: Request = Request::new(Order::COSTLY)
    .gfp(Gfp::NOWAIT.union(Gfp::IO).union(Gfp::FS).union(Gfp::NORETRY).union(Gfp::COMP));

/// Pairs at work. Each has two tasks: [`sender`] and [`receiver`].
pub(super) trait Pairs {
    /// Who they are.
    fn crew(&mut self) -> &mut Crew;
    /// The next call of a pair's sender.
    fn send(&mut self, lab: &mut Lab<'_>, tasks: &mut Tasks, cpu: u32, at: usize);
    /// The next call of a pair's receiver.
    fn receive(&mut self, lab: &mut Lab<'_>, tasks: &mut Tasks, cpu: u32, at: usize);
}

/// Where pairs run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// Where new tasks are put, and where they are woken.
    Free,
    /// Together, and as many under each cache, and from then on where they are woken: as evenly
    /// spread as pairs are once the balancing by the clock had its seconds. The rule for new tasks
    /// leaves ends of pairs apart, chance brings them together on either side, and nothing in a run
    /// of milliseconds evens that out again.
    Even,
    /// Bound to two cores beside each other.
    Cores,
    /// Bound to two threads of a core, or to two cores where a core has one.
    Threads,
    /// Bound to two cores of different sockets, or to two cores where there is one socket.
    Sockets,
}

impl Place {
    /// The CPUs of a pair's sender and receiver, of `cpus` that take part.
    fn of(self, machine: &Machine, cpus: u32, at: u32) -> (u32, u32) {
        let cores = machine.cores().min(cpus);
        let (first, other) = match self {
            Place::Threads if cpus > machine.cores() => (at % cores, at % cores + cores),
            Place::Sockets if machine.sockets > 1 => {
                let half = (cores / machine.sockets).max(1);
                (at % half, at % half + half)
            }
            _ => (2 * at % cores, (2 * at + 1) % cores),
        };
        (first % cpus, other % cpus)
    }
}

/// Pairs on a number of CPUs, and their tasks, once they run.
#[derive(Debug)]
pub(super) struct Crew {
    cpus: u32,
    pairs: u32,
    place: Place,
    tasks: Option<Tasks>,
}

impl Crew {
    /// Pairs that have not begun.
    pub(super) fn new(cpus: u32, pairs: u32) -> Crew {
        Crew { cpus, pairs, place: Place::Free, tasks: None }
    }

    /// The same, there.
    pub(super) fn at(self, place: Place) -> Crew {
        Crew { place, ..self }
    }
}

/// The task that sends for a pair.
pub(super) fn sender(at: usize) -> TaskId {
    2 * at as TaskId
}

/// The task that receives for a pair.
pub(super) fn receiver(at: usize) -> TaskId {
    sender(at) + 1
}

/// The next call of the task that the CPU runs.
pub(super) fn step(pairs: &mut impl Pairs, lab: &mut Lab<'_>, cpu: u32) -> Turn {
    let crew = pairs.crew();
    let mut tasks =
        crew.tasks.take().unwrap_or_else(|| begin(lab, crew.cpus, crew.pairs, crew.place));
    let task = tasks.current(lab, cpu);
    match task {
        Some(task) if task % 2 == 0 => pairs.send(lab, &mut tasks, cpu, task as usize / 2),
        Some(task) => pairs.receive(lab, &mut tasks, cpu, task as usize / 2),
        None => {}
    }
    pairs.crew().tasks = Some(tasks);
    if task.is_some() { Turn::More } else { Turn::Wait }
}

/// A program starts the receivers, one after the other, and each of them its sender.
fn begin(lab: &mut Lab<'_>, cpus: u32, count: u32, place: Place) -> Tasks {
    let mut tasks = Tasks::new(lab.machine, cpus, 2 * count);
    if matches!(place, Place::Cores | Place::Threads | Place::Sockets) {
        tasks = tasks.bound();
    }
    for at in 0..count as usize {
        match place {
            Place::Free => {
                tasks.begin(lab, receiver(at), 0);
                let parent = tasks.last(receiver(at));
                tasks.begin(lab, sender(at), parent);
            }
            Place::Even => {
                tasks.spread(lab, receiver(at));
                let parent = tasks.last(receiver(at));
                tasks.begin_near(lab, sender(at), parent);
            }
            Place::Cores | Place::Threads | Place::Sockets => {
                let (first, other) = place.of(lab.machine, cpus, at as u32);
                tasks.put(lab, sender(at), first);
                tasks.put(lab, receiver(at), other);
            }
        }
    }
    tasks
}

/// Copies between a block and a buffer of the process.
pub(super) fn copy(lab: &mut Lab<'_>, block: Pfn, order: Order, access: Access) {
    lab.kernel_ns(COPY_PAGE_NS << order.get());
    lab.touch(block, order, PAGE_LINES << order.get(), access);
}

/// Copies some bytes of a block, from `from` on.
pub(super) fn copy_bytes(lab: &mut Lab<'_>, block: Pfn, from: u64, bytes: u64, access: Access) {
    lab.kernel_ns(COPY_PAGE_NS * bytes / PAGE_BYTES);
    // Whole pages have caches' places of their own; what begins within one counts from its start.
    let first = Pfn(block.0 + from / PAGE_BYTES);
    lab.allocator.platform().touch(first, bytes.div_ceil(LINE_BYTES), access, false);
}
