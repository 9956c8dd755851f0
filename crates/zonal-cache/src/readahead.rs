//! Reading ahead of a program that reads a file in order.
//!
//! ```text
//!   window 1            window 2                     window 3
//!   [ r r | a a ]       [ A a a a a a a a ]          [ A ...
//!     │     └ marker      └ marker: reading it starts window 3
//!     └ pages asked for, read at once with the rest of the window
//! ```
//! A miss that continues what was read last begins a window of twice the pages asked for, at least
//! four. Each next window has twice the pages of the one before, up to a limit, and a thread of the
//! cache reads it as soon as the program reaches the first page that was read ahead. A read
//! elsewhere reads only what it asks for.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::file::File;

/// Fewest pages of a window.
const WINDOW_MIN: u32 = 4;

/// Pages to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// The first one.
    pub start: u64,
    /// How many.
    pub pages: u32,
    /// The marker: reading it starts the next window.
    pub marker: Option<u64>,
}

impl Window {
    /// Windows that may wait for the thread. More are not read ahead.
    pub const QUEUE_MAX: usize = 64;
}

/// How one handle reads its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ahead {
    /// The last window, without its marker.
    start: u64,
    pages: u32,
    /// The page that was read last, and the one before it.
    last: Option<u64>,
    before: Option<u64>,
}

impl Ahead {
    /// Records a read. Returns whether it is of another page than the last: reading a page in
    /// pieces is one use.
    pub fn used(&mut self, index: u64) -> bool {
        let another = self.last != Some(index);
        if another {
            (self.before, self.last) = (self.last, Some(index));
        }
        another
    }

    /// What to read when `wanted` pages from `index` on are asked for and the first, which is now
    /// [`used`](Self::used), is not there. At most `max` pages, but at least what is asked for.
    pub fn miss(&mut self, index: u64, wanted: u32, max: u32) -> Window {
        let follows =
            index == 0 || self.before.is_some_and(|before| before.checked_add(1) == Some(index));
        let most = max.max(wanted);
        if !follows || max == 0 {
            self.pages = 0;
            return Window { start: index, pages: wanted, marker: None };
        }
        let first = wanted.saturating_mul(2).max(WINDOW_MIN);
        let end = self.start + u64::from(self.pages);
        let pages = match index {
            _ if self.pages == 0 => first,
            _ if index == end => self.pages.saturating_mul(2).max(first),
            // The thread was asked for this window and has not read it yet, or its pages are gone.
            _ if (self.start..end).contains(&index) => self.pages.max(first),
            _ => first,
        };
        (self.start, self.pages) = (index, pages.min(most));
        let marker = (self.pages > wanted).then(|| index + u64::from(wanted));
        Window { start: index, pages: self.pages, marker }
    }

    /// The window after the last one, when its marker is read.
    pub fn next(&mut self, index: u64, max: u32) -> Option<Window> {
        let last = self.start..self.start + u64::from(self.pages);
        if max == 0 || !last.contains(&index) {
            // The marker is of a window that another handle has read.
            return None;
        }
        self.start = last.end;
        self.pages = self.pages.saturating_mul(2).min(max);
        Some(Window { start: self.start, pages: self.pages, marker: Some(self.start) })
    }
}

/// Windows that wait for the thread.
#[derive(Debug, Default)]
pub struct Windows {
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    windows: VecDeque<(Arc<File>, Window)>,
    stopped: bool,
}

impl Windows {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a window, unless the queue is full.
    pub fn push(&self, file: &Arc<File>, window: Window) {
        let mut queue = self.lock();
        if queue.windows.len() < Window::QUEUE_MAX && !queue.stopped {
            queue.windows.push_back((Arc::clone(file), window));
            self.wake.notify_one();
        }
    }

    /// Waits for the next one. `None`: the thread ends.
    pub fn pop(&self) -> Option<(Arc<File>, Window)> {
        let mut queue = self.lock();
        loop {
            if queue.stopped {
                return None;
            }
            if let Some(next) = queue.windows.pop_front() {
                return Some(next);
            }
            queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the thread.
    pub fn stop(&self) {
        let mut queue = self.lock();
        queue.stopped = true;
        queue.windows.clear();
        self.wake.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page is used and found missing.
    fn miss(ahead: &mut Ahead, index: u64, wanted: u32, max: u32) -> Window {
        ahead.used(index);
        ahead.miss(index, wanted, max)
    }

    #[test]
    fn windows_of_a_sequential_reader_double_up_to_the_limit() {
        let mut ahead = Ahead::default();
        let first = miss(&mut ahead, 0, 1, 32);
        assert_eq!(first, Window { start: 0, pages: 4, marker: Some(1) });
        let (mut window, mut sizes) = (first, vec![4]);
        for _ in 0..4 {
            let read = window.marker.unwrap();
            ahead.used(read);
            window = ahead.next(read, 32).unwrap();
            sizes.push(window.pages);
        }
        assert_eq!(sizes, [4, 8, 16, 32, 32]);
        // Windows lie one behind the other: 4 + 8 + 16 + 32 pages before the last.
        assert_eq!(window.start, 60);
    }

    #[test]
    fn a_random_reader_reads_what_it_asks_for() {
        let mut ahead = Ahead::default();
        ahead.used(7);
        let window = miss(&mut ahead, 100, 3, 32);
        assert_eq!(window, Window { start: 100, pages: 3, marker: None });
        ahead.used(102);
        assert_eq!(miss(&mut ahead, 50, 1, 32).pages, 1);
        // Again the page before, then the one behind it.
        assert_eq!(miss(&mut ahead, 49, 1, 32).pages, 1);
        assert_eq!(miss(&mut ahead, 50, 1, 32).pages, 4);
    }

    #[test]
    fn a_miss_behind_the_window_goes_on_doubling() {
        let mut ahead = Ahead::default();
        assert_eq!(miss(&mut ahead, 0, 2, 64).pages, 4);
        ahead.used(3);
        assert_eq!(miss(&mut ahead, 4, 2, 64).pages, 8);
        ahead.used(11);
        assert_eq!(miss(&mut ahead, 12, 1, 64).pages, 16);
    }

    #[test]
    fn a_reader_that_is_faster_than_the_thread_keeps_its_window() {
        let mut ahead = Ahead::default();
        let first = miss(&mut ahead, 0, 1, 64);
        ahead.used(1);
        let next = ahead.next(first.marker.unwrap(), 64).unwrap();
        assert_eq!((next.start, next.pages), (4, 8));
        ahead.used(3);
        assert_eq!(miss(&mut ahead, 4, 1, 64).pages, 8);
    }

    #[test]
    fn a_long_request_is_never_cut_by_the_limit() {
        assert_eq!(miss(&mut Ahead::default(), 0, 100, 8).pages, 100);
        assert_eq!(miss(&mut Ahead::default(), 0, 100, 0).marker, None);
    }

    #[test]
    fn a_page_that_no_file_has_is_before_none() {
        let mut ahead = Ahead::default();
        ahead.used(u64::MAX);
        assert_eq!(miss(&mut ahead, 5, 1, 32), Window { start: 5, pages: 1, marker: None });
        // Page 0 begins a sequence by itself.
        ahead.used(u64::MAX);
        assert_eq!(miss(&mut ahead, 0, 1, 32).pages, 4);
    }

    #[test]
    fn a_page_read_in_pieces_is_used_once() {
        let mut ahead = Ahead::default();
        let uses = [0, 0, 0, 1, 1, 0].map(|index| ahead.used(index));
        assert_eq!(uses, [true, false, false, true, false, true]);
    }
}
