//! One zone: its frames, its buddy under the zone lock, and what others read without the lock.
//!
//! # Invariants
//! - **ZONE-1** `buddy.free_pages() == free_counter + sum over CPUs of free_diff + lost`, whenever
//!   the zone lock is free; `lost` is 0 except for the one update that counts nothing (FOLD-2).
//! - **ZONE-2** `listed` and `highatomic_free` repeat the buddy's state of the last unlock.
//! - **ZONE-3** bit `o` of `fast` is set only if an allocation of order `o` without any special
//!   right would pass the high watermark (LB D.4 step 5) and no flag asks for more work on the
//!   way.
//! - **ZONE-4** while `RECORDED` or `RETIRED` is set no pcp of the zone opens for sequences;
//!   whoever sets one closes and opens each pcp once (`pcp/closed.rs`,
//!   `alloc/limits/counters.rs`).
//! - **ZONE-5** `strays` only falls, but in a forked child before anything runs there; it is 0
//!   where the process was never forked.
//!
//! # What it does not do
//! It does not know pcps, other zones or requests.

use crate::buddy::{Buddy, HighAtomicCount};
use crate::frame::Frames;
use crate::gfp::AllocFlags;
use crate::platform::{Line, Platform, Step};
use crate::sync::Ordering::Relaxed;
use crate::sync::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Guard, Lock};
use crate::types::{
    Migratetype, NR_MIGRATETYPES, NR_ORDERS, NR_ZONE_KINDS, NodeId, PAGEBLOCK_ORDER, Pfn, ZoneId,
    ZoneKind,
};
use crate::vmstat::numa::NumaCounters;
use crate::vmstat::update::{Form, instruction, update_times};
use crate::vmstat::variant::Update;
use crate::zone::budget::Budget;
use crate::zone::deferred::Deferred;
use crate::zone::epoch::FastEpoch;
use crate::zone::reclaim::ReclaimRecord;
use crate::zone::watermark::{FreeBlocks, ReserveRights, Watermark, Watermarks, ZoneSnapshot};

/// Orders a plain allocation may take from a pcp without looking further.
pub const FAST_ORDERS: u32 = (1 << NR_ORDERS) - 1;
/// Frees may go to a pcp without looking further.
pub const FAST_FREE: u32 = 1 << 15;
/// Free pages were seen at or below the high watermark (LB D.4, `BELOW_HIGH`).
pub const BELOW_HIGH: u32 = 1 << 16;
/// A background reclaimer works on the zone (LB H.3, `RECLAIM_ACTIVE`).
pub const RECLAIM_ACTIVE: u32 = 1 << 17;
/// A pageblock of another type was broken into; the next allocation wakes the reclaimer (LB C.4).
pub const BOOSTED: u32 = 1 << 18;
/// Each allocation is written to a delta of its CPU, so none may go by a fast path (LB F.7). Set
/// while NUMA events are kept in one of the storages that record them.
pub const RECORDED: u32 = 1 << 19;
/// The fast path has ended for good: [`Allocator::retire`](crate::alloc::Allocator::retire).
pub const RETIRED: u32 = 1 << 20;
/// Flags that keep every pcp of the zone closed to fast operations (ZONE-4).
pub(crate) const NO_FAST: u32 = RECORDED | RETIRED;
const FLAGS: u32 = BELOW_HIGH | RECLAIM_ACTIVE | BOOSTED | NO_FAST;

/// Most pages of a zone, with those that never come to its buddy: 64 PiB. So those of all zones,
/// times the largest factor of a sysctl, are a number of 64 bits.
pub const MANAGED_MAX: u64 = 1 << 44;

/// Strays of a forked child that were not counted yet (ZONE-5).
const STRAYS_UNKNOWN: u64 = u64::MAX;

/// A populated zone.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Zone {
    /// [`FAST_ORDERS`], [`FAST_FREE`] and the flags. Read on every operation, written when an
    /// answer changes; alone with what changes as rarely.
    pub(crate) fast: AtomicU32,
    /// Bits of `fast` that a pcp may be ready by: [`FAST_FREE`] and orders with lists where a CPU
    /// prefers the zone, else none.
    pub(crate) ready_by: u32,
    pub(crate) id: ZoneId,
    pub(crate) node: NodeId,
    pub(crate) kind: ZoneKind,
    /// Mixing types is put off while the zone's node has a DMA32 zone to fall back to; asked only
    /// where the policy says so (LB D.3).
    pub(crate) has_dma32_below: bool,
    pub(crate) start_pfn: u64,
    pub(crate) spanned: u64,
    /// Position of `start_pfn` in the table of frame words.
    pub(crate) frame_base: usize,
    /// What a page's pageblock number lacks to its place in the table of all pageblocks.
    pub(crate) block_shift: u64,
    pub(crate) block_count: usize,
    pub(crate) rights: ReserveRights,
    pub(crate) highatomic: HighAtomicCount,
    managed: AtomicU64,
    watermarks: [AtomicU64; 5],
    reserve: [AtomicU64; NR_ZONE_KINDS],
    pub(crate) batch: AtomicU32,
    pub(crate) high_min: AtomicU32,
    pub(crate) high_max: AtomicU32,
    /// The largest swing of a CPU that its pcp remembers ([`swing_most`]).
    ///
    /// [`swing_most`]: crate::pcp::size::swing_most
    pub(crate) swing_most: AtomicU32,
    /// Pages that make a stream of large frees, where swings are tracked.
    pub(crate) stream: u32,
    pub(crate) stat_threshold: AtomicU32,
    /// Below it tests that ask for it add up the deltas (LB F.2); 0 if they never need to.
    pub(crate) drift_mark: AtomicU64,
    /// How deltas of the zone's counters are updated.
    pub(crate) update: Update,
    /// Position of its first pageblock in the table of all pageblocks.
    pub(crate) block_base: usize,
    pub(crate) present: u64,
    /// Part of `managed` that never comes to the buddy.
    withheld: AtomicU64,
    pub(crate) reclaim: ReclaimRecord,
    pub(crate) deferred: Deferred,
    /// Base pages whose words say "on a list" though they are on none (ZONE-5): an upper bound.
    strays: AtomicU64,
    pub(crate) counters: Counters,
    /// Limit of the zone's lists and depots.
    pub(crate) budget: Budget,
    buddy: Lock<Buddy>,
}

/// Written with the zone lock held, read without; apart from what the fast path reads.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    free: AtomicI64,
    /// What updates did not count (ZONE-1).
    lost: AtomicI64,
    /// Orders that have free blocks, by migratetype (ZONE-2).
    pub(crate) listed: AtomicU64,
    /// Pages of the atomic reserve, as the policy counts them (ZONE-2).
    pub(crate) highatomic_free: AtomicU64,
    /// NUMA events folded so far; see `vmstat::numa` for the exact storage. Written at any time.
    numa: NumaCounters,
    /// Pages that came since the machine was set up, without those that left.
    came: AtomicI64,
}

/// The buddy of a zone, locked. Publishes what others read when it drops.
#[derive(Debug)]
pub struct LockedZone<'a, P: Platform> {
    /// The buddy.
    pub buddy: Guard<'a, Buddy, P>,
    /// The zone's frames.
    pub frames: Frames<'a>,
    epoch: &'a FastEpoch,
    /// After the guard, so that it is called when the lock is free again.
    booked: Booked<'a, P>,
}

/// Updates of the free-page counter in one hold of the lock, for a platform that charges for them.
#[derive(Debug)]
struct Booked<'a, P: Platform> {
    platform: &'a P,
    zone: &'a Zone,
    updates: u32,
    folds: u32,
    pages: u32,
    /// Sizes of the blocks, in base pages: each is a power of two, and a bit.
    sizes: u32,
}

impl Zone {
    /// The zone's position in the allocator's table.
    pub fn id(&self) -> ZoneId {
        self.id
    }
    /// The node it belongs to.
    pub fn node(&self) -> NodeId {
        self.node
    }
    /// Its kind.
    pub fn kind(&self) -> ZoneKind {
        self.kind
    }
    /// First page frame.
    pub fn start_pfn(&self) -> Pfn {
        Pfn(self.start_pfn)
    }
    /// Pages from the first to the last frame, holes included.
    pub fn spanned(&self) -> u64 {
        self.spanned
    }
    /// Pages without holes: those of the machine's description, those that came since it was set
    /// up, and none that left.
    pub fn present(&self) -> u64 {
        // Relaxed: a figure.
        self.present.saturating_add_signed(self.counters.came.load(Relaxed))
    }
    /// So many pages came; below 0, left.
    pub(crate) fn come(&self, pages: i64) {
        self.counters.came.fetch_add(pages, Relaxed);
    }
    /// So many pages leave, which nobody has. The zone lock is held.
    pub(crate) fn leave(&self, pages: u32) {
        self.set_managed(self.managed() - u64::from(pages));
        self.come(-i64::from(pages));
    }
    /// Pages handed to the buddy, and those that others hold in its place.
    pub fn managed(&self) -> u64 {
        self.managed.load(Relaxed)
    }
    /// The part of [`managed`](Self::managed) that never comes to the buddy.
    pub fn withheld(&self) -> u64 {
        self.withheld.load(Relaxed)
    }
    /// `None`, and nothing is changed, for more pages than [`MANAGED_MAX`] together.
    pub(crate) fn withhold(&self, pages: u64) -> Option<()> {
        // What is withheld is a part of what is managed.
        let managed = self.managed().checked_add(pages).filter(|all| *all <= MANAGED_MAX)?;
        self.set_managed(managed);
        self.withheld.store(self.withheld() + pages, Relaxed);
        Some(())
    }
    pub(crate) fn set_managed(&self, pages: u64) {
        self.managed.store(pages, Relaxed);
    }
    /// Base pages that threads of the parent had on the way to or from a list when this process was
    /// forked, as the last validation counted them; 0 before the first one that could close every
    /// pcp of the zone.
    pub fn strays(&self) -> u64 {
        match self.strays_most() {
            STRAYS_UNKNOWN => 0,
            strays => strays,
        }
    }
    /// Whether this is a forked child, where strays may be.
    pub fn may_have_strays(&self) -> bool {
        self.strays_most() > 0
    }
    pub(crate) fn strays_most(&self) -> u64 {
        self.strays.load(Relaxed)
    }
    pub(crate) fn set_strays(&self, pages: u64) {
        // Relaxed: a count. The smallest is the right one: pages that threads of this process have
        // in their hands come on top (ZONE-5).
        self.strays.fetch_min(pages, Relaxed);
    }
    pub(crate) fn expect_strays(&self) {
        self.strays.store(STRAYS_UNKNOWN, Relaxed);
    }
    /// Position of the zone's first frame in the table of frame words.
    pub fn frame_base(&self) -> usize {
        self.frame_base
    }
    /// Per-CPU list parameters in force: batch, high_min, high_max, in pages.
    pub fn pcp_sizes(&self) -> (u32, u32, u32) {
        (self.batch.load(Relaxed), self.high_min.load(Relaxed), self.high_max.load(Relaxed))
    }
    /// The threshold at which per-CPU deltas are folded (LB F.2).
    pub fn stat_threshold(&self) -> u32 {
        self.stat_threshold.load(Relaxed)
    }
    /// Where the counter's error begins to matter (LB F.2 `percpu_drift_mark`), if anywhere.
    pub fn drift_mark(&self) -> Option<u64> {
        Some(self.drift_mark.load(Relaxed)).filter(|watermark| *watermark != 0)
    }
    /// Times the zone lock was taken, and times it was found taken.
    pub fn lock_holds(&self) -> (u64, u64) {
        (self.buddy.holds(), self.buddy.contended())
    }

    /// Whether `pfn` lies between the zone's first and last frame.
    #[inline]
    pub fn contains(&self, pfn: Pfn) -> bool {
        pfn.0.wrapping_sub(self.start_pfn) < self.spanned
    }

    /// The number of one of its pages in the table of all frames.
    #[inline]
    pub(crate) fn frame(&self, pfn: Pfn) -> u32 {
        (self.frame_base as u64 + (pfn.0 - self.start_pfn)) as u32
    }
    /// The page of a frame number.
    #[inline]
    pub(crate) fn page(&self, frame: u32) -> Pfn {
        let offset = u64::from(frame).wrapping_sub(self.frame_base as u64);
        Pfn(self.start_pfn.wrapping_add(offset))
    }

    /// The watermarks in force.
    pub fn watermarks(&self) -> Watermarks {
        let watermark = |i: usize| self.watermarks[i].load(Relaxed);
        Watermarks {
            min: watermark(0),
            low: watermark(1),
            high: watermark(2),
            promo: watermark(3),
            boost: watermark(4),
        }
    }
    /// One of them, boost included.
    pub fn watermark(&self, which: Watermark) -> u64 {
        let [.., boost] = &self.watermarks;
        self.watermarks[which as usize].load(Relaxed) + boost.load(Relaxed)
    }
    /// The boost.
    pub fn boost(&self) -> u64 {
        let [.., boost] = &self.watermarks;
        boost.load(Relaxed)
    }
    pub(crate) fn set_boost(&self, pages: u64) {
        let [.., boost] = &self.watermarks;
        boost.store(pages, Relaxed);
    }
    pub(crate) fn set_watermarks(&self, watermarks: &Watermarks) {
        let values =
            [watermarks.min, watermarks.low, watermarks.high, watermarks.promo, watermarks.boost];
        for (watermark, value) in self.watermarks.iter().zip(values) {
            watermark.store(value, Relaxed);
        }
    }
    /// Pages kept back from requests that could go to zone kind `highest` (LB A.7).
    pub fn reserve(&self, highest: ZoneKind) -> u64 {
        self.reserve[highest.index()].load(Relaxed)
    }
    pub(crate) fn set_reserve(&self, reserve: &[u64; NR_ZONE_KINDS]) {
        for (slot, pages) in self.reserve.iter().zip(reserve) {
            slot.store(*pages, Relaxed);
        }
    }

    /// The free-page counter, without per-CPU deltas; negative reads as 0 (LB F.1).
    #[inline]
    pub fn free_counter(&self) -> u64 {
        self.free_counter_raw().max(0) as u64
    }
    /// The same as it is stored: deltas not yet folded can bring it below 0.
    pub(crate) fn free_counter_raw(&self) -> i64 {
        self.counters.free.load(Relaxed)
    }
    /// NUMA events folded so far.
    pub(crate) fn numa(&self) -> &NumaCounters {
        &self.counters.numa
    }
    /// What ZONE-1 says was never counted.
    pub(crate) fn lost_pages(&self) -> i64 {
        self.counters.lost.load(Relaxed)
    }

    /// What the watermark test looks at, for requests up to zone kind `highest`.
    #[inline(never)]
    pub fn snapshot(&self, highest: ZoneKind) -> ZoneSnapshot {
        let listed = self.counters.listed.load(Relaxed);
        let orders = |mt: usize| (listed >> (mt * NR_ORDERS)) as u16 & FAST_ORDERS as u16;
        ZoneSnapshot {
            free: self.free_counter(),
            highatomic_free: self.counters.highatomic_free.load(Relaxed),
            cma_free: 0,
            rights: self.rights,
            reserve: self.reserve(highest),
            blocks: FreeBlocks { by_type: core::array::from_fn(orders), cma: 0 },
        }
    }

    /// Whether a flag of `fast` is set.
    #[inline]
    pub fn has(&self, flag: u32) -> bool {
        self.fast.load(Relaxed) & flag != 0
    }
    /// Sets a flag; the fast paths close until the next [`Zone::refresh_fast`].
    pub(crate) fn set_flag(&self, flag: u32, epoch: &FastEpoch) {
        // Relaxed: a flag is advice, and a CPU that misses it takes one page more before seeing it.
        let old = self.fast.fetch_update(Relaxed, Relaxed, |old| Some(old & FLAGS | flag));
        self.tell_lost(old.unwrap_or_default(), epoch);
    }
    /// All of these bits of `fast` are lost.
    fn tell_lost(&self, lost: u32, epoch: &FastEpoch) {
        if lost & self.ready_by != 0 {
            epoch.move_on();
        }
    }
    /// Sets or clears [`RECORDED`]; the other bits stay.
    pub(crate) fn set_recorded(&self, recorded: bool) {
        if recorded {
            self.fast.fetch_or(RECORDED, Relaxed);
        } else {
            self.fast.fetch_and(!RECORDED, Relaxed);
        }
    }
    /// Sets [`RETIRED`], for good; the other bits stay.
    pub(crate) fn retire(&self) {
        self.fast.fetch_or(RETIRED, Relaxed);
    }
    pub(crate) fn clear_flag(&self, flag: u32) -> bool {
        self.fast.fetch_and(!flag, Relaxed) & flag != 0
    }

    /// Recomputes `fast` (ZONE-3).
    pub(crate) fn refresh_fast(&self, epoch: &FastEpoch) {
        let old = self.fast.load(Relaxed);
        let new = old & FLAGS | self.fast_bits(old);
        if new != old && self.fast.compare_exchange(old, new, Relaxed, Relaxed).is_ok() {
            self.tell_lost(old & !new, epoch);
        }
    }

    fn fast_bits(&self, flags: u32) -> u32 {
        if flags & (BELOW_HIGH | RECLAIM_ACTIVE) != 0 {
            return 0;
        }
        if flags & BOOSTED != 0 {
            return FAST_FREE;
        }
        let mut worst = self.snapshot(ZoneKind::Device);
        worst.reserve = self.reserve.iter().map(|r| r.load(Relaxed)).max().unwrap_or(0);
        let high = self.watermark(Watermark::High);
        let orders = worst.orders_ok(high, AllocFlags::WMARK_LOW);
        FAST_FREE | ((1 << orders.min(PAGEBLOCK_ORDER.get() + 1)) - 1)
    }

    /// Takes the zone lock.
    #[inline]
    pub(crate) fn lock<'a, P: Platform>(
        &'a self,
        platform: &'a P,
        words: &'a [AtomicU64],
        blocks: &'a [AtomicU8],
        epoch: &'a FastEpoch,
    ) -> LockedZone<'a, P> {
        platform.cost(Step::ZoneLock(self.id));
        let buddy = self.buddy.lock(platform);
        platform.cost(Step::ZoneLocked(self.id));
        let booked = Booked { platform, zone: self, updates: 0, folds: 0, pages: 0, sizes: 0 };
        LockedZone { buddy, frames: self.frames(words, blocks), epoch, booked }
    }

    /// The zone's pageblock types, cut from the table of all zones.
    #[inline]
    pub(crate) fn blocks<'a>(&self, blocks: &'a [AtomicU8]) -> &'a [AtomicU8] {
        &blocks[self.block_base..self.block_base + self.block_count]
    }

    /// The zone's frames, cut from the tables of all zones.
    #[inline]
    pub fn frames<'a>(&self, words: &'a [AtomicU64], blocks: &'a [AtomicU8]) -> Frames<'a> {
        let words = &words[self.frame_base..self.frame_base + self.spanned as usize];
        // The layout was checked when the allocator was made.
        Frames::of_checked(words, self.blocks(blocks), self.start_pfn)
    }
}

impl<P: Platform> LockedZone<'_, P> {
    /// Books `times` steps of `step` pages on the free-page counter, through the delta of the CPU
    /// that does it (LB F.3 `__mod`). ZONE-1 holds again when all moves of the hold are booked.
    pub fn account(&mut self, diff: &AtomicI64, step: i64, times: u32) {
        let threshold = i64::from(self.booked.zone.stat_threshold.load(Relaxed));
        let (done, folds) =
            update_times(self.booked.zone.update, step, times, diff.load(Relaxed), threshold);
        let (folded, lost) = (done.fold, done.lost);
        self.booked.folds += folds;
        self.booked.updates += times;
        self.booked.pages += step.unsigned_abs() as u32 * times;
        self.booked.sizes |= step.unsigned_abs() as u32;
        diff.store(done.diff, Relaxed);
        let counters = &self.booked.zone.counters;
        if folded != 0 {
            counters.free.store(counters.free.load(Relaxed) + folded, Relaxed);
        }
        if lost != 0 {
            counters.lost.store(counters.lost.load(Relaxed) + lost, Relaxed);
        }
    }

    /// What others read of the buddy without its lock: which orders have blocks, by migratetype,
    /// and the pages of the atomic reserve.
    fn to_publish(&self) -> (u64, u64) {
        let mut listed = 0;
        for mt in 0..NR_MIGRATETYPES {
            let orders = u64::from(self.buddy.nonempty_orders(Migratetype::ALL[mt]));
            listed |= orders << (mt * NR_ORDERS);
        }
        let highatomic = match self.booked.zone.highatomic {
            HighAtomicCount::Free => self.buddy.free_highatomic(),
            HighAtomicCount::Reserved => self.buddy.reserved_highatomic(),
        };
        (listed, highatomic)
    }

    /// Whether others see the buddy as it is (ZONE-2). True until the holder changes it.
    pub(crate) fn is_published(&self) -> bool {
        let Counters { listed, highatomic_free, .. } = &self.booked.zone.counters;
        (listed.load(Relaxed), highatomic_free.load(Relaxed)) == self.to_publish()
    }

    /// Adds a folded delta to the free-page counter.
    pub fn fold(&mut self, pages: i64) {
        let free = &self.booked.zone.counters.free;
        free.store(free.load(Relaxed) + pages, Relaxed);
    }
}

impl<P: Platform> Drop for LockedZone<'_, P> {
    fn drop(&mut self) {
        let (listed, highatomic) = self.to_publish();
        let counters = &self.booked.zone.counters;
        if counters.listed.load(Relaxed) != listed {
            counters.listed.store(listed, Relaxed);
        }
        counters.highatomic_free.store(highatomic, Relaxed);
        self.booked.zone.refresh_fast(self.epoch);
        let Booked { platform, zone, pages, updates, sizes, .. } = self.booked;
        let (zone, orders) = (zone.id, sizes.count_ones());
        platform.cost(Step::ZoneUnlock { zone, pages, blocks: updates, orders });
    }
}

impl<P: Platform> Drop for Booked<'_, P> {
    #[inline]
    fn drop(&mut self) {
        let Booked { platform, zone, updates, folds, .. } = *self;
        let (zone, by) = (zone.id, instruction(zone.update, Form::Raw));
        if updates > 0 {
            platform.cost(Step::Update { zone, by, times: updates });
        }
        for _ in 0..folds {
            platform.cost(Step::Fold(Line::Zone(zone)));
            platform.cost(Step::Fold(Line::Machine));
        }
    }
}

const _: () = assert!(NR_MIGRATETYPES * NR_ORDERS <= 64);
