//! House rules that neither rustfmt nor clippy knows.
//!
//! Each check is a function from a [`Tree`] to [`Finding`]s, in a module of its own group:
//!
//! | module | checks |
//! |--|--|
//! | `text` | `whitespace`, `newline`, `todo`, `macro`, `module-doc` |
//! | `size` | `file-length`, `function-length`, `line-length` |
//! | `methods` | `methods-per-type` |
//! | `newtypes` | `open-newtype` |
//! | `layers` | `layers` |
//! | `invariants` | `invariant` |
//! | `circles` | `circle` |
//! | `safety` | `unsafe`, `ordering`, `no-std` |
//! | `manifest` | `dependency` |
//! | `paths` | `machine-path`, `registry-host` |
//! | `links` | `link` |
//! | `costs` | `lab-cost` |
//! | `numbers` | `lab-number` |
//! | `citations` | `citation` |
//! | `words` | `retired-word` |
//! | `quotes` | `quote` |
//!
//! The checks read text, not syntax trees: `scan` splits Rust into code and comments, and code that
//! rustfmt has formatted is regular enough for the rest. Checks do not expand macros.

mod circles;
mod citations;
mod costs;
pub mod figures;
mod finding;
mod invariants;
mod layers;
mod links;
mod manifest;
mod methods;
mod newtypes;
mod numbers;
mod paths;
mod quotes;
mod safety;
mod scan;
mod size;
mod text;
mod tree;
mod words;

use std::path::Path;

use anyhow::Result;

use finding::Finding;
use tree::Tree;

/// All groups, in the order of the table above.
const CHECKS: &[fn(&Tree, &mut Vec<Finding>)] = &[
    text::check,
    size::check,
    methods::check,
    newtypes::check,
    layers::check,
    circles::check,
    invariants::check,
    safety::check,
    manifest::check,
    paths::check,
    links::check,
    costs::check,
    numbers::check,
    citations::check,
    words::check,
    quotes::check,
];

/// Prints the findings of all checks in `root`. Returns whether it found nothing.
pub fn run(root: &Path) -> Result<bool> {
    let tree = Tree::read(root)?;
    let findings = find(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    eprintln!("tidy: {} files, {} findings", tree.files.len(), findings.len());
    Ok(findings.is_empty())
}

fn find(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for check in CHECKS {
        check(tree, &mut findings);
    }
    findings.sort();
    findings.dedup();
    findings
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Runs one group over sample files; gives `path:line check` of each finding.
    pub(super) fn findings(
        check: fn(&Tree, &mut Vec<Finding>),
        files: &[(&str, &str)],
    ) -> Vec<String> {
        let mut findings = Vec::new();
        check(&Tree::from_samples(files), &mut findings);
        findings.sort();
        findings.iter().map(|f| format!("{}:{} {}", f.path, f.line, f.check)).collect()
    }

    #[test]
    fn a_finding_prints_as_file_line_check_message() {
        let finding = Finding::new("a/b.rs", 7, "todo", "why");
        assert_eq!(finding.to_string(), "a/b.rs:7: [todo] why");
    }

    #[test]
    fn every_check_runs_and_can_fail() {
        let long = format!("fn f() {{\n{}}}\n", "x();\n".repeat(600));
        let many = format!("//! A.\nimpl A {{\n{}}}\n", "fn f() {}\n".repeat(61));
        let page = format!("[a](gone.md) {}", paths::samples());
        let tree = Tree::from_samples(&[
            ("a.rs", "unsafe { dbg!(a.load(Ordering::Acquire)) } // TODO \n"),
            ("b.rs", &long),
            ("crates/a/src/lib.rs", &many),
            ("crates/zonal-core/src/a.rs", "//! - **AB-1** x\npub struct A(pub u8);\n"),
            ("crates/b/src/a.rs", "use crate::b::B;\n"),
            ("crates/b/src/b.rs", "use crate::a::A;\n"),
            ("c.rs", &format!("//! {} as it were\n", "c".repeat(100))),
            ("crates/zonal-core/src/lib.rs", "extern crate std;\n"),
            ("crates/zonal-core/Cargo.toml", "[dependencies]\na.workspace = true\n"),
            ("README.md", &format!("{page}\n```rust from=gone.rs\n```")),
            ("docs/linux/d-path.md", "## D.4 Scan\n"),
        ]);
        let checks: BTreeSet<&str> = find(&tree).iter().map(|finding| finding.check).collect();
        let expected = [
            "circle",
            "citation",
            "dependency",
            "file-length",
            "function-length",
            "invariant",
            "layers",
            "line-length",
            "link",
            "machine-path",
            "macro",
            "methods-per-type",
            "module-doc",
            "newline",
            "no-std",
            "open-newtype",
            "ordering",
            "quote",
            "registry-host",
            "retired-word",
            "todo",
            "unsafe",
            "whitespace",
        ];
        assert_eq!(checks, BTreeSet::from(expected));
    }

    /// These files hold samples of everything that is forbidden, and must still pass.
    #[test]
    fn xtask_is_tidy_itself() {
        let root = crate::repository_root();
        let mut tree = Tree::read(&root).expect("the repository can be read");
        tree.files.retain(|file| file.path.starts_with("xtask/"));
        assert!(tree.files.len() > 8, "the walk found only {} files", tree.files.len());
        let mut findings = find(&tree);
        // The page that the layers are described in is not below xtask/.
        findings.retain(|finding| finding.path.starts_with("xtask/"));
        assert_eq!(findings, [], "cargo xtask tidy");
    }
}
