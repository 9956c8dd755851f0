//! One event of a trace, the same for every form.
//!
//! The names are those of the kernel's tracepoints (`mm_page_alloc` is [`EventKind::Alloc`], and so
//! on). What each one means for an allocator that follows along:
//!
//! | event | the kernel says |
//! |--|--|
//! | [`Alloc`](EventKind::Alloc) | this block was handed out (or: nothing could be) |
//! | [`Free`](EventKind::Free) | this block came back |
//! | [`FreeBatched`](EventKind::FreeBatched) | the page came back in a batch; see also `Free` |
//! | [`ZoneLocked`](EventKind::ZoneLocked) | the block left the buddy, under the zone lock |
//! | [`PcpuDrain`](EventKind::PcpuDrain) | the block left a per-CPU list for the buddy |
//! | [`Extfrag`](EventKind::Extfrag) | the block was taken from another migratetype's lists |
//! | [`VmstatUpdate`](EventKind::VmstatUpdate) | this CPU's statistics worker ran: lists decay |
//! | [`Notice`](EventKind::Notice) | reclaim, compaction or new watermarks: no page is named |

use crate::limits::ORDER_MAX;
use crate::notice::{Notice, ROWS};

/// One event of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When, in nanoseconds of the recording's clock. See [`Clock`](crate::Clock) for its step.
    pub time_ns: u64,
    /// The CPU it happened on.
    pub cpu: u32,
    /// The thread that ran there; 0 for the idle task.
    pub pid: i32,
    /// What happened.
    pub kind: EventKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// `mm_page_alloc`: an allocation ended.
    Alloc {
        /// First page frame of the block; `None` if the allocation failed.
        pfn: Option<u64>,
        /// The block has `1 << order` pages.
        order: u8,
        /// The migratetype that was asked for.
        migratetype: u8,
        /// The request's flags, in the numbering of Linux 6.12 (LB-D.1).
        gfp: u32,
    },
    /// `mm_page_free`: a block was freed.
    Free {
        /// First page frame of the block.
        pfn: u64,
        /// The block has `1 << order` pages.
        order: u8,
    },
    /// `mm_page_free_batched`: a single page was freed as one of many.
    FreeBatched {
        /// The page frame.
        pfn: u64,
    },
    /// `mm_page_alloc_zone_locked`: a block was taken from the buddy.
    ZoneLocked {
        /// First page frame of the block.
        pfn: u64,
        /// The block has `1 << order` pages.
        order: u8,
        /// The migratetype whose lists it was wanted for.
        migratetype: u8,
        /// Whether its order and type are ones that per-CPU lists hold.
        percpu_refill: bool,
    },
    /// `mm_page_pcpu_drain`: a block went from a per-CPU list back to the buddy.
    PcpuDrain {
        /// First page frame of the block.
        pfn: u64,
        /// The block has `1 << order` pages.
        order: u8,
        /// The block's migratetype.
        migratetype: u8,
    },
    /// `mm_page_alloc_extfrag`: an allocation fell back to another migratetype.
    Extfrag {
        /// First page frame of the block that was taken.
        pfn: u64,
        /// The order that was asked for.
        alloc_order: u8,
        /// The order of the block that was taken.
        fallback_order: u8,
        /// The migratetype that was asked for.
        alloc_migratetype: u8,
        /// The migratetype it was taken from.
        fallback_migratetype: u8,
        /// Whether the whole pageblock changed its migratetype.
        change_ownership: bool,
    },
    /// `workqueue_execute_start` of `vmstat_update`: this CPU's statistics worker starts.
    VmstatUpdate,
    /// `sched_process_fork`: a process or thread was made.
    Fork {
        /// Its thread id.
        child: i32,
    },
    /// Reclaim, compaction or watermarks: an event that names no page.
    Notice(Notice),
    /// `tracing_mark_write`: a program wrote this text into the trace.
    Marker(Box<str>),
    /// The ring buffer overflowed on this CPU; the time is that of the event before.
    Lost {
        /// How many events are missing.
        events: u64,
    },
    /// Any other event; only its time, CPU and thread were read.
    Other,
}

impl Event {
    /// Calls `take` with the event, or, where its block is above order `most`, with one event of
    /// each of the blocks of that order that it consists of, lowest first. A failed allocation is
    /// one of order `most` then.
    ///
    /// Huge pages of arm64 are of order 11 and 13 where pages have 16 and 64 KiB: this is for who
    /// keeps no such blocks.
    pub fn each_piece(&self, most: u8, mut take: impl FnMut(&Event)) {
        let above = |order: u8| order.min(ORDER_MAX).checked_sub(most).filter(|above| *above > 0);
        let of = self.kind.block().and_then(|(pfn, order)| Some((pfn, above(order)?)));
        let Some((pfn, above)) = of else { return take(self) };
        let blocks = pfn.map_or(1, |_| 1 << above);
        for at in 0..blocks {
            let mut piece = self.clone();
            let own = pfn.unwrap_or(0).saturating_add(at << most);
            match &mut piece.kind {
                EventKind::Alloc { pfn, order, .. } => {
                    (*pfn, *order) = (pfn.map(|_| own), most);
                }
                EventKind::Free { pfn, order }
                | EventKind::ZoneLocked { pfn, order, .. }
                | EventKind::PcpuDrain { pfn, order, .. } => (*pfn, *order) = (own, most),
                EventKind::Extfrag { pfn, alloc_order, fallback_order, .. } => {
                    (*pfn, *fallback_order) = (own, most);
                    *alloc_order = most.min(*alloc_order);
                }
                _ => {}
            }
            take(&piece);
        }
    }
}

impl EventKind {
    /// The block of an event that names one, or that would have: its first frame and its order.
    fn block(&self) -> Option<(Option<u64>, u8)> {
        match *self {
            EventKind::Alloc { pfn, order, .. } => Some((pfn, order)),
            EventKind::Free { pfn, order }
            | EventKind::ZoneLocked { pfn, order, .. }
            | EventKind::PcpuDrain { pfn, order, .. }
            | EventKind::Extfrag { pfn, fallback_order: order, .. } => Some((Some(pfn), order)),
            _ => None,
        }
    }

    /// The largest order that it names; 0 without one.
    pub(crate) fn order_most(&self) -> u8 {
        match self {
            EventKind::Extfrag { alloc_order, fallback_order, .. } => {
                *alloc_order.max(fallback_order)
            }
            EventKind::Notice(notice) => notice.order(),
            kind => kind.block().map_or(0, |(_, order)| order),
        }
    }

    /// Whether recorders count it: lost events are a remark about the stream.
    pub const fn is_counted(&self) -> bool {
        !matches!(self, EventKind::Lost { .. })
    }

    /// What [`EventKind::name`] returns, for every kind.
    pub const NAMES: [&'static str; KINDS + ROWS.len()] = {
        let mut names = ["other"; KINDS + ROWS.len()];
        let before = [
            "mm_page_alloc",
            "mm_page_free",
            "mm_page_free_batched",
            "mm_page_alloc_zone_locked",
            "mm_page_pcpu_drain",
            "mm_page_alloc_extfrag",
            "vmstat_update",
            "sched_process_fork",
            "tracing_mark_write",
            "lost",
            "other",
        ];
        let mut at = 0;
        while at < names.len() {
            names[at] = if at < KINDS { before[at] } else { ROWS[at - KINDS].kernel };
            at += 1;
        }
        names
    };

    /// The place of its name in [`EventKind::NAMES`].
    pub fn index(&self) -> usize {
        match self {
            EventKind::Alloc { .. } => 0,
            EventKind::Free { .. } => 1,
            EventKind::FreeBatched { .. } => 2,
            EventKind::ZoneLocked { .. } => 3,
            EventKind::PcpuDrain { .. } => 4,
            EventKind::Extfrag { .. } => 5,
            EventKind::VmstatUpdate => 6,
            EventKind::Fork { .. } => 7,
            EventKind::Marker(_) => 8,
            EventKind::Lost { .. } => 9,
            EventKind::Other => 10,
            EventKind::Notice(notice) => KINDS + usize::from(notice.tag()),
        }
    }

    /// The kernel's name of the event; `lost` and `other` where it has none.
    pub fn name(&self) -> &'static str {
        EventKind::NAMES[self.index()]
    }
}

/// Kinds of events that are no [`Notice`].
const KINDS: usize = 11;

// An event is moved once per line; keep it within a cache line.
const _: () = assert!(size_of::<Event>() <= 64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_above_the_largest_is_those_that_it_consists_of() {
        let pieces = |kind| {
            let mut all = Vec::new();
            Event { time_ns: 7, cpu: 1, pid: 2, kind }.each_piece(10, |piece| {
                assert_eq!((piece.time_ns, piece.cpu, piece.pid), (7, 1, 2));
                all.push(piece.kind.clone());
            });
            all
        };
        let free = |pfn, order| EventKind::Free { pfn, order };
        for order in [0, 9, 10] {
            assert_eq!(pieces(free(4096, order)), [free(4096, order)]);
        }
        assert_eq!(pieces(free(4096, 11)), [free(4096, 10), free(5120, 10)]);
        let largest: Vec<_> = (0..8).map(|at| free(8192 + at * 1024, 10)).collect();
        assert_eq!(pieces(free(8192, 13)), largest);
        let alloc = |pfn, order| EventKind::Alloc { pfn, order, migratetype: 1, gfp: 3 };
        assert_eq!(pieces(alloc(None, 12)), [alloc(None, 10)]);
        assert_eq!(pieces(alloc(Some(0), 11)), [alloc(Some(0), 10), alloc(Some(1024), 10)]);
        let taken = |pfn, alloc_order, fallback_order| EventKind::Extfrag {
            pfn,
            alloc_order,
            fallback_order,
            alloc_migratetype: 0,
            fallback_migratetype: 1,
            change_ownership: true,
        };
        assert_eq!(pieces(taken(2048, 0, 11)), [taken(2048, 0, 10), taken(3072, 0, 10)]);
        assert_eq!(pieces(EventKind::Other), [EventKind::Other]);
    }
}
