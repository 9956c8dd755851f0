//! Which of the tuning steps of 2023 the per-CPU lists follow (LB E.10), and what came before.
//!
//! Each level has all that the levels below it have. The functions of [`tune`](crate::pcp::tune)
//! ask for a level at the line that it changes, so that this table is the whole difference:
//!
//! - `Fixed`, up to 5.12: a full list gives back `batch`, a refill fetches `batch`.
//! - `Doubling`, 5.13 to 5.17: as 0, but large frees never empty the lists.
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
//! - 8: while a zone is below its high watermark no list grows and full ones shrink.
//! - 9, the kernel of 6.7 to 6.14: `free_count` replaces `free_factor`: pages freed in a row, not
//!   drains.
//! - `Release615`, from 6.15 on: level 9, but large frees must go on for half of `high_min` longer
//!   before they empty the lists.
//!
//! Levels 0 to 8 keep their `free_factor` where level 9 keeps its `free_count`: both are halved by
//! each allocation, and no level has both.

use crate::types::choice;

choice! {
    /// A step of the tuning; see the module for what each one changes.
    #[derive(PartialOrd, Ord, Default)]
    #[repr(u8)]
    pub enum Tuning {
        /// Up to 5.12.
        Fixed = "fixed" if "history",
        /// 5.13 to 5.17: drains double, and large frees are no streams.
        Doubling = "5.13" if "history",
        /// 6.1 to 6.6.
        Level0 = "0",
        /// Streams of large frees are two in a row.
        Level1 = "1",
        /// The cache share is known.
        Level2 = "2",
        /// The cache share is used.
        Level3 = "3",
        /// Bulk frees are limited.
        Level4 = "4",
        /// Refills double.
        Level5 = "5",
        /// Two bounds.
        Level6 = "6",
        /// `high` moves.
        Level7 = "7",
        /// Restraint below the high watermark.
        Level8 = "8",
        /// Pages freed in a row: 6.7 to 6.14.
        Level9 = "9",
        /// 6.15 on.
        #[default]
        Release615 = "6.15",
    }
}

impl Tuning {
    /// Whether it has what `level` brought.
    #[inline]
    pub const fn has(self, level: Tuning) -> bool {
        self as u8 >= level as u8
    }

    /// Whether drains double, and refills or allocations end that.
    #[inline]
    pub const fn doubles(self) -> bool {
        #[cfg(feature = "history")]
        return self.has(Tuning::Doubling);
        #[cfg(not(feature = "history"))]
        true
    }

    /// Whether `high` moves between two bounds; before, there is one.
    #[inline]
    pub const fn moves_high(self) -> bool {
        self.has(Tuning::Level7)
    }

    /// Whether it is asked, before a page is taken, whether the zone is below its high watermark
    /// (LB D.4 step 5), and requests mark it so.
    #[inline]
    pub const fn watches_high_watermark(self) -> bool {
        self.has(Tuning::Level8)
    }
}
