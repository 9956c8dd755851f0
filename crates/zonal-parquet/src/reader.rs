//! Parquet to recordings.

use std::fs::{self, File};
use std::io::{BufWriter, Read};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_typed_column_reader};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use zonal_trace::{
    CPUS_MAX, MachineDescription, MachineFiles, Part, Parts, TraceWriter, WriterOptions,
};

use crate::Error;
use crate::columns::{ALWAYS, Cells, EVENT, SOME, TEXT, Width, bits, event};
use crate::events::{BYTES_KEY, FILE_KEY, Written, whole};

/// Rows that are held at once.
const BATCH: usize = 1 << 15;
/// First bytes of a Parquet file.
const MAGIC: &[u8; 4] = b"PAR1";

/// Whether a file begins as a Parquet file does.
pub fn is_parquet(path: &Path) -> bool {
    let mut magic = [0; MAGIC.len()];
    // Before it is opened: a pipe would be waited for.
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file())
        && File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok()
        && magic == *MAGIC
}

/// Writes the events of a Parquet file as a `.zonal` file, with the machine's files if the footer
/// has them. Other programs may have written it: columns may be missing but `time_ns`, `cpu`, `pid`
/// and `event`, and lie in any order. `progress` gets the number of events so far, and stops the
/// work by `Break`.
///
/// # Errors
/// A damaged file, a column of another type, a row that is no event, times that go backwards, or an
/// output that is the input; or [`Error::Stopped`].
pub fn read_events(
    path: &Path,
    output: &Path,
    level: i32,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Written, Error> {
    guarded(path, || read(path, output, level, progress))
}

/// The library that decodes Parquet panics on some damaged files: that is the file's fault here,
/// told as an error. A panic's own line on stderr stays.
pub(crate) fn guarded<T>(path: &Path, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    // What the work had made is dropped with it, the unfinished output too.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        let what = "damaged: the decoder gave up".into();
        Err(Error::Parquet { path: path.to_owned(), what })
    })
}

fn read(
    path: &Path,
    output: &Path,
    level: i32,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Written, Error> {
    let file = File::open(path).map_err(Error::io(path))?;
    if let (Ok(input), Ok(output)) = (fs::canonicalize(path), fs::canonicalize(output))
        && input == output
    {
        return Err(Error::Overwrites(output));
    }
    let reader = SerializedFileReader::new(file).map_err(Error::parquet(path))?;
    let files = machine_files(&reader);
    let parts = files.iter().map(|(name, content)| Part::new(name, content.to_vec()));
    let name = files.get("name").map(|name| String::from_utf8_lossy(name).trim().to_owned());
    let name = name.unwrap_or_else(|| stem(path));
    let parts = Parts::new(path.to_string_lossy(), parts.collect());
    let machine = MachineDescription::read(&parts, &name)?;
    let columns = Columns::find(path, &reader)?;
    whole(output, |file, aside| {
        let fail = Error::io(aside);
        let options = WriterOptions { level, ..WriterOptions::default() };
        let writer = TraceWriter::new(BufWriter::new(file), &machine, &files, options);
        let mut writer = writer.map_err(&fail)?;
        let (mut rows, mut counted, mut latest) = (0, 0, 0);
        for group in 0..reader.num_row_groups() {
            let group = reader.get_row_group(group).map_err(Error::parquet(path))?;
            let mut batch = Batch::open(path, &*group, &columns)?;
            while batch.read(path)? {
                for at in 0..batch.rows {
                    rows += 1;
                    let wrong = |what| Error::Row { path: path.to_owned(), row: rows, what };
                    let event = batch.event(at).map_err(wrong)?;
                    if event.time_ns < latest {
                        return Err(wrong(format!(
                            "time_ns: {}; expected {latest} or later: sort the rows by time_ns",
                            event.time_ns
                        )));
                    }
                    let cpus = machine.cpus.unwrap_or(CPUS_MAX);
                    if event.cpu >= cpus {
                        let what = format!("cpu: {}; expected below {cpus}", event.cpu);
                        return Err(wrong(what));
                    }
                    latest = event.time_ns;
                    counted += u64::from(event.kind.is_counted());
                    writer.push(&event).map_err(&fail)?;
                }
                if progress(rows).is_break() {
                    return Err(Error::Stopped);
                }
            }
        }
        if let Some(what) = machine.miscounted(counted) {
            return Err(Error::Parquet { path: path.to_owned(), what });
        }
        writer.finish().map_err(&fail)?;
        Ok(rows)
    })
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// The machine's files, out of the footer. Names of other kinds are passed over: names become files
/// when a trace is unpacked.
fn machine_files(reader: &dyn FileReader) -> MachineFiles {
    let mut files = MachineFiles::default();
    let pairs = reader.metadata().file_metadata().key_value_metadata();
    for pair in pairs.into_iter().flatten() {
        let plain = |name: &&str| {
            !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0'])
        };
        let Some(value) = &pair.value else { continue };
        if let Some(name) = pair.key.strip_prefix(FILE_KEY).filter(plain) {
            files.set(name, value.clone().into_bytes());
        }
        if let Some(name) = pair.key.strip_prefix(BYTES_KEY).filter(plain)
            && let Ok(bytes) = value.chars().map(u8::try_from).collect::<Result<Vec<u8>, _>>()
        {
            files.set(name, bytes);
        }
    }
    files
}

/// Places of our columns in the file.
struct Columns {
    always: [usize; ALWAYS.len()],
    name: usize,
    some: [Option<usize>; SOME.len()],
    text: Option<usize>,
}

impl Columns {
    fn find(path: &Path, reader: &dyn FileReader) -> Result<Columns, Error> {
        let schema = reader.metadata().file_metadata().schema_descr();
        let find = |name: &str, fits: &[Physical], expected: &str| {
            let at = schema.columns().iter().position(|column| column.path().string() == name);
            let Some(at) = at else { return Ok(None) };
            let column = schema.column(at);
            let (physical, flat) = (column.physical_type(), column.max_rep_level() == 0);
            let plain = is_plain(column.logical_type_ref(), column.converted_type());
            match flat && plain && column.max_def_level() <= 1 && fits.contains(&physical) {
                true => Ok(Some(at)),
                false => {
                    let kind = match (column.logical_type_ref(), column.converted_type()) {
                        (Some(kind), _) if !plain => format!(" as {kind:?}"),
                        (None, kind) if !plain => format!(" as {kind}"),
                        _ => String::new(),
                    };
                    let what = format!("found {physical}{kind}; expected {expected}");
                    Err(Error::column(path, name, what))
                }
            }
        };
        let missing =
            |name: &str| Error::column(path, name, "there is none; expected one in each file");
        let numbers = |(name, width): &(&str, Width)| match width {
            Width::Flag => find(name, &[Physical::BOOLEAN], "booleans"),
            _ => find(name, &[Physical::INT32, Physical::INT64], "whole numbers"),
        };
        let texts = |name| find(name, &[Physical::BYTE_ARRAY], "text");
        let mut columns =
            Columns { always: [0; ALWAYS.len()], name: 0, some: [None; SOME.len()], text: None };
        for (place, known) in columns.always.iter_mut().zip(&ALWAYS) {
            *place = numbers(known)?.ok_or_else(|| missing(known.0))?;
        }
        columns.name = texts(EVENT)?.ok_or_else(|| missing(EVENT))?;
        for (place, known) in columns.some.iter_mut().zip(&SOME) {
            *place = numbers(known)?;
        }
        columns.text = texts(TEXT)?;
        Ok(columns)
    }
}

/// Whether numbers of this type mean themselves: no decimals, and no times but in ns.
fn is_plain(logical: Option<&LogicalType>, converted: ConvertedType) -> bool {
    match logical {
        Some(LogicalType::Timestamp(time)) => time.unit == TimeUnit::NANOS,
        Some(LogicalType::Decimal(_) | LogicalType::Time(_) | LogicalType::Date) => false,
        Some(_) => true,
        // As writers of old say it.
        None => !matches!(
            converted,
            ConvertedType::DECIMAL
                | ConvertedType::DATE
                | ConvertedType::TIME_MILLIS
                | ConvertedType::TIME_MICROS
                | ConvertedType::TIMESTAMP_MILLIS
                | ConvertedType::TIMESTAMP_MICROS
        ),
    }
}

/// Rows of a row group, a batch at a time.
struct Batch {
    always: [Numbers; ALWAYS.len()],
    names: Texts,
    some: [Option<Numbers>; SOME.len()],
    texts: Option<Texts>,
    left: usize,
    rows: usize,
}

impl Batch {
    fn open(path: &Path, group: &dyn RowGroupReader, columns: &Columns) -> Result<Batch, Error> {
        let numbers = |at: usize, width: Width| {
            let reader = group.get_column_reader(at).map_err(Error::parquet(path))?;
            Numbers::new(reader, width).map_err(Error::parquet(path))
        };
        let texts = |at: usize| {
            let reader = group.get_column_reader(at).map_err(Error::parquet(path))?;
            Texts::new(reader).map_err(Error::parquet(path))
        };
        let mut some = [const { None }; SOME.len()];
        for ((place, at), (_, width)) in some.iter_mut().zip(columns.some).zip(SOME) {
            *place = at.map(|at| numbers(at, width)).transpose()?;
        }
        let [time, cpu, pid] = columns.always;
        let rows = group.metadata().num_rows();
        let negative = |_| Error::parquet(path)(ParquetError::General(format!("{rows} rows")));
        Ok(Batch {
            always: [
                numbers(time, ALWAYS[0].1)?,
                numbers(cpu, ALWAYS[1].1)?,
                numbers(pid, ALWAYS[2].1)?,
            ],
            names: texts(columns.name)?,
            some,
            texts: columns.text.map(texts).transpose()?,
            left: usize::try_from(rows).map_err(negative)?,
            rows: 0,
        })
    }

    /// Reads the next rows; false at the end of the group.
    fn read(&mut self, path: &Path) -> Result<bool, Error> {
        self.rows = self.left.min(BATCH);
        self.left -= self.rows;
        let rows = self.rows;
        let numbers = self.always.iter_mut().chain(self.some.iter_mut().flatten());
        for column in numbers {
            column.read(rows).map_err(Error::parquet(path))?;
        }
        for column in [Some(&mut self.names), self.texts.as_mut()].into_iter().flatten() {
            column.read(rows).map_err(Error::parquet(path))?;
        }
        Ok(rows > 0)
    }

    fn event(&self, at: usize) -> Result<zonal_trace::Event, String> {
        let mut always = [0; ALWAYS.len()];
        for ((value, column), (name, _)) in always.iter_mut().zip(&self.always).zip(ALWAYS) {
            *value = column.cells[at].ok_or_else(|| format!("{name}: nothing"))?;
        }
        let mut cells = Cells::default();
        for (cell, column) in cells.some.iter_mut().zip(&self.some) {
            *cell = column.as_ref().and_then(|column| column.cells[at]);
        }
        if let Some(texts) = &self.texts {
            cells.text = texts.get(at)?.map(Into::into);
        }
        let name = self.names.get(at)?.ok_or("event: nothing; expected a name")?;
        event(always, name, &cells)
    }
}

/// A column of numbers.
struct Numbers {
    reader: Reader,
    width: Width,
    cells: Vec<Option<u64>>,
}

enum Reader {
    Bool(ColumnReaderImpl<BoolType>),
    Int32(ColumnReaderImpl<Int32Type>),
    Int64(ColumnReaderImpl<Int64Type>),
}

impl Numbers {
    fn new(reader: ColumnReader, width: Width) -> Result<Numbers, ParquetError> {
        let reader = match reader {
            ColumnReader::BoolColumnReader(reader) => Reader::Bool(reader),
            ColumnReader::Int32ColumnReader(reader) => Reader::Int32(reader),
            ColumnReader::Int64ColumnReader(reader) => Reader::Int64(reader),
            _ => return Err(ParquetError::General("a column of another type".into())),
        };
        Ok(Numbers { reader, width, cells: Vec::new() })
    }

    fn read(&mut self, rows: usize) -> Result<(), ParquetError> {
        self.cells.clear();
        let cells = &mut self.cells;
        match &mut self.reader {
            Reader::Bool(reader) => batch(reader, rows, cells, |value| u64::from(*value)),
            Reader::Int32(reader) if self.width == Width::I32 => {
                batch(reader, rows, cells, |value| bits(*value))
            }
            // Bits, as they were written: the other columns have no sign.
            Reader::Int32(reader) => batch(reader, rows, cells, |value| u64::from(*value as u32)),
            Reader::Int64(reader) => batch(reader, rows, cells, |value| *value as u64),
        }
    }
}

/// A column of texts.
struct Texts {
    reader: ColumnReaderImpl<ByteArrayType>,
    cells: Vec<Option<ByteArray>>,
}

impl Texts {
    fn new(reader: ColumnReader) -> Result<Texts, ParquetError> {
        match reader {
            reader @ ColumnReader::ByteArrayColumnReader(_) => {
                Ok(Texts { reader: get_typed_column_reader(reader), cells: Vec::new() })
            }
            _ => Err(ParquetError::General("a column of another type".into())),
        }
    }

    fn read(&mut self, rows: usize) -> Result<(), ParquetError> {
        self.cells.clear();
        batch(&mut self.reader, rows, &mut self.cells, Clone::clone)
    }

    fn get(&self, at: usize) -> Result<Option<&str>, String> {
        let text = self.cells[at].as_ref().map(|text| std::str::from_utf8(text.data()));
        text.transpose().map_err(|_| "text that is not UTF-8".into())
    }
}

/// Reads exactly so many rows of a column.
pub(crate) fn batch<T: DataType, C>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    cells: &mut Vec<Option<C>>,
    of: impl Fn(&T::T) -> C,
) -> Result<(), ParquetError> {
    while cells.len() < rows {
        let (mut levels, mut values) = (Vec::new(), Vec::new());
        let (read, ..) =
            reader.read_records(rows - cells.len(), Some(&mut levels), None, &mut values)?;
        if read == 0 {
            return Err(ParquetError::General("a column has fewer rows than its group".into()));
        }
        let mut values = values.iter().map(&of);
        match levels.is_empty() {
            true => cells.extend(values.map(Some)),
            false => cells
                .extend(levels.iter().map(|level| if *level > 0 { values.next() } else { None })),
        }
    }
    Ok(())
}
