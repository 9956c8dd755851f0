//! `bytes`: shared, cheaply cut byte strings over a block of the pool, which is freed with the last
//! of them.

use bytes::buf::UninitSlice;
use bytes::{BufMut, Bytes};

use super::PageBuf;
use crate::OwnedPages;

impl From<OwnedPages> for Bytes {
    /// All bytes of the block, without a copy.
    fn from(pages: OwnedPages) -> Bytes {
        Bytes::from_owner(pages)
    }
}

impl From<PageBuf> for Bytes {
    /// The bytes that were written, without a copy.
    fn from(buf: PageBuf) -> Bytes {
        Bytes::from_owner(buf)
    }
}

impl PageBuf {
    /// The bytes that were written, without a copy; to be shared and cut from now on.
    pub fn freeze(self) -> Bytes {
        self.into()
    }
}

// SAFETY: (1) `chunk_mut` is the part of the block behind `len`, of `remaining_mut` bytes, and both
// are the same until `advance_mut`, which never brings `len` behind the block's end; (2) the bytes
// of a pool's memory are always initialised.
unsafe impl BufMut for PageBuf {
    fn remaining_mut(&self) -> usize {
        self.left()
    }

    unsafe fn advance_mut(&mut self, bytes: usize) {
        let done = self.advance(bytes);
        assert!(done.is_ok(), "advanced by {bytes} bytes: {done:?}");
    }

    fn chunk_mut(&mut self) -> &mut UninitSlice {
        UninitSlice::new(self.spare_mut())
    }
}
