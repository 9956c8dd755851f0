//! `zonal verify`, for real where the system lets it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use serde_json::Value;
use zonal_replay::verify::{Arm, BLOCKS_MIN, Plan};

use crate::program::{refusal, signal, stderr};
use crate::record::{SETTINGS, can_record, settings};

const ZONAL: &str = env!("CARGO_BIN_EXE_zonal");
/// How often statistics are folded: nothing that a test needs.
const INTERVAL: &str = "/proc/sys/vm/stat_interval";

/// Another value than the one of this host.
fn other() -> (String, String) {
    let now = fs::read_to_string(INTERVAL).unwrap().trim().to_owned();
    let other = if now == "9" { "8" } else { "9" };
    (now, other.to_owned())
}

fn verify(value: &str) -> Command {
    let mut command = Command::new(ZONAL);
    command.args(["verify", "--setting", &format!("vm.stat_interval={value}")]);
    command.args(["--no-touch", "--allow-drops", "--buffer", "16", "--wait", "5m"]);
    command.args(["--recordings", "1", "--json"]);
    command
}

#[test]
fn a_setting_is_tried_and_everything_is_as_before() {
    if !can_record() {
        return;
    }
    let _alone = SETTINGS.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let seen = directory.path().join("seen");
    let registered = directory.path().join("registered.json");
    let before = settings();
    let (now, value) = other();
    // The load writes down what it runs under.
    let load = format!("cat {INTERVAL} >> {}", seen.display());
    let apply = format!("--apply={}", directory.path().display());
    let output = verify(&value)
        .args(["--seed", "7", "--no-probe", &apply, "-o"])
        .arg(&registered)
        .args(["--", "sh", "-c", &load])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(settings(), before);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["setting"], format!("vm.stat_interval={value}"));
    assert_eq!(json["now"], now);
    assert_eq!(json["verdict"], "no difference", "{json}");
    assert_eq!(json["judged_by"], "cpu", "no time was predicted to be saved");
    for read in ["read_gib_now", "read_gib"] {
        assert!(json["measured"][read]["mid"].as_f64().unwrap() >= 0.0, "{json}");
    }
    for side in [&json["predicted"], &json["measured"]] {
        let saving = &side["saving_percent_of_cpu"];
        let [low, mid, high] = ["low", "mid", "high"].map(|name| saving[name].as_f64().unwrap());
        assert!(low <= mid && mid <= high, "{side}");
        assert!(side["refill_pages"]["mid"].is_number(), "{side}");
    }
    assert_eq!(json["measured"]["runs"], serde_json::json!([10, 5]));
    let kept: Value = serde_json::from_slice(&fs::read(&registered).unwrap()).unwrap();
    assert_eq!(kept, json);
    assert!(stderr(&output).contains("nothing is written, the verdict is `no difference`"));

    // Once for nothing, once timed, recorded, in blocks of three, with the setting for nothing,
    // recorded.
    let seen = fs::read_to_string(&seen).unwrap();
    let seen: Vec<&str> = seen.lines().collect();
    assert_eq!(seen.len(), 1 + 1 + 1 + 15 + 1 + 1);
    assert_eq!(seen[..3], [now.as_str(); 3], "the first runs are as it is");
    for block in seen[3..18].chunks(3) {
        assert_eq!(block.iter().filter(|seen| **seen == value).count(), 1, "{seen:?}");
    }
    assert_eq!(seen[18..], [value.as_str(); 2], "the last recording is with the setting");
}

#[test]
fn a_setting_that_hurts_is_tried_once_and_refuted() {
    if !can_record() {
        return;
    }
    let _alone = SETTINGS.lock().unwrap_or_else(PoisonError::into_inner);
    let before = settings();
    let (now, value) = other();
    let worse: f64 = value.parse::<f64>().unwrap() / now.parse::<f64>().unwrap();
    if worse < 2.0 {
        eprintln!("SKIPPED: {INTERVAL} is {now}");
        return;
    }
    // The load's own figure is the setting itself.
    let metric = format!("cat {INTERVAL}");
    let output = verify(&value).args(["--metric-cmd", &metric, "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["verdict"], "refuted");
    assert!(json["reason"].as_str().unwrap().starts_with("it hurts: the load's own figure was"));
    assert_eq!(json["measured"]["runs"][1], 1);
    assert_eq!(settings(), before);
}

#[test]
fn each_run_is_prepared_and_what_cannot_be_prepared_is_not_compared() {
    if !can_record() {
        return;
    }
    let _alone = SETTINGS.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let seen = directory.path().join("seen");
    let before = settings();
    let (now, value) = other();
    // A file from before the run, with what it was made under, for the load to take.
    let ready = directory.path().join("ready");
    let prepare = format!("test ! -e {0} && cp {INTERVAL} {0}", ready.display());
    let load = format!("cat {0} >> {1} && rm {0}", ready.display(), seen.display());
    let run = |prepare: &str| {
        let mut command = verify(&value);
        command.args(["--no-probe", "--prepare", prepare, "--", "sh", "-c", &load]);
        command.output().unwrap()
    };
    let output = run(&prepare);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["load"], format!("sh -c {load} (before each run: {prepare})"));
    let seen = fs::read_to_string(&seen).unwrap();
    // For nothing and timed, recorded, 15 runs, and with the setting for nothing and recorded.
    assert_eq!(seen.lines().count(), 2 + 1 + 15 + 2);
    assert!(seen.lines().all(|own| own == now), "the setting is on for the load alone: {seen}");

    let output = run("exit 3");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("--prepare exit 3: ended with exit status: 3"));
    assert_eq!(settings(), before);
}

/// How long a run of the load of [`interrupted`] takes, in seconds.
const RUN_S: &str = "0.2";

/// Starts a trial whose load writes down what it runs under, sends it a signal while the setting is
/// on in run `at` of those that are timed, and waits for its end.
fn interrupted(value: &str, name: &str, at: usize, kept: &Path) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let seen = directory.path().join("seen");
    let load = format!("cat {INTERVAL} >> {}; sleep {RUN_S}", seen.display());
    let mut command = verify(value);
    command.args(["--seed", "7", "--no-probe", "-o"]).arg(kept).args(["--", "sh", "-c", &load]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(300);
    let tried = || {
        let seen = fs::read_to_string(&seen).unwrap_or_default();
        // One for nothing, one timed, one recorded.
        seen.lines().skip(3).nth(at).is_some_and(|seen| seen == value)
    };
    while !tried() {
        assert!(Instant::now() < deadline && child.try_wait().unwrap().is_none(), "never tried");
        std::thread::sleep(Duration::from_millis(2));
    }
    signal(name, &child.id().to_string());
    child.wait_with_output().unwrap()
}

#[test]
fn a_signal_gives_the_verdict_of_the_runs_that_are_done() {
    if !can_record() {
        return;
    }
    let _alone = SETTINGS.lock().unwrap_or_else(PoisonError::into_inner);
    let (before, (_, value)) = (settings(), other());
    let directory = tempfile::tempdir().unwrap();
    let kept = directory.path().join("kept.json");
    let plan = Plan::new(BLOCKS_MIN, 7);
    let arms = plan.runs().enumerate().filter(|(_, arm)| *arm == Arm::Tried);
    let tried: Vec<usize> = arms.map(|(at, _)| at).collect();
    for (name, number, at) in [("-INT", 2, tried[2]), ("-TERM", 15, tried[0])] {
        let output = interrupted(&value, name, at, &kept);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(128 + number), "{said}");
        assert_eq!(settings(), before);
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        let early = serde_json::json!({
            "signal": number, "runs": at, "runs_planned": 15, "blocks": at / 3, "blocks_planned": 5,
        });
        assert_eq!(json["interrupted"], early);
        // Two blocks of short runs may differ by a tick each, by chance.
        assert_eq!(json["verdict"] == "not known", at < 6, "{json}");
        assert!(json["reason"].is_string() && json["stopped"].is_null(), "{json}");
        let done: Value = serde_json::from_slice(&fs::read(&kept).unwrap()).unwrap();
        assert_eq!(done, json, "the prediction has the result over it");
    }
}

#[test]
fn a_signal_puts_the_setting_back() {
    if !can_record() {
        return;
    }
    let _alone = SETTINGS.lock().unwrap_or_else(PoisonError::into_inner);
    let before = settings();
    let (_, value) = other();
    let mut child = verify(&value)
        .args(["--", "sleep", "0.2"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(300);
    while fs::read_to_string(INTERVAL).unwrap().trim() != value {
        assert!(Instant::now() < deadline && child.try_wait().unwrap().is_none(), "never tried");
        std::thread::sleep(Duration::from_millis(2));
    }
    signal("-TERM", &child.id().to_string());
    let output = child.wait_with_output().unwrap();
    assert_eq!(settings(), before);
    // The value is written once before anything runs: the signal may come then.
    assert_eq!(output.status.code(), Some(128 + 15), "{}", stderr(&output));
}

#[test]
fn a_signal_while_it_waits_or_records_ends_it_soon_and_leaves_nothing() {
    if !can_record() {
        return;
    }
    let _alone = SETTINGS.lock().unwrap_or_else(PoisonError::into_inner);
    let before = settings();
    let (_, value) = other();
    let (directory, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (begun, kept) = (directory.path().join("begun"), directory.path().join("kept.json"));
    // It says when it is recorded: the first run is for nothing, the second is timed.
    let load = format!("echo >> {}; exec sleep 1000", begun.display());
    let runs = format!("cat {} 2>/dev/null | wc -l", begun.display());
    let load = format!("test $({runs}) -ge 2 || {{ echo >> {}; exit; }}; {load}", begun.display());
    let mut command = verify(&value);
    command.env("TMPDIR", scratch.path()).arg("-o").arg(&kept);
    let mut child = command.args(["--", "sh", "-c", &load]).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(300);
    let lines = || fs::read_to_string(&begun).unwrap_or_default().lines().count();
    while lines() < 3 {
        assert!(Instant::now() < deadline && child.try_wait().unwrap().is_none(), "never begun");
        std::thread::sleep(Duration::from_millis(2));
    }
    signal("-TERM", &child.id().to_string());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(128 + 15));
    let said = stderr(&output);
    assert!(said.contains("interrupted: everything is put back"), "{said}");
    assert!(!said.contains("ring pages are kept"), "they are gone with the trial: {said}");
    assert!(!kept.exists(), "nothing was predicted");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "nothing is left behind");
    assert_eq!(settings(), before);
}

#[test]
fn a_result_that_cannot_be_printed_is_kept() {
    if !can_record() {
        return;
    }
    let _alone = SETTINGS.lock().unwrap_or_else(PoisonError::into_inner);
    let (_, value) = other();
    let directory = tempfile::tempdir().unwrap();
    let kept = directory.path().join("kept.json");
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = verify(&value);
    command.args(["--no-probe", "-o"]).arg(&kept).args(["--", "true"]);
    let output = command.stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let said = stderr(&output);
    assert!(said.contains("standard output cannot be written"), "{said}");
    assert!(said.contains("runs that are the same"), "the result, too: {said}");
    let kept: Value = serde_json::from_slice(&fs::read(&kept).unwrap()).unwrap();
    assert!(kept["verdict"].is_string(), "{kept}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn what_cannot_be_tried_is_refused_before_anything_changes() {
    let refused = |setting: &str, rest: &[&str]| {
        refusal(&[&["verify", "--setting", setting][..], rest].concat())
    };
    assert!(refused("vm.swappiness=1", &["--", "true"]).contains("the model follows vm."));
    assert!(refused("vm.numa_stat", &["--", "true"]).contains("expected vm.NAME=VALUE"));
    assert!(refused("vm.numa_stat=0", &[]).contains("--duration"));
    let range = refused("vm.percpu_pagelist_high_fraction=7", &["--", "true"]);
    assert!(range.contains("cannot be 7: accepted are 0, and 8 to 2147483647"), "{range}");
    let missing = refused("vm.stat_interval=9", &["--", "no-such-program"]);
    assert!(missing.contains("cannot run no-such-program"), "{missing}");
    let time = refused("vm.stat_interval=9", &["--by", "time", "--duration", "2s"]);
    assert!(time.contains("--by time: expected a command that ends by itself"), "{time}");
    let folder = tempfile::tempdir().unwrap();
    let apply = format!("--apply={}", folder.path().display());
    fs::write(folder.path().join("90-zonal-stat_interval.conf"), "own").unwrap();
    let there = refused("vm.stat_interval=9", &[&apply, "--", "true"]);
    assert!(there.contains("stat_interval.conf is there already"), "{there}");
    let nowhere = refused("vm.stat_interval=9", &["--apply=/nowhere", "--", "true"]);
    assert!(nowhere.contains("there is no folder /nowhere"), "{nowhere}");
    let both = ["--by", "time", "--metric-cmd", "cat", "--", "true"];
    assert!(refused("vm.stat_interval=9", &both).contains("cannot be used with"));
    let few = refused("vm.stat_interval=9", &["--blocks", "4", "--", "true"]);
    assert!(few.contains("expected a number from 5"), "{few}");
    if fs::read_to_string(INTERVAL).is_ok() {
        let (now, _) = other();
        let same = refused(&format!("vm.stat_interval={now}"), &["--no-probe", "--", "true"]);
        assert!(same.contains("already: there is nothing to try"), "{same}");
    }
}
