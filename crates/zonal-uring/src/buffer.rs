//! What an operation owns: a block or a range of a pool.

use std::ops::{Deref, DerefMut};

use zonal::{OwnedPages, OwnedRange, Pool};

/// Pages in an operation's hands, or back from one.
#[derive(Debug)]
pub enum Buffer {
    /// A block.
    Pages(OwnedPages),
    /// Pages in a row.
    Range(OwnedRange),
}

impl Buffer {
    /// Whether it is this pool's.
    pub fn is_of(&self, pool: &Pool) -> bool {
        match self {
            Buffer::Pages(pages) => pages.is_of(pool),
            Buffer::Range(range) => range.is_of(pool),
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Buffer::Pages(pages) => pages,
            Buffer::Range(range) => range,
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Buffer::Pages(pages) => pages,
            Buffer::Range(range) => range,
        }
    }
}

impl From<OwnedPages> for Buffer {
    fn from(pages: OwnedPages) -> Buffer {
        Buffer::Pages(pages)
    }
}

impl From<OwnedRange> for Buffer {
    fn from(range: OwnedRange) -> Buffer {
        Buffer::Range(range)
    }
}
