//! The C interface of Zonal. `include/zonal.h` is made of these files by cbindgen, so the comments
//! here are the reference that C programmers read.
//!
//! ```text
//!  C: zonal_alloc_page ──► handle (null? live?) ──► zonal::Pool ──► page
//!                                                      └ refused ─► code and text of the thread
//! ```
//! | file | does |
//! |--|--|
//! | `error` | codes, the text of the last error, no unwinding |
//! | `handle` | pools and consumers as addresses that can be checked |
//! | `input` | structs that grow, strings, flags and arrays of the caller |
//! | `callbacks` | functions of the caller that a pool calls |
//! | `options`, `pool` | how a pool is described, made and destroyed |
//! | `pages`, `range` | blocks, many pages, ranges |
//! | `control` | budget, drains, trims, sysctls, fork |
//! | `consumer` | caches that give memory back |
//! | `stats`, `text` | figures as structs and as the kernel's texts |
//!
//! # Contract
//! What each call needs from the caller, by number; each function's `# Safety` names those that it
//! has. What a check of O(1) can find is refused with a code and a sentence instead.
//! - **C-1** a handle is null, or came from the function that makes it; while a call with it runs,
//!   no other thread destroys it. A handle that was destroyed is found as such.
//! - **C-2** a pointer to a struct, a buffer or an array is null, or valid for the length that its
//!   size field or the next argument names, and no other thread writes to it.
//! - **C-3** what is freed is not in use any more.
//! - **C-4** a string is null, or ends with a zero byte.
//! - **C-5** a callback may run on any thread, with its `data`, until the pool is destroyed or the
//!   consumer is removed. It returns: it does not end by `longjmp` or an exception (an exception
//!   ends the process).
//! - **C-6** memory that the caller brings keeps the contract of `zonal::Builder::memory`.
//!
//! # Invariants
//! - **CAPI-1** a handle is never given back to the heap, so its magic can be read for as long as
//!   the process lives; its value is there exactly while the magic says "live".
//! - **CAPI-2** nothing unwinds into C: functions are `extern "C"`, which aborts, and all but the
//!   shortest catch panics and return an error.

#![allow(non_camel_case_types)]

mod callbacks;
mod consumer;
mod control;
mod error;
mod handle;
mod input;
mod options;
mod pages;
mod pool;
mod range;
mod stats;
mod text;

pub use consumer::*;
pub use control::*;
pub use error::*;
pub use input::ZONAL_ANY_NODE;
pub use options::*;
pub use pages::*;
pub use pool::*;
pub use range::*;
pub use stats::*;
pub use text::*;
