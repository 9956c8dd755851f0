//! Watermarks: how many pages a zone keeps back, for whom, and the test that decides.
//!
//! ```text
//!   free pages
//!   ---------- promo   memory tiering stops promoting below this
//!   ---------- high    the background reclaimer sleeps again
//!   ---------- low     the background reclaimer is woken
//!   ---------- min     only requests with rights to a reserve go below; the rest must reclaim
//!   ---------- 0       equal gaps between the watermarks; `boost` lifts all four at once
//! ```
//! A request whose highest allowed zone is `j` must leave `watermark + reserve[j]` pages in a zone,
//! so that requests which could have been served higher up do not eat the low zones.
//!
//! Pure arithmetic on arguments: no locks, no state. The order of calls matters to the caller,
//! because [`lowmem_pages`] subtracts high watermarks computed earlier (LB M.2): at the first boot
//! call they are zero.

use core::fmt;

use crate::gfp::AllocFlags;
use crate::types::{
    Migratetype, NR_MIGRATETYPES, NR_ORDERS, NR_PCP_MIGRATETYPES, NR_ZONE_KINDS, Order, PageRules,
    ZoneKind, choice, isqrt,
};

/// Smallest computed `min_free_kbytes` (LB C.1).
pub const MIN_FREE_KBYTES_FLOOR: u32 = 128;
/// Largest computed `min_free_kbytes` since 5.7 (LB C.1).
pub const MIN_FREE_KBYTES_CEILING: u32 = 262_144;
/// The same up to 5.6 (LB C.1).
pub const MIN_FREE_KBYTES_CEILING_5_6: u32 = 65_536;
/// Default of `watermark_scale_factor`, in 1/10000 of a zone (LB C.2).
pub const SCALE_FACTOR_DEFAULT: u32 = 10;
/// Default of `watermark_boost_factor`, in 1/10000 of the high watermark (LB C.4).
pub const BOOST_FACTOR_DEFAULT: u32 = 15_000;
/// Default of `lowmem_reserve_ratio`, by zone kind (LB A.7).
pub const LOWMEM_RATIO_DEFAULT: [u32; NR_ZONE_KINDS] = [256, 256, 32, 0, 0];

/// Denominator of the two factors above.
pub const FACTOR_UNIT: u64 = 10_000;

/// A watermark, as an index into the stored four.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Watermark {
    /// Below it only reserves are left.
    Min = 0,
    /// Below it the background reclaimer is woken.
    Low = 1,
    /// Above it the background reclaimer sleeps.
    High = 2,
    /// Above it memory tiering promotes (5.18+).
    Promo = 3,
}

impl fmt::Display for Watermark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Watermark::Min => "min",
            Watermark::Low => "low",
            Watermark::High => "high",
            Watermark::Promo => "promo",
        })
    }
}

/// A zone's watermarks, in pages, stored without the boost; [`Watermarks::of`] adds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Watermarks {
    /// Min watermark.
    pub min: u64,
    /// Low watermark.
    pub low: u64,
    /// High watermark.
    pub high: u64,
    /// Promo watermark.
    pub promo: u64,
    /// Pages added to every watermark while fragmentation is being worked off (LB C.4).
    pub boost: u64,
}

/// Inputs of one zone's watermarks (LB C.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WatermarkInputs {
    /// The zone.
    pub kind: ZoneKind,
    /// Its managed pages.
    pub managed: u64,
    /// Managed pages of all zones of all nodes, those of [`ZoneKind::Movable`] left out where
    /// `movable` says so.
    pub lowmem_managed: u64,
    /// How a movable zone is treated.
    pub movable: MovableMin,
    /// The sysctl, in KiB.
    pub min_free_kbytes: u32,
    /// The sysctl, in 1/10000 of the zone.
    pub scale_factor: u32,
    /// The size of a page.
    pub page: PageRules,
}

choice! {
    /// The min watermark of a movable zone.
    #[derive(Default)]
    pub enum MovableMin {
        /// 32 to 128 pages; such zones are no part of the low memory that `min_free_kbytes` is
        /// shared out over (LB C.2).
        #[default]
        Capped = "capped",
        /// Its share, as any zone. So 6.1: there an empty movable zone prints a min of 0, later
        /// ones 32 (zoneinfo captured under `shared/conformance`).
        Share = "share",
    }
}

/// Outcome of computing `min_free_kbytes` (LB C.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MinFree {
    /// The formula's value, within its bounds, is in force.
    Computed(u32),
    /// The written value stays, and a warning names both.
    KeptUser {
        /// The written value.
        user: u32,
        /// The formula's value, before its bounds.
        computed: u64,
    },
}

choice! {
    /// What rights to the reserve take off a watermark (LB C.5).
    #[derive(Default)]
    pub enum ReserveRights {
        /// `__GFP_HIGH` half; then, for a request that cannot block, a quarter of what is left, or
        /// half of it for a task being killed. Up to 6.3, where the flags were called HIGH and
        /// HARDER.
        HighHarder = "high-harder",
        /// `__GFP_HIGH` half, and with it, for a request that cannot block, a quarter of what is
        /// left; for a task being killed half. 6.4 on.
        #[default]
        NonBlock = "non-block",
    }
}

/// Inputs of the watermark test (LB C.5). Small enough to be filled on each allocation; only
/// requests above order 0 look at `blocks`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ZoneSnapshot {
    /// The zone's free-page counter.
    pub free: u64,
    /// Free pages on the HighAtomic lists (6.13+), or all pages so reserved (up to 6.12.0).
    pub highatomic_free: u64,
    /// Free pages kept for contiguous allocations.
    pub cma_free: u64,
    /// The zone's lowmem reserve against the request's highest zone, see [`lowmem_reserves`].
    pub reserve: u64,
    /// The lists that hold blocks.
    pub blocks: FreeBlocks,
    /// What rights to the reserve are worth.
    pub rights: ReserveRights,
}

/// Which free lists hold at least one block: bit `o` of a word stands for order `o`. A list that
/// holds a block implies a non-zero block count of that order, so the count itself is not needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FreeBlocks {
    /// Orders with a block, by [`Migratetype`].
    pub by_type: [u16; NR_MIGRATETYPES],
    /// Orders with a block for contiguous allocations.
    pub cma: u16,
}

/// What [`available_pages`] looks at, in pages, of the whole machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Memory {
    /// Free pages.
    pub free: u64,
    /// Sum of [`total_reserve`] over all zones.
    pub total_reserve: u64,
    /// Sum of the low watermarks of all zones.
    pub low_watermarks: u64,
    /// Active and inactive file pages.
    pub file_lru: u64,
    /// Reclaimable slab and other reclaimable kernel memory.
    pub reclaimable: u64,
}

/// Pages `lowmem_pages` of LB C.1: the pages above the high watermark in the zones up to Normal of
/// all nodes. Each item is a zone's `(managed, high watermark with boost)`.
pub fn lowmem_pages(zones: impl IntoIterator<Item = (u64, u64)>) -> u64 {
    zones.into_iter().map(|(managed, high)| managed.saturating_sub(high)).sum()
}

/// `min_free_kbytes` for that much low memory, given the value written by a user if any (LB C.1).
/// The written value wins unless the formula's, before its bounds, is larger. `ceiling` is
/// [`MIN_FREE_KBYTES_CEILING`] or its older value.
pub fn min_free_kbytes(
    lowmem_pages: u64,
    user: Option<u32>,
    ceiling: u32,
    page: PageRules,
) -> MinFree {
    let computed = isqrt(lowmem_pages.saturating_mul(page.kbytes()).saturating_mul(16));
    match user {
        Some(user) if computed <= u64::from(user) => MinFree::KeptUser { user, computed },
        _ => {
            let ceiling = ceiling.max(MIN_FREE_KBYTES_FLOOR);
            MinFree::Computed(computed.clamp(MIN_FREE_KBYTES_FLOOR.into(), ceiling.into()) as u32)
        }
    }
}

impl MinFree {
    /// The value in force, in KiB.
    pub const fn kbytes(self) -> u32 {
        match self {
            MinFree::Computed(kbytes) => kbytes,
            MinFree::KeptUser { user, .. } => user,
        }
    }
}

/// `min_free_kbytes` raised for transparent huge pages (LB C.1): per zone two pageblocks, and one
/// for each pair of the three ordinary migratetypes, so that types need not share a pageblock; at
/// most a twentieth of low memory, and never lowered. `low_zones` counts populated zones up to
/// Normal, of all nodes.
pub fn min_free_kbytes_for_thp(
    current_kbytes: u32,
    low_zones: u32,
    lowmem_pages: u64,
    page: PageRules,
) -> u32 {
    let blocks = 2 + NR_PCP_MIGRATETYPES * NR_PCP_MIGRATETYPES;
    let wanted = page.block_pages().saturating_mul(u64::from(low_zones) * blocks as u64);
    let kbytes = wanted.min(lowmem_pages / 20).saturating_mul(page.kbytes());
    current_kbytes.max(u32::try_from(kbytes).unwrap_or(u32::MAX))
}

impl Watermarks {
    /// Those of a zone without pages: what the rule gives for nothing (LB C.2).
    pub fn unpopulated(kind: ZoneKind, movable: MovableMin) -> Watermarks {
        Watermarks::compute(&WatermarkInputs {
            kind,
            managed: 0,
            lowmem_managed: 0,
            movable,
            min_free_kbytes: 0,
            scale_factor: 0,
            page: PageRules::OWN,
        })
    }

    /// The watermarks of one zone; the boost becomes zero (LB C.2).
    pub fn compute(zone: &WatermarkInputs) -> Watermarks {
        let pages_min = zone.min_free_kbytes / zone.page.kbytes() as u32;
        let share = mul_div(pages_min, zone.managed, zone.lowmem_managed);
        // No reclaimer is woken for a movable zone's min, so it is only a token; the gap still
        // follows from the uncapped share (LB C.2).
        let min = match (zone.kind, zone.movable) {
            (ZoneKind::Movable, MovableMin::Capped) => (zone.managed / 1024).clamp(32, 128),
            _ => share,
        };
        let gap = (share / 4).max(mult_frac(zone.managed, zone.scale_factor.into(), FACTOR_UNIT));
        Watermarks { min, low: min + gap, high: min + 2 * gap, promo: min + 3 * gap, boost: 0 }
    }

    /// The mark in force: the stored one plus the boost.
    #[inline]
    pub const fn of(&self, watermark: Watermark) -> u64 {
        self.stored(watermark) + self.boost
    }

    /// The mark without the boost.
    #[inline]
    pub const fn stored(&self, watermark: Watermark) -> u64 {
        match watermark {
            Watermark::Min => self.min,
            Watermark::Low => self.low,
            Watermark::High => self.high,
            Watermark::Promo => self.promo,
        }
    }

    /// Raises the boost by a pageblock, up to `factor` of the stored high watermark, because a
    /// pageblock of another type had to be broken into (LB C.4). `false`, and no change, where
    /// boosting is off or the zone too small to gain from it.
    pub fn raise_boost(&mut self, managed: u64, factor: u32, page: PageRules) -> bool {
        let block = page.block_pages();
        if factor == 0 || managed < 4 * block {
            return false;
        }
        let boost_max = mult_frac(self.high, factor.into(), FACTOR_UNIT);
        if boost_max == 0 {
            return false;
        }
        let boost_max = boost_max.max(block);
        self.boost = (self.boost + block).min(boost_max);
        true
    }

    /// Takes back the boost that a background reclaimer saw when it woke (LB C.4, H.3); later
    /// additions stay.
    pub fn lower_boost(&mut self, seen: u64) {
        self.boost = self.boost.saturating_sub(seen);
    }
}

/// The lowmem reserves of one node: entry `[i][j]` is what zone kind `i` keeps back, in pages, from
/// a request that could have been served from kind `j` (LB A.7). Printed as `protection`.
pub fn lowmem_reserves(
    managed: &[u64; NR_ZONE_KINDS],
    ratio: &[u32; NR_ZONE_KINDS],
) -> [[u64; NR_ZONE_KINDS]; NR_ZONE_KINDS] {
    core::array::from_fn(|kind| lowmem_reserve(managed, ratio, kind))
}

/// One row of [`lowmem_reserves`]: that of the zone of this kind.
pub(crate) fn lowmem_reserve(
    managed: &[u64; NR_ZONE_KINDS],
    ratio: &[u32; NR_ZONE_KINDS],
    kind: usize,
) -> [u64; NR_ZONE_KINDS] {
    let mut row = [0; NR_ZONE_KINDS];
    if ratio[kind] != 0 && managed[kind] != 0 {
        let mut above = 0;
        for highest in kind + 1..NR_ZONE_KINDS {
            above += managed[highest];
            row[highest] = above / u64::from(ratio[kind]);
        }
    }
    row
}

/// What is stored of a ratio written to `lowmem_reserve_ratio`: 0 for anything below 1 (LB A.7).
pub const fn lowmem_ratio_stored(written: i32) -> u32 {
    if written < 1 { 0 } else { written as u32 }
}

/// One zone's part of `totalreserve` (LB A.7): its largest reserve and its high watermark, at most
/// the zone itself.
pub fn total_reserve(
    managed: u64,
    reserves: &[u64; NR_ZONE_KINDS],
    watermarks: &Watermarks,
) -> u64 {
    let reserve_max = reserves.iter().copied().max().unwrap_or(0);
    managed.min(reserve_max + watermarks.of(Watermark::High))
}

/// What programs can get without swapping, in pages (LB I.4, `MemAvailable`): what is free beyond
/// the reserves, and of page cache and reclaimable slab all but the half, or the low watermarks
/// where they are less, that the system is slow without.
pub fn available_pages(memory: &Memory) -> u64 {
    let usable = |pages: u64| pages - (pages / 2).min(memory.low_watermarks);
    let gains = usable(memory.file_lru).saturating_add(usable(memory.reclaimable));
    memory.free.saturating_add(gains).saturating_sub(memory.total_reserve)
}

impl ZoneSnapshot {
    /// The watermark test (LB C.5): whether taking a block of `order` leaves more than `watermark`
    /// and the reserve behind, less what `flags` entitle to, *and* such a block exists. Equality
    /// fails. `watermark` includes the boost; the watermark bits of `flags` are ignored.
    pub fn ok(&self, order: Order, watermark: u64, flags: AllocFlags) -> bool {
        let free = self.free as i64 - self.unusable(order, flags) as i64;
        if free <= (self.watermark_for_rights(watermark, flags) + self.reserve) as i64 {
            return false;
        }
        order == Order::ZERO || self.blocks.has(order, flags)
    }

    /// How many orders, from 0 on, pass [`ok`](Self::ok). A block that serves one order serves all
    /// below.
    pub fn orders_ok(&self, watermark: u64, flags: AllocFlags) -> u32 {
        let kept = self.watermark_for_rights(watermark, flags) + self.reserve;
        // Of a block of `2^o` pages all but one may not be counted on.
        let spare = self.free.saturating_sub(kept + self.unusable(Order::ZERO, flags));
        let by_pages = u64::BITS - spare.leading_zeros();
        let listed = self.blocks.orders(flags);
        // Order 0 does not ask for a block.
        let by_blocks = (u16::BITS - listed.leading_zeros()).max(1);
        by_pages.min(by_blocks).min(NR_ORDERS as u32)
    }

    /// The test as an allocation makes it (LB C.5): `watermark` of `watermarks`, with a fast path
    /// for order 0. An order-0 request with a right to the reserve that asked for the min watermark
    /// is not held up by a boost; which mark the request asked for is in its `flags` (LB D.2), and
    /// is not `watermark` in the one step that tests the high watermark for everybody (LB D.4, step
    /// 5).
    pub fn ok_fast(
        &self,
        order: Order,
        watermarks: &Watermarks,
        watermark: Watermark,
        flags: AllocFlags,
    ) -> bool {
        if order == Order::ZERO {
            let usable = self.free.saturating_sub(self.unusable(order, flags));
            if usable > watermarks.of(watermark) + self.reserve {
                return true;
            }
        }
        if self.ok(order, watermarks.of(watermark), flags) {
            return true;
        }
        watermarks.boost != 0 && spared_boost(order, flags) && self.ok(order, watermarks.min, flags)
    }

    /// How many pages [`ok_fast`](Self::ok_fast) makes the request leave behind at least; it needs
    /// one more.
    pub fn kept(
        &self,
        order: Order,
        watermarks: &Watermarks,
        watermark: Watermark,
        flags: AllocFlags,
    ) -> u64 {
        let watermark =
            if spared_boost(order, flags) { watermarks.min } else { watermarks.of(watermark) };
        self.watermark_for_rights(watermark, flags) + self.reserve
    }

    /// `watermark`, lowered by what the flags entitle to (LB C.5). Each step takes its part of what
    /// the step before left, and each division rounds the part taken down.
    #[inline]
    const fn watermark_for_rights(&self, watermark: u64, flags: AllocFlags) -> u64 {
        let mut min = watermark;
        let harder = flags.contains(AllocFlags::NON_BLOCK);
        let new = matches!(self.rights, ReserveRights::NonBlock);
        if flags.contains(AllocFlags::MIN_RESERVE) {
            min -= min / 2;
            if new && harder {
                min -= min / 4;
            }
        }
        if flags.contains(AllocFlags::OOM) {
            min -= min / 2;
        } else if !new && harder {
            min -= min / 4;
        }
        min
    }

    /// Free pages the request must not count on: all but one of the block itself, and the pages set
    /// aside for others (LB C.5).
    #[inline]
    pub fn unusable(&self, order: Order, flags: AllocFlags) -> u64 {
        let mut pages = order.pages() - 1;
        if !flags.intersects(AllocFlags::RESERVES) {
            pages += self.highatomic_free;
        }
        if !flags.contains(AllocFlags::CMA) {
            pages += self.cma_free;
        }
        pages
    }
}

impl FreeBlocks {
    /// Whether a block of `order` or above is on a list that `flags` may take from (LB C.5).
    #[inline]
    pub const fn has(&self, order: Order, flags: AllocFlags) -> bool {
        self.orders(flags) >> order.get() != 0
    }

    /// Orders with a block that `flags` may take.
    #[inline]
    const fn orders(&self, flags: AllocFlags) -> u16 {
        let mut orders = self.by_type[Migratetype::Unmovable.index()]
            | self.by_type[Migratetype::Movable.index()]
            | self.by_type[Migratetype::Reclaimable.index()];
        if flags.contains(AllocFlags::CMA) {
            orders |= self.cma;
        }
        if flags.intersects(HIGHATOMIC_USERS) {
            orders |= self.by_type[Migratetype::HighAtomic.index()];
        }
        orders
    }
}

/// Free pages for the tests that must not be fooled by per-CPU deltas (LB C.5, `…_ok_safe`): the
/// counter, or `exact` (counter plus deltas, which costs a walk) where the counter is below the
/// zone's drift mark.
pub fn free_pages_safe(counter: u64, drift_mark: Option<u64>, exact: impl FnOnce() -> u64) -> u64 {
    match drift_mark {
        Some(drift_mark) if counter < drift_mark => exact(),
        _ => counter,
    }
}

/// Who may take blocks from the HighAtomic lists (LB C.5).
const HIGHATOMIC_USERS: AllocFlags =
    AllocFlags::from_bits(AllocFlags::HIGHATOMIC.bits() | AllocFlags::OOM.bits());

/// Whether a boost does not hold the request up (LB C.5): order 0, from the min watermark, with a
/// right to the reserve.
const fn spared_boost(order: Order, flags: AllocFlags) -> bool {
    order.get() == 0
        && flags.contains(AllocFlags::MIN_RESERVE)
        && flags.bits() & AllocFlags::WMARK_MASK == AllocFlags::WMARK_MIN.bits()
}

/// `x * n / d` as the kernel's `mult_frac` rounds it (LB C.2): whole multiples of `d` first.
/// The most there is where that is more.
const fn mult_frac(x: u64, n: u64, d: u64) -> u64 {
    (x / d).saturating_mul(n).saturating_add(x % d * n / d)
}

/// `a * b / c`, 0 for `c` = 0, bit by bit of `a`: all managed pages times a large `min_free_kbytes`
/// are more than 64 bits hold, and a division of 128 bits is a function of its own in an image.
/// `b` and `c` are numbers of pages, below 2^62.
fn mul_div(a: u32, b: u64, c: u64) -> u64 {
    let (mut quotient, mut rest) = (0u64, 0);
    for bit in (0..u32::BITS).rev().filter(|_| c != 0) {
        rest = 2 * rest + if a >> bit & 1 == 0 { 0 } else { b };
        quotient = quotient.wrapping_mul(2).wrapping_add(rest / c);
        rest %= c;
    }
    quotient
}

#[cfg(test)]
mod tests;
