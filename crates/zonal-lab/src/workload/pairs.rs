//! Pairs of a sending and a receiving process, for the loads over sockets.

use zonal_core::alloc::Request;
use zonal_core::gfp::Gfp;
use zonal_core::types::{Order, Pfn};

use super::tasks::{TaskId, Tasks};
use crate::cost::contents::Access;
use crate::cost::kernel::COPY_PAGE_NS;
use crate::sim::Lab;
use crate::sim::Turn;
use crate::units::PAGE_LINES;

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

/// Pairs on a number of CPUs, and their tasks, once they run.
#[derive(Debug)]
pub(super) struct Crew {
    cpus: u32,
    pairs: u32,
    /// Pairs begin together and as many under each cache, not where new tasks are put.
    even: bool,
    tasks: Option<Tasks>,
}

impl Crew {
    /// Pairs that have not begun.
    pub(super) fn new(cpus: u32, pairs: u32) -> Crew {
        Crew { cpus, pairs, even: false, tasks: None }
    }

    /// The same, as evenly spread as pairs are once the balancing by the clock had its seconds.
    /// The rule for new tasks leaves ends of pairs apart, chance brings them together on either
    /// side, and nothing in a run of milliseconds evens that out again.
    pub(super) fn even(self) -> Crew {
        Crew { even: true, ..self }
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
        crew.tasks.take().unwrap_or_else(|| begin(lab, crew.cpus, crew.pairs, crew.even));
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
fn begin(lab: &mut Lab<'_>, cpus: u32, count: u32, even: bool) -> Tasks {
    let mut tasks = Tasks::new(lab.machine, cpus, 2 * count);
    for at in 0..count as usize {
        match even {
            true => tasks.spread(lab, receiver(at)),
            false => tasks.begin(lab, receiver(at), 0),
        }
        let parent = tasks.last(receiver(at));
        match even {
            true => tasks.begin_near(lab, sender(at), parent),
            false => tasks.begin(lab, sender(at), parent),
        }
    }
    tasks
}

/// Copies between a block and a buffer of the process.
pub(super) fn copy(lab: &mut Lab<'_>, block: Pfn, order: Order, access: Access) {
    lab.kernel_ns(COPY_PAGE_NS << order.get());
    lab.touch(block, order, PAGE_LINES << order.get(), access);
}
