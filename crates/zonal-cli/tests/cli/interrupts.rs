//! A signal that ends a command leaves nothing of what the command made for the time of its work.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::program;
use crate::trace::{Place, text};

const ZONAL: &str = env!("CARGO_BIN_EXE_zonal");
const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;

fn start(args: &[&str]) -> Child {
    let mut command = Command::new(ZONAL);
    command.args(args).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

fn entries(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// Sends a signal as soon as the command has made something that passes, and waits for its end.
fn interrupt(mut child: Child, signal: i32, has_made: impl Fn() -> bool) {
    while !has_made() {
        assert!(child.try_wait().unwrap().is_none(), "the command ended before it made anything");
        std::thread::sleep(Duration::from_millis(2));
    }
    program::signal(&format!("-{signal}"), &child.id().to_string());
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(signal), "{status}");
}

#[test]
fn a_load_of_files_removes_them() {
    for (signal, workload) in [(SIGINT, "fsmark"), (SIGTERM, "streamwriter")] {
        let place = Place::new();
        let directory = text(place.0.path());
        // More to write than anybody waits for.
        let sizes = ["--pool", "16", "--data", "1000000", "--disk-mib-s", "1"];
        let child = start(&[&["pressure", workload, "--dir", directory], &sizes[..]].concat());
        let has_files = || {
            let made = entries(place.0.path());
            let depth = |path: &Path| fs::read_dir(path).map_or(0, Iterator::count);
            made.iter().any(|name| {
                let own = place.file(name);
                entries(&own).iter().any(|run| depth(&own.join(run)) > 0)
            })
        };
        interrupt(child, signal, has_files);
        assert_eq!(entries(place.0.path()), [""; 0], "{workload}");
    }
}

/// A trace that takes a while to compress.
fn long_trace(place: &Place) -> String {
    let file = place.file("long.txt");
    let mut lines = String::from("# time_ns cpu pid event pfn(hex) order\n");
    for event in 0..400_000_u64 {
        let _ = writeln!(
            lines,
            "{} 0 {} free {:x} 0",
            event * 1000,
            event % 97,
            event * 7919 % 999_983
        );
    }
    fs::write(&file, lines).unwrap();
    text(&file).to_owned()
}

#[test]
fn a_trace_that_is_not_whole_is_removed() {
    let place = Place::new();
    let input = long_trace(&place);
    for (signal, output) in [(SIGINT, "out.zonal"), (SIGTERM, "directory"), (SIGINT, "out.txt.zst")]
    {
        let output = place.file(output);
        let child = start(&["trace", "convert", &input, text(&output), "--level", "19"]);
        let is_begun = || entries(place.0.path()).iter().any(|name| name.ends_with(".part"));
        interrupt(child, signal, is_begun);
        assert_eq!(entries(place.0.path()), ["long.txt"], "{}", output.display());
    }
}
