//! Marks, `protection`, batches and limits of lists.
//!
//! The main `zoneinfo` of a capture is printed right after the kernel has computed its limits, and
//! must agree. Others are held to the sizes beside them first. Where that fails, there must be
//! sizes from which all that is printed follows ([`stale`](crate::conform::stale)).

use zonal_core::types::ZoneKind;
use zonal_core::zone::watermark::{Mark, Watermarks};

use super::super::capture::Capture;
use super::super::era::{Era, PrintedHigh};
use super::super::model::{Computed, Limits};
use super::super::report::{Case, Check, Value};
use super::super::zones::{ListText, MARKS, ZoneFile, ZoneText, name};
use super::then::{self, Then};
use super::{Bench, is_limit, number, sizes};

/// What a value is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// One of the marks.
    Mark,
    /// A row of reserves.
    Protection,
    /// The batch of a list.
    Batch,
    /// The limit of a list that follows from the low mark.
    Limit,
    /// The limit of a list that follows from the size.
    UpperLimit,
    /// The threshold of counters.
    Threshold,
}

/// A comparison, with the position of its zone.
pub type Compared = (usize, Part, Check);

impl Part {
    /// Whether it is printed for each CPU and computed when lists are.
    pub fn is_of_lists(self) -> bool {
        matches!(self, Part::Batch | Part::Limit | Part::UpperLimit)
    }
}

/// A mark for each of [`MARKS`].
const BY_NAME: [Mark; 4] = [Mark::Min, Mark::Low, Mark::High, Mark::Promo];

/// Every comparison that a `zoneinfo` allows, with its zone's position.
pub fn checks(capture: &Capture, file: &ZoneFile, computed: &[Limits]) -> Vec<Compared> {
    let kinds = capture.kinds();
    let mut checks = Vec::new();
    for (index, (zone, limits)) in file.zones.iter().zip(computed).enumerate() {
        let mut push = |part, check| checks.push((index, part, check));
        let name = name(zone);
        let file = &file.file;
        for ((printed, mark), what) in zone.marks.iter().zip(BY_NAME).zip(MARKS) {
            let Some(printed) = printed else { continue };
            let mark = limits.marks.stored(mark).saturating_add(zone.boost);
            let what = format!("{name} {what}");
            push(Part::Mark, number(file, printed.line, what, printed.value, mark));
        }
        push(Part::Protection, protection(file, zone, &kinds, limits));
        for list in &zone.lists {
            list_checks(capture, file, &name, list, limits, &mut push);
        }
    }
    checks
}

fn protection(file: &str, zone: &ZoneText, kinds: &[ZoneKind], limits: &Limits) -> Check {
    let (line, printed) = &zone.protection;
    let row = kinds.iter().map(|kind| limits.protection[kind.index()] as i64).collect();
    Check {
        file: file.to_owned(),
        line: *line,
        what: format!("{} protection", name(zone)),
        expected: Value::Numbers(printed.clone()),
        computed: Value::Numbers(row),
    }
}

fn list_checks(
    capture: &Capture,
    file: &str,
    zone: &str,
    list: &ListText,
    limits: &Limits,
    push: &mut impl FnMut(Part, Check),
) {
    let (low, high) = (u64::from(limits.high.0), u64::from(limits.high.1));
    let exact = capture.release.printed_high() == PrintedHigh::Limit;
    for (part, printed, what, computed) in [
        (Part::Batch, list.batch, "batch", u64::from(limits.batch)),
        (Part::Limit, list.high.filter(|_| exact), "high", low),
        (Part::Limit, list.high_min, "high_min", low),
        (Part::UpperLimit, list.high_max, "high_max", high),
        (Part::Threshold, list.threshold, "vm stats threshold", u64::from(limits.threshold)),
    ] {
        let Some(printed) = printed else { continue };
        let what = format!("{zone} cpu {} {what}", list.cpu);
        push(part, number(file, printed.line, what, printed.value, computed));
    }
}

/// What holds for each zone of a text, once judged: by the core, but for rows of `protection` that
/// follow from sizes which are not known.
#[derive(Debug, Clone)]
pub struct Settled {
    /// Marks, without a boost.
    pub marks: Vec<Watermarks>,
    /// Rows of `protection`.
    pub protection: Vec<Vec<i64>>,
}

impl Settled {
    /// What the core computes, with rows as printed where `printed` says so by zone.
    pub fn new(
        bench: &Bench<'_>,
        file: &ZoneFile,
        computed: &[Limits],
        printed: impl Fn(usize) -> bool,
    ) -> Settled {
        let kinds = bench.capture.kinds();
        let row = |(index, limits): (usize, &Limits)| match printed(index) {
            true => file.zones[index].protection.1.clone(),
            false => kinds.iter().map(|kind| limits.protection[kind.index()] as i64).collect(),
        };
        Settled {
            marks: computed.iter().map(|limits| limits.marks).collect(),
            protection: computed.iter().enumerate().map(row).collect(),
        }
    }
}

/// Judges every `zoneinfo`. Returns what is known of sizes at the time of the boot, and what holds
/// for each text.
///
/// # Errors
/// If the machine cannot be rebuilt.
pub fn judge(bench: &Bench<'_>, case: &mut Case) -> anyhow::Result<(Vec<Then>, Vec<Settled>)> {
    if bench.capture.release.printed_high() == PrintedHigh::Unknown {
        let reason = "5.13 computes it when lists are made, with marks that are still zero, and \
                      again when CPUs come and go";
        case.skip("pagesets: high", reason);
    }
    let (mut thens, mut settled) = (Vec::new(), Vec::new());
    for (position, file) in bench.capture.zoneinfo.iter().enumerate() {
        let now = match position {
            0 => bench.computed.clone(),
            _ => bench.shape.compute(&bench.policy, &sizes(file), &bench.writes)?,
        };
        let checks = checks(bench.capture, file, &now.zones);
        let limits: Vec<_> = checks.into_iter().filter(|(_, part, _)| is_limit(*part)).collect();
        let wrong = limits.iter().filter(|(_, _, check)| !check.holds()).count();
        // The main text of a directory was printed right after limits were computed.
        let may_be_stale = position > 0 || bench.capture.live;
        if wrong > 0
            && may_be_stale
            && let Some(then) = then::find(bench, file, &now)?
            && let Some(by_then) = then::judge(bench, file, &then, wrong, &limits, case)?
        {
            thens.push(then);
            settled.push(by_then);
            continue;
        }
        settled.push(Settled::new(bench, file, &now.zones, |_| false));
        let when_made = sizes_when_made(bench, file)?;
        for (index, part, check) in limits {
            let by_then = when_made.iter().find(|(at, other, then)| {
                (*at, *other, then.line) == (index, part, check.line) && then.holds()
            });
            match by_then {
                Some((_, _, then)) if !check.holds() => {
                    let reason =
                        "fits a zone as small as at the boot, when this kernel made its lists";
                    case.skip_values(then.what.clone(), 1, reason);
                }
                _ => case.check(check),
            }
        }
    }
    Ok((thens, settled))
}

/// What lists would be in zones as small as they can have been when kernels before 5.14 made their
/// lists; nothing for later ones.
fn sizes_when_made(bench: &Bench<'_>, file: &ZoneFile) -> anyhow::Result<Vec<Compared>> {
    if bench.capture.release.sizes_follow_marks() {
        return Ok(Vec::new());
    }
    let zones = file.zones.iter().enumerate();
    let least: Vec<u64> = zones.map(|(index, zone)| then::at_boot(&[], index, zone).0).collect();
    let small = computed(bench, &least)?;
    let checks = checks(bench.capture, file, &small.zones);
    Ok(checks.into_iter().filter(|(_, part, _)| part.is_of_lists()).collect())
}

/// What the core computes from sizes, with the sysctls of the capture.
///
/// # Errors
/// If the machine cannot be rebuilt.
pub fn computed(bench: &Bench<'_>, managed: &[u64]) -> anyhow::Result<Computed> {
    bench.shape.compute(&bench.policy, managed, &bench.writes)
}
