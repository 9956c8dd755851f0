//! Blocks as slices of plain values, by `zerocopy`. A block is aligned to its size, so any value
//! that fits in a page is aligned in it. What does not fit at the end is left out.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The block as values.
///
/// # Panics
/// If the bytes are not aligned for `T`, which those of a block are.
pub fn slice_of<T: FromBytes + Immutable>(block: &impl AsRef<[u8]>) -> &[T] {
    let bytes = block.as_ref();
    match <[T]>::ref_from_prefix_with_elems(bytes, count::<T>(bytes.len())) {
        Ok((values, _)) => values,
        Err(error) => panic!("the bytes of a block are aligned for any value: {error}"),
    }
}

/// The block as values that can be changed.
///
/// # Panics
/// As [`slice_of`].
pub fn slice_of_mut<T: FromBytes + IntoBytes>(block: &mut impl AsMut<[u8]>) -> &mut [T] {
    let bytes = block.as_mut();
    let count = count::<T>(bytes.len());
    match <[T]>::mut_from_prefix_with_elems(bytes, count) {
        Ok((values, _)) => values,
        Err(error) => panic!("the bytes of a block are aligned for any value: {error}"),
    }
}

/// Values that fit; none of a type without bytes.
fn count<T>(bytes: usize) -> usize {
    bytes.checked_div(size_of::<T>()).unwrap_or(0)
}
