//! A selection of what is not there is an error that says what there is, and leaves nothing.

use std::fs;

use crate::program::{passed, refusal};
use crate::trace::{Place, fixture, text};

/// A recording that says how many CPUs it has, and a stream that does not.
fn traces(place: &Place) -> [String; 2] {
    let alone = place.file("alone.txt");
    passed(&["trace", "convert", &fixture("compact"), text(&alone)]);
    [fixture("compact"), text(&alone).to_owned()]
}

#[test]
fn a_part_of_a_trace_must_have_what_is_selected() {
    let place = Place::new();
    let output = place.file("part.zonal");
    for trace in traces(&place) {
        for (flags, part) in [
            (&["--cpus", "99"][..], "no "),
            (&["--cpus", "0,99"], "99"),
            (&["--pid", "999999"], "no event of thread 999999: there are "),
            (&["--pid", "999999", "--cpus", "0"], "no event of thread 999999"),
            (&["--from", "99999999"], "the trace goes from "),
            (&["--to", "0.000000001"], "the trace goes from "),
            (&["--from", "+99999"], "the trace goes from "),
            (&["--from", "+1", "--to", "+1"], "before"),
        ] {
            let args = [&["trace", "cut", &trace, text(&output), "--level", "1"], flags].concat();
            let message = refusal(&args);
            assert!(message.contains(part), "{flags:?}: {message}");
            assert!(!output.exists(), "{flags:?}");
        }
        // What there is passes, and a CPU of the machine may be idle in the part.
        let args = ["trace", "cut", &trace, text(&output), "--level", "1", "--cpus", "0-1"];
        passed(&args);
        fs::remove_file(&output).unwrap();
    }
    let left: Vec<_> = fs::read_dir(place.0.path()).unwrap().map(Result::unwrap).collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn the_message_says_which_cpus_and_threads_there_are() {
    let place = Place::new();
    let output = place.file("part.zonal");
    let cut = |flags: [&str; 2]| {
        refusal(&[&["trace", "cut", &fixture("compact"), text(&output)], &flags[..]].concat())
    };
    let message = cut(["--cpus", "7,99"]);
    assert!(message.contains("no CPU 7, 99: the trace has CPUs 0 to "), "{message}");
    let message = cut(["--pid", "999999"]);
    assert!(message.contains(" threads: ") && message.contains(" events)"), "{message}");
}

#[test]
fn an_ablation_needs_a_mechanism_that_a_chosen_machine_has() {
    let place = Place::new();
    let page = place.file("a.html");
    let args = ["lab", "ablation", "--experiment", "pcp-unix", "--mechanism", "seeks"];
    let message = refusal(&[&args[..], &["--html", text(&page)]].concat());
    assert!(
        message.contains("no machine of these experiments has the mechanism seeks"),
        "{message}"
    );
    assert!(!page.exists());
}

#[test]
fn a_recording_needs_a_process_or_a_program_that_is_there() {
    let place = Place::new();
    let output = place.file("a.zonal");
    let no_program = place.file("no-program");
    fs::write(&no_program, "#!/bin/sh\n").unwrap();
    for (load, part) in [
        (&["--pid", "999999"][..], "there is no such process"),
        (&["--pid", "0"], "0 is not in 1.."),
        (&["--", "/no/such/command"], "cannot run /no/such/command"),
        (&["--", "no-such-command"], "a program of PATH"),
        (&["--", text(place.0.path())], "may be executed"),
        (&["--", text(&no_program)], "may be executed"),
    ] {
        let message = refusal(&[&["record", "-o", text(&output)], load].concat());
        assert!(message.contains(part), "{load:?}: {message}");
        let left: Vec<_> = fs::read_dir(place.0.path()).unwrap().map(Result::unwrap).collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }
}

/// Neither an answer that is not of the flag nor silence.
#[test]
fn a_flag_that_would_do_nothing_is_refused() {
    for (args, flag) in [
        (&["exporter", "--once", "--listen", "127.0.0.1:9"][..], "--listen"),
        (&["top", "--pool", "x", "--no-events"], "--no-events"),
        (&["exporter", "--pool", "x", "--no-events"], "--no-events"),
        (&["lab", "run", "vmstat-update-cost", "--measure", "--seed", "3"], "--seed"),
    ] {
        let message = refusal(args);
        assert!(message.contains("cannot be used with") && message.contains(flag), "{message}");
    }
}

#[test]
fn a_dash_is_no_name_of_an_output_nor_of_a_trace() {
    let place = Place::new();
    let compact = fixture("compact");
    for args in [
        &["lab", "run", "vmstat-update-cost", "--html", "-"][..],
        &["lab", "sweep", "--over", "cpus=2", "-o", "-"],
        &["lab", "once", "--policy", "linux-6.18", "--record", "-"],
        &["lab", "ablation", "--experiment", "vmstat-update-cost", "--keep", "-"],
        &["trace", "report", &compact, "-o", "-"],
    ] {
        let mut command = crate::program::command();
        let output = command.args(args).current_dir(place.0.path()).output().unwrap();
        let said = crate::program::stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains("/dev/stdout"), "{args:?}: {said}");
    }
    assert_eq!(fs::read_dir(place.0.path()).unwrap().count(), 0);
    assert!(refusal(&["trace", "info", "-"]).contains("standard input is not read"));
    // What rows are added to is a plain file.
    let sweep = ["lab", "sweep", "--over", "cpus=2", "-o", "/dev/null"];
    assert!(refusal(&sweep).contains("-o /dev/null: expected a plain file"));
}
