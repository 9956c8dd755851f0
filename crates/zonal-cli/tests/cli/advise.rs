//! `zonal advise`, the real program.

use std::process::Command;

use serde_json::Value;

use crate::program::{json, passed, refusal, stdout};

const ZONAL: &str = env!("CARGO_BIN_EXE_zonal");

const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../zonal-trace/samples/zlib-make-j4");

#[test]
fn the_first_row_is_the_replay_and_the_others_are_in_order() {
    let limit = ["--limit", "40000", "--json"];
    let only =
        ["--only", "percpu_pagelist_high_fraction", "--only", "4 times", "--only", "linux-5.4"];
    let advice = json(&[&["advise", SAMPLE][..], &limit, &only].concat());
    let policy = ["replay", SAMPLE, "--memory", "none", "--policy", "linux-6.18"];
    let replay = json(&[&policy[..], &limit].concat());
    assert_eq!(advice["policy"], "linux-6.18");
    assert_eq!(advice["modelled"], true);
    let recorded = &advice["recorded"];
    assert_eq!(recorded["lock_holds"], replay["locks"]["holds"]);
    assert_eq!(recorded["refills"], replay["model"]["refill_holds"]);
    assert_eq!(recorded["refill_pages"], replay["model"]["refill_pages"]);
    assert_eq!(recorded["drain_pages"], replay["model"]["drain_pages"]);

    let rows = advice["changes"].as_array().unwrap();
    let wait = |row: &serde_json::Value| row["wait_us_per_s"].as_f64().unwrap();
    assert!(rows.iter().all(|row| row["refused"] == 0));
    let spent = |row: &serde_json::Value| wait(row) + row["work_us_per_s"].as_f64().unwrap();
    assert!(rows.is_sorted_by(|a, b| spent(a) <= spent(b)), "best first");
    // Settings that count the same are one row.
    let is = |row: &serde_json::Value, name: &str| {
        let same = row["same_as"].as_array().unwrap();
        row["change"] == name || same.iter().any(|other| other == name)
    };
    let row = |name: &str| rows.iter().find(|row| is(row, name)).unwrap();
    let large = row("percpu_pagelist_high_fraction 8");
    assert_eq!(large["setting"], "vm.percpu_pagelist_high_fraction=8");
    assert!(large["command"].is_null(), "what saves next to nothing is no line to type");
    let small = row("percpu_pagelist_high_fraction 512");
    let holds = |row: &serde_json::Value| row["lock_holds"].as_u64().unwrap();
    assert!(holds(large) <= holds(recorded), "larger lists need no more holds");
    assert!(holds(small) >= holds(large));
    // Few holds of a light load meet, on more CPUs too.
    assert!(spent(row("4 times the CPUs")) > spent(recorded));
    let list = |row: &serde_json::Value| row["list_pages_mean"].as_u64().unwrap();
    assert!(list(row("linux-5.4")) < list(recorded), "lists did not grow before 6.7");
    assert!(rows.iter().all(|row| row["reason"].as_str().is_some_and(|text| !text.is_empty())));
}

#[test]
fn the_verdict_comes_first_and_a_light_load_needs_no_change() {
    let only = ["--only", "percpu_pagelist_high_fraction", "--only", "numa_stat"];
    let advice = json(&[&["advise", SAMPLE, "--json"][..], &only].concat());
    assert_eq!(advice["verdict"], "change nothing");
    let cost = advice["cost_percent_of_cpu"].as_f64().unwrap();
    assert!(cost > 0.0 && cost < 0.5, "{cost}");
    assert!(advice["reason"].as_str().unwrap().contains("% of a CPU here, at most"));
    assert!(advice["model_error_percent"]["refill_pages"].as_f64().unwrap().abs() < 10.0);
    for row in advice["changes"].as_array().unwrap() {
        let saving = &row["saving_percent_of_cpu"];
        let [low, mid, high] = ["low", "mid", "high"].map(|name| saving[name].as_f64().unwrap());
        assert!(low <= mid && mid <= high && mid <= cost, "{row}");
        assert!(row["is_worse"] == false || row["command"].is_null(), "{row}");
        assert!(row["same_as"].is_array() && row["memory_mib_worst"].is_number(), "{row}");
    }
    let text =
        Command::new(ZONAL).args(["advise", SAMPLE, "--only", "numa_stat"]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.starts_with("change nothing: the allocator's waits and refills cost"), "{text}");
    assert!(!text.contains("sysctl vm."), "no line to type where nothing is gained: {text}");
}

#[test]
fn a_verdict_that_is_rather_of_others_says_so_beside_it() {
    let place = tempfile::tempdir().unwrap();
    let events = place.path().join("part.txt");
    let events = events.to_str().unwrap();
    passed(&["trace", "cut", SAMPLE, events, "--to", "+2"]);
    let second_line = |command: &str| {
        let machine = place.path().join(command);
        std::fs::create_dir(&machine).unwrap();
        for name in ["buddyinfo.pre", "pagetypeinfo.pre", "zoneinfo.pre"] {
            std::fs::copy(format!("{SAMPLE}/{name}"), machine.join(name)).unwrap();
        }
        let meta = std::fs::read_to_string(format!("{SAMPLE}/meta.json")).unwrap();
        let meta = meta.replacen('{', &format!("{{\"command_pid\": {command},"), 1);
        std::fs::write(machine.join("meta.json"), meta).unwrap();
        let machine = machine.to_str().unwrap();
        let only = ["--only", "numa_stat"];
        let text = stdout(&[&["advise", events, "--machine", machine][..], &only].concat());
        text.lines().nth(1).unwrap().to_owned()
    };
    // The recorded command, and a process that its recorder forked before.
    let (own, other) = (second_line("17350"), second_line("17348"));
    assert!(own.starts_with("model against the kernel on this recording"), "{own}");
    let (share, rest) = other.split_once(" % of the allocated pages are of others").unwrap();
    assert!((50.0..=100.0).contains(&share.parse::<f64>().unwrap()), "{other}");
    assert!(rest.ends_with("this says more of them than of it"), "{other}");
}

#[test]
fn time_in_which_the_clock_jumped_is_told_and_is_in_no_share() {
    let place = tempfile::tempdir().unwrap();
    let file = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let (plain, jumped) = (file("plain.txt"), file("jumped.txt"));
    passed(&["trace", "cut", SAMPLE, &plain, "--to", "+2"]);
    let text = std::fs::read_to_string(&plain).unwrap();
    let half = text.lines().count() / 2;
    let hour_later = |(at, line): (usize, &str)| match line.split_once(' ') {
        Some((time, rest)) if at > half => {
            format!("{} {rest}\n", time.parse::<u64>().unwrap() + 3_600_000_000_000)
        }
        _ => format!("{line}\n"),
    };
    std::fs::write(&jumped, text.lines().enumerate().map(hour_later).collect::<String>()).unwrap();
    let advice = |trace: &str| {
        json(&["advise", trace, "--machine", SAMPLE, "--json", "--only", "numa_stat"])
    };
    let (plain, advice) = (advice(&plain), advice(&jumped));
    let number = |of: &Value, name: &str| of[name].as_f64().unwrap();
    for name in ["seconds", "cost_percent_of_cpu"] {
        let (one, other) = (number(&plain, name), number(&advice, name));
        assert!(one > 0.0 && (other / one - 1.0).abs() < 0.05, "{name}: {one}, {other}");
    }
    let has_note = |of: &Value| of["notes"].to_string().contains("no event of any CPU from");
    assert!(has_note(&advice) && !has_note(&plain), "{}", advice["notes"]);
    let replay = ["replay", &jumped, "--machine", SAMPLE, "--memory", "none", "--json"];
    assert!(has_note(&json(&replay)));
}

/// A recording made under other settings, where it lies beside the sources.
fn with_reclaim(name: &str) -> Option<String> {
    let traces = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces/6.18-settings");
    let trace = format!("{traces}/{name}.zonal");
    let is_there = std::path::Path::new(&trace).is_file();
    if !is_there {
        eprintln!("SKIPPED: {trace} is not there");
    }
    is_there.then_some(trace)
}

#[test]
fn reclaim_is_judged_where_the_model_follows_it() {
    for name in ["cat-f8-2", "cat-wsf200-2"] {
        let Some(trace) = with_reclaim(name) else { return };
        let replay = ["replay", &trace, "--memory", "none", "--policy", "linux-6.18", "--json"];
        let report = json(&replay);
        let judged = report["reclaim_judged"].as_array().unwrap();
        let seconds = |stretch: &serde_json::Value| {
            stretch["to_s"].as_f64().unwrap() - stretch["from_s"].as_f64().unwrap()
        };
        let share: f64 = judged.iter().map(seconds).sum::<f64>()
            / report["trace"]["replayed_seconds"].as_f64().unwrap();
        assert!(share > 0.4, "{name}: reclaim runs half of the time, judged {share}");
        for stretch in judged.iter().filter(|stretch| stretch["is_near"] == true) {
            let off = |which: &str| stretch[which].as_f64().unwrap_or(0.0).abs();
            assert!(off("refill_percent") <= 5.0 && off("drain_percent") <= 8.0, "{stretch}");
        }
        let off = |which: &str| report["error_percent"][which].as_f64().unwrap().abs();
        assert!(off("refill_pages") <= 5.0 && off("drain_pages") <= 8.0, "{name}");
    }
}

#[test]
fn where_the_model_does_not_follow_reclaim_neither_a_verdict_nor_pass_is_given() {
    let Some(trace) = with_reclaim("cat-wsf200-2") else { return };
    // Lists of other sizes than the kernel had.
    let other = ["--set", "pcp.high_fraction=4096"];
    let replay = ["replay", &trace, "--memory", "none", "--policy", "linux-6.18"];
    let text = Command::new(ZONAL).args(replay).args(other).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("PASS, outside of what is not judged"), "{text}");
    assert!(text.contains("reclaim: background"), "{text}");
}

/// A recording made under another setting, where it lies beside the sources.
#[test]
fn a_replay_has_the_recorded_settings_and_set_wins() {
    let traces = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces/6.18-settings");
    let trace = format!("{traces}/dd-f64-2.zonal");
    if !std::path::Path::new(&trace).is_file() {
        eprintln!("SKIPPED: {trace} is not there");
        return;
    }
    let replay = ["replay", &trace, "--memory", "none", "--policy", "linux-6.18", "--json"];
    let as_recorded = json(&replay);
    let error = as_recorded["error_percent"]["refill_pages"].as_f64().unwrap();
    assert!(error.abs() < 5.0, "{error}");
    assert_eq!(as_recorded["not_judged"], serde_json::json!([]));
    let by_hand = json(&[&replay[..], &["--set", "pcp.high_fraction=64"]].concat());
    assert_eq!(by_hand["model"], as_recorded["model"]);
    let other = json(&[&replay[..], &["--set", "pcp.high_fraction=512"]].concat());
    assert_ne!(other["model"], as_recorded["model"], "what was asked for wins");
}

#[test]
fn a_selection_that_matches_nothing_is_refused_with_what_there_is() {
    for only in [&["--only", "nonsense"][..], &["--only", "numa_stat", "--only", "nonsense"]] {
        let message = refusal(&[&["advise", SAMPLE, "--limit", "1000"][..], only].concat());
        assert!(message.contains("no change begins with 'nonsense'"), "{message}");
        assert!(message.contains("percpu_pagelist_high_fraction 8"), "{message}");
        assert!(message.contains("4 times the CPUs, linux-5.4"), "{message}");
    }
    assert!(refusal(&["advise", SAMPLE, "--only", ""]).contains("--only"));
}

#[test]
fn several_recordings_of_one_load_are_one_advice() {
    let few = ["--limit", "30000", "--only", "numa_stat"];
    let one = json(&[&["advise", SAMPLE, "--json"][..], &few].concat());
    let both = json(&[&["advise", SAMPLE, SAMPLE, "--json"][..], &few].concat());
    assert_eq!(both["recordings"].as_array().unwrap().len(), 2);
    for same in ["verdict", "cost_percent_of_cpu", "model_error_percent"] {
        assert_eq!(both[same], one[same], "{same}");
    }
    let text = Command::new(ZONAL).args(["advise", SAMPLE, SAMPLE]).args(few).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("2 recordings: medians below"), "{text}");
    assert!(text.contains("    waits for zone locks: "), "each has its own: {text}");
    assert!(text.contains("recordings 1 (zlib-make-j4) and 2 (zlib-make-j4) are the same"));
    assert!(both["wait_check"].is_null() && both["recordings"][1]["wait_check"].is_object());
    assert_eq!(both["allocs"], one["allocs"]);
}

#[test]
fn recordings_of_other_machines_are_refused_with_what_differs() {
    let directory = tempfile::tempdir().unwrap();
    let other = directory.path().join("four.zonal");
    let other = other.to_str().unwrap();
    let scaled = ["trace", "scale", SAMPLE, other, "--copies", "2", "--level", "1"];
    assert!(Command::new(ZONAL).args(scaled).output().unwrap().status.success());
    let message = refusal(&["advise", SAMPLE, other, "--only", "numa_stat"]);
    assert!(message.contains("do not fit together: number of CPUs 2 in the first"), "{message}");
}

#[test]
fn without_a_file_the_bundled_recording_is_advised_on() {
    let few = ["--limit", "1000", "--only", "numa_stat", "--json"];
    let bundled = json(&[&["advise"][..], &few].concat());
    assert_eq!(bundled["trace"], "zlib-make-j4");
    assert_eq!(bundled, json(&[&["advise", SAMPLE][..], &few].concat()));
    assert!(refusal(&["advise", "--machine", "."]).contains("TRACE"));
}

#[test]
fn a_trace_without_a_machine_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("events.txt");
    std::fs::write(&path, "# time_ns cpu pid event\n1 0 2 free 5 0\n").unwrap();
    assert!(refusal(&["advise", path.to_str().unwrap()]).contains("zoneinfo"));
}
