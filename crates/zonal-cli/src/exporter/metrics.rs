//! A reading as OpenMetrics text.

use std::fmt::Display;

use anyhow::bail;
use zonal_text::counters::Counter;
use zonal_text::openmetrics::Metrics;

use crate::watch::rates::{DRAINED, LOCK_WAITS, REFILLED};
use crate::watch::reading::{Reading, Zone};

/// A figure of a zone.
type OfZone = (Counter, fn(&Zone) -> u64);

const OF_ZONES: [OfZone; 6] = [
    (Counter::level("free_pages").means("pages free in the buddy"), |zone| zone.free),
    (Counter::level("watermark_min_pages").means("the min watermark"), |zone| zone.marks[0]),
    (Counter::level("watermark_low_pages").means("the low watermark"), |zone| zone.marks[1]),
    (Counter::level("watermark_high_pages").means("the high watermark"), |zone| zone.marks[2]),
    (Counter::level("managed_pages").means("pages that the allocator manages"), |zone| {
        zone.managed
    }),
    (Counter::level("listed_pages").means("pages on the lists of all CPUs"), Zone::listed),
];

const OF_EVENTS: [(Counter, &str); 3] = [
    (Counter::total("refilled_blocks").means("blocks out of buddies, to lists or users"), REFILLED),
    (Counter::total("drained_blocks").means("blocks from lists to buddies"), DRAINED),
    (Counter::total("lock_waits").means("waits for locks of the kernel, of any kind"), LOCK_WAITS),
];

/// Counters of `vmstat` that say what the allocator and reclaim do.
const OF_VMSTAT: [&str; 8] =
    ["pgalloc_", "pgfree", "pgscan_", "pgsteal_", "allocstall", "compact_", "numa_", "kswapd_"];

/// The text. A pool has its own, and how old it is.
///
/// # Errors
/// A reading whose program is gone: its counters would stand still as if nothing happened.
pub fn text(reading: &Reading) -> anyhow::Result<String> {
    if reading.is_over {
        let remark = reading.remark.as_deref().unwrap_or_default();
        bail!("{}: {remark}", reading.of);
    }
    Ok(match &reading.metrics {
        Some(metrics) => with_age(metrics, reading.age_s.unwrap_or_default()),
        None => of_kernel(reading),
    })
}

/// A pool's text, with the age of its figures.
fn with_age(metrics: &str, age_s: f64) -> String {
    let mut age = Metrics::new();
    let counter = Counter::level("age_seconds").means("since the pool wrote these figures");
    age.family("zonal_observed_", &counter).sample(&[], age_s as u64);
    metrics.strip_suffix("# EOF\n").unwrap_or(metrics).to_owned() + &age.finish()
}

fn of_kernel(reading: &Reading) -> String {
    let mut metrics = Metrics::new();
    let page = Counter::level("page_bytes").means("bytes of a page");
    metrics.family("zonal_kernel_", &page).sample(&[], reading.page_bytes);
    for (counter, value) in &OF_ZONES {
        let mut family = metrics.family("zonal_kernel_", counter);
        for zone in &reading.zones {
            family.sample(&labels(zone), value(zone));
        }
    }
    let listed = Counter::level("pcp_pages").means("pages on the lists of a CPU");
    let mut family = metrics.family("zonal_kernel_", &listed);
    for zone in &reading.zones {
        for pcp in &zone.pcps {
            let [node, kind] = labels(zone);
            family.sample(&[node, kind, ("cpu", &pcp.cpu)], pcp.count);
        }
    }
    let blocks = Counter::level("free_blocks").means("free blocks of an order");
    let mut family = metrics.family("zonal_kernel_", &blocks);
    for zone in &reading.zones {
        for (order, count) in zone.orders.iter().enumerate() {
            let [node, kind] = labels(zone);
            family.sample(&[node, kind, ("order", &order)], *count);
        }
    }
    for (counter, name) in &OF_EVENTS {
        if let Some((_, value)) = reading.counters.iter().find(|(found, _)| found == name) {
            metrics.family("zonal_kernel_", counter).sample(&[], *value);
        }
    }
    let events = Counter::total("events").means("events of /proc/vmstat, by name");
    let mut family = metrics.family("zonal_kernel_", &events);
    for (name, value) in &reading.counters {
        if OF_VMSTAT.iter().any(|prefix| name.starts_with(prefix)) {
            family.sample(&[("event", name)], *value);
        }
    }
    metrics.finish()
}

fn labels(zone: &Zone) -> [(&str, &dyn Display); 2] {
    [("node", &zone.node), ("zone", &zone.name)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::reading::tests::{BUDDYINFO, VMSTAT, ZONEINFO};

    #[test]
    fn others_read_the_metrics() {
        let mut reading = Reading::parse(ZONEINFO, BUDDYINFO, VMSTAT).unwrap();
        reading.counters.push((REFILLED.to_owned(), 7));
        let text = text(&reading).unwrap();
        openmetrics_parser::openmetrics::parse_openmetrics(&text).unwrap();
        for line in [
            "zonal_kernel_page_bytes 4096",
            "zonal_kernel_free_pages{node=\"0\",zone=\"Normal\"} 100000",
            "zonal_kernel_watermark_low_pages{node=\"0\",zone=\"Normal\"} 10000",
            "zonal_kernel_pcp_pages{node=\"0\",zone=\"Normal\",cpu=\"1\"} 35",
            "zonal_kernel_free_blocks{node=\"0\",zone=\"Normal\",order=\"10\"} 97",
            "zonal_kernel_refilled_blocks_total 7",
            "zonal_kernel_events_total{event=\"pgsteal_direct\"} 5",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("lock_waits"), "what is not counted is not told");
    }

    #[test]
    fn a_pools_metrics_have_their_age_until_it_is_gone() {
        let metrics = Some("# TYPE a gauge\na 1\n# EOF\n".to_owned());
        let mut reading = Reading { metrics, age_s: Some(3.7), ..Reading::default() };
        let served = text(&reading).unwrap();
        openmetrics_parser::openmetrics::parse_openmetrics(&served).unwrap();
        assert!(served.starts_with("# TYPE a gauge\na 1\n"), "{served}");
        assert!(served.ends_with("\nzonal_observed_age_seconds 3\n# EOF\n"), "{served}");
        (reading.is_over, reading.remark) = (true, Some("process 7 is not there".to_owned()));
        assert!(text(&reading).unwrap_err().to_string().contains("process 7"));
    }

    /// Words of a text that begin so.
    fn names<'t>(text: &'t str, prefix: &str) -> std::collections::BTreeSet<&'t str> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.filter(|word| word.starts_with(prefix)).collect()
    }

    #[test]
    fn the_dashboard_asks_for_metrics_that_there_are() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/howto/grafana.json");
        let dashboard = std::fs::read_to_string(path).unwrap();
        serde_json::from_str::<serde_json::Value>(&dashboard).unwrap();
        let mut reading = Reading::parse(ZONEINFO, BUDDYINFO, VMSTAT).unwrap();
        let counted = [REFILLED, DRAINED, LOCK_WAITS].map(|name| (name.to_owned(), 1));
        reading.counters.extend(counted);
        let text = text(&reading).unwrap();
        let (asked, served) = (names(&dashboard, "zonal_kernel_"), names(&text, "zonal_kernel_"));
        assert!(asked.len() >= 9, "{asked:?}");
        assert!(asked.is_subset(&served), "{asked:?} {served:?}");
    }
}
