//! Refusals in one register each.
//!
//! A refusal is a value that every allocation may return, so it must not cost the ones that
//! succeed: a result of two words is returned in registers, a larger one through memory that the
//! hot path would have to make room for. The details are packed into 64 bits; large page counts
//! saturate.

use std::fmt;
use std::num::NonZeroU64;

use zonal_core::alloc as core;
use zonal_core::gfp::Gfp;
use zonal_core::types::{NodeId, Order, Pfn, ZoneId, ZoneKind};
use zonal_core::zone::watermark::Mark;

/// Writes fields into a word, lowest first.
struct Packer {
    word: u64,
    at: u32,
}

/// Reads them back.
struct Unpacker {
    word: u64,
}

impl Packer {
    fn new() -> Packer {
        // The lowest bit keeps the word from being zero.
        Packer { word: 1, at: 1 }
    }
    fn put(mut self, value: u64, bits: u32) -> Packer {
        self.word |= value.min((1 << bits) - 1) << self.at;
        self.at += bits;
        debug_assert!(self.at <= 64);
        self
    }
    fn done(self) -> NonZeroU64 {
        NonZeroU64::new(self.word).unwrap_or(NonZeroU64::MIN)
    }
}

impl Unpacker {
    fn new(word: NonZeroU64) -> Unpacker {
        Unpacker { word: word.get() >> 1 }
    }
    fn get(&mut self, bits: u32) -> u64 {
        let value = self.word & ((1 << bits) - 1);
        self.word >>= bits;
        value
    }
    fn order(&mut self) -> Order {
        Order::new(self.get(4) as u32).unwrap_or(Order::MAX)
    }
    fn kind(&mut self) -> ZoneKind {
        ZoneKind::ALL[(self.get(3) as usize).min(ZoneKind::ALL.len() - 1)]
    }
}

const NODE_BITS: u32 = 10;
const ZONE_BITS: u32 = 12;
/// Pages that a request needs more than, and how many it is short: 4 GiB and 8 MiB before they
/// saturate, which leaves what kind of refusal it is exact.
const NEEDED_BITS: u32 = 20;
const SHORT_BITS: u32 = 9;
const PFN_BITS: u32 = 40;

/// A refused request. [`AllocError::details`] names the zone and the watermark.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AllocError(NonZeroU64);

/// A refused free; nothing was changed. [`FreeError::details`] names page, order and zone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FreeError(NonZeroU64);

impl AllocError {
    /// Why. Page counts above 4 GiB are given as 4 GiB.
    pub fn details(self) -> core::AllocError {
        let mut word = Unpacker::new(self.0);
        let (tag, order) = (word.get(2), word.order());
        let why = match tag {
            0 | 1 => {
                let (zone, node) = (word.get(ZONE_BITS), word.get(NODE_BITS));
                let (zone, node) = (ZoneId(zone as u16), NodeId(node as u16));
                let kind = word.kind();
                let mark = [Mark::Min, Mark::Low, Mark::High, Mark::Promo][word.get(2) as usize];
                let (needed, short) = (word.get(NEEDED_BITS), word.get(SHORT_BITS));
                match tag {
                    0 => {
                        let free = needed.saturating_sub(short);
                        core::Refusal::Watermark { zone, node, kind, mark, free, needed }
                    }
                    _ => core::Refusal::Fragmented { zone, node, kind, free: needed },
                }
            }
            2 => core::Refusal::BadGfp(Gfp::from_bits(word.get(32) as u32)),
            _ => match (NodeId(word.get(16) as u16), word.get(1)) {
                (node, 0) => core::Refusal::NoZone(node),
                _ => core::Refusal::Injected,
            },
        };
        core::AllocError { order, why }
    }
}

impl From<core::AllocError> for AllocError {
    fn from(error: core::AllocError) -> AllocError {
        let order = u64::from(error.order.get());
        let head = |tag| Packer::new().put(tag, 2).put(order, 4);
        let place = |packer: Packer, zone: ZoneId, node: NodeId, kind: ZoneKind| {
            packer
                .put(u64::from(zone.0), ZONE_BITS)
                .put(u64::from(node.0), NODE_BITS)
                .put(kind.index() as u64, 3)
        };
        let packed = match error.why {
            core::Refusal::Watermark { zone, node, kind, mark, free, needed } => {
                place(head(0), zone, node, kind)
                    .put(mark as u64, 2)
                    .put(needed, NEEDED_BITS)
                    .put(needed.saturating_sub(free), SHORT_BITS)
            }
            core::Refusal::Fragmented { zone, node, kind, free } => {
                place(head(1), zone, node, kind).put(0, 2).put(free, NEEDED_BITS)
            }
            core::Refusal::BadGfp(gfp) => head(2).put(u64::from(gfp.bits()), 32),
            core::Refusal::NoZone(node) => head(3).put(u64::from(node.0), 16),
            core::Refusal::Injected => head(3).put(0, 16).put(1, 1),
            // A refusal that this crate does not know yet: the last request's node is all it says.
            _ => head(3),
        };
        AllocError(packed.done())
    }
}

impl FreeError {
    /// Why.
    pub fn details(self) -> core::FreeError {
        let mut word = Unpacker::new(self.0);
        let tag = word.get(3);
        let (order, actual) = (word.order(), word.order());
        let zone = ZoneId(word.get(ZONE_BITS) as u16);
        let pfn = Pfn(word.get(PFN_BITS));
        match tag {
            0 => core::FreeError::Foreign(pfn),
            1 => core::FreeError::DoubleFree { pfn, order, zone },
            2 => core::FreeError::WrongOrder { pfn, given: order, actual, zone },
            3 => core::FreeError::NotABlock { pfn, order, zone },
            _ => core::FreeError::Corrupt(pfn),
        }
    }
}

impl From<core::FreeError> for FreeError {
    fn from(error: core::FreeError) -> FreeError {
        let pack = |tag, order: Order, actual: Order, zone: ZoneId, pfn: Pfn| {
            let packer = Packer::new().put(tag, 3).put(u64::from(order.get()), 4);
            let packer = packer.put(u64::from(actual.get()), 4).put(u64::from(zone.0), ZONE_BITS);
            FreeError(packer.put(pfn.0, PFN_BITS).done())
        };
        let none = (Order::ZERO, ZoneId(0));
        match error {
            core::FreeError::Foreign(pfn) => pack(0, none.0, none.0, none.1, pfn),
            core::FreeError::DoubleFree { pfn, order, zone } => pack(1, order, order, zone, pfn),
            core::FreeError::WrongOrder { pfn, given, actual, zone } => {
                pack(2, given, actual, zone, pfn)
            }
            core::FreeError::NotABlock { pfn, order, zone } => pack(3, order, order, zone, pfn),
            core::FreeError::Corrupt(pfn) => pack(4, none.0, none.0, none.1, pfn),
            // A cause that this crate does not know yet.
            _ => pack(4, none.0, none.0, none.1, Pfn(0)),
        }
    }
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.details(), f)
    }
}
impl fmt::Debug for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.details(), f)
    }
}
impl fmt::Display for FreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.details(), f)
    }
}
impl fmt::Debug for FreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.details(), f)
    }
}

impl std::error::Error for AllocError {}
impl std::error::Error for FreeError {}

const _: () = assert!(size_of::<Result<(), FreeError>>() == 8);
const _: () = assert!(size_of::<Result<std::ptr::NonNull<u8>, AllocError>>() == 16);

#[cfg(test)]
mod tests {
    use super::*;

    fn order(order: u32) -> Order {
        Order::new(order).unwrap()
    }

    #[test]
    fn refusals_survive_packing() {
        let (zone, node, kind) = (ZoneId(4095), NodeId(1023), ZoneKind::Movable);
        let refusals = [
            core::Refusal::Watermark { zone, node, kind, mark: Mark::Low, free: 9, needed: 300 },
            core::Refusal::Fragmented { zone, node, kind, free: 77 },
            core::Refusal::Injected,
            core::Refusal::BadGfp(Gfp::MOVABLE | Gfp::RECLAIMABLE | Gfp::THISNODE),
            core::Refusal::NoZone(NodeId(1000)),
        ];
        for why in refusals {
            let error = core::AllocError { order: order(10), why };
            assert_eq!(AllocError::from(error).details(), error);
        }
    }

    #[test]
    fn counts_saturate_and_nothing_else_changes() {
        let (zone, node, kind) = (ZoneId(1), NodeId(2), ZoneKind::Normal);
        let (mark, free, needed) = (Mark::Min, 5, u64::MAX);
        let why = core::Refusal::Watermark { zone, node, kind, mark, free, needed };
        let back = AllocError::from(core::AllocError { order: order(3), why }).details();
        let core::Refusal::Watermark { zone: z, node: n, free, needed, .. } = back.why else {
            panic!("{back}")
        };
        assert_eq!((z, n, back.order), (zone, node, order(3)));
        assert_eq!((needed, needed - free), ((1 << 20) - 1, (1 << 9) - 1));
    }

    #[test]
    fn refused_frees_survive_packing() {
        let (pfn, zone) = (Pfn((1 << 40) - 2), ZoneId(7));
        let errors = [
            core::FreeError::Foreign(pfn),
            core::FreeError::DoubleFree { pfn, order: order(9), zone },
            core::FreeError::WrongOrder { pfn, given: order(1), actual: order(10), zone },
            core::FreeError::NotABlock { pfn, order: order(2), zone },
            core::FreeError::Corrupt(pfn),
        ];
        for error in errors {
            assert_eq!(FreeError::from(error).details(), error);
        }
    }
}
