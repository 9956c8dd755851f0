//! A trace as a program: steps on blocks, and everything that was counted while it was read.
//!
//! A *slot* stands for one block from its allocation to its free. A runner keeps, by slot, where
//! its own block is; it never needs to look a page frame up.

use std::collections::BTreeMap;

use zonal_core::types::Order;

use crate::moves::MovesByPlace;
use crate::reclaim::FilePages;
use crate::silence::Silences;
use crate::world::Changed;

/// No slot.
pub const NO_SLOT: u32 = u32::MAX;

/// A recorded order; the largest, of one that no block has.
pub fn order(order: u8) -> Order {
    Order::new(order.into()).unwrap_or(Order::MAX)
}

/// One step of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// When, in the recording's time.
    pub time_ns: u64,
    /// The block; the position of a [`Changed`]; [`NO_SLOT`] for a refresh.
    pub slot: u32,
    /// The CPU.
    pub cpu: u16,
    /// What to do.
    pub kind: OpKind,
}

/// The action of an [`Op`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// Allocate the slot.
    Alloc,
    /// Allocate the slot, with those of the next such steps of its CPU at its time, by one call of
    /// the bulk allocator, which has no event.
    Bulk,
    /// Allocate the slot while the lists of its CPU are in use (LB E.2).
    Direct,
    /// Free the slot.
    Free,
    /// The block of the slot before this one ([`Slot::before`]) is blocks of this one's order from
    /// now on: this slot's, and those of the slots behind it.
    Split,
    /// The CPU's statistics worker runs.
    Refresh,
    /// Something happened to the machine.
    Change,
}

impl OpKind {
    /// A block leaves the allocator.
    pub fn is_alloc(self) -> bool {
        matches!(self, OpKind::Alloc | OpKind::Bulk | OpKind::Direct)
    }

    /// A block leaves the allocator, or comes back.
    pub fn is_of_block(self) -> bool {
        self.is_alloc() || self == OpKind::Free
    }
}

/// One block, from its allocation to its free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// First frame in the kernel.
    pub pfn: u64,
    /// Flags of its allocation.
    pub gfp: u32,
    /// The slot that this frame, with this order, belonged to before its allocation; of a part of a
    /// block, the whole block's.
    pub before: u32,
    /// Pages not freed yet, while the trace is read.
    pub(crate) left: u16,
    /// CPU that allocated it.
    pub cpu: u16,
    /// Order.
    pub order: u8,
    /// Migratetype it was asked for with.
    pub migratetype: u8,
    /// Where it came from.
    pub origin: Origin,
    /// Its free found the lists of its CPU in use.
    pub past_lists: bool,
}

const _: () = assert!(size_of::<Slot>() == 24, "slots are what a long trace keeps in memory");

/// Where the block of a slot came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In use at the start.
    Held,
    /// Freed before the start: no part of the replay, but its frames are known to be free.
    Gone,
    /// In use at the recorded start, and free at the start of this program.
    Away,
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
    /// Allocations without event that were made up.
    pub allocs_made_up: u64,
    /// Their pages.
    pub alloc_pages_made_up: u64,
    /// Allocations of frames still live: frees without event.
    pub hidden_frees: u64,
    /// Their pages.
    pub hidden_free_pages: u64,
    /// Frees of parts of a block.
    pub part_frees: u64,
    /// Frees with another order than the allocation's.
    pub order_differs: u64,
    /// `mm_page_free_batched`: repeats a free.
    pub free_batched: u64,
    /// Blocks taken from another migratetype.
    pub extfrags: u64,
    /// Runs of statistics workers.
    pub vmstat_updates: u64,
    /// Refreshes made up because the trace has no events of them.
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

impl Counts {
    /// What is said of a trace that is not whole.
    pub fn lost_note(&self) -> Option<String> {
        let what = "the recorder lost events: blocks may have other owners than told";
        (self.lost > 0).then(|| what.to_owned())
    }
}

/// A trace, ready to run.
#[derive(Clone, Debug, Default)]
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
    /// The kernel's moves between buddies and lists.
    pub kernel: MovesByPlace,
    /// What happened to the machine, in the order of time.
    pub changes: Vec<Changed>,
    /// Blocks that the events before the start left on lists which were empty before them.
    pub early: BTreeMap<ListPlace, u32>,
    /// Blocks with pages of files; none where that was not asked for.
    pub files: FilePages,
    /// Stretches without any event.
    pub silences: Silences,
}

/// A per-CPU list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListPlace {
    /// Position of the zone.
    pub zone: usize,
    /// The CPU.
    pub cpu: u32,
    /// Order of its blocks.
    pub order: u8,
    /// Their type.
    pub migratetype: u8,
}

const _: () = assert!(size_of::<Op>() == 16, "ops are what a long trace keeps in memory");
const _: () = assert!(size_of::<Slot>() == 24, "and slots, half as many");

impl Program {
    /// Most pages allocated by `steps` steps in a row.
    pub fn burst_pages(&self, steps: usize) -> u64 {
        let order = |op: &Op| self.slots[op.slot as usize].order;
        let pages = |op: &Op| if op.kind.is_alloc() { 1 << order(op) } else { 0 };
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

    /// Puts these steps, by time, between the others: each before the first that is not earlier.
    /// Those after the last step are left out; returns how many are in. Steps are what a long trace
    /// keeps in memory, so they move in place.
    pub fn insert(&mut self, mut added: Vec<Op>) -> usize {
        let ops = &mut self.ops;
        let last = ops.iter().map(|op| op.time_ns).max().unwrap_or(0);
        added.truncate(added.partition_point(|op| op.time_ns <= last));
        let count = added.len();
        let mut from = ops.len();
        ops.extend_from_slice(&added);
        let mut to = ops.len();
        // From the end: what is written over was moved before.
        while let Some(op) = added.last().copied() {
            to -= 1;
            match from.checked_sub(1) {
                Some(before) if ops[before].time_ns >= op.time_ns => {
                    ops[to] = ops[before];
                    from = before;
                }
                _ => {
                    ops[to] = op;
                    added.pop();
                }
            }
        }
        count
    }

    /// Puts what happened to the machine between the steps.
    pub fn insert_changes(&mut self, mut changes: Vec<Changed>) {
        changes.retain(|changed| changed.time_ns >= self.start_ns);
        changes.sort_by_key(|changed| changed.time_ns);
        let step = |(slot, changed): (u32, &Changed)| {
            let Changed { time_ns, cpu, .. } = *changed;
            Op { time_ns, slot, cpu, kind: OpKind::Change }
        };
        self.insert((0..).zip(&changes).map(step).collect());
        self.changes = changes;
    }

    /// The slots of the parts that a step splits a block into.
    pub fn parts(&self, op: &Op) -> std::ops::Range<u32> {
        let part = &self.slots[op.slot as usize];
        let whole = &self.slots[part.before as usize];
        op.slot..op.slot + (1 << (whole.order - part.order))
    }

    /// The slots in use at the start.
    pub fn held(&self) -> impl Iterator<Item = (u32, &Slot)> {
        let numbered = (0..).zip(&self.slots);
        numbered.filter(|(_, slot)| slot.origin == Origin::Held)
    }
}
