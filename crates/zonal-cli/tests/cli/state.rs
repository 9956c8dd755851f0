//! `zonal zoneinfo` and the other texts, the real program: bytes, JSON, exit codes, bad input.

use std::path::{Path, PathBuf};

use serde_json::Value;
use zonal_text::{buddyinfo, meminfo, pagetypeinfo, vmstat, zoneinfo};

use crate::program::{command, json, refusal, refusal_of, stdout};
use crate::two_nodes;

/// Events of the bundled sample that are read.
const FEW: &str = "20000";

fn crates(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

#[test]
fn every_text_is_read_back() {
    let directory = two_nodes::busy();
    let trace = directory.path().to_str().unwrap();
    for layout in ["6.1", "6.12", "6.14", "7.0"] {
        let args = |text| [text, trace, "--layout", layout];
        let zoneinfo = stdout(&args("zoneinfo"));
        assert_eq!(zoneinfo::parse(&zoneinfo).unwrap().to_string(), zoneinfo);
        let vmstat = stdout(&args("vmstat"));
        assert_eq!(vmstat::parse(&vmstat).unwrap().to_string(), vmstat);
        let meminfo = stdout(&[&args("meminfo")[..], &["--node", "1"]].concat());
        assert_eq!(meminfo::parse(&meminfo).unwrap().to_string(), meminfo);
    }
    let buddyinfo = stdout(&["buddyinfo", trace]);
    assert_eq!(buddyinfo::parse(&buddyinfo).unwrap().to_string(), buddyinfo);
    let pagetypeinfo = stdout(&["pagetypeinfo", trace]);
    assert_eq!(pagetypeinfo::parse(&pagetypeinfo).unwrap().to_string(), pagetypeinfo);
    let numastat = stdout(&["numastat", trace, "--node", "1"]);
    assert_eq!(vmstat::parse(&numastat).unwrap().to_string(), numastat);
    let table = stdout(&["numastat", trace]);
    assert!(table.starts_with("                           node0           node1\n"), "{table}");
}

/// What the kernel computed once, the model computes too: every line of the recorded `zoneinfo`
/// that does not follow from what was allocated and freed.
#[test]
fn the_recorded_machine_has_the_recorded_marks_and_lists() {
    let recorded = crates("zonal-trace/samples/zlib-make-j4/zoneinfo.pre");
    let recorded = zoneinfo::parse(&std::fs::read_to_string(recorded).unwrap()).unwrap();
    let text = stdout(&["zoneinfo", "--limit", FEW, "--policy", "linux-6.18"]);
    let model = zoneinfo::parse(&text).unwrap();
    assert_eq!(model.layout, recorded.layout);
    assert_eq!(model.zones.len(), recorded.zones.len());
    for (ours, theirs) in model.zones.iter().zip(&recorded.zones) {
        assert_eq!((ours.node, &ours.name), (theirs.node, &theirs.name));
        let fixed = |zone: &zoneinfo::ZoneInfo| -> Vec<(String, u64)> {
            let pages = zone.pages.iter().filter(|stat| stat.name != "free");
            pages.chain(&zone.tail).map(|stat| (stat.name.clone(), stat.value)).collect()
        };
        assert_eq!(fixed(ours), fixed(theirs), "{}", ours.name);
        assert_eq!(ours.protection, theirs.protection, "{}", ours.name);
        let sizes = |zone: &zoneinfo::ZoneInfo| -> Vec<_> {
            let values = |set: &zoneinfo::PagesetInfo| {
                let values = set.values();
                (values.cpu, values.batch, values.high_min, values.high_max, set.stat_threshold)
            };
            zone.pagesets.iter().flatten().map(values).collect()
        };
        assert_eq!(sizes(ours), sizes(theirs), "{}", ours.name);
    }
}

#[test]
fn the_layout_follows_the_policy() {
    let directory = two_nodes::busy();
    let trace = directory.path().to_str().unwrap();
    let layout = |policy| {
        let zoneinfo = json(&["zoneinfo", trace, "--policy", policy, "--json"]);
        zoneinfo["layout"].as_str().map(str::to_owned)
    };
    assert_eq!(layout("linux-6.12").as_deref(), Some("6.12"));
    assert_eq!(layout("linux-6.18").as_deref(), Some("6.14"));
    assert_eq!(layout("zonal").as_deref(), Some("6.14"));
}

#[test]
fn a_kernels_file_prints_back_byte_for_byte() {
    for kernel in ["6.1-n1-1g-c1", "6.12-n2-2g-c4", "6.18-n1-1g-c1", "7.2-n3-memless1"] {
        for (text, file) in [
            ("zoneinfo", "zoneinfo.txt"),
            ("buddyinfo", "buddyinfo.txt"),
            ("pagetypeinfo", "pagetypeinfo.txt"),
            ("vmstat", "vmstat.txt"),
            ("vmstat", "vmstat-node0.txt"),
            ("numastat", "numastat-node0.txt"),
            ("meminfo", "node0-meminfo.txt"),
            ("meminfo", "meminfo.txt"),
        ] {
            let path = crates("zonal-text/tests/data").join(kernel).join(file);
            let expected = std::fs::read(&path).unwrap();
            let printed = stdout(&[text, "--of", path.to_str().unwrap()]);
            assert_eq!(printed.as_bytes(), expected, "{}", path.display());
            let mut command = command();
            let output = command.args([text, "--of", "-"]).write_stdin(&*expected).output();
            let output = output.unwrap();
            assert_eq!(output.stdout, expected, "{}", path.display());
            let json = json(&[text, "--of", path.to_str().unwrap(), "--json"]);
            assert_eq!(json["text"], text);
            assert!(json["schema_version"].is_u64() && json["policy"].is_null(), "{json}");
        }
    }
}

#[test]
fn json_has_every_value() {
    let directory = two_nodes::busy();
    let trace = directory.path().to_str().unwrap();
    let args = |text| [text, trace, "--json"];
    let zoneinfo = json(&args("zoneinfo"));
    assert_eq!(zoneinfo["policy"], "zonal");
    let zones = zoneinfo["zones"].as_array().unwrap();
    let populated = || zones.iter().filter(|zone| zone["populated"] == true);
    let sum = |of: &dyn Fn(&Value) -> &Value| -> u64 {
        populated().map(|zone| of(zone).as_u64().unwrap()).sum()
    };
    assert_eq!(zones.len(), 10);
    assert!(populated().all(|zone| zone["protection"].as_array().unwrap().len() == 5));
    assert!(populated().all(|zone| zone["pagesets"].as_array().unwrap().len() == 4));
    assert!(populated().all(|zone| zone["pagesets"][3]["high_max"].is_u64()));
    assert!(populated().all(|zone| zone["pagesets"][3]["stat_threshold"].is_u64()));
    let free = sum(&|zone| &zone["items"]["nr_free_pages"]);

    let buddyinfo = json(&args("buddyinfo"));
    let pages = |row: &Value| -> u64 {
        let blocks = row["free_blocks"].as_array().unwrap().iter().enumerate();
        blocks.map(|(order, blocks)| blocks.as_u64().unwrap() << order).sum()
    };
    assert_eq!(buddyinfo["zones"].as_array().unwrap().iter().map(pages).sum::<u64>(), free);
    let types = json(&args("pagetypeinfo"));
    let rows = types["nodes"].as_array().unwrap().iter();
    let rows = rows.flat_map(|node| node["free"].as_array().unwrap());
    assert_eq!(rows.map(pages).sum::<u64>(), free);

    // Everything was local: 200 allocations on each node, half of them freed.
    let vmstat = &json(&args("vmstat"))["counters"];
    assert_eq!(vmstat["nr_free_pages"], free);
    assert_eq!((&vmstat["numa_hit"], &vmstat["numa_local"]), (&400.into(), &400.into()));
    let allocated = vmstat["pgalloc_dma"].as_u64().unwrap()
        + vmstat["pgalloc_dma32"].as_u64().unwrap()
        + vmstat["pgalloc_normal"].as_u64().unwrap();
    assert_eq!(allocated - vmstat["pgfree"].as_u64().unwrap(), 200);
    let numastat = &json(&args("numastat"))["nodes"];
    assert_eq!(numastat[0]["counters"]["local_node"], 200);
    assert_eq!(numastat[1]["counters"]["local_node"], 200);

    let meminfo = &json(&args("meminfo"))["nodes"];
    let kib = |node: usize, name: &str| meminfo[node]["kib"][name].as_u64().unwrap();
    assert_eq!(kib(0, "MemFree") + kib(1, "MemFree"), free * 4);
    assert_eq!(kib(1, "MemTotal") - kib(1, "MemFree"), kib(1, "MemUsed"));
    assert_eq!(meminfo[0]["huge_pages"]["HugePages_Total"], 0);
}

#[test]
fn bad_input_is_named_and_exits_with_2() {
    let directory = tempfile::TempDir::new().unwrap();
    let file = directory.path().join("broken");
    std::fs::write(&file, "nr_free_pages 1\nnr_mlock x\n").unwrap();
    let path = file.to_str().unwrap();
    for (args, part) in [
        (&["vmstat", "--of", path][..], "broken: line 2: bad value: expected a decimal number"),
        (
            &["zoneinfo", "--of", path],
            "broken: line 1: unexpected line: expected `Node N, zone NAME`",
        ),
        (&["buddyinfo", "--of", "/nowhere"], "cannot read /nowhere"),
        (&["zoneinfo", "/nowhere"], "/nowhere"),
        (&["zoneinfo", "--layout", "5.4"], "expected a kernel release from 6.1 on, found `5.4`"),
        (&["numastat", "--node", "3"], "--node 3: the machine of zlib-make-j4 has nodes 0 to 0"),
        (&["zoneinfo", "--of", path, "--layout", "6.1"], "cannot be used with"),
        (&["vmstat", "--openmetrics", "--json"], "cannot be used with"),
    ] {
        let message = refusal(args);
        assert!(message.contains(part), "{args:?}: {message}");
    }
    let mut command = command();
    let output = command.args(["zoneinfo", "--of", "-"]).write_stdin(&b"\xff\n"[..]).output();
    refusal_of(&output.unwrap());
}
