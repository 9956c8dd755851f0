//! The recorded machine, rebuilt in the core on no memory.
//!
//! ```text
//!  zoneinfo, meta.json ──► Plan: zones, CPUs, distances ──► Allocator over vectors
//!  trace ────────────────► StartState: each frame free, in use, on a list, or absent
//! ```
//! The platform is a script: one thread says which CPU it is now and what time it is.
//!
//! # Marks
//! `setup` computes watermarks as the kernel does. Where they differ from the recording,
//! `vm.min_free_kbytes` had been written, and the value that gives the recorded marks is set. The
//! policy `zonal` keeps its own rule.

mod raw;

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

use zonal_core::alloc::{Allocator, Sysctl};
use zonal_core::machine::{Layout, Machine, ZoneSpec};
use zonal_core::platform::{Platform, Step};
use zonal_core::policy::{MinFreeRule, Policy};
use zonal_core::sync::{LockWord, Wait};
use zonal_core::types::{CpuId, NodeId};
use zonal_core::zone::state::Zone;
use zonal_core::zone::watermark::{MovableMin, Watermark};
use zonal_lab::records::Records;
use zonal_trace::MachineDescription;

use crate::error::ReplayError;
use crate::settings::Settings;
use crate::zones::{ZoneAt, ZoneMap, kind_of, page_rules};

/// Cache that counts as one CPU's own where the recording says that it is large enough to keep a
/// batch of free pages in (LB E.5), or says nothing: servers have that much.
const LARGE_SLICE_BYTES: u64 = 2 << 20;
/// Metadata that a replay may ask for. A machine of 4 TiB takes 8 GiB.
const METADATA_BYTES_MAX: usize = 16 << 30;

/// The recorded kernel's build gives its value, unless the caller set another.
const SCALE_MAX: &str = "pcp.scale_max";

/// Orders that have lists in each kernel since 5.13, and those of kernels with pages of 4 KiB.
const SMALL_ORDERS: u16 = 0b1111;
const ORDERS_LINUX: u16 = Policy::LINUX_6_18.pcp.orders;

/// Plays all CPUs on one thread.
#[derive(Debug)]
pub struct Script {
    cpu: AtomicU32,
    now_ns: AtomicU64,
    /// Whether pages that move now go back to the buddy.
    draining: AtomicU8,
    /// How often it was said what runs.
    turns: AtomicU64,
    /// Drains by zone and CPU, one in a turn at most, and the last of these turns.
    bursts: Vec<[AtomicU64; 2]>,
    cpus: u32,
}

impl Script {
    fn new(zones: usize, cpus: u32) -> Script {
        let places = zones * cpus as usize;
        Script {
            cpu: AtomicU32::new(0),
            now_ns: AtomicU64::new(0),
            draining: AtomicU8::new(0),
            turns: AtomicU64::new(0),
            bursts: (0..places).map(|_| Default::default()).collect(),
            cpus,
        }
    }

    /// What runs from now on, runs on this CPU at this time. All atomics here are Relaxed: one
    /// thread uses them.
    #[inline]
    pub fn turn(&self, cpu: u32, now_ns: u64, draining: bool) {
        self.cpu.store(cpu, Relaxed);
        self.now_ns.store(now_ns, Relaxed);
        self.draining.store(u8::from(draining), Relaxed);
        self.turns.fetch_add(1, Relaxed);
    }

    /// Drains of a store so far. A worker that lets it decay drains once, in several holds.
    pub fn bursts(&self, zone: usize, cpu: u32) -> u64 {
        self.bursts[zone * self.cpus as usize + cpu as usize][0].load(Relaxed)
    }
}

impl Wait for Script {
    fn wait(&self, _word: &LockWord, _value: u32) {
        std::thread::yield_now();
    }
    fn wake_one(&self, _word: &LockWord) {}
}

impl Platform for Script {
    fn cpu(&self) -> CpuId {
        CpuId(self.cpu.load(Relaxed))
    }
    fn fence(&self, _cpu: CpuId) -> bool {
        true
    }
    /// A replay asks what the core decides, so the core is what it plays.
    fn uses_gates(&self) -> bool {
        false
    }
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Relaxed)
    }
    fn cost(&self, step: Step) {
        let Step::Moved { zone, pages } = step else { return };
        if pages > 0 && self.draining.load(Relaxed) != 0 {
            let place = zone.0 as usize * self.cpus as usize + self.cpu.load(Relaxed) as usize;
            let [bursts, last] = &self.bursts[place];
            let turn = self.turns.load(Relaxed);
            if last.swap(turn, Relaxed) != turn {
                bursts.fetch_add(1, Relaxed);
            }
        }
    }
}

/// The core's description of a recorded machine.
#[derive(Debug)]
pub struct Plan {
    /// Zones, in the order of the [`ZoneMap`].
    pub zones: Vec<ZoneSpec>,
    distances: Vec<u8>,
    cpus: Vec<NodeId>,
    cache_slice_bytes: u64,
    /// The policy, with the recorded kernel's build options.
    pub policy: Policy,
}

impl Plan {
    /// The plan for `machine` with at least `cpus` CPUs.
    ///
    /// # Errors
    /// If no file tells about zones, or one is of a kind that the core does not know.
    pub fn new(
        machine: &MachineDescription,
        map: &ZoneMap,
        cpus: u32,
        policy: Policy,
    ) -> Result<Plan, ReplayError> {
        machine.require_zones()?;
        let mut zones = Vec::new();
        for zone in map.zones() {
            let Some(kind) = kind_of(machine, &zone.kind) else {
                let (machine, kind) = (machine.name.clone(), zone.kind.clone());
                return Err(ReplayError::ZoneKind { machine, kind });
            };
            let recorded = machine.zone(zone.node, &zone.kind);
            let present = recorded.map_or(0, |zone| zone.present);
            zones.push(ZoneSpec {
                node: NodeId(zone.node_index),
                kind,
                start_pfn: zone.start,
                spanned: zone.end - zone.start,
                present,
            });
        }
        let mut policy = policy.with_pages(page_rules(machine));
        policy.pcp.orders = list_orders(policy.pcp.orders, policy.page.block_order);
        let asked = policy.changes().any(|change| change.setting.key == SCALE_MAX);
        let built_with = machine.flags.batch_scale_max.filter(|_| !asked);
        if let (true, Some(scale)) = (follows_linux(&policy), built_with) {
            if scale > 6 {
                return Err(ReplayError::BatchScale { machine: machine.name.clone(), scale });
            }
            policy.pcp.scale_max = scale as u8;
        }
        let small_slice = machine.flags.free_high_batch_expected == Some(false);
        Ok(Plan {
            zones,
            distances: distances(machine),
            cpus: (0..cpus).map(|cpu| NodeId(map.node_of_cpu(cpu))).collect(),
            cache_slice_bytes: if small_slice { 0 } else { LARGE_SLICE_BYTES },
            policy,
        })
    }

    fn machine(&self) -> Machine<'_> {
        Machine {
            distances: &self.distances,
            zones: &self.zones,
            cpus: &self.cpus,
            cache_slice_bytes: self.cache_slice_bytes,
            caches: &[],
        }
    }

    /// Room for the machine's metadata.
    ///
    /// # Errors
    /// If the machine cannot be, or is too large for this one.
    pub fn records(&self) -> Result<Records, ReplayError> {
        let layout = Layout::of(&self.machine(), &self.policy).map_err(ReplayError::Machine)?;
        let bytes = layout.bytes();
        if bytes > METADATA_BYTES_MAX {
            let (mib, mib_max) = (bytes >> 20, METADATA_BYTES_MAX >> 20);
            return Err(ReplayError::TooLarge { mib, mib_max });
        }
        Ok(Records::new(&layout))
    }

    /// The allocator, without memory.
    ///
    /// # Errors
    /// If the machine cannot be.
    pub fn allocator<'a>(&'a self, records: &'a mut Records) -> Result<Rebuilt<'a>, ReplayError> {
        let script = Script::new(self.zones.len(), self.cpus.len() as u32);
        let allocator = records
            .allocator(&self.machine(), self.policy, script)
            .map_err(ReplayError::Machine)?;
        Ok(Rebuilt { allocator })
    }
}

/// A machine in the core. [`raw`](Self::raw) has the tables below it.
#[derive(Debug)]
pub struct Rebuilt<'a> {
    /// The allocator.
    pub allocator: Allocator<'a, Script>,
}

/// The orders that have lists in a kernel whose huge pages are of this order, that of its
/// pageblocks (LB E.1), where a policy has Linux' lists. Orders above 9 have none in the core.
fn list_orders(orders: u16, block_order: u8) -> u16 {
    match block_order {
        _ if orders != ORDERS_LINUX => orders,
        10.. => SMALL_ORDERS,
        order => SMALL_ORDERS | 1 << order,
    }
}

/// Whether a policy is to give the recorded kernel's marks.
pub fn follows_linux(policy: &Policy) -> bool {
    matches!(policy.watermark.min_free, MinFreeRule::Linux { .. })
}

/// Computes the watermarks; sets `min_free_kbytes` where that brings them to the recorded ones, or
/// nearer. Other sysctls are set as recorded before. Returns remarks on what was found.
///
/// # Errors
/// If the core refuses the value.
pub fn set_watermarks(
    allocator: &Allocator<'_, Script>,
    machine: &MachineDescription,
    map: &ZoneMap,
    settings: &Settings,
) -> Result<Vec<String>, ReplayError> {
    allocator.setup();
    let mut notes = Vec::new();
    for (name, sysctl, value) in settings.recorded(allocator.policy()) {
        notes.push(match allocator.set(sysctl, value) {
            Ok(()) => format!("{name} is {value} as recorded"),
            Err(error) => format!("{name} was {value}, which this policy does not follow: {error}"),
        });
    }
    let off_by_rule = marks_off(allocator, machine, map);
    if !follows_linux(allocator.policy()) || off_by_rule == 0 {
        return Ok(notes);
    }
    let by_rule = allocator.stats().min_free_kbytes();
    let movable = allocator.policy().watermark.movable_min;
    let sum = sum_of_min(machine, map, movable);
    let (mut best, mut best_off) = (i64::from(by_rule), off_by_rule);
    // Each zone's share is rounded down, so the sum may miss up to one page for each.
    let kbytes = allocator.policy().page.kbytes() as i64;
    let sums = (sum..=sum + map.zones().len() as u64).map(|pages| pages as i64 * kbytes);
    for kbytes in settings.min_free_kbytes.into_iter().chain(sums) {
        // What the core refuses cannot have been in force.
        if allocator.set(Sysctl::MinFreeKbytes, kbytes).is_err() {
            continue;
        }
        let off = marks_off(allocator, machine, map);
        if off < best_off {
            (best, best_off) = (kbytes, off);
        }
    }
    allocator.set(Sysctl::MinFreeKbytes, best)?;
    notes.push(match best_off {
        0 => format!("min_free_kbytes is {best} as recorded; the rule gives {by_rule}"),
        off => format!(
            "watermarks are up to {off} pages off the recorded ones, which were computed when \
             zones had other sizes; min_free_kbytes is {best}"
        ),
    });
    Ok(notes)
}

/// Minimums without a boost of all zones that have a share of `min_free_kbytes` (LB C.2).
fn sum_of_min(machine: &MachineDescription, map: &ZoneMap, movable: MovableMin) -> u64 {
    let has_share = |zone: &&ZoneAt| match zone.kind.as_str() {
        "HighMem" | "Device" => false,
        "Movable" => movable == MovableMin::Share,
        _ => true,
    };
    let recorded = |zone: &ZoneAt| machine.zone(zone.node, &zone.kind);
    let zones = map.zones().iter().filter(has_share).filter_map(recorded);
    zones.map(|zone| zone.min.saturating_sub(zone.boost)).sum()
}

/// Most pages by which a mark differs from the recorded one.
fn marks_off(
    allocator: &Allocator<'_, Script>,
    machine: &MachineDescription,
    map: &ZoneMap,
) -> u64 {
    let off = |(at, zone): (&ZoneAt, &Zone)| {
        let recorded = machine.zone(at.node, &at.kind)?;
        let marks = zone.watermarks();
        let pairs = [
            (recorded.min, Watermark::Min),
            (recorded.low, Watermark::Low),
            (recorded.high, Watermark::High),
        ];
        // Recorded marks include the boost, which passes.
        pairs
            .map(|(pages, mark)| pages.saturating_sub(recorded.boost).abs_diff(marks.of(mark)))
            .into_iter()
            .max()
    };
    map.zones().iter().zip(allocator.zones()).filter_map(off).max().unwrap_or(0)
}

/// Distances row by row: as recorded, or 10 and 20.
fn distances(machine: &MachineDescription) -> Vec<u8> {
    let nodes = machine.nodes.len().max(1);
    let mut table = Vec::with_capacity(nodes * nodes);
    for from in 0..nodes {
        for to in 0..nodes {
            let row = machine.nodes.get(from).map(|node| node.distances.as_slice());
            let recorded = row.filter(|row| row.len() == nodes).map(|row| row[to]);
            let assumed = if from == to { 10 } else { 20 };
            table.push(recorded.and_then(|d| u8::try_from(d).ok()).unwrap_or(assumed));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of 4 KiB, s390x, pages of 64 KiB, and of 16 KiB on arm64.
    #[test]
    fn huge_pages_have_lists_of_the_kernels_own_order() {
        let of = |block_order| list_orders(ORDERS_LINUX, block_order);
        assert_eq!([9, 8, 5, 11].map(of), [0b10_0000_1111, 0b1_0000_1111, 0b10_1111, 0b1111]);
        assert_eq!([1, 0b11_1111_1111].map(|orders| list_orders(orders, 5)), [1, 0b11_1111_1111]);
    }

    #[test]
    fn a_boost_and_a_movable_zone_are_no_part_of_the_reserve() {
        let zone = |(at, kind, min, boost): (u64, &str, u64, u64)| zonal_trace::ZoneDescription {
            kind: kind.to_owned(),
            start_pfn: at << 20,
            spanned: 1 << 20,
            present: 1 << 20,
            managed: 1 << 20,
            min,
            boost,
            ..zonal_trace::ZoneDescription::default()
        };
        let zones = [(1, "DMA32", 700, 0), (2, "Normal", 900 + 512, 512), (3, "Movable", 128, 0)];
        let machine =
            MachineDescription { zones: zones.map(zone).to_vec(), ..MachineDescription::default() };
        let sum = |movable| sum_of_min(&machine, &ZoneMap::new(&machine), movable);
        assert_eq!(sum(MovableMin::Capped), 1600);
        assert_eq!(sum(MovableMin::Share), 1728, "in older releases it has a share");
    }
}
