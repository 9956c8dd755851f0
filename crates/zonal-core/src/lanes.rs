//! Eight neighbouring cells at once, as if one after the other with `Relaxed`.
//!
//! The compiler joins no atomic accesses, but the processor does: a vector access of aligned cells
//! tears none of them (Intel SDM 3A 9.1.1, AMD64 APM 2 7.3.2: the aligned quadwords of a wider
//! access are each read or written in one piece). Written as assembly because that is all that is
//! asked for: to the language these are accesses of memory that others may access, like any other
//! instruction in `asm!`. Many rows in a row go through wider registers, where there are any
//! (`wide`). Elsewhere, and in kernels built without vector registers, they are loops.
#![allow(unsafe_code)]

use crate::types::Pfn;
/// Whether eight cells take less than one by one: else who goes through cells need not take them
/// eight at a time.
pub(crate) use cells::WIDE;
pub(crate) use cells::{
    all_u64s, are_row, are_steps, are_u64s, copy_down, copy_u32s, equal_u64s, fill_u64s, store_row,
    store_steps, store_u64s,
};

#[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
mod wide;

/// How the bulk calls name a page: by its number or its address. Both are eight bytes, and none of
/// their values is wrong; it is implemented here alone.
pub trait PageName: Copy {
    /// No two pages have the same. From one page to the next they grow by the same, always.
    fn bits(self) -> u64;

    /// The page with these.
    #[allow(dead_code, reason = "not asked where the lanes are registers")]
    fn of_bits(bits: u64) -> Self;
}

impl PageName for Pfn {
    #[inline(always)]
    fn bits(self) -> u64 {
        self.0
    }

    #[inline(always)]
    fn of_bits(bits: u64) -> Pfn {
        Pfn(bits)
    }
}

impl PageName for *mut u8 {
    #[inline(always)]
    fn bits(self) -> u64 {
        self.addr() as u64
    }

    #[inline(always)]
    fn of_bits(bits: u64) -> *mut u8 {
        core::ptr::with_exposed_provenance_mut(bits as usize)
    }
}

#[cfg(not(all(target_arch = "x86_64", target_feature = "sse2", not(miri))))]
mod cells {
    use super::PageName;
    use crate::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};

    pub(crate) const WIDE: bool = false;

    /// What the values of a row grow by.
    const fn step(up: bool) -> u32 {
        if up { 1 } else { u32::MAX }
    }

    /// Whether cells have the values `first`, `first + 1`, ... or, not `up`, `first`, `first - 1`,
    /// ...
    #[inline]
    pub(crate) fn are_row(cells: &[AtomicU32; 8], first: u32, up: bool) -> bool {
        let mut value = first;
        cells.iter().all(|cell| {
            let is = cell.load(Relaxed) == value;
            value = value.wrapping_add(step(up));
            is
        })
    }

    /// Writes such a row to cells.
    #[inline]
    pub(crate) fn store_row(cells: &[AtomicU32; 8], first: u32, up: bool) {
        let mut value = first;
        for cell in cells {
            cell.store(value, Relaxed);
            value = value.wrapping_add(step(up));
        }
    }

    /// Copies cells to the beginning of others, which may be some of them, if those begin further
    /// down.
    pub(crate) fn copy_down(from: &[AtomicU32], to: &[AtomicU32]) {
        from.iter().zip(to).for_each(|(from, to)| to.store(from.load(Relaxed), Relaxed));
    }

    /// Whether all cells have this value.
    #[inline(always)]
    pub(crate) fn are_u64s(cells: &[AtomicU64; 8], value: u64) -> bool {
        cells.iter().all(|cell| cell.load(Relaxed) == value)
    }

    /// Whether all cells of all rows have this value.
    #[inline(always)]
    pub(crate) fn all_u64s(rows: &[[AtomicU64; 8]], value: u64) -> bool {
        rows.iter().all(|cells| are_u64s(cells, value))
    }

    /// Whether the numbers of all rows are `first`, `first + step`, `first + 2 * step`, ...; of a
    /// row all are looked at, without a way out in between.
    #[inline(always)]
    pub(crate) fn are_steps<T: PageName>(rows: &[[T; 8]], first: u64, step: u64) -> bool {
        let mut expected = first;
        rows.iter().all(|row| {
            let differ = row.iter().fold(0, |differ, number| {
                let own = number.bits() ^ expected;
                expected = expected.wrapping_add(step);
                differ | own
            });
            differ == 0
        })
    }

    /// Writes `first`, `first + step`, `first + 2 * step`, ... to all rows.
    #[inline(always)]
    pub(crate) fn store_steps<T: PageName>(rows: &mut [[T; 8]], first: u64, step: u64) {
        let mut next = first;
        for row in rows {
            for number in row {
                *number = T::of_bits(next);
                next = next.wrapping_add(step);
            }
        }
    }

    /// Whether numbers are equal, without a way out in between: of arrays the compiler makes a call
    /// of `memcmp`.
    #[inline(always)]
    pub(crate) fn equal_u64s(a: [u64; 8], b: [u64; 8]) -> bool {
        a.into_iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    }

    /// Copies cells to others that may be some of them, if those begin further down.
    #[inline(always)]
    pub(crate) fn copy_u32s(from: &[AtomicU32; 8], to: &[AtomicU32; 8]) {
        from.iter().zip(to).for_each(|(from, to)| to.store(from.load(Relaxed), Relaxed));
    }

    /// Writes one value to all cells.
    #[inline(always)]
    pub(crate) fn store_u64s(cells: &[AtomicU64; 8], value: u64) {
        cells.iter().for_each(|cell| cell.store(value, Relaxed));
    }

    /// Writes one value to all cells of all rows.
    #[inline(always)]
    pub(crate) fn fill_u64s(rows: &[[AtomicU64; 8]], value: u64) {
        rows.iter().for_each(|cells| store_u64s(cells, value));
    }
}

#[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
mod cells {
    use core::arch::asm;
    use core::arch::x86_64::__m128i;
    use core::mem::transmute;

    use super::{PageName, wide};
    use crate::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};

    pub(crate) const WIDE: bool = true;

    /// What `pmovmskb` makes of a register with all bits set.
    const ALL: u32 = 0xffff;

    /// What the values of a row differ from the first one by: one that goes down, one that goes up.
    static STEPS: [[u32; 8]; 2] = {
        let mut steps = [[0u32; 8]; 2];
        let mut i = 0;
        while i < 8 {
            steps[0][i] = (i as u32).wrapping_neg();
            steps[1][i] = i as u32;
            i += 1;
        }
        steps
    };

    /// The values `first`, `first + 1`, ... or, not `up`, `first`, `first - 1`, ...
    #[inline(always)]
    fn row(first: u32, up: bool) -> [u32; 8] {
        let steps = &STEPS[usize::from(up)];
        core::array::from_fn(|i| first.wrapping_add(steps[i]))
    }

    /// Whether cells have the values of a row.
    #[inline(always)]
    pub(crate) fn are_row(cells: &[AtomicU32; 8], first: u32, up: bool) -> bool {
        let equal: u32;
        // The row is made here, too: a compiler that knows the table makes it number by number.
        // SAFETY: (1) reads the 32 bytes of `cells` and of a row of the table, and no more; no cell
        // is torn (module).
        unsafe {
            asm!(
                "movd {first}, {number:e}",
                "pshufd {first}, {first}, 0",
                "movdqu {a}, [{steps}]",
                "movdqu {b}, [{steps} + 16]",
                "paddd {a}, {first}",
                "paddd {b}, {first}",
                "movdqu {first}, [{p}]",
                "pcmpeqd {a}, {first}",
                "movdqu {first}, [{p} + 16]",
                "pcmpeqd {b}, {first}",
                "pand {a}, {b}",
                "pmovmskb {equal:e}, {a}",
                p = in(reg) cells,
                steps = in(reg) &STEPS[usize::from(up)],
                number = in(reg) first,
                first = out(xmm_reg) _,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                equal = lateout(reg) equal,
                options(nostack, readonly, preserves_flags)
            );
        }
        equal == ALL
    }

    /// Writes a row to cells.
    #[inline(always)]
    pub(crate) fn store_row(cells: &[AtomicU32; 8], first: u32, up: bool) {
        store_u32s(cells, row(first, up));
    }

    /// Copies cells to the beginning of others, which may be some of them, if those begin further
    /// down.
    pub(crate) fn copy_down(from: &[AtomicU32], to: &[AtomicU32]) {
        let (rows, rest) = from.as_chunks::<8>();
        let (to_rows, _) = to.as_chunks();
        // Eight rows at a time: the loop around one costs as much as the row.
        let (eights, last) = rows.as_chunks::<8>();
        for (from, to) in eights.iter().zip(to_rows.as_chunks::<8>().0) {
            copy_eight(from, to);
        }
        let to_last = to_rows.get(8 * eights.len()..).unwrap_or_default();
        last.iter().zip(to_last).for_each(|(from, to)| copy_u32s(from, to));
        let to_rest = to.get(8 * rows.len()..).unwrap_or_default();
        rest.iter().zip(to_rest).for_each(|(from, to)| to.store(from.load(Relaxed), Relaxed));
    }

    /// Whether all cells have this value.
    #[inline(always)]
    pub(crate) fn are_u64s(cells: &[AtomicU64; 8], value: u64) -> bool {
        // SAFETY: (1) plain bits of the same size.
        let value: __m128i = unsafe { transmute([value; 2]) };
        let equal: u32;
        // SAFETY: (1) reads the 64 bytes of `cells` and no more; no cell is torn (module).
        unsafe {
            asm!(
                "movdqu {a}, [{p}]",
                "movdqu {b}, [{p} + 16]",
                "movdqu {c}, [{p} + 32]",
                "movdqu {d}, [{p} + 48]",
                "pcmpeqd {a}, {value}",
                "pcmpeqd {b}, {value}",
                "pcmpeqd {c}, {value}",
                "pcmpeqd {d}, {value}",
                "pand {a}, {b}",
                "pand {c}, {d}",
                "pand {a}, {c}",
                "pmovmskb {equal:e}, {a}",
                p = in(reg) cells,
                value = in(xmm_reg) value,
                equal = lateout(reg) equal,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack, readonly, preserves_flags)
            );
        }
        equal == ALL
    }

    /// Whether all cells of all rows have this value.
    #[inline(always)]
    pub(crate) fn all_u64s(rows: &[[AtomicU64; 8]], value: u64) -> bool {
        if wide::serve(rows.len()) {
            // SAFETY: (1) it was just asked.
            return unsafe { wide::all_u64s(rows, value) };
        }
        // SAFETY: (1) plain bits of the same size.
        let value: __m128i = unsafe { transmute([value; 2]) };
        // SAFETY: (1) plain bits of the same size.
        let mut equal: __m128i = unsafe { transmute([u64::MAX; 2]) };
        for cells in rows {
            // SAFETY: (1) reads the 64 bytes of `cells` and no more; no cell is torn (module).
            unsafe {
                asm!(
                    "movdqu {a}, [{p}]",
                    "movdqu {b}, [{p} + 16]",
                    "pcmpeqd {a}, {value}",
                    "pcmpeqd {b}, {value}",
                    "pand {equal}, {a}",
                    "movdqu {a}, [{p} + 32]",
                    "pand {equal}, {b}",
                    "movdqu {b}, [{p} + 48]",
                    "pcmpeqd {a}, {value}",
                    "pcmpeqd {b}, {value}",
                    "pand {equal}, {a}",
                    "pand {equal}, {b}",
                    p = in(reg) cells,
                    value = in(xmm_reg) value,
                    equal = inout(xmm_reg) equal,
                    a = out(xmm_reg) _,
                    b = out(xmm_reg) _,
                    options(nostack, readonly, preserves_flags)
                );
            }
        }
        is_all(equal)
    }

    /// Whether the numbers of all rows are `first`, `first + step`, `first + 2 * step`, ...
    #[inline(always)]
    pub(crate) fn are_steps<T: PageName>(rows: &[[T; 8]], first: u64, step: u64) -> bool {
        if wide::serve(rows.len()) {
            // SAFETY: (1) it was just asked.
            return unsafe { wide::are_steps(rows, first, step) };
        }
        let ([mut a, mut b, mut c, mut d], on) = steps(first, step);
        // SAFETY: (1) plain bits of the same size.
        let mut equal: __m128i = unsafe { transmute([u64::MAX; 2]) };
        for row in rows {
            // SAFETY: (1) plain bits of the same size.
            let [e, f, g, h]: [__m128i; 4] = unsafe { transmute(row.map(T::bits)) };
            // SAFETY: (1) works on registers alone.
            unsafe {
                asm!(
                    "pcmpeqd {e}, {a}",
                    "pcmpeqd {f}, {b}",
                    "pcmpeqd {g}, {c}",
                    "pcmpeqd {h}, {d}",
                    "paddq {a}, {on}",
                    "paddq {b}, {on}",
                    "paddq {c}, {on}",
                    "paddq {d}, {on}",
                    "pand {equal}, {e}",
                    "pand {equal}, {f}",
                    "pand {equal}, {g}",
                    "pand {equal}, {h}",
                    a = inout(xmm_reg) a,
                    b = inout(xmm_reg) b,
                    c = inout(xmm_reg) c,
                    d = inout(xmm_reg) d,
                    e = inout(xmm_reg) e => _,
                    f = inout(xmm_reg) f => _,
                    g = inout(xmm_reg) g => _,
                    h = inout(xmm_reg) h => _,
                    on = in(xmm_reg) on,
                    equal = inout(xmm_reg) equal,
                    options(pure, nomem, nostack, preserves_flags)
                );
            }
        }
        is_all(equal)
    }

    /// The numbers `first`, `first + step`, `first + 2 * step`, ... of one row, and what they are
    /// less than those of the next.
    #[inline(always)]
    fn steps(first: u64, step: u64) -> ([__m128i; 4], __m128i) {
        let at = |i| first.wrapping_add(step.wrapping_mul(i as u64));
        let row: [u64; 8] = core::array::from_fn(at);
        // SAFETY: (1) plain bits of the same size.
        let row = unsafe { transmute::<[u64; 8], [__m128i; 4]>(row) };
        // SAFETY: (1) plain bits of the same size.
        let on = unsafe { transmute::<[u64; 2], __m128i>([step.wrapping_mul(8); 2]) };
        (row, on)
    }

    /// Writes `first`, `first + step`, `first + 2 * step`, ... to all rows.
    #[inline(always)]
    pub(crate) fn store_steps<T: PageName>(rows: &mut [[T; 8]], first: u64, step: u64) {
        const { assert!(size_of::<T>() == 8) };
        if wide::serve(rows.len()) {
            // SAFETY: (1) it was just asked.
            return unsafe { wide::store_steps(rows, first, step) };
        }
        let ([mut a, mut b, mut c, mut d], on) = steps(first, step);
        for row in rows {
            // SAFETY: (1) writes the 64 bytes of `row` and no more, each eight of which are what
            // `PageName::of_bits` makes of a number.
            unsafe {
                asm!(
                    "movdqu [{p}], {a}",
                    "movdqu [{p} + 16], {b}",
                    "movdqu [{p} + 32], {c}",
                    "movdqu [{p} + 48], {d}",
                    "paddq {a}, {on}",
                    "paddq {b}, {on}",
                    "paddq {c}, {on}",
                    "paddq {d}, {on}",
                    p = in(reg) row,
                    a = inout(xmm_reg) a,
                    b = inout(xmm_reg) b,
                    c = inout(xmm_reg) c,
                    d = inout(xmm_reg) d,
                    on = in(xmm_reg) on,
                    options(nostack, preserves_flags)
                );
            }
        }
    }

    /// Whether all bits of a register are set.
    #[inline(always)]
    fn is_all(equal: __m128i) -> bool {
        let bytes: u32;
        // SAFETY: (1) works on registers alone.
        unsafe {
            asm!(
                "pmovmskb {bytes:e}, {equal}",
                bytes = lateout(reg) bytes,
                equal = in(xmm_reg) equal,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        bytes == ALL
    }

    /// Whether numbers are equal, without a way out in between.
    #[inline(always)]
    pub(crate) fn equal_u64s(a: [u64; 8], other: [u64; 8]) -> bool {
        // SAFETY: (1) plain bits of the same size.
        let [a, b, c, d]: [__m128i; 4] = unsafe { transmute(a) };
        // SAFETY: (1) plain bits of the same size.
        let [e, f, g, h]: [__m128i; 4] = unsafe { transmute(other) };
        let equal: u32;
        // SAFETY: (1) works on registers alone.
        unsafe {
            asm!(
                "pcmpeqd {a}, {e}",
                "pcmpeqd {b}, {f}",
                "pcmpeqd {c}, {g}",
                "pcmpeqd {d}, {h}",
                "pand {a}, {b}",
                "pand {c}, {d}",
                "pand {a}, {c}",
                "pmovmskb {equal:e}, {a}",
                a = inout(xmm_reg) a => _,
                b = inout(xmm_reg) b => _,
                c = inout(xmm_reg) c => _,
                d = inout(xmm_reg) d => _,
                e = in(xmm_reg) e,
                f = in(xmm_reg) f,
                g = in(xmm_reg) g,
                h = in(xmm_reg) h,
                equal = lateout(reg) equal,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        equal == ALL
    }

    #[inline(always)]
    fn store_u32s(cells: &[AtomicU32; 8], values: [u32; 8]) {
        // SAFETY: (1) plain bits of the same size.
        let [a, b]: [__m128i; 2] = unsafe { transmute(values) };
        // SAFETY: (1) writes the 32 bytes of `cells` and no more, which are atomics, so they may be
        // written through a shared reference; no cell is torn (module).
        unsafe {
            asm!(
                "movdqu [{p}], {a}",
                "movdqu [{p} + 16], {b}",
                p = in(reg) cells,
                a = in(xmm_reg) a,
                b = in(xmm_reg) b,
                options(nostack, preserves_flags)
            );
        }
    }

    /// Copies cells to others that may be some of them, if those begin further down.
    #[inline(always)]
    pub(crate) fn copy_u32s(from: &[AtomicU32; 8], to: &[AtomicU32; 8]) {
        // SAFETY: (1) reads the 32 bytes of `from` before it writes the 32 bytes of `to`, and no
        // more; they are atomics, so they may be written through a shared reference; no cell is
        // torn (module).
        unsafe {
            asm!(
                "movdqu {a}, [{from}]",
                "movdqu {b}, [{from} + 16]",
                "movdqu [{to}], {a}",
                "movdqu [{to} + 16], {b}",
                from = in(reg) from,
                to = in(reg) to,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                options(nostack, preserves_flags)
            );
        }
    }

    /// Copies eight rows one after the other, as [`copy_u32s`] copies one.
    #[inline(always)]
    fn copy_eight(from: &[[AtomicU32; 8]; 8], to: &[[AtomicU32; 8]; 8]) {
        macro_rules! copy {
            ($($at:literal)*) => {
                asm!(
                    $(
                        concat!("movdqu {a}, [{from} + ", $at, "]"),
                        concat!("movdqu {b}, [{from} + ", $at, " + 16]"),
                        concat!("movdqu [{to} + ", $at, "], {a}"),
                        concat!("movdqu [{to} + ", $at, " + 16], {b}"),
                    )*
                    from = in(reg) from,
                    to = in(reg) to,
                    a = out(xmm_reg) _,
                    b = out(xmm_reg) _,
                    options(nostack, preserves_flags)
                )
            };
        }
        // SAFETY: (1) reads each 32 of the 256 bytes of `from` before it writes those of `to`, and
        // no more; they are atomics, so they may be written through a shared reference; no cell is
        // torn (module).
        unsafe { copy!(0 32 64 96 128 160 192 224) };
    }

    /// Writes one value to all cells.
    #[inline(always)]
    pub(crate) fn store_u64s(cells: &[AtomicU64; 8], value: u64) {
        // SAFETY: (1) plain bits of the same size.
        let value: __m128i = unsafe { transmute([value; 2]) };
        // SAFETY: (1) writes the 64 bytes of `cells` and no more, which are atomics, so they may be
        // written through a shared reference; no cell is torn (module).
        unsafe {
            asm!(
                "movdqu [{p}], {value}",
                "movdqu [{p} + 16], {value}",
                "movdqu [{p} + 32], {value}",
                "movdqu [{p} + 48], {value}",
                p = in(reg) cells,
                value = in(xmm_reg) value,
                options(nostack, preserves_flags)
            );
        }
    }

    /// Writes one value to all cells of all rows.
    #[inline(always)]
    pub(crate) fn fill_u64s(rows: &[[AtomicU64; 8]], value: u64) {
        if wide::serve(rows.len()) {
            // SAFETY: (1) it was just asked.
            return unsafe { wide::fill_u64s(rows, value) };
        }
        rows.iter().for_each(|cells| store_u64s(cells, value));
    }
}

#[cfg(test)]
mod tests;
