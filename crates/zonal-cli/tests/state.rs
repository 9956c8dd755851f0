//! `zonal zoneinfo` and the other texts, the real program: bytes, JSON, exit codes, bad input.

use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;
use zonal_text::{buddyinfo, meminfo, pagetypeinfo, vmstat, zoneinfo};

/// Events of the bundled sample that are read.
const FEW: &str = "20000";

/// A short recording of a small machine of two nodes, for what does not look at the numbers.
fn two_nodes() -> String {
    crates("zonal-trace/tests/data/ftrace").to_str().unwrap().to_owned()
}

fn zonal(args: &[&str], stdin: &[u8]) -> Output {
    let mut command = Command::cargo_bin("zonal").unwrap();
    command.env("NO_COLOR", "1").args(args).write_stdin(stdin).output().unwrap()
}

/// What the program prints, which must pass.
fn stdout(args: &[&str]) -> String {
    let output = zonal(args, b"");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&stdout(args)).unwrap()
}

fn crates(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

#[test]
fn every_text_is_read_back() {
    let trace: &str = &two_nodes();
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
    let layout = |policy| {
        json(&["zoneinfo", &two_nodes(), "--policy", policy, "--json"])["layout"]
            .as_str()
            .map(str::to_owned)
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
            let output = zonal(&[text, "--of", "-"], &expected);
            assert_eq!(output.stdout, expected, "{}", path.display());
            let json = json(&[text, "--of", path.to_str().unwrap(), "--json"]);
            assert_eq!(json["text"], text);
            assert!(json["schema_version"].is_u64() && json["policy"].is_null(), "{json}");
        }
    }
}

#[test]
fn json_has_every_value() {
    let args = |text| [text, "--limit", FEW, "--json"];
    let zoneinfo = json(&args("zoneinfo"));
    assert_eq!(zoneinfo["policy"], "zonal");
    assert_eq!(zoneinfo["of"], "zlib-make-j4");
    let normal = &zoneinfo["zones"][2];
    assert_eq!((&normal["zone"], &normal["populated"]), (&"Normal".into(), &true.into()));
    assert!(normal["pages"]["managed"].as_u64().unwrap() > 0);
    assert_eq!(normal["protection"].as_array().unwrap().len(), 5);
    assert!(normal["pagesets"][1]["high_max"].is_u64());
    assert!(normal["pagesets"][1]["stat_threshold"].is_u64());
    let free = normal["items"]["nr_free_pages"].as_u64().unwrap();

    let buddyinfo = json(&args("buddyinfo"));
    let blocks = buddyinfo["zones"][2]["free_blocks"].as_array().unwrap();
    let pages = blocks.iter().enumerate().map(|(order, n)| n.as_u64().unwrap() << order);
    assert_eq!(pages.sum::<u64>(), free);

    let types = &json(&args("pagetypeinfo"))["nodes"][0];
    let normal = types["free"].as_array().unwrap().iter().filter(|row| row["zone"] == "Normal");
    let pages = normal.flat_map(|row| {
        assert_eq!(row["capped"], Value::Array(Vec::new()));
        let blocks = row["free_blocks"].as_array().unwrap().iter().enumerate();
        blocks.map(|(order, n)| n.as_u64().unwrap() << order).collect::<Vec<_>>()
    });
    assert_eq!(pages.sum::<u64>(), free);

    let vmstat = &json(&args("vmstat"))["counters"];
    assert!(vmstat["pgalloc_normal"].as_u64() >= vmstat["pgfree"].as_u64());
    let numastat = &json(&args("numastat"))["nodes"][0];
    assert_eq!(numastat["counters"]["numa_hit"], vmstat["numa_hit"]);
    let meminfo = &json(&args("meminfo"))["nodes"][0];
    let kib = |name: &str| meminfo["kib"][name].as_u64().unwrap();
    assert_eq!(kib("MemTotal") - kib("MemFree"), kib("MemUsed"));
    assert_eq!(meminfo["huge_pages"]["HugePages_Total"], 0);
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
        let output = zonal(args, b"");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(part), "{args:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{args:?}");
    }
    let output = zonal(&["zoneinfo", "--of", "-"], b"\xff\n");
    assert_eq!(output.status.code(), Some(2));
}
