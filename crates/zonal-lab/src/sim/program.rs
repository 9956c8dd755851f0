//! A workload at work, as the simulation sees it.

use super::lab::Lab;

/// A workload at work.
pub trait Program {
    /// The next step of `cpu`, whose turn it is.
    fn step(&mut self, lab: &mut Lab<'_>, cpu: u32) -> Turn;

    /// Brings the CPUs `0..cpus` to different places of what they do, in no time, before they
    /// start. Most workloads get there by themselves in the time that is not measured.
    fn scatter(&mut self, _lab: &mut Lab<'_>, _cpus: u32) {}

    /// Calls of a recording that it plays once and has not come to yet.
    fn unplayed(&self) -> u64 {
        0
    }

    /// It is over: what it holds goes back, from the CPU whose turn it is. Programs that a run just
    /// leaves as they are do nothing.
    fn finish(&mut self, _lab: &mut Lab<'_>) {}

    /// Its processes end, and what they hold goes back; what a machine keeps in memory after that,
    /// as files, stays.
    fn stop(&mut self, lab: &mut Lab<'_>) {
        self.finish(lab);
    }
}

/// What a CPU does after a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// It goes on.
    More,
    /// It is idle until another CPU wakes it ([`Lab::wake`]).
    Wait,
    /// It is idle until its clock stands at so many cycles.
    Until(u64),
    /// It has nothing more to do.
    Done,
}
