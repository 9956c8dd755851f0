//! Refusals in registers.
//!
//! A refusal is a value that every call may return, so it must not cost the ones that succeed: a
//! result of two words is returned in registers, a larger one through memory that the hot path
//! would have to make room for. Why an allocation was refused is packed into 64 bits, where large
//! page counts are rounded; why a free was refused into 64 bits beside the address.

use std::fmt;
use std::num::NonZeroU64;
use std::ops::Range;

use zonal_core::alloc as core;
use zonal_core::gfp::Gfp;
use zonal_core::types::{NodeId, Order, PAGE_SIZE, PAGEBLOCK_ORDER, ZoneId, ZoneKind};
use zonal_core::zone::watermark::Watermark;

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
    /// A page count, in the smallest unit that it fits in.
    fn put_count(self, pages: u64) -> Packer {
        let is_too_long = |unit: &u64| pages >> (UNIT_SHIFT * *unit as u32) >> COUNT_BITS != 0;
        let unit = (0..(1 << UNIT_BITS) - 1).take_while(is_too_long).count() as u64;
        self.put(unit, UNIT_BITS).put(pages >> (UNIT_SHIFT * unit as u32), COUNT_BITS)
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
    fn count(&mut self) -> u64 {
        let shift = UNIT_SHIFT * self.get(UNIT_BITS) as u32;
        self.get(COUNT_BITS) << shift
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
/// Pages that a request needs more than, and those that are free, each in a unit of its own: exact
/// below 16 MiB, above that in units of 8 pages, or of 64 and so on: less than 0.2 percent too few.
/// 32 TiB before they saturate.
const COUNT_BITS: u32 = 12;
const UNIT_BITS: u32 = 3;
const UNIT_SHIFT: u32 = 3;
/// Free pages of a zone without a block: 4 TiB before they saturate.
const FREE_BITS: u32 = 2 * (UNIT_BITS + COUNT_BITS);
/// What follows a node where no zone was asked.
const NO_ZONE: u64 = 0;
const INJECTED: u64 = 1;
const NO_NODE: u64 = 2;
/// A pool's memory begins at a multiple of its largest block, below 2^57.
const BASE_SHIFT: u32 = 22;
const BASE_BITS: u32 = 35;
/// Its length in pages; where that takes more bits in blocks of 4 MiB, rounded up.
const LENGTH_BITS: u32 = 24;

/// What is wrong with pages that were to be freed together, as the second number of one tag.
const IN_RANGE: Order = Order::ZERO;
const BOUNDARY: Order = Order::MAX;
const CUTS_BLOCK: Order = Order::COSTLY;
const NO_PAGES: Order = PAGEBLOCK_ORDER;

/// A refused request. [`AllocError::details`] names the zone and the watermark.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AllocError(NonZeroU64);

/// A refused free; nothing was changed. [`FreeError::details`] explains the fault of the address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FreeError {
    /// The fault, packed.
    fault: NonZeroU64,
    address: usize,
}

/// The fault of an address passed to a free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FreeFault {
    /// No page starts there.
    Unaligned {
        /// Bytes from the start of the page that it is in.
        past: usize,
    },
    /// It is outside the pool's memory.
    Foreign {
        /// The pool's first byte.
        start: usize,
        /// The byte after its last. Of a pool above 64 GiB, rounded up to 4 MiB.
        end: usize,
    },
    /// The block is free already.
    DoubleFree {
        /// The free block that it is part of now.
        block: usize,
        /// Order of that.
        order: Order,
    },
    /// The block was handed out with another order.
    WrongOrder {
        /// Order given.
        given: Order,
        /// Order it has.
        actual: Order,
    },
    /// It lies inside a block that is handed out.
    Inside {
        /// That block.
        block: usize,
        /// Its order.
        order: Order,
    },
    /// No block starts there: the page is not online, or in transit between lists.
    NotABlock,
    /// The page's metadata was overwritten.
    Corrupt,
    /// It is part of a range, which is freed as pages of a range.
    InRange {
        /// Order of the range's block that it is in.
        order: Order,
    },
    /// Of pages that were to be freed together: from here on they are another owner's.
    Boundary,
    /// Of pages that were to be freed together: this block was handed out as a whole, and not all
    /// of it is among them.
    CutsBlock {
        /// Its order.
        order: Order,
    },
    /// No pages were to be freed.
    NoPages,
}

impl AllocError {
    /// Why. Each page count of a watermark above 16 MiB is rounded down, by less than 0.2
    /// percent.
    pub fn details(self) -> core::AllocError {
        let mut word = Unpacker::new(self.0);
        let (tag, order) = (word.get(2), word.order());
        let why = match tag {
            0 | 1 => {
                let (zone, node) = (word.get(ZONE_BITS), word.get(NODE_BITS));
                let (zone, node) = (ZoneId(zone as u16), NodeId(node as u16));
                let kind = word.kind();
                let watermark = [Watermark::Min, Watermark::Low, Watermark::High, Watermark::Promo]
                    [word.get(2) as usize];
                match tag {
                    0 => {
                        let (free, needed) = (word.count(), word.count());
                        core::Refusal::Watermark { zone, node, kind, watermark, free, needed }
                    }
                    _ => core::Refusal::Fragmented { zone, node, kind, free: word.get(FREE_BITS) },
                }
            }
            2 => core::Refusal::BadGfp(Gfp::from_bits(word.get(32) as u32)),
            _ => match (NodeId(word.get(16) as u16), word.get(2)) {
                (node, NO_ZONE) => core::Refusal::NoZone(node),
                (node, NO_NODE) => core::Refusal::NoNode { node, nodes: word.get(16) as u16 },
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
            core::Refusal::Watermark { zone, node, kind, watermark, free, needed } => {
                place(head(0), zone, node, kind)
                    .put(watermark as u64, 2)
                    .put_count(free)
                    .put_count(needed)
            }
            core::Refusal::Fragmented { zone, node, kind, free } => {
                place(head(1), zone, node, kind).put(0, 2).put(free, FREE_BITS)
            }
            core::Refusal::BadGfp(gfp) => head(2).put(u64::from(gfp.bits()), 32),
            core::Refusal::NoZone(node) => head(3).put(u64::from(node.0), 16).put(NO_ZONE, 2),
            core::Refusal::NoNode { node, nodes } => {
                head(3).put(u64::from(node.0), 16).put(NO_NODE, 2).put(u64::from(nodes), 16)
            }
            core::Refusal::Injected => head(3).put(0, 16).put(INJECTED, 2),
            // A refusal that this crate does not know yet: the last request's node is all it says.
            _ => head(3),
        };
        AllocError(packed.done())
    }
}

impl FreeError {
    /// Of a pool whose memory this is: `error` is what the core says, `around` the block that the
    /// address is in, where there is one, and whether it is free.
    pub(crate) fn new(
        memory: Range<usize>,
        address: usize,
        error: core::FreeError,
        around: Option<(Order, bool)>,
    ) -> FreeError {
        let tagged = |tag| Packer::new().put(tag, 3);
        let with = |tag, one: Order, other: Order| {
            tagged(tag).put(u64::from(one.get()), 4).put(u64::from(other.get()), 4)
        };
        let packed = match (error, around) {
            _ if !memory.contains(&address) => {
                let pages = memory.len().div_ceil(PAGE_SIZE) as u64;
                let whole = u64::from(pages >> LENGTH_BITS != 0);
                let length = if whole == 0 { pages } else { pages.div_ceil(Order::MAX.pages()) };
                let base = tagged(0).put((memory.start >> BASE_SHIFT) as u64, BASE_BITS);
                base.put(whole, 1).put(length, LENGTH_BITS)
            }
            _ if !address.is_multiple_of(PAGE_SIZE) => tagged(1),
            (core::FreeError::DoubleFree { order, .. }, _) => with(2, order, order),
            (core::FreeError::WrongOrder { given, actual, .. }, _) => with(3, given, actual),
            // Of one tag, told apart by the second number.
            (core::FreeError::InRange { order, .. }, _) => with(7, order, IN_RANGE),
            (core::FreeError::Boundary { .. }, _) => with(7, Order::ZERO, BOUNDARY),
            (core::FreeError::CutsBlock { order, .. }, _) => with(7, order, CUTS_BLOCK),
            (core::FreeError::Empty(_), _) => with(7, Order::ZERO, NO_PAGES),
            (core::FreeError::NotABlock { .. }, Some((order, true))) => with(2, order, order),
            (core::FreeError::NotABlock { .. }, Some((order, false))) => with(4, order, order),
            (core::FreeError::NotABlock { .. }, None) => tagged(5),
            // Corrupt, or a cause that this crate does not know yet.
            _ => tagged(6),
        };
        FreeError { fault: packed.done(), address }
    }

    /// The freed address.
    pub fn address(self) -> usize {
        self.address
    }

    /// Why it was not.
    pub fn details(self) -> FreeFault {
        let mut word = Unpacker::new(self.fault);
        let block = |order: Order| self.address & !(order.bytes() - 1);
        match word.get(3) {
            0 => {
                let start = (word.get(BASE_BITS) as usize) << BASE_SHIFT;
                let whole = word.get(1) != 0;
                let unit = if whole { Order::MAX.bytes() } else { PAGE_SIZE };
                FreeFault::Foreign { start, end: start + word.get(LENGTH_BITS) as usize * unit }
            }
            1 => FreeFault::Unaligned { past: self.address % PAGE_SIZE },
            2 => {
                let order = word.order();
                FreeFault::DoubleFree { block: block(order), order }
            }
            3 => FreeFault::WrongOrder { given: word.order(), actual: word.order() },
            4 => {
                let order = word.order();
                FreeFault::Inside { block: block(order), order }
            }
            5 => FreeFault::NotABlock,
            6 => FreeFault::Corrupt,
            _ => match (word.order(), word.order()) {
                (order, IN_RANGE) => FreeFault::InRange { order },
                (_, BOUNDARY) => FreeFault::Boundary,
                (order, CUTS_BLOCK) => FreeFault::CutsBlock { order },
                _ => FreeFault::NoPages,
            },
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
        let address = self.address;
        write!(f, "{address:#x} was not freed: ")?;
        match self.details() {
            FreeFault::Unaligned { past } => {
                let page = address - past;
                let s = if past == 1 { "" } else { "s" };
                write!(f, "it is {past} byte{s} past the start of the page at {page:#x}")
            }
            FreeFault::Foreign { start, end } => {
                write!(f, "it is outside this pool's memory, {start:#x} to {end:#x}")
            }
            FreeFault::DoubleFree { block, order } => {
                write!(f, "it is free already, in the free block of order {order} at {block:#x}")
            }
            FreeFault::WrongOrder { given, actual } => {
                write!(f, "the block was handed out with order {actual}, not with order {given}")
            }
            FreeFault::Inside { block, order } => {
                write!(f, "it is inside the block of order {order} at {block:#x}; free that")
            }
            FreeFault::NotABlock => f.write_str("no block starts there"),
            FreeFault::Corrupt => f.write_str("the metadata of its page was overwritten"),
            FreeFault::InRange { order } => {
                write!(f, "its block of order {order} is part of a range; free it with the range")
            }
            FreeFault::Boundary => f.write_str("here the pages of another owner begin"),
            FreeFault::CutsBlock { order } => {
                write!(
                    f,
                    "the block of order {order} that starts there would be cut; split it first"
                )
            }
            FreeFault::NoPages => f.write_str("a range has at least one page"),
        }
    }
}
impl fmt::Debug for FreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FreeError")
            .field("address", &format_args!("{:#x}", self.address))
            .field("fault", &self.details())
            .finish()
    }
}

impl std::error::Error for AllocError {}
impl std::error::Error for FreeError {}

// On other targets the crate is refused, by one error that says so.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Result<(), FreeError>>() == 16);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Result<std::ptr::NonNull<u8>, AllocError>>() == 16);

#[cfg(test)]
mod tests {
    use zonal_core::types::Pfn;

    use super::*;

    fn order(order: u32) -> Order {
        Order::new(order).unwrap()
    }

    #[test]
    fn refusals_survive_packing() {
        let (zone, node, kind) = (ZoneId(4095), NodeId(1023), ZoneKind::Movable);
        let refusals = [
            core::Refusal::Watermark {
                zone,
                node,
                kind,
                watermark: Watermark::Low,
                free: 9,
                needed: 300,
            },
            core::Refusal::Watermark {
                zone,
                node,
                kind,
                watermark: Watermark::Promo,
                free: 0,
                needed: (1 << 12) - 1,
            },
            core::Refusal::Fragmented { zone, node, kind, free: (1 << 30) - 1 },
            core::Refusal::Injected,
            core::Refusal::BadGfp(Gfp::MOVABLE | Gfp::RECLAIMABLE | Gfp::THISNODE),
            core::Refusal::NoZone(NodeId(1000)),
            core::Refusal::NoNode { node: NodeId(u16::MAX), nodes: 1024 },
        ];
        for why in refusals {
            let error = core::AllocError { order: order(10), why };
            assert_eq!(AllocError::from(error).details(), error);
        }
    }

    #[test]
    fn large_counts_are_rounded_and_nothing_else_changes() {
        let (zone, node, kind) = (ZoneId(1), NodeId(2), ZoneKind::Normal);
        let watermark = Watermark::Min;
        let pairs = [(5, 1 << 14), (60, 20_000), (4097, 32_767), (999_999, 1 << 20), (7, 1 << 32)];
        for (free, needed) in pairs {
            let why = core::Refusal::Watermark { zone, node, kind, watermark, free, needed };
            let back = AllocError::from(core::AllocError { order: order(3), why }).details();
            let core::Refusal::Watermark { zone: z, node: n, free: f, needed: m, .. } = back.why
            else {
                panic!("{back}")
            };
            assert_eq!((z, n, back.order), (zone, node, order(3)));
            let near = |said: u64, real: u64| said <= real && (real - said) * 500 <= real;
            assert!(near(f, free) && near(m, needed), "{free} of {needed}: {f} of {m}");
        }
        let why =
            core::Refusal::Watermark { zone, node, kind, watermark, free: 5, needed: u64::MAX };
        let back = AllocError::from(core::AllocError { order: order(3), why }).details();
        assert!(matches!(back.why, core::Refusal::Watermark { zone: ZoneId(1), .. }), "{back}");
    }

    const BASE: usize = 0x7f00_0040_0000;
    const LENGTH: usize = 64 << 20;

    /// The refused free reads so, after the address.
    fn check(
        (address, error): (usize, core::FreeError),
        around: Option<(Order, bool)>,
        fault: FreeFault,
        text: &str,
    ) {
        let error = FreeError::new(BASE..BASE + LENGTH, address, error, around);
        assert_eq!((error.address(), error.details()), (address, fault));
        assert_eq!(error.to_string(), format!("{address:#x} was not freed: {text}"));
    }

    const PAGE: usize = BASE + 17 * PAGE_SIZE;

    #[test]
    fn a_free_of_an_address_that_is_no_page_of_the_pool_says_so() {
        let foreign = core::FreeError::Foreign(Pfn(17));
        let text = "it is 8 bytes past the start of the page at 0x7f0000411000";
        check((PAGE + 8, foreign), None, FreeFault::Unaligned { past: 8 }, text);
        let text = "it is 1 byte past the start of the page at 0x7f0000411000";
        check((PAGE + 1, foreign), None, FreeFault::Unaligned { past: 1 }, text);
        let memory = FreeFault::Foreign { start: BASE, end: BASE + LENGTH };
        let text = "it is outside this pool's memory, 0x7f0000400000 to 0x7f0004400000";
        for address in [0, BASE - 1, BASE + LENGTH, usize::MAX] {
            check((address, foreign), None, memory, text);
        }
    }

    #[test]
    fn a_free_of_a_page_that_is_no_such_block_says_what_is_there() {
        let (pfn, zone, small, large) = (Pfn(17), ZoneId(0), order(1), order(10));
        let free = core::FreeError::DoubleFree { pfn, order: order(0), zone };
        let fault = FreeFault::DoubleFree { block: PAGE, order: order(0) };
        let text = "it is free already, in the free block of order 0 at 0x7f0000411000";
        check((PAGE, free), None, fault, text);

        let nothing = core::FreeError::NotABlock { pfn, order: order(0), zone };
        let fault = FreeFault::DoubleFree { block: BASE + 16 * PAGE_SIZE, order: order(4) };
        let text = "it is free already, in the free block of order 4 at 0x7f0000410000";
        check((PAGE, nothing), Some((order(4), true)), fault, text);

        let fault = FreeFault::Inside { block: BASE + 16 * PAGE_SIZE, order: small };
        let text = "it is inside the block of order 1 at 0x7f0000410000; free that";
        check((PAGE, nothing), Some((small, false)), fault, text);
        check((PAGE, nothing), None, FreeFault::NotABlock, "no block starts there");

        let wrong = core::FreeError::WrongOrder { pfn, given: small, actual: large, zone };
        let fault = FreeFault::WrongOrder { given: small, actual: large };
        let text = "the block was handed out with order 10, not with order 1";
        check((PAGE, wrong), None, fault, text);

        let part = core::FreeError::InRange { pfn, order: small, zone };
        let text = "its block of order 1 is part of a range; free it with the range";
        check((PAGE, part), None, FreeFault::InRange { order: small }, text);

        let cut = core::FreeError::CutsBlock { pfn, order: large, zone };
        let text = "the block of order 10 that starts there would be cut; split it first";
        check((PAGE, cut), None, FreeFault::CutsBlock { order: large }, text);
        let border = core::FreeError::Boundary { pfn, zone };
        check((PAGE, border), None, FreeFault::Boundary, "here the pages of another owner begin");
        let none = core::FreeError::Empty(pfn);
        check((PAGE, none), None, FreeFault::NoPages, "a range has at least one page");

        let text = "the metadata of its page was overwritten";
        check((PAGE, core::FreeError::Corrupt(pfn)), None, FreeFault::Corrupt, text);
    }

    #[test]
    fn the_memory_of_any_pool_is_named() {
        let (base, block) = ((1 << 57) - (4 << 20), Order::MAX.bytes());
        for (length, named) in [
            (PAGE_SIZE, PAGE_SIZE),
            ((64 << 30) - PAGE_SIZE, (64 << 30) - PAGE_SIZE),
            (64 << 30, 64 << 30),
            ((64 << 30) + PAGE_SIZE, (64 << 30) + block),
            (1 << 44, 1 << 44),
        ] {
            let error = core::FreeError::Foreign(Pfn(0));
            let error = FreeError::new(base..base + length, 0, error, None);
            let expected = FreeFault::Foreign { start: base, end: base + named };
            assert_eq!(error.details(), expected, "{length:#x}");
        }
    }
}
