//! A large dd: a file is downloaded, copied again and again, and all of it is deleted.

use super::machine::{CacheMachine, Load, Turn, Until};
use crate::provenance::{Provenance, cells, given};
use crate::units::{MIB_PAGES, S_NS};

/// The load.
#[derive(Clone, Debug)]
pub struct LargeDd {
    /// MiB of the file.
    pub source_mib: u64,
    /// Copies.
    pub copies: u32,
    /// MiB per second that it is downloaded at.
    pub download_mib_s: u64,
    /// How often a process asks for a huge page, in milliseconds.
    pub huge_every_ms: u64,
    phase: Phase,
    files: Vec<u32>,
    page: u64,
    /// The page of the source was read.
    read: bool,
    since_ns: u64,
    took: [f64; 3],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Download,
    Copy,
    Sync,
    Delete,
}

given! {
    SOURCE_MIB: u64 = 2040,
        Provenance::fitted(
            "the file that is copied",
            cells!["zone-reclaim-largedd/pages_in/vanilla"],
        );
    COPIES: u32 = 10,
        Provenance::fitted("its copies", cells!["zone-reclaim-largedd/pages_out/vanilla"]);
    DOWNLOAD_MIB_S: u64 = 35,
        Provenance::fitted(
            "the speed of the network",
            cells!["zone-reclaim-largedd/download_s/vanilla"],
        );
    HUGE_EVERY_MS: u64 = 10_000,
        Provenance::seen("scan_sleep_millisecs of khugepaged", cells!["zone-reclaim-largedd"]);
}

impl LargeDd {
    /// That of 2011. Its first column sets the sizes: pages read again the size of the file, pages
    /// written the copies, the time of the download its speed.
    pub const PUBLISHED: LargeDd = LargeDd {
        source_mib: SOURCE_MIB,
        copies: COPIES,
        download_mib_s: DOWNLOAD_MIB_S,
        huge_every_ms: HUGE_EVERY_MS,
        phase: Phase::Download,
        files: Vec::new(),
        page: 0,
        read: false,
        since_ns: 0,
        took: [0.0; 3],
    };

    fn pages(&self, machine: &CacheMachine<'_, '_>) -> u64 {
        (self.source_mib * MIB_PAGES / machine.scale()).max(1)
    }

    fn lap(&mut self, part: usize, now_ns: u64) {
        self.took[part] = now_ns.saturating_sub(self.since_ns) as f64 / S_NS as f64;
        self.since_ns = now_ns;
    }

    /// Writes the next page. `true`: it was the file's last one.
    fn write(&mut self, machine: &mut CacheMachine<'_, '_>) -> Result<bool, Until> {
        machine.throttle().map_or(Ok(()), Err)?;
        let file = *self.files.last().unwrap_or(&0);
        machine.write(file, self.page as u32)?;
        self.page += 1;
        self.read = false;
        let last = self.page == self.pages(machine);
        if last {
            self.page = 0;
        }
        Ok(last)
    }

    fn download(&mut self, machine: &mut CacheMachine<'_, '_>) -> Result<Turn, Until> {
        if self.files.is_empty() {
            self.files.push(machine.create(0));
        }
        let per_page = machine.scale() * S_NS / (self.download_mib_s * MIB_PAGES);
        let due = (self.page + 1) * per_page;
        if self.write(machine)? {
            self.lap(0, machine.now_ns());
            self.phase = Phase::Copy;
            self.files.push(machine.create(0));
        }
        Ok(Turn::Wait(Until::Time(due)))
    }

    fn copy(&mut self, machine: &mut CacheMachine<'_, '_>) -> Result<Turn, Until> {
        if !self.read {
            machine.read(self.files[0], self.page as u32)?;
            self.read = true;
        }
        if self.write(machine)? {
            if self.files.len() as u32 > self.copies {
                self.phase = Phase::Sync;
                return Ok(Turn::Wait(machine.sync()));
            }
            self.files.push(machine.create(0));
        }
        Ok(Turn::More)
    }

    fn turn(&mut self, machine: &mut CacheMachine<'_, '_>) -> Result<Turn, Until> {
        match self.phase {
            Phase::Download => self.download(machine),
            Phase::Copy => self.copy(machine),
            Phase::Sync => {
                self.lap(1, machine.now_ns());
                self.phase = Phase::Delete;
                Ok(Turn::More)
            }
            Phase::Delete => {
                match self.files.pop() {
                    Some(file) => machine.delete(file),
                    None => {
                        self.lap(2, machine.now_ns());
                        return Ok(Turn::Done);
                    }
                }
                Ok(Turn::More)
            }
        }
    }
}

impl Load for LargeDd {
    fn threads(&self) -> u32 {
        1
    }
    fn huge_every_ns(&self) -> u64 {
        self.huge_every_ms * 1_000_000
    }
    fn step(&mut self, machine: &mut CacheMachine<'_, '_>, _thread: u32) -> Turn {
        self.turn(machine).unwrap_or_else(Turn::Wait)
    }
    fn figures(&self) -> Vec<(&'static str, f64)> {
        let [download, dd, delete] = self.took;
        vec![("download_s", download), ("dd_s", dd), ("delete_s", delete)]
    }
}
