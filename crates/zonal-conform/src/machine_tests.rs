//! Machines that no capture is of, made of captures by the rules of LB: CPUs on several nodes,
//! CPUs that are offline, many CPUs, gaps in the ids of nodes.

use std::collections::BTreeMap;
use std::path::Path;

use zonal_text::zoneinfo::{Document, PagesetInfo, ZoneInfo};
use zonal_text::{cpulist, zoneinfo};

use super::capture::Capture;
use super::report::Case;
use super::tests::{Texts, replace, shared};

const ZONEINFOS: [&str; 3] = ["recalc-zoneinfo.txt", "zoneinfo.txt", "folded-zoneinfo.txt"];

fn capture(name: &str) -> Texts {
    Texts::of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures").join(name))
}

fn list(ids: &[u32]) -> String {
    cpulist::Document { ids: ids.to_vec() }.to_string()
}

/// Changes each `zoneinfo` of a capture.
fn change_zones(texts: &mut Texts, change: impl Fn(&mut Document)) {
    for name in ZONEINFOS {
        let mut document = zoneinfo::parse(&texts.0[name]).unwrap();
        change(&mut document);
        texts.0.insert(name.to_owned(), document.to_string());
    }
}

fn pages(zone: &ZoneInfo, name: &str) -> u64 {
    zone.pages.iter().find(|stat| stat.name == name).unwrap().value
}

/// The capture of a machine with these online CPUs of each node. What follows from them is written
/// by LB: limits of lists by E.4, thresholds by F.2.
fn with_cpus(mut texts: Texts, node_cpus: &[(u32, &[u32])]) -> Texts {
    let mut online: Vec<u32> = node_cpus.iter().flat_map(|(_, cpus)| cpus.to_vec()).collect();
    online.sort_unstable();
    online.dedup();
    let node_cpus: BTreeMap<u32, &[u32]> = node_cpus.iter().copied().collect();
    let sysctls = zonal_text::sysctl::parse(&texts.0["sysctl.txt"]).unwrap();
    let fraction = sysctls.number("vm.percpu_pagelist_high_fraction").unwrap();
    let fls = |number: u64| u64::from(u64::BITS - number.leading_zeros());
    change_zones(&mut texts, |document| {
        for zone in document.zones.iter_mut().filter(|zone| zone.pagesets.is_some()) {
            let (low, managed) = (pages(zone, "low"), pages(zone, "managed"));
            let cpus = match node_cpus[&zone.node].len() {
                0 => online.len(),
                own => own,
            };
            let first = zone.pagesets.as_ref().unwrap()[0].clone();
            let batch = first.fields.iter().find(|stat| stat.name == "batch").unwrap().value;
            let threshold = 2 * fls(online.len() as u64) * (1 + fls(managed >> 15));
            let set = |cpu: &u32| {
                let mut set = PagesetInfo { cpu: *cpu, ..first.clone() };
                for stat in &mut set.fields {
                    let share = |pages: u64| (pages / cpus as u64).max(4 * batch);
                    match stat.name.as_str() {
                        "high" | "high_min" | "high_max" if fraction > 0 => {
                            stat.value = share(managed / fraction);
                        }
                        "high" | "high_min" => stat.value = share(low),
                        "high_max" => stat.value = share(managed / 8),
                        _ => {}
                    }
                }
                set.stat_threshold = Some(threshold.min(125));
                set
            };
            zone.pagesets = Some(online.iter().map(set).collect());
        }
    });
    let with_cpus = node_cpus.iter().filter(|(_, cpus)| !cpus.is_empty()).map(|(node, _)| *node);
    let has_cpu: Vec<u32> = with_cpus.collect();
    texts.0.insert("sys-node-has_cpu.txt".to_owned(), list(&has_cpu));
    texts.0.insert("sys-cpu-online.txt".to_owned(), list(&online));
    let mut noted: serde_json::Value = serde_json::from_str(&texts.0["meta.json"]).unwrap();
    for (node, cpus) in &node_cpus {
        noted["guest_node_cpus"][node.to_string()] = list(cpus).trim_end().into();
        texts.0.insert(format!("node{node}-cpulist.txt"), list(cpus));
    }
    texts.0.insert("meta.json".to_owned(), format!("{noted:#}\n"));
    texts
}

fn told(case: &Case) -> Vec<String> {
    case.mismatches.iter().map(|c| format!("{}:{}: {}", c.file, c.line, c.what)).collect()
}

#[test]
fn machines_agree_whatever_cpus_their_nodes_have() {
    let wide: Vec<u32> = (0..300).collect();
    let all: &[u32] = &[0, 1, 2, 3, 4, 5];
    for (what, node_cpus) in [
        ("as it was", [(0, &[0, 1][..]), (1, &[2, 3]), (2, &[4, 5])]),
        // `numa=fake`: each CPU is on every node that was made of its own.
        ("all on all", [(0, all), (1, all), (2, all)]),
        ("two made of one", [(0, &[0, 1, 2]), (1, &[0, 1, 2]), (2, &[3, 4, 5])]),
        ("overlapping", [(0, &[0, 1, 2, 3]), (1, &[2, 3, 4, 5]), (2, &[5])]),
        ("offline at the end", [(0, &[0, 1]), (1, &[2, 3]), (2, &[4])]),
        ("offline between", [(0, &[0]), (1, &[3]), (2, &[4, 5])]),
        ("a node without CPUs", [(0, &[0, 1, 2, 3]), (1, &[]), (2, &[4, 5])]),
        ("memory without CPUs", [(0, &[0]), (1, &[1, 2]), (2, &[])]),
        ("one CPU", [(0, &[]), (1, &[]), (2, &[5])]),
        ("more than masks of 64", [(0, &wide[..100]), (1, &wide[100..101]), (2, &wide[101..])]),
        ("300 on all", [(0, &wide[..]), (1, &wide[..]), (2, &wide[..])]),
    ] {
        let mut texts = with_cpus(capture("6.1-n3-memless1"), &node_cpus);
        texts.0.insert("sys-cpu-possible.txt".to_owned(), list(&wide));
        let case = texts.judge().unwrap_or_else(|error| panic!("{what}: {error:#}"));
        assert_eq!(told(&case), [""; 0], "{what}");
        // Nothing is left out because of the CPUs.
        let lists = node_cpus.iter().flat_map(|(_, cpus)| cpus.to_vec());
        let online = lists.collect::<std::collections::BTreeSet<u32>>().len();
        let judged = case.judged.iter().filter(|place| place.file == ZONEINFOS[0]).count();
        assert!(judged > 3 * 3 * online, "{what}: {judged}");
    }
}

/// The captures beside the project as if `numa=fake` had made each machine's nodes of one.
#[test]
fn every_capture_agrees_with_all_cpus_on_all_nodes() {
    for directory in shared() {
        let texts = Texts::of(&directory);
        let capture = Capture::read("test", &texts).unwrap();
        let mut online: Vec<u32> = capture.nodes.iter().flat_map(|n| n.cpus.clone()).collect();
        online.sort_unstable();
        let node_cpus: Vec<(u32, &[u32])> =
            capture.nodes.iter().map(|node| (node.id, &online[..])).collect();
        let case = with_cpus(texts, &node_cpus).judge().unwrap();
        assert_eq!(told(&case), [""; 0], "{}", directory.display());
    }
}

/// The limits of each node follow from its own CPUs, so a list that is another's is found.
#[test]
fn a_limit_that_belongs_to_another_number_of_cpus_is_found() {
    let node_cpus: [(u32, &[u32]); 3] = [(0, &[0, 1, 2, 3]), (1, &[2, 3, 4, 5]), (2, &[5])];
    let mut texts = with_cpus(capture("6.1-n3-memless1"), &node_cpus);
    // 13881 pages of low watermark for four CPUs; three would have 4627 each.
    replace(&mut texts, ZONEINFOS[0], "high:  3470\n", "high:  4627\n");
    let case = texts.judge().unwrap();
    let what: Vec<&str> = case.mismatches.iter().map(|check| check.what.as_str()).collect();
    assert_eq!(what, ["node 0 zone DMA32 cpu 0 high"]);
}

/// A CPU that comes later is noted for one of its nodes; a node with CPUs of its own is.
#[test]
fn nodes_that_share_all_their_cpus_need_not_be_noted_to_have_any() {
    let shared: [(u32, &[u32]); 3] = [(0, &[0, 1, 2]), (1, &[3, 4, 5]), (2, &[3, 4, 5])];
    let own: [(u32, &[u32]); 3] = [(0, &[0, 1, 2]), (1, &[3, 4]), (2, &[4, 5])];
    for (node_cpus, printed, mismatches, skipped) in [
        (shared, "0-2\n", 0, 0),
        (shared, "0-1\n", 0, 1),
        (shared, "0,2\n", 0, 1),
        (shared, "0\n", 1, 0),
        (shared, "1-2\n", 1, 0),
        (own, "0-1\n", 1, 0),
    ] {
        let mut texts = with_cpus(capture("6.1-n3-memless1"), &node_cpus);
        texts.0.insert("sys-node-has_cpu.txt".to_owned(), printed.to_owned());
        let case = texts.judge().unwrap();
        let left_out = case.not_judged.iter().filter(|left| left.what == "nodes: has_cpu").count();
        let found = (case.mismatches.len(), left_out);
        assert_eq!(found, (mismatches, skipped), "{printed}: {:?}", told(&case));
    }
}

/// One real node split at 4 GiB by `numa=fake`: both nodes have both CPUs and are at distance 10
/// from each other. Marks follow from all zones together and stay; rows of `protection` follow from
/// the zones of a node.
#[test]
fn a_node_that_was_split_by_numa_fake_agrees() {
    let mut texts = capture("7.2-n1-4g-c2");
    change_zones(&mut texts, |document| {
        let empty = |of: &ZoneInfo| {
            let mut zone = ZoneInfo { node_stats: None, pagesets: None, ..of.clone() };
            (zone.items, zone.tail) = (Vec::new(), Vec::new());
            zone.pages.iter_mut().for_each(|stat| stat.value = 0);
            zone.protection.fill(0);
            zone
        };
        let mut low = std::mem::take(&mut document.zones);
        let mut high = low.clone();
        (high[0], high[1], low[2]) = (empty(&high[0]), empty(&high[1]), empty(&low[2]));
        high[2].node_stats.clone_from(&low[0].node_stats);
        high.iter_mut().for_each(|zone| zone.node = 1);
        // 754875 pages of DMA32 lie above zone DMA, and nothing above DMA32.
        low[0].protection = [&[0], &[754_875 / 256; 4][..]].concat();
        low[1].protection.fill(0);
        document.zones = [low, high].concat();
    });
    let (node, blocks) = ("Node    0, zone   Normal", "Node 0, zone   Normal");
    let types = &texts.0["pagetypeinfo.txt"];
    let (head, counts) = types.split_once("\nNumber of blocks").unwrap();
    let part = |text: &str, normal: bool| {
        let lines =
            text.lines().filter(|line| !line.contains("zone") || line.contains("Normal") == normal);
        lines.map(|line| format!("{line}\n")).collect::<String>()
    };
    let of = |normal| format!("{}\nNumber of blocks{}", part(head, normal), part(counts, normal));
    let second = of(true).replace(node, "Node    1, zone   Normal");
    let second = second.replace(blocks, "Node 1, zone   Normal");
    texts.0.insert("pagetypeinfo.txt".to_owned(), of(false) + &second);
    texts.0.remove("node0-meminfo.txt");
    // DMA kept all its 3840 pages back, now 2948 and its high watermark of 96; DMA32 no longer any
    // 950.
    let kib = |pages: u64| format!("MemAvailable:    {} kB", 3_841_780 + 4 * pages);
    replace(&mut texts, "meminfo.txt", &kib(0), &kib(3840 - 2948 - 96 + 950));
    for node in 0..2 {
        texts.0.insert(format!("node{node}-distance.txt"), "10 10\n".to_owned());
        texts.0.insert(format!("node{node}-cpulist.txt"), "0-1\n".to_owned());
    }
    for state in ["online", "has_cpu", "has_memory", "has_normal_memory"] {
        texts.0.insert(format!("sys-node-{state}.txt"), "0-1\n".to_owned());
    }
    let meta: serde_json::Value = serde_json::from_str(&texts.0["meta.json"]).unwrap();
    let mut meta = meta.as_object().unwrap().clone();
    meta.insert("guest_distances".to_owned(), vec![vec![10, 10]; 2].into());
    meta.insert("guest_node_cpus".to_owned(), serde_json::json!({"0": "0-1", "1": "0-1"}));
    let orders = ["Fallback order for Node 0: 0 1 ", "Fallback order for Node 1: 1 0 "];
    meta.insert("fallback_order".to_owned(), orders.to_vec().into());
    let meta = serde_json::to_string_pretty(&meta).unwrap();
    texts.0.insert("meta.json".to_owned(), meta);
    let case = texts.judge().unwrap();
    assert_eq!(told(&case), [""; 0]);
    let judged = |what: &str| case.judged.iter().filter(|place| place.file.contains(what)).count();
    assert!(judged("zoneinfo") > 150 && judged("sys-node") == 4, "{}", case.values);
}

/// Nodes 1 and 2 are 4 and 9, as where firmware numbers its sockets.
#[test]
fn ids_of_nodes_may_have_gaps() {
    let mut texts = Texts::default();
    let ids = |text: &str, from: &str, to: [&str; 2]| {
        let renamed = text.replace(&from.replace('#', "2"), &from.replace('#', to[1]));
        renamed.replace(&from.replace('#', "1"), &from.replace('#', to[0]))
    };
    for (name, text) in capture("6.1-n3-memless1").0 {
        let text = match name.as_str() {
            "meta.json" => ids(&text, "\"#\":", ["4", "9"]),
            name if name.starts_with("sys-node") => {
                text.replace("0-2", "0,4,9").replace("0,2", "0,9")
            }
            _ => ids(&ids(&text, "Node #", ["4", "9"]), "Node    #", ["4", "9"]),
        };
        texts.0.insert(ids(&name, "node#-", ["4", "9"]), text);
    }
    for (from, to) in [
        ("Node 0: 0 2 ", "Node 0: 0 9 "),
        ("Node 1: 1 2 0 ", "Node 4: 4 9 0 "),
        ("Node 2: 2 0 ", "Node 9: 9 0 "),
    ] {
        replace(&mut texts, "meta.json", from, to);
    }
    let case = texts.judge().unwrap();
    assert_eq!(told(&case), [""; 0]);
    assert!(case.judged.iter().any(|place| place.file == "node9-cpulist.txt"));
    assert_eq!(case.values, capture("6.1-n3-memless1").judge().unwrap().values);
}
