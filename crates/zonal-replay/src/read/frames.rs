//! State of each page frame, as far as the trace has shown it.

use std::collections::HashMap;

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

/// A [`Frame`] for each page frame number, in pieces of one pageblock: traces touch few of those.
#[derive(Debug, Default)]
pub struct PageTable {
    pieces: HashMap<u64, Box<[u32; 512]>>,
}

const SEEN: u32 = 1;
const FIRST_SLOT: u32 = 2;
const FREED: u32 = 1 << 31;

impl PageTable {
    /// State of a frame.
    pub fn get(&self, pfn: u64) -> Frame {
        let Some(piece) = self.pieces.get(&(pfn >> 9)) else { return Frame::Unseen };
        match piece[pfn as usize & 511] {
            0 => Frame::Unseen,
            SEEN => Frame::Seen,
            freed if freed & FREED != 0 => Frame::Freed((freed & !FREED) - FIRST_SLOT),
            live => Frame::Live(live - FIRST_SLOT),
        }
    }

    /// Takes note of what became of a frame.
    pub fn set(&mut self, pfn: u64, frame: Frame) {
        let piece = self.pieces.entry(pfn >> 9).or_insert_with(|| Box::new([0; 512]));
        piece[pfn as usize & 511] = match frame {
            Frame::Unseen => 0,
            Frame::Seen => SEEN,
            Frame::Freed(slot) => (slot + FIRST_SLOT) | FREED,
            Frame::Live(slot) => slot + FIRST_SLOT,
        };
    }
}
