//! Settings that were changed while a recording was made, as samples of `/proc/zoneinfo` show.
//!
//! | other than in the sample before | was written |
//! |--|--|
//! | bounds of the lists, to a fraction's or from them | `percpu_pagelist_high_fraction` |
//! | `min` of the zones, each has its share (LB C.2) | `min_free_kbytes` |
//! | the distance of the marks, which that does not give | `watermark_scale_factor` |
//!
//! A value is written only where it is another than before. A boost lifts the marks of one zone
//! alone, their distances stay, and it is none of these; nor is its end. Samples that tell it are
//! taken without it. On a machine of one zone, older ones look like those of another
//! `min_free_kbytes` where the distance is that of the factor: that is taken for a boost. Where a
//! distance changes and no value explains it, the model may have other marks from then on:
//! [`Altered::lost_ns`]. Memory that came is left to be not judged.

use std::borrow::Cow;

use zonal_core::alloc::Sysctl;
use zonal_core::zone::watermark::FACTOR_UNIT;
use zonal_trace::{MachineDescription, NodeDescription, PFN_LIMIT, PolledState, PolledZone};

use crate::settings::Settings;
use crate::world::{Change, Changed};
use crate::zones::page_rules;

/// Least value of the fraction, apart from 0.
const FRACTION_MIN: u64 = 8;
/// Divisors near the estimated one that are looked at.
const NEAR: u64 = 2;

/// What the samples show.
#[derive(Debug, Default)]
pub struct Altered {
    /// The writes.
    pub changes: Vec<Changed>,
    /// From here on nothing tells which watermarks there were.
    pub lost_ns: Option<u64>,
}

/// All changes that the samples after `start_ns` show, none before it.
pub fn altered(
    polls: &[PolledState],
    machine: &MachineDescription,
    settings: &Settings,
    start_ns: u64,
) -> Altered {
    let polls: Vec<Cow<'_, PolledState>> =
        polls.iter().filter(|poll| can_be(poll)).map(without_boost).collect();
    let polls: Vec<&PolledState> = polls.iter().map(AsRef::as_ref).collect();
    let first = polls.partition_point(|poll| poll.t_end_ns < start_ns);
    let (before, after) = polls.split_at(first);
    let factor = settings.value(Sysctl::WatermarkScaleFactor);
    let mut known = Known {
        fraction: settings.value(Sysctl::HighFraction),
        factor,
        recorded_factor: factor,
        min_free: before.iter().rev().chain(after).find_map(|poll| min_free_of(poll, machine)),
    };
    let mut altered = Altered::default();
    for pair in polls[first.saturating_sub(1)..].windows(2) {
        let [before, now] = pair else { continue };
        let middle = before.t_end_ns + now.t_begin_ns.saturating_sub(before.t_end_ns) / 2;
        let time_ns = middle.max(start_ns);
        let is_explained = known.look((before, now), machine, |sysctl, value| {
            let change = Change::Set(sysctl, value);
            altered.changes.push(Changed { time_ns, cpu: 0, change });
        });
        if !is_explained {
            altered.lost_ns.get_or_insert(time_ns);
        }
    }
    altered
}

/// The values so far.
#[derive(Debug)]
struct Known {
    fraction: i64,
    factor: i64,
    /// Before anything was written.
    recorded_factor: i64,
    /// Where a sample told it.
    min_free: Option<i64>,
}

impl Known {
    /// Tells what was written between two samples; returns whether that explains the second one's
    /// distance of the marks.
    fn look(
        &mut self,
        (before, now): (&PolledState, &PolledState),
        machine: &MachineDescription,
        mut write: impl FnMut(Sysctl, i64),
    ) -> bool {
        let mut is_explained = true;
        if marks_differ(before, now) {
            let min_free = min_free_of(now, machine).filter(|value| self.min_free != Some(*value));
            // After that, so that the distance is held against the new `min`.
            self.min_free = min_free.or(self.min_free);
            match self.factor_of(before, now) {
                None => is_explained = false,
                Some(value) if value != self.factor => {
                    self.factor = value;
                    write(Sysctl::WatermarkScaleFactor, value);
                }
                Some(_) => {}
            }
            if let Some(value) = min_free {
                write(Sysctl::MinFreeKbytes, value);
            }
        }
        if let Some(value) = fraction_of(now, machine)
            && bounds_differ(before, now)
            && value != self.fraction
        {
            self.fraction = value;
            write(Sysctl::HighFraction, value);
        }
        is_explained
    }

    /// The factor that the distance of the marks comes from: the same where that did not change,
    /// or still comes from it. A distance of a quarter of `min` is that of many factors: it is the
    /// recorded one, or the largest.
    fn factor_of(&self, before: &PolledState, now: &PolledState) -> Option<i64> {
        let zone = largest(now)?;
        let is_same = |other: &&PolledZone| other.node == zone.node && other.kind == zone.kind;
        let earlier = before.zones.iter().find(is_same)?;
        if distance(earlier) == distance(zone) {
            return Some(self.factor);
        }
        let (wanted, least) = (distance(zone)?, self.own_min(now, zone) / 4);
        let of = |factor: u64| {
            let (whole, rest) = (zone.managed / FACTOR_UNIT, zone.managed % FACTOR_UNIT);
            whole.saturating_mul(factor).saturating_add(rest.saturating_mul(factor) / FACTOR_UNIT)
        };
        if u64::try_from(self.factor).is_ok_and(|factor| of(factor).max(least) == wanted) {
            return Some(self.factor);
        }
        let near = wanted.checked_mul(FACTOR_UNIT)?.checked_div(zone.managed)?;
        let mut factors = near.saturating_sub(NEAR)..=near + NEAR;
        let factor = match wanted == least {
            true => factors.rev().find(|factor| of(*factor) <= least),
            false => factors.find(|factor| of(*factor) == wanted),
        };
        let factor = i64::try_from(factor?).ok()?;
        Some(if wanted == least { factor.min(self.recorded_factor) } else { factor })
    }

    /// A zone's `min` without a boost, as far as it is known.
    fn own_min(&self, now: &PolledState, zone: &PolledZone) -> u64 {
        let Some(kbytes) = self.min_free else { return zone.min };
        let managed: u128 = sharing(now).map(|zone| u128::from(zone.managed)).sum();
        let share = u128::from(kbytes.unsigned_abs() / 4) * u128::from(zone.managed);
        share.checked_div(managed).and_then(|min| u64::try_from(min).ok()).unwrap_or(zone.min)
    }
}

/// Whether a machine can have such zones.
fn can_be(poll: &PolledState) -> bool {
    let numbers = |zone: &PolledZone| [zone.min, zone.low, zone.high, zone.managed];
    poll.zones.iter().flat_map(numbers).all(|pages| pages < PFN_LIMIT)
}

/// The same with the marks that a boost will leave, where it is told.
fn without_boost(poll: &PolledState) -> Cow<'_, PolledState> {
    let is_boosted = |zone: &PolledZone| zone.boost.is_some_and(|pages| pages > 0);
    if !poll.zones.iter().any(is_boosted) {
        return Cow::Borrowed(poll);
    }
    let mut poll = poll.clone();
    for zone in &mut poll.zones {
        let boost = zone.boost.unwrap_or(0);
        for mark in [&mut zone.min, &mut zone.low, &mut zone.high] {
            *mark = mark.saturating_sub(boost);
        }
    }
    Cow::Owned(poll)
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

/// The distance of a zone's marks, which a boost does not change.
fn distance(zone: &PolledZone) -> Option<u64> {
    zone.low.checked_sub(zone.min)
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
    // CPUs that are offline have no lists, and count for nothing.
    let online = |cpu: &&u32| zone.pagesets.iter().any(|set| set.cpu == **cpu);
    let count = |node: &NodeDescription| match machine.nodes.len() {
        // One that comes later is not in its description.
        1 => zone.pagesets.len(),
        _ => node.cpus.iter().filter(online).count(),
    };
    // A node without CPUs has its lists sized for all of them (LB E.4).
    let all: usize = machine.nodes.iter().map(count).sum();
    let cpus = if count(node) == 0 { all } else { count(node) };
    let cpus = (cpus as u64).max(1);
    let near = zone.managed.checked_div(high.checked_mul(cpus)?)?;
    let least = set.batch.saturating_mul(4);
    let gives = |fraction: &u64| (zone.managed / fraction / cpus).max(least) == high;
    let from = near.saturating_sub(NEAR).max(FRACTION_MIN);
    (from..=near + NEAR).find(gives).map(|fraction| fraction as i64)
}

/// Zones that the minimum is shared out over. Movable ones are among them where they have no
/// minimum of their own rule, as in older releases (LB C.2).
fn sharing(now: &PolledState) -> impl Iterator<Item = &PolledZone> {
    let capped = |zone: &PolledZone| zone.min == (zone.managed / 1024).clamp(32, 128);
    let mut movable = now.zones.iter().filter(|zone| zone.kind == "Movable");
    let all = !movable.all(capped);
    now.zones.iter().filter(move |zone| match zone.kind.as_str() {
        "HighMem" | "Device" => false,
        "Movable" => all,
        _ => true,
    })
}

/// `min_free_kbytes`, where each zone has its share of it: while no zone is boosted.
fn min_free_of(now: &PolledState, machine: &MachineDescription) -> Option<i64> {
    let mut all = sharing(now);
    if let (Some(only), None) = (all.next(), all.next())
        && only.boost.is_none()
        && distance(only) != Some(only.min / 4)
    {
        return None;
    }
    let managed: u128 = sharing(now).map(|zone| u128::from(zone.managed)).sum();
    let sum: u128 = sharing(now).map(|zone| u128::from(zone.min)).sum();
    // Each zone's share is rounded down.
    let has_share = |pages: u128, zone: &PolledZone| {
        (pages * u128::from(zone.managed)).checked_div(managed) == Some(zone.min.into())
    };
    let pages = (sum..=sum + now.zones.len() as u128)
        .find(|pages| sharing(now).all(|zone| has_share(*pages, zone)))?;
    i64::try_from(pages * u128::from(page_rules(machine).kbytes())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal_text::zoneinfo::Pageset;

    const S: u64 = 1_000_000_000;
    const MANAGED: [u64; 2] = [800_000, 5_000_000];
    /// Zones of a host of 4 GiB: a quarter of `min` is more than the usual factor gives.
    const SMALL: [u64; 2] = [3_840, 1_000_000];

    /// A sample of a machine with these settings.
    fn sample(second: u64, pages: u64, factor: u64, fraction: u64) -> PolledState {
        of_zones(MANAGED, second, (pages, factor, fraction))
    }

    fn small(second: u64, pages: u64, factor: u64) -> PolledState {
        of_zones(SMALL, second, (pages, factor, 0))
    }

    fn of_zones(
        sizes: [u64; 2],
        second: u64,
        (pages, factor, fraction): (u64, u64, u64),
    ) -> PolledState {
        let all: u64 = sizes.iter().sum();
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
        let zones = ["DMA32", "Normal"].into_iter().zip(sizes).map(zone).collect();
        PolledState { t_begin_ns: second * S, t_end_ns: second * S, zones }
    }

    fn seen(polls: &[PolledState], start_ns: u64) -> Altered {
        let node =
            NodeDescription { id: 0, cpus: vec![0, 1], distances: Vec::new(), stats: Vec::new() };
        let machine = MachineDescription { nodes: vec![node], ..MachineDescription::default() };
        altered(polls, &machine, &Settings::default(), start_ns)
    }

    fn found(polls: &[PolledState]) -> Vec<(u64, Change)> {
        let Altered { changes, lost_ns } = seen(polls, 0);
        assert_eq!(lost_ns, None);
        changes.into_iter().map(|changed| (changed.time_ns, changed.change)).collect()
    }

    fn boosted(mut sample: PolledState) -> PolledState {
        let zone = &mut sample.zones[1];
        (zone.min, zone.low, zone.high) = (zone.min + 512, zone.low + 512, zone.high + 512);
        sample
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
        let plain = |second| sample(second, 16_896, 10, 0);
        assert_eq!(found(&[plain(1), boosted(plain(2))]), []);
        assert_eq!(found(&[plain(1), boosted(plain(2)), plain(3)]), [], "nor is its end");
        assert_eq!(found(&[boosted(plain(1)), plain(2), boosted(plain(3)), plain(4)]), []);
        let mut grown = sample(2, 16_896, 10, 0);
        grown.zones[1].managed += 32_768;
        assert_eq!(found(&[sample(1, 16_896, 10, 0), grown]), []);
    }

    /// A sample of a machine of one zone, with a boost that the sample tells or not.
    fn one_zone(second: u64, pages: u64, boost: u64, is_told: bool) -> PolledState {
        let mut sample = of_zones([1, 5_000_000], second, (pages, 10, 0));
        sample.zones.remove(0);
        let zone = &mut sample.zones[0];
        let gap = (pages / 4).max(zone.managed * 10 / FACTOR_UNIT);
        let min = pages + boost;
        (zone.min, zone.low, zone.high) = (min, min + gap, min + 2 * gap);
        zone.boost = is_told.then_some(boost);
        sample
    }

    #[test]
    fn on_a_machine_of_one_zone_a_boost_is_no_setting() {
        for is_told in [false, true] {
            let at = |second, boost| one_zone(second, 8_000, boost, is_told);
            assert_eq!(found(&[at(1, 0), at(2, 512), at(3, 1024), at(4, 0)]), [], "{is_told}");
            assert_eq!(found(&[at(1, 512), at(2, 0)]), [], "{is_told}");
        }
    }

    #[test]
    fn on_a_machine_of_one_zone_a_reserve_is_found_where_no_boost_can_be_it() {
        let written = [(S + S / 2, Change::Set(Sysctl::MinFreeKbytes, 12_000 * 4))];
        let at = |second, pages, boost| one_zone(second, pages, boost, true);
        assert_eq!(found(&[at(1, 8_000, 0), at(2, 12_000, 0)]), written);
        assert_eq!(found(&[at(1, 8_000, 0), at(2, 12_000, 512)]), written, "boosted as well");
        // A quarter of it is the distance of the marks.
        let at = |second, pages| one_zone(second, pages, 0, false);
        let written = [(S + S / 2, Change::Set(Sysctl::MinFreeKbytes, 50_000 * 4))];
        assert_eq!(found(&[at(1, 40_000), at(2, 50_000)]), written);
    }

    #[test]
    fn a_reserve_that_is_written_while_a_zone_is_boosted_is_found_when_it_is_not() {
        let polls =
            [sample(1, 16_896, 10, 0), boosted(sample(2, 20_000, 10, 0)), sample(3, 20_000, 10, 0)];
        let change = Change::Set(Sysctl::MinFreeKbytes, 20_000 * 4);
        assert_eq!(found(&polls), [(2 * S + S / 2, change)]);
    }

    #[test]
    fn a_factor_is_found_on_its_way_back_to_where_min_gives_the_distance() {
        let factors = |polls: &[PolledState]| -> Vec<Change> {
            found(polls).into_iter().map(|(_, change)| change).collect()
        };
        let factor = |value| Change::Set(Sysctl::WatermarkScaleFactor, value);
        let there = [small(1, 16_896, 10), small(2, 16_896, 200), small(3, 16_896, 10)];
        assert_eq!(factors(&there), [factor(200), factor(10)]);
        let below = [small(1, 16_896, 10), small(2, 16_896, 200), small(3, 16_896, 1)];
        assert_eq!(factors(&below), [factor(200), factor(10)], "which gives the same marks");
        let boost = [small(1, 16_896, 10), small(2, 16_896, 200), boosted(small(3, 16_896, 10))];
        assert_eq!(factors(&boost), [factor(200), factor(10)]);
        let min_free = |pages: i64| Change::Set(Sysctl::MinFreeKbytes, pages * 4);
        let reserve = [small(1, 16_896, 10), small(2, 1000, 10), small(3, 16_896, 10)];
        assert_eq!(factors(&reserve), [min_free(1000), min_free(16_896)], "the distance follows");
    }

    #[test]
    fn a_reserve_is_found_beside_a_movable_zone_of_either_rule() {
        let with_movable = |second, pages: u64, capped: bool| {
            let mut sample = sample(second, pages, 10, 0);
            let mut movable = sample.zones[1].clone();
            movable.kind = "Movable".to_owned();
            let all: u64 = MANAGED.iter().sum::<u64>() + movable.managed;
            if capped {
                movable.min = 128;
            } else {
                for zone in sample.zones.iter_mut().chain([&mut movable]) {
                    zone.min = pages * zone.managed / all;
                }
            }
            for zone in sample.zones.iter_mut().chain([&mut movable]) {
                (zone.low, zone.high) = (zone.min + 9000, zone.min + 18_000);
            }
            sample.zones.push(movable);
            sample
        };
        for capped in [true, false] {
            let polls = [with_movable(1, 16_896, capped), with_movable(2, 20_000, capped)];
            let change = Change::Set(Sysctl::MinFreeKbytes, 20_000 * 4);
            assert_eq!(found(&polls), [(S + S / 2, change)], "{capped}");
        }
    }

    #[test]
    fn lists_of_a_node_without_cpus_are_sized_for_all() {
        let node =
            |id, cpus| NodeDescription { id, cpus, distances: Vec::new(), stats: Vec::new() };
        let nodes = vec![node(0, Vec::new()), node(1, vec![0, 1])];
        let machine = MachineDescription { nodes, ..MachineDescription::default() };
        assert_eq!(fraction_of(&sample(1, 16_896, 10, 64), &machine), Some(64), "for two CPUs");
    }

    #[test]
    fn a_fraction_is_the_same_when_a_cpu_is_offline() {
        let mut alone = sample(2, 16_896, 10, 32);
        alone.zones.iter_mut().for_each(|zone| zone.pagesets.truncate(1));
        for set in alone.zones.iter_mut().flat_map(|zone| &mut zone.pagesets) {
            // One CPU has what two shared.
            let twice = |pages: &mut Option<u64>| *pages = pages.map(|pages| 2 * pages);
            [&mut set.high_min, &mut set.high_max].into_iter().for_each(twice);
        }
        let node =
            NodeDescription { id: 0, cpus: vec![0, 1], distances: Vec::new(), stats: Vec::new() };
        let machine = MachineDescription { nodes: vec![node], ..MachineDescription::default() };
        assert_eq!(fraction_of(&sample(1, 16_896, 10, 32), &machine), Some(32));
        assert_eq!(fraction_of(&alone, &machine), Some(32));
    }

    #[test]
    fn a_distance_that_no_value_gives_is_told() {
        let mut odd = sample(2, 16_896, 10, 0);
        odd.zones[1].low += 7;
        let polls = [sample(1, 16_896, 10, 0), odd, sample(3, 16_896, 10, 0)];
        let Altered { changes, lost_ns } = seen(&polls, 0);
        assert_eq!((changes, lost_ns), (Vec::new(), Some(S + S / 2)));
    }

    #[test]
    fn what_was_written_around_the_start_is_written_at_the_start() {
        let polls = [sample(1, 16_896, 10, 0), sample(2, 16_896, 10, 64)];
        let start_ns = 2 * S - 1;
        let change = Change::Set(Sysctl::HighFraction, 64);
        assert_eq!(seen(&polls, start_ns).changes, [Changed { time_ns: start_ns, cpu: 0, change }]);
    }

    #[test]
    fn numbers_that_no_machine_has_are_no_settings() {
        for at in 0..5 {
            let mut huge = sample(2, 16_896, 200, 0);
            for zone in &mut huge.zones {
                let numbers = [&mut zone.min, &mut zone.low, &mut zone.high, &mut zone.managed];
                numbers.into_iter().skip(at).for_each(|number| *number = u64::MAX);
                for set in &mut zone.pagesets {
                    set.batch = u64::MAX;
                    (set.high_min, set.high_max) = (Some(9), Some(9));
                }
            }
            let polls = [sample(1, 16_896, 10, 0), huge, sample(3, 16_896, 10, 0)];
            let of_lists =
                |changed: &Changed| matches!(changed.change, Change::Set(Sysctl::HighFraction, _));
            assert!(!seen(&polls, 0).changes.iter().any(of_lists));
        }
    }
}
