//! A reading as one JSON object on a line of its own, for programs.

use serde::Serialize;

use super::screen::Screen;
use crate::watch::rates::{FIGURES, Unit};
use crate::watch::reading::{HUGE, Pcp, Zone};

/// Grows when a field changes its meaning or goes.
const SCHEMA_VERSION: u32 = 1;

/// What `--json` prints. Memory is in pages, whatever `--mib` says.
#[derive(Debug, Serialize)]
struct Printed<'a> {
    schema_version: u32,
    /// What was read.
    of: &'a str,
    is_pool: bool,
    /// Seconds on a clock that only goes forward.
    at_s: f64,
    /// What is wrong with the reading, or why something is not counted.
    note: Option<&'a str>,
    page_bytes: u64,
    zones: Vec<PrintedZone<'a>>,
    /// In a second, since the reading before.
    rates: Vec<Rate>,
}

#[derive(Debug, Serialize)]
struct PrintedZone<'a> {
    node: u32,
    zone: &'a str,
    free_pages: u64,
    min_pages: u64,
    low_pages: u64,
    high_pages: u64,
    managed_pages: u64,
    listed_pages: u64,
    /// Of the free pages, those in blocks below 2 MiB; null where nothing is free.
    not_huge_percent: Option<f64>,
    /// By order.
    free_blocks: &'a [u64],
    lists: &'a [Pcp],
}

#[derive(Debug, Serialize)]
struct Rate {
    name: String,
    unit: Unit,
    /// Null where it is not counted.
    per_second: Option<f64>,
}

/// The last reading.
///
/// # Errors
/// None that is known.
pub fn text(screen: &Screen) -> anyhow::Result<String> {
    let Some(now) = screen.now() else { return Ok(String::new()) };
    let zones = screen.zones().into_iter().map(zone).collect();
    let rates = FIGURES.iter().enumerate().map(|(at, figure)| {
        let figure = figure.of(now);
        let per_second = screen.rates().and_then(|rates| rates[at]);
        Rate { name: figure.title.replace(' ', "_"), unit: figure.unit, per_second }
    });
    let printed = Printed {
        schema_version: SCHEMA_VERSION,
        of: &now.of,
        is_pool: now.is_of_pool(),
        at_s: now.at_s,
        note: now.remark.as_deref(),
        page_bytes: now.page_bytes,
        zones,
        rates: rates.collect(),
    };
    Ok(serde_json::to_string(&printed)? + "\n")
}

fn zone(zone: &Zone) -> PrintedZone<'_> {
    let [min_pages, low_pages, high_pages] = zone.marks;
    PrintedZone {
        node: zone.node,
        zone: &zone.name,
        free_pages: zone.free,
        min_pages,
        low_pages,
        high_pages,
        managed_pages: zone.managed,
        listed_pages: zone.listed(),
        not_huge_percent: zone.unusable(HUGE).map(|share| share * 100.0),
        free_blocks: &zone.orders,
        lists: &zone.pcps,
    }
}
