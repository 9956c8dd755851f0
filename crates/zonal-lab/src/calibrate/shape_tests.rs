//! Shapes of forged machines.

use std::fs;
use std::path::{Path, PathBuf};

use zonal::sys::topology::SysfsRoots;

use super::shape::Shape;

fn put(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A machine: for each CPU its package, its core's CPUs and its last cache's CPUs.
fn forged(root: &Path, cpus: &[(u32, &str, &str)], nodes: &[&str]) -> SysfsRoots {
    let (cpu, node) = (root.join("cpu"), root.join("node"));
    let last = |count: usize| format!("0-{}\n", count - 1);
    put(&cpu, "possible", &last(cpus.len()));
    put(&cpu, "online", &last(cpus.len()));
    for (id, (package, core, llc)) in cpus.iter().enumerate() {
        let leaf = |index: u32, level: u32, kind: &str, size: &str, sharers: &str| {
            let folder = format!("cpu{id}/cache/index{index}");
            put(&cpu, &format!("{folder}/level"), &level.to_string());
            put(&cpu, &format!("{folder}/type"), kind);
            put(&cpu, &format!("{folder}/size"), size);
            put(&cpu, &format!("{folder}/shared_cpu_list"), sharers);
        };
        put(&cpu, &format!("cpu{id}/topology/physical_package_id"), &package.to_string());
        put(&cpu, &format!("cpu{id}/topology/thread_siblings_list"), core);
        if !llc.is_empty() {
            leaf(0, 1, "Data\n", "48K\n", core);
            leaf(1, 1, "Instruction\n", "32K\n", core);
            leaf(2, 2, "Unified\n", "2048K\n", core);
            leaf(3, 3, "Unified\n", "16384K\n", llc);
        }
    }
    put(&node, "online", &last(nodes.len()));
    for (id, cpus) in nodes.iter().enumerate() {
        put(&node, &format!("node{id}/cpulist"), cpus);
        put(&node, &format!("node{id}/meminfo"), "Node 0 MemTotal: 4194304 kB\n");
    }
    SysfsRoots { node, cpu, meminfo: PathBuf::new() }
}

#[test]
fn sockets_threads_caches_and_nodes_are_found() {
    let root = tempfile::tempdir().unwrap();
    // Two sockets of four cores, two threads each, two cores for each last cache.
    let cpus: Vec<(u32, String, String)> = (0..16)
        .map(|cpu| {
            let core = cpu % 8;
            let (a, b) = (core / 2 * 2, core / 2 * 2 + 1);
            (core / 4, format!("{core},{}", core + 8), format!("{a}-{b},{}-{}", a + 8, b + 8))
        })
        .collect();
    let cpus: Vec<(u32, &str, &str)> =
        cpus.iter().map(|(package, core, llc)| (*package, core.as_str(), llc.as_str())).collect();
    let roots = forged(root.path(), &cpus, &["0-3,8-11", "4-7,12-15"]);
    let shape = Shape::read(&roots).unwrap();
    assert_eq!((shape.sockets, shape.cores_per_socket, shape.threads_per_core), (2, 4, 2));
    assert_eq!((shape.nodes, shape.memory_mib), (2, 4096));
    let cache = shape.cache;
    assert_eq!((cache.l1_kib, cache.l2_kib, cache.llc_kib, cache.llc_cores), (48, 2048, 16384, 2));
    assert_eq!(shape.distances, [[10, 20], [20, 10]]);
    assert_eq!(shape.notes, []);
    let last = shape.cpus.last().unwrap();
    assert_eq!((last.socket, last.core, last.llc, last.node), (1, 7, 6, 1));
}

#[test]
fn one_cpu_without_caches_is_a_machine_that_says_so() {
    let root = tempfile::tempdir().unwrap();
    let shape = Shape::read(&forged(root.path(), &[(0, "0", "")], &["0"])).unwrap();
    assert_eq!((shape.sockets, shape.cores_per_socket, shape.threads_per_core), (1, 1, 1));
    let silent: Vec<&str> = shape.notes.iter().map(|(figure, _)| *figure).collect();
    let expected = ["cache.l1_kib", "cache.l2_kib", "cache.llc_kib", "cache.llc_cores"];
    assert_eq!(silent, expected);
}

#[test]
fn what_is_not_regular_is_rounded_and_said() {
    let root = tempfile::tempdir().unwrap();
    let cpus = [(0, "0-1", "0-2"), (0, "0-1", "0-2"), (0, "2", "0-2")];
    let shape = Shape::read(&forged(root.path(), &cpus, &["0-1", "2"])).unwrap();
    assert_eq!((shape.cores_per_socket, shape.threads_per_core), (2, 2));
    assert!(shape.notes[0].1.starts_with("not regular: 3 CPUs on 2 cores"), "{:?}", shape.notes);
}
