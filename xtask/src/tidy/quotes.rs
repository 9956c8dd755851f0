//! Code that a page quotes is what stands in a file that is compiled.
//!
//! A fenced block with `from=PATH` after its language quotes consecutive lines of that file, at any
//! indentation. `…` alone on a line skips some.

use super::finding::Finding;
use super::tree::Tree;

const SOURCE: &str = "from=";

pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for (file, text) in tree.texts().filter(|(file, _)| file.path.ends_with(".md")) {
        let mut lines = (1..).zip(text.lines());
        while let Some((number, line)) = lines.next() {
            let Some(info) = line.trim_start().strip_prefix("```").filter(|info| !info.is_empty())
            else {
                continue;
            };
            let body = lines.by_ref().take_while(|(_, line)| !line.trim_start().starts_with("```"));
            let body: Vec<(usize, &str)> = body.collect();
            let Some(path) = info.split([' ', ',']).find_map(|word| word.strip_prefix(SOURCE))
            else {
                continue;
            };
            let source = tree.texts().find(|(source, _)| source.path == path);
            let wrong = match source {
                Some((_, source)) => missing(source, &body),
                None => Some((number, format!("{path} is not there"))),
            };
            if let Some((line, what)) = wrong {
                let message = format!("quoted from {path}: {what}");
                findings.push(Finding::new(&file.path, line, "quote", message));
            }
        }
    }
}

/// The first quoted line that does not stand where it should.
fn missing(source: &str, quoted: &[(usize, &str)]) -> Option<(usize, String)> {
    let source: Vec<&str> = source.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let quoted = quoted.iter().map(|&(number, line)| (number, line.trim()));
    let mut quoted = quoted.filter(|(_, line)| !line.is_empty());
    // Where the quoted lines may go on: anywhere at first, then behind each match.
    let mut places: Vec<usize> = (0..source.len()).collect();
    quoted.find_map(|(number, line)| {
        if line == "…" {
            places =
                places.iter().min().map_or(Vec::new(), |&first| (first..source.len()).collect());
            return None;
        }
        places.retain(|&at| source.get(at) == Some(&line));
        places.iter_mut().for_each(|at| *at += 1);
        places.is_empty().then(|| (number, format!("`{line}` does not stand there")))
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::findings;
    use super::check;

    fn page(quoted: &str) -> Vec<String> {
        let text = format!("# T\n\n```rust,ignore from=a.rs\n{quoted}```\n");
        findings(
            check,
            &[("p.md", &text), ("a.rs", "fn f() {\n    a;\n\n    b;\n    a;\n    c;\n}\n")],
        )
    }

    #[test]
    fn lines_of_the_file_pass() {
        let indented = "1. x\n\n   ```rust from=a.rs\n   b;\n   x;\n   ```\n";
        assert_eq!(findings(check, &[("p.md", indented), ("a.rs", "b;\nx;\n")]), [""; 0]);
        for quoted in ["a;\nb;\n", "    a;\n\n    c;\n}\n", "fn f() {\n…\n    a;\n    c;\n", ""] {
            assert_eq!(page(quoted), [""; 0], "{quoted}");
        }
    }

    #[test]
    fn other_lines_are_found() {
        assert_eq!(page("a;\nd;\n"), ["p.md:5 quote"]);
        assert_eq!(page("b;\nc;\n"), ["p.md:5 quote"]);
        assert_eq!(page("…\nc;\n…\nb;\n"), ["p.md:7 quote"]);
        let gone = [("p.md", "```rust from=b.rs\nx\n```\n"), ("a.rs", "x\n")];
        assert_eq!(findings(check, &gone), ["p.md:1 quote"]);
    }
}
