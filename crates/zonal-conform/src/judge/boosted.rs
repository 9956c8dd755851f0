//! Lists that were sized while their zone was boosted.
//!
//! The lower bound of a list follows from the low watermark in force, boost included (LB C.4, E.4).
//! A CPU that comes or goes while a zone is boosted leaves such a bound behind, and nothing
//! computes it again when the boost is gone.

use zonal_core::alloc::Sysctl;
use zonal_core::pcp::size::{self, HighFraction, SizeInputs};
use zonal_core::types::NodeId;
use zonal_core::zone::watermark::Watermark;

use super::bench::Bench;
use crate::era::Era;
use crate::model::Limits;

/// Boosts that are tried: half a million pageblocks are 1 TiB.
const BOOSTS_MAX: u32 = 1 << 19;

/// The smallest boost from which the lower bound `printed` of a zone's lists follows, with the CPUs
/// of now or one more; `None` if there is none.
///
/// A boost is a whole number of pageblocks, up to a part of the high watermark.
pub fn boost(
    bench: &Bench<'_>,
    (node, managed): (NodeId, u64),
    limits: &Limits,
    printed: u64,
) -> Option<u64> {
    if bench.written(Sysctl::HighFraction) != 0 || !bench.capture.release.sizes_follow_watermarks()
    {
        return None;
    }
    let factor = bench.writes.iter().find(|write| write.sysctl == Sysctl::WatermarkBoostFactor);
    let factor = factor.map_or(bench.policy.watermark.boost_factor, |write| write.value as u32);
    let machine_cpus = bench.shape.cpus().len() as u32;
    let mut watermarks = limits.watermarks;
    for _ in 0..BOOSTS_MAX {
        let before = watermarks.boost;
        watermarks.raise_boost(managed, factor, bench.policy.page);
        if watermarks.boost == before {
            return None;
        }
        let low_watermark = watermarks.of(Watermark::Low);
        let bound = |coming| {
            let inputs = SizeInputs {
                managed,
                low_watermark,
                node_cpus: bench.node_cpus(node) + coming,
                machine_cpus,
                cap_pages: bench.policy.pcp.batch_cap_pages,
                fraction: HighFraction::AUTO,
            };
            u64::from(size::sizes(bench.policy.pcp.size, &inputs).high_min)
        };
        let bounds = [bound(0), bound(1)];
        if bounds.contains(&printed) {
            return Some(watermarks.boost);
        }
        // They grow with the boost.
        if bounds.iter().all(|bound| *bound > printed) {
            break;
        }
    }
    None
}
