//! Sysctls that were written before the texts were read: whether the kernel took them, and what
//! they are since. The core's setters take and refuse the same (LB I.5).

use zonal_core::alloc::Sysctl;
use zonal_core::types::ZoneKind;
use zonal_core::zone::watermark::lowmem_ratio_stored;

use super::super::report::{Case, Check, Value};
use super::super::settings::{Write, in_range};
use super::{Bench, text};

const RATIO: &str = "vm.lowmem_reserve_ratio";

/// Judges every write that the recorder noted.
pub fn judge(bench: &Bench<'_>, case: &mut Case) {
    let meta = &bench.capture.meta;
    for (key, value) in &meta.sysctl_set {
        let Some(taken) = taken(bench, key) else {
            case.skip(format!("{key}={value}"), "what the kernel said to it is not in the capture");
            continue;
        };
        let place = meta.source.find("\"sysctl_set_result\"", &format!("\"{key}"));
        let says = |taken| Value::Text(if taken { "taken" } else { "refused" }.to_owned());
        match accepted(bench, key, value) {
            Some(accepted) => case.check(Check {
                file: place.file,
                line: place.line,
                what: format!("{key}={value}"),
                expected: says(taken),
                computed: says(accepted),
            }),
            None => case.skip(format!("{key}={value}"), "not a sysctl of the core"),
        }
        let before = meta.sysctls_at_boot.get(key);
        let stored = if taken { Some(stored(key, value)) } else { before.cloned() };
        let Some(((now, place), stored)) = bench.capture.settings.get(key).zip(stored) else {
            continue;
        };
        let words = |text: &str| text.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        let what = format!("{key} after it was written");
        let (now, stored) = (words(now), words(&stored));
        let numbers = |text: &str| text.split(' ').all(|word| word.parse::<i64>().is_ok());
        if numbers(&now) && numbers(&stored) {
            case.check(text(place, what, now, stored));
        } else {
            case.skip(what, "the kernel prints it in another form than it is written in");
        }
    }
}

/// Whether the kernel took what was written to a sysctl; `None` where nobody noted that.
pub fn taken(bench: &Bench<'_>, key: &str) -> Option<bool> {
    let results = &bench.capture.meta.sysctl_set_result;
    let result = results.iter().find(|result| {
        let key = result.strip_prefix(key);
        key.is_some_and(|rest| rest.starts_with(['=', ' ', ':']))
    })?;
    Some(result.trim_end().ends_with("ok"))
}

/// What is stored of a value that was taken.
fn stored(key: &str, value: &str) -> String {
    if key != RATIO {
        return value.to_owned();
    }
    let ratio =
        |word: &str| word.parse().map_or(word.to_owned(), |r| lowmem_ratio_stored(r).to_string());
    value.split_ascii_whitespace().map(ratio).collect::<Vec<_>>().join(" ")
}

/// Whether the core takes a value; `None` where it has no such sysctl.
fn accepted(bench: &Bench<'_>, key: &str, value: &str) -> Option<bool> {
    let sysctls: Vec<Sysctl> = match key {
        "vm.min_free_kbytes" => vec![Sysctl::MinFreeKbytes],
        "vm.watermark_scale_factor" => vec![Sysctl::WatermarkScaleFactor],
        "vm.watermark_boost_factor" => vec![Sysctl::WatermarkBoostFactor],
        "vm.percpu_pagelist_high_fraction" | "vm.percpu_pagelist_fraction" => {
            vec![Sysctl::HighFraction]
        }
        RATIO => ZoneKind::ALL.map(Sysctl::LowmemReserveRatio).to_vec(),
        _ => return in_range(key, value),
    };
    let place = bench.writes.first()?.place.clone();
    let sizes: Vec<u64> = bench.shape.zones.iter().map(|_| 1).collect();
    let takes = |(sysctl, word): (Sysctl, &str)| {
        let Ok(value) = word.parse() else { return false };
        let write = Write { sysctl, value, place: place.clone() };
        bench.shape.compute(&bench.policy, &sizes, &[write]).is_ok()
    };
    Some(sysctls.into_iter().zip(value.split_ascii_whitespace()).all(takes))
}
