//! A ring whose operations own their buffers.

use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use zonal::process::Process;
use zonal::{Order, Pool};

use crate::fixed::{FixedBuffers, Place};
use crate::group::Group;
use crate::operation::{Completion, InFlight, Io, Kind, Operation, Slots, accepted};
use crate::{Buffer, Refused, RingError};

/// How long a ring that is dropped waits for what is in flight.
pub const DROP_WAIT: Duration = Duration::from_secs(10);
/// The user data of entries whose completion says nothing.
const IGNORED: u64 = u64::MAX;

/// How a ring is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    entries: u32,
    fixed: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options::new()
    }
}

impl Options {
    /// 256 entries and fixed buffers.
    pub fn new() -> Options {
        Options { entries: 256, fixed: true }
    }
    /// Entries of the submission queue, at least 1; rounded up to a power of two, and down to what
    /// the kernel has at most.
    pub fn entries(mut self, entries: u32) -> Options {
        self.entries = entries;
        self
    }
    /// Whether the pool is registered as fixed buffers. Without, the kernel looks the pages of each
    /// operation up, and needs no right to lock memory.
    pub fn fixed(mut self, fixed: bool) -> Options {
        self.fixed = fixed;
        self
    }
}

/// An io_uring whose operations own pages of a pool until they are complete.
///
/// For one thread at a time; it may go to another one. Operations are begun by [`read`](Self::read)
/// and the like, given to the kernel by [`submit`](Self::submit) or [`wait`](Self::wait), and come
/// back by [`next`](Self::next).
pub struct Ring {
    /// Dropped by hand: not in a forked child, and after what is in flight.
    ring: ManuallyDrop<IoUring>,
    /// Not dropped while something is in flight (URING-1, URING-2).
    held: ManuallyDrop<Held>,
    pool: Pool,
    process: Process,
}

/// What the kernel has.
struct Held {
    slots: Slots,
    groups: Vec<Group>,
    fixed: Option<FixedBuffers>,
}

impl Ring {
    /// A ring for pages of this pool.
    ///
    /// # Errors
    /// [`RingError`]: the kernel makes no ring, or does not register the pool's memory.
    pub fn new(pool: &Pool, options: &Options) -> Result<Ring, RingError> {
        if options.entries == 0 {
            return Err(RingError::Entries);
        }
        let process = Process::this();
        let mut builder = IoUring::<squeue::Entry, cqueue::Entry>::builder();
        let built = builder.setup_clamp().build(options.entries);
        let ring = built.map_err(|error| match error.raw_os_error() {
            Some(libc::ENOSYS | libc::EPERM | libc::EACCES) => RingError::Unavailable(error),
            _ => RingError::System { call: "io_uring_setup", error },
        })?;
        let fixed = match options.fixed {
            // SAFETY: (1) operations of a `Ring` own what they name (URING-1).
            true => Some(unsafe { FixedBuffers::register(pool, &ring.submitter()) }?),
            false => None,
        };
        let held = Held { slots: Slots::default(), groups: Vec::new(), fixed };
        let (ring, held) = (ManuallyDrop::new(ring), ManuallyDrop::new(held));
        Ok(Ring { ring, held, pool: pool.clone(), process })
    }

    /// The pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
    /// Operations begun, whose last completion was not taken yet.
    pub fn in_flight(&self) -> usize {
        self.held.slots.len()
    }
    /// Where a byte of the pool is among the fixed buffers; `None` without those, and for any other
    /// address.
    pub fn place(&self, start: *const u8) -> Option<Place> {
        self.held.fixed.as_ref()?.place(start)
    }

    /// Reads into a buffer.
    ///
    /// Of a range that crosses 1 GiB of the pool, the limit of a fixed buffer, the part in front of
    /// it is read: a short read, as any may be.
    ///
    /// # Errors
    /// [`Refused`] has the buffer.
    pub fn read(
        &mut self,
        file: &Arc<OwnedFd>,
        buffer: impl Into<Buffer>,
        io: Io,
    ) -> Result<Operation, Refused> {
        self.transfer(file, buffer.into(), io, |fd, start, bytes, index, offset| match index {
            Some(index) => opcode::ReadFixed::new(fd, start, bytes, index).offset(offset).build(),
            None => opcode::Read::new(fd, start, bytes).offset(offset).build(),
        })
    }

    /// Writes from a buffer; short as [`read`](Self::read).
    ///
    /// # Errors
    /// [`Refused`] has the buffer.
    pub fn write(
        &mut self,
        file: &Arc<OwnedFd>,
        buffer: impl Into<Buffer>,
        io: Io,
    ) -> Result<Operation, Refused> {
        self.transfer(file, buffer.into(), io, |fd, start, bytes, index, offset| match index {
            Some(index) => opcode::WriteFixed::new(fd, start, bytes, index).offset(offset).build(),
            None => opcode::Write::new(fd, start, bytes).offset(offset).build(),
        })
    }

    fn transfer(
        &mut self,
        file: &Arc<OwnedFd>,
        mut buffer: Buffer,
        io: Io,
        entry: impl FnOnce(Fd, *mut u8, u32, Option<u16>, u64) -> squeue::Entry,
    ) -> Result<Operation, Refused> {
        let part = io.part.clone().unwrap_or(0..buffer.len());
        let (start, bytes, index) = match self.target(&mut buffer, part) {
            Ok(target) => target,
            Err(error) => return Err(Refused { error, buffer }),
        };
        let entry = entry(Fd(file.as_raw_fd()), start, bytes, index, io.offset);
        let (kind, token, file) = (Kind::Own, io.token, Arc::clone(file));
        let operation = InFlight { kind, token, file, buffer: Some(buffer) };
        self.begin(entry, operation).map_err(|(error, operation)| {
            let buffer = operation.buffer.expect("it was put in above");
            Refused { error, buffer }
        })
    }

    /// The bytes of a part of a buffer, and the fixed buffer that they are in.
    fn target(
        &self,
        buffer: &mut Buffer,
        part: Range<usize>,
    ) -> Result<(*mut u8, u32, Option<u16>), RingError> {
        let Range { start: from, end: to } = part;
        if from >= to || to > buffer.len() {
            return Err(RingError::Part { from, to, len: buffer.len() });
        }
        let start = buffer.as_mut_ptr().wrapping_add(from);
        let mut bytes = (to - from).min(i32::MAX as usize);
        if self.held.fixed.is_none() {
            return Ok((start, bytes as u32, None));
        }
        if !buffer.is_of(&self.pool) {
            return Err(RingError::Foreign);
        }
        let place = self.place(start).ok_or(RingError::Foreign)?;
        bytes = bytes.min(place.left);
        Ok((start, bytes as u32, Some(place.index)))
    }

    /// Accepts connections, one completion for each (5.19).
    ///
    /// # Errors
    /// [`RingError::Full`], [`RingError::Forked`].
    pub fn accept(&mut self, listener: &Arc<OwnedFd>, token: u64) -> Result<Operation, RingError> {
        let fd = Fd(listener.as_raw_fd());
        let entry = opcode::AcceptMulti::new(fd).flags(libc::SOCK_CLOEXEC).build();
        self.begin_bare(entry, Kind::Accept, listener, token)
    }

    /// Receives into pages of a group, one completion for each page (6.0), until the connection
    /// ends or the group is empty (`ENOBUFS`; then it has to be asked for again).
    ///
    /// # Errors
    /// [`RingError::Group`] without such a group, [`RingError::Full`], [`RingError::Forked`].
    pub fn receive(
        &mut self,
        socket: &Arc<OwnedFd>,
        group: u16,
        token: u64,
    ) -> Result<Operation, RingError> {
        self.group(group)?;
        let entry = opcode::RecvMulti::new(Fd(socket.as_raw_fd()), group).build();
        self.begin_bare(entry, Kind::Receive(group), socket, token)
    }

    fn begin_bare(
        &mut self,
        entry: squeue::Entry,
        kind: Kind,
        file: &Arc<OwnedFd>,
        token: u64,
    ) -> Result<Operation, RingError> {
        let operation = InFlight { kind, token, file: Arc::clone(file), buffer: None };
        self.begin(entry, operation).map_err(|(error, _)| error)
    }

    fn begin(
        &mut self,
        entry: squeue::Entry,
        operation: InFlight,
    ) -> Result<Operation, (RingError, InFlight)> {
        if let Err(error) = self.own() {
            return Err((error, operation));
        }
        let operation = self.held.slots.insert(operation);
        match self.push(entry.user_data(operation.user_data())) {
            Ok(()) => Ok(operation),
            Err(error) => {
                let operation = self.held.slots.remove(operation);
                Err((error, operation.expect("it was put in above")))
            }
        }
    }

    /// Puts an entry into the submission queue, which is submitted if it is full.
    fn push(&mut self, entry: squeue::Entry) -> Result<(), RingError> {
        for _ in 0..2 {
            // SAFETY: (1) what the entry names is in a slot until it is complete (URING-1).
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return Ok(());
            }
            self.submit()?;
        }
        Err(RingError::Full)
    }

    /// Asks the kernel to end an operation soon. Its completion still comes, with `ECANCELED` or
    /// with what was done by then.
    ///
    /// # Errors
    /// [`RingError::Full`], [`RingError::Forked`].
    pub fn cancel(&mut self, operation: Operation) -> Result<(), RingError> {
        self.own()?;
        let entry = opcode::AsyncCancel::new(operation.user_data()).build();
        self.push(entry.user_data(IGNORED))
    }

    /// Gives the kernel all operations begun. Returns how many.
    ///
    /// # Errors
    /// [`RingError::System`].
    pub fn submit(&mut self) -> Result<usize, RingError> {
        self.wait_at_most(0, None)
    }

    /// As [`submit`](Self::submit), and waits until `least` completions can be taken, or one for
    /// each operation in flight if those are fewer. A signal ends the wait early.
    ///
    /// # Errors
    /// [`RingError::System`].
    pub fn wait(&mut self, least: usize) -> Result<usize, RingError> {
        self.wait_at_most(least.min(self.in_flight()), None)
    }

    /// As [`wait`](Self::wait), and not longer than this (5.11).
    ///
    /// # Errors
    /// [`RingError::System`].
    pub fn wait_for(&mut self, least: usize, most: Duration) -> Result<usize, RingError> {
        self.wait_at_most(least, Some(most))
    }

    fn wait_at_most(&mut self, least: usize, most: Option<Duration>) -> Result<usize, RingError> {
        self.own()?;
        let submitter = self.ring.submitter();
        let done = match most {
            None => submitter.submit_and_wait(least),
            Some(most) => {
                let most = Timespec::from(most);
                submitter.submit_with_args(least, &SubmitArgs::new().timespec(&most))
            }
        };
        match done {
            Ok(submitted) => Ok(submitted),
            Err(error) => match error.raw_os_error() {
                // A signal, the time, or completions that must be taken first.
                Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN) => Ok(0),
                _ => Err(RingError::System { call: "io_uring_enter", error }),
            },
        }
    }

    /// The next completion, if there is one.
    #[expect(clippy::should_implement_trait, reason = "more may follow after a `None`")]
    pub fn next(&mut self) -> Option<Completion> {
        self.own().ok()?;
        loop {
            let entry = self.ring.completion().next()?;
            if entry.user_data() == IGNORED {
                continue;
            }
            let (result, flags) = (entry.result(), entry.flags());
            let Some(finished) = self.held.slots.finish(entry.user_data(), flags) else {
                debug_assert!(false, "a completion of nothing: {entry:?}");
                continue;
            };
            let provided = match (finished.kind, cqueue::buffer_select(flags)) {
                (Kind::Receive(number), Some(id)) => {
                    let group = self.held.groups.iter_mut().find(|group| group.number == number);
                    group.and_then(|group| group.taken(id))
                }
                _ => None,
            };
            return Some(Completion {
                token: finished.token,
                operation: finished.operation,
                result: u32::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result)),
                buffer: finished.buffer.or(provided),
                accepted: accepted(finished.kind, result),
                more: finished.more,
            });
        }
    }

    /// A group of `count` pages of `order` for [`receive`](Self::receive), taken from the pool
    /// (5.19). `count` is a power of two.
    ///
    /// # Errors
    /// [`RingError::Group`] for a number that is taken or a count that cannot be;
    /// [`RingError::GroupMemory`] if the pool has no block for its entries. [`RingError::Pages`] if
    /// it has no page: the group is there, for [`refill`](Self::refill).
    pub fn provide(&mut self, group: u16, count: u16, order: Order) -> Result<(), RingError> {
        self.own()?;
        let submitter = self.ring.submitter();
        let new = Group::register(&self.pool, &submitter, (group, count), order)?;
        self.held.groups.push(new);
        self.refill(group).map(|_| ())
    }

    /// Gives a page to a group, usually one that came from it.
    ///
    /// # Errors
    /// [`Refused`] has the page: the group is full, or does not exist.
    pub fn give_back(&mut self, group: u16, page: impl Into<Buffer>) -> Result<(), Refused> {
        let page = page.into();
        match self.own().and_then(|()| self.group(group)) {
            Ok(found) => found.provide(page).map_err(|buffer| {
                let why = "it has all its pages, or the buffer has 4 GiB";
                Refused { error: RingError::Group { group, why }, buffer }
            }),
            Err(error) => Err(Refused { error, buffer: page }),
        }
    }

    /// Fills a group with new pages of the pool, for those that went another way than
    /// [`give_back`](Self::give_back). Returns how many.
    ///
    /// # Errors
    /// [`RingError::Pages`] if pages are missing and the pool has none.
    pub fn refill(&mut self, group: u16) -> Result<usize, RingError> {
        self.own()?;
        let pool = self.pool.clone();
        self.group(group)?.refill(&pool)
    }

    /// Pages of a group that the kernel may take.
    ///
    /// # Errors
    /// [`RingError::Group`] without such a group.
    pub fn provided(&mut self, group: u16) -> Result<usize, RingError> {
        self.group(group).map(|group| group.len())
    }

    fn group(&mut self, group: u16) -> Result<&mut Group, RingError> {
        let found = self.held.groups.iter_mut().find(|one| one.number == group);
        found.ok_or(RingError::Group { group, why: "there is no such group" })
    }

    /// URING-4.
    fn own(&self) -> Result<(), RingError> {
        if self.process.is_this() { Ok(()) } else { Err(RingError::Forked) }
    }

    /// Cancels what is in flight and waits for it. `false`: the kernel still has something.
    fn end(&mut self) -> bool {
        let end = Instant::now() + DROP_WAIT;
        while self.in_flight() > 0 {
            // What was begun and not submitted is a completion like any other then.
            if self.submit().is_err() || Instant::now() >= end {
                return false;
            }
            // Nothing to cancel any more (`ENOENT`), or a kernel that cannot (before 6.0): waited
            // for all the same.
            let most = Timespec::from(Duration::from_millis(100));
            let _ = self.ring.submitter().register_sync_cancel(Some(most), CancelBuilder::any());
            if self.ring.completion().is_empty()
                && self.wait_for(1, Duration::from_millis(100)).is_err()
            {
                return false;
            }
            while let Some(completion) = self.next() {
                drop(completion);
            }
        }
        true
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.own().is_err() {
            // A child: the queues are the parent's, and what is in flight is the parent's page. The
            // copies here are out of use for good.
            return;
        }
        let is_done = self.end();
        // SAFETY: (1) dropped once, here. With it the registrations end.
        unsafe { ManuallyDrop::drop(&mut self.ring) };
        if is_done {
            // SAFETY: (1) dropped once, here; nothing is in flight and the ring is gone, so the
            // kernel has nothing of it (URING-1 to URING-3).
            unsafe { ManuallyDrop::drop(&mut self.held) };
        }
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("in_flight", &self.in_flight())
            .field("fixed", &self.held.fixed.is_some())
            .finish_non_exhaustive()
    }
}
