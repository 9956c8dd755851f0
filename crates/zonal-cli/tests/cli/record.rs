//! `zonal record`, for real where the system lets it, and what it says where it does not.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::program::{json, signal, stderr};

const ZONAL: &str = env!("CARGO_BIN_EXE_zonal");
const INSTANCES: &str = "/sys/kernel/tracing/instances";

/// Whether this system lets the tests record. Asked once: tests run side by side.
pub fn can_record() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(probe)
}

fn probe() -> bool {
    let probe = Path::new(INSTANCES).join(format!("zonal-test-{}", std::process::id()));
    let can = std::fs::create_dir(&probe).and_then(|()| std::fs::remove_dir(&probe));
    if let Err(error) = &can {
        eprintln!("SKIPPED: {}: {error}: nothing is recorded here", probe.display());
    }
    can.is_ok()
}

/// A recorder that leaves the lists of the machine alone: other tests read them. Events of the
/// whole machine are recorded, so what else runs may fill the rings. There is one at a time.
fn record(output: &Path) -> Command {
    let mut command = Command::new(ZONAL);
    command.args(["record", "--no-touch", "--allow-drops", "--buffer", "16", "--wait", "5m"]);
    command.arg("-o").arg(output);
    command
}

fn instance_of(process: u32) -> std::path::PathBuf {
    Path::new(INSTANCES).join(format!("zonal-{process}"))
}

/// Longer than anything takes, others' recordings too.
const LONG: Duration = Duration::from_secs(300);

/// Waits until a recorder records.
fn wait_until_on(child: &Child) {
    let on = instance_of(child.id()).join("tracing_on");
    let deadline = Instant::now() + LONG;
    while std::fs::read_to_string(&on).unwrap_or_default().trim() != "1" {
        assert!(Instant::now() < deadline, "tracing never went on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Held by tests that change settings, and by those that look whether anything did.
pub static SETTINGS: Mutex<()> = Mutex::new(());

/// Every setting that a recorder could change.
pub fn settings() -> Vec<(PathBuf, String)> {
    let vm = std::fs::read_dir("/proc/sys/vm").unwrap().map(|entry| entry.unwrap().path());
    let tracing = ["tracing_on", "set_event", "trace_clock", "buffer_size_kb", "current_tracer"];
    let tracing = tracing.map(|name| Path::new("/sys/kernel/tracing").join(name));
    let paths = vm.filter(|path| !path.ends_with("stat_refresh")).chain(tracing);
    let mut all: Vec<_> = paths
        .filter_map(|path| Some((path.clone(), std::fs::read_to_string(&path).ok()?)))
        .collect();
    all.sort();
    all
}

#[test]
fn a_second_recorder_is_refused_and_told_who_records() {
    if !can_record() {
        return;
    }
    let _alone = SETTINGS.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let mut first = record(&directory.path().join("a.zonal"))
        .args(["--duration", "5m"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until_on(&first);
    let before = settings();
    // With its cold start, which changes a setting.
    let file = directory.path().join("b.zonal");
    let mut second = Command::new(ZONAL);
    let second = second.args(["record", "-o"]).arg(&file).args(["--", "true"]).output().unwrap();
    let plan = Command::new(ZONAL).args(["record", "--dry-run", "-o"]).arg(&file).output().unwrap();
    let after = settings();
    signal("-TERM", &first.id().to_string());
    assert!(first.wait().unwrap().success());
    assert_eq!(second.status.code(), Some(2));
    let who = format!("another recorder is at work: process {} (`record --no-touch", first.id());
    assert!(stderr(&second).contains(&who), "{}", stderr(&second));
    assert!(!file.exists());
    let plan = String::from_utf8(plan.stdout).unwrap();
    let held = format!("now held by another recorder: process {}", first.id());
    for part in [held.as_str(), "-> 1000000 for 2 s", "kmem/mm_page_alloc/enable = 1"] {
        assert!(plan.contains(part), "{plan}");
    }
    assert_eq!(after, before, "neither a refused recorder nor a dry run changes anything");
}

#[test]
fn the_command_gets_the_signal_and_is_waited_for() {
    if !can_record() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (file, said) = (directory.path().join("a.zonal"), directory.path().join("said"));
    let begun = directory.path().join("begun");
    let script = format!(
        "trap 'sleep 0.2; echo got > {0}; exit 3' INT TERM; touch {1}; \
         while :; do sleep 0.05; done",
        said.display(),
        begun.display()
    );
    for way in ["-INT", "-TERM", "time"] {
        let mut command = record(&file);
        if way == "time" {
            command.args(["--duration", "1s"]);
        }
        let child = command.args(["--", "sh", "-c", &script]).stderr(Stdio::piped()).spawn();
        let child = child.unwrap();
        let deadline = Instant::now() + LONG;
        while !begun.exists() {
            assert!(Instant::now() < deadline, "the command never began");
            std::thread::sleep(Duration::from_millis(5));
        }
        if way != "time" {
            signal(way, &child.id().to_string());
        }
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{way}: {}", stderr(&output));
        assert!(said.exists(), "{way}: the command ended before its recorder, by the signal");
        assert!(stderr(&output).contains("exit status: 3"), "{way}: {}", stderr(&output));
        std::fs::remove_file(&said).unwrap();
        std::fs::remove_file(&begun).unwrap();
    }
}

#[test]
fn a_recording_is_a_trace_that_can_be_replayed() {
    if !can_record() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.zonal");
    let load = ["--json", "--", "sh", "-c", "ls -R /etc | wc"];
    let output = record(&file).args(load).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    // What the command prints is not among it.
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["output"], file.to_str().unwrap());
    assert_eq!(said["bytes"], std::fs::metadata(&file).unwrap().len());
    assert!(said["dropped"].is_u64(), "{said}");
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "only the file is left");

    let info = Command::new(ZONAL).args(["trace", "info", "--json"]).arg(&file).output().unwrap();
    let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
    assert_eq!(info["can_be_replayed"], true);
    assert_eq!(info["clock"], "mono");
    assert_eq!(info["workload"], "sh -c ls -R /etc | wc");
    assert!(info["events"].as_u64().unwrap() > 100, "{info}");
    assert_eq!(info["events"], said["events"]);
    assert!(info["start_ns"].as_u64().is_some(), "{info}");

    let replay = Command::new(ZONAL)
        .args(["replay", "--memory", "none", "--policy", "linux-6.18", "--json"])
        .arg(&file)
        .output()
        .unwrap();
    assert_eq!(replay.status.code(), Some(0), "{}", stderr(&replay));
    let replay: serde_json::Value = serde_json::from_slice(&replay.stdout).unwrap();
    assert_eq!(replay["events"], info["events"]);
}

#[test]
fn a_recording_of_moves_has_a_verdict_and_nothing_to_replay() {
    if !can_record() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.zonal");
    let load = "dd if=/dev/zero of=/dev/null bs=8M count=50 2>/dev/null; ls -R /etc | wc";
    let output = record(&file).args(["--moves", "--", "sh", "-c", load]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let of = |arguments: &[&str]| Command::new(ZONAL).args(arguments).arg(&file).output().unwrap();
    let info = of(&["trace", "info", "--json"]);
    let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
    assert_eq!(info["can_be_replayed"], false, "{info}");
    let refused = of(&["replay", "--memory", "none"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("was recorded without allocations and frees (--moves)"));
    let advice = of(&["advise", "--json"]);
    assert_eq!(advice.status.code(), Some(0), "{}", stderr(&advice));
    let advice: serde_json::Value = serde_json::from_slice(&advice.stdout).unwrap();
    assert_eq!((&advice["modelled"], &advice["setting"]), (&false.into(), &().into()));
    assert_eq!(advice["changes"].as_array().map(Vec::len), Some(0), "nothing was tried");
    assert!(advice["allocs"].as_u64() > Some(1000), "by the kernel's count: {advice}");
    assert_ne!(advice["verdict"], "worth trying");
}

#[test]
fn a_recorder_that_is_killed_leaves_nothing_behind() {
    if !can_record() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut child = record(&directory.path().join("a.zonal"))
        .args(["--duration", "1m"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let instance = instance_of(child.id());
    let deadline = Instant::now() + LONG;
    let wait = |there: bool| {
        while instance.exists() != there {
            assert!(Instant::now() < deadline, "{}: {there}", instance.display());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    wait(true);
    child.kill().unwrap();
    child.wait().unwrap();
    wait(false);
}

#[test]
fn an_interrupt_ends_the_recording_and_the_trace_is_written() {
    if !can_record() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.zonal");
    let child = record(&file).stderr(Stdio::piped()).spawn().unwrap();
    wait_until_on(&child);
    let id = child.id().to_string();
    signal("-INT", &id);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(file.is_file());
}

#[test]
fn without_root_it_says_which_step_failed_and_what_works() {
    if !can_record() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(directory.path(), open).unwrap();
    let nobody = 65534;
    // The program may lie where only root may look, so it comes along.
    let copy = directory.path().join("zonal");
    std::fs::copy(ZONAL, &copy).unwrap();
    let (file, ran) = (directory.path().join("a.zonal"), directory.path().join("ran"));
    let record = ["record", "--duration", "1s", "-o", file.to_str().unwrap()];
    let (interval, touch) = ("vm.stat_interval=9876", ["--", "touch", ran.to_str().unwrap()]);
    let verify = [&["verify", "--setting", interval][..], &touch].concat();
    for args in [&record[..], &verify] {
        let output = Command::new(&copy).args(args).uid(nobody).gid(nobody).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let text = stderr(&output);
        for part in ["cannot find tracefs", "needs root", "what still works: `zonal trace`"] {
            assert!(text.contains(part), "{text}");
        }
    }
    assert!(!ran.exists(), "the load ran before it was known that it cannot be recorded");
}

#[test]
fn the_output_must_be_a_zonal_file_or_a_new_directory() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("there")).unwrap();
    let windows = ["--every", "2s", "--for", "1s"];
    for (name, flags, expected) in [
        ("a.txt", &["--", "true"][..], "ends in .zonal"),
        (".zonal", &["--", "true"], "ends in .zonal"),
        ("there", &["--", "true"], "there already; expected a new directory"),
        ("new", &windows, "windows are files"),
    ] {
        let mut command = Command::new(ZONAL);
        let output = command.args(["record", "-o"]).arg(directory.path().join(name));
        let output = output.args(flags).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert!(stderr(&output).contains(expected), "{name}: {}", stderr(&output));
    }
}

#[test]
fn ring_pages_are_kept_as_they_are_in_a_directory_that_is_a_recording() {
    if !can_record() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (pages, file) = (directory.path().join("pages"), directory.path().join("a.zonal"));
    let output = record(&pages).args(["--", "true"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let left = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left, 1, "the directory, and nothing beside it");
    let convert = ["trace", "convert"];
    let output = Command::new(ZONAL).args(convert).arg(&pages).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let events = |path: &Path| {
        let command = ["trace", "stats", "--json"];
        let output = Command::new(ZONAL).args(command).arg(path).output().unwrap();
        let stats: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        stats["events"].as_u64().unwrap()
    };
    assert!(events(&pages) > 0);
    assert_eq!(events(&pages), events(&file));
}

/// The text of a machine, as if it had been measured on this processor.
fn as_measured_on(processor: &str, machine: &str) -> String {
    let (before, name) = machine.split_once("[sources.name]\n").unwrap();
    let (_source, after) = name.split_once('\n').unwrap();
    let source = format!("measured = \"measured by `zonal lab calibrate`: {processor}, \"");
    format!("{before}[sources.name]\n{source}\n{after}")
}

#[test]
fn a_recording_has_the_prices_of_a_host_that_was_measured() {
    if !can_record() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    std::fs::create_dir_all(data.join("zonal")).unwrap();
    let machine = ["lab", "machine", "sapphire-2023-224", "--toml"];
    let machine = Command::new(ZONAL).args(machine).output().unwrap().stdout;
    let machine = String::from_utf8(machine).unwrap();
    let measured_on = |processor: &str| {
        std::fs::write(data.join("zonal/this.toml"), as_measured_on(processor, &machine)).unwrap();
    };
    let host = zonal::sys::machine::Machine::read();
    measured_on(&host.cpu_model);
    let prices = |file: &str, data: &Path| {
        let output = directory.path().join(file);
        let recorded = record(&output).env("XDG_DATA_HOME", data).args(["--", "true"]).output();
        let recorded = recorded.unwrap();
        assert!(recorded.status.success(), "{}", stderr(&recorded));
        let advised = ["advise", "--only", "numa_stat", "--json"];
        let advised = Command::new(ZONAL).args(advised).arg(&output).output().unwrap();
        let advised: serde_json::Value = serde_json::from_slice(&advised.stdout).unwrap();
        let of = |name: &str| advised["cost"][name].clone();
        let told = of("machine").as_str().unwrap().contains("zonal lab calibrate");
        let block = (of("page_ns").as_f64().unwrap(), of("is_block_measured").as_bool().unwrap());
        let unmeasured = advised["notes"].as_array().unwrap().iter().any(|note| {
            note.as_str().unwrap().starts_with("blocks have the price of another machine")
        });
        assert_eq!(unmeasured, !block.1, "{advised}");
        (told, block, stderr(&recorded))
    };
    let (told, (of_machine, is_measured), _) = prices("a.zonal", &data);
    assert!(told && !is_measured);
    let (told, (_, is_measured), _) = prices("b.zonal", directory.path());
    assert!(!told && !is_measured);
    measured_on("Another CPU");
    let (told, (_, is_measured), notes) = prices("moved.zonal", &data);
    assert!(!told && !is_measured && notes.contains("not measured on this processor"), "{notes}");
    measured_on(&host.cpu_model);
    let store = |processor: &str, kernel: &str| {
        let prices = serde_json::json!({
            "schema_version": 1, "processor": processor, "kernel_release": kernel,
            "moves": {"alone": {"mid": 50.0, "low": 40.0, "high": 60.0}, "together": null},
            "prices": {"source": "`zonal lab calibrate`: here", "hold_ps": 9000,
                       "block_ps": 54321, "is_block_measured": true},
        });
        std::fs::write(data.join("zonal/prices.json"), prices.to_string()).unwrap();
    };
    store(&host.cpu_model, &host.kernel_release);
    let (told, block, _) = prices("c.zonal", &data);
    assert_eq!((told, block), (true, (54.321, true)));
    store(&host.cpu_model, "1.2.3");
    let (told, block, notes) = prices("d.zonal", &data);
    assert_eq!((told, block), (true, (of_machine, false)), "{notes}");
    assert!(notes.contains("is of Linux 1.2.3, and this is"), "{notes}");
    store("Another CPU", &host.kernel_release);
    let (told, block, notes) = prices("e.zonal", &data);
    assert!(!told && !block.1, "the whole folder came along: {notes}");
    std::fs::write(data.join("zonal/prices.json"), "{").unwrap();
    let (told, block, notes) = prices("f.zonal", &data);
    assert_eq!((told, block.1), (true, false));
    assert!(notes.contains("prices.json: ") && notes.contains("measures them"), "{notes}");
}

#[test]
fn windows_are_files_of_their_own_and_a_signal_ends_them() {
    if !can_record() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let run = |duration: &str| {
        let mut command = record(&directory.path().join("day.zonal"));
        command.args(["--every", "400ms", "--for", "100ms", "--duration", duration]);
        command.stderr(Stdio::piped()).spawn().unwrap()
    };
    let names = || {
        let entries = std::fs::read_dir(directory.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort();
        names
    };
    // However slow this machine is: two windows, then a signal.
    let child = run("60m");
    let deadline = Instant::now() + LONG;
    while names().len() < 2 {
        assert!(Instant::now() < deadline, "no second window");
        std::thread::sleep(Duration::from_millis(20));
    }
    signal("-INT", &child.id().to_string());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let first = names();
    assert_eq!(first[..2], ["day-000001.zonal", "day-000002.zonal"]);
    for name in &first {
        let path = directory.path().join(name);
        let info = Command::new(ZONAL).args(["trace", "info"]).arg(path).output().unwrap();
        assert_eq!(info.status.code(), Some(0), "{}", stderr(&info));
    }
    // Another run goes on after them, and its time ends it.
    let output = run("50ms").wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(names().len(), first.len() + 1);
    assert_eq!(names()[..first.len()], first);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), names().len(), "no rings");
    for bad in [&["--every", "1s"][..], &["--for", "1s"], &["--every", "1s", "--for", "2s"]] {
        let output = record(&directory.path().join("x.zonal")).args(bad).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{bad:?}");
    }
}

#[test]
fn a_signal_ends_the_writing_too_and_the_ring_pages_stay() {
    if !can_record() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.zonal");
    let load = "i=0; while [ $i -lt 400 ]; do /bin/true; i=$((i+1)); done";
    let mut child = record(&file)
        .args(["--level", "19", "--", "sh", "-c", load])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let entries = || {
        let entries = std::fs::read_dir(directory.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect::<Vec<String>>()
    };
    let deadline = Instant::now() + LONG;
    while !entries().iter().any(|name| name.ends_with(".part")) {
        let is_over = child.try_wait().unwrap().is_some();
        assert!(!is_over && Instant::now() < deadline, "never written: {:?}", entries());
        std::thread::sleep(Duration::from_millis(1));
    }
    signal("-INT", &child.id().to_string());
    let output = child.wait_with_output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("a.zonal: interrupted while it was written"), "{said}");
    let [rings] = &entries()[..] else { panic!("{:?}", entries()) };
    assert!(rings.ends_with(".rings") && said.contains(rings), "{rings}: {said}");
    // They are a recording, and the next recorder says that they are there.
    let again = directory.path().join("b.zonal");
    let output = record(&again).args(["--", "true"]).output().unwrap();
    assert!(stderr(&output).contains("zonal trace convert"), "{}", stderr(&output));
    let rings = directory.path().join(rings);
    let args = ["trace", "convert", "--level", "1"];
    let output = Command::new(ZONAL).args(args).arg(&rings).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}

/// What a user types need not be UTF-8.
#[test]
fn a_name_of_any_bytes_is_recorded_and_read() {
    use std::os::unix::ffi::OsStrExt;
    let directory = tempfile::tempdir().unwrap();
    let name = std::ffi::OsStr::from_bytes(b"a\xff\n.zonal");
    let file = directory.path().join(name);
    let output = record(&file).args(["--dry-run", "--", "true"]).output().unwrap();
    let said = stderr(&output);
    assert_ne!(output.status.code(), Some(101), "{said}");
    if !can_record() {
        let output = record(&file).args(["--wait", "0s", "--", "true"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "no panic: {}", stderr(&output));
        return;
    }
    let output = record(&file).args(["--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let info = Command::new(ZONAL).args(["trace", "info"]).arg(&file).output().unwrap();
    assert_eq!(info.status.code(), Some(0), "{}", stderr(&info));
}

#[test]
fn a_dash_is_no_name_of_a_recording() {
    for args in [["record", "-o", "-", "--", "true"], ["record", "-o", "-", "--duration", "1"]] {
        let output = Command::new(ZONAL).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("-o -: expected a file's name"), "{}", stderr(&output));
    }
}

#[test]
fn a_folder_that_is_not_there_is_said_by_the_users_name() {
    for args in [
        &["record", "-o", "/nowhere/a.zonal", "--", "true"][..],
        &["verify", "--setting", "vm.stat_interval=9", "-o", "/nowhere/a.json", "--", "true"],
    ] {
        let said = crate::program::refusal(args);
        assert!(said.contains("-o /nowhere/a."), "{said}");
        assert!(said.contains("no folder /nowhere") && !said.contains("rings"), "{said}");
    }
}

#[test]
fn a_process_that_is_over_is_not_waited_for_and_a_window_that_fails_is_no_success() {
    if !can_record() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.zonal");
    // Over, and nobody has asked for it.
    let mut over = Command::new("true").spawn().unwrap();
    let pid = over.id().to_string();
    let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    while !stat().contains(") Z ") {
        std::thread::sleep(Duration::from_millis(1));
    }
    let output = record(&file).args(["--pid", &pid]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("there is no such process that runs"), "{}", stderr(&output));
    over.wait().unwrap();

    // The second window finds no folder.
    let mut command = record(&directory.path().join("sub").join("day.zonal"));
    std::fs::create_dir(directory.path().join("sub")).unwrap();
    command.args(["--every", "3s", "--for", "100ms"]).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let first = directory.path().join("sub").join("day-000001.zonal");
    let deadline = Instant::now() + LONG;
    while !first.exists() {
        assert!(Instant::now() < deadline, "no first window");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::fs::remove_file(&first).unwrap();
    while std::fs::remove_dir_all(directory.path().join("sub")).is_err() {
        assert!(Instant::now() < deadline, "the folder stays");
    }
    // Its second one fails, and so may a third.
    std::thread::sleep(Duration::from_millis(3500));
    signal("-INT", &child.id().to_string());
    let output = child.wait_with_output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("day-000002.zonal is left out: "), "{said}");
    assert!(said.contains("windows are left out"), "{said}");
}

#[test]
fn a_dry_run_is_told_to_programs_too() {
    let dry = |flags: &[&str]| {
        let dry = ["record", "--dry-run", "--json", "-o", "/tmp/not-there.zonal"];
        json(&[&dry[..], flags, &["--", "true", "it"]].concat())
    };
    let plan = dry(&[]);
    assert_eq!(plan["command"], serde_json::json!(["true", "it"]));
    assert_eq!((&plan["replaces"], &plan["schema_version"]), (&false.into(), &1.into()));
    assert!(plan["refused"].is_null() || plan["refused"].is_string(), "{plan}");
    let settings = plan["settings"].as_array().unwrap();
    assert!(settings.iter().all(|set| set["file"].is_string() && set["value"].is_string()));
    assert!(!settings.is_empty() && plan["cpus"].as_u64().unwrap() > 0, "{plan}");
    assert!(dry(&["--no-touch"])["sysctl"].is_null());
}

#[test]
fn who_records_to_a_name_that_is_taken_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.zonal");
    let dry = || {
        let mut record = Command::new(ZONAL);
        record.args(["record", "--dry-run", "-o"]).arg(&file).args(["--", "true"]);
        String::from_utf8(record.output().unwrap().stdout).unwrap()
    };
    assert!(!dry().contains("replaces"));
    std::fs::write(&file, "an earlier one").unwrap();
    assert!(dry().contains("a.zonal, which replaces what is there"), "{}", dry());
    if !can_record() {
        return;
    }
    let recorded = record(&file).args(["--", "true"]).output().unwrap();
    assert!(stderr(&recorded).contains("a.zonal is there already"), "{}", stderr(&recorded));
    assert!(recorded.status.success() && std::fs::metadata(&file).unwrap().len() > 1000);
}
