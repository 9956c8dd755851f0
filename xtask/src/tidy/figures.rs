//! Figures of the structure, for a look at where it grows: `cargo xtask tidy --figures`.

use std::path::Path;

use anyhow::Result;

use super::tree::{File, Tree};
use super::{circles, methods};

/// Written by others, or a reference to look things up in.
const NOT_COUNTED: &str = "docs/linux/";
const GLOSSARY: &str = "docs/GLOSSARY.md";

/// Prints them.
pub fn run(root: &Path) -> Result<bool> {
    let tree = Tree::read(root)?;
    for (what, figure) in of(&tree) {
        println!("{what:44} {figure}");
    }
    Ok(true)
}

fn of(tree: &Tree) -> Vec<(String, String)> {
    let source = |file: &&File| file.path.starts_with("crates/") && file.path.contains("/src/");
    let files: Vec<&File> =
        tree.files.iter().filter(source).filter(|file| file.rust.is_some()).collect();
    let (tests, code): (Vec<&File>, Vec<&File>) = files.iter().partition(|file| file.is_test());
    let walks = circles::walks(tree);
    let mut figures = vec![
        ("crates".to_owned(), walks.iter().filter(|(krate, ..)| is_crate(krate)).count()),
        ("files of code below crates/*/src".to_owned(), code.len()),
        ("lines of code in them, without comments".to_owned(), code.iter().map(|f| lines(f)).sum()),
        ("files of unit tests".to_owned(), tests.len()),
        ("circles of files".to_owned(), walks.iter().map(|(.., circles)| circles).sum()),
        ("words of README and docs, without docs/linux".to_owned(), words(tree)),
        ("terms of the glossary".to_owned(), terms(tree)),
    ];
    figures.extend(methods::most(tree).map(|(of, count)| (format!("most methods: {of}"), count)));
    let mut figures: Vec<(String, String)> =
        figures.into_iter().map(|(what, figure)| (what, figure.to_string())).collect();
    for (krate, walk, _) in walks.iter().filter(|(krate, ..)| is_crate(krate)) {
        let figure = format!("{} files: {}", walk.len(), walk.join(" -> "));
        figures.push((format!("longest walk of {krate}"), figure));
    }
    figures
}

fn is_crate(folder: &str) -> bool {
    folder.starts_with("crates/")
}

/// Lines with code, those of inline tests left out.
fn lines(file: &File) -> usize {
    let Some(rust) = &file.rust else { return 0 };
    let mut at = 0;
    let of_code = |line: &str| {
        let start = at;
        at += line.len() + 1;
        !line.trim().is_empty() && !rust.is_test(start)
    };
    rust.code.split('\n').map(of_code).filter(|is| *is).count()
}

/// A word has a letter or a digit: frames of tables do not count.
fn words(tree: &Tree) -> usize {
    let page = |path: &str| {
        path.ends_with(".md")
            && (path == "README.md" || path.starts_with("docs/"))
            && !path.starts_with(NOT_COUNTED)
    };
    let pages = tree.texts().filter(|(file, _)| page(&file.path));
    let is_word = |word: &&str| word.contains(char::is_alphanumeric);
    pages.map(|(_, text)| text.split_whitespace().filter(is_word).count()).sum()
}

/// Rows of the glossary's tables, without their heads.
fn terms(tree: &Tree) -> usize {
    let glossary = tree.texts().find(|(file, _)| file.path == GLOSSARY);
    let rows = glossary.into_iter().flat_map(|(_, text)| text.lines());
    let rows: Vec<&str> = rows.filter(|line| line.starts_with('|')).collect();
    let heads = rows.iter().filter(|line| line.starts_with("|--")).count();
    rows.len() - 2 * heads
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;

    fn figure(tree: &Tree, what: &str) -> String {
        let of = super::of(tree).into_iter().find(|(name, _)| name.starts_with(what));
        of.unwrap_or_else(|| panic!("no `{what}`")).1
    }

    #[test]
    fn figures_are_those_of_the_files() {
        let tree = Tree::from_samples(&[
            (
                "crates/a/src/lib.rs",
                "//! A.\nmod b;\nmod c;\nuse b::B;\n\nimpl X {\n    fn f() {}\n}\n",
            ),
            (
                "crates/a/src/b.rs",
                "use crate::c::C;\n#[cfg(test)]\nmod tests {\n    fn f() {}\n}\n",
            ),
            ("crates/a/src/c.rs", "pub struct C;\n"),
            ("README.md", "Two words, one | and ¶\n"),
            ("docs/linux/a.md", "not counted\n"),
            ("docs/GLOSSARY.md", "| term | is |\n|--|--|\n| a | b |\n"),
        ]);
        assert_eq!(figure(&tree, "longest walk"), "3 files: the root -> b -> c");
        assert_eq!(figure(&tree, "circles"), "0");
        assert_eq!(figure(&tree, "most methods: X of crates/a"), "1");
        assert_eq!(figure(&tree, "lines of code"), "8");
        assert_eq!(figure(&tree, "words"), "8");
        assert_eq!(figure(&tree, "terms"), "1");
    }
}
