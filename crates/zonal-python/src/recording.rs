//! Recordings: their description, and their events as Arrow's record batches.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use zonal_parquet::is_parquet;
use zonal_trace::{Info, Recording as Inner, TraceError, samples};

use crate::columns::{Columns, check_columns};
use crate::fault::Fault;
use crate::stream;

/// An open recording.
#[pyclass(frozen, module = "zonal._native", subclass)]
#[derive(Debug)]
pub struct Recording {
    inner: Arc<Inner>,
}

impl Recording {
    /// The recording, for another thread.
    pub fn inner(&self) -> Arc<Inner> {
        Arc::clone(&self.inner)
    }
}

/// Why this path is no recording.
fn no_recording(path: Option<&Path>, error: TraceError) -> Fault {
    match path.filter(|path| is_parquet(path)) {
        Some(path) => {
            let file = path.display().to_string();
            let what = "a Parquet file; expected a recording, which zonal.from_parquet makes of it";
            Fault::new("TraceError", format!("{file}: {what}")).in_file(file)
        }
        None => error.into(),
    }
}

#[pymethods]
impl Recording {
    /// Opens a recording. Without a path: the bundled build of zlib.
    #[new]
    #[pyo3(signature = (path=None, machine=None))]
    fn new(py: Python<'_>, path: Option<PathBuf>, machine: Option<PathBuf>) -> PyResult<Recording> {
        let named = path.clone();
        let open = || -> Result<Inner, TraceError> {
            let recording = match path {
                Some(path) => Inner::open(path)?,
                None => samples::zlib_make_j4()?,
            };
            match machine {
                Some(machine) => recording.with_machine(machine),
                None => Ok(recording),
            }
        };
        let inner = py.detach(|| open().map_err(|error| no_recording(named.as_deref(), error)))?;
        Ok(Recording { inner: Arc::new(inner) })
    }

    /// Its description, as JSON.
    fn info_json(&self, py: Python<'_>) -> PyResult<String> {
        let inner = &self.inner;
        let text = py.detach(|| serde_json::to_string(&Info::of(inner)));
        Ok(text.map_err(Fault::from)?)
    }
}

/// Events to be read, once by each consumer.
#[pyclass(frozen, module = "zonal._native", subclass)]
#[derive(Debug)]
pub struct Events {
    recording: Arc<Inner>,
    columns: Vec<usize>,
    batch_rows: usize,
    from_ns: u64,
}

impl Events {
    fn columns(&self) -> Columns {
        Columns::new(&self.recording, &self.columns, self.batch_rows, self.from_ns)
    }
}

#[pymethods]
impl Events {
    /// Events of a recording from this time on, in these columns.
    #[new]
    #[pyo3(signature = (recording, columns, batch_rows, from_ns))]
    fn new(
        recording: &Recording,
        columns: Option<Vec<String>>,
        batch_rows: usize,
        from_ns: u64,
    ) -> PyResult<Events> {
        let columns = check_columns(columns)?;
        Ok(Events { recording: recording.inner(), columns, batch_rows, from_ns })
    }

    /// A new pass over the events, as an Arrow C stream.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // A wish only, says the interface: who reads casts.
        let _ = requested_schema;
        stream::capsule(py, self.columns())
    }

    /// The schema alone.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        stream::schema_capsule(py, &self.columns().schema())
    }

    /// A new pass over the events, one batch after the other.
    fn __iter__(&self) -> Batches {
        Batches { columns: std::sync::Mutex::new(self.columns()) }
    }

    /// Names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        let schema = self.columns().schema();
        schema.fields().iter().map(|field| field.name().clone()).collect()
    }
}

/// One pass over the events.
#[pyclass(frozen, module = "zonal._native")]
pub struct Batches {
    columns: std::sync::Mutex<Columns>,
}

#[pymethods]
impl Batches {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        py.check_signals()?;
        let next = py.detach(|| {
            let mut columns = self.columns.lock().unwrap_or_else(|held| held.into_inner());
            columns.next_batch()
        });
        Ok(next.map_err(Fault::from)?.map(Batch))
    }
}

/// Some events, in Arrow's columns.
#[pyclass(frozen, module = "zonal._native")]
#[derive(Debug)]
pub struct Batch(arrow_array::RecordBatch);

#[pymethods]
impl Batch {
    /// Schema and columns, by Arrow's C data interface.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Py<PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema;
        stream::array_capsules(py, &self.0)
    }

    /// Events.
    #[getter]
    fn num_rows(&self) -> usize {
        self.0.num_rows()
    }

    fn __len__(&self) -> usize {
        self.0.num_rows()
    }
}
