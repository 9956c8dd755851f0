//! One recorder at a time, and recorders that are killed: on made-up trees, with recorder and guard
//! as processes, which are this test program again.

use std::fs;
use std::io::{self, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::super::undo::serve_with;
use super::super::{Guard, Host, RecordError, Recorder, Step, Touched};
use super::{Tree, options};

/// Who this process is, if not the test program itself.
const ROLE: &str = "ZONAL_TEST_ROLE";
const TREE: &str = "ZONAL_TEST_TREE";
const FRACTION: &str = "proc/sys/vm/percpu_pagelist_high_fraction";
const CHANGES: &str = "run/zonal/changes";
const LONG: Duration = Duration::from_secs(60);

/// This program as another process on a tree.
fn process(role: &str, tree: &Tree) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "record::tests::host_tests::other_processes", "--nocapture"]);
    command.env(ROLE, role).env(TREE, tree.path("")).stdout(Stdio::null());
    command
}

/// Not a test: what the other processes do.
#[test]
fn other_processes() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let tree = Tree::at(PathBuf::from(std::env::var_os(TREE).unwrap()));
    if role == "guard" {
        tree.put("guard.pid", &std::process::id().to_string());
        let failures = serve_with(BufReader::new(io::stdin()), |path| fs::remove_dir_all(path));
        assert_eq!(failures, Vec::<String>::new());
        return;
    }
    let mut guard = guard(&tree);
    let recorder = Recorder::begin_at(tree.tracefs(), tree.roots(), options(true), &mut guard);
    drop(recorder.unwrap());
    if role == "panic" {
        panic!("as asked for");
    }
}

fn take(tree: &Tree, wait: Duration) -> Result<Host, RecordError> {
    Host::take_at(tree.tracefs(), &tree.roots(), "record -o x.zonal", wait)
}

fn guard(tree: &Tree) -> Guard {
    Guard::start(take(tree, LONG).unwrap(), &mut process("guard", tree)).unwrap()
}

fn kill(process: &str) {
    // The shell's own: a program `kill` is in a package that may be missing.
    let mut shell = Command::new("sh");
    assert!(shell.args(["-c", r#"kill -KILL "$0""#, process]).status().unwrap().success());
}

/// A recorder that has just changed the sysctl.
fn recorder_at_work(tree: &Tree) -> Child {
    let child = process("recorder", tree).spawn().unwrap();
    let begin = Instant::now();
    while tree.read(FRACTION) != "1000000" {
        assert!(begin.elapsed() < LONG, "the recorder never changed the sysctl");
        std::thread::sleep(Duration::from_millis(1));
    }
    child
}

#[test]
fn a_second_recorder_is_told_who_has_the_host() {
    let tree = Tree::new();
    let host = take(&tree, Duration::ZERO).unwrap();
    let error = take(&tree, Duration::ZERO).unwrap_err();
    assert_eq!(error.step(), Step::Lock);
    let process = format!("process {} (`record -o x.zonal`), since 20", std::process::id());
    for part in [process.as_str(), "UTC", "--wait"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(tree.read(FRACTION), "0\n");
    drop(host);
    drop(take(&tree, Duration::ZERO).unwrap());
    assert_eq!(fs::read_dir(tree.path("run/zonal")).unwrap().count(), 0);
}

#[test]
fn what_a_recorder_at_work_has_changed_is_not_listed_as_left() {
    let tree = Tree::new();
    let line = format!("boot\t\nwrite\t{}\t0\t1000000\n", tree.path(FRACTION).display());
    tree.put(CHANGES, &line);
    let left = |tree: &Tree| Touched::by(&tree.roots(), &options(true));
    assert_eq!(left(&tree).left.len(), 1, "its recorder was killed");
    let host = take(&tree, Duration::ZERO).unwrap();
    tree.put(CHANGES, &line);
    let touched = left(&tree);
    assert!(touched.held_by.is_some());
    assert!(!touched.to_string().contains("undo"), "{touched}");
    drop(host);
}

#[test]
fn after_a_kill_the_guard_undoes_and_keeps_the_lock_until_then() {
    let tree = Tree::new();
    let mut child = recorder_at_work(&tree);
    child.kill().unwrap();
    child.wait().unwrap();
    let host = take(&tree, LONG).unwrap();
    assert_eq!(tree.read(FRACTION), "0", "HOST-1: whoever has the lock sees the old value");
    assert_eq!(host.notes, Vec::<String>::new());
    assert_eq!(fs::read_dir(tree.path("tracefs/instances")).unwrap().count(), 0);
}

#[test]
fn the_next_recorder_undoes_what_is_left_when_the_guard_is_killed_too() {
    let tree = Tree::new();
    let mut child = recorder_at_work(&tree);
    kill(&tree.read("guard.pid"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(tree.read(FRACTION), "1000000", "nobody is left to undo it");
    assert!(tree.path(CHANGES).is_file());

    let host = take(&tree, LONG).unwrap();
    assert_eq!(tree.read(FRACTION), "0");
    assert_eq!(fs::read_dir(tree.path("tracefs/instances")).unwrap().count(), 0);
    assert_eq!(host.notes.len(), 2, "{:?}", host.notes);
    assert!(!tree.path(CHANGES).exists(), "HOST-3");
}

#[test]
fn a_recorder_that_panics_leaves_nothing_changed() {
    let tree = Tree::new();
    let status = process("panic", &tree).stderr(Stdio::null()).status().unwrap();
    assert!(!status.success());
    assert_eq!(tree.read(FRACTION), "0");
    assert_eq!(fs::read_dir(tree.path("tracefs/instances")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(tree.path("run/zonal")).unwrap().count(), 0);
}

#[test]
fn a_recorder_whose_guard_is_killed_undoes_by_the_list() {
    let tree = Tree::new();
    let mut guard = guard(&tree);
    let recorder = Recorder::begin_at(tree.tracefs(), tree.roots(), options(false), &mut guard);
    drop(recorder.unwrap());
    kill(&tree.read("guard.pid"));
    assert_eq!(guard.finish().unwrap(), Vec::<String>::new());
    assert_eq!(fs::read_dir(tree.path("tracefs/instances")).unwrap().count(), 0);
}

#[test]
fn changes_of_an_earlier_boot_are_not_undone() {
    let tree = Tree::new();
    tree.put("proc/sys/kernel/random/boot_id", "second\n");
    tree.put(FRACTION, "1000000\n");
    let line = format!("boot\tfirst\nwrite\t{}\t8\t1000000\n", tree.path(FRACTION).display());
    tree.put(CHANGES, &line);
    drop(take(&tree, Duration::ZERO).unwrap());
    assert_eq!(tree.read(FRACTION), "1000000\n");
    assert!(!tree.path(CHANGES).exists());
}

#[test]
fn what_cannot_be_undone_stops_the_next_recorder() {
    let tree = Tree::new();
    let line = format!("boot\t\nwrite\t{}\t8\t1000000\n", tree.path("proc/gone").display());
    tree.put(CHANGES, &line);
    let error = take(&tree, Duration::ZERO).unwrap_err();
    assert_eq!(error.step(), Step::Recover);
    assert!(error.to_string().contains("could not write `8` back"), "{error}");
    assert!(tree.path(CHANGES).exists(), "HOST-3");
}

#[test]
fn a_setting_that_is_tried_comes_back_by_itself_and_by_the_guard() {
    let tree = Tree::new();
    let ratio = tree.path("proc/sys/vm/lowmem_reserve_ratio");
    tree.put("proc/sys/vm/lowmem_reserve_ratio", "256\t256\t32\n");
    let mut guard = guard(&tree);
    guard.set(&ratio, "256 256  16").unwrap();
    assert_eq!(fs::read_to_string(&ratio).unwrap(), "256 256 16");
    guard.restore().unwrap();
    assert_eq!(fs::read_to_string(&ratio).unwrap(), "256 256 32");
    guard.set(&ratio, "1 2 3").unwrap();
    assert!(fs::read_to_string(tree.path(CHANGES)).unwrap().contains("1 2 3"), "UNDO-1");
    assert_eq!(guard.finish().unwrap(), Vec::<String>::new());
    assert_eq!(fs::read_to_string(&ratio).unwrap(), "256 256 32", "UNDO-2");
}

#[test]
fn what_the_kernel_does_not_take_is_refused() {
    let tree = Tree::new();
    let mut guard = guard(&tree);
    let gone = tree.path("proc/sys/vm/gone");
    let error = guard.set(&gone, "1").unwrap_err();
    assert_eq!(error.step(), Step::Setting);
    assert!(!gone.exists(), "settings are never made");
    // A file that keeps what it has.
    let error = guard.set(std::path::Path::new("/dev/null"), "7").unwrap_err();
    assert!(error.to_string().contains("the kernel made `` of `7`"), "{error}");
}

#[test]
fn a_setting_that_cannot_be_put_back_is_not_said_to_be_unchanged() {
    let tree = Tree::new();
    let name = "proc/sys/vm/stat_interval";
    tree.put(name, "1\n");
    let mut guard = guard(&tree);
    guard.set(&tree.path(name), "9").unwrap();
    // A directory in its place: neither read nor written.
    fs::rename(tree.path(name), tree.path("aside")).unwrap();
    fs::create_dir(tree.path(name)).unwrap();
    let error = guard.restore().unwrap_err();
    assert_eq!(error.step(), Step::Restore);
    let text = error.to_string();
    assert!(text.contains("must write `1` back to") && text.contains("cannot be read"), "{text}");
    assert!(!text.contains("nothing is changed"), "{text}");
    fs::remove_dir(tree.path(name)).unwrap();
    fs::rename(tree.path("aside"), tree.path(name)).unwrap();
    assert_eq!(guard.finish().unwrap(), Vec::<String>::new());
    assert_eq!(tree.read(name), "1");
}

#[test]
fn a_third_value_that_the_kernel_keeps_is_put_back_by_the_guard() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let tree = Tree::new();
    let name = "proc/sys/vm/stat_interval";
    tree.put(name, "");
    let path = tree.path(name);
    fs::remove_file(&path).unwrap();
    mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
    // The kernel: it has 1, is told 7, makes 5 of it, and refuses the next value.
    let file = path.clone();
    let kernel = std::thread::spawn(move || {
        fs::write(&file, "1\n").unwrap();
        let told = fs::read_to_string(&file).unwrap();
        let mut answer = fs::OpenOptions::new().write(true).open(&file).unwrap();
        fs::remove_file(&file).unwrap();
        io::Write::write_all(&mut answer, b"5\n").unwrap();
        told
    });
    let mut guard = guard(&tree);
    let error = guard.set(&path, "7").unwrap_err();
    assert_eq!(kernel.join().unwrap(), "7");
    assert_eq!(error.step(), Step::Restore, "{error}");
    assert!(error.to_string().contains("must write `1` back to"), "{error}");
    tree.put(name, "5\n");
    assert_eq!(guard.finish().unwrap(), Vec::<String>::new());
    assert_eq!(tree.read(name), "1");
}
