//! State of each page frame, as far as the trace has shown it.

use crate::by_page::ByPage;

/// State of a frame, by the trace so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Not in the trace yet.
    Unseen,
    /// Inside a block, now or once.
    Seen,
    /// First frame of the block of a slot that was freed.
    Freed(u32),
    /// First frame of the block of a slot.
    Live(u32),
}

/// A [`Frame`] for each page frame number.
#[derive(Debug, Default)]
pub struct PageTable {
    frames: ByPage<u32>,
}

const SEEN: u32 = 1;
const FIRST_SLOT: u32 = 2;
const FREED: u32 = 1 << 31;

impl PageTable {
    /// State of a frame.
    pub fn get(&self, pfn: u64) -> Frame {
        match self.frames.get(pfn) {
            0 => Frame::Unseen,
            SEEN => Frame::Seen,
            freed if freed & FREED != 0 => Frame::Freed((freed & !FREED) - FIRST_SLOT),
            live => Frame::Live(live - FIRST_SLOT),
        }
    }

    /// Takes note of what became of a frame.
    pub fn set(&mut self, pfn: u64, frame: Frame) {
        *self.frames.of(pfn) = match frame {
            Frame::Unseen => 0,
            Frame::Seen => SEEN,
            Frame::Freed(slot) => (slot + FIRST_SLOT) | FREED,
            Frame::Live(slot) => slot + FIRST_SLOT,
        };
    }
}
