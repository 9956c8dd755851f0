//! Cuts the bundled recording of `make -j4` into jobs of a build, one process after the other, as
//! the workload `kbuild` plays them. What it prints is `templates/zlib-make-j4.jobs`.
//!
//! ```text
//! cargo run --release -p zonal-lab --example cut_jobs > zlib-make-j4.jobs
//! ```
//! The rule: a job is a process that forked another which allocated at least 600 blocks and forked
//! none (a compiler or a linker), with everything that it forked in turn. Of each process its calls
//! are kept in their order, as runs: allocations by what is asked for, frees by whether the process
//! had allocated the block itself. Times and frames are not kept.

use std::collections::BTreeMap;

use zonal_trace::{EventKind, TraceError, samples};

/// Blocks that a compiler allocates at least.
const COMPILER: u64 = 600;
// `__GFP_MOVABLE`, `__GFP_WRITE`, `__GFP_NORETRY` in the numbering of 6.12.
const MOVABLE: u32 = 0x8;
const WRITE: u32 = 0x1000;
const NORETRY: u32 = 0x1_0000;

#[derive(Default)]
struct Process {
    runs: Vec<(char, u64)>,
    children: Vec<i32>,
    allocs: u64,
}

impl Process {
    fn add(&mut self, what: char) {
        match self.runs.last_mut() {
            Some((last, count)) if *last == what && what != '>' => *count += 1,
            _ => self.runs.push((what, 1)),
        }
    }
}

/// A line for each process, children behind their parent: how deep it is below the job's first, and
/// its runs. `m` movable pages, `u` unmovable ones, `c` pages of files, `q` `r` `s` blocks of order
/// 1 to 3, `-` its own pages back, `x` others' pages back, `>` a fork.
fn main() -> Result<(), TraceError> {
    let mut processes: BTreeMap<i32, Process> = BTreeMap::new();
    let mut owners: BTreeMap<u64, i32> = BTreeMap::new();
    for event in samples::zlib_make_j4()?.events() {
        let event = event?;
        let process = processes.entry(event.pid).or_default();
        match event.kind {
            EventKind::Fork { child } => {
                process.children.push(child);
                process.add('>');
            }
            EventKind::Alloc { pfn: Some(pfn), order, gfp, .. } => {
                owners.insert(pfn, event.pid);
                process.allocs += 1;
                process.add(match order {
                    0 if gfp & (WRITE | NORETRY) != 0 => 'c',
                    0 if gfp & MOVABLE != 0 => 'm',
                    0 => 'u',
                    1..=3 => (b'p' + order) as char,
                    _ => continue,
                });
            }
            EventKind::Free { pfn, order } => {
                let own = owners.remove(&pfn) == Some(event.pid);
                process.add(match order {
                    0 if own => '-',
                    0 => 'x',
                    _ => continue,
                });
            }
            _ => {}
        }
    }
    let is_compiler = |pid: &i32| {
        processes.get(pid).is_some_and(|p| p.allocs >= COMPILER && p.children.is_empty())
    };
    let runs_one = |pid: &i32| processes[pid].children.iter().any(is_compiler);
    for (pid, process) in &processes {
        if runs_one(pid) && !process.children.iter().any(runs_one) {
            print(&processes, *pid, 0);
        }
    }
    Ok(())
}

fn print(processes: &BTreeMap<i32, Process>, pid: i32, depth: usize) {
    let process = &processes[&pid];
    let runs: Vec<String> = process.runs.iter().map(|(what, count)| word(*what, *count)).collect();
    println!("{depth} {}", runs.join(" "));
    for child in &process.children {
        print(processes, *child, depth + 1);
    }
}

fn word(what: char, count: u64) -> String {
    if count == 1 { what.to_string() } else { format!("{what}{count}") }
}
