//! How much of a recording is of others than the recorded command.

use std::collections::HashSet;

use zonal_trace::{Event, EventKind, MachineDescription};

/// Tells allocations of the recorded command, and of all threads that it forks, from others.
#[derive(Debug, Default)]
pub struct Others {
    /// The command's process; `None`: the recording is of no command, or does not tell.
    command: Option<i32>,
    /// Threads of the command, once its fork was seen.
    own: HashSet<i32>,
    is_forked: bool,
    all: Allocated,
    of_others: Allocated,
}

/// Allocations, and their base pages.
#[derive(Clone, Copy, Debug, Default)]
struct Allocated {
    blocks: u64,
    pages: u64,
}

impl Allocated {
    fn add(&mut self, order: u8) {
        self.blocks += 1;
        self.pages += 1 << order;
    }
}

/// The share of others in what was allocated, in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OfOthers {
    /// Of the allocations, each counted once.
    pub allocs_percent: f64,
    /// Of their pages.
    pub pages_percent: f64,
}

impl Others {
    /// For a recording made on `machine`.
    pub fn new(machine: &MachineDescription) -> Others {
        Others { command: machine.command_pid, ..Others::default() }
    }

    /// Takes note of the next event.
    pub fn see(&mut self, event: &Event) {
        let Some(command) = self.command else { return };
        match event.kind {
            EventKind::Fork { child } => {
                let is_command = !self.is_forked && child == command;
                self.is_forked |= is_command;
                match is_command || self.own.contains(&event.pid) {
                    true => self.own.insert(child),
                    // Its number was given again.
                    false => self.own.remove(&child),
                };
            }
            EventKind::Alloc { pfn: Some(_), order, .. } if self.is_forked => {
                self.all.add(order);
                if !self.own.contains(&event.pid) {
                    self.of_others.add(order);
                }
            }
            _ => {}
        }
    }

    /// The others' share; `None` where the command is not known.
    pub fn share(&self) -> Option<OfOthers> {
        let percent = |part: u64, whole: u64| (part as f64 * 1000.0 / whole as f64).round() / 10.0;
        (self.is_forked && self.all.blocks > 0).then(|| OfOthers {
            allocs_percent: percent(self.of_others.blocks, self.all.blocks),
            pages_percent: percent(self.of_others.pages, self.all.pages),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(command_pid: Option<i32>, events: &[(u64, i32, EventKind)]) -> Option<f64> {
        // Every recording has these times, with and without a command.
        let workload_ns = Some((10, 20));
        let machine = MachineDescription { workload_ns, command_pid, ..Default::default() };
        let mut others = Others::new(&machine);
        for (time_ns, pid, kind) in events {
            others.see(&Event { time_ns: *time_ns, cpu: 0, pid: *pid, kind: kind.clone() });
        }
        others.share().map(|share| share.allocs_percent)
    }

    fn alloc() -> EventKind {
        block(0)
    }

    fn block(order: u8) -> EventKind {
        EventKind::Alloc { pfn: Some(1), order, migratetype: 1, gfp: 0 }
    }

    #[test]
    fn a_few_blocks_of_the_command_can_be_most_of_the_pages() {
        let machine = MachineDescription { command_pid: Some(2), ..Default::default() };
        let mut others = Others::new(&machine);
        let events = [
            (1, EventKind::Fork { child: 2 }),
            (2, block(9)),
            (7, block(0)),
            (7, block(1)),
            (7, block(0)),
        ];
        for (pid, kind) in events {
            others.see(&Event { time_ns: 1, cpu: 0, pid, kind });
        }
        let share = OfOthers { allocs_percent: 75.0, pages_percent: 0.8 };
        assert_eq!(others.share(), Some(share));
    }

    #[test]
    fn the_command_and_what_it_forks_are_told_from_others() {
        let events = [
            (5, 9, alloc()),
            (10, 8, EventKind::Fork { child: 9 }),
            (10, 1, EventKind::Fork { child: 2 }),
            (11, 2, alloc()),
            (12, 2, EventKind::Fork { child: 3 }),
            (13, 7, EventKind::Fork { child: 8 }),
            (14, 3, alloc()),
            (15, 8, alloc()),
            (16, 3, alloc()),
        ];
        assert_eq!(percent(Some(2), &events), Some(25.0));
        assert_eq!(percent(None, &events), None, "a recording of no command");
        assert_eq!(percent(Some(4), &events), None, "a part without the command's beginning");
        let again = [
            (10, 1, EventKind::Fork { child: 2 }),
            (11, 2, EventKind::Fork { child: 3 }),
            (12, 1, EventKind::Fork { child: 3 }),
            (13, 3, alloc()),
        ];
        assert_eq!(percent(Some(2), &again), Some(100.0), "a number that was given again");
    }
}
