//! Memory before there are zones: what the firmware reports, what is in use already, and what is
//! taken until an allocator stands (LB A.1; Linux calls it `memblock`).
//!
//! ```text
//!  add, remove, set_node ──► memory     |■■■■■■■■ node 0 ■■■■■|   |■■■■ node 1 ■■■■■|
//!  reserve, take, release ─► reserved      |■|      |■■■|            |■|
//!  free, pages            ─► the rest   |■■|  |■■■■■|   |■■■■■|   |■■|  |■■■■■■■■■■■|
//! ```
//! Everything is in bytes of physical address space, because firmware reports bytes. Only
//! [`pages`](Early::pages) rounds: a page is free if all of it is.
//!
//! The order of calls does not matter: memory may be reserved before it is added, and added in
//! pieces that overlap. [`hand_over`](Early::hand_over) gives all free pages to an allocator; from
//! then on nothing is taken here any more, but what is reserved can still be given back, byte by
//! byte, by [`release_to`](Early::release_to).
//!
//! # Invariants
//! - **EARLY-1** regions of a list are sorted, not empty, do not overlap, and two of one node do
//!   not touch.
//! - **EARLY-2** a call that fails changes nothing.

mod error;
mod regions;
#[cfg(test)]
mod tests;

pub use error::EarlyError;

use core::ops::Range;

use crate::types::{NodeId, PAGE_SIZE, Pfn};
use regions::{Region, Regions};

/// Bytes of a page.
const PAGE: u64 = PAGE_SIZE as u64;

/// What [`Early::take`] looks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// Bytes.
    pub bytes: u64,
    /// Multiple that the first address is to be: a power of two.
    pub align: u64,
    /// Only memory of this node.
    pub node: Option<NodeId>,
    /// Only addresses in this range.
    pub within: Range<u64>,
}

impl Want {
    /// So many bytes anywhere, at a page boundary.
    pub const fn bytes(bytes: u64) -> Want {
        Want { bytes, align: PAGE, node: None, within: 0..u64::MAX }
    }
}

/// The memory of a machine that has no allocator yet. `N`: most regions of each of its two lists;
/// Linux begins with 128. It takes `48 * N` bytes and can be a `static`.
#[derive(Clone, Debug)]
pub struct Early<const N: usize> {
    memory: Regions<N>,
    reserved: Regions<N>,
    handed_over: bool,
}

impl<const N: usize> Default for Early<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Early<N> {
    /// No memory.
    pub const fn new() -> Early<N> {
        Early { memory: Regions::new(), reserved: Regions::new(), handed_over: false }
    }

    /// Adds memory of a node. What is known already keeps its node.
    ///
    /// # Errors
    /// [`EarlyError::Full`], [`EarlyError::Backwards`]; [`EarlyError::HandedOver`] once the pages
    /// were: memory that comes later goes to the allocator.
    pub fn add(&mut self, range: Range<u64>, node: NodeId) -> Result<(), EarlyError> {
        self.is_open()?;
        self.memory.add(Region::new(range, node)?).map_err(full("memory"))
    }

    /// Takes memory out of the list, reserved or not, as if the machine had none there.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn remove(&mut self, range: Range<u64>) -> Result<(), EarlyError> {
        self.is_open()?;
        self.memory.cut(Region::new(range, NodeId(0))?).map_err(full("memory"))
    }

    /// Makes the memory in the range that of a node: firmware names affinities in a table of its
    /// own.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn set_node(&mut self, range: Range<u64>, node: NodeId) -> Result<(), EarlyError> {
        self.is_open()?;
        self.memory.set_node(Region::new(range, node)?).map_err(full("memory"))
    }

    /// Keeps a range from being taken and handed over: the kernel's image, firmware's tables. It
    /// need not be memory, and may be reserved in part already.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn reserve(&mut self, range: Range<u64>) -> Result<(), EarlyError> {
        self.is_open()?;
        self.reserved.add(Region::new(range, NodeId(0))?).map_err(full("reserved memory"))
    }

    /// Gives back what was reserved or taken, or a part of it.
    ///
    /// # Errors
    /// [`EarlyError::NotReserved`] unless all of it is; [`EarlyError::Full`] where two pieces are
    /// left of a region; [`EarlyError::HandedOver`]: then [`release_to`](Self::release_to) gives
    /// back.
    pub fn release(&mut self, range: Range<u64>) -> Result<(), EarlyError> {
        self.is_open()?;
        self.unreserve(range)
    }

    /// As [`release`](Self::release), once the pages were handed over.
    pub(crate) fn release_late(&mut self, range: Range<u64>) -> Result<(), EarlyError> {
        if !self.handed_over {
            return Err(EarlyError::NotHandedOver);
        }
        self.unreserve(range)
    }

    /// Reserves again what [`release_late`](Self::release_late) has just given back: there is room,
    /// as before.
    pub(crate) fn reserve_late(&mut self, range: Range<u64>) {
        let reserved = Region::new(range, NodeId(0)).map(|region| self.reserved.add(region));
        debug_assert_eq!(reserved, Ok(Ok(())), "EARLY-2");
    }

    fn unreserve(&mut self, range: Range<u64>) -> Result<(), EarlyError> {
        let region = Region::new(range.clone(), NodeId(0))?;
        if !self.reserved.covers(&region) {
            return Err(EarlyError::NotReserved(range.start, range.end));
        }
        self.reserved.cut(region).map_err(full("reserved memory"))
    }

    /// Takes the highest free range that `want` describes, and returns its first address. It is
    /// reserved then: [`release`](Self::release) gives it back. Its contents are whatever they
    /// were.
    ///
    /// # Errors
    /// [`EarlyError::NoMemory`], [`EarlyError::Alignment`], [`EarlyError::Full`],
    /// [`EarlyError::HandedOver`].
    pub fn take(&mut self, want: &Want) -> Result<u64, EarlyError> {
        self.is_open()?;
        if !want.align.is_power_of_two() {
            return Err(EarlyError::Alignment(want.align));
        }
        let at = self.find(want).ok_or(EarlyError::NoMemory(want.bytes, want.align))?;
        self.reserve(at..at + want.bytes)?;
        Ok(at)
    }

    /// The highest address that fits: free ranges come by rising address.
    fn find(&self, want: &Want) -> Option<u64> {
        let free = self.free().filter(|(_, node)| want.node.is_none_or(|wanted| wanted == *node));
        let fits = free.filter_map(|(range, _)| {
            let start = range.start.max(want.within.start);
            let end = range.end.min(want.within.end);
            let at = end.checked_sub(want.bytes)? & !(want.align - 1);
            (at >= start).then_some(at)
        });
        fits.last()
    }

    /// Ranges that are memory and not reserved, by rising address, with their node. Ranges of
    /// different nodes are apart even where they touch.
    pub fn free(&self) -> impl Iterator<Item = (Range<u64>, NodeId)> + '_ {
        self.memory.iter().flat_map(move |memory| {
            let mut from = memory.start;
            let reserved = self.reserved.iter().filter(move |other| other.end > memory.start);
            let reserved = reserved.take_while(move |other| other.start < memory.end);
            let ends = reserved.map(|other| (other.start, other.end));
            let gaps = ends.chain([(memory.end, memory.end)]).map(move |(start, end)| {
                let gap = from..start;
                from = end;
                gap
            });
            gaps.filter(|gap| gap.start < gap.end).map(move |gap| (gap, memory.node))
        })
    }

    /// Ranges of whole free pages, by rising number, with their node: what is handed over.
    pub fn pages(&self) -> impl Iterator<Item = (Range<Pfn>, NodeId)> + '_ {
        self.free().filter_map(|(range, node)| Some((whole_pages(&range)?, node)))
    }

    /// All memory, reserved or not, by rising address, with its node: from which a kernel makes
    /// its zones.
    pub fn memory(&self) -> impl Iterator<Item = (Range<u64>, NodeId)> + '_ {
        self.memory.iter().map(|region| (region.start..region.end, region.node))
    }

    /// What is reserved, by rising address.
    pub fn reserved(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.reserved.iter().map(|region| region.start..region.end)
    }

    /// Whether the free pages are an allocator's.
    pub fn is_handed_over(&self) -> bool {
        self.handed_over
    }

    /// From now on nothing is added, reserved or taken.
    pub(crate) fn close(&mut self) -> Result<(), EarlyError> {
        self.is_open()?;
        self.handed_over = true;
        Ok(())
    }

    fn is_open(&self) -> Result<(), EarlyError> {
        if self.handed_over { Err(EarlyError::HandedOver) } else { Ok(()) }
    }
}

fn full(list: &'static str) -> impl FnOnce(usize) -> EarlyError {
    move |most| EarlyError::Full(list, most)
}

/// The pages that lie wholly inside of a range of bytes. `None`: there is none.
pub(crate) fn whole_pages(range: &Range<u64>) -> Option<Range<Pfn>> {
    let (start, end) = (range.start.div_ceil(PAGE), range.end / PAGE);
    (start < end).then_some(Pfn(start)..Pfn(end))
}
