//! Permits, and those who wait for one: what a [`BufferPool`](super::BufferPool) counts by.
//!
//! All of it is under one mutex, held for some instructions. Wakers are cloned, called and
//! dropped outside of it: the last drop of a waker may run any code, such as that of a buffer which
//! comes back.
//!
//! # Invariants
//! - **GATE-1** `out` permits are given out, or granted to one who waits; never more than `limit`.
//! - **GATE-2** a granted permit is taken by the one it was granted to ([`Gate::poll`]) or passed
//!   on when that one leaves ([`Gate::cancel`]): no wake-up is lost with a future that is dropped,
//!   nor by a waker that panics.
//! - **GATE-3** while somebody waits, nobody overtakes: [`Gate::try_enter`] fails, and permits are
//!   granted in the order of arrival.
//! - **GATE-4** somebody waits only while more than `low` permits are out.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::TryLockError;
use std::task::Waker;

use super::sync::{Mutex, MutexGuard};

/// Permits, at most so many.
#[derive(Debug)]
pub struct Gate {
    limit: usize,
    low: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    out: usize,
    /// In order of arrival.
    waiting: VecDeque<(Ticket, Waker)>,
    /// Tickets that were granted a permit and have not taken it yet.
    granted: Vec<Ticket>,
    tickets: u64,
}

/// A place in the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket(u64);

/// What came of asking.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// A permit: [`Gate::leave`] gives it back.
    Entered,
    /// A place in the queue, until [`Gate::poll`] says so or [`Gate::cancel`].
    Queued(Ticket),
}

impl Gate {
    /// `limit` permits; once somebody waits, none is granted until at most `low` are out.
    pub fn new(limit: usize, low: usize) -> Gate {
        Gate { limit, low: low.min(limit.saturating_sub(1)), state: Mutex::new(State::default()) }
    }

    /// Permits that are out, and those who wait.
    pub fn figures(&self) -> (usize, usize) {
        self.lock().figures()
    }

    /// The same in a forked child, where a thread of the parent may hold the lock for ever: then
    /// nobody knows.
    pub fn figures_of_parent(&self) -> Option<(usize, usize)> {
        match self.state.try_lock() {
            Ok(state) => Some(state.figures()),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner().figures()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// A permit, if there is one and nobody waits (GATE-3).
    pub fn try_enter(&self) -> bool {
        self.lock().try_enter(self.limit)
    }

    /// A permit, or a place in the queue with this waker.
    pub fn ask(&self, waker: &Waker) -> Asked {
        let waker = waker.clone();
        let mut state = self.lock();
        if state.try_enter(self.limit) {
            drop(state);
            return Asked::Entered;
        }
        let ticket = Ticket(state.tickets);
        state.tickets += 1;
        state.waiting.push_back((ticket, waker));
        Asked::Queued(ticket)
    }

    /// Whether the permit was granted: it is the caller's then, and the ticket is used up.
    /// Otherwise the caller waits on, with this waker.
    pub fn poll(&self, ticket: Ticket, waker: &Waker) -> bool {
        let mut waker = waker.clone();
        let mut state = self.lock();
        let granted = state.take_grant(ticket);
        if let Some((_, known)) = state.waiting.iter_mut().find(|(known, _)| *known == ticket) {
            std::mem::swap(known, &mut waker);
        }
        drop(state);
        granted
    }

    /// Gives up a place in the queue, and passes on a permit that was granted to it (GATE-2).
    pub fn cancel(&self, ticket: Ticket) {
        let mut state = self.lock();
        if state.take_grant(ticket) {
            let woken = state.leave(self.limit, self.low);
            drop(state);
            return wake(woken);
        }
        let place = state.waiting.iter().position(|(known, _)| *known == ticket);
        let left = place.and_then(|place| state.waiting.remove(place));
        drop(state);
        drop(left);
    }

    /// Gives a permit back, and wakes those whose turn it is.
    pub fn leave(&self) {
        let mut state = self.lock();
        let woken = state.leave(self.limit, self.low);
        drop(state);
        wake(woken);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Wakes all, whatever a waker does: the first panic goes on behind the last of them, unless this
/// thread panics already.
fn wake(woken: Vec<Waker>) {
    let mut first = None;
    for waker in woken {
        // AssertUnwindSafe: the waker is used up.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
            // The panic's payload may panic again when it is dropped.
            match first {
                None => first = Some(panic),
                Some(_) => std::mem::forget(panic),
            }
        }
    }
    if let Some(panic) = first {
        match std::thread::panicking() {
            true => std::mem::forget(panic),
            false => resume_unwind(panic),
        }
    }
}

impl State {
    fn figures(&self) -> (usize, usize) {
        (self.out, self.waiting.len())
    }
    fn try_enter(&mut self, limit: usize) -> bool {
        let enters = self.waiting.is_empty() && self.out < limit;
        self.out += usize::from(enters);
        enters
    }

    fn take_grant(&mut self, ticket: Ticket) -> bool {
        let granted = self.granted.iter().position(|known| *known == ticket);
        granted.map(|at| self.granted.swap_remove(at)).is_some()
    }

    /// A permit comes back. Returns the task to wake.
    fn leave(&mut self, limit: usize, low: usize) -> Vec<Waker> {
        debug_assert!(self.out > 0, "GATE-1");
        self.out -= 1;
        if self.out > low {
            return Vec::new();
        }
        let grants = self.waiting.len().min(limit - self.out);
        self.out += grants;
        let State { waiting, granted, .. } = self;
        let woken = waiting.drain(..grants).map(|(ticket, waker)| {
            granted.push(ticket);
            waker
        });
        woken.collect()
    }
}
