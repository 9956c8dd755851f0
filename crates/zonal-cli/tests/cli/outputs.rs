//! Outputs that nobody reads to their end, that are full, that are the input, and inputs that are
//! cut short.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::program::{json, passed, refusal, stderr, stdout, zonal};
use crate::trace::{Place, fixture, text};

const ZONAL: &str = env!("CARGO_BIN_EXE_zonal");

/// Runs the program with a reader that is gone; returns its exit code and what it says.
fn unread(args: &[&str]) -> (Option<i32>, String) {
    let mut child = Command::new(ZONAL)
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    (output.status.code(), stderr(&output))
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let compact = fixture("compact");
    for args in [
        &["trace", "convert", &compact, "-", "--level", "1"][..],
        &["trace", "cut", &compact, "-", "--level", "1"],
        &["trace", "scale", &fixture("ftrace"), "-", "--copies", "4", "--level", "1"],
        &["trace", "stats", &compact],
        &["trace", "info", &compact, "--json"],
        &["policy"],
        &["policy", "--json"],
        &["zoneinfo", &compact],
        &["vmstat", &compact, "--openmetrics"],
        &["lab", "list"],
        &["--help"],
        &["--version"],
    ] {
        let (code, said) = unread(args);
        assert_eq!((code, said.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn an_output_that_is_full_is_an_error() {
    let compact = fixture("compact");
    for args in [
        &["trace", "convert", &compact, "-", "--level", "1"][..],
        &["trace", "stats", &compact],
        &["policy"],
        &["--help"],
        &["lab", "once", "--help"],
        &["--version"],
    ] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = Command::new(ZONAL).args(args).stdout(full).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains("No space left"), "{args:?}: {said}");
    }
}

#[test]
fn a_trace_is_never_written_over_itself() {
    let place = Place::new();
    let (own, directory) = (place.file("own.zonal"), place.file("recording"));
    passed(&["trace", "convert", &fixture("compact"), text(&own), "--level", "1"]);
    passed(&["trace", "convert", text(&own), text(&directory), "--level", "1"]);
    let (soft, hard) = (place.file("soft.zonal"), place.file("hard.zonal"));
    symlink(&own, &soft).unwrap();
    fs::hard_link(&own, &hard).unwrap();
    symlink(place.0.path(), place.file("here")).unwrap();
    let events = directory.join("events.txt.zst");
    let zones = directory.join("zoneinfo.txt");
    fs::copy(directory.join("zoneinfo.pre"), &zones).unwrap();
    let dotted = place.0.path().join("recording/../own.zonal");
    let through = place.file("here").join("own.zonal");
    let before = [&own, &events, &zones].map(|path| fs::read(path).unwrap());
    for (input, output) in [
        (&own, &own),
        (&own, &soft),
        (&soft, &own),
        (&own, &hard),
        (&own, &dotted),
        (&own, &through),
        (&directory, &events),
        (&events, &events),
        (&directory, &zones),
    ] {
        for args in [&["convert"][..], &["cut", "--cpus", "0"], &["scale", "--copies", "2"]] {
            let args = [&["trace", args[0], text(input), text(output)], &args[1..]].concat();
            let message = refusal(&args);
            assert!(message.contains("the trace is read from this file"), "{args:?}: {message}");
        }
    }
    // The machine of another directory is an input too.
    let machine = text(&directory);
    let message = refusal(&["trace", "convert", text(&own), text(&zones), "--machine", machine]);
    assert!(message.contains("is read from this file"), "{message}");
    let after = [&own, &events, &zones].map(|path| fs::read(path).unwrap());
    assert_eq!(before, after);
    // Other files there may be written, and written again.
    let beside = directory.join("other.zonal");
    for _ in 0..2 {
        passed(&["trace", "convert", text(&directory), text(&beside), "--level", "1"]);
    }
}

/// What `trace info` says of a file, and its exit code.
fn info(path: &Path) -> (Option<i32>, String, String) {
    let output = zonal(&["trace", "info", text(path)]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), said, stderr(&output))
}

#[test]
fn a_trace_that_is_cut_short_says_so() {
    let place = Place::new();
    for name in ["a.zonal", "a.txt", "a.txt.zst"] {
        let whole = &place.file(name);
        passed(&["trace", "convert", &fixture("compact"), text(whole), "--level", "1"]);
        let (code, said, message) = info(whole);
        assert_eq!((code, message.as_str()), (Some(0), ""));
        assert!(!said.contains("damage"), "{said}");
        let bytes = fs::read(whole).unwrap();
        for kept in [bytes.len() - 1, bytes.len() - 30, bytes.len() / 2] {
            let cut = place.file(&format!("cut-{name}"));
            fs::write(&cut, &bytes[..kept]).unwrap();
            let (code, said, message) = info(&cut);
            assert_eq!(code, Some(2), "{}: {kept}: {said}{message}", cut.display());
            assert!(message.contains("cut short"), "{message}");
            // A file that ends in its head, or in its only block, cannot be opened.
            let opened = kept > bytes.len() / 2 && name != "a.txt.zst";
            if !opened && said.is_empty() {
                continue;
            }
            assert!(said.contains("damage") && said.contains("cut short"), "{said}");
            let output = zonal(&["trace", "info", "--json", text(&cut)]);
            let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            assert!(json["damage"].as_str().unwrap().contains("cut short"), "{json}");
        }
        // It is no fault of the output, and something can be done.
        let output = place.file("out.perfetto-trace");
        let cut = place.file(&format!("cut-{name}"));
        let failed = zonal(&["trace", "convert", text(&cut), text(&output)]);
        let message = stderr(&failed);
        assert_eq!(failed.status.code(), Some(2), "{message}");
        assert!(
            !message.contains("cannot write") && message.contains("copy it again"),
            "{message}"
        );
        assert!(!output.exists());
    }
}

/// Binary forms of others, where they lie beside the project.
#[test]
fn files_of_other_tools_that_are_cut_short_say_so() {
    let formats = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces/formats");
    if !formats.is_dir() {
        eprintln!("SKIPPED: no traces in {}", formats.display());
        return;
    }
    let place = Place::new();
    for name in ["trace.v6.dat.zst", "perf.data", "trace.txt"] {
        let bytes = fs::read(formats.join(name)).unwrap();
        let cut = place.file(name);
        fs::write(&cut, &bytes).unwrap();
        assert_eq!(info(&cut).0, Some(0), "{name}");
        fs::write(&cut, &bytes[..bytes.len() - 1]).unwrap();
        let (code, _, message) = info(&cut);
        assert_eq!(code, Some(2), "{name}: {message}");
        assert!(message.contains("cut short"), "{name}: {message}");
    }
    let raw = place.file("raw");
    fs::create_dir_all(raw.join("formats")).unwrap();
    for folder in ["", "formats"] {
        for entry in fs::read_dir(formats.join("raw").join(folder)).unwrap().map(Result::unwrap) {
            if entry.path().is_file() {
                let to = raw.join(folder).join(entry.file_name());
                fs::write(to, fs::read(entry.path()).unwrap()).unwrap();
            }
        }
    }
    assert_eq!(info(&raw).0, Some(0));
    let pages = raw.join("cpu1.raw");
    let bytes = fs::read(&pages).unwrap();
    fs::write(&pages, &bytes[..bytes.len() - 7]).unwrap();
    let (code, _, message) = info(&raw);
    assert!(code == Some(2) && message.contains("cpu1.raw"), "{message}");
}

#[test]
fn nothing_that_comes_of_a_recording_is_written_over_it() {
    let place = Place::new();
    let own = place.file("own.zonal");
    passed(&["trace", "convert", &fixture("compact"), text(&own), "--level", "1"]);
    let before = fs::read(&own).unwrap();
    let workload = format!("trace:{}", text(&own));
    let rows = place.file("rows.csv");
    let rows = text(&rows);
    for args in [
        &["trace", "report", text(&own), "-o", text(&own)][..],
        &["replay", text(&own), "--memory", "none", "--fidelity", text(&own)],
        &["lab", "once", "--workload", &workload, "--run-us", "10", "--record", text(&own)],
        &[
            "lab",
            "sweep",
            "--workload",
            &workload,
            "--seeds",
            "1",
            "-o",
            rows,
            "--html",
            text(&own),
        ],
        &["lab", "sweep", "--seeds", "1", "-o", rows, "--html", rows],
    ] {
        let said = refusal(args);
        let is_told = said.contains("is read from") || said.contains("both are");
        assert!(is_told, "{args:?}: {said}");
        assert_eq!(fs::read(&own).unwrap(), before, "{args:?}");
    }
}

#[test]
fn another_machines_files_do_not_tell_of_this_recordings_run() {
    let place = Place::new();
    let (described, out) = (place.file("machine"), place.file("out.zonal"));
    passed(&["trace", "convert", &fixture("compact"), text(&described), "--level", "1"]);
    let meta = described.join("meta.json");
    let mut run: serde_json::Value = serde_json::from_slice(&fs::read(&meta).unwrap()).unwrap();
    run["events"] = 520_208.into();
    run["workload"] = "of another".into();
    fs::write(&meta, run.to_string()).unwrap();
    let trace = fixture("compact");
    passed(&[
        "trace",
        "convert",
        &trace,
        text(&out),
        "--level",
        "1",
        "--machine",
        text(&described),
    ]);
    let told = stdout(&["trace", "info", text(&out)]);
    assert!(!told.contains("of another"), "{told}");
    passed(&["trace", "stats", text(&out)]);
}

#[test]
fn a_pipe_is_no_recording_and_is_not_waited_for() {
    let place = Place::new();
    let pipe = place.file("pipe.zonal");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    for args in
        [&["trace", "info", text(&pipe)][..], &["top", "--pool", text(&pipe), "--count", "1"]]
    {
        let said = refusal(args);
        assert!(said.contains("expected"), "{args:?}: {said}");
    }
}

#[test]
fn a_recording_of_the_lab_is_called_simulated_wherever_it_is_read() {
    let place = Place::new();
    let (file, page) = (place.file("lab.zonal"), place.file("page.html"));
    let (file, page) = (text(&file), text(&page));
    let set = [
        "--machine",
        "xeon-2007-8",
        "--policy",
        "linux-6.18",
        "--warm-us",
        "100",
        "--run-us",
        "300",
    ];
    passed(
        &[&["lab", "once", "--workload", "burst:hold=256", "--record", file], &set[..]].concat(),
    );
    assert!(stdout(&["trace", "info", file]).contains("simulated: of no host"));
    assert_eq!(json(&["trace", "info", file, "--json"])["simulated"], true);
    let advice = ["advise", file, "--only", "numa_stat"];
    assert_eq!(json(&[&advice[..], &["--json"]].concat())["simulated"], true);
    assert!(!stdout(&advice).contains(" measured"), "{}", stdout(&advice));
    let replayed = zonal(&["replay", file, "--memory", "none"]);
    assert!(stderr(&replayed).contains("the lab made the recording"), "{}", stderr(&replayed));
    passed(&["trace", "report", file, "-o", page]);
    assert!(fs::read_to_string(page).unwrap().contains("Simulated, of no host"));
}
