//! Bounds of lists that were computed while a zone was boosted.
//!
//! A kernel takes them from the low watermark, boost included (LB E.4), whenever somebody writes
//! the sysctl of their fraction, as recorders do that keep lists short for a while. The boost
//! passes, the bounds stay. The replay has no boost, so it looks for the one that gives the
//! recorded bound.

use zonal_core::pcp::size::SizeRule;
use zonal_core::types::PAGEBLOCK_ORDER;
use zonal_core::zone::state::Zone;
use zonal_core::zone::watermark::FACTOR_UNIT;
use zonal_trace::{MachineDescription, Pageset};

use crate::build::Rebuilt;
use crate::zones::{ZoneAt, ZoneMap, sets_at_start};

/// Gives lists the bounds that the recording has and watermarks alone do not explain. Call it when
/// the watermarks are as recorded. Returns a remark on each such zone.
pub fn keep_boosted(
    rebuilt: &Rebuilt<'_>,
    machine: &MachineDescription,
    map: &ZoneMap,
) -> Vec<String> {
    let zones = rebuilt.allocator.zones();
    let low = |zone: &Zone| zone.pcp_sizes().1;
    let by_rule: Vec<u32> = zones.iter().map(low).collect();
    let policy = rebuilt.allocator.policy();
    let rule = policy.pcp.size;
    let wanted = map.zones().iter().map(|at| recorded_low(machine, at, rule)).zip(&by_rule);
    let wanted: Vec<Option<u32>> =
        wanted.map(|(recorded, by_rule)| recorded.filter(|low| low > by_rule)).collect();
    if wanted.iter().all(Option::is_none) {
        return Vec::new();
    }
    // The least boost that gives no less than is wanted, by halves. Most: LB C.4.
    let most = |zone: &Zone| most_boost(zone, policy.watermark.boost_factor);
    let mut ranges: Vec<(u64, u64)> = zones.iter().map(|zone| (0, most(zone))).collect();
    while ranges.iter().zip(&wanted).any(|((from, to), low)| low.is_some() && from < to) {
        let middles: Vec<u64> = ranges.iter().map(|(from, to)| from.midpoint(*to)).collect();
        rebuilt.raw().size_boosted(&middles);
        for (index, middle) in middles.into_iter().enumerate() {
            let (from, to) = &mut ranges[index];
            match wanted[index].is_none_or(|wanted| low(&zones[index]) >= wanted) {
                true => *to = middle,
                false => *from = (middle + 1).min(*to),
            }
        }
    }
    let mut boosts: Vec<u64> = ranges.into_iter().map(|(boost, _)| boost).collect();
    rebuilt.raw().size_boosted(&boosts);
    let is_found = |(zone, wanted): (&Zone, &Option<u32>)| *wanted == Some(low(zone));
    let found: Vec<bool> = zones.iter().zip(&wanted).map(is_found).collect();
    for (boost, found) in boosts.iter_mut().zip(&found) {
        *boost *= u64::from(*found);
    }
    rebuilt.raw().size_boosted(&boosts);
    let of_zone = |(at, (zone, by_rule)): (&ZoneAt, (&Zone, &u32))| {
        format!(
            "lists of node {}, {} hold up to {} pages as recorded, a bound that was computed while \
             the zone was boosted; its watermarks give {by_rule}",
            at.node,
            at.kind,
            low(zone)
        )
    };
    let all = map.zones().iter().zip(zones.iter().zip(&by_rule)).zip(found);
    all.filter(|(_, found)| *found).map(|(zone, _)| of_zone(zone)).collect()
}

/// The lower bound that all lists of a zone had at the start, where it follows the low watermark:
/// from 6.14 on it is told, and up to 6.6 it is the limit itself.
fn recorded_low(machine: &MachineDescription, at: &ZoneAt, rule: SizeRule) -> Option<u32> {
    let sets = sets_at_start(machine, machine.zone(at.node, &at.kind)?);
    let low_of = |set: &Pageset| match rule {
        SizeRule::MinMaxBounds => set.high_min,
        SizeRule::LowWatermarkSplit => Some(set.high),
        SizeRule::SixBatches => None,
    };
    let low = low_of(sets.first()?)?;
    let is_same = sets.iter().all(|set| low_of(set) == Some(low));
    // Where both bounds are one, a fraction was set.
    let is_tuned = sets.iter().all(|set| set.high_max != Some(low));
    u32::try_from(low).ok().filter(|_| is_same && is_tuned)
}

/// Pages by which a zone is boosted at most (LB C.4).
fn most_boost(zone: &Zone, factor: u32) -> u64 {
    let high = zone.watermarks().high;
    (high.saturating_mul(factor.into()) / FACTOR_UNIT).max(PAGEBLOCK_ORDER.pages())
}
