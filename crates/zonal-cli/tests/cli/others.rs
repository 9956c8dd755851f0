//! What the program prints, read by parsers that others wrote: the crates `procfs-core` and
//! `openmetrics-parser`, `jc` and `prometheus_client` of Python, and the one-liners that
//! administrators use.
//!
//! The Python ones are looked for in the folder that the variable `ZONAL_PYTHON_BIN` names, then in
//! `PATH`; without them their tests say `SKIPPED`.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use assert_cmd::Command;
use procfs_core::{FromBufRead, VmStat};
use serde_json::Value;
use zonal_text::{Layout, buddyinfo, pagetypeinfo, vmstat, zoneinfo};

use crate::program::stdout;
use crate::two_nodes;

/// Where a program is, if running it with `check` succeeds; loudly not, otherwise.
fn installed(program: &str, check: &[&str]) -> Option<PathBuf> {
    let bin = std::env::var_os("ZONAL_PYTHON_BIN").map(|bin| PathBuf::from(bin).join(program));
    let path = bin.filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from(program));
    let mut command = std::process::Command::new(&path);
    command.args(check).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if command.status().is_ok_and(|status| status.success()) {
        return Some(path);
    }
    eprintln!("SKIPPED: `{program} {}` does not work on this machine", check.join(" "));
    None
}

/// What a program makes of `input`.
fn other(program: &Path, args: &[&str], input: &str) -> String {
    let output = Command::new(program).args(args).write_stdin(input).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn jc(text: &str, input: &str) -> Option<Value> {
    let output = other(&installed("jc", &["--version"])?, &[&format!("--proc-{text}")], input);
    Some(serde_json::from_str(&output).unwrap())
}

#[test]
fn procfs_reads_vmstat() {
    let directory = two_nodes::busy();
    let trace = directory.path().to_str().unwrap();
    for layout in Layout::ALL {
        let text = stdout(&["vmstat", trace, "--layout", layout.release()]);
        let theirs = VmStat::from_buf_read(text.as_bytes()).unwrap().0;
        let ours = vmstat::parse(&text).unwrap();
        assert_eq!(theirs.len(), ours.stats.len());
        assert_eq!(theirs["nr_free_pages"] as u64, ours.value("nr_free_pages").unwrap());
    }
}

#[test]
fn openmetrics_parser_reads_the_metrics() {
    let directory = two_nodes::busy();
    let trace = directory.path().to_str().unwrap();
    let text = stdout(&["vmstat", trace, "--openmetrics"]);
    let metrics = openmetrics_parser::openmetrics::parse_openmetrics(&text)
        .unwrap_or_else(|error| panic!("{error}"));
    let free = &metrics.families["zonal_zone_nr_free_pages"];
    let sum: f64 = free
        .iter_samples()
        .map(|sample| match &sample.value {
            openmetrics_parser::OpenMetricsValue::Gauge(value) => value.as_f64(),
            other => panic!("{other:?}"),
        })
        .sum();
    let vmstat = vmstat::parse(&stdout(&["vmstat", trace])).unwrap();
    assert_eq!(sum as u64, vmstat.value("nr_free_pages").unwrap());
    assert!(metrics.families.contains_key("zonal_pgfree"));
    assert!(metrics.families.contains_key("zonal_pageset_high_max"));
}

#[test]
fn prometheus_client_reads_the_metrics() {
    let directory = two_nodes::busy();
    let trace = directory.path().to_str().unwrap();
    let script = "
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
for family in text_string_to_metric_families(sys.stdin.read()):
    print(family.name, family.type, len(family.samples))
";
    let check = ["-c", "import prometheus_client.openmetrics.parser"];
    let Some(python) = installed("python3", &check) else { return };
    let text = stdout(&["vmstat", trace, "--openmetrics"]);
    let families = other(&python, &["-c", script], &text);
    let populated = zoneinfo::parse(&stdout(&["zoneinfo", trace])).unwrap().zones;
    let populated = populated.iter().filter(|zone| zone.is_populated()).count();
    for line in [
        format!("zonal_numa_hit counter {populated}"),
        format!("zonal_zone_lock_contended counter {populated}"),
        format!("zonal_zone_free_blocks gauge {}", populated * 11),
        "zonal_pgfree counter 1".to_owned(),
    ] {
        assert!(families.lines().any(|found| found == line), "{line} is missing in:\n{families}");
    }
}

#[test]
fn jc_reads_zoneinfo() {
    let directory = two_nodes::busy();
    let trace = directory.path().to_str().unwrap();
    for layout in Layout::ALL {
        let text = stdout(&["zoneinfo", trace, "--layout", layout.release()]);
        let Some(theirs) = jc("zoneinfo", &text) else { return };
        let ours = zoneinfo::parse(&text).unwrap();
        for zone in ours.zones.iter().filter(|zone| zone.is_populated()) {
            let node = theirs.as_array().unwrap().iter().find(|node| node["node"] == zone.node);
            let theirs = &node.unwrap()[&zone.name];
            for stat in zone.pages.iter().chain(&zone.items) {
                assert_eq!(theirs["pages"][&stat.name], stat.value, "{layout} {}", stat.name);
            }
            let protection: Vec<Value> = zone.protection.iter().map(|p| (*p).into()).collect();
            assert_eq!(theirs["pages"]["protection"], Value::Array(protection));
            for (index, set) in zone.pagesets.iter().flatten().enumerate() {
                let theirs = &theirs["pagesets"][index];
                for stat in &set.fields {
                    assert_eq!(theirs[&stat.name], stat.value, "{layout} {}", stat.name);
                }
                assert_eq!(theirs["vm stats threshold"], set.stat_threshold.unwrap());
            }
        }
    }
}

#[test]
fn jc_reads_buddyinfo_and_pagetypeinfo() {
    let directory = two_nodes::busy();
    let trace = directory.path().to_str().unwrap();
    let text = stdout(&["buddyinfo", trace]);
    let Some(theirs) = jc("buddyinfo", &text) else { return };
    for (index, zone) in buddyinfo::parse(&text).unwrap().zones.iter().enumerate() {
        let row = &theirs[index];
        assert_eq!((&row["node"], &row["zone"]), (&zone.node.into(), &zone.zone[..].into()));
        assert_eq!(row["free_chunks"], Value::from(zone.free_blocks.clone()));
    }
    let text = stdout(&["pagetypeinfo", trace, "--policy", "linux-6.12"]);
    // jc reads one node; a kernel prints one part per node.
    let (second, _) = text.rmatch_indices("Page block order").next().unwrap();
    let one = &text[..second];
    let Some(theirs) = jc("pagetypeinfo", one) else { return };
    let ours = &pagetypeinfo::parse(one).unwrap().nodes[0];
    assert_eq!(theirs["pages_per_block"], ours.pages_per_block);
    for (index, row) in ours.free.iter().enumerate() {
        let theirs = &theirs["free_pages"][index];
        assert_eq!(theirs["type"], row.migratetype[..]);
        let blocks: Vec<u64> = row.counts.iter().map(|count| count.blocks).collect();
        assert_eq!(theirs["free"], Value::from(blocks));
    }
}

#[test]
fn jc_reads_vmstat() {
    let directory = two_nodes::busy();
    let trace = directory.path().to_str().unwrap();
    for layout in Layout::ALL {
        let text = stdout(&["vmstat", trace, "--layout", layout.release()]);
        let Some(theirs) = jc("vmstat", &text) else { return };
        for stat in &vmstat::parse(&text).unwrap().stats {
            assert_eq!(theirs[&stat.name], stat.value, "{layout} {}", stat.name);
        }
    }
}

/// One-liners from administrators' handbooks.
#[test]
fn awk_reads_what_administrators_read() {
    let directory = two_nodes::busy();
    let trace = directory.path().to_str().unwrap();
    let vmstat = vmstat::parse(&stdout(&["vmstat", trace])).unwrap();
    let free = vmstat.value("nr_free_pages").unwrap();

    let pages = "{ for (i = 5; i <= NF; i++) sum += $i * 2 ^ (i - 5) } END { print sum }";
    let Some(sum) = awk(pages, &stdout(&["buddyinfo", trace])) else { return };
    assert_eq!(sum.trim(), free.to_string());

    let high = "/^Node/ { zone = $2 $4 } /pages free/ { free = $3 }
        $1 == \"high\" { print zone, free, $2 }";
    let zoneinfo = stdout(&["zoneinfo", trace]);
    let lines = awk(high, &zoneinfo).unwrap();
    let ours: Vec<String> = zoneinfo::parse(&zoneinfo)
        .unwrap()
        .zones
        .iter()
        .map(|zone| {
            let pages = |name| zone.page_count(name).unwrap();
            format!("{},{} {} {}", zone.node, zone.name, pages("free"), pages("high"))
        })
        .collect();
    assert_eq!(lines.lines().collect::<Vec<_>>(), ours);

    let total = "$3 == \"MemTotal:\" && $5 == \"kB\" { sum += $4 } END { print sum }";
    let managed = "$1 == \"managed\" { sum += $2 } END { print sum * 4 }";
    let memory = awk(total, &stdout(&["meminfo", trace])).unwrap();
    assert_eq!(memory, awk(managed, &zoneinfo).unwrap());

    let hits = "$1 == \"numa_hit\" { for (i = 2; i <= NF; i++) sum += $i } END { print sum }";
    let table = awk(hits, &stdout(&["numastat", trace])).unwrap();
    assert_eq!(table.trim(), vmstat.value("numa_hit").unwrap().to_string());
}

fn awk(program: &str, input: &str) -> Option<String> {
    Some(other(&installed("awk", &["BEGIN {}"])?, &[program], input))
}
