//! Rows of eight cells by registers of 32 bytes, where processor and system have them.
//!
//! Programs are built for any x86-64, which has registers of 16: so it is asked once, and each call
//! is one loop in assembly. What is said of cells that are not torn holds here, too.
//!
//! Only in programs of a system that keeps these registers for them. A kernel that is built with
//! registers of 16 bytes saves those of whom it interrupts, and may not save wider ones.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count};
// An answer that never changes, and whoever does not see it asks again: no model needs to know it.
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use super::PageName;
use crate::sync::AtomicU64;

/// Rows from which on setting a loop up is worth it.
pub(super) const WORTH: usize = 4;

/// Whether there are such registers: not asked, no or yes.
static ANSWER: AtomicU8 = AtomicU8::new(NOT_ASKED);
const NOT_ASKED: u8 = 0;
const NO: u8 = 1;
const YES: u8 = 2;

/// Whether this many rows should go through the wide registers. What is unsafe here asks that.
#[inline(always)]
pub(super) fn serve(rows: usize) -> bool {
    cfg!(any(unix, windows))
        && rows >= WORTH
        && match ANSWER.load(Relaxed) {
            NOT_ASKED => ask(),
            answer => answer == YES,
        }
}

/// AVX2, and a system that keeps the registers when it changes threads (Intel SDM 1 14.3 and 14.7).
#[cold]
fn ask() -> bool {
    const OSXSAVE_AND_AVX: u32 = 1 << 27 | 1 << 28;
    const AVX2: u32 = 1 << 5;
    let has_avx = __cpuid(0).eax >= 7 && __cpuid(1).ecx & OSXSAVE_AND_AVX == OSXSAVE_AND_AVX;
    let is_there = has_avx && keeps_registers() && __cpuid_count(7, 0).ebx & AVX2 != 0;
    ANSWER.store(if is_there { YES } else { NO }, Relaxed);
    is_there
}

/// Whether the system keeps registers of 16 and of 32 bytes; asked where `xgetbv` is one that
/// programs may use.
fn keeps_registers() -> bool {
    const BOTH: u32 = 1 << 1 | 1 << 2;
    let kept: u32;
    // SAFETY: (1) works on registers alone.
    unsafe {
        asm!(
            "xgetbv",
            in("ecx") 0,
            out("eax") kept,
            out("edx") _,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    kept & BOTH == BOTH
}

/// A loop over rows, of which there is one at least: what stands before it, for each row, whose
/// place is `{at}`, and behind it. It ends with `vzeroupper`, which makes the upper halves of all
/// registers zero, so none may be in use.
macro_rules! each_row {
    ($rows:expr, [$($before:expr),+], [$($row:expr),+], [$($behind:expr),*], $($operands:tt)*) => {
        asm!(
            $($before,)+
            "2:",
            $($row,)+
            "add {at}, 64",
            "cmp {at}, {end}",
            "jne 2b",
            $($behind,)*
            "vzeroupper",
            at = inout(reg) $rows.start => _,
            end = in(reg) $rows.end,
            $($operands)*
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            options(nostack)
        )
    };
}

/// Whether all cells of all rows have this value.
///
/// # Safety
///
/// [`serve`] said yes to as many rows.
#[inline(always)]
pub(super) unsafe fn all_u64s(rows: &[[AtomicU64; 8]], value: u64) -> bool {
    let equal: u32;
    let cells = rows.as_ptr_range();
    // SAFETY: (1) reads `rows` and no more, of which there is one; no cell is torn (module); the
    // registers are there, by the caller.
    unsafe {
        each_row!(
            cells,
            ["vmovq xmm0, {value}", "vpbroadcastq ymm0, xmm0", "vpcmpeqd ymm1, ymm1, ymm1"],
            [
                "vpcmpeqq ymm2, ymm0, [{at}]",
                "vpcmpeqq ymm3, ymm0, [{at} + 32]",
                "vpand ymm2, ymm2, ymm3",
                "vpand ymm1, ymm1, ymm2"
            ],
            ["vpmovmskb {equal:e}, ymm1"],
            value = in(reg) value,
            equal = lateout(reg) equal,
        );
    }
    equal == u32::MAX
}

/// Writes one value to all cells of all rows.
///
/// # Safety
///
/// [`serve`] said yes to as many rows.
#[inline(always)]
pub(super) unsafe fn fill_u64s(rows: &[[AtomicU64; 8]], value: u64) {
    let cells = rows.as_ptr_range();
    // SAFETY: (1) writes `rows` and no more, of which there is one and which are atomics, so they
    // may be written through a shared reference; no cell is torn (module); the registers are there,
    // by the caller.
    unsafe {
        each_row!(
            cells,
            ["vmovq xmm0, {value}", "vpbroadcastq ymm0, xmm0"],
            ["vmovdqu [{at}], ymm0", "vmovdqu [{at} + 32], ymm0"],
            [],
            value = in(reg) value,
        );
    }
}

/// Loads the numbers of the first row, and what they are less than those of the next.
macro_rules! load_steps {
    () => {
        "vmovdqu ymm0, [{row}]
         vmovdqu ymm1, [{row} + 32]
         vmovq xmm2, {on}
         vpbroadcastq ymm2, xmm2"
    };
}

/// Makes the numbers of the next row of these.
macro_rules! step_on {
    () => {
        "vpaddq ymm0, ymm0, ymm2
         vpaddq ymm1, ymm1, ymm2"
    };
}

/// Whether the numbers of all rows are `first`, `first + step`, `first + 2 * step`, ...
///
/// # Safety
///
/// [`serve`] said yes to as many rows.
#[inline(always)]
pub(super) unsafe fn are_steps<T: PageName>(rows: &[[T; 8]], first: u64, step: u64) -> bool {
    const { assert!(size_of::<T>() == 8) };
    let equal: u32;
    let names = rows.as_ptr_range();
    let row = row(first, step);
    // SAFETY: (1) reads `rows` and `row` and no more, of the first of which there is one; the
    // registers are there, by the caller.
    unsafe {
        each_row!(
            names,
            [load_steps!(), "vpcmpeqd ymm3, ymm3, ymm3"],
            [
                "vpcmpeqq ymm4, ymm0, [{at}]",
                "vpcmpeqq ymm5, ymm1, [{at} + 32]",
                step_on!(),
                "vpand ymm4, ymm4, ymm5",
                "vpand ymm3, ymm3, ymm4"
            ],
            ["vpmovmskb {equal:e}, ymm3"],
            row = in(reg) &raw const row,
            on = in(reg) step.wrapping_mul(8),
            equal = lateout(reg) equal,
        );
    }
    equal == u32::MAX
}

/// Writes `first`, `first + step`, `first + 2 * step`, ... to all rows.
///
/// # Safety
///
/// [`serve`] said yes to as many rows.
#[inline(always)]
pub(super) unsafe fn store_steps<T: PageName>(rows: &mut [[T; 8]], first: u64, step: u64) {
    const { assert!(size_of::<T>() == 8) };
    let names = rows.as_mut_ptr_range();
    let row = row(first, step);
    // SAFETY: (1) reads `row`, writes `rows` and no more, of which there is one, and each eight
    // bytes of which become what `PageName::of_bits` makes of a number; the registers are there, by
    // the caller.
    unsafe {
        each_row!(
            names,
            [load_steps!()],
            ["vmovdqu [{at}], ymm0", "vmovdqu [{at} + 32], ymm1", step_on!()],
            [],
            row = in(reg) &raw const row,
            on = in(reg) step.wrapping_mul(8),
        );
    }
}

/// The numbers of the first row.
#[inline(always)]
fn row(first: u64, step: u64) -> [u64; 8] {
    core::array::from_fn(|i| first.wrapping_add(step.wrapping_mul(i as u64)))
}
