//! io_uring over the pages of a [`zonal::Pool`].
//!
//! The pool's memory is registered once, as *fixed buffers*: each operation then names a buffer and
//! a place in it, and the kernel looks no page up. Pages of the pool can also be *provided*: the
//! kernel takes one when bytes arrive, so that a connection that waits holds no memory.
//!
//! ```text
//!   OwnedPages ── read, write ──► Ring ── submission queue ──► kernel, into the fixed buffer
//!       ▲                          │ owns it                       │
//!       └────── Completion ◄───────┴──── completion queue ◄────────┘
//!   OwnedPages ── give_back ────► Ring ── ring of provided buffers ──► taken by a receive
//! ```
//!
//! ```
//! use std::sync::Arc;
//! use zonal::{Order, Pool};
//! use zonal_uring::{Io, Options, Ring, RingError};
//!
//! let pool = Pool::builder().size(64 << 20).build()?;
//! let mut ring = match Ring::new(&pool, &Options::new()) {
//!     Ok(ring) => ring,
//!     // A sandbox, or an old kernel.
//!     Err(RingError::Unavailable(_)) => return Ok(()),
//!     Err(error) => return Err(error.into()),
//! };
//! let file = Arc::new(std::fs::File::open("Cargo.toml")?.into());
//! let page = pool.alloc(Order::ZERO)?.into_owned();
//! ring.read(&file, page, Io::at(0))?;
//! ring.wait(1)?;
//! let done = ring.next().ok_or("a completion")?;
//! let (bytes, page) = (done.result? as usize, done.buffer.ok_or("the page comes back")?);
//! assert!(page[..bytes].starts_with(b"[package]"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Who owns what
//!
//! An operation owns its buffer and its file until its completion is taken: safe code can neither
//! free nor read what the kernel writes to. A [`Ring`] that is dropped cancels what is in flight
//! and waits for it, [`DROP_WAIT`] at most. What the kernel still has then is leaked with the ring,
//! never freed.
//!
//! A ring keeps its pool alive, and keeps the pool's pages in memory ([`zonal::Resident`]):
//! registered pages that were given back to the system would be others.
//!
//! A forked child has copies of the pages, but the kernel's buffers are the parent's: every method
//! refuses there ([`RingError::Forked`]), and a drop touches nothing.
//!
//! # Invariants
//! - **URING-1** what the kernel may read or write for an operation, its buffer and its file, is
//!   owned by the operation's slot until its last completion has been taken from the queue. A slot
//!   that is never finished is never dropped.
//! - **URING-2** a provided page is in `Group::pages` under its number while the kernel may take
//!   it: from before the queue's tail passes its entry until a completion names the number, or
//!   until no operation is in flight.
//! - **URING-3** while buffers are registered their memory is the pool's at the same addresses: the
//!   registration holds a handle and a [`zonal::Resident`].
//! - **URING-4** only the process that made a ring touches its queues.

#![cfg(target_os = "linux")]

mod buffer;
mod error;
mod fixed;
mod group;
mod operation;
mod ring;

pub use buffer::Buffer;
pub use error::{Refused, RingError};
pub use fixed::{FixedBuffers, Place};
pub use operation::{Completion, Io, Operation};
pub use ring::{DROP_WAIT, Options, Ring};
