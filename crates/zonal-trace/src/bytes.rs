//! Numbers and strings in the bytes of a binary file, of either byte order, with their offsets.
//!
//! - **BYTES-1** nothing is read past the end: each read fails with what it wanted and where
//! - **BYTES-2** a length that a file names is compared with the bytes that are there before
//!   anything is allocated for it

use crate::error::{Fault, TraceErrorKind};

/// The order of the bytes of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endian {
    Little,
    Big,
}

impl Endian {
    pub(crate) fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Endian::Little => u16::from_le_bytes(bytes),
            Endian::Big => u16::from_be_bytes(bytes),
        }
    }

    pub(crate) fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Endian::Little => u32::from_le_bytes(bytes),
            Endian::Big => u32::from_be_bytes(bytes),
        }
    }

    pub(crate) fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Endian::Little => u64::from_le_bytes(bytes),
            Endian::Big => u64::from_be_bytes(bytes),
        }
    }

    /// A number of 1, 2, 4 or 8 bytes, or `None` if `bytes` has another length.
    pub(crate) fn number(self, bytes: &[u8]) -> Option<u64> {
        Some(match *bytes {
            [byte] => u64::from(byte),
            [a, b] => u64::from(self.u16([a, b])),
            [a, b, c, d] => u64::from(self.u32([a, b, c, d])),
            [a, b, c, d, e, f, g, h] => self.u64([a, b, c, d, e, f, g, h]),
            _ => return None,
        })
    }
}

/// The fault, and its byte in the file.
#[derive(Debug)]
pub(crate) struct Damage {
    pub(crate) offset: u64,
    pub(crate) fault: Fault,
}

impl Damage {
    pub(crate) fn new(offset: u64, fault: Fault) -> Damage {
        Damage { offset, fault }
    }

    /// An invalid field at `offset`.
    #[cold]
    pub(crate) fn bad(
        offset: u64,
        field: &'static str,
        expected: &'static str,
        found: impl ToString,
    ) -> Damage {
        let found = found.to_string();
        Damage::new(offset, Box::new(TraceErrorKind::BadField { field, expected, found }))
    }

    /// The end of the bytes at `offset`, where `expected` should have come.
    #[cold]
    pub(crate) fn cut_short(offset: u64, expected: &str) -> Damage {
        let expected = expected.to_owned();
        let found = "the end".to_owned();
        Damage::new(offset, Box::new(TraceErrorKind::CutShort { expected, found }))
    }
}

/// Reads from bytes that start at byte `base` of a file.
#[derive(Debug, Clone)]
pub(crate) struct ByteReader<'a> {
    bytes: &'a [u8],
    position: usize,
    base: u64,
    endian: Endian,
}

impl<'a> ByteReader<'a> {
    pub(crate) fn new(bytes: &'a [u8], base: u64, endian: Endian) -> Self {
        ByteReader { bytes, position: 0, base, endian }
    }

    /// Offset in the file of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.base + self.position as u64
    }

    /// The next `length` bytes.
    pub(crate) fn take(&mut self, length: u64, what: &'static str) -> Result<&'a [u8], Damage> {
        let rest = &self.bytes[self.position..];
        let taken = usize::try_from(length).ok().and_then(|length| rest.get(..length));
        let taken = taken.ok_or_else(|| {
            Damage::cut_short(self.offset(), &format!("{length} bytes of {what}"))
        })?;
        self.position += taken.len();
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Damage> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64, what)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self, what: &'static str) -> Result<u8, Damage> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, Damage> {
        self.array(what).map(|bytes| self.endian.u32(bytes))
    }

    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, Damage> {
        self.array(what).map(|bytes| self.endian.u64(bytes))
    }

    /// The bytes up to the next zero byte, which is taken too.
    pub(crate) fn string(&mut self, what: &'static str) -> Result<&'a [u8], Damage> {
        let rest = &self.bytes[self.position..];
        let Some(length) = rest.iter().position(|&byte| byte == 0) else {
            return Err(Damage::cut_short(self.offset(), &format!("the end of {what}")));
        };
        self.position += length + 1;
        Ok(&rest[..length])
    }

    /// Takes `expected`, which has to be there.
    pub(crate) fn literal(
        &mut self,
        expected: &'static [u8],
        field: &'static str,
        name: &'static str,
    ) -> Result<(), Damage> {
        let offset = self.offset();
        let found = self.take(expected.len() as u64, field)?;
        if found != expected {
            return Err(Damage::bad(offset, field, name, crate::error::excerpt(found)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_both_orders() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(Endian::Little.number(&bytes[..2]), Some(0x201));
        assert_eq!(Endian::Big.number(&bytes[..4]), Some(0x0102_0304));
        assert_eq!(Endian::Big.number(&bytes), Some(0x0102_0304_0506_0708));
        assert_eq!(Endian::Big.number(&bytes[..3]), None);
    }

    #[test]
    fn a_read_past_the_end_names_its_offset() {
        let mut reader = ByteReader::new(&[1, 0, 7], 100, Endian::Little);
        assert_eq!(reader.take(2, "size").unwrap(), [1, 0]);
        let damage = reader.u32("size").unwrap_err();
        assert_eq!(damage.offset, 102);
        assert!(damage.fault.to_string().contains("expected 4 bytes of size, found the end"));
        assert!(reader.take(u64::MAX, "data").is_err());
        assert!(reader.string("name").is_err());
        assert_eq!(reader.u8("byte").unwrap(), 7);
    }
}
