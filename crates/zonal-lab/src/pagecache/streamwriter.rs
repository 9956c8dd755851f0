//! Streaming mapped writers: processes that map a file each and write it from front to back.

use super::machine::{CacheMachine, Load, Turn};
use crate::provenance::{Provenance, cells, given};
use crate::units::MIB_PAGES;

/// The load.
#[derive(Clone, Debug)]
pub struct StreamWriter {
    /// Processes.
    pub streams: u32,
    /// MiB of all files.
    pub mib: u64,
    /// How often a process asks for a huge page, in milliseconds.
    pub huge_every_ms: u64,
    /// The file and the next page of each.
    at: Vec<Option<(u32, u64)>>,
}

given! {
    STREAMS: u32 = 12,
        Provenance::fitted(
            "streams at a time",
            cells!["zone-reclaim-streamwriter/elapsed_s/vanilla"],
        );
    MIB: u64 = 118_192,
        Provenance::fitted(
            "what is written",
            cells!["zone-reclaim-streamwriter/pages_out/vanilla"],
        );
    HUGE_EVERY_MS: u64 = 10_000,
        Provenance::seen("scan_sleep_millisecs of khugepaged", cells!["zone-reclaim-streamwriter"]);
}

impl StreamWriter {
    /// That of 2011. Its first column says what was written, and by the time that took that it was
    /// not one stream.
    pub const PUBLISHED: StreamWriter =
        StreamWriter { streams: STREAMS, mib: MIB, huge_every_ms: HUGE_EVERY_MS, at: Vec::new() };
}

impl Load for StreamWriter {
    fn threads(&self) -> u32 {
        self.streams
    }
    fn huge_every_ns(&self) -> u64 {
        self.huge_every_ms * 1_000_000
    }
    fn step(&mut self, machine: &mut CacheMachine<'_, '_>, thread: u32) -> Turn {
        self.at.resize(self.streams as usize, None);
        let pages = self.mib * MIB_PAGES / machine.scale() / u64::from(self.streams);
        let at = &mut self.at[thread as usize];
        let (file, page) = at.get_or_insert_with(|| (machine.create(0), 0));
        if *page > pages {
            return Turn::Done;
        }
        if *page == pages {
            *page += 1;
            return Turn::Wait(machine.sync());
        }
        if let Some(until) = machine.throttle() {
            return Turn::Wait(until);
        }
        match machine.fault(*file, *page as u32) {
            Ok(()) => *page += 1,
            Err(until) => return Turn::Wait(until),
        }
        Turn::More
    }
    fn figures(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
}
