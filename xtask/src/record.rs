//! Results of long runs, as Markdown: what stands in `results/` is what the commands print.
//!
//! ```text
//! 2026-11-22, commit abc1234, 2 x Intel(R) Xeon(R) Processor, Linux 6.18.44, ...
//!
//! | part | passed | seconds | what was run |
//! |--|--|--:|--|
//! | random programs | yes | 12 | 600 programs, ... |
//! ```
//! Everything else that a command has to say goes to stderr.

use std::path::Path;
use std::time::Instant;

use crate::tools;

/// A table that is printed row by row.
pub struct Record {
    passed: bool,
}

impl Record {
    /// Prints the head. `more`: what else a run depends on.
    pub fn begin(root: &Path, more: &str) -> Record {
        let said = |program, args: &[&str]| {
            tools::said(root, program, args).unwrap_or_else(|_| "unknown".into())
        };
        let date = said("date", &["-u", "+%F"]);
        let commit = said("git", &["describe", "--always", "--dirty"]);
        let kernel = said("uname", &["-sr"]);
        println!("{date}, commit {commit}, {}, {kernel}, {more}\n", processors());
        println!("| part | passed | seconds | what was run |\n|--|--|--:|--|");
        Record { passed: true }
    }

    /// Prints a row: a part that began at `start`, whether it passed, and what was run.
    pub fn row(&mut self, part: &str, start: Instant, passed: bool, what: &str) {
        let word = if passed { "yes" } else { "NO" };
        println!("| {part} | {word} | {:.0} | {what} |", start.elapsed().as_secs_f64());
        self.passed &= passed;
    }

    /// Whether all parts passed.
    pub fn end(self) -> bool {
        self.passed
    }
}

/// How many processors there are, and which.
fn processors() -> String {
    let count = std::thread::available_parallelism().map_or(0, usize::from);
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    format!("{count} x {}", model.map_or("unknown processor", |(_, model)| model))
}
