//! Links from one Markdown file to another file of the repository lead somewhere.
//!
//! A target must be under version control: a link to a build output works for its author only. The
//! part after `#` must be a heading or an anchor of the page. Pages below `docs` are a book
//! (`cargo xtask book`): they link to each other only, and its `SUMMARY.md` lists each of them.
//! Addresses with a scheme are not visited.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::Finding;
use super::tree::Tree;
use crate::markdown;

const BOOK: &str = "docs/";
const SUMMARY: &str = "docs/SUMMARY.md";

pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let pages = || tree.texts().filter(|(file, _)| file.path.ends_with(".md"));
    let anchors: BTreeMap<&str, BTreeSet<String>> =
        pages().map(|(file, text)| (file.path.as_str(), markdown::anchors(text))).collect();
    let mut listed = BTreeSet::new();
    for (file, text) in pages() {
        for (line, target) in markdown::links(text) {
            let (path, place) = match resolve(&file.path, target) {
                Target::Elsewhere => continue,
                Target::InRepository(path, place) => (path, place),
                Target::Outside => {
                    let message = format!("the link leads out of the repository: {target}");
                    findings.push(Finding::new(&file.path, line, "link", message));
                    continue;
                }
            };
            let has_place = |place| anchors.get(&*path).is_none_or(|all| all.contains(place));
            let message = if !tree.contains(&path) {
                format!("the link leads to {path}, which is not there")
            } else if file.path.starts_with(BOOK) && !path.starts_with(BOOK) {
                format!("a page of the book links to {path}; write its path as code")
            } else if let Some(place) = place.filter(|place| !has_place(*place)) {
                format!("{path} has no heading or anchor #{place}")
            } else {
                if file.path == SUMMARY {
                    listed.insert(path);
                }
                continue;
            };
            findings.push(Finding::new(&file.path, line, "link", message));
        }
    }
    if anchors.contains_key(SUMMARY) {
        for page in anchors.keys().filter(|page| page.starts_with(BOOK) && **page != SUMMARY) {
            if !listed.contains(*page) {
                findings.push(Finding::new(page, 1, "link", format!("{SUMMARY} does not list it")));
            }
        }
    }
}

/// Where a link leads.
enum Target<'a> {
    /// An address with a scheme.
    Elsewhere,
    /// A path from the root, and the place on that page.
    InRepository(String, Option<&'a str>),
    Outside,
}

fn resolve<'a>(from: &str, target: &'a str) -> Target<'a> {
    let (path, place) = target.split_once('#').map_or((target, None), |(p, at)| (p, Some(at)));
    let path = path.split('?').next().unwrap_or_default();
    let has_scheme = path.split_once(':').is_some_and(|(scheme, _)| {
        !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    });
    if has_scheme {
        return Target::Elsewhere;
    }
    if path.is_empty() {
        return Target::InRepository(from.to_owned(), place);
    }
    let mut parts: Vec<&str> = match path.starts_with('/') {
        true => Vec::new(),
        false => from.split('/').rev().skip(1).collect::<Vec<_>>().into_iter().rev().collect(),
    };
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.pop().is_none() => return Target::Outside,
            ".." => {}
            part => parts.push(part),
        }
    }
    Target::InRepository(parts.join("/").replace("%20", " "), place)
}

#[cfg(test)]
mod tests {
    use super::super::tests::findings;
    use super::check;

    const B: &str = "# B\n## A `b` of c: d\n## There\n## There\n<a id=\"x1\"></a>\n";

    fn in_page(text: &str) -> Vec<String> {
        let files =
            [("pages/A.md", text), ("pages/B.md", B), ("pages/x y.md", ""), ("src/a(1).rs", "")];
        findings(check, &files)
    }

    #[test]
    fn links_to_files_resolve() {
        let text = "# Here\n[a](B.md) and ![b](../src/a(1).rs \"title\"), [c](../src/)\n\
                    [d](#here) [e](B.md#there) [f](/pages/B.md) [g](https://x.y/z.md#a) [h](mailto:a@b)\n\
                    [i](<x y.md>) [j](x%20y.md) <img src=\"../src/a(1).rs\">\n\n[k]: ./B.md\n\
                    [l](B.md#there-1) [m](B.md#x1) [n](B.md#a-b-of-c-d) [o](../src/a(1).rs#L7)\n";
        assert_eq!(in_page(text), [""; 0]);
    }

    #[test]
    fn broken_links_are_found() {
        for bad in [
            "[a](C.md)",
            "[a](../B.md)",
            "![a](B.png)",
            "[a](B.md) [b](gone.md#x)",
            "[a](<C D.md>)",
            "<a href=\"C.md\">",
            "[a]: C.md",
            "[a](/B.md)",
            "[a](../../pages/B.md)",
            "`code` [a](C.md)",
            "[a](#u)",
            "[a](B.md#there-2)",
            "[a](B.md#Where)",
        ] {
            assert_eq!(in_page(&format!("# T\n\n{bad}\n")), ["pages/A.md:3 link"], "{bad}");
        }
    }

    #[test]
    fn code_holds_no_links() {
        let text = "```rust\nx[i](C.md)\n```\n`a[i](C.md)`\n~~~\n```\n[a](C.md)\n~~~\n[^1]: note\n";
        assert_eq!(in_page(text), [""; 0]);
        assert_eq!(in_page(&format!("{text}[a](C.md)\n")), ["pages/A.md:10 link"]);
    }

    #[test]
    fn the_book_links_to_itself_and_lists_its_pages() {
        let book = |summary, page| {
            let files = [("docs/SUMMARY.md", summary), ("docs/a.md", page), ("README.md", "")];
            findings(check, &files)
        };
        assert_eq!(book("[a](a.md)\n", "[s](SUMMARY.md) `README.md`\n"), [""; 0]);
        assert_eq!(book("[a](a.md)\n", "[r](../README.md)\n"), ["docs/a.md:1 link"]);
        assert_eq!(book("# S\n", ""), ["docs/a.md:1 link"]);
    }
}
