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
use zonal_core::types::ZoneKind;
use zonal_text::sysctl::{self, Document};
use zonal_trace::Recording;

use crate::error::ReplayError;

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

/// `vm.lowmem_reserve_ratio` by default: of kernels with these zones, in the order of the file.
const RATIOS: [(ZoneKind, i64); 5] = [
    (ZoneKind::Dma, 256),
    (ZoneKind::Dma32, 256),
    (ZoneKind::Normal, 32),
    (ZoneKind::Movable, 0),
    (ZoneKind::Device, 0),
];
const RATIO_NAME: &str = "lowmem_reserve_ratio";
const RATIO_KEY: &str = "watermark.lowmem_ratio";

/// What the recording's `sysctl.txt` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    values: BTreeMap<&'static str, i64>,
    ratios: Option<[i64; 5]>,
    /// `vm.min_free_kbytes`, where that is told.
    pub min_free_kbytes: Option<i64>,
}

impl Settings {
    /// What a recording says; the kernel's own values where it says nothing.
    ///
    /// # Errors
    /// A file that cannot be read, or is none of sysctls.
    pub fn of(recording: &Recording) -> Result<Settings, ReplayError> {
        let files = recording.machine_files()?;
        let text = files.get("sysctl.txt").map(String::from_utf8_lossy).unwrap_or_default();
        Ok(Settings::new(&sysctl::parse(&text)?))
    }

    /// What a text of sysctls says.
    pub fn new(document: &Document) -> Settings {
        let number = |name: &str| {
            let value = document.value(&format!("vm.{name}"))?;
            value.trim().parse::<i64>().ok()
        };
        let values = KNOWN.iter().filter_map(|known| Some((known.name, number(known.name)?)));
        let ratios = document.setting(&format!("vm.{RATIO_NAME}")).and_then(|setting| {
            let numbers: Vec<i64> =
                setting.numbers()?.into_iter().filter_map(|n| i64::try_from(n).ok()).collect();
            <[i64; 5]>::try_from(numbers).ok()
        });
        Settings { values: values.collect(), ratios, min_free_kbytes: number("min_free_kbytes") }
    }

    /// The value of a sysctl that the model follows: as recorded, or the kernel's default.
    pub fn value(&self, sysctl: Sysctl) -> i64 {
        let known = KNOWN.iter().find(|known| known.sysctl == sysctl);
        known.map_or(0, |known| self.values.get(known.name).copied().unwrap_or(known.default))
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
        let ratios = self.ratios.filter(|_| !is_set(RATIO_KEY)).unwrap_or(RATIOS.map(|(_, r)| r));
        for ((kind, default), value) in RATIOS.into_iter().zip(ratios) {
            if value != default {
                let name = format!("vm.{RATIO_NAME} of {kind:?}");
                all.push((name, Sysctl::LowmemReserveRatio(kind), value));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Settings {
        Settings::new(&sysctl::parse(text).unwrap())
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
