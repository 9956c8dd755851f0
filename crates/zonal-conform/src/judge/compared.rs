//! The compared values of a `zoneinfo`, and their names.

use zonal_core::types::ZoneKind;
use zonal_core::zone::watermark::{Watermark, Watermarks};

use crate::capture::Capture;
use crate::era::{Era, PrintedHigh};
use crate::model::Limits;
use crate::place::Place;
use crate::report::{Check, Value};
use crate::zones::{ListText, WATERMARKS, ZoneFile, ZoneText, name};

/// The part that a value belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// One of the watermarks.
    Watermark,
    /// A row of reserves.
    Protection,
    /// The batch of a list.
    Batch,
    /// The limit of a list that follows from the low watermark.
    Limit,
    /// The limit of a list that follows from the size.
    UpperLimit,
    /// The threshold of counters.
    Threshold,
}

/// A comparison, with the position of its zone.
pub type Compared = (usize, Part, Check);

impl Part {
    /// Whether it follows from marks or sizes at the moment they were set up.
    pub fn is_limit(self) -> bool {
        self != Part::Threshold
    }

    /// Whether it is printed for each CPU and computed when lists are.
    pub fn is_of_lists(self) -> bool {
        matches!(self, Part::Batch | Part::Limit | Part::UpperLimit)
    }
}

/// A watermark for each of [`WATERMARKS`].
const BY_NAME: [Watermark; 4] = [Watermark::Min, Watermark::Low, Watermark::High, Watermark::Promo];

/// Every comparison that a `zoneinfo` allows, with its zone's position.
pub fn checks(capture: &Capture, file: &ZoneFile, computed: &[Limits]) -> Vec<Compared> {
    let kinds = capture.kinds();
    let mut checks = Vec::new();
    for (index, (zone, limits)) in file.zones.iter().zip(computed).enumerate() {
        let mut push = |part, check| checks.push((index, part, check));
        let name = name(zone);
        let file = &file.file;
        for ((printed, watermark), what) in zone.watermarks.iter().zip(BY_NAME).zip(WATERMARKS) {
            let Some(printed) = printed else { continue };
            let watermark = limits.watermarks.stored(watermark).saturating_add(zone.boost);
            let what = format!("{name} {what}");
            push(Part::Watermark, number(file, printed.line, what, printed.value, watermark));
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

/// The judged values of each zone of a text: the core's, except rows of `protection` that follow
/// from unknown sizes.
#[derive(Debug, Clone)]
pub struct Settled {
    /// Marks, without a boost.
    pub watermarks: Vec<Watermarks>,
    /// Rows of `protection`.
    pub protection: Vec<Vec<i64>>,
    /// Whether none of them follows from sizes that are not known, in place of one that cannot be.
    pub is_certain: bool,
}

impl Settled {
    /// What the core computes, with rows as printed where `printed` says so by zone.
    pub fn new(
        capture: &Capture,
        file: &ZoneFile,
        computed: &[Limits],
        printed: impl Fn(usize) -> bool,
    ) -> Settled {
        let kinds = capture.kinds();
        let row = |(index, limits): (usize, &Limits)| match printed(index) {
            true => file.zones[index].protection.1.clone(),
            false => kinds.iter().map(|kind| limits.protection[kind.index()] as i64).collect(),
        };
        Settled {
            watermarks: computed.iter().map(|limits| limits.watermarks).collect(),
            protection: computed.iter().enumerate().map(row).collect(),
            is_certain: true,
        }
    }
}

/// A comparison of two texts.
pub fn text(place: &Place, what: String, expected: String, computed: String) -> Check {
    let Place { file, line } = place.clone();
    Check { file, line, what, expected: Value::Text(expected), computed: Value::Text(computed) }
}

/// A comparison of two numbers.
pub fn number(
    file: &str,
    line: u64,
    what: impl Into<String>,
    expected: u64,
    computed: u64,
) -> Check {
    let (expected, computed) = (Value::Number(expected), Value::Number(computed));
    Check { file: file.to_owned(), line, what: what.into(), expected, computed }
}

/// A file's name without its directory.
pub fn short(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

/// A row as a value.
pub fn row(numbers: &[u32]) -> Value {
    Value::Numbers(numbers.iter().map(|number| i64::from(*number)).collect())
}
