//! Recordings as Parquet files, and back.

use std::path::PathBuf;

use pyo3::prelude::*;
use zonal_parquet::{read_events, write_events};

use crate::fault::Fault;
use crate::long::{OnStop, long};
use crate::recording::Recording;

/// Writes a recording as a Parquet file. Returns its events and bytes.
#[pyfunction]
#[pyo3(signature = (recording, path, level, progress=None))]
pub fn to_parquet(
    py: Python<'_>,
    recording: &Recording,
    path: PathBuf,
    level: i32,
    progress: Option<Py<PyAny>>,
) -> PyResult<(u64, u64)> {
    let recording = recording.inner();
    long(py, progress, OnStop::Wait, move |hook| {
        let total = recording.description().events;
        let written =
            write_events(&recording, &path, level, &mut |events| hook.tell(events, total));
        let written = written.map_err(|error| Fault::of_table("TraceError", error))?;
        Ok((written.rows, written.bytes))
    })
}

/// Writes the events of a Parquet file as a `.zonal` file. Returns its events and bytes.
#[pyfunction]
#[pyo3(signature = (path, output, level, progress=None))]
pub fn from_parquet(
    py: Python<'_>,
    path: PathBuf,
    output: PathBuf,
    level: i32,
    progress: Option<Py<PyAny>>,
) -> PyResult<(u64, u64)> {
    long(py, progress, OnStop::Wait, move |hook| {
        let read = read_events(&path, &output, level, &mut |events| hook.tell(events, None));
        let read = read.map_err(|error| Fault::of_table("TraceError", error))?;
        Ok((read.rows, read.bytes))
    })
}
