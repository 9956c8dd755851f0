//! Numbers of seven bits to a byte, the lowest first; the highest bit says that more follow.

use crate::error::{Fault, TraceErrorKind, bad_field};

pub(super) fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// A signed number, folded: 0, -1, 1, -2, …
pub(super) fn put_signed(bytes: &mut Vec<u8>, value: i64) {
    put_varint(bytes, ((value << 1) ^ (value >> 63)) as u64);
}

/// Reads such numbers.
pub(super) struct Varints<'a> {
    bytes: &'a [u8],
}

impl<'a> Varints<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Varints { bytes }
    }

    pub(super) fn byte(&mut self) -> Result<u8, Fault> {
        let (byte, rest) = self.bytes.split_first().ok_or_else(ended)?;
        self.bytes = rest;
        Ok(*byte)
    }

    pub(super) fn take(&mut self, length: u64) -> Result<&'a [u8], Fault> {
        let length = usize::try_from(length).map_err(|_| ended())?;
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or_else(ended)?;
        self.bytes = rest;
        Ok(taken)
    }

    pub(super) fn varint(&mut self) -> Result<u64, Fault> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                break;
            }
            value |= part << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(bad_field("number", "at most 64 bits", b"more"))
    }

    pub(super) fn signed(&mut self) -> Result<i64, Fault> {
        let folded = self.varint()?;
        Ok((folded >> 1) as i64 ^ -((folded & 1) as i64))
    }

    /// A number of things that each take a byte at least: no more than there are bytes.
    pub(super) fn count(&mut self, what: &'static str, limit: u64) -> Result<usize, Fault> {
        let count = self.varint()?;
        if count > limit.min(self.bytes.len() as u64) {
            return Err(bad_field(what, "a number that fits the block", b"more"));
        }
        Ok(count as usize)
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.bytes.is_empty()
    }
}

#[cold]
fn ended() -> Fault {
    let expected = "the rest of the block's head".to_owned();
    Box::new(TraceErrorKind::CutShort { expected, found: "its end".to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let numbers = [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX];
        let mut bytes = Vec::new();
        for number in numbers {
            put_varint(&mut bytes, number);
            put_signed(&mut bytes, number as i64);
            put_signed(&mut bytes, (number as i64).wrapping_neg());
        }
        let mut reader = Varints::new(&bytes);
        for number in numbers {
            assert_eq!(reader.varint().unwrap(), number);
            assert_eq!(reader.signed().unwrap(), number as i64);
            assert_eq!(reader.signed().unwrap(), (number as i64).wrapping_neg());
        }
        assert!(reader.is_at_end());
        assert!(reader.varint().is_err());
        assert!(Varints::new(&[0xff; 10]).varint().is_err());
    }
}
