//! `zonal lab jobs` and `--workload kbuild:FILE`, the real program.

use std::fs;
use std::path::Path;

use crate::program::{json, refusal, stderr, stdout, zonal};

fn refused(args: &[&str], expected: &str) {
    let says = refusal(args);
    assert!(says.contains(expected), "{args:?}: {says}");
}

/// A recording of a driver that forks a compiler of 700 pages, `builds` times.
fn recording(builds: u64) -> String {
    let mut lines = Vec::new();
    let mut at = 0;
    let mut line = |what: String| {
        at += 100;
        lines.push(format!("{at} 0 {what}\n"));
    };
    for build in 0..builds {
        let (driver, compiler) = (100 + 2 * build, 101 + 2 * build);
        let page = |number: u64| format!("{:x}", 4096 * (build + 1) + number);
        line(format!("50 fork {driver}"));
        line(format!("{driver} alloc {} 0 0 440dc0", page(0)));
        line(format!("{driver} fork {compiler}"));
        (1..701).for_each(|n| line(format!("{compiler} alloc {} 0 1 140dca", page(n))));
        line(format!("{compiler} alloc {} 0 1 141cca", page(900)));
        line(format!("{compiler} alloc {} 0 1 141cca", page(901)));
        (1..701).for_each(|n| line(format!("{compiler} free {} 0", page(n))));
        line(format!("{driver} free {} 0", page(900)));
        line(format!("{driver} free {} 0", page(0)));
    }
    lines.concat()
}

const MACHINE: [&str; 6] = ["--machine", "xeon-2007-8", "--warm-us", "2000", "--run-us", "20000"];

fn once(workload: &str) -> Vec<String> {
    let args = ["lab", "once", "--policy", "linux-6.6", "--workload", workload];
    args.iter().chain(&MACHINE).map(|arg| (*arg).to_owned()).collect()
}

fn run(workload: &str) -> String {
    let args = once(workload);
    stdout(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn a_recorded_build_is_cut_and_played() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("events.txt");
    fs::write(&trace, recording(3)).unwrap();
    let trace = trace.to_str().unwrap();
    let jobs = stdout(&["lab", "jobs", trace]);
    assert_eq!(jobs, "0 u > ~ -\n1 m700 a A -700\n".repeat(3));
    let printed = json(&["lab", "jobs", trace, "--json"]);
    let all = printed["jobs"].as_array().unwrap();
    assert_eq!(all.len(), 3);
    for job in all {
        let child = serde_json::json!({
            "depth": 1, "blocks": 700, "left": 0, "is_compiler": true, "children": [],
            "calls": "m700 a A -700",
        });
        assert_eq!((&job[0]["children"], &job[1]), (&serde_json::json!([1]), &child), "{job}");
    }

    let file = folder.path().join("build.jobs");
    fs::write(&file, &jobs).unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(stdout(&["lab", "jobs", file]), jobs);
    let numbers = "groups=2,jobs=2,scale=100,user=100,tree=0";
    let [cut, read] = [trace, file].map(|file| run(&format!("kbuild:{file},{numbers}")));
    let figures = |text: &str| text.split_once('\n').unwrap().1.to_owned();
    assert_eq!(figures(&cut), figures(&read));
    assert!(cut.contains("calls"), "{cut}");
}

#[test]
fn a_file_without_jobs_is_refused_with_what_was_expected() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let small = write("events.txt", "100 0 7 alloc 10 0 1 140dca\n");
    refused(&["lab", "jobs", &small], "none of 1 processes allocated 600 blocks");
    let wrong = write("wrong.jobs", "0 m >\n1 m7 y\n");
    refused(&["lab", "jobs", &wrong], "wrong.jobs: line 2: 'y': no call is called 'y'");
    let nowhere = folder.path().join("nowhere.jobs").to_str().unwrap().to_owned();
    refused(&["lab", "jobs", &nowhere], "nowhere.jobs");
    let args = once(&format!("kbuild:{small},tree=0"));
    refused(&args.iter().map(String::as_str).collect::<Vec<_>>(), "kbuild: ");
}

#[test]
fn recordings_of_real_kernels_give_jobs_or_say_why_not() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    if !shared.is_dir() {
        eprintln!("SKIPPED: {} is not there", shared.display());
        return;
    }
    for entry in fs::read_dir(&shared).unwrap() {
        let path = entry.unwrap().path();
        let file = path.to_str().unwrap();
        let output = zonal(&["lab", "jobs", file]);
        let (says, jobs) = (stderr(&output), String::from_utf8_lossy(&output.stdout));
        match output.status.code() {
            // What is printed is read again, and begins with a job.
            Some(0) => assert!(jobs.starts_with("0 "), "{file}: {says}"),
            code => assert!(code == Some(2) && says.contains("zonal: "), "{file}: {says}"),
        }
        if path.file_name().is_some_and(|name| name == "zlib-make-j4") {
            let compilers = jobs.lines().filter(|line| line.starts_with("1 ")).count();
            assert!(compilers > 50, "{file}: {says}");
        }
    }
}
