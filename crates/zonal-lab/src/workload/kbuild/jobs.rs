//! Jobs of a build, cut from a recording: what each process asks of the page allocator.
//!
//! `templates/zlib-make-j4.jobs` is made by `examples/cut_jobs.rs`, which says by which rule. One
//! line is one process: how deep it is below the job's first, then runs of calls, as `m250 u c2 >`.

use std::sync::LazyLock;

/// What a process does, many times in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// Touches a new page of its own: movable.
    Touch,
    /// Is given an unmovable page: page tables, and arrays that collect pages to free.
    Kernel,
    /// Writes a block of a file, of this order.
    File(u32),
    /// Gives back pages of its own.
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
    /// What it does.
    pub runs: Vec<Run>,
    /// Its children in the order of its forks, by their place in the job.
    pub children: Vec<usize>,
    /// Single pages that it allocates for itself.
    pub pages: u32,
    /// Of these, those that others free.
    pub left: u32,
}

/// A job: its processes, the first one first.
pub type Job = Vec<Process>;

/// Pages that a compiler touches at least: what `examples/cut_jobs.rs` goes by.
pub const COMPILER_PAGES: u32 = 600;

/// The jobs of the recorded build.
pub static JOBS: LazyLock<Vec<Job>> =
    LazyLock::new(|| parse(include_str!("../../../templates/zlib-make-j4.jobs")));

fn parse(text: &str) -> Vec<Job> {
    let mut jobs: Vec<Job> = Vec::new();
    for line in text.lines() {
        let process = process(line);
        if process.depth == 0 {
            jobs.push(Vec::new());
        }
        let job = jobs.last_mut().expect("a file begins with a job's first process");
        let at = job.len();
        let parent = job.iter().rposition(|other| other.depth + 1 == process.depth);
        if let Some(parent) = parent {
            job[parent].children.push(at);
        }
        job.push(process);
    }
    jobs
}

fn process(line: &str) -> Process {
    let mut words = line.split(' ');
    let number = |text: &str| text.parse::<u32>().expect("a number of a job's file");
    let depth = number(words.next().unwrap_or_default()) as usize;
    let run = |word: &str| {
        let (call, times) = word.split_at(1);
        let call = match call {
            "m" => Call::Touch,
            "u" => Call::Kernel,
            "c" => Call::File(0),
            "q" => Call::File(1),
            "r" => Call::File(2),
            "s" => Call::File(3),
            "-" => Call::Free,
            "x" => Call::FreeOthers,
            ">" => Call::Fork,
            other => panic!("a job's file says '{other}'"),
        };
        Run { call, times: if times.is_empty() { 1 } else { number(times) } }
    };
    let runs: Vec<Run> = words.map(run).collect();
    let sum =
        |calls: &[Call]| runs.iter().filter(|r| calls.contains(&r.call)).map(|r| r.times).sum();
    let pages: u32 = sum(&[Call::Touch, Call::Kernel]);
    let left = pages.saturating_sub(sum(&[Call::Free]));
    Process { depth, children: Vec::new(), pages, left, runs }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_follow_their_parents() {
        let jobs = parse("0 m2 > u >\n1 m600 -600\n1 c q2 x3\n0 m\n");
        assert_eq!(jobs.iter().map(Vec::len).collect::<Vec<_>>(), [3, 1]);
        assert_eq!(jobs[0][0].children, [1, 2]);
        assert_eq!((jobs[0][0].pages, jobs[0][0].left), (3, 3));
        assert_eq!((jobs[0][1].pages, jobs[0][1].left), (600, 0));
        assert_eq!(jobs[0][2].runs[1], Run { call: Call::File(1), times: 2 });
    }

    #[test]
    fn every_fork_of_the_recording_has_its_child() {
        assert!(JOBS.len() > 50);
        for process in JOBS.iter().flatten() {
            let forks = process.runs.iter().filter(|run| run.call == Call::Fork).count();
            assert_eq!(forks, process.children.len());
        }
        let compilers = JOBS.iter().flatten().filter(|p| p.pages >= COMPILER_PAGES).count();
        assert!(compilers >= JOBS.len() / 2, "{compilers}");
    }
}
