//! The zones of a recorded machine.

use serde_json::{Map, Value, json};
use zonal_core::alloc::Allocator;
use zonal_core::types::CpuId;

use crate::platform::VirtualPlatform;

/// The zones of a machine at its start.
#[derive(Debug)]
pub(super) struct Zones {
    /// First frame, and the one behind the last.
    frames: Vec<(u64, u64)>,
    /// As `meta.json` has them.
    pub(super) described: Vec<Value>,
    /// Most pages that a refill of any zone takes.
    pub(super) batch: u32,
}

impl Zones {
    pub(super) fn of(allocator: &Allocator<'_, VirtualPlatform>) -> Zones {
        let mut zones = Zones { frames: Vec::new(), described: Vec::new(), batch: 0 };
        for zone in allocator.zones() {
            let (start, spanned, marks) = (zone.start_pfn().0, zone.spanned(), zone.watermarks());
            zones.frames.push((start, start + spanned));
            let (batch, high_min, high_max) = zone.pcp_sizes();
            zones.batch = zones.batch.max(batch);
            let lists = (0..allocator.cpus() as u32).map(|cpu| {
                let lists = allocator.pcp(zone.id(), CpuId(cpu));
                let (count, high) = (lists.count(), lists.high());
                let set = json!({
                    "count": count, "high": high, "batch": batch,
                    "high_min": high_min, "high_max": high_max,
                });
                (cpu.to_string(), set)
            });
            zones.described.push(json!({
                "node": zone.node().0,
                "zone": zone.kind().name(),
                "pcp": lists.collect::<Map<String, Value>>(),
                // All are free when it has booted. Reading statistics would fold counters, which
                // those who run would notice.
                "free": zone.managed(),
                "min": marks.min, "low": marks.low, "high": marks.high,
                "spanned": spanned, "present": zone.present(), "managed": zone.managed(),
                "start_pfn": start,
            }));
        }
        zones
    }

    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    /// The zone of a frame.
    pub(super) fn of_frame(&self, pfn: u64) -> Option<usize> {
        self.frames.iter().position(|(from, to)| (*from..*to).contains(&pfn))
    }

    /// Its first frame.
    pub(super) fn start(&self, zone: usize) -> u64 {
        self.frames.get(zone).map_or(0, |frames| frames.0)
    }
}
