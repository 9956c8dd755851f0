//! How many pages stay free under settings, by the kernel's formula (LB C.1, C.2).

use zonal_core::alloc::Sysctl;
use zonal_core::types::ZoneKind;
use zonal_core::zone::watermark::{
    MIN_FREE_KBYTES_CEILING, MovableMin, WatermarkInputs, Watermarks, lowmem_pages,
    min_free_kbytes, min_free_kbytes_for_thp,
};
use zonal_trace::{MachineDescription, PolledState, PolledZone, ZoneDescription};

/// A zone whose free pages never came nearer to its high watermark than this part of it was not
/// short of pages: its marks kept nothing free.
const NEAR_PARTS: u64 = 20;
/// A reserve that is less than the kernel's own by no more than this part of it is the kernel's.
const OWN_PARTS: i64 = 10;
/// The kernel's own `vm.watermark_scale_factor`.
const OWN_SCALE_FACTOR: i64 = 10;

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
    /// Whether boosts lift the marks.
    pub boosts: bool,
}

impl MarkSettings {
    /// The same with what is written by `sysctls`.
    pub fn with(mut self, sysctls: &[(Sysctl, i64)]) -> MarkSettings {
        for (sysctl, value) in sysctls {
            match sysctl {
                Sysctl::MinFreeKbytes => self.min_free_kbytes = *value,
                Sysctl::WatermarkScaleFactor => self.scale_factor = *value,
                Sysctl::WatermarkBoostFactor => self.boosts &= *value != 0,
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
            && (self.boosts || !now.boosts)
    }
}

/// Zones that were short of pages in a recording, and their boosts.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    /// Pages that the minimum is shared out over.
    lowmem: u64,
    /// Kind, managed pages, and mean pages of boost.
    short: Vec<(ZoneKind, u64, f64)>,
}

impl Marks {
    /// Looks at the samples from `start_ns` on.
    pub fn new(machine: &MachineDescription, polls: &[PolledState], start_ns: u64) -> Marks {
        let from = polls.partition_point(|poll| poll.t_begin_ns < start_ns);
        let polls = &polls[from..];
        let zones = machine.zones.iter().filter_map(|zone| Some((kind(zone)?, zone)));
        let zones: Vec<(ZoneKind, &ZoneDescription)> = zones.collect();
        let shares = |(kind, zone): &(ZoneKind, &ZoneDescription)| {
            (*kind != ZoneKind::Movable).then_some(zone.managed)
        };
        let lowmem = zones.iter().filter_map(shares).sum();
        let short = zones.iter().filter_map(|(kind, zone)| {
            let same = |other: &&PolledZone| other.node == zone.node && other.kind == zone.kind;
            let seen: Vec<&PolledZone> =
                polls.iter().filter_map(|poll| poll.zones.iter().find(same)).collect();
            let near = |polled: &&&PolledZone| {
                polled.free <= polled.high.saturating_add(polled.high / NEAR_PARTS)
            };
            seen.iter().find(near)?;
            let own = zone.min.saturating_sub(zone.boost);
            let boost: u64 = seen.iter().map(|polled| polled.min.saturating_sub(own)).sum();
            Some((*kind, zone.managed, boost as f64 / seen.len() as f64))
        });
        Marks { lowmem, short: short.collect() }
    }

    /// Pages that stay free in these zones under `settings`.
    pub fn kept(&self, settings: MarkSettings) -> Kept {
        let mut kept = Kept::default();
        for (kind, managed, boost) in &self.short {
            let Watermarks { low, high, .. } = of_zone((*kind, *managed), self.lowmem, settings);
            let boost = if settings.boosts { *boost } else { 0.0 };
            kept.low += low as f64 + boost;
            kept.high += high as f64 + boost;
        }
        kept
    }
}

fn kind(zone: &ZoneDescription) -> Option<ZoneKind> {
    ZoneKind::from_name(&zone.kind).filter(|_| zone.managed > 0)
}

fn of_zone((kind, managed): (ZoneKind, u64), lowmem: u64, settings: MarkSettings) -> Watermarks {
    // A recording may say anything; the kernel takes 31 bits.
    let bits = |value: i64| u32::try_from(value).unwrap_or(0).min(i32::MAX as u32);
    Watermarks::compute(&WatermarkInputs {
        kind,
        managed,
        lowmem_managed: lowmem.max(1),
        movable: MovableMin::Capped,
        min_free_kbytes: bits(settings.min_free_kbytes),
        scale_factor: bits(settings.scale_factor),
    })
}

/// What the kernel itself would choose for `vm.min_free_kbytes`, with transparent huge pages.
pub fn own_min_free(machine: &MachineDescription) -> Option<i64> {
    let low = |zone: &&ZoneDescription| kind(zone).is_some_and(|kind| kind <= ZoneKind::Normal);
    let zones: Vec<&ZoneDescription> = machine.zones.iter().filter(low).collect();
    let pages = lowmem_pages(zones.iter().map(|zone| (zone.managed, 0)));
    let first = min_free_kbytes(pages, None, MIN_FREE_KBYTES_CEILING).kbytes();
    let own = min_free_kbytes_for_thp(first, zones.len() as u32, pages);
    (pages > 0).then_some(own.into())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) const NOW: MarkSettings =
        MarkSettings { min_free_kbytes: 12_582_912, scale_factor: 10, boosts: true };

    /// Zones of a host of 24 GiB.
    pub(crate) fn machine() -> MachineDescription {
        let zone = |(kind, managed): (&str, u64)| {
            let settings = MarkSettings { min_free_kbytes: 67_584, ..NOW };
            let of = ZoneKind::from_name(kind).unwrap();
            let marks = of_zone((of, managed), 6_171_025, settings);
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
            Marks::new(&machine, &polls, 0).kept(settings)
        };
        assert_eq!(of(high * 2, 0), Kept::default());
        let kept = of(high, 0);
        assert_eq!((kept.low, kept.high), (machine.zones[2].low as f64, high as f64));
        // Half of the time with a boost of 100 pages.
        assert_eq!(of(high, 100).high, high as f64 + 50.0);
        let without = settings.with(&[(Sysctl::WatermarkBoostFactor, 0)]);
        let polls = [sample(&machine, high, 100)];
        assert_eq!(Marks::new(&machine, &polls, 0).kept(without).high, high as f64);
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
        let little = MarkSettings { min_free_kbytes: 1000, boosts: false, ..NOW };
        let then = MarkSettings { scale_factor: 10, ..little };
        assert!(then.keeps_enough(MarkSettings { scale_factor: 200, ..little }, 67_584));
    }

    #[test]
    fn what_no_kernel_has_is_no_panic() {
        let machine = machine();
        let polls = [sample(&machine, 0, 0)];
        let marks = Marks::new(&machine, &polls, 0);
        for value in [i64::MIN, -1, 0, i64::MAX] {
            let settings = MarkSettings { min_free_kbytes: value, scale_factor: value, ..NOW };
            assert!(marks.kept(settings).high >= 0.0);
        }
    }
}
