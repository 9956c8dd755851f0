//! Sysctls with the source of each, within the kernel's ranges (LB I.5).

use std::collections::BTreeMap;

use zonal_core::alloc::Sysctl;
use zonal_core::types::ZoneKind;
use zonal_text::release::KernelRelease;
use zonal_text::sysctl;

use crate::era::Era;
use crate::error::{Error, ensure};
use crate::files::Files;
use crate::meta::Meta;
use crate::place::Place;

/// Ranges of the sysctls that no allocator setter checks (LB I.5).
const RANGES: &[(&str, u64, u64)] = &[
    ("vm.zone_reclaim_mode", 0, i32::MAX as u64),
    ("vm.min_unmapped_ratio", 0, 100),
    ("vm.min_slab_ratio", 0, 100),
    ("vm.numa_stat", 0, 1),
    ("vm.swappiness", 0, 200),
    ("vm.compaction_proactiveness", 0, 100),
    ("vm.extfrag_threshold", 0, 1000),
    ("vm.compact_unevictable_allowed", 0, 1),
    ("vm.overcommit_memory", 0, 2),
];
/// Name of the file with all of them.
pub const FILE: &str = "sysctl.txt";
/// The sysctls that a running kernel is asked for.
const WANTED: &[&str] = &[
    "vm.min_free_kbytes",
    "vm.watermark_scale_factor",
    "vm.watermark_boost_factor",
    "vm.lowmem_reserve_ratio",
    "vm.percpu_pagelist_high_fraction",
    "vm.percpu_pagelist_fraction",
    "vm.numa_stat",
    "vm.zone_reclaim_mode",
    "thp.enabled",
];

/// A sysctl's value, its source, and its effect on an allocator.
#[derive(Debug, Clone)]
pub struct Write {
    /// The setting.
    pub sysctl: Sysctl,
    /// To what.
    pub value: i64,
    /// Where that stands.
    pub place: Place,
}

/// A sysctl in two texts: its key, and the value and place in each.
pub type Disputed = (String, (String, Place), (String, Place));

/// All sysctls of a kernel.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    values: BTreeMap<String, (String, Place)>,
    /// What messages call the file, and its number of lines.
    end: Option<Place>,
}

impl Settings {
    /// Reads `sysctl.txt`, or each sysctl from the file of a running kernel.
    ///
    /// # Errors
    /// With file and line.
    pub fn read(files: &dyn Files, live: bool) -> Result<Settings, Error> {
        let mut settings = Settings::default();
        let unread = |name: &str, source| Error::Read { file: files.path(name), source };
        if live {
            for key in WANTED {
                if let Some(text) = files.read(key).map_err(|source| unread(key, source))? {
                    let value = text.trim_end_matches('\n').to_owned();
                    let place = Place::new(&files.path(key), 1);
                    settings.values.insert((*key).to_owned(), (value, place));
                }
            }
            return Ok(settings);
        }
        let file = files.path(FILE);
        let text = files.read(FILE).map_err(|source| unread(FILE, source))?;
        let text = text.ok_or_else(|| Error::Missing(file.clone()))?;
        let document = sysctl::parse(&text).map_err(|e| Error::at(&file, e.line(), e.kind()))?;
        settings.end = Some(Place::new(&file, document.settings.len() as u64 + 1));
        for (setting, line) in document.settings.into_iter().zip(1..) {
            let place = Place::new(&file, line);
            let twice = settings.values.insert(setting.key.clone(), (setting.value, place));
            let what = || Error::at(&file, line, &format!("{} stands twice", setting.key));
            ensure(twice.is_none(), what)?;
        }
        Ok(settings)
    }

    /// Place and value of a sysctl.
    pub fn get(&self, key: &str) -> Option<(&str, &Place)> {
        self.values.get(key).map(|(value, place)| (value.as_str(), place))
    }

    /// A sysctl that is one number.
    ///
    /// # Errors
    /// With file and line where it is missing or something else.
    pub fn number(&self, key: &str) -> Result<(i64, &Place), Error> {
        let (value, place) = self.get(key).ok_or_else(|| self.missing(key))?;
        let bad = || {
            Error::at(&place.file, place.line, &format!("{key} is `{value}`; expected a number"))
        };
        Ok((value.trim().parse().map_err(|_| bad())?, place))
    }

    fn missing(&self, key: &str) -> Error {
        match &self.end {
            Some(end) => Error::at(&end.file, end.line, &format!("{key} is missing")),
            None => Error::NoSysctl(key.to_owned()),
        }
    }

    /// Writes that give an allocator the kernel's sysctls. `kinds` are the zone kinds of the
    /// kernel, in order.
    ///
    /// # Errors
    /// With file and line where one is missing, not a number or outside its range.
    pub fn writes(&self, release: KernelRelease, kinds: &[ZoneKind]) -> Result<Vec<Write>, Error> {
        let mut writes = Vec::new();
        let mut push = |sysctl, value, place: &Place| {
            writes.push(Write { sysctl, value, place: place.clone() });
        };
        let (value, place) = self.number("vm.min_free_kbytes")?;
        push(Sysctl::MinFreeKbytes, value, place);
        let (value, place) = self.number("vm.watermark_scale_factor")?;
        push(Sysctl::WatermarkScaleFactor, value, place);
        if self.get("vm.watermark_boost_factor").is_some() {
            let (value, place) = self.number("vm.watermark_boost_factor")?;
            push(Sysctl::WatermarkBoostFactor, value, place);
        }
        let mut fractions = release.fraction_keys().iter().filter(|key| self.get(key).is_some());
        let key = fractions.next().unwrap_or(&release.fraction_keys()[0]);
        let (value, place) = self.number(key)?;
        push(Sysctl::HighFraction, value, place);
        let key = "vm.lowmem_reserve_ratio";
        let (text, place) = self.get(key).ok_or_else(|| self.missing(key))?;
        let ratios = text.split_ascii_whitespace().map(str::parse::<i64>);
        let bad =
            |_| Error::at(&place.file, place.line, &format!("{key} is `{text}`; expected numbers"));
        let ratios: Vec<i64> = ratios.collect::<Result<_, _>>().map_err(bad)?;
        // Kernels before 4.18 have no value for the highest kind.
        let (low, high) = (kinds.len().saturating_sub(1), kinds.len());
        ensure((low..=high).contains(&ratios.len()), || {
            let numbers = ratios.len();
            let text = format!("{key}: {numbers} numbers, the kernel has {high} zones a node");
            Error::at(&place.file, place.line, &text)
        })?;
        for kind in ZoneKind::ALL {
            let ratio = kinds.iter().position(|own| *own == kind).and_then(|i| ratios.get(i));
            push(Sysctl::LowmemReserveRatio(kind), ratio.copied().unwrap_or(0), place);
        }
        Ok(writes)
    }

    /// Refuses values that the kernel would not have taken.
    ///
    /// # Errors
    /// With file and line.
    pub fn check_ranges(&self) -> Result<(), Error> {
        for (key, low, high) in RANGES {
            if self.get(key).is_none() {
                continue;
            }
            let (value, place) = self.number(key)?;
            let inside = u64::try_from(value).is_ok_and(|value| (*low..=*high).contains(&value));
            let text = format!("{key} cannot be {value}: accepted are {low} to {high}");
            ensure(inside, || Error::at(&place.file, place.line, &text))?;
        }
        Ok(())
    }

    /// Whether transparent huge pages are on; `None` where that is not known.
    pub fn thp(&self) -> Option<bool> {
        self.get("thp.enabled").and_then(|(value, _)| thp(value))
    }

    /// Sysctls that differ from `meta.json` for the same moment: key, and value and place in both.
    pub fn disputed(&self, meta: &Meta) -> Vec<Disputed> {
        let mut disputed = Vec::new();
        for (key, noted) in &meta.sysctls {
            let Some(here) = self.values.get(key).filter(|(value, _)| value != noted) else {
                continue;
            };
            let there = meta.source.find("\"sysctls\"", &format!("\"{key}\""));
            disputed.push((key.clone(), here.clone(), (noted.clone(), there)));
        }
        disputed
    }

    /// These sysctls, where they are disputed with the values of `meta.json`.
    pub fn as_noted(&self, meta: &Meta) -> Settings {
        let mut noted = self.clone();
        let there = self.disputed(meta).into_iter().map(|(key, _, there)| (key, there));
        noted.values.extend(there);
        noted
    }
}

/// Whether a number is in the range of a sysctl that no allocator setter checks; `None` for others.
pub fn in_range(key: &str, value: Option<i32>) -> Option<bool> {
    let (_, low, high) = RANGES.iter().find(|(other, ..)| *other == key)?;
    let value = value.and_then(|value| u64::try_from(value).ok());
    Some(value.is_some_and(|value| (*low..=*high).contains(&value)))
}

/// Whether a text such as `always [madvise] never` says that huge pages are on.
pub fn thp(value: &str) -> Option<bool> {
    let (_, rest) = value.split_once('[')?;
    rest.split_once(']').map(|(choice, _)| choice != "never")
}
