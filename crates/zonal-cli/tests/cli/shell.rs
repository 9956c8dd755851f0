//! Completions and pages of the manual: shells and `man` read them as people do.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::program::{passed, stderr, stdout, zonal};

/// What bash offers after a line, with the completions that the program prints.
fn offered(line: &str) -> Vec<String> {
    let words: Vec<&str> = line.split(' ').collect();
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let script = format!(
        "{}\nCOMP_WORDS=({})\nCOMP_CWORD={}\nCOMP_LINE='{line}'\nCOMP_POINT={}\n\
         _zonal zonal '{}' '{}'\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
        stdout(&["completions", "bash"]),
        quoted.join(" "),
        words.len() - 1,
        line.len(),
        words[words.len() - 1],
        words[words.len() - 2],
    );
    let mut bash = Command::new("bash")
        .args(["--norc", "-s"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a shell");
    bash.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = bash.wait_with_output().unwrap();
    assert_eq!(stderr(&output), "", "{line}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_flags_and_values() {
    assert_eq!(offered("zonal repl"), ["replay"]);
    assert_eq!(offered("zonal lab comp"), ["compare"]);
    assert_eq!(offered("zonal policy --ag"), ["--against"]);
    assert_eq!(offered("zonal completions po"), ["powershell"]);
    assert!(offered("zonal ").contains(&"conform".to_owned()));
}

#[test]
fn every_shell_has_completions_that_name_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = stdout(&["completions", shell]);
        for command in ["replay", "record", "advise", "zoneinfo"] {
            assert!(script.contains(command), "{shell}: {command}");
        }
        assert!(!script.contains("record-guard"), "{shell}");
    }
    let unknown = zonal(&["completions", "command.com"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(stderr(&unknown).contains("bash"), "{}", stderr(&unknown));
}

#[test]
fn every_command_has_a_page_that_man_renders_without_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    passed(&["man", directory.path().to_str().unwrap()]);
    let mut pages: Vec<_> =
        fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.sort();
    let has = |name: &str| pages.iter().any(|page| page.ends_with(name));
    assert!(has("zonal.1") && has("zonal-replay.1") && has("zonal-lab-compare.1"), "{pages:?}");
    for page in &pages {
        let rendered = Command::new("man")
            .args(["--warnings", "-l"])
            .arg(page)
            .env("MANWIDTH", "80")
            .env("MANPAGER", "cat")
            .env("LC_ALL", "C.UTF-8")
            .output();
        let Ok(rendered) = rendered else {
            return eprintln!("SKIPPED: man is not installed; `apt-get install man-db`");
        };
        assert!(rendered.status.success(), "{}: {}", page.display(), stderr(&rendered));
        assert_eq!(stderr(&rendered), "", "{}", page.display());
        assert!(String::from_utf8_lossy(&rendered.stdout).contains("SYNOPSIS"));
    }
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    let output = zonal(&["man", "/nonexistent/directory"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("/nonexistent/directory/zonal.1"), "{}", stderr(&output));
}
