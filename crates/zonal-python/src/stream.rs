//! Arrow's C interfaces in capsules.

use std::ffi::CStr;
use std::sync::OnceLock;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, to_ffi};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{Array, RecordBatch, RecordBatchReader, StructArray};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::columns::Columns;
use crate::fault::Fault;

const STREAM: &CStr = c"arrow_array_stream";
const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";

/// The thread in which Python handles signals.
static MAIN: OnceLock<Option<ThreadId>> = OnceLock::new();

/// Remembers the calling thread, if it is Python's main one.
///
/// # Errors
/// None but those of Python.
pub fn remember_main(py: Python<'_>) -> PyResult<()> {
    let threading = py.import("threading")?;
    let main = threading.call_method0("main_thread")?;
    let is_main = main.eq(threading.call_method0("current_thread")?)?;
    let _ = MAIN.set(is_main.then(|| thread::current().id()));
    Ok(())
}

/// How long a pass goes on after Ctrl-C.
const PATIENCE: Duration = Duration::from_secs(2);

/// The stream that a reader has. A reader turns what it refuses into an exception of its own, under
/// which `KeyboardInterrupt` would be lost; so a pass that is over soon is let go to its end, and
/// the interpreter raises `KeyboardInterrupt` where the reader returns.
struct Stream {
    columns: Columns,
    interrupted: Option<Instant>,
}

impl Stream {
    /// Whether somebody pressed Ctrl-C, and waits for longer than [`PATIENCE`]. Only the main
    /// thread is told, so only there the interpreter is entered: another thread may be one that the
    /// main thread waits for with the GIL in its hands.
    fn gives_up(&mut self) -> bool {
        if let Some(since) = self.interrupted {
            return since.elapsed() > PATIENCE;
        }
        if MAIN.get().copied().flatten() == Some(thread::current().id()) {
            Python::attach(|py| {
                if py.check_signals().is_err() {
                    // Handled too early: the signal is set again, for when the reader returns.
                    // SAFETY: the GIL is held, which is all that the call asks for.
                    unsafe { pyo3::ffi::PyErr_SetInterrupt() };
                    self.interrupted = Some(Instant::now());
                }
            });
        }
        false
    }
}

impl Iterator for Stream {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.gives_up() {
            return Some(Err(ArrowError::ExternalError("interrupted by Ctrl-C".into())));
        }
        let next = self.columns.next_batch();
        next.map_err(|error| ArrowError::ExternalError(Box::new(error))).transpose()
    }
}

impl RecordBatchReader for Stream {
    fn schema(&self) -> SchemaRef {
        self.columns.schema()
    }
}

/// A stream in a capsule.
///
/// # Errors
/// None but those of Python.
pub fn capsule(py: Python<'_>, columns: Columns) -> PyResult<Bound<'_, PyCapsule>> {
    capsule_of(py, Stream { columns, interrupted: None })
}

/// Any stream in a capsule.
///
/// # Errors
/// None but those of Python.
pub fn capsule_of(
    py: Python<'_>,
    stream: impl RecordBatchReader + Send + 'static,
) -> PyResult<Bound<'_, PyCapsule>> {
    let stream = FFI_ArrowArrayStream::new(Box::new(stream));
    PyCapsule::new_with_value(py, stream, STREAM)
}

/// A schema in a capsule.
///
/// # Errors
/// None but those of Python.
pub fn schema_capsule<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(schema).map_err(|error| Fault::of("Error", &error))?;
    PyCapsule::new_with_value(py, schema, SCHEMA)
}

/// A batch in two capsules: its schema and its columns.
///
/// # Errors
/// None but those of Python.
pub fn array_capsules<'py>(
    py: Python<'py>,
    batch: &RecordBatch,
) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
    let whole = StructArray::from(batch.clone());
    let (array, _): (FFI_ArrowArray, FFI_ArrowSchema) =
        to_ffi(&whole.to_data()).map_err(|error| Fault::of("Error", &error))?;
    let schema = schema_capsule(py, &batch.schema())?;
    Ok((schema, PyCapsule::new_with_value(py, array, ARRAY)?))
}
