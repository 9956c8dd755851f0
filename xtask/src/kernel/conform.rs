//! What the booted kernel printed, as a capture for `zonal conform`.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};

use super::machines::{Arch, Machine};
use super::output::Output;
use crate::tools::{cargo, target_directory};

/// Settings that the allocator starts with, in the kernel's form; `min_free_kbytes` is printed.
const SETTINGS: [(&str, &str); 7] = [
    ("vm.lowmem_reserve_ratio", "256\t256\t32\t0\t0"),
    ("vm.numa_stat", "1"),
    ("vm.percpu_pagelist_high_fraction", "0"),
    ("vm.watermark_boost_factor", "15000"),
    ("vm.watermark_scale_factor", "10"),
    ("vm.zone_reclaim_mode", "0"),
    ("thp.enabled", "[always] madvise never"),
];

/// What `zonal conform` said.
pub struct Judged {
    values: u64,
    mismatches: u64,
}

/// Writes the capture, and returns the last line of `zonal conform` about it.
pub fn judge(root: &Path, arch: Arch, machine: &Machine, output: &Output) -> Result<Judged> {
    let name = format!("{}-{}", arch.name(), machine.name.replace([' ', ','], "-"));
    let directory = target_directory(root).join("kernel/captures").join(name);
    std::fs::create_dir_all(&directory)
        .with_context(|| format!("{}: cannot be made", directory.display()))?;
    for (file, text) in texts(arch, machine.release.unwrap_or_default(), output) {
        let path = directory.join(file);
        std::fs::write(&path, text).with_context(|| format!("{}", path.display()))?;
    }
    let result = cargo(root)
        .args(["run", "--quiet", "-p", "zonal-cli", "--", "conform", "--json"])
        .arg(&directory)
        .output()
        .context("cannot start zonal conform")?;
    let text = String::from_utf8_lossy(&result.stdout);
    let report: serde_json::Value = serde_json::from_str(&text).with_context(|| {
        format!("zonal conform: {}", String::from_utf8_lossy(&result.stderr).trim())
    })?;
    let sum = |name: &str| -> u64 {
        let cases = report["cases"].as_array().into_iter().flatten();
        cases
            .map(|case| {
                case[name]
                    .as_array()
                    .map_or(case[name].as_u64().unwrap_or(0), |all| all.len() as u64)
            })
            .sum()
    };
    for mismatch in report["cases"][0]["mismatches"].as_array().into_iter().flatten() {
        println!("   {mismatch}");
    }
    Ok(Judged { values: sum("values"), mismatches: sum("mismatches") })
}

impl Judged {
    /// Whether there was something to judge, and all of it agreed.
    pub fn agrees(&self) -> bool {
        self.values > 0 && self.mismatches == 0
    }
}

impl std::fmt::Display for Judged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} values, {} mismatches", self.values, self.mismatches)
    }
}

/// The files of a capture.
fn texts(arch: Arch, release: &str, output: &Output) -> Vec<(String, String)> {
    let zoneinfo = output.text("zoneinfo");
    let mut settings = String::new();
    for value in output.all("min_free_kbytes: ") {
        let _ = writeln!(settings, "vm.min_free_kbytes={value}");
    }
    for (key, value) in SETTINGS {
        let _ = writeln!(settings, "{key}={value}");
    }
    let meta = serde_json::json!({
        "kernel_release": release,
        "uname": format!("Linux {release} {}", arch.machine()),
    });
    let mut iomem = String::new();
    for line in output.all("memory: ") {
        let mut numbers = line.split(' ').map(hexadecimal);
        let (start, end) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(1));
        let _ = writeln!(iomem, "{start:08x}-{:08x} : System RAM", end - 1);
    }
    let mut files = vec![
        ("meta.json".to_owned(), meta.to_string()),
        ("zoneinfo.txt".to_owned(), zoneinfo.clone()),
        ("recalc-zoneinfo.txt".to_owned(), zoneinfo),
        ("pagetypeinfo.txt".to_owned(), output.text("pagetypeinfo")),
        ("sysctl.txt".to_owned(), settings),
        ("iomem.txt".to_owned(), iomem),
    ];
    for line in output.all("distance: node ") {
        let (node, row) = line.split_once(' ').unwrap_or((line, ""));
        let row = row.trim_matches(['[', ']']).replace(',', "");
        files.push((format!("node{node}-distance.txt"), format!("{row}\n")));
        let end = format!(" node {node} up true");
        let cpus: Vec<&str> =
            output.all("cpu: ").filter_map(|cpu| cpu.strip_suffix(&end)).collect();
        files.push((format!("node{node}-cpulist.txt"), format!("{}\n", cpus.join(","))));
    }
    files
}

fn hexadecimal(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_has_what_the_kernel_printed() {
        let lines = "BEGIN zoneinfo\nNode 0, zone DMA\nEND zoneinfo\nmin_free_kbytes: 77\n\
            memory: 0x100000 0x200000 node 0\ndistance: node 0 [10, 21]\n\
            cpu: 0 node 0 up true\ncpu: 1 node 0 up true\ncpu: 2 node 0 up false";
        let lines = lines.lines().map(String::from).collect();
        let files = texts(Arch::X86, "6.18.0", &Output { lines, ..Output::default() });
        let text = |name: &str| {
            let file = files.iter().find(|(file, _)| file == name);
            file.map(|(_, text)| text.as_str()).unwrap_or_default()
        };
        assert_eq!(text("zoneinfo.txt"), "Node 0, zone DMA\n");
        assert!(text("sysctl.txt").starts_with("vm.min_free_kbytes=77\n"));
        assert_eq!(text("iomem.txt"), "00100000-001fffff : System RAM\n");
        assert_eq!(text("node0-distance.txt"), "10 21\n");
        assert_eq!(text("node0-cpulist.txt"), "0,1\n");
    }

    #[test]
    fn nothing_judged_is_no_agreement_and_neither_is_ten_times_a_mismatch() {
        assert!(super::Judged { values: 205, mismatches: 0 }.agrees());
        assert!(!super::Judged { values: 205, mismatches: 10 }.agrees());
        assert!(!super::Judged { values: 0, mismatches: 0 }.agrees());
    }
}
