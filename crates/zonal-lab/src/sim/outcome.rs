//! Results of a run.

use crate::platform::{Happened, OwnerLocks, Spent, Waits, Work};

/// What programs have asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Blocks allocated.
    pub allocs: u64,
    /// Blocks freed.
    pub frees: u64,
    /// Requests that were refused.
    pub refused: u64,
}

/// What a program got done, as it says itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Pages that page faults gave to programs.
    pub faults: u64,
    /// Bytes that programs sent, dropped or not.
    pub sent: u64,
    /// Bytes that programs received.
    pub received: u64,
    /// Pieces of work: messages, rounds, jobs, tokens or pages, as its workload says.
    pub done: u64,
}

/// Result of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The plan of the run.
    pub count: Count,
    /// Cycles that all steps took that began in it.
    pub cycles: u64,
    /// Cycles within it in which CPUs were not idle, of all together: with what steps that began
    /// before still took, without what those that go on take beyond it.
    pub busy: u64,
    /// Cycles from the beginning to the last CPU's last step.
    pub elapsed: u64,
    /// Where they went.
    pub spent: Spent,
    /// What happened.
    pub happened: Happened,
    /// Waits for locks, in part.
    pub waits: Waits,
    /// Locks of CPUs' own pageblocks.
    pub owners: OwnerLocks,
    /// Work apart from the allocator's.
    pub(crate) work: Work,
    /// What the program got done.
    pub load: Load,
    /// Hash of all of the above but owners and work, which follow from the rest, and every CPU's
    /// clock.
    pub hash: String,
}

impl Outcome {
    /// What `next`, which followed, came to as well. The hash is the first one's.
    pub fn add(&mut self, next: &Outcome) {
        self.count = self.count.plus(&next.count);
        self.cycles += next.cycles;
        self.busy += next.busy;
        self.elapsed += next.elapsed;
        self.spent = self.spent.plus(&next.spent);
        self.happened = self.happened.plus(&next.happened);
        self.waits = self.waits.plus(&next.waits);
        self.owners = self.owners.plus(&next.owners);
        self.work = self.work.plus(&next.work);
        self.load = self.load.plus(&next.load);
    }
}

counts!(Load: faults, sent, received, done);
counts!(Count: allocs, frees, refused);

impl Count {
    /// Blocks allocated and freed, and requests refused.
    pub fn calls(&self) -> u64 {
        self.allocs + self.frees + self.refused
    }
}
