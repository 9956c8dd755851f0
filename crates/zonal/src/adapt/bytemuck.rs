//! Blocks as slices of plain values, by `bytemuck`. A block is aligned to its size, so any value
//! that fits in a page is aligned in it. What does not fit at the end is left out.

use bytemuck::{AnyBitPattern, NoUninit, cast_slice, cast_slice_mut};

/// The block as values.
///
/// # Panics
/// If the bytes are not aligned for `T`, which those of a block are.
pub fn slice_of<T: AnyBitPattern>(block: &impl AsRef<[u8]>) -> &[T] {
    let bytes = block.as_ref();
    cast_slice(&bytes[..whole::<T>(bytes.len())])
}

/// The block as values that can be changed.
///
/// # Panics
/// As [`slice_of`].
pub fn slice_of_mut<T: AnyBitPattern + NoUninit>(block: &mut impl AsMut<[u8]>) -> &mut [T] {
    let bytes = block.as_mut();
    let whole = whole::<T>(bytes.len());
    cast_slice_mut(&mut bytes[..whole])
}

/// Bytes of the values that fit.
fn whole<T>(bytes: usize) -> usize {
    bytes.checked_rem(size_of::<T>()).map_or(0, |rest| bytes - rest)
}
