//! Numbers and pieces of a file, read at offsets, within limits.
//!
//! - **DAT-1** no piece is read that is longer than its limit or than what the file still has

use std::io::{BufReader, Cursor, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use crate::bytes::{Damage, Endian};
use crate::error::{Position, TraceError, TraceErrorKind, excerpt};
use crate::lines::read_fault;
use crate::source::Seekable;

/// A file, or a part of one that is in memory.
pub(super) struct FileReader {
    input: BufReader<Box<dyn Seekable>>,
    /// Offset in the file of the input's first byte.
    base: u64,
    position: u64,
    length: u64,
    endian: Endian,
}

impl FileReader {
    /// The whole of a file.
    pub(super) fn new(mut input: Box<dyn Seekable>, file: &Path) -> Result<Self, TraceError> {
        let length = input.seek(SeekFrom::End(0)).and_then(|end| input.rewind().map(|()| end));
        let length = length.map_err(|source| {
            let kind = TraceErrorKind::Io { action: "seek in", source };
            TraceError::new(file, Position::File, kind)
        })?;
        let input = BufReader::new(input);
        Ok(FileReader { input, base: 0, position: 0, length, endian: Endian::Little })
    }

    /// A part that is in memory, and whose first byte lies at `base` of the file.
    pub(super) fn of_part(part: Vec<u8>, base: u64, endian: Endian) -> Self {
        let length = part.len() as u64;
        let input = BufReader::new(Box::new(Cursor::new(part)) as Box<dyn Seekable>);
        FileReader { input, base, position: 0, length, endian }
    }

    pub(super) fn set_endian(&mut self, endian: Endian) {
        self.endian = endian;
    }

    pub(super) fn endian(&self) -> Endian {
        self.endian
    }

    /// Offset in the file of the next byte.
    pub(super) fn offset(&self) -> u64 {
        self.base + self.position
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.position >= self.length
    }

    /// Goes on at this offset of the file.
    pub(super) fn seek(&mut self, offset: u64, what: &'static str) -> Result<(), Damage> {
        if offset >= self.length {
            let expected = "an offset inside the file";
            return Err(Damage::bad(self.offset(), what, expected, offset));
        }
        let sought = self.input.seek(SeekFrom::Start(offset));
        sought.map_err(|error| self.fault(error))?;
        self.position = offset;
        Ok(())
    }

    /// The next `length` bytes.
    pub(super) fn piece(
        &mut self,
        length: u64,
        limit: u64,
        what: &'static str,
    ) -> Result<Vec<u8>, Damage> {
        if length > limit {
            let kind = TraceErrorKind::TooLarge { limit };
            return Err(Damage::new(self.offset(), Box::new(kind)));
        }
        if length > self.length - self.position.min(self.length) {
            let expected = format!("{length} bytes of {what}");
            return Err(Damage::cut_short(self.offset(), &expected));
        }
        let mut piece = vec![0; length as usize];
        self.fill(&mut piece, what)?;
        Ok(piece)
    }

    /// Passes over `length` bytes.
    pub(super) fn skip(&mut self, length: u64, what: &'static str) -> Result<(), Damage> {
        if length > self.length - self.position.min(self.length) {
            let expected = format!("{length} bytes of {what}");
            return Err(Damage::cut_short(self.offset(), &expected));
        }
        let sought = self.input.seek_relative(length as i64);
        sought.map_err(|error| self.fault(error))?;
        self.position += length;
        Ok(())
    }

    /// Bytes up to a zero byte, which is taken too, at most `limit` of them.
    pub(super) fn string(&mut self, limit: usize, what: &'static str) -> Result<Vec<u8>, Damage> {
        let mut string = Vec::new();
        let offset = self.offset();
        loop {
            match self.u8(what)? {
                0 => return Ok(string),
                byte => string.push(byte),
            }
            if string.len() > limit {
                return Err(Damage::bad(offset, what, "a short string", excerpt(&string)));
            }
        }
    }

    /// Takes `expected`, which has to be there.
    pub(super) fn literal(
        &mut self,
        expected: &'static [u8],
        field: &'static str,
        shown: &'static str,
    ) -> Result<(), Damage> {
        let offset = self.offset();
        let found = self.piece(expected.len() as u64, u64::MAX, field)?;
        match found == expected {
            true => Ok(()),
            false => Err(Damage::bad(offset, field, shown, excerpt(&found))),
        }
    }

    pub(super) fn u8(&mut self, what: &'static str) -> Result<u8, Damage> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self, what: &'static str) -> Result<u16, Damage> {
        self.array(what).map(|bytes| self.endian.u16(bytes))
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, Damage> {
        self.array(what).map(|bytes| self.endian.u32(bytes))
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64, Damage> {
        self.array(what).map(|bytes| self.endian.u64(bytes))
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Damage> {
        let mut array = [0; N];
        self.fill(&mut array, what)?;
        Ok(array)
    }

    fn fill(&mut self, bytes: &mut [u8], what: &'static str) -> Result<(), Damage> {
        match self.input.read_exact(bytes) {
            Ok(()) => {
                self.position += bytes.len() as u64;
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                Err(Damage::cut_short(self.offset(), what))
            }
            Err(error) => Err(self.fault(error)),
        }
    }

    fn fault(&self, error: std::io::Error) -> Damage {
        Damage::new(self.offset(), Box::new(read_fault(error)))
    }
}
