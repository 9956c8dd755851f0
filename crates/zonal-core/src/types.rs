//! The types every layer uses: page frame numbers, orders, ids of nodes, zones and CPUs, numbers of
//! pages, migratetypes.
//!
//! | type | its field | why |
//! |--|--|--|
//! | [`Order`] | private | 0 to 10: shifts and the heads of free lists rely on it |
//! | [`PageCount`] | private | pages, which neither add up nor compare with blocks |
//! | [`PageWord`], [`PcpWord`] | private | built by constructors; `from_bits` takes a cell's bits |
//! | [`Gfp`], [`AllocFlags`], [`ZoneKinds`] | private | only flags that exist |
//! | [`Pfn`], [`NodeId`], [`CpuId`], [`ZoneId`] | public | ids: any number may be asked for |
//!
//! An id promises nothing that a private field could keep: whether there is such a page or CPU
//! depends on the machine, so whoever takes an id looks it up and refuses what is not there.
//! `cargo xtask tidy` finds other newtypes of this crate with a public field (`open-newtype`).
//!
//! # What has no type of its own
//! - An index of a frame in its zone, or in the table of all words, is a `u32`. Links in page words
//!   and slots hold it, it is looked up with bounds, and [`Pfn`] is what callers see.
//! - Blocks on a list are a `u32`, and their sum in pages is a [`PageCount`]: the list's record, or
//!   an [`Order`], converts one into the other.
//! - The tuning ([`tune`](crate::pcp::tune)) computes with pages throughout, as do watermarks and
//!   statistics, whose `u64` holds pages of a whole machine. Figures for people are plain numbers
//!   with their unit in the name or the doc.
//!
//! [`PageWord`]: crate::frame::PageWord
//! [`PcpWord`]: crate::pcp::word::PcpWord
//! [`Gfp`]: crate::gfp::Gfp
//! [`AllocFlags`]: crate::gfp::AllocFlags
//! [`ZoneKinds`]: crate::gfp::ZoneKinds
//!
//! This module uses nothing else of the crate.

mod choice;
mod count;

pub use choice::Choice;
pub(crate) use choice::choice;
pub use count::PageCount;

use core::fmt;

/// Bytes of one base page. Linux calls it `PAGE_SIZE`.
pub const PAGE_SIZE: usize = 1 << PAGE_SHIFT;
/// `log2` of [`PAGE_SIZE`].
pub const PAGE_SHIFT: u32 = 12;
/// Pages of one pageblock, the unit of mobility grouping (LB B.1; 2 MiB on x86-64).
pub const PAGEBLOCK_PAGES: u64 = 1 << PAGEBLOCK_ORDER.0;
/// Order of a pageblock (LB B.1).
pub const PAGEBLOCK_ORDER: Order = Order(9);
/// Orders a buddy keeps lists for: 0 to 10 (LB B.1, `NR_PAGE_ORDERS`).
pub const NR_ORDERS: usize = 11;

/// Sizes that a kernel's rules follow from. The allocator's own pages have [`PAGE_SIZE`] bytes and
/// its pageblocks are of [`PAGEBLOCK_ORDER`], whatever these say: they are of the kernel whose
/// limits are computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRules {
    /// `log2` of the bytes of a page: 12, on arm64 also 14 and 16, on ppc64 12 or 16.
    pub shift: u8,
    /// Order of a pageblock: 9 on x86-64, 5 where pages have 64 KiB and huge ones 2 MiB.
    pub block_order: u8,
}

/// A page frame number: physical (or pool) address divided by [`PAGE_SIZE`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Pfn(pub u64);

/// `log2` of a block's pages, 0 to 10. Values above 10 cannot be made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Order(u8);

/// A NUMA node, by its id in the machine description.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NodeId(pub u16);

/// A CPU, by its id in the machine description.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CpuId(pub u32);

/// A populated zone, by its position in the allocator's table of zones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ZoneId(pub u16);

/// Zone kinds, lowest first (LB A.2). The discriminant is the zone index of x86-64 Linux.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum ZoneKind {
    /// The first 16 MiB, for ISA devices.
    Dma = 0,
    /// Up to 4 GiB, for 32-bit devices.
    Dma32 = 1,
    /// General memory.
    #[default]
    Normal = 2,
    /// Only movable pages.
    Movable = 3,
    /// Device memory: never on a zonelist.
    Device = 4,
}

/// Zone kinds a node has an entry for (LB A.2, `MAX_NR_ZONES` of x86-64).
pub const NR_ZONE_KINDS: usize = 5;

/// How movable a page is (LB B.1). The discriminant is the index in a free area.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Migratetype {
    /// Stays where it is until freed.
    Unmovable = 0,
    /// Can be copied elsewhere.
    Movable = 1,
    /// Can be dropped and made again.
    Reclaimable = 2,
    /// Kept back for atomic requests of higher orders.
    HighAtomic = 3,
    /// Taken out of use; never handed out.
    Isolate = 4,
}

/// Migratetypes with a list of their own in a free area.
pub const NR_MIGRATETYPES: usize = 5;
/// Migratetypes with per-CPU lists (LB B.1, `MIGRATE_PCPTYPES`).
pub const NR_PCP_MIGRATETYPES: usize = 3;

impl Default for PageRules {
    fn default() -> PageRules {
        PageRules::OWN
    }
}

impl PageRules {
    /// Those of the allocator's own pages, and of Linux on x86-64.
    pub const OWN: PageRules =
        PageRules { shift: PAGE_SHIFT as u8, block_order: PAGEBLOCK_ORDER.0 };

    /// KiB of a page.
    #[inline]
    pub const fn kbytes(self) -> u64 {
        self.own_pages(PAGE_SIZE as u64 / 1024)
    }

    /// As many bytes as these pages have, in pages of [`PAGE_SIZE`].
    #[inline]
    pub const fn own_pages(self, pages: u64) -> u64 {
        pages.saturating_mul(1 << self.beyond())
    }

    /// As many pages as these bytes have, in bytes of pages of [`PAGE_SIZE`].
    #[inline]
    pub const fn own_bytes(self, bytes: u64) -> u64 {
        bytes >> self.beyond()
    }

    /// Pages of a pageblock.
    #[inline]
    pub const fn block_pages(self) -> u64 {
        1 << if self.block_order < 32 { self.block_order } else { 31 }
    }

    /// Larger ones than any policy accepts count as some whose KiB are a number of 32 bits.
    const fn beyond(self) -> u32 {
        let shift = (self.shift as u32).saturating_sub(PAGE_SHIFT);
        if shift < 29 { shift } else { 29 }
    }
}

impl Pfn {
    /// The address of the page where page 0 lies at the address `base`.
    #[inline(always)]
    pub const fn address(self, base: usize) -> usize {
        base.wrapping_add((self.0 as usize) << PAGE_SHIFT)
    }

    /// The page that begins at `address` where page 0 lies at the address `base`. Far out of range
    /// for an address at which no page begins, or one below `base`.
    #[inline(always)]
    pub const fn at(base: usize, address: usize) -> Pfn {
        // Rotating puts offset bits on top, where no frame number has any.
        Pfn(address.wrapping_sub(base).rotate_right(PAGE_SHIFT) as u64)
    }
}

impl Order {
    /// A base page.
    pub const ZERO: Order = Order(0);
    /// The largest block, 4 MiB (LB B.1, `MAX_PAGE_ORDER`).
    pub const MAX: Order = Order(10);
    /// Above this an allocation counts as costly (LB B.1).
    pub const COSTLY: Order = Order(3);

    /// The order, or `None` above 10.
    #[inline]
    pub const fn new(order: u32) -> Option<Order> {
        if order <= Order::MAX.0 as u32 { Some(Order(order as u8)) } else { None }
    }

    /// `log2` of the pages.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0 as u32
    }

    /// The order as an index.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Base pages of a block of this order.
    #[inline]
    pub const fn pages(self) -> u64 {
        1 << self.0
    }

    /// Bytes of a block of this order.
    #[inline]
    pub const fn bytes(self) -> usize {
        PAGE_SIZE << self.0
    }

    /// The smallest order whose block holds `bytes`, or `None` above 4 MiB.
    pub const fn for_bytes(bytes: usize) -> Option<Order> {
        let pages = bytes.div_ceil(PAGE_SIZE);
        let pages = if pages == 0 { 1 } else { pages };
        if pages > Order::MAX.pages() as usize {
            return None;
        }
        Order::new(pages.next_power_of_two().trailing_zeros())
    }

    /// All orders, smallest first.
    pub fn all() -> impl DoubleEndedIterator<Item = Order> + Clone {
        Order::ZERO.and_above()
    }

    /// Orders from `self` up to [`Order::MAX`].
    pub fn and_above(self) -> impl DoubleEndedIterator<Item = Order> + Clone {
        // Not up to and with the last: such a range has a flag to look at.
        (self.0..Order::MAX.0 + 1).map(Order)
    }
}

impl ZoneKind {
    /// All kinds, lowest first.
    pub const ALL: [ZoneKind; NR_ZONE_KINDS] =
        [ZoneKind::Dma, ZoneKind::Dma32, ZoneKind::Normal, ZoneKind::Movable, ZoneKind::Device];

    /// The name Linux prints, unpadded (LB A.2).
    pub const fn name(self) -> &'static str {
        match self {
            ZoneKind::Dma => "DMA",
            ZoneKind::Dma32 => "DMA32",
            ZoneKind::Normal => "Normal",
            ZoneKind::Movable => "Movable",
            ZoneKind::Device => "Device",
        }
    }

    /// The kind with this printed name.
    pub fn from_name(name: &str) -> Option<ZoneKind> {
        ZoneKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The zone index.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl Migratetype {
    /// All types, in free-area order.
    pub const ALL: [Migratetype; NR_MIGRATETYPES] = [
        Migratetype::Unmovable,
        Migratetype::Movable,
        Migratetype::Reclaimable,
        Migratetype::HighAtomic,
        Migratetype::Isolate,
    ];

    /// The type with this index.
    #[inline]
    pub const fn new(index: u32) -> Option<Migratetype> {
        match index {
            0 => Some(Migratetype::Unmovable),
            1 => Some(Migratetype::Movable),
            2 => Some(Migratetype::Reclaimable),
            3 => Some(Migratetype::HighAtomic),
            4 => Some(Migratetype::Isolate),
            _ => None,
        }
    }

    /// The name Linux prints.
    pub const fn name(self) -> &'static str {
        match self {
            Migratetype::Unmovable => "Unmovable",
            Migratetype::Movable => "Movable",
            Migratetype::Reclaimable => "Reclaimable",
            Migratetype::HighAtomic => "HighAtomic",
            Migratetype::Isolate => "Isolate",
        }
    }

    /// The index in a free area.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether blocks of this type may merge with blocks of another (LB B.1).
    #[inline]
    pub const fn mergeable(self) -> bool {
        (self as u8) < NR_PCP_MIGRATETYPES as u8
    }
}

impl fmt::Debug for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pfn {:#x}", self.0)
    }
}
impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "order {}", self.0)
    }
}
impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}
impl fmt::Debug for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cpu {}", self.0)
    }
}
impl fmt::Debug for ZoneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "zone {}", self.0)
    }
}
impl fmt::Display for ZoneKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
impl fmt::Display for Migratetype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The square root, rounded down. That of the standard library is ten times the code, for a speed
/// that nobody here asks for.
#[inline(never)]
pub(crate) const fn isqrt(of: u64) -> u64 {
    let (mut root, mut bit) = (0, 1 << 31);
    while bit != 0 {
        let larger: u64 = root | bit;
        if larger * larger <= of {
            root = larger;
        }
        bit >>= 1;
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_square_root_is_that_of_the_standard_library() {
        let near = |n: u64| [n.saturating_sub(1), n, n.saturating_add(1)];
        let squares = (0..64).map(|n| 1 << n).chain((0..1000).map(|n| n * n));
        for n in squares.chain([u64::MAX, 0xffff_fffe_0000_0001]).flat_map(near) {
            assert_eq!(isqrt(n), n.isqrt(), "{n}");
        }
    }

    #[test]
    fn no_order_above_ten_can_be_made() {
        assert_eq!(Order::new(10), Some(Order::MAX));
        assert_eq!(Order::new(11), None);
        assert_eq!(Order::for_bytes(4 << 20), Some(Order::MAX));
        assert_eq!(Order::for_bytes((4 << 20) + 1), None);
        assert_eq!(Order::for_bytes(0), Some(Order::ZERO));
        assert_eq!(Order::for_bytes(4097).map(Order::get), Some(1));
    }

    #[test]
    fn names_and_indexes_agree() {
        for kind in ZoneKind::ALL {
            assert_eq!(ZoneKind::from_name(kind.name()), Some(kind));
            assert_eq!(ZoneKind::ALL[kind.index()], kind);
        }
        for mt in Migratetype::ALL {
            assert_eq!(Migratetype::new(mt.index() as u32), Some(mt));
        }
    }
}
