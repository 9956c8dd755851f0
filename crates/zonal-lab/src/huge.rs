//! Large tables in large pages of the host: a machine's start writes into each of its pages, and a
//! run reads them in no order.
#![allow(unsafe_code)]

use bytemuck::Zeroable;

/// A table of zeros, which the system makes when they are first touched: in large pages, where it
/// has them.
pub(crate) fn zeros<T: Zeroable>(len: usize) -> Vec<T> {
    let table = bytemuck::zeroed_vec(len);
    advise(&table);
    table
}

/// Asks for large pages. A system that has none, or does not give them, changes nothing.
#[cfg(target_os = "linux")]
fn advise<T>(table: &[T]) {
    /// Bytes of a large page, where pages have 4 KiB.
    const LARGE: usize = 2 << 20;
    let first = table.as_ptr().cast::<u8>();
    let passed = first.addr().next_multiple_of(LARGE) - first.addr();
    let bytes = size_of_val(table).saturating_sub(passed) / LARGE * LARGE;
    if bytes > 0 {
        let start = first.wrapping_add(passed).cast_mut().cast();
        // SAFETY: (1) whole pages within the table, which is borrowed here; (2) the advice changes
        // nothing of what they hold.
        let _ = unsafe { rustix::mm::madvise(start, bytes, rustix::mm::Advice::LinuxHugepage) };
    }
}

#[cfg(not(target_os = "linux"))]
fn advise<T>(_table: &[T]) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_any_length_is_zero_and_can_be_written() {
        for len in [0, 1, 5000, 1 << 20, (3 << 20) + 1] {
            let mut table: Vec<u64> = zeros(len);
            assert!(table.len() == len && table.iter().all(|value| *value == 0));
            (0..).zip(&mut table).for_each(|(at, value)| *value = at);
            assert!((0..).zip(&table).all(|(at, value)| *value == at));
        }
    }
}
