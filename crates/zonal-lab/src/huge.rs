//! Large tables in large pages of the host: a machine's start writes into each of its pages, and a
//! run reads them in no order.
//!
//! A thread that makes one run after another takes the last one's table again. The system would
//! zero a new one, too, and find room for it, which on a virtual machine takes longer than a short
//! run does.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::sync::atomic::AtomicU64;

thread_local! {
    /// The last run's table; `None` where a thread keeps nothing.
    static KEPT: RefCell<Option<Vec<AtomicU64>>> = const { RefCell::new(None) };
}

/// Does `work`, in which this thread keeps a table for the next run.
pub(crate) fn keeping<T>(work: impl FnOnce() -> T) -> T {
    /// Gives the table back at the end, however that comes.
    struct Keeping;
    impl Drop for Keeping {
        fn drop(&mut self) {
            KEPT.set(None);
        }
    }
    KEPT.set(Some(Vec::new()));
    let _keeping = Keeping;
    work()
}

/// A table of zeros: the kept one, or one that the system makes as it is first touched, in large
/// pages where it has them.
pub(crate) fn zeros(len: usize) -> Vec<AtomicU64> {
    let kept = KEPT.with_borrow_mut(|kept| kept.as_mut().map(std::mem::take));
    match kept.filter(|kept| kept.capacity() >= len) {
        Some(mut table) => {
            table.clear();
            table.resize_with(len, AtomicU64::default);
            table
        }
        None => {
            let table = bytemuck::zeroed_vec(len);
            advise(&table);
            table
        }
    }
}

/// Nobody needs a table any more: this thread keeps it, if it keeps one.
pub(crate) fn give_back(table: Vec<AtomicU64>) {
    // A thread that ends keeps nothing.
    let _ = KEPT.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        if let Some(kept) = kept.as_mut().filter(|kept| kept.capacity() < table.capacity()) {
            *kept = table;
        }
    });
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
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn a_table_of_any_length_is_zero_and_can_be_written() {
        for len in [0, 1, 5000, 1 << 20, (3 << 20) + 1] {
            let mut table = zeros(len);
            assert!(is_zero(&table, len));
            (0..).zip(&mut table).for_each(|(at, value)| *value.get_mut() = at);
            assert!((0..).zip(&table).all(|(at, value)| value.load(Relaxed) == at));
        }
    }

    fn is_zero(table: &[AtomicU64], len: usize) -> bool {
        table.len() == len && table.iter().all(|value| value.load(Relaxed) == 0)
    }

    /// A table that was written to, given back, and where it was.
    fn used(len: usize) -> *const AtomicU64 {
        let table = zeros(len);
        assert!(is_zero(&table, len));
        table.iter().for_each(|value| value.store(7, Relaxed));
        let place = table.as_ptr();
        give_back(table);
        place
    }

    #[test]
    fn a_thread_that_keeps_a_table_takes_it_again_and_finds_it_zero() {
        keeping(|| {
            let first = used(5000);
            assert_eq!(used(5000), first);
            assert_eq!(used(300), first, "also for less");
            assert_eq!(used(5000), first);
            let larger = used(6000);
            assert_eq!(used(5000), larger, "and the largest one");
            // Two at a time are two tables.
            let (one, other) = (zeros(100), zeros(100));
            assert!(one.as_ptr() != other.as_ptr() && is_zero(&other, 100));
            give_back(other);
            give_back(one);
            assert_eq!(used(100), larger);
        });
        used(100);
        assert!(KEPT.with_borrow(Option::is_none), "nothing is kept behind it");
    }

    #[test]
    fn work_that_breaks_off_leaves_nothing_kept() {
        let broken = std::panic::catch_unwind(|| keeping(|| panic!("{:?}", used(100))));
        assert!(broken.is_err() && KEPT.with_borrow(Option::is_none));
    }
}
