//! Which page comes next: the guesses that make a page frame number cost a few bits.
//!
//! Reader and writer run the same code over the same events, so a number is written as its distance
//! from a guess that both can make. What is guessed from, per CPU:
//!
//! | event | guess |
//! |--|--|
//! | `alloc` | the top of the CPU's list of this zone, order and migratetype |
//! | `free` | the block that was allocated after the one freed last, on the CPU that allocated it |
//! | `free_batched` | the frees of this CPU, in order |
//! | `zone_locked` | the block behind the one taken last |
//! | `pcpu_drain` | the bottom of a list |
//! | others | the number that came last |
//!
//! The lists are not the kernel's, they need not be: a wrong guess costs bytes and nothing else.
//!
//! - **MODEL-1** what a state holds grows by at most one entry per event, and the state is dropped
//!   at each key block, so it is bounded by the events between two of them

use std::collections::{HashMap, VecDeque};

use super::columns::{Column, Io};
use crate::error::Fault;

/// Entries of a list that are searched from its top or bottom.
const SEARCH: usize = 62;
/// Entries of the log of allocations that are looked through in each direction.
const LOG_SEARCH: usize = 256;
/// Live entries that a step in the log can pass: codes 0 to 119 are steps, forward and back.
const STEPS: usize = 60;
/// Frees of a CPU that a `free_batched` may refer to.
const FREES: usize = 64;

/// The code of a number that no guess has: the number itself follows.
const MISS: u8 = 255;
/// First code of a list of another zone, whose number follows.
const OTHER_ZONE: u8 = 128;
/// The code of a step in the log of another CPU than the last free's, whose number follows.
const OTHER_CPU: u8 = 250;

/// Record of a block, by its first frame.
#[derive(Debug, Clone, Copy)]
struct Block {
    /// CPU that allocated it, by index, and its place in that CPU's log.
    cpu: u32,
    place: u32,
    migratetype: u8,
    live: bool,
}

/// Key of a list of free blocks.
type ListKey = (u32, u8, u8, u8);

/// State of one CPU.
#[derive(Debug, Clone, Default)]
struct Lane {
    /// Frames in the order of their allocation.
    log: Vec<u64>,
    /// Where the last free was: CPU, by index, and place in its log.
    freed: (u32, u32),
    /// The frees that no `free_batched` has repeated, oldest first.
    frees: VecDeque<u64>,
    last_free: u64,
    last_refill: u64,
    last_refill_pages: u64,
    /// What was taken last from the top of a list and from the bottom of one, by [`End`].
    taken: [Taken; 2],
}

/// Last block that a CPU took from an end of its lists.
#[derive(Debug, Clone, Copy, Default)]
struct Taken {
    pfn: u64,
    zone: u8,
}

/// An end of a list: allocations take from the top, drains from the bottom.
#[derive(Debug, Clone, Copy)]
enum End {
    Top,
    Bottom,
}

impl End {
    /// Columns of the codes and of the misses; the name of a code.
    fn columns(self) -> (Column, Column, &'static str) {
        match self {
            End::Top => (Column::AllocCode, Column::AllocMiss, "alloc code"),
            End::Bottom => (Column::DrainCode, Column::DrainMiss, "drain code"),
        }
    }

    /// Place of `pfn` among the entries next to this end.
    fn find(self, list: &VecDeque<u64>, pfn: u64) -> Option<u8> {
        let is_it = |entry: &u64| *entry == pfn;
        let place = match self {
            End::Top => list.iter().take(SEARCH).position(is_it),
            End::Bottom => list.iter().rev().take(SEARCH).position(is_it),
        };
        place.map(|place| place as u8)
    }

    /// The index of this place from this end.
    fn index(self, list: &VecDeque<u64>, place: u8) -> Option<usize> {
        match self {
            End::Top => Some(usize::from(place)),
            End::Bottom => list.len().checked_sub(usize::from(place) + 1),
        }
    }
}

/// The state that guesses are made from.
#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    /// First frames of zones, in order.
    zone_starts: Vec<u64>,
    lanes: Vec<Lane>,
    blocks: HashMap<u64, Block>,
    lists: HashMap<ListKey, VecDeque<u64>>,
    last_other: u64,
}

/// An order with the migratetype asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) order: u8,
    pub(super) migratetype: u8,
}

impl Model {
    pub(super) fn new(zone_starts: &[u64]) -> Model {
        Model { zone_starts: zone_starts.to_vec(), ..Model::default() }
    }

    /// Resets to the state at a key block: only the zones stay.
    pub(super) fn reset(&mut self) {
        *self = Model::new(&self.zone_starts);
    }

    fn lane(&mut self, cpu: usize) -> &mut Lane {
        if cpu >= self.lanes.len() {
            self.lanes.resize_with(cpu + 1, Lane::default);
        }
        &mut self.lanes[cpu]
    }

    fn zone(&self, pfn: u64) -> u8 {
        self.zone_starts.partition_point(|start| *start <= pfn).min(255) as u8
    }

    fn list(&mut self, cpu: usize, zone: u8, shape: Shape) -> &mut VecDeque<u64> {
        self.lists.entry((cpu as u32, zone, shape.order, shape.migratetype)).or_default()
    }

    /// The frame of a successful allocation.
    pub(super) fn alloc<I: Io>(
        &mut self,
        io: &mut I,
        cpu: usize,
        shape: Shape,
        pfn: u64,
    ) -> Result<u64, Fault> {
        let pfn = self.take(io, cpu, shape, pfn, End::Top)?;
        let lane = self.lane(cpu);
        let place = lane.log.len() as u32;
        lane.log.push(pfn);
        let block = Block { cpu: cpu as u32, place, migratetype: shape.migratetype, live: true };
        self.blocks.insert(pfn, block);
        Ok(pfn)
    }

    /// The frame of a free.
    pub(super) fn free<I: Io>(
        &mut self,
        io: &mut I,
        cpu: usize,
        order: u8,
        pfn: u64,
    ) -> Result<u64, Fault> {
        self.lane(cpu);
        let (last_cpu, last_place) = self.lane(cpu).freed;
        let known = match I::WRITES {
            true => self.blocks.get(&pfn).copied().filter(|block| block.live),
            false => None,
        };
        let step = known.and_then(|block| match block.cpu == last_cpu {
            true => self.step_to(last_cpu, last_place, block.place),
            false => None,
        });
        let code = io.byte(Column::FreeCode, || match (step, known) {
            (Some(step), _) => step,
            (None, Some(_)) => OTHER_CPU,
            (None, None) => MISS,
        })?;
        let pfn = match code {
            MISS => io.distance(Column::FreeMiss, self.lane(cpu).last_free, pfn)?,
            OTHER_CPU => {
                let block = known.unwrap_or(Block { cpu: 0, place: 0, migratetype: 0, live: true });
                let other = io.number(Column::FreeCpu, || u64::from(block.cpu))?;
                let log = self.lanes.get(other as usize).map_or(0, |lane| lane.log.len()) as u64;
                let back = io.number(Column::FreeBack, || log - 1 - u64::from(block.place))?;
                let place = log.checked_sub(back).and_then(|place| place.checked_sub(1));
                place
                    .and_then(|place| self.lanes[other as usize].log.get(place as usize).copied())
                    .ok_or_else(|| super::columns::wrong("free place"))?
            }
            step => self.step_from(last_cpu, last_place, step)?,
        };
        let mut migratetype = 1;
        if let Some(block) = self.blocks.get_mut(&pfn) {
            block.live = false;
            migratetype = block.migratetype;
            let freed = (block.cpu, block.place);
            self.lanes[cpu].freed = freed;
        }
        let zone = self.zone(pfn);
        self.list(cpu, zone, Shape { order, migratetype }).push_front(pfn);
        let lane = self.lane(cpu);
        lane.last_free = pfn;
        lane.frees.push_back(pfn);
        if lane.frees.len() > FREES {
            lane.frees.pop_front();
        }
        Ok(pfn)
    }

    /// The number of live blocks between two places of a log, as a code: even forward, odd back.
    fn step_to(&self, cpu: u32, from: u32, to: u32) -> Option<u8> {
        let log = &self.lanes.get(cpu as usize)?.log;
        let (from, to) = (from as usize, to as usize);
        let distance = from.abs_diff(to);
        if distance == 0 || distance > LOG_SEARCH || to >= log.len() {
            return None;
        }
        let passed = match to > from {
            true => (from + 1..to).filter(|place| self.is_live(cpu, *place)).count(),
            false => (to + 1..from).filter(|place| self.is_live(cpu, *place)).count(),
        };
        (passed < STEPS).then(|| passed as u8 * 2 + u8::from(to < from))
    }

    fn step_from(&self, cpu: u32, from: u32, step: u8) -> Result<u64, Fault> {
        let wrong = || super::columns::wrong("free step");
        let log = &self.lanes.get(cpu as usize).ok_or_else(wrong)?.log;
        let from = from as usize;
        let wanted = usize::from(step / 2);
        let found = match step % 2 {
            0 => (from + 1..log.len().min(from + LOG_SEARCH + 1))
                .filter(|place| self.is_live(cpu, *place))
                .nth(wanted),
            _ => (from.saturating_sub(LOG_SEARCH)..from.min(log.len()))
                .rev()
                .filter(|place| self.is_live(cpu, *place))
                .nth(wanted),
        };
        found.map(|place| log[place]).ok_or_else(wrong)
    }

    /// Whether the block that was allocated at this place of a log is still the one of its frame,
    /// and not freed.
    fn is_live(&self, cpu: u32, place: usize) -> bool {
        let log = &self.lanes[cpu as usize].log;
        let block = log.get(place).and_then(|pfn| self.blocks.get(pfn));
        block.is_some_and(|block| block.live && block.cpu == cpu && block.place as usize == place)
    }

    /// The frame of a `free_batched`.
    pub(super) fn free_batched<I: Io>(
        &mut self,
        io: &mut I,
        cpu: usize,
        pfn: u64,
    ) -> Result<u64, Fault> {
        let lane = self.lane(cpu);
        let found = lane.frees.iter().position(|freed| *freed == pfn);
        let code = io.byte(Column::BatchedCode, || found.map_or(MISS, |place| place as u8))?;
        if code == MISS {
            return io.distance(Column::BatchedMiss, lane.last_free, pfn);
        }
        let Some(pfn) = lane.frees.get(usize::from(code)).copied() else {
            return Err(super::columns::wrong("free_batched code"));
        };
        // What lies before it was freed alone, and is not asked for any more.
        lane.frees.drain(..=usize::from(code));
        Ok(pfn)
    }

    /// The frame of a `zone_locked`.
    pub(super) fn zone_locked<I: Io>(
        &mut self,
        io: &mut I,
        cpu: usize,
        shape: Shape,
        pfn: u64,
    ) -> Result<u64, Fault> {
        let lane = self.lane(cpu);
        let guess = lane.last_refill.wrapping_add(lane.last_refill_pages);
        let pfn = io.distance(Column::Refill, guess, pfn)?;
        lane.last_refill = pfn;
        lane.last_refill_pages = 1 << shape.order;
        let zone = self.zone(pfn);
        self.list(cpu, zone, shape).push_back(pfn);
        Ok(pfn)
    }

    /// The frame of a `pcpu_drain`.
    pub(super) fn drain<I: Io>(
        &mut self,
        io: &mut I,
        cpu: usize,
        shape: Shape,
        pfn: u64,
    ) -> Result<u64, Fault> {
        self.take(io, cpu, shape, pfn, End::Bottom)
    }

    /// Removes a frame from the CPU's list, searching from this end.
    fn take<I: Io>(
        &mut self,
        io: &mut I,
        cpu: usize,
        shape: Shape,
        pfn: u64,
        end: End,
    ) -> Result<u64, Fault> {
        let (codes, misses, code_name) = end.columns();
        let last = self.lane(cpu).taken[end as usize];
        let zone = if I::WRITES { self.zone(pfn) } else { 0 };
        let found = match I::WRITES {
            true => end.find(self.list(cpu, zone, shape), pfn),
            false => None,
        };
        let code = io.byte(codes, || match found {
            Some(place) if zone == last.zone => place,
            Some(place) => OTHER_ZONE + place,
            None => MISS,
        })?;
        let pfn = match code {
            MISS => io.distance(misses, last.pfn, pfn)?,
            code => {
                let zone = match code >= OTHER_ZONE {
                    true => io.byte(Column::Zone, || self.zone(pfn))?,
                    false => last.zone,
                };
                let list = self.list(cpu, zone, shape);
                let index = end.index(list, code % OTHER_ZONE);
                let found = index.and_then(|index| list.get(index));
                found.copied().ok_or_else(|| super::columns::wrong(code_name))?
            }
        };
        let zone = self.zone(pfn);
        let list = self.list(cpu, zone, shape);
        if let Some(index) = end.find(list, pfn).and_then(|place| end.index(list, place)) {
            list.remove(index);
        }
        self.lane(cpu).taken[end as usize] = Taken { pfn, zone };
        Ok(pfn)
    }

    /// The frame of any other event.
    pub(super) fn other<I: Io>(&mut self, io: &mut I, pfn: u64) -> Result<u64, Fault> {
        let pfn = io.distance(Column::OtherPfn, self.last_other, pfn)?;
        self.last_other = pfn;
        Ok(pfn)
    }
}
