//! The sections of x86-64: pops and pushes, each one restartable section that commits by one store
//! to the pcp's hot word (`zonal_core::pcp::word`). KSEC-1 to KSEC-5 in `fast.rs` limit them.
//!
//! ```text
//! zone  pop only: lets such requests pass, or leave. Advice, in front of the section. What stops
//!       frees also makes every pcp of the zone slow
//! 3  cpu   which pcp is ours; from here to the commit it stays ours, or we start again at 3
//!    word  not our list, or slow: leave
//!    limits   list empty, its count of pops full, or a push that needs a decision: leave
//!    page  push only: the block's own word says that it came from this list, or, for any list,
//!          from that of another CPU's pcp of the zone; leave if not
//! 5  mark  push only: the word says that the block is on the list
//! 6  commit   one store of the hot word
//! 4
//! ```
//! Interrupted between the mark and the commit, a push takes the mark back before it starts again:
//! its table has a row for that one instruction.

use core::arch::asm;

use zonal_core::frame::{PCP_END, PCP_SHIFT, TAG_ALLOCATED, TAG_CACHED};
use zonal_core::pcp::offsets::{
    FIRST_FRAME, FRAMES, FREE_COUNT_CAP, FREE_HIGH_THRESHOLD, LISTS, PAGE_SHIFT, POP_DELTA, list,
};
use zonal_core::pcp::word::{ACTIVE_MASK, LEN_MASK, LEN_SHIFT, PREV, PUSH_DELTA, SLOW};
use zonal_core::types::{PAGEBLOCK_ORDER, Pfn};

use super::own::{OWN_FRAMES, OWN_PCP, OWN_TYPES, OWN_ZONE, RunsSections};

/// Set in a word that an operation on the first list leaves alone, and in the difference of the
/// word and a list's `active` that one on any list does.
const STRAY_BITS: u64 = SLOW | ACTIVE_MASK as u64;

const _: () = assert!(TAG_ALLOCATED == TAG_CACHED + 1, "a mark is one decrement");
const _: () = assert!(STRAY_BITS | PREV <= i32::MAX as u64, "tests take 32 bits");
const _: () = assert!(PUSH_DELTA <= i32::MAX as u64, "an immediate");

/// What a pop came to: the number of the block's first page, or one below 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Popped(i64);

/// Nothing was done.
const LEFT: i64 = -1;
/// A copy of a block that was freed twice at the same time (PCP-3), which is dropped.
const STRAY: i64 = -2;

impl Popped {
    /// The block, if there is one.
    #[inline(always)]
    pub(super) fn page(self) -> Option<Pfn> {
        if self.0 < 0 { None } else { Some(Pfn(self.0 as u64)) }
    }

    /// Whether a copy was dropped.
    pub(super) fn is_stray(self) -> bool {
        self.0 == STRAY
    }
}

/// The table's row of a section, and of one that marks: what is marked and not committed goes on
/// at 7.
macro_rules! row {
    () => {
        ".pushsection .zonal_sections, \"aw\"\n.balign 8\n.quad 3b, 4f - 3b, 3b\n.popsection\n"
    };
    (marks) => {
        concat!(
            ".pushsection .zonal_sections, \"aw\"\n",
            ".balign 8\n",
            ".quad 3b, 6f - 3b, 3b\n",
            ".quad 6f, 4f - 6f, 7f\n",
            ".popsection\n"
        )
    };
}

/// The begin of a section.
macro_rules! enter {
    () => {
        "3:\nmov {p}, gs:[{own} + {own_pcp}]\nmov {w}, [{p}]\n"
    };
}

/// A pop, if the zone of the CPU's pcp lets such requests pass, that is, has the bit `$passes`.
/// `$check`: leaves unless the list is the active one; `$record`: address of the list.
macro_rules! pop {
    ($own:expr, $words:expr, $passes:literal, $record:literal, $check:expr, $($operands:tt)*) => {{
        let page: i64;
        asm!(
            "mov {s}, gs:[{own} + {own_zone}]",
            concat!("test dword ptr [{s}], ", $passes),
            "je 20f",
            enter!(),
            row!(),
            $check,
            "mov {x}, {w}",
            "shr {x}, {len_shift}",
            "and {x:e}, {len_mask}",
            "je 20f",
            concat!("mov {s}, [", $record, " + {slots}]"),
            "mov {x:e}, [{s} + {x} * 4 - 4]",
            "shr {w:x}, 1",
            "add {w}, [{p} + {pop}]",
            // The word has no room for another pop.
            "js 20f",
            "mov [{p}], {w}",
            "4:",
            // From CACHED to ALLOCATED: the word is ours alone.
            concat!("mov {s}, [", $record, " + {cached}]"),
            "cmp [{words} + {x} * 8], {s}",
            "jne 21f",
            "inc qword ptr [{words} + {x} * 8]",
            "add {x}, [{p} + {page_shift}]",
            ".pushsection .text.zonal_sections, \"ax\"",
            "20:",
            "mov {x}, {left}",
            "jmp 22f",
            "21:",
            "mov {x}, {stray}",
            "jmp 22f",
            ".popsection",
            "22:",
            words = in(reg) $words,
            x = out(reg) page,
            p = out(reg) _,
            w = out(reg) _,
            s = out(reg) _,
            own = const $own,
            own_pcp = const OWN_PCP,
            own_zone = const OWN_ZONE,
            len_shift = const LEN_SHIFT,
            len_mask = const LEN_MASK,
            slots = const LISTS + list::SLOTS_LO,
            cached = const LISTS + list::CACHED,
            pop = const POP_DELTA,
            page_shift = const PAGE_SHIFT,
            stray_bits = const STRAY_BITS,
            $($operands)*
            left = const LEFT,
            stray = const STRAY,
            options(nostack),
        );
        Popped(page)
    }};
}

/// Pops from the first list of the running CPU's pcp, whose blocks are pages.
///
/// # Safety
/// 1. `words` are those of the allocator whose pcps the cells name.
#[inline(always)]
pub(super) unsafe fn pop_page<K: RunsSections>(words: *const u64) -> Popped {
    // SAFETY: (1) the section touches the running CPU's pcp only (KSEC-1, PCP-1) and its slots, and
    // behind the commit the word of a block that is the caller's (PCP-3); (2) KSEC-2 to KSEC-4 hold
    // as written; (3) every register it changes is declared, and the stack is not touched.
    unsafe { pop!(K::OWN, words, "1", "{p}", concat!("test {w:e}, {stray_bits}\n", "jne 20f"),) }
}

/// Pops from any list, if it is the active one. As [`pop_page`], for a list that is a run-time
/// value: `list` is its number of bytes from the first list.
///
/// # Safety
/// 1. of [`pop_page`]; 2. `list` is a list of the pcps; `passes` is the order's bit.
#[inline(always)]
pub(super) unsafe fn pop_block<K: RunsSections>(
    words: *const u64,
    list: usize,
    passes: u32,
) -> Popped {
    // SAFETY: (1) to (3) as in `pop_page`.
    unsafe {
        pop!(
            K::OWN,
            words,
            "{passes:e}",
            "{p} + {r}",
            concat!(
                "mov {x:e}, [{p} + {r} + {active}]\n",
                "xor {x:e}, {w:e}\n",
                "test {x:e}, {stray_bits}\n",
                "jne 20f"
            ),
            r = in(reg) list,
            passes = in(reg) passes,
            active = const LISTS + list::ACTIVE_BITS,
        )
    }
}

/// A push: `$check` leaves unless the list is the active one and nothing is to be decided;
/// `$expect` leaves unless the block's word is right; `$grow`: `free_count` and the length; `$mark`
/// writes the block's word, and `$unmark` takes that back.
macro_rules! push {
    (
        $own:expr, $words:expr, $pfn:expr, $record:literal, $check:expr, $expect:expr,
        $grow:expr, $mark:literal, $unmark:literal, $($operands:tt)*
    ) => {{
        asm!(
            enter!(),
            row!(marks),
            $check,
            "mov {t}, {w}",
            "shr {t}, {len_shift}",
            "and {t:e}, {len_mask}",
            concat!("cmp {t:e}, [", $record, " + {hi}]"),
            "jae {leave}",
            // The frame, if there is one.
            "mov {n}, {pfn}",
            "sub {n}, [{p} + {page_shift}]",
            "cmp {n}, gs:[{own} + {own_frames}]",
            "jae {leave}",
            concat!("mov {x}, [", $record, " + {allocated}]"),
            $expect,
            concat!("mov {s}, [", $record, " + {slots}]"),
            "mov [{s} + {t} * 4], {n:e}",
            $grow,
            // From ALLOCATED to CACHED. Nothing may come between this and the commit.
            $mark,
            "6:",
            "mov [{p}], {w}",
            "4:",
            ".pushsection .text.zonal_sections, \"ax\"",
            "7:",
            $unmark,
            "jmp 3b",
            ".popsection",
            words = in(reg) $words,
            pfn = in(reg) $pfn,
            n = out(reg) _,
            x = out(reg) _,
            p = out(reg) _,
            w = out(reg) _,
            s = out(reg) _,
            t = out(reg) _,
            own = const $own,
            own_pcp = const OWN_PCP,
            own_frames = const OWN_FRAMES,
            len_shift = const LEN_SHIFT,
            len_mask = const LEN_MASK,
            cap = const FREE_COUNT_CAP,
            delta = const PUSH_DELTA,
            page_shift = const PAGE_SHIFT,
            hi = const LISTS + list::HI,
            slots = const LISTS + list::SLOTS_LO,
            allocated = const LISTS + list::ALLOCATED,
            $($operands)*
            leave = label { return false },
            options(nostack),
        );
        true
    }};
}

/// Pushes the page `pfn` onto the first list of the running CPU's pcp, if it came from there and
/// its pageblock has the type `mt`. `false`: nothing was done.
///
/// # Safety
/// 1. of [`pop_page`].
#[inline(always)]
pub(super) unsafe fn push_page<K: RunsSections, const MT: i8>(words: *const u64, pfn: u64) -> bool {
    // SAFETY: (1) the section touches the running CPU's pcp only (KSEC-1, PCP-1), the slot at the
    // top, which is below the capacity (PCP-2), the word of a block that has no other owner, and
    // the type of its pageblock: its word says that it is of the pcp's zone; (2) KSEC-2 to KSEC-4
    // hold; (3) every register it changes is declared, and the stack is not touched.
    unsafe {
        push!(
            K::OWN, words, pfn, "{p}",
            concat!("test {w:e}, {stray_bits}\n", "jne {leave}"),
            concat!(
                "cmp {x}, [{words} + {n} * 8]\n",
                "jne {leave}\n",
                "mov {x}, {pfn}\n",
                "shr {x}, {pageblock}\n",
                "add {x}, gs:[{own} + {own_types}]\n",
                "cmp byte ptr [{x}], {mt}\n",
                "jne {leave}\n",
            ),
            // `free_count` grows by the page, which is the carry, while it is below its cap.
            concat!("cmp {w:x}, [{p} + {cap}]\n", "adc {w}, {delta}"),
            "dec qword ptr [{words} + {n} * 8]",
            "inc qword ptr [{words} + {n} * 8]",
            stray_bits = const STRAY_BITS | PREV,
            own_types = const OWN_TYPES,
            pageblock = const PAGEBLOCK_ORDER.get(),
            mt = const MT,
        )
    }
}

/// Pushes the block that begins at `pfn` onto any list, if it is the active one, and the block came
/// from such a list of any CPU's pcp of the zone. As [`push_page`]; `list` is the list's number of
/// bytes from the first one.
///
/// # Safety
/// 1. of [`pop_page`]; 2. `list` is a list of the pcps.
#[inline(always)]
pub(super) unsafe fn push_block<K: RunsSections>(words: *const u64, list: usize, pfn: u64) -> bool {
    // SAFETY: (1) to (3) as in `push_page`.
    unsafe {
        push!(
            K::OWN, words, pfn, "{p} + {r}",
            concat!(
                "mov {t:e}, [{p} + {r} + {active}]\n",
                "xor {t:e}, {w:e}\n",
                "test {t:e}, {stray_bits}\n",
                "jne {leave}\n",
                // `prev`, by jumps that mostly go the same way.
                "mov {t:e}, [{p} + {r} + {prev_bits}]\n",
                "test {t:e}, {w:e}\n",
                "jne 9f\n",
                "xor {t:e}, {w:e}\n",
                "test {t:e}, {prev}\n",
                "je 14f\n",
                "xor {w}, {prev}\n",
                "jmp 14f\n",
                // Two frees of order 1 to 3 in a row may be a stream, which the core judges
                // (LB E.7).
                "9:\n",
                "cmp {w:x}, [{p} + {threshold}]\n",
                "jae {leave}\n",
                "14:\n",
            ),
            concat!(
                "mov {y}, {x}\n",
                "cmp {x}, [{words} + {n} * 8]\n",
                "je 12f\n",
                // Not from here: of the zone, and by its word from the same list of another CPU?
                "mov {s:e}, {n:e}\n",
                "sub {s:e}, [{p} + {first}]\n",
                "cmp {s:e}, [{p} + {zone_frames}]\n",
                "jae {leave}\n",
                "mov {y}, [{words} + {n} * 8]\n",
                "mov {s}, {y}\n",
                "xor {s}, {x}\n",
                "test {s:e}, {what}\n",
                "jne {leave}\n",
                "shr {s}, {end}\n",
                "jne {leave}\n",
                "12:\n",
                "dec {x}\n",
            ),
            concat!(
                // `free_count` grows by the block while it is below its cap.
                "mov {s:e}, [{p} + {r} + {pages}]\n",
                "cmp {w:x}, [{p} + {cap}]\n",
                "jb 15f\n",
                "xor {s:e}, {s:e}\n",
                "15:\n",
                "lea {s}, [{s} + {delta}]\n",
                "add {w}, {s}",
            ),
            "mov [{words} + {n} * 8], {x}",
            "mov [{words} + {n} * 8], {y}",
            r = in(reg) list,
            y = out(reg) _,
            stray_bits = const STRAY_BITS,
            prev = const PREV,
            threshold = const FREE_HIGH_THRESHOLD,
            first = const FIRST_FRAME,
            zone_frames = const FRAMES,
            what = const (1 << PCP_SHIFT) - 1,
            end = const PCP_END,
            active = const LISTS + list::ACTIVE_BITS,
            prev_bits = const LISTS + list::PREV_BITS,
            pages = const LISTS + list::BLOCK_PAGES,
        )
    }
}

/// The address of the type of pageblock 0, if that were in the zone of the running CPU's pcp.
#[inline(always)]
pub(super) fn own_types<K: RunsSections>() -> usize {
    let address;
    // SAFETY: (1) the cell is there, as `RunsSections` says, and nothing else is touched.
    unsafe {
        asm!(
            "mov {address}, gs:[{own} + {own_types}]",
            address = out(reg) address,
            own = const K::OWN,
            own_types = const OWN_TYPES,
            options(nostack, preserves_flags, readonly),
        );
    }
    address
}
