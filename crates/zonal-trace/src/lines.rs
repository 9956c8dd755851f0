//! Lines of a stream, without a copy per line and without trust.
//!
//! One buffer of [`BUFFER_BYTES`]; a line is a slice of it. A line that does not end within
//! [`LINE_BYTES_MAX`] is an error, so memory stays bounded for every file: an `mm_page_alloc` of
//! ftrace text with every flag printed is about 600 bytes.
//!
//! ```text
//!    0          start            end         BUFFER_BYTES
//!    ├─ consumed ─┼── unread ─────┼── free ───┤
//! ```
//!
//! - **LINE-1** `start <= end <= BUFFER_BYTES`
//! - **LINE-2** `offset` is the number of bytes of the stream before `start`
//! - **LINE-3** after the unread part is moved to the front there is room, because
//!   `end - start <= LINE_BYTES_MAX < BUFFER_BYTES`
//!
//! The reader says whether a line had its newline. A last line without one is how a file that was
//! cut short shows, because everything that writes traces ends every line.

use std::io::{ErrorKind, Read};
use std::ops::Range;

use crate::error::{Fault, TraceErrorKind};

/// Longest line that is read, in bytes, without its newline.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// Four times the longest line: a read is then always large.
const BUFFER_BYTES: usize = 4 * LINE_BYTES_MAX;

const _: () = assert!(LINE_BYTES_MAX < BUFFER_BYTES);

/// What some editors write before UTF-8 text. It is no part of the first line.
const BYTE_ORDER_MARK: &[u8] = &[0xef, 0xbb, 0xbf];

/// One line of a stream.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    /// The line without its newline.
    pub(crate) bytes: &'a [u8],
    /// Whether there was a newline.
    pub(crate) complete: bool,
}

/// Reads lines from a stream.
pub(crate) struct LineReader {
    input: Box<dyn Read + Send>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    offset: u64,
    lines: u64,
    at_end: bool,
}

impl LineReader {
    pub(crate) fn new(input: Box<dyn Read + Send>) -> Self {
        LineReader {
            input,
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            offset: 0,
            lines: 0,
            at_end: false,
        }
    }

    /// Number of the line that was read last, or that failed, counted from 1.
    pub(crate) fn line_number(&self) -> u64 {
        self.lines
    }

    /// Bytes of the stream read so far: where a read error happened.
    pub(crate) fn byte_offset(&self) -> u64 {
        self.offset + (self.end - self.start) as u64
    }

    /// The next line, or `None` at the end.
    pub(crate) fn next_line(&mut self) -> Result<Option<Line<'_>>, Fault> {
        let found = self.find_line()?;
        Ok(found.map(|(range, complete)| Line { bytes: &self.buffer[range], complete }))
    }

    /// The first bytes of the stream, at most a line's worth, without consuming them.
    pub(crate) fn peek(&mut self) -> Result<&[u8], Fault> {
        while !self.at_end && self.end - self.start < LINE_BYTES_MAX {
            self.fill()?;
        }
        let end = self.end.min(self.start + LINE_BYTES_MAX);
        Ok(&self.buffer[self.start..end])
    }

    fn find_line(&mut self) -> Result<Option<(Range<usize>, bool)>, Fault> {
        let mut scanned = 0;
        loop {
            let unread = &self.buffer[self.start..self.end];
            if let Some(at) = find_newline(&unread[scanned..]) {
                let range = self.start..self.start + scanned + at;
                self.consume(range.len() + 1);
                self.check_length(range.len())?;
                return Ok(Some((range, true)));
            }
            scanned = unread.len();
            if scanned > LINE_BYTES_MAX {
                self.lines += 1;
                return Err(Box::new(TraceErrorKind::LineTooLong { limit: LINE_BYTES_MAX }));
            }
            if self.at_end {
                if scanned == 0 {
                    return Ok(None);
                }
                let range = self.start..self.end;
                self.consume(range.len());
                return Ok(Some((range, false)));
            }
            self.fill()?;
        }
    }

    fn check_length(&self, length: usize) -> Result<(), Fault> {
        if length > LINE_BYTES_MAX {
            return Err(Box::new(TraceErrorKind::LineTooLong { limit: LINE_BYTES_MAX }));
        }
        Ok(())
    }

    fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        self.offset += bytes as u64;
        self.lines += 1;
        debug_assert!(self.start <= self.end);
    }

    /// Reads once more, after moving the unread part to the front.
    fn fill(&mut self) -> Result<(), Fault> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        debug_assert!(self.end < self.buffer.len());
        loop {
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.at_end = true,
                Ok(bytes) => self.end += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(Box::new(read_fault(error))),
            }
            let is_beginning = self.offset == 0 && self.start == 0;
            let bytes = &self.buffer[..self.end];
            let is_part = bytes.len() < BYTE_ORDER_MARK.len() && BYTE_ORDER_MARK.starts_with(bytes);
            if is_beginning && is_part && !self.at_end {
                continue;
            }
            if is_beginning && bytes.starts_with(BYTE_ORDER_MARK) {
                self.start = BYTE_ORDER_MARK.len();
                self.offset = BYTE_ORDER_MARK.len() as u64;
            }
            return Ok(());
        }
    }
}

/// Tells the system's errors from the decompressor's.
pub(crate) fn read_fault(error: std::io::Error) -> TraceErrorKind {
    if error.raw_os_error().is_some() {
        return TraceErrorKind::Io { action: "read", source: error };
    }
    if error.kind() == ErrorKind::UnexpectedEof {
        return TraceErrorKind::CompressionCutShort;
    }
    TraceErrorKind::CompressionDamaged { found: error.to_string() }
}

/// Position of the first newline. Eight bytes at a time, because every byte of a stream passes
/// here; lines are about 45 bytes.
fn find_newline(bytes: &[u8]) -> Option<usize> {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    const NEWLINES: u64 = LOW * b'\n' as u64;
    let (words, tail) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        // A byte of `differs` is zero where the text has a newline; the lowest such byte is exact
        // in the usual zero-byte test, and little-endian order makes it the first.
        let differs = u64::from_le_bytes(*word) ^ NEWLINES;
        let zeros = differs.wrapping_sub(LOW) & !differs & HIGH;
        if zeros != 0 {
            return Some(index * 8 + (zeros.trailing_zeros() / 8) as usize);
        }
    }
    let at = tail.iter().position(|&byte| byte == b'\n')?;
    Some(words.len() * 8 + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(bytes: &[u8]) -> LineReader {
        LineReader::new(Box::new(std::io::Cursor::new(bytes.to_vec())))
    }

    fn all(bytes: &[u8]) -> Vec<(Vec<u8>, bool)> {
        let mut reader = reader(bytes);
        let mut lines = Vec::new();
        while let Some(line) = reader.next_line().unwrap() {
            lines.push((line.bytes.to_vec(), line.complete));
        }
        lines
    }

    #[test]
    fn lines_are_split_and_the_last_says_if_it_ended() {
        assert_eq!(
            all(b"a\n\nbc"),
            [(b"a".to_vec(), true), (vec![], true), (b"bc".to_vec(), false)]
        );
        assert!(all(b"").is_empty());
    }

    #[test]
    fn newline_is_found_wherever_it_is() {
        for length in 0..40 {
            for at in 0..length {
                let mut bytes = vec![b'\x0b'; length];
                bytes[at] = b'\n';
                bytes[length - 1] = b'\n';
                assert_eq!(find_newline(&bytes), Some(at), "length {length}");
            }
            assert_eq!(find_newline(&vec![0x8a; length]), None);
        }
    }

    #[test]
    fn longest_line_is_read_and_one_byte_more_is_refused() {
        let mut bytes = vec![b'x'; LINE_BYTES_MAX];
        assert_eq!(all(&bytes)[0].0.len(), LINE_BYTES_MAX);
        bytes.push(b'\n');
        assert_eq!(all(&bytes)[0].0.len(), LINE_BYTES_MAX);
        for tail in [&b"x\n"[..], b"xx"] {
            let mut long = vec![b'x'; LINE_BYTES_MAX];
            long.extend_from_slice(tail);
            let mut reader = reader(&long);
            let fault = reader.next_line().unwrap_err();
            assert!(matches!(*fault, TraceErrorKind::LineTooLong { .. }));
            assert_eq!(reader.line_number(), 1);
        }
    }

    #[test]
    fn an_endless_line_does_not_eat_memory() {
        let mut reader = LineReader::new(Box::new(std::io::repeat(b'x')));
        assert!(reader.next_line().is_err());
        assert!(reader.byte_offset() <= BUFFER_BYTES as u64);
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_line() {
        /// A byte a read.
        struct Drops(std::io::Cursor<Vec<u8>>);
        impl Read for Drops {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                let one = buffer.len().min(1);
                self.0.read(&mut buffer[..one])
            }
        }
        for (bytes, expected) in [
            (&b"\xef\xbb\xbf# a\nb\n"[..], &b"# a"[..]),
            (b"\xef\xbb\n", b"\xef\xbb"),
            (b"\xef", b"\xef"),
            (b"\xef\xbb\xbf\xef\xbb\xbfx\n", b"\xef\xbb\xbfx"),
        ] {
            let drops = Drops(std::io::Cursor::new(bytes.to_vec()));
            for mut reader in [LineReader::new(Box::new(drops)), reader(bytes)] {
                assert_eq!(reader.next_line().unwrap().unwrap().bytes, expected);
                while reader.next_line().unwrap().is_some() {}
                assert_eq!(reader.byte_offset(), bytes.len() as u64);
            }
        }
    }

    #[test]
    fn lines_cross_the_buffer() {
        let line = [b"y".repeat(999), b"\n".to_vec()].concat();
        let lines = all(&line.repeat(1000));
        assert_eq!(lines.len(), 1000);
        assert!(lines.iter().all(|(bytes, complete)| bytes.len() == 999 && *complete));
    }
}
