//! Mechanisms of the model that can be switched off, one by one: what a table owes to each shows in
//! what it is without it.

use std::fmt;

/// A mechanism of the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mechanism {
    /// Who finds a lock taken waits until it is released.
    LockWaits,
    /// Lines come to one that waits before it holds the lock.
    HandOver,
    /// Lines come with each hold of a lock from who held it last.
    HoldLines,
    /// A line comes for each block that a hold moves.
    BlockLines,
    /// A line's home serves one fetch after the other.
    LineQueue,
    /// Lines of counters and depots come from as far as who changed them last.
    LineDistance,
    /// Folds of a per-CPU counter change a line that all share.
    Folds,
    /// Requests read lines that others write.
    Reads,
    /// Touching what pages hold takes time.
    Contents,
    /// A node's memory delivers so much and no more.
    Bandwidth,
    /// Threads of a core slow each other down.
    SharedCores,
    /// Clocks are faster while few cores work.
    Boost,
    /// Work that others send to a CPU takes its time.
    SentWork,
    /// CPUs refresh their statistics: deltas are folded, lists shrink.
    Refresh,
    /// A disk's interrupts need pages, and may not wait for them.
    Interrupts,
    /// Huge pages are asked for now and then.
    HugePages,
    /// Who makes too much dirty sleeps.
    DirtyNaps,
    /// A disk's head moves.
    Seeks,
}

use Mechanism::*;

/// Every mechanism that tables on machines without files may owe something to, with its name and
/// what is left when it is off.
pub const OF_MACHINES: &[(Mechanism, &str, &str)] = &[
    (LockWaits, "lock-waits", "a lock that is taken is there at once"),
    (HandOver, "hand-over", "a released lock is the next waiter's at once"),
    (HoldLines, "hold-lines", "what a lock protects is in every core's cache"),
    (BlockLines, "block-lines", "a block's page structure is in every core's cache"),
    (LineQueue, "line-queue", "a line goes to all cores at once"),
    (LineDistance, "line-distance", "a changed line is no further than the last-level cache"),
    (Folds, "folds", "a fold into a shared counter takes no time"),
    (Reads, "reads", "lines that others write are read in no time"),
    (Contents, "contents", "touching pages takes no time"),
    (Bandwidth, "bandwidth", "memory delivers all that is asked for"),
    (SharedCores, "shared-cores", "each thread has its core to itself"),
    (Boost, "boost", "clocks stay at their base"),
    (SentWork, "sent-work", "what CPUs send to each other takes the receiver no time"),
    (Refresh, "refresh", "no CPU refreshes its statistics, and no list shrinks by that"),
];

/// The same for loads of files.
pub const OF_FILES: &[(Mechanism, &str, &str)] = &[
    (Interrupts, "interrupts", "a disk's interrupts need no pages"),
    (HugePages, "huge-pages", "nobody asks for huge pages"),
    (DirtyNaps, "dirty-naps", "who makes too much dirty looks again after a millisecond"),
    (Seeks, "seeks", "a disk's head is where it is needed"),
];

/// A set of mechanisms.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Mechanisms(u32);

impl Mechanisms {
    /// With one more.
    pub const fn and(self, mechanism: Mechanism) -> Mechanisms {
        Mechanisms(self.0 | 1 << mechanism as u32)
    }

    /// The names of those in the set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        all().filter(move |(mechanism, ..)| self.has(*mechanism)).map(|(_, name, _)| *name)
    }

    /// Whether it is in the set.
    #[inline]
    pub const fn has(self, mechanism: Mechanism) -> bool {
        self.0 & 1 << mechanism as u32 != 0
    }
}

impl Mechanism {
    /// The mechanism of this name.
    pub fn named(name: &str) -> Option<Mechanism> {
        all().find_map(|(mechanism, known, _)| (*known == name).then_some(*mechanism))
    }
}

/// Every mechanism, its name, and what is left without it.
pub fn all() -> impl Iterator<Item = &'static (Mechanism, &'static str, &'static str)> {
    OF_MACHINES.iter().chain(OF_FILES)
}

impl fmt::Display for Mechanisms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.names().map(|name| format!("no-{name}")).collect();
        f.write_str(&words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mechanism_has_a_name_and_is_found_by_it() {
        for (mechanism, name, left) in all() {
            assert_eq!(Mechanism::named(name), Some(*mechanism));
            assert!(!left.is_empty());
            let one = Mechanisms::default().and(*mechanism);
            assert_eq!(one.to_string(), format!("no-{name}"));
            let others = all().filter(|(other, ..)| one.has(*other));
            assert_eq!(others.count(), 1);
        }
        assert_eq!(all().count(), Mechanism::Seeks as usize + 1, "every one is listed");
        assert_eq!(Mechanism::named("gravity"), None);
    }
}
