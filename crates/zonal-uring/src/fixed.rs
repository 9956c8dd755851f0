//! A pool's memory as fixed buffers: pieces of 1 GiB, the most that the kernel takes as one.

use std::io;

use io_uring::Submitter;
use zonal::{Pool, Resident};

use crate::RingError;

/// Bytes of a fixed buffer at most; all but the last have as many.
const PIECE: usize = 1 << 30;
/// Fixed buffers that a ring may have.
const PIECES_MAX: usize = 1 << 14;

/// Where bytes of the pool are among the fixed buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The fixed buffer (`buf_index` of an operation).
    pub index: u16,
    /// Bytes in front of them in it.
    pub offset: usize,
    /// Bytes from there to the end of the buffer. A block never crosses it; a range may.
    pub left: usize,
}

/// The memory of a pool, registered with a ring. [`Ring`](crate::Ring) has its own; this is for
/// programs that drive a ring themselves.
///
/// The pool's memory stays mapped and in place while this lives (URING-3). Buffers that are still
/// registered when it is dropped stay pinned by the kernel until the ring is gone.
#[derive(Debug)]
pub struct FixedBuffers {
    resident: Resident,
}

impl FixedBuffers {
    /// Registers all of a pool's memory as the fixed buffers of a ring. Every page of it is faulted
    /// in and pinned.
    ///
    /// # Safety
    /// 1. What the caller submits to the ring names only bytes that it owns until the completion.
    ///
    /// # Errors
    /// [`RingError`] says what to change: limits, the memory's origin, or its size.
    pub unsafe fn register(
        pool: &Pool,
        submitter: &Submitter<'_>,
    ) -> Result<FixedBuffers, RingError> {
        let pieces = pool.bytes().div_ceil(PIECE);
        if pieces > PIECES_MAX {
            return Err(RingError::TooLarge(pieces));
        }
        // Before the kernel looks the pages up.
        let fixed = FixedBuffers { resident: Resident::new(pool) };
        let vectors: Vec<libc::iovec> = fixed.pieces().collect();
        // SAFETY: (1) mapped memory of the pool, which stays (URING-3); what is written to it is
        // the caller's (1).
        match unsafe { submitter.register_buffers(&vectors) } {
            Ok(()) => Ok(fixed),
            Err(error) => Err(refused(pool.bytes(), error)),
        }
    }

    fn pieces(&self) -> impl Iterator<Item = libc::iovec> {
        let (base, bytes) = (self.pool().base().cast_mut(), self.pool().bytes());
        (0..bytes).step_by(PIECE).map(move |at| libc::iovec {
            iov_base: base.wrapping_add(at).cast(),
            iov_len: PIECE.min(bytes - at),
        })
    }

    /// The pool.
    pub fn pool(&self) -> &Pool {
        self.resident.pool()
    }

    /// Where a byte of the pool is; `None` for any other address.
    #[inline]
    pub fn place(&self, start: *const u8) -> Option<Place> {
        let offset = (start as usize).wrapping_sub(self.pool().base() as usize);
        place_of(offset, self.pool().bytes())
    }
}

/// Where a byte is among the pieces of `bytes` bytes.
#[inline]
fn place_of(offset: usize, bytes: usize) -> Option<Place> {
    if offset >= bytes {
        return None;
    }
    let end = (offset - offset % PIECE + PIECE).min(bytes);
    let index = (offset / PIECE) as u16;
    Some(Place { index, offset: offset % PIECE, left: end - offset })
}

/// Why memory was not registered.
fn refused(bytes: usize, error: io::Error) -> RingError {
    match error.raw_os_error() {
        Some(libc::ENOMEM) if memlock_limit() != libc::RLIM_INFINITY => {
            RingError::MemLock { bytes, limit: memlock_limit() }
        }
        Some(libc::EOPNOTSUPP | libc::EFAULT) => RingError::Backing(error),
        _ => RingError::System { call: "io_uring_register (buffers)", error },
    }
}

fn memlock_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: (1) the limit is a live value.
    let done = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    if done == 0 { limit.rlim_cur } else { u64::MAX }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_cannot_be_locked_comes_with_what_to_do_whatever_the_limit_is() {
        let error = refused(4096, io::Error::from_raw_os_error(libc::ENOMEM));
        assert!(matches!(error, RingError::MemLock { bytes: 4096, .. }), "{error:?}");
        assert!(error.to_string().contains("ulimit -l"), "{error}");
    }

    #[test]
    fn a_place_is_in_the_piece_that_has_its_byte_and_ends_with_it() {
        let bytes = 2 * PIECE + 4096;
        let place = |index, offset, left| Some(Place { index, offset, left });
        assert_eq!(place_of(0, bytes), place(0, 0, PIECE));
        assert_eq!(place_of(PIECE - 1, bytes), place(0, PIECE - 1, 1));
        assert_eq!(place_of(PIECE, bytes), place(1, 0, PIECE));
        assert_eq!(place_of(2 * PIECE + 4095, bytes), place(2, 4095, 1));
        assert_eq!(place_of(bytes, bytes), None);
        assert_eq!(place_of(usize::MAX, bytes), None);
        let all = PIECES_MAX * PIECE;
        assert_eq!(place_of(all - 1, all), place(16383, PIECE - 1, 1));
    }
}
