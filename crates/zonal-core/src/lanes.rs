//! Eight neighbouring cells at once, as if one after the other with `Relaxed`.
//!
//! The compiler joins no atomic accesses, but the processor does: a vector access of aligned cells
//! tears none of them (Intel SDM 3A 9.1.1, AMD64 APM 2 7.3.2: the aligned quadwords of a wider
//! access are each read or written in one piece). Written as assembly because that is all that is
//! asked for: to the language these are accesses of memory that others may access, like any other
//! instruction in `asm!`. Elsewhere, and in kernels built without vector registers, they are loops.
#![allow(unsafe_code)]

/// Whether eight cells take less than one by one: else who goes through cells need not take them
/// eight at a time.
pub(crate) use cells::WIDE;
pub(crate) use cells::{
    are_row, are_u64s, copy_down, copy_u32s, equal_u64s, store_row, store_u64s,
};

#[cfg(not(all(target_arch = "x86_64", target_feature = "sse2", not(miri))))]
mod cells {
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
}

#[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
mod cells {
    use core::arch::asm;
    use core::arch::x86_64::__m128i;
    use core::mem::transmute;

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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};

    /// Eight cells in the middle of more, so that a byte too many shows.
    const ROOM: usize = 12;

    fn middle<T>(cells: &[T; ROOM], from: usize) -> &[T; 8] {
        cells[from..].first_chunk().unwrap()
    }

    #[test]
    fn a_row_is_told_from_anything_that_differs_in_one_cell() {
        for (first, up) in [(0, true), (7, false), (3, false), (u32::MAX - 2, true)] {
            for from in 0..=ROOM - 8 {
                let cells = [9; ROOM].map(AtomicU32::new);
                store_row(middle(&cells, from), first, up);
                let step = if up { 1 } else { u32::MAX };
                for (i, cell) in cells.iter().enumerate() {
                    let place = i.wrapping_sub(from);
                    let expected = match place {
                        0..8 => first.wrapping_add(step.wrapping_mul(place as u32)),
                        _ => 9,
                    };
                    assert_eq!(cell.load(Relaxed), expected, "cell {i}, row from {from}");
                }
                assert!(are_row(middle(&cells, from), first, up));
                assert!(!are_row(middle(&cells, from), first, !up));
                for odd in from..from + 8 {
                    cells[odd].fetch_xor(1 << 31, Relaxed);
                    assert!(!are_row(middle(&cells, from), first, up), "cell {odd} differs");
                    cells[odd].fetch_xor(1 << 31, Relaxed);
                }
            }
        }
    }

    #[test]
    fn cells_are_copied_down_also_to_some_of_themselves() {
        for (from, to, count) in
            [(4, 0, 30), (4, 3, 8), (1, 0, 39), (20, 2, 19), (2, 2, 7), (9, 4, 151), (70, 0, 130)]
        {
            let cells: [_; 200] = core::array::from_fn(|i| AtomicU32::new(1 << 31 | i as u32));
            copy_down(&cells[from..from + count], &cells[to..]);
            for (i, cell) in cells.iter().enumerate() {
                let was = if (to..to + count).contains(&i) { i + from - to } else { i };
                assert_eq!(cell.load(Relaxed), 1 << 31 | was as u32, "cell {i}, {from} to {to}");
            }
        }
    }

    #[test]
    fn equal_cells_are_told_from_anything_that_differs_in_one_bit() {
        let value = 0x8000_0000_0000_0001;
        for from in 0..=ROOM - 8 {
            let cells = [5; ROOM].map(AtomicU64::new);
            store_u64s(middle(&cells, from), value);
            let written = |i: usize| (from..from + 8).contains(&i);
            for (i, cell) in cells.iter().enumerate() {
                assert_eq!(cell.load(Relaxed), if written(i) { value } else { 5 }, "cell {i}");
            }
            assert!(are_u64s(middle(&cells, from), value));
            for (odd, bit) in (from..from + 8).flat_map(|i| [(i, 0), (i, 31), (i, 63)]) {
                cells[odd].fetch_xor(1 << bit, Relaxed);
                assert!(!are_u64s(middle(&cells, from), value), "bit {bit} of cell {odd}");
                cells[odd].fetch_xor(1 << bit, Relaxed);
            }
        }
    }
}
