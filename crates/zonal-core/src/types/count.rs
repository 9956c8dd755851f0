//! A number of base pages, which no number of blocks can be taken for.

use core::fmt;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Sub, SubAssign};

use super::Order;

/// A number of base pages on the lists, in the depots or in the budget of one zone.
///
/// Lists and magazines hold blocks, limits are in pages, and both numbers are small: mixed up, they
/// would go unnoticed until an order above 0 comes. So the two meet only where an order, or a list
/// that has one, converts them.
///
/// ```
/// use zonal_core::types::{Order, PageCount};
///
/// let pages = PageCount::of_blocks(3, Order::COSTLY);
/// assert_eq!(pages, PageCount::new(24));
/// assert_eq!((pages + PageCount::new(7)).blocks(Order::COSTLY), 3);
/// ```
/// ```compile_fail
/// use zonal_core::types::PageCount;
///
/// let blocks: u32 = 3;
/// let _ = PageCount::new(24) + blocks;
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct PageCount(u32);

impl PageCount {
    /// No page.
    pub const ZERO: PageCount = PageCount(0);
    /// More than any zone has: "all of them", or "no limit".
    pub const MAX: PageCount = PageCount(u32::MAX);

    /// So many base pages.
    #[inline]
    pub const fn new(pages: u32) -> PageCount {
        PageCount(pages)
    }

    /// The base pages of `blocks` blocks of an order.
    #[inline]
    pub const fn of_blocks(blocks: u32, order: Order) -> PageCount {
        PageCount(blocks << order.get())
    }

    /// The base pages.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Whole blocks of an order in as many pages.
    #[inline]
    pub const fn blocks(self, order: Order) -> u32 {
        self.0 >> order.get()
    }

    /// Whether it is no page.
    #[inline]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The sum, or [`MAX`](Self::MAX).
    #[inline]
    pub const fn saturating_add(self, more: PageCount) -> PageCount {
        PageCount(self.0.saturating_add(more.0))
    }

    /// What is left without `less`; [`ZERO`](Self::ZERO) if that is more.
    #[inline]
    pub const fn saturating_sub(self, less: PageCount) -> PageCount {
        PageCount(self.0.saturating_sub(less.0))
    }
}

impl Add for PageCount {
    type Output = PageCount;
    #[inline]
    fn add(self, more: PageCount) -> PageCount {
        PageCount(self.0 + more.0)
    }
}
impl AddAssign for PageCount {
    #[inline]
    fn add_assign(&mut self, more: PageCount) {
        self.0 += more.0;
    }
}
impl Sub for PageCount {
    type Output = PageCount;
    #[inline]
    fn sub(self, less: PageCount) -> PageCount {
        PageCount(self.0 - less.0)
    }
}
impl SubAssign for PageCount {
    #[inline]
    fn sub_assign(&mut self, less: PageCount) {
        self.0 -= less.0;
    }
}
impl Sum for PageCount {
    fn sum<I: Iterator<Item = PageCount>>(counts: I) -> PageCount {
        counts.fold(PageCount::ZERO, Add::add)
    }
}
impl From<PageCount> for u64 {
    #[inline]
    fn from(pages: PageCount) -> u64 {
        u64::from(pages.0)
    }
}
impl fmt::Debug for PageCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pages", self.0)
    }
}
impl fmt::Display for PageCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
