//! Many blocks for one vectored call.

use std::io::{IoSlice, IoSliceMut};

/// All of the blocks' bytes, for `write_vectored`: 4 KiB or more each, without a copy.
pub fn io_slices<B: AsRef<[u8]>>(blocks: &[B]) -> Vec<IoSlice<'_>> {
    blocks.iter().map(|block| IoSlice::new(block.as_ref())).collect()
}

/// All of the blocks' bytes, for `read_vectored`.
pub fn io_slices_mut<B: AsMut<[u8]>>(blocks: &mut [B]) -> Vec<IoSliceMut<'_>> {
    blocks.iter_mut().map(|block| IoSliceMut::new(block.as_mut())).collect()
}
