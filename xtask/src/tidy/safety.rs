//! Where `unsafe` may stand, what an atomic ordering must say, and what `no_std` means.

use super::finding::Finding;
use super::scan::{Rust, words};
use super::tree::{File, Tree};

/// Starts of the paths of files that may hold `unsafe`. Short on purpose: an entry here is a file
/// whose every line is read by a second person.
const UNSAFE_ALLOWED: &[&str] = &[
    "crates/zonal-core/src/sync.rs",
    "crates/zonal-core/src/lanes",
    "crates/zonal-core/src/prefetch.rs",
    "crates/zonal-core/src/machine/carve.rs",
    // What a caller keeps of an allocator, and must not use with another one.
    "crates/zonal-core/src/alloc/hot.rs",
    // The records of an allocator, to be written.
    "crates/zonal-core/src/alloc/raw.rs",
    "crates/zonal-replay/src/build/raw.rs",
    "crates/zonal-kernel/tests/pages.rs",
    // Pops and pushes in assembly.
    "crates/zonal-kernel/src/sections/",
    "crates/zonal-kernel/tests/fast_sections.rs",
    "crates/zonal/src/sys/",
    "crates/zonal/src/rseq",
    "crates/zonal/src/pool",
    // Traits of other crates that are unsafe to implement.
    "crates/zonal/src/adapt/alloc.rs",
    "crates/zonal/src/adapt/bytes.rs",
    "crates/zonal-uring/src/",
    "crates/zonal-uring/tests/",
    // Pointers of C.
    "crates/zonal-c/",
    // Objects of Python, and memory that they share.
    "crates/zonal-python/src/dlpack.rs",
    "crates/zonal-python/src/stream.rs",
    "crates/zonal-cache/src/frames.rs",
    "crates/zonal-cache/tests/",
    "crates/zonal/tests/",
    "crates/zonal/examples/stress/bugs.rs",
    // What the thread that plays a run has alone.
    "crates/zonal-lab/src/one_thread.rs",
    // Large pages for its tables.
    "crates/zonal-lab/src/huge.rs",
    // Records that nobody has used.
    "crates/zonal-lab/src/records.rs",
    "crates/zonal-replay/src/run/entries.rs",
    "crates/zonal-replay/src/run/real_tests.rs",
    "crates/zonal-bench/",
    "crates/zonal-trace/tests/poller.rs",
    "bench/",
    "adapters/ostd/frames/src/",
    "adapters/arceos/kernel/src/",
    "examples/kernel/src/",
    "xtask/minimal/src/",
];

/// Orderings that only work in pairs. (`Relaxed` orders nothing.)
const PAIRED_ORDERINGS: &[&str] = &["Acquire", "Release", "AcqRel", "SeqCst"];

/// A comment this many lines above an ordering, or above its statement, still belongs to it.
const COMMENT_LINES: usize = 3;

const CORE: &str = "crates/zonal-core/src/";

pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for (file, rust) in tree.rust() {
        unsafe_allowed(file, rust, findings);
        orderings(file, rust, findings);
        no_std(file, rust, findings);
    }
}

fn unsafe_allowed(file: &File, rust: &Rust, findings: &mut Vec<Finding>) {
    if UNSAFE_ALLOWED.iter().any(|start| file.path.starts_with(start)) {
        return;
    }
    for (at, _) in rust.words().filter(|&(_, word)| word == "unsafe") {
        let message = format!("unsafe outside the files that the list in {} allows", file!());
        findings.push(Finding::new(&file.path, rust.line(at), "unsafe", message));
    }
}

/// Each ordering names its partner in a comment nearby. Tests are free.
fn orderings(file: &File, rust: &Rust, findings: &mut Vec<Finding>) {
    if file.is_test() {
        return;
    }
    let imports = OrderingImports::of(rust);
    for (at, word) in rust.words().filter(|(_, word)| PAIRED_ORDERINGS.contains(word)) {
        if rust.is_test(at) || rust.is_import(at) || !imports.is_ordering(rust, at, word) {
            continue;
        }
        let line = rust.line(at);
        let statement = rust.line(rust.statement_start(at));
        let first = statement.min(line).saturating_sub(COMMENT_LINES).max(1);
        if !says_pairs_with(rust.comment_lines(first, line)) {
            let message = format!("{word} without a comment that says what it \"pairs with\"");
            findings.push(Finding::new(&file.path, line, "ordering", message));
        }
    }
}

/// The two words may be broken over lines of comment.
fn says_pairs_with(comments: &str) -> bool {
    let words: Vec<&str> = comments
        .split(|c: char| c.is_whitespace() || c == '/')
        .filter(|word| !word.is_empty())
        .collect();
    words.join(" ").to_lowercase().contains("pairs with")
}

/// Under which names this file knows the atomic orderings.
struct OrderingImports<'a> {
    /// `Ordering`, and names after `Ordering as`.
    prefixes: Vec<&'a str>,
    /// Variants imported by name; all of them after `Ordering::*`.
    bare: Vec<&'a str>,
}

impl<'a> OrderingImports<'a> {
    fn of(rust: &'a Rust) -> Self {
        let mut imports = Self { prefixes: vec!["Ordering"], bare: Vec::new() };
        let words: Vec<(usize, &str)> = rust.words().collect();
        for (index, &(at, word)) in words.iter().enumerate() {
            if !rust.is_import(at) {
                continue;
            }
            if word == "Ordering" && words.get(index + 1).is_some_and(|next| next.1 == "as") {
                imports.prefixes.extend(words.get(index + 2).map(|alias| alias.1));
            }
            if PAIRED_ORDERINGS.contains(&word) {
                imports.bare.push(word);
            }
            let glob = rust.code[at + word.len()..].starts_with("::*");
            if word == "Ordering" && glob {
                imports.bare.extend(PAIRED_ORDERINGS);
            }
        }
        imports
    }

    fn is_ordering(&self, rust: &Rust, at: usize, word: &str) -> bool {
        match rust.code[..at].trim_end().strip_suffix("::") {
            Some(path) => words(path).last().is_some_and(|(_, last)| self.prefixes.contains(&last)),
            None => self.bare.contains(&word),
        }
    }
}

/// The core has no standard library outside its tests, not even `alloc`.
fn no_std(file: &File, rust: &Rust, findings: &mut Vec<Finding>) {
    if !file.path.starts_with(CORE) || file.is_test() {
        return;
    }
    let mut report = |line: usize, message: &str| {
        findings.push(Finding::new(&file.path, line, "no-std", message));
    };
    if file.path.ends_with("/src/lib.rs") {
        let code: String = rust.code.split_whitespace().collect();
        if !code.contains("#![no_std]") {
            report(1, "the core's root lacks #![no_std]");
        }
        if !code.contains("#![deny(unsafe_code)]") && !code.contains("#![forbid(unsafe_code)]") {
            report(1, "the core's root lacks #![deny(unsafe_code)]");
        }
    }
    for (at, word) in rust.words() {
        let path = rust.code[at + word.len()..].starts_with("::");
        let from_root = !rust.code[..at].trim_end().ends_with("::");
        let linked = rust.code[..at].trim_end().ends_with("extern crate");
        let library =
            (word == "std" && ((path && from_root) || linked)) || (word == "alloc" && linked);
        if library && !rust.is_test(at) {
            report(rust.line(at), "the core has no standard library: use core, or the Platform");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::findings;
    use super::check;

    fn in_file(path: &str, text: &str) -> Vec<String> {
        findings(check, &[(path, text)])
    }

    fn in_library(text: &str) -> Vec<String> {
        in_file("a.rs", text)
    }

    #[test]
    fn unsafe_stands_only_in_listed_files() {
        let text = "#![deny(unsafe_code)] // unsafe\nfn f() { s(\"unsafe\"); }\n";
        assert_eq!(in_library(text), [""; 0]);
        let bad = "fn f() {\n    unsafe { g() }\n}\nunsafe impl Send for X {}\n";
        assert_eq!(in_library(bad), ["a.rs:2 unsafe", "a.rs:4 unsafe"]);
        for path in ["crates/zonal-core/src/zone.rs", "crates/zonal/src/topology.rs"] {
            assert_eq!(in_file(path, bad).len(), 2, "{path}");
        }
        for path in [
            "crates/zonal-core/src/sync.rs",
            "crates/zonal/src/sys/mman.rs",
            "crates/zonal/src/rseq/x86_64.rs",
            "crates/zonal/src/pool.rs",
            "bench/src/main.rs",
        ] {
            assert_eq!(in_file(path, bad), [""; 0], "{path}");
        }
    }

    #[test]
    fn an_ordering_names_its_partner() {
        let good = "fn f() {\n    // Release: pairs with the Acquire in g.\n    \
                    a.store(1, Ordering::Release);\n    b.load(Ordering::Relaxed);\n    \
                    c.load(O::Acquire); // pairs with f\n}\n";
        assert_eq!(in_library(good), [""; 0]);
        for ordering in ["Acquire", "Release", "AcqRel", "SeqCst"] {
            let bad =
                format!("fn f() {{\n    a.swap(1, atomic::Ordering::{ordering}); // why\n}}\n");
            assert_eq!(in_library(&bad), ["a.rs:2 ordering"], "{ordering}");
        }
    }

    #[test]
    fn a_partner_three_lines_above_counts_and_four_above_does_not() {
        let at = |lines: usize| {
            format!("// pairs with g\n{}x(Ordering::Acquire);\n", "y();\n".repeat(lines - 1))
        };
        assert_eq!(in_library(&at(3)), [""; 0]);
        assert_eq!(in_library(&at(4)), ["a.rs:5 ordering"]);
    }

    #[test]
    fn a_comment_above_a_long_statement_counts_for_all_of_it() {
        let body = "a.compare_exchange(\n    1,\n    2,\n    Ordering::AcqRel,\n    \
                    Ordering::Acquire,\n);\n";
        let good = format!("b();\n// This pairs\n// with g.\n{body}");
        assert_eq!(in_library(&good), [""; 0]);
        assert_eq!(in_library(body), ["a.rs:4 ordering", "a.rs:5 ordering"]);
    }

    #[test]
    fn imported_and_renamed_orderings_are_known() {
        let bare = "use core::sync::atomic::Ordering::{Acquire, Release};\nfn f() {\n    \
                    a.load(Acquire);\n}\n";
        assert_eq!(in_library(bare), ["a.rs:3 ordering"]);
        let glob = "use core::sync::atomic::Ordering::*;\nfn f() { a.load(SeqCst); }\n";
        assert_eq!(in_library(glob), ["a.rs:2 ordering"]);
        let renamed = "use core::sync::atomic::{AtomicU32, Ordering as O};\n\
                       fn f() { a.load(O::SeqCst); }\n";
        assert_eq!(in_library(renamed), ["a.rs:2 ordering"]);
        let another = "enum Event { Acquire, Release }\nfn f() -> Event { MyOrdering::Acquire }\n";
        assert_eq!(in_library(another), [""; 0]);
    }

    #[test]
    fn orderings_in_tests_are_free() {
        let text = "fn f() { a.load(Ordering::SeqCst); }\n";
        assert_eq!(in_file("crates/zonal/tests/stress.rs", text), [""; 0]);
        assert_eq!(in_library(&format!("#[cfg(test)]\nmod tests {{ {text} }}\n")), [""; 0]);
        assert_eq!(in_library(text), ["a.rs:1 ordering"]);
    }

    #[test]
    fn the_core_has_no_standard_library() {
        let lib = "crates/zonal-core/src/lib.rs";
        let root = "#![no_std]\n#![deny(unsafe_code)]\n";
        assert_eq!(in_file(lib, root), [""; 0]);
        assert_eq!(in_file(lib, ""), [format!("{lib}:1 no-std"), format!("{lib}:1 no-std")]);
        let test_only = format!("{root}#[cfg(test)]\nextern crate std;\n");
        assert_eq!(in_file(lib, &test_only), [""; 0]);
        let linked = format!("{root}extern crate std;\nextern crate alloc;\n");
        assert_eq!(in_file(lib, &linked), [format!("{lib}:3 no-std"), format!("{lib}:4 no-std")]);
        let zone = "crates/zonal-core/src/zone.rs";
        assert_eq!(in_file(zone, "use std::vec::Vec;\n"), [format!("{zone}:1 no-std")]);
        assert_eq!(
            in_file(zone, "use crate::alloc::X; // std::vec\nuse crate::sync::std::Y;\n"),
            [""; 0]
        );
        assert_eq!(in_library("use std::vec::Vec;\n"), [""; 0]);
    }
}
