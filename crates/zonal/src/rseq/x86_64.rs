//! The restartable sequences of x86-64. What they may do is FAST-1 to FAST-4 in `rseq.rs`.

use std::mem::offset_of;

use super::{Fast, Popped};
use crate::sys::rseq_abi::{FIELD_CPU_ID, FIELD_RSEQ_CS};
use zonal_core::pcp::store::{Pcp, PcpList};
use zonal_core::pcp::word::{ACTIVE_MASK, GUARD, PREV_BIT};

const LISTS: usize = offset_of!(Pcp, lists);
const WORD: usize = offset_of!(Pcp, word);
const CAP: usize = offset_of!(Pcp, free_count_cap);
const SLOTS: usize = offset_of!(PcpList, slots_addr);
const LO: usize = offset_of!(PcpList, lo);
const HI: usize = offset_of!(PcpList, hi);
const ACTIVE: usize = offset_of!(PcpList, active_bits);
const THRESHOLD: usize = offset_of!(Pcp, free_high_threshold);

/// What tells the kernel where a section starts and ends, and where to go when it was interrupted.
macro_rules! descriptor {
    () => {
        concat!(
            ".pushsection __rseq_cs, \"aw\"\n",
            ".balign 32\n",
            "2:\n",
            ".long 0, 0\n",
            ".quad 3f, 4f - 3f, 5f\n",
            ".popsection"
        )
    };
}

/// Opens the cold part of a section with its abort handler, which arms it again (FAST-3).
macro_rules! abort {
    () => {
        concat!(
            ".pushsection __rseq_failure, \"ax\"\n",
            ".byte 0x0f, 0xb9, 0x3d\n",
            ".long 0x53053053\n",
            "5:\n",
            "jmp 6b"
        )
    };
}

/// Pops from list 0, the order-0 list, of the running CPU's store of its preferred zone. The frame
/// is [`NO_FRAME`] if the long way must be taken.
///
/// # Safety
/// 1. `fast` describes a live pool whose mode is rseq.
/// 2. This thread is registered with the kernel at `fast.rseq_offset`, as all threads of the
///    process are, or reads a CPU number there that has no store.
#[inline(always)]
pub(crate) unsafe fn pop_page(fast: &Fast) -> Popped {
    let frame: isize;
    let pcp: *const Pcp;
    // SAFETY: (1) the section touches the running CPU's store only (the table's entry,
    // PCP-1), its zone's flags and its slots, all alive while the pool is; (2) FAST-1 to FAST-4
    // hold as written; (3) every register it changes is declared, and the stack is not touched.
    unsafe {
        std::arch::asm!(
            descriptor!(),
            "6:",
            "lea {t}, [rip + 2b]",
            "mov fs:[{o} + {cs}], {t}",
            "3:",
            "mov edx, fs:[{o} + {cpu}]",
            "and edx, [{f} + {cpu_mask}]",
            "mov rdx, [{f} + rdx * 8 + {stores}]",
            "mov {w}, [rdx + {word}]",
            "test {w:e}, {mask}",
            "jne 7f",
            "mov {t}, {w}",
            "shr {t}, 32",
            "cmp {t:e}, [rdx + {lo}]",
            "jle 7f",
            "shr {w:x}, 1",
            "add {w}, [{f} + {delta}]",
            "mov {s}, [rdx + {slots}]",
            "mov {t:e}, [{s} + {t} * 4 - 4]",
            "mov [rdx + {word}], {w}",
            "4:",
            "8:",
            abort!(),
            "7:",
            "mov {t}, -1",
            "jmp 8b",
            ".popsection",
            o = in(reg) fast.rseq_offset,
            f = in(reg) fast,
            cpu_mask = const offset_of!(Fast, cpu_mask),
            stores = const offset_of!(Fast, stores),
            delta = const offset_of!(Fast, deltas),
            t = out(reg) frame,
            out("rdx") pcp,
            w = out(reg) _,
            s = out(reg) _,
            cs = const FIELD_RSEQ_CS,
            cpu = const FIELD_CPU_ID,
            word = const WORD,
            mask = const ACTIVE_MASK | GUARD,
            lo = const LISTS + LO,
            slots = const LISTS + SLOTS,
            options(nostack),
        );
    }
    Popped { frame, pcp }
}

/// The running CPU's store of its preferred zone. A hint, as any CPU number outside a section.
#[inline(always)]
pub(crate) fn store(fast: &Fast) -> (u32, *const Pcp) {
    let cpu: u32;
    // SAFETY: (1) reads one field of this thread's rseq area, which is alive as long as the thread.
    unsafe {
        std::arch::asm!(
            "mov {c:e}, fs:[{o} + {cpu}]",
            o = in(reg) fast.rseq_offset,
            c = out(reg) cpu,
            cpu = const FIELD_CPU_ID,
            options(nostack, preserves_flags, readonly),
        );
    }
    let entry = (cpu & fast.cpu_mask) as usize;
    // SAFETY: (1) the mask is below the number of entries.
    let store = unsafe { *fast.stores.get_unchecked(entry) };
    (cpu, store as *const Pcp)
}

/// Pushes order-0 `frame` onto list 0 of `pcp`, the store of `cpu`. `false`: nothing was done, take
/// the long way.
///
/// # Safety
/// 1. and 2. of [`pop_page`].
/// 3. `pcp` is the store of `cpu` for the frame's zone, and the frame's word says it is on list 0
///    of it.
#[inline(always)]
pub(crate) unsafe fn push_page(fast: &Fast, cpu: u32, pcp: *const Pcp, frame: u32) -> bool {
    // SAFETY: (1) the section checks that it runs on `cpu`, so it touches its own CPU's store
    // (PCP-1); the slot at `top` is below `hi <= cap` (PCP-2); (2) FAST-1 to FAST-4 hold; (3) every
    // register it changes is declared, and the stack is not touched.
    unsafe {
        std::arch::asm!(
            descriptor!(),
            "6:",
            "lea {t}, [rip + 2b]",
            "mov fs:[{o} + {cs}], {t}",
            "3:",
            "cmp fs:[{o} + {cpu_id}], {cpu:e}",
            "jne {leave}",
            "mov {w}, [rdx + {word}]",
            "test {w:e}, {mask}",
            "jne {leave}",
            "mov {t}, {w}",
            "shr {t}, 32",
            "cmp {t:e}, [rdx + {hi}]",
            "jae {leave}",
            "mov {s}, [rdx + {slots}]",
            "mov [{s} + {t} * 4], {frame:e}",
            "btr {w}, {prev}",
            // Carry: free_count is below its cap, so it grows by this page.
            "cmp {w:x}, [rdx + {cap}]",
            "adc {w}, [{f} + {delta}]",
            "mov [rdx + {word}], {w}",
            "4:",
            abort!(),
            ".popsection",
            o = in(reg) fast.rseq_offset,
            cpu = in(reg) cpu,
            in("rdx") pcp,
            frame = in(reg) frame,
            f = in(reg) fast,
            delta = const offset_of!(Fast, deltas) + 8,
            t = out(reg) _,
            w = out(reg) _,
            s = out(reg) _,
            cs = const FIELD_RSEQ_CS,
            cpu_id = const FIELD_CPU_ID,
            word = const WORD,
            mask = const ACTIVE_MASK,
            prev = const PREV_BIT,
            cap = const CAP,
            hi = const LISTS + HI,
            slots = const LISTS + SLOTS,
            leave = label { return false },
            options(nostack),
        );
    }
    true
}

/// Pops from any list of the running CPU's store of its preferred zone. As [`pop_page`], but the
/// list is a run-time value: `list` is its number of bytes from the first list.
///
/// # Safety
/// 1. and 2. of [`pop_page`]; 3. `list` is a list of the pool.
#[inline(always)]
pub(crate) unsafe fn pop_block(fast: &Fast, list: usize) -> Popped {
    let frame: isize;
    let pcp: *const Pcp;
    // SAFETY: (1) as in `pop_page`; (2) FAST-1 to FAST-4 hold as written; (3) every register it
    // changes is declared, and the stack is not touched.
    unsafe {
        std::arch::asm!(
            descriptor!(),
            "6:",
            "lea {t}, [rip + 2b]",
            "mov fs:[{o} + {cs}], {t}",
            "3:",
            "mov edx, fs:[{o} + {cpu}]",
            "and edx, [{f} + {cpu_mask}]",
            "mov rdx, [{f} + rdx * 8 + {stores}]",
            "mov {w}, [rdx + {word}]",
            "mov {t:e}, {w:e}",
            "xor {t:e}, [rdx + {r} + {active}]",
            "test {t:e}, {mask}",
            "jne 7f",
            "mov {t}, {w}",
            "shr {t}, 32",
            "cmp {t:e}, [rdx + {r} + {lo}]",
            "jle 7f",
            "shr {w:x}, 1",
            "add {w}, [{f} + {delta}]",
            "mov {s}, [rdx + {r} + {slots}]",
            "mov {t:e}, [{s} + {t} * 4 - 4]",
            "mov [rdx + {word}], {w}",
            "4:",
            "8:",
            abort!(),
            "7:",
            "mov {t}, -1",
            "jmp 8b",
            ".popsection",
            o = in(reg) fast.rseq_offset,
            f = in(reg) fast,
            r = in(reg) list,
            t = out(reg) frame,
            out("rdx") pcp,
            w = out(reg) _,
            s = out(reg) _,
            cs = const FIELD_RSEQ_CS,
            cpu = const FIELD_CPU_ID,
            cpu_mask = const offset_of!(Fast, cpu_mask),
            stores = const offset_of!(Fast, stores),
            delta = const offset_of!(Fast, deltas),
            word = const WORD,
            mask = const ACTIVE_MASK | GUARD,
            active = const LISTS + ACTIVE,
            lo = const LISTS + LO,
            slots = const LISTS + SLOTS,
            options(nostack),
        );
    }
    Popped { frame, pcp }
}

/// Pushes `frame` onto any list of `pcp`, the store of `cpu`. As [`push_page`], but the list is a
/// run-time value: `list` is its number of bytes from the first list.
///
/// # Safety
/// 1. and 2. of [`pop_page`]; 3. of [`push_page`], for this list.
#[inline(always)]
pub(crate) unsafe fn push_block(
    fast: &Fast,
    (cpu, pcp): (u32, *const Pcp),
    list: usize,
    frame: u32,
) -> bool {
    // SAFETY: (1) as in `push_page`; (2) FAST-1 to FAST-4 hold as written; (3) every register it
    // changes is declared, and the stack is not touched.
    unsafe {
        std::arch::asm!(
            descriptor!(),
            "6:",
            "lea {t}, [rip + 2b]",
            "mov fs:[{o} + {cs}], {t}",
            "3:",
            "cmp fs:[{o} + {cpu_id}], {cpu:e}",
            "jne {leave}",
            "mov {w}, [rdx + {word}]",
            "mov {t:e}, [rdx + {r} + {active}]",
            "xor {t:e}, {w:e}",
            "test {t:e}, {mask}",
            "jne {leave}",
            // Two frees of order 1 to 3 in a row may be a stream, which the long way judges (LB
            // E.7).
            "mov {t:e}, [rdx + {r} + {prev_bits}]",
            "test {t:e}, {w:e}; je 9f",
            "cmp {w:x}, [rdx + {threshold}]",
            "jae {leave}",
            "9:",
            "btr {w}, {prev}",
            "or {w}, {t}",
            "mov {t}, {w}",
            "shr {t}, 32",
            "cmp {t:e}, [rdx + {r} + {hi}]",
            "jae {leave}",
            "mov {s}, [rdx + {r} + {slots}]",
            "mov [{s} + {t} * 4], {frame:e}",
            // free_count grows by the block while it is below its cap.
            "xor {s:e}, {s:e}",
            "cmp {w:x}, [rdx + {cap}]",
            "cmovb {s:e}, [rdx + {r} + {pages}]",
            "add {w}, {s}",
            "add {w}, [{f} + {delta}]",
            "mov [rdx + {word}], {w}",
            "4:",
            abort!(),
            ".popsection",
            o = in(reg) fast.rseq_offset,
            f = in(reg) fast,
            r = in(reg) list,
            cpu = in(reg) cpu,
            in("rdx") pcp,
            frame = in(reg) frame,
            t = out(reg) _,
            w = out(reg) _,
            s = out(reg) _,
            cs = const FIELD_RSEQ_CS,
            cpu_id = const FIELD_CPU_ID,
            delta = const offset_of!(Fast, deltas) + 8,
            word = const WORD,
            mask = const ACTIVE_MASK,
            prev = const PREV_BIT,
            cap = const CAP,
            threshold = const THRESHOLD,
            active = const LISTS + ACTIVE,
            prev_bits = const LISTS + offset_of!(PcpList, prev_bits),
            pages = const LISTS + offset_of!(PcpList, block_pages),
            hi = const LISTS + HI,
            slots = const LISTS + SLOTS,
            leave = label { return false },
            options(nostack),
        );
    }
    true
}
