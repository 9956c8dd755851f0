//! The restartable sequences of x86-64. FAST-1 to FAST-7 in `rseq.rs` limit what they may do.
//!
//! A pop and a push are each written once; the variants for the hot list and for any list differ in
//! how they find the list's record and in additional checks.

use std::arch::asm;
use std::mem::offset_of;

use super::layout::{
    ACTIVE, ALLOCATED, CACHED, CAP, CPU0_TO_WORDS, FIRST_FRAME, FRAMES, HI, LEN, LIMIT, LIST_BYTES,
    LIST_CAP, LISTS, LO, ORDER_BITS, OTHERS, PAGES, POPS, PREV_BITS, SLOTS, STRAY_BITS, THRESHOLD,
};
use super::{FAST_TO_WORDS, Fast, FastRef, Popped};
use crate::sys::rseq_abi::{FIELD_CPU_ID, FIELD_RSEQ_CS};
use zonal_core::frame::{CPU_SHIFT, PCP_END, PCP_SHIFT, TAG_ALLOCATED, TAG_CACHED, TAG_MASK};
use zonal_core::pcp::state::PCP_BYTES;
use zonal_core::pcp::word::{
    ACTIVE_SHIFT, LEN_MASK, LEN_SHIFT, NO_LIST, POP_DELTA, POPS_PERIOD, POPS_SHIFT, PREV,
    PUSH_DELTA, SLOW,
};

/// From the first page word to where the area's place is kept.
const OFFSET: isize = offset_of!(Fast, rseq_offset) as isize - FAST_TO_WORDS as isize;
/// A CPU's number shifted by as much is the distance of its pcp from CPU 0's.
const STORE_SHIFT: u32 = PCP_BYTES.ilog2();
/// That distance shifted by as much, and a tag, is the word of a page on list 0, or from there
/// (FAST-7).
const WORD_SHIFT: u32 = CPU_SHIFT - STORE_SHIFT;
const _: () = assert!(PCP_BYTES.is_power_of_two() && CPU_SHIFT > STORE_SHIFT);
const _: () = assert!(STRAY_BITS <= i32::MAX as u64, "tests take 32 bits");
const _: () = assert!(PREV <= i32::MAX as u64, "its complement is an immediate");
const _: () = assert!(PUSH_DELTA <= i32::MAX as u64, "an immediate");

/// Arms the sequence and puts the address of the running CPU's pcp into `p`, which holds where the
/// kernel keeps this thread's rseq area, and its distance from CPU 0's into `x`. A pair waits for
/// that address, so the chain of dependent steps to it is as short as possible. With the address
/// in two registers in every access instead, a pair took half as long again, for what is read back
/// soon after it was written.
macro_rules! enter {
    () => {
        concat!(
            // What tells the kernel where the sequence is, and where to go if it was interrupted.
            ".pushsection __rseq_cs, \"aw\"\n",
            ".balign 32\n",
            "2:\n",
            ".long 0, 0\n",
            ".quad 3f, 4f - 3f, 5f\n",
            ".popsection\n",
            "6:\n",
            "lea {x}, [rip + 2b]\n",
            "mov fs:[{p} + {cs}], {x}\n",
            "3:\n",
            "movsxd {x}, dword ptr fs:[{p} + {cpu_id}]\n",
            "shl {x}, {store_shift}\n",
            "lea {p}, [{f} - {pcps}]\n",
            "sub {p}, {x}\n",
        )
    };
}

/// Opens the cold part of a sequence, after its commit, with the abort handler's head (FAST-3).
macro_rules! abort {
    () => {
        concat!(
            "4:\n",
            ".pushsection __rseq_failure, \"ax\"\n",
            ".byte 0x0f, 0xb9, 0x3d\n",
            ".long 0x53053053\n",
            "5:\n",
            "mov {p}, [{f} + {offset}]\n",
        )
    };
}

/// A pop. `$check`: jumps to 7 unless the list is the active one, or makes it so in `w`; `$record`:
/// address of the list; `$word`: the expected page word of the block, into `x`, which has the
/// distance of the CPU's pcp.
macro_rules! pop {
    ($fast:expr, $record:literal, $check:expr, $word:expr, $($operands:tt)*) => {{
        let (frame, cached): (isize, u64);
        asm!(
            enter!(),
            "mov {w}, [{p}]",
            $check,
            "mov {i}, {w}",
            "shr {i}, {len_shift}",
            "and {i:e}, {len_mask}",
            "je 7f",
            concat!("mov {s}, [", $record, " + {slots}]"),
            "mov {i:e}, [{s} + {i} * 4 - 4]",
            "movabs {s}, {delta}",
            "shr {w:x}, 1",
            "add {w}, {s}",
            // The word has no room for another pop.
            "js 7f",
            "mov [{p}], {w}",
            abort!(),
            "jmp 6b",
            "7:",
            "mov {i}, -1",
            // An address: not zero, the word in front of the table.
            "mov {x}, {p}",
            "jmp 8f",
            ".popsection",
            $word,
            "8:",
            f = in(reg) $fast.words(),
            x = out(reg) cached,
            i = out(reg) frame,
            p = inout(reg) $fast.area => _,
            w = out(reg) _,
            s = out(reg) _,
            cs = const FIELD_RSEQ_CS,
            cpu_id = const FIELD_CPU_ID,
            offset = const OFFSET,
            store_shift = const STORE_SHIFT,
            pcps = const CPU0_TO_WORDS,
            len_shift = const LEN_SHIFT,
            len_mask = const LEN_MASK,
            delta = const POP_DELTA as i64,
            slots = const LISTS + SLOTS,
            $($operands)*
            options(nostack),
        );
        Popped { frame, cached }
    }};
}

/// `prev` of a push to the active list. Both it and what `free_count` grows by are decided by
/// jumps, which mostly go the same way: what is computed from the word to its commit is what the
/// next operation waits for.
macro_rules! mark_prev {
    ($record:literal) => {
        concat!(
            concat!("mov {t:e}, [", $record, " + {prev_bits}]\n"),
            "test {t:e}, {w:e}\n",
            "jne 9f\n",
            "xor {t:e}, {w:e}\n",
            "test {t:e}, {prev}\n",
            "je 14f\n",
            "xor {w}, {prev}\n",
            "jmp 14f\n",
            // Two frees of order 1 to 3 in a row may be a stream, which the core judges (LB E.7).
            "9:\n",
            "cmp {w:x}, [{p} + {threshold}]\n",
            "jae {leave}\n",
            "14:\n",
        )
    };
}

/// `free_count` and the length behind a push to the active list.
macro_rules! grow {
    ($record:literal) => {
        concat!(
            concat!("mov {s:e}, [", $record, " + {pages}]\n"),
            // free_count grows by the block while it is below its cap.
            "cmp {w:x}, [{p} + {cap}]\n",
            "jb 15f\n",
            "xor {s:e}, {s:e}\n",
            "15:\n",
            "lea {s}, [{s} + {delta}]\n",
            "add {w}, {s}",
        )
    };
}

/// As [`mark_prev!`], of a push to any list: where orders are mixed a jump would often go the other
/// way.
macro_rules! mark_prev_any {
    ($record:literal) => {
        concat!(
            // Two frees of order 1 to 3 in a row may be a stream, which the core judges (LB E.7).
            concat!("mov {t:e}, [", $record, " + {prev_bits}]\n"),
            "test {t:e}, {w:e}\n",
            "je 9f\n",
            "cmp {w:x}, [{p} + {threshold}]\n",
            "jae {leave}\n",
            "9:\n",
            "and {w}, {not_prev}\n",
            "or {w}, {t}\n",
        )
    };
}

/// As [`grow!`], of a push to any list.
macro_rules! grow_any {
    ($record:literal) => {
        concat!(
            // free_count grows by the block while it is below its cap.
            "xor {s:e}, {s:e}\n",
            "cmp {w:x}, [{p} + {cap}]\n",
            concat!("cmovb {s:e}, [", $record, " + {pages}]\n"),
            "lea {w}, [{w} + {s} + {delta}]",
        )
    };
}

/// Pops from list 0, the order-0 list, of the running CPU's pcp of its preferred zone. The frame
/// is [`NO_FRAME`](super::NO_FRAME) if the core must do it.
///
/// # Safety
/// 1. `fast` is of a live pool whose fast path is on.
/// 2. This thread is registered with the kernel at `fast.area`, as all threads of the
///    process are, or reads a CPU number there that has no pcp.
#[inline(always)]
pub(crate) unsafe fn pop_page(fast: FastRef) -> Popped {
    // SAFETY: (1) the sequence touches the running CPU's pcp only (FAST-5, PCP-1) and its slots,
    // all alive while the pool is; (2) FAST-1 to FAST-4 hold as written; (3) every register it
    // changes is declared, and the stack is not touched.
    unsafe {
        pop!(
            fast,
            "{p}",
            concat!("test {w:e}, {mask}\n", "jne 7f"),
            concat!("shl {x}, {word_shift}\n", "add {x}, {tag}"),
            mask = const STRAY_BITS,
            word_shift = const WORD_SHIFT,
            tag = const TAG_CACHED,
        )
    }
}

/// Pops from any list of the running CPU's pcp of its preferred zone. As [`pop_page`], but the
/// list is a run-time value: `list` is its number of bytes from the first list.
///
/// # Safety
/// 1. and 2. of [`pop_page`]; 3. `list` is a list of the pool.
#[inline(always)]
pub(crate) unsafe fn pop_block(fast: FastRef, list: usize) -> Popped {
    // SAFETY: (1) to (3) as in `pop_page`.
    unsafe {
        pop!(
            fast,
            "{p} + {r}",
            concat!(
                "mov {i:e}, [{p} + {r} + {active}]\n",
                "xor {i:e}, {w:e}\n",
                "test {i:e}, {mask}\n",
                "jne 7f"
            ),
            // A constant of the pcp.
            "mov {x}, [{p} + {r} + {cached}]",
            r = in(reg) list,
            active = const LISTS + ACTIVE,
            cached = const LISTS + CACHED,
            mask = const STRAY_BITS,
        )
    }
}

/// A push. `$check`: jumps to `leave` unless the word is right, and leaves what `free_count` grows
/// by to `$grow`; `$expect`: the word of a block that came from the list into `x`.
macro_rules! push {
    (
        $fast:expr, $frame:expr, $record:literal,
        $check:expr, $expect:expr, $grow:expr, $($operands:tt)*
    ) => {
        asm!(
            enter!(),
            "mov {w}, [{p}]",
            $check,
            "mov {t}, {w}",
            "shr {t}, {len_shift}",
            "and {t:e}, {len_mask}",
            concat!("cmp {t:e}, [", $record, " + {hi}]"),
            "jae {leave}",
            // Dead until the commit, also if there is none: `t` is needed for the block's word.
            concat!("mov {s}, [", $record, " + {slots}]"),
            "mov [{s} + {t} * 4], {n:e}",
            $expect,
            "mov {t}, [{f} + {n} * 8]",
            "cmp {x}, {t}",
            "je 12f",
            // Not from here: of the zone, and by its word from the same list of another CPU?
            "mov {s:e}, {n:e}",
            "sub {s:e}, [{p} + {first}]",
            "cmp {s:e}, [{p} + {frames}]",
            "jae {leave}",
            "mov {s}, {t}",
            "xor {s}, {x}",
            "test {s:e}, {what}",
            "jne {leave}",
            "shr {s}, {end}",
            "jne {leave}",
            "12:",
            $grow,
            // From ALLOCATED to CACHED. Nothing may come between these two and the commit.
            "dec {x}",
            "mov [{f} + {n} * 8], {x}",
            "mov [{p}], {w}",
            abort!(),
            // Marked, if the word is what `x` says and `x` says CACHED: in front of the mark it
            // says ALLOCATED, before that it is an address, or a CPU's number shifted up. Neither
            // has that tag. If it is marked, `t` is what it was.
            "cmp {x}, [{f} + {n} * 8]",
            "jne 6b",
            "and {x:e}, {tag_mask}",
            "cmp {x:e}, {tag_cached}",
            "jne 6b",
            "mov [{f} + {n} * 8], {t}",
            "jmp 6b",
            ".popsection",
            f = in(reg) $fast.words(),
            n = in(reg) $frame,
            x = out(reg) _,
            p = inout(reg) $fast.area => _,
            w = out(reg) _,
            s = out(reg) _,
            t = out(reg) _,
            cs = const FIELD_RSEQ_CS,
            cpu_id = const FIELD_CPU_ID,
            offset = const OFFSET,
            store_shift = const STORE_SHIFT,
            pcps = const CPU0_TO_WORDS,
            len_shift = const LEN_SHIFT,
            len_mask = const LEN_MASK,
            cap = const CAP,
            delta = const PUSH_DELTA,
            hi = const LISTS + HI,
            slots = const LISTS + SLOTS,
            first = const FIRST_FRAME,
            frames = const FRAMES,
            what = const (1 << PCP_SHIFT) - 1,
            end = const PCP_END,
            tag_mask = const TAG_MASK,
            tag_cached = const TAG_CACHED,
            $($operands)*
            leave = label { return false },
            options(nostack),
        )
    };
}

/// Pushes order-0 `frame` onto list 0 of the running CPU's pcp of its preferred zone, if it came
/// from there or from the list 0 of another CPU's pcp of the zone. `false`: nothing was done,
/// go through the core.
///
/// # Safety
/// 1. and 2. of [`pop_page`].
/// 3. The frame is one of the pool's, and the block's owner, if it has one, is the caller.
#[inline(always)]
pub(crate) unsafe fn push_page(fast: FastRef, frame: usize) -> bool {
    // SAFETY: (1) the sequence touches the running CPU's pcp only (FAST-5, PCP-1), the slot at the
    // top, which is below the capacity (PCP-2), and the word of a block that has no other owner;
    // (2) FAST-1 to FAST-4 hold; (3) every register it changes is declared, and the stack is not
    // touched.
    unsafe {
        push!(
            fast, frame, "{p}",
            // A page clears `prev`, and has nothing to decide by it.
            concat!("test {w:e}, {mask}\n", "jne {leave}\n", "and {w}, {not_prev}"),
            concat!("shl {x}, {word_shift}\n", "add {x}, {tag}"),
            // As `grow`.
            concat!(
                "mov {s:e}, {delta} + 1\n",
                "cmp {w:x}, [{p} + {cap}]\n",
                "jb 15f\n",
                "dec {s:e}\n",
                "15:\n",
                "add {w}, {s}",
            ),
            mask = const STRAY_BITS,
            not_prev = const !PREV as i64,
            word_shift = const WORD_SHIFT,
            tag = const TAG_ALLOCATED,
        );
    }
    true
}

/// Pushes `frame` onto any list. As [`push_page`], but the list is a run-time value: `list` is its
/// number of bytes from the first list.
///
/// # Safety
/// 1. to 3. of [`push_page`]; 4. `list` is a list of the pool.
#[inline(always)]
pub(crate) unsafe fn push_block(fast: FastRef, list: usize, frame: usize) -> bool {
    // SAFETY: (1) to (3) as in `push_page`.
    unsafe {
        push!(
            fast, frame, "{p} + {r}",
            concat!(
                "mov {t:e}, [{p} + {r} + {active}]\n",
                "xor {t:e}, {w:e}\n",
                "test {t:e}, {mask}\n",
                "jne {leave}\n",
                mark_prev!("{p} + {r}"),
            ),
            "mov {x}, [{p} + {r} + {allocated}]",
            grow!("{p} + {r}"),
            r = in(reg) list,
            mask = const STRAY_BITS,
            prev = const PREV,
            threshold = const THRESHOLD,
            active = const LISTS + ACTIVE,
            allocated = const LISTS + ALLOCATED,
            prev_bits = const LISTS + PREV_BITS,
            pages = const LISTS + PAGES,
        );
    }
    true
}

/// The record of the list asked for, which lies behind `LISTS`, into `l`. If another list is active
/// it is switched to it: that one's length and pops go to its record, the new list's come from
/// there, its limit is computed (PCP-4), and `w` is what `PcpWord::switched` says. What is written
/// has no meaning before the commit (PCP-6). `x` stays.
macro_rules! activate {
    ($leave:literal) => {
        concat!(
            "test {w:e}, {slow}\n",
            concat!("jne ", $leave, "\n"),
            "mov {y:e}, {w:e}\n",
            "shr {y:e}, {active_shift}\n",
            "and {y:e}, {no_list}\n",
            "cmp {y:e}, {no_list}\n",
            concat!("je ", $leave, "\n"),
            "imul {y:e}, {y:e}, {list_bytes}\n",
            "lea {l}, [{p} + {r}]\n",
            "cmp {y}, {r}\n",
            "je 13f\n",
            "add {y}, {p}\n",
            leave_old!(),
            enter_new!(),
            limit_new!(),
            word_new!(),
            "13:\n",
        )
    };
}

/// The old list's length and pops into its record, whose address is `y`; the pages of all lists
/// into `t`.
macro_rules! leave_old {
    () => {
        concat!(
            "mov {t}, {w}\n",
            "shr {t}, {len_shift}\n",
            "and {t:e}, {len_mask}\n",
            "mov [{y} + {len}], {t:e}\n",
            "imul {t:e}, [{y} + {pages}]\n",
            "add {t:e}, [{y} + {others}]\n",
            "mov {s}, {w}\n",
            "shr {s}, {pops_shift}\n",
            "mov rcx, [{y} + {pops}]\n",
            "and rcx, {pops_high}\n",
            "or rcx, {s}\n",
            "mov [{y} + {pops}], rcx\n",
        )
    };
}

/// The new list's length into `s`, the pages of the others into `t` and its record.
macro_rules! enter_new {
    () => {
        concat!(
            "mov {s:e}, [{l} + {len}]\n",
            "mov ecx, {s:e}\n",
            "imul ecx, [{l} + {pages}]\n",
            "sub {t:e}, ecx\n",
            "mov [{l} + {others}], {t:e}\n",
        )
    };
}

/// `PcpList::limit` into the new list's record.
macro_rules! limit_new {
    () => {
        concat!(
            "xor ecx, ecx\n",
            "mov {y:e}, [{p} + {limit}]\n",
            "sub {y}, {t}\n",
            "dec {y}\n",
            "cmovs {y}, rcx\n",
            "mov ecx, [{l} + {order}]\n",
            "shr {y}, cl\n",
            "mov {t:e}, [{l} + {list_cap}]\n",
            "sub {t:e}, [{l} + {lo}]\n",
            "cmp {y}, {t}\n",
            "cmova {y}, {t}\n",
            "mov [{l} + {hi}], {y:e}\n",
        )
    };
}

/// `PcpWord::switched` into `w`.
macro_rules! word_new {
    () => {
        concat!(
            "and {w:e}, {kept}\n",
            "or {w:e}, [{l} + {active}]\n",
            "shl {s}, {len_shift}\n",
            "or {w}, {s}\n",
            "mov {t}, [{l} + {pops}]\n",
            "shl {t}, {pops_shift} + 1\n",
            "shr {t}, 1\n",
            "or {w}, {t}\n",
        )
    };
}

/// A pop or a push with [`activate!`] as its check: forwards the arguments and the operands of its
/// own, and adds those that the activation names.
macro_rules! activating {
    ($operation:ident!($($arguments:tt)*), $list:expr, $($operands:tt)*) => {
        $operation!(
            $($arguments)*,
            r = in(reg) $list,
            l = out(reg) _,
            out("rcx") _,
            slow = const SLOW,
            active_shift = const ACTIVE_SHIFT,
            no_list = const NO_LIST,
            list_bytes = const LIST_BYTES,
            pops_shift = const POPS_SHIFT,
            pops_high = const -(POPS_PERIOD as i64),
            kept = const PREV | 0xffff,
            limit = const LIMIT,
            len = const LISTS + LEN,
            pages = const LISTS + PAGES,
            others = const LISTS + OTHERS,
            pops = const LISTS + POPS,
            order = const LISTS + ORDER_BITS,
            list_cap = const LISTS + LIST_CAP,
            lo = const LISTS + LO,
            active = const LISTS + ACTIVE,
            $($operands)*
        )
    };
}

/// Pops from any list of the running CPU's pcp of its preferred zone, whichever is active: both
/// are one commit. `list` is its number of bytes from the first list.
///
/// # Safety
/// 1. and 2. of [`pop_page`]; 3. `list` is a list of the pool.
#[inline]
pub(crate) unsafe fn pop_any(fast: FastRef, list: usize) -> Popped {
    // SAFETY: (1) to (3) as in `pop_page`; what `activate` writes is dead until the commit
    // (FAST-1, PCP-6).
    unsafe {
        activating!(
            pop!(fast, "{l}", activate!("7f"), "mov {x}, [{l} + {cached}]"),
            list,
            y = out(reg) _,
            t = out(reg) _,
            hi = const LISTS + HI,
            // A constant of the pcp.
            cached = const LISTS + CACHED,
        )
    }
}

/// Pushes `frame` onto any list, whichever is active: both are one commit. Otherwise as
/// [`push_block`].
///
/// # Safety
/// 1. to 4. of [`push_block`].
#[inline]
pub(crate) unsafe fn push_any(fast: FastRef, list: usize, frame: usize) -> bool {
    // SAFETY: (1) to (3) as in `push_page`; what `activate` writes is dead until the commit
    // (FAST-1, PCP-6), and meanwhile `x`, which the abort handler asks, is what it was before.
    unsafe {
        activating!(
            push!(
                fast,
                frame,
                "{l}",
                concat!(activate!("{leave}"), mark_prev_any!("{l}")),
                "mov {x}, [{l} + {allocated}]",
                grow_any!("{l}")
            ),
            list,
            y = out(reg) _,
            allocated = const LISTS + ALLOCATED,
            not_prev = const !PREV as i64,
            prev_bits = const LISTS + PREV_BITS,
            threshold = const THRESHOLD,
        );
    }
    true
}
