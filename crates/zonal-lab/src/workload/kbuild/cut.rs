//! Jobs of a build out of a recording: one process after the other, as the workload plays them.
//!
//! The rule: a compiler or linker is a process that allocated at least [`COMPILER_BLOCKS`] blocks
//! and forked none. A job is a process that forked one of those, with everything that it forked in
//! turn. Where a recording has no forks, each compiler is a job by itself.
//!
//! Of each process its calls are kept in their order: allocations by what is asked for, frees by
//! whose block it was. Blocks of files that the same job frees are those of files that do not stay.
//! Times, frames, and blocks that are neither single pages, nor of files, nor huge pages of
//! programs are not kept.

use std::collections::BTreeMap;

use thiserror::Error;
use zonal_core::gfp::Gfp;
use zonal_core::types::{Order, PAGEBLOCK_ORDER};
use zonal_trace::{Event, EventKind, TraceError};

use super::jobs::{COMPILER_BLOCKS, Call, DEPTH_MAX, Job, Jobs, Process, Run};

/// Why a recording gives no jobs.
#[derive(Debug, Error)]
pub(super) enum CutError {
    /// It cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Nothing in it is a job, or one of them cannot be.
    #[error("{0}")]
    Jobs(String),
}

/// A call of a process, as it was seen.
#[derive(Clone, Copy)]
enum Seen {
    Call(Call),
    /// Frees a block of a file that `owner` wrote as its call `at`.
    FreeFile {
        owner: usize,
        at: usize,
    },
}

/// A process of the recording.
#[derive(Default)]
struct Life {
    calls: Vec<Seen>,
    /// By index; each comes after its parent.
    children: Vec<usize>,
    blocks: u64,
}

impl Life {
    fn is_compiler(&self) -> bool {
        self.blocks >= u64::from(COMPILER_BLOCKS) && self.children.is_empty()
    }
}

/// The owner of a block.
struct Owner {
    process: usize,
    at: usize,
}

/// State of the recording so far.
#[derive(Default)]
struct Lives {
    all: Vec<Life>,
    /// Who has a thread id now; ids come again.
    now: BTreeMap<i32, usize>,
    /// By first page frame.
    owners: BTreeMap<u64, Owner>,
    forks: bool,
}

/// The jobs of a recording.
///
/// # Errors
/// [`CutError`] if it cannot be read, or has no jobs.
pub(super) fn cut(
    events: impl Iterator<Item = Result<Event, TraceError>>,
) -> Result<Jobs, CutError> {
    let mut lives = Lives::default();
    for event in events {
        lives.add(&event?);
    }
    let forks = if lives.forks { " after another one forked it" } else { "" };
    let processes = lives.all.len();
    let jobs = Jobs::new(lives.jobs()).ok_or_else(|| {
        CutError::Jobs(format!(
            "no job in it: none of {processes} processes allocated {COMPILER_BLOCKS} blocks\
             {forks}; expected a recording of a build, with the forks of its processes \
             (sched:sched_process_fork), as `zonal record` makes it"
        ))
    })?;
    match jobs.deep as usize - 1 > DEPTH_MAX {
        true => Err(CutError::Jobs(format!("processes are more than {DEPTH_MAX} deep in a job"))),
        false => Ok(jobs),
    }
}

impl Lives {
    fn add(&mut self, event: &Event) {
        match event.kind {
            EventKind::Fork { child } => {
                let parent = self.process(event.pid);
                let place = self.all.len();
                self.now.insert(child, place);
                self.all[parent].children.push(place);
                self.all[parent].calls.push(Seen::Call(Call::Fork));
                self.all.push(Life::default());
                self.forks = true;
            }
            EventKind::Alloc { pfn: Some(pfn), order, gfp, .. } => {
                self.owners.remove(&pfn);
                if let Some(call) = asks(order, Gfp::from_bits(gfp)) {
                    let process = self.process(event.pid);
                    let life = &mut self.all[process];
                    self.owners.insert(pfn, Owner { process, at: life.calls.len() });
                    life.calls.push(Seen::Call(call));
                    life.blocks += 1;
                }
            }
            EventKind::Free { pfn, order } => {
                let process = self.process(event.pid);
                let call = match self.owners.remove(&pfn) {
                    Some(Owner { process: owner, at }) => match self.all[owner].calls[at] {
                        Seen::Call(Call::File { .. }) => Seen::FreeFile { owner, at },
                        _ if owner == process => Seen::Call(Call::Free),
                        _ => Seen::Call(Call::FreeOthers),
                    },
                    None if order == 0 => Seen::Call(Call::FreeOthers),
                    None => return,
                };
                self.all[process].calls.push(call);
            }
            _ => {}
        }
    }

    fn process(&mut self, pid: i32) -> usize {
        *self.now.entry(pid).or_insert_with(|| {
            self.all.push(Life::default());
            self.all.len() - 1
        })
    }

    fn jobs(mut self) -> Vec<Job> {
        // Of each process, whether a job's first one is below it or it is one. Children come after
        // their parents.
        let mut holds = vec![false; self.all.len()];
        let mut firsts = Vec::new();
        for at in (0..self.all.len()).rev() {
            let children = &self.all[at].children;
            let below = children.iter().any(|child| holds[*child]);
            let runs_one = children.iter().any(|child| self.all[*child].is_compiler());
            let alone = !self.forks && self.all[at].is_compiler();
            holds[at] = below || runs_one || alone;
            if (runs_one || alone) && !below {
                firsts.push(at);
            }
        }
        firsts.iter().rev().map(|first| self.job(*first)).collect()
    }

    /// The job that begins with this process.
    fn job(&mut self, first: usize) -> Job {
        let mut members = Vec::new();
        let mut next = vec![(first, 0)];
        while let Some((at, depth)) = next.pop() {
            members.push((at, depth));
            next.extend(self.all[at].children.iter().rev().map(|child| (*child, depth + 1)));
        }
        let within: BTreeMap<usize, usize> =
            members.iter().enumerate().map(|(place, (at, _))| (*at, place)).collect();
        for (at, _) in &members {
            for call in 0..self.all[*at].calls.len() {
                self.settle(*at, call, &within);
            }
        }
        let process = |(at, depth): &(usize, usize)| {
            let life = &self.all[*at];
            let mut process = Process::new(*depth, runs(&life.calls));
            process.children = life.children.iter().map(|child| within[child]).collect();
            process
        };
        members.iter().map(process).collect()
    }

    /// A free of a file's block becomes a call: within the job it deletes a file that does not
    /// stay.
    fn settle(&mut self, process: usize, call: usize, within: &BTreeMap<usize, usize>) {
        let Seen::FreeFile { owner, at } = self.all[process].calls[call] else { return };
        let own = within.contains_key(&owner);
        let now = if own { Call::Delete } else { Call::FreeOthers };
        self.all[process].calls[call] = Seen::Call(now);
        if let Seen::Call(Call::File { stays, .. }) = &mut self.all[owner].calls[at] {
            *stays &= !own;
        }
    }
}

/// What an allocation is for, as far as its order and flags tell: pages of files are asked for to
/// be written, or ahead of a reader, who does not insist.
fn asks(order: u8, gfp: Gfp) -> Option<Call> {
    let order = Order::new(u32::from(order))?;
    let file = gfp.contains(Gfp::WRITE) || gfp.contains(Gfp::NORETRY);
    let movable = gfp.contains(Gfp::MOVABLE);
    match order {
        Order::ZERO if !file => Some(if movable { Call::Touch(order) } else { Call::Kernel }),
        PAGEBLOCK_ORDER if movable && !gfp.contains(Gfp::WRITE) => Some(Call::Touch(order)),
        _ if order.get() <= Order::COSTLY.get() || movable => {
            Some(Call::File { order, stays: true })
        }
        _ => None,
    }
}

fn runs(calls: &[Seen]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for call in calls {
        let Seen::Call(call) = *call else { continue };
        match runs.last_mut() {
            Some(run) if run.call == call && call != Call::Fork => run.times += 1,
            _ => runs.push(Run { call, times: 1 }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANON: u32 = Gfp::HIGHUSER_MOVABLE.bits();
    const FILE: u32 = ANON | Gfp::WRITE.bits();

    struct Recorder(Vec<Event>);

    impl Recorder {
        fn add(&mut self, pid: i32, kind: EventKind) {
            let time_ns = self.0.len() as u64;
            self.0.push(Event { time_ns, cpu: 0, pid, kind });
        }
        fn alloc(&mut self, pid: i32, pfns: std::ops::Range<u64>, order: u8, gfp: u32) {
            for pfn in pfns.step_by(1 << order) {
                self.add(pid, EventKind::Alloc { pfn: Some(pfn), order, migratetype: 1, gfp });
            }
        }
        fn free(&mut self, pid: i32, pfns: std::ops::Range<u64>, order: u8) {
            for pfn in pfns.step_by(1 << order) {
                self.add(pid, EventKind::Free { pfn, order });
            }
        }
        fn cut(self) -> Result<Jobs, CutError> {
            cut(self.0.into_iter().map(Ok))
        }
    }

    /// A shell (1) forks a driver (2), which forks a compiler (3) and an assembler (4).
    fn build(forks: bool) -> Recorder {
        let mut seen = Recorder(Vec::new());
        let fork = |seen: &mut Recorder, pid, child| {
            if forks {
                seen.add(pid, EventKind::Fork { child });
            }
        };
        seen.alloc(1, 1..3, 0, ANON);
        fork(&mut seen, 1, 2);
        seen.alloc(2, 10..12, 0, ANON);
        fork(&mut seen, 2, 3);
        seen.alloc(3, 1000..1700, 0, ANON);
        seen.alloc(3, 2048..2560, 9, ANON);
        seen.alloc(3, 20..24, 0, FILE);
        seen.free(3, 1000..1700, 0);
        seen.free(3, 2048..2560, 9);
        fork(&mut seen, 2, 4);
        seen.alloc(4, 30..32, 0, Gfp::KERNEL.bits());
        seen.alloc(4, 40..44, 1, FILE);
        seen.free(4, 30..31, 0);
        seen.free(2, 20..24, 0);
        seen.free(2, 31..32, 0);
        seen.free(2, 77..78, 0);
        seen.free(1, 40..44, 1);
        seen
    }

    #[test]
    fn a_job_is_who_forked_a_compiler_with_all_below() {
        let jobs = build(true).cut().unwrap();
        let expected = "0 m2 > > ~4 x2\n1 m700 n a4 -701\n1 u2 B2 -\n";
        assert_eq!(jobs.to_string(), expected);
        assert_eq!(Jobs::parse(expected), Ok(jobs));
    }

    #[test]
    fn without_forks_each_compiler_is_a_job() {
        assert_eq!(build(false).cut().unwrap().to_string(), "0 m700 n A4 -701\n");
    }

    #[test]
    fn a_process_id_that_comes_again_is_another_process() {
        let mut seen = build(true);
        seen.add(1, EventKind::Fork { child: 2 });
        seen.add(2, EventKind::Fork { child: 3 });
        seen.alloc(3, 5000..5600, 0, ANON);
        let jobs = seen.cut().unwrap().to_string();
        assert!(jobs.ends_with("-\n0 >\n1 m600\n"), "{jobs}");
    }

    #[test]
    fn a_recording_without_a_job_says_what_was_expected() {
        let mut seen = Recorder(Vec::new());
        seen.alloc(7, 0..599, 0, ANON);
        let error = seen.cut().unwrap_err().to_string();
        assert!(error.contains("none of 1 processes allocated 600 blocks; expected"), "{error}");
    }

    #[test]
    fn the_bundled_jobs_are_those_of_the_bundled_recording() {
        let recording = zonal_trace::samples::zlib_make_j4().unwrap();
        let jobs = cut(recording.events()).unwrap();
        assert_eq!(jobs, **super::super::jobs::BUNDLED);
    }
}
