//! Events in Arrow's columns: one row an event, a column for each field that any event has.

use std::fmt;
use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, PrimitiveBuilder, StringBuilder};
use arrow_array::types::{Int8Type, Int32Type, UInt8Type, UInt32Type, UInt64Type};
use arrow_array::{ArrayRef, DictionaryArray, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use zonal_parquet::columns::{ALWAYS, Cells as Fields, EVENT, SOME, TEXT, Width, always};
use zonal_trace::{EventKind, Events, Recording, TraceError};

use crate::fault::Fault;

/// Where a column's cells come from.
#[derive(Clone, Copy, PartialEq)]
enum Source {
    /// A place in [`ALWAYS`].
    Always(usize),
    /// The event's name.
    Name,
    /// A place in [`SOME`].
    Some(usize),
    /// The event's text.
    Text,
}

/// A column that there can be.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    source: Source,
}

/// Every column, in its order: those of Parquet's files, but the text behind the number of lost
/// events.
fn kinds() -> Vec<Kind> {
    let always = ALWAYS.iter().enumerate();
    let always = always.map(|(at, (name, _))| Kind { name, source: Source::Always(at) });
    let event = Kind { name: EVENT, source: Source::Name };
    let some = SOME.iter().enumerate();
    let some = some.map(|(at, (name, _))| Kind { name, source: Source::Some(at) });
    let mut kinds: Vec<Kind> = always.chain([event]).chain(some).collect();
    let lost = kinds.iter().position(|kind| kind.name == "lost");
    let behind = lost.map_or(kinds.len(), |at| at + 1);
    kinds.insert(behind, Kind { name: TEXT, source: Source::Text });
    kinds
}

/// Cells of a column that is being filled.
enum Cells {
    Flag(BooleanBuilder),
    U8(PrimitiveBuilder<UInt8Type>),
    I32(PrimitiveBuilder<Int32Type>),
    U32(PrimitiveBuilder<UInt32Type>),
    U64(PrimitiveBuilder<UInt64Type>),
    /// Places in the dictionary.
    Names(PrimitiveBuilder<Int8Type>, ArrayRef),
    Text(StringBuilder),
}

impl Cells {
    fn new(source: Source, rows: usize) -> Cells {
        let width = match source {
            Source::Always(at) => ALWAYS[at].1,
            Source::Some(at) => SOME[at].1,
            Source::Text => return Cells::Text(StringBuilder::new()),
            Source::Name => {
                let names = StringArray::from(EventKind::NAMES.to_vec());
                return Cells::Names(PrimitiveBuilder::with_capacity(rows), Arc::new(names));
            }
        };
        match width {
            Width::Flag => Cells::Flag(BooleanBuilder::with_capacity(rows)),
            Width::U8 => Cells::U8(PrimitiveBuilder::with_capacity(rows)),
            Width::I32 => Cells::I32(PrimitiveBuilder::with_capacity(rows)),
            Width::U32 => Cells::U32(PrimitiveBuilder::with_capacity(rows)),
            Width::U64 => Cells::U64(PrimitiveBuilder::with_capacity(rows)),
        }
    }

    fn data_type(&self) -> DataType {
        match self {
            Cells::Flag(_) => DataType::Boolean,
            Cells::U8(_) => DataType::UInt8,
            Cells::I32(_) => DataType::Int32,
            Cells::U32(_) => DataType::UInt32,
            Cells::U64(_) => DataType::UInt64,
            Cells::Names(..) => {
                DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8))
            }
            Cells::Text(_) => DataType::Utf8,
        }
    }

    /// A number as the bits of 64, of which the column keeps its width.
    fn push(&mut self, bits: Option<u64>) {
        match self {
            Cells::Flag(cells) => cells.append_option(bits.map(|bits| bits != 0)),
            Cells::U8(cells) => cells.append_option(bits.map(|bits| bits as u8)),
            Cells::I32(cells) => cells.append_option(bits.map(|bits| bits as i32)),
            Cells::U32(cells) => cells.append_option(bits.map(|bits| bits as u32)),
            Cells::U64(cells) => cells.append_option(bits),
            Cells::Names(cells, _) => cells.append_option(bits.map(|bits| bits as i8)),
            Cells::Text(cells) => cells.append_null(),
        }
    }

    fn push_text(&mut self, text: Option<&str>) {
        match self {
            Cells::Text(cells) => cells.append_option(text),
            numbers => numbers.push(None),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Cells::Flag(cells) => Arc::new(cells.finish()),
            Cells::U8(cells) => Arc::new(cells.finish()),
            Cells::I32(cells) => Arc::new(cells.finish()),
            Cells::U32(cells) => Arc::new(cells.finish()),
            Cells::U64(cells) => Arc::new(cells.finish()),
            Cells::Names(cells, names) => {
                Arc::new(DictionaryArray::new(cells.finish(), Arc::clone(names)))
            }
            Cells::Text(cells) => Arc::new(cells.finish()),
        }
    }
}

/// Places of columns in [`kinds`] by their names; all without names.
///
/// # Errors
/// A name that is none or is there twice, or no name.
pub fn check_columns(names: Option<Vec<String>>) -> Result<Vec<usize>, Fault> {
    let known: Vec<&str> = kinds().iter().map(|kind| kind.name).collect();
    let Some(names) = names else { return Ok((0..known.len()).collect()) };
    let mut places = Vec::new();
    for name in names {
        let Some(at) = known.iter().position(|known| *known == name) else {
            let what = format!("no column is called '{name}'; there are {}", known.join(", "));
            return Err(Fault::new("ArgumentError", what));
        };
        if places.contains(&at) {
            return Err(Fault::new("ArgumentError", format!("column '{name}' is asked for twice")));
        }
        places.push(at);
    }
    match places.is_empty() {
        true => Err(Fault::new("ArgumentError", "columns is empty; expected a name, or None")),
        false => Ok(places),
    }
}

/// Events that become batches.
pub struct Columns {
    events: Events,
    columns: Vec<(Source, Cells)>,
    schema: SchemaRef,
    batch_rows: usize,
}

impl fmt::Debug for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Columns").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl Columns {
    /// The columns at these places of [`kinds`], `batch_rows` events at a time.
    pub fn new(
        recording: &Recording,
        places: &[usize],
        batch_rows: usize,
        from_ns: u64,
    ) -> Columns {
        let kinds = kinds();
        let mut fields = Vec::new();
        let mut columns = Vec::new();
        for Kind { name, source } in places.iter().map(|at| kinds[*at]) {
            let cells = Cells::new(source, batch_rows.min(1 << 16));
            let nullable = matches!(source, Source::Some(_) | Source::Text);
            fields.push(Field::new(name, cells.data_type(), nullable));
            columns.push((source, cells));
        }
        Columns {
            events: recording.events_from(from_ns),
            columns,
            schema: Arc::new(Schema::new(fields)),
            batch_rows: batch_rows.max(1),
        }
    }

    /// Names and types.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The next batch; the last may have fewer events.
    ///
    /// # Errors
    /// The events cannot be read; what came before is lost with the batch, and nothing follows.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>, TraceError> {
        let mut rows = 0;
        while rows < self.batch_rows {
            let Some(event) = self.events.next() else { break };
            let event = event?;
            let (always, fields) = (always(&event), Fields::of(&event.kind));
            for (source, cells) in &mut self.columns {
                match source {
                    Source::Always(at) => cells.push(Some(always[*at])),
                    Source::Name => cells.push(Some(event.kind.index() as u64)),
                    Source::Some(at) => cells.push(fields.some[*at]),
                    Source::Text => cells.push_text(fields.text.as_deref()),
                }
            }
            rows += 1;
        }
        if rows == 0 {
            return Ok(None);
        }
        let arrays = self.columns.iter_mut().map(|(_, cells)| cells.finish()).collect();
        let batch = RecordBatch::try_new(self.schema(), arrays);
        Ok(Some(batch.expect("the columns are made from the schema")))
    }
}
