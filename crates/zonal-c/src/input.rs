//! What a caller hands over: structs that grow with the library, strings, numbers, arrays.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;

use zonal::{NodeId, Order};

use crate::error::{Failure, zonal_error::*};

/// No node of its own: the running CPU's.
pub const ZONAL_ANY_NODE: i32 = -1;

/// A struct that begins with its size in bytes, a `uint32_t`, and of which all bytes zero are a
/// value.
///
/// # Safety
/// 1. Any bytes that the caller writes are a value of it: numbers, raw pointers, optional
///    functions.
pub(crate) unsafe trait Sized32: Copy {
    /// Its name in C.
    const NAME: &'static str;
    /// Bytes of its first version; no program has a shorter one.
    const FIRST: usize;
}

/// Reads a struct of a caller that may be older or newer than this library: fields that it does not
/// have are zero, and fields that this library does not have must be.
///
/// # Safety
/// 1. C-2: `at` is null or valid for the size that it names.
pub(crate) unsafe fn read_struct<T: Sized32>(at: *const T) -> Result<T, Failure> {
    if at.is_null() {
        return Err(Failure::argument(format!("the {} is null", T::NAME)));
    }
    // SAFETY: (1) every such struct begins with its size.
    let size = unsafe { at.cast::<u32>().read_unaligned() } as usize;
    check_size::<T>(size)?;
    let known = size.min(size_of::<T>());
    // SAFETY: (1) valid for its size.
    let bytes = unsafe { std::slice::from_raw_parts(at.cast::<u8>(), size) };
    if let Some(extra) = bytes[known..].iter().position(|byte| *byte != 0) {
        let text = format!(
            "byte {} of the {} is set, and this library knows its first {known} bytes only: it is \
             older than the header; install a newer one, or leave the new fields zero",
            known + extra,
            T::NAME
        );
        return Err(Failure::new(ZONAL_E_STRUCT, text));
    }
    // SAFETY: (1) `Sized32`: zeroes are a value of it.
    let mut value: T = unsafe { std::mem::zeroed() };
    let to = (&raw mut value).cast::<u8>();
    // SAFETY: (1) both are valid for `known` bytes; (2) a local is no part of the caller's struct.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, known) };
    Ok(value)
}

/// Writes a struct of figures to a caller that may be older or newer than this library. Fields that
/// this library does not have become zero; the size stays the caller's.
///
/// # Safety
/// 1. C-2: `at` is null or valid for the size that it names.
pub(crate) unsafe fn write_struct<T: Sized32>(at: *mut T, value: &T) -> Result<(), Failure> {
    if at.is_null() {
        return Err(Failure::argument(format!("the {} is null", T::NAME)));
    }
    // SAFETY: (1) every such struct begins with its size.
    let size = unsafe { at.cast::<u32>().read_unaligned() } as usize;
    check_size::<T>(size)?;
    let known = size.min(size_of::<T>());
    let (to, from) = (at.cast::<u8>(), (&raw const *value).cast::<u8>());
    let header = size_of::<u32>();
    let (to_rest, from_rest) = (to.wrapping_add(header), from.wrapping_add(header));
    // SAFETY: (1) both are valid for `known` bytes, which is above the header: at least the first
    // version's size; (2) the caller's struct is no value of ours.
    unsafe { std::ptr::copy_nonoverlapping(from_rest, to_rest, known - header) };
    // SAFETY: (1) the caller's struct is valid for `size` bytes.
    unsafe { to.wrapping_add(known).write_bytes(0, size - known) };
    Ok(())
}

fn check_size<T: Sized32>(size: usize) -> Result<(), Failure> {
    /// No struct of this library grows beyond.
    const SIZE_MAX: usize = 4096;
    if (T::FIRST..=SIZE_MAX).contains(&size) {
        return Ok(());
    }
    let (name, first, now) = (T::NAME, T::FIRST, size_of::<T>());
    let text = format!(
        "the size field of the {name} says {size}; expected sizeof({name}), which is {now} in this \
         library and at least {first} in each: begin with {name}_init"
    );
    Err(Failure::new(ZONAL_E_STRUCT, text))
}

/// A string of the caller; `None` for null.
///
/// # Safety
/// 1. C-4, and the string stays as it is for as long as the result is used.
pub(crate) unsafe fn string<'a>(at: *const c_char, what: &str) -> Result<Option<&'a str>, Failure> {
    if at.is_null() {
        return Ok(None);
    }
    // SAFETY: (1) it ends with a zero byte, and stays.
    let text = unsafe { CStr::from_ptr(at) };
    let valid = text.to_str();
    valid.map(Some).map_err(|_| Failure::argument(format!("{what}: the string is not UTF-8")))
}

/// An array of the caller; empty for a length of 0, wherever it is.
///
/// # Safety
/// 1. C-2, and the array stays as it is for as long as the result is used.
pub(crate) unsafe fn array<'a, T>(
    at: *const T,
    len: usize,
    what: &str,
) -> Result<&'a [T], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    check_array(at, len, what)?;
    // SAFETY: (1) not null, aligned, not too long (just checked), and valid by C-2.
    Ok(unsafe { std::slice::from_raw_parts(at, len) })
}

/// As [`array`], to be written to.
///
/// # Safety
/// 1. As for [`array`], and nobody else uses it meanwhile.
pub(crate) unsafe fn array_mut<'a, T>(
    at: *mut T,
    len: usize,
    what: &str,
) -> Result<&'a mut [T], Failure> {
    if len == 0 {
        return Ok(&mut []);
    }
    check_array(at, len, what)?;
    // SAFETY: (1) as for `array`.
    Ok(unsafe { std::slice::from_raw_parts_mut(at, len) })
}

fn check_array<T>(at: *const T, len: usize, what: &str) -> Result<(), Failure> {
    if at.is_null() {
        return Err(Failure::argument(format!("{what}: null, with a length of {len}")));
    }
    if !at.is_aligned() {
        let align = align_of::<T>();
        return Err(Failure::argument(format!("{what}: {at:p} is no multiple of {align}")));
    }
    if len.checked_mul(size_of::<T>()).is_none_or(|bytes| bytes > isize::MAX as usize) {
        return Err(Failure::argument(format!("{what}: {len} elements are more than memory has")));
    }
    Ok(())
}

/// An order, 0 to 10.
pub(crate) fn order(order: u32) -> Result<Order, Failure> {
    Order::new(order).ok_or_else(|| {
        Failure::argument(format!(
            "order {order}: expected 0 (4 KiB) to {} (4 MiB)",
            Order::MAX.get()
        ))
    })
}

/// A node, or none for ZONAL_ANY_NODE.
pub(crate) fn node(node: i32, nodes: usize) -> Result<Option<NodeId>, Failure> {
    if node == ZONAL_ANY_NODE {
        return Ok(None);
    }
    node_of(node, nodes).map(Some)
}

/// A node of a pool.
pub(crate) fn node_of(node: i32, nodes: usize) -> Result<NodeId, Failure> {
    let known = u16::try_from(node).ok().filter(|node| usize::from(*node) < nodes);
    known.map(NodeId).ok_or_else(|| {
        let last = nodes.saturating_sub(1);
        Failure::argument(format!("node {node}: this pool has nodes 0 to {last}"))
    })
}

/// A field that a later version may give a meaning.
pub(crate) fn zero(reserved: u32, of: &str) -> Result<(), Failure> {
    if reserved == 0 {
        return Ok(());
    }
    Err(Failure::argument(format!("{of}: reserved must be zero, and is {reserved}")))
}

/// An address to free or to begin at.
pub(crate) fn address(at: *mut c_void) -> Result<NonNull<u8>, Failure> {
    NonNull::new(at.cast()).ok_or_else(|| Failure::argument("the address is null"))
}

/// One of the values that a `uint32_t` of an option has.
pub(crate) fn choice<T: Copy>(value: u32, of: &[T], what: &str) -> Result<T, Failure> {
    of.get(value as usize).copied().ok_or_else(|| {
        Failure::argument(format!("{what}: {value}; expected 0 to {}", of.len() - 1))
    })
}

/// Copies a text out as `snprintf` does: at most `len` bytes, the last of them zero. Returns the
/// bytes of the whole text without the zero.
///
/// # Safety
/// 1. C-2: `to` is null or valid for `len` bytes.
pub(crate) unsafe fn copy_out(text: &str, to: *mut c_char, len: usize) -> Result<i64, Failure> {
    // SAFETY: (1) C-2.
    let to = unsafe { array_mut(to.cast::<u8>(), len, "buffer") }?;
    if let Some(room) = to.len().checked_sub(1) {
        let bytes = &text.as_bytes()[..room.min(text.len())];
        to[..bytes.len()].copy_from_slice(bytes);
        to[bytes.len()] = 0;
    }
    Ok(text.len() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    #[repr(C)]
    struct Three {
        size: u32,
        one: u32,
        two: u32,
        three: u32,
    }
    // SAFETY: (1) numbers.
    unsafe impl Sized32 for Three {
        const NAME: &'static str = "three";
        const FIRST: usize = 8;
    }

    fn read(bytes: &[u32]) -> Result<Three, String> {
        // SAFETY: (1) the sizes of the tests are those of the arrays, or refused.
        unsafe { read_struct(bytes.as_ptr().cast::<Three>()) }.map_err(|failure| failure.text)
    }

    #[test]
    fn older_and_newer_programs_are_understood_or_refused() {
        assert_eq!(read(&[8, 1]), Ok(Three { size: 8, one: 1, two: 0, three: 0 }));
        assert_eq!(read(&[16, 1, 2, 3]), Ok(Three { size: 16, one: 1, two: 2, three: 3 }));
        assert_eq!(read(&[20, 1, 2, 3, 0]), Ok(Three { size: 20, one: 1, two: 2, three: 3 }));
        let newer = read(&[24, 1, 2, 3, 0, 1 << 8]).unwrap_err();
        assert!(newer.contains("byte 21 of the three is set"), "{newer}");
        for wrong in [0, 4, 7, 4097, u32::MAX] {
            assert!(read(&[wrong, 1, 2, 3]).unwrap_err().contains("sizeof(three)"), "{wrong}");
        }
    }

    #[test]
    fn figures_are_written_as_far_as_the_caller_has_room() {
        let figures = Three { size: 16, one: 1, two: 2, three: 3 };
        let mut older = [8_u32, 9, 9, 9];
        // SAFETY: (1) valid for the size that it names.
        unsafe { write_struct(older.as_mut_ptr().cast::<Three>(), &figures) }.ok().unwrap();
        assert_eq!(older, [8, 1, 9, 9]);
        let mut newer = [20_u32, 9, 9, 9, 9, 9];
        // SAFETY: (1) as above.
        unsafe { write_struct(newer.as_mut_ptr().cast::<Three>(), &figures) }.ok().unwrap();
        assert_eq!(newer, [20, 1, 2, 3, 0, 9]);
    }

    #[test]
    fn a_text_is_cut_as_snprintf_cuts_it() {
        for len in 0..8 {
            let mut buffer = [b'x'; 8];
            // SAFETY: (1) valid for `len` bytes.
            let needed = unsafe { copy_out("hello", buffer.as_mut_ptr().cast(), len) };
            assert_eq!(needed.ok(), Some(5));
            let expected = &b"hello"[..len.saturating_sub(1).min(5)];
            assert_eq!(&buffer[..expected.len()], expected);
            assert!(len == 0 || buffer[expected.len()] == 0);
            assert!(buffer[len.max(6).min(len)..].iter().all(|byte| *byte == b'x'));
        }
    }
}
