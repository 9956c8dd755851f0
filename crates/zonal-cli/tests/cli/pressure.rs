//! `zonal pressure`, as a program.

use std::collections::BTreeSet;

use crate::program::{json, refusal};

/// A small run of each load: every published row is there, and what was written was read back by
/// nobody but counted.
#[test]
fn each_load_reports_the_published_rows() {
    for workload in ["fsmark", "largedd", "streamwriter"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        let size = ["--pool", "16", "--data", "32", "--dir", path, "--disk-mib-s", "0"];
        let set = ["--set", "zlc=original", "--json"];
        let report = json(&[&["pressure", workload], &size[..], &set[..]].concat());
        assert_eq!(report["workload"], workload);
        let columns = report["columns"].as_array().unwrap();
        assert_eq!(columns.len(), 1);
        assert_eq!(columns[0]["zlc"], "original");
        assert_eq!(columns[0]["published_as"], "vanilla");
        let keys = |part: &str| -> BTreeSet<String> {
            columns[0][part].as_object().unwrap().keys().cloned().collect()
        };
        let (measured, published) = (keys("measured"), keys("published"));
        assert!(published.is_subset(&measured), "{workload}: {published:?}, {measured:?}");
        let figure = |name: &str| columns[0]["measured"][name].as_f64().unwrap();
        assert!(figure("pages_out") >= 32.0 * 1024.0, "{workload}: not all was written");
        let scanned = figure("direct_pages_scanned") + figure("kswapd_pages_scanned");
        assert!(scanned > 0.0, "{workload}: twice the pool, and nothing was scanned");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "files are left behind");
    }
}

/// What node reclaim answered and what the zonelist cache made of it is told, in numbers that fit.
#[test]
fn a_slowed_disk_and_the_reasons_are_in_the_report() {
    let disk = ["--disk-mib-s", "1000", "--disk-seek-us", "0", "--huge-every", "0"];
    let run = ["pressure", "fsmark", "--pool", "16", "--data", "32"];
    let report = json(&[&run[..], &disk[..], &["--set", "zlc=first_zone", "--json"]].concat());
    assert!(report["disk"].as_str().unwrap().contains("1000 MiB/s"), "{}", report["disk"]);
    let figure = |name: &str| {
        report["columns"][0]["measured"][name].as_u64().unwrap_or_else(|| {
            report["columns"][0]["measured"][name].as_f64().expect("a figure") as u64
        })
    };
    let by_node = figure("node0_reclaim_scanned") + figure("node1_reclaim_scanned");
    assert!(by_node <= figure("direct_pages_scanned"));
    let background = figure("node0_kswapd_scanned") + figure("node1_kswapd_scanned");
    assert_eq!(background, figure("kswapd_pages_scanned"));
    assert!(figure("node_reclaim_success") > 0 || by_node == 0);
    assert!(figure("zlc_passes") == 0 || figure("zlc_marks") > 0, "nothing full was passed");
    assert_eq!(figure("zlc_reconsiders"), 0, "this cache does not");
}

#[test]
fn what_cannot_be_is_refused_with_a_reason() {
    let message = refusal(&["pressure", "fsmark", "--set", "zlc=sometimes"]);
    assert!(message.contains("zlc"), "{message}");
    let message = refusal(&["pressure", "fsmark", "--dir", "/nowhere/at/all"]);
    assert!(message.contains("/nowhere/at/all"), "{message}");
}
