//! Limits that were computed when zones had other sizes, and thresholds, which are computed at the
//! boot and when CPUs or memory come and go, and at no other time (LB F.2).

use zonal_core::alloc::Sysctl;
use zonal_core::vmstat::threshold;

use super::bench::{Bench, sizes};
use super::compared::{Compared, Part, Settled, checks, number, short};
use crate::error::Error;
use crate::model::{Computed, Shape};
use crate::place::Number;
use crate::report::{Case, Check, SizeThen};
use crate::stale::{Evidence, Lists, Rules, first_where};
use crate::zones::{ListText, ZoneFile, ZoneText, name};

/// Lists of a zone from which a limit that most of them print is certain.
const LISTS_CERTAIN: usize = 3;

/// Sizes of zones at the time when limits were computed.
#[derive(Debug, Clone)]
pub struct Then {
    /// One solution, by zone.
    sizes: Vec<u64>,
    /// First and last size that each zone can have had, by what is printed beside marks.
    ranges: Vec<(u64, u64)>,
}

/// Looks for sizes from which a text's limits follow.
///
/// # Errors
/// If the machine cannot be rebuilt.
pub fn find(bench: &Bench<'_>, file: &ZoneFile, now: &Computed) -> Result<Option<Then>, Error> {
    let rules = Rules {
        min_free_kbytes: bench.written(Sysctl::MinFreeKbytes) as u32,
        scale_factor: bench.written(Sysctl::WatermarkScaleFactor) as u32,
        movable: bench.policy.watermark.movable_min,
        page: bench.policy.page,
    };
    // Memory usually comes and seldom goes; and limits of lists are also computed apart from marks,
    // when CPUs come and go.
    for (grown, with_lists) in [(true, true), (false, true), (true, false), (false, false)] {
        // One row of `protection` may be wrong; all others then find it out.
        let tells = |index: &usize| {
            protected(bench, file, now, *index).is_none_or(|(above, _)| above.is_some())
        };
        let rows = (0..file.zones.len()).filter(tells).map(Some);
        for without in std::iter::once(None).chain(rows) {
            let zones = evidence(bench, file, now, &rules, (grown, with_lists, without));
            let Some(zones) = zones else { continue };
            if let Some(sizes) = rules.solve(&zones) {
                let ranges = zones.iter().map(|zone| zone.sizes).collect();
                return Ok(Some(Then { sizes, ranges }));
            }
        }
    }
    Ok(None)
}

fn evidence(
    bench: &Bench<'_>,
    file: &ZoneFile,
    now: &Computed,
    rules: &Rules,
    (grown, with_lists, without): (bool, bool, Option<usize>),
) -> Option<Vec<Evidence>> {
    let mut zones = Vec::new();
    for (index, zone) in file.zones.iter().enumerate() {
        let most = if grown { zone.managed.value } else { zone.present.value };
        let mut sizes = (u64::from(most > 0), most);
        if with_lists && !zone.lists.is_empty() {
            let fixed = bench.written(Sysctl::HighFraction) != 0;
            let high_max =
                common(zone, now.zones[index].high.1, |list| list.high_max).filter(|_| !fixed);
            let batch = common(zone, now.zones[index].batch, |list| list.batch);
            let (node, _) = bench.shape.zones[index];
            let lists = Lists {
                node_cpus: bench.node_cpus(node),
                machine_cpus: bench.shape.cpus().len() as u32,
                cap_pages: bench.policy.pcp.batch_cap_pages,
            };
            sizes = lists.narrow(sizes, high_max, batch)?;
        }
        let stored =
            |watermark: &Option<Number>| watermark.map(|m| m.value.saturating_sub(zone.boost));
        let watermarks = zone.watermarks.each_ref().map(stored);
        let mut evidence = Evidence { kind: zone.kind, watermarks, sizes };
        // The watermarks of an empty zone follow from no sizes.
        evidence.watermarks = if most > 0 { rules.repaired(&evidence) } else { [None; 4] };
        zones.push(evidence);
    }
    for index in (0..zones.len()).filter(|index| Some(*index) != without) {
        let (above, sizes) = protected(bench, file, now, index)?;
        if let Some(above) = above {
            let own = zones[above].sizes;
            zones[above].sizes = (own.0.max(sizes.0), own.1.min(sizes.1));
            (zones[above].sizes.0 <= zones[above].sizes.1).then_some(())?;
        }
    }
    Some(zones)
}

/// What the row of `protection` of a zone says of the first zone above it, where that is the only
/// one and the row does not follow from sizes of now: its position and its sizes. `None` for a row
/// that cannot be.
fn protected(
    bench: &Bench<'_>,
    file: &ZoneFile,
    now: &Computed,
    index: usize,
) -> Option<(Option<usize>, (u64, u64))> {
    let nothing = Some((None, (0, 0)));
    let zone = &file.zones[index];
    let kinds = bench.capture.kinds();
    let (_, row) = &zone.protection;
    let computed = &now.zones[index].protection;
    let same = kinds.iter().zip(row).all(|(kind, pages)| computed[kind.index()] as i64 == *pages);
    let ratio = bench.written(Sysctl::LowmemReserveRatio(zone.kind)).max(0) as u64;
    if same || ratio == 0 || zone.managed.value == 0 || !steps(bench, file, index) {
        return nothing;
    }
    let above = |(_, other): &(usize, &ZoneText)| {
        other.node == zone.node && other.kind > zone.kind && other.managed.value > 0
    };
    let Some((first, other)) = file.zones.iter().enumerate().find(above) else { return nothing };
    let place = kinds.iter().position(|kind| *kind == other.kind)?;
    let pages = u64::try_from(row[place]).ok()?;
    let low = pages.checked_mul(ratio)?;
    Some((Some(first), (low, low.checked_add(ratio - 1)?)))
}

/// Whether a row of `protection` rises where there is a zone to protect from, and nowhere else.
fn steps(bench: &Bench<'_>, file: &ZoneFile, index: usize) -> bool {
    let zone = &file.zones[index];
    let mut before = 0;
    bench.capture.kinds().iter().zip(&zone.protection.1).all(|(kind, pages)| {
        let above = |other: &ZoneText| {
            (other.node, other.kind) == (zone.node, *kind)
                && *kind > zone.kind
                && other.managed.value > 0
        };
        let may_rise = zone.managed.value > 0 && file.zones.iter().any(above);
        let ok = *pages == before || (may_rise && *pages > before);
        before = *pages;
        ok
    })
}

/// The value that most lists of a zone print; of those with as many the one that follows from now.
fn common(zone: &ZoneText, now: u32, of: impl Fn(&ListText) -> Option<Number>) -> Option<u64> {
    let values: Vec<u64> = zone.lists.iter().filter_map(of).map(|n| n.value).collect();
    let votes = |value: &u64| {
        (values.iter().filter(|other| *other == value).count(), *value == u64::from(now))
    };
    values.iter().copied().max_by_key(votes)
}

/// Judges a text by sizes of then. Judges only if that leaves fewer mismatches than `wrong`, those
/// with today's sizes.
///
/// # Errors
/// If the machine cannot be rebuilt.
pub fn judge(
    bench: &Bench<'_>,
    file: &ZoneFile,
    then: &Then,
    wrong: usize,
    limits: &[Compared],
    case: &mut Case,
) -> Result<Option<Settled>, Error> {
    let before = bench.compute(&then.sizes)?;
    let of = |shape: &Shape, sizes: &[u64]| -> Result<Vec<Compared>, Error> {
        let computed = shape.compute(&bench.policy, sizes, &bench.writes)?;
        Ok(checks(bench.capture, file, &computed.zones))
    };
    // While a CPU comes online, zones of all nodes are shared out among one CPU more (LB E.4).
    let coming = with_a_cpu_more(bench);
    let times = [
        limits.to_vec(),
        checks(bench.capture, file, &before.zones),
        of(&coming, &then.sizes)?,
        of(&coming, &sizes(file))?,
    ];
    let (mut judged, mut explained) = (Vec::new(), 0);
    for index in 0..file.zones.len() {
        judge_zone(bench, file, then, (index, &times), &mut judged, &mut explained);
    }
    if judged.iter().filter(|check| !check.holds()).count() >= wrong {
        return Ok(None);
    }
    judged.into_iter().for_each(|check| case.check(check));
    explain(file, then, explained, case);
    let now_holds = |index| {
        let row = |(zone, part, check): &&Compared| {
            *zone == index && *part == Part::Protection && check.holds()
        };
        limits.iter().any(|limit| row(&limit))
    };
    let printed = |index| now_holds(index) || possible(bench, file, then, index);
    let is_certain = (0..file.zones.len()).all(printed);
    Ok(Some(Settled { is_certain, ..Settled::new(bench.capture, file, &before.zones, printed) }))
}

/// Judges a zone by what is computed for sizes of now, of then, and for both with a CPU more.
fn judge_zone(
    bench: &Bench<'_>,
    file: &ZoneFile,
    then: &Then,
    (index, times): (usize, &[Vec<Compared>; 4]),
    judged: &mut Vec<Check>,
    explained: &mut u64,
) {
    const NOW: usize = 0;
    const THEN: usize = 1;
    let zone = |at: usize| {
        let zone = times[at].iter().filter(|(of, part, _)| *of == index && part.is_limit());
        zone.map(|(_, part, check)| (*part, check.clone())).collect::<Vec<_>>()
    };
    let times = [0, 1, 2, 3].map(zone);
    // All lists of a zone have their limits of one time, but that may be another for the limit that
    // follows from the low watermark than for the one that follows from the size.
    let held = |part: Part, at: usize| {
        times[at].iter().filter(|(other, check)| *other == part && check.holds()).count()
    };
    let best = |part: Part| (0..times.len()).rev().max_by_key(|at| held(part, *at)).unwrap_or(NOW);
    let certain = file.zones[index].lists.len() >= LISTS_CERTAIN;
    for (position, (part, now)) in times[NOW].iter().enumerate() {
        let at = match part {
            part if part.is_of_lists() => best(*part),
            Part::Protection if now.holds() => NOW,
            _ => THEN,
        };
        let check = &times[at][position].1;
        let tells_sizes = match part {
            Part::UpperLimit => at != NOW && check.holds() && !certain,
            Part::Protection => at != NOW && possible(bench, file, then, index),
            _ => false,
        };
        match tells_sizes {
            true => *explained += 1,
            false => judged.push(check.clone()),
        }
    }
}

/// The machine with one CPU more on each node.
fn with_a_cpu_more(bench: &Bench<'_>) -> Shape {
    let mut shape = bench.shape.clone();
    let next = shape.cpus().last().map_or(0, |last| last + 1);
    shape.node_cpus.iter_mut().zip(next..).for_each(|(cpus, cpu)| cpus.push(cpu));
    shape
}

fn explain(file: &ZoneFile, then: &Then, explained: u64, case: &mut Case) {
    for (zone, managed_then) in file.zones.iter().zip(&then.sizes) {
        if zone.managed.value != *managed_then {
            case.sizes_then.push(SizeThen {
                file: file.file.clone(),
                node: zone.node,
                zone: zone.name.clone(),
                managed: zone.managed.value,
                managed_then: *managed_then,
            });
        }
    }
    case.skip_values(
        format!("{}: what depends on sizes alone", short(&file.file)),
        explained,
        "limits were computed when zones had other sizes, as at the boot; marks are judged by \
         sizes from which all of them follow, which these values helped to find",
    );
}

/// Whether some sizes of then give a zone's row of `protection`.
fn possible(bench: &Bench<'_>, file: &ZoneFile, then: &Then, index: usize) -> bool {
    let zone = &file.zones[index];
    let ratio = bench.written(Sysctl::LowmemReserveRatio(zone.kind)).max(0) as u64;
    let kinds = bench.capture.kinds();
    let rows = kinds.iter().zip(&zone.protection.1);
    steps(bench, file, index)
        && rows.into_iter().all(|(kind, printed)| {
            let above = |(_, other): &(usize, &ZoneText)| {
                other.node == zone.node && other.kind > zone.kind && other.kind <= *kind
            };
            let above = || file.zones.iter().enumerate().filter(above);
            if *kind <= zone.kind || ratio == 0 || zone.managed.value == 0 {
                return *printed == 0;
            }
            let least: u64 = above().map(|(at, _)| then.ranges[at].0).sum();
            let most: u64 = above().map(|(at, _)| then.ranges[at].1).sum();
            u64::try_from(*printed).is_ok_and(|p| (least / ratio..=most / ratio).contains(&p))
        })
}

/// Judges the thresholds of all texts: they follow from sizes of now or from sizes at the boot.
pub fn thresholds(bench: &Bench<'_>, thens: &[Then], case: &mut Case) {
    let cpus = bench.shape.cpus().len() as u32;
    for file in &bench.capture.zoneinfo {
        for (index, zone) in file.zones.iter().enumerate() {
            let (least, most, known) = at_boot(thens, index, zone);
            let of =
                |managed| u64::from(threshold::normal(bench.policy.page.own_pages(managed), cpus));
            let now = of(zone.managed.value);
            for (list, printed) in zone.lists.iter().filter_map(|l| Some((l, l.threshold?))) {
                let what = format!("{} cpu {} vm stats threshold", name(zone), list.cpu);
                let then = first_where(least, most, |managed| of(managed) >= printed.value)
                    .is_some_and(|managed| of(managed) == printed.value);
                if printed.value == now || !then {
                    case.check(number(&file.file, printed.line, what, printed.value, now));
                } else if known && of(least) == of(most) {
                    case.check(number(&file.file, printed.line, what, printed.value, of(least)));
                } else {
                    let reason = format!(
                        "computed at the boot, when the zone had {least} to {most} pages; that \
                         gives {} to {}, printed is {}",
                        of(least),
                        of(most),
                        printed.value
                    );
                    case.skip(format!("{}:{}: {what}", short(&file.file), printed.line), reason);
                }
            }
        }
    }
}

/// The sizes that a zone can have had at boot, and whether the text determines them. Where it does
/// not: the boot has not freed more than it still holds.
pub fn at_boot(thens: &[Then], index: usize, zone: &ZoneText) -> (u64, u64, bool) {
    let (managed, present) = (zone.managed.value, zone.present.value);
    let ranges = thens.iter().map(|then| then.ranges[index]);
    let told = ranges.reduce(|a, b| (a.0.max(b.0), a.1.min(b.1)));
    match told {
        Some((least, most)) if 1 < least && least <= most => (least, most, true),
        _ => (managed.saturating_sub(present - managed), managed, false),
    }
}
