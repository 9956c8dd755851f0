//! Tests of the machine's description, in a file of their own for its length.

use super::*;
use crate::source::{Part, Parts};

const ZONE: &str = "\
Node 0, zone   Normal
  per-node stats
      nr_mapped    7
  pages free     100
        boost    0
        min      1
        low      2
        high     3
        spanned  400
        present  300
        managed  200
        protection: (0, 0)
      nr_free_pages 100
      numa_hit     9
  pagesets
    cpu: 0
              count: 5
              high:  6
              batch: 7
    cpu: 3
              count: 0
              high:  0
              batch: 1
  start_pfn:           1048576
";

fn read(parts: &[(&str, &str)]) -> Result<MachineDescription, TraceError> {
    let part = |(name, text): &(&str, &str)| Part::new(*name, text.as_bytes().to_vec());
    MachineDescription::read(&Parts::new("run", parts.iter().map(part).collect()), "run")
}

#[test]
fn nothing_is_described_by_no_files() {
    let machine = read(&[]).unwrap();
    assert_eq!((machine.name.as_str(), machine.cpus), ("run", None));
    assert_eq!((machine.page_size, machine.pageblock_order), (4096, 9));
    let error = machine.require_zones().unwrap_err();
    assert!(error.to_string().contains("expected one of zoneinfo.pre"), "{error}");
}

#[test]
fn zoneinfo_alone_makes_one_node() {
    let machine = read(&[("zoneinfo.pre", ZONE)]).unwrap();
    assert_eq!(machine.cpus, Some(4));
    let node = &machine.nodes[0];
    assert_eq!((node.cpus.as_slice(), node.distances.as_slice()), (&[0, 1, 2, 3][..], &[10][..]));
    assert_eq!(node.stats[0].value, 7);
    let zone = machine.zone(0, "Normal").unwrap();
    assert_eq!((zone.start_pfn, zone.spanned, zone.present), (1 << 20, 400, 300));
    assert_eq!((zone.managed, zone.free), (200, 100));
    assert_eq!((zone.min, zone.low, zone.high), (1, 2, 3));
    assert_eq!(zone.protection, [0, 0]);
    assert_eq!(zone.pagesets[0].count, 5);
    assert_eq!(zone.numa_events[0].value, 9);
    assert!(zone.is_populated());
}

#[test]
fn nodes_come_from_their_files() {
    let machine = read(&[
        ("node0-cpulist.txt", "0-1,4\n"),
        ("node0-distance.txt", "10 20\n"),
        ("node1-cpulist.txt", "\n"),
        ("node1-distance.txt", "20 10\n"),
        ("node3-cpulist.txt", "7\n"),
    ])
    .unwrap();
    assert_eq!(machine.nodes.len(), 2);
    assert_eq!(machine.nodes[0].cpus, [0, 1, 4]);
    assert!(machine.nodes[1].cpus.is_empty());
    assert_eq!(machine.nodes[1].distances, [20, 10]);
    assert_eq!(machine.cpus, Some(5));
}

#[test]
fn meta_describes_zones_and_start() {
    let pcp = r#"{"0": {"count": 5, "high": 6, "batch": 63, "high_min": 7, "high_max": 8}}"#;
    let marks = r#"{"free": 1, "min": 2, "low": 3, "high": 4, "managed": 5}"#;
    let meta = format!(
        r#"{{"uname": "Linux vm 6.18.44-fc #1 SMP x86_64", "cpus": 2, "events": 3,
            "zones_pre": [{{"node": 0, "zone": "Normal", "pcp": {pcp}, "free": 1, "min": 2,
            "low": 3, "high": 4, "spanned": 5, "present": 6, "managed": 7, "start_pfn": 8}},
            {{"node": 0, "zone": "Movable", "pcp": {{}}, "free": 1, "min": 2,
            "low": 3, "high": 4, "spanned": 5, "present": 6, "managed": 7, "start_pfn": 8}}],
            "pcp_at_start": {{"t_begin_ns": 1, "t_end_ns": 2, "pcp": {{"Normal": {pcp}}},
            "zones": {{"Movable": {marks}, "Normal": {marks}}}}}}}"#
    );
    let machine = read(&[("meta.json", &meta)]).unwrap();
    assert_eq!(machine.kernel_release.as_deref(), Some("6.18.44-fc"));
    assert_eq!((machine.cpus, machine.events), (Some(2), Some(3)));
    assert_eq!(machine.zones[0].pagesets[0].high_max, Some(8));
    let start = machine.start.unwrap();
    assert_eq!(start.t_end_ns, 2);
    let kinds: Vec<&str> = start.zones.iter().map(|zone| zone.kind.as_str()).collect();
    assert_eq!(kinds, ["Normal", "Movable"]);
    assert_eq!(start.zones[0].pagesets[0].count, 5);
}

/// A recording by a shell has no `meta.json`.
#[test]
fn the_release_is_that_of_uname_where_no_meta_tells_it() {
    let release = |files: &[(&str, &str)]| read(files).unwrap().kernel_release;
    let all = "Linux (none) 6.5.0-0.deb12.4-686-pae #1 SMP PREEMPT_DYNAMIC Debian i686 GNU/Linux\n";
    assert_eq!(release(&[("uname.txt", all)]).as_deref(), Some("6.5.0-0.deb12.4-686-pae"));
    assert_eq!(release(&[("uname.txt", "6.1.0-50-s390x\n")]).as_deref(), Some("6.1.0-50-s390x"));
    let meta = ("meta.json", r#"{"uname": "Linux vm 6.18.44 #1 SMP x86_64"}"#);
    assert_eq!(release(&[("uname.txt", all), meta]).as_deref(), Some("6.18.44"));
    assert_eq!(release(&[("uname.txt", "\n")]), None);
}

#[test]
fn a_damaged_file_is_named() {
    for (name, text, part) in [
        ("meta.json", "{", "run/meta.json: line 1: bad JSON"),
        ("zoneinfo.pre", "Node\n", "run/zoneinfo.pre: line 1: unexpected line"),
        ("buddyinfo.pre", "Node 0, zone A x\n", "run/buddyinfo.pre: line 1: bad free blocks"),
        ("pagetypeinfo.pre", "x\n", "run/pagetypeinfo.pre: line 1: unexpected line"),
        ("node0-cpulist.txt", "0-1", "run/node0-cpulist.txt: line 1: file is cut short"),
        ("node0-cpulist.txt", "1-0\n", "run/node0-cpulist.txt: line 1: bad cpu list"),
        ("node0-cpulist.txt", "0,0\n", "bad cpu list"),
        ("node0-cpulist.txt", "0-9999999999\n", "expected CPUs below 8192"),
        ("node0-distance.txt", "10 x\n", "run/node0-distance.txt: line 1: bad distance"),
        ("buddyinfo.pre", "", "run/buddyinfo.pre: file is empty"),
    ] {
        let message = read(&[(name, text)]).unwrap_err().to_string();
        assert!(message.contains(part), "{name}: {message}");
    }
}

#[test]
fn a_pageblock_of_any_order_is_told_and_none_becomes_another() {
    let order = |order: u64| {
        let text = format!(
            "Page block order: {order}\nPages per block:  8192\n\n\
             Free pages count per migrate type at order       0      1 \n\
             Node    0, zone   Normal, type    Unmovable      0      2 \n\n\
             Number of blocks type     Unmovable \nNode 0, zone   Normal            1 \n"
        );
        read(&[("pagetypeinfo.pre", &text)]).unwrap().pageblock_order
    };
    assert_eq!([9, 10, 11, 13, 300].map(order), [9, 10, 11, 13, u8::MAX]);
}

#[test]
fn several_nodes_without_a_list_of_cpus_are_refused_with_the_files_name() {
    let zones = format!("{ZONE}{}", ZONE.replace("Node 0", "Node 1"));
    let error = read(&[("zoneinfo.pre", &zones)]).unwrap().require_zones().unwrap_err();
    assert!(error.to_string().contains("expected node0-cpulist.txt"), "{error}");
    let lists = [("node0-cpulist.txt", "0,3\n"), ("zoneinfo.pre", zones.as_str())];
    assert_eq!(read(&lists).unwrap().require_zones().unwrap().len(), 2, "one node has none");
    let one_of_two = [("node0-cpulist.txt", "0\n"), ("zoneinfo.pre", zones.as_str())];
    let error = read(&one_of_two).unwrap().require_zones().unwrap_err().to_string();
    assert!(error.contains("expected node1-cpulist.txt") && error.contains("CPU 3"), "{error}");
}
