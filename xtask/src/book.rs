//! `cargo xtask book`: builds the book of `docs/` and looks at every link of its pages.
//!
//! The builder is `mdbook`, compiled once into `target/tools` at the version named here, so that
//! building the workspace compiles nothing of it. tidy (`link`) checks the sources; this checks the
//! built pages: every file that a browser would request must exist.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::tools::{self, target_directory};

const VERSION: &str = "0.5.4";

/// Builds the book below `target/book`; true if all its links lead somewhere.
pub fn run(root: &Path) -> Result<bool> {
    let tool = tools::installed(
        root,
        &tools::Published {
            package: "mdbook",
            version: VERSION,
            program: "mdbook",
            says: VERSION,
            arguments: &["--no-default-features", "--features", "search"],
        },
    )?;
    let book = target_directory(root).join("book");
    let status = Command::new(&tool)
        .args(["build", "docs", "--dest-dir"])
        .arg(&book)
        .current_dir(root)
        .status()
        .with_context(|| format!("cannot start {}", tool.display()))?;
    ensure!(status.success(), "mdbook failed");
    let pages = pages(&book)?;
    let broken = broken(&pages, |path| book.join(path).is_file());
    broken.iter().for_each(|line| println!("{line}"));
    println!("{}: {} pages, {} broken links", book.display(), pages.len(), broken.len());
    Ok(broken.is_empty())
}

/// Text of every page, by its path below `book`.
fn pages(book: &Path) -> Result<BTreeMap<String, String>> {
    let mut pages = BTreeMap::new();
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        let full = book.join(&directory);
        let entries =
            std::fs::read_dir(&full).with_context(|| format!("cannot list {}", full.display()))?;
        for entry in entries {
            let entry = entry?;
            let path = directory.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "html") {
                let text = std::fs::read_to_string(entry.path())
                    .with_context(|| format!("cannot read {}", path.display()))?;
                pages.insert(path.to_string_lossy().replace('\\', "/"), text);
            }
        }
    }
    ensure!(pages.contains_key("index.html"), "{}: no index.html", book.display());
    Ok(pages)
}

/// A line for each link that leads nowhere. `is_file` covers files that are not pages.
fn broken(pages: &BTreeMap<String, String>, is_file: impl Fn(&str) -> bool) -> Vec<String> {
    let ids: BTreeMap<&str, BTreeSet<&str>> = pages
        .iter()
        .map(|(path, text)| (path.as_str(), values(text, " id=\"").collect()))
        .collect();
    let mut broken = Vec::new();
    for (path, text) in pages {
        // These two are copies of pages, which are looked at under their own names.
        if matches!(path.as_str(), "print.html" | "404.html") {
            continue;
        }
        for link in values(text, " href=\"").chain(values(text, " src=\"")) {
            let (target, place) = link.split_once('#').map_or((link, ""), |(t, place)| (t, place));
            if target.contains(':') || target.starts_with("//") {
                continue;
            }
            let target = match target.split('?').next().unwrap_or_default() {
                "" => path.clone(),
                target => join(path, target),
            };
            let has_place = || place.is_empty() || ids[target.as_str()].contains(place);
            let found = match ids.contains_key(target.as_str()) {
                true => has_place(),
                false => is_file(&target),
            };
            if !found {
                broken.push(format!("{path}: {link} leads nowhere"));
            }
        }
    }
    broken
}

/// The values of an attribute.
fn values<'a>(text: &'a str, attribute: &'a str) -> impl Iterator<Item = &'a str> {
    text.match_indices(attribute).filter_map(move |(at, sign)| {
        let rest = &text[at + sign.len()..];
        rest.split('"').next()
    })
}

/// The path that `target` names on the page `from`.
fn join(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book(pages: &[(&str, &str)]) -> Vec<String> {
        let pages = pages.iter().map(|&(path, text)| (path.to_owned(), text.to_owned())).collect();
        broken(&pages, |path| path == "a/x.css")
    }

    #[test]
    fn pages_places_and_files_are_found() {
        let first = "<a href=\"a/b.html#there\"> <a href=\"#here\"> <h1 id=\"here\"> \
                     <link href=\"a/x.css?v=1\"> <a href=\"https://x.y/z\">";
        let second = "<p id=\"there\"> <a href=\"../index.html\"> <img src=\"x.css\">";
        assert_eq!(book(&[("index.html", first), ("a/b.html", second)]), [""; 0]);
    }

    #[test]
    fn what_leads_nowhere_is_named() {
        for link in ["b.html", "index.html#there", "#there", "x.css", "../index.html/a"] {
            let page = format!("<a href=\"{link}\">");
            assert_eq!(
                book(&[("index.html", &page)]),
                [format!("index.html: {link} leads nowhere")]
            );
        }
    }
}
