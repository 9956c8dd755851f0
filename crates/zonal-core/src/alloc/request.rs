//! What is asked of the allocator, and how it refuses.

use core::fmt;

use crate::gfp::Gfp;
use crate::types::{NodeId, Order, Pfn, ZoneId, ZoneKind};
use crate::zone::watermark::Watermark;

/// One request for a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Order of the block.
    pub order: Order,
    /// Rights, zone and migratetype.
    pub gfp: Gfp,
    /// Node to prefer; the running CPU's if `None`.
    pub node: Option<NodeId>,
}

impl Request {
    /// A block of `order` for ordinary use (`GFP_KERNEL`), from the running CPU's node.
    pub const fn new(order: Order) -> Request {
        Request { order, gfp: Gfp::KERNEL, node: None }
    }
    /// With these rights.
    pub const fn gfp(self, gfp: Gfp) -> Request {
        Request { gfp, ..self }
    }
    /// From this node rather than the running CPU's.
    pub const fn on(self, node: NodeId) -> Request {
        Request { node: Some(node), ..self }
    }
}

/// A refused request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllocError {
    /// Order asked for.
    pub order: Order,
    /// Why.
    pub why: Refusal,
}

/// Why a request was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// The last zone tried would have fallen below its watermark.
    Watermark {
        /// The zone.
        zone: ZoneId,
        /// Its node.
        node: NodeId,
        /// Its kind.
        kind: ZoneKind,
        /// The mark that refused.
        watermark: Watermark,
        /// Free pages that counted for the request.
        free: u64,
        /// It needed more than this many.
        needed: u64,
    },
    /// The last zone tried is above its watermark, or the request ignores watermarks, but there is
    /// no free block of the order.
    Fragmented {
        /// The zone.
        zone: ZoneId,
        /// Its node.
        node: NodeId,
        /// Its kind.
        kind: ZoneKind,
        /// Its free pages.
        free: u64,
    },
    /// The zone and migratetype bits of the flags mean nothing.
    BadGfp(Gfp),
    /// The node does not exist, or no zone on the request's zonelist may serve it.
    NoZone(NodeId),
    /// Its home refused it on purpose, to test what its user does then. No zone was asked.
    Injected,
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot allocate {:?} ({} KiB): ", self.order, self.order.bytes() / 1024)?;
        match self.why {
            Refusal::Watermark { node, kind, watermark, free, needed, .. } => {
                write!(
                    f,
                    "{node:?}, zone {kind} has {free} pages free for this request and needs more \
                     than {needed} to stay above its {watermark} watermark"
                )
            }
            Refusal::Fragmented { node, kind, free, .. } => {
                write!(f, "{node:?}, zone {kind} has {free} pages free, but no block this large")
            }
            Refusal::BadGfp(gfp) => write!(f, "the flags {gfp:?} name no zone and migratetype"),
            Refusal::NoZone(node) => write!(f, "no zone on the zonelist of {node:?} may serve it"),
            Refusal::Injected => f.write_str("it was to fail, to test what follows"),
        }
    }
}

impl core::error::Error for AllocError {}

/// A refused free. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FreeError {
    /// No zone has this page.
    Foreign(Pfn),
    /// The block is free already.
    DoubleFree {
        /// First page.
        pfn: Pfn,
        /// Order it is free with.
        order: Order,
        /// Its zone.
        zone: ZoneId,
    },
    /// The block was handed out with another order.
    WrongOrder {
        /// First page.
        pfn: Pfn,
        /// Order given.
        given: Order,
        /// Order it has.
        actual: Order,
        /// Its zone.
        zone: ZoneId,
    },
    /// No block starts at this page: it is inside another or was never handed out.
    NotABlock {
        /// The page.
        pfn: Pfn,
        /// Order given.
        order: Order,
        /// Its zone.
        zone: ZoneId,
    },
    /// The page's metadata was overwritten.
    Corrupt(Pfn),
}

impl fmt::Display for FreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            FreeError::Foreign(pfn) => write!(f, "{pfn:?} belongs to no zone of this allocator"),
            FreeError::DoubleFree { pfn, order, zone } => {
                write!(f, "{pfn:?} of {zone:?} is free already, as {order:?}")
            }
            FreeError::WrongOrder { pfn, given, actual, zone } => {
                write!(f, "{pfn:?} of {zone:?} was handed out as {actual:?}, not as {given:?}")
            }
            FreeError::NotABlock { pfn, order, zone } => {
                write!(f, "no block starts at {pfn:?} of {zone:?}; it was to be freed as {order:?}")
            }
            FreeError::Corrupt(pfn) => write!(f, "the metadata of {pfn:?} was overwritten"),
        }
    }
}

impl core::error::Error for FreeError {}
