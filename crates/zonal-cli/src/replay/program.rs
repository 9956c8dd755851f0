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
//! moment on. What came before tells which blocks are in use then ([`Origin::Held`]) and which are
//! free ([`Origin::Gone`]); it is not replayed.

use std::collections::HashMap;

use zonal_trace::{Event, EventKind, MachineDescription, TraceError};

use super::kernel::{MovesByPlace, Watcher};
use super::zones::ZoneMap;

/// No slot.
pub const NO_SLOT: u32 = u32::MAX;
/// What the recorder of `shared/traces` writes into a trace when it has read the machine's state.
const STATE_WAS_READ: &str = "FX before end";
/// `stat_interval`, after which an idle CPU's statistics worker comes back (LB F.4).
const REFRESH_NS: u64 = 1_000_000_000;

/// One step of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// When, in the recording's time.
    pub time_ns: u64,
    /// Page frame that the kernel gave; 0 for a refresh.
    pub pfn: u64,
    /// The block.
    pub slot: u32,
    /// Flags of an allocation.
    pub gfp: u32,
    /// For an allocation: the slot that this frame, with this order, belonged to before.
    pub before: u32,
    /// The CPU.
    pub cpu: u16,
    /// Order of the block.
    pub order: u8,
    /// What to do.
    pub kind: OpKind,
}

/// What an [`Op`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// Allocate the slot.
    Alloc,
    /// Free the slot.
    Free,
    /// The CPU's statistics worker runs.
    Refresh,
}

/// One block, from its allocation to its free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// First frame in the kernel.
    pub pfn: u64,
    /// Pages not freed yet, while the trace is read.
    left: u16,
    /// CPU that allocated it.
    pub cpu: u16,
    /// Order.
    pub order: u8,
    /// Migratetype it was asked for with.
    pub migratetype: u8,
    /// Where it came from.
    pub origin: Origin,
}

/// Where the block of a slot came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In use at the start.
    Held,
    /// Freed before the start: no part of the replay, but its frames are known to be free.
    Gone,
    /// Allocated during the replay, from a frame that was free and not seen before.
    Fresh,
    /// Allocated during the replay, from a frame seen before.
    Again,
}

/// Everything that was counted on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events read.
    pub events: u64,
    /// Of them before the start.
    pub before_start: u64,
    /// Successful allocations after the start.
    pub allocs: u64,
    /// Their pages.
    pub alloc_pages: u64,
    /// Frees after the start.
    pub frees: u64,
    /// Their pages.
    pub free_pages: u64,
    /// Allocations that asked for zeroed pages.
    pub zeroed: u64,
    /// Allocations that the kernel could not serve.
    pub kernel_failed: u64,
    /// Frees of blocks from before the start.
    pub old_frees: u64,
    /// Their pages.
    pub old_free_pages: u64,
    /// Frees of frames last seen freed: allocations without event.
    pub hidden_allocs: u64,
    /// Their pages.
    pub hidden_alloc_pages: u64,
    /// Allocations of frames still live: frees without event.
    pub hidden_frees: u64,
    /// Their pages.
    pub hidden_free_pages: u64,
    /// Frees of parts of a block.
    pub part_frees: u64,
    /// Frees with another order than the allocation's.
    pub order_differs: u64,
    /// `mm_page_free_batched`: says again what a free says.
    pub free_batched: u64,
    /// Blocks taken from another migratetype.
    pub extfrags: u64,
    /// Runs of statistics workers.
    pub vmstat_updates: u64,
    /// Refreshes made up because the trace has none.
    pub refreshes_made_up: u64,
    /// Forks and markers.
    pub remarks: u64,
    /// Events of other kinds.
    pub unknown: u64,
    /// Events that the kernel dropped, as the trace says.
    pub lost: u64,
    /// Allocations by a CPU of the page's node.
    pub numa_local: u64,
    /// Allocations by a CPU of another node.
    pub numa_other: u64,
    /// Pages in use at the end that were allocated in the trace.
    pub live_pages_at_end: u64,
    /// Most pages in use at a time, of those the replay holds.
    pub peak_pages: u64,
}

/// A trace, ready to run.
#[derive(Debug)]
pub struct Program {
    /// What to do, in the order of the trace.
    pub ops: Vec<Op>,
    /// The blocks.
    pub slots: Vec<Slot>,
    /// CPUs: one more than the highest of any event or file.
    pub cpus: u32,
    /// Time of the first event read and of the last.
    pub span_ns: (u64, u64),
    /// Time from which on events are replayed.
    pub start_ns: u64,
    /// The counts.
    pub counts: Counts,
    /// What the kernel moved between buddies and lists.
    pub kernel: MovesByPlace,
}

impl Program {
    /// Reads `events` to their end, or up to `limit` of them. `tick` hears of each.
    ///
    /// # Errors
    /// The first error of the stream.
    pub fn compile(
        machine: &MachineDescription,
        zones: &ZoneMap,
        events: impl Iterator<Item = Result<Event, TraceError>>,
        limit: Option<u64>,
        mut tick: impl FnMut(u64),
    ) -> Result<Program, TraceError> {
        let mut compiler = Compiler::new(machine, zones);
        let limit = limit.unwrap_or(u64::MAX);
        let mut read = 0;
        for event in events {
            let event = event?;
            compiler.take(&event);
            read += 1;
            tick(read);
            if read == limit {
                break;
            }
        }
        Ok(compiler.finish())
    }

    /// Most pages allocated by `steps` steps in a row.
    pub fn burst_pages(&self, steps: usize) -> u64 {
        let pages = |op: &Op| if op.kind == OpKind::Alloc { 1 << op.order } else { 0 };
        let mut sum = 0;
        let mut most = 0;
        for (index, op) in self.ops.iter().enumerate() {
            sum += pages(op);
            if let Some(left) = index.checked_sub(steps) {
                sum -= pages(&self.ops[left]);
            }
            most = most.max(sum);
        }
        most
    }

    /// The slots in use at the start.
    pub fn held(&self) -> impl Iterator<Item = (u32, &Slot)> {
        let numbered = (0..).zip(&self.slots);
        numbered.filter(|(_, slot)| slot.origin == Origin::Held)
    }
}

struct Compiler<'a> {
    zones: &'a ZoneMap,
    watcher: Watcher,
    table: PageTable,
    /// The machine's state is of this time: start there.
    start_at: Option<u64>,
    program: Program,
    in_use: u64,
}

impl<'a> Compiler<'a> {
    fn new(machine: &MachineDescription, zones: &'a ZoneMap) -> Compiler<'a> {
        Compiler {
            zones,
            watcher: Watcher::new(zones.clone(), machine.kernel_release.as_deref()),
            table: PageTable::default(),
            start_at: machine.start.as_ref().map(|state| state.t_end_ns),
            program: Program {
                ops: Vec::with_capacity(machine.events.unwrap_or(0).min(1 << 24) as usize),
                slots: Vec::new(),
                cpus: machine.cpus.unwrap_or(1),
                span_ns: (0, 0),
                start_ns: 0,
                counts: Counts::default(),
                kernel: MovesByPlace::new(),
            },
            in_use: 0,
        }
    }

    fn take(&mut self, event: &Event) {
        let program = &mut self.program;
        if program.counts.events == 0 {
            program.span_ns.0 = event.time_ns;
            program.start_ns = event.time_ns;
        }
        if self.start_at.is_some_and(|start| event.time_ns >= start) {
            self.start_at = None;
            self.begin(event.time_ns);
        }
        let program = &mut self.program;
        program.counts.events += 1;
        program.span_ns.1 = event.time_ns;
        program.cpus = program.cpus.max(event.cpu + 1);
        self.watcher.see(event);
        let counts = &mut program.counts;
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
                self.push(event, OpKind::Refresh, (0, 0), NO_SLOT);
            }
            EventKind::Marker(ref text) => {
                counts.remarks += 1;
                if text.trim() == STATE_WAS_READ {
                    self.begin(event.time_ns);
                }
            }
            EventKind::Fork { .. } => counts.remarks += 1,
            EventKind::Lost { events } => counts.lost += events,
            EventKind::ZoneLocked { .. } | EventKind::PcpuDrain { .. } => {}
            _ => counts.unknown += 1,
        }
    }

    /// Makes this moment the start.
    fn begin(&mut self, time_ns: u64) {
        let program = &mut self.program;
        let events = program.counts.events;
        program.counts = Counts { events, before_start: events, ..Counts::default() };
        program.ops.clear();
        program.start_ns = time_ns;
        self.watcher.restart();
        self.in_use = 0;
        for slot in &mut program.slots {
            slot.origin = if slot.left == 0 { Origin::Gone } else { Origin::Held };
            self.in_use += u64::from(slot.left);
        }
        program.counts.peak_pages = self.in_use;
    }

    fn alloc(&mut self, event: &Event, pfn: u64, order: u8, (migratetype, gfp): (u8, u32)) {
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
        record.cpu = event.cpu as u16;
        record.migratetype = migratetype;
        self.push(event, OpKind::Alloc, (pfn, gfp), slot);
        if let Some(op) = self.program.ops.last_mut() {
            op.before = before;
        }
        let counts = &mut self.program.counts;
        counts.allocs += 1;
        counts.alloc_pages += pages;
        counts.zeroed += u64::from(gfp & zonal_core::gfp::Gfp::ZERO.bits() != 0);
        self.in_use += pages;
        counts.peak_pages = counts.peak_pages.max(self.in_use);
        match self.zones.node_of(pfn) {
            Some(node) if node != self.zones.node_of_cpu(event.cpu) => counts.numa_other += 1,
            _ => counts.numa_local += 1,
        }
    }

    fn free(&mut self, event: &Event, pfn: u64, order: u8) {
        let pages = 1_u64 << order;
        self.program.counts.frees += 1;
        self.program.counts.free_pages += pages;
        if let Frame::Live(slot) = self.table.get(pfn) {
            let held = self.program.slots[slot as usize];
            match order {
                order if order == held.order => self.release(event, slot),
                order if order < held.order => self.free_part(event, slot, pages),
                _ => {
                    self.program.counts.order_differs += 1;
                    self.release(event, slot);
                }
            }
            return;
        }
        if let Some(slot) = self.enclosing(pfn, order) {
            self.free_part(event, slot, pages);
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
        (order + 1..=zonal_trace::ORDER_MAX).find_map(|above| {
            match self.table.get(pfn & !((1 << above) - 1)) {
                Frame::Live(slot) if self.program.slots[slot as usize].order >= above => Some(slot),
                _ => None,
            }
        })
    }

    fn free_part(&mut self, event: &Event, slot: u32, pages: u64) {
        self.program.counts.part_frees += 1;
        let left = &mut self.program.slots[slot as usize].left;
        if u64::from(*left) > pages {
            *left -= pages as u16;
            self.in_use -= pages;
        } else {
            self.release(event, slot);
        }
    }

    /// Frees what is left of a slot.
    fn release(&mut self, event: &Event, slot: u32) {
        let record = &mut self.program.slots[slot as usize];
        self.in_use -= u64::from(record.left);
        record.left = 0;
        let pfn = record.pfn;
        self.table.set(pfn, Frame::Freed(slot));
        self.push(event, OpKind::Free, (pfn, 0), slot);
    }

    fn new_slot(&mut self, pfn: u64, order: u8, origin: Origin) -> u32 {
        let slot = self.program.slots.len() as u32;
        let (left, cpu) = (1_u16 << order, 0);
        self.program.slots.push(Slot { pfn, left, cpu, order, migratetype: 1, origin });
        self.table.set(pfn, Frame::Live(slot));
        for page in 1..1 << order {
            self.table.set(pfn + page, Frame::Seen);
        }
        slot
    }

    fn push(&mut self, event: &Event, kind: OpKind, (pfn, gfp): (u64, u32), slot: u32) {
        let order = self.program.slots.get(slot as usize).map_or(0, |slot| slot.order);
        let (time_ns, cpu) = (event.time_ns, event.cpu as u16);
        self.program.ops.push(Op { time_ns, pfn, slot, gfp, before: NO_SLOT, cpu, order, kind });
    }

    fn finish(mut self) -> Program {
        self.program.kernel = self.watcher.finish();
        let program = &mut self.program;
        let live = program.slots.iter().filter(|slot| slot.origin != Origin::Held);
        program.counts.live_pages_at_end = live.map(|slot| u64::from(slot.left)).sum();
        if program.counts.vmstat_updates == 0 {
            make_up_refreshes(program);
        }
        self.program
    }
}

/// Every CPU's worker runs at each whole second of the recording's clock (LB F.4).
fn make_up_refreshes(program: &mut Program) {
    let ops = std::mem::take(&mut program.ops);
    let mut next = (program.start_ns + 1).next_multiple_of(REFRESH_NS);
    for op in ops {
        while next <= op.time_ns {
            for cpu in 0..program.cpus as u16 {
                let (slot, kind) = (NO_SLOT, OpKind::Refresh);
                let (pfn, gfp, before, order) = (0, 0, NO_SLOT, 0);
                let made_up = Op { time_ns: next, pfn, slot, gfp, before, cpu, order, kind };
                program.ops.push(made_up);
                program.counts.refreshes_made_up += 1;
            }
            next += REFRESH_NS;
        }
        program.ops.push(op);
    }
}

/// What the trace has told about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frame {
    Unseen,
    /// Inside a block, now or once.
    Seen,
    /// First frame of the block of a slot that was freed.
    Freed(u32),
    /// First frame of the block of a slot.
    Live(u32),
}

/// A [`Frame`] for each page frame number, in pieces of one pageblock: traces touch few of those.
#[derive(Debug, Default)]
struct PageTable {
    pieces: HashMap<u64, Box<[u32; 512]>>,
}

const SEEN: u32 = 1;
const FIRST_SLOT: u32 = 2;
const FREED: u32 = 1 << 31;

impl PageTable {
    fn get(&self, pfn: u64) -> Frame {
        let Some(piece) = self.pieces.get(&(pfn >> 9)) else { return Frame::Unseen };
        match piece[pfn as usize & 511] {
            0 => Frame::Unseen,
            SEEN => Frame::Seen,
            freed if freed & FREED != 0 => Frame::Freed((freed & !FREED) - FIRST_SLOT),
            live => Frame::Live(live - FIRST_SLOT),
        }
    }

    fn set(&mut self, pfn: u64, frame: Frame) {
        let piece = self.pieces.entry(pfn >> 9).or_insert_with(|| Box::new([0; 512]));
        piece[pfn as usize & 511] = match frame {
            Frame::Unseen => 0,
            Frame::Seen => SEEN,
            Frame::Freed(slot) => (slot + FIRST_SLOT) | FREED,
            Frame::Live(slot) => slot + FIRST_SLOT,
        };
    }
}

const _: () = assert!(size_of::<Op>() == 32, "ops are what a long trace keeps in memory");

#[cfg(test)]
#[path = "program_tests.rs"]
mod tests;
