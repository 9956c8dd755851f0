//! Citations of the behaviour reference lead to a section of it.
//!
//! `docs/linux` has a page for each letter and an anchor for each section: what the sources cite as
//! section 4 of letter D is `<a id="d4"></a>` in `docs/linux/d-allocation.md`, above the heading
//! `## D.4 …`. A citation is the sign of the reference, a blank or a hyphen, and one section or a
//! list of them (`F.1 to F.5, L`), also across the lines of a comment. A table with a column of
//! that name cites in its cells.

use std::collections::BTreeSet;

use super::finding::Finding;
use super::scan::is_word;
use super::tree::Tree;

const PAGES: &str = "docs/linux/";

/// The reference, as citations call it.
const SIGN: &str = "LB";

pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let mut sections = BTreeSet::new();
    for (file, text) in tree.texts() {
        if let Some(page) = file.path.strip_prefix(PAGES) {
            collect(page, text, &mut sections);
            headings(&file.path, page, text, findings);
        }
    }
    for (file, text) in tree.texts() {
        // The checks themselves speak of citations that lead nowhere.
        if file.path.starts_with(PAGES) || file.is_recorded() || file.path.starts_with("xtask/") {
            continue;
        }
        for (line, section) in citations(text) {
            if !sections.contains(&section) {
                let message = format!("{SIGN} {section} leads nowhere: not a section of {PAGES}");
                findings.push(Finding::new(&file.path, line, "citation", message));
            }
        }
    }
}

/// `e-pcp.md` is page `E`; other pages have no sections.
fn letter(page: &str) -> Option<char> {
    let mut chars = page.chars();
    let letter = chars.next()?.to_ascii_uppercase();
    (chars.next() == Some('-') && letter.is_ascii_uppercase()).then_some(letter)
}

/// The page's letter, and each of its anchors as `E.4`.
fn collect(page: &str, text: &str, sections: &mut BTreeSet<String>) {
    let Some(letter) = letter(page) else { return };
    sections.insert(letter.to_string());
    for (at, sign) in text.match_indices("<a id=\"") {
        let id = text[at + sign.len()..].split('"').next().unwrap_or_default();
        let mut chars = id.chars();
        let own = chars.next().is_some_and(|first| first.to_ascii_uppercase() == letter);
        if own && is_number(chars.as_str()) {
            sections.insert(format!("{letter}.{}", chars.as_str()));
        }
    }
}

/// Each heading of a section stands on the page of its letter and below its anchor.
fn headings(path: &str, page: &str, text: &str, findings: &mut Vec<Finding>) {
    let lines: Vec<&str> = text.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        let Some((section, _)) = line.strip_prefix("## ").and_then(section_at) else { continue };
        let anchor = format!("<a id=\"{}\"></a>", section.to_lowercase().replace('.', ""));
        let above = lines[..index].iter().rev().find(|line| !line.is_empty());
        let own = letter(page).is_some_and(|letter| section.starts_with(letter));
        if section.len() > 1 && (above != Some(&anchor.as_str()) || !own) {
            let message = format!("{section} needs {anchor} above it, on the page of its letter");
            findings.push(Finding::new(path, index + 1, "citation", message));
        }
    }
}

/// Lines and sections of all citations.
fn citations(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices(SIGN) {
        let before = text[..at].chars().next_back();
        if before.is_some_and(is_word) {
            continue;
        }
        let line = text[..at].matches('\n').count() + 1;
        let rest = &text[at + SIGN.len()..];
        let Some(rest) = rest.strip_prefix('-').or_else(|| separated(rest)) else { continue };
        let mut next = section_at(rest);
        while let Some((section, after)) = next {
            found.push((line, section));
            next = listed(after).and_then(section_at);
        }
    }
    found.extend(cells(text));
    found
}

/// What follows white space, which may be the end of a comment's line and the start of the next.
fn separated(text: &str) -> Option<&str> {
    let rest = text.trim_start();
    (rest.len() < text.len()).then(|| rest.trim_start_matches(['/', '!', '#']).trim_start())
}

/// What follows the sign between two sections of a list. A letter alone may be the next sentence's
/// first word, so only commas go on to one.
fn listed(text: &str) -> Option<&str> {
    let rest = if text.starts_with(char::is_whitespace) { separated(text)? } else { text };
    if let Some(rest) = rest.strip_prefix(',') {
        return separated(rest);
    }
    let words = ["and", "to", "or", "–"];
    let rest = words.into_iter().find_map(|word| rest.strip_prefix(word))?;
    let rest = separated(rest).unwrap_or(rest);
    section_at(rest).is_some_and(|(section, _)| section.len() > 1).then_some(rest)
}

/// `D.4` or `D` at the start of the text, and what follows it.
fn section_at(text: &str) -> Option<(String, &str)> {
    let letter = text.chars().next().filter(char::is_ascii_uppercase)?;
    let rest = &text[1..];
    let digits = rest.strip_prefix('.').map_or("", |rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        &rest[..end]
    });
    let (section, rest) = match digits {
        "" => (letter.to_string(), rest),
        digits => (format!("{letter}.{digits}"), &rest[1 + digits.len()..]),
    };
    (!rest.starts_with(is_word)).then_some((section, rest))
}

/// Sections in the cells below a table's heading of that name.
fn cells(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut column = None;
    for (index, line) in text.lines().enumerate() {
        let row = line.trim_start().trim_start_matches(['/', '!']).trim_start();
        if !row.starts_with('|') {
            column = None;
            continue;
        }
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        match column {
            None => column = cells.iter().position(|cell| *cell == SIGN),
            Some(at) => {
                let cell = cells.get(at).copied().unwrap_or_default();
                let words = cell.split([' ', ',']).filter_map(section_at);
                found.extend(words.map(|(section, _)| (index + 1, section)));
            }
        }
    }
    found
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::super::tests::findings;
    use super::{SIGN, check, citations};

    const PAGE: &str = "# D. Path\n\n<a id=\"d1\"></a>\n\n## D.1 Bits\n\n<a id=\"d4\"></a>\n\n\
                        ## D.4 Scan\n\n1. <a id=\"d5\"></a>Step.\n";

    /// The sections that a text cites, with `§` for the sign of the reference.
    fn cited(text: &str) -> Vec<String> {
        citations(&text.replace('§', SIGN)).into_iter().map(|(_, section)| section).collect()
    }

    fn found(text: &str) -> Vec<String> {
        let text = text.replace('§', SIGN);
        findings(check, &[("a.rs", &text), ("docs/linux/d-path.md", PAGE)])
    }

    #[test]
    fn sections_and_lists_of_them_are_read() {
        assert_eq!(cited("(§ D.4)"), ["D.4"]);
        assert_eq!(cited("(§-D.4)"), ["D.4"]);
        assert_eq!(cited("§ D.4, D.5 and E.10; § F."), ["D.4", "D.5", "E.10", "F"]);
        assert_eq!(cited("§ F.1 to F.5, G.4–G.6"), ["F.1", "F.5", "G.4", "G.6"]);
        assert_eq!(
            cited("// of a kernel (§\n    /// D.4, E.1,\n    /// E.2)"),
            ["D.4", "E.1", "E.2"]
        );
        assert_eq!(cited("§ G, H); and § G: with"), ["G", "H", "G"]);
        assert_eq!(cited("§ B.7's rule, A page"), ["B.7"]);
        assert_eq!(cited("§ alone, § each, X§ D.4, § DMA, `§`'s rules"), [""; 0]);
    }

    #[test]
    fn cells_below_the_sign_are_read() {
        let table = "//! | file | § |\n//! |--|--|\n//! | `A.9` | A, E.4 `x` |\n//! | b | |\n";
        assert_eq!(cited(table), ["A", "E.4"]);
        assert_eq!(cited("| § | x |\n|--|--|\n| D.4 | B.1 |\n\n| D.5 |\n"), ["D.4"]);
    }

    #[test]
    fn citations_lead_to_sections() {
        assert_eq!(found("//! § D.1, D.4 and D.5 (§ D).\n"), [""; 0]);
        assert_eq!(found("//! a\n// § D.2\n"), ["a.rs:2 citation"]);
        assert_eq!(found("//! § E\n"), ["a.rs:1 citation"]);
        assert_eq!(found("//! | § |\n//! |--|\n//! | D.7 |\n"), ["a.rs:3 citation"]);
    }

    #[test]
    fn headings_stand_below_their_anchors() {
        let path = "docs/linux/d-path.md";
        assert_eq!(findings(check, &[(path, PAGE)]), [""; 0]);
        let broken = PAGE.replace("<a id=\"d4\"></a>", "");
        assert_eq!(findings(check, &[(path, &broken)]), ["docs/linux/d-path.md:9 citation"]);
        let other = "docs/linux/e-path.md";
        let found = findings(check, &[(other, PAGE)]);
        assert_eq!(found, ["docs/linux/e-path.md:5 citation", "docs/linux/e-path.md:9 citation"]);
    }
}
