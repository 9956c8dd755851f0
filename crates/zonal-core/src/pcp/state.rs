//! The pcp of one (zone, CPU): up to 15 stacks of page frames, one per (order,
//! migratetype), and the hot word that commits operations on them.
//!
//! ```text
//!              lo            lo + len    lo + hi    cap
//!  slots  |    | cold ... hot  |          |         |
//!          drain takes here ^  ^ pop, push here
//! ```
//! A stack's live pages are `len` slots from `lo` on: cold end first (LB E.8: frees push and
//! allocations pop at the head, drains take from the tail). `hi` is how long it may get before a
//! push must look at the limits of LB E.7. What a fast operation reads counts from `lo`, so that an
//! empty stack is a length of zero in the word itself.
//!
//! Two kinds of access exist. A **fast operation** runs on the pcp's own CPU, in one restartable
//! section that reads `word` and commits by one store to it; it leaves without committing if the
//! word's `slow` bit is set. Everything else **closes** the pcp: it takes the gate, sets `slow`,
//! asks the platform to fence the CPU, looks whether `slow` is still set (a sequence in flight may
//! have committed over it; then once more), and from then on owns every field until it stores a
//! word without the bit and opens the gate.
//!
//! Why that is enough: after the fence, sequences that began earlier have committed or will start
//! again, and sequences that begin later read a word with `slow` in it. Only a committing sequence
//! clears the bit, so if it is set after the fence, it stays set. Limits are read after the word,
//! so a sequence that sees the reopened word sees the limits stored before it.
//!
//! A platform that can fence no longer says so by `ends_sequences`. Each pcp that is then closed,
//! by whatever fence still holds, is **sealed**: `slow` stays set when it opens, so nothing needs
//! to be fenced there any more, and the gate is its lock. A pcp that cannot be fenced stays as it
//! is, with `slow` set, until a thread on its own CPU closes it, which needs no fence.
//!
//! # Invariants
//! - **PCP-1** only the holder of the gate, or a fast operation on the pcp's CPU, changes `word`,
//!   except the `slow` bit, which any thread may set.
//! - **PCP-2** while the gate is open, `lo + max(len, hi) <= cap` for every list, and `slots_lo` is
//!   the address of slot `lo`; `len` of the active list is in `word`, of others in their record.
//! - **PCP-3** a frame on a stack has the word `cached(order, type, zone, cpu)` of its
//!   list, unless a racing double free put it on two stacks: then on one of them only.
//! - **PCP-4** a push that stays below `hi` keeps `count < high`, so it needs no decision (LB E.7).
//! - **PCP-5** `pops`, `refilled`, `drained` and the stack's length give the pushes of a list:
//!   `pushes = pops + length + drained - refilled`. A block that leaves it to be joined with a
//!   range is a pop, which `joined_blocks` takes back.
//! - **PCP-6** of the active list's record `len` and the low bits of `pops` mean nothing, of the
//!   others' records `hi` and `others` mean nothing: a fast operation may write those before it
//!   commits.
//! - **PCP-7** a sealed pcp's word has `slow` set, and no sequence that began before can commit. It
//!   is sealed by the holder of the gate, behind a fence, or before anything runs; where each
//!   allocation is recorded, its holder may unseal it.

use crate::frame::{PageWord, PcpId};
use crate::pcp::depot::Depot;
use crate::pcp::parked::Parked;
use crate::pcp::ready::{OPEN, Ready, is_closed};
use crate::pcp::tune::PcpParams;
use crate::pcp::tuning::Tuning;
use crate::pcp::word::{BLOCKS_MAX, NO_LIST, NR_LISTS, POPS_PERIOD, PcpWord, SLOW};
use crate::platform::Platform;
use crate::sync::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::types::{CpuId, Migratetype, Order, PageCount, ZoneId};
use Ordering::Relaxed;

/// The CPU is offline; kept in the pcp of the zone it prefers.
pub(crate) const OFFLINE: u8 = 1;
/// No sequence commits here any more (PCP-7). Set with the gate closed.
pub(super) const SEALED: u8 = 2;

/// One stack of a pcp. A platform's fast path finds the fields by [`offsets`](super::offsets), in
/// its own memory; no other code can reach them.
#[derive(Debug, Default)]
#[repr(C)]
pub struct PcpList {
    /// Address of the slot of the coldest block.
    pub(crate) slots_lo: AtomicU64,
    /// At this length a push goes through the core. Valid while the list is active.
    pub(crate) hi: AtomicU32,
    /// Blocks, while the list is not active.
    pub(crate) len: AtomicU32,
    /// Base pages on all other lists. Valid while the list is active.
    pub(crate) others: AtomicU32,
    /// Cold end: slots below it are dead.
    pub(crate) lo: AtomicU32,
    /// Slots.
    pub(crate) cap: u32,
    /// Binary logarithm of a block's base pages.
    pub(crate) order_bits: u32,
    /// The word's `active` bits while this list is the active one.
    pub(crate) active_bits: u32,
    /// The word's `prev` bit after a push to this list.
    pub(crate) prev_bits: u32,
    /// Base pages of a block, which a push adds to `free_count`.
    pub(crate) block_pages: u32,
    pub(crate) base: u32,
    /// Word of a frame on this stack (PCP-3).
    pub(crate) cached: u64,
    /// Word of a frame popped from this stack.
    pub(crate) allocated: u64,
    /// Pops so far; while the list is active, the low bits are in the word.
    pub(crate) pops: AtomicU64,
    pub(crate) refilled: AtomicU64,
    pub(crate) drained: AtomicU64,
    /// A bit for each kind of request that the core's fast path serves from here; the allocator
    /// says what the bits are ([`Pcp::serve`]).
    pub(crate) serves: u32,
    /// A bit for each type of pageblock whose blocks are freed to here.
    pub(crate) types: u8,
    pub(crate) mt: u8,
    /// Low bits of `pops` at the last overflow of another list, and for how many of those in a row
    /// they have not changed.
    pub(crate) pops_seen: AtomicU8,
    pub(crate) overflows_idle: AtomicU8,
}

/// The pcp of one (zone, CPU). Aligned to pairs of lines, because the processor fetches those:
/// the next CPU's pcp must not be in one's pair. Of a fixed size, so that a CPU's pcp is found
/// by its number alone; see [`Layout::pcps`](crate::machine::Layout::pcps).
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Pcp {
    /// The hot word.
    pub(crate) word: AtomicU64,
    /// `free_count` stops growing here: `batch << scale_max` (LB E.7); 0 where it is a
    /// `free_factor`, which no free moves that needs no decision.
    pub(crate) free_count_cap: AtomicU32,
    /// Open, closed, or open and ready ([`ready`](super::ready)).
    pub(crate) gate: AtomicU32,
    /// From this `free_count` on, a free of order 1 to 3 behind another may be a stream (LB E.7,
    /// E.10). Tuning level 0 does without the other, and where the swing is tracked it follows the
    /// pages on the lists; see `Closed::set_limit`.
    pub(crate) free_high_threshold: AtomicU32,
    /// `high` within its bounds, for the limit of a list that becomes active.
    pub(crate) limit: AtomicU32,
    /// The stacks.
    pub(crate) lists: [PcpList; NR_LISTS],
    /// The first page of the zone.
    pub(crate) start_pfn: u64,
    /// The first frame of the zone.
    pub(crate) first_frame: u32,
    /// The zone's frames.
    pub(crate) frames: u32,
    pub(crate) zone: ZoneId,
    pub(crate) lists_used: u8,
    pub(crate) tuning: Tuning,
    pub(crate) tracks_swing: bool,
    pub(crate) free_high_batch: AtomicU8,
    /// [`OFFLINE`] and [`SEALED`].
    pub(crate) flags: AtomicU8,
    /// Countdown to the drain of a remote zone's pages (LB F.4).
    pub(crate) expire: AtomicU8,
    pub(crate) cpu: CpuId,
    /// The CPU that words of its pages name: its own, or for cold pages a number behind all CPUs,
    /// so that a word says which of the two pcps has a page (PCP-3).
    pub(crate) owner: CpuId,
    pub(crate) high: AtomicU32,
    pub(crate) high_min: AtomicU32,
    pub(crate) high_max: AtomicU32,
    pub(crate) batch: AtomicU32,
    pub(super) alloc_factor: AtomicU32,
    /// [`PcpState::swing`](crate::pcp::tune::PcpState::swing).
    pub(crate) swing: AtomicU32,
    /// Pushes of all lists when `alloc_factor` was last set.
    pub(super) factor_pushes: AtomicU64,
    /// This CPU's delta of the zone's free-page counter; written under the zone lock.
    pub(crate) free_diff: AtomicI64,
    /// The active list for the core's fast operations, on a line of its own.
    pub(crate) ready: Ready,
    /// Counts that the fast path does not keep.
    pub(crate) events: PcpEvents<AtomicU64>,
    /// The CPU whose store of this zone has the depot that this store uses.
    pub(crate) depot_cpu: CpuId,
    /// Base pages that the lists may hold of the zone's budget (BUDGET-2); 0 where there is none.
    pub(crate) granted: AtomicU32,
    /// Pages at the last refresh, of a remote zone (LB F.4).
    pub(crate) refreshed: AtomicU32,
    _room: [u64; ROOM],
    /// The depot of the CPU's group, in the pcp of the group's first CPU; at a pair of lines. What
    /// all CPUs of the group write is in its first two lines, but for the stacks of lists 13 and
    /// 14: those are on the third, beside what never changes.
    pub(crate) depot: Depot,
    /// The range that was freed last, on a line that no other CPU asks for.
    pub(crate) parked: Parked,
    _last: [u64; LAST],
}

/// Bytes from one store to the next.
pub const PCP_BYTES: usize = 2048;
/// The rest of them, in front of the depot, and of the last line.
const ROOM: usize =
    (PCP_BYTES - 24 - NR_LISTS * size_of::<PcpList>() - 320 - size_of::<Depot>() - 64) / 8;
const LAST: usize = (64 - size_of::<Parked>()) / 8;
const _: () = assert!(size_of::<Pcp>() == PCP_BYTES, "fit ROOM to the fields");
const _: () = assert!(core::mem::offset_of!(Pcp, depot).is_multiple_of(128));

impl Default for Pcp {
    fn default() -> Pcp {
        Pcp {
            word: AtomicU64::default(),
            free_count_cap: AtomicU32::default(),
            gate: AtomicU32::new(OPEN),
            free_high_threshold: AtomicU32::default(),
            limit: AtomicU32::default(),
            lists: core::array::from_fn(|_| PcpList::default()),
            zone: ZoneId::default(),
            lists_used: 0,
            tuning: Tuning::default(),
            tracks_swing: false,
            free_high_batch: AtomicU8::default(),
            flags: AtomicU8::default(),
            expire: AtomicU8::default(),
            refreshed: AtomicU32::default(),
            cpu: CpuId::default(),
            owner: CpuId::default(),
            high: AtomicU32::default(),
            high_min: AtomicU32::default(),
            high_max: AtomicU32::default(),
            batch: AtomicU32::default(),
            alloc_factor: AtomicU32::default(),
            factor_pushes: AtomicU64::default(),
            swing: AtomicU32::default(),
            granted: AtomicU32::default(),
            free_diff: AtomicI64::default(),
            events: PcpEvents::default(),
            depot_cpu: CpuId::default(),
            ready: Ready::default(),
            start_pfn: 0,
            first_frame: 0,
            frames: 0,
            _room: [0; ROOM],
            depot: Depot::default(),
            parked: Parked::default(),
            _last: [0; LAST],
        }
    }
}

/// Counters of a pcp that only slow ways write: the pcp's own are atomics, a reading of them
/// ([`Pcp::events`]) is numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcpEvents<T = u64> {
    /// Allocations from this pcp whose preferred zone is on another node (LB F.6, `numa_miss`).
    pub miss: T,
    /// Allocations that preferred this pcp's zone and got a page of another node.
    pub foreign: T,
    /// Allocations by this CPU from this zone's buddy directly.
    pub direct_allocs: T,
    /// Their base pages.
    pub direct_pages: T,
    /// Allocations beside pops: pages that bulk calls got out of whole blocks, but for the first of
    /// each.
    pub split_pages: T,
    /// Pops beside allocations: blocks that left their lists to be joined with the range in front
    /// of them.
    pub joined_blocks: T,
    /// Their base pages, which the push of the joined block counts among its own.
    pub joined_pages: T,
    /// Base pages freed by this CPU to this zone's buddy directly.
    pub direct_freed: T,
    /// Refills: zone lock holds.
    pub refills: T,
    /// Drains: zone lock holds.
    pub drains: T,
    /// Bulk frees that a stream of large frees forced, not a full list (LB E.10, `free_high`).
    pub forced: T,
    /// Drains because a stack was full before its limit was reached.
    pub overflows: T,
    /// Copies of a frame dropped because it was freed twice at the same time (PCP-3).
    pub double_frees: T,
    /// Batches left in a depot.
    pub depot_puts: T,
    /// Their base pages.
    pub depot_put_pages: T,
    /// Batches taken from a depot.
    pub depot_takes: T,
    /// Their base pages.
    pub depot_taken_pages: T,
    /// Base pages that went from the buddy to a depot.
    pub depot_fill_pages: T,
}

impl PcpEvents<AtomicU64> {
    /// Relaxed: figures for reports.
    fn read(&self) -> PcpEvents {
        PcpEvents {
            miss: self.miss.load(Relaxed),
            foreign: self.foreign.load(Relaxed),
            direct_allocs: self.direct_allocs.load(Relaxed),
            direct_pages: self.direct_pages.load(Relaxed),
            split_pages: self.split_pages.load(Relaxed),
            joined_blocks: self.joined_blocks.load(Relaxed),
            joined_pages: self.joined_pages.load(Relaxed),
            direct_freed: self.direct_freed.load(Relaxed),
            refills: self.refills.load(Relaxed),
            drains: self.drains.load(Relaxed),
            forced: self.forced.load(Relaxed),
            overflows: self.overflows.load(Relaxed),
            double_frees: self.double_frees.load(Relaxed),
            depot_puts: self.depot_puts.load(Relaxed),
            depot_put_pages: self.depot_put_pages.load(Relaxed),
            depot_takes: self.depot_takes.load(Relaxed),
            depot_taken_pages: self.depot_taken_pages.load(Relaxed),
            depot_fill_pages: self.depot_fill_pages.load(Relaxed),
        }
    }
}

/// Counts of a pcp since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcpTotals {
    /// Allocations served: blocks popped, but for those that were joined, and pages of blocks that
    /// were taken apart.
    pub pops: u64,
    /// Their base pages.
    pub popped_pages: u64,
    /// Base pages pushed: frees.
    pub pushed_pages: u64,
    /// Base pages moved from the buddy.
    pub refilled_pages: u64,
    /// Base pages moved to the buddy.
    pub drained_pages: u64,
}

impl PcpList {
    /// Order of the stack's blocks.
    pub fn order(&self) -> Order {
        Order::new(self.order_bits).unwrap_or(Order::ZERO)
    }
    /// The word of a frame on the stack (PCP-3).
    pub fn cached_word(&self) -> PageWord {
        PageWord(self.cached)
    }
    /// Migratetype of the stack.
    pub fn migratetype(&self) -> Migratetype {
        Migratetype::new(u32::from(self.mt)).unwrap_or(Migratetype::Unmovable)
    }
}

impl Pcp {
    /// Makes list `index` for blocks of (`order`, `mt`) in `slots[base..base + cap)`. `rank` is the
    /// zone's for the pcp's CPU.
    pub(crate) fn set_list(
        &mut self,
        index: usize,
        rank: u16,
        (order, mt): (Order, Migratetype),
        slots: &[AtomicU32],
        (base, cap): (usize, usize),
    ) {
        let pcp = PcpId { cpu: self.owner, rank };
        let list = &mut self.lists[index];
        let address = slots[base..base + cap].as_ptr().addr();
        (list.base, list.lo) = (base as u32, AtomicU32::new(0));
        list.slots_lo = AtomicU64::new(address as u64);
        list.cap = cap.min(BLOCKS_MAX) as u32;
        list.order_bits = order.get();
        list.mt = mt.index() as u8;
        let high_order = order > Order::ZERO && order <= Order::COSTLY;
        list.active_bits = PcpWord::new(index, 0, 0, 0, false).0 as u32;
        list.prev_bits = PcpWord::new(0, 0, 0, 0, high_order).0 as u32;
        list.block_pages = order.pages() as u32;
        list.cached = PageWord::cached(order, mt, pcp).0;
        list.allocated = PageWord::allocated(order, mt, pcp).0;
        self.lists_used = self.lists_used.max(index as u8 + 1);
        if index == 0 {
            *self.word.get_mut() = PcpWord::new(NO_LIST, 0, 0, 0, false).0;
        }
    }

    /// Lets the core's fast path use a list for these kinds of requests and types of pageblocks.
    pub(crate) fn serve(&mut self, list: usize, serves: u32, types: u8) {
        (self.lists[list].serves, self.lists[list].types) = (serves, types);
    }

    /// Pages that a refill or a drain moves, before any tuning (LB E.3).
    pub fn batch(&self) -> u32 {
        self.batch.load(Relaxed)
    }

    /// [`batch`](Self::batch), for what moves it.
    #[inline]
    pub(crate) fn batch_pages(&self) -> PageCount {
        PageCount::new(self.batch())
    }

    /// The CPU it serves.
    pub fn cpu(&self) -> CpuId {
        self.cpu
    }
    /// The current `high`, in pages (LB E.1).
    pub fn high(&self) -> u32 {
        self.high.load(Relaxed)
    }

    /// Parameters in force, with the policy's constants.
    pub(crate) fn params(&self, fixed: &PcpParams) -> PcpParams {
        PcpParams {
            batch: self.batch.load(Relaxed),
            high_min: self.high_min.load(Relaxed),
            high_max: self.high_max.load(Relaxed),
            free_high_batch: self.free_high_batch.load(Relaxed) != 0,
            ..*fixed
        }
    }

    /// Seals it before anything runs (PCP-7).
    pub(crate) fn seal_unused(&mut self) {
        *self.flags.get_mut() |= SEALED;
        *self.word.get_mut() |= SLOW;
    }

    /// Whether it is sealed (PCP-7). Whoever does not hold the gate gets an answer of this moment.
    #[inline]
    pub(crate) fn is_sealed(&self) -> bool {
        self.flags.load(Relaxed) & SEALED != 0
    }

    /// Whether sequences may run on it while it is open; `false` where it is sealed (PCP-7).
    #[inline(always)]
    pub(crate) fn may_have_sequences<P: Platform>(&self, platform: &P) -> bool {
        platform.has_sequences() && !self.is_sealed()
    }

    /// Asks fast operations to go through the core once. Advice: a sequence in flight may undo it.
    #[inline]
    pub fn make_slow(&self) {
        // Relaxed: the fence orders it where order matters.
        self.word.fetch_or(SLOW, Relaxed);
    }

    /// Base pages on all lists, or parked. Exact only while nothing runs on the CPU.
    pub fn count(&self) -> u32 {
        let word = PcpWord(self.word.load(Relaxed));
        let lists = self.lists[..self.lists_used as usize].iter().enumerate();
        let pages = |(index, list): (_, &PcpList)| list.len_with(word, index) << list.order_bits;
        lists.map(pages).sum::<u32>().saturating_add(self.parked.pages())
    }

    /// Base pages that the lists hold, or that fast operations may bring them to (BUDGET-2). Exact
    /// only while nothing runs on the CPU.
    pub(crate) fn may_hold(&self) -> u64 {
        let word = PcpWord(self.word.load(Relaxed));
        // A list that becomes active grows below this limit (PCP-4).
        let switched = u64::from(self.limit.load(Relaxed)).saturating_sub(1);
        let active = self.lists.get(word.active()).map_or(0, |list| {
            let others = u64::from(list.others.load(Relaxed));
            others + (u64::from(list.hi.load(Relaxed)) << list.order_bits)
        });
        u64::from(self.count()).max(switched).max(active)
    }

    /// Blocks on one list; 0 where there is no such list. Exact only while nothing runs on the CPU.
    pub fn listed(&self, list: usize) -> u32 {
        let record = self.lists.get(list);
        record.map_or(0, |record| record.len_with(PcpWord(self.word.load(Relaxed)), list))
    }

    /// Blocks on a list, if it is the active one: a guess of who has not entered.
    #[inline]
    pub(crate) fn active_len(&self, list: usize) -> Option<u32> {
        let word = PcpWord(self.word.load(Relaxed));
        (word.active() == list && list < NR_LISTS).then(|| word.len())
    }

    /// What only slow ways count. Exact only while nothing runs on the CPU.
    pub fn events(&self) -> PcpEvents {
        self.events.read()
    }

    /// Whether the zone has all of so many frames from this one on; at least one.
    #[inline(always)]
    pub(crate) fn has(&self, frame: u64, frames: u32) -> bool {
        let at = frame.wrapping_sub(u64::from(self.first_frame));
        let behind = u64::from(self.frames).checked_sub(at);
        behind.is_some_and(|behind| u64::from(frames) <= behind)
    }

    /// The record of one of its stacks, if it has one of this number.
    pub fn list(&self, list: usize) -> Option<&PcpList> {
        self.lists.get(list)
    }

    /// Base pages in the depot that lies in this pcp's record: that of a group of CPUs, where
    /// this pcp's CPU is the first of them.
    pub fn depot_pages(&self) -> u32 {
        self.depot.pages().get()
    }

    /// Whether a thread has it closed.
    pub fn is_closed(&self) -> bool {
        // Acquire: pairs with the Release in `Closed::drop`, to see that closer's writes.
        is_closed(self.gate.load(Ordering::Acquire))
    }

    /// Whether it is open and holds nothing. A closed pcp may be about to get pages, so it does not
    /// count as empty.
    pub fn seems_empty(&self) -> bool {
        // Acquire: pairs with the Release in `Closed::drop`, to see that closer's writes.
        !is_closed(self.gate.load(Ordering::Acquire))
            && self.count() == 0
            && !is_closed(self.gate.load(Relaxed))
    }

    /// A number that grows with each block that its lists or the range parked beside them get or
    /// give, and with the CPU's own moves from and to the buddy. Exact only while nothing runs on
    /// the CPU.
    pub(crate) fn moves(&self) -> u64 {
        let word = PcpWord(self.word.load(Relaxed));
        let (parked, _) = self.parked.taken();
        let events = &self.events;
        let direct = events.direct_pages.load(Relaxed) + events.direct_freed.load(Relaxed);
        let mut moves = direct.wrapping_add(2 * parked + u64::from(self.parked.pages() != 0));
        for (index, list) in self.lists[..self.lists_used as usize].iter().enumerate() {
            let pops = list.pops_with((word.active() == index).then_some(word));
            // Its pops and its pushes (PCP-5).
            let pushes = pops + u64::from(list.len_with(word, index)) + list.drained.load(Relaxed);
            let both = pops + pushes;
            moves = moves.wrapping_add(both.wrapping_sub(list.refilled.load(Relaxed)));
        }
        moves
    }

    /// Counts of the pcp. Exact only while nothing runs on the CPU.
    pub fn totals(&self) -> PcpTotals {
        let word = PcpWord(self.word.load(Relaxed));
        let mut totals = PcpTotals::default();
        for (index, list) in self.lists[..self.lists_used as usize].iter().enumerate() {
            let length = u64::from(list.len_with(word, index));
            let pops = list.pops_with((word.active() == index).then_some(word));
            let (refilled, drained) = (list.refilled.load(Relaxed), list.drained.load(Relaxed));
            let pushes = (pops + length + drained).saturating_sub(refilled);
            totals.pops += pops;
            totals.popped_pages += pops << list.order_bits;
            totals.pushed_pages += pushes << list.order_bits;
            totals.refilled_pages += refilled << list.order_bits;
            totals.drained_pages += drained << list.order_bits;
        }
        let joined = self.events.joined_pages.load(Relaxed);
        totals.pops = (totals.pops + self.events.split_pages.load(Relaxed))
            .saturating_sub(self.events.joined_blocks.load(Relaxed));
        totals.popped_pages = totals.popped_pages.saturating_sub(joined);
        totals.pushed_pages = totals.pushed_pages.saturating_sub(joined);
        // A range that was parked and taken again, and one that is parked, is on no list.
        let (parked, pages) = self.parked.taken();
        totals.pops += parked;
        totals.popped_pages += pages;
        totals.pushed_pages += pages + u64::from(self.parked.pages());
        let taken = self.events.depot_taken_pages.load(Relaxed);
        let put = self.events.depot_put_pages.load(Relaxed);
        totals.refilled_pages = totals.refilled_pages.saturating_sub(taken)
            + self.events.depot_fill_pages.load(Relaxed);
        totals.drained_pages = totals.drained_pages.saturating_sub(put);
        totals
    }
}

impl PcpList {
    /// Moves the cold end.
    pub(super) fn set_lo(&self, lo: u32) {
        let by = lo.wrapping_sub(self.lo.load(Relaxed)) as i32;
        let bytes = i64::from(by) * size_of::<AtomicU32>() as i64;
        self.lo.store(lo, Relaxed);
        self.slots_lo.store(self.slots_lo.load(Relaxed).wrapping_add_signed(bytes), Relaxed);
    }

    /// How long the list may get by pushes that decide nothing, where the lists may hold `high`
    /// pages and the others hold `others` (PCP-4).
    #[inline]
    pub fn limit(&self, high: u32, others: u32) -> u32 {
        // After a push the list may hold n blocks iff others + (n << order) < high.
        let most = high.saturating_sub(others).saturating_sub(1) >> self.order_bits;
        most.min(self.cap.saturating_sub(self.lo.load(Relaxed)))
    }

    /// The base pages of `blocks` of its blocks.
    #[inline]
    pub(crate) fn pages_of(&self, blocks: u32) -> PageCount {
        PageCount::new(blocks << self.order_bits)
    }

    /// How many of its blocks as many pages hold.
    #[inline]
    pub(crate) fn blocks_of(&self, pages: PageCount) -> u32 {
        pages.get() >> self.order_bits
    }

    /// Blocks on the list, which has number `index`.
    #[inline]
    pub(super) fn len_with(&self, word: PcpWord, index: usize) -> u32 {
        if word.active() == index { word.len() } else { self.len.load(Relaxed) }
    }

    /// All pops so far. While the list is active the low bits are in the word.
    pub(super) fn pops_with(&self, word: Option<PcpWord>) -> u64 {
        let pops = self.pops.load(Relaxed);
        match word {
            Some(word) => (pops & !u64::from(POPS_PERIOD - 1)) + u64::from(word.pops()),
            None => pops,
        }
    }
}
