//! `zonal record`, for real where the system lets it, and what it says where it does not.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::program::stderr;

const ZONAL: &str = env!("CARGO_BIN_EXE_zonal");
const INSTANCES: &str = "/sys/kernel/tracing/instances";

/// Whether this system lets the tests record.
fn can_record() -> bool {
    // Each caller has a name of its own: tests look at the same time.
    static LOOKS: AtomicU32 = AtomicU32::new(0);
    let name = format!("zonal-test-{}-{}", std::process::id(), LOOKS.fetch_add(1, Relaxed));
    let probe = Path::new(INSTANCES).join(name);
    let can = std::fs::create_dir(&probe).and_then(|()| std::fs::remove_dir(&probe));
    if let Err(error) = &can {
        eprintln!("SKIPPED: {}: {error}: nothing is recorded here", probe.display());
    }
    can.is_ok()
}

/// A recorder that leaves the lists of the machine alone: other tests read them. Events of the
/// whole machine are recorded, so what else runs may fill the rings.
fn record(output: &Path) -> Command {
    let mut command = Command::new(ZONAL);
    command.args(["record", "--warm", "--allow-drops", "--buffer", "16", "-o"]).arg(output);
    command
}

fn instance_of(process: u32) -> std::path::PathBuf {
    Path::new(INSTANCES).join(format!("zonal-{process}"))
}

#[test]
fn a_recording_is_a_trace_that_can_be_replayed() {
    if !can_record() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.zonal");
    let output = record(&file).args(["--", "sh", "-c", "ls -R /etc | wc"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "only the file is left");

    let info = Command::new(ZONAL).args(["trace", "info", "--json"]).arg(&file).output().unwrap();
    let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
    assert_eq!(info["can_be_replayed"], true);
    assert_eq!(info["clock"], "mono");
    assert_eq!(info["workload"], "sh -c ls -R /etc | wc");
    assert!(info["events"].as_u64().unwrap() > 100, "{info}");
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
    let deadline = Instant::now() + Duration::from_secs(180);
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
    let on = instance_of(child.id()).join("tracing_on");
    let deadline = Instant::now() + Duration::from_secs(180);
    while std::fs::read_to_string(&on).unwrap_or_default().trim() != "1" {
        assert!(Instant::now() < deadline, "tracing never went on");
        std::thread::sleep(Duration::from_millis(5));
    }
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
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
    let output = Command::new(&copy)
        .args(["record", "--duration", "1s", "-o"])
        .arg(directory.path().join("a.zonal"))
        .uid(nobody)
        .gid(nobody)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    for part in ["cannot find tracefs", "needs root", "what still works: `zonal trace`"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn the_output_must_be_a_zonal_file() {
    let output =
        Command::new(ZONAL).args(["record", "-o", "a.txt", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("ends in .zonal"), "{}", stderr(&output));
}
