//! Pages that the kernel takes when bytes arrive: a ring of provided buffers (5.19).
//!
//! ```text
//!   entries   | addr, len, id | ...        2^n of them, in a block of the pool
//!               ▲ the kernel's head        ▲ tail: ours, in the spare bytes of entry 0
//!   pages     id ──► the page, while the kernel may take it (URING-2)
//! ```

use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::Submitter;
use io_uring::types::BufRingEntry;
use zonal::{Order, OwnedPages, Pool};

use crate::{Buffer, RingError};

/// Buffers of a group at most.
const COUNT_MAX: u16 = 1 << 15;

/// A group of provided buffers.
pub(crate) struct Group {
    pub number: u16,
    /// The order of the pages that [`refill`](Group::refill) takes.
    order: Order,
    /// The entries, which the kernel reads.
    entries: OwnedPages,
    /// Entries, a power of two.
    count: u16,
    tail: u16,
    /// The page with each id (URING-2).
    pages: Vec<Option<Buffer>>,
    /// Ids without a page.
    free: Vec<u16>,
}

impl Group {
    /// Registers a group without pages.
    pub fn register(
        pool: &Pool,
        submitter: &Submitter<'_>,
        (number, count): (u16, u16),
        order: Order,
    ) -> Result<Group, RingError> {
        if !count.is_power_of_two() || count > COUNT_MAX {
            let why = "a power of two of buffers is expected, 32768 at most";
            return Err(RingError::Group { group: number, why });
        }
        let bytes = usize::from(count) * size_of::<BufRingEntry>();
        // 512 KiB at most, so there is such an order.
        let entries = pool.alloc_zeroed(Order::for_bytes(bytes).unwrap_or(Order::MAX));
        let entries = entries.map_err(RingError::GroupMemory)?;
        let entries = entries.into_owned();
        let address = entries.as_ptr() as u64;
        // SAFETY: (1) `entries` are page-aligned and stay until the group is unregistered, or for
        // ever (`Ring::drop`).
        let done = unsafe { submitter.register_buf_ring_with_flags(address, count, number, 0) };
        done.map_err(|error| match error.raw_os_error() {
            Some(libc::EEXIST) => RingError::Group { group: number, why: "the number is taken" },
            Some(libc::EINVAL) => {
                RingError::TooOld { what: "a group of provided buffers", since: "5.19", error }
            }
            _ => RingError::System { call: "io_uring_register (provided buffers)", error },
        })?;
        let pages = (0..count).map(|_| None).collect();
        let free = (0..count).rev().collect();
        Ok(Group { number, order, entries, count, tail: 0, pages, free })
    }

    /// Gives the kernel a page to take.
    ///
    /// # Errors
    /// The page, if the group is full or the page longer than an entry can say.
    pub fn provide(&mut self, mut page: Buffer) -> Result<(), Buffer> {
        let Ok(len) = u32::try_from(page.len()) else { return Err(page) };
        let Some(id) = self.free.pop() else { return Err(page) };
        let address = page.as_mut_ptr() as u64;
        self.pages[usize::from(id)] = Some(page);
        let base = self.entries.as_mut_ptr().cast::<BufRingEntry>();
        let at = usize::from(self.tail & (self.count - 1));
        // SAFETY: (1) `at` is below `count`, for which there is room; (2) nobody else has a
        // reference to the entry: the kernel looks at it when the tail has passed it, and has taken
        // the one that was there, or its id were not free (URING-2).
        let entry = unsafe { &mut *base.wrapping_add(at) };
        entry.set_addr(address);
        entry.set_len(len);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: (1) the address of the first entry, all of which are initialised.
        let tail = unsafe { BufRingEntry::tail(base) }.cast_mut();
        // SAFETY: (1) two aligned bytes that only this store writes and the kernel reads.
        let tail = unsafe { AtomicU16::from_ptr(tail) };
        // Release: pairs with the kernel's acquire, which then sees the entry.
        tail.store(self.tail, Ordering::Release);
        Ok(())
    }

    /// The page that the kernel took (URING-2).
    pub fn taken(&mut self, id: u16) -> Option<Buffer> {
        let page = self.pages.get_mut(usize::from(id))?.take()?;
        self.free.push(id);
        Some(page)
    }

    /// Fills the group with pages of the pool. Returns how many it got.
    ///
    /// # Errors
    /// The pool's, if it has not even one.
    pub fn refill(&mut self, pool: &Pool) -> Result<usize, RingError> {
        let mut got = 0;
        while !self.free.is_empty() {
            match pool.alloc(self.order) {
                Ok(page) => _ = self.provide(page.into_owned().into()),
                Err(error) if got == 0 => return Err(error.into()),
                Err(_) => break,
            }
            got += 1;
        }
        Ok(got)
    }

    /// Pages that the kernel may take.
    pub fn len(&self) -> usize {
        usize::from(self.count) - self.free.len()
    }
}
