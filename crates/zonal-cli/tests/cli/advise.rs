//! `zonal advise`, the real program.

use crate::program::{json, refusal};

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
    assert!(rows.is_sorted_by(|a, b| wait(a) <= wait(b)), "best first");
    let row = |name: &str| rows.iter().find(|row| row["change"] == name).unwrap();
    let large = row("percpu_pagelist_high_fraction 8");
    assert_eq!(large["command"], "sysctl vm.percpu_pagelist_high_fraction=8");
    let small = row("percpu_pagelist_high_fraction 512");
    let holds = |row: &serde_json::Value| row["lock_holds"].as_u64().unwrap();
    assert!(holds(large) <= holds(recorded), "larger lists need no more holds");
    assert!(holds(small) >= holds(large));
    assert!(wait(row("4 times the CPUs")) > wait(recorded));
    let list = |row: &serde_json::Value| row["list_pages_mean"].as_u64().unwrap();
    assert!(list(row("linux-5.4")) < list(recorded), "lists did not grow before 6.7");
    assert!(rows.iter().all(|row| row["reason"].as_str().is_some_and(|text| !text.is_empty())));
}

#[test]
fn a_selection_that_matches_nothing_is_refused_with_what_there_is() {
    for only in [&["--only", "nonsense"][..], &["--only", "numa_stat", "--only", "nonsense"]] {
        let message = refusal(&[&["advise", SAMPLE, "--limit", "1000"][..], only].concat());
        assert!(message.contains("no change begins with 'nonsense'"), "{message}");
        assert!(message.contains("percpu_pagelist_high_fraction 8"), "{message}");
        assert!(message.contains("4 times the CPUs, linux-5.4"), "{message}");
    }
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
