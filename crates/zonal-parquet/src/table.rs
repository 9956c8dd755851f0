//! Tables of text, counts and numbers.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::column::reader::ColumnReader;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use crate::Error;
use crate::events::{Written, properties, whole};
use crate::reader::{batch, guarded};

/// Rows of a row group.
const GROUP: usize = 1 << 16;
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

/// Reads a table with these columns, in any order; others are passed over. Each field is a text
/// again, as it was before.
///
/// # Errors
/// A damaged file, or a column that is missing or of another type.
pub fn read_table(path: &Path, columns: &[(&str, Cell)]) -> Result<Vec<Vec<String>>, Error> {
    guarded(path, || read(path, columns))
}

fn read(path: &Path, columns: &[(&str, Cell)]) -> Result<Vec<Vec<String>>, Error> {
    let file = File::open(path).map_err(Error::io(path))?;
    let reader = SerializedFileReader::new(file).map_err(Error::parquet(path))?;
    let schema = reader.metadata().file_metadata().schema_descr();
    let find = |(name, cell): &(&str, Cell)| {
        let place = schema.columns().iter().position(|column| column.path().string() == *name);
        let missing = || Error::column(path, name, "there is none; expected the table of a sweep");
        place.map(|at| (at, *cell, (*name).to_owned())).ok_or_else(missing)
    };
    let places = columns.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    let mut rows: Vec<Vec<String>> = Vec::new();
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group).map_err(Error::parquet(path))?;
        let begin = rows.len();
        for (number, (at, cell, name)) in places.iter().enumerate() {
            let texts = texts(&*group, *at, *cell).map_err(|error| match error {
                ParquetError::NYI(found) => Error::column(path, name, found),
                other => Error::parquet(path)(other),
            })?;
            if number == 0 {
                rows.extend(texts.into_iter().map(|text| vec![text]));
            } else {
                let pairs = rows[begin..].iter_mut().zip(texts);
                pairs.for_each(|(row, text)| row.push(text));
            }
        }
    }
    Ok(rows)
}

/// A column of a row group as texts. [`ParquetError::NYI`] if it is of another type.
fn texts(group: &dyn RowGroupReader, at: usize, cell: Cell) -> Result<Vec<String>, ParquetError> {
    let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
    let reader = group.get_column_reader(at)?;
    Ok(match (cell, reader) {
        (Cell::Text, ColumnReader::ByteArrayColumnReader(mut reader)) => {
            let mut cells = Vec::new();
            let text = |bytes: &ByteArray| String::from_utf8_lossy(bytes.data()).into_owned();
            batch(&mut reader, rows, &mut cells, text)?;
            cells.into_iter().map(Option::unwrap_or_default).collect()
        }
        (Cell::Count, ColumnReader::Int64ColumnReader(mut reader)) => {
            let mut cells = Vec::new();
            batch(&mut reader, rows, &mut cells, |number| (*number as u64).to_string())?;
            cells.into_iter().map(Option::unwrap_or_default).collect()
        }
        (Cell::Number, ColumnReader::DoubleColumnReader(mut reader)) => {
            let mut cells = Vec::new();
            batch(&mut reader, rows, &mut cells, f64::to_string)?;
            cells.into_iter().map(Option::unwrap_or_default).collect()
        }
        (cell, _) => {
            let expected = match cell {
                Cell::Text => "text",
                Cell::Count => "whole numbers of 64 bits",
                Cell::Number => "double",
            };
            return Err(ParquetError::NYI(format!("another type; expected {expected}")));
        }
    })
}
