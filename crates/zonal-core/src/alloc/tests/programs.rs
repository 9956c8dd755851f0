//! Random programs on small machines against a model that knows nothing but who owns which page
//! and LB's rules, and that is compared after every operation.

use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

use super::explain::Foretold;
use super::model::Model;
use super::platform::{Script, Shape, distances, on_cpu, zone};
use super::{numa, word_path};
use crate::alloc::{Allocator, Request, Sysctl};
use crate::gfp::Gfp;
use crate::pcp::depot::DepotPolicy;
use crate::pcp::lists::FreeLists;
use crate::pcp::owner::Pageblocks;
use crate::pcp::size::HighFraction;
use crate::policy::{Grouping, MinFreeRule, PcpPolicy, Policy, WatermarkPolicy};
use crate::types::{CpuId, NodeId, Order, Pfn, ZoneId, ZoneKind};
use crate::vmstat::variant::StatPolicy;

/// What a request may ask for, meaningless ones included.
pub const GFPS: [Gfp; 16] = [
    Gfp::KERNEL,
    Gfp::KERNEL,
    Gfp::KERNEL,
    Gfp::ATOMIC,
    Gfp::NOWAIT,
    Gfp::HIGHUSER_MOVABLE,
    Gfp::NONE,
    Gfp::KERNEL.union(Gfp::MEMALLOC),
    Gfp::KERNEL.union(Gfp::NORETRY),
    Gfp::KERNEL.union(Gfp::THISNODE),
    Gfp::KERNEL.union(Gfp::DMA),
    Gfp::KERNEL.union(Gfp::DMA32),
    Gfp::KERNEL.union(Gfp::RECLAIMABLE),
    Gfp::KERNEL.union(Gfp::HIGH).union(Gfp::NOMEMALLOC).union(Gfp::MEMALLOC),
    Gfp::KERNEL.union(Gfp::MOVABLE).union(Gfp::RECLAIMABLE),
    Gfp::KERNEL.union(Gfp::COLD),
];

#[derive(Clone, Debug)]
pub enum Op {
    Alloc { cpu: u32, order: u32, gfp: usize, node: Option<u16>, times: u32 },
    Fast { cpu: u32, order: u32, times: u32 },
    Free { cpu: u32, which: usize, times: usize },
    FastFree { cpu: u32, which: usize, times: usize },
    Misuse { cpu: u32, which: usize, how: u32 },
    Bulk { cpu: u32, pages: usize, gfp: usize },
    FreeBulk { cpu: u32, order: u32, at_most: usize },
    Drain { zone: u16, cpu: u32 },
    DrainAll,
    Refresh { cpu: u32, times: u32 },
    Write { sysctl: Sysctl, value: i64 },
}

fn order() -> BoxedStrategy<u32> {
    prop_oneof![6 => 0u32..4, 1 => 4u32..=10, 1 => Just(9u32)].boxed()
}

pub fn op() -> BoxedStrategy<Op> {
    let kind = prop::sample::select(&ZoneKind::ALL[..4]);
    let sysctl = prop_oneof![
        (0i64..600).prop_map(|v| (Sysctl::MinFreeKbytes, v)),
        prop::sample::select(&[0i64, 1, 10, 500, 3000, 3001][..])
            .prop_map(|v| (Sysctl::WatermarkScaleFactor, v)),
        prop::sample::select(&[0i64, 15_000][..]).prop_map(|v| (Sysctl::WatermarkBoostFactor, v)),
        prop::sample::select(&[0i64, 7, 8, 50][..]).prop_map(|v| (Sysctl::HighFraction, v)),
        (kind, -1i64..50).prop_map(|(kind, v)| (Sysctl::LowmemReserveRatio(kind), v)),
    ];
    let (cpu, which) = (0u32..4, any::<usize>());
    prop_oneof![
        8 => (cpu.clone(), order(), 0..GFPS.len(), prop::option::of(0u16..3), 1u32..40)
            .prop_map(|(cpu, order, gfp, node, times)| {
                Op::Alloc { cpu, order, gfp, node, times: if order > 3 { 1 } else { times } }
            }),
        3 => (cpu.clone(), 0u32..4, 1u32..40)
            .prop_map(|(cpu, order, times)| Op::Fast { cpu, order, times }),
        6 => (cpu.clone(), which, 1usize..60)
            .prop_map(|(cpu, which, times)| Op::Free { cpu, which, times }),
        3 => (cpu.clone(), which, 1usize..60)
            .prop_map(|(cpu, which, times)| Op::FastFree { cpu, which, times }),
        2 => (cpu.clone(), which, 0u32..4)
            .prop_map(|(cpu, which, how)| Op::Misuse { cpu, which, how }),
        2 => (cpu.clone(), 0usize..300, 0..GFPS.len())
            .prop_map(|(cpu, pages, gfp)| Op::Bulk { cpu, pages, gfp }),
        2 => (cpu.clone(), prop_oneof![2 => Just(0u32), 1 => 1u32..4], 0usize..300)
            .prop_map(|(cpu, order, at_most)| Op::FreeBulk { cpu, order, at_most }),
        1 => (0u16..6, cpu.clone()).prop_map(|(zone, cpu)| Op::Drain { zone, cpu }),
        1 => Just(Op::DrainAll),
        1 => (cpu, 1u32..8).prop_map(|(cpu, times)| Op::Refresh { cpu, times }),
        1 => sysctl.prop_map(|(sysctl, value)| Op::Write { sysctl, value }),
    ]
    .boxed()
}

/// One or two nodes with any of the kinds of zones, at odd places and of odd sizes.
pub fn shape() -> BoxedStrategy<Shape> {
    let size = || prop_oneof![1u64..40, 100u64..700, 1000u64..2500];
    let zones = prop::collection::vec((0u64..600, size(), any::<bool>()), 7..8);
    (zones, 1usize..=4, any::<bool>(), any::<bool>())
        .prop_map(|(specs, cpus, two, spread)| {
            use ZoneKind::{Dma, Dma32, Movable, Normal};
            let mut kinds = std::vec![(0, Dma), (0, Dma32), (0, Normal), (0, Movable)];
            if two {
                kinds.extend([(1, Normal), (1, Movable)]);
            }
            let mut next = specs[6].0;
            let mut zones = Vec::new();
            for ((node, kind), (gap, size, there)) in kinds.into_iter().zip(specs) {
                if there || kind == Normal && node == 0 {
                    // Zones may also touch, in the middle of a block.
                    let start = next + if gap % 2 == 0 { 0 } else { gap };
                    zones.push(zone(node, kind, start, size));
                    next = start + size;
                }
            }
            let nodes = 1 + usize::from(two);
            let node = |cpu: usize| NodeId(if spread { cpu % nodes } else { 0 } as u16);
            Shape {
                distances: distances(nodes),
                zones,
                cpus: (0..cpus).map(node).collect(),
                cache_slice_bytes: 0,
                caches: Vec::new(),
            }
        })
        .boxed()
}

pub fn policy() -> BoxedStrategy<Policy> {
    let preset = prop::sample::select(Policy::PRESETS);
    let grouping = prop::sample::select(&[Grouping::On, Grouping::Off, Grouping::Auto][..]);
    let rules = [
        MinFreeRule::Kbytes(0),
        MinFreeRule::Kbytes(300),
        MinFreeRule::Pool,
        MinFreeRule::Linux { thp: true },
    ];
    let min_free = prop::sample::select(rules.to_vec());
    let fraction = prop::sample::select(&[0, 8, 100][..]);
    let depot = prop::sample::select(&[0, 0, 1, 3][..]);
    let bulk = prop::sample::select(&[0, 3, 9][..]);
    let values = (preset, grouping, min_free, (fraction, depot, bulk), numa::seen_whole());
    values
        .prop_map(|(preset, grouping, min_free, of_lists, (update, numa))| {
            let (fraction, magazines, bulk_block) = of_lists;
            let high_fraction = HighFraction::new(fraction).unwrap();
            let single = preset.pcp.free_lists == FreeLists::Single
                && preset.pcp.pageblocks == Pageblocks::Shared;
            let magazines = if single { magazines } else { 0 };
            let block = if magazines == 3 { 9 } else { 0 };
            let depot = DepotPolicy { magazines, block, ..DepotPolicy::OFF };
            Policy {
                stat: StatPolicy { update, ..preset.stat },
                numa,
                mobility_grouping: grouping,
                pcp: PcpPolicy { high_fraction, bulk_block, depot, ..preset.pcp },
                watermark: WatermarkPolicy { min_free, ..preset.watermark },
                ..preset
            }
        })
        .boxed()
}

/// A pool and its model.
pub struct Twin<'p, 'a> {
    pub pool: &'p Allocator<'a, Script>,
    pub model: Model,
    /// Calls that the pool was asked; a page of a bulk call counts as one.
    pub calls: u64,
}

impl<'p, 'a> Twin<'p, 'a> {
    pub fn new(pool: &'p Allocator<'a, Script>, shape: &Shape) -> Twin<'p, 'a> {
        Twin { pool, model: Model::new(shape), calls: 0 }
    }

    /// One operation; what it returns is checked, what it leaves behind is not.
    pub fn apply(&mut self, op: &Op) {
        match *op {
            Op::Alloc { cpu, order, gfp, node, times } => {
                let order = Order::new(order).unwrap();
                let node = node.map(NodeId);
                for _ in 0..times {
                    self.alloc(cpu, Request { order, gfp: GFPS[gfp], node });
                }
            }
            Op::Fast { cpu, order, times } => {
                let order = Order::new(order).unwrap();
                (0..times).for_each(|_| self.alloc_fast(cpu, order));
            }
            Op::Free { cpu, which, times } => {
                (0..times).for_each(|i| self.free(cpu, which.wrapping_add(i), false));
            }
            Op::FastFree { cpu, which, times } => {
                (0..times).for_each(|i| self.free(cpu, which.wrapping_add(i), true));
            }
            Op::Misuse { cpu, which, how } => self.misuse(cpu, which, how),
            Op::Bulk { cpu, pages, gfp } => self.bulk(cpu, pages, GFPS[gfp]),
            Op::FreeBulk { cpu, order, at_most } => self.free_bulk(cpu, order, at_most),
            Op::Drain { zone, cpu } => {
                let zone = ZoneId(zone % self.pool.zones().len() as u16);
                let cpu = CpuId(self.on(cpu));
                self.calls += 1;
                self.pool.drain(zone, cpu);
                assert_eq!(self.pool.pcp(zone, cpu).count(), 0);
            }
            Op::DrainAll => {
                self.calls += 1;
                self.pool.drain_all();
                self.model.assert_nothing_cached(self.pool);
            }
            Op::Refresh { cpu, times } => {
                let cpu = CpuId(self.on(cpu));
                for _ in 0..times {
                    self.calls += 1;
                    self.pool.refresh(cpu);
                }
            }
            Op::Write { sysctl, value } => {
                self.calls += 1;
                let _ = self.pool.set(sysctl, value);
            }
        }
    }

    fn on(&self, cpu: u32) -> u32 {
        let cpu = cpu % self.pool.cpus() as u32;
        on_cpu(cpu);
        cpu
    }

    fn alloc(&mut self, cpu: u32, request: Request) {
        let cpu = self.on(cpu);
        self.calls += 1;
        let foretold = Foretold::ask(self.pool, &request);
        let got = self.pool.alloc(request);
        foretold.check(self.pool, &got);
        match got {
            Ok(pfn) => self.model.allocated(CpuId(cpu), request, pfn),
            Err(error) => self.model.check_refusal(self.pool, CpuId(cpu), request, error),
        }
    }

    fn alloc_fast(&mut self, cpu: u32, order: Order) {
        let cpu = self.on(cpu);
        let request = Request::new(order);
        match word_path::alloc(self.pool, CpuId(cpu), order) {
            Some(pfn) => {
                self.calls += 1;
                self.model.allocated(CpuId(cpu), request, pfn);
            }
            None => self.alloc(cpu, request),
        }
    }

    fn free(&mut self, cpu: u32, which: usize, fast: bool) {
        let Some((pfn, order)) = self.model.pick(which) else { return };
        let cpu = CpuId(self.on(cpu));
        self.calls += 1;
        let zone = self.model.zone_of(pfn);
        if !(fast && word_path::free(self.pool, zone, cpu, (pfn, order))) {
            self.pool.free(pfn, order).unwrap();
        }
        self.model.freed(pfn);
    }

    /// A free that must be refused. Whether anything changed is compared as after any operation.
    fn misuse(&mut self, cpu: u32, which: usize, how: u32) {
        self.on(cpu);
        let (pfn, order) = match (how, self.model.pick(which)) {
            (0, Some((pfn, order))) => (pfn, Order::new((order.get() + 1) % 11).unwrap()),
            (1, Some((pfn, order))) if order > Order::ZERO => (Pfn(pfn.0 + 1), Order::ZERO),
            (2, _) => (self.model.a_free_page(which), Order::ZERO),
            _ => (Pfn(1 << 40), Order::ZERO),
        };
        self.calls += 2;
        self.pool.free(pfn, order).unwrap_err();
        assert_eq!(self.pool.free_bulk(&[pfn], order).unwrap_err().0, 0);
    }

    fn bulk(&mut self, cpu: u32, pages: usize, gfp: Gfp) {
        let cpu = CpuId(self.on(cpu));
        let request = Request::new(Order::ZERO).gfp(gfp);
        let mut got = std::vec![Pfn(0); pages];
        match self.pool.alloc_bulk(request, &mut got) {
            Ok(n) => {
                assert!(n >= pages.min(1) && n <= pages);
                self.calls += n as u64;
                got[..n].iter().for_each(|pfn| self.model.allocated(cpu, request, *pfn));
            }
            Err(error) => {
                self.calls += 1;
                self.model.check_refusal(self.pool, cpu, request, error);
            }
        }
    }

    fn free_bulk(&mut self, cpu: u32, order: u32, at_most: usize) {
        self.on(cpu);
        let order = Order::new(order).unwrap();
        let pages = self.model.some_of(order, at_most);
        self.calls += pages.len() as u64;
        self.pool.free_bulk(&pages, order).unwrap();
        pages.into_iter().for_each(|pfn| self.model.freed(pfn));
    }
}

/// Runs a program. Returns how many calls that were.
pub fn run(shape: &Shape, policy: Policy, ops: &[Op]) -> u64 {
    let mut calls = 0;
    shape.scoped(policy, 0, |pool| {
        let mut twin = Twin::new(pool, shape);
        twin.model.compare(pool);
        for op in ops {
            twin.apply(op);
            twin.model.compare(pool);
        }
        while twin.model.pick(0).is_some() {
            twin.free(0, 0, false);
        }
        pool.drain_all();
        twin.model.compare(pool);
        for zone in pool.zones() {
            assert_eq!(pool.zone_stats(zone.id()).free_pages, zone.managed());
        }
        calls = twin.calls;
    });
    calls
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn random_programs_match_a_model_of_ownership(
        shape in shape(),
        policy in policy(),
        ops in prop::collection::vec(op(), 1..70),
    ) {
        run(&shape, policy, &ops);
    }
}

/// The same until the programs have made `ZONAL_DEEP_CALLS` calls, or `ZONAL_DEEP_LIMIT_S` seconds
/// are over, from `ZONAL_DEEP_SEED` on. It prints its counts after every few programs, so that a
/// run that is ended by hand has them too.
#[test]
#[ignore = "hours: cargo xtask deep"]
fn random_programs_match_a_model_of_ownership_for_hours() {
    const PROGRAMS: u32 = 200;
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let wanted = number("ZONAL_DEEP_CALLS").unwrap_or(10_000_000);
    let mut seed = number("ZONAL_DEEP_SEED").unwrap_or(1);
    let seconds = number("ZONAL_DEEP_LIMIT_S").unwrap_or(u64::MAX);
    let start = std::time::Instant::now();
    let made = core::cell::Cell::new(0_u64);
    let mut programs = 0_u64;
    while made.get() < wanted && start.elapsed().as_secs() < seconds {
        let config =
            ProptestConfig { cases: PROGRAMS, failure_persistence: None, ..Default::default() };
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(config, rng);
        let program = (shape(), policy(), prop::collection::vec(op(), 1..70));
        let result = runner.run(&program, |(shape, policy, ops)| {
            made.set(made.get() + run(&shape, policy, &ops));
            Ok(())
        });
        result.unwrap_or_else(|error| panic!("ZONAL_DEEP_SEED={seed}: {error}"));
        programs += u64::from(PROGRAMS);
        seed += 1;
        std::eprintln!("deep: {programs} programs, {} calls, next seed {seed}", made.get());
    }
}
