//! Plain text: white space, file ends, unfinished work, module docs.

use super::finding::Finding;
use super::scan::words;
use super::tree::{File, Tree};

/// Words that promise work. Each needs the issue that holds it, as in `#12`.
const PROMISES: &[&str] = &["TODO", "FIXME"];

/// Macros that belong to a work in progress.
const UNFINISHED_MACROS: &[&str] = &["dbg", "todo", "unimplemented"];

pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for (file, text) in tree.texts() {
        whitespace(file, text, findings);
        newline(file, text, findings);
        promises(file, text, findings);
        unfinished_macros(file, findings);
        module_doc(file, text, findings);
    }
}

/// No blanks at the end of a line of code, no tab in Rust.
fn whitespace(file: &File, text: &str, findings: &mut Vec<Finding>) {
    if !file.is_code() {
        return;
    }
    for (index, line) in text.split('\n').enumerate() {
        if line.ends_with(char::is_whitespace) {
            let message = "white space at the end of the line";
            findings.push(Finding::new(&file.path, index + 1, "whitespace", message));
        }
        if file.rust.is_some() && line.contains('\t') {
            let message = "a tab: indent with blanks, write \\t in a string";
            findings.push(Finding::new(&file.path, index + 1, "whitespace", message));
        }
    }
}

/// Every text file that is not recorded data ends with a line end.
fn newline(file: &File, text: &str, findings: &mut Vec<Finding>) {
    if !text.is_empty() && !text.ends_with('\n') && !file.is_recorded() {
        let line = text.lines().count();
        let message = "no line end at the end of the file";
        findings.push(Finding::new(&file.path, line, "newline", message));
    }
}

/// A promise names its issue on the same line. In back quotes the word is only spoken of.
fn promises(file: &File, text: &str, findings: &mut Vec<Finding>) {
    if !file.is_code() {
        return;
    }
    let text = file.rust.as_ref().map_or(text, |rust| rust.comments.as_str());
    for (index, line) in text.lines().enumerate() {
        let promise = words(line).find(|&(at, word)| {
            PROMISES.contains(&word) && !(at > 0 && line.as_bytes()[at - 1] == b'`')
        });
        if let Some((_, word)) = promise.filter(|_| !names_an_issue(line)) {
            let message = format!("{word} without an issue number, as in {word}(#12)");
            findings.push(Finding::new(&file.path, index + 1, "todo", message));
        }
    }
}

fn names_an_issue(line: &str) -> bool {
    line.split('#').skip(1).any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

fn unfinished_macros(file: &File, findings: &mut Vec<Finding>) {
    let Some(rust) = &file.rust else { return };
    for (at, word) in rust.words() {
        let is_macro = rust.code[at + word.len()..].starts_with('!')
            && !rust.code[at + word.len()..].starts_with("!=");
        if is_macro && UNFINISHED_MACROS.contains(&word) {
            let message = format!("{word}! is for work in progress");
            findings.push(Finding::new(&file.path, rust.line(at), "macro", message));
        }
    }
}

/// A module opens with its description. Test files may let their names say it.
fn module_doc(file: &File, text: &str, findings: &mut Vec<Finding>) {
    let in_tests = file.is_test() && !file.path.contains("benches/");
    let exempt = file.path.ends_with("build.rs") || in_tests;
    if file.rust.is_some() && !exempt && !text.starts_with("//!") {
        let message = "the file does not open with a //! comment that says what the module is";
        findings.push(Finding::new(&file.path, 1, "module-doc", message));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::findings;
    use super::check;

    fn in_rust(body: &str) -> Vec<String> {
        findings(check, &[("a.rs", &format!("//! Doc.\n{body}"))])
    }

    #[test]
    fn good_files_pass() {
        let files = [
            ("a.rs", "//! Doc.\n#![no_std]\n\nfn f() {}\n"),
            ("tests/a.rs", "fn f() {}\n"),
            ("src/buddy/tests.rs", "fn f() {}\n"),
            ("build.rs", "fn main() {}\n"),
            ("README.md", "two blanks break a line  \nhere, and TODO is a word\n"),
            ("data/captured", "no line end"),
            ("empty.txt", ""),
        ];
        assert_eq!(findings(check, &files), [""; 0]);
    }

    #[test]
    fn blanks_and_tabs_are_found() {
        assert_eq!(in_rust("fn f() {} \n"), ["a.rs:2 whitespace"]);
        assert_eq!(in_rust("\nfn f() {}\r\n"), ["a.rs:3 whitespace"]);
        assert_eq!(in_rust("\tfn f() {}\n"), ["a.rs:2 whitespace"]);
        assert_eq!(findings(check, &[(".ci/run", "a \n")]), [".ci/run:1 whitespace"]);
        assert_eq!(findings(check, &[("a.sh", "\ta\n")]), [""; 0]);
    }

    #[test]
    fn a_missing_line_end_is_found() {
        assert_eq!(findings(check, &[("README.md", "a\nb")]), ["README.md:2 newline"]);
        assert_eq!(findings(check, &[("data/a.rs", "//! a")]), ["data/a.rs:1 newline"]);
    }

    #[test]
    fn promises_need_an_issue() {
        assert_eq!(in_rust("// TODO: later\n"), ["a.rs:2 todo"]);
        assert_eq!(in_rust("x(); // see FIXME here\n"), ["a.rs:2 todo"]);
        assert_eq!(in_rust("// TODO(#x)\n"), ["a.rs:2 todo"]);
        assert_eq!(findings(check, &[("a.toml", "# TODO\n")]), ["a.toml:1 todo"]);
        assert_eq!(in_rust("// TODO(#12): later\n// `TODO`\nlet TODO_X = \"TODO\";\n"), [""; 0]);
    }

    #[test]
    fn unfinished_macros_are_found() {
        assert_eq!(in_rust("dbg!(x);\n"), ["a.rs:2 macro"]);
        assert_eq!(in_rust("\nstd::todo!()\n"), ["a.rs:3 macro"]);
        assert_eq!(in_rust("unimplemented!()\n"), ["a.rs:2 macro"]);
        assert_eq!(in_rust("// dbg!(x)\nif todo != 1 { my_todo!(); }\nif todo!=1 {}\n"), [""; 0]);
    }

    #[test]
    fn a_module_without_a_doc_is_found() {
        assert_eq!(findings(check, &[("a.rs", "fn f() {}\n")]), ["a.rs:1 module-doc"]);
        assert_eq!(findings(check, &[("a.rs", "// a\n")]), ["a.rs:1 module-doc"]);
        assert_eq!(findings(check, &[("a.rs", "\n")]), ["a.rs:1 module-doc"]);
        assert_eq!(findings(check, &[("a.rs", "")]), ["a.rs:1 module-doc"]);
    }
}
