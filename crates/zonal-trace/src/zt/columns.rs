//! The columns of a block: bytes of one meaning beside each other, compressed each by itself.
//!
//! A number is one byte in its column, its class, and the bits below the class in a stream of bits
//! that is common to all columns and not compressed, because those bits are noise:
//!
//! | class | numbers | bits |
//! |--|--|--|
//! | 0 to 159 | the number itself | 0 |
//! | 160 to 215 | 2^7 to 2^14 - 1: eight classes to a power of two | 4 to 10 |
//! | 216 to 251 | 2^14 to 2^23 - 1: four classes to a power of two | 12 to 20 |
//! | 252 | all others | 64 |
//!
//! Numbers from 128 to 159 have a class of their own, so classes 160 and 161 are never written.

use crate::error::{Fault, TraceErrorKind, bad_field};
use crate::limits::PFN_LIMIT;

/// Contents of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Column {
    /// Events by their shape, CPU after CPU.
    Symbol,
    /// Shapes past the first 253.
    RareSymbol,
    /// Threads, by their place in the block's table.
    Thread,
    /// Choices among CPUs whose events have the same time.
    Tie,
    AllocCode,
    AllocMiss,
    FreeCode,
    FreeMiss,
    FreeCpu,
    FreeBack,
    BatchedCode,
    BatchedMiss,
    Refill,
    DrainCode,
    DrainMiss,
    Zone,
    OtherPfn,
    Child,
    Number,
    Text,
    /// The first of the columns of time: one for each kind of event after itself and after others.
    Time,
}

/// Columns of time: two for each kind of event.
pub(super) const TIMES: usize = 2 * super::kinds::KINDS as usize;
/// All columns.
pub(super) const COLUMNS: usize = Column::Time as usize + TIMES;

const DIRECT: u64 = 160;
const EIGHTHS_MAX: u64 = 1 << 14;
const FOURTHS_MAX: u64 = 1 << 23;
const CLASS_EIGHTHS: u64 = 160;
const CLASS_FOURTHS: u64 = 216;
const CLASS_WHOLE: u8 = 252;

/// Reads or writes columns: the same code does both, so that they cannot differ.
pub(super) trait Io {
    /// Whether this writes.
    const WRITES: bool;

    /// Writes the byte, or reads one and leaves `value` alone.
    fn byte(&mut self, column: Column, value: impl FnOnce() -> u8) -> Result<u8, Fault> {
        self.byte_at(column as usize, value)
    }

    /// As [`byte`](Self::byte), of a column by its number.
    fn byte_at(&mut self, column: usize, value: impl FnOnce() -> u8) -> Result<u8, Fault>;

    /// Writes or reads `bits` bits.
    fn bits(&mut self, bits: u32, value: u64) -> Result<u64, Fault>;

    /// Writes or reads a number.
    fn number(&mut self, column: Column, value: impl FnOnce() -> u64) -> Result<u64, Fault> {
        self.number_at(column as usize, value)
    }

    /// As [`number`](Self::number), of a column by its number.
    fn number_at(&mut self, column: usize, value: impl FnOnce() -> u64) -> Result<u64, Fault> {
        let value = if Self::WRITES { value() } else { 0 };
        let class = self.byte_at(column, || class(value))?;
        let (start, bits) = range(class).ok_or_else(|| wrong("class of a number"))?;
        let low = self.bits(bits, value.wrapping_sub(start))?;
        Ok(start.wrapping_add(low))
    }

    /// Writes or reads a frame as its distance from a guess.
    fn distance(&mut self, column: Column, guess: u64, pfn: u64) -> Result<u64, Fault> {
        let distance = pfn.wrapping_sub(guess) as i64;
        let folded = self.number(column, || ((distance << 1) ^ (distance >> 63)) as u64)?;
        let distance = (folded >> 1) as i64 ^ -((folded & 1) as i64);
        frame_at(guess, distance).ok_or_else(|| wrong("page frame number"))
    }
}

/// A frame, from its distance to a guess.
fn frame_at(guess: u64, distance: i64) -> Option<u64> {
    let pfn = guess.wrapping_add_signed(distance);
    (pfn < PFN_LIMIT).then_some(pfn)
}

/// A block that says what cannot be.
#[cold]
pub(super) fn wrong(field: &'static str) -> Fault {
    bad_field(field, "one that the events before it allow", b"another")
}

fn class(value: u64) -> u8 {
    let exponent = value.max(1).ilog2();
    (match value {
        value if value < DIRECT => value,
        value if value < EIGHTHS_MAX => {
            CLASS_EIGHTHS + u64::from(exponent - 7) * 8 + (value >> (exponent - 3) & 7)
        }
        value if value < FOURTHS_MAX => {
            CLASS_FOURTHS + u64::from(exponent - 14) * 4 + (value >> (exponent - 2) & 3)
        }
        _ => u64::from(CLASS_WHOLE),
    }) as u8
}

/// The first number of a class, and how many bits follow.
fn range(class: u8) -> Option<(u64, u32)> {
    let number = u64::from(class);
    match number {
        0..DIRECT => Some((number, 0)),
        CLASS_EIGHTHS..CLASS_FOURTHS => {
            let (power, eighth) = ((number - CLASS_EIGHTHS) / 8 + 7, (number - CLASS_EIGHTHS) % 8);
            Some(((8 + eighth) << (power - 3), power as u32 - 3))
        }
        CLASS_FOURTHS..252 => {
            let (power, fourth) = ((number - CLASS_FOURTHS) / 4 + 14, (number - CLASS_FOURTHS) % 4);
            Some(((4 + fourth) << (power - 2), power as u32 - 2))
        }
        252 => Some((0, 64)),
        _ => None,
    }
}

/// Columns that are being written.
pub(super) struct Writing {
    pub(super) columns: Vec<Vec<u8>>,
    pub(super) bits: Vec<u8>,
    /// Bits that do not fill a byte yet, from the lowest.
    pending: u64,
    pending_bits: u32,
}

impl Writing {
    pub(super) fn new() -> Writing {
        Writing {
            columns: vec![Vec::new(); COLUMNS],
            bits: Vec::new(),
            pending: 0,
            pending_bits: 0,
        }
    }

    /// Writes out the bits that do not fill a byte.
    pub(super) fn finish(&mut self) {
        if self.pending_bits > 0 {
            self.bits.push(self.pending as u8);
            (self.pending, self.pending_bits) = (0, 0);
        }
    }
}

impl Io for Writing {
    const WRITES: bool = true;

    fn byte_at(&mut self, column: usize, value: impl FnOnce() -> u8) -> Result<u8, Fault> {
        let value = value();
        self.columns[column].push(value);
        Ok(value)
    }

    fn bits(&mut self, bits: u32, value: u64) -> Result<u64, Fault> {
        let mut left = bits;
        let mut rest = value;
        while left > 0 {
            let taken = left.min(8);
            self.pending |= (rest & ((1 << taken) - 1)) << self.pending_bits;
            self.pending_bits += taken;
            if self.pending_bits >= 8 {
                self.bits.push(self.pending as u8);
                self.pending >>= 8;
                self.pending_bits -= 8;
            }
            rest = rest.checked_shr(taken).unwrap_or(0);
            left -= taken;
        }
        Ok(value)
    }
}

/// Columns that are being read.
pub(super) struct Reading {
    pub(super) columns: Vec<Vec<u8>>,
    pub(super) at: Vec<usize>,
    pub(super) bits: Vec<u8>,
    pub(super) bit: usize,
}

impl Reading {
    /// Whether everything was read.
    pub(super) fn is_used_up(&self) -> bool {
        let whole = |(column, at): (&Vec<u8>, &usize)| column.len() == *at;
        self.columns.iter().zip(&self.at).all(whole) && self.bit.div_ceil(8) == self.bits.len()
    }
}

impl Io for Reading {
    const WRITES: bool = false;

    fn byte_at(&mut self, column: usize, _: impl FnOnce() -> u8) -> Result<u8, Fault> {
        let at = &mut self.at[column];
        match self.columns[column].get(*at) {
            Some(byte) => {
                *at += 1;
                Ok(*byte)
            }
            None => Err(ended("a byte of a column")),
        }
    }

    fn bits(&mut self, bits: u32, _: u64) -> Result<u64, Fault> {
        let mut value = 0_u64;
        let mut got = 0;
        while got < bits {
            let byte = *self.bits.get(self.bit / 8).ok_or_else(|| ended("bits of a number"))?;
            let offset = (self.bit % 8) as u32;
            let taken = (8 - offset).min(bits - got);
            value |= (u64::from(byte) >> offset & ((1 << taken) - 1)) << got;
            got += taken;
            self.bit += taken as usize;
        }
        Ok(value)
    }
}

#[cold]
fn ended(expected: &str) -> Fault {
    let (expected, found) = (expected.to_owned(), "the end of the block".to_owned());
    Box::new(TraceErrorKind::CutShort { expected, found })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_back() {
        let mut numbers: Vec<u64> = (0..70_000).collect();
        numbers.extend((0..64).flat_map(|bit| [1 << bit, (1_u64 << bit) - 1, (1 << bit) + 1]));
        numbers.push(u64::MAX);
        let mut writing = Writing::new();
        for number in &numbers {
            writing.number(Column::Number, || *number).unwrap();
        }
        writing.finish();
        let Writing { columns, bits, .. } = writing;
        let mut reading = Reading { columns, at: vec![0; COLUMNS], bits, bit: 0 };
        for number in &numbers {
            assert_eq!(reading.number(Column::Number, || 0).unwrap(), *number);
        }
        assert!(reading.is_used_up());
        assert!(reading.number(Column::Number, || 0).is_err());
    }

    #[test]
    fn frames_come_back_from_their_distance() {
        let pairs = [(0, 5), (5, 0), (1 << 51, 1), (0, PFN_LAST), (PFN_LAST, 0), (u64::MAX, 3)];
        let mut writing = Writing::new();
        for (guess, pfn) in pairs {
            assert_eq!(writing.distance(Column::Refill, guess, pfn).unwrap(), pfn);
        }
        writing.finish();
        let Writing { columns, bits, .. } = writing;
        let mut reading = Reading { columns, at: vec![0; COLUMNS], bits, bit: 0 };
        for (guess, pfn) in pairs {
            assert_eq!(reading.distance(Column::Refill, guess, 0).unwrap(), pfn);
        }
    }

    const PFN_LAST: u64 = PFN_LIMIT - 1;
}
