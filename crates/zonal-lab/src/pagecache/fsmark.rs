//! fs_mark: threads that create files of one size, one after the other. A speed is reported after
//! each round of files.

use super::machine::{CacheMachine, Load, Turn};
use crate::provenance::{Provenance, cells, given};

/// fs_mark at work.
#[derive(Clone, Debug)]
pub struct FsMark {
    /// Threads.
    pub threads: u32,
    /// Reports.
    pub reports: u64,
    /// Files of each.
    pub files: u64,
    /// Pages of a file, of the machine.
    pub pages: u64,
    /// Pages that the file system writes besides for each: its journal, inodes, bitmaps.
    pub extra: u64,
    /// What a thread does besides for each file, in microseconds: creating it, its journal.
    pub create_us: u64,
    /// How often a process asks for a huge page, in milliseconds.
    pub huge_every_ms: u64,
    made: u64,
    since_ns: u64,
    speeds: Vec<f64>,
    at: Vec<Option<(u32, u64)>>,
}

given! {
    THREADS: u32 = 24,
        Provenance::sourced("fs_mark -t of the announcement, recalled: the table does not name it");
    REPORTS: u64 = 35,
        Provenance::sourced("fs_mark -L of the announcement, recalled: the table does not name it");
    FILES: u64 = 24 * 208,
        Provenance::sourced(
            "fs_mark -n 208 of the announcement, recalled: the table does not name it",
        );
    PAGES: u64 = 128,
        Provenance::sourced(
            "fs_mark -s 512 KiB of the announcement, recalled: the table does not name it",
        );
    EXTRA: u64 = 5,
        Provenance::fitted(
            "what is written besides the data",
            cells!["zone-reclaim-fsmark/pages_out/vanilla"],
        );
    CREATE_US: u64 = 2_500,
        Provenance::estimated("creating a file and its journal on a file system of 2011");
    HUGE_EVERY_MS: u64 = 10_000,
        Provenance::seen("scan_sleep_millisecs of khugepaged", cells!["zone-reclaim-fsmark"]);
}

impl FsMark {
    /// Taken for that of 2011: 35 rounds (`-L`) of 24 threads (`-t`) with 208 files (`-n`) of 512
    /// KiB (`-s`), none synchronised. The published table does not name these four; they are
    /// recalled from its announcement; all data are 98.5 percent of the pages written in the first
    /// column. What the file system writes besides comes from there; `create_us` is an estimate.
    /// Huge pages are asked for as `khugepaged` does, every 10 s.
    pub const PUBLISHED: FsMark = FsMark {
        threads: THREADS,
        reports: REPORTS,
        files: FILES,
        pages: PAGES,
        extra: EXTRA,
        create_us: CREATE_US,
        huge_every_ms: HUGE_EVERY_MS,
        made: 0,
        since_ns: 0,
        speeds: Vec::new(),
        at: Vec::new(),
    };

    fn count(&mut self, now_ns: u64) {
        self.made += 1;
        if self.made.is_multiple_of(self.files) {
            let took = now_ns.saturating_sub(self.since_ns).max(1);
            self.speeds.push(self.files as f64 * 1e9 / took as f64);
            self.since_ns = now_ns;
        }
    }
}

impl Load for FsMark {
    fn threads(&self) -> u32 {
        self.threads
    }
    fn huge_every_ns(&self) -> u64 {
        self.huge_every_ms * 1_000_000
    }

    fn step(&mut self, machine: &mut CacheMachine<'_, '_>, thread: u32) -> Turn {
        self.at.resize(self.threads as usize, None);
        let begun = self.at.iter().flatten().count() as u64;
        let (file, page) = match self.at[thread as usize] {
            Some(at) => at,
            None if self.made + begun >= self.files * self.reports => return Turn::Done,
            None => {
                machine.spend_us(self.create_us);
                (machine.create(self.extra), 0)
            }
        };
        self.at[thread as usize] = Some((file, page));
        if let Some(until) = machine.throttle() {
            return Turn::Wait(until);
        }
        if let Err(until) = machine.write(file, page as u32) {
            return Turn::Wait(until);
        }
        let more = page + 1 < (self.pages / machine.scale()).max(1);
        self.at[thread as usize] = more.then_some((file, page + 1));
        if !more {
            self.count(machine.now_ns());
        }
        Turn::More
    }

    fn figures(&self) -> Vec<(&'static str, f64)> {
        let speeds = &self.speeds;
        let mean = speeds.iter().sum::<f64>() / speeds.len() as f64;
        let squares: f64 = speeds.iter().map(|speed| (speed - mean) * (speed - mean)).sum();
        vec![
            ("files_per_s_min", speeds.iter().copied().fold(f64::INFINITY, f64::min)),
            ("files_per_s_mean", mean),
            ("files_per_s_stddev", (squares / (speeds.len().max(2) - 1) as f64).sqrt()),
            ("files_per_s_max", speeds.iter().copied().fold(0.0, f64::max)),
        ]
    }
}
