//! What a booted kernel printed.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// What a machine printed.
#[derive(Debug, Default)]
pub struct Output {
    /// Its lines.
    pub lines: Vec<String>,
    /// How long it ran.
    pub took: Duration,
}

impl Output {
    /// What follows `start` on the lines that begin with it.
    pub fn all<'a>(&'a self, start: &'a str) -> impl Iterator<Item = &'a str> {
        self.lines.iter().filter_map(move |line| line.strip_prefix(start))
    }

    /// The lines of a text that stands between marks.
    pub fn text(&self, name: &str) -> String {
        let begin = format!("BEGIN {name}");
        let end = format!("END {name}");
        let inside = self.lines.iter().skip_while(|line| **line != begin).skip(1);
        inside.take_while(|line| **line != end).map(|line| format!("{line}\n")).collect()
    }

    /// Whether the kernel came to its end.
    pub fn is_good(&self) -> bool {
        self.lines.iter().any(|line| line == "END OK")
    }
}

/// Runs an emulator, whose output is the machine's serial port, until it ends or `limit` is over.
pub fn watch(emulator: &mut Command, limit: Duration) -> Result<Output> {
    watch_and(emulator, limit, |_| Ok(()))
}

/// The same, and does something at each line.
pub fn watch_and(
    emulator: &mut Command,
    limit: Duration,
    mut at_line: impl FnMut(&str) -> Result<()>,
) -> Result<Output> {
    let start = Instant::now();
    let mut child = emulator
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the emulator")?;
    let serial = BufReader::new(child.stdout.take().context("the emulator has no stdout")?);
    let (send, receive) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in serial.split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
            if send.send(line).is_err() {
                break;
            }
        }
    });
    let mut output = Output::default();
    while let Ok(line) = receive.recv_timeout(limit.saturating_sub(start.elapsed())) {
        if let Err(error) = at_line(&line) {
            child.kill()?;
            child.wait()?;
            return Err(error);
        }
        output.lines.push(line);
    }
    // It has closed its port, or its time is up.
    if start.elapsed() >= limit {
        child.kill()?;
        output.lines.push(format!("PANIC: no end within {} s", limit.as_secs()));
    }
    child.wait()?;
    drop(receive);
    let _ = reader.join();
    output.took = start.elapsed();
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_is_not_reached_is_a_failure() {
        let output = |text: &str| Output {
            lines: text.lines().map(String::from).collect(),
            ..Output::default()
        };
        assert!(output("passed: a\nEND OK").is_good());
        assert!(!output("passed: a\nPANIC on CPU 0").is_good());
        let texts = output("BEGIN a\n1\n2\nEND a\nBEGIN b\nEND b");
        assert_eq!((texts.text("a"), texts.text("b")), ("1\n2\n".into(), String::new()));
    }
}
