//! Random machines, holdings and requests, held against a plain transcription of the walks of
//! LB D.4, G.3, G.5 and G.6: the zone each request got, and every count of reclaim.
//!
//! Requests are of an order without per-CPU lists, so that a zone is one number: its free pages.

use std::boxed::Box;
use std::cell::RefCell;
use std::vec::Vec;

use proptest::prelude::*;

use super::platform::{Behaviour, Shape, Stage, distances, on_cpu, zone};
use crate::alloc::search::{Search, watermark_of};
use crate::alloc::{Allocator, Request};
use crate::gfp::{AllocFlags, Gfp};
use crate::platform::reclaimer::{By, Holdings, Pass, Reclaimer, Shrunk, Unit};
use crate::policy::walk::{CacheMark, DistanceRule, NodeReclaimMode, ReclaimUnit, ZonelistCaching};
use crate::policy::{Grouping, MinFreeRule, PcpPolicy, Policy};
use crate::reclaim::ReclaimStats;
use crate::types::{Choice, NodeId, Order, Pfn, ZoneId, ZoneKind};

const ORDER: u32 = 4;
const BLOCK: u64 = 1 << ORDER;
const PAGES: u64 = 1024;
const MODES: [u32; 4] = [0, 1, 3, 7];

std::thread_local! {
    static NOW: RefCell<u64> = const { RefCell::new(0) };
    static SCENE: RefCell<Option<Scene>> = const { RefCell::new(None) };
}

/// What both sides reclaim from: the same script, read by each on its own copy.
#[derive(Clone, Debug)]
struct Script {
    /// By unit: what it holds, and how many blocks each pass to come frees, last first.
    held: Vec<Holdings>,
    frees: Vec<Vec<u64>>,
}

impl Script {
    fn next(&mut self, unit: usize) -> u64 {
        self.frees[unit].pop().unwrap_or(0)
    }
}

/// The allocator's side of the script.
struct Scene {
    pool: &'static Allocator<'static, Stage<Scripted>>,
    script: Script,
    /// Blocks taken from each zone.
    taken: Vec<Vec<Pfn>>,
}

/// Reclaims as the script says.
#[derive(Default)]
struct Scripted;

impl Behaviour for Scripted {
    fn now_ns(&self) -> u64 {
        NOW.with_borrow(|now| *now)
    }
    fn reclaimer(&self) -> Option<&dyn Reclaimer> {
        Some(self)
    }
}

fn index(unit: Unit) -> usize {
    match unit {
        Unit::Node(node) => usize::from(node.0),
        Unit::Zone(zone) => usize::from(zone.0),
    }
}

impl Reclaimer for Scripted {
    fn holdings(&self, unit: Unit) -> Holdings {
        SCENE.with_borrow(|scene| scene.as_ref().unwrap().script.held[index(unit)])
    }
    fn shrink(&self, pass: &Pass) -> Shrunk {
        if pass.by != By::NodeReclaim {
            return Shrunk::default();
        }
        let (pool, blocks) = SCENE.with_borrow_mut(|scene| {
            let Scene { pool, script, taken } = scene.as_mut().unwrap();
            let zone = match pass.unit {
                Unit::Zone(zone) => usize::from(zone.0),
                // A node's pages come from its first zone.
                Unit::Node(node) => pool.zones().iter().position(|z| z.node() == node).unwrap(),
            };
            let blocks = script.next(index(pass.unit)).min(taken[zone].len() as u64);
            let at = taken[zone].len() - blocks as usize;
            (*pool, taken[zone].split_off(at))
        });
        for pfn in &blocks {
            pool.free(*pfn, Order::new(ORDER).unwrap()).unwrap();
        }
        let reclaimed = blocks.len() as u64 * BLOCK;
        Shrunk { scanned: reclaimed, reclaimed, slab: 0 }
    }
}

/// One random machine.
#[derive(Clone, Debug)]
struct Case {
    caching: ZonelistCaching,
    always: bool,
    unit: ReclaimUnit,
    mode: u32,
    rule: u8,
    far: u8,
    has_dma32: [bool; 2],
    cpu_on_1: bool,
    nodes: u16,
    script: Script,
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Preferred node, only this node, up to DMA32, may wait, with the low watermark.
    Scan(u16, bool, bool, bool, bool),
    /// So many blocks of a zone come back.
    Free(usize, usize),
    /// Milliseconds pass.
    Wait(u64),
    /// What a unit holds changes.
    Hold(usize, u64),
}

/// A zone as the transcription sees it.
struct ModelZone {
    node: usize,
    dma32: bool,
    free: u64,
    taken: u64,
    /// Min and low.
    watermarks: [u64; 2],
    /// Against requests up to DMA32 and up to Normal.
    reserve: [u64; 2],
}

/// LB G.4 to G.6 and D.4, word by word.
struct Model {
    case: Case,
    zones: Vec<ModelZone>,
    lists: Vec<Vec<usize>>,
    full: Vec<Vec<bool>>,
    zapped: Vec<u64>,
    now: u64,
    stats: ReclaimStats,
}

impl Model {
    fn ok(&self, zone: usize, low: bool, dma32: bool) -> bool {
        let z = &self.zones[zone];
        let free = z.free as i64 - (BLOCK as i64 - 1);
        let reserve = z.reserve[usize::from(!dma32)];
        free > (z.watermarks[usize::from(low)] + reserve) as i64
    }

    fn reclaim(&mut self, zone: usize, may_wait: bool) -> i32 {
        self.stats.tries += 1;
        let node = self.zones[zone].node;
        let by_zone = self.case.unit == ReclaimUnit::Zone;
        let unit = if by_zone { zone } else { node };
        let held = self.case.script.held[unit];
        let mode = self.case.mode;
        let mut cache = if mode & 4 != 0 {
            held.file
        } else {
            (held.inactive_file + held.active_file).saturating_sub(held.file_mapped)
        };
        if mode & 2 == 0 {
            cache -= cache.min(held.file_dirty);
        }
        let zones = self.zones.iter().filter(|z| z.node == node).count() as u64;
        let limit = if by_zone { 1 } else { zones } * (PAGES / 100);
        if cache <= limit {
            self.stats.full += 1;
            return -1;
        }
        let has_cpus = node == 0 || self.case.cpu_on_1;
        if !may_wait || (has_cpus && node != 0) {
            self.stats.no_scan += 1;
            return -2;
        }
        let source =
            if by_zone { zone } else { self.zones.iter().position(|z| z.node == node).unwrap() };
        let mut reclaimed = 0;
        let mut priority = 4;
        loop {
            let blocks = self.case.script.next(unit).min(self.zones[source].taken);
            self.zones[source].taken -= blocks;
            self.zones[source].free += blocks * BLOCK;
            self.stats.passes += 1;
            self.stats.pages += blocks * BLOCK;
            reclaimed += blocks * BLOCK;
            priority -= 1;
            if reclaimed >= BLOCK || priority < 0 {
                break;
            }
        }
        if reclaimed >= BLOCK {
            self.stats.success += 1;
            1
        } else {
            self.stats.failed += 1;
            0
        }
    }

    fn eligible(&self, preferred: usize, zone: usize) -> bool {
        let near = self.zones[preferred].node == self.zones[zone].node;
        let distance = if near { 10 } else { self.case.far };
        self.case.mode & 7 != 0
            && match self.case.rule {
                0 => true,
                1 => distance <= 30,
                _ => distance < 30,
            }
    }

    fn scan(
        &mut self,
        list: usize,
        this_node: bool,
        dma32: bool,
        wait: bool,
        low: bool,
    ) -> Option<usize> {
        let entries: Vec<(usize, usize)> = self.lists[list]
            .clone()
            .into_iter()
            .enumerate()
            .filter(|(_, z)| !dma32 || self.zones[*z].dma32)
            .filter(|(_, z)| !this_node || self.zones[*z].node == list)
            .collect();
        let preferred = entries.first()?.1;
        if self.case.caching == ZonelistCaching::None {
            return self.scan_plain(&entries, dma32, wait, low);
        }
        let first_zone = matches!(
            self.case.caching,
            ZonelistCaching::FirstZone | ZonelistCaching::FirstZoneReconsider
        );
        let (mut active, mut did) = (false, false);
        loop {
            for (position, z) in &entries {
                let (position, z) = (*position, *z);
                if active && !this_node && self.full[list][position] {
                    continue;
                }
                let mut ok = self.ok(z, low, dma32);
                let mut full = false;
                if !ok {
                    if first_zone {
                        self.setup(list, this_node, &mut active, &mut did);
                    }
                    if !self.eligible(preferred, z) {
                        full = true;
                    } else if first_zone && active && !this_node && self.full[list][position] {
                        continue;
                    } else {
                        let r = self.reclaim(z, wait);
                        if r == -2 || (r == -1 && first_zone) {
                            // Nothing is known of the zone.
                        } else if r == -1 {
                            full = true;
                        } else {
                            ok = self.ok(z, low, dma32);
                            full = !ok;
                        }
                    }
                }
                if ok {
                    return self.take(z);
                }
                if full && !this_node && (active || self.case.always) {
                    self.full[list][position] = true;
                }
                if !first_zone {
                    self.setup(list, this_node, &mut active, &mut did);
                }
            }
            if !active {
                return None;
            }
            active = false;
        }
    }

    fn scan_plain(
        &mut self,
        entries: &[(usize, usize)],
        dma32: bool,
        wait: bool,
        low: bool,
    ) -> Option<usize> {
        let preferred = entries[0].1;
        for (_, z) in entries {
            if !self.ok(*z, low, dma32) {
                if !self.eligible(preferred, *z) || self.reclaim(*z, wait) < 0 {
                    continue;
                }
                if !self.ok(*z, low, dma32) {
                    continue;
                }
            }
            return self.take(*z);
        }
        None
    }

    fn setup(&mut self, list: usize, this_node: bool, active: &mut bool, did: &mut bool) {
        if *did || self.case.nodes == 1 {
            return;
        }
        if !this_node && self.now - self.zapped[list] > 1_000_000_000 {
            self.full[list].fill(false);
            self.zapped[list] = self.now;
        }
        (*active, *did) = (true, true);
    }

    fn take(&mut self, zone: usize) -> Option<usize> {
        self.zones[zone].free -= BLOCK;
        self.zones[zone].taken += 1;
        Some(zone)
    }
}

fn shape(case: &Case) -> Shape {
    let mut zones = Vec::new();
    for node in 0..case.nodes {
        for kind in [ZoneKind::Dma32, ZoneKind::Normal] {
            if kind == ZoneKind::Normal || case.has_dma32[usize::from(node)] {
                zones.push(zone(node, kind, zones.len() as u64 * PAGES, PAGES));
            }
        }
    }
    let mut distances = distances(usize::from(case.nodes));
    distances.iter_mut().filter(|d| **d != 10).for_each(|d| *d = case.far);
    let mut cpus = std::vec![NodeId(0)];
    if case.cpu_on_1 && case.nodes > 1 {
        cpus.push(NodeId(1));
    }
    Shape { distances, zones, cpus, cache_slice_bytes: 0, caches: Vec::new() }
}

fn policy(case: &Case) -> Policy {
    let mut policy = Policy {
        pcp: PcpPolicy { orders: 1, ..Policy::LINUX_6_18.pcp },
        mobility_grouping: Grouping::Off,
        ..Policy::LINUX_6_18
    };
    policy.watermark.min_free = MinFreeRule::Kbytes(512);
    policy.zonelist.cache = case.caching;
    policy.zonelist.cache_mark = if case.always { CacheMark::Always } else { CacheMark::Active };
    policy.node_reclaim.mode = NodeReclaimMode::Bits(case.mode);
    policy.node_reclaim.unit = case.unit;
    policy.node_reclaim.distance = match case.rule {
        0 => DistanceRule::None,
        1 => DistanceRule::AtMost(30),
        _ => DistanceRule::Below(30),
    };
    policy
}

fn model(case: &Case, pool: &Allocator<'_, Stage<Scripted>>) -> Model {
    let zones: Vec<ModelZone> = pool
        .zones()
        .iter()
        .map(|zone| ModelZone {
            node: usize::from(zone.node().0),
            dma32: zone.kind() == ZoneKind::Dma32,
            free: PAGES,
            taken: 0,
            watermarks: [zone.watermarks().min, zone.watermarks().low],
            reserve: [zone.reserve(ZoneKind::Dma32), zone.reserve(ZoneKind::Normal)],
        })
        .collect();
    // Own zones first, each node's highest first.
    let list = |local: usize| {
        let mut ids: Vec<usize> = (0..zones.len()).collect();
        ids.sort_by_key(|id| (zones[*id].node != local, zones[*id].node, zones[*id].dma32));
        ids
    };
    let nodes = usize::from(case.nodes);
    Model {
        lists: (0..nodes).map(list).collect(),
        full: std::vec![std::vec![false; zones.len()]; nodes],
        zapped: std::vec![0; nodes],
        now: 0,
        stats: ReclaimStats::default(),
        case: case.clone(),
        zones,
    }
}

fn run(case: Case) {
    on_cpu(0);
    NOW.set(0);
    let shape: &'static Shape = Box::leak(Box::new(shape(&case)));
    let pool: &'static Allocator<'static, Stage<Scripted>> =
        Box::leak(Box::new(shape.boot_on(policy(&case), Stage::with(Scripted))));
    let mut model = model(&case, pool);
    let zones = pool.zones().len();
    SCENE.set(Some(Scene {
        pool,
        script: case.script.clone(),
        taken: std::vec![Vec::new(); zones],
    }));
    let order = Order::new(ORDER).unwrap();
    for (number, step) in case.steps.iter().enumerate() {
        match *step {
            Step::Scan(node, this_node, dma32, wait, low) => {
                let node = node % case.nodes;
                let mut gfp = if wait { Gfp::KERNEL } else { Gfp::NOWAIT };
                gfp |= if this_node { Gfp::THISNODE } else { Gfp::default() };
                gfp |= if dma32 { Gfp::DMA32 } else { Gfp::default() };
                let request = Request::new(order).gfp(gfp).on(NodeId(node));
                let flags = if low { AllocFlags::WMARK_LOW } else { AllocFlags::WMARK_MIN };
                assert_eq!(watermark_of(flags) as usize, usize::from(low));
                // Without a zone for it the request is refused before any walk.
                let search = Search::new(&pool.tables, &request).ok();
                // A machine without DMA32 serves such requests from what is above.
                let dma32 = dma32 && case.has_dma32[..usize::from(case.nodes)].contains(&true);
                let expected = model.scan(usize::from(node), this_node, dma32, wait, low);
                let got = search.and_then(|search| search.scan(flags));
                let zone = got.map(|pfn| (pfn.0 / PAGES) as usize);
                assert_eq!(zone, expected, "step {number} of {case:?}");
                if let (Some(zone), Some(pfn)) = (zone, got) {
                    SCENE.with_borrow_mut(|w| w.as_mut().unwrap().taken[zone].push(pfn));
                }
            }
            Step::Free(zone, blocks) => {
                let zone = zone % zones;
                let blocks = blocks.min(model.zones[zone].taken as usize);
                model.zones[zone].taken -= blocks as u64;
                model.zones[zone].free += blocks as u64 * BLOCK;
                let freed = SCENE.with_borrow_mut(|scene| {
                    let taken = &mut scene.as_mut().unwrap().taken[zone];
                    taken.split_off(taken.len() - blocks)
                });
                freed.iter().for_each(|pfn| pool.free(*pfn, order).unwrap());
            }
            Step::Wait(ms) => {
                model.now += ms * 1_000_000;
                NOW.set(model.now);
            }
            Step::Hold(unit, pages) => {
                let unit = unit % case.script.held.len();
                model.case.script.held[unit].inactive_file = pages;
                SCENE.with_borrow_mut(|scene| {
                    scene.as_mut().unwrap().script.held[unit].inactive_file = pages;
                });
            }
        }
        assert_eq!(pool.reclaim_stats(), model.stats, "step {number} of {case:?}");
        for (id, zone) in model.zones.iter().enumerate() {
            assert_eq!(pool.zones()[id].free_counter(), zone.free, "step {number}, zone {id}");
        }
        for (node, full) in model.full.iter().enumerate() {
            let worth = |position| pool.nodes()[node].cache.worth(position);
            assert!(full.iter().enumerate().all(|(at, full)| worth(at) != *full), "step {number}");
        }
    }
    SCENE.take();
    assert_eq!(pool.tables.zone_of(Pfn(0)).map(|zone| zone.id), Some(ZoneId(0)));
}

// Boxed strategies: nested ones take the compiler minutes.
fn holdings() -> BoxedStrategy<Holdings> {
    let pages = || prop_oneof![0..40u64, 0..2000u64].boxed();
    (pages(), pages(), pages(), pages(), pages())
        .prop_map(|(file, inactive, active, mapped, dirty)| Holdings {
            file,
            inactive_file: inactive,
            active_file: active,
            file_mapped: mapped,
            file_dirty: dirty,
            ..Holdings::default()
        })
        .boxed()
}

fn step() -> BoxedStrategy<Step> {
    let rarely = || prop::bool::weighted(0.2);
    let scan = (0..2u16, rarely(), rarely(), prop::bool::weighted(0.8), any::<bool>())
        .prop_map(|(node, this, dma32, wait, low)| Step::Scan(node, this, dma32, wait, low))
        .boxed();
    prop_oneof![
        12 => scan,
        1 => (0..4usize, 0..20usize).prop_map(|(zone, blocks)| Step::Free(zone, blocks)),
        1 => prop_oneof![0..100u64, 900..1100u64].prop_map(Step::Wait),
        1 => (0..4usize, 0..1000u64).prop_map(|(unit, pages)| Step::Hold(unit, pages)),
    ]
    .boxed()
}

fn case() -> BoxedStrategy<Case> {
    let caching = prop::sample::select(
        ZonelistCaching::ALL.iter().map(|(_, caching)| *caching).collect::<Vec<_>>(),
    );
    let unit = prop::sample::select(std::vec![ReclaimUnit::Zone, ReclaimUnit::Node]);
    let frees = prop::collection::vec(prop_oneof![6 => Just(0u64), 1 => 1..4u64], 0..300).boxed();
    let policy =
        (caching, any::<bool>(), unit, prop::sample::select(MODES.to_vec()), 0..3u8).boxed();
    let far = prop::sample::select(std::vec![20u8, 30, 31]);
    let machine = (far, any::<[bool; 2]>(), any::<bool>(), 1..3u16).boxed();
    let script = (prop::collection::vec(holdings(), 4), prop::collection::vec(frees, 4)).boxed();
    let steps = prop::collection::vec(step(), 100..400).boxed();
    (policy, machine, script, steps)
        .prop_map(|(policy, machine, (held, frees), steps)| {
            let (caching, always, unit, mode, rule) = policy;
            let (far, has_dma32, cpu_on_1, nodes) = machine;
            let script = Script { held, frees };
            Case {
                caching,
                always,
                unit,
                mode,
                rule,
                far,
                has_dma32,
                cpu_on_1,
                nodes,
                script,
                steps,
            }
        })
        .boxed()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn every_walk_is_the_one_transcribed(case in case()) {
        run(case);
    }
}
