//! Runs of the lab as recordings.

use std::path::PathBuf;

use pyo3::prelude::*;
use zonal_lab::tape;

use crate::lab::{Run, once};
use crate::long::{OnStop, long};

/// One run, written as a recording to `path`: what `lab_once` gives, with the number of events.
#[pyfunction]
#[pyo3(signature = (run, path, progress=None))]
pub fn lab_record(
    py: Python<'_>,
    run: Run,
    path: PathBuf,
    progress: Option<Py<PyAny>>,
) -> PyResult<(String, u64)> {
    long(py, progress, OnStop::Wait, move |hook| {
        let asked = run.asked()?;
        let recipe = &asked.recipe;
        let machine = |name: &str| asked.own.machine(name);
        let (figures, events) = hook.in_lab(|| {
            tape::record(recipe, &machine, &path, &mut |done, of| hook.note(done, of))
        })?;
        Ok((once(recipe, &figures), events))
    })
}
