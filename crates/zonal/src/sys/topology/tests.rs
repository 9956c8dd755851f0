//! Tests against forged sysfs trees, and against the values captured from real kernels.

use super::*;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// Id, cpulist, KiB of memory, distances.
type ForgedNode<'a> = (u16, &'a str, u64, &'a str);

/// A forged sysfs.
struct Tree {
    folder: TempDir,
}

impl Tree {
    /// A tree with `cpus` CPUs and nothing else.
    fn new(cpus: &str) -> Tree {
        let tree = Tree { folder: tempfile::tempdir().unwrap() };
        tree.put("cpu/possible", cpus);
        tree.put("cpu/online", cpus);
        tree.put("meminfo", "MemTotal:       1024 kB\nMemFree:  1 kB\n");
        tree
    }

    /// A tree with `cpus` CPUs and these nodes.
    fn with_nodes(cpus: &str, nodes: &[ForgedNode<'_>]) -> Tree {
        let tree = Tree::new(cpus);
        let list = |keep: &dyn Fn(&ForgedNode<'_>) -> bool| {
            let ids = nodes.iter().filter(|node| keep(node)).map(|node| node.0.to_string());
            ids.collect::<Vec<_>>().join(",")
        };
        tree.put("node/online", &list(&|_| true));
        tree.put("node/has_cpu", &list(&|node| !node.1.is_empty()));
        tree.put("node/has_memory", &list(&|node| node.2 > 0));
        for (id, cpulist, kib, distances) in nodes {
            tree.put(&format!("node/node{id}/cpulist"), cpulist);
            tree.put(&format!("node/node{id}/distance"), distances);
            let meminfo = format!("\nNode {id} MemTotal:  {kib} kB\nNode {id} MemFree: 3 kB");
            tree.put(&format!("node/node{id}/meminfo"), &meminfo);
        }
        tree
    }

    fn put(&self, path: &str, content: &str) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{content}\n")).unwrap();
    }

    fn cache(&self, cpu: u32, leaf: u32, kind: &str, size: &str, shared: &str) {
        let at = |name: &str| format!("cpu/cpu{cpu}/cache/index{leaf}/{name}");
        self.put(&at("type"), kind);
        self.put(&at("size"), size);
        self.put(&at("shared_cpu_list"), shared);
    }

    fn read(&self) -> Result<Topology, TopologyError> {
        let at = |name: &str| self.folder.path().join(name);
        let roots = SysfsRoots { node: at("node"), cpu: at("cpu"), meminfo: at("meminfo") };
        Topology::read_from(&roots)
    }

    /// The error of a tree that must not be readable; it names the file and what was expected.
    fn refused(&self, file: &str) -> String {
        let text = self.read().expect_err("must not be readable").to_string();
        assert!(text.contains(file), "names {file}: {text}");
        assert!(text.contains("expected"), "{text}");
        text
    }
}

fn cpus(ids: &[u32]) -> Vec<CpuId> {
    ids.iter().copied().map(CpuId).collect()
}

#[test]
fn lists_are_read_as_the_kernel_prints_them() {
    assert_eq!(parse_list("0-3,8,10-11\n"), Ok(vec![0, 1, 2, 3, 8, 10, 11]));
    assert_eq!(parse_list("\n"), Ok(vec![]));
    assert_eq!(parse_list("5"), Ok(vec![5]));
    assert_eq!(parse_list("4,1-2,2"), Ok(vec![1, 2, 4]));
    for wrong in ["3-1", "a", "0-", "-3", "1,,2", "0-4294967295", "70000", "0-3:1/2", "99999999999"]
    {
        assert!(parse_list(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn this_machine_is_read() {
    let topology = Topology::read().unwrap();
    assert!(topology.mem_bytes() > 0);
    assert_eq!(topology.distance(topology.nodes()[0].id, topology.nodes()[0].id), Some(10));
    for cpu in topology.cpus() {
        assert!(topology.node(cpu.node).unwrap().cpus.contains(&cpu.id));
    }
}

#[test]
fn two_nodes_are_read() {
    let nodes = [(0, "0-1", 2048, "10 21"), (1, "2-3", 4096, "21 10")];
    let tree = Tree::with_nodes("0-3", &nodes);
    let topology = tree.read().unwrap();
    assert_eq!(topology.source(), Source::Sysfs);
    assert_eq!(topology.nodes().len(), 2);
    assert_eq!(topology.nodes()[1].cpus, cpus(&[2, 3]));
    assert_eq!(topology.nodes()[1].mem_bytes, 4096 << 10);
    assert_eq!(topology.nodes()[1].bind_to, Some(NodeId(1)));
    assert_eq!(topology.distance(NodeId(0), NodeId(1)), Some(21));
    assert_eq!(topology.distance_row(NodeId(1)), Some(&[21, 10][..]));
    assert_eq!(topology.node_of_cpu(CpuId(3)), Some(NodeId(1)));
    assert_eq!(topology.node_of_cpu(CpuId(4)), None);
    assert_eq!(topology.distance(NodeId(0), NodeId(7)), None);
    assert_eq!(topology.cpu_ids_max(), 4);
}

#[test]
fn four_nodes_with_gaps_keep_their_ids() {
    let tree = Tree::with_nodes(
        "0-1,8-9",
        &[
            (0, "0", 8, "10 11 12 13"),
            (2, "1", 8, "11 10 14 15"),
            (5, "8", 8, "12 14 10 16"),
            (250, "9", 8, "13 15 16 10"),
        ],
    );
    let topology = tree.read().unwrap();
    let ids: Vec<u16> = topology.nodes().iter().map(|node| node.id.0).collect();
    assert_eq!(ids, [0, 2, 5, 250]);
    assert_eq!(topology.distance(NodeId(5), NodeId(250)), Some(16));
    assert_eq!(topology.distance(NodeId(250), NodeId(2)), Some(15));
    assert_eq!(topology.node(NodeId(1)), None);
    assert_eq!(topology.node_of_cpu(CpuId(8)), Some(NodeId(5)));
    assert_eq!(topology.cpu_ids_max(), 10);
}

#[test]
fn nodes_without_memory_or_cpus_are_kept() {
    let nodes = [(0, "0-1", 64, "10 20 20"), (1, "2-3", 0, "20 10 20"), (2, "", 64, "20 20 10")];
    let topology = Tree::with_nodes("0-3", &nodes).read().unwrap();
    let states: Vec<_> = topology.nodes().iter().map(|n| (n.has_cpu, n.has_memory)).collect();
    assert_eq!(states, [(true, true), (true, false), (false, true)]);
    assert!(topology.nodes()[2].cpus.is_empty());
    assert_eq!(topology.mem_bytes(), 128 << 10);
}

#[test]
fn without_a_node_folder_there_is_one_node_with_everything() {
    let topology = Tree::new("0-2,5").read().unwrap();
    assert_eq!(topology.source(), Source::SysfsWithoutNodes);
    assert_eq!(topology.nodes().len(), 1);
    assert_eq!(topology.nodes()[0].cpus, cpus(&[0, 1, 2, 5]));
    assert_eq!(topology.nodes()[0].mem_bytes, 1024 << 10);
    assert_eq!(topology.distance(NodeId(0), NodeId(0)), Some(10));
}

#[test]
fn offline_cpus_are_possible_but_in_no_node() {
    let tree = Tree::with_nodes("0-7", &[(0, "0-2", 8, "10")]);
    tree.put("cpu/online", "0,2");
    let topology = tree.read().unwrap();
    assert_eq!(topology.nodes()[0].cpus, cpus(&[0, 2]), "1 went offline between two reads");
    assert_eq!(topology.node_of_cpu(CpuId(1)), None);
    assert_eq!(topology.possible_cpus().len(), 8);
    assert_eq!(topology.cpu_ids_max(), 8);
}

/// As with `numa=fake`, which puts each CPU of a real node on all nodes made of it.
#[test]
fn a_cpu_that_several_nodes_list_is_the_first_ones() {
    let nodes = [(0, "0-2", 8, "10 10 20"), (1, "0-2", 8, "10 10 20"), (2, "2-3", 8, "20 20 10")];
    let topology = Tree::with_nodes("0-3", &nodes).read().unwrap();
    let of_nodes: Vec<&[CpuId]> = topology.nodes().iter().map(|node| &*node.cpus).collect();
    assert_eq!(of_nodes, [cpus(&[0, 1, 2]), cpus(&[]), cpus(&[3])]);
    let with_cpus: Vec<bool> = topology.nodes().iter().map(|node| node.has_cpu).collect();
    assert_eq!(with_cpus, [true, false, true]);
    assert_eq!(topology.node_of_cpu(CpuId(2)), Some(NodeId(0)));
    assert!(topology.nodes().iter().all(|node| node.has_memory));
}

#[test]
fn a_cpu_that_no_node_lists_goes_to_the_first() {
    let nodes = [(1, "0", 8, "10 20"), (2, "1", 8, "20 10")];
    let topology = Tree::with_nodes("0-2", &nodes).read().unwrap();
    assert_eq!(topology.node_of_cpu(CpuId(2)), Some(NodeId(1)));
    assert_eq!(topology.nodes()[0].cpus, cpus(&[0, 2]));
}

#[test]
fn missing_files_with_one_possible_answer_are_made_good() {
    let tree = Tree::with_nodes("0-1", &[(0, "0-1", 8, "10")]);
    let remove = |name: &str| fs::remove_file(tree.folder.path().join(name)).unwrap();
    for name in ["node/online", "node/has_cpu", "node/has_memory", "cpu/possible"] {
        remove(name);
        assert_eq!(tree.read().unwrap().nodes()[0].mem_bytes, 8 << 10, "{name}");
    }
    for name in ["distance", "cpulist", "meminfo"] {
        remove(&format!("node/node0/{name}"));
        assert_eq!(tree.read().unwrap().nodes()[0].cpus, cpus(&[0, 1]), "{name}");
    }
    assert_eq!(tree.read().unwrap().nodes()[0].mem_bytes, 1024 << 10, "from meminfo");
    assert_eq!(tree.read().unwrap().distance(NodeId(0), NodeId(0)), Some(10));
    remove("cpu/online");
    tree.put("node/node0/cpulist", "0-2");
    assert_eq!(tree.read().unwrap().cpus().len(), 3, "the nodes' lists count");
    remove("node/node0/cpulist");
    tree.refused("cpu/online");
}

#[test]
fn without_any_folder_there_is_one_node_with_the_cpus_of_this_thread() {
    let tree = Tree { folder: tempfile::tempdir().unwrap() };
    let topology = tree.read().unwrap();
    let allowed = crate::sys::affinity::allowed_cpus().unwrap();
    assert_eq!((topology.nodes().len(), &topology.nodes()[0].cpus), (1, &allowed));
    assert!(topology.mem_bytes() > 0, "sysinfo tells");
}

#[test]
fn garbage_is_refused_with_file_content_and_expectation() {
    let nodes = [(0, "0-1", 8, "10 20"), (1, "2-3", 8, "20 10")];
    let good = || Tree::with_nodes("0-3", &nodes);
    let cases = [
        ("node/online", "zero"),
        ("node/online", "0-70000"),
        ("node/has_cpu", "0;1"),
        ("cpu/online", "0-x"),
        ("cpu/possible", "3-0"),
        ("node/node1/cpulist", "2..3"),
        ("node/node1/distance", "20"),
        ("node/node1/distance", "20 10 20"),
        ("node/node1/distance", "20 300"),
        ("node/node1/meminfo", "Node 1 MemTotal: lots kB"),
        ("node/node1/meminfo", "Node 1 MemFree: 3 kB"),
    ];
    for (file, content) in cases {
        let tree = good();
        assert!(tree.read().is_ok());
        tree.put(file, content);
        tree.refused(file);
    }
    let tree = good();
    fs::remove_file(tree.folder.path().join("node/node1/cpulist")).unwrap();
    tree.refused("node1/cpulist");
    let tree = good();
    let binary = tree.folder.path().join("node/node1/distance");
    fs::write(binary, [0xff, 0xfe, 0x00]).unwrap();
    tree.refused("node1/distance");
}

#[test]
fn a_cpu_owns_its_share_of_the_last_cache_that_holds_data() {
    let tree = Tree::with_nodes("0-3", &[(0, "0-3", 8, "10")]);
    for cpu in 0..2 {
        tree.cache(cpu, 0, "Data", "48K", &cpu.to_string());
        tree.cache(cpu, 1, "Unified", "32768K", "0-1");
    }
    tree.cache(2, 0, "Data", "64K", "2");
    tree.cache(2, 1, "Instruction", "64K", "2");
    let topology = tree.read().unwrap();
    assert_eq!(topology.llc_slice_bytes(CpuId(1)), Some(16 << 20));
    assert_eq!(topology.cpu(CpuId(1)).unwrap().llc.as_ref().unwrap().sharers, cpus(&[0, 1]));
    assert_eq!(topology.llc_slice_bytes(CpuId(2)), None, "the last leaf holds no data (LB E.5)");
    assert_eq!(topology.llc_slice_bytes(CpuId(3)), None, "sysfs is silent");
    for (kind, size, shared, file) in [
        ("Magic", "1K", "0", "index1/type"),
        ("Data", "big", "0", "index1/size"),
        ("Data", "1K", "", "index1/shared_cpu_list"),
    ] {
        tree.cache(0, 1, kind, size, shared);
        tree.refused(file);
    }
}

#[test]
fn fakes_place_cpus_as_asked() {
    let topology = Topology::fake(2, 5);
    assert_eq!(topology.source(), Source::Fake);
    assert_eq!(topology.nodes()[0].cpus, cpus(&[0, 1, 2]));
    assert_eq!(topology.nodes()[1].cpus, cpus(&[3, 4]));
    assert_eq!(topology.distance_row(NodeId(0)), Some(&[10, 20][..]));
    assert_eq!(topology.nodes()[0].bind_to, None);
    assert_eq!(Topology::fake(0, 0).cpus().len(), 1);

    let spec = FakeSpec { nodes: 3, cpus: 4, node_bytes: 0, placement: CpuPlacement::RoundRobin };
    let topology = Topology::fake_from(&spec).unwrap();
    assert_eq!(topology.nodes()[0].cpus, cpus(&[0, 3]));
    assert!(!topology.nodes()[0].has_memory);

    let map = vec![NodeId(2), NodeId(2), NodeId(0), NodeId(0)];
    let spec = FakeSpec { placement: CpuPlacement::Map(map), ..spec };
    let topology = Topology::fake_from(&spec).unwrap();
    assert_eq!(topology.nodes()[2].cpus, cpus(&[0, 1]));
    assert!(!topology.nodes()[1].has_cpu);

    for wrong in [vec![NodeId(0)], vec![NodeId(3); 4]] {
        let spec = FakeSpec { placement: CpuPlacement::Map(wrong), ..spec.clone() };
        assert!(Topology::fake_from(&spec).unwrap_err().to_string().contains("expected one"));
    }
    assert!(Topology::fake_from(&FakeSpec { nodes: 0, ..spec }).is_err());
}

/// Tables of more would fill the machine's memory.
#[test]
fn made_up_machines_are_no_larger_than_an_allocator_takes() {
    let most = Topology::fake(u16::MAX, u32::MAX);
    assert_eq!((most.nodes().len(), most.cpus().len()), (1024, 65535));
    let placement = CpuPlacement::RoundRobin;
    let spec = FakeSpec { nodes: 3, cpus: 5, node_bytes: u64::MAX, placement };
    assert_eq!(Topology::fake_from(&spec).unwrap().mem_bytes(), u64::MAX);
    for (nodes, cpus) in [(1025, 1), (u16::MAX, 1), (1, 65536), (1, u32::MAX)] {
        let error = Topology::fake_from(&FakeSpec { nodes, cpus, ..spec.clone() }).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&format!("{nodes} nodes and {cpus} CPUs")), "{text}");
        assert!(text.contains("at most 1024 and 65535"), "{text}");
    }
}

#[test]
fn a_list_that_says_the_same_again_and_again_is_as_long_as_what_it_says() {
    let ids = parse_list(&"0-65535,".repeat(1 << 13)[..(8 << 13) - 1]).unwrap();
    assert_eq!((ids.len(), ids.capacity() < 1 << 18), (65536, true));
}

#[test]
fn a_real_machine_can_be_split() {
    let nodes = [(1, "0-3", 100, "10 17"), (4, "4-5", 0, "17 10")];
    let real = Tree::with_nodes("0-5", &nodes).read().unwrap();
    let split = real.split(2, &CpuPlacement::Contiguous).unwrap();
    let ids: Vec<u16> = split.nodes().iter().map(|node| node.id.0).collect();
    assert_eq!(ids, [0, 1, 2, 3]);
    assert_eq!(split.mem_bytes(), real.mem_bytes());
    assert_eq!(split.nodes()[0].mem_bytes, 48 << 10, "whole pages");
    assert_eq!(split.nodes()[1].mem_bytes, 52 << 10);
    assert_eq!(split.nodes()[1].cpus, cpus(&[2, 3]));
    assert_eq!(split.nodes()[3].cpus, cpus(&[5]));
    let bind: Vec<_> = split.nodes().iter().map(|node| node.bind_to.unwrap().0).collect();
    assert_eq!(bind, [1, 1, 4, 4]);
    assert_eq!(split.distance_row(NodeId(0)), Some(&[10, 17, 17, 17][..]), "a sibling at 17");
    assert_eq!(split.distance(NodeId(0), NodeId(3)), Some(17));

    let round = real.split(2, &CpuPlacement::RoundRobin).unwrap();
    assert_eq!(round.nodes()[0].cpus, cpus(&[0, 2]));
    let map = [1, 1, 1, 0, 3, 3].map(NodeId).to_vec();
    let mapped = real.split(2, &CpuPlacement::Map(map)).unwrap();
    assert_eq!(mapped.nodes()[0].cpus, cpus(&[3]));
    let across = [2, 1, 1, 0, 3, 3].map(NodeId).to_vec();
    let error = real.split(2, &CpuPlacement::Map(across)).unwrap_err().to_string();
    assert!(error.contains("cpu 0") && error.contains("node 2"), "{error}");
    assert!(real.split(0, &CpuPlacement::Contiguous).is_err());
    let alone = Tree::new("0-1").read().unwrap().split(2, &CpuPlacement::Contiguous).unwrap();
    assert_eq!(alone.distance_row(NodeId(1)), Some(&[20, 10][..]));
}

/// Forges the sysfs of a captured kernel from its folder of text files.
fn tree_of_capture(case: &Path) -> Tree {
    let text = |name: &str| fs::read_to_string(case.join(name)).unwrap_or_default();
    let tree = Tree::new("");
    for name in ["online", "has_cpu", "has_memory"] {
        tree.put(&format!("node/{name}"), text(&format!("sys-node-{name}.txt")).trim_end());
    }
    for name in ["online", "possible"] {
        tree.put(&format!("cpu/{name}"), text(&format!("sys-cpu-{name}.txt")).trim_end());
    }
    for id in parse_list(&text("sys-node-online.txt")).unwrap() {
        for name in ["cpulist", "distance", "meminfo"] {
            let content = text(&format!("node{id}-{name}.txt"));
            tree.put(&format!("node/node{id}/{name}"), &content);
        }
    }
    let mut leaf = (String::new(), 0);
    for line in text("cpucache.txt").lines() {
        let [cpu, _level, kind, size, shared] =
            line.split_whitespace().collect::<Vec<_>>().try_into().unwrap();
        leaf = if leaf.0 == cpu { (leaf.0, leaf.1 + 1) } else { (cpu.to_string(), 0) };
        let number = cpu.strip_prefix("cpu").unwrap().parse().unwrap();
        tree.cache(number, leaf.1, kind, size, shared.strip_prefix("shared=").unwrap());
    }
    tree
}

#[test]
fn captured_kernels_are_read_as_they_described_themselves() {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/conformance");
    let Ok(cases) = fs::read_dir(&captures) else { return };
    let mut read = 0;
    for case in cases.flatten().map(|entry| entry.path()) {
        let Ok(meta) = fs::read_to_string(case.join("meta.json")) else { continue };
        if !case.join("sys-node-online.txt").exists() {
            continue;
        }
        let meta: String = meta.split_whitespace().collect();
        let topology = tree_of_capture(&case).read().unwrap_or_else(|error| panic!("{error}"));
        let rows: Vec<String> = topology
            .nodes()
            .iter()
            .map(|node| format!("{:?}", topology.distance_row(node.id).unwrap()).replace(' ', ""))
            .collect();
        let distances = format!("\"guest_distances\":[{}]", rows.join(","));
        assert!(meta.contains(&distances), "{}: {distances}", case.display());
        for node in topology.nodes() {
            let list = fs::read_to_string(case.join(format!("node{}-cpulist.txt", node.id.0)));
            let ids = parse_list(&list.unwrap()).unwrap();
            assert_eq!(node.cpus, cpus(&ids), "{}", case.display());
            assert_eq!(node.has_memory, node.mem_bytes > 0, "{}", case.display());
        }
        for cpu in topology.cpus() {
            let llc =
                cpu.llc.as_ref().unwrap_or_else(|| panic!("{}: {:?}", case.display(), cpu.id));
            assert_eq!(llc.bytes, 16384 << 10, "{}", case.display());
            assert!(llc.sharers.contains(&cpu.id), "{}", case.display());
        }
        read += 1;
    }
    eprintln!("{read} captured topologies read from {}", captures.display());
}
