//! Where the files of a recording come from: a directory, a single file, or bytes in the program.
//!
//! A recording refers to its files by name only, through [`Source`], so that a bundled sample, a
//! directory and an upload are read by the same code. Files may be compressed with zstd; their
//! first four bytes or their name show it, and modules above this one do not see it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Cursor, ErrorKind, Read, Seek, Take};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use crate::error::{Position, TraceError, TraceErrorKind};
use crate::lines::read_fault;

/// Largest file that describes a machine, in bytes, uncompressed. `/proc/zoneinfo` grows with
/// nodes times CPUs: 16 nodes of 3 zones and 2048 CPUs make about 17 MB.
pub const DESCRIPTION_BYTES_MAX: u64 = 64 << 20;

/// Up to this many bytes, a compressed file that must be read at any place is decompressed into
/// memory, past it into a temporary file.
const SPOOL_MEMORY_BYTES: usize = 16 << 20;

/// Largest such file, uncompressed.
const SPOOL_BYTES_MAX: u64 = 16 << 30;

/// First bytes of a zstd frame (RFC 8878).
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// A place that files can be opened in by name.
pub trait Source: Send + Sync {
    /// What to call the file `name` in a message.
    fn display(&self, name: &str) -> PathBuf;

    /// Opens the file `name` at its beginning; `None` if there is none.
    ///
    /// # Errors
    /// The system's error; a missing file is `Ok(None)`.
    fn open(&self, name: &str) -> io::Result<Option<Box<dyn Read + Send>>>;

    /// Opens the file `name` for reading at any place, where that is possible. Without it the file
    /// is copied: into memory, and past 16 MiB into a temporary file.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    fn open_seekable(&self, name: &str) -> io::Result<Option<Box<dyn Seekable>>> {
        let _ = name;
        Ok(None)
    }
}

/// What can be read at any place.
pub trait Seekable: Read + Seek + Send {}

impl<T: Read + Seek + Send> Seekable for T {}

/// The files of a directory.
#[derive(Debug, Clone)]
pub struct Directory {
    path: PathBuf,
    seen: Seen,
}

impl Directory {
    /// The directory at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Directory { path: path.into(), seen: Seen::default() }
    }
}

impl Source for Directory {
    fn display(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn open(&self, name: &str) -> io::Result<Option<Box<dyn Read + Send>>> {
        self.seen.reader(&self.path.join(name))
    }

    fn open_seekable(&self, name: &str) -> io::Result<Option<Box<dyn Seekable>>> {
        self.seen.seekable(&self.path.join(name))
    }
}

/// One file, without its neighbours.
#[derive(Debug, Clone)]
pub(crate) struct SingleFile {
    path: PathBuf,
    name: String,
    seen: Seen,
}

impl SingleFile {
    pub(crate) fn new(path: &Path) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        SingleFile { path: path.to_owned(), name, seen: Seen::default() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl Source for SingleFile {
    fn display(&self, name: &str) -> PathBuf {
        if name == self.name { self.path.clone() } else { self.path.with_file_name(name) }
    }

    fn open(&self, name: &str) -> io::Result<Option<Box<dyn Read + Send>>> {
        match name == self.name {
            true => self.seen.reader(&self.path),
            false => Ok(None),
        }
    }

    fn open_seekable(&self, _name: &str) -> io::Result<Option<Box<dyn Seekable>>> {
        self.seen.seekable(&self.path)
    }
}

/// What each file was when it was first opened. A recording is read several times over, and what
/// one reading learnt must hold in the next: a file that was written to or replaced meanwhile is
/// refused, and of one that grows no more is read than there was.
#[derive(Debug, Clone, Default)]
struct Seen(Arc<Mutex<BTreeMap<PathBuf, Identity>>>);

/// By what a file is known again.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Identity {
    bytes: u64,
    modified: Option<SystemTime>,
    number: u64,
}

impl Identity {
    /// `None` for a pipe and the like, and for files of the kernel, which have no size.
    fn of(file: &File) -> io::Result<Option<Identity>> {
        let metadata = file.metadata()?;
        #[cfg(unix)]
        let number = std::os::unix::fs::MetadataExt::ino(&metadata);
        #[cfg(not(unix))]
        let number = 0;
        let identity =
            Identity { bytes: metadata.len(), modified: metadata.modified().ok(), number };
        Ok(Some(identity).filter(|own| metadata.is_file() && own.bytes > 0))
    }
}

impl Seen {
    fn reader(&self, path: &Path) -> io::Result<Option<Box<dyn Read + Send>>> {
        Ok(self.open(path)?.map(|file| Box::new(file) as Box<dyn Read + Send>))
    }

    fn seekable(&self, path: &Path) -> io::Result<Option<Box<dyn Seekable>>> {
        Ok(self.open(path)?.map(|file| Box::new(file.into_inner()) as Box<dyn Seekable>))
    }

    /// Opens a file; `None` if there is none.
    fn open(&self, path: &Path) -> io::Result<Option<Take<File>>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let Some(identity) = Identity::of(&file)? else { return Ok(Some(file.take(u64::MAX))) };
        let bytes = identity.bytes;
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match *seen.entry(path.to_owned()).or_insert_with(|| identity.clone()) == identity {
            true => Ok(Some(file.take(bytes))),
            false => Err(io::Error::other(
                "it was written to or replaced while it was read; read it again when it is whole",
            )),
        }
    }
}

/// One file that is held in memory.
#[derive(Debug, Clone)]
pub struct Part {
    name: String,
    bytes: Bytes,
}

#[derive(Debug, Clone)]
enum Bytes {
    Static(&'static [u8]),
    Shared(Arc<[u8]>),
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        match self {
            Bytes::Static(bytes) => bytes,
            Bytes::Shared(bytes) => bytes,
        }
    }
}

impl Part {
    /// A file called `name`, such as `events.txt.zst`, with this content. Borrowed bytes that live
    /// as long as the program are not copied.
    pub fn new(name: impl Into<String>, bytes: impl Into<Cow<'static, [u8]>>) -> Self {
        let bytes = match bytes.into() {
            Cow::Borrowed(bytes) => Bytes::Static(bytes),
            Cow::Owned(bytes) => Bytes::Shared(bytes.into()),
        };
        Part { name: name.into(), bytes }
    }
}

/// Files that are held in memory.
#[derive(Debug, Clone)]
pub struct Parts {
    name: String,
    parts: Vec<Part>,
}

impl Parts {
    /// These files, called `name` together in messages.
    pub fn new(name: impl Into<String>, parts: Vec<Part>) -> Self {
        Parts { name: name.into(), parts }
    }
}

impl Source for Parts {
    fn display(&self, name: &str) -> PathBuf {
        Path::new(&self.name).join(name)
    }

    fn open(&self, name: &str) -> io::Result<Option<Box<dyn Read + Send>>> {
        let part = self.parts.iter().find(|part| part.name == name);
        Ok(part.map(|part| Box::new(Cursor::new(part.bytes.clone())) as Box<dyn Read + Send>))
    }

    fn open_seekable(&self, name: &str) -> io::Result<Option<Box<dyn Seekable>>> {
        let part = self.parts.iter().find(|part| part.name == name);
        Ok(part.map(|part| Box::new(Cursor::new(part.bytes.clone())) as Box<dyn Seekable>))
    }
}

/// Opens `name` and decompresses it if it is compressed. `None` if there is no such file.
pub(crate) fn open_stream(
    source: &dyn Source,
    name: &str,
) -> Result<Option<Box<dyn Read + Send>>, TraceError> {
    let fail = |kind| TraceError::new(source.display(name), Position::File, kind);
    let io_error = |action| move |source: io::Error| fail(TraceErrorKind::Io { action, source });
    let Some(mut input) = source.open(name).map_err(io_error("open"))? else {
        return Ok(None);
    };
    let mut magic = [0; ZSTD_MAGIC.len()];
    let length = read_start(&mut *input, &mut magic).map_err(io_error("read"))?;
    let whole = Cursor::new(magic).take(length as u64).chain(input);
    if length == 0 {
        return Err(fail(TraceErrorKind::Empty { expected: "a recording's file" }));
    }
    if magic != ZSTD_MAGIC && !name.ends_with(".zst") {
        return Ok(Some(Box::new(whole)));
    }
    let decoder = zstd::stream::read::Decoder::with_buffer(BufReader::new(whole));
    Ok(Some(Box::new(decoder.map_err(io_error("decompress"))?)))
}

/// Opens `name` for reading at any place; a compressed file is decompressed first.
///
/// # Errors
/// If there is no such file, or if it is larger than [`SPOOL_BYTES_MAX`] uncompressed.
pub(crate) fn open_seekable(
    source: &dyn Source,
    name: &str,
) -> Result<Box<dyn Seekable>, TraceError> {
    let fail = |kind| TraceError::new(source.display(name), Position::File, kind);
    let io_error = |action| move |source: io::Error| fail(TraceErrorKind::Io { action, source });
    if let Some(mut input) = source.open_seekable(name).map_err(io_error("open"))? {
        let mut magic = [0; ZSTD_MAGIC.len()];
        read_start(&mut *input, &mut magic).map_err(io_error("read"))?;
        if magic != ZSTD_MAGIC {
            input.rewind().map_err(io_error("seek in"))?;
            return Ok(input);
        }
    }
    let Some(input) = open_stream(source, name)? else {
        return Err(fail(TraceErrorKind::Missing { expected: "a trace file".to_owned() }));
    };
    let mut spool = tempfile::spooled_tempfile(SPOOL_MEMORY_BYTES);
    let copied = io::copy(&mut input.take(SPOOL_BYTES_MAX + 1), &mut spool);
    if copied.map_err(|error| fail(read_fault(error)))? > SPOOL_BYTES_MAX {
        return Err(fail(TraceErrorKind::TooLarge { limit: SPOOL_BYTES_MAX }));
    }
    spool.rewind().map_err(io_error("seek in"))?;
    Ok(Box::new(spool))
}

/// Reads the whole of a file, if there is one; at most [`DESCRIPTION_BYTES_MAX`].
pub(crate) fn read_bytes(source: &dyn Source, name: &str) -> Result<Option<Vec<u8>>, TraceError> {
    let Some(input) = open_stream(source, name)? else {
        return Ok(None);
    };
    let fail = |kind| TraceError::new(source.display(name), Position::File, kind);
    let mut bytes = Vec::new();
    let read = input.take(DESCRIPTION_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| fail(read_fault(error)))?;
    if bytes.len() as u64 > DESCRIPTION_BYTES_MAX {
        return Err(fail(TraceErrorKind::TooLarge { limit: DESCRIPTION_BYTES_MAX }));
    }
    Ok(Some(bytes))
}

/// Reads the whole of a file that describes a machine, as text.
pub(crate) fn read_text(source: &dyn Source, name: &str) -> Result<Option<String>, TraceError> {
    let Some(bytes) = read_bytes(source, name)? else {
        return Ok(None);
    };
    let fail = |kind| TraceError::new(source.display(name), Position::File, kind);
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(error) => {
            let column = error.utf8_error().valid_up_to();
            let found = crate::error::excerpt(&error.as_bytes()[column..]);
            Err(fail(TraceErrorKind::NotUtf8 { column, found }))
        }
    }
}

/// Fills `start` as far as the stream goes.
fn read_start(input: &mut dyn Read, start: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < start.len() {
        match input.read(&mut start[length..]) {
            Ok(0) => break,
            Ok(bytes) => length += bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(name: &str, bytes: &[u8]) -> Parts {
        Parts::new("parts", vec![Part::new(name, bytes.to_vec())])
    }

    #[test]
    fn plain_and_compressed_files_read_the_same() {
        let packed = zstd::encode_all(&b"hello\n"[..], 1).unwrap();
        for (name, bytes) in [("a", &b"hello\n"[..]), ("a", &packed), ("a.zst", &packed)] {
            let text = read_text(&source(name, bytes), name).unwrap().unwrap();
            assert_eq!(text, "hello\n");
        }
        assert!(read_text(&source("a", b"x"), "b").unwrap().is_none());
    }

    #[test]
    fn a_file_that_changes_between_two_readings_is_refused_and_one_that_grows_is_cut() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.txt");
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        let later = SystemTime::now() + std::time::Duration::from_secs(60);
        for is_single in [true, false] {
            write("one\n");
            let source: Box<dyn Source> = match is_single {
                true => Box::new(SingleFile::new(&path)),
                false => Box::new(Directory::new(place.path())),
            };
            let mut reading = source.open("a.txt").unwrap().unwrap();
            assert_eq!(read_text(&*source, "a.txt").unwrap().unwrap(), "one\n", "again");
            // As a recorder does that is still at work.
            write("one\ntwo\n");
            let mut text = String::new();
            reading.read_to_string(&mut text).unwrap();
            assert_eq!(text, "one\n");
            let error = read_text(&*source, "a.txt").unwrap_err().to_string();
            assert!(error.contains("a.txt") && error.contains("while it was read"), "{error}");
            // Of the same length, by another program.
            write("two\n");
            File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
            assert!(source.open_seekable("a.txt").is_err());
        }
    }

    #[test]
    fn short_files_are_read_whole() {
        assert_eq!(read_text(&source("a", b"x\n"), "a").unwrap().unwrap(), "x\n");
    }

    #[test]
    fn each_damage_has_its_kind() {
        let packed = zstd::encode_all(&b"hello\n".repeat(100)[..], 1).unwrap();
        let kind = |name: &str, bytes: &[u8]| {
            let error = read_text(&source(name, bytes), name).unwrap_err();
            assert_eq!(error.file(), Path::new("parts").join(name));
            format!("{:?}", error.kind())
        };
        assert!(kind("a.zst", &packed[..packed.len() - 3]).starts_with("CompressionCutShort"));
        assert!(kind("a.zst", b"hello\n").starts_with("CompressionDamaged"));
        assert!(kind("a", b"").starts_with("Empty"));
        assert!(kind("a", b"ab\xff").starts_with("NotUtf8 { column: 2"));
    }

    #[test]
    fn a_directory_is_not_a_file() {
        let directory = Directory::new(env!("CARGO_MANIFEST_DIR"));
        let error = read_text(&directory, "src").unwrap_err();
        assert!(matches!(error.kind(), TraceErrorKind::Io { .. }), "{error}");
        assert!(read_text(&directory, "Cargo.toml/x").unwrap().is_none());
    }
}
