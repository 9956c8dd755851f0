//! Which threads read files, whether at the same time, and what they did besides.
//!
//! What two threads wait for at the same time is waited for once. So of all that readers wait and
//! do, the *lone* share counts as elapsed time:
//!
//! ```text
//!               100 ms   100 ms   100 ms
//!  thread 9     ####     ##       ####        12 pages were read: by the busiest thread of each
//!  thread 8     ##       ##                   100 ms 4 + 2 + 4 = 10 of 14 pages, 71 %
//! ```
//! One thread that reads after another has 100 %, and two that do the same at once have 50. It is
//! assumed that a thread waits for the pages that it reads, and that nobody waits for the slower
//! ones besides.

use std::collections::{BTreeSet, HashMap};

use zonal_trace::{Event, EventKind, Notice};

/// Threads that read within this time do so at once.
const AT_ONCE_NS: u64 = 100_000_000;

/// Collects that while a trace is read.
#[derive(Clone, Debug, Default)]
pub struct Readers {
    threads: BTreeSet<i32>,
    /// By thread: pages that it read since `begin_ns`.
    at_once: HashMap<i32, u64>,
    begin_ns: u64,
    /// Read by the busiest thread of each window, and by all.
    busiest: u64,
    all: u64,
    /// By thread: since when it moves pages together, and how long it did in all.
    moving: HashMap<i32, u64>,
    moved_ns: HashMap<i32, u64>,
}

impl Readers {
    /// Takes note of so many pages that a thread read.
    pub fn read(&mut self, event: &Event, pages: u64) {
        if event.time_ns.saturating_sub(self.begin_ns) >= AT_ONCE_NS {
            self.close();
            self.begin_ns = event.time_ns;
        }
        self.threads.insert(event.pid);
        *self.at_once.entry(event.pid).or_default() += pages;
    }

    /// Takes note of compaction.
    pub fn see(&mut self, event: &Event) {
        match event.kind {
            EventKind::Notice(Notice::CompactionBegin { .. }) => {
                self.moving.insert(event.pid, event.time_ns);
            }
            EventKind::Notice(Notice::CompactionEnd { .. }) => {
                if let Some(begin) = self.moving.remove(&event.pid) {
                    *self.moved_ns.entry(event.pid).or_default() +=
                        event.time_ns.saturating_sub(begin);
                }
            }
            _ => {}
        }
    }

    fn close(&mut self) {
        (self.busiest, self.all) = self.sums();
        self.at_once.clear();
    }

    /// Read by the busiest thread of each window, and by all, with the window that is open.
    fn sums(&self) -> (u64, u64) {
        let open = || self.at_once.values();
        (self.busiest + open().max().unwrap_or(&0), self.all + open().sum::<u64>())
    }

    /// The share of what readers wait and do that is elapsed time; all of it, where none was seen.
    pub fn lone_share(&self) -> f64 {
        match self.sums() {
            (_, 0) => 1.0,
            (busiest, all) => busiest as f64 / all as f64,
        }
    }

    /// Time in which threads that read files moved pages together by themselves.
    pub fn compacted_ns(&self) -> u64 {
        let own = self.moved_ns.iter().filter(|(thread, _)| self.threads.contains(thread));
        own.map(|(_, ns)| ns).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readers(reads: &[(u64, i32, u64)]) -> Readers {
        let mut readers = Readers::default();
        for (ms, thread, pages) in reads {
            readers.read(&event(ms * 1_000_000, *thread, Notice::KswapdSleep { node: 0 }), *pages);
        }
        readers
    }

    fn event(time_ns: u64, pid: i32, notice: Notice) -> Event {
        Event { time_ns, cpu: 0, pid, kind: EventKind::Notice(notice) }
    }

    #[test]
    fn what_threads_do_at_once_counts_once() {
        assert_eq!(Readers::default().lone_share(), 1.0);
        assert_eq!(readers(&[(0, 9, 4), (500, 9, 4)]).lone_share(), 1.0);
        assert_eq!(readers(&[(0, 9, 4), (20, 8, 4)]).lone_share(), 0.5);
        assert_eq!(readers(&[(0, 9, 4), (500, 8, 4)]).lone_share(), 1.0, "one after the other");
        let some = [(0, 9, 4), (10, 8, 2), (110, 9, 2), (120, 8, 2), (220, 9, 4)];
        assert_eq!(readers(&some).lone_share(), 10.0 / 14.0);
    }

    #[test]
    fn compaction_counts_where_a_reader_does_it() {
        let mut readers = readers(&[(0, 9, 1)]);
        let begin = Notice::CompactionBegin { zone_start: 0, sync: false };
        let end = Notice::CompactionEnd { zone_start: 0, sync: false, status: 8 };
        // Thread 45 reads nothing: background compaction. An end without a begin is none.
        let all = [(5, 9, end), (10, 9, begin), (12, 45, begin), (40, 9, end), (99, 45, end)];
        for (at, thread, notice) in all {
            readers.see(&event(at, thread, notice));
        }
        assert_eq!(readers.compacted_ns(), 30);
    }
}
