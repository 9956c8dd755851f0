//! Each command line of this program that a page, a help text or a message shows is one that the
//! program takes: blocks of `sh` are read as a shell reads them, words in back quotes may leave
//! values out.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use clap::Parser;
use clap::error::ErrorKind;

use crate::cli::Cli;

/// What begins a command that is not its name: what runs another one.
const RUNNERS: [&str; 2] = ["sudo", "time"];
const BY_CARGO: [&str; 4] = ["cargo", "run", "--release", "--"];

/// The commands of a shell's script, each with its words. A variable that is set in it is put in
/// where it is used; what a command is piped or written to is left out.
fn commands(script: &str) -> Vec<Vec<String>> {
    let mut variables = HashMap::new();
    let mut found = Vec::new();
    for line in script.replace("\\\n", " ").lines() {
        for mut words in parts(line, &variables) {
            while let Some((name, value)) = words.first().and_then(|word| assignment(word)) {
                variables.insert(name, value);
                words.remove(0);
            }
            while words.first().is_some_and(|word| RUNNERS.contains(&word.as_str())) {
                words.remove(0);
            }
            if words.first().is_some_and(|word| word == "parallel") {
                words = of_parallel(&words[1..]);
            }
            if words.starts_with(&BY_CARGO.map(str::to_owned)) {
                words.splice(..BY_CARGO.len(), ["zonal".to_owned()]);
            }
            if !words.is_empty() {
                found.push(words);
            }
        }
    }
    found
}

/// What `parallel` runs: its words as a line of their own, with 1 for the argument.
fn of_parallel(words: &[String]) -> Vec<String> {
    let line: Vec<&str> = words.iter().map_while(|w| (w != ":::").then_some(w.as_str())).collect();
    line.join(" ").replace("{}", "1").split(' ').map(str::to_owned).collect()
}

fn assignment(word: &str) -> Option<(String, String)> {
    let (name, value) = word.split_once('=')?;
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    is_name.then(|| (name.to_owned(), value.to_owned()))
}

/// A line's commands: cut at `;`, `|`, `&` and before `>`, without the comment.
fn parts(line: &str, variables: &HashMap<String, String>) -> Vec<Vec<String>> {
    let mut line = line.to_owned();
    for (name, value) in variables {
        line = line.replace(&format!("${name}"), value);
    }
    let (mut found, mut words) = (Vec::new(), Vec::new());
    let (mut word, mut quote, mut left_out) = (None::<String>, None, false);
    for c in line.chars().chain(std::iter::once('\n')) {
        match (quote, c) {
            (Some(open), c) if open == c => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '#') if word.is_none() => break,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ';' | '|' | '&' | '>') => {
                words.extend(word.take().filter(|_| !left_out));
                if c != '>' {
                    found.push(std::mem::take(&mut words));
                }
                left_out = c == '>';
            }
            (None, c) if c.is_whitespace() => words.extend(word.take().filter(|_| !left_out)),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    found.push(words);
    found.retain(|words| !words.is_empty());
    found
}

/// Why the program would not take these words, if it would not.
fn refused(words: &[String], is_a_mention: bool) -> Option<String> {
    let error = Cli::try_parse_from(words).err()?;
    let is_left_out = matches!(
        error.kind(),
        ErrorKind::MissingRequiredArgument
            | ErrorKind::MissingSubcommand
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    // `--only` by itself names the flag, and `NAME` or `{from}` is no value.
    let is_a_placeholder = matches!(
        error.kind(),
        ErrorKind::InvalidValue | ErrorKind::ValueValidation | ErrorKind::WrongNumberOfValues
    ) && words.last().is_some_and(|word| {
        word.starts_with('-') || !word.chars().any(char::is_lowercase) || word.contains('{')
    });
    (!is_a_mention || !(is_left_out || is_a_placeholder)).then(|| error.to_string())
}

/// The files below these directories of the repository whose names end so.
fn files(directories: &[&str], ending: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut left: Vec<PathBuf> = directories.iter().map(|name| root.join(name)).collect();
    let mut found = Vec::new();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
            left.extend(entries.filter(|path| !path.ends_with("target")));
        } else if path.to_string_lossy().ends_with(ending) {
            let text = std::fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
    found
}

/// The blocks of a language of a page.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let opening = format!("```{language}\n");
    page.split(&opening).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

const PAGES: [&str; 4] = ["README.md", "CONTRIBUTING.md", "docs", "crates"];

/// Whether the pages are here: they are not beside a crate from its archive.
fn are_here() -> bool {
    let are = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/README.md").exists();
    if !are {
        eprintln!("SKIPPED: the repository's pages are not here");
    }
    are
}

#[test]
fn command_lines_of_the_pages_are_taken() {
    if !are_here() {
        return;
    }
    let (mut tried, mut wrong) = (0, Vec::new());
    for (path, page) in files(&PAGES, ".md") {
        for words in blocks(&page, "sh").into_iter().flat_map(commands) {
            if words[0] == "zonal" {
                tried += 1;
                let why = refused(&words, false);
                wrong.extend(why.map(|why| format!("{}: {words:?}: {why}", path.display())));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(tried > 60, "{tried} command lines were found");
}

#[test]
fn commands_that_texts_and_messages_name_are_there() {
    let mut sources = files(&PAGES, ".md");
    sources.extend(files(&["crates"], ".rs"));
    if !are_here() {
        return;
    }
    let (mut tried, mut wrong) = (0, Vec::new());
    for (path, text) in sources {
        // A literal that goes on in the next line.
        let text: Vec<&str> = text.split("\\\n").map(str::trim_start).collect();
        for line in text.concat().lines() {
            for mention in line.split('`').skip(1).step_by(2).filter(|m| m.starts_with("zonal ")) {
                for words in commands(mention) {
                    // `zonal vmstat`, not the table "zonal 0.1.0".
                    if words.len() > 1 && words[1].starts_with(|c: char| c.is_ascii_lowercase()) {
                        tried += 1;
                        let why = refused(&words, true);
                        wrong
                            .extend(why.map(|why| format!("{}: {mention}: {why}", path.display())));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(tried > 150, "{tried} were found");
}

#[test]
fn scripts_are_read_as_a_shell_reads_them() {
    let script = [
        "a 'b c' --d=\"e f\" \\",
        "  g # h",
        "x=\"i j\"",
        "parallel \"$x {}\" ::: 1 2 | k > l",
        "",
        "sudo m >> n o",
        "cargo run --release -- replay",
    ]
    .join("\n");
    let there: Vec<String> = commands(&script).iter().map(|words| words.join("_")).collect();
    assert_eq!(there, ["a_b c_--d=e f_g", "i_j_1", "k", "m", "zonal_replay"]);
}
