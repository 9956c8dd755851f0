//! Links from one Markdown file to another file of the repository lead somewhere.
//!
//! A target must be under version control: a link to a build output works for its author only.
//! Addresses with a scheme are not visited, and the part after `#` is not looked up.

use super::Finding;
use super::tree::Tree;

pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for (file, text) in tree.texts().filter(|(file, _)| file.path.ends_with(".md")) {
        for (line, target) in targets(text) {
            let message = match resolve(&file.path, target) {
                Target::Elsewhere => continue,
                Target::InRepository(path) if tree.contains(&path) => continue,
                Target::InRepository(path) => {
                    format!("the link leads to {path}, which is not there")
                }
                Target::Outside => format!("the link leads out of the repository: {target}"),
            };
            findings.push(Finding::new(&file.path, line, "link", message));
        }
    }
}

/// Where a link leads.
enum Target {
    /// An address with a scheme, or a place in the same file.
    Elsewhere,
    /// A path from the root.
    InRepository(String),
    Outside,
}

fn resolve(from: &str, target: &str) -> Target {
    let path = target.split(['#', '?']).next().unwrap_or_default();
    let has_scheme = path.split_once(':').is_some_and(|(scheme, _)| {
        !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    });
    if path.is_empty() || has_scheme {
        return Target::Elsewhere;
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
    Target::InRepository(parts.join("/").replace("%20", " "))
}

/// Lines and targets of all links outside of code.
fn targets(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut fence = None;
    for (index, line) in text.lines().enumerate() {
        let start = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            _ => {}
        }
        if fence.is_some() || mark.is_some() {
            continue;
        }
        let in_code = |at: usize| line[..at].matches('`').count() % 2 == 1;
        for opening in ["](", "src=\"", "href=\""] {
            for (at, _) in line.match_indices(opening).filter(|&(at, _)| !in_code(at)) {
                found.push((index + 1, target_at(&line[at + opening.len()..])));
            }
        }
        // `[name]: target` at the start of a line; `[^1]:` is a footnote.
        if let Some((name, rest)) = start.split_once("]: ")
            && name.starts_with('[')
            && !name.starts_with("[^")
        {
            found.push((index + 1, target_at(rest.trim_start())));
        }
    }
    found
}

/// `target)`, `<target>)`, `target "title")`, `target"`, up to its end.
fn target_at(rest: &str) -> &str {
    if let Some(rest) = rest.strip_prefix('<') {
        return rest.split('>').next().unwrap_or_default();
    }
    let mut nesting = 0_i32;
    let end = rest.find(|c: char| {
        nesting += i32::from(c == '(') - i32::from(c == ')');
        nesting < 0 || c.is_whitespace() || c == '"'
    });
    &rest[..end.unwrap_or(rest.len())]
}

#[cfg(test)]
mod tests {
    use super::super::tests::findings;
    use super::check;

    fn in_page(text: &str) -> Vec<String> {
        let files =
            [("docs/A.md", text), ("docs/B.md", ""), ("docs/x y.md", ""), ("src/a(1).rs", "")];
        findings(check, &files)
    }

    #[test]
    fn links_to_files_resolve() {
        let text = "[a](B.md) and ![b](../src/a(1).rs \"title\"), [c](../src/), [d](#here)\n\
                    [e](B.md#there) [f](/docs/B.md) [g](https://x.y/z.md) [h](mailto:a@b)\n\
                    [i](<x y.md>) [j](x%20y.md) <img src=\"../src/a(1).rs\">\n\n[k]: ./B.md\n";
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
            "[a](../../docs/B.md)",
            "`code` [a](C.md)",
        ] {
            assert_eq!(in_page(&format!("# T\n\n{bad}\n")), ["docs/A.md:3 link"], "{bad}");
        }
    }

    #[test]
    fn code_holds_no_links() {
        let text = "```rust\nx[i](C.md)\n```\n`a[i](C.md)`\n~~~\n```\n[a](C.md)\n~~~\n[^1]: note\n";
        assert_eq!(in_page(text), [""; 0]);
        assert_eq!(in_page(&format!("{text}[a](C.md)\n")), ["docs/A.md:10 link"]);
    }
}
