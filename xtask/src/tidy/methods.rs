//! A bound on the inherent methods of a type, in all files of its crate.
//!
//! Functions in `impl Type` count, public or not; those of a trait and of tests do not.

use std::collections::BTreeMap;

use super::finding::Finding;
use super::scan::{Rust, words};
use super::tree::{File, Tree};

const METHODS_MAX: usize = 60;

/// Where a method stands.
type Place<'t> = (&'t File, usize);

/// The methods of each type, by crate and name.
fn types(tree: &Tree) -> BTreeMap<(&str, &str), Vec<Place<'_>>> {
    let mut types: BTreeMap<(&str, &str), Vec<Place<'_>>> = BTreeMap::new();
    for (file, rust) in tree.rust().filter(|(file, _)| !file.is_test()) {
        let Some((krate, _)) = file.path.split_once("/src/") else { continue };
        for (name, line) in methods(rust) {
            types.entry((krate, name)).or_default().push((file, line));
        }
    }
    types
}

/// The type that has the most methods, and how many.
pub fn most(tree: &Tree) -> Option<(String, usize)> {
    let of = types(tree).into_iter().max_by_key(|(_, places)| places.len());
    of.map(|((krate, name), places)| (format!("{name} of {krate}"), places.len()))
}

pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for ((_, name), places) in types(tree) {
        if let Some((file, line)) = places.get(METHODS_MAX) {
            let message = format!("`{name}` has {} methods, at most {METHODS_MAX}", places.len());
            findings.push(Finding::new(&file.path, *line, "methods-per-type", message));
        }
    }
}

/// Each function of an `impl` without a trait: the type's name and the line.
fn methods(rust: &Rust) -> Vec<(&str, usize)> {
    let code = rust.code.as_str();
    let functions = rust.functions();
    let mut found = Vec::new();
    for (at, _) in rust.words().filter(|&(at, word)| word == "impl" && starts_line(code, at)) {
        let Some(open) = code[at..].find('{').map(|open| at + open) else { continue };
        let Some(name) = own_type(&code[at..open]) else { continue };
        let end = code[open..].find("\n}").map_or(code.len(), |end| open + end);
        let inside = |start: usize| (open..end).contains(&start) && !rust.is_test(start);
        // A function inside another one is not the type's.
        let mut last = open;
        for function in functions.iter().filter(|function| inside(function.range.start)) {
            if function.range.start >= last {
                found.push((name, rust.line(function.range.start)));
                last = function.range.end;
            }
        }
    }
    found
}

fn starts_line(code: &str, at: usize) -> bool {
    at == 0 || code[..at].ends_with('\n')
}

/// The type of `impl<'a, T: Trait> path::Type<'a, T>`; `None` where a trait is implemented.
fn own_type(head: &str) -> Option<&str> {
    let rest = head.strip_prefix("impl")?;
    let rest = if rest.starts_with('<') { &rest[generics(rest)..] } else { rest };
    if words(rest).any(|(_, word)| word == "for") {
        return None;
    }
    let path = rest.split(['<', '{']).next()?;
    words(path).map(|(_, word)| word).last()
}

/// Length of the `<…>` that a text starts with. The `>` of an arrow closes nothing.
fn generics(text: &str) -> usize {
    let mut nesting = 0_usize;
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        match c {
            '<' => nesting += 1,
            '>' if before != '-' => nesting -= 1,
            _ => {}
        }
        if nesting == 0 {
            return at + 1;
        }
        before = c;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::super::tests::findings;
    use super::check;

    fn with(head: &str, count: usize) -> String {
        let bodies: String = (0..count).map(|n| format!("    fn f{n}(&self) {{}}\n")).collect();
        format!("{head} {{\n{bodies}}}\n")
    }

    fn in_crate(files: &[(&str, &str)]) -> Vec<String> {
        findings(check, files)
    }

    #[test]
    fn a_type_may_have_60_methods_in_all_files_of_its_crate() {
        let (most, one) = (with("impl<'a, P: Fn() -> u8> A<'a, P>", 60), with("impl A<'_, ()>", 1));
        assert_eq!(in_crate(&[("crates/c/src/a.rs", &most)]), [""; 0]);
        let by_path = with("impl<P> crate::a::A<'_, P>", 1);
        let elsewhere = [("crates/c/src/a.rs", most.as_str()), ("crates/c/src/b.rs", &by_path)];
        assert_eq!(in_crate(&elsewhere), ["crates/c/src/b.rs:2 methods-per-type"]);
        let both = [("crates/c/src/a.rs", most.as_str()), ("crates/c/src/b.rs", &one)];
        assert_eq!(in_crate(&both), ["crates/c/src/b.rs:2 methods-per-type"]);
        let apart = [("crates/c/src/a.rs", most.as_str()), ("crates/d/src/b.rs", &one)];
        assert_eq!(in_crate(&apart), [""; 0]);
    }

    #[test]
    fn traits_tests_and_functions_inside_functions_are_free() {
        let of_trait = with("impl<P> Trait for A<P>", 61);
        assert_eq!(in_crate(&[("crates/c/src/a.rs", &of_trait)]), [""; 0]);
        let test = format!("#[cfg(test)]\n{}", with("impl A", 61));
        assert_eq!(in_crate(&[("crates/c/src/a.rs", &test)]), [""; 0]);
        let inner = "        fn g() {}\n".repeat(30);
        let nested = format!("impl A {{\n    fn f() {{\n{inner}    }}\n}}\n{}", with("impl A", 59));
        assert_eq!(in_crate(&[("crates/c/src/a.rs", &nested)]), [""; 0]);
    }
}
