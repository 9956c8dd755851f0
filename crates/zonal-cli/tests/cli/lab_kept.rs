//! `zonal lab ablation --keep`: what is finished is kept, and nothing that was kept is lost.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::thread;

use crate::program::{passed, refusal, stderr};
use crate::trace::{Place, text};

/// An ablation of the shortest table without one mechanism, with more flags.
fn args<'a>(mechanism: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let of = ["lab", "ablation", "--experiment", "vmstat-update-cost", "--mechanism", mechanism];
    [&of[..], more].concat()
}

#[test]
fn a_second_ablation_takes_the_tables_that_the_first_one_kept_and_says_so() {
    let place = Place::new();
    let file = place.file("kept.jsonl");
    let run = |mechanism| passed(&args(mechanism, &["--csv", "--keep", text(&file)]));
    let first = run("folds");
    assert!(!stderr(&first).contains("tables are from"), "{}", stderr(&first));
    let kept = fs::read_to_string(&file).unwrap();
    assert_eq!(kept.lines().count(), 2, "as it is, and without folds");
    let again = run("folds");
    assert_eq!(again.stdout, first.stdout);
    let all = format!("vmstat-update-cost: 2 of 2 tables are from {}; without", text(&file));
    assert!(stderr(&again).contains(&all), "{}", stderr(&again));
    assert_eq!(fs::read_to_string(&file).unwrap(), kept, "a table is there once");
    let longer = place.file("longer.jsonl");
    fs::write(&longer, &kept).unwrap();
    let longer = passed(&args("folds", &["--whole-time", "--keep", text(&longer)]));
    assert!(!stderr(&longer).contains("tables are from"), "another time is another table");
    // The last line was torn, within a letter that is two bytes.
    let whole = kept.lines().next().unwrap();
    let torn = [whole, "\n", &whole[..60], "\u{e9}"].concat();
    fs::write(&file, &torn.as_bytes()[..torn.len() - 1]).unwrap();
    let resumed = run("folds");
    assert_eq!(resumed.stdout, first.stdout);
    assert!(stderr(&resumed).contains("1 of 2 tables are from"), "{}", stderr(&resumed));
    let bytes = fs::read(&file).unwrap();
    assert!(bytes.starts_with(&torn.as_bytes()[..torn.len() - 1]), "nothing is written again");
    assert!(stderr(&run("folds")).contains("2 of 2 tables are from"));
}

#[test]
fn two_ablations_that_keep_in_one_file_lose_nothing_of_each_other() {
    let place = Place::new();
    let file = place.file("kept.jsonl");
    let both = ["folds", "reads"];
    thread::scope(|scope| {
        for mechanism in both {
            let file = &file;
            scope.spawn(move || passed(&args(mechanism, &["--keep", text(file)])));
        }
    });
    for mechanism in both {
        let said = stderr(&passed(&args(mechanism, &["--keep", text(&file)])));
        assert!(said.contains("2 of 2 tables are from"), "{said}");
    }
}

#[test]
fn a_file_of_something_else_is_refused_before_anything_is_played_and_left_as_it_is() {
    let place = Place::new();
    let file = place.file("mine");
    let other = [
        &b"a letter\n"[..],
        b"{\n  \"a\": 1\n}\n",
        b"{\"version\":\"1\",\"name\":\"another program's\"}\n",
        b"\xff\xfe\x00binary",
        b"a,b\n1,2",
    ];
    for bytes in other {
        fs::write(&file, bytes).unwrap();
        let message = refusal(&args("folds", &["--keep", text(&file)]));
        assert!(message.contains("no tables of `zonal lab`"), "{message}");
        assert!(!message.contains("parts"), "something was played: {message}");
        assert_eq!(fs::read(&file).unwrap(), bytes);
        let report = place.file("report.html");
        let beside = report.with_extension("tables.jsonl");
        fs::write(&beside, bytes).unwrap();
        let one = ["lab", "report", "--experiment", "vmstat-update-cost", "-o", text(&report)];
        assert!(refusal(&one).contains("no tables of `zonal lab`"));
        assert_eq!(fs::read(&beside).unwrap(), bytes);
    }
}

#[test]
fn a_path_that_cannot_be_written_is_refused_before_anything_is_played() {
    let place = Place::new();
    let folder = text(place.0.path());
    let nowhere = place.file("no/such/folder.jsonl");
    let file = place.file("file");
    fs::write(&file, "").unwrap();
    let in_a_file = file.join("kept.jsonl");
    for (path, part) in [
        (folder, "no plain file"),
        ("/dev/null", "no plain file"),
        (text(&nowhere), "cannot open "),
        (text(&in_a_file), "cannot open "),
    ] {
        let message = refusal(&args("folds", &["--keep", path]));
        assert!(message.contains(part) && message.contains(path), "{message}");
        assert!(!message.contains("parts"), "something was played: {message}");
    }
    let page = place.file("a.html");
    let roundabout = place.0.path().join("./a.html");
    let message = refusal(&args("folds", &["--keep", text(&page), "--html", text(&roundabout)]));
    assert!(message.contains("--keep and --html: both are "), "{message}");
    assert!(!page.exists());
}

#[test]
fn a_file_that_may_only_be_read_is_refused() {
    let place = Place::new();
    let file = place.file("kept.jsonl");
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o400)).unwrap();
    if fs::OpenOptions::new().append(true).open(&file).is_ok() {
        return eprintln!("SKIPPED: this user may write to any file");
    }
    assert!(refusal(&args("folds", &["--keep", text(&file)])).contains("cannot open "));
}
