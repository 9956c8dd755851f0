//! Predictions that are kept with the project are those that the program makes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use zonal_lab::machine::Machine;
use zonal_lab::predict::{COLUMNS, Question, questions, text};

/// The first registration, of each question, and the later one of those whose machines have
/// figures that it had otherwise.
const REGISTRATIONS: [&str; 2] = ["", "2026-11-29"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/predictions")
}

/// The rows of a file, by the names of its columns; none if that registration has no such file.
fn kept(registration: &str, id: &str) -> Vec<BTreeMap<String, String>> {
    let file = folder().join(registration).join(format!("{id}.csv"));
    if !registration.is_empty() && !file.exists() {
        return Vec::new();
    }
    let mut reader = csv::Reader::from_path(&file).unwrap();
    reader.deserialize().map(Result::unwrap).collect()
}

#[test]
fn the_kept_rows_of_a_small_prediction_are_made_again_to_the_last_digit() {
    if !folder().exists() {
        eprintln!("SKIPPED: {} is not there (a packaged crate?)", folder().display());
        return;
    }
    let mut compared = 0;
    let small = |question: &&Question| question.id == "B1" && question.figure.contains("order 4");
    for question in questions().iter().filter(small) {
        for row in question.answer(&[1], "a commit").unwrap() {
            let same = |kept: &&BTreeMap<String, String>| {
                ["figure", "seed"]
                    .iter()
                    .all(|name| kept.get(*name).map(String::as_str) == row.get(name))
            };
            let all = kept(REGISTRATIONS[1], "B1");
            let kept = all.iter().find(same).expect("a kept row of this figure and seed");
            for name in COLUMNS.iter().filter(|name| **name != "commit") {
                assert_eq!(kept.get(*name).map(String::as_str), row.get(name), "{kept:?}");
            }
            compared += 1;
        }
    }
    assert_eq!(compared, 1);
}

#[test]
fn every_file_has_as_many_seeds_of_each_of_its_questions_and_says_from_which_program() {
    if !folder().exists() {
        eprintln!("SKIPPED: {} is not there (a packaged crate?)", folder().display());
        return;
    }
    let mut ids: Vec<&str> = questions().iter().map(|question| question.id).collect();
    ids.dedup();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 20);
    let of = |registration| ids.iter().map(move |id| (registration, *id));
    for (registration, id) in REGISTRATIONS.into_iter().flat_map(of) {
        let rows = kept(registration, id);
        let asked = questions().into_iter().filter(|question| question.id == id).count();
        let least = usize::from(registration.is_empty());
        let whole = (least..=5).any(|seeds| rows.len() == seeds * asked);
        assert!(whole, "{registration}/{id}: {} rows for {asked} questions", rows.len());
        for row in rows {
            assert!(row["commit"].len() >= 7 && !row["commit"].ends_with("-dirty"), "{id}");
        }
    }
}

/// Microseconds before and in a run, as a command has them.
fn times(command: &str) -> Option<(&str, &str)> {
    let value = |name: &str| {
        let mut words = command.split(' ').skip_while(|word| *word != name);
        words.nth(1)
    };
    value("--warm-us").zip(value("--run-us"))
}

#[test]
fn a_kept_row_plays_as_long_as_its_question_or_says_that_it_is_of_before() {
    if !folder().exists() {
        eprintln!("SKIPPED: {} is not there (a packaged crate?)", folder().display());
        return;
    }
    // Builds that `docs/explanation/predictions.md` says are of before.
    let before = ("300000", "150000");
    for question in questions() {
        let of = |registration| kept(registration, question.id);
        let mut rows: Vec<_> = REGISTRATIONS.into_iter().flat_map(of).collect();
        rows.retain(|row| row["figure"] == question.figure);
        assert!(!rows.is_empty(), "{} {}", question.id, question.figure);
        for row in rows {
            let sides = [("command_before", &question.before), ("command_after", &question.after)];
            for (name, recipe) in sides {
                let (command, asked) = (&row[name], recipe.command());
                let builds = asked.contains("--workload kbuild");
                let played = times(command);
                assert!(
                    played == times(&asked) || (builds && played == Some(before)),
                    "{} {}: {command}, asked is {asked}",
                    question.id,
                    question.figure
                );
                let seed = format!(" --seed {}", row["seed"]);
                let machine = format!(" --machine {} ", recipe.machine);
                assert!(command.contains(&seed) && command.contains(&machine), "{command}");
            }
        }
    }
}

#[test]
fn questions_can_be_asked_and_their_machines_say_where_each_figure_is_from() {
    for question in questions() {
        for side in [&question.before, &question.after] {
            let plan = side.plan(&|name| Ok(Machine::named(name)?)).unwrap();
            assert!(
                plan.machine
                    .figures()
                    .iter()
                    .all(|figure| figure.source.is_some() || figure.name == "interleaved_nodes"),
                "{}",
                plan.machine.name
            );
        }
        assert_ne!(question.before.command(), question.after.command(), "{}", question.id);
    }
    assert_eq!(text(&[]).unwrap().trim(), COLUMNS.join(","));
}
