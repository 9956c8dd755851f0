//! Rows of sweeps: texts, the row that a text gives, and the file that they go to. `zonal.sweep`
//! decides which process makes which row.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::builder::{Float64Builder, StringBuilder, UInt64Builder};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use zonal_lab::LabError;
use zonal_lab::recipe::Recipe;
use zonal_lab::report;
use zonal_lab::sweep::{Axis, Column, Open, Row, RowText, Sweep, column, columns, version};
use zonal_parquet::{DataSet, join_until};

use crate::fault::Fault;
use crate::lab::Own;
use crate::long::{OnStop, long};
use crate::stream;

/// The version that rows of this process have.
#[pyfunction]
pub fn rows_version(py: Python<'_>) -> &'static str {
    py.detach(version)
}

/// Names of the columns of rows, each with `text`, `count` or `figure`.
#[pyfunction]
pub fn rows_columns() -> Vec<(String, &'static str)> {
    let kind = |name: &str| match column(name) {
        Column::Text => "text",
        Column::Count => "count",
        Column::Figure => "figure",
    };
    columns().names().map(|name| (name.to_owned(), kind(name))).collect()
}

/// The row that a text gives, as texts in the order of the columns.
#[pyfunction]
pub fn rows_make(py: Python<'_>, text: String) -> PyResult<Vec<String>> {
    let made = py.detach(|| RowText::parse(&text)?.run());
    Ok(fields(&made.map_err(Fault::from)?))
}

/// The rows of files of sweeps, CSV and Parquet, joined, in the order of their keys.
#[pyfunction]
pub fn rows_join(py: Python<'_>, paths: Vec<PathBuf>) -> PyResult<RowTexts> {
    long(py, None, OnStop::Wait, move |hook| {
        let joined = join_until(&paths, None, &mut |rows| hook.tell(rows, None));
        let joined = joined.map_err(|error| Fault::of_table("LabError", error))?;
        Ok(RowTexts(Arc::new(joined.rows)))
    })
}

fn fields(row: &Row) -> Vec<String> {
    row.fields().map(str::to_owned).collect()
}

/// Rows as they are in the file: a million of them as objects of Python would be several GiB.
#[pyclass(frozen, module = "zonal._native")]
pub struct RowTexts(Arc<Vec<Row>>);

#[pymethods]
impl RowTexts {
    /// Rows that `lines` gave.
    #[new]
    fn new(py: Python<'_>, lines: Vec<String>) -> PyResult<RowTexts> {
        let read = || lines.iter().map(|line| Row::of_text(line)).collect::<Result<_, _>>();
        Ok(RowTexts(Arc::new(py.detach(read).map_err(Fault::from)?)))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// Row `at` as texts, in the order of the columns.
    fn row(&self, at: usize) -> PyResult<Vec<String>> {
        Ok(fields(self.0.get(at).ok_or_else(|| none(at))?))
    }

    /// `len` rows, the first at `start`, each `step` behind the one before, as an Arrow C stream.
    fn stream<'py>(
        &self,
        py: Python<'py>,
        start: usize,
        step: isize,
        len: usize,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _all_there = self.part(start, step, len)?;
        stream::capsule_of(py, RowBatches::new(Arc::clone(&self.0), start, step, len))
    }

    /// The same rows, each as one text that `new` reads.
    fn lines(
        &self,
        py: Python<'_>,
        start: usize,
        step: isize,
        len: usize,
    ) -> PyResult<Vec<String>> {
        let numbers = self.part(start, step, len)?;
        Ok(py.detach(|| numbers.map(|at| self.0[at].text().to_owned()).collect()))
    }
}

impl RowTexts {
    /// The numbers of `len` rows, the first at `start`, each `step` behind the one before.
    fn part(
        &self,
        start: usize,
        step: isize,
        len: usize,
    ) -> Result<impl Iterator<Item = usize>, Fault> {
        let last = len.checked_sub(1).map(|steps| {
            let steps = isize::try_from(steps).ok()?.checked_mul(step)?;
            start.checked_add_signed(steps)
        });
        let ends = [Some(start), last.unwrap_or(Some(0))];
        if len > 0 && !ends.iter().all(|end| end.is_some_and(|end| end < self.0.len())) {
            return Err(none(start));
        }
        // Both ends are rows, so all between them are.
        Ok((0..len).map(move |at| start.wrapping_add_signed(step.wrapping_mul(at as isize))))
    }
}

/// Rows of a batch.
const BATCH: usize = 1 << 14;

/// Rows as Arrow's columns, a batch at a time.
struct RowBatches {
    rows: Arc<Vec<Row>>,
    schema: SchemaRef,
    at: usize,
    step: isize,
    left: usize,
}

impl RowBatches {
    fn new(rows: Arc<Vec<Row>>, start: usize, step: isize, len: usize) -> RowBatches {
        let field = |name: &str| match column(name) {
            Column::Text => Field::new(name, DataType::Utf8, false),
            Column::Count => Field::new(name, DataType::UInt64, true),
            Column::Figure => Field::new(name, DataType::Float64, false),
        };
        let fields: Vec<Field> = columns().names().map(field).collect();
        RowBatches { rows, schema: Arc::new(Schema::new(fields)), at: start, step, left: len }
    }
}

/// A column that is being made.
enum Cells {
    Text(StringBuilder),
    Count(UInt64Builder),
    Figure(Float64Builder),
}

impl Cells {
    fn new(field: &Field) -> Cells {
        match field.data_type() {
            DataType::UInt64 => Cells::Count(UInt64Builder::new()),
            DataType::Float64 => Cells::Figure(Float64Builder::new()),
            _ => Cells::Text(StringBuilder::new()),
        }
    }

    fn push(&mut self, text: &str) {
        match self {
            Cells::Text(cells) => cells.append_value(text),
            // A row was checked when it was read: an empty count is none.
            Cells::Count(cells) => cells.append_option(text.parse().ok()),
            Cells::Figure(cells) => cells.append_value(text.parse().unwrap_or(f64::NAN)),
        }
    }

    fn finish(mut self) -> ArrayRef {
        match &mut self {
            Cells::Text(cells) => Arc::new(cells.finish()),
            Cells::Count(cells) => Arc::new(cells.finish()),
            Cells::Figure(cells) => Arc::new(cells.finish()),
        }
    }
}

impl Iterator for RowBatches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let mut cells: Vec<Cells> =
            self.schema.fields().iter().map(|field| Cells::new(field)).collect();
        for _ in 0..self.left.min(BATCH) {
            let fields = self.rows[self.at].fields();
            cells.iter_mut().zip(fields).for_each(|(cells, text)| cells.push(text));
            self.left -= 1;
            // Behind the last row it may be anywhere, and is not used.
            self.at = self.at.wrapping_add_signed(self.step);
        }
        let arrays = cells.into_iter().map(Cells::finish).collect();
        Some(RecordBatch::try_new(Arc::clone(&self.schema), arrays))
    }
}

impl RecordBatchReader for RowBatches {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

fn none(at: usize) -> Fault {
    Fault::new("LabError", format!("there is no row {at}"))
}

/// A sweep and its file, which no other process has meanwhile.
#[pyclass(frozen, module = "zonal._native")]
pub struct Rows {
    sweep: Arc<Sweep>,
    set: DataSet,
    open: Mutex<Option<Open<Arc<Sweep>>>>,
}

#[pymethods]
impl Rows {
    /// Opens the file at `path` for every combination of the axes' values.
    #[new]
    #[pyo3(signature = (machine, toml, policy, workload, busy, warm_us, run_us, axes, path))]
    #[expect(clippy::too_many_arguments, reason = "the recipe, one by one")]
    fn new(
        py: Python<'_>,
        machine: String,
        toml: Option<String>,
        policy: String,
        workload: String,
        busy: Option<u32>,
        warm_us: u64,
        run_us: u64,
        axes: Vec<(String, Vec<String>)>,
        path: PathBuf,
    ) -> PyResult<Rows> {
        let opened = py.detach(|| {
            let own = Own::parse(toml.as_deref())?;
            let mut base = Recipe::new(&machine, &policy, &workload);
            (base.busy, base.warm_us, base.run_us) = (busy, warm_us, run_us);
            let find = |name: &str| own.machine(name);
            let axes = axes.into_iter().map(|(key, values)| Axis { key, values }).collect();
            let sweep = Arc::new(Sweep::new(&base, axes, &find)?);
            let set = DataSet::of(&path);
            set.resume().map_err(|error| Fault::of_table("LabError", error))?;
            let open = Open::new(Arc::clone(&sweep), &set.rows)?;
            Ok::<_, Fault>(Rows { sweep, set, open: Mutex::new(Some(open)) })
        });
        Ok(opened?)
    }

    /// How many rows there are when all are made.
    fn __len__(&self) -> usize {
        self.sweep.points.len()
    }

    /// Numbers of the rows that the file does not have.
    fn missing(&self, py: Python<'_>) -> PyResult<Vec<usize>> {
        py.detach(|| self.with(|open| Ok(open.missing().collect())))
    }

    /// The text of a row.
    fn text(&self, at: usize) -> PyResult<String> {
        self.check(at)?;
        Ok(serde_json::to_string(&self.sweep.text(at)).map_err(Fault::from)?)
    }

    /// The values of a row, with their keys.
    fn label(&self, at: usize) -> PyResult<String> {
        self.check(at)?;
        Ok(self.sweep.label(&self.sweep.points[at]))
    }

    /// Adds a row and writes it.
    fn add(&self, py: Python<'_>, at: usize, fields: Vec<String>) -> PyResult<()> {
        self.check(at)?;
        py.detach(|| self.with(|open| open.add(at, Row::of(&fields)?)))
    }

    /// Writes the file in the order of the points and gives it back. Returns the rows.
    fn finish(&self, py: Python<'_>) -> PyResult<RowTexts> {
        let finished = py.detach(|| {
            let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
            let open = open.ok_or_else(closed)?;
            let (rows, _) = open.finish()?;
            if rows.len() == self.sweep.points.len() {
                self.set.finish().map_err(|error| Fault::of_table("LabError", error))?;
            }
            Ok::<_, Fault>(rows)
        });
        Ok(RowTexts(Arc::new(finished?)))
    }

    /// The page with the plots of all rows, which `finish` gave.
    fn page(&self, py: Python<'_>, rows: &RowTexts) -> String {
        py.detach(|| report::sweep_html(&self.sweep, &rows.0, "zonal.sweep(...)"))
    }
}

impl Rows {
    fn check(&self, at: usize) -> Result<(), Fault> {
        match at < self.sweep.points.len() {
            true => Ok(()),
            false => Err(none(at)),
        }
    }

    fn with<T>(
        &self,
        work: impl FnOnce(&mut Open<Arc<Sweep>>) -> Result<T, LabError>,
    ) -> PyResult<T> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let done = match open.as_mut() {
            Some(open) => work(open).map_err(Fault::from),
            None => Err(closed()),
        };
        // An exception needs the GIL, and who has that may wait for this lock.
        drop(open);
        Ok(done?)
    }
}

fn closed() -> Fault {
    Fault::new("LabError", "the sweep is finished; expected a new one for more rows")
}
