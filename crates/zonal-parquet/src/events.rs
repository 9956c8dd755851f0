//! Recordings to Parquet.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use zonal_trace::{Event, Recording, place};

use crate::Error;
use crate::columns::{ALWAYS, Cells, EVENT, SOME, TEXT, Width, always};

/// Events of a row group.
const GROUP: usize = 1 << 19;
/// Events between two calls of a progress callback.
const TICK: u64 = 1 << 14;
/// Before the name of a file of the machine, as a key of the footer.
pub(crate) const FILE_KEY: &str = "zonal.file.";
/// The same for a file that is no UTF-8, which the footer takes alone: each byte as the character
/// with its number.
pub(crate) const BYTES_KEY: &str = "zonal.bytes.";
/// Names of unfinished files that are tried: more than can be in use.
const PARTS_MAX: u32 = 10_000;
/// Who wrote the file.
const CREATED_BY: &str = concat!("zonal-parquet ", env!("CARGO_PKG_VERSION"));

/// A file that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Rows in it.
    pub rows: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// Where a file is until it is whole: beside its place. If there is something already, another name
/// is taken, which begins as this one.
pub fn part(path: &Path) -> PathBuf {
    let path = place::plain(path).unwrap_or_else(|_| path.to_owned());
    place::part(&path).unwrap_or(path)
}

/// Writes a recording as a Parquet file: zstd of this level (1 to 19), a row group for each 524,288
/// events, with the least and greatest value of each column, and the machine's files as key-value
/// pairs of the footer. `progress` gets the number of events so far, and stops the work by `Break`.
/// The file appears when it is whole.
///
/// # Errors
/// The recording is damaged, is read from `path`, or the file cannot be written; or
/// [`Error::Stopped`].
pub fn write_events(
    recording: &Recording,
    path: &Path,
    level: i32,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Written, Error> {
    if recording.reads_from(path) {
        return Err(Error::Overwrites(path.to_owned()));
    }
    let files = recording.machine_files()?;
    // Kernels write ASCII; a comm may have other bytes.
    let pairs = files.iter().map(|(name, content)| match std::str::from_utf8(content) {
        Ok(text) => KeyValue::new(format!("{FILE_KEY}{name}"), text.to_owned()),
        Err(_) => {
            let text: String = content.iter().copied().map(char::from).collect();
            KeyValue::new(format!("{BYTES_KEY}{name}"), text)
        }
    });
    let properties = properties(level)
        .set_key_value_metadata(Some(pairs.collect()))
        .set_column_encoding("time_ns".into(), Encoding::DELTA_BINARY_PACKED)
        .set_column_dictionary_enabled("time_ns".into(), false)
        .set_column_encoding("pfn".into(), Encoding::DELTA_BINARY_PACKED)
        .set_column_dictionary_enabled("pfn".into(), false)
        .set_sorting_columns(Some(vec![SortingColumn {
            column_idx: 0,
            descending: false,
            nulls_first: false,
        }]))
        .build();
    whole(path, |file, aside| {
        let fail = Error::parquet(aside);
        let schema = parse_message_type(&schema()).map_err(&fail)?;
        let writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties));
        let mut writer = writer.map_err(&fail)?;
        let (mut group, mut rows) = (Group::default(), 0);
        for event in recording.events() {
            group.push(&event?);
            rows += 1;
            if rows % TICK == 0 && progress(rows).is_break() {
                return Err(Error::Stopped);
            }
            if group.rows() == GROUP {
                group.write(writer.next_row_group().map_err(&fail)?).map_err(&fail)?;
            }
        }
        if group.rows() > 0 {
            group.write(writer.next_row_group().map_err(&fail)?).map_err(&fail)?;
        }
        writer.close().map_err(&fail)?;
        Ok(rows)
    })
}

/// What every file of ours has.
pub(crate) fn properties(level: i32) -> parquet::file::properties::WriterPropertiesBuilder {
    let level = ZstdLevel::try_new(level.clamp(1, 19)).unwrap_or_default();
    WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_created_by(CREATED_BY.into())
}

/// Writes a file beside its place, and moves it there when it is whole.
pub(crate) fn whole(
    path: &Path,
    write: impl FnOnce(File, &Path) -> Result<u64, Error>,
) -> Result<Written, Error> {
    let path = &place::plain(path).map_err(Error::io(path))?;
    let (aside, file) = new_part(path)?;
    let _scratch = Scratch(&aside);
    let rows = write(file, &aside)?;
    fs::rename(&aside, path).map_err(Error::io(path))?;
    let bytes = fs::metadata(path).map_err(Error::io(path))?.len();
    Ok(Written { rows, bytes })
}

/// A new file beside the place of this one: neither one that another call is writing, nor what a
/// link leads to.
fn new_part(path: &Path) -> Result<(PathBuf, File), Error> {
    let first = part(path);
    let mut aside = first.clone();
    for number in 1.. {
        match File::create_new(&aside) {
            Ok(file) => return Ok((aside, file)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists && number < PARTS_MAX => {
                aside = first.with_extension(format!("{number}.part"));
            }
            Err(error) => return Err(Error::io(path)(error)),
        }
    }
    unreachable!("the last number ends the loop")
}

/// A file that goes unless it was moved to its place.
struct Scratch<'a>(&'a Path);

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        // Half a file is of no use; that it cannot be removed changes nothing.
        let _ = fs::remove_file(self.0);
    }
}

fn schema() -> String {
    let column = |repetition: &str, (name, width): &(&str, Width)| {
        let kind = match width {
            Width::Flag => return format!("{repetition} boolean {name};"),
            Width::U8 => ("int32", "8,false"),
            Width::I32 => ("int32", "32,true"),
            Width::U32 => ("int32", "32,false"),
            Width::U64 => ("int64", "64,false"),
        };
        format!("{repetition} {} {name} (INTEGER({}));", kind.0, kind.1)
    };
    let always: String = ALWAYS.iter().map(|known| column("required", known)).collect();
    let some: String = SOME.iter().map(|known| column("optional", known)).collect();
    format!(
        "message events {{ {always} required binary {EVENT} (STRING); {some} \
         optional binary {TEXT} (STRING); }}"
    )
}

/// Events that become a row group.
#[derive(Default)]
struct Group {
    always: [Vec<u64>; ALWAYS.len()],
    names: Vec<&'static str>,
    some: [Sparse; SOME.len()],
    texts: Vec<ByteArray>,
    text_levels: Vec<i16>,
}

/// A column with gaps.
#[derive(Default)]
struct Sparse {
    values: Vec<u64>,
    /// 1 where there is a value.
    levels: Vec<i16>,
}

impl Group {
    fn rows(&self) -> usize {
        self.names.len()
    }

    fn push(&mut self, event: &Event) {
        for (column, value) in self.always.iter_mut().zip(always(event)) {
            column.push(value);
        }
        self.names.push(event.kind.name());
        let cells = Cells::of(&event.kind);
        for (column, value) in self.some.iter_mut().zip(cells.some) {
            column.levels.push(value.is_some().into());
            column.values.extend(value);
        }
        self.text_levels.push(cells.text.is_some().into());
        self.texts.extend(cells.text.map(|text| ByteArray::from(text.as_bytes().to_vec())));
    }

    /// Writes the group and empties it.
    fn write(
        &mut self,
        mut group: SerializedRowGroupWriter<'_, File>,
    ) -> Result<(), parquet::errors::ParquetError> {
        for ((_, width), column) in ALWAYS.iter().zip(&mut self.always) {
            write_column(&mut group, *width, column, None)?;
            column.clear();
        }
        let names: Vec<ByteArray> = self.names.drain(..).map(ByteArray::from).collect();
        if let Some(mut column) = group.next_column()? {
            column.typed::<ByteArrayType>().write_batch(&names, None, None)?;
            column.close()?;
        }
        for ((_, width), column) in SOME.iter().zip(&mut self.some) {
            write_column(&mut group, *width, &column.values, Some(&column.levels))?;
            column.values.clear();
            column.levels.clear();
        }
        if let Some(mut column) = group.next_column()? {
            let levels = Some(&self.text_levels[..]);
            column.typed::<ByteArrayType>().write_batch(&self.texts, levels, None)?;
            column.close()?;
        }
        self.texts.clear();
        self.text_levels.clear();
        group.close().map(drop)
    }
}

fn write_column(
    group: &mut SerializedRowGroupWriter<'_, File>,
    width: Width,
    values: &[u64],
    levels: Option<&[i16]>,
) -> Result<(), parquet::errors::ParquetError> {
    let Some(mut column) = group.next_column()? else { return Ok(()) };
    match width {
        Width::Flag => {
            let values: Vec<bool> = values.iter().map(|value| *value != 0).collect();
            column.typed::<BoolType>().write_batch(&values, levels, None)?;
        }
        Width::U64 => {
            let values: Vec<i64> = values.iter().map(|value| *value as i64).collect();
            column.typed::<Int64Type>().write_batch(&values, levels, None)?;
        }
        Width::U8 | Width::I32 | Width::U32 => {
            let values: Vec<i32> = values.iter().map(|value| *value as u32 as i32).collect();
            column.typed::<Int32Type>().write_batch(&values, levels, None)?;
        }
    }
    column.close()
}
