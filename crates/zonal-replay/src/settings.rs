//! What the recorded machine was set to.
//!
//! A recording has the sysctls that the page allocator follows. A replay on the recorded machine
//! sets what differs from the kernel's own defaults, before anything is compared: watermarks and
//! sizes of lists then come out as recorded. A value that the policy was given (`--set`) stays.
//! `vm.min_free_kbytes` is not among them: it follows from the recorded watermarks themselves,
//! which also hold where no file says it.

use std::collections::BTreeMap;

use zonal_core::alloc::Sysctl;
use zonal_core::policy::Policy;
use zonal_core::types::{NR_ZONE_KINDS, ZoneKind};
use zonal_core::zone::watermark::{LOWMEM_RATIO_DEFAULT, lowmem_ratio_stored};
use zonal_text::sysctl::{self, Document, Setting};
use zonal_trace::Recording;

use crate::error::ReplayError;
use crate::zones::kinds;

/// A sysctl that the model follows: name below `vm.`, the policy's key for the same, the kernel's
/// default.
struct Known {
    name: &'static str,
    key: &'static str,
    sysctl: Sysctl,
    default: i64,
}

const fn known(name: &'static str, key: &'static str, sysctl: Sysctl, default: i64) -> Known {
    Known { name, key, sysctl, default }
}

const KNOWN: [Known; 9] = [
    known("percpu_pagelist_high_fraction", "pcp.high_fraction", Sysctl::HighFraction, 0),
    known("watermark_scale_factor", "watermark.scale_factor", Sysctl::WatermarkScaleFactor, 10),
    known("watermark_boost_factor", "watermark.boost_factor", Sysctl::WatermarkBoostFactor, 15000),
    known("zone_reclaim_mode", "node_reclaim.mode", Sysctl::ZoneReclaimMode, 0),
    known("numa_stat", "numa.stat", Sysctl::NumaStat, 1),
    known("stat_interval", "", Sysctl::StatInterval, 1),
    known("min_unmapped_ratio", "node_reclaim.min_unmapped_ratio", Sysctl::MinUnmappedRatio, 1),
    known("min_slab_ratio", "node_reclaim.min_slab_ratio", Sysctl::MinSlabRatio, 5),
    known("defrag_mode", "", Sysctl::DefragMode, 0),
];

/// What `percpu_pagelist_high_fraction` was called up to 5.12 (LB E.11).
const OLD_FRACTION: &str = "percpu_pagelist_fraction";

/// `vm.lowmem_reserve_ratio` by default: of kernels with these zones, in the order of the file.
const RATIOS: [(ZoneKind, i64); 5] = [
    (ZoneKind::Dma, 256),
    (ZoneKind::Dma32, 256),
    (ZoneKind::Normal, 32),
    (ZoneKind::Movable, 0),
    (ZoneKind::Device, 0),
];
const MIN_FREE: &str = "min_free_kbytes";
const MIN_FREE_KEY: &str = "watermark.min_free";
const RATIO_NAME: &str = "lowmem_reserve_ratio";
const RATIO_KEY: &str = "watermark.lowmem_ratio";

/// What the recording's `sysctl.txt` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    values: BTreeMap<&'static str, i64>,
    /// As the file has them; kernels without some kind of zone have fewer.
    ratios: Vec<(ZoneKind, i64)>,
    has_old_fraction: bool,
    /// `vm.min_free_kbytes`, where that is told.
    pub min_free_kbytes: Option<i64>,
    /// What is another at the end than at the start: its name with `vm.`, and both values.
    altered: Vec<(String, [String; 2])>,
}

impl Settings {
    /// What a recording says; the kernel's own values where it says nothing.
    ///
    /// # Errors
    /// A file that cannot be read, or is none of sysctls.
    pub fn of(recording: &Recording) -> Result<Settings, ReplayError> {
        let files = recording.machine_files()?;
        let text = files.get("sysctl.txt").map(String::from_utf8_lossy).unwrap_or_default();
        let document = sysctl::parse(&text)?;
        let mut settings = Settings::new(&document);
        let ratios = document.setting(&format!("vm.{RATIO_NAME}")).and_then(Setting::numbers);
        let named = named_ratios(&kinds(recording.description()), &ratios.unwrap_or_default());
        settings.ratios = named.unwrap_or(settings.ratios);
        let text = files.get("sysctl.post").map(String::from_utf8_lossy).unwrap_or_default();
        settings.altered = altered(&document, &sysctl::parse(&text)?);
        Ok(settings)
    }

    /// What a text of sysctls says.
    pub fn new(document: &Document) -> Settings {
        let number = |name: &str| {
            let value = document.value(&format!("vm.{name}"))?;
            value.trim().parse::<i64>().ok()
        };
        let mut values: BTreeMap<&'static str, i64> =
            KNOWN.iter().filter_map(|known| Some((known.name, number(known.name)?))).collect();
        let fraction = KNOWN[0].name;
        let old = number(OLD_FRACTION).filter(|_| !values.contains_key(fraction));
        values.extend(old.map(|value| (fraction, value)));
        let ratios = document.setting(&format!("vm.{RATIO_NAME}")).and_then(Setting::numbers);
        Settings {
            values,
            ratios: ratios_of(&ratios.unwrap_or_default()),
            has_old_fraction: old.is_some(),
            min_free_kbytes: number(MIN_FREE),
            altered: Vec::new(),
        }
    }

    /// What is said of settings that are others at the end than at the start, without those of
    /// which samples tell when they were written.
    pub fn altered_unseen(&self, is_told: impl Fn(Sysctl) -> bool) -> impl Iterator<Item = String> {
        let sysctl = |name: &str| Settings::sysctl_of(name.strip_prefix("vm.").unwrap_or(name));
        let unseen =
            self.altered.iter().filter(move |(name, _)| !sysctl(name).is_some_and(&is_told));
        unseen.map(|(name, [before, after])| {
            format!(
                "{name} is {after} at the end and was {before} at the start: somebody set it while \
                 this was recorded; no sample tells when"
            )
        })
    }

    /// The recorded kernel's name of the sysctl that bounds the lists.
    pub fn fraction_name(&self) -> &'static str {
        if self.has_old_fraction { OLD_FRACTION } else { KNOWN[0].name }
    }

    /// Names, below `vm.`, of the sysctls that the model follows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KNOWN.iter().map(|known| known.name).chain([MIN_FREE, RATIO_NAME])
    }

    /// `vm.lowmem_reserve_ratio` by zone kind, as the kernel keeps it; its own where the recording
    /// says nothing.
    pub fn lowmem_ratios(&self) -> [u32; NR_ZONE_KINDS] {
        let mut ratios = LOWMEM_RATIO_DEFAULT;
        for (kind, ratio) in &self.ratios {
            ratios[kind.index()] = ratio_stored(*ratio);
        }
        ratios
    }

    /// The kernel's own `vm.lowmem_reserve_ratio` where the recorded one is another: as a setting,
    /// and entry by entry.
    pub fn own_lowmem_ratios(&self) -> Option<(String, Vec<(Sysctl, i64)>)> {
        let own = |kind: &ZoneKind| i64::from(LOWMEM_RATIO_DEFAULT[kind.index()]);
        let all: Vec<(ZoneKind, i64)> =
            self.ratios.iter().map(|(kind, _)| (*kind, own(kind))).collect();
        (all != self.ratios).then(|| {
            let words: Vec<String> = all.iter().map(|(_, ratio)| ratio.to_string()).collect();
            let entry = |(kind, ratio)| (Sysctl::LowmemReserveRatio(kind), ratio);
            (format!("vm.{RATIO_NAME}={}", words.join(" ")), all.into_iter().map(entry).collect())
        })
    }

    /// What is written by a setting of a name below `vm.`: of `lowmem_reserve_ratio` an entry for
    /// each number. `None`: the model does not follow it.
    ///
    /// # Errors
    /// What was expected instead, in words.
    pub fn written_by(name: &str, value: &str) -> Option<Result<Vec<(Sysctl, i64)>, String>> {
        if name != RATIO_NAME {
            let sysctl = Settings::sysctl_of(name)?;
            let number = value.parse().map(|number| vec![(sysctl, number)]);
            return Some(
                number.map_err(|_| format!("`{value}`: expected a whole number for vm.{name}")),
            );
        }
        let numbers: Result<Vec<u64>, _> = value.split_whitespace().map(str::parse).collect();
        let entries = numbers.map(|numbers| {
            let entry = |(kind, ratio)| (Sysctl::LowmemReserveRatio(kind), ratio);
            ratios_of(&numbers).into_iter().map(entry).collect::<Vec<_>>()
        });
        let entries = entries.ok().filter(|entries| !entries.is_empty());
        Some(entries.ok_or_else(|| {
            format!(
                "`{value}`: expected numbers for vm.{name} with blanks between, such as \
                 '256 256 32 0 0'"
            )
        }))
    }

    /// The sysctl of a name below `vm.`.
    pub fn sysctl_of(name: &str) -> Option<Sysctl> {
        let known = KNOWN.iter().find(|known| known.name == name).map(|known| known.sysctl);
        known
            .or((name == OLD_FRACTION).then_some(Sysctl::HighFraction))
            .or((name == MIN_FREE).then_some(Sysctl::MinFreeKbytes))
    }

    /// The value of a sysctl that the model follows: as recorded, or the kernel's default.
    pub fn value(&self, sysctl: Sysctl) -> i64 {
        let known = KNOWN.iter().find(|known| known.sysctl == sysctl);
        known.map_or(0, |known| self.values.get(known.name).copied().unwrap_or(known.default))
    }

    /// The name of a sysctl that the model follows, `vm.` and all.
    pub fn name_of(sysctl: Sysctl) -> String {
        let known = KNOWN.iter().find(|known| known.sysctl == sysctl).map(|known| known.name);
        format!("vm.{}", known.unwrap_or(MIN_FREE))
    }

    /// Whether `policy` was given a value for it, which stays.
    pub fn is_given(policy: &Policy, sysctl: Sysctl) -> bool {
        let known = KNOWN.iter().find(|known| known.sysctl == sysctl);
        let key = known.map_or(MIN_FREE_KEY, |known| known.key);
        policy.changes().any(|change| change.setting.key == key)
    }

    /// What is written to a machine under `policy` to be as recorded: name, sysctl, value.
    pub fn recorded(&self, policy: &Policy) -> Vec<(String, Sysctl, i64)> {
        let is_set = |key: &str| policy.changes().any(|change| change.setting.key == key);
        let mut all = Vec::new();
        for known in KNOWN.iter().filter(|known| !is_set(known.key)) {
            let value = self.value(known.sysctl);
            if value != known.default {
                all.push((format!("vm.{}", known.name), known.sysctl, value));
            }
        }
        for (kind, value) in self.ratios.iter().copied().filter(|_| !is_set(RATIO_KEY)) {
            if RATIOS.iter().any(|(other, default)| *other == kind && value != *default) {
                let name = format!("vm.{RATIO_NAME} of {kind:?}");
                all.push((name, Sysctl::LowmemReserveRatio(kind), value));
            }
        }
        all
    }
}

/// The settings of which two readings have different values, blanks apart.
fn altered(before: &Document, after: &Document) -> Vec<(String, [String; 2])> {
    let words = |value: &str| value.split_whitespace().collect::<Vec<_>>().join(" ");
    let differs = |setting: &Setting| {
        let values = [&*setting.value, after.value(&setting.key)?].map(words);
        (values[0] != values[1]).then(|| (setting.key.clone(), values))
    };
    before.settings.iter().filter_map(differs).collect()
}

/// As the kernel keeps an entry of `vm.lowmem_reserve_ratio`.
pub fn ratio_stored(written: i64) -> u32 {
    i32::try_from(written).map_or(0, lowmem_ratio_stored)
}

/// The ratios of a kernel that has these zones; `None`: there are not as many.
fn named_ratios(kinds: &[Option<ZoneKind>], numbers: &[u64]) -> Option<Vec<(ZoneKind, i64)>> {
    let known = kinds.iter().zip(numbers);
    let known = known.filter_map(|(kind, ratio)| Some(((*kind)?, i64::try_from(*ratio).ok()?)));
    (kinds.len() == numbers.len()).then(|| known.collect())
}

/// Which zones so many ratios are of, where nothing names the kernel's zones. The file has one for
/// each kind of zone that the kernel was built with, older kernels without the last (LB A.7). A
/// kernel without DMA begins with DMA32, and ends with Movable and Device, which are 0.
fn ratios_of(numbers: &[u64]) -> Vec<(ZoneKind, i64)> {
    let without_dma = numbers.len() == 4 && numbers[2..] == [0, 0];
    let kinds = RATIOS[usize::from(without_dma)..].iter();
    let numbers = numbers.iter().map_while(|number| i64::try_from(*number).ok());
    kinds.zip(numbers).map(|((kind, _), ratio)| (*kind, ratio)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Settings {
        Settings::new(&sysctl::parse(text).unwrap())
    }

    #[test]
    fn what_somebody_set_meanwhile_is_said_unless_samples_tell_when() {
        let document = |text: &str| sysctl::parse(text).unwrap();
        let before = document(
            "vm.min_free_kbytes=64\nvm.lowmem_reserve_ratio=256\t256\t32\t0\t0\n\
             vm.watermark_boost_factor=15000\nvm.swappiness=60\n",
        );
        let after = document(
            "vm.min_free_kbytes=128\nvm.lowmem_reserve_ratio=256 256 8 0 0\n\
             vm.watermark_boost_factor=0\nvm.swappiness=60\n",
        );
        let settings = Settings { altered: altered(&before, &after), ..Settings::default() };
        let names = |told: Option<Sysctl>| -> Vec<String> {
            let said = settings.altered_unseen(|sysctl| Some(sysctl) == told);
            said.map(|note| note.split(" at the end").next().unwrap().to_owned()).collect()
        };
        let others = ["vm.lowmem_reserve_ratio is 256 256 8 0 0", "vm.watermark_boost_factor is 0"];
        let min_free = "vm.min_free_kbytes is 128";
        assert_eq!(names(None), [&[min_free], &others[..]].concat());
        assert_eq!(names(Some(Sysctl::MinFreeKbytes)), others);
        assert!(altered(&before, &before).is_empty() && altered(&before, &document("")).is_empty());
    }

    #[test]
    fn what_differs_from_the_kernels_own_is_set() {
        let settings = of("vm.percpu_pagelist_high_fraction=64\nvm.watermark_scale_factor=200\n\
            vm.watermark_boost_factor=0\nvm.numa_stat=1\nvm.min_free_kbytes=67584\n\
            vm.lowmem_reserve_ratio=256\t256\t16\t0\t0\nvm.swappiness=60\n");
        let set: Vec<(Sysctl, i64)> = settings
            .recorded(&Policy::LINUX_6_18)
            .into_iter()
            .map(|(_, sysctl, value)| (sysctl, value))
            .collect();
        assert_eq!(
            set,
            [
                (Sysctl::HighFraction, 64),
                (Sysctl::WatermarkScaleFactor, 200),
                (Sysctl::WatermarkBoostFactor, 0),
                (Sysctl::LowmemReserveRatio(ZoneKind::Normal), 16),
            ]
        );
        assert_eq!(settings.min_free_kbytes, Some(67584));
        assert_eq!(of("").recorded(&Policy::LINUX_6_18), []);
    }

    /// The file of an s390x kernel has three ratios, of DMA, Normal and Movable; that of a 32-bit
    /// one four, of which the third is HighMem's.
    #[test]
    fn ratios_are_those_of_the_zones_that_the_kernel_has() {
        let with = |names: &[&str], ratios: &[u64]| {
            let zone = |kind: &&str| zonal_trace::ZoneDescription {
                kind: (*kind).to_owned(),
                ..Default::default()
            };
            let zones = names.iter().map(zone).collect();
            let machine = zonal_trace::MachineDescription { zones, ..Default::default() };
            named_ratios(&kinds(&machine), ratios)
        };
        let [dma, normal, movable] = [ZoneKind::Dma, ZoneKind::Normal, ZoneKind::Movable];
        let of = |numbers| with(&["DMA", "Normal", "Movable"], numbers);
        assert_eq!(of(&[200, 20, 0]), Some(vec![(dma, 200), (normal, 20), (movable, 0)]));
        assert_eq!(of(&[200, 20, 0, 0]), None, "of another kernel");
        let of = |numbers| with(&["DMA", "Normal", "HighMem", "Movable"], numbers);
        assert_eq!(of(&[256, 20, 5, 0]), Some(vec![(dma, 256), (normal, 20), (movable, 5)]));
    }

    #[test]
    fn fewer_ratios_are_those_of_the_first_zones() {
        let set = |ratios: &str| -> Vec<(Sysctl, i64)> {
            let settings = of(&format!("vm.lowmem_reserve_ratio={ratios}\n"));
            let all = settings.recorded(&Policy::LINUX_6_18);
            all.into_iter().map(|(_, sysctl, value)| (sysctl, value)).collect()
        };
        let of = |kind, ratio| (Sysctl::LowmemReserveRatio(kind), ratio);
        assert_eq!(set("256\t256\t16"), [of(ZoneKind::Normal, 16)]);
        assert_eq!(set("256\t128\t32\t0"), [of(ZoneKind::Dma32, 128)]);
        assert_eq!(set("128\t32\t0\t0"), [of(ZoneKind::Dma32, 128)], "without a DMA zone");
        assert_eq!(set("256"), []);
        assert_eq!(set(&format!("{}\t7", u64::MAX)), [], "what no kernel has");
    }

    #[test]
    fn what_the_policy_was_given_stays() {
        let settings = of("vm.percpu_pagelist_high_fraction=64\nvm.watermark_scale_factor=200\n");
        let mut policy = Policy::LINUX_6_18;
        policy.set("pcp.high_fraction", "8").unwrap();
        let names: Vec<String> =
            settings.recorded(&policy).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["vm.watermark_scale_factor"]);
    }
}
