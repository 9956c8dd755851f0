//! A workload at work, as the simulation sees it.

use super::lab::Lab;

/// A workload at work.
pub trait Program {
    /// The next step of `cpu`, whose turn it is.
    fn step(&mut self, lab: &mut Lab<'_>, cpu: u32) -> Turn;

    /// Whether its CPUs are at work from the beginning. Programs of tasks say themselves which CPUs
    /// are idle.
    fn keeps_busy(&self) -> bool {
        false
    }

    /// Puts the CPUs `0..cpus` out of step, in no time, before they start. Most workloads get there
    /// by themselves in the time that is not measured.
    fn scatter(&mut self, _lab: &mut Lab<'_>, _cpus: u32) {}

    /// Calls of a recording that it plays once and has not come to yet.
    fn unplayed(&self) -> u64 {
        0
    }

    /// Ends the program: frees what it holds, from the running CPU. Programs that a run just leaves
    /// as they are do nothing.
    fn finish(&mut self, _lab: &mut Lab<'_>) {}

    /// Ends its processes and frees what they hold; memory that a machine keeps afterwards, such as
    /// files, stays.
    fn stop(&mut self, lab: &mut Lab<'_>) {
        self.finish(lab);
    }
}

/// The next action of a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// It goes on.
    More,
    /// It is idle until another CPU wakes it ([`Lab::wake`]).
    Wait,
    /// Idle until its clock reaches this cycle.
    Until(u64),
    /// It has nothing more to do.
    Done,
}
