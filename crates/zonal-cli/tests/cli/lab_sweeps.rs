//! `zonal lab sweep` in parts: texts of rows, shards, joined files, an interruption.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::lab::{SHORT, refused, short};
use crate::program::{command, json_of, stderr, stdout_of, zonal};

const OVER: [&str; 4] = ["--over", "cpus=2,4,8", "--over", "policy=zonal,linux-6.6"];

#[test]
fn the_list_has_the_text_of_each_row_and_shards_divide_it() {
    let list = |more: &[&str]| {
        let args = [&OVER[..], &["--list"], more].concat();
        let text = stdout_of(&short("sweep", &args));
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let all = list(&[]);
    assert_eq!(all.len(), 6);
    for line in &all {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!((row["run_us"].as_u64(), row["seed"].as_u64()), (Some(30), Some(1)));
        assert!(row["machine"].as_str().unwrap().starts_with("xeon-2007-8@"), "{line}");
    }
    let mut parts: Vec<String> =
        ["1/4", "2/4", "3/4", "4/4"].iter().flat_map(|shard| list(&["--shard", shard])).collect();
    parts.sort();
    let mut sorted = all;
    sorted.sort();
    assert_eq!(parts, sorted);
}

#[test]
fn files_of_shards_join_into_the_file_that_one_process_writes() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (whole, joined) = (path("whole.csv"), path("joined.csv"));
    let sweep = |more: &[&str]| short("sweep", &[&OVER[..], more].concat());
    stdout_of(&sweep(&["-o", &whole]));
    let parts = [path("1.csv"), path("2.csv"), path("3.csv")];
    for (number, part) in parts.iter().enumerate() {
        let shard = format!("{}/3", number + 1);
        let output = sweep(&["--shard", &shard, "-o", part]);
        assert!(stderr(&output).contains(&format!("--shard {shard}")), "{}", stderr(&output));
        assert!(stdout_of(&output).contains("2 made"));
    }
    let output = sweep(&["-o", &joined, "--merge", &parts[0], &parts[2]]);
    assert_eq!(output.status.code(), Some(1), "rows are missing");
    let told = "2 of 6 rows are in none of the files, the first at cpus=2 policy=linux-6.6";
    assert!(stderr(&output).contains(told), "{}", stderr(&output));
    let output = sweep(&["-o", &joined, "--json", "--merge", &parts[0], &parts[1], &parts[2]]);
    let report = json_of(&output);
    assert_eq!((report["found"].as_u64(), report["missing"].as_u64()), (Some(6), Some(0)));
    assert_eq!(fs::read_to_string(&joined).unwrap(), fs::read_to_string(&whole).unwrap());
    let all = ["lab", "sweep", "-o", &joined, "--merge", &whole, &parts[0]];
    assert!(stdout_of(&zonal(&all)).contains("6 runs"));
    let report = json_of(&zonal(&[&all[..], &["--json"]].concat()));
    assert_eq!((report["found"].as_u64(), report["rows"].as_array().unwrap().len()), (Some(6), 6));
    assert!(report["rows"][0]["busy"].is_null(), "all CPUs take part: {}", report["rows"][0]);
    refused(&sweep(&["--shard", "4/3", "-o", &joined]), "shard '4/3'; expected I/N");
    refused(&sweep(&[]), "--output <FILE.csv>");
    refused(&sweep(&["-o", &joined, "--merge", &path("no.csv")]), "no.csv: there is no such file");
    let text = fs::read_to_string(&parts[0]).unwrap().replace("0.1.0+", "0.0.9+");
    fs::write(&parts[0], text).unwrap();
    refused(&sweep(&["-o", &joined, "--merge", &parts[0]]), "1.csv: line 2: a row of zonal 0.0.9");
}

#[test]
fn a_join_loses_no_row_of_its_output_and_takes_no_flag_that_does_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (first, second, all) = (path("first.csv"), path("second.csv"), path("all.csv"));
    stdout_of(&short("sweep", &["--over", "cpus=2,4", "-o", &first]));
    stdout_of(&short("sweep", &["--over", "cpus=8", "-o", &second]));
    fs::copy(&second, &all).unwrap();
    let merge = |more: &[&str]| {
        zonal(&[&["lab", "sweep", "-o", &all], more, &["--merge", &first]].concat())
    };
    assert!(stdout_of(&merge(&[])).contains("3 runs"), "two of the input, one it had");
    let text = fs::read_to_string(&all).unwrap();
    for (flags, told) in [
        (["--html", "x.html"].as_slice(), "--html needs the sweep"),
        (&["--seed", "3", "--policy", "linux-6.6"], "depends on --seed, --policy"),
    ] {
        refused(&merge(flags), told);
    }
    // Rows of another sweep are not thrown away.
    let other = short("sweep", &["--over", "cpus=2,4", "-o", &all, "--merge", &first]);
    refused(&other, "1 of its rows are not of this sweep");
    assert_eq!(fs::read_to_string(&all).unwrap(), text);
    // A file without rows, and no sweep's.
    let header = text.lines().next().unwrap().to_owned() + "\n";
    fs::write(&first, header).unwrap();
    let empty = zonal(&["lab", "sweep", "-o", &path("new.csv"), "--merge", &first]);
    refused(&empty, "no row is in the files of --merge");
    assert!(!folder.path().join("new.csv").exists());
    fs::write(&all, "my notes\n").unwrap();
    refused(&merge(&[]), "all.csv");
    assert_eq!(fs::read_to_string(&all).unwrap(), "my notes\n");
}

#[test]
fn an_interrupt_ends_a_sweep_after_the_rows_under_way_and_the_file_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows.csv");
    let seeds: Vec<String> = (1..=400).map(|seed| seed.to_string()).collect();
    let mut start = Command::new(env!("CARGO_BIN_EXE_zonal"));
    start.args(["lab", "sweep", "--seeds", &seeds.join(","), "--jobs", "1", "-o"]).arg(&file);
    start.args(["--machine", "xeon-2007-8", "--run-us", "3000"]);
    start.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let running = start.spawn().unwrap();
    let rows = || fs::read_to_string(&file).unwrap_or_default().lines().count();
    let begun = Instant::now();
    while rows() < 3 && begun.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(5));
    }
    let id = rustix::process::Pid::from_child(&running);
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    let output = running.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(stderr(&output).contains("stopped; the same command makes the rows"), "{output:?}");
    let (kept, text) = (rows() - 1, fs::read_to_string(&file).unwrap());
    assert!((2..400).contains(&kept) && text.ends_with('\n'), "{kept}");
    let some = ["--seeds", "1,2", "-o", file.to_str().unwrap(), "--run-us", "3000", "--json"];
    let again = [&["lab", "sweep", "--machine", SHORT[1]], &some[..]].concat();
    let report = json_of(&command().args(again).output().unwrap());
    assert_eq!(report["found"].as_u64(), Some(2));
}

/// Also where a page is to be written, and where the rows are not in the file that `-o` names.
#[test]
fn any_signal_that_ends_programs_stops_a_sweep_in_order_and_is_its_exit_code() {
    for (name, signal, code) in [("HUP", "-HUP", 129), ("TERM", "-TERM", 143)] {
        let folder = tempfile::tempdir().unwrap();
        let (file, page) = (folder.path().join("rows.parquet"), folder.path().join("page.html"));
        let kept = folder.path().join("rows.parquet.csv");
        let seeds: Vec<String> = (1..=400).map(|seed| seed.to_string()).collect();
        let mut start = Command::new(env!("CARGO_BIN_EXE_zonal"));
        start.args(["lab", "sweep", "--seeds", &seeds.join(","), "--jobs", "1", "-o"]).arg(&file);
        start.args(["--machine", "xeon-2007-8", "--run-us", "3000", "--html"]).arg(&page);
        let running = start.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let rows = || fs::read_to_string(&kept).unwrap_or_default().lines().count();
        let begun = Instant::now();
        while rows() < 3 && begun.elapsed() < Duration::from_secs(60) {
            thread::sleep(Duration::from_millis(5));
        }
        crate::program::signal(signal, &running.id().to_string());
        let output = running.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{name}: {output:?}");
        assert!(stderr(&output).contains("stopped; the same command"), "{name}: {output:?}");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("rows.parquet.csv: "), "where the rows are: {said}");
        let entries = fs::read_dir(folder.path()).unwrap();
        let names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["rows.parquet.csv"], "{name}: neither a page nor a part of it");
    }
}
