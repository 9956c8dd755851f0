//! The values of a policy by name: `pcp.scale_max=3`. One table says each key, what it means and
//! what it accepts; help, errors, reports and the command line all come from it.
//!
//! ```
//! use zonal_core::policy::Policy;
//!
//! let mut policy = Policy::LINUX_6_18;
//! policy.set("pcp.scale_max", "3").unwrap();
//! assert_eq!(policy.pcp.scale_max, 3);
//! assert!(policy.set("pcp.scale_max", "7").is_err()); // 0 to 6; the old value is kept
//! ```

use core::fmt;

use super::nearest::nearest;
use super::numbers::{self, MAX_INT};
use super::recompute::Recompute;
use super::walk::{
    CacheMark, DirtySpread, DistanceRule, NoFragment, NodeLoad, NodeReclaimMode, PrivateNodes,
    ReclaimUnit, ReclaimingNodes, ZonelistCaching, ZonelistOrder,
};
use super::{Grouping, MinFreeRule, Policy};
use crate::buddy::{FallbackRule, HighAtomicCount, HighAtomicLimit};
use crate::pcp::depot::DepotGroup;
use crate::pcp::drain::{Chunk, DrainOrder, IdleDrain, RemoteDrain};
use crate::pcp::lists::{FreeLists, HugeLists};
use crate::pcp::owner::Pageblocks;
use crate::pcp::size::{CacheSlice, HighFraction, SizeRule};
use crate::pcp::tuning::Tuning;
use crate::types::{Choice, NR_ZONE_KINDS};
use crate::vmstat::variant::{
    NumaEnable, NumaFold, NumaStorage, Pressure, Refresh, ThresholdPages, Update,
};
use crate::zone::watermark::{MovableMin, ReserveRights};

/// One value of a policy that has a name.
pub struct Setting {
    /// The name: `part.value`.
    pub key: &'static str,
    /// Its meaning, in one line.
    pub help: &'static str,
    /// Values that only a build with the feature `history` accepts.
    pub absent: &'static [&'static str],
    accepts: fn(&mut fmt::Formatter<'_>) -> fmt::Result,
    print: fn(&Policy, &mut fmt::Formatter<'_>) -> fmt::Result,
    parse: fn(&mut Policy, &str) -> Option<()>,
    same: fn(&Policy, &Policy) -> bool,
}

/// Why a value was not set. The policy is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetError<'a> {
    /// No setting has this name.
    UnknownKey(&'a str),
    /// The setting does not accept this value.
    Refused {
        /// The setting's name.
        key: &'static str,
        /// The text.
        value: &'a str,
    },
    /// Only a build with the feature `history` accepts this value.
    Absent {
        /// The setting's name.
        key: &'static str,
        /// The text.
        value: &'a str,
    },
    /// The value does not go together with another one.
    Conflict(Conflict),
}

/// Two values of a policy that exclude each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The value that cannot be.
    pub key: &'static str,
    /// Why it cannot be, and what would have to change.
    pub reason: &'static str,
}

/// A setting with a value, as `key=value`.
#[derive(Clone, Copy)]
pub struct Assignment<'a> {
    /// The setting.
    pub setting: &'static Setting,
    policy: &'a Policy,
}

/// A setting at a place of the policy, in one of three forms: a [`Choice`], a number of a range, or
/// anything with its own texts (what it accepts, how it prints, how it is read).
macro_rules! setting {
    ($key:literal, $($place:ident).+ : $kind:ident, $help:literal) => {
        Setting {
            absent: $kind::ABSENT,
            ..setting!($key, $($place).+, $help, print_names::<$kind>,
                |value: $kind, f| f.write_str(value.name()), $kind::named)
        }
    };
    ($key:literal, $($place:ident).+ : $kind:ident in $range:expr, $help:literal) => {
        setting!($key, $($place).+, $help,
            |f| write!(f, "{} to {}", $range.start(), $range.end()),
            |value: $kind, f| write!(f, "{value}"),
            |text| text.parse::<$kind>().ok().filter(|value| ($range).contains(value)))
    };
    ($key:literal, $($place:ident).+, $help:literal, $accepts:expr, $print:expr, $parse:expr) => {
        Setting {
            key: $key,
            help: $help,
            absent: &[],
            accepts: $accepts,
            print: |policy, f| {
                let print: fn(_, &mut fmt::Formatter<'_>) -> fmt::Result = $print;
                print(policy.$($place).+, f)
            },
            parse: |policy, text| {
                let parse: fn(&str) -> Option<_> = $parse;
                policy.$($place).+ = parse(text)?;
                Some(())
            },
            same: |one, other| one.$($place).+ == other.$($place).+,
        }
    };
}

/// Every setting, in the order in which they are listed.
pub const SETTINGS: &[Setting] = &[
    setting!(
        "pcp.orders",
        pcp.orders,
        "orders that have per-CPU lists",
        |f| f.write_str("orders and ranges of orders from 0 to 9, as 0-3,9"),
        print_orders,
        parse_orders
    ),
    setting!("pcp.huge_lists", pcp.huge_lists: HugeLists,
        "how huge pages share lists: by-type 5.13 to 5.19, together 6.0 to 6.9, then by-movable"),
    setting!("pcp.freelist", pcp.free_lists: FreeLists,
        "hot-cold: pages that callers say are in no cache have lists of their own (2.6.24)"),
    setting!("pcp.size", pcp.size: SizeRule,
        "sizes of the lists: six-batches up to 5.12, low-mark to 6.6, bounds from 6.7 on"),
    setting!("pcp.batch_cap", pcp.batch_cap_pages: u64 in numbers::BATCH_CAP,
        "cap of the batch before it is divided by 4, in pages: 128 up to 4.18, then 256"),
    setting!("pcp.recompute", pcp.recompute: Recompute,
        "when the lists' sizes are computed; each value adds to the one before it"),
    setting!("pcp.tuning", pcp.tuning: Tuning,
        "steps of self-tuning: fixed up to 5.12, 0 to 6.6, 1 to 9 those of 6.7, 6.15 from then on"),
    setting!("pcp.scale_max", pcp.scale_max: u8 in numbers::SCALE_MAX,
        "pcp_batch_scale_max: refills and drains grow up to batch << this; from pcp.tuning=4 on"),
    setting!(
        "pcp.slice",
        pcp.slice,
        "share of the last cache that a CPU counts as its own; read from pcp.tuning=3 on",
        |f| f.write_str("machine, or bytes"),
        print_slice,
        parse_slice
    ),
    setting!(
        "pcp.high_fraction",
        pcp.high_fraction,
        "percpu_pagelist_(high_)fraction: 0 tunes the lists, f fixes them at 1/f of the zone",
        |f| f.write_str("0, or 8 and more"),
        |fraction: HighFraction, f| write!(f, "{}", fraction.get()),
        |text| HighFraction::new(text.parse().ok()?).ok()
    ),
    setting!("pcp.high_batches", pcp.high_batches: u32 in numbers::HIGH_BATCHES,
        "lists of a CPU grow to so many batches at most, for blocks of 1 MiB and more to 2.5 times \
         as many; 0 leaves it to pcp.size"),
    setting!("pcp.bulk_block", pcp.bulk_block: u8 in numbers::BULK_BLOCK,
        "order of the blocks that bulk calls take and give back whole, 3 to 9; 0: page by page"),
    setting!("pcp.hold", pcp.hold: u16 in numbers::HOLD,
        "blocks that move in one hold of the zone lock, at most; 0 as Linux: a whole refill"),
    setting!("pcp.budget_fraction", pcp.budget_fraction: u32 in numbers::BUDGET_FRACTION,
        "all lists and depots of a zone together hold at most 1/f of it; 0 as Linux: no bound"),
    setting!("pcp.stream", pcp.stream: u32 in numbers::STREAM,
        "pages that make a stream of large frees, in a row and on the lists; 0 as pcp.tuning says"),
    setting!("pcp.pageblocks", pcp.pageblocks: Pageblocks,
        "who splits and merges in a pageblock: the zone, or the CPU that claimed it (RFC, 2026)"),
    setting!("pcp.drain", pcp.drain.order: DrainOrder,
        "which list is drained next: growing round robin up to 5.17, then list by list"),
    setting!("pcp.drain_bulk", pcp.drain.bulk: Chunk,
        "pages a bulk free moves in one hold of the zone lock: whole up to 6.17, then batch"),
    setting!("pcp.drain_all", pcp.drain.all: Chunk,
        "pages of one bulk free where a pcp is emptied: whole up to 6.9, then bulk"),
    setting!("pcp.drain_decay", pcp.drain.decay: Chunk,
        "pages of one bulk free where lists decay: whole in 6.12.0, then batch"),
    setting!("pcp.drain_remote", pcp.drain.remote: RemoteDrain,
        "who drains another CPU's lists: a work item there (up to 5.19), or the caller"),
    setting!("pcp.drain_idle", pcp.drain.idle: IdleDrain,
        "another node's pages on idle lists go: a batch after pages moved (Linux), or all in time"),
    setting!("depot.batches", pcp.depot.magazines: u16 in numbers::MAGAZINES,
        "batches that wait between lists and buddy, for each CPU that shares a depot; 0 as Linux"),
    setting!("depot.group", pcp.depot.group: DepotGroup,
        "CPUs that share a depot: those of a last-level cache (if known), or of a node"),
    setting!("depot.block", pcp.depot.block: u8 in numbers::DEPOT_BLOCK,
        "a depot is filled with blocks of up to this order, split outside the zone lock; 0: not"),
    setting!(
        "watermark.min_free",
        watermark.min_free,
        "where min_free_kbytes comes from",
        |f| f.write_str("linux, linux+thp, linux-thp, pool, or kilobytes"),
        print_min_free,
        parse_min_free
    ),
    setting!("watermark.min_free_max", watermark.min_free_max_kbytes: u32 in numbers::MIN_FREE_MAX,
        "most that the square-root rule gives, in KiB: 65536 up to 5.6, then 262144"),
    setting!("watermark.movable_min", watermark.movable_min: MovableMin,
        "min watermark of a movable zone: 32 to 128 pages, or (6.1) its share as any zone"),
    setting!("watermark.scale_factor", watermark.scale_factor: u32 in numbers::SCALE_FACTOR,
        "watermark_scale_factor: gap of the watermarks, in 1/10000 of the zone; 0 as before 4.6"),
    setting!("watermark.scale_factor_max",
        watermark.scale_factor_max: u32 in numbers::SCALE_FACTOR_MAX,
        "the gap may grow up to this while reclaim is woken again and again; 0 as Linux, never"),
    setting!("watermark.boost_factor", watermark.boost_factor: u32 in numbers::BOOST_FACTOR,
        "watermark_boost_factor: 0 never boosts"),
    setting!("watermark.boost_atomic", watermark.boost_atomic: bool,
        "an atomic request that fails boosts the watermarks, once a second (v8, February 2026)"),
    setting!(
        "watermark.lowmem_ratio",
        watermark.lowmem_ratio,
        "lowmem_reserve_ratio of DMA, DMA32, Normal, Movable, Device; 0 reserves nothing",
        |f| f.write_str("one number for each zone kind, separated by commas"),
        print_ratios,
        parse_ratios
    ),
    setting!("zonelist.load", zonelist.load: NodeLoad,
        "first place among equally near nodes: by countdown up to 5.15, then accumulated"),
    setting!("zonelist.order", zonelist.order: ZonelistOrder,
        "zones by node, or all nodes' zones of a kind together (2.6.24 to 4.13)"),
    setting!("zonelist.reclaiming", zonelist.reclaiming: ReclaimingNodes,
        "nodes whose reclaimer is awake: used, or passed by a first walk (6.18)"),
    setting!(
        "zonelist.private",
        zonelist.private,
        "nodes whose memory is on no list but their own (RFC, February 2026)",
        |f| f.write_str("none, or numbers and ranges from 0 to 63, as 1,4-7"),
        |nodes: PrivateNodes, f| write!(f, "{nodes}"),
        PrivateNodes::parse
    ),
    setting!("zlc", zonelist.cache: ZonelistCaching,
        "whether requests pass zones found full in the last second (2.6.20 to 4.3)"),
    setting!("zlc.mark", zonelist.cache_mark: CacheMark,
        "when full zones are recorded in the cache: always up to 3.1, then while it is in use"),
    setting!("zonelist.dirty", zonelist.dirty: DirtySpread,
        "what page-cache writes pass at first: nodes with too much dirty (4.8), or nothing (3.2)"),
    setting!(
        "node_reclaim.mode",
        node_reclaim.mode,
        "zone_reclaim_mode: 1 on, 2 may write, 4 may unmap; auto:N is 1 if a distance exceeds N",
        |f| write!(f, "0 to {MAX_INT}, or auto:10 to auto:255"),
        |mode: NodeReclaimMode, f| write!(f, "{mode}"),
        |text| NodeReclaimMode::parse(text, MAX_INT)
    ),
    setting!(
        "node_reclaim.distance",
        node_reclaim.distance,
        "how far from the preferred node zones are reclaimed rather than passed",
        |f| f.write_str("none, <10 to <255, or <=10 to <=255"),
        |rule: DistanceRule, f| write!(f, "{rule}"),
        DistanceRule::parse
    ),
    setting!("node_reclaim.unit", node_reclaim.unit: ReclaimUnit,
        "what is reclaimed as one: a zone up to 4.7, then a node"),
    setting!("node_reclaim.min_unmapped_ratio",
        node_reclaim.min_unmapped_ratio: u32 in numbers::MIN_UNMAPPED,
        "min_unmapped_ratio: percent of the memory that may hold unmapped file pages"),
    setting!("node_reclaim.min_slab_ratio", node_reclaim.min_slab_ratio: u32 in numbers::MIN_SLAB,
        "min_slab_ratio: percent of the memory that may hold reclaimable caches"),
    setting!("nofragment", nofragment: NoFragment,
        "whether a first walk keeps migratetypes apart; always is defrag_mode (6.15)"),
    setting!("fallback", fallback: FallbackRule,
        "how a request takes blocks of another migratetype"),
    setting!("highatomic.count", highatomic.count: HighAtomicCount,
        "pages of the atomic reserve that are out of reach: reserved up to 6.12.0, or free ones"),
    setting!("highatomic.limit", highatomic.limit: HighAtomicLimit,
        "size of the atomic reserve: 1 % of the zone plus a pageblock (6.1), or rounded up to one"),
    setting!("reserves", reserves: ReserveRights,
        "rights below the watermarks: high-harder up to 6.3, then non-block"),
    setting!("mobility_grouping", mobility_grouping: Grouping,
        "whether pageblocks have migratetypes; auto: where memory suffices for all types"),
    setting!("stat.update", stat.update: Update,
        "how a CPU changes its delta of a counter"),
    setting!("stat.refresh", stat.refresh: Refresh,
        "what makes a CPU fold its deltas: a timer (2.6.24), or workers and a shepherd (3.18)"),
    setting!("stat.quiet_on_idle", stat.quiet_on_idle: bool,
        "a CPU that goes idle folds what its worker would come for"),
    setting!("stat.skip_isolated", stat.skip_isolated: bool,
        "the shepherd leaves isolated CPUs alone"),
    setting!("stat.stagger", stat.stagger: bool,
        "CPUs are refreshed one after another, evenly over the interval (posted, April 2026)"),
    setting!("stat.pressure", stat.pressure: Pressure,
        "what is done about the free-page counter's error near the watermarks"),
    setting!("stat.threshold_pages", stat.threshold_pages: ThresholdPages,
        "which pages of a zone the threshold of its counters follows from"),
    setting!("numa.storage", numa.storage: NumaStorage,
        "how NUMA events are kept; all but ulong_exact switch the fast paths off"),
    setting!("numa.threshold", numa.threshold: u16 in numbers::NUMA_THRESHOLD,
        "threshold of the NUMA deltas of 8 and 16 bits; 0 is the storage's own"),
    setting!("numa.fold_site", numa.fold_site: NumaFold,
        "who folds NUMA events besides a full delta"),
    setting!("numa.enable", numa.enable: NumaEnable,
        "whether vm.numa_stat switches NUMA events while the allocator runs (4.15)"),
    setting!("numa.stat", numa_stat: bool, "whether NUMA events are counted"),
    setting!("page.shift", page.shift: u8 in numbers::PAGE_SHIFT,
        "log2 of the bytes of a page that limits follow from; the allocator's own have 4 KiB"),
    setting!("page.block", page.block_order: u8 in numbers::PAGE_BLOCK,
        "order of a pageblock that limits follow from; the allocator's own are of order 9"),
];

/// The highest order that per-CPU lists can have.
const LAST_LIST_ORDER: u16 = 9;

impl Policy {
    /// Sets one value by name. See [`SETTINGS`].
    ///
    /// # Errors
    /// [`SetError`] for an unknown name, a value that is not accepted, or one that does not go
    /// together with the policy's other values. The policy is then as it was.
    pub fn set<'a>(&mut self, key: &'a str, value: &'a str) -> Result<(), SetError<'a>> {
        let setting = Setting::named(key).ok_or(SetError::UnknownKey(key))?;
        let mut changed = *self;
        let key = setting.key;
        (setting.parse)(&mut changed, value).ok_or(match setting.absent.contains(&value) {
            true => SetError::Absent { key, value },
            false => SetError::Refused { key, value },
        })?;
        changed.check().map_err(SetError::Conflict)?;
        *self = changed;
        Ok(())
    }

    /// Whether all values go together.
    ///
    /// # Errors
    /// The first pair of values that excludes each other.
    pub fn check(&self) -> Result<(), Conflict> {
        if i64::from(self.numa.threshold) > self.numa.threshold_max() {
            return Err(Conflict {
                key: "numa.threshold",
                reason: "a delta of 8 bits goes to 125, one of 16 signed bits to 32765; choose \
                         another numa.storage or a smaller threshold",
            });
        }
        if !self.numa_stat && !self.numa.enable.can_be_off() {
            return Err(Conflict {
                key: "numa.stat",
                reason: "NUMA events are always counted; set numa.enable=sysctl first",
            });
        }
        let pcp = &self.pcp;
        let conflict = |key, reason| Err(Conflict { key, reason });
        if pcp.orders & 1 == 0 {
            return conflict("pcp.orders", "order 0 must have lists; add 0");
        }
        if pcp.tuning.has(Tuning::Level7) && pcp.size != SizeRule::MinMaxBounds {
            return conflict(
                "pcp.tuning",
                "from level 7 on lists move between two bounds, which only pcp.size=bounds has; \
                 set pcp.size=bounds, or a level below 7",
            );
        }
        #[cfg(feature = "history")]
        pcp.check_cold()?;
        if pcp.high_batches != 0 && pcp.size != SizeRule::MinMaxBounds {
            return conflict(
                "pcp.high_batches",
                "it lowers the upper of two bounds, which only pcp.size=bounds has; set \
                 pcp.size=bounds, or pcp.high_batches=0",
            );
        }
        if matches!(pcp.bulk_block, 1 | 2) {
            return conflict(
                "pcp.bulk_block",
                "bulk calls look at eight pages at a time; set 0, or an order from 3 on",
            );
        }
        if pcp.pageblocks == Pageblocks::Owned {
            if pcp.depot.magazines != 0 || pcp.budget_fraction != 0 {
                return conflict(
                    "pcp.pageblocks",
                    "depots and the budget are for per-CPU lists, which owners of pageblocks have \
                     not; set depot.batches=0 and pcp.budget_fraction=0",
                );
            }
            if pcp.free_lists.sets() > 1 {
                return conflict(
                    "pcp.pageblocks",
                    "owners of pageblocks do not keep cold pages apart; set pcp.freelist=single",
                );
            }
        }
        Ok(())
    }

    /// Every setting with the value it has here.
    pub fn settings(&self) -> impl Iterator<Item = Assignment<'_>> {
        SETTINGS.iter().map(|setting| Assignment { setting, policy: self })
    }

    /// The settings whose values are not those of `other`.
    pub fn differences<'a>(&'a self, other: &'a Policy) -> impl Iterator<Item = Assignment<'a>> {
        self.settings().filter(|mine| !(mine.setting.same)(self, other))
    }

    /// The settings whose values are not those of the preset that this policy began as.
    pub fn changes(&self) -> impl Iterator<Item = Assignment<'_>> {
        let preset = Policy::PRESETS.iter().find(|preset| preset.name == self.name);
        preset.into_iter().flat_map(|preset| self.differences(preset))
    }
}

/// The preset's name, followed by the changes: `linux-6.18 pcp.scale_max=3`.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        self.changes().try_for_each(|change| write!(f, " {change}"))
    }
}

impl Setting {
    /// The setting of this name.
    pub fn named(key: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| setting.key == key)
    }

    /// Accepted values, as text.
    pub fn accepted(&self) -> impl fmt::Display {
        Printed(self.accepts)
    }
}

impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key)
    }
}

impl<'a> Assignment<'a> {
    /// The value, as [`Policy::set`] accepts it.
    pub fn value(self) -> impl fmt::Display + use<'a> {
        Printed(move |f: &mut fmt::Formatter<'_>| (self.setting.print)(self.policy, f))
    }
}

impl fmt::Display for Assignment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.setting.key, self.value())
    }
}

impl fmt::Display for SetError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetError::UnknownKey(key) => {
                write!(f, "no setting is called '{key}'")?;
                if let Some(near) = nearest(key, SETTINGS.iter().map(|known| known.key)) {
                    write!(f, " (did you mean '{near}'?)")?;
                }
                write!(f, "; there are")?;
                let separators = core::iter::once(" ").chain(core::iter::repeat(", "));
                separators.zip(SETTINGS).try_for_each(|(s, known)| write!(f, "{s}{}", known.key))
            }
            SetError::Refused { key, value } => {
                write!(f, "{key} cannot be '{value}'")?;
                let setting = Setting::named(key);
                setting.map_or(Ok(()), |known| write!(f, "; accepted: {}", known.accepted()))
            }
            SetError::Absent { key, value } => write!(
                f,
                "{key}={value} is not in this build; build zonal-core with the feature `history`"
            ),
            SetError::Conflict(conflict) => conflict.fmt(f),
        }
    }
}

impl core::error::Error for SetError<'_> {}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: invalid combination: {}", self.key, self.reason)
    }
}

impl core::error::Error for Conflict {}

/// Prints by a function.
struct Printed<F>(F);

impl<F: Fn(&mut fmt::Formatter<'_>) -> fmt::Result> fmt::Display for Printed<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.0)(f)
    }
}

fn print_names<T: Choice>(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let separators = core::iter::once("").chain(core::iter::repeat(", "));
    separators.zip(T::ALL).try_for_each(|(separator, (name, _))| write!(f, "{separator}{name}"))
}

/// Bit `o` for order `o`, as runs: `0-3,9`.
fn print_orders(orders: u16, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let has = |order: u32| order < u16::BITS && orders & 1 << order != 0;
    let starts = (0..u16::BITS).filter(|order| has(*order) && !(*order > 0 && has(order - 1)));
    let separators = core::iter::once("").chain(core::iter::repeat(","));
    separators.zip(starts).try_for_each(|(separator, start)| {
        let end = (start..).take_while(|order| has(*order)).last().unwrap_or(start);
        match end - start {
            0 => write!(f, "{separator}{start}"),
            _ => write!(f, "{separator}{start}-{end}"),
        }
    })
}

fn parse_orders(text: &str) -> Option<u16> {
    text.split(',').try_fold(0, |orders, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        let fits = first <= last && last <= LAST_LIST_ORDER;
        fits.then(|| (first..=last).fold(orders, |orders, order| orders | 1 << order))
    })
}

fn print_slice(slice: CacheSlice, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match slice {
        CacheSlice::Machine => f.write_str("machine"),
        CacheSlice::Bytes(bytes) => write!(f, "{bytes}"),
    }
}

fn parse_slice(text: &str) -> Option<CacheSlice> {
    match text {
        "machine" => Some(CacheSlice::Machine),
        bytes => bytes.parse().ok().map(CacheSlice::Bytes),
    }
}

fn print_min_free(rule: MinFreeRule, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match rule {
        MinFreeRule::Linux { thp: false } => f.write_str("linux"),
        MinFreeRule::Linux { thp: true } => f.write_str("linux+thp"),
        MinFreeRule::LinuxThpOff => f.write_str("linux-thp"),
        MinFreeRule::Pool => f.write_str("pool"),
        MinFreeRule::Kbytes(kbytes) => write!(f, "{kbytes}"),
    }
}

fn parse_min_free(text: &str) -> Option<MinFreeRule> {
    Some(match text {
        "linux" => MinFreeRule::Linux { thp: false },
        "linux+thp" => MinFreeRule::Linux { thp: true },
        "linux-thp" => MinFreeRule::LinuxThpOff,
        "pool" => MinFreeRule::Pool,
        kbytes => MinFreeRule::Kbytes(kbytes.parse().ok().filter(|kbytes| *kbytes <= MAX_INT)?),
    })
}

fn print_ratios(ratios: [u32; NR_ZONE_KINDS], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let separators = core::iter::once("").chain(core::iter::repeat(","));
    separators.zip(ratios).try_for_each(|(separator, ratio)| write!(f, "{separator}{ratio}"))
}

fn parse_ratios(text: &str) -> Option<[u32; NR_ZONE_KINDS]> {
    let mut parts = text.split(',');
    let mut ratios = [0; NR_ZONE_KINDS];
    for ratio in &mut ratios {
        *ratio = parts.next()?.parse().ok().filter(|ratio| *ratio <= MAX_INT)?;
    }
    parts.next().is_none().then_some(ratios)
}

#[cfg(test)]
mod tests;
