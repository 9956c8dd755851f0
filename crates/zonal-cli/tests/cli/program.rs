//! The program, run as people run it, and what a run must be like.

use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;

/// The program, to be run with whatever a test adds.
pub fn command() -> Command {
    let mut command = Command::cargo_bin("zonal").unwrap();
    command.env("NO_COLOR", "1");
    command
}

/// Runs the program.
pub fn zonal(args: &[&str]) -> Output {
    command().args(args).output().unwrap()
}

/// Sends a signal, such as `-TERM`, to a process. By the shell, which every system has; a program
/// `kill` is in a package that may be missing.
pub fn signal(signal: &str, process: &str) {
    let mut shell = std::process::Command::new("sh");
    let sent = shell.args(["-c", r#"kill "$0" "$1""#, signal, process]).status().unwrap();
    assert!(sent.success(), "kill {signal} {process}: {sent}");
}

/// What a run says on stderr.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs the program, which must pass.
pub fn passed(args: &[&str]) -> Output {
    let output = zonal(args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
    output
}

/// What the program prints, which must pass.
pub fn stdout(args: &[&str]) -> String {
    stdout_of(&zonal(args))
}

/// The same of a run that was.
pub fn stdout_of(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// What the program prints as JSON.
pub fn json(args: &[&str]) -> Value {
    json_of(&zonal(args))
}

/// The same of a run that was.
pub fn json_of(output: &Output) -> Value {
    serde_json::from_str(&stdout_of(output)).unwrap()
}

/// What the program says when it refuses its input: nothing of that goes to stdout.
pub fn refusal(args: &[&str]) -> String {
    refusal_of(&zonal(args))
}

/// The same of a run that was.
pub fn refusal_of(output: &Output) -> String {
    let message = stderr(output);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(output.stdout.is_empty(), "{message}");
    message
}
