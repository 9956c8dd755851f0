//! Bounds that keep code readable: lines of a file, lines of a function, columns of a line.

use super::finding::Finding;
use super::tree::{File, Tree};

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
const LINE_COLUMNS_MAX: usize = 100;
/// Made of sources that are checked themselves; C programmers expect one header.
const GENERATED: &str = "crates/zonal-c/include/zonal.h";

pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for (file, text) in tree.texts().filter(|(file, _)| file.is_code()) {
        file_length(file, text, findings);
        function_lengths(file, findings);
        line_lengths(file, text, findings);
    }
}

fn file_length(file: &File, text: &str, findings: &mut Vec<Finding>) {
    let lines = text.lines().count();
    if lines > FILE_LINES_MAX && file.path != GENERATED {
        let message = format!("{lines} lines, at most {FILE_LINES_MAX}");
        findings.push(Finding::new(&file.path, FILE_LINES_MAX + 1, "file-length", message));
    }
}

/// Lines from `fn` to the closing brace; lines that hold nothing but a comment are free.
fn function_lengths(file: &File, findings: &mut Vec<Finding>) {
    let Some(rust) = &file.rust else { return };
    for function in rust.functions() {
        let code = rust.code[function.range.clone()].lines();
        let comments = rust.comments[function.range.clone()].lines();
        let only_comment =
            |(code, comment): &(&str, &str)| code.trim().is_empty() && !comment.trim().is_empty();
        let lines = code.zip(comments).filter(|pair| !only_comment(pair)).count();
        if lines > FUNCTION_LINES_MAX {
            let name = &function.name;
            let message =
                format!("function `{name}` has {lines} lines, at most {FUNCTION_LINES_MAX}");
            let line = rust.line(function.range.start);
            findings.push(Finding::new(&file.path, line, "function-length", message));
        }
    }
}

/// Addresses cannot be broken, and a manifest's reason stands on the dependency's own line.
fn line_lengths(file: &File, text: &str, findings: &mut Vec<Finding>) {
    if file.path.ends_with(".toml") {
        return;
    }
    for (index, line) in text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > LINE_COLUMNS_MAX && !line.contains("://") {
            let message = format!("{columns} columns, at most {LINE_COLUMNS_MAX}");
            findings.push(Finding::new(&file.path, index + 1, "line-length", message));
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

    #[test]
    fn a_file_may_have_600_lines() {
        assert_eq!(in_file("a.rs", &"//\n".repeat(600)), [""; 0]);
        assert_eq!(in_file("a.rs", &"//\n".repeat(601)), ["a.rs:601 file-length"]);
        assert_eq!(in_file("a.csv", &"1\n".repeat(601)), [""; 0]);
    }

    #[test]
    fn a_function_may_have_70_lines() {
        let function = |lines: usize| format!("\nfn f() {{\n{}}}\n", "x();\n".repeat(lines - 2));
        assert_eq!(in_file("a.rs", &function(70)), [""; 0]);
        assert_eq!(in_file("a.rs", &function(71)), ["a.rs:2 function-length"]);
        let commented = function(70).replacen("x();\n", "// why\n  /* how */\nx(); // so\n", 1);
        assert_eq!(in_file("a.rs", &commented), [""; 0]);
        let blanks = function(70).replacen("x();\n", "x();\n\n", 1);
        assert_eq!(in_file("a.rs", &blanks), ["a.rs:2 function-length"]);
    }

    #[test]
    fn braces_in_strings_and_comments_do_not_end_a_function() {
        let tricks = "s(\"}\"); // }\nc('}'); /* } */ r(r#\"}\"#);\n";
        let text = format!("fn f() {{\n{}}}\n", tricks.repeat(40));
        assert_eq!(in_file("a.rs", &text), ["a.rs:1 function-length"]);
    }

    #[test]
    fn two_short_functions_are_not_one_long_one() {
        let text = format!("fn f() {{\n{}}}\n", "x();\n".repeat(50)).repeat(2);
        assert_eq!(in_file("a.rs", &text), [""; 0]);
    }

    #[test]
    fn a_line_may_have_100_columns() {
        let line = |columns: usize| format!("// {}\n", "é".repeat(columns - 3));
        assert_eq!(in_file("a.rs", &line(100)), [""; 0]);
        assert_eq!(in_file("a.rs", &line(101)), ["a.rs:1 line-length"]);
        assert_eq!(in_file("README.md", &line(101)), [""; 0]);
        assert_eq!(in_file("a.rs", &format!("// https://a/{}\n", "b".repeat(99))), [""; 0]);
    }
}
