//! A machine with a page cache, at its start.

use std::sync::Arc;

use zonal_core::alloc::Sysctl;
use zonal_core::machine::{Layout, ZoneSpec};
use zonal_core::policy::walk::ReclaimUnit;
use zonal_core::policy::{MinFreeRule, Policy};
use zonal_core::types::{NodeId, Pfn, ZoneId, ZoneKind};
use zonal_core::zone::watermark;

use super::disk::Disk;
use super::machine::{CacheMachine, Figures, Load};
use super::model::Model;
use super::platform::{CacheAllocator, CachePlatform};
use crate::LabError;
use crate::machine::{DiskCosts, Machine};
use crate::mechanism::Mechanism;
use crate::records::Records;
use crate::sim::{Described, zones};

/// Parameters of a run, besides its load.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// The machine; it has a disk.
    pub machine: Machine,
    /// The policy.
    pub policy: Policy,
    /// What random choices start from.
    pub seed: u64,
    /// Pages of the machine that one of the model stands for: a power of two.
    pub scale: u64,
}

impl Setup {
    /// Plays the load to its end.
    ///
    /// # Errors
    /// A machine without a disk, or one that the core does not take.
    pub fn run(&self, load: &mut dyn Load) -> Result<Figures, LabError> {
        let Setup { machine, scale, .. } = self;
        let disk = machine.disk.ok_or_else(|| {
            LabError::Plan(format!(
                "machine {}: it has no disk; this needs one, as westmere-2011-24 has",
                machine.name
            ))
        })?;
        let seeks = !machine.without.has(Mechanism::Seeks);
        let disk = DiskCosts { seek_us: u64::from(seeks) * disk.seek_us, ..disk };
        let real = zones(machine);
        let described = Described::new(machine, scaled(&real, *scale));
        let described = described.as_core();
        let zones = described.zones;
        let layout = Layout::of(&described, &self.policy)?;
        let mut records = Records::try_new(&layout)?;
        let ends: Vec<u64> = zones.iter().map(|zone| zone.start_pfn + zone.spanned).collect();
        let unit = self.policy.node_reclaim.unit;
        let list_of = match unit {
            ReclaimUnit::Zone => (0..zones.len()).collect(),
            ReclaimUnit::Node => zones.iter().map(|zone| usize::from(zone.node.0)).collect(),
        };
        let node_of: Vec<NodeId> = zones.iter().map(|zone| zone.node).collect();
        let model = Model::new(&ends, (unit, list_of), Disk::new(disk, *scale, self.seed), *scale);
        let platform = CachePlatform::new(machine, node_of, model, *scale);
        let allocator: Arc<CacheAllocator<'_>> =
            Arc::new(records.allocator(&described, self.policy, platform)?);
        for (id, zone) in zones.iter().enumerate() {
            let pages = Pfn(zone.start_pfn)..Pfn(zone.start_pfn + zone.spanned);
            allocator.online(ZoneId(id as u16), pages)?;
        }
        allocator.setup();
        if let Some(kbytes) = min_free_kbytes(&self.policy, &real) {
            let scaled = i64::from(kbytes) / *scale as i64;
            let set = allocator.set(Sysctl::MinFreeKbytes, scaled);
            set.map_err(|error| LabError::Plan(format!("min_free_kbytes: {error}")))?;
        }
        allocator.platform().serves(Arc::downgrade(&allocator));
        CacheMachine::new(&allocator, machine, *scale).play(load)
    }
}

/// `min_free_kbytes` of the machine at its full size, where the rule is not proportional to it (LB
/// C.1).
fn min_free_kbytes(policy: &Policy, zones: &[ZoneSpec]) -> Option<u32> {
    let pages: u64 = zones.iter().map(|zone| zone.present).sum();
    let (ceiling, page) = (policy.watermark.min_free_max_kbytes, policy.page);
    let by_rule = watermark::min_free_kbytes(pages, None, ceiling, page).kbytes();
    match policy.watermark.min_free {
        MinFreeRule::Linux { thp: true } => {
            let high = 3 * u64::from(by_rule) / 4 / 2;
            let above = pages.saturating_sub(high);
            Some(watermark::min_free_kbytes_for_thp(by_rule, zones.len() as u32, above, page))
        }
        MinFreeRule::Linux { thp: false } | MinFreeRule::LinuxThpOff => Some(by_rule),
        MinFreeRule::Kbytes(kbytes) => Some(kbytes),
        MinFreeRule::Pool => None,
    }
}

/// Zones scaled down. The DMA zone, then smaller than a block of the largest order, joins the next
/// zone.
fn scaled(zones: &[ZoneSpec], scale: u64) -> Vec<ZoneSpec> {
    let (mut scaled, mut start, mut carried) = (Vec::new(), 0, 0);
    for zone in zones {
        let pages = zone.present + carried;
        if zone.kind == ZoneKind::Dma && zones.len() > 1 {
            carried = pages;
            continue;
        }
        carried = 0;
        let pages = (pages / scale).max(1);
        scaled.push(ZoneSpec { start_pfn: start, spanned: pages, present: pages, ..*zone });
        // Each zone begins where a block of the largest order can.
        start = (start + pages).next_multiple_of(1 << zonal_core::types::Order::MAX.get());
    }
    scaled
}
