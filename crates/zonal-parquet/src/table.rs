//! Tables of text, counts and numbers.

use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use crate::Error;
use crate::events::{Written, properties, whole};
use crate::reader::{batch, guarded};

/// Rows of a row group.
const GROUP: usize = 1 << 16;
/// Rows that are held at once when a table is read.
const BATCH: usize = 1 << 10;
/// Most bytes of a text: a damaged file does not fill the memory.
const TEXT_MAX: usize = 1 << 20;
/// Level of compression.
const LEVEL: i32 = 9;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Text.
    Text,
    /// A whole number, or nothing where its text is empty.
    Count,
    /// A number.
    Number,
}

/// Writes a table. Each row has a text for each column, which is written as what the column holds.
///
/// # Errors
/// A text that is not what its column holds, or a file that cannot be written.
pub fn write_table<R: AsRef<[String]>>(
    path: &Path,
    columns: &[(&str, Cell)],
    rows: impl IntoIterator<Item = R>,
) -> Result<Written, Error> {
    let fields: String = columns
        .iter()
        .map(|(name, cell)| match cell {
            Cell::Text => format!("required binary {name} (STRING);"),
            Cell::Count => format!("optional int64 {name} (INTEGER(64,true));"),
            Cell::Number => format!("required double {name};"),
        })
        .collect();
    let fail = Error::parquet(path);
    let schema = parse_message_type(&format!("message rows {{ {fields} }}")).map_err(&fail)?;
    whole(path, |file, _| {
        let properties = Arc::new(properties(LEVEL).build());
        let writer = SerializedFileWriter::new(file, Arc::new(schema), properties);
        let mut writer = writer.map_err(&fail)?;
        let mut held: Vec<Vec<String>> = vec![Vec::new(); columns.len()];
        let mut count = 0;
        for row in rows {
            count += 1;
            for (column, field) in held.iter_mut().zip(row.as_ref()) {
                column.push(field.clone());
            }
            if count % GROUP as u64 == 0 {
                write_group(writer.next_row_group().map_err(&fail)?, path, columns, &mut held)?;
            }
        }
        write_group(writer.next_row_group().map_err(&fail)?, path, columns, &mut held)?;
        writer.close().map_err(&fail)?;
        Ok(count)
    })
}

fn write_group(
    mut group: SerializedRowGroupWriter<'_, File>,
    path: &Path,
    columns: &[(&str, Cell)],
    held: &mut [Vec<String>],
) -> Result<(), Error> {
    let fail = Error::parquet(path);
    for ((name, cell), texts) in columns.iter().zip(held) {
        let wrong = |text: &String| Error::column(path, name, format!("'{text}' is no number"));
        let Some(mut column) = group.next_column().map_err(&fail)? else { break };
        let written = match cell {
            Cell::Text => {
                let values: Vec<ByteArray> =
                    texts.drain(..).map(|text| text.into_bytes().into()).collect();
                column.typed::<ByteArrayType>().write_batch(&values, None, None)
            }
            Cell::Count => {
                let levels: Vec<i16> = texts.iter().map(|text| (!text.is_empty()).into()).collect();
                let values: Result<Vec<i64>, Error> = texts
                    .drain(..)
                    .filter(|text| !text.is_empty())
                    // A seed has 64 bits: those of a number with a sign.
                    .map(|text| text.parse::<u64>().map(|n| n as i64).map_err(|_| wrong(&text)))
                    .collect();
                column.typed::<Int64Type>().write_batch(&values?, Some(&levels), None)
            }
            Cell::Number => {
                let values: Result<Vec<f64>, Error> =
                    texts.drain(..).map(|text| text.parse().map_err(|_| wrong(&text))).collect();
                column.typed::<DoubleType>().write_batch(&values?, None, None)
            }
        };
        written.and_then(|_| column.close()).map_err(&fail)?;
    }
    group.close().map(drop).map_err(&fail)
}

/// What is done with a row: its number, counted from 1, and its fields as texts.
pub type Take<'a> = dyn FnMut(u64, &[String]) -> Result<(), Error> + 'a;

/// Reads a table with these columns, in any order; others are passed over. `take` gets each row
/// with its number, counted from 1, and each field as the text that it was before; rows that are
/// equal to the one before are not told again. `progress` gets the number of rows so far, and stops
/// the work by `Break`. What is held at once does not grow with the file.
///
/// # Errors
/// A damaged file, a column that is missing or of another type, or what `take` returns; or
/// [`Error::Stopped`].
pub fn read_table(
    path: &Path,
    columns: &[(&str, Cell)],
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    take: &mut Take<'_>,
) -> Result<(), Error> {
    guarded(path, || read(path, columns, progress, take))
}

fn read(
    path: &Path,
    columns: &[(&str, Cell)],
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    take: &mut Take<'_>,
) -> Result<(), Error> {
    let file = File::open(path).map_err(Error::io(path))?;
    let reader = SerializedFileReader::new(file).map_err(Error::parquet(path))?;
    let schema = reader.metadata().file_metadata().schema_descr();
    let find = |(name, cell): &(&str, Cell)| {
        let place = schema.columns().iter().position(|column| column.path().string() == *name);
        let missing = || Error::column(path, name, "there is none; expected the table of a sweep");
        place.map(|at| (at, *cell, (*name).to_owned())).ok_or_else(missing)
    };
    let places = columns.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    let (mut fields, mut number) = (vec![String::new(); places.len()], 0);
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group).map_err(Error::parquet(path))?;
        let mut left = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
        let open = |(at, cell, name): &(usize, Cell, String)| {
            let values = group.get_column_reader(*at).map_err(Error::parquet(path))?;
            Values::of(values, *cell).map_err(|what| Error::column(path, name, what))
        };
        let mut values = places.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        while left > 0 {
            let rows = left.min(BATCH);
            left -= rows;
            for (column, (.., name)) in values.iter_mut().zip(&places) {
                column.read(rows).map_err(Error::parquet(path))?;
                column.check().map_err(|what| Error::column(path, name, what))?;
            }
            for at in 0..rows {
                number += 1;
                if at > 0 && values.iter().all(|column| column.repeats(at)) {
                    continue;
                }
                values.iter().zip(&mut fields).for_each(|(column, field)| column.text(at, field));
                take(number, &fields)?;
            }
            if progress(number).is_break() {
                return Err(Error::Stopped);
            }
        }
    }
    Ok(())
}

/// A column of a row group, of which some rows are held.
enum Values {
    Text(ColumnReaderImpl<ByteArrayType>, Vec<Option<ByteArray>>),
    Count(ColumnReaderImpl<Int64Type>, Vec<Option<i64>>),
    Number(ColumnReaderImpl<DoubleType>, Vec<Option<f64>>),
}

impl Values {
    fn of(reader: ColumnReader, cell: Cell) -> Result<Values, String> {
        let expected = match (cell, reader) {
            (Cell::Text, ColumnReader::ByteArrayColumnReader(reader)) => {
                return Ok(Values::Text(reader, Vec::new()));
            }
            (Cell::Count, ColumnReader::Int64ColumnReader(reader)) => {
                return Ok(Values::Count(reader, Vec::new()));
            }
            (Cell::Number, ColumnReader::DoubleColumnReader(reader)) => {
                return Ok(Values::Number(reader, Vec::new()));
            }
            (Cell::Text, _) => "text",
            (Cell::Count, _) => "whole numbers of 64 bits",
            (Cell::Number, _) => "double",
        };
        Err(format!("another type; expected {expected}"))
    }

    fn read(&mut self, rows: usize) -> Result<(), ParquetError> {
        match self {
            Values::Text(reader, cells) => next(reader, rows, cells),
            Values::Count(reader, cells) => next(reader, rows, cells),
            Values::Number(reader, cells) => next(reader, rows, cells),
        }
    }

    /// Refuses texts that no row has.
    fn check(&self) -> Result<(), String> {
        let Values::Text(_, cells) = self else { return Ok(()) };
        match cells.iter().flatten().map(ByteArray::len).max() {
            Some(most) if most > TEXT_MAX => {
                Err(format!("a text of {most} bytes; expected {TEXT_MAX} at most"))
            }
            _ => Ok(()),
        }
    }

    /// Whether a row has the value of the row before.
    fn repeats(&self, at: usize) -> bool {
        match self {
            Values::Text(_, cells) => cells[at] == cells[at - 1],
            Values::Count(_, cells) => cells[at] == cells[at - 1],
            Values::Number(_, cells) => {
                cells[at].map(f64::to_bits) == cells[at - 1].map(f64::to_bits)
            }
        }
    }

    /// A row's value as text, in place of what `field` had; nothing stays nothing.
    fn text(&self, at: usize, field: &mut String) {
        use std::fmt::Write;
        field.clear();
        // Text takes what is written to it.
        let _ = match self {
            Values::Text(_, cells) => cells[at].as_ref().map_or(Ok(()), |text| {
                field.push_str(&String::from_utf8_lossy(text.data()));
                Ok(())
            }),
            Values::Count(_, cells) => {
                cells[at].map_or(Ok(()), |number| write!(field, "{}", number as u64))
            }
            Values::Number(_, cells) => {
                cells[at].map_or(Ok(()), |number| write!(field, "{number}"))
            }
        };
    }
}

fn next<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    cells: &mut Vec<Option<T::T>>,
) -> Result<(), ParquetError> {
    cells.clear();
    batch(reader, rows, cells, Clone::clone)
}
