//! One event about a block, and the same in 16 bytes.
//!
//! ```text
//!  place   pfn 40 | cpu 16 | kind 4 | order 4
//!  rest    time 48, in ns since the first | migratetype 4 | was 4 | is 4 | broke 4
//! ```
//! 40 bits hold every page frame of a processor with 52 address bits, 48 bits three days. What is
//! more takes the largest value: a frame of no zone, a time that no other is near to.

use zonal_trace::{Event, EventKind};

/// One event about a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fact {
    /// When.
    pub time_ns: u64,
    /// First frame; 0 for a refresh.
    pub pfn: u64,
    /// The CPU that did it.
    pub cpu: u16,
    /// What happened.
    pub kind: FactKind,
    /// The block's order.
    pub order: u8,
    /// The migratetype that the event names; of a fallback, the one asked for.
    pub migratetype: u8,
    /// The type of its pageblock before, as far as the event tells.
    pub was: u8,
    /// The same, after.
    pub is: u8,
    /// Of a fallback: order of the free block that it broke.
    pub broke: u8,
}

/// What happened to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactKind {
    /// Handed out.
    Alloc,
    /// Given back; on a list now, unless [`Batched`](Self::Batched) comes next.
    Free,
    /// Reached its list.
    Batched,
    /// From the buddy to a list.
    Refill,
    /// From the buddy to its user.
    Direct,
    /// From a list to the buddy.
    Drain,
    /// From another type's free blocks.
    Fallback,
    /// The CPU's statistics worker ran.
    Refresh,
    /// A page of a block that the free of its last page gives back.
    Part,
}

impl Fact {
    /// The type of pageblocks without events.
    pub const MOVABLE: u8 = 1;

    /// What an event says about a block, if it does.
    pub fn of(event: &Event) -> Option<Fact> {
        use FactKind::{Alloc, Batched, Direct, Drain, Fallback, Free, Refill, Refresh};
        let (kind, pfn, order, mt) = match event.kind {
            EventKind::Alloc { pfn: Some(pfn), order, migratetype, .. } => {
                (Alloc, pfn, order, migratetype)
            }
            EventKind::Free { pfn, order } => (Free, pfn, order, 0),
            EventKind::FreeBatched { pfn } => (Batched, pfn, 0, 0),
            EventKind::ZoneLocked { pfn, order, migratetype, percpu_refill } => {
                (if percpu_refill { Refill } else { Direct }, pfn, order, migratetype)
            }
            EventKind::PcpuDrain { pfn, order, migratetype } => (Drain, pfn, order, migratetype),
            EventKind::Extfrag { pfn, alloc_order, alloc_migratetype, .. } => {
                (Fallback, pfn, alloc_order, alloc_migratetype)
            }
            EventKind::VmstatUpdate => (Refresh, 0, 0, 0),
            _ => return None,
        };
        let (was, is, broke) = match event.kind {
            EventKind::Extfrag {
                change_ownership,
                alloc_migratetype: asked,
                fallback_migratetype: found,
                fallback_order,
                ..
            } => (found, if change_ownership { asked } else { found }, fallback_order),
            _ => (mt, mt, order),
        };
        let (time_ns, cpu) = (event.time_ns, event.cpu as u16);
        Some(Fact { time_ns, pfn, cpu, kind, order, migratetype: mt, was, is, broke })
    }
}

const PFN_BITS: u32 = 40;
const PFN_MAX: u64 = (1 << PFN_BITS) - 1;
const TIME_BITS: u32 = 48;
const TIME_MAX: u64 = (1 << TIME_BITS) - 1;

/// Kinds by their numbers.
const KINDS: [FactKind; 9] = [
    FactKind::Alloc,
    FactKind::Free,
    FactKind::Batched,
    FactKind::Refill,
    FactKind::Direct,
    FactKind::Drain,
    FactKind::Fallback,
    FactKind::Refresh,
    FactKind::Part,
];

/// One fact.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packed {
    place: u64,
    rest: u64,
}

const _: () = assert!(KINDS.len() <= 16, "a kind has four bits");
const _: () = assert!(size_of::<Packed>() == 16, "facts are what a long trace keeps in memory");

/// Four bits of a small number; 15 is none that a kernel has.
fn four(number: u8) -> u64 {
    number.min(15).into()
}

impl Packed {
    pub(super) fn new(fact: &Fact, first_ns: u64) -> Packed {
        let Fact { time_ns, pfn, cpu, kind, order, migratetype, was, is, broke } = *fact;
        let low = u64::from(cpu) << 8 | (kind as u64) << 4 | four(order);
        let time = time_ns.saturating_sub(first_ns).min(TIME_MAX);
        let types = four(migratetype) << 12 | four(was) << 8 | four(is) << 4 | four(broke);
        Packed { place: pfn.min(PFN_MAX) << 24 | low, rest: time << 16 | types }
    }

    pub(super) fn fact(self, first_ns: u64) -> Fact {
        let Packed { place, rest } = self;
        let four = |word: u64, shift: u32| (word >> shift & 15) as u8;
        Fact {
            time_ns: first_ns.saturating_add(rest >> 16),
            pfn: place >> 24,
            cpu: (place >> 8) as u16,
            kind: KINDS[usize::from(four(place, 4)) % KINDS.len()],
            order: four(place, 0),
            migratetype: four(rest, 12),
            was: four(rest, 8),
            is: four(rest, 4),
            broke: four(rest, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out() {
        for (number, kind) in (0..).zip(KINDS) {
            assert_eq!(kind as u64, number, "the numbers are those of the declaration");
            let fact = Fact {
                time_ns: 77 + TIME_MAX,
                pfn: PFN_MAX - 1,
                cpu: u16::MAX,
                kind,
                order: 10,
                migratetype: 5,
                was: 4,
                is: 3,
                broke: 9,
            };
            assert_eq!(Packed::new(&fact, 77).fact(77), fact);
            let low = Fact { time_ns: 77, pfn: 0, cpu: 0, ..fact };
            assert_eq!(Packed::new(&low, 77).fact(77), low);
        }
    }

    #[test]
    fn what_no_kernel_has_stays_none() {
        let fact = Fact {
            time_ns: 3,
            pfn: u64::MAX,
            cpu: 1,
            kind: FactKind::Drain,
            order: 255,
            migratetype: 255,
            was: 16,
            is: 15,
            broke: 77,
        };
        let kept = Packed::new(&fact, 5).fact(5);
        assert_eq!((kept.time_ns, kept.pfn, kept.order), (5, PFN_MAX, 15));
        assert_eq!((kept.migratetype, kept.was, kept.is, kept.broke), (15, 15, 15, 15));
    }
}
