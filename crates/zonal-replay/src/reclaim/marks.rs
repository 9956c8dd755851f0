//! How many pages stay free under settings, by the kernel's formula (LB A.7, C.1, C.2).
//!
//! ```text
//!  free pages of a lower zone
//!  ---------- watermark + lowmem reserve    requests that zones above could serve stop here
//!  ---------- watermark                     those that only this zone can serve
//! ```
//! What fills memory, pages of files and of programs, can be had from the highest zone, so both
//! keep its cache out. Such a request comes to a lower zone only when those above are short: of
//! pages, or of blocks of its order. What a zone that is short of blocks alone has free is in
//! pieces and not kept by its marks.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use zonal_core::alloc::Sysctl;
use zonal_core::types::{NR_ZONE_KINDS, PageRules, ZoneKind};
use zonal_core::zone::watermark::{
    BOOST_FACTOR_DEFAULT, FACTOR_UNIT, LOWMEM_RATIO_DEFAULT, MIN_FREE_KBYTES_CEILING, MovableMin,
    SCALE_FACTOR_DEFAULT, WatermarkInputs, Watermarks, lowmem_pages, lowmem_reserves,
    min_free_kbytes, min_free_kbytes_for_thp,
};
use zonal_trace::{MachineDescription, PolledState, PolledZone, ZoneDescription};

use super::wakes::Wakes;
use crate::settings::ratio_stored;
use crate::zones::{kind_of, page_rules, polled_zone};

/// A zone whose free pages never came nearer to its high watermark than this part of it was not
/// short of pages: its marks kept nothing free.
const NEAR_PARTS: u64 = 20;
/// A reserve that is less than the kernel's own by no more than this part of it is the kernel's.
const OWN_PARTS: i64 = 10;
/// The kernel's own `vm.watermark_scale_factor` and `vm.watermark_boost_factor`.
const OWN_SCALE_FACTOR: i64 = SCALE_FACTOR_DEFAULT as i64;
const OWN_BOOST_FACTOR: i64 = BOOST_FACTOR_DEFAULT as i64;

/// Pages that stay free because of the marks: at the least, when background reclaim is woken, and
/// at the most, when it sleeps again.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Kept {
    /// Sum of low watermarks.
    pub low: f64,
    /// Sum of high watermarks.
    pub high: f64,
}

impl Kept {
    /// How many fewer stay free: at the least, and at the most.
    pub fn fewer(now: Kept, then: Kept) -> (f64, f64) {
        let (a, b) = (now.low - then.low, now.high - then.high);
        (a.min(b), a.max(b))
    }
}

/// What decides the marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkSettings {
    /// `vm.min_free_kbytes`.
    pub min_free_kbytes: i64,
    /// `vm.watermark_scale_factor`.
    pub scale_factor: i64,
    /// `vm.watermark_boost_factor`: how far boosts lift the marks at most.
    pub boost_factor: i64,
    /// `vm.lowmem_reserve_ratio`, by zone kind; 0 reserves nothing.
    pub lowmem_ratios: [u32; NR_ZONE_KINDS],
}

impl MarkSettings {
    /// The same with what is written by `sysctls`.
    pub fn with(mut self, sysctls: &[(Sysctl, i64)]) -> MarkSettings {
        for (sysctl, value) in sysctls {
            match sysctl {
                Sysctl::MinFreeKbytes => self.min_free_kbytes = *value,
                Sysctl::WatermarkScaleFactor => self.scale_factor = *value,
                Sysctl::WatermarkBoostFactor => self.boost_factor = *value,
                Sysctl::LowmemReserveRatio(kind) => {
                    self.lowmem_ratios[kind.index()] = ratio_stored(*value);
                }
                _ => {}
            }
        }
        self
    }

    /// Whether each setting that is other than `now` is at least the kernel's own, whose
    /// `min_free_kbytes` is `own_min_free`.
    pub fn keeps_enough(&self, now: MarkSettings, own_min_free: i64) -> bool {
        let is_enough = |value: i64, now: i64, own: i64| value == now || value >= own;
        is_enough(
            self.min_free_kbytes,
            now.min_free_kbytes,
            own_min_free - own_min_free / OWN_PARTS,
        ) && is_enough(self.scale_factor, now.scale_factor, OWN_SCALE_FACTOR)
            && is_enough(self.boost_factor, now.boost_factor, OWN_BOOST_FACTOR)
            && (self.lowmem_ratios.into_iter().zip(now.lowmem_ratios).zip(LOWMEM_RATIO_DEFAULT))
                .all(|((ratio, now), own)| ratio == now || own == 0 || (1..=own).contains(&ratio))
    }
}

/// Zones that were short of pages in a recording, and their boosts.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    /// Pages that the minimum is shared out over.
    lowmem: u64,
    /// The size of a page.
    page: PageRules,
    /// The zones.
    short: Vec<Short>,
}

/// A zone that was short of pages.
#[derive(Clone, Debug)]
struct Short {
    kind: ZoneKind,
    managed: u64,
    /// Managed pages of its node, by kind.
    of_node: [u64; NR_ZONE_KINDS],
    /// The most pages of it that were free: a reserve keeps no more.
    free_max: u64,
    /// Pages of boost in each sample.
    boosts: Vec<u64>,
    /// The factor that these are by.
    boost_factor: i64,
}

impl Marks {
    /// Looks at the samples from `start_ns` on, of a host that was set to `now`.
    pub fn new(
        machine: &MachineDescription,
        (polls, wakes): (&[PolledState], &Wakes),
        start_ns: u64,
        now: MarkSettings,
    ) -> Marks {
        let from = polls.partition_point(|poll| poll.t_begin_ns < start_ns);
        let polls = &polls[from..];
        let zones = machine.zones.iter().filter_map(|zone| Some((kind(machine, zone)?, zone)));
        let zones: Vec<(ZoneKind, &ZoneDescription)> = zones.collect();
        let shares = |(kind, zone): &(ZoneKind, &ZoneDescription)| {
            (*kind != ZoneKind::Movable).then_some(zone.managed)
        };
        let lowmem = zones.iter().filter_map(shares).sum();
        let mut short = Vec::new();
        let nodes: BTreeSet<u32> = zones.iter().map(|(_, zone)| zone.node).collect();
        for node in nodes {
            let mut own: Vec<_> = zones.iter().filter(|(_, zone)| zone.node == node).collect();
            let of_node = managed(machine, node);
            own.sort_by_key(|(kind, _)| Reverse(*kind));
            let of_zone = |(kind, zone): &(ZoneKind, &ZoneDescription)| {
                Short::new((*kind, zone), of_node, polls, now)
            };
            let of_zones = own.into_iter().map(of_zone);
            match wakes.is_short_of_blocks(node) {
                true => short.extend(of_zones.flatten()),
                false => short.extend(of_zones.map_while(|zone| zone)),
            }
        }
        Marks { lowmem, page: page_rules(machine), short }
    }

    /// KiB of a page.
    pub fn kbytes(&self) -> f64 {
        self.page.kbytes() as f64
    }

    /// Pages that stay free in these zones under `settings`.
    pub fn kept(&self, settings: MarkSettings) -> Kept {
        let mut kept = Kept::default();
        for zone in &self.short {
            let marks = of_zone((zone.kind, zone.managed), (self.lowmem, self.page), settings);
            let reserve = reserve(zone.kind, &zone.of_node, settings);
            let boost = zone.boost(marks.high, settings.boost_factor);
            let of = |mark: u64| {
                let reserve = reserve.min(zone.free_max.saturating_sub(mark));
                mark.saturating_add(reserve) as f64 + boost
            };
            kept.low += of(marks.low);
            kept.high += of(marks.high);
        }
        kept
    }

    /// Whether so many pages more than reclaim leaves free were free in one of these samples.
    pub fn were_free(
        machine: &MachineDescription,
        polls: &[PolledState],
        settings: MarkSettings,
        more: u64,
    ) -> bool {
        let zones = machine.zones.iter().filter_map(|zone| Some((kind(machine, zone)?, zone)));
        let kept = |(kind, zone): (ZoneKind, &ZoneDescription)| {
            reserve(kind, &managed(machine, zone.node), settings)
        };
        let zones: Vec<(u64, &ZoneDescription)> =
            zones.map(|(kind, zone)| (kept((kind, zone)), zone)).collect();
        let above = |poll: &PolledState| -> u64 {
            let of = |(reserve, zone): &(u64, &ZoneDescription)| {
                let polled = polled_zone(poll, zone)?;
                Some(polled.free.saturating_sub(polled.high.saturating_add(*reserve)))
            };
            zones.iter().filter_map(of).sum()
        };
        polls.iter().any(|poll| above(poll) >= more)
    }

    /// Pages of all zones that lowmem reserves keep from what fills memory.
    pub fn reserved(machine: &MachineDescription, settings: MarkSettings) -> u64 {
        let zones = machine.zones.iter().filter_map(|zone| Some((kind(machine, zone)?, zone)));
        let of = |(kind, zone): (ZoneKind, &ZoneDescription)| {
            reserve(kind, &managed(machine, zone.node), settings).min(zone.managed)
        };
        zones.map(of).sum()
    }
}

impl Short {
    /// `None`: the zone was not short of pages.
    fn new(
        (kind, zone): (ZoneKind, &ZoneDescription),
        of_node: [u64; NR_ZONE_KINDS],
        polls: &[PolledState],
        now: MarkSettings,
    ) -> Option<Short> {
        let seen: Vec<&PolledZone> =
            polls.iter().filter_map(|poll| polled_zone(poll, zone)).collect();
        let reserve = reserve(kind, &of_node, now);
        let near = |polled: &&&PolledZone| {
            let stop = polled.high.saturating_add(reserve);
            polled.free <= stop.saturating_add(stop / NEAR_PARTS)
        };
        seen.iter().find(near)?;
        let own = zone.min.saturating_sub(zone.boost);
        Some(Short {
            kind,
            managed: zone.managed,
            of_node,
            free_max: seen.iter().map(|polled| polled.free).max().unwrap_or(0),
            boosts: seen.iter().map(|polled| polled.min.saturating_sub(own)).collect(),
            boost_factor: now.boost_factor,
        })
    }

    /// Mean pages of boost with this factor: no boost is above that part of the high watermark.
    fn boost(&self, high: u64, factor: i64) -> f64 {
        let most = match factor == self.boost_factor {
            true => u64::MAX,
            false => (high.saturating_mul(u64::try_from(factor).unwrap_or(0))) / FACTOR_UNIT,
        };
        let sum: f64 = self.boosts.iter().map(|boost| (*boost).min(most) as f64).sum();
        sum / self.boosts.len().max(1) as f64
    }
}

/// Managed pages of a node, by kind.
fn managed(machine: &MachineDescription, node: u32) -> [u64; NR_ZONE_KINDS] {
    let mut all = [0; NR_ZONE_KINDS];
    let own = machine.zones.iter().filter(|zone| zone.node == node);
    let own = own.filter_map(|zone| Some((kind(machine, zone)?, zone.managed)));
    own.for_each(|(kind, managed)| all[kind.index()] = managed);
    all
}

/// What a zone keeps from requests that any zone could serve.
fn reserve(kind: ZoneKind, of_node: &[u64; NR_ZONE_KINDS], settings: MarkSettings) -> u64 {
    let reserves = lowmem_reserves(of_node, &settings.lowmem_ratios);
    reserves[kind.index()][ZoneKind::Movable.index()]
}

fn kind(machine: &MachineDescription, zone: &ZoneDescription) -> Option<ZoneKind> {
    let kind = kind_of(machine, &zone.kind)?;
    (zone.managed > 0 && kind != ZoneKind::Device).then_some(kind)
}

/// The marks of a zone, where the minimum is shared out over `lowmem` pages of a size.
fn of_zone(
    (kind, managed): (ZoneKind, u64),
    (lowmem, page): (u64, PageRules),
    settings: MarkSettings,
) -> Watermarks {
    // A recording may say anything; the kernel takes 31 bits.
    let bits = |value: i64| u32::try_from(value).unwrap_or(0).min(i32::MAX as u32);
    Watermarks::compute(&WatermarkInputs {
        kind,
        managed,
        lowmem_managed: lowmem.max(1),
        movable: MovableMin::Capped,
        min_free_kbytes: bits(settings.min_free_kbytes),
        scale_factor: bits(settings.scale_factor),
        page,
    })
}

/// What the kernel itself would choose for `vm.min_free_kbytes`, with transparent huge pages.
pub fn own_min_free(machine: &MachineDescription) -> Option<i64> {
    let low =
        |zone: &&ZoneDescription| kind(machine, zone).is_some_and(|kind| kind <= ZoneKind::Normal);
    let zones: Vec<&ZoneDescription> = machine.zones.iter().filter(low).collect();
    let pages = lowmem_pages(zones.iter().map(|zone| (zone.managed, 0)));
    let page = page_rules(machine);
    let first = min_free_kbytes(pages, None, MIN_FREE_KBYTES_CEILING, page).kbytes();
    let own = min_free_kbytes_for_thp(first, zones.len() as u32, pages, page);
    (pages > 0).then_some(own.into())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use zonal_trace::{Event, EventKind, Notice};

    pub(crate) const NOW: MarkSettings = MarkSettings {
        min_free_kbytes: 12_582_912,
        scale_factor: 10,
        boost_factor: OWN_BOOST_FACTOR,
        lowmem_ratios: LOWMEM_RATIO_DEFAULT,
    };

    /// Zones of a host of 24 GiB.
    pub(crate) fn machine() -> MachineDescription {
        let zone = |(kind, managed): (&str, u64)| {
            let settings = MarkSettings { min_free_kbytes: 67_584, ..NOW };
            let of = ZoneKind::from_name(kind).unwrap();
            let marks = of_zone((of, managed), (6_171_025, PageRules::OWN), settings);
            let kind = kind.to_owned();
            let Watermarks { min, low, high, .. } = marks;
            ZoneDescription { kind, managed, min, low, high, ..ZoneDescription::default() }
        };
        let zones = [("DMA", 3840), ("DMA32", 772_919), ("Normal", 5_394_266)].map(zone);
        MachineDescription { zones: zones.to_vec(), ..MachineDescription::default() }
    }

    /// A sample with so many free pages in the zone Normal.
    pub(crate) fn sample(machine: &MachineDescription, free: u64, boost: u64) -> PolledState {
        let zone = |zone: &ZoneDescription| PolledZone {
            kind: zone.kind.clone(),
            free: if zone.kind == "Normal" { free } else { zone.managed },
            min: zone.min + boost,
            low: zone.low + boost,
            high: zone.high + boost,
            managed: zone.managed,
            ..PolledZone::default()
        };
        let zones = machine.zones.iter().map(zone).collect();
        PolledState { t_begin_ns: 5, t_end_ns: 5, zones }
    }

    #[test]
    fn the_kernels_own_choice_is_the_kernels() {
        // `/proc/zoneinfo` of a host with these zones: min 2116 and 16817 at 67584.
        let machine = machine();
        assert_eq!(own_min_free(&machine), Some(67_584));
        assert_eq!((machine.zones[1].min, machine.zones[2].min), (2116, 14_769));
        assert_eq!(own_min_free(&MachineDescription::default()), None);
    }

    #[test]
    fn only_zones_that_are_short_of_pages_keep_some_free() {
        let machine = machine();
        let high = machine.zones[2].high;
        let settings = MarkSettings { min_free_kbytes: 67_584, ..NOW };
        let of = |free, boost| {
            let polls = [sample(&machine, free, 0), sample(&machine, free, boost)];
            Marks::new(&machine, (&polls, &Wakes::default()), 0, settings).kept(settings)
        };
        assert_eq!(of(high * 2, 0), Kept::default());
        let kept = of(high, 0);
        assert_eq!((kept.low, kept.high), (machine.zones[2].low as f64, high as f64));
        // Half of the time with a boost of 100 pages.
        assert_eq!(of(high, 100).high, high as f64 + 50.0);
        let without = settings.with(&[(Sysctl::WatermarkBoostFactor, 0)]);
        let polls = [sample(&machine, high, 100)];
        let marks = Marks::new(&machine, (&polls, &Wakes::default()), 0, settings);
        assert_eq!(marks.kept(without).high, high as f64);
        // Boosts of at most a thousandth of the mark.
        let less = settings.with(&[(Sysctl::WatermarkBoostFactor, 10)]);
        assert_eq!(marks.kept(less).high, (high + high / 1000) as f64);
        let own = settings.with(&[(Sysctl::WatermarkBoostFactor, OWN_BOOST_FACTOR)]);
        assert_eq!(marks.kept(own).high, high as f64 + 100.0);
    }

    #[test]
    fn a_lower_zone_is_short_where_requests_from_above_stop() {
        let machine = machine();
        let own = MarkSettings { min_free_kbytes: 67_584, ..NOW };
        let one = MarkSettings { lowmem_ratios: [256, 1, 32, 0, 0], ..own };
        let kept = |free, settings| {
            // DMA32 and DMA are as free as they ever are.
            let polls = [sample(&machine, free, 0)];
            let marks = Marks::new(&machine, (&polls, &Wakes::default()), 0, settings);
            (marks.kept(settings).high, marks.kept(own).high)
        };
        let [dma, dma32, normal] = [0, 1, 2].map(|zone| &machine.zones[zone]);
        let of_own = normal.high + dma32.high + 5_394_266 / 256 + dma.managed;
        let of_one = normal.high + dma32.managed + dma.managed;
        assert_eq!(kept(normal.high, one), (of_one as f64, of_own as f64));
        // Nobody asks a lower zone while the one above has pages.
        assert_eq!(kept(2 * normal.high, one), (0.0, 0.0));
        assert_eq!(Marks::reserved(&machine, own), 3840 + 21_071);
        assert_eq!(Marks::reserved(&machine, one), 3840 + 772_919);
    }

    #[test]
    fn a_lower_zone_is_asked_where_the_one_above_has_pages_but_no_block() {
        let machine = machine();
        let own = MarkSettings { min_free_kbytes: 67_584, ..NOW };
        let one = MarkSettings { lowmem_ratios: [256, 1, 32, 0, 0], ..own };
        let high = machine.zones[2].high;
        let kept = |free, order, settings: MarkSettings, then| {
            let mut wakes = Wakes::default();
            let kind = EventKind::Notice(Notice::KswapdWake { node: 0, order });
            wakes.see(&Event { time_ns: 0, cpu: 0, pid: 45, kind });
            let polls = [sample(&machine, free, 0)];
            Marks::new(&machine, (&polls, &wakes), 0, settings).kept(then).high
        };
        // What is free in pieces is kept by no mark: only the lower zones are.
        let [dma, dma32] = [0, 1].map(|zone| &machine.zones[zone]);
        let of_own = dma32.high + 5_394_266 / 256 + dma.managed;
        assert_eq!(kept(2 * high, 9, one, one), (dma32.managed + dma.managed) as f64);
        assert_eq!(kept(2 * high, 9, one, own), of_own as f64);
        // Woken for pages: nobody asked a lower zone, or a boost woke it.
        assert_eq!((kept(2 * high, 0, one, one), kept(2 * high, 0, one, own)), (0.0, 0.0));
        // With the kernel's own reserve there is room below, and it is in pieces, too.
        assert_eq!(kept(2 * high, 9, own, own), dma.managed as f64);
        // Short of both.
        let both = kept(high, 9, one, one);
        assert_eq!(both, (high + dma32.managed + dma.managed) as f64);
    }

    #[test]
    fn less_than_the_kernels_own_is_not_enough_unless_it_is_so_already() {
        let with = |sysctl, value| NOW.with(&[(sysctl, value)]);
        let enough = |then: MarkSettings| then.keeps_enough(NOW, 67_584);
        assert!(enough(NOW) && enough(with(Sysctl::MinFreeKbytes, 67_584)));
        assert!(enough(with(Sysctl::MinFreeKbytes, 61_000)), "nearly the kernel's own");
        assert!(!enough(with(Sysctl::MinFreeKbytes, 33_792)));
        assert!(enough(with(Sysctl::WatermarkScaleFactor, 10)));
        assert!(!enough(with(Sysctl::WatermarkBoostFactor, 0)));
        assert!(!enough(with(Sysctl::WatermarkBoostFactor, 14_999)));
        let boosted = MarkSettings { boost_factor: 150_000, ..NOW };
        let own = MarkSettings { boost_factor: OWN_BOOST_FACTOR, ..NOW };
        assert!(own.keeps_enough(boosted, 67_584));
        let little = MarkSettings { min_free_kbytes: 1000, boost_factor: 0, ..NOW };
        let then = MarkSettings { scale_factor: 10, ..little };
        assert!(then.keeps_enough(MarkSettings { scale_factor: 200, ..little }, 67_584));
    }

    #[test]
    fn what_no_kernel_has_is_no_panic() {
        let machine = machine();
        let polls = [sample(&machine, 0, 0)];
        let marks = Marks::new(&machine, (&polls, &Wakes::default()), 0, NOW);
        for value in [i64::MIN, -1, 0, i64::MAX] {
            let settings = MarkSettings {
                min_free_kbytes: value,
                scale_factor: value,
                boost_factor: value,
                ..NOW
            };
            assert!(marks.kept(settings).high >= 0.0);
        }
    }
}
