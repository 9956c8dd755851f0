//! How many pages of a cache's lists a pass looks at, and in which steps (LB H.1, H.6).
//!
//! Lists of files only: nothing here swaps, so all that LB H.6 says of the balance between files
//! and anonymous pages comes down to its first rule, files only.

use super::{PASS_PAGES_MIN, PRIORITY_GENTLE};
use crate::platform::reclaimer::{By, Pass, Shrunk};
use crate::types::isqrt;

/// Pages of a GiB, as a shift.
const GIB_SHIFT: u32 = 18;

/// The lengths of a cache's two lists, in base pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FileLists {
    /// Pages not used lately.
    pub inactive: u64,
    /// Pages used lately.
    pub active: u64,
}

/// Who owns the lists.
pub trait Lists {
    /// The lengths now.
    fn lengths(&mut self) -> FileLists;
    /// Whether the inactive list is too short beside the active one.
    fn inactive_is_low(&mut self) -> bool {
        self.lengths().inactive_is_low()
    }
    /// Takes this many pages from the cold end of the inactive list.
    fn shrink_inactive(&mut self, pages: u64) -> Shrunk;
    /// Moves this many pages from the cold end of the active list to the inactive list.
    fn shrink_active(&mut self, pages: u64);
}

impl FileLists {
    /// Whether the inactive list is too short beside the active one (LB H.1): shorter than the
    /// square root of ten times their GiB says.
    pub fn inactive_is_low(self) -> bool {
        let gib = self.inactive.saturating_add(self.active) >> GIB_SHIFT;
        let ratio = if gib == 0 { 1 } else { isqrt(10 * gib) };
        self.inactive.saturating_mul(ratio) < self.active
    }
}

/// One pass over one cache's lists (LB H.6): a `2^priority`-th part of each, 32 pages at a time,
/// the active list only while the inactive one is too short. Ends early when it freed enough,
/// except in the first pass of a direct reclaim.
pub fn shrink_lists(lists: &mut dyn Lists, pass: &Pass) -> Shrunk {
    let lengths = lists.lengths();
    let part = |pages: u64| pages.checked_shr(pass.priority).unwrap_or(0);
    let (mut inactive, mut active) = (part(lengths.inactive), part(lengths.active));
    let to_the_end = pass.by == By::Direct && pass.priority == PRIORITY_GENTLE;
    let mut came = Shrunk::default();
    while inactive > 0 || active > 0 {
        let step = inactive.min(PASS_PAGES_MIN);
        if step > 0 {
            inactive -= step;
            let Shrunk { scanned, reclaimed, slab } = lists.shrink_inactive(step);
            // More than it was asked for, or than it looked at, cannot be.
            let reclaimed = reclaimed.min(step);
            came = came.plus(Shrunk { scanned: scanned.min(step).max(reclaimed), reclaimed, slab });
        }
        let step = active.min(PASS_PAGES_MIN);
        if step > 0 {
            active -= step;
            if lists.inactive_is_low() {
                lists.shrink_active(step);
            }
        }
        if came.reclaimed >= pass.wanted && !to_the_end {
            break;
        }
    }
    came
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gfp::Gfp;
    use crate::platform::reclaimer::Unit;
    use crate::types::{NodeId, Order, ZoneKind};
    use std::vec::Vec;

    /// Frees the given part of the requested number.
    struct Script {
        lengths: FileLists,
        frees: fn(u64) -> u64,
        inactive: Vec<u64>,
        active: Vec<u64>,
    }

    impl Lists for Script {
        fn lengths(&mut self) -> FileLists {
            self.lengths
        }
        fn shrink_inactive(&mut self, pages: u64) -> Shrunk {
            self.inactive.push(pages);
            Shrunk { scanned: pages, reclaimed: (self.frees)(pages), slab: 0 }
        }
        fn shrink_active(&mut self, pages: u64) {
            self.active.push(pages);
            self.lengths.active -= pages;
            self.lengths.inactive += pages;
        }
    }

    fn run(lengths: FileLists, priority: u32, by: By, frees: fn(u64) -> u64) -> (Script, Shrunk) {
        let mut script = Script { lengths, frees, inactive: Vec::new(), active: Vec::new() };
        let pass = Pass {
            by,
            unit: Unit::Node(NodeId(0)),
            priority,
            wanted: 32,
            gfp: Gfp::KERNEL,
            order: Order::ZERO,
            highest: ZoneKind::Normal,
            may_write: true,
            may_unmap: true,
            may_swap: true,
        };
        let came = shrink_lists(&mut script, &pass);
        (script, came)
    }

    #[test]
    fn a_pass_looks_at_a_part_of_each_list_in_steps_of_32() {
        let lengths = FileLists { inactive: 1000 << 4, active: 100 << 4 };
        let (script, came) = run(lengths, 4, By::Background, |_| 0);
        assert_eq!(script.inactive.len(), 32);
        assert_eq!(script.inactive.iter().sum::<u64>(), 1000);
        assert!(script.active.is_empty(), "the inactive list is long enough");
        assert_eq!((came.scanned, came.reclaimed), (1000, 0));
        // Too short to have a part.
        let (script, came) = run(FileLists { inactive: 15, active: 15 }, 4, By::Direct, |_| 0);
        assert_eq!((script.inactive, came), ([].to_vec(), Shrunk::default()));
    }

    #[test]
    fn the_active_list_is_cut_while_the_inactive_one_is_too_short() {
        // Equal after 64 pages moved; the steps after that leave it alone.
        let lengths = FileLists { inactive: 100, active: 228 };
        let (script, _) = run(lengths, 0, By::Background, |_| 0);
        assert_eq!(script.active, [32, 32]);
    }

    #[test]
    fn a_pass_ends_when_it_freed_enough_but_for_the_first_of_a_direct_reclaim() {
        let lengths = FileLists { inactive: 10 << 12, active: 0 };
        let few = FileLists { inactive: 320, active: 0 };
        assert_eq!(run(few, 0, By::Background, |pages| pages / 2).0.inactive.len(), 2);
        assert_eq!(run(few, 0, By::Direct, |pages| pages).0.inactive.len(), 1);
        let huge = FileLists { inactive: 320 << 12, ..lengths };
        assert_eq!(run(huge, 12, By::Direct, |pages| pages).0.inactive.len(), 10);
        assert_eq!(run(huge, 12, By::Background, |pages| pages).0.inactive.len(), 1);
    }

    #[test]
    fn how_short_is_too_short_grows_with_memory() {
        let low = |inactive, active| FileLists { inactive, active }.inactive_is_low();
        assert!(low(9, 10) && !low(10, 10), "below a GiB one to one");
        // 1 GiB: isqrt(10) = 3; 10 GiB: 10; 100 GiB: 31.
        for (gib, ratio) in [(1_u64, 3), (10, 10), (100, 31)] {
            let pages = gib << 18;
            let inactive = pages / (ratio + 1) + 1;
            assert!(!low(inactive, pages - inactive), "{gib} GiB");
            let inactive = pages / (ratio + 1) - 1;
            assert!(low(inactive, pages - inactive), "{gib} GiB");
        }
    }

    #[test]
    fn what_a_cache_says_is_cut_to_what_can_be() {
        let (_, came) = run(FileLists { inactive: 64, active: 0 }, 0, By::Direct, |_| u64::MAX);
        assert_eq!((came.scanned, came.reclaimed), (32, 32));
    }
}
