//! What went wrong, as an exception of Python. A worker thread makes a [`Fault`] without the
//! interpreter; it becomes an exception of `zonal._errors` where the call returns.

use std::error::Error;
use std::io::ErrorKind::NotFound;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use zonal_trace::{Position, TraceError, TraceErrorKind};

/// An exception to be.
#[derive(Debug)]
pub struct Fault {
    /// Name of the class in `zonal._errors`.
    class: &'static str,
    message: String,
    file: Option<String>,
    line: Option<u64>,
    offset: Option<u64>,
}

impl Fault {
    /// A fault without a place.
    pub fn new(class: &'static str, message: impl Into<String>) -> Fault {
        Fault { class, message: message.into(), file: None, line: None, offset: None }
    }

    /// A fault with an error's message and those of its causes.
    pub fn of(class: &'static str, error: &dyn Error) -> Fault {
        Fault::new(class, chain(error))
    }

    /// A fault with the place that an error of Parquet files names. `class` is for what is neither
    /// a recording's fault nor the lab's.
    pub fn of_table(class: &'static str, error: zonal_parquet::Error) -> Fault {
        use zonal_parquet::Error;
        let is_missing = matches!(&error, Error::Io { source, .. } if source.kind() == NotFound);
        let missing = is_missing && class == "TraceError";
        let fault = Fault::of(if missing { "MissingFileError" } else { class }, &error);
        match error {
            Error::Trace(error) => error.into(),
            Error::Lab(error) => error.into(),
            Error::Io { path, .. }
            | Error::Parquet { path, .. }
            | Error::Column { path, .. }
            | Error::Row { path, .. }
            | Error::Overwrites(path) => fault.in_file(path.display().to_string()),
            _ => fault,
        }
    }

    /// The same in this file.
    pub fn in_file(mut self, file: impl Into<String>) -> Fault {
        self.file = Some(file.into());
        self
    }

    /// The same on this line, counted from 1.
    pub fn on_line(mut self, line: Option<u64>) -> Fault {
        self.line = line;
        self
    }
}

/// An error and its causes, none twice.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

impl From<Fault> for PyErr {
    fn from(fault: Fault) -> PyErr {
        Python::attach(|py| match fault.exception(py) {
            Ok(exception) => PyErr::from_value(exception),
            Err(error) => error,
        })
    }
}

impl Fault {
    fn exception<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let fields = PyDict::new(py);
        fields.set_item("file", &self.file)?;
        fields.set_item("line", self.line)?;
        fields.set_item("offset", self.offset)?;
        let class = py.import("zonal._errors")?.getattr(self.class)?;
        class.call((&self.message,), Some(&fields))
    }
}

impl From<TraceError> for Fault {
    fn from(error: TraceError) -> Fault {
        let is_missing = match error.kind() {
            TraceErrorKind::Missing { .. } => true,
            TraceErrorKind::Io { source, .. } => source.kind() == NotFound,
            _ => false,
        };
        let class = if is_missing { "MissingFileError" } else { "TraceError" };
        let mut fault = Fault::of(class, &error).in_file(error.file().display().to_string());
        match error.position() {
            Position::Line(line) => fault.line = Some(line),
            Position::Byte(offset) => fault.offset = Some(offset),
            _ => {}
        }
        fault
    }
}

impl From<zonal_replay::ReplayError> for Fault {
    fn from(error: zonal_replay::ReplayError) -> Fault {
        match error {
            zonal_replay::ReplayError::Trace(error) => error.into(),
            other => Fault::of("ReplayError", &other),
        }
    }
}

impl From<zonal_lab::LabError> for Fault {
    fn from(error: zonal_lab::LabError) -> Fault {
        match error {
            zonal_lab::LabError::Machine(error) => error.into(),
            other => Fault::of("LabError", &other),
        }
    }
}

impl From<zonal_lab::machine::MachineError> for Fault {
    fn from(error: zonal_lab::machine::MachineError) -> Fault {
        use zonal_lab::machine::MachineError;
        let fault = Fault::of("MachineError", &error);
        match &error {
            MachineError::Field { line, .. } => fault.on_line(line.map(|line| line as u64)),
            MachineError::Text { line, .. } => fault.on_line(Some(*line as u64)),
            MachineError::File { file, .. } => fault.in_file(file.clone()),
            _ => fault,
        }
    }
}

impl From<zonal_conform::Error> for Fault {
    fn from(error: zonal_conform::Error) -> Fault {
        use zonal_conform::Error;
        let fault = Fault::new("ConformError", error.chain());
        match &error {
            Error::Bad { place, .. } | Error::Sysctl { place, .. } => {
                fault.in_file(place.file.clone()).on_line(Some(place.line))
            }
            Error::Read { file, .. } => fault.in_file(file.clone()),
            _ => fault,
        }
    }
}

impl From<serde_json::Error> for Fault {
    fn from(error: serde_json::Error) -> Fault {
        Fault::new("Error", format!("a result cannot be written as JSON: {error}"))
    }
}
