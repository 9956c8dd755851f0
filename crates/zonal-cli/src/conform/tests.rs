//! Captures as a whole: all agree; a number changed is found at its line; damage is refused with
//! its line.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use super::capture::Capture;
use super::files::{Files, Place};
use super::judge::judge;
use super::report::Case;

/// Texts in memory, to change.
#[derive(Clone, Default)]
struct Texts(BTreeMap<String, String>);

impl Files for Texts {
    fn read(&self, name: &str) -> io::Result<Option<String>> {
        Ok(self.0.get(name).cloned())
    }
    fn path(&self, name: &str) -> String {
        name.to_owned()
    }
}

impl Texts {
    fn of(directory: &Path) -> Texts {
        let entries = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
        let named = entries.map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, std::fs::read_to_string(entry.path()).unwrap())
        });
        Texts(named.collect())
    }

    fn judge(&self) -> anyhow::Result<Case> {
        judge(&Capture::read("test", self)?)
    }

    /// The texts with one line changed.
    fn with(&self, place: &Place, change: impl Fn(&str) -> String) -> Texts {
        let mut texts = self.clone();
        let text = texts.0.get_mut(&place.file).unwrap();
        let lines = text.split_inclusive('\n').zip(1..);
        *text = lines
            .map(|(line, number)| match number == place.line {
                true => change(line),
                false => line.to_owned(),
            })
            .collect();
        texts
    }
}

fn bundled() -> Vec<PathBuf> {
    captures(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures"))
}

/// The captures beside the project, if they are there.
fn shared() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/conformance");
    let found = if directory.is_dir() { captures(&directory) } else { Vec::new() };
    if found.is_empty() {
        eprintln!("SKIPPED: no captures in {}", directory.display());
    }
    found
}

fn captures(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut captures: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    captures.sort();
    captures
}

/// The line with its `index`-th number from the end one larger, or one smaller.
fn step(line: &str, index: usize, up: bool) -> Option<String> {
    let bytes = line.as_bytes();
    let end = bytes.iter().rposition(u8::is_ascii_digit)? + 1;
    let digits = bytes[..end].iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (head, number) = line[..end].split_at(end - digits);
    if index > 0 {
        return Some(step(head, index - 1, up)? + &line[end - digits..]);
    }
    let number: u64 = number.parse().ok()?;
    let number = if up { number.checked_add(1)? } else { number.checked_sub(1)? };
    Some(format!("{head}{number}{}", &line[end..]))
}

/// Changes the numbers of a judged line, one at a time, and expects each change to be found there
/// and nowhere else.
fn mutate(texts: &Texts, place: &Place) -> usize {
    let line = texts.0[&place.file].lines().nth(place.line as usize - 1).unwrap();
    let numbers = if line.contains("protection") { line.matches(',').count() + 1 } else { 1 };
    let mut found = 0;
    for index in 0..numbers {
        for up in [true, false] {
            let Some(changed) = step(line, index, up) else { continue };
            let case = texts.with(place, |_| changed.clone() + "\n").judge();
            let told: BTreeSet<Place> = match case {
                Ok(case) => {
                    let places = case.mismatches.iter();
                    places.map(|check| Place::new(&check.file, check.line)).collect()
                }
                Err(error) => {
                    let text = error.to_string();
                    let here = format!("{}: line {}", place.file, place.line);
                    assert!(text.contains(&here), "{place:?} `{changed}`: {text}");
                    BTreeSet::from([place.clone()])
                }
            };
            assert_eq!(told, BTreeSet::from([place.clone()]), "`{line}` became `{changed}`");
            found += 1;
        }
    }
    found
}

/// Where judged numbers stand: all but what is on or off, and lists of nodes and CPUs.
fn numbers(case: &Case) -> BTreeSet<Place> {
    let lists = ["cpulist", "distance", "sys-", "pagetypeinfo"];
    let is_number = |place: &&Place| !lists.iter().any(|part| place.file.contains(part));
    case.judged.iter().filter(is_number).cloned().collect()
}

#[test]
fn every_capture_agrees() {
    for directory in bundled().into_iter().chain(shared()) {
        let case = Texts::of(&directory).judge().unwrap_or_else(|error| panic!("{error}"));
        assert!(case.mismatches.is_empty(), "{}: {:#?}", directory.display(), case.mismatches);
        assert!(case.values > 100, "{}: {} values", directory.display(), case.values);
    }
}

#[test]
fn each_number_changed_alone_is_found_at_its_line() {
    let mut found = 0;
    for directory in bundled() {
        let texts = Texts::of(&directory);
        let judged = numbers(&texts.judge().unwrap());
        found += judged.iter().map(|place| mutate(&texts, place)).sum::<usize>();
    }
    assert!(found > 1000, "{found} changes");
}

/// Of the captures beside the project a sample, another one of each.
#[test]
fn numbers_of_every_capture_are_found_where_they_changed() {
    for (offset, directory) in shared().iter().enumerate() {
        let texts = Texts::of(directory);
        let judged = numbers(&texts.judge().unwrap());
        for place in judged.iter().skip(offset).step_by(97) {
            mutate(&texts, place);
        }
    }
}
