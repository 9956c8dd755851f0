//! Blocks of a pool in the forms that other crates take.
//!
//! | module | feature | gives |
//! |--|--|--|
//! | [`PageBuf`] | | bytes that grow within a block; `std::io::Write` |
//! | [`io_slices`], [`io_slices_mut`] | | many blocks for one vectored read or write |
//! | `bytes` | `bytes` | `Bytes` out of a block without a copy; `BufMut` |
//! | `alloc::BlockAlloc` | `allocator-api2` | a pool as an `Allocator` of large collections |
//! | `bytemuck`, `zerocopy` | of that name | blocks as slices of plain values |
//!
//! There is no `GlobalAlloc`, by design. A pool hands out whole pages, so each small object would
//! take 4 KiB; a pool refuses when it is full, and a program whose every allocation may be refused
//! aborts; and the pool itself uses the heap, in its threads and its errors, so it would call
//! itself with its own locks held. Put the large collections into a pool, one by one
//! (`BlockAlloc`).

#[cfg(feature = "allocator-api2")]
pub mod alloc;
mod buf;
#[cfg(feature = "bytemuck")]
pub mod bytemuck;
#[cfg(feature = "bytes")]
mod bytes;
mod slices;
#[cfg(feature = "zerocopy")]
pub mod zerocopy;

pub use buf::{Full, PageBuf};
pub use slices::{io_slices, io_slices_mut};
