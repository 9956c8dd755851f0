//! Writing dirty pages to their stores: in the background, for a sync, and for reclaim.
//!
//! ```text
//!   dirty pages   0 ──────────── background ───────────── hard
//!   the thread    old pages only │ writes until below it  │
//!   writers       go on          │ go on                  │ wait for the thread
//! ```
//! Limits are fractions of what could be dirty: free pages of the pool above its reserves, and the
//! cache (LB D.4, `node_dirty_ok`).
//!
//! A page that could not be written stays dirty, and the next sync of each handle reports its
//! file's error. No thread waits for a page while it holds another: it writes what it has gathered
//! first.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use zonal::Order;

use crate::backing::{PageWrite, WriteFailed};
use crate::file::{Ask, File};
use crate::flusher::{LOOK_AGAIN, PATIENCE};
use crate::frames::Shared;
use crate::index::Found;
use crate::inner::Inner;
use crate::lock::Until;
use crate::state::PageState;
use crate::stats::count;

/// Pages written in one call of a backing at most: 1 MiB for pages of 4 KiB.
const WRITE_MAX: usize = 256;
/// The same for pages of 64 KiB.
const WRITE_MIN: usize = 16;
/// Pages that reclaim writes around a dirty one that it meets.
const AROUND_MAX: usize = 32;
/// The limits are recomputed after this many pages have become dirty.
const LIMITS_EVERY: u32 = 16;
/// Pause before a page that is briefly in use is looked at again.
const LOOK_SOON: Duration = Duration::from_micros(200);
/// At least this many pages may be dirty.
const LIMIT_MIN: u64 = 16;

/// Whether a write waits for pages that are in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Busy {
    /// Yes: a sync.
    Wait,
    /// Until then: their users release them soon, or never.
    Until(Instant),
    /// No: the caller may hold pages that others wait for.
    Pass,
}

/// Pages whose write-back this thread has begun. Those that are still here when this is dropped
/// were not written: a panic is under way, and they stay dirty.
struct Run<'a> {
    inner: &'a Inner,
    pages: Vec<(u64, Shared<'a>)>,
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.pages.drain(..).for_each(|(_, page)| end(self.inner, &page, false));
    }
}

/// Ends the write-back of one page.
fn end(inner: &Inner, page: &Shared<'_>, written: bool) {
    inner.lru_of(page.frame()).writeback.fetch_sub(1, Relaxed);
    page.end_writeback(written);
}

/// Pages of one write.
fn write_max(order: Order) -> usize {
    (WRITE_MAX >> order.get()).max(WRITE_MIN)
}

impl Inner {
    /// Pages that may be dirty before the thread writes, and before writers wait.
    pub fn dirty_limits(&self) -> (u64, u64) {
        let pool = self.frames.pool();
        let free = pool.free_page_count().saturating_sub(pool.view().total_reserve());
        let free = free >> self.frames.order().get();
        let cached = self.frames.owned();
        let could_be = (free + cached).min(self.options.max_pages);
        let part = |percent: u32| (could_be * u64::from(percent) / 100).max(LIMIT_MIN);
        let hard = part(self.options.dirty_percent);
        // As Linux: a background limit that is not below the hard one becomes half of it.
        let background = part(self.options.background_percent);
        (if background < hard { background } else { hard / 2 }, hard)
    }

    /// Called by a writer that has just made a page dirty and holds nothing: wakes the thread, and
    /// waits while too much is dirty.
    pub fn balance(&self, file: &File) -> io::Result<()> {
        let flusher = &self.flusher;
        if flusher.soiled.fetch_add(1, Relaxed).is_multiple_of(LIMITS_EVERY) {
            let (background, hard) = self.dirty_limits();
            flusher.background.store(background, Relaxed);
            flusher.hard.store(hard, Relaxed);
        }
        let dirty = || self.dirty.load(Relaxed);
        if dirty() <= flusher.background.load(Relaxed) {
            return Ok(());
        }
        flusher.kick();
        let hard = flusher.hard.load(Relaxed);
        if dirty() <= hard {
            return Ok(());
        }
        count(&self.counters.throttled, 1);
        let mut seen = flusher.cleaned.load(Relaxed);
        let mut since = Instant::now();
        while dirty() > hard && since.elapsed() < PATIENCE && !flusher.is_stopped() {
            if flusher.stuck.load(Relaxed)
                && let Some(error) = self.why_stuck(file)
            {
                return Err(error);
            }
            flusher.kick();
            flusher.wait_progress(LOOK_AGAIN);
            let now = flusher.cleaned.load(Relaxed);
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
        }
        Ok(())
    }

    /// The error for a writer that gets no page: if dirty pages cannot be written, the reason for
    /// that.
    pub fn why_no_page(&self, file: &File, error: io::Error) -> io::Error {
        match error.kind() {
            io::ErrorKind::OutOfMemory => self.why_stuck(file).unwrap_or(error),
            _ => error,
        }
    }

    /// Why nothing can be written: the file's own error first.
    fn why_stuck(&self, file: &File) -> Option<io::Error> {
        file.standing_failure().or_else(|| {
            let files = self.files();
            files.by_id.values().find_map(|file| file.standing_failure())
        })
    }

    /// Writes old pages of each file, and others until not too many are left.
    pub fn flush_round(&self) {
        let mut files: Vec<Arc<File>> = self.files().by_id.values().cloned().collect();
        // Longest dirty first: reclaim meets these next.
        files.sort_by_cached_key(|file| std::cmp::Reverse(file.dirty_for()));
        let before = self.flusher.cleaned.load(Relaxed);
        let (mut tried, mut failing) = (false, false);
        let wanted = self.flusher.wanted.swap(false, Relaxed);
        for file in files.iter().filter(|file| file.is_dirty()) {
            let too_many = self.dirty.load(Relaxed) > self.flusher.background.load(Relaxed);
            if !too_many && !wanted && file.dirty_for() < self.options.dirty_expire {
                continue;
            }
            tried = true;
            if !file.may_try(Ask::Write) {
                failing = true;
                continue;
            }
            failing |= self.flush_file(file).is_err();
        }
        let moved = self.flusher.cleaned.load(Relaxed) != before;
        self.flusher.stuck.store(tried && failing && !moved, Relaxed);
        self.flusher.tell_progress();
    }

    /// Writes the pages of a file that are dirty now, in runs. Leaves pages in use for later.
    fn flush_file(&self, file: &File) -> io::Result<()> {
        let soiled = self.soil_again(file, Busy::Pass);
        let mut from = 0;
        loop {
            let run = file.dirty_run(from, write_max(self.frames.order()));
            let Some(last) = run.last() else { break };
            from = last + 1;
            self.write_pages(file, &run, Busy::Pass)?;
            if self.flusher.is_stopped() {
                break;
            }
        }
        file.restart_age();
        soiled
    }

    /// Writes the dirty pages that follow one another from `index` on, for reclaim.
    pub fn write_around(&self, file: &File, index: u64) {
        let run = file.dirty_run(index, AROUND_MAX);
        if run.first() == Some(&index) {
            // The error is kept with the file, and the page stays dirty.
            let _ = self.write_pages(file, &run, Busy::Pass);
        }
    }

    /// Waits for a page that another thread holds. `false`: the time is over.
    pub fn wait(&self, frame: u32, until: Until, busy: Busy) -> bool {
        match busy {
            Busy::Wait => self.frames.wait(frame, until),
            Busy::Until(end) if Instant::now() < end => std::thread::sleep(LOOK_SOON),
            Busy::Until(_) | Busy::Pass => return false,
        }
        true
    }

    /// Writes those of the pages that are dirty. The pages are in order.
    ///
    /// # Errors
    /// The first failed write; pages behind it were tried too.
    pub fn write_pages(&self, file: &File, pages: &[u64], busy: Busy) -> io::Result<()> {
        self.entry.check_here()?;
        let _at_work = self.begin_work();
        let mut run = Run { inner: self, pages: Vec::new() };
        let (mut outcome, mut outcome_of_full) = (Ok(()), Ok(()));
        let mut flush = |run: &mut Run<'_>| {
            let written = self.write_run(file, run);
            if outcome.is_ok() {
                outcome = written;
            }
        };
        for &index in pages {
            let gap =
                run.pages.last().is_some_and(|(last, _)| last + 1 != index) && !file.takes_gaps();
            if gap || run.pages.len() >= write_max(self.frames.order()) {
                flush(&mut run);
            }
            loop {
                let in_the_way = match file.index.share(&self.frames, index, PageState::default()) {
                    Found::Absent => break,
                    Found::Busy(frame) => match self.frames.check_room(frame) {
                        Ok(()) => (frame, Until::Shareable),
                        // In use, as others that are left for later.
                        Err(_) if busy == Busy::Pass => break,
                        Err(error) => {
                            outcome_of_full = outcome_of_full.and(Err(error));
                            break;
                        }
                    },
                    Found::Page(page, _) => match page.begin_writeback() {
                        Ok(()) => {
                            self.lru_of(page.frame()).writeback.fetch_add(1, Relaxed);
                            run.pages.push((index, page));
                            break;
                        }
                        Err(false) => break,
                        Err(true) => (page.frame(), Until::Written),
                    },
                };
                if busy == Busy::Pass {
                    break;
                }
                // The thread that holds the page may wait for a page of the run.
                flush(&mut run);
                if !self.wait(in_the_way.0, in_the_way.1, busy) {
                    break;
                }
            }
        }
        flush(&mut run);
        outcome.and(outcome_of_full)
    }

    /// Writes pages whose write-back this thread has begun.
    fn write_run(&self, file: &File, run: &mut Run<'_>) -> io::Result<()> {
        if run.pages.is_empty() {
            return Ok(());
        }
        let failed_syncs = file.failed_syncs();
        let (whole, outcome) = match self.write_batch(file, &run.pages) {
            Ok(()) => (run.pages.len(), Ok(())),
            Err(failed) => (failed.written.min(run.pages.len()), Err(failed.error)),
        };
        // Before the write-back ends: who waits for it sees the error, or the page, dirty.
        match &outcome {
            Ok(()) => file.succeed(Ask::Write),
            Err(error) => self.fail(file, Ask::Write, error),
        }
        let mut cleaned = 0;
        for (at, (index, page)) in run.pages.drain(..).enumerate() {
            let listed = if at < whole { file.written(index, failed_syncs) } else { None };
            if listed == Some(true) {
                self.cleaned(page.frame());
            }
            end(self, &page, listed.is_some());
            cleaned += u64::from(listed.is_some());
        }
        count(&self.counters.written, whole as u64);
        self.flusher.cleaned.fetch_add(cleaned, Relaxed);
        if cleaned > 0 {
            self.flusher.tell_progress();
        }
        outcome
    }

    /// Writes pages once the engine's log has reached the highest of their numbers.
    fn write_batch(&self, file: &File, run: &[(u64, Shared<'_>)]) -> Result<(), WriteFailed> {
        let lsn = run.iter().map(|(_, page)| self.frames.lsn(page.frame())).max().unwrap_or(0);
        if lsn > 0 {
            file.backing.before_write(lsn)?;
        }
        let batch = run.iter().map(|(page, right)| PageWrite { page: *page, bytes: right.bytes() });
        let batch: Vec<PageWrite<'_>> = batch.collect();
        file.backing.write(&batch)
    }
}
