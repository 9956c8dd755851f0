//! The restartable sequences of aarch64. What they may do is FAST-1 to FAST-7 in `rseq.rs`; each
//! does, step for step, what its namesake for x86-64 does.
//!
//! # Order of memory
//! This processor may do loads and stores to different places in any order that the code does not
//! forbid. Whom could that show a sequence half done?
//!
//! - **A thread on the same CPU**, this one or another: none. A processor sees its own accesses in
//!   the order of the program, and between two threads there is the kernel's switch. So the commit
//!   needs no Release: the next section on this CPU finds the slots and the page words that the
//!   commit speaks of, and so does a closer that found itself here and did not fence.
//! - **Who closes the pcp from another CPU** looks at nothing but the word, to set `slow` in it,
//!   until its fence has returned (`Pcp::try_close`). The fence makes this CPU pass a full barrier
//!   wherever it was, or finds that it passed one since our section ran, when it switched to
//!   another thread. Behind that the closer sees all that sequences did before, committed or not,
//!   and what it writes itself, such as the slots of a refill, comes after it. The next section
//!   here begins behind the barrier, so it sees `slow`.
//! - **Sequences that find the pcp reopened** read limits, slots and records that the closer wrote
//!   from another CPU, with no fence between. It stores the word last, with Release
//!   (`Closed::drop`). So the sequence loads the word with Acquire (`ldar`): it is ordered before
//!   all later loads, and a thread that sees the reopened word sees what was written before it. A
//!   word that another sequence on this CPU has committed meanwhile is as good: that sequence had
//!   seen the reopened word, and later loads of one CPU never see less than earlier ones.
//! - **Limits newer than the word** cannot be committed with: a closer writes them after its fence,
//!   which has aborted us.
//!
//! The contents of pages follow: they change CPUs behind a fence, a gate or a lock, or the program
//! hands them over itself.
//!
//! # Reach
//! A conditional branch reaches 1 MiB, a test of one bit 32 KiB, and no linker mends one that does
//! not reach. So nothing but `b` leads from the cold part, which is in a sequence of its own, into
//! the function, and nothing leads there: a sequence that leaves does so within its function.

use std::arch::asm;

use super::layout::{
    ACTIVE, ALLOCATED, CACHED, CAP, CPU0_TO_WORDS, FIRST_FRAME, FRAMES, HI, LEN, LIMIT, LIST_BYTES,
    LIST_CAP, LISTS, LO, ORDER_BITS, OTHERS, PAGES, POPS, PREV_BITS, SLOTS, STRAY_BITS, THRESHOLD,
};
use super::{FastRef, NO_FRAME, Popped};
use crate::sys::rseq_abi::{FIELD_CPU_ID, FIELD_RSEQ_CS, RSEQ_SIGNATURE};
use zonal_core::frame::{CPU_SHIFT, PCP_END, PCP_SHIFT, TAG_ALLOCATED, TAG_CACHED, TAG_MASK};
use zonal_core::pcp::state::PCP_BYTES;
use zonal_core::pcp::word::{
    ACTIVE_MASK, ACTIVE_SHIFT, LEN_MASK, LEN_SHIFT, NO_LIST, NR_LISTS, POP_DELTA, POPS_PERIOD,
    POPS_SHIFT, PREV, PUSH_DELTA, SLOW,
};

/// From a CPU's store to that of the next one.
const CPU_STEP: i32 = -(PCP_BYTES as i32);
const LEN_BITS: u32 = LEN_MASK.count_ones();
const POPS_BITS: u32 = POPS_PERIOD.trailing_zeros();
const ACTIVE_BITS: u32 = ACTIVE_MASK.count_ones();
const _: () = assert!(LEN_MASK as u64 == (1 << LEN_BITS) - 1, "one field");
const _: () = assert!(PUSH_DELTA >> 12 << 12 == PUSH_DELTA && PUSH_DELTA < 1 << 24, "immediate");
const _: () = assert!(PCP_BYTES <= 1 << 14, "every offset in a pcp is an immediate");
const _: () = assert!(NO_LIST >= NR_LISTS);

/// Arms the sequence, and puts the address of the running CPU's pcp into `p`, the CPU's number
/// into `c` and the hot word into `w`.
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
            "mrs {a}, tpidr_el0\n",
            "add {a}, {a}, {o}\n",
            "6:\n",
            "adrp {x}, 2b\n",
            "add {x}, {x}, :lo12:2b\n",
            "str {x}, [{a}, #{cs}]\n",
            "3:\n",
            "ldr {c:w}, [{a}, #{cpu_id}]\n",
            "smaddl {p}, {c:w}, {step:w}, {cpu0}\n",
            // Acquire: pairs with the Release in `Closed::drop`.
            "ldar {w}, [{p}]\n",
        )
    };
}

/// Opens the cold part of a sequence, after its commit, with the abort handler's head (FAST-3).
macro_rules! abort {
    () => {
        concat!(
            "4:\n",
            ".pushsection __rseq_failure, \"ax\"\n",
            ".balign 4\n",
            ".inst {signature}\n",
            "5:\n",
        )
    };
}

/// A sequence with what all of them take.
macro_rules! sequence {
    ($fast:expr, [$($line:expr),* $(,)?], $($operands:tt)*) => {
        asm!(
            enter!(),
            $($line,)*
            o = in(reg) $fast.area,
            cpu0 = in(reg) $fast.words().wrapping_byte_sub(CPU0_TO_WORDS),
            step = in(reg) CPU_STEP,
            a = out(reg) _,
            p = out(reg) _,
            w = out(reg) _,
            s = out(reg) _,
            t = out(reg) _,
            cs = const FIELD_RSEQ_CS,
            cpu_id = const FIELD_CPU_ID,
            signature = const RSEQ_SIGNATURE,
            len_shift = const LEN_SHIFT,
            len_bits = const LEN_BITS,
            $($operands)*
            options(nostack),
        )
    };
}

/// A pop. `$check`: sets the zero flag if the word is right; `$record`: address of the list;
/// `$word`: may look there for the block's page word. Evaluates to the frame.
macro_rules! pop {
    ($fast:expr, $record:literal, $check:expr, $word:expr, $($operands:tt)*) => {{
        let frame: isize;
        sequence!(
            $fast,
            [
                $check,
                // Result of a sequence that leaves.
                "mov {x}, #-1",
                "b.ne 8f",
                "ubfx {t}, {w}, #{len_shift}, #{len_bits}",
                "cbz {t}, 8f",
                // Half of free_count.
                "ubfx {s}, {w}, #1, #15",
                "bfi {w}, {s}, #0, #16",
                "add {w}, {w}, {delta}",
                // The word has no room for another pop.
                "tbnz {w}, #63, 8f",
                concat!("ldr {s}, [", $record, ", #{slots}]"),
                "add {s}, {s}, {t}, lsl #2",
                "ldur {x:w}, [{s}, #-4]",
                $word,
                "str {w}, [{p}]",
                abort!(),
                "b 6b",
                ".popsection",
                "8:",
            ],
            x = out(reg) frame,
            delta = in(reg) POP_DELTA,
            mask = in(reg) STRAY_BITS,
            slots = const LISTS + SLOTS,
            $($operands)*
        );
        frame
    }};
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
    let cpu: u64;
    // SAFETY: (1) the sequence touches the running CPU's pcp only (FAST-5, PCP-1) and its slots,
    // all alive while the pool is; (2) FAST-1 to FAST-4 hold as written; (3) every register it
    // changes is declared, and the stack is not touched.
    let frame = unsafe { pop!(fast, "{p}", "tst {w:w}, {mask:w}", "", c = out(reg) cpu,) };
    Popped { frame, cached: (cpu << CPU_SHIFT) + TAG_CACHED }
}

/// Pops from any list of the running CPU's pcp of its preferred zone. As [`pop_page`], but the
/// list is a run-time value: `list` is its number of bytes from the first list.
///
/// # Safety
/// 1. and 2. of [`pop_page`]; 3. `list` is a list of the pool.
#[inline(always)]
pub(crate) unsafe fn pop_block(fast: FastRef, list: usize) -> Popped {
    let cached: u64;
    // SAFETY: (1) to (3) as in `pop_page`.
    let frame = unsafe {
        pop!(
            fast,
            "{l}",
            concat!(
                "add {l}, {p}, {r}\n",
                "ldr {t:w}, [{l}, #{active}]\n",
                "eor {t:w}, {t:w}, {w:w}\n",
                "tst {t:w}, {mask:w}"
            ),
            // A constant of the pcp, and if the sequence leaves an address: never zero.
            "ldr {l}, [{l}, #{cached}]",
            r = in(reg) list,
            l = out(reg) cached,
            c = out(reg) _,
            active = const LISTS + ACTIVE,
            cached = const LISTS + CACHED,
        )
    };
    Popped { frame, cached }
}

/// A push. `$check`: jumps to `leave` unless the word is right; `$expect`: the word of a block that
/// came from the list into `x`; `$grow`: adds what `free_count` grows by.
macro_rules! push {
    (
        $fast:expr, $frame:expr, $record:literal,
        $check:expr, $expect:literal, $grow:expr, $($operands:tt)*
    ) => {
        sequence!(
            $fast,
            [
                $check,
                "ubfx {t}, {w}, #{len_shift}, #{len_bits}",
                concat!("ldr {s:w}, [", $record, ", #{hi}]"),
                "cmp {t:w}, {s:w}",
                "b.hs {leave}",
                $expect,
                "ldr {y}, [{q}]",
                "cmp {x}, {y}",
                "b.eq 12f",
                // Not from here: of the zone, and by its word from the same list of another CPU?
                "ldr {s:w}, [{p}, #{first}]",
                "ldr {z:w}, [{p}, #{frames}]",
                "sub {s:w}, {n:w}, {s:w}",
                "cmp {s:w}, {z:w}",
                "b.hs {leave}",
                "eor {s}, {y}, {x}",
                "tst {s}, #{what}",
                "b.ne {leave}",
                "lsr {s}, {s}, #{end}",
                "cbnz {s}, {leave}",
                "12:",
                concat!("ldr {s}, [", $record, ", #{slots}]"),
                "str {n:w}, [{s}, {t}, lsl #2]",
                // free_count grows while it is below its cap.
                "ldr {s:w}, [{p}, #{cap}]",
                "cmp {s:w}, {w:w}, uxth",
                $grow,
                "add {w}, {w}, #{delta}",
                // From ALLOCATED to CACHED. Nothing may come between these two and the commit.
                "sub {x}, {x}, #1",
                "str {x}, [{q}]",
                "str {w}, [{p}]",
                abort!(),
                // Marked, if the word is what `x` says and `x` says CACHED: in front of the mark it
                // says ALLOCATED, before that it is the descriptor's address. Neither has that tag.
                "ldr {s}, [{q}]",
                "cmp {x}, {s}",
                "b.ne 7f",
                "and {s}, {x}, #{tag_mask}",
                "cmp {s}, #{tag_cached}",
                "b.ne 7f",
                "str {y}, [{q}]",
                "7:",
                "b 6b",
                ".popsection",
            ],
            q = in(reg) $fast.word($frame as isize),
            n = in(reg) $frame,
            x = out(reg) _,
            y = out(reg) _,
            z = out(reg) _,
            c = out(reg) _,
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
            // A page clears `prev`, and has nothing to decide by it. With it the mask is an
            // immediate.
            concat!("and {w}, {w}, #{not_prev}\n", "tst {w:w}, #{mask}\n", "b.ne {leave}"),
            "add {x}, {tag}, {c}, lsl #{cpu_shift}",
            "cinc {w}, {w}, hi",
            mask = const STRAY_BITS | PREV,
            not_prev = const !PREV as i64,
            tag = in(reg) TAG_ALLOCATED,
            cpu_shift = const CPU_SHIFT,
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
            fast, frame, "{l}",
            concat!(
                "add {l}, {p}, {r}\n",
                "ldr {t:w}, [{l}, #{active}]\n",
                "eor {t:w}, {t:w}, {w:w}\n",
                "tst {t:w}, {mask:w}\n",
                "b.ne {leave}\n",
                // Two frees of order 1 to 3 in a row may be a stream, which the core judges (LB
                // E.7).
                "ldr {t:w}, [{l}, #{prev_bits}]\n",
                "tst {t:w}, {w:w}\n",
                "b.eq 9f\n",
                "ldr {s:w}, [{p}, #{threshold}]\n",
                "cmp {s:w}, {w:w}, uxth\n",
                "b.ls {leave}\n",
                "9:\n",
                "and {w}, {w}, #{not_prev}\n",
                "orr {w}, {w}, {t}",
            ),
            "ldr {x}, [{l}, #{allocated}]",
            concat!(
                "ldr {t:w}, [{l}, #{pages}]\n",
                "csel {t}, {t}, xzr, hi\n",
                "add {w}, {w}, {t}",
            ),
            r = in(reg) list,
            l = out(reg) _,
            mask = in(reg) STRAY_BITS,
            not_prev = const !PREV as i64,
            threshold = const THRESHOLD,
            active = const LISTS + ACTIVE,
            prev_bits = const LISTS + PREV_BITS,
            pages = const LISTS + PAGES,
            allocated = const LISTS + ALLOCATED,
        );
    }
    true
}

/// The active list's record into `x`, the next active one into `n`.
macro_rules! find_lists {
    () => {
        concat!(
            "tst {w:w}, #{slow}\n",
            "b.ne {leave}\n",
            "ubfx {t}, {w}, #{active_shift}, #{active_bits}\n",
            "cmp {t}, #{no_list}\n",
            "b.eq {leave}\n",
            "mul {t}, {t}, {list_bytes}\n",
            "cmp {t}, {r}\n",
            "b.eq {leave}\n",
            "add {x}, {p}, {t}\n",
            "add {n}, {p}, {r}\n",
        )
    };
}

/// The old list's length and pops into its record; the pages of all lists into `t`.
macro_rules! leave_old {
    () => {
        concat!(
            "ubfx {t}, {w}, #{len_shift}, #{len_bits}\n",
            "str {t:w}, [{x}, #{len}]\n",
            "ldr {s:w}, [{x}, #{pages}]\n",
            "ldr {y:w}, [{x}, #{others}]\n",
            "madd {t:w}, {t:w}, {s:w}, {y:w}\n",
            "lsr {s}, {w}, #{pops_shift}\n",
            "ldr {y}, [{x}, #{pops}]\n",
            "bfi {y}, {s}, #0, #{pops_bits}\n",
            "str {y}, [{x}, #{pops}]\n",
        )
    };
}

/// The new list's length into `s`, the pages of the others into `t` and its record.
macro_rules! enter_new {
    () => {
        concat!(
            "ldr {s:w}, [{n}, #{len}]\n",
            "ldr {y:w}, [{n}, #{pages}]\n",
            "msub {t:w}, {s:w}, {y:w}, {t:w}\n",
            "str {t:w}, [{n}, #{others}]\n",
        )
    };
}

/// `PcpList::limit` into the new list's record.
macro_rules! limit_new {
    () => {
        concat!(
            "ldr {x:w}, [{p}, #{limit}]\n",
            "sub {x}, {x}, {t}\n",
            "subs {x}, {x}, #1\n",
            "csel {x}, {x}, xzr, pl\n",
            "ldr {y:w}, [{n}, #{order}]\n",
            "lsr {x}, {x}, {y}\n",
            "ldr {t:w}, [{n}, #{cap}]\n",
            "ldr {y:w}, [{n}, #{lo}]\n",
            "sub {t:w}, {t:w}, {y:w}\n",
            "cmp {x}, {t}\n",
            "csel {x}, {x}, {t}, lo\n",
            "str {x:w}, [{n}, #{hi}]\n",
        )
    };
}

/// `PcpWord::switched` into `w`.
macro_rules! word_new {
    () => {
        concat!(
            "and {w}, {w}, {kept}\n",
            "ldr {t:w}, [{n}, #{active}]\n",
            "orr {w}, {w}, {t}\n",
            "bfi {w}, {s}, #{len_shift}, #{len_bits}\n",
            "ldr {t}, [{n}, #{pops}]\n",
            "bfi {w}, {t}, #{pops_shift}, #{pops_bits}\n",
        )
    };
}

/// Makes a list of the running CPU's pcp of its preferred zone the active one: the old list's
/// length and pops go from the word to its record, the new one's come from there, and its limit is
/// computed (PCP-4). `list` is its number of bytes from the first list. `false`: nothing was done.
/// It is active already, or no list ever was, or the word is slow.
///
/// Writes before the commit have no meaning until then (PCP-6).
///
/// # Safety
/// 1. and 2. of [`pop_page`]; 3. `list` is a list of the pool.
#[inline(always)]
unsafe fn switch(fast: FastRef, list: usize) -> bool {
    // SAFETY: (1) to (3) as in `pop_page`.
    unsafe {
        sequence!(
            fast,
            [
                find_lists!(),
                leave_old!(),
                enter_new!(),
                limit_new!(),
                word_new!(),
                "str {w}, [{p}]",
                abort!(),
                "b 6b",
                ".popsection",
            ],
            r = in(reg) list,
            list_bytes = in(reg) LIST_BYTES,
            kept = in(reg) PREV | 0xffff,
            x = out(reg) _,
            y = out(reg) _,
            n = out(reg) _,
            c = out(reg) _,
            slow = const SLOW,
            active_shift = const ACTIVE_SHIFT,
            active_bits = const ACTIVE_BITS,
            no_list = const NO_LIST,
            pops_shift = const POPS_SHIFT,
            pops_bits = const POPS_BITS,
            limit = const LIMIT,
            len = const LISTS + LEN,
            pages = const LISTS + PAGES,
            others = const LISTS + OTHERS,
            pops = const LISTS + POPS,
            order = const LISTS + ORDER_BITS,
            cap = const LISTS + LIST_CAP,
            lo = const LISTS + LO,
            hi = const LISTS + HI,
            active = const LISTS + ACTIVE,
            leave = label { return false },
        );
    }
    true
}

/// Pops from any list of the running CPU's pcp of its preferred zone, whichever is active, by as
/// many sequences as that takes. `list` is its number of bytes from the first list.
///
/// # Safety
/// 1. and 2. of [`pop_page`]; 3. `list` is a list of the pool.
pub(crate) unsafe fn pop_any(fast: FastRef, list: usize) -> Popped {
    loop {
        // SAFETY: (1) to (3) as for this call.
        let switched = unsafe { switch(fast, list) };
        // SAFETY: (1) to (3) as for this call.
        let popped = unsafe { pop_block(fast, list) };
        if popped.frame != NO_FRAME || !switched {
            return popped;
        }
    }
}

/// Pushes `frame` onto any list, whichever is active, by as many sequences as that takes. Otherwise
/// as [`push_block`].
///
/// # Safety
/// 1. to 4. of [`push_block`].
pub(crate) unsafe fn push_any(fast: FastRef, list: usize, frame: usize) -> bool {
    loop {
        // SAFETY: (1) and (2) as for this call; (3) is (4).
        let switched = unsafe { switch(fast, list) };
        // SAFETY: (1) to (4) as for this call.
        if unsafe { push_block(fast, list, frame) } {
            return true;
        }
        if !switched {
            return false;
        }
    }
}
