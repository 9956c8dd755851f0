//! `zonal replay`, the real program: output, exit codes, bad input.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tempfile::TempDir;

use crate::program::{json, passed, refusal, stderr, stdout, stdout_of};

/// Events of the bundled sample that most tests read.
const FEW: &str = "30000";

fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../zonal-trace/samples/zlib-make-j4")
}

/// A recording with this stream, and the sample's description without its number of events.
fn recording(stream: &str) -> TempDir {
    let directory = TempDir::new().unwrap();
    for name in ["zoneinfo.pre", "buddyinfo.pre", "pagetypeinfo.pre"] {
        fs::copy(sample().join(name), directory.path().join(name)).unwrap();
    }
    fs::write(directory.path().join("events.txt"), stream).unwrap();
    directory
}

const HEADER: &str =
    "# time_ns(CLOCK_MONOTONIC) cpu pid event pfn(hex) order [migratetype] [gfp]\n";

/// Runs a stream on no memory, which must be refused; returns what stderr says.
fn refused(stream: &str) -> String {
    let directory = recording(stream);
    let path = directory.path().to_str().unwrap();
    let message = refusal(&["replay", path, "--memory", "none"]);
    assert!(!message.contains("panicked"), "{message}");
    assert!(message.contains("events.txt"), "{message}");
    message
}

/// The fields that scripts rely on.
fn assert_fields(report: &Value) {
    for name in ["events", "allocs", "frees", "failed", "events_per_s", "schema_version"] {
        assert!(report[name].is_number(), "{name} in {report}");
    }
    assert!(report["policy"].is_string());
    for side in ["model", "kernel"] {
        for name in ["refill_pages", "refill_holds", "drain_pages", "drain_holds"] {
            assert!(report[side][name].is_u64(), "{side}.{name}");
            let error = &report["error_percent"][name];
            assert!(error.is_number() || error.is_null(), "error_percent.{name}");
        }
    }
    for name in ["judged", "same_pfn"] {
        assert!(report["placement"][name].is_u64(), "placement.{name}");
    }
    for name in ["p50_ns", "p99_ns", "p999_ns"] {
        assert!(report["latency"][name].is_u64(), "latency.{name}");
        assert!(report["latency"]["free"][name].is_u64(), "latency.free.{name}");
    }
    assert!(report["numa"]["model"].is_array());
    assert_eq!(report["faults"], Value::Array(Vec::new()));
}

#[test]
fn json_on_no_memory_has_every_field_for_every_policy() {
    for policy in ["zonal", "linux-6.18", "linux-6.12"] {
        let args = ["replay", "--memory", "none", "--json", "--limit", FEW, "--policy", policy];
        let report = json(&args);
        assert_fields(&report);
        assert_eq!(report["policy"], policy);
        assert_eq!(report["memory"], "none");
        assert_eq!(report["events"], 30_000);
        assert_eq!(report["failed"], 0);
        assert!(report["placement"]["judged"].as_u64() > Some(0));
    }
}

#[test]
fn json_on_real_memory_has_every_field_and_every_page_was_checked() {
    let report = json(&["replay", "--json", "--limit", FEW]);
    assert_fields(&report);
    assert_eq!((&report["policy"], &report["memory"]), (&"zonal".into(), &"real".into()));
    assert_eq!((&report["threads"], &report["failed"]), (&2.into(), &0.into()));
    let allocated = report["pages"]["allocated"].as_u64();
    assert_eq!(report["allocs"], report["recorded"]["allocs"]);
    assert!(report["pages"]["checked"].as_u64() >= allocated);
}

#[test]
fn the_same_trace_gives_the_same_result() {
    let run = || {
        let mut report = json(&["replay", "--memory", "none", "--json", "--limit", FEW]);
        for timed in ["events_per_s", "seconds", "latency"] {
            report[timed] = Value::Null;
        }
        report
    };
    assert_eq!(run(), run());
}

/// The whole sample, exactly Linux: what other models reach without the kernel's own decay instants
/// and pageblock types is 3 % of the refilled pages; this trace drains too few pages to judge.
#[test]
fn the_sample_under_its_own_kernel_refills_what_was_recorded() {
    let report = json(&["replay", "--memory", "none", "--json", "--policy", "linux-6.18"]);
    assert_eq!(report["events"], 520_208);
    assert_eq!(report["counted"]["old_frees"], 3058);
    let error = report["error_percent"]["refill_pages"].as_f64().unwrap();
    assert!(error.abs() <= 3.0, "{error} %");
    assert_eq!(report["start"]["managed_differs"], 0);
    assert_eq!(report["start"]["cached_pages"], 679 + 193);
}

#[test]
fn a_path_and_the_bundled_sample_are_the_same() {
    let path = sample();
    let args = ["replay", path.to_str().unwrap(), "--memory", "none", "--json", "--limit", FEW];
    let bundled = ["replay", "--memory", "none", "--json", "--limit", FEW];
    assert_eq!(json(&args)["model"], json(&bundled)["model"]);
}

#[test]
fn text_goes_to_stdout_and_notes_to_stderr() {
    let output = passed(&["replay", "--limit", FEW]);
    let text = stdout_of(&output);
    for part in ["zlib-make-j4", "events/s", "refills, pages", "numa_hit", "counted", "PASS\n"] {
        assert!(text.contains(part), "{part} is missing in: {text}");
    }
    assert!(!text.contains("note:") && !text.contains('\u{1b}'), "{text}");
    let notes = stderr(&output);
    assert!(notes.lines().all(|line| line.starts_with("zonal: note: ")), "{notes}");
}

#[test]
fn the_first_run_shows_the_kernels_policy_and_then_zonal() {
    let text = stdout(&["replay"]);
    let (own, real) = text.split_once("the same load under the policy zonal").unwrap();
    assert!(own.contains("policy linux-6.18, on no memory") && own.contains(" error %"), "{own}");
    assert!(real.contains("policy zonal, on real memory"), "{real}");
    assert!(real.contains("difference %") && !real.contains("error"), "{real}");
    assert!(real.contains("PASS means: ") && real.contains("PASS\n"), "{real}");
    assert!(text.ends_with("than it took.\n"), "{text}");
    // What scripts read is the run on real memory.
    let report = json(&["replay", "--json"]);
    assert_fields(&report);
    assert_eq!((&report["policy"], &report["memory"]), (&"zonal".into(), &"real".into()));
    let own = &report["own_policy"];
    assert_eq!((&own["policy"], &own["memory"]), (&"linux-6.18".into(), &"none".into()));
    for name in ["refill_pages", "drain_pages", "drain_holds", "drain_bursts"] {
        let error = own["error_percent"][name].as_f64().unwrap();
        assert!(error.abs() < 5.0, "{name}: {error} %");
    }
    let lists = |name: &str| own["placement"][name].as_u64().unwrap();
    assert!(lists("same_pfn") * 1000 >= lists("judged") * 999);
}

#[test]
fn numbers_of_another_policy_differ_and_are_not_wrong() {
    let few = ["replay", "--memory", "none", "--limit", "1000", "--policy"];
    let header = |policy: &str| stdout(&[&few[..], &[policy]].concat());
    assert!(header("linux-6.18").contains("   error %\n"));
    assert!(header("zonal").contains("difference %\n"));
    assert!(header("linux-6.12").contains("difference %\n"));
}

#[test]
fn one_request_is_explained_where_it_comes() {
    let none = ["replay", "--memory", "none", "--limit", FEW, "--explain"];
    let explained = &json(&[&none[..], &["7", "--json"]].concat())["explained"];
    assert_eq!(explained["number"], 7);
    let steps = explained["steps"].as_array().unwrap();
    assert!(
        steps[0].as_str().unwrap().starts_with("walk, down to the low watermark"),
        "{explained}"
    );
    assert!(steps[1].as_str().unwrap().contains("zone Normal: "), "{explained}");
    assert!(explained["outcome"].as_str().unwrap().starts_with("served from node 0"));
    let text = stdout(&[&none[..], &["7"]].concat());
    assert!(text.contains("request 7 at "), "{text}");
    for (args, says) in [
        ([&none[..], &["9999999"]].concat(), "the trace, up to where it was replayed, has"),
        (vec!["replay", "--limit", FEW, "--explain", "1"], "--explain needs --memory none"),
        ([&none[..], &["0"]].concat(), "0 is not in 1.."),
    ] {
        let message = refusal(&args);
        assert!(message.contains(says), "{message}");
    }
}

#[test]
fn nobody_reading_is_no_error() {
    let program = assert_cmd::cargo::cargo_bin("zonal");
    let mut child = std::process::Command::new(program)
        .args(["replay", "--memory", "none", "--json", "--limit", "1000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(!stderr(&output).contains("panicked"));
}

#[test]
fn a_stream_cut_inside_a_line_is_refused_with_its_line() {
    let message = refused(&format!("{HEADER}100 0 1 alloc 200000 0 1 140dca\n200 0 1 fre"));
    assert!(message.contains("line 3") && message.contains("cut short"), "{message}");
}

#[test]
fn a_cut_compressed_stream_is_refused_with_its_byte() {
    let directory = recording("");
    fs::remove_file(directory.path().join("events.txt")).unwrap();
    let bytes = fs::read(sample().join("events.txt.zst")).unwrap();
    fs::write(directory.path().join("events.txt.zst"), &bytes[..bytes.len() / 2]).unwrap();
    let message = refusal(&["replay", directory.path().to_str().unwrap()]);
    assert!(
        message.contains("events.txt.zst: byte ") && message.contains("cut short"),
        "{message}"
    );
}

#[test]
fn events_out_of_order_are_refused() {
    let message = refused(&format!("{HEADER}200 0 1 free 200000 0\n100 0 1 free 200001 0\n"));
    assert!(message.contains("line 3") && message.contains("mis-ordered"), "{message}");
}

#[test]
fn an_unknown_format_is_refused() {
    let message = refused("<html>\n");
    assert!(message.contains("unknown format") && message.contains("<html>"), "{message}");
}

#[test]
fn order_eleven_is_refused() {
    let message = refused(&format!("{HEADER}100 0 1 alloc 200000 11 1 140dca\n"));
    assert!(message.contains("line 2") && message.contains("from 0 to 10, found 11"), "{message}");
}

#[test]
fn an_empty_stream_is_refused() {
    assert!(refused("").contains("empty"));
}

#[test]
fn frames_outside_the_machine_are_counted_and_nothing_breaks() {
    let stream =
        format!("{HEADER}100 0 1 free ffffffffff 0\n200 0 1 alloc ffffffffffe 3 1 140dca\n");
    let directory = recording(&stream);
    let path = directory.path().to_str().unwrap();
    let report = json(&["replay", path, "--memory", "none", "--json"]);
    assert_eq!(report["start"]["unplaced_blocks"], 1);
    assert_eq!((&report["allocs"], &report["counted"]["skipped_frees"]), (&1.into(), &1.into()));
}

#[test]
fn a_stream_without_a_machine_runs_on_real_memory_only() {
    let stream = format!("{HEADER}100 0 1 alloc 200000 0 1 140dca\n200 0 1 free 200000 0\n");
    let directory = recording(&stream);
    for name in ["zoneinfo.pre", "buddyinfo.pre", "pagetypeinfo.pre"] {
        fs::remove_file(directory.path().join(name)).unwrap();
    }
    let path = directory.path().to_str().unwrap();
    let report = json(&["replay", path, "--json"]);
    assert_eq!((&report["allocs"], &report["frees"]), (&1.into(), &1.into()));
    let message = refusal(&["replay", path, "--memory", "none"]);
    assert!(message.contains("zoneinfo.pre"), "{message}");
}

#[test]
fn a_machine_that_cannot_be_is_refused() {
    let directory = recording(&format!("{HEADER}100 0 1 free 200000 0\n"));
    let path = directory.path().join("zoneinfo.pre");
    let text = fs::read_to_string(&path).unwrap();
    for (from, to) in [
        ("spanned  5505024", "spanned  9005505024"),
        ("start_pfn:           4096", "start_pfn:           5"),
    ] {
        assert!(text.contains(from));
        fs::write(&path, text.replace(from, to)).unwrap();
        let message = refusal(&["replay", directory.path().to_str().unwrap(), "--memory", "none"]);
        assert!(message.contains("recorded machine"), "{to}: {message}");
    }
}

#[test]
fn usage_errors_exit_with_2() {
    for args in [
        &["replay", "--policy", "linux-1.0"][..],
        &["replay", "--memory", "some"],
        &["replay", "--limit", "0"],
        &["replay", "--memory", "none", "--speed", "recorded"],
        &["replay", "/nowhere/at/all"],
        &["reply"],
        &[],
    ] {
        refusal(args);
    }
    let message = refusal(&["replay", "--policy", "linux-1.0"]);
    assert!(message.contains("linux-6.18"), "{message}");
}

#[test]
fn help_is_data() {
    assert!(stdout(&["replay", "--help"]).contains("--memory"));
}
