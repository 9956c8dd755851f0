//! What the kernel recorded of its own doings, beyond allocations and frees, that a replay is told.

use serde::Serialize;

use crate::cli::UseRecorded;

/// Which of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Recorded {
    /// When each CPU's statistics worker ran.
    pub decay: bool,
    /// The migratetypes of pageblocks.
    pub blocktypes: bool,
    /// The pages that lists held at the start.
    pub lists: bool,
    /// Allocations that no event shows.
    pub untraced: bool,
}

impl Recorded {
    /// What a command line asks for.
    pub fn of(list: &[UseRecorded]) -> Recorded {
        Recorded {
            decay: list.contains(&UseRecorded::Decay),
            blocktypes: list.contains(&UseRecorded::Blocktypes),
            lists: list.contains(&UseRecorded::Lists),
            untraced: list.contains(&UseRecorded::Untraced),
        }
    }

    /// Their names on the command line.
    pub fn names(self) -> Vec<&'static str> {
        let all = [
            (self.decay, "decay"),
            (self.blocktypes, "blocktypes"),
            (self.lists, "lists"),
            (self.untraced, "untraced"),
        ];
        all.into_iter().filter(|(told, _)| *told).map(|(_, name)| name).collect()
    }
}
