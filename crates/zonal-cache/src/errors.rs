//! Errors that each listener reports once (as Linux' `errseq_t`).
//!
//! A sequence counts errors. Each listener has a cursor: how many of them it has seen. Each
//! listener that existed when an error occurred reports it. An error that no listener has reported
//! goes to the next new one: a program that closes a file without a sync and opens it again sees
//! it.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::backing::caught;

/// Errors so far.
#[derive(Debug, Default)]
pub struct ErrorSeq {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    count: u64,
    last: Option<Failure>,
    /// The last one has been reported.
    seen: bool,
}

/// A listener's cursor.
#[derive(Debug)]
pub struct Cursor(AtomicU64);

impl Clone for Cursor {
    fn clone(&self) -> Cursor {
        Cursor(self.0.load(Relaxed).into())
    }
}

/// An error, in a form that can be returned more than once.
#[derive(Clone, Debug)]
pub struct Failure {
    kind: io::ErrorKind,
    errno: Option<i32>,
    text: String,
}

impl Failure {
    pub fn new(error: &io::Error) -> Failure {
        // The error is the program's, and so is what prints it.
        let text = caught("the text of an error", || error.to_string());
        let text = text.unwrap_or_else(|error| error.to_string());
        Failure { kind: error.kind(), errno: error.raw_os_error(), text }
    }

    pub fn error(&self) -> io::Error {
        match self.errno {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::new(self.kind, self.text.clone()),
        }
    }
}

impl ErrorSeq {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an error.
    pub fn add(&self, error: &io::Error) {
        let mut state = self.state();
        state.count += 1;
        state.last = Some(Failure::new(error));
        state.seen = false;
    }

    /// Errors so far.
    pub fn count(&self) -> u64 {
        self.state().count
    }

    /// The last error.
    pub fn last(&self) -> Option<io::Error> {
        self.state().last.as_ref().map(Failure::error)
    }

    /// A new listener.
    pub fn listen(&self) -> Cursor {
        let state = self.state();
        Cursor(state.count.saturating_sub(u64::from(!state.seen)).into())
    }

    /// The last error, if this listener has not seen it; marks it as seen.
    pub fn tell(&self, cursor: &Cursor) -> Option<io::Error> {
        let mut state = self.state();
        // Relaxed: under the lock.
        if cursor.0.swap(state.count, Relaxed) == state.count {
            return None;
        }
        state.seen = true;
        state.last.as_ref().map(Failure::error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eio() -> io::Error {
        io::Error::from_raw_os_error(5)
    }

    #[test]
    fn an_error_is_told_to_each_listener_once() {
        let errors = ErrorSeq::default();
        let (first, second) = (errors.listen(), errors.listen());
        assert!(errors.tell(&first).is_none());
        errors.add(&eio());
        assert_eq!(errors.tell(&first).unwrap().raw_os_error(), Some(5));
        assert!(errors.tell(&first).is_none());
        assert!(errors.tell(&second).is_some());
        assert!(errors.tell(&second).is_none());
        errors.add(&eio());
        assert!(errors.tell(&first).is_some());
    }

    #[test]
    fn an_error_that_nobody_was_told_of_is_told_to_the_next_listener() {
        let errors = ErrorSeq::default();
        errors.add(&eio());
        let (late, later) = (errors.listen(), errors.listen());
        assert!(errors.tell(&late).is_some());
        let last = errors.listen();
        assert!(errors.tell(&last).is_none(), "somebody was told already");
        assert!(errors.tell(&later).is_some(), "it was there before");
    }

    #[test]
    fn an_error_of_the_programs_own_keeps_its_kind_and_text() {
        let errors = ErrorSeq::default();
        let cursor = errors.listen();
        errors.add(&io::Error::new(io::ErrorKind::StorageFull, "no tape left"));
        let told = errors.tell(&cursor).unwrap();
        assert_eq!(
            (told.kind(), told.to_string().as_str()),
            (io::ErrorKind::StorageFull, "no tape left")
        );
    }
}
