//! Settings that were changed while a recording was made, as samples of `/proc/zoneinfo` show.
//!
//! | other than in the sample before | was written |
//! |--|--|
//! | bounds of the lists, to a fraction's or from them | `percpu_pagelist_high_fraction` |
//! | `min` of the zones, each has its share (LB C.2) | `min_free_kbytes` |
//! | the distance of the marks alone | `watermark_scale_factor` |
//!
//! A boost lifts the marks of one zone alone, and is none of these. What no value explains, such as
//! memory that came, is left to be not judged.

use zonal_core::alloc::Sysctl;
use zonal_trace::{MachineDescription, PolledState, PolledZone};

use crate::settings::Settings;
use crate::world::{Change, Changed};

/// Least value of the fraction, apart from 0.
const FRACTION_MIN: u64 = 8;
/// Divisors near the estimated one that are looked at.
const NEAR: u64 = 2;
/// Unit of the scale factor.
const FACTOR_UNIT: u64 = 10_000;

/// All changes that the samples after `start_ns` show.
pub fn altered(
    polls: &[PolledState],
    machine: &MachineDescription,
    settings: &Settings,
    start_ns: u64,
) -> Vec<Changed> {
    let mut changes = Vec::new();
    let mut fraction = settings.value(Sysctl::HighFraction);
    let mut factor = settings.value(Sysctl::WatermarkScaleFactor);
    for pair in polls.windows(2) {
        let [before, now] = pair else { continue };
        if now.t_end_ns < start_ns {
            continue;
        }
        let mut write = |sysctl, value| {
            let time_ns = before.t_end_ns + now.t_begin_ns.saturating_sub(before.t_end_ns) / 2;
            changes.push(Changed { time_ns, cpu: 0, change: Change::Set(sysctl, value) });
        };
        let (marks, bounds) = (marks_differ(before, now), bounds_differ(before, now));
        if marks {
            if let Some(value) = factor_of(before, now).filter(|value| *value != factor) {
                factor = value;
                write(Sysctl::WatermarkScaleFactor, value);
            }
            if let Some(kbytes) = min_free_of(before, now) {
                write(Sysctl::MinFreeKbytes, kbytes);
            }
        }
        if let Some(value) = fraction_of(now, machine)
            && bounds
            && value != fraction
        {
            fraction = value;
            write(Sysctl::HighFraction, value);
        }
    }
    changes
}

fn marks_differ(before: &PolledState, now: &PolledState) -> bool {
    let marks = |zone: &PolledZone| [zone.min, zone.low, zone.high];
    !before.zones.iter().map(marks).eq(now.zones.iter().map(marks))
}

fn bounds_differ(before: &PolledState, now: &PolledState) -> bool {
    let bounds = |state: &PolledState| -> Vec<(Option<u64>, Option<u64>)> {
        let sets = state.zones.iter().flat_map(|zone| &zone.pagesets);
        sets.map(|set| (set.high_min, set.high_max)).collect()
    };
    bounds(before) != bounds(now)
}

/// The largest zone of a sample.
fn largest(state: &PolledState) -> Option<&PolledZone> {
    state.zones.iter().max_by_key(|zone| zone.managed)
}

/// The fraction that the bounds of the lists come from.
fn fraction_of(now: &PolledState, machine: &MachineDescription) -> Option<i64> {
    let zone = largest(now)?;
    let set = zone.pagesets.first()?;
    let (low, high) = (set.high_min?, set.high_max?);
    if low != high {
        return Some(0);
    }
    let node = machine.nodes.iter().find(|node| node.id == zone.node)?;
    let cpus = (node.cpus.len() as u64).max(1);
    let near = zone.managed.checked_div(high.checked_mul(cpus)?)?;
    let gives = |fraction: &u64| (zone.managed / fraction / cpus).max(set.batch * 4) == high;
    let from = near.saturating_sub(NEAR).max(FRACTION_MIN);
    (from..=near + NEAR).find(gives).map(|fraction| fraction as i64)
}

/// The factor that the distance of the marks comes from, where that changed and `min` did not.
fn factor_of(before: &PolledState, now: &PolledState) -> Option<i64> {
    let (before, now) = (largest(before)?, largest(now)?);
    let gap = |zone: &PolledZone| zone.low.checked_sub(zone.min);
    if before.min != now.min || gap(before) == gap(now) || now.managed == 0 {
        return None;
    }
    let near = gap(now)?.checked_mul(FACTOR_UNIT)? / now.managed;
    let gives = |factor: &u64| {
        let (whole, rest) = (now.managed / FACTOR_UNIT, now.managed % FACTOR_UNIT);
        Some(whole * factor + rest * factor / FACTOR_UNIT) == gap(now)
    };
    (near.saturating_sub(NEAR)..=near + NEAR).find(gives).map(|factor| factor as i64)
}

/// `min_free_kbytes`, where `min` of the zones changed and each has its share.
fn min_free_of(before: &PolledState, now: &PolledState) -> Option<i64> {
    let mins = |state: &PolledState| -> Vec<u64> { state.zones.iter().map(|z| z.min).collect() };
    if mins(before) == mins(now) {
        return None;
    }
    let managed: u64 = now.zones.iter().map(|zone| zone.managed).sum();
    let sum: u64 = now.zones.iter().map(|zone| zone.min).sum();
    // Each zone's share is rounded down.
    let has_shares = |pages: &u64| {
        let share = |zone: &PolledZone| u128::from(*pages) * u128::from(zone.managed);
        managed > 0
            && now
                .zones
                .iter()
                .all(|zone| u128::from(zone.min) == share(zone) / u128::from(managed))
    };
    let pages = (sum..=sum + now.zones.len() as u64).find(has_shares)?;
    i64::try_from(pages.checked_mul(4)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal_text::zoneinfo::Pageset;
    use zonal_trace::NodeDescription;

    const S: u64 = 1_000_000_000;
    const MANAGED: [u64; 2] = [800_000, 5_000_000];

    /// A sample of a machine with these settings.
    fn sample(second: u64, pages: u64, factor: u64, fraction: u64) -> PolledState {
        let all: u64 = MANAGED.iter().sum();
        let zone = |(kind, managed): (&str, u64)| {
            let min = pages * managed / all;
            let gap = (min / 4).max(managed * factor / FACTOR_UNIT);
            let high = |of: u64| (of / 2).max(252);
            let bounds = match fraction {
                0 => (high(min + gap), high(managed / 8)),
                _ => (high(managed / fraction), high(managed / fraction)),
            };
            let set = |cpu| Pageset {
                cpu,
                count: 0,
                high: bounds.0,
                batch: 63,
                high_min: Some(bounds.0),
                high_max: Some(bounds.1),
            };
            PolledZone {
                kind: kind.to_owned(),
                min,
                low: min + gap,
                high: min + 2 * gap,
                managed,
                pagesets: vec![set(0), set(1)],
                ..PolledZone::default()
            }
        };
        let zones = ["DMA32", "Normal"].into_iter().zip(MANAGED).map(zone).collect();
        PolledState { t_begin_ns: second * S, t_end_ns: second * S, zones }
    }

    fn found(polls: &[PolledState]) -> Vec<(u64, Change)> {
        let node =
            NodeDescription { id: 0, cpus: vec![0, 1], distances: Vec::new(), stats: Vec::new() };
        let machine = MachineDescription { nodes: vec![node], ..MachineDescription::default() };
        let changes = altered(polls, &machine, &Settings::default(), 0);
        changes.into_iter().map(|changed| (changed.time_ns, changed.change)).collect()
    }

    #[test]
    fn a_setting_that_was_written_is_found_between_two_samples() {
        let polls = [
            sample(1, 16_896, 10, 0),
            sample(2, 16_896, 10, 64),
            sample(3, 16_896, 10, 64),
            sample(4, 16_896, 200, 64),
            sample(5, 33_792, 200, 64),
            sample(6, 33_792, 200, 0),
        ];
        let half = S / 2;
        assert_eq!(
            found(&polls),
            [
                (S + half, Change::Set(Sysctl::HighFraction, 64)),
                (3 * S + half, Change::Set(Sysctl::WatermarkScaleFactor, 200)),
                (4 * S + half, Change::Set(Sysctl::MinFreeKbytes, 33_792 * 4)),
                (5 * S + half, Change::Set(Sysctl::HighFraction, 0)),
            ]
        );
    }

    #[test]
    fn a_boost_and_memory_that_comes_are_no_settings() {
        let mut boosted = sample(2, 16_896, 10, 0);
        let zone = &mut boosted.zones[1];
        (zone.min, zone.low, zone.high) = (zone.min + 512, zone.low + 512, zone.high + 512);
        assert_eq!(found(&[sample(1, 16_896, 10, 0), boosted]), []);
        let mut grown = sample(2, 16_896, 10, 0);
        grown.zones[1].managed += 32_768;
        assert_eq!(found(&[sample(1, 16_896, 10, 0), grown]), []);
    }
}
