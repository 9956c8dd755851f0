//! Errors: the fault, its place, what was expected and what was found.
//!
//! Every error of this crate is a [`TraceError`]: a file, a place in it and a [`TraceErrorKind`].
//! The message always has the same shape, so that a person can act on it without the source:
//!
//! ```text
//! traces/zlib/events.txt.zst: line 17: cpu out of range: expected a cpu below 2, found 9
//! └──────── file ──────────┘  └ place ┘ └─── kind ───┘  └──── expected ────────┘ └ found ┘
//! ```
//!
//! The error is one pointer wide, because it travels in the `Result` of every event and events
//! are read by the million.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// What a line parser returns when it refuses: the kind, to which the reader adds file and line.
pub(crate) type Fault = Box<TraceErrorKind>;

/// Longest piece of a damaged file that a message quotes, in characters.
const EXCERPT_CHARS_MAX: usize = 60;

/// Why a recording, or a file of it, could not be read.
#[derive(Debug)]
pub struct TraceError {
    detail: Box<Detail>,
}

#[derive(Debug)]
struct Detail {
    file: PathBuf,
    position: Position,
    kind: TraceErrorKind,
}

/// Where in a file an error was noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Position {
    /// The file as a whole.
    File,
    /// A line, counted from 1.
    Line(u64),
    /// A byte, counted from 0; of the uncompressed text where the file is compressed.
    Byte(u64),
}

/// The fault in a file, without its place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceErrorKind {
    /// The operating system refused.
    #[error("cannot {action}: {source}")]
    Io {
        /// The action that failed.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// A file that is needed is not there.
    #[error("file is missing: expected {expected}, found none")]
    Missing {
        /// The names that would have done.
        expected: String,
    },
    /// The file has no content at all.
    #[error("file is empty: expected {expected}, found 0 bytes")]
    Empty {
        /// The expected contents.
        expected: &'static str,
    },
    /// The beginning of the file is of no known form.
    #[error(
        "unknown format: expected a compact event stream (`# time_ns…`), text of ftrace \
         (`# tracer: …`), trace-cmd or perf, a trace.dat, perf.data or .zonal file, or cpuN.raw \
         with its formats/; found {found}"
    )]
    UnknownFormat {
        /// The beginning of the file: a line in backquotes, or bytes.
        found: String,
    },
    /// A text of events whose lines lack what is needed, as another option prints it.
    #[error(
        "text lacks {what}: expected `TASK-PID [cpu] flags time: event: fields`, found {found}; \
         {instead}"
    )]
    TextLacks {
        /// What it lacks.
        what: &'static str,
        /// The beginning of the text.
        found: String,
        /// How to get a text that has it.
        instead: &'static str,
    },
    /// The format file of an event lacks a field that its reader needs.
    #[error("format of `{event}` has no field `{field}`: expected a kernel from 4.6 on")]
    NoSuchField {
        /// The event.
        event: String,
        /// The field.
        field: &'static str,
    },
    /// The bytes are of a machine that this reader does not support.
    #[error("file of another architecture: expected {expected}, found {found}")]
    Foreign {
        /// What can be read.
        expected: &'static str,
        /// The kind that the file names.
        found: String,
    },
    /// The text ends in the middle of something.
    #[error("file is cut short: expected {expected}, found {found}")]
    CutShort {
        /// What should have come.
        expected: String,
        /// The last bytes.
        found: String,
    },
    /// The compressed data end before their last frame does.
    #[error("compressed data are cut short: expected the rest of a zstd frame, found the end")]
    CompressionCutShort,
    /// The compressed data are damaged.
    #[error("compressed data are damaged: expected a zstd stream, found: {found}")]
    CompressionDamaged {
        /// The decompressor's error.
        found: String,
    },
    /// Bytes are not those that were written.
    #[error(
        "checksum differs: expected {expected:#010x}, found {found:#010x}: the file is damaged"
    )]
    ChecksumDiffers {
        /// The checksum in the file.
        expected: u32,
        /// The checksum of the data.
        found: u32,
    },
    /// The stream ended cleanly, but with another number of events than promised.
    #[error("event count differs: expected {expected} events ({declared_by}), found {found}")]
    EventCountDiffers {
        /// The number promised.
        expected: u64,
        /// The file that promised it.
        declared_by: &'static str,
        /// The number of events in the stream.
        found: u64,
    },
    /// A line, or a text file, is not UTF-8.
    #[error("not UTF-8: expected text, found `{found}` at byte {column}")]
    NotUtf8 {
        /// Byte in the line, or in the file where the position is a file, counted from 0.
        column: usize,
        /// The text around it.
        found: String,
    },
    /// A line goes on for longer than any line of a trace.
    #[error("line too long: expected at most {limit} bytes, found no end of line in them")]
    LineTooLong {
        /// The limit, in bytes.
        limit: usize,
    },
    /// A file that describes the machine is larger than any such file.
    #[error("file too large: expected at most {limit} bytes, found more")]
    TooLarge {
        /// The limit, in bytes.
        limit: u64,
    },
    /// An event lacks fields.
    #[error(
        "too few fields in `{event}`: expected {expected} fields, found {found}; `{missing}` \
         is missing"
    )]
    TooFewFields {
        /// The event, or `event` where the line ends before its name.
        event: &'static str,
        /// The first field that is missing.
        missing: &'static str,
        /// How many fields such an event has.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// An event has fields after its last.
    #[error("too many fields in `{event}`: expected {expected} fields, found more: `{found}`")]
    TooManyFields {
        /// The event.
        event: &'static str,
        /// How many fields such an event has.
        expected: usize,
        /// What follows them.
        found: String,
    },
    /// A page frame number is not a number in the form's base.
    #[error("page frame number is not hexadecimal: expected hexadecimal digits, found `{found}`")]
    PfnNotHex {
        /// The field.
        found: String,
    },
    /// The order of a block is larger than any block.
    #[error("order out of range: expected an order from 0 to {most}, found {found}")]
    OrderOutOfRange {
        /// The largest order there is, by the size of the machine's pages.
        most: u8,
        /// The order.
        found: u64,
    },
    /// The event happened on a CPU that the machine does not have.
    #[error("cpu out of range: expected a cpu below {cpus}, found {cpu}")]
    CpuOutOfRange {
        /// The CPU of the event.
        cpu: u64,
        /// The machine's CPUs.
        cpus: u32,
    },
    /// An event is earlier than one before it in the file.
    #[error(
        "events are mis-ordered: expected a time of at least {previous_ns} ns \
         (the event before it{}), found {found_ns} ns on cpu {cpu}",
        if *.same_cpu { " on the same cpu" } else { ", on another cpu" }
    )]
    MisOrdered {
        /// The CPU of the late line.
        cpu: u32,
        /// Whether time went back on one CPU, or only between CPUs.
        same_cpu: bool,
        /// The time that was reached before.
        previous_ns: u64,
        /// The time of this line.
        found_ns: u64,
    },
    /// Any other field that cannot be read.
    #[error("bad {field}: expected {expected}, found `{found}`")]
    BadField {
        /// The field's name.
        field: &'static str,
        /// The expected form.
        expected: &'static str,
        /// The form found.
        found: String,
    },
    /// A text of the kernel that describes the machine cannot be read.
    #[error(transparent)]
    Text(#[from] zonal_text::ErrorKind),
    /// `meta.json` is not JSON, or not of the shape of such a file.
    #[error("bad JSON: expected the recorder's description, found: {found}")]
    Json {
        /// The JSON reader's error.
        found: String,
    },
}

impl TraceError {
    /// An error in `file` at `position`.
    pub(crate) fn new(
        file: impl Into<PathBuf>,
        position: Position,
        kind: impl Into<TraceErrorKind>,
    ) -> Self {
        TraceError { detail: Box::new(Detail { file: file.into(), position, kind: kind.into() }) }
    }

    /// The fault.
    pub fn kind(&self) -> &TraceErrorKind {
        &self.detail.kind
    }

    /// The file it is wrong in. For embedded bytes: the name of the recording and of the part.
    pub fn file(&self) -> &Path {
        &self.detail.file
    }

    /// The place in that file.
    pub fn position(&self) -> Position {
        self.detail.position
    }

    /// The line, counted from 1, if the place is a line.
    pub fn line(&self) -> Option<u64> {
        match self.detail.position {
            Position::Line(line) => Some(line),
            _ => None,
        }
    }

    /// The fault in the text of `file`.
    pub(crate) fn in_text(error: zonal_text::Error, file: impl Into<PathBuf>) -> Self {
        TraceError::new(file, Position::Line(error.line()), error.into_kind())
    }

    /// The same error about another file name: parsers of a text do not know where it came from.
    #[must_use]
    pub fn in_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.detail.file = file.into();
        self
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Detail { file, position, kind } = &*self.detail;
        match position {
            Position::File => write!(f, "{}: {kind}", file.display()),
            Position::Line(line) => write!(f, "{}: line {line}: {kind}", file.display()),
            Position::Byte(byte) => write!(f, "{}: byte {byte}: {kind}", file.display()),
        }
    }
}

impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.detail.kind {
            TraceErrorKind::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<Fault> for TraceErrorKind {
    fn from(fault: Fault) -> Self {
        *fault
    }
}

/// A [`TraceErrorKind::BadField`] that quotes `found`.
#[cold]
pub(crate) fn bad_field(field: &'static str, expected: &'static str, found: &[u8]) -> Fault {
    Box::new(TraceErrorKind::BadField { field, expected, found: excerpt(found) })
}

/// The beginning of `bytes`, printable, for a message.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    // Four bytes is the longest UTF-8 sequence, so this cut never hides a character that fits.
    let cut = &bytes[..bytes.len().min(EXCERPT_CHARS_MAX * 4)];
    let text = String::from_utf8_lossy(cut);
    let mut shown: String =
        text.chars().take(EXCERPT_CHARS_MAX).flat_map(char::escape_debug).collect();
    if cut.len() < bytes.len() || text.chars().nth(EXCERPT_CHARS_MAX).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_names_file_line_expected_and_found() {
        let kind = TraceErrorKind::CpuOutOfRange { cpu: 9, cpus: 2 };
        let error = TraceError::new("a/events.txt", Position::Line(17), kind);
        assert_eq!(
            error.to_string(),
            "a/events.txt: line 17: cpu out of range: expected a cpu below 2, found 9"
        );
        assert_eq!(error.line(), Some(17));
    }

    #[test]
    fn error_is_one_pointer_wide() {
        assert_eq!(size_of::<TraceError>(), size_of::<usize>());
    }

    #[test]
    fn excerpt_is_short_and_printable() {
        assert_eq!(excerpt(b"a\0b"), "a\\0b");
        assert_eq!(excerpt(&[b'x'; 1000]).chars().count(), EXCERPT_CHARS_MAX + 1);
        assert_eq!(excerpt(&[0xff, b'y']), "\u{fffd}y");
    }

    #[test]
    fn misordered_says_whether_one_cpu_or_two() {
        let on = |same_cpu| {
            TraceErrorKind::MisOrdered { cpu: 1, same_cpu, previous_ns: 5, found_ns: 4 }.to_string()
        };
        assert!(on(true).contains("the event before it on the same cpu"));
        assert!(on(false).contains("on another cpu"));
    }
}
