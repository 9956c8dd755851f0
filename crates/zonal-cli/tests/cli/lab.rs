//! `zonal lab once`, `sweep`, `compare` and `report`, the real program; and its pages in a browser.
//!
//! The browser is the one that the variable `ZONAL_CHROMIUM` names, or one of Debian's names in
//! `PATH`; without one its tests say `SKIPPED`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::program::{json_of, refusal_of, stderr, stdout_of, zonal};

/// A short run on a small machine.
pub const SHORT: [&str; 8] = [
    "--machine",
    "xeon-2007-8",
    "--workload",
    "burst:hold=16",
    "--warm-us",
    "10",
    "--run-us",
    "30",
];

/// Runs the program with the flags of a short run.
pub fn short(command: &str, args: &[&str]) -> Output {
    zonal(&[&["lab", command], args, &SHORT].concat())
}

pub fn refused(output: &Output, expected: &str) {
    let message = refusal_of(output);
    assert!(message.contains(expected), "{expected} is not in: {message}");
}

#[test]
fn one_run_prints_its_figures_and_the_line_that_makes_it_again() {
    let args = ["--policy", "linux-6.6+pcp.scale_max=2", "--set", "cpus=4", "--json"];
    let output = short("once", &args);
    let report = json_of(&output);
    assert_eq!(
        (report["schema_version"].as_u64(), &report["kind"]),
        (Some(1), &"simulated".into())
    );
    assert_eq!(report["machine"], "xeon-2007-8@4");
    assert!(report["figures"]["calls"].as_f64().unwrap() > 100.0);
    let command = report["command"].as_str().unwrap();
    assert_eq!(stderr(&output).lines().next(), Some(format!("zonal: {command}").as_str()));
    let words: Vec<&str> = command.split(' ').skip(1).chain(["--json"]).collect();
    assert_eq!(json_of(&zonal(&words)), report, "the line makes the same run");
    let text = stdout_of(&short("once", &[]));
    assert!(text.contains("(simulated) on xeon-2007-8") && text.contains("lock_wait_percent"));
}

#[test]
fn a_run_that_is_recorded_replays_and_says_which_run_it_is_of() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (file, text) = (path("run.zonal"), path("text"));
    // Without a warm-up, so that the figures are of all that is recorded; long enough for drains.
    let of = ["--machine", "xeon-2007-8@2", "--workload", "handoff", "--warm-us", "0"];
    let run = [&["lab", "once"], &of[..], &["--run-us", "8000", "--json"]].concat();
    let kernel = [&run[..], &["--policy", "linux-6.18"]].concat();
    let output = zonal(&[&kernel[..], &["--record", &file]].concat());
    let recorded = json_of(&output);
    assert_eq!(recorded, json_of(&zonal(&kernel)), "the recording changes nothing about the run");

    let figures = &recorded["figures"];
    let report = json_of(&zonal(&["replay", &file, "--memory", "none", "--json"]));
    let events = report["events"].as_u64().unwrap();
    assert!(stderr(&output).contains(&format!("run.zonal: {events} events (simulated)")));
    for (side, figure) in [("refill_pages", "refilled_pages"), ("drain_pages", "drained_pages")] {
        assert_eq!(report["kernel"][side].as_f64(), figures[figure].as_f64(), "{figure}");
        assert!(figures[figure].as_f64() > Some(0.0), "{figure}");
    }
    let calls = ["allocs", "frees"].map(|name| report[name].as_u64().unwrap());
    assert_eq!(Some((calls[0] + calls[1]) as f64), figures["calls"].as_f64());

    stdout_of(&zonal(&["trace", "convert", &file, &text]));
    let meta = fs::read(Path::new(&text).join("meta.json")).unwrap();
    let truth = &serde_json::from_slice::<serde_json::Value>(&meta).unwrap()["lab"];
    assert_eq!((&truth["kind"], &truth["policy"]), (&"simulated".into(), &"linux-6.18".into()));
    assert_eq!(truth["figures"]["result_hash"], figures["result_hash"]);
    assert_eq!(truth["command"], recorded["command"]);

    let none = path("none.zonal");
    let output = zonal(&[&run[..], &["--policy", "zonal", "--record", &none]].concat());
    refused(&output, "policy zonal: a recording is of a kernel");
    assert!(!Path::new(&none).exists());
}

/// The lab's refills and drains name a block of the call, not those that move.
#[test]
fn a_replay_of_a_recorded_run_infers_nothing_from_pages_and_moves_as_many() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.zonal");
    let file = file.to_str().unwrap();
    let of = "--machine altra-2020-72@8 --workload churn:hold=256,order=3 --busy 2 --seed 3";
    let times = ["--warm-us", "0", "--run-us", "600", "--policy", "linux-6.12", "--record", file];
    let words: Vec<&str> = of.split(' ').collect();
    stdout_of(&zonal(&[&["lab", "once"], &words[..], &times].concat()));
    let replay = ["replay", file, "--memory", "none", "--policy", "linux-6.12", "--json"];
    let report = json_of(&zonal(&replay));
    for name in ["past_lists", "untraced"] {
        assert_eq!(report["use_recorded"][name], false, "{name}");
    }
    for moved in ["refill_pages", "refill_holds", "drain_pages"] {
        assert_eq!(report["model"][moved], report["kernel"][moved], "{moved}");
    }
}

#[test]
fn a_sweep_writes_each_combination_once_and_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sweep.csv");
    let file = file.to_str().unwrap();
    let over = ["--over", "cpus=2,4", "--over", "policy=zonal,linux-6.6", "--seeds", "1,2"];
    let args = [&over[..], &["-o", file, "--json"]].concat();
    let output = short("sweep", &args);
    let first = stderr(&output).lines().next().unwrap().to_owned();
    for part in ["--machine xeon-2007-8", "--over cpus=2,4", "--over seed=1,2", "--jobs "] {
        assert!(first.contains(part), "{part} is not in: {first}");
    }
    let report = json_of(&output);
    assert_eq!((report["made"].as_u64(), report["found"].as_u64()), (Some(8), Some(0)));
    let whole = fs::read_to_string(file).unwrap();
    // The first line of stderr makes the same sweep; as if it had been interrupted in a row.
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    fs::write(file, format!("{}{}", lines[..4].concat(), &lines[4][..9])).unwrap();
    let again = first.strip_prefix("zonal: zonal ").unwrap();
    let words: Vec<&str> = again.split(' ').chain(["--json"]).collect();
    let report = json_of(&zonal(&words));
    assert_eq!((report["made"].as_u64(), report["found"].as_u64()), (Some(5), Some(3)));
    assert_eq!(fs::read_to_string(file).unwrap(), whole);
    // Each row's own line makes its run.
    let row = &report["rows"][5];
    assert_eq!(
        (row["point"].as_str(), row["cpus"].as_u64()),
        (Some("cpus=4 policy=zonal seed=2"), Some(4))
    );
    let words: Vec<&str> = row["command"].as_str().unwrap().split(' ').skip(1).collect();
    let once = json_of(&zonal(&[&words[..], &["--json"]].concat()));
    assert_eq!(once["figures"]["result_hash"], row["result_hash"]);
    assert_eq!(once["figures"]["calls_per_s"], row["calls_per_s"]);
}

#[test]
fn sweeps_that_cannot_be_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sweep.csv");
    let file = file.to_str().unwrap();
    let sweep = |args: &[&str]| short("sweep", &[args, &["-o", file]].concat());
    refused(&sweep(&[]), "an empty sweep");
    refused(&sweep(&["--over", "policy="]), "--over policy=: no values");
    refused(&sweep(&["--over", "policy=nonsense"]), "no policy is called 'nonsense'");
    refused(&sweep(&["--over", "pcp.scale_max=9"]), "accepted: 0 to 6");
    refused(&sweep(&["--over", "seed=1", "--set", "cpus"]), "--set cpus: expected KEY=VALUE");
    refused(&sweep(&["--over", "machine=x.toml"]), "x.toml: cannot be read");
    refused(
        &sweep(&["--over", "seed=1", "--html", "/proc/x.html"]),
        "/proc/x.html: expected a writable file",
    );
    assert!(!Path::new(file).exists(), "nothing was begun");
    for place in ["nowhere/a.csv", "/proc/a.csv"] {
        refused(
            &short("sweep", &["--over", "seed=1", "-o", place]),
            &format!("{place}: cannot be written"),
        );
    }
    fs::write(file, "my,own,table\n1,2,3\n").unwrap();
    refused(&sweep(&["--over", "seed=1"]), "sweep.csv: line 1: 'my,own,table'; expected");
    assert_eq!(fs::read_to_string(file).unwrap(), "my,own,table\n1,2,3\n");
}

#[test]
fn two_policies_are_compared_with_what_explains_the_difference() {
    let sides = ["linux-6.18+pcp.scale_max=0", "linux-6.18"];
    let output = short("compare", &[sides[0], sides[1], "--json"]);
    let report = json_of(&output);
    assert_eq!(report["kind"], "simulated");
    assert_eq!(report["settings"][0]["key"], "pcp.scale_max");
    assert!(report["figures"].as_array().unwrap().iter().any(|f| f["name"] == "lock_holds"));
    assert!(!report["explanation"].as_array().unwrap().is_empty());
    for (side, policy) in sides.iter().enumerate() {
        assert_eq!(report["sides"][side]["policy"], *policy);
        assert!(stderr(&output).contains(report["sides"][side]["command"].as_str().unwrap()));
    }
    let text = stdout_of(&short("compare", &sides));
    for part in ["cycles of a call", "what explains it", "values that differ", "pcp.scale_max"] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    let places = ["what explains it\n", "\ncycles of a call\n", "\nfigures that", "\nvalues that"];
    let places: Vec<usize> = places.iter().map(|title| text.find(title).unwrap()).collect();
    assert!(places.is_sorted(), "what differs comes first: {text}");
    // A load without faults has no line of them, and says that there are such figures.
    assert!(!text.contains("\n faults") && text.contains(" more are the same on both"), "{text}");
    let alike = stdout_of(&short("compare", &["zonal", "zonal"]));
    assert!(alike.contains("figures that differ\nnone\n"), "{alike}");
    refused(&short("compare", &["zonal", "nonsense"]), "no policy is called 'nonsense'");
    let args = ["zonal", "linux-6.6", "--set", "pcp.scale_max=1"];
    refused(&short("compare", &args), "expected it in its name, as zonal+KEY=VALUE");
}

/// Debian's browser, if it is there; loudly not, otherwise.
pub fn chromium() -> Option<PathBuf> {
    let named = std::env::var_os("ZONAL_CHROMIUM").map(PathBuf::from);
    let names = ["chromium-headless-shell", "chromium", "chromium-browser"].map(PathBuf::from);
    let works = |path: &PathBuf| {
        let mut command = std::process::Command::new(path);
        command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let found = named.into_iter().chain(names).find(works);
    if found.is_none() {
        eprintln!("SKIPPED: no chromium on this machine, so no browser opened the lab's pages");
    }
    found
}

/// The page as the browser has it once it is shown; none without a browser.
pub fn shown(page: &Path) -> Option<String> {
    let profile = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(chromium()?)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        // Whatever a page would fetch, it could not.
        .args(["--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=2000"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", page.canonicalize().unwrap().display()))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

/// The text without the addresses of its links.
fn without_links(text: &str) -> String {
    let mut parts = text.split("<a href=\"");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |shown, part| shown + part.split_once('"').map_or("", |(_, rest)| rest))
}

/// Holds a page to what every page of the lab is: plots, and nothing from elsewhere.
fn check(page: &Path, plots: usize, says: &[&str]) {
    let written = fs::read_to_string(page).unwrap();
    let dom = shown(page);
    for text in [Some(written), dom].into_iter().flatten() {
        assert_eq!(text.matches("<svg").count(), plots, "{}", page.display());
        assert_eq!(text.matches("</svg>").count(), plots);
        assert!(text.matches("<circle").count() >= plots, "points are drawn");
        // A link fetches nothing until somebody follows it.
        let text = without_links(&text);
        for fetch in ["src=", "href=", "url(", "@import", "<script", "<link", "<iframe", "<object"]
        {
            assert!(!text.contains(fetch), "{fetch} in {}", page.display());
        }
        let outside = text.replace("http://www.w3.org/2000/svg", "");
        assert!(!outside.contains("http://") && !outside.contains("https://"));
        for word in says {
            assert!(text.contains(word), "{word} is not in {}", page.display());
        }
    }
}

#[test]
fn the_pages_show_their_plots_in_a_browser_and_fetch_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let text = |name: &str| path(name).to_str().unwrap().to_owned();
    let output = zonal(&["lab", "run", "vmstat-update-cost", "--html", &text("run.html")]);
    stdout_of(&output);
    check(&path("run.html"), 3, &["cmpxchg_local", "--seed 1", "published"]);
    let (csv, html) = (text("sweep.csv"), text("sweep.html"));
    let over = ["--over", "cpus=2,4,8", "--over", "policy=zonal,linux-6.6", "--seeds", "1,2"];
    stdout_of(&short("sweep", &[&over[..], &["-o", &csv, "--html", &html]].concat()));
    let says = ["contention", "throughput", "memory held", "policy=linux-6.6", "zonal lab once"];
    // Nobody waits for a lock in runs as short as these, which a sentence says, without a plot.
    check(&path("sweep.html"), 2, &[&says[..], &["0 in every run"]].concat());
    let report = text("report.html");
    let args = ["lab", "report", "--experiment", "vmstat-update-cost", "-o", &report];
    let reported = json_of(&zonal(&[&args[..], &["--json"]].concat()));
    assert_eq!(reported["experiments"][0]["command"], "zonal lab run vmstat-update-cost --seed 1");
    let says = [
        "vmstat-update-cost",
        "zonal lab report --seed 1",
        "zonal lab run vmstat-update-cost --seed 1",
        "rome-2019-256",
        "AnandTech",
        "prefers-color-scheme:dark",
    ];
    check(&path("report.html"), 3, &says);
    let page = fs::read_to_string(path("report.html")).unwrap();
    assert!(page.contains("(<a href=\"https://7-cpu.com/cpu/Westmere.html\">page</a>)"));
    for name in fs::read_dir(folder.path()).unwrap() {
        let name = name.unwrap().file_name().into_string().unwrap();
        assert!(!name.ends_with(".part"), "{name} was left behind");
    }
}

/// The first experiment is kept when the second is interrupted; a line that was torn then, or that
/// another build made, is no table.
#[test]
fn a_report_that_was_interrupted_goes_on_from_the_tables_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    let place = page.to_str().unwrap();
    let kept = page.with_extension("tables.jsonl");
    let first = ["lab", "report", "--experiment", "vmstat-update-cost", "-o", place];
    let both = [&first[..], &["--experiment", "deferred-init"]].concat();
    let mut command = Command::new(env!("CARGO_BIN_EXE_zonal"));
    let mut going = command.args(both).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(120);
    while !fs::read_to_string(&kept).is_ok_and(|text| text.ends_with('\n')) {
        assert!(Instant::now() < end && going.try_wait().unwrap().is_none(), "nothing was kept");
        thread::sleep(Duration::from_millis(5));
    }
    going.kill().unwrap();
    going.wait().unwrap();
    assert!(!page.exists(), "no page before it is whole");
    let mut text = fs::read_to_string(&kept).unwrap();
    text += &text.clone()[..99];
    fs::write(&kept, text).unwrap();
    let again = zonal(&first);
    let said = stderr(&again);
    assert!(said.contains("vmstat-update-cost: from ") && !said.contains("runs"), "{said}");
    assert!(stdout_of(&again).contains("1 experiment in "));
    let resumed = fs::read_to_string(&page).unwrap();
    assert!(!kept.exists(), "a finished report leaves nothing beside its page");
    let whole = zonal(&first);
    // Without a terminal there are lines.
    let said = stderr(&whole);
    assert!(said.lines().any(|line| line.starts_with("zonal: vmstat-update-cost: ")), "{said}");
    assert!(said.contains(" runs") && !said.contains("interrupted"), "{said}");
    assert_eq!(fs::read_to_string(&page).unwrap(), resumed, "the same page");
}

#[test]
fn the_list_has_every_number_of_every_workload() {
    let listed = json_of(&zonal(&["lab", "list", "--json"]));
    let text = stdout_of(&zonal(&["lab", "list"]));
    let workloads = listed["workloads"].as_array().unwrap();
    assert!(workloads.len() > 9, "{listed}");
    for workload in workloads {
        let name = workload["name"].as_str().unwrap();
        assert!(text.contains(&format!("\n {name}: ")), "{name} is not in: {text}");
        for parameter in workload["parameters"].as_array().unwrap() {
            let pair =
                format!(" {}={} ", parameter["name"].as_str().unwrap(), parameter["default"]);
            assert!(text.contains(&pair), "{pair} is not in: {text}");
            assert!(parameter["min"].as_u64() <= parameter["max"].as_u64());
        }
    }
}

#[test]
fn sizes_are_refused_by_experiments_that_have_one_machine() {
    let args = ["lab", "run", "vmstat-update-cost", "--cpus", "3"];
    refused(&zonal(&args), "runs on the machine of its table alone; expected one of numa-stat");
}

#[test]
fn a_run_in_which_nothing_was_called_says_so() {
    let output = short("once", &["--set", "workload=handoff", "--set", "cpus=1"]);
    assert!(stdout_of(&output).contains("handoff (simulated)"));
    assert!(stderr(&output).contains("no call in the time measured; expected"), "{output:?}");
    let output = short("once", &["--set", "watermark.min_free=2000000000"]);
    assert!(stderr(&output).contains("calls were refused; expected more memory"), "{output:?}");
}

#[test]
fn pages_that_cannot_be_written_are_refused_before_anything_is_run() {
    let folder = tempfile::tempdir().unwrap();
    let taken = folder.path().to_str().unwrap();
    for place in ["nowhere/a.html", "/proc/a.html", taken] {
        refused(&zonal(&["lab", "report", "-o", place]), place);
        refused(&zonal(&["lab", "run", "numa-stat-threshold", "--html", place]), place);
    }
    let args = ["lab", "report", "--experiment", "nonsense", "-o", "a.html"];
    refused(&zonal(&args), "no experiment is called 'nonsense'");
}

#[test]
fn what_cannot_be_measured_is_refused_and_nothing_simulated_is_printed() {
    refused(&zonal(&["lab", "run", "deferred-init", "--measure"]), "--measure is for vmstat");
    let args = ["lab", "run", "vmstat-update-cost", "--measure", "--json"];
    let output = zonal(&args);
    // A debug build measures nothing, and not every machine has restartable sequences.
    if output.status.code() == Some(0) {
        assert_eq!(json_of(&output)["kind"], "measured");
    } else {
        refused(&output, "measure");
    }
}
