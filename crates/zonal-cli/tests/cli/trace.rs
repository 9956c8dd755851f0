//! `zonal trace`, the real program: forms, parts, copies, bad input.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use crate::program::{json, passed, refusal, stderr, zonal};

pub fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../zonal-trace/tests/data").join(name);
    path.to_str().unwrap().to_owned()
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

pub struct Place(pub TempDir);

impl Place {
    pub fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

#[test]
fn a_recording_goes_to_every_form_and_back() {
    let place = Place::new();
    for name in ["compact", "ftrace"] {
        let original = fixture(name);
        let (packed, directory) = (place.file("t.zonal"), place.file(name));
        passed(&["trace", "convert", &original, text(&packed), "--level", "3"]);
        passed(&["trace", "convert", text(&packed), text(&directory), "--level", "3"]);
        let stats = |path: &str| {
            let mut stats = json(&["trace", "stats", path, "--json"]);
            let fields = stats.as_object_mut().unwrap();
            for field in ["bytes", "bytes_per_event", "read_seconds", "read_events_per_s"] {
                fields.remove(field);
            }
            stats
        };
        assert_eq!(stats(&original), stats(text(&packed)));
        assert_eq!(stats(&original), stats(text(&directory)));
        let info = |path: &str| {
            let mut info = json(&["trace", "info", path, "--json"]);
            let fields = info.as_object_mut().unwrap();
            ["form", "file", "bytes", "name"].iter().for_each(|field| drop(fields.remove(*field)));
            info
        };
        assert_eq!(info(&original), info(text(&packed)));
        assert_eq!(info(&original), info(text(&directory)));
        let replay = |path: &str| {
            let mut replay =
                json(&["replay", path, "--memory", "none", "--policy", "linux-6.12", "--json"]);
            replay.as_object_mut().unwrap().retain(|key, _| {
                ["model", "kernel", "error_percent", "placement", "allocs"].contains(&key.as_str())
            });
            replay
        };
        assert_eq!(replay(&original), replay(text(&packed)));
        assert_eq!(replay(&original), replay(text(&directory)));
    }
}

#[test]
fn what_is_written_is_told_to_programs_too() {
    let place = Place::new();
    let trace = fixture("ftrace");
    let events = json(&["trace", "stats", &trace, "--json"])["events"].clone();
    let half = events.as_u64().unwrap() * 2;
    for (way, name, expected) in [
        (&["convert"][..], "a.zonal", Some(&events)),
        (&["convert"], "a.parquet", Some(&events)),
        (&["cut", "--cpus", "0-3"], "b.zonal", Some(&events)),
        (&["scale", "--copies", "2"], "c.zonal", Some(&half.into())),
    ] {
        let file = place.file(name);
        let args = [&["trace"], &way[..1], &[trace.as_str(), text(&file)], &way[1..], &["--json"]];
        let said = json(&args.concat());
        assert_eq!((&said["output"], said.get("events")), (&text(&file).into(), expected));
        assert_eq!(said["bytes"], fs::metadata(&file).unwrap().len(), "{said}");
    }
    let message = refusal(&["trace", "convert", &trace, "-", "--json"]);
    assert!(message.contains("name a file"), "{message}");
}

#[test]
fn a_trace_goes_to_stdout_and_to_lines() {
    let place = Place::new();
    let packed = passed(&["trace", "convert", &fixture("ftrace"), "-", "--level", "1"]).stdout;
    let file = place.file("from-stdout");
    fs::write(&file, packed).unwrap();
    let lines = place.file("events.txt");
    passed(&["trace", "convert", text(&file), text(&lines)]);
    let stats = json(&["trace", "stats", text(&lines), "--json"]);
    let original = json(&["trace", "stats", &fixture("ftrace"), "--json"]);
    assert_eq!(stats["kinds"], original["kinds"]);
}

#[test]
fn a_part_is_what_lies_in_it() {
    let place = Place::new();
    let (whole, part) = (place.file("whole.zonal"), place.file("part.zonal"));
    passed(&["trace", "convert", &fixture("compact"), text(&whole), "--level", "1"]);
    let all = json(&["trace", "stats", text(&whole), "--json"]);
    let (first, last) = (all["first_ns"].as_u64().unwrap(), all["last_ns"].as_u64().unwrap());
    let middle = first.midpoint(last);
    let seconds = format!("{}.{:09}", middle / 1_000_000_000, middle % 1_000_000_000);
    let mut events = 0;
    for range in [["--from", &seconds], ["--to", &seconds]] {
        let path = place.file(&format!("{}.zonal", range[0]));
        passed(&["trace", "cut", text(&whole), text(&path), range[0], range[1]]);
        let stats = json(&["trace", "stats", text(&path), "--json"]);
        events += stats["events"].as_u64().unwrap();
        let inside = match range[0] {
            "--from" => stats["first_ns"].as_u64().unwrap() >= middle,
            _ => stats["last_ns"].as_u64().unwrap() < middle,
        };
        assert!(inside);
    }
    assert_eq!(Some(events), all["events"].as_u64());
    passed(&["trace", "cut", text(&whole), text(&part), "--cpus", "1"]);
    let stats = json(&["trace", "stats", text(&part), "--json"]);
    assert_eq!(stats["cpus"].as_object().unwrap().keys().collect::<Vec<_>>(), ["1"]);
    assert_eq!(stats["events"], all["cpus"]["1"]);
}

#[test]
fn a_scaled_trace_has_copies_side_by_side() {
    let place = Place::new();
    let scaled = place.file("scaled.zonal");
    for name in ["compact", "ftrace"] {
        let original = fixture(name);
        let scale = ["trace", "scale", &original, text(&scaled), "--copies", "3", "--level", "1"];
        let said = stderr(&passed(&scale));
        let info = json(&["trace", "info", text(&scaled), "--json"]);
        let before = json(&["trace", "info", &original, "--json"]);
        let number = |value: &Value, field: &str| value[field].as_u64().unwrap();
        for field in ["cpus", "nodes"] {
            assert_eq!(number(&info, field), 3 * number(&before, field), "{field}");
        }
        let zones = |value: &Value| value["zones"].as_array().unwrap().len();
        assert_eq!(zones(&info), 3 * zones(&before));
        assert_eq!(info["simulated"], true, "there is no such host");
        let left_out = said.contains("left out, because they are of one machine: pagetypeinfo.pre");
        assert_eq!(left_out, name == "compact", "{said}");
        assert!(!said.contains("zoneinfo"), "{said}");
        let stats = json(&["trace", "stats", text(&scaled), "--json"]);
        let kinds = stats["kinds"].as_object().unwrap();
        assert!(kinds.values().all(|events| events.as_u64().unwrap() % 3 == 0));
        let args = ["replay", text(&scaled), "--memory", "none", "--policy", "linux-6.12"];
        let output = zonal(&args);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{}", stderr(&output));
    }
}

#[test]
fn a_url_is_no_missing_file() {
    let url = "s3://bucket/last.zonal";
    for args in [
        &["trace", "info", url][..],
        &["trace", "convert", url, "x.zonal"],
        &["replay", url],
        &["advise", url],
        &["zoneinfo", url],
    ] {
        let said = refusal(args);
        assert!(said.contains("a URL, which this program does not read"), "{args:?}: {said}");
        assert!(said.contains("Python") && !said.contains("missing"), "{args:?}: {said}");
    }
}

#[test]
fn a_trace_without_its_machine_says_what_to_give() {
    let place = Place::new();
    let alone = place.file("alone.txt");
    fs::copy(Path::new(&fixture("ftrace")).join("trace.txt"), &alone).unwrap();
    let message = refusal(&["replay", text(&alone), "--memory", "none"]);
    assert!(message.contains("--machine DIR"), "{message}");
    let machine = fixture("ftrace");
    let with = ["replay", text(&alone), "--machine", &machine, "--memory", "none", "--json"];
    let whole = ["replay", &machine, "--memory", "none", "--json"];
    let policy = ["--policy", "linux-6.12"];
    let of = |args: &[&str]| json(&[args, &policy[..]].concat())["model"].clone();
    assert_eq!(of(&with), of(&whole));
    let message = refusal(&["replay", text(&alone), "--machine", text(place.0.path())]);
    assert!(message.contains("file is missing"), "{message}");
}

#[test]
fn bad_input_is_an_error_with_its_place_and_leaves_nothing() {
    let place = Place::new();
    let (whole, cut) = (place.file("whole.zonal"), place.file("cut.zonal"));
    passed(&["trace", "convert", &fixture("compact"), text(&whole), "--level", "1"]);
    let bytes = fs::read(&whole).unwrap();
    fs::write(&cut, &bytes[..bytes.len() - 10]).unwrap();
    let output = place.file("out.zonal");
    let message = refusal(&["trace", "convert", text(&cut), text(&output)]);
    assert!(message.contains("cut.zonal: byte "), "{message}");
    assert!(!output.exists());
    assert_eq!(fs::read_dir(place.0.path()).unwrap().count(), 2);
    for (args, part) in [
        (vec!["trace", "cut", text(&whole), text(&output), "--from", "x"], "expected seconds"),
        (vec!["trace", "cut", text(&whole), text(&output), "--cpus", "x"], "--cpus x"),
        (vec!["trace", "cut", text(&whole), text(&output), "--from", "2", "--to", "1"], "before"),
        (vec!["trace", "convert", text(&whole), "/nowhere/x.zonal"], "/nowhere"),
        (vec!["trace", "convert", text(&whole), "x.json"], ".txt.zst, or a directory"),
        (vec!["trace", "convert", text(&whole), "x.json"], ".parquet, .perfetto-trace"),
        (vec!["trace", "info", "/nowhere"], "file is missing"),
        (vec!["trace", "scale", text(&whole), text(&output), "--copies", "5000"], "5000"),
    ] {
        let message = refusal(&args);
        assert!(message.contains(part), "{args:?}: {message}");
    }
}

#[test]
fn a_form_of_other_programs_is_refused_with_the_command_that_reads_it() {
    let place = Place::new();
    for (name, form) in [("t.parquet", "Parquet"), ("t.pftrace", "Perfetto")] {
        let foreign = place.file(name);
        passed(&["trace", "convert", &fixture("compact"), text(&foreign)]);
        for command in [&["replay"][..], &["advise"], &["zoneinfo"], &["trace", "info"]] {
            let message = refusal(&[command, &[text(&foreign)]].concat());
            let remedy = format!("zonal trace convert {}", foreign.display());
            assert!(message.contains(form) && message.contains(&remedy), "{command:?}: {message}");
        }
    }
    let noise = place.file("noise");
    fs::write(&noise, [0x8c, 0x15, 0xfa, 0, 1]).unwrap();
    let message = refusal(&["replay", text(&noise)]);
    assert!(message.contains("no text: bytes [8c, 15, fa, 00, 01]"), "{message}");
}
