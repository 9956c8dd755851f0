//! Why a call of early memory failed.

use core::fmt;

/// Why a call failed. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EarlyError {
    /// The range ends before it starts: start, end.
    Backwards(u64, u64),
    /// There is no room for another region: which list, and how many it has.
    Full(&'static str, usize),
    /// Part of what is to be given back is not reserved: the range.
    NotReserved(u64, u64),
    /// The alignment is not a power of two.
    Alignment(u64),
    /// No free range is large enough: bytes, alignment.
    NoMemory(u64, u64),
    /// The free pages were handed over to an allocator: ask that one.
    HandedOver,
    /// No allocator has the free pages yet: give back by [`Early::release`](super::Early::release).
    NotHandedOver,
}

impl fmt::Display for EarlyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            EarlyError::Backwards(start, end) => {
                write!(f, "the range {start:#x} to {end:#x} ends before it starts")
            }
            EarlyError::Full(list, most) => write!(
                f,
                "the list of {list} is full with {most} regions; make `Early` with a larger `N`"
            ),
            EarlyError::NotReserved(start, end) => {
                write!(f, "{start:#x} to {end:#x} is not wholly reserved, so it was not given back")
            }
            EarlyError::Alignment(align) => {
                write!(f, "the alignment {align:#x} is not a power of two")
            }
            EarlyError::NoMemory(bytes, align) => {
                write!(f, "no free range has {bytes:#x} bytes at a multiple of {align:#x}")
            }
            EarlyError::HandedOver => {
                f.write_str("the free pages were handed over to the allocator; take them there")
            }
            EarlyError::NotHandedOver => {
                f.write_str("nothing was handed over to an allocator yet; call Early::release")
            }
        }
    }
}

impl core::error::Error for EarlyError {}
