//! Buffers of one size with back-pressure: at most so many at once, and who comes too late waits.
//!
//! | file | does |
//! |--|--|
//! | `gate` | permits, and those who wait for one |
//! | `block_on` | waits on a thread for a future |
//! | `sync` | the mutex of `gate`; its model under loom has another one in its place |
//!
//! The futures use `core::future` alone, so any runtime runs them.

mod block_on;
mod gate;

mod sync;

use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use gate::{Asked, Gate, Ticket};

use crate::process::Process;
use crate::{AllocError, Order, OwnedPages, Pool};

/// Buffers of one size from a pool, at most so many at once. A clone is another handle of the same
/// buffers.
///
/// A caller that finds all buffers in use waits: as a task ([`get`](Self::get)), as a thread
/// ([`get_blocking`](Self::get_blocking)), or not at all ([`try_get`](Self::try_get)). Those who
/// wait are served in the order of arrival, and nobody overtakes them. So a server reads no more
/// requests than it has room to answer.
///
/// In a forked child nobody gets a buffer: another thread of the parent may have been anywhere at
/// the fork. Buffers of the parent can be read and dropped there; make a pool of buffers in the
/// child.
///
/// ```
/// use zonal::buffers::BufferPool;
///
/// let pool = zonal::Pool::builder().size(64 << 20).build()?;
/// let buffers = BufferPool::new(pool, 16 << 10, 100)?;
/// let mut buffer = buffers.get_blocking()?; // in a task: buffers.get().await?
/// buffer[..5].copy_from_slice(b"hello");
/// assert_eq!((buffer.len(), buffers.in_use()), (16 << 10, 1));
/// drop(buffer);
/// assert_eq!(buffers.in_use(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct BufferPool {
    inner: Arc<Inner>,
}

struct Inner {
    pool: Pool,
    bytes: usize,
    order: Order,
    limit: usize,
    gate: Gate,
    /// The process whose threads use the gate.
    process: Process,
}

/// No such buffers can be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BufferPoolError {
    /// A buffer of so many bytes; expected 1 byte to 4 MiB.
    Bytes(usize),
    /// No buffer may be in use; expected at least one.
    Limit,
}

impl fmt::Display for BufferPoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BufferPoolError::Bytes(bytes) => {
                write!(f, "buffers of {bytes} bytes; expected 1 byte to 4 MiB")
            }
            BufferPoolError::Limit => f.write_str("at most 0 buffers; expected at least one"),
        }
    }
}

impl std::error::Error for BufferPoolError {}

impl BufferPool {
    /// At most `limit` buffers of `bytes` bytes at once. Each lies in a block of its own, so sizes
    /// that are a power of two from 4 KiB on waste nothing.
    ///
    /// # Errors
    /// [`BufferPoolError`] says what is possible.
    pub fn new(pool: Pool, bytes: usize, limit: usize) -> Result<BufferPool, BufferPoolError> {
        BufferPool::with_low(pool, bytes, limit, limit.saturating_sub(1))
    }

    /// As [`new`](Self::new), with a low watermark: once somebody had to wait, nobody is served
    /// before at most `low` buffers are in use. Those who wait then come in groups, and not one for
    /// each buffer that comes back. A holder of more than `low` buffers must not wait for another
    /// one: it would wait for itself.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_low(
        pool: Pool,
        bytes: usize,
        limit: usize,
        low: usize,
    ) -> Result<BufferPool, BufferPoolError> {
        let order = Order::for_bytes(bytes).filter(|_| bytes > 0);
        let order = order.ok_or(BufferPoolError::Bytes(bytes))?;
        if limit == 0 {
            return Err(BufferPoolError::Limit);
        }
        let gate = Gate::new(limit, low);
        Ok(BufferPool {
            inner: Arc::new(Inner { pool, bytes, order, limit, gate, process: Process::this() }),
        })
    }

    /// A buffer, or `None` if all are in use or somebody waits already, and in a forked child.
    ///
    /// # Errors
    /// The pool refused the block; nobody is waited for.
    pub fn try_get(&self) -> Result<Option<Buffer>, AllocError> {
        let may = !self.inner.process.was_forked() && self.inner.gate.try_enter();
        may.then(|| self.fill()).transpose()
    }

    /// A buffer, as soon as there is one; never in a forked child. The future borrows nothing and
    /// may be dropped at any time.
    pub fn get(&self) -> Get {
        Get { buffers: self.clone(), ticket: None }
    }

    /// A buffer, as soon as there is one; the thread waits, in a forked child for ever. Not for a
    /// thread that runs tasks.
    ///
    /// # Errors
    /// The pool refused the block.
    pub fn get_blocking(&self) -> Result<Buffer, AllocError> {
        block_on::block_on(self.get())
    }

    /// Bytes of a buffer.
    pub fn buffer_bytes(&self) -> usize {
        self.inner.bytes
    }
    /// Buffers at most.
    pub fn limit(&self) -> usize {
        self.inner.limit
    }
    /// Buffers in use now, with those on their way to one who waited. In a forked child: at the
    /// fork, or 0 where a thread of the parent was about to change it.
    pub fn in_use(&self) -> usize {
        self.figures().0
    }
    /// Tasks and threads that wait now; in a forked child as [`in_use`](Self::in_use).
    pub fn waiting(&self) -> usize {
        self.figures().1
    }
    fn figures(&self) -> (usize, usize) {
        let gate = &self.inner.gate;
        match self.inner.process.was_forked() {
            true => gate.figures_of_parent().unwrap_or_default(),
            false => gate.figures(),
        }
    }
    /// The pool of the buffers' memory.
    pub fn pool(&self) -> &Pool {
        &self.inner.pool
    }

    /// A buffer for a permit that the caller has just got.
    fn fill(&self) -> Result<Buffer, AllocError> {
        let permit = Permit(Arc::clone(&self.inner));
        // A refusal gives the permit back.
        let pages = self.inner.pool.alloc(self.inner.order)?.into_owned();
        Ok(Buffer { pages, permit })
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (in_use, waiting) = self.figures();
        f.debug_struct("BufferPool")
            .field("buffer_bytes", &self.inner.bytes)
            .field("limit", &self.inner.limit)
            .field("in_use", &in_use)
            .field("waiting", &waiting)
            .finish()
    }
}

/// The future of [`BufferPool::get`].
#[must_use = "a future does nothing until it is polled"]
pub struct Get {
    buffers: BufferPool,
    ticket: Option<Ticket>,
}

impl Future for Get {
    type Output = Result<Buffer, AllocError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.buffers.inner.process.was_forked() {
            return Poll::Pending;
        }
        let gate = &self.buffers.inner.gate;
        let entered = match self.ticket {
            Some(ticket) => gate.poll(ticket, context.waker()),
            None => match gate.ask(context.waker()) {
                Asked::Entered => true,
                Asked::Queued(ticket) => {
                    self.ticket = Some(ticket);
                    false
                }
            },
        };
        if !entered {
            return Poll::Pending;
        }
        self.ticket = None;
        Poll::Ready(self.buffers.fill())
    }
}

impl Drop for Get {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take()
            && !self.buffers.inner.process.was_forked()
        {
            self.buffers.inner.gate.cancel(ticket);
        }
    }
}

impl fmt::Debug for Get {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Get").field("waits", &self.ticket.is_some()).finish()
    }
}

/// A buffer. It goes to any thread, and comes back when it is dropped. Its bytes are what the last
/// owner left.
pub struct Buffer {
    pages: OwnedPages,
    // Behind the pages: who gets the permit finds the block free again.
    permit: Permit,
}

/// The right to one buffer.
struct Permit(Arc<Inner>);

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.0.process.was_forked() {
            self.0.gate.leave();
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.pages[..self.permit.0.bytes]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.pages[..self.permit.0.bytes]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}
impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("pages", &self.pages).finish()
    }
}
