//! `zonal conform` as a program: what it prints, and its exit codes.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::program;

fn zonal(args: &[&str]) -> (i32, String, String) {
    let output = program::zonal(&[&["conform"], args].concat());
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn capture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../zonal-conform/tests/captures").join(name)
}

/// A copy of a capture, to change.
fn copy(name: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(capture(name)).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), directory.path().join(entry.file_name())).unwrap();
    }
    directory
}

fn change(directory: &Path, file: &str, from: &str, to: &str) {
    let path = directory.join(file);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{file} has no `{from}`");
    fs::write(path, text.replacen(from, to, 1)).unwrap();
}

fn line_of(directory: &Path, file: &str, text: &str) -> u64 {
    let whole = fs::read_to_string(directory.join(file)).unwrap();
    let line = whole.lines().position(|line| line.contains(text)).unwrap();
    line as u64 + 1
}

#[test]
fn captures_that_agree_pass_and_are_counted() {
    let names = ["6.1-n3-memless1", "6.12-n1-192m-c1", "7.2-n1-4g-c2"];
    let paths = names.map(|name| capture(name).display().to_string());
    let (code, out, err) = zonal(&["--json", &paths[0], &paths[1], &paths[2]]);
    assert_eq!((code, err.as_str()), (0, ""));
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["schema_version"], 1);
    assert_eq!(report["mismatches"], 0);
    let cases = report["cases"].as_array().unwrap();
    assert_eq!(cases.iter().map(|case| &case["name"]).collect::<Vec<_>>(), names);
    let values: u64 = cases.iter().map(|case| case["values"].as_u64().unwrap()).sum();
    assert_eq!(report["values"], values);
    for case in cases {
        assert!(!case["not_judged"].as_array().unwrap().is_empty());
        assert!(case["mismatches"].as_array().unwrap().is_empty());
    }
    let (code, out, _) = zonal(&[&paths[0], &paths[1], &paths[2]]);
    assert_eq!(code, 0);
    assert!(out.contains(&format!("3 cases, {values} values, 0 mismatches")), "{out}");
    assert!(out.contains("not judged:"), "{out}");
}

#[test]
fn a_mismatch_names_file_line_expected_and_computed() {
    let directory = copy("7.2-n1-4g-c2");
    let path = directory.path().display().to_string();
    change(directory.path(), "recalc-zoneinfo.txt", "min      12728", "min      12729");
    let line = line_of(directory.path(), "recalc-zoneinfo.txt", "min      12729");
    let (code, out, _) = zonal(&[&path]);
    let file = directory.path().join("recalc-zoneinfo.txt").display().to_string();
    let told = format!("{file}:{line}: node 0 zone DMA32 min: expected 12729, computed 12728");
    assert_eq!(code, 1);
    assert!(out.contains(&told), "{out}");
    assert!(out.contains("1 case, ") && out.contains(" values, 1 mismatch\n"), "{out}");
    let (code, out, _) = zonal(&["--json", &path]);
    assert_eq!(code, 1);
    let report: Value = serde_json::from_str(&out).unwrap();
    let found = &report["cases"][0]["mismatches"][0];
    assert_eq!(found["file"], file);
    assert_eq!(
        (&found["line"], &found["expected"], &found["computed"]),
        (&Value::from(line), &Value::from(12_729), &Value::from(12_728))
    );
}

#[test]
fn bad_input_is_told_and_the_rest_is_judged() {
    let directory = copy("7.2-n1-4g-c2");
    change(directory.path(), "sysctl.txt", "scale_factor=10", "scale_factor=3001");
    let line = line_of(directory.path(), "sysctl.txt", "scale_factor=3001");
    let (bad, good) = (directory.path().display().to_string(), capture("6.1-n3-memless1"));
    let (code, out, err) = zonal(&["--json", &bad, &good.display().to_string()]);
    assert_eq!(code, 2);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["cases"][0]["name"], "6.1-n3-memless1");
    let file = directory.path().join("sysctl.txt").display().to_string();
    let error = report["bad_input"][0]["error"].as_str().unwrap();
    assert!(error.starts_with(&format!("{file}: line {line}: ")), "{error}");
    assert!(error.contains("accepted are 1 to 3000"), "{error}");
    assert!(err.contains(error), "{err}");
}

/// Whatever is wrong with a capture, the others are judged, and the table says which were not.
#[test]
fn one_capture_that_cannot_be_read_does_not_end_the_run() {
    let good = capture("7.2-n1-4g-c2").display().to_string();
    let (_, whole, _) = zonal(&[&good]);
    let row = whole.lines().nth(1).unwrap();
    type Damage = (&'static str, fn(&Path), &'static str);
    let damage: [Damage; 6] = [
        ("no capture", |path| fs::remove_file(path.join("meta.json")).unwrap(), "no such file"),
        (
            "no texts",
            |path| fs::write(path.join("zoneinfo.txt"), [0xff; 9]).unwrap(),
            "valid UTF-8",
        ),
        (
            "a folder for a text",
            |path| {
                fs::remove_file(path.join("iomem.txt")).unwrap();
                fs::create_dir(path.join("iomem.txt")).unwrap();
            },
            "not a regular file",
        ),
        (
            "a text without end",
            |path| {
                fs::remove_file(path.join("sysctl.txt")).unwrap();
                std::os::unix::fs::symlink("/dev/zero", path.join("sysctl.txt")).unwrap();
            },
            "not a regular file",
        ),
        (
            "other CPUs",
            |path| fs::write(path.join("node0-cpulist.txt"), "0-5\n").unwrap(),
            "has lists of CPUs",
        ),
        ("nothing at all", |path| fs::remove_dir_all(path).unwrap(), "no such directory"),
    ];
    for (what, damage, part) in damage {
        let directory = copy("7.2-n1-4g-c2");
        damage(directory.path());
        let bad = directory.path().display().to_string();
        let (code, out, err) = zonal(&[&bad, &good, &bad]);
        assert_eq!(code, 2, "{what}: {out}{err}");
        assert!(out.contains(row), "{what}: {out}");
        assert!(out.contains(" 0 mismatches, 2 not judged: bad input\n"), "{what}: {out}");
        assert!(out.contains(part) && err.contains(part), "{what}: {out}{err}");
    }
}

#[test]
fn a_directory_of_captures_names_them() {
    const ALL: &str = "6.1-n1-3g-highmem 6.1-n3-memless1 6.12-arm64-16k-1g 6.12-n1-192m-c1 \
                       7.2-n1-4g-c2 7.2-ppc64le-64k-1g";
    let captures = capture("").display().to_string();
    let (code, _, err) = zonal(&[&captures]);
    assert_eq!(code, 2);
    assert!(err.contains(ALL), "{err}");
    let empty = tempfile::tempdir().unwrap();
    let (code, _, err) = zonal(&[&empty.path().display().to_string()]);
    assert_eq!(code, 2);
    assert!(err.contains("meta.json: no such file; a capture must have it"), "{err}");
}

#[test]
fn a_directory_that_is_not_there_and_no_directory_at_all_are_usage_errors() {
    let (code, _, err) = zonal(&["/nowhere"]);
    assert_eq!(code, 2);
    assert!(err.contains("/nowhere: no such directory"), "{err}");
    let (code, _, err) = zonal(&[]);
    assert_eq!(code, 2);
    assert!(err.contains("Usage"), "{err}");
}

/// This machine's kernel, if it lets itself be read and follows rules of Linux on x86-64.
#[test]
fn the_running_kernel_agrees() {
    if !cfg!(target_arch = "x86_64") || fs::read("/proc/zoneinfo").is_err() {
        eprintln!("SKIPPED: no /proc/zoneinfo of x86-64");
        return;
    }
    let (code, out, err) = zonal(&["--live", "--json"]);
    assert_eq!(code, 0, "{out}{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert!(report["values"].as_u64().unwrap() > 20, "{out}");
}
