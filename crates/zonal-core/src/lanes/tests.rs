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

/// Few rows, which go through registers of 16 bytes, and more, which go through wider ones where
/// there are any; with a row behind them, so that a byte too many shows.
const COUNTS: [usize; 5] = [1, 3, 4, 5, 9];

#[test]
fn rows_of_cells_are_told_from_any_with_one_that_differs() {
    let value = 0x8000_0000_0000_0001;
    for count in COUNTS {
        let all: [[AtomicU64; 8]; 10] = Default::default();
        let rows = &all[..count];
        fill_u64s(rows, value);
        assert!(all[count].iter().all(|cell| cell.load(Relaxed) == 0), "{count} rows");
        assert!(all_u64s(rows, value) && all_u64s(&[], value));
        let bits = |cell| [(cell, 0), (cell, 31), (cell, 32), (cell, 63)];
        for (cell, bit) in rows.as_flattened().iter().flat_map(bits) {
            assert_eq!(cell.load(Relaxed), value);
            cell.fetch_xor(1 << bit, Relaxed);
            assert!(!all_u64s(rows, value));
            cell.fetch_xor(1 << bit, Relaxed);
        }
    }
}

#[test]
fn rows_that_grow_by_steps_are_told_from_any_with_one_that_differs() {
    let from = [(5, 1), (7, 0), (u64::MAX - 9, 1), (23, 1u64.wrapping_neg()), (1 << 40, 4096)];
    for (count, (first, step)) in COUNTS.into_iter().flat_map(|count| from.map(|it| (count, it))) {
        let mut all = [[Pfn(3); 8]; 10];
        store_steps(&mut all[..count], first, step);
        assert_eq!(all[count], [Pfn(3); 8], "{count} rows");
        let rows = &mut all[..count];
        for (i, number) in rows.as_flattened().iter().enumerate() {
            assert_eq!(number.0, first.wrapping_add(step.wrapping_mul(i as u64)), "{i}");
        }
        assert!(are_steps(rows, first, step));
        assert!(!are_steps(rows, first, step ^ 2) && !are_steps(rows, first ^ 1, step));
        for (odd, bit) in (0..8 * count).flat_map(|i| [(i, 0), (i, 31), (i, 63)]) {
            rows.as_flattened_mut()[odd].0 ^= 1 << bit;
            assert!(!are_steps(rows, first, step), "bit {bit} of number {odd}");
            rows.as_flattened_mut()[odd].0 ^= 1 << bit;
        }
    }
}

#[test]
fn addresses_are_written_and_compared_as_page_numbers_are() {
    let mut pages = [core::ptr::null_mut::<u8>(); 20];
    let (rows, rest) = pages.as_chunks_mut::<8>();
    store_steps(rows, 0x7000, 4096);
    assert!(are_steps(rows, 0x7000, 4096) && !are_steps(rows, 0x7000, 8192));
    assert!(rest.iter().all(|page| page.is_null()));
    let addresses = rows.as_flattened().iter().map(|page| page.addr());
    assert!(addresses.eq((0..16).map(|i| 0x7000 + i * 4096)));
}
