//! How the background reclaimers of a pool are woken, stopped and kept still, and how requests wait
//! for them.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use zonal_core::types::NodeId;

/// One per node.
#[derive(Debug, Default)]
pub(crate) struct Bells {
    nodes: Vec<Bell>,
}

#[derive(Debug, Default)]
pub(crate) struct Bell {
    /// Never locked while consumers are called.
    state: Mutex<State>,
    rung: Condvar,
    progressed: Condvar,
    /// A step ended, or may begin.
    stepped: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Rung, and the reclaimer has not woken yet.
    rung: bool,
    stop: bool,
    /// The reclaimer takes a step.
    stepping: bool,
    /// How many keep it from taking the next one.
    held: u32,
    /// Times that it reported progress.
    progress: u64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bells {
    pub(crate) fn new(nodes: usize) -> Bells {
        Bells { nodes: std::iter::repeat_with(Bell::default).take(nodes).collect() }
    }

    pub(crate) fn of(&self, node: NodeId) -> &Bell {
        &self.nodes[usize::from(node.0)]
    }

    /// Tells all reclaimers to end, or lets new ones begin.
    pub(crate) fn set_stop(&self, stop: bool) {
        for bell in &self.nodes {
            locked(&bell.state).stop = stop;
            bell.rung.notify_all();
            bell.progressed.notify_all();
            bell.stepped.notify_all();
        }
    }

    /// Keeps all reclaimers still until the result is dropped. Waits for steps under way, and so
    /// for consumers: not from inside one.
    pub(crate) fn hold_steps(&self) -> Vec<Held<'_>> {
        self.nodes.iter().map(Bell::hold).collect()
    }

    /// Keeps everybody off the bells until the result is dropped. Across a fork.
    pub(crate) fn freeze(&self) -> Frozen<'_> {
        Frozen { states: self.nodes.iter().map(|bell| locked(&bell.state)).collect() }
    }
}

/// Locked bells, until dropped.
pub(crate) struct Frozen<'a> {
    states: Vec<MutexGuard<'a, State>>,
}

impl Frozen<'_> {
    /// In a forked child: no other thread takes steps, or holds them.
    pub(crate) fn forked(&mut self) {
        for state in &mut self.states {
            (state.stepping, state.held) = (false, 0);
        }
    }
}

/// A reclaimer that takes no step, until dropped.
pub(crate) struct Held<'a>(&'a Bell);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut state = locked(&self.0.state);
        state.held = state.held.saturating_sub(1);
        drop(state);
        self.0.stepped.notify_all();
    }
}

/// A step, until dropped.
pub(crate) struct Step<'a>(&'a Bell);

impl Drop for Step<'_> {
    fn drop(&mut self) {
        locked(&self.0.state).stepping = false;
        self.0.stepped.notify_all();
    }
}

impl Bell {
    /// The reclaiming thread is about to take a step. `None`: it is to end.
    pub(crate) fn step(&self) -> Option<Step<'_>> {
        let state = locked(&self.state);
        let waits = |state: &mut State| state.held > 0 && !state.stop;
        let state = self.stepped.wait_while(state, waits);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        state.stepping = !state.stop;
        // Made only for a step that is taken: dropping one ends it.
        state.stepping.then(|| Step(self))
    }

    fn hold(&self) -> Held<'_> {
        let mut state = locked(&self.state);
        state.held += 1;
        let stepping = |state: &mut State| state.stepping;
        drop(self.stepped.wait_while(state, stepping));
        Held(self)
    }

    /// Wakes the reclaimer, now or when it next listens.
    pub(crate) fn ring(&self) {
        locked(&self.state).rung = true;
        self.rung.notify_all();
    }

    /// The reclaimer listens for at most so long. Returns whether the bell was rung.
    pub(crate) fn listen(&self, most: Duration) -> bool {
        let state = locked(&self.state);
        let quiet = |state: &mut State| !state.rung && !state.stop;
        let waited = self.rung.wait_timeout_while(state, most, quiet);
        std::mem::take(&mut waited.unwrap_or_else(PoisonError::into_inner).0.rung)
    }

    /// The reclaimer wakes the requests that wait for progress.
    pub(crate) fn tell(&self) {
        let mut state = locked(&self.state);
        state.progress = state.progress.wrapping_add(1);
        self.progressed.notify_all();
    }

    /// A request waits for progress, at most so long.
    pub(crate) fn wait(&self, most: Duration) {
        let state = locked(&self.state);
        let (before, end) = (state.progress, Instant::now() + most);
        let still = |state: &mut State| state.progress == before && !state.stop;
        let left = end.saturating_duration_since(Instant::now());
        drop(self.progressed.wait_timeout_while(state, left, still));
    }
}
