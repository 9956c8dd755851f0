//! Sysctls that were written before the texts were read: whether the kernel accepted them, and
//! their values since. The core's setters take and refuse the same (LB I.5).

use zonal_core::alloc::Sysctl;
use zonal_core::zone::watermark::lowmem_ratio_stored;

use super::bench::Bench;
use super::compared::text;
use crate::ints;
use crate::report::{Case, Check, Value};
use crate::settings::{Write, in_range};

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
        let Some((now, place)) = bench.capture.settings.get(key) else { continue };
        let before = meta.sysctls_at_boot.get(key).map(String::as_str);
        let what = format!("{key} after it was written");
        match after(key, value, taken, before, now) {
            Some(stored) => case.check(text(place, what, words(now), words(&stored))),
            None => case.skip(what, "what the kernel made of that text is not known"),
        }
    }
}

/// Whether the kernel took what was written to a sysctl; `None` if not noted.
pub fn taken(bench: &Bench<'_>, key: &str) -> Option<bool> {
    let results = &bench.capture.meta.sysctl_set_result;
    let result = results.iter().find(|result| {
        let key = result.strip_prefix(key);
        key.is_some_and(|rest| rest.starts_with(['=', ' ', ':']))
    })?;
    Some(result.trim_end().ends_with("ok"))
}

/// What a sysctl is after `value` was written to it; `None` where that is not known.
fn after(key: &str, value: &str, taken: bool, before: Option<&str>, now: &str) -> Option<String> {
    if !taken {
        return before.map(str::to_owned);
    }
    if key != RATIO {
        // One of several: it is printed among the others, in brackets.
        let choice = now.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        return match choice {
            Some((choice, _)) if choice == value.trim() => Some(now.to_owned()),
            Some(_) => Some(value.to_owned()),
            None => ints::leading(value).first().map(i32::to_string),
        };
    }
    let before = before.map(ints::leading);
    let stored = |written: &str| {
        let written = ints::leading(written).into_iter().map(lowmem_ratio_stored);
        let mut ratios: Vec<u32> = written.collect();
        // Unwritten values stay.
        let count = words(now).split(' ').count();
        match &before {
            Some(before) => ratios.extend(before.iter().skip(ratios.len()).map(|r| *r as u32)),
            None if ratios.len() < count => return None,
            None => {}
        }
        ratios.truncate(count);
        Some(ratios.iter().map(u32::to_string).collect::<Vec<_>>().join(" "))
    };
    // A recorder whose lists cannot hold blanks notes commas in their place.
    let spaced = value.replace(',', " ");
    let as_spaced = stored(&spaced).filter(|stored| *stored == words(now));
    as_spaced.or_else(|| stored(value))
}

/// A text with one blank between its words.
fn words(text: &str) -> String {
    text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether the core takes a value; `None` where it has no such sysctl.
fn accepted(bench: &Bench<'_>, key: &str, value: &str) -> Option<bool> {
    let first = ints::leading(value).first().copied();
    let sysctl = match key {
        "vm.min_free_kbytes" => Sysctl::MinFreeKbytes,
        "vm.watermark_scale_factor" => Sysctl::WatermarkScaleFactor,
        "vm.watermark_boost_factor" => Sysctl::WatermarkBoostFactor,
        "vm.percpu_pagelist_high_fraction" | "vm.percpu_pagelist_fraction" => Sysctl::HighFraction,
        // The kernel stores the numbers before the first bad word, and refuses nothing.
        RATIO => {
            let mut ratios = ints::leading(value).into_iter().zip(bench.capture.kinds());
            let takes = |(ratio, kind)| takes(bench, Sysctl::LowmemReserveRatio(kind), ratio);
            return Some(ratios.all(takes));
        }
        _ => return in_range(key, first),
    };
    Some(first.is_some_and(|value| takes(bench, sysctl, value)))
}

fn takes(bench: &Bench<'_>, sysctl: Sysctl, value: i32) -> bool {
    let Some(place) = bench.writes.first().map(|write| write.place.clone()) else { return false };
    let sizes: Vec<u64> = bench.shape.zones.iter().map(|_| 1).collect();
    let write = Write { sysctl, value: value.into(), place };
    bench.shape.compute(&bench.policy, &sizes, &[write]).is_ok()
}
