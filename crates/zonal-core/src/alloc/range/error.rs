//! What is asked for as a range, and how it is refused.

use core::fmt;

use super::order_over;
use crate::alloc::request::{AllocError, FreeError, Refusal, Request};
use crate::gfp::Gfp;
use crate::types::{NodeId, Order, Pfn};

/// One request for a range: pages in a row, exactly as many as asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RangeRequest {
    /// Pages.
    pub pages: u64,
    /// The first page's number is a multiple of this power of two.
    pub align: u64,
    /// Rights, zone and migratetype.
    pub gfp: Gfp,
    /// Node to prefer; the running CPU's if `None`.
    pub node: Option<NodeId>,
    /// At the lowest address that has them, rather than in the first block that is found.
    pub packed: bool,
}

impl RangeRequest {
    /// `pages` pages for ordinary use (`GFP_KERNEL`), from the running CPU's node, at any page.
    pub const fn new(pages: u64) -> RangeRequest {
        RangeRequest { pages, align: 1, gfp: Gfp::KERNEL, node: None, packed: false }
    }
    /// Beginning at a multiple of `align` pages, a power of two.
    pub const fn aligned(self, align: u64) -> RangeRequest {
        RangeRequest { align, ..self }
    }
    /// With these rights.
    pub const fn gfp(self, gfp: Gfp) -> RangeRequest {
        RangeRequest { gfp, ..self }
    }
    /// From this node rather than the running CPU's.
    pub const fn on(self, node: NodeId) -> RangeRequest {
        RangeRequest { node: Some(node), ..self }
    }

    /// At the lowest address that has them. That looks through the zone, and keeps far longer runs
    /// free where ranges of many sizes and ages come and go.
    pub const fn packed(self) -> RangeRequest {
        RangeRequest { packed: true, ..self }
    }

    /// The smallest order whose blocks hold the range with its alignment; `None` above
    /// [`Order::MAX`].
    pub fn block_order(&self) -> Option<Order> {
        let pages = self.pages.max(self.align);
        if pages > Order::MAX.pages() {
            return None;
        }
        order_over(pages)
    }

    /// The request for one block of `order`.
    pub(in crate::alloc) fn of_block(&self, order: Order) -> Request {
        Request { order, gfp: self.gfp, node: self.node }
    }
}

/// A refused range. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RangeError {
    /// Pages asked for.
    pub pages: u64,
    /// Where they were to begin, if they were asked for at a place.
    pub start: Option<Pfn>,
    /// Why.
    pub why: RangeRefusal,
}

/// Why a range was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RangeRefusal {
    /// No pages.
    Empty,
    /// The alignment is not a power of two.
    Align(u64),
    /// No zone that the request may use has so many pages, free or not.
    TooLong {
        /// The most that one has, from a multiple of `align` on.
        longest: u64,
        /// The alignment asked for, in pages.
        align: u64,
    },
    /// No zone may give that many pages, or none has them in a row: of
    /// [`Refusal::Fragmented`] the latter.
    Refused(Refusal),
    /// The address asked for lies so many bytes behind the start of its page. Not found by the
    /// core, which counts pages: a pool of addresses says it.
    Unaligned {
        /// Those bytes.
        past: usize,
    },
    /// The range leaves its zone, or the memory, at this page.
    Outside(Pfn),
    /// The first page of the range that is not free.
    InTheWay(Pfn, Obstacle),
    /// What was to grow is not a range of the caller.
    NotARange(FreeError),
}

/// Why a page is not free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Obstacle {
    /// In somebody's hands, as part of the block that starts at this page.
    Held(Pfn, Order),
    /// On a per-CPU list or in a depot that was used again each time it had been drained, or on its
    /// way there.
    Cached,
    /// In a pageblock set aside for atomic requests.
    HighAtomic,
    /// In a pageblock that is out of use.
    Isolated,
    /// A hole, reserved, or not online.
    Absent,
    /// The page's metadata was overwritten.
    Corrupt,
    /// Written to while it was free, so it stays out of use. Not found by the core: a platform that
    /// looks at the bytes says it.
    WrittenWhileFree,
}

impl From<AllocError> for RangeRefusal {
    fn from(error: AllocError) -> RangeRefusal {
        RangeRefusal::Refused(error.why)
    }
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot allocate {} pages in a row", self.pages)?;
        if let Some(start) = self.start {
            write!(f, " at {start:?}")?;
        }
        match self.why {
            RangeRefusal::Empty => f.write_str(": a range has at least one page"),
            RangeRefusal::Align(align) => {
                write!(f, ": the alignment {align} is not a power of two")
            }
            RangeRefusal::TooLong { longest, align } => {
                write!(f, ": the largest zone that may serve it has {longest}")?;
                match align {
                    ..=1 => Ok(()),
                    _ => write!(f, " from a multiple of {align} on"),
                }
            }
            RangeRefusal::Refused(Refusal::Fragmented { node, kind, free, .. }) => write!(
                f,
                ": {node:?}, zone {kind} has {free} pages free, but not that many in a row, \
                 aligned as asked"
            ),
            RangeRefusal::Refused(why) => write!(f, ": {why}"),
            RangeRefusal::Unaligned { past } => {
                let s = if past == 1 { "" } else { "s" };
                write!(f, ": the address is {past} byte{s} past the start of a page")
            }
            RangeRefusal::Outside(pfn) => write!(f, ": the zone ends in front of {pfn:?}"),
            RangeRefusal::InTheWay(pfn, what) => write!(f, ": {pfn:?} is {what}"),
            RangeRefusal::NotARange(error) => write!(f, ": {error}"),
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Held(block, order) => {
                write!(f, "handed out, in the block of {order:?} at {block:?}")
            }
            Obstacle::Cached => f.write_str("on a per-CPU list that is in use"),
            Obstacle::HighAtomic => f.write_str("set aside for atomic requests"),
            Obstacle::Isolated => f.write_str("in a pageblock that is out of use"),
            Obstacle::Absent => f.write_str("a hole, reserved, or not online"),
            Obstacle::Corrupt => f.write_str("unusable: its metadata was overwritten"),
            Obstacle::WrittenWhileFree => {
                f.write_str("out of use from now on: it was written to while it was free")
            }
        }
    }
}

impl core::error::Error for RangeError {}
