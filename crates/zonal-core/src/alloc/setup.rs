//! Makes an allocator: records from slices, memory online, then everything that is computed from
//! the amount of memory (LB C.3).

use core::fmt;
use core::ops::Range;

use super::{Allocator, Events};
use crate::buddy::{self, FallbackPolicy};
use crate::frame::Frames;
use crate::gfp::ZoneKinds;
use crate::machine::depots::ZoneDepots;
use crate::machine::{Layout, Machine, MachineError, Metadata, StoreOrder, zonelists};
use crate::pcp::lists::ListMap;
use crate::pcp::size::HighFraction;
use crate::pcp::store::Pcp;
use crate::pcp::tune::PcpParams;
use crate::platform::Platform;
use crate::policy::recompute::Recompute;
use crate::policy::walk::NoFragment;
use crate::policy::{MinFreeRule, Policy};
use crate::reclaim::ReclaimControl;
use crate::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::types::{CpuId, Migratetype, NR_ZONE_KINDS, PAGE_SHIFT, Pfn, ZoneId, ZoneKind};
use crate::zone::state::{LockedZone, Zone};
use crate::zone::watermark::{self, MarkInputs, MovableMin, Watermarks};

/// A pool's reserve is at most this part of its memory ([`MinFreeRule::Pool`]).
const POOL_RESERVE_PART: u64 = 128;
/// A kernel with less memory does not set up huge pages: 512 MiB.
const THP_PAGES_MIN: u64 = (512 << 20) >> PAGE_SHIFT;
const NOT_WRITTEN: u64 = u64::MAX;
/// `vm.stat_interval` at the start: a second (LB F.4).
const STAT_INTERVAL_NS: u64 = NS_PER_SECOND;
const NS_PER_SECOND: u64 = 1_000_000_000;

/// Why memory cannot come online.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnlineError {
    /// No such zone, or the range is not inside it.
    OutsideZone(ZoneId, u64, u64),
    /// The buddy refused a block: part of the range is in use already.
    InUse(buddy::FreeError),
    /// Part of the zone's memory was put off already.
    DeferredTwice(ZoneId),
}

impl fmt::Display for OnlineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OnlineError::OutsideZone(zone, start, end) => {
                write!(f, "pages {start:#x} to {end:#x} are not inside {zone:?}")
            }
            OnlineError::InUse(error) => write!(f, "memory cannot come online: {error}"),
            OnlineError::DeferredTwice(zone) => write!(
                f,
                "{zone:?} has memory that was put off already; call online for its other ranges"
            ),
        }
    }
}

impl core::error::Error for OnlineError {}

/// A value that can be written while the allocator runs (LB I.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sysctl {
    /// `vm.min_free_kbytes`.
    MinFreeKbytes,
    /// `vm.watermark_scale_factor`, 1 to 3000.
    WatermarkScaleFactor,
    /// `vm.watermark_boost_factor`.
    WatermarkBoostFactor,
    /// `vm.percpu_pagelist_high_fraction`, 0 or at least 8.
    HighFraction,
    /// One entry of `vm.lowmem_reserve_ratio`; below 1 counts as 0.
    LowmemReserveRatio(ZoneKind),
    /// `vm.numa_stat`: 0 forgets all NUMA events and counts none, 1 counts them from 0 on.
    NumaStat,
    /// `vm.stat_interval`, in seconds.
    StatInterval,
    /// `vm.zone_reclaim_mode`: bits of LB G.1.
    ZoneReclaimMode,
    /// `vm.min_unmapped_ratio`, 0 to 100 percent.
    MinUnmappedRatio,
    /// `vm.min_slab_ratio`, 0 to 100 percent.
    MinSlabRatio,
    /// `vm.defrag_mode`, 0 or 1.
    DefragMode,
}

/// A refused write; the old value is kept (Linux says EINVAL).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SysctlError {
    /// What was written to.
    pub sysctl: Sysctl,
    /// What was written.
    pub value: i64,
    /// What is accepted.
    pub accepted: &'static str,
}

impl fmt::Display for SysctlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SysctlError { sysctl, value, accepted } = self;
        write!(f, "{sysctl:?} cannot be {value}: accepted are {accepted}; the old value is kept")
    }
}

impl core::error::Error for SysctlError {}

impl<'a, P: Platform> Allocator<'a, P> {
    /// An allocator for `machine` over `metadata`, without any memory yet: bring it online zone by
    /// zone, then call [`setup`](Self::setup).
    ///
    /// # Errors
    /// [`MachineError`] where the machine cannot be or the metadata is too small for it.
    pub fn new(
        machine: &Machine<'a>,
        policy: Policy,
        metadata: Metadata<'a>,
        platform: P,
    ) -> Result<Allocator<'a, P>, MachineError> {
        Layout::of(machine, &policy)?.check(&metadata)?;
        let grouping = machine.grouping(&policy);
        let map = policy.pcp.map(grouping);
        let Metadata { zones, pcps, words, blocks, slots, nodes, zonelist, numa } = metadata;
        zonelists::build(machine, &policy.zonelist, nodes, zonelist);
        fill_zones(machine, &policy, zones);
        let zones = &mut zones[..machine.zones.len()];
        let sets = policy.pcp.free_lists.sets();
        let pcps = &mut pcps[..sets * zones.len() * machine.cpus.len()];
        let nodes = &nodes[..machine.nodes()];
        fill_stores(machine, &policy, &map, zones, pcps, (slots, nodes));
        let exists = |kind| machine.zones.iter().any(|zone| zone.kind == kind);
        let kinds = ZoneKind::ALL.into_iter().filter(|kind| exists(*kind));
        let allocator = Allocator {
            platform,
            policy,
            grouping,
            kinds: kinds.fold(ZoneKinds::NONE, ZoneKinds::with),
            map,
            fixed: policy.pcp.fixed(),
            fallback: FallbackPolicy { rule: policy.fallback, mobility_grouping: grouping },
            zones,
            pcps,
            words,
            blocks,
            slots,
            nodes,
            zonelist,
            distances: machine.distances,
            cpu_nodes: machine.cpus,
            cache_slice_bytes: machine.cache_slice_bytes,
            min_free_kbytes: AtomicU32::new(0),
            min_free_user: AtomicU64::new(NOT_WRITTEN),
            scale_factor: AtomicU32::new(policy.watermark.scale_factor),
            boost_factor: AtomicU32::new(policy.watermark.boost_factor),
            high_fraction: AtomicU32::new(policy.pcp.high_fraction.get()),
            lowmem_ratio: policy.watermark.lowmem_ratio.map(AtomicU32::new),
            numa,
            numa_on: AtomicU32::new(u32::from(policy.numa_stat)),
            stat_interval_ns: AtomicU64::new(STAT_INTERVAL_NS),
            defrag_mode: AtomicU32::new(u32::from(policy.nofragment == NoFragment::Always)),
            reclaim: ReclaimControl::new(machine, &policy.node_reclaim),
            growing: AtomicU32::new(0),
            sized: AtomicU32::new(0),
            events: Events::default(),
        };
        if grouping {
            allocator.zones.iter().for_each(|zone| {
                zone.frames(words, blocks).fill_pageblock_types(Migratetype::Movable);
            });
        }
        Ok(allocator)
    }

    /// Hands never used pages of a zone to its buddy. Call [`setup`](Self::setup) afterwards, when
    /// all memory is online.
    ///
    /// # Errors
    /// [`OnlineError`] if the range is not inside the zone or not wholly unused.
    pub fn online(&self, zone: ZoneId, pages: Range<Pfn>) -> Result<(), OnlineError> {
        let (start, end) = (pages.start.0, pages.end.0);
        let outside = OnlineError::OutsideZone(zone, start, end);
        let zone = self.zones.get(zone.0 as usize).ok_or(outside)?;
        if start < zone.start_pfn || end > zone.start_pfn + zone.spanned || start > end {
            return Err(outside);
        }
        let mut locked = zone.lock(&self.platform, self.words, self.blocks);
        self.seed(zone, &mut locked, pages).map_err(OnlineError::InUse)
    }

    /// Hands pages inside the zone, never used before, to its locked buddy.
    pub(super) fn seed(
        &self,
        zone: &Zone,
        locked: &mut LockedZone<'_, P>,
        pages: Range<Pfn>,
    ) -> Result<(), buddy::FreeError> {
        let LockedZone { buddy, frames, .. } = &mut *locked;
        let index = |pfn: Pfn| (pfn.0 - zone.start_pfn) as u32;
        let before = buddy.free_pages();
        let seeded = buddy.seed(frames, index(pages.start)..index(pages.end));
        let added = buddy.free_pages() - before;
        locked.fold(added as i64);
        zone.set_managed(zone.managed() + added);
        seeded
    }

    /// Counts `pages` more as managed that somebody else holds and that never come to the buddy: a
    /// balloon, or a machine that is computed and not run. They need no frames of the zone. Call
    /// [`setup`](Self::setup) afterwards: limits do not follow a managed count (LB E.11).
    ///
    /// # Errors
    /// [`OnlineError`] if there is no such zone.
    pub fn withhold(&self, zone: ZoneId, pages: u64) -> Result<(), OnlineError> {
        let outside = OnlineError::OutsideZone(zone, 0, pages);
        let zone = self.zones.get(zone.0 as usize).ok_or(outside)?;
        let _locked = zone.lock(&self.platform, self.words, self.blocks);
        zone.withhold(pages);
        Ok(())
    }

    /// Computes what follows from the memory that is online: `min_free_kbytes`, watermarks,
    /// reserves, statistics thresholds and the sizes of the per-CPU lists (LB C.3). While memory is
    /// still to come, there are no marks yet: [`finish_growth`](Self::finish_growth) sets them up.
    pub fn setup(&self) {
        let growing = self.is_growing();
        if self.sized.swap(1, Relaxed) == 0 && (growing || !self.sizes_follow_marks()) {
            self.setup_pagesets(0);
        }
        if growing {
            self.set_thresholds();
            self.reclaim.set_limits(self.zones, self.nodes);
        } else {
            self.setup_complete();
        }
    }

    fn setup_complete(&self) {
        let kbytes = self.compute_min_free();
        self.min_free_kbytes.store(kbytes, Relaxed);
        self.setup_marks();
        self.set_thresholds();
        self.adjust_min_free();
        self.reclaim.set_limits(self.zones, self.nodes);
    }

    /// Pages that no request is to count on: of each zone its largest reserve and its high mark
    /// (LB A.7).
    pub fn total_reserve(&self) -> u64 {
        self.zones.iter().map(total_reserve_of).sum()
    }

    /// Pages above the high marks of all zones: what decides whether pageblocks are grouped by
    /// mobility (LB A.5).
    pub fn allocatable_pages(&self) -> u64 {
        let above =
            |zone: &Zone| zone.managed().saturating_sub(zone.marks().mark(watermark::Mark::High));
        self.zones.iter().filter(|zone| zone.kind() != ZoneKind::Device).map(above).sum()
    }

    /// `vm.min_free_kbytes` in force.
    pub fn min_free_kbytes(&self) -> u32 {
        self.min_free_kbytes.load(Relaxed)
    }

    fn low_zones(&self) -> impl Iterator<Item = &'a Zone> + Clone {
        self.zones.iter().filter(|zone| zone.kind() <= ZoneKind::Normal)
    }

    fn compute_min_free(&self) -> u32 {
        let pages = self.lowmem_pages();
        let written = self.min_free_user.load(Relaxed);
        let user = (written != NOT_WRITTEN).then_some(written as u32);
        let ceiling = self.policy.watermark.min_free_max_kbytes;
        let by_rule = watermark::min_free_kbytes(pages, user, ceiling).kbytes();
        match self.policy.watermark.min_free {
            _ if user.is_some() => by_rule,
            MinFreeRule::Kbytes(kbytes) => kbytes,
            MinFreeRule::Linux { .. } | MinFreeRule::LinuxThpOff => by_rule,
            MinFreeRule::Pool => by_rule.min((pages * 4 / POOL_RESERVE_PART) as u32),
        }
    }

    /// What becomes of it when huge pages are set up, after marks have been computed (LB C.1, C.3):
    /// they may ask for more, up to a part of what is above the high marks; where they are off the
    /// rule is applied again to what is above them.
    fn adjust_min_free(&self) {
        if self.min_free_user.load(Relaxed) != NOT_WRITTEN {
            return;
        }
        let computed = self.min_free_kbytes();
        let adjusted = match self.policy.watermark.min_free {
            MinFreeRule::Linux { thp: true } => {
                let low = self.low_zones().filter(|zone| zone.managed() > 0).count() as u32;
                watermark::min_free_kbytes_for_thp(computed, low, self.lowmem_pages())
            }
            MinFreeRule::LinuxThpOff if self.managed_pages() >= THP_PAGES_MIN => {
                self.compute_min_free()
            }
            _ => computed,
        };
        if adjusted != computed {
            self.min_free_kbytes.store(adjusted, Relaxed);
            self.setup_marks();
        }
    }

    fn managed_pages(&self) -> u64 {
        self.zones.iter().map(Zone::managed).sum()
    }

    fn lowmem_pages(&self) -> u64 {
        let mark = |zone: &Zone| (zone.managed(), zone.marks().mark(watermark::Mark::High));
        watermark::lowmem_pages(self.low_zones().map(mark))
    }

    /// LB C.2, A.7 and E.4, in this order.
    fn setup_marks(&self) {
        let lowmem = self.marks_lowmem();
        for zone in self.zones {
            // Under the zone lock (LB C.2): an allocation may be raising the boost.
            let _locked = zone.lock(&self.platform, self.words, self.blocks);
            zone.set_marks(&self.marks_with(zone, lowmem, self.scale_factor()));
        }
        self.setup_reserves();
        if self.sizes_follow_marks() {
            self.setup_pagesets(0);
        }
        self.refresh_zones();
    }

    /// Pages that the minimum is shared out over (LB C.2).
    pub(super) fn marks_lowmem(&self) -> u64 {
        let all = self.policy.watermark.movable_min == MovableMin::Share;
        let shares = |zone: &&Zone| all || zone.kind() != ZoneKind::Movable;
        self.zones.iter().filter(shares).map(Zone::managed).sum()
    }

    /// A zone's marks, without a boost, with this `watermark_scale_factor`.
    pub(super) fn marks_with(&self, zone: &Zone, lowmem: u64, scale_factor: u32) -> Watermarks {
        Watermarks::compute(&MarkInputs {
            kind: zone.kind(),
            managed: zone.managed(),
            lowmem_managed: lowmem,
            movable: self.policy.watermark.movable_min,
            min_free_kbytes: self.min_free_kbytes(),
            scale_factor,
        })
    }

    /// `vm.watermark_scale_factor`.
    pub(super) fn scale_factor(&self) -> u32 {
        self.scale_factor.load(Relaxed)
    }

    fn sizes_follow_marks(&self) -> bool {
        self.policy.pcp.recompute >= Recompute::Watermarks
    }

    /// What follows from memory that came online while requests were served.
    pub(super) fn setup_grown(&self) {
        #[cfg(feature = "history")]
        if self.policy.pcp.recompute == Recompute::DeferredInit {
            self.setup_pagesets(0);
        }
        self.setup_complete();
    }

    fn setup_reserves(&self) {
        let ratio = core::array::from_fn(|kind| self.lowmem_ratio[kind].load(Relaxed));
        for node in 0..self.nodes.len() {
            let mut managed = [0; NR_ZONE_KINDS];
            let of_node = || self.zones.iter().filter(|zone| zone.node.0 as usize == node);
            of_node().for_each(|zone| managed[zone.kind().index()] = zone.managed());
            let reserves = watermark::lowmem_reserves(&managed, &ratio);
            of_node().for_each(|zone| zone.set_reserve(&reserves[zone.kind().index()]));
        }
    }

    /// Publishes what the fast paths look at.
    pub(super) fn refresh_zones(&self) {
        for zone in self.zones {
            // Taking and giving back the lock publishes.
            drop(zone.lock(&self.platform, self.words, self.blocks));
        }
    }

    /// Writes a value while the allocator runs, with the kernel's ranges (LB I.5).
    ///
    /// # Errors
    /// [`SysctlError`] outside the range; the old value is kept.
    pub fn set(&self, sysctl: Sysctl, value: i64) -> Result<(), SysctlError> {
        let refuse = |accepted| SysctlError { sysctl, value, accepted };
        let within = |low: i64, high: i64| (low..=high).contains(&value).then_some(value as u32);
        let int_max = i64::from(i32::MAX);
        match sysctl {
            Sysctl::MinFreeKbytes => {
                let kbytes = within(0, int_max).ok_or(refuse("0 and above"))?;
                self.min_free_user.store(u64::from(kbytes), Relaxed);
                self.min_free_kbytes.store(kbytes, Relaxed);
                self.setup_marks();
            }
            Sysctl::WatermarkScaleFactor => {
                let factor = within(1, 3000).ok_or(refuse("1 to 3000"))?;
                self.scale_factor.store(factor, Relaxed);
                self.setup_marks();
            }
            Sysctl::WatermarkBoostFactor => {
                let factor = within(0, int_max).ok_or(refuse("0 and above"))?;
                self.boost_factor.store(factor, Relaxed);
            }
            Sysctl::HighFraction => {
                let fraction = within(-int_max, int_max)
                    .and_then(|value| HighFraction::new(value as i32).ok())
                    .ok_or(refuse("0, and 8 and above"))?;
                self.high_fraction.store(fraction.get(), Relaxed);
                self.setup_pagesets(0);
            }
            Sysctl::LowmemReserveRatio(kind) => {
                let ratio = i32::try_from(value).map_err(|_| refuse("32-bit integers"))?;
                let ratio = watermark::lowmem_ratio_stored(ratio);
                self.lowmem_ratio[kind.index()].store(ratio, Relaxed);
                self.setup_reserves();
                self.refresh_zones();
            }
            Sysctl::NumaStat => {
                let fixed = !self.policy.numa.enable.can_be_off();
                let accepted = if fixed { "1: this policy always counts" } else { "0 and 1" };
                let on = within(i64::from(fixed), 1).ok_or(refuse(accepted))?;
                self.set_numa_stat(on == 1);
            }
            Sysctl::StatInterval => {
                let seconds = within(1, int_max).ok_or(refuse("1 and above"))?;
                self.stat_interval_ns.store(u64::from(seconds) * NS_PER_SECOND, Relaxed);
            }
            Sysctl::ZoneReclaimMode => {
                self.reclaim.set_mode(within(0, int_max).ok_or(refuse("0 and above"))?);
            }
            Sysctl::MinUnmappedRatio => {
                let percent = within(0, 100).ok_or(refuse("0 to 100"))?;
                self.reclaim.set_min_unmapped_ratio(percent);
                self.reclaim.set_limits(self.zones, self.nodes);
            }
            Sysctl::MinSlabRatio => {
                let percent = within(0, 100).ok_or(refuse("0 to 100"))?;
                self.reclaim.set_min_slab_ratio(percent);
                self.reclaim.set_limits(self.zones, self.nodes);
            }
            Sysctl::DefragMode => {
                self.defrag_mode.store(within(0, 1).ok_or(refuse("0 and 1"))?, Relaxed);
            }
        }
        Ok(())
    }
}

fn fill_zones(machine: &Machine<'_>, policy: &Policy, zones: &mut [Zone]) {
    let (mut frame_base, mut block_base) = (0, 0);
    for (id, (spec, zone)) in machine.zones.iter().zip(zones).enumerate() {
        zone.id = ZoneId(id as u16);
        zone.node = spec.node;
        zone.kind = Some(spec.kind);
        zone.start_pfn = spec.start_pfn;
        zone.spanned = spec.spanned;
        zone.present = spec.present;
        zone.update = policy.stat.update;
        zone.rights = policy.reserves;
        zone.highatomic = policy.highatomic.count;
        zone.set_recorded(policy.numa.records() && policy.numa_stat);
        zone.frame_base = frame_base;
        zone.block_base = block_base;
        zone.block_count = Frames::pageblocks_for(spec.start_pfn, spec.spanned);
        frame_base += spec.spanned as usize;
        block_base += zone.block_count;
    }
}

/// Gives every store its identity, its lists and their slots, and behind those the depots theirs.
fn fill_stores(
    machine: &Machine<'_>,
    policy: &Policy,
    map: &ListMap,
    zones: &[Zone],
    pcps: &mut [Pcp],
    (slots, nodes): (&[AtomicU32], &[crate::zonelist::Node]),
) {
    let mut base = 0;
    let sets = policy.pcp.free_lists.sets();
    let order = StoreOrder { sets, cpus: machine.cpus.len(), zones: zones.len() };
    for (cpu, node) in machine.cpus.iter().enumerate() {
        let preferred = nodes[node.0 as usize].preferred().0 as usize;
        let stores = (0..zones.len()).flat_map(|rank| (0..order.sets).map(move |set| (rank, set)));
        for (rank, set) in stores {
            let zone = (preferred + rank) % zones.len();
            let cpus = machine.cpus.len();
            let pcp = &mut pcps[order.position(set, cpu, rank)];
            pcp.zone = ZoneId(zone as u16);
            pcp.cpu = CpuId(cpu as u32);
            pcp.owner = CpuId((set * cpus + cpu) as u32);
            pcp.tuning = policy.pcp.tuning;
            pcp.tracks_swing = policy.pcp.fixed().tracks_swing();
            (pcp.first_frame, pcp.frames) =
                (zones[zone].frame_base as u32, zones[zone].spanned as u32);
            *pcp.batch.get_mut() = PcpParams::BOOT.batch;
            let spec = &machine.zones[zone];
            let pages = machine.set_pages(set, spec, *node, policy);
            for list in 0..map.len() {
                let cap = map.capacity(list, pages);
                pcp.set_list(list, rank as u16, map.of(list), slots, (base, cap));
                base += cap;
            }
        }
    }
    for (zone, spec) in machine.zones.iter().enumerate() {
        let depots = ZoneDepots::new(machine, spec, policy);
        let limit = match policy.pcp.budget_fraction {
            0 => 0,
            fraction => (spec.present / u64::from(fraction)).max(1) as u32,
        };
        zones[zone].budget.set_up(limit, depots.pages());
        for (cpu, node) in machine.cpus.iter().enumerate() {
            let preferred = nodes[node.0 as usize].preferred().0 as usize;
            let rank = (zone + zones.len() - preferred) % zones.len();
            let pcp = &mut pcps[order.position(0, cpu, rank)];
            pcp.depot_cpu = CpuId(depots.of(cpu) as u32);
            let size = depots.size(cpu);
            pcp.depot.set_up(slots, base, size);
            base += size.slots();
        }
    }
}

/// A zone's part of `totalreserve`.
pub(super) fn total_reserve_of(zone: &Zone) -> u64 {
    let reserves = ZoneKind::ALL.map(|kind| zone.reserve(kind));
    watermark::total_reserve(zone.managed(), &reserves, &zone.marks())
}
