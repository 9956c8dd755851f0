//! Which of the tuning steps of 2023 the per-CPU lists follow (LB E.10), and what came before.
//!
//! Each level has all that the levels below it have. The functions of [`tune`](crate::pcp::tune)
//! ask for a level at the line that it changes, so that this table is the whole difference:
//!
//! - `Fixed`, up to 5.12: a full list gives back `batch`, a refill fetches `batch`.
//! - 0, the kernel of 6.1 to 6.6: what full lists give back doubles from drain to drain, and each
//!   allocation halves it (`free_factor`); while it is doubled, any free of order 1 to 3 empties
//!   the lists.
//! - 1: ... only if the free before it was of order 1 to 3 too.
//! - 2: the CPU's share of the last cache is known; nothing reads it yet.
//! - 3: where that share is large, only if a `batch` is on the lists.
//! - 4: `free_factor` stops at `scale_max`.
//! - 5: order-0 refills in a row double (`alloc_factor`).
//! - 6: there are two bounds, `high_min` and `high_max`; only the lower one is read.
//! - 7: `high` moves between them, and decays with each refresh.
//! - 8: while a zone is below its high mark no list grows and full ones shrink.
//! - 9, the kernel of 6.7 to 6.14: `free_count` replaces `free_factor`: pages freed in a row, not
//!   drains.
//! - `Release615`, from 6.15 on: level 9, but large frees must go on for half of `high_min` longer
//!   before they empty the lists.
//!
//! Levels 0 to 8 keep their `free_factor` where level 9 keeps its `free_count`: both are halved by
//! each allocation, and no level has both.

use crate::types::Choice;

/// A step of the tuning; see the module for what each one changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[repr(u8)]
pub enum Tuning {
    /// Up to 5.12.
    Fixed,
    /// 6.1 to 6.6.
    Level0,
    /// Streams of large frees are two in a row.
    Level1,
    /// The cache share is known.
    Level2,
    /// The cache share is used.
    Level3,
    /// Bulk frees are limited.
    Level4,
    /// Refills double.
    Level5,
    /// Two bounds.
    Level6,
    /// `high` moves.
    Level7,
    /// Restraint below the high mark.
    Level8,
    /// Pages freed in a row: 6.7 to 6.14.
    Level9,
    /// 6.15 on.
    #[default]
    Release615,
}

/// What settings call them: `fixed`, `0` to `9`, `6.15`; oldest first.
impl Choice for Tuning {
    const ALL: &'static [(&'static str, Tuning)] = &[
        ("fixed", Tuning::Fixed),
        ("0", Tuning::Level0),
        ("1", Tuning::Level1),
        ("2", Tuning::Level2),
        ("3", Tuning::Level3),
        ("4", Tuning::Level4),
        ("5", Tuning::Level5),
        ("6", Tuning::Level6),
        ("7", Tuning::Level7),
        ("8", Tuning::Level8),
        ("9", Tuning::Level9),
        ("6.15", Tuning::Release615),
    ];
}

impl Tuning {
    /// Whether it has what `level` brought.
    #[inline]
    pub const fn has(self, level: Tuning) -> bool {
        self as u8 >= level as u8
    }

    /// Whether `high` moves between two bounds; before there is but one.
    #[inline]
    pub const fn moves_high(self) -> bool {
        self.has(Tuning::Level7)
    }

    /// Whether it is asked, before a page is taken, whether the zone is below its high mark (LB D.4
    /// step 5), and requests mark it so.
    #[inline]
    pub const fn watches_high_mark(self) -> bool {
        self.has(Tuning::Level8)
    }
}

const _: () = {
    let mut at = 0;
    while at < Tuning::ALL.len() {
        assert!(Tuning::ALL[at].1 as usize == at, "the table is in the order of the steps");
        at += 1;
    }
};
