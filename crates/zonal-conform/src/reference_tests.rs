//! The core beside the reference's own formulas, `shared/reference/check_zoneinfo_formulas.py`, on
//! machines of random shapes: the core computes, the text of its values is written, and the script
//! judges it.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::json;
use zonal_core::alloc::Sysctl;
use zonal_core::policy::Policy;
use zonal_core::types::{NodeId, ZoneKind};
use zonal_core::zonelist::order::{NodeTable, fallback_orders};
use zonal_text::Stat;
use zonal_text::zoneinfo::{Document, PagesetInfo, ZoneInfo};

use super::era::{Era, PrintedHigh};
use super::model::{Computed, Shape};
use super::place::Place;
use super::settings::Write;
use zonal_text::release::KernelRelease;

/// Machines that are tried.
const MACHINES: usize = 200;

#[derive(Debug, Clone)]
struct Random {
    release: KernelRelease,
    /// Managed pages of each node's DMA, DMA32, Normal and Movable zone.
    nodes: Vec<[u64; 4]>,
    /// CPUs of each node. Some machines have CPUs on several nodes.
    node_cpus: Vec<Vec<u32>>,
    /// Distances above the diagonal and below it.
    distances: Vec<u8>,
    min_free_kbytes: i64,
    scale_factor: i64,
    fraction: i64,
    ratios: [i64; 5],
}

fn random() -> impl Strategy<Value = Random> {
    let releases = [(6, 1), (6, 12), (6, 18), (7, 2)].map(|(a, b)| KernelRelease(a, b));
    let size = |most: u64| prop_oneof![1 => Just(0), 3 => 1..=most, 2 => 1..=most / 1000 + 1];
    let node = (size(3999), size(1_044_480), size(60_000_000), size(20_000_000))
        .prop_map(|(dma, dma32, normal, movable)| [dma, dma32, normal, movable]);
    let nodes = prop::collection::vec(node, 1..=8);
    let ratio = prop_oneof![Just(0), Just(1), Just(32), Just(256), 2..1000_i64];
    // Each CPU's node, and others that it is on too in some machines.
    let cpus = prop::collection::vec((0..8_usize, any::<u8>()), 1..=64);
    let cpus = (cpus, prop::bool::weighted(0.25));
    let distances = prop::collection::vec(11..60_u8, 64);
    let fraction = prop_oneof![3 => Just(0_i64), 1 => 8..5000_i64];
    let sysctls = (128..300_000_i64, 1..=3000_i64, fraction, prop::array::uniform5(ratio));
    (prop::sample::select(releases.to_vec()), nodes, cpus, distances, sysctls).prop_map(
        |(
            release,
            mut nodes,
            (cpus, are_shared),
            distances,
            (min_free_kbytes, scale_factor, fraction, ratios),
        )| {
            // Some zone must have low memory to share the minimum out over.
            nodes[0][1] = nodes[0][1].max(1000);
            let mut node_cpus = vec![Vec::new(); nodes.len()];
            for ((home, others), id) in cpus.into_iter().zip(0_u32..) {
                for (node, own) in node_cpus.iter_mut().enumerate() {
                    if node == home % nodes.len() || (are_shared && others >> node & 1 == 1) {
                        own.push(id);
                    }
                }
            }
            Random {
                release,
                nodes,
                node_cpus,
                distances,
                min_free_kbytes,
                scale_factor,
                fraction,
                ratios,
            }
        },
    )
}

impl Random {
    fn shape(&self) -> (Shape, Vec<u64>) {
        let count = self.nodes.len();
        let distance = |at: usize| match at / count == at % count {
            true => 10,
            false => self.distances[at % 64],
        };
        let mut zones = Vec::new();
        let mut managed = Vec::new();
        for (node, sizes) in self.nodes.iter().enumerate() {
            for (kind, size) in ZoneKind::ALL.into_iter().zip(sizes.iter().chain([&0])) {
                zones.push((NodeId(node as u16), kind));
                managed.push(*size);
            }
        }
        let distances = (0..count * count).map(distance).collect();
        (Shape { distances, node_cpus: self.node_cpus.clone(), zones, has_high: false }, managed)
    }

    fn writes(&self) -> Vec<Write> {
        let place = Place::new("random", 1);
        let ratios = ZoneKind::ALL.into_iter().zip(self.ratios);
        let ratios = ratios.map(|(kind, ratio)| (Sysctl::LowmemReserveRatio(kind), ratio));
        [
            (Sysctl::MinFreeKbytes, self.min_free_kbytes),
            (Sysctl::WatermarkScaleFactor, self.scale_factor),
            (Sysctl::HighFraction, self.fraction),
        ]
        .into_iter()
        .chain(ratios)
        .map(|(sysctl, value)| Write { sysctl, value, place: place.clone() })
        .collect()
    }

    /// The text that the kernel would print.
    fn zoneinfo(&self, shape: &Shape, managed: &[u64], computed: &Computed) -> String {
        let rows = shape.zones.iter().zip(managed).zip(&computed.zones);
        let zone = |(((node, kind), managed), limits): ((&(NodeId, ZoneKind), &u64), _)| {
            let limits: &super::model::Limits = limits;
            let watermarks = limits.watermarks;
            let pages = [
                ("free", 0),
                ("min", watermarks.min),
                ("low", watermarks.low),
                ("high", watermarks.high),
                ("promo", watermarks.promo),
                ("spanned", *managed),
                ("present", *managed),
                ("managed", *managed),
            ];
            let stat = |(name, value): (&str, u64)| Stat::new(name, value);
            let list = |cpu: usize| {
                let (low, high) = (u64::from(limits.high.0), u64::from(limits.high.1));
                let mut fields = vec![
                    stat(("count", 0)),
                    stat(("high", low)),
                    stat(("batch", limits.batch.into())),
                ];
                if self.release.printed_high() == PrintedHigh::Tuned {
                    fields.extend([stat(("high_min", low)), stat(("high_max", high))]);
                }
                let stat_threshold = Some(limits.threshold.into());
                PagesetInfo { cpu: cpu as u32, fields, stat_threshold }
            };
            ZoneInfo {
                node: node.0.into(),
                name: kind.name().to_owned(),
                node_stats: None,
                pages: pages.map(stat).to_vec(),
                protection: limits.protection.map(|pages| pages as i64).to_vec(),
                items: Vec::new(),
                pagesets: (*managed > 0).then(|| (0..shape.cpus().len()).map(list).collect()),
                tail: if *managed > 0 { vec![stat(("start_pfn", 0))] } else { Vec::new() },
            }
        };
        Document { zones: rows.map(zone).collect(), ..Document::default() }.to_string()
    }

    fn meta(&self, name: &str, shape: &Shape, policy: &Policy) -> serde_json::Value {
        let count = self.nodes.len();
        let list = |ids: Vec<String>| ids.join(",");
        let has_memory: Vec<bool> =
            self.nodes.iter().map(|sizes| sizes.iter().any(|size| *size > 0)).collect();
        let of_node = |node: usize| list(self.node_cpus[node].iter().map(u32::to_string).collect());
        let has_cpu: Vec<bool> = (0..count).map(|node| !of_node(node).is_empty()).collect();
        let table = NodeTable::new(&shape.distances, &has_memory, &has_cpu).unwrap();
        let table = table.load_rule(policy.zonelist.load);
        let first = self.release.memoryless_first()[0];
        let table = if first { table.memoryless_first() } else { table };
        let (mut load, mut lens) = (vec![0; count], vec![0; count]);
        let mut orders = vec![NodeId(0); count * count];
        fallback_orders(&table, &mut load, &mut orders, &mut lens);
        let order = |node: usize| {
            let mut line = format!("Fallback order for Node {node}: ");
            for next in &orders[node * count..][..usize::from(lens[node])] {
                let _ = write!(line, "{} ", next.0);
            }
            line
        };
        let with_memory = (0..count).filter(|node| has_memory[*node]);
        let node_cpus: serde_json::Map<_, _> =
            (0..count).map(|node| (node.to_string(), json!(of_node(node)))).collect();
        let ratios = self.ratios.map(|ratio| ratio.to_string()).join("\t");
        json!({
            "name": name,
            "kernel_release": format!("{}.0", self.release),
            "cpus_online": format!("0-{}", shape.cpus().len() - 1),
            "guest_node_cpus": node_cpus,
            "guest_distances": shape.distances.chunks(count).collect::<Vec<_>>(),
            "nodes_with_memory": list(with_memory.map(|node| node.to_string()).collect()),
            "fallback_order": (0..count).map(order).collect::<Vec<_>>(),
            "sysctl_set": {"vm.min_free_kbytes": self.min_free_kbytes.to_string()},
            "sysctls": {
                "vm.min_free_kbytes": self.min_free_kbytes.to_string(),
                "vm.watermark_scale_factor": self.scale_factor.to_string(),
                "vm.percpu_pagelist_high_fraction": self.fraction.to_string(),
                "vm.lowmem_reserve_ratio": ratios,
                "thp.enabled": "always madvise [never]",
            },
        })
    }
}

#[test]
fn the_reference_agrees_on_machines_of_random_shapes() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/reference/check_zoneinfo_formulas.py");
    if !script.is_file() || Command::new("python3").arg("--version").output().is_err() {
        eprintln!("SKIPPED: needs python3 and {}", script.display());
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut runner = TestRunner::deterministic();
    let mut command = Command::new("python3");
    command.arg(&script);
    for index in 0..MACHINES {
        let machine = random().new_tree(&mut runner).unwrap().current();
        let (shape, managed) = machine.shape();
        let policy = machine.release.policy(false, machine.release.movable_mins()[0]);
        let computed = shape.compute(&policy, &managed, &machine.writes()).unwrap();
        let name = format!("machine-{index}");
        let case = directory.path().join(&name);
        std::fs::create_dir(&case).unwrap();
        let text = machine.zoneinfo(&shape, &managed, &computed);
        std::fs::write(case.join("recalc-zoneinfo.txt"), text).unwrap();
        let meta = machine.meta(&name, &shape, &policy);
        std::fs::write(case.join("meta.json"), meta.to_string()).unwrap();
        command.arg(case);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let differ: Vec<&str> = text.lines().filter(|line| !line.contains("   0 differ")).collect();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(differ, ["total differing: 0"]);
    assert_eq!(text.lines().count(), MACHINES + 1);
}
