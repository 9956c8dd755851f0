//! One counter: its name, the layouts that print it, its meaning.

use crate::layout::Layout;

/// One counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counter {
    /// The name as kernels print it.
    pub name: &'static str,
    /// The first layout that has it.
    pub first: Layout,
    /// The last layout that has it.
    pub last: Layout,
    /// Whether it only grows.
    pub kind: Kind,
    /// What it says, with its unit; empty if nothing in an allocator ever changes it.
    pub help: &'static str,
}

/// Whether a counter only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A level, which goes up and down.
    Level,
    /// A total since the start.
    Total,
}

impl Counter {
    /// `nodeN/numastat` has other names for the NUMA events than all other texts (LB I.4).
    pub fn numastat_name(&self) -> &'static str {
        match self.name {
            "numa_interleave" => "interleave_hit",
            "numa_local" => "local_node",
            "numa_other" => "other_node",
            name => name,
        }
    }

    /// Whether a counter of [`Memory`](super::Group::Memory) is in KiB and not in huge pages.
    pub fn is_kib(&self) -> bool {
        !self.name.starts_with("HugePages_")
    }

    /// A level that all layouts have.
    pub const fn level(name: &'static str) -> Counter {
        let (first, last) = (Layout::Linux6_1, Layout::Linux7);
        Counter { name, first, last, kind: Kind::Level, help: "" }
    }

    /// A total that all layouts have.
    pub const fn total(name: &'static str) -> Counter {
        Counter { kind: Kind::Total, ..Counter::level(name) }
    }

    /// The same, from this layout on.
    pub(super) const fn since(self, first: Layout) -> Counter {
        Counter { first, ..self }
    }

    /// The same, up to and with this layout.
    pub(super) const fn until(self, last: Layout) -> Counter {
        Counter { last, ..self }
    }

    /// The same, with its meaning.
    pub const fn means(self, help: &'static str) -> Counter {
        Counter { help, ..self }
    }
}
