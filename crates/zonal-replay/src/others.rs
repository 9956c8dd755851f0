//! How much of a recording is of others than the recorded command.

use std::collections::HashSet;

use zonal_trace::{Event, EventKind, MachineDescription};

/// The command is the first thread that is forked so soon after it was told to start.
const SOON_NS: u64 = 1_000_000_000;

/// Tells allocations of the recorded command, and of all threads that it forks, from others.
#[derive(Debug, Default)]
pub struct Others {
    /// When the command was started; `None`: the recording is of no command.
    start_ns: Option<u64>,
    own: HashSet<i32>,
    allocs: u64,
    of_others: u64,
}

impl Others {
    /// For a recording made on `machine`.
    pub fn new(machine: &MachineDescription) -> Others {
        Others { start_ns: machine.workload_ns.map(|(start, _)| start), ..Others::default() }
    }

    /// Takes note of the next event.
    pub fn see(&mut self, event: &Event) {
        let Some(start_ns) = self.start_ns.filter(|start| event.time_ns >= *start) else { return };
        match event.kind {
            EventKind::Fork { child } => {
                let is_command = self.own.is_empty() && event.time_ns - start_ns <= SOON_NS;
                if is_command || self.own.contains(&event.pid) {
                    self.own.insert(child);
                }
            }
            EventKind::Alloc { pfn: Some(_), .. } => {
                self.allocs += 1;
                self.of_others += u64::from(!self.own.contains(&event.pid));
            }
            _ => {}
        }
    }

    /// The others' share of the allocations, in percent; `None` where the command is not known.
    pub fn percent(&self) -> Option<f64> {
        let is_known = !self.own.is_empty() && self.allocs > 0;
        let percent = self.of_others as f64 * 100.0 / self.allocs.max(1) as f64;
        is_known.then_some((percent * 10.0).round() / 10.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(workload_ns: Option<(u64, u64)>, events: &[(u64, i32, EventKind)]) -> Option<f64> {
        let machine = MachineDescription { workload_ns, ..MachineDescription::default() };
        let mut others = Others::new(&machine);
        for (time_ns, pid, kind) in events {
            others.see(&Event { time_ns: *time_ns, cpu: 0, pid: *pid, kind: kind.clone() });
        }
        others.percent()
    }

    fn alloc() -> EventKind {
        EventKind::Alloc { pfn: Some(1), order: 0, migratetype: 1, gfp: 0 }
    }

    #[test]
    fn the_command_and_what_it_forks_are_told_from_others() {
        let events = [
            (5, 9, alloc()),
            (10, 1, EventKind::Fork { child: 2 }),
            (11, 2, alloc()),
            (12, 2, EventKind::Fork { child: 3 }),
            (13, 7, EventKind::Fork { child: 8 }),
            (14, 3, alloc()),
            (15, 8, alloc()),
            (16, 3, alloc()),
        ];
        assert_eq!(percent(Some((10, 20)), &events), Some(25.0));
        assert_eq!(percent(None, &events), None, "a recording of no command");
        let late = [(SOON_NS + 11, 1, EventKind::Fork { child: 2 }), (SOON_NS + 12, 2, alloc())];
        assert_eq!(percent(Some((10, 20)), &late), None);
    }
}
