//! The records of all CPUs in the order of their times.
//!
//! One page per CPU is in memory. A heap holds, for each CPU that has more, the time of its next
//! record; among equal times the CPU that comes first in the recording comes first, as in the text
//! that the kernel prints.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::PathBuf;

use super::page::{PageCursor, PageLayout, Record};
use crate::bytes::Damage;
use crate::error::{Position, TraceError};
use crate::event::{Event, EventKind};
use crate::tracefs::Decoder;

/// Where pages come from.
pub(crate) trait Pages: Send {
    /// The CPUs, by index. One may be there twice: rings of two instances.
    fn cpus(&self) -> &[u32];

    /// Replaces `page` by the next page of the CPU with this index and returns its offset in the
    /// file, or `None` at the end.
    fn next_page(&mut self, index: usize, page: &mut Vec<u8>) -> Result<Option<u64>, Damage>;

    /// The file that holds the pages of the CPU with this index.
    fn file(&self, index: usize) -> PathBuf;
}

/// The events of a recording in rings.
pub(crate) struct RingEvents {
    pages: Box<dyn Pages>,
    layout: PageLayout,
    decoder: Decoder,
    lanes: Vec<Lane>,
    heap: BinaryHeap<Reverse<(u64, usize)>>,
    /// Where the event came from that was returned last.
    last: (usize, u64),
}

/// One CPU.
#[derive(Default)]
struct Lane {
    page: Vec<u8>,
    offset: u64,
    cursor: PageCursor,
    next: Option<Record>,
    /// Events lost before `next`, reported first.
    lost: Option<u64>,
}

impl RingEvents {
    pub(crate) fn new(pages: Box<dyn Pages>, layout: PageLayout, decoder: Decoder) -> RingEvents {
        let lanes = pages.cpus().iter().map(|_| Lane::default()).collect();
        RingEvents { pages, layout, decoder, lanes, heap: BinaryHeap::new(), last: (usize::MAX, 0) }
    }

    /// The next event.
    pub(crate) fn next_event(&mut self) -> Result<Option<Event>, TraceError> {
        if self.last.0 == usize::MAX {
            self.last.0 = 0;
            for index in 0..self.lanes.len() {
                if let Some(time) = self.advance(index)? {
                    self.heap.push(Reverse((time, index)));
                }
            }
        }
        let Some(Reverse((time_ns, index))) = self.heap.peek().copied() else {
            return Ok(None);
        };
        let cpu = self.pages.cpus()[index];
        let lane = &mut self.lanes[index];
        if let Some(events) = lane.lost.take() {
            return Ok(Some(Event { time_ns, cpu, pid: 0, kind: EventKind::Lost { events } }));
        }
        let Some(record) = lane.next.take() else {
            return Ok(None);
        };
        self.last = (index, lane.offset + record.start as u64);
        let decoded = self.decoder.decode(&lane.page[record.start..record.end]);
        let (pid, kind) = decoded.map_err(|fault| {
            let damage = Damage::new(self.last.1, fault);
            at(self.pages.file(index), damage)
        })?;
        let next = self.advance(index)?;
        if let Some(mut top) = self.heap.peek_mut() {
            match next {
                Some(time) => top.0.0 = time,
                None => drop(std::collections::binary_heap::PeekMut::pop(top)),
            }
        }
        Ok(Some(Event { time_ns, cpu, pid, kind }))
    }

    /// The file and byte of the event that was returned last.
    pub(crate) fn place(&self) -> (PathBuf, Position) {
        (self.pages.file(self.last.0), Position::Byte(self.last.1))
    }

    /// Finds the next record of a CPU and returns its time.
    fn advance(&mut self, index: usize) -> Result<Option<u64>, TraceError> {
        let lane = &mut self.lanes[index];
        loop {
            let record = lane.cursor.next(self.layout, &lane.page, lane.offset);
            lane.next = record.map_err(|damage| at(self.pages.file(index), damage))?;
            if let Some(record) = lane.next {
                return Ok(Some(record.time));
            }
            let read = self.pages.next_page(index, &mut lane.page);
            match read.map_err(|damage| at(self.pages.file(index), damage))? {
                Some(offset) => lane.offset = offset,
                None => return Ok(None),
            }
            let cursor = self.layout.open(&lane.page, lane.offset);
            lane.cursor = cursor.map_err(|damage| at(self.pages.file(index), damage))?;
            // An empty page passes its losses on to the page that follows it.
            lane.lost = match (lane.lost, lane.cursor.lost) {
                (Some(before), Some(here)) => Some(before.saturating_add(here)),
                (before, here) => before.or(here),
            };
        }
    }
}

#[cold]
fn at(file: PathBuf, damage: Damage) -> TraceError {
    TraceError::new(file, Position::Byte(damage.offset), damage.fault)
}
