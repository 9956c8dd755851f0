//! Jobs of a build: each process' calls of the page allocator.
//!
//! They are cut from a recording ([`cut`](super::cut)), or read from a file that
//! `zonal lab jobs` printed. `templates/zlib-make-j4.jobs` is such a file.
//!
//! One line is one process, children after their parent: how deep it is below the job's first, then
//! runs of calls, as `m250 u a2 >`: a letter, and how often if more than once.
//!
//! | letter | call |
//! |--|--|
//! | `m`, `n` | touches a new page of its own, a new huge one |
//! | `u` | is given an unmovable page: page tables, and arrays that collect pages to free |
//! | `a` to `k` | writes a block of order 0 to 10 of a file that the job deletes again |
//! | `A` to `K` | the same of a file that stays |
//! | `~` | deletes the next block of those |
//! | `-` | gives back a block of its own |
//! | `x` | gives back a page that others left |
//! | `>` | starts its next child, and waits for it |

use std::fmt;
use std::sync::{Arc, LazyLock};

use crate::provenance::{Provenance, given};
use thiserror::Error;
use zonal_core::types::{Order, PAGEBLOCK_ORDER};

/// A call of a process, repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// Touches a new private block: movable.
    Touch(Order),
    /// Is given an unmovable page: page tables, and arrays that collect pages to free.
    Kernel,
    /// Writes a block of a file.
    File {
        /// Of this order.
        order: Order,
        /// The file stays when the job is over.
        stays: bool,
    },
    /// Deletes the next block of the files that do not stay.
    Delete,
    /// Frees its own blocks.
    Free,
    /// Gives back pages that others left.
    FreeOthers,
    /// Starts its next child, and waits for it.
    Fork,
}

/// A run of calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The call.
    pub call: Call,
    /// How often.
    pub times: u32,
}

/// A process of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// How deep it is below the first one.
    pub depth: usize,
    /// The call.
    pub runs: Vec<Run>,
    /// Its children in the order of its forks, by their place in the job.
    pub children: Vec<usize>,
    /// Blocks that it allocates for itself.
    pub blocks: u32,
    /// Of these, those that others free.
    pub left: u32,
}

/// A job: its processes, the first one first.
pub(super) type Job = Vec<Process>;

/// The jobs of a build.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Jobs {
    /// One after the other, as they began. There is one at least.
    pub jobs: Vec<Job>,
    /// Processes of a job that may wait for each other, at most.
    pub deep: u32,
}

given! {
    /// Blocks that a compiler or linker allocates at least.
    pub(super) COMPILER_BLOCKS: u32 = 600,
        Provenance::measured(
            "the bundled recording: drivers and assemblers allocate fewer, compilers more",
        );
}
/// Calls in a row, at most.
const TIMES_MAX: u32 = 1 << 30;
/// Processes of a job below its first one, at most.
pub(super) const DEPTH_MAX: usize = 64;

/// The jobs of the bundled recording.
pub(super) static BUNDLED: LazyLock<Arc<Jobs>> = LazyLock::new(|| {
    let text = include_str!("../../../templates/zlib-make-j4.jobs");
    Arc::new(Jobs::parse(text).expect("the bundled file is one"))
});

/// Why a text is no file of jobs.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("line {line}: {what}")]
pub struct JobsError {
    /// The line, from 1 on.
    line: usize,
    what: String,
}

impl Jobs {
    /// These jobs. `None`: no jobs.
    pub fn new(jobs: Vec<Job>) -> Option<Jobs> {
        let deepest = jobs.iter().flatten().map(|process| process.depth).max()?;
        Some(Jobs { jobs, deep: deepest as u32 + 1 })
    }

    /// The jobs of a file's text.
    ///
    /// # Errors
    /// [`JobsError`] with the line and the expected text.
    pub fn parse(text: &str) -> Result<Jobs, JobsError> {
        let mut jobs: Vec<Job> = Vec::new();
        let mut lines = 0;
        for (number, line) in (1..).zip(text.lines()) {
            lines = number;
            let wrong = |what| JobsError { line: number, what };
            let (depth, runs) = line_of(line).map_err(wrong)?;
            if depth == 0 {
                jobs.push(Vec::new());
            }
            let above = jobs.last().map_or(0, Vec::len);
            let Some(job) = jobs.last_mut() else {
                return Err(wrong(
                    "expected a job's first process, whose line begins with 0".into(),
                ));
            };
            if depth > 0 {
                let parent = job.iter().rposition(|other| other.depth + 1 == depth);
                let Some(parent) = parent else {
                    let what = format!("depth {depth} without a process of depth {}", depth - 1);
                    return Err(wrong(what));
                };
                job[parent].children.push(above);
            }
            job.push(Process::new(depth, runs));
        }
        for process in jobs.iter().flatten() {
            let forks = process.runs.iter().filter(|run| run.call == Call::Fork).count();
            if forks != process.children.len() {
                let children = process.children.len();
                let what = format!("a process forks {forks} times, but has {children} children");
                return Err(JobsError { line: lines, what });
            }
        }
        let none = JobsError {
            line: 1,
            what: "there is no job; expected what `zonal lab jobs` prints".into(),
        };
        Jobs::new(jobs).ok_or(none)
    }
}

impl fmt::Display for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for process in self.jobs.iter().flatten() {
            let calls = process.calls();
            let space = if calls.is_empty() { "" } else { " " };
            writeln!(f, "{}{space}{calls}", process.depth)?;
        }
        Ok(())
    }
}

impl Process {
    /// A process that does this, without children yet.
    pub fn new(depth: usize, runs: Vec<Run>) -> Process {
        let sum = |is: fn(Call) -> bool| -> u32 {
            runs.iter().filter(|run| is(run.call)).fold(0, |sum, run| sum.saturating_add(run.times))
        };
        let blocks = sum(|call| matches!(call, Call::Touch(_) | Call::Kernel));
        let left = blocks.saturating_sub(sum(|call| call == Call::Free));
        Process { depth, runs, children: Vec::new(), blocks, left }
    }

    /// Its runs of calls, as a line of a file has them.
    pub fn calls(&self) -> String {
        let run = |Run { call, times }: &Run| match times {
            0 | 1 => call.letter().to_string(),
            _ => format!("{}{times}", call.letter()),
        };
        self.runs.iter().map(run).collect::<Vec<_>>().join(" ")
    }

    /// Whether it is large enough for a compiler or a linker.
    pub fn is_compiler(&self) -> bool {
        self.blocks >= COMPILER_BLOCKS
    }
}

impl Call {
    fn letter(self) -> char {
        match self {
            Call::Touch(Order::ZERO) => 'm',
            Call::Touch(_) => 'n',
            Call::Kernel => 'u',
            Call::File { order, stays } => {
                (order.get() as u8 + if stays { b'A' } else { b'a' }) as char
            }
            Call::Delete => '~',
            Call::Free => '-',
            Call::FreeOthers => 'x',
            Call::Fork => '>',
        }
    }

    fn of(letter: char) -> Option<Call> {
        let file = |from: char, stays| {
            let order = Order::new(letter as u32 - from as u32)?;
            Some(Call::File { order, stays })
        };
        match letter {
            'm' => Some(Call::Touch(Order::ZERO)),
            'n' => Some(Call::Touch(PAGEBLOCK_ORDER)),
            'u' => Some(Call::Kernel),
            'a'..='k' => file('a', false),
            'A'..='K' => file('A', true),
            '~' => Some(Call::Delete),
            '-' => Some(Call::Free),
            'x' => Some(Call::FreeOthers),
            '>' => Some(Call::Fork),
            _ => None,
        }
    }
}

fn line_of(line: &str) -> Result<(usize, Vec<Run>), String> {
    let mut words = line.split_ascii_whitespace();
    let depth = words.next().unwrap_or_default();
    let depth = match depth.parse::<usize>() {
        Ok(depth) if depth <= DEPTH_MAX => depth,
        _ => return Err(format!("'{depth}': expected how deep a process is, 0 to {DEPTH_MAX}")),
    };
    let run = |word: &str| {
        let letter = word.chars().next().unwrap_or_default();
        let call = Call::of(letter).ok_or_else(|| {
            format!("'{word}': no call is called '{letter}'; there are m n u a-k A-K ~ - x >")
        })?;
        let times = match &word[letter.len_utf8()..] {
            "" => 1,
            times => {
                times.parse().ok().filter(|times| (1..=TIMES_MAX).contains(times)).ok_or_else(
                    || format!("'{word}': expected a letter and a number from 1 to {TIMES_MAX}"),
                )?
            }
        };
        if call == Call::Fork && times > 1 {
            return Err(format!("'{word}': write each fork as a separate word"));
        }
        Ok(Run { call, times })
    };
    Ok((depth, words.map(run).collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_follow_their_parents() {
        let jobs = Jobs::parse("0 m2 > u >\n1 m600 -600\n1 a B2 x3\n0 m n2 ~\n").unwrap();
        assert_eq!(jobs.jobs.iter().map(Vec::len).collect::<Vec<_>>(), [3, 1]);
        let first = &jobs.jobs[0];
        assert_eq!((&first[0].children[..], first[0].blocks, first[0].left), (&[1, 2][..], 3, 3));
        assert_eq!((first[1].blocks, first[1].left, first[1].is_compiler()), (600, 0, true));
        let stays = Call::File { order: Order::new(1).unwrap(), stays: true };
        assert_eq!(first[2].runs[1], Run { call: stays, times: 2 });
        assert_eq!(jobs.deep, 2);
        assert_eq!(Jobs::parse(&jobs.to_string()), Ok(jobs));
    }

    #[test]
    fn what_is_no_file_of_jobs_is_refused_with_its_line() {
        for (text, expected) in [
            ("", "line 1: there is no job"),
            ("0 m\n\n0 m\n", "line 2: '': expected how deep"),
            ("1 m\n", "line 1: expected a job's first process"),
            ("0 m\n2 m\n", "line 2: depth 2 without a process of depth 1"),
            ("0 m\n1 m\n", "forks 0 times, but has 1 children"),
            ("0 >2\n", "line 1: '>2': write each fork"),
            ("0 m0\n", "line 1: 'm0': expected a letter and a number from 1"),
            ("0 ü4\n", "line 1: 'ü4': no call is called 'ü'"),
            ("0 m99999999999\n", "a number from 1"),
            ("-1 m\n", "'-1': expected how deep"),
        ] {
            let error = Jobs::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn every_fork_of_the_bundled_recording_has_its_child() {
        assert!(BUNDLED.jobs.len() > 50);
        let compilers = BUNDLED.jobs.iter().flatten().filter(|p| p.is_compiler()).count();
        assert!(compilers >= BUNDLED.jobs.len() / 2, "{compilers}");
    }
}
