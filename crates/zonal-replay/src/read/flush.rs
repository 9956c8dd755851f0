//! CPUs that free blocks of a few pages in a row, and give back all that is on their lists each
//! time that it is a batch (LB E.5, E.7).
//!
//! ```text
//!  free × 31 of four pages      124 pages are on the lists, one after the other
//!    16 of them are 64          all 64 go: a hold
//!    16 more                    all 64 go: another, with nothing of the CPU between
//! ```
//! A CPU does so once it has freed a batch and half of a list's lower bound in a row (a batch alone
//! until 6.14). Unless the first such drain is the largest that there is, which may leave pages on
//! the lists, they hold less than a batch from then on before each free of a block, so that each
//! drain is as many blocks as are one, and more only for single pages that came between. On 6.18.44
//! the pause between the two is 758 ns, and 265 elsewhere.

use zonal_trace::{Event, EventKind};

use super::free_count::FreeCounts;
use crate::zones::{COSTLY_ORDER, ZoneMap};

/// What a CPU's lists are known to hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Lists {
    /// Anything.
    #[default]
    Unknown,
    /// They are being emptied, and so many pages have left.
    Emptied(u64),
    /// They are being emptied, and held less than a batch before, but for so many single pages.
    Again(u64),
    /// Less than a batch before each free of a block, but for so many single pages.
    Short(u64),
}

/// The lists of each CPU.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    /// The threshold is a batch alone.
    early: bool,
    cpus: Vec<Lists>,
}

impl Flushes {
    /// Nothing is known. `early`: the rule of 6.7 to 6.14.
    pub(super) fn new(early: bool) -> Flushes {
        Flushes { early, cpus: Vec::new() }
    }

    /// Takes note of an event that moves no page to a buddy.
    pub(super) fn see(&mut self, event: &Event) {
        let lists = self.of(event.cpu as usize);
        match event.kind {
            EventKind::Free { order: order @ 0..=COSTLY_ORDER, .. } => {
                let single = u64::from(order == 0);
                *lists = match *lists {
                    Lists::Unknown => Lists::Unknown,
                    Lists::Emptied(_) | Lists::Again(_) => Lists::Short(single),
                    Lists::Short(singles) => Lists::Short(singles + single),
                };
            }
            EventKind::FreeBatched { .. } | EventKind::PcpuDrain { .. } => {}
            EventKind::Notice(_) => {}
            _ => *lists = Lists::Unknown,
        }
    }

    /// The CPU drains a block of the second order after it freed one of the first.
    pub(super) fn drained(
        &mut self,
        (cpu, freed, order): (usize, u8, u8),
        zone: Option<usize>,
        (counts, zones): (&mut FreeCounts, &ZoneMap),
    ) {
        let Some(at) = zone.filter(|_| (1..=COSTLY_ORDER).contains(&freed)) else { return };
        let zone = &zones.zones()[at];
        let more = if self.early { Some(0) } else { zone.list_high_min.map(|high| high / 2) };
        let is_stream =
            more.is_some_and(|more| counts.drain_pages(cpu, at, zones) >= zone.batch + more);
        let lists = self.of(cpu);
        let moved = match *lists {
            Lists::Emptied(moved) => moved + (1 << order),
            _ => 1 << order,
        };
        // One drain moves no more, so the lists may hold the rest.
        let is_largest = moved >= counts.most(zone.batch);
        *lists = match *lists {
            _ if !is_stream || is_largest => Lists::Unknown,
            Lists::Short(singles) | Lists::Again(singles) => Lists::Again(singles),
            _ => Lists::Emptied(moved),
        };
    }

    /// How many pages a row of drains of the CPU has that must be two: more than one can have, and
    /// two batches; `None`: nothing tells. A free of a single page is one page more, and the next
    /// block is freed without a drain.
    pub(super) fn two(&mut self, cpu: usize, batch: u64) -> Option<u64> {
        let Lists::Again(singles) = *self.of(cpu) else { return None };
        let one = batch + singles + ((singles + 1) << COSTLY_ORDER);
        Some(one.max(2 * batch))
    }

    fn of(&mut self, cpu: usize) -> &mut Lists {
        if self.cpus.len() <= cpu {
            self.cpus.resize(cpu + 1, Lists::Unknown);
        }
        &mut self.cpus[cpu]
    }
}
