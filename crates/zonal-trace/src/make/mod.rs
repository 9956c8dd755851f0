//! Traces from traces: converted, cut, or scaled to more CPUs.
//!
//! | function | makes |
//! |--|--|
//! | [`convert`] | the same trace in another form |
//! | [`cut`] | the part between two times, on some CPUs, or of some threads |
//! | [`scale`] | a trace for more CPUs: copies side by side |
//!
//! ```
//! use zonal_trace::make::{Selection, Target, cut};
//! use zonal_trace::samples;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let file = directory.path().join("cpu0.zonal");
//! let selection = Selection { cpus: Some(vec![0]), ..Selection::default() };
//! let target = Target::file(&file).level(1);
//! let written = cut(&samples::zlib_make_j4()?, &selection, target, &mut |_events| {})?;
//! assert!(written.events > 0);
//! # Ok(())
//! # }
//! ```
//!
//! An output appears when it is whole, and never in the place of a file that the trace is read
//! from.

mod cut;
mod error;
mod scale;
mod sink;

pub use cut::{Selection, Time, cut};
pub use error::MakeError;
pub use scale::{Copies, not_scaled, scale};
pub use sink::{Target, Written};

use std::ops::ControlFlow;

use crate::Recording;
use sink::Sink;

/// Events between two calls of a progress callback.
pub(crate) const TICK_EVENTS: u64 = 1 << 14;

/// Writes the same trace in another form. `progress` gets the number of events written so far.
///
/// # Errors
/// [`MakeError`] if the trace is damaged or the output cannot be written.
pub fn convert(
    recording: &Recording,
    target: Target,
    progress: &mut dyn FnMut(u64),
) -> Result<Written, MakeError> {
    copy(recording, target, &mut |events| {
        progress(events);
        ControlFlow::Continue(())
    })
}

/// The same, which ends with [`MakeError::Stopped`] when `progress` says so.
pub(crate) fn copy(
    recording: &Recording,
    target: Target,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Written, MakeError> {
    let files = recording.machine_files()?;
    let mut sink = Sink::create(target, recording, recording.description(), &files)?;
    for event in recording.events() {
        sink.push(&event?)?;
        if sink.events().is_multiple_of(TICK_EVENTS) && progress(sink.events()).is_break() {
            return Err(MakeError::Stopped);
        }
    }
    sink.finish()
}

fn tick(sink: &Sink, progress: &mut dyn FnMut(u64)) {
    if sink.events().is_multiple_of(TICK_EVENTS) {
        progress(sink.events());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_copy_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let target = Target::file(folder.path().join("a.zonal")).level(1);
        let recording = crate::samples::zlib_make_j4().unwrap();
        let stopped = copy(&recording, target, &mut |_| ControlFlow::Break(()));
        assert!(matches!(stopped, Err(MakeError::Stopped)), "{stopped:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
