//! Operations in flight: what each owns, and what comes back.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;

use io_uring::cqueue;

use crate::Buffer;

/// Which bytes of a buffer go where, and what the completion is called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Io {
    pub(crate) offset: u64,
    pub(crate) part: Option<Range<usize>>,
    pub(crate) token: u64,
}

impl Io {
    /// At this byte of a file.
    pub fn at(offset: u64) -> Io {
        Io { offset, part: None, token: 0 }
    }
    /// On a socket or pipe, or where the file stands.
    pub fn stream() -> Io {
        Io::at(u64::MAX)
    }
    /// With these bytes of the buffer rather than all.
    pub fn part(self, part: Range<usize>) -> Io {
        Io { part: Some(part), ..self }
    }
    /// [`Completion::token`] will be this.
    pub fn token(self, token: u64) -> Io {
        Io { token, ..self }
    }
}

/// An operation that was begun, to be cancelled by [`Ring::cancel`](crate::Ring::cancel).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Operation {
    pub(crate) slot: u32,
    /// How often the slot was used before.
    pub(crate) turn: u32,
}

impl Operation {
    pub(crate) fn user_data(self) -> u64 {
        u64::from(self.turn) << 32 | u64::from(self.slot)
    }
    pub(crate) fn of(user_data: u64) -> Operation {
        Operation { slot: user_data as u32, turn: (user_data >> 32) as u32 }
    }
}

/// What an operation came to.
pub struct Completion {
    /// [`Io::token`], or that of the accept or receive.
    pub token: u64,
    /// The operation; the same for each completion of one that goes on.
    pub operation: Operation,
    /// Bytes read or written, which may be fewer than asked for, or why none were. 0 bytes read:
    /// the end.
    pub result: io::Result<u32>,
    /// The operation's buffer, or the provided one that the kernel took.
    pub buffer: Option<Buffer>,
    /// The connection that was accepted.
    pub accepted: Option<OwnedFd>,
    /// The operation goes on: more completions of it follow.
    pub more: bool,
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Completion { token, result, more, .. } = self;
        f.debug_struct("Completion")
            .field("token", token)
            .field("result", result)
            .field("more", more)
            .finish_non_exhaustive()
    }
}

/// What an operation does, as far as its completion depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Reads or writes its own buffer.
    Own,
    /// Accepts connections: the result is a descriptor.
    Accept,
    /// Receives into a buffer of a group.
    Receive(u16),
}

/// An operation in flight (URING-1).
pub(crate) struct InFlight {
    pub kind: Kind,
    pub token: u64,
    /// Open until the kernel is done with it.
    pub file: Arc<OwnedFd>,
    pub buffer: Option<Buffer>,
}

/// Slots of operations: each has one in flight, or is free.
#[derive(Default)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Default)]
struct Slot {
    turn: u32,
    operation: Option<InFlight>,
}

/// What a completion says, with the operation it is of.
pub(crate) struct Finished {
    pub operation: Operation,
    pub kind: Kind,
    pub token: u64,
    pub buffer: Option<Buffer>,
    pub more: bool,
}

impl Slots {
    /// Operations in flight.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub fn insert(&mut self, operation: InFlight) -> Operation {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let place = &mut self.slots[slot as usize];
        place.operation = Some(operation);
        Operation { slot, turn: place.turn }
    }

    /// The operation itself: it was never submitted, or its last completion was taken.
    pub fn remove(&mut self, operation: Operation) -> Option<InFlight> {
        let place = self.slots.get_mut(operation.slot as usize)?;
        if place.turn != operation.turn {
            return None;
        }
        let gone = place.operation.take()?;
        place.turn = place.turn.wrapping_add(1);
        self.free.push(operation.slot);
        Some(gone)
    }

    /// The operation of a completion; its own buffer comes with the last one only (URING-1).
    pub fn finish(&mut self, user_data: u64, flags: u32) -> Option<Finished> {
        let operation = Operation::of(user_data);
        let more = cqueue::more(flags);
        if more {
            let place = self.slots.get(operation.slot as usize)?;
            let InFlight { kind, token, .. } = *place.operation.as_ref()?;
            return Some(Finished { operation, kind, token, buffer: None, more });
        }
        let InFlight { kind, token, buffer, file } = self.remove(operation)?;
        drop(file);
        Some(Finished { operation, kind, token, buffer, more })
    }
}

/// The result of an accept as a descriptor of this process.
pub(crate) fn accepted(kind: Kind, result: i32) -> Option<OwnedFd> {
    if kind != Kind::Accept || result < 0 {
        return None;
    }
    // SAFETY: (1) the kernel made it for this completion, which is taken once.
    Some(unsafe { OwnedFd::from_raw_fd(result) })
}
