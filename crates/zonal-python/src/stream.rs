//! Arrow's C interfaces in capsules.

use std::ffi::CStr;
use std::sync::OnceLock;
use std::thread::{self, ThreadId};

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

/// Whether somebody pressed Ctrl-C. Only the main thread is told, so only there the interpreter is
/// entered: another thread may be one that the main thread waits for with the GIL in its hands.
fn is_interrupted() -> bool {
    if MAIN.get().copied().flatten() != Some(thread::current().id()) {
        return false;
    }
    Python::attach(|py| match py.check_signals() {
        Ok(()) => false,
        Err(_) => {
            // The reader turns our refusal into an exception of its own. The signal is set again,
            // so that `KeyboardInterrupt` follows at the next chance.
            // SAFETY: the GIL is held, which is all that the call asks for.
            unsafe { pyo3::ffi::PyErr_SetInterrupt() };
            true
        }
    })
}

impl Iterator for Columns {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if is_interrupted() {
            return Some(Err(ArrowError::ExternalError("interrupted".into())));
        }
        let next = self.next_batch();
        next.map_err(|error| ArrowError::ExternalError(Box::new(error))).transpose()
    }
}

impl RecordBatchReader for Columns {
    fn schema(&self) -> SchemaRef {
        Columns::schema(self)
    }
}

/// A stream in a capsule.
///
/// # Errors
/// None but those of Python.
pub fn capsule(py: Python<'_>, columns: Columns) -> PyResult<Bound<'_, PyCapsule>> {
    let stream = FFI_ArrowArrayStream::new(Box::new(columns));
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
