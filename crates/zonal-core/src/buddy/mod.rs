//! The buddy allocator of one zone: free blocks of 1 to 1024 pages by migratetype (LB B).
//!
//! The zone's lock protects [`Buddy`]: plain memory, no atomics. The lists run through the page
//! words themselves ([`Frames`]), so a free block costs nothing beyond its own word.
//!
//! ```text
//!   areas[order].lists[migratetype]     words of the first frames
//!   +------------+   head   +-----------------+ next  +-----------------+ next
//!   | list 3 MOV |--------->| FREE 3 -- 0x128 |------>| FREE 3 0x40 --  |-----> (none)
//!   +------------+          +-----------------+<------+-----------------+
//!        | tail                                  prev          ^
//!        +-----------------------------------------------------+
//! ```
//!
//! | file | does | LB |
//! |--|--|--|
//! | `area` | the heads of the lists | |
//! | `list` | links, counts, the bitmap of non-empty lists, the accounting | B.2 |
//! | `free` | take a block back and merge it; first population | B.4 |
//! | `request` | what is asked, and how a block is cut | |
//! | `take` | pick the smallest block and split it; one block or a batch | B.5, B.6, E.6 |
//! | `batch` | blocks that are taken one after the other | E.6 |
//! | `fallback` | which types a request may take from, and what is told of it | B.7 |
//! | `claim` | claim a pageblock of another type, or steal from it | B.7 |
//! | `pageblock` | move, count and isolate the free pages of one pageblock | B.7, B.8 |
//! | `range` | the frames of any range taken out of the blocks that cover them | |
//! | `highatomic` | the reserve for atomic requests | B.8 |
//! | `validate` | walk everything and check the equations below | |
//!
//! # Invariants
//! With `len(o, t)` the blocks on `areas[o].lists[t]`, `free(b, o)` = "the word of frame `b` says
//! FREE of order `o`", and pfn and frame index used for each other:
//! - **BUDDY-1** every list is doubly linked: `next(a) == b <=> prev(b) == a`, head and tail agree.
//! - **BUDDY-2** `areas[o].nr_free == sum over t of len(o, t) == |{b : free(b, o)}|`.
//! - **BUDDY-3** bit `o` of `nonempty[t]` is set `<=> len(o, t) > 0`.
//! - **BUDDY-4** `free(b, o) => b mod 2^o == 0`, and `[b, b + 2^o)` is inside the span.
//! - **BUDDY-5** `o < 9 => !(free(b, o) && free(b xor 2^o, o))`. At order 9 two free buddies of one
//!   type can stand side by side after
//!   [`unreserve_highatomic`](Buddy::unreserve_highatomic), as in Linux; when one of them is next
//!   taken and freed they merge.
//! - **BUDDY-6** a block's list type is the type of every pageblock it touches (6.10+, LB B.2).
//!   Once `mixed` is set ([`FallbackRule::MoveRemainder`], up to 6.9) a block below a pageblock may
//!   be on the list of another mergeable type.
//! - **BUDDY-7** the words inside a block, free or held, are NONE: `b` of order `o` carries a state
//!   `=>` words `b+1 .. b+2^o` are zero. So no two blocks overlap.
//! - **BUDDY-8** `free_pages == sum over o, t != Isolate of len(o, t) * 2^o`; `free_isolate` and
//!   `free_highatomic` are the same sums over their one type.
//! - **BUDDY-9** every word is canonical (FRAME-1).
//! - **BUDDY-10** `faults == 0`: no impossible state was met.
//!
//! # Hand-over of words
//! The buddy sets the word of a block that leaves to NONE; the caller then writes CACHED or
//! ALLOCATED. A block that enters is left as it is held: a CACHED or ALLOCATED word of the block's
//! order proves in O(1) that the free is right (BUDDY-7). A NONE word is accepted too (memory that
//! was never given out), at the price of a walk over the ten blocks that could contain it.
//!
//! # Impossible states
//! A page is never handed out unless its word says FREE of the right order. If a list leads
//! elsewhere (the metadata was overwritten), the list is dropped, [`Buddy::faults`] counts, and its
//! pages are leaked: losing memory is better than giving one page to two owners.
//!
//! # What this module does not do
//! It takes no lock, reads no watermark and wakes no thread: it reports to the caller what Linux
//! does to the watermarks inside a fallback ([`Fallback`]). No CMA type, no page shuffling, no
//! capture by a running compaction and no free-page reporting (the parts of LB B.4 and B.7 about
//! those are left out).

use crate::frame::{Frames, NO_FRAME};
use crate::types::{Migratetype, NR_MIGRATETYPES, NR_ORDERS, Order, PAGEBLOCK_ORDER};

mod area;
mod batch;
mod claim;
mod fallback;
mod free;
mod highatomic;
mod list;
mod pageblock;
mod range;
mod request;
mod take;
#[cfg(test)]
mod tests;
mod validate;

pub(crate) use batch::Batch;
pub use fallback::{Fallback, FallbackPolicy, FallbackRule, Taken};
pub(crate) use free::why_not;
pub use free::{FreeCause, FreeError, FreeFlags};
pub use highatomic::{HighAtomicCount, HighAtomicLimit, HighAtomicPolicy};
pub(crate) use range::{containing_block, largest_blocks};
pub use request::TakeRequest;
pub use validate::BuddyFault;

use area::{Area, List};

/// Orders as the plain numbers the inner loops count with.
const MAX: u32 = Order::MAX.get();
const PBO: u32 = PAGEBLOCK_ORDER.get();

const _: () = assert!(NR_ORDERS == MAX as usize + 1);
const _: () = assert!(NR_ORDERS <= u16::BITS as usize, "a bitmap of orders is a u16");
// Nine cache lines. A refill touches two or three of them; growth here is growth of that.
const _: () = assert!(core::mem::size_of::<Buddy>() <= 576);

/// The free memory of one zone. Everything here is under the zone's lock.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq))]
pub struct Buddy {
    /// Per migratetype, bit `o` set iff the list of order `o` is non-empty (BUDDY-3).
    nonempty: [u16; NR_MIGRATETYPES],
    /// Blocks may be on lists of another type than their pageblock's (BUDDY-6).
    mixed: bool,
    faults: u32,
    /// The frame behind the last one that was ever seeded.
    seeded_end: u32,
    free_pages: u64,
    free_highatomic: u64,
    free_isolate: u64,
    reserved_highatomic: u64,
    areas: [Area; NR_ORDERS],
}

impl Buddy {
    /// No free memory at all; see [`seed`](Self::seed).
    pub const fn new() -> Buddy {
        const EMPTY: Area = Area { lists: [List::EMPTY; NR_MIGRATETYPES], nr_free: 0 };
        Buddy {
            nonempty: [0; NR_MIGRATETYPES],
            mixed: false,
            faults: 0,
            seeded_end: 0,
            free_pages: 0,
            free_highatomic: 0,
            free_isolate: 0,
            reserved_highatomic: 0,
            areas: [EMPTY; NR_ORDERS],
        }
    }

    /// Free pages of all types but Isolate: NR_FREE_PAGES without per-CPU deltas (LB B.2).
    #[inline]
    pub fn free_pages(&self) -> u64 {
        self.free_pages
    }

    /// Free pages in HighAtomic pageblocks, part of [`free_pages`](Self::free_pages).
    #[inline]
    pub fn free_highatomic(&self) -> u64 {
        self.free_highatomic
    }

    /// Free pages in Isolate pageblocks, not part of [`free_pages`](Self::free_pages).
    #[inline]
    pub fn free_isolate(&self) -> u64 {
        self.free_isolate
    }

    /// Pages of the pageblocks reserved for HighAtomic, free or not (LB B.8).
    #[inline]
    pub fn reserved_highatomic(&self) -> u64 {
        self.reserved_highatomic
    }

    /// Free blocks of this order, all types: a column of `/proc/buddyinfo`.
    #[inline]
    pub fn nr_free(&self, order: Order) -> u32 {
        self.areas[order.index()].nr_free
    }

    /// Bit `o` is set iff there is a free block of order `o` and this type. A watermark test for
    /// order `k` asks for `nonempty_orders(mt) >> k != 0` (LB C.5).
    #[inline]
    pub fn nonempty_orders(&self, mt: Migratetype) -> u16 {
        self.nonempty[mt.index()]
    }

    /// Impossible states met so far; zero unless the metadata was overwritten.
    #[inline]
    pub fn faults(&self) -> u32 {
        self.faults
    }

    /// Frame indexes of the free blocks on one list, head first: what `/proc/pagetypeinfo` counts.
    /// The walk stops at the first link that leads out of the list.
    pub fn list<'f>(
        &self,
        frames: &'f Frames<'_>,
        order: Order,
        mt: Migratetype,
    ) -> impl Iterator<Item = u32> + use<'f> {
        let mut at = self.areas[order.index()].lists[mt.index()].head;
        let mut left = self.areas[order.index()].nr_free;
        core::iter::from_fn(move || {
            let word = frames.load(at);
            if at == NO_FRAME || left == 0 || !word.is_free_of(order.get()) {
                return None;
            }
            left -= 1;
            Some(core::mem::replace(&mut at, word.next()))
        })
    }
}

impl Default for Buddy {
    fn default() -> Self {
        Buddy::new()
    }
}
