//! A recorded trace on a machine of the lab: each block is asked for and freed when and where it
//! was, with the rights it was asked with, and written as new pages are.
//!
//! ```text
//!  events of the recording ──► ops: alloc or free of a block, by time
//!                               └─ a copy: CPUs that play the operations of the recorded ones
//! ```
//! Blocks that are freed without having been allocated were in use before: each copy holds them
//! from the beginning. Between its calls a CPU is idle, for as long as it did something else then;
//! a call that comes late delays what follows on its CPU until the next gap that is long enough. A
//! free waits until its block was allocated. When its ops are over, a CPU is done.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use zonal_core::alloc::Request;
use zonal_core::gfp::Gfp;
use zonal_core::types::{Order, Pfn};
use zonal_trace::{Event, EventKind, Recording, TraceError};

use super::error::WorkloadError;
use super::kind::{Kind, LINES, Param};
use crate::cost::contents::Access;
use crate::provenance::Provenance;
use crate::sim::Lab;
use crate::sim::{Program, Turn};

pub(super) const KIND: Kind = Kind {
    name: "trace",
    about: "the recording of FILE, as often at the same time as there are CPUs for it",
    params: &[
        Param {
            name: "copies",
            about: "copies, each on its own CPUs; 0: as many as fit",
            default: 0,
            min: 0,
            max: 4096,
            from: Provenance::estimated("a choice of the run: as many as fit"),
        },
        Param {
            name: "apart",
            about: "microseconds within which the copies begin, at random",
            default: 1000,
            min: 0,
            max: 1_000_000_000,
            from: Provenance::estimated("copies that start in one moment would stay in step"),
        },
        LINES,
    ],
    make: |_, cpus| Box::new(Trace::of_nothing(cpus)),
};

/// A call of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Op {
    /// Nanoseconds since its first event.
    at_ns: u64,
    cpu: u32,
    block: u32,
    allocates: bool,
}

/// A block of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Block {
    order: Order,
    gfp: u32,
    /// It was in use before the first event.
    held: bool,
}

/// A recording, as calls.
#[derive(Debug, Default)]
struct Recorded {
    cpus: u32,
    ops: Vec<Op>,
    blocks: Vec<Block>,
}

/// State of the recording's page frames.
#[derive(Default)]
struct Frames {
    /// Blocks in use, by their first frame: block, and pages of it that were not freed yet.
    live: BTreeMap<u64, (u32, u64)>,
    /// Frames that were freed and not allocated since.
    gone: BTreeSet<u64>,
}

impl Recorded {
    fn of(events: impl Iterator<Item = Result<Event, TraceError>>) -> Result<Recorded, TraceError> {
        let (mut recorded, mut frames) = (Recorded::default(), Frames::default());
        let mut first = None;
        for event in events {
            let event = event?;
            let at_ns = event.time_ns - *first.get_or_insert(event.time_ns);
            let most = Order::MAX.get() as u8;
            event.each_piece(most, |event| recorded.see(&mut frames, at_ns, event));
        }
        Ok(recorded)
    }

    fn see(&mut self, frames: &mut Frames, at_ns: u64, event: &Event) {
        self.cpus = self.cpus.max(event.cpu + 1);
        match event.kind {
            EventKind::Alloc { pfn: Some(pfn), order, gfp, .. } => {
                // A frame that is allocated again was freed without an event.
                if let Some((block, _)) = frames.live.remove(&pfn) {
                    self.ops.push(Op { at_ns, cpu: event.cpu, block, allocates: false });
                }
                let block = self.block(order, gfp, false);
                frames.gone.remove(&pfn);
                frames.live.insert(pfn, (block, 1 << order));
                self.ops.push(Op { at_ns, cpu: event.cpu, block, allocates: true });
            }
            EventKind::Free { pfn, order } => {
                if let Some(block) = self.freed(frames, pfn, order) {
                    self.ops.push(Op { at_ns, cpu: event.cpu, block, allocates: false });
                }
            }
            _ => {}
        }
    }

    fn block(&mut self, order: u8, gfp: u32, held: bool) -> u32 {
        let order = Order::new(u32::from(order)).unwrap_or(Order::MAX);
        self.blocks.push(Block { order, gfp, held });
        self.blocks.len() as u32 - 1
    }

    /// The block that is free now: with its last part, if it was split.
    fn freed(&mut self, frames: &mut Frames, pfn: u64, order: u8) -> Option<u32> {
        let pages = 1 << order;
        let before = frames.live.range_mut(..=pfn).next_back();
        if let Some((start, (block, left))) = before
            && pfn < *start + self.blocks[*block as usize].order.pages()
        {
            let (start, block) = (*start, *block);
            *left = left.saturating_sub(pages);
            if *left > 0 {
                return None;
            }
            frames.live.remove(&start);
            frames.gone.insert(start);
            return Some(block);
        }
        // Freed twice: it was allocated without an event, and so is left out.
        frames.gone.insert(pfn).then(|| self.block(order, Gfp::KERNEL.bits(), true))
    }
}

/// What became of a block of one copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Slot {
    /// It was not allocated yet; perhaps a CPU waits for it.
    Not(Option<u32>),
    Held(Pfn),
    /// Refused, or freed.
    Gone,
}

/// One run of the recording.
#[derive(Debug)]
struct Copy {
    slots: Vec<Slot>,
    /// Cycle at which its first event is.
    begins: u64,
}

/// A recording at work.
#[derive(Debug)]
pub struct Trace {
    recorded: Arc<Recorded>,
    /// Ops of each CPU of a copy, by number.
    queues: Vec<Vec<u32>>,
    copies: Vec<Copy>,
    /// Where each CPU of the machine is in its queue.
    next: Vec<usize>,
    apart_us: u64,
    lines: u64,
}

/// What can be said of a file before it is played: that it is a recording.
pub(super) fn check(file: &str) -> Result<(), WorkloadError> {
    Recording::open(Path::new(file)).map(drop).map_err(|error| wrong(&error))
}

fn wrong(error: &TraceError) -> WorkloadError {
    WorkloadError::Trace(error.to_string())
}

impl Trace {
    /// The recording of `file` on `cpus` CPUs, with the numbers of [`KIND`].
    pub(super) fn open(file: &str, values: &[u64], cpus: u32) -> Result<Trace, WorkloadError> {
        let recording = Recording::open(Path::new(file)).map_err(|error| wrong(&error))?;
        let recorded = Recorded::of(recording.events()).map_err(|error| wrong(&error))?;
        Trace::new(recorded, values, cpus)
    }

    /// Without a file there is nothing to do.
    fn of_nothing(cpus: u32) -> Trace {
        Trace {
            recorded: Arc::default(),
            queues: vec![Vec::new()],
            copies: Vec::new(),
            next: vec![0; cpus as usize],
            apart_us: 0,
            lines: 0,
        }
    }

    fn new(recorded: Recorded, values: &[u64], cpus: u32) -> Result<Trace, WorkloadError> {
        // On a smaller machine each CPU plays the operations of several.
        let each = recorded.cpus.clamp(1, cpus);
        let fit = cpus / each;
        let copies = if values[0] == 0 { fit } else { values[0] as u32 };
        if copies > fit {
            let what = format!("{copies} copies of {each} CPUs; on {cpus} CPUs are at most {fit}");
            return Err(WorkloadError::Trace(what));
        }
        let mut queues = vec![Vec::new(); each as usize];
        for (number, op) in recorded.ops.iter().enumerate() {
            queues[(op.cpu % each) as usize].push(number as u32);
        }
        let slots = vec![Slot::Not(None); recorded.blocks.len()];
        let copy = |_| Copy { slots: slots.clone(), begins: 0 };
        Ok(Trace {
            recorded: Arc::new(recorded),
            queues,
            copies: (0..copies).map(copy).collect(),
            next: vec![0; cpus as usize],
            apart_us: values[1],
            lines: values[2],
        })
    }
}

impl Program for Trace {
    fn scatter(&mut self, lab: &mut Lab<'_>, _cpus: u32) {
        let cycles = |ns: u64| (ns as f64 * lab.machine.ghz) as u64;
        let apart = cycles(self.apart_us * 1000).max(1);
        let each = self.queues.len() as u32;
        for (number, copy) in (0..).zip(&mut self.copies) {
            copy.begins = lab.random_below(apart);
            lab.allocator.platform().charge(false);
            lab.allocator.platform().turn(number * each, 0);
            let held = self.recorded.blocks.iter().zip(&mut copy.slots);
            for (block, slot) in held.filter(|(block, _)| block.held) {
                *slot = lab.alloc(block.order).map_or(Slot::Gone, Slot::Held);
            }
            lab.allocator.platform().charge(true);
        }
    }

    fn unplayed(&self) -> u64 {
        let played = self.next.iter().take(self.copies.len() * self.queues.len());
        let all = (self.recorded.ops.len() * self.copies.len()) as u64;
        all - played.map(|next| *next as u64).sum::<u64>()
    }

    fn step(&mut self, lab: &mut Lab<'_>, cpu: u32) -> Turn {
        let each = self.queues.len();
        let (number, queue) = (cpu as usize / each, &self.queues[cpu as usize % each]);
        let (Some(copy), Some(op)) =
            (self.copies.get_mut(number), queue.get(self.next[cpu as usize]))
        else {
            return Turn::Done;
        };
        let op = self.recorded.ops[*op as usize];
        let at = copy.begins + (op.at_ns as f64 * lab.machine.ghz) as u64;
        if lab.allocator.platform().clock() < at {
            return Turn::Until(at);
        }
        let block = self.recorded.blocks[op.block as usize];
        let slot = &mut copy.slots[op.block as usize];
        match *slot {
            Slot::Not(waits) if op.allocates => {
                let pfn = lab.request(Request::new(block.order).gfp(Gfp::from_bits(block.gfp)));
                if let Some(pfn) = pfn {
                    lab.touch(pfn, block.order, self.lines, Access::Write);
                }
                *slot = pfn.map_or(Slot::Gone, Slot::Held);
                if let Some(waits) = waits {
                    lab.wake(waits);
                }
            }
            // It is not allocated yet, on another CPU.
            Slot::Not(_) => {
                *slot = Slot::Not(Some(cpu));
                return Turn::Wait;
            }
            Slot::Held(pfn) => {
                lab.free(pfn, block.order);
                *slot = Slot::Gone;
            }
            Slot::Gone => {}
        }
        self.next[cpu as usize] += 1;
        Turn::More
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GFP: u32 = Gfp::KERNEL.bits();

    fn recorded(kinds: &[(u32, EventKind)]) -> Recorded {
        let events = (0..).zip(kinds).map(|(at, (cpu, kind))| {
            Ok(Event { time_ns: 500 + 100 * at, cpu: *cpu, pid: 1, kind: kind.clone() })
        });
        Recorded::of(events).unwrap()
    }

    fn alloc(pfn: u64, order: u8) -> EventKind {
        EventKind::Alloc { pfn: Some(pfn), order, migratetype: 0, gfp: GFP }
    }

    fn free(pfn: u64, order: u8) -> EventKind {
        EventKind::Free { pfn, order }
    }

    #[test]
    fn events_become_calls_on_blocks() {
        let ops = |kinds: &[(u32, EventKind)]| -> Vec<(u64, u32, u32, bool)> {
            let ops = recorded(kinds).ops.into_iter();
            ops.map(|op| (op.at_ns, op.cpu, op.block, op.allocates)).collect()
        };
        let plain = ops(&[(0, alloc(8, 1)), (1, free(8, 1)), (1, alloc(8, 0))]);
        assert_eq!(plain, [(0, 0, 0, true), (100, 1, 0, false), (200, 1, 1, true)]);
        let split = ops(&[(0, alloc(8, 1)), (0, free(9, 0)), (1, free(8, 0)), (0, free(8, 0))]);
        assert_eq!(split, [(0, 0, 0, true), (200, 1, 0, false)], "free with its last part");
        let before = recorded(&[(0, free(4, 2)), (0, alloc(4, 0)), (0, alloc(4, 0))]);
        assert!(before.blocks[0].held && !before.blocks[1].held, "{before:?}");
        assert_eq!(before.ops.len(), 4, "a frame that comes again was freed: {before:?}");
        let huge = recorded(&[(0, alloc(4096, 11)), (0, free(4096, 11))]);
        let orders: Vec<Order> = huge.blocks.iter().map(|block| block.order).collect();
        assert_eq!((orders, huge.ops.len()), (vec![Order::MAX; 2], 4), "all pages of it");
        assert_eq!(ops(&[(0, EventKind::VmstatUpdate), (3, free(1, 0)), (0, free(1, 0))]).len(), 1);
    }

    #[test]
    fn more_copies_than_there_are_cpus_are_refused() {
        let of = |copies, cpus| {
            let recorded = recorded(&[(0, alloc(8, 0)), (2, free(8, 0))]);
            Trace::new(recorded, &[copies, 0, 64], cpus).map(|trace| trace.copies.len())
        };
        assert_eq!((of(0, 10), of(2, 6), of(0, 2)), (Ok(3), Ok(2), Ok(1)));
        let error = of(4, 10).unwrap_err().to_string();
        assert!(error.contains("4 copies of 3 CPUs; on 10 CPUs are at most 3"), "{error}");
    }
}
