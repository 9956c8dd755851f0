//! Each invariant of the core says where it is checked, and the place exists.
//!
//! The table stands in [`PAGE`] under [`HEADING`]: numbers, then places as `` `file`: `name` ``,
//! where the name is a function or a type of the file; or a dash and the reason why nothing checks
//! it.
//! An invariant is defined where a comment of the core says `**NAME-1**`.

use std::collections::BTreeMap;

use super::finding::Finding;
use super::tree::{File, Tree};

const PAGE: &str = "docs/reference/invariants.md";
const HEADING: &str = "## Where the core's invariants are checked";
const CORE: &str = "crates/zonal-core/src/";

pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let defined = defined(tree);
    if defined.is_empty() {
        return;
    }
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    let page = tree.texts().find(|(file, _)| file.path == PAGE);
    for (line, numbers, places) in page.iter().flat_map(|(_, text)| rows(text)) {
        let mut report = |message: String| {
            findings.push(Finding::new(PAGE, line, "invariant", message));
        };
        for number in expand(numbers) {
            if !defined.contains_key(&number) {
                report(format!("{number} is defined by no file below {CORE}"));
            }
            if known.insert(number.clone(), line).is_some() {
                report(format!("{number} has two rows"));
            }
        }
        wrong_places(tree, places).into_iter().for_each(report);
    }
    for (number, (file, line)) in &defined {
        if !known.contains_key(number) {
            let message = format!("{PAGE} does not say where {number} is checked");
            findings.push(Finding::new(&file.path, *line, "invariant", message));
        }
    }
}

/// The invariants of the core, and where the first definition stands.
fn defined(tree: &Tree) -> BTreeMap<String, (&File, usize)> {
    let mut defined = BTreeMap::new();
    for (file, rust) in tree.rust().filter(|(file, _)| file.path.starts_with(CORE)) {
        for (line, text) in rust.comments.lines().enumerate() {
            for number in text.split("**").skip(1).step_by(2).filter(|text| is_number(text)) {
                defined.entry(number.to_owned()).or_insert((file, line + 1));
            }
        }
    }
    defined
}

/// `PCP-2`, not `N-1` of a formula.
fn is_number(text: &str) -> bool {
    text.split_once('-').is_some_and(|(name, number)| {
        name.len() > 1
            && name.chars().all(|c| c.is_ascii_uppercase())
            && !number.is_empty()
            && number.chars().all(|c| c.is_ascii_digit())
    })
}

/// The table's rows: line, numbers, places.
fn rows(text: &str) -> Vec<(usize, &str, &str)> {
    let lines = text.lines().enumerate().skip_while(|(_, line)| *line != HEADING).skip(1);
    let section = lines.take_while(|(_, line)| !line.starts_with("## "));
    let rows = section.filter_map(|(at, line)| {
        let (numbers, places) = line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | ")?;
        Some((at + 1, numbers, places))
    });
    // Behind the head and the line below it.
    rows.filter(|(_, numbers, _)| numbers.contains('-') && !numbers.starts_with("--")).collect()
}

/// `A-1, A-3 to A-5` is.
fn expand(numbers: &str) -> Vec<String> {
    let mut all = Vec::new();
    for part in numbers.split(", ") {
        let (first, last) = part.split_once(" to ").unwrap_or((part, part));
        let split = |text: &str| {
            let (name, number) = text.split_once('-')?;
            Some((name.to_owned(), number.parse::<u32>().ok()?))
        };
        match (split(first), split(last)) {
            (Some((name, from)), Some((_, to))) => {
                all.extend((from..=to).map(|number| format!("{name}-{number}")));
            }
            _ => all.push(part.to_owned()),
        }
    }
    all
}

/// What is wrong with the places of a row.
fn wrong_places(tree: &Tree, places: &str) -> Vec<String> {
    if let Some(reason) = places.strip_prefix('—') {
        let reason = reason.trim_start_matches([' ', ':']);
        return if reason.is_empty() {
            vec!["a dash needs the reason why nothing checks it".to_owned()]
        } else {
            Vec::new()
        };
    }
    let quoted: Vec<&str> = places.split('`').skip(1).step_by(2).collect();
    let mut wrong = Vec::new();
    if quoted.is_empty() || !quoted.len().is_multiple_of(2) {
        wrong.push(format!("expected places as `file`: `name`, or a dash, not '{places}'"));
        return wrong;
    }
    for place in quoted.chunks(2) {
        let (path, name) = (format!("crates/{}", place[0]), place[1]);
        let Some((_, rust)) = tree.rust().find(|(file, _)| file.path == path) else {
            wrong.push(format!("there is no file {path}"));
            continue;
        };
        let words: Vec<&str> = rust.words().map(|(_, word)| word).collect();
        let is_there = words
            .windows(2)
            .any(|pair| matches!(pair[0], "fn" | "struct" | "enum" | "trait") && pair[1] == name);
        if !is_there {
            wrong.push(format!("{path} has no `{name}`"));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::super::tests::findings;
    use super::*;

    const CODE: &str = "//! - **AB-1** x\n//! - **AB-2** y\nfn check_it() {}\nstruct Held;\n";

    fn with(table: &str) -> Vec<String> {
        let page = format!("# Page\n\n{HEADING}\n\n| number | by |\n|--|--|\n{table}\n## Next\n");
        findings(check, &[("crates/zonal-core/src/a.rs", CODE), (PAGE, &page)])
    }

    #[test]
    fn each_invariant_needs_a_place_that_exists() {
        let both = "| AB-1 to AB-2 | `zonal-core/src/a.rs`: `check_it` |";
        assert_eq!(with(both), [""; 0]);
        let apart = "| AB-1 | `zonal-core/src/a.rs`: `Held` |\n| AB-2 | — by design |";
        assert_eq!(with(apart), [""; 0]);
        let row = format!("{PAGE}:7 invariant");
        for wrong in [
            "| AB-1, AB-2 | `zonal-core/src/a.rs`: `check` |",
            "| AB-1, AB-2 | `zonal-core/src/b.rs`: `check_it` |",
            "| AB-1, AB-2 | `zonal-core/src/a.rs` |",
            "| AB-1, AB-2 | — |",
            "| AB-1 to AB-3 | `zonal-core/src/a.rs`: `check_it` |",
            "| AB-1, AB-1, AB-2 | `zonal-core/src/a.rs`: `check_it` |",
        ] {
            assert_eq!(with(wrong).join(" "), row, "{wrong}");
        }
        let one = "| AB-1 | `zonal-core/src/a.rs`: `check_it` |";
        assert_eq!(with(one), ["crates/zonal-core/src/a.rs:2 invariant"]);
    }

    #[test]
    fn what_looks_like_a_number_in_bold_is_none() {
        let code = "//! **N-1** and **a-1** and **AB-x** and **bold**\n";
        assert_eq!(findings(check, &[("crates/zonal-core/src/a.rs", code)]), [""; 0]);
        let code = [("crates/zonal-core/src/a.rs", CODE)];
        let lines = [1, 2].map(|line| format!("crates/zonal-core/src/a.rs:{line} invariant"));
        assert_eq!(findings(check, &code), lines, "there is no page");
    }
}
