//! `zonal lab machines` and `zonal lab machine`, the real program.

use std::fs;
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::program::{command, json_of, refusal_of, signal, stdout_of};
use crate::record::{SETTINGS, can_record, settings};

const FRACTION: &str = "/proc/sys/vm/percpu_pagelist_high_fraction";

/// Runs the program with `data` as the place where it stores what it measured.
fn zonal(data: &Path, args: &[&str]) -> Output {
    command().env("XDG_DATA_HOME", data).args(args).output().unwrap()
}

#[test]
fn machines_are_listed_with_their_sizes() {
    let data = tempfile::tempdir().unwrap();
    let text = stdout_of(&zonal(data.path(), &["lab", "machines"]));
    let report = json_of(&zonal(data.path(), &["lab", "machines", "--json"]));
    assert_eq!(report["schema_version"], 1);
    let machines = report["machines"].as_array().unwrap();
    let cpus: Vec<u64> = machines.iter().map(|m| m["cpus"].as_u64().unwrap()).collect();
    for expected in [8, 24, 88, 128, 224, 256] {
        assert!(cpus.contains(&expected), "{cpus:?}");
    }
    for machine in machines {
        assert!(text.contains(machine["name"].as_str().unwrap()), "{text}");
    }
}

#[test]
fn a_machine_is_printed_with_the_source_of_each_figure() {
    let data = tempfile::tempdir().unwrap();
    let name = "rome-2019-256@1024/16";
    let text = stdout_of(&zonal(data.path(), &["lab", "machine", name]));
    assert!(text.starts_with("rome-2019-256@1024/16 (simulated)"), "{text}");
    let report = json_of(&zonal(data.path(), &["lab", "machine", name, "--json"]));
    assert_eq!((report["cpus"].as_u64(), report["nodes"].as_u64()), (Some(1024), Some(16)));
    let figures = report["figures"].as_array().unwrap();
    assert!(figures.len() > 25, "{figures:?}");
    for figure in figures {
        assert!(text.contains(figure["name"].as_str().unwrap()), "{text}");
        assert!(figure["source"].is_string(), "{figure}");
    }
}

#[test]
fn a_machine_of_ones_own_starts_from_a_preset_and_has_other_sizes_too() {
    let data = tempfile::tempdir().unwrap();
    let text = stdout_of(&zonal(data.path(), &["lab", "machine", "icelake-2023-128", "--toml"]));
    let file = data.path().join("mine.toml");
    fs::write(&file, text.replace("icelake-2023-128\"", "mine\"")).unwrap();
    let file = file.to_str().unwrap();
    assert!(
        stdout_of(&zonal(data.path(), &["lab", "machine", file])).starts_with("mine (simulated)")
    );
    let sized = stdout_of(&zonal(data.path(), &["lab", "machine", &format!("{file}@6"), "--toml"]));
    assert!(sized.contains("name = \"mine@6\""), "{sized}");
}

#[test]
fn machines_that_cannot_be_are_refused_with_file_and_line() {
    let data = tempfile::tempdir().unwrap();
    let text = stdout_of(&zonal(data.path(), &["lab", "machine", "xeon-2007-8", "--toml"]));
    let line = text.lines().position(|line| line.starts_with("sockets")).unwrap() + 1;
    let file = data.path().join("bad.toml");
    let path = file.to_str().unwrap().to_owned();
    let at_line = format!("bad.toml: line {line}: sockets: 0; expected 1 to 4096");
    for (from, to, expected) in [
        ("sockets = 2", "sockets = 0", at_line.as_str()),
        ("ghz =", "mhz =", "unknown field `mhz`"),
        ("ghz = 2.33", "ghz = \"fast\"", "invalid type"),
        ("[cache]", "[cache", "bad.toml: line "),
    ] {
        assert!(text.contains(from), "{text}");
        fs::write(&file, text.replacen(from, to, 1)).unwrap();
        let error = refusal_of(&zonal(data.path(), &["lab", "machine", &path]));
        assert!(error.contains(expected), "{error}");
    }
    fs::write(&file, [0xff, 0xfe]).unwrap();
    let error = refusal_of(&zonal(data.path(), &["lab", "machine", &path]));
    assert!(error.contains("bad.toml: cannot be read"), "{error}");
    for (name, expected) in [
        ("nonsense", "there are xeon-2007-8"),
        ("nowhere/m.toml", "nowhere/m.toml: cannot be read"),
        ("xeon-2007-8@many", "expected CPUS or CPUS/NODES"),
        ("this", "`zonal lab calibrate` does that"),
    ] {
        let error = refusal_of(&zonal(data.path(), &["lab", "machine", name]));
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn this_machine_is_measured_stored_and_used() {
    let data = tempfile::tempdir().unwrap();
    // Others read this machine's lists meanwhile.
    let output = zonal(data.path(), &["lab", "calibrate", "--quick", "--no-touch", "--json"]);
    let report = json_of(&output);
    assert!(report.get("prices").is_none() && !data.path().join("zonal/prices.json").exists());
    let notes = String::from_utf8(output.stderr).unwrap();
    let figures = report["figures"].as_array().unwrap();
    let figure = |name: &str| figures.iter().find(|figure| figure["name"] == name).unwrap();
    for measured in ["ghz", "line.l1", "line.l2", "line.dram", "line.locked"] {
        let source = figure(measured)["source"].as_str().unwrap();
        assert!(source.starts_with("measured: ") && source.contains("Linux "), "{source}");
    }
    for figure in figures {
        let source = figure["source"].as_str().unwrap();
        let said = notes.contains(&format!("{}: {source}", figure["name"].as_str().unwrap()));
        let sure = source.starts_with("measured") && !source.contains("others use");
        assert_eq!(sure, !said, "what was not measured is said: {notes}");
    }
    let text = stdout_of(&zonal(data.path(), &["lab", "machine", "this"]));
    assert!(text.starts_with("this (measured): "), "{text}");
    assert!(text.contains("measured by `zonal lab calibrate`"), "{text}");
    let listed = stdout_of(&zonal(data.path(), &["lab", "machines"]));
    assert!(listed.lines().any(|line| line.trim_start().starts_with("this ")), "{listed}");
    let sized = json_of(&zonal(data.path(), &["lab", "machine", "this@64", "--json"]));
    assert_eq!((sized["cpus"].as_u64(), sized["name"].as_str()), (Some(64), Some("this@64")));
}

#[test]
fn with_one_cpu_to_use_there_is_nobody_to_pass_a_line_to() {
    let data = tempfile::tempdir().unwrap();
    // The program inherits what this thread may use.
    let cpu = zonal::sys::affinity::allowed_cpus().unwrap()[0];
    let _pinned = zonal::sys::affinity::Pinned::to(cpu).unwrap();
    let args = ["lab", "calibrate", "--quick", "--no-touch", "--json"];
    let report = json_of(&zonal(data.path(), &args));
    let figures = report["figures"].as_array().unwrap();
    for name in ["line.core", "line.socket", "line.remote"] {
        let figure = figures.iter().find(|figure| figure["name"] == name).unwrap();
        let source = figure["source"].as_str().unwrap();
        assert!(source.starts_with("estimated: ") && source.contains("taken as"), "{source}");
    }
}

#[test]
fn a_place_that_cannot_be_written_is_refused_before_anything_is_measured() {
    let data = tempfile::tempdir().unwrap();
    let folder = data.path().to_str().unwrap();
    for place in ["nowhere/m.toml", folder, "/proc/m.toml"] {
        let error = refusal_of(&zonal(data.path(), &["lab", "calibrate", "--quick", "-o", place]));
        assert!(error.contains(place) && error.contains("expected a writable file"), "{error}");
    }
    assert_eq!(fs::read_dir(data.path()).unwrap().count(), 0, "nothing is left behind");
}

/// Whether the fraction is, or is not, `value` within five minutes, or before `child` ends.
fn fraction_is(value: &str, wanted: bool, mut child: Option<&mut Child>) -> bool {
    let deadline = Instant::now() + Duration::from_secs(300);
    while (fs::read_to_string(FRACTION).unwrap() == value) != wanted {
        let has_ended = child.as_mut().is_some_and(|child| child.try_wait().unwrap().is_some());
        if has_ended || Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    true
}

#[test]
fn what_a_block_takes_is_measured_and_the_setting_put_back_however_that_ends() {
    if !can_record() {
        return;
    }
    let _alone = SETTINGS.lock().unwrap_or_else(PoisonError::into_inner);
    let before = settings();
    let old = fs::read_to_string(FRACTION).unwrap();
    let data = tempfile::tempdir().unwrap();
    for (number, signal_name) in ["-INT", "-TERM", "-KILL", "-INT", "-KILL"].iter().enumerate() {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_zonal"));
        command.env("XDG_DATA_HOME", data.path()).args(["lab", "calibrate", "--quick"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        if !fraction_is(&old, false, Some(&mut child)) {
            eprintln!("SKIPPED: another recorder is at work, or the lists are too small");
            return;
        }
        // At another point of the turns each time.
        std::thread::sleep(Duration::from_millis(37 * number as u64));
        signal(signal_name, &child.id().to_string());
        child.wait().unwrap();
        assert!(fraction_is(&old, true, None), "{signal_name}: the setting was left");
        std::thread::sleep(Duration::from_millis(100));
        assert!(fraction_is(&old, true, None), "{signal_name}: somebody still works");
        assert!(!data.path().join("zonal/prices.json").exists(), "{signal_name}: half measured");
    }
    let output = zonal(data.path(), &["lab", "calibrate", "--quick", "--json"]);
    let notes = String::from_utf8_lossy(&output.stderr).into_owned();
    let report = json_of(&output);
    match report.get("prices") {
        Some(prices) => {
            let block_ps = prices["prices"]["block_ps"].as_u64().unwrap();
            assert!((1_000..1_000_000).contains(&block_ps), "a block takes {block_ps} ps");
            assert!(data.path().join("zonal/prices.json").is_file(), "{notes}");
        }
        None => assert!(notes.contains("what a block takes is not measured: "), "{notes}"),
    }
    assert_eq!(settings(), before, "{notes}");
}
