//! Requests and refusals.

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
        /// Its free pages, without those that are kept for other requests.
        free: u64,
        /// More than this many are needed: what the watermark and the reserve for the request keep,
        /// and all pages of the request but one.
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
    /// No zone on the zonelist of the node may serve the request: there is no memory of the kind
    /// that it asks for.
    NoZone(NodeId),
    /// The node does not exist.
    NoNode {
        /// The node asked for.
        node: NodeId,
        /// How many nodes there are, numbered from 0.
        nodes: u16,
    },
    /// The platform refused it on purpose, to test its user. No zone was asked.
    Injected,
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AllocError { order, why } = self;
        write!(f, "cannot allocate {order:?} ({} KiB): {why}", order.bytes() / 1024)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Watermark { node, kind, watermark, free, needed, .. } => {
                write!(
                    f,
                    "{node:?}, zone {kind} has {free} pages free for such a request and needs more \
                     than {needed} to stay above its {watermark} watermark"
                )
            }
            Refusal::Fragmented { node, kind, free, .. } => {
                write!(f, "{node:?}, zone {kind} has {free} pages free, but no block this large")
            }
            Refusal::BadGfp(gfp) => write!(f, "the flags {gfp:?} name no zone and migratetype"),
            Refusal::NoZone(node) => write!(f, "no zone on the zonelist of {node:?} may serve it"),
            Refusal::NoNode { node, nodes } => {
                write!(f, "{node:?} does not exist: there are {nodes}, numbered from 0")
            }
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
    /// The block is part of a range, which [`Ranges::free`](super::range::Ranges::free) takes back.
    InRange {
        /// First page.
        pfn: Pfn,
        /// Order of the block.
        order: Order,
        /// Its zone.
        zone: ZoneId,
    },
    /// Pages of a range and of somebody else: the owner changes at this page.
    Boundary {
        /// The first page of the other range, block or zone.
        pfn: Pfn,
        /// Zone of the pages before it.
        zone: ZoneId,
    },
    /// The range would cut a block that was handed out as a whole.
    CutsBlock {
        /// First page of the block.
        pfn: Pfn,
        /// Its order.
        order: Order,
        /// Its zone.
        zone: ZoneId,
    },
    /// A range of no pages.
    Empty(Pfn),
    /// The page's metadata was overwritten.
    Corrupt(Pfn),
}

impl FreeError {
    /// The page that the error is about.
    pub const fn pfn(&self) -> Pfn {
        match *self {
            FreeError::Foreign(pfn) | FreeError::Empty(pfn) | FreeError::Corrupt(pfn) => pfn,
            FreeError::DoubleFree { pfn, .. }
            | FreeError::WrongOrder { pfn, .. }
            | FreeError::NotABlock { pfn, .. }
            | FreeError::InRange { pfn, .. }
            | FreeError::Boundary { pfn, .. }
            | FreeError::CutsBlock { pfn, .. } => pfn,
        }
    }
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
                write!(f, "no block starts at {pfn:?} of {zone:?}, freed as {order:?}")
            }
            FreeError::InRange { pfn, order, zone } => write!(
                f,
                "{pfn:?} of {zone:?}, {order:?}, is part of a range; free it as pages of a range"
            ),
            FreeError::Boundary { pfn, zone } => {
                write!(f, "the pages of one owner in {zone:?} end in front of {pfn:?}")
            }
            FreeError::CutsBlock { pfn, order, zone } => write!(
                f,
                "{pfn:?} of {zone:?} was handed out as one block of {order:?}; free all of it, or \
                 split it first"
            ),
            FreeError::Empty(pfn) => write!(f, "a range of no pages at {pfn:?}"),
            FreeError::Corrupt(pfn) => write!(f, "the metadata of {pfn:?} was overwritten"),
        }
    }
}

impl core::error::Error for FreeError {}
