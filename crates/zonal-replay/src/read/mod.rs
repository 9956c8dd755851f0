//! A trace made into a program: which block each event is about, before anything runs.
//!
//! ```text
//!  events ──► PageTable: what is each frame now? ──► ops: Alloc slot 7, Free slot 7, Refresh, …
//!                     │                                   slots: frame, order, origin
//!                     └──► counts of everything that does not fit
//! ```
//! A *slot* stands for one block from its allocation to its free. A runner keeps, by slot, where
//! its own block is; it never needs to look a page frame up.
//!
//! # What does not fit, and what is made of it
//!
//! | the trace shows | meaning | done |
//! |--|--|--|
//! | a free of a frame never seen | in use since before the trace | a slot held at the start |
//! | a free of a frame last seen freed | an allocation without event | not replayed, counted |
//! | an allocation of a frame still live | a free without event | the older slot is freed first |
//! | frees of parts of a live block | the block was split | freed whole with its last part |
//! | a free with another order | | freed with the order it was allocated with |
//! | a failed allocation | the kernel had none | not replayed, counted |
//!
//! # The start
//! A recording that knows the machine's state at some moment inside the trace is replayed from that
//! moment on. Earlier events show which blocks are in use then ([`Origin::Held`]) and which are
//! free ([`Origin::Gone`]); they are not replayed.

mod flush;
mod frames;
mod free_count;
mod kernel;
mod parts;
mod workers;

use std::collections::BTreeMap;

use zonal_core::types::Order;
use zonal_trace::{Event, EventKind, MachineDescription, TraceError};

use self::frames::{Frame, PageTable};
pub(crate) use self::kernel::DRAIN_BEHIND_FREE_NS;
pub use self::kernel::Watcher;
pub use self::parts::{frees_parts, frees_rows};
use self::workers::{Workers, seconds_max};
use crate::error::ReplayError;
use crate::facts::{Fact, Facts};
use crate::locks::Locks;
use crate::moves::MovesByPlace;
use crate::others::Others;
use crate::program::{Counts, ListPlace, NO_SLOT, Op, OpKind, Origin, Program, Slot};
use crate::progress::{Phase, Progress, Watch};
use crate::reclaim::{Cache, FilePages, Filer, Wakes};
use crate::silence::Silences;
use crate::told::{Recorded, Untraced};
use crate::unjudged::Unjudged;
use crate::world::{Changed, World};
use crate::zones::ZoneMap;

/// Events between two calls of the [`Watch`].
const TICK_EVENTS: u64 = 1 << 13;

/// What the recorder of `shared/traces` writes into a trace right before it reads `/proc/zoneinfo`,
/// the first file of the machine's state.
const STATE_IS_READ: &str = "FX before begin";

/// The largest order that the model has.
const ORDER_MAX: u8 = Order::MAX.get() as u8;

/// Options of reading a trace.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadOptions<'a> {
    /// Stop after this many events.
    pub limit: Option<u64>,
    /// What the kernel recorded of its own doings that the model is to be told.
    pub recorded: Recorded,
    /// Allocations without event, by ascending position.
    pub untraced: &'a [Untraced],
    /// Frees past the lists, by ascending position among the facts.
    pub past_lists: &'a [usize],
    /// Whether to find blocks with pages of files.
    pub files: bool,
    /// Whether blocks that are freed in parts are split; else the last part frees them whole.
    pub parts: bool,
}

/// Reads `events` to their end, or as far as `reading` says.
///
/// # Errors
/// The first error of the stream, or [`ReplayError::Stopped`].
pub fn compile(
    machine: &MachineDescription,
    zones: &ZoneMap,
    events: impl Iterator<Item = Result<Event, TraceError>>,
    reading: ReadOptions<'_>,
    watch: &mut Watch<'_>,
) -> Result<Program, ReplayError> {
    let mut compiler = Compiler::new(machine, zones, reading);
    each(machine, events, reading.limit, watch, |event| compiler.take(event))?;
    compiler.finish()
}

/// What is learnt before a program is made.
pub struct FirstLook {
    /// What the kernel did to each block.
    pub facts: Facts,
    /// No event was lost.
    pub is_whole: bool,
    /// CPUs: one more than the highest of any event or file.
    pub cpus: u32,
    /// When the model cannot be judged.
    pub unjudged: Unjudged,
    /// Waits for locks.
    pub locks: Locks,
    /// What reclaim did.
    pub changes: Vec<Changed>,
    /// What is not of the recorded command.
    pub others: Others,
    /// Pages of files that reclaim took.
    pub cache: Cache,
    /// For which blocks reclaim was asked.
    pub wakes: Wakes,
}

/// Looks at `events` for what they say together.
///
/// # Errors
/// The first error of the stream, or [`ReplayError::Stopped`].
pub fn facts(
    machine: &MachineDescription,
    events: impl Iterator<Item = Result<Event, TraceError>>,
    limit: Option<u64>,
    watch: &mut Watch<'_>,
) -> Result<FirstLook, ReplayError> {
    let mut cpus = machine.cpus.unwrap_or(1);
    let mut begins = Begins::new(machine);
    let mut unjudged = Unjudged::default();
    let map = ZoneMap::new(machine);
    let mut facts = Facts::new(frees_rows(machine), map.clone(), machine.is_simulated);
    let mut world = World::new(&map);
    let mut locks = Locks::new(map);
    let mut others = Others::new(machine);
    let (mut cache, mut wakes) = (Cache::default(), Wakes::default());
    let mut is_whole = true;
    each(machine, events, limit, watch, |event| {
        is_whole &= !matches!(event.kind, EventKind::Lost { .. });
        if begins.before(event) {
            facts.begin();
            locks.begin(event.time_ns);
            cache.begin(event.time_ns);
            wakes = Wakes::default();
        }
        cpus = cpus.max(event.cpu + 1);
        facts.see(event);
        unjudged.see(event);
        locks.see(event);
        world.see(event);
        others.see(event);
        cache.see(event);
        wakes.see(event);
        if Begins::after(event) {
            facts.begin();
            locks.begin(event.time_ns);
        }
    })?;
    let changes = world.finish();
    Ok(FirstLook { facts, is_whole, cpus, unjudged, locks, changes, others, cache, wakes })
}

/// Calls `then` for each event, as far as `limit` says; for one of a block above the core's largest
/// order, with each of the largest blocks that it consists of.
///
/// # Errors
/// The first error of the stream, or [`ReplayError::Stopped`].
pub fn each(
    machine: &MachineDescription,
    events: impl Iterator<Item = Result<Event, TraceError>>,
    limit: Option<u64>,
    watch: &mut Watch<'_>,
    mut then: impl FnMut(&Event),
) -> Result<(), ReplayError> {
    let of = limit.or(machine.events);
    let limit = limit.unwrap_or(u64::MAX);
    let mut read: u64 = 0;
    for event in events {
        if read.is_multiple_of(TICK_EVENTS)
            && watch(Progress { phase: Phase::Reading, done: read, of }).is_break()
        {
            return Err(ReplayError::Stopped);
        }
        event?.each_piece(ORDER_MAX, &mut then);
        read += 1;
        if read == limit {
            break;
        }
    }
    Ok(())
}

/// Where the replayed part of a trace begins.
struct Begins {
    /// The machine's state is of this time: start there.
    at: Option<u64>,
}

impl Begins {
    fn new(machine: &MachineDescription) -> Begins {
        Begins { at: machine.start.as_ref().map(|state| state.t_end_ns) }
    }

    /// Whether it begins right before this event.
    fn before(&mut self, event: &Event) -> bool {
        self.at.take_if(|start| event.time_ns >= *start).is_some()
    }

    /// Whether it begins right after it.
    fn after(event: &Event) -> bool {
        matches!(&event.kind, EventKind::Marker(text) if text.trim() == STATE_IS_READ)
    }
}

struct Compiler<'a> {
    zones: &'a ZoneMap,
    reading: ReadOptions<'a>,
    /// The recorder had emptied the lists.
    cold: bool,
    watcher: Watcher,
    table: PageTable,
    begins: Begins,
    /// Facts so far.
    facts: usize,
    /// The event is an allocation or a free past the lists.
    past_lists: bool,
    program: Program,
    in_use: u64,
    workers: Workers,
    filer: Option<Filer>,
}

impl<'a> Compiler<'a> {
    fn new(
        machine: &MachineDescription,
        zones: &'a ZoneMap,
        reading: ReadOptions<'a>,
    ) -> Compiler<'a> {
        Compiler {
            zones,
            reading,
            cold: machine.flags.cold_pcp_start == Some(true),
            watcher: Watcher::of(zones.clone(), machine),
            table: PageTable::default(),
            begins: Begins::new(machine),
            facts: 0,
            past_lists: false,
            program: Program {
                ops: Vec::with_capacity(machine.events.unwrap_or(0).min(1 << 24) as usize),
                slots: Vec::new(),
                cpus: machine.cpus.unwrap_or(1),
                span_ns: (0, 0),
                start_ns: 0,
                counts: Counts::default(),
                kernel: MovesByPlace::new(),
                changes: Vec::new(),
                early: BTreeMap::new(),
                files: FilePages::default(),
                silences: Silences::default(),
            },
            in_use: 0,
            workers: Workers::default(),
            filer: reading.files.then(Filer::default),
        }
    }

    fn take(&mut self, event: &Event) {
        let program = &mut self.program;
        if program.counts.events == 0 {
            program.span_ns.0 = event.time_ns;
            program.start_ns = event.time_ns;
        }
        if self.begins.before(event) {
            self.begin(event.time_ns);
        }
        self.make_up_allocations(event);
        let program = &mut self.program;
        program.counts.events += 1;
        program.span_ns.1 = event.time_ns;
        program.silences.see(event.time_ns);
        program.cpus = program.cpus.max(event.cpu + 1);
        self.watcher.see(event);
        if let Some(filer) = &mut self.filer {
            filer.see(event);
        }
        self.past_lists = self.is_past_lists(event);
        if self.reading.recorded.decay {
            self.workers.see(event);
        }
        let counts = &mut self.program.counts;
        match event.kind {
            EventKind::Alloc { pfn: Some(pfn), order, migratetype, gfp } => {
                self.alloc(event, pfn, order, (migratetype, gfp));
            }
            EventKind::Alloc { pfn: None, .. } => counts.kernel_failed += 1,
            EventKind::Free { pfn, order } => self.free(event, pfn, order),
            EventKind::FreeBatched { .. } => counts.free_batched += 1,
            EventKind::Extfrag { .. } => counts.extfrags += 1,
            EventKind::VmstatUpdate => {
                counts.vmstat_updates += 1;
                if self.reading.recorded.decay {
                    self.push(event, OpKind::Refresh, NO_SLOT);
                }
            }
            EventKind::Marker(_) | EventKind::Fork { .. } | EventKind::Notice(_) => {
                counts.remarks += 1;
            }
            EventKind::Lost { events } => counts.lost += events,
            EventKind::ZoneLocked { .. } | EventKind::PcpuDrain { .. } => {}
            _ => counts.unknown += 1,
        }
        if Begins::after(event) {
            self.begin(event.time_ns);
        }
    }

    /// Counts an event that is a fact, and tells whether it went past the lists.
    fn is_past_lists(&mut self, event: &Event) -> bool {
        if Fact::of(event).is_none() {
            return false;
        }
        let at = self.facts;
        self.facts += 1;
        let past_lists = &mut self.reading.past_lists;
        match past_lists.split_first() {
            Some((first, rest)) if *first == at => {
                *past_lists = rest;
                true
            }
            _ => false,
        }
    }

    /// Makes up the allocations without event that came before this one.
    fn make_up_allocations(&mut self, event: &Event) {
        let at = self.facts;
        while let Some((first, rest)) = self.reading.untraced.split_first()
            && first.at <= at
        {
            self.reading.untraced = rest;
            let taken = Event { cpu: first.cpu, ..event.clone() };
            let (pfn, order) = (first.pfn, first.order);
            let kind = if order == 0 { OpKind::Bulk } else { OpKind::Alloc };
            let asked = (first.migratetype, first.gfp());
            let slot = self.hand_out(&taken, kind, (pfn, order), asked);
            if let Some(filer) = &mut self.filer {
                filer.made_up(slot);
            }
            let counts = &mut self.program.counts;
            counts.allocs_made_up += 1;
            counts.alloc_pages_made_up += 1 << order;
        }
    }

    /// Makes this moment the start.
    fn begin(&mut self, time_ns: u64) {
        let program = &mut self.program;
        if self.cold {
            program.early = early(program, self.zones);
        }
        let events = program.counts.events;
        program.counts = Counts { events, before_start: events, ..Counts::default() };
        program.ops.clear();
        program.start_ns = time_ns;
        program.silences.begin();
        self.watcher.restart();
        if let Some(filer) = &mut self.filer {
            filer.begin();
        }
        self.in_use = 0;
        for slot in &mut program.slots {
            slot.origin = if slot.left == 0 { Origin::Gone } else { Origin::Held };
            self.in_use += u64::from(slot.left);
        }
        program.counts.peak_pages = self.in_use;
    }

    fn alloc(&mut self, event: &Event, pfn: u64, order: u8, (migratetype, gfp): (u8, u32)) {
        let kind = if self.past_lists { OpKind::Direct } else { OpKind::Alloc };
        let slot = self.hand_out(event, kind, (pfn, order), (migratetype, gfp));
        if let Some(filer) = &mut self.filer {
            filer.allocated(event.pid, slot, (order, migratetype, gfp));
        }
        let counts = &mut self.program.counts;
        counts.allocs += 1;
        counts.alloc_pages += 1 << order;
        counts.zeroed += u64::from(gfp & zonal_core::gfp::Gfp::ZERO.bits() != 0);
        match self.zones.node_of(pfn) {
            Some(node) if node != self.zones.node_of_cpu(event.cpu) => counts.numa_other += 1,
            _ => counts.numa_local += 1,
        }
    }

    /// The block leaves the allocator; returns its slot.
    fn hand_out(
        &mut self,
        event: &Event,
        kind: OpKind,
        (pfn, order): (u64, u8),
        (migratetype, gfp): (u8, u32),
    ) -> u32 {
        let pages = 1 << order;
        let mut seen = false;
        let mut before = NO_SLOT;
        for page in 0..pages {
            match self.table.get(pfn + page) {
                Frame::Unseen => continue,
                Frame::Seen => {}
                Frame::Freed(slot) if page == 0 => {
                    let same = self.program.slots[slot as usize].order == order;
                    before = if same { slot } else { NO_SLOT };
                }
                Frame::Freed(_) => {}
                Frame::Live(slot) => {
                    let left = u64::from(self.program.slots[slot as usize].left);
                    self.program.counts.hidden_frees += 1;
                    self.program.counts.hidden_free_pages += left;
                    self.release(event, slot);
                }
            }
            seen = true;
        }
        let origin = if seen { Origin::Again } else { Origin::Fresh };
        let slot = self.new_slot(pfn, order, origin);
        let record = &mut self.program.slots[slot as usize];
        let cpu = event.cpu as u16;
        *record = Slot { cpu, migratetype, gfp, before, ..*record };
        self.push(event, kind, slot);
        self.in_use += pages;
        let counts = &mut self.program.counts;
        counts.peak_pages = counts.peak_pages.max(self.in_use);
        slot
    }

    fn free(&mut self, event: &Event, pfn: u64, order: u8) {
        let pages = 1_u64 << order;
        self.program.counts.frees += 1;
        self.program.counts.free_pages += pages;
        if let Frame::Live(slot) = self.table.get(pfn) {
            let held = self.program.slots[slot as usize];
            match order {
                order if order == held.order => self.release(event, slot),
                order if order < held.order => self.free_part(event, slot, (pfn, order)),
                _ => {
                    self.program.counts.order_differs += 1;
                    self.release(event, slot);
                    // Parts of what was split.
                    for part in 1..pages {
                        match self.table.get(pfn + part) {
                            Frame::Live(slot) if self.reading.parts => self.release(event, slot),
                            _ => {}
                        }
                    }
                }
            }
            return;
        }
        if let Some(slot) = self.enclosing(pfn, order) {
            self.free_part(event, slot, (pfn, order));
            return;
        }
        if (0..pages).any(|page| self.table.get(pfn + page) != Frame::Unseen) {
            self.program.counts.hidden_allocs += 1;
            self.program.counts.hidden_alloc_pages += pages;
            return;
        }
        let slot = self.new_slot(pfn, order, Origin::Held);
        self.program.counts.old_frees += 1;
        self.program.counts.old_free_pages += pages;
        // It was in use all the time, so the pages held never were fewer.
        self.program.counts.peak_pages += pages;
        self.in_use += pages;
        self.release(event, slot);
    }

    /// The live block of a higher order that `pfn` is inside.
    fn enclosing(&self, pfn: u64, order: u8) -> Option<u32> {
        (order + 1..=ORDER_MAX).find_map(|above| match self.table.get(pfn & !((1 << above) - 1)) {
            Frame::Live(slot) if self.program.slots[slot as usize].order >= above => Some(slot),
            _ => None,
        })
    }

    fn free_part(&mut self, event: &Event, slot: u32, (pfn, order): (u64, u8)) {
        self.program.counts.part_frees += 1;
        if self.reading.parts {
            let part = self.split(event, slot, (pfn, order));
            self.release(event, part);
            return;
        }
        let pages = 1_u64 << order;
        let left = &mut self.program.slots[slot as usize].left;
        if u64::from(*left) > pages {
            *left -= pages as u16;
            self.in_use -= pages;
        } else {
            self.release(event, slot);
        }
    }

    /// A live block is halved until a part is the block asked for, which is returned: a trace of
    /// two events has a slot for each halving, not for each page.
    fn split(&mut self, event: &Event, mut slot: u32, (pfn, order): (u64, u8)) -> u32 {
        while self.program.slots[slot as usize].order > order {
            let whole = &mut self.program.slots[slot as usize];
            whole.left = 0;
            let Slot { pfn: start, gfp, cpu, migratetype, .. } = *whole;
            let into = whole.order - 1;
            let first = self.program.slots.len() as u32;
            for part in 0..2 {
                let part = self.new_slot(start + (part << into), into, Origin::Again);
                let record = &mut self.program.slots[part as usize];
                *record = Slot { gfp, cpu, migratetype, before: slot, ..*record };
            }
            self.push(event, OpKind::Split, first);
            slot = first + u32::from(pfn >= start + (1 << into));
        }
        slot
    }

    /// Frees the rest of a slot.
    fn release(&mut self, event: &Event, slot: u32) {
        let record = &mut self.program.slots[slot as usize];
        self.in_use -= u64::from(record.left);
        (record.left, record.past_lists) = (0, self.past_lists);
        if let Some(filer) = &mut self.filer {
            filer.freed(event.pid, slot, record.migratetype);
        }
        self.table.set(record.pfn, Frame::Freed(slot));
        self.push(event, OpKind::Free, slot);
    }

    fn new_slot(&mut self, pfn: u64, order: u8, origin: Origin) -> u32 {
        let slot = self.program.slots.len() as u32;
        let (left, cpu) = (1_u16 << order, 0);
        let (gfp, before, migratetype) = (0, NO_SLOT, 1);
        let past_lists = false;
        let new = Slot { pfn, gfp, before, left, cpu, order, migratetype, origin, past_lists };
        self.program.slots.push(new);
        self.table.set(pfn, Frame::Live(slot));
        for page in 1..1 << order {
            self.table.set(pfn + page, Frame::Seen);
        }
        slot
    }

    fn push(&mut self, event: &Event, kind: OpKind, slot: u32) {
        let (time_ns, cpu) = (event.time_ns, event.cpu as u16);
        self.program.ops.push(Op { time_ns, slot, cpu, kind });
    }

    fn finish(mut self) -> Result<Program, ReplayError> {
        self.program.kernel = self.watcher.finish();
        self.program.files = self.filer.take().map(Filer::finish).unwrap_or_default();
        let program = &mut self.program;
        let live = program.slots.iter().filter(|slot| slot.origin != Origin::Held);
        program.counts.live_pages_at_end = live.map(|slot| u64::from(slot.left)).sum();
        let is_told = self.reading.recorded.decay;
        if is_told && program.counts.vmstat_updates > 0 {
            return Ok(self.program);
        }
        let seconds = program.span_ns.1.saturating_sub(program.start_ns) / 1_000_000_000;
        let (cpus, seconds_max) = (program.cpus, seconds_max(program.ops.len(), program.cpus));
        if seconds > seconds_max {
            return Err(ReplayError::TooLong { seconds, cpus, seconds_max });
        }
        let workers = if is_told { self.workers } else { Workers::default() };
        workers.make_up(program);
        Ok(self.program)
    }
}

/// What the steps so far leave on lists that were empty: an allocation from an empty list refills
/// it with a batch, of two blocks at least (LB E.6).
fn early(program: &Program, zones: &ZoneMap) -> BTreeMap<ListPlace, u32> {
    let mut left: BTreeMap<ListPlace, u32> = BTreeMap::new();
    let of_blocks = |op: &&Op| op.kind.is_of_block();
    for op in program.ops.iter().filter(of_blocks) {
        let Slot { pfn, order, migratetype, .. } = program.slots[op.slot as usize];
        let Some(zone) = zones.of(pfn) else { continue };
        let place = ListPlace { zone, cpu: op.cpu.into(), order, migratetype };
        let blocks = left.entry(place).or_default();
        *blocks = match (op.kind.is_alloc(), *blocks) {
            (true, 0) => (zones.zones()[zone].batch as u32 >> order).max(2) - 1,
            (true, some) => some - 1,
            (false, some) => some + 1,
        };
    }
    left
}

#[cfg(test)]
#[path = "program_tests.rs"]
mod tests;
