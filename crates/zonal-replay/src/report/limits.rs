//! Guesses of the model.

use serde::Serialize;

use crate::judge::Judged;
use crate::program::Counts;
use crate::start::StartReport;
use crate::told::Recorded;

/// What limits how near the model can come to the kernel; all 0 where memory is real.
#[derive(Debug, Default, Serialize)]
pub struct Limits {
    /// Pages on per-CPU lists at the start: nothing tells which they are, or on which list.
    pub list_pages_guessed: u64,
    /// Free pages of the start that the trace never names.
    pub free_pages_guessed: u64,
    /// Pages in use at the start that the trace never names.
    pub held_pages_guessed: u64,
    /// Pages that left a list without an event, as the whole trace tells.
    pub untraced_allocations: u64,
    /// Pages of such allocations that the model was given.
    pub untraced_made_up: u64,
    /// Frees into pageblocks whose type the trace never tells.
    pub unknown_block_type: u64,
    /// Runs of the statistics workers whose time is not told.
    pub decays_guessed: u64,
    /// Events that the recorder lost.
    pub lost_events: u64,
}

impl Limits {
    /// Counts them.
    pub fn new(
        recorded: Recorded,
        counts: &Counts,
        judged: &Judged,
        start: Option<&StartReport>,
    ) -> Limits {
        let Some(start) = start else { return Limits::default() };
        let told = if recorded.lists { start.cached_named } else { 0 };
        Limits {
            list_pages_guessed: start.cached_pages - told,
            free_pages_guessed: start.free_pages - start.free_named.min(start.free_pages),
            held_pages_guessed: start.held_pages - start.held_named,
            untraced_allocations: judged.lists.untraced_allocations,
            untraced_made_up: counts.alloc_pages_made_up,
            unknown_block_type: judged.lists.unknown_block_type,
            decays_guessed: counts.refreshes_made_up,
            lost_events: counts.lost,
        }
    }

    /// Each of them, in words.
    pub fn lines(&self) -> [(u64, &'static str); 8] {
        [
            (self.list_pages_guessed, "pages on lists at the start, which ones is guessed"),
            (self.free_pages_guessed, "free pages at the start, where they lie is guessed"),
            (self.held_pages_guessed, "pages in use at the start, where they lie is guessed"),
            (self.untraced_allocations, "pages allocated without an event"),
            (self.untraced_made_up, "pages of such allocations that the model was given"),
            (self.unknown_block_type, "frees into pageblocks of a type that nothing tells"),
            (self.decays_guessed, "runs of statistics workers, whose time is guessed"),
            (self.lost_events, "events that the recorder lost"),
        ]
    }
}
