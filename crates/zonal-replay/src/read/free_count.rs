//! How many pages a CPU freed to a zone's lists in a row, as Linux counts them since 6.7.
//!
//! A free adds its pages until they are a batch shifted by `scale_max` or more, and an allocation
//! halves the count (LB E.6, E.7). A drain moves as many pages as the count says, and at least a
//! batch. At 63 pages a batch single pages bring the count to 2,016, which is four blocks of 2 MiB;
//! such blocks bring it to up to 2,527, which is five. On 6.18.44 the long pauses in a row of their
//! drains come after each fourth, or after each fifth.

use zonal_trace::{Event, EventKind};

use crate::zones::ZoneMap;

/// The counts of each CPU and zone.
#[derive(Debug)]
pub(super) struct FreeCounts {
    scale_max: u8,
    /// By CPU and zone.
    pages: Vec<Vec<u64>>,
}

impl FreeCounts {
    /// Begins as if all CPUs had freed much before the trace.
    pub(super) fn new(scale_max: u8) -> FreeCounts {
        FreeCounts { scale_max, pages: Vec::new() }
    }

    /// Takes note of an allocation or a free.
    pub(super) fn see(&mut self, event: &Event, zones: &ZoneMap) {
        let (pfn, order, is_free) = match event.kind {
            EventKind::Free { pfn, order } => (pfn, order, true),
            EventKind::Alloc { pfn: Some(pfn), order, .. } => (pfn, order, false),
            _ => return,
        };
        let Some(zone) = zones.of(pfn).filter(|_| zones.has_lists(order)) else { return };
        let most = self.most(zones.zones()[zone].batch);
        let count = self.count(event.cpu as usize, zone, zones);
        if !is_free {
            *count >>= 1;
        } else if *count < most {
            *count += 1 << order;
        }
    }

    /// What a drain by a free moves now, if the lists hold as much.
    pub(super) fn drain_pages(&mut self, cpu: usize, zone: usize, zones: &ZoneMap) -> u64 {
        let batch = zones.zones()[zone].batch.max(1);
        (*self.count(cpu, zone, zones)).max(batch)
    }

    /// Pages that are counted at most, and the largest drain by a free of a larger block moves.
    pub(super) fn most(&self, batch: u64) -> u64 {
        batch.max(1) << self.scale_max
    }

    fn count(&mut self, cpu: usize, zone: usize, zones: &ZoneMap) -> &mut u64 {
        while self.pages.len() <= cpu {
            let full = zones.zones().iter().map(|zone| self.most(zone.batch));
            self.pages.push(full.collect());
        }
        &mut self.pages[cpu][zone]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frees_add_up_to_their_most_and_an_allocation_halves() {
        let zones = ZoneMap::new(zonal_trace::samples::zlib_make_j4().unwrap().description());
        let pfn = 0x20_0000;
        let zone = zones.of(pfn).unwrap();
        assert_eq!(zones.zones()[zone].batch, 63);
        let mut counts = FreeCounts::new(5);
        let mut see = |kind: EventKind, times: u64| {
            for time_ns in 0..times {
                let kind = kind.clone();
                counts.see(&Event { time_ns, cpu: 3, pid: 0, kind }, &zones);
            }
            counts.drain_pages(3, zone, &zones)
        };
        let free = |order| EventKind::Free { pfn, order };
        let alloc = EventKind::Alloc { pfn: Some(pfn), order: 0, migratetype: 1, gfp: 0 };
        assert_eq!(see(free(9), 1), 2016, "nothing is known before the trace");
        assert_eq!(see(alloc.clone(), 12), 63, "at least a batch");
        assert_eq!(see(free(0), 100), 100);
        assert_eq!(see(free(4), 100), 100, "no list has this order");
        assert_eq!(see(free(9), 30), 2148, "five blocks");
        assert_eq!(see(alloc, 1), 1074);
        assert_eq!(see(free(0), 3000), 2016, "four blocks");
    }
}
