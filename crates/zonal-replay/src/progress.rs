//! How far a long call is, told to its caller, who may stop it.

use std::ops::ControlFlow;

/// How far a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The current activity.
    pub phase: Phase,
    /// Events done in this phase.
    pub done: u64,
    /// Events that this phase has, where that is known.
    pub of: Option<u64>,
}

/// The activity of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Reading the trace.
    Reading,
    /// Running the program.
    Replaying,
}

/// A callback that hears how far a call is, from the thread that made the call.
///
/// [`ControlFlow::Break`] stops the call, which then returns
/// [`ReplayError::Stopped`](crate::ReplayError::Stopped). Each phase begins with a call whose
/// `done` is 0.
pub type Watch<'w> = dyn FnMut(Progress) -> ControlFlow<()> + 'w;

/// A [`Watch`] for callers that do not want to hear anything.
///
/// ```
/// use zonal_replay::{Replay, unwatched};
///
/// let recording = zonal_trace::samples::zlib_make_j4()?;
/// let replay = Replay::new(&recording).limit(1000);
/// assert!(replay.without_memory(&Default::default(), &mut unwatched)?.passed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn unwatched(_progress: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}
