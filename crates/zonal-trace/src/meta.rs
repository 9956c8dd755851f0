//! `meta.json`: the recorder's notes about a run.
//!
//! Two recorders wrote two shapes of it. Both are read by one struct whose fields are all optional,
//! so a file with fewer or more fields is no error; a field of a wrong type is.
//!
//! | field | compact recordings | ftrace recordings |
//! |--|--|--|
//! | kernel | `uname` | `uname` |
//! | CPUs | `cpus` | from `nodeN-cpulist.txt` |
//! | clock | `clock` | `trace_clock` |
//! | number of events | `events`: a number | `events`: a number per kind, `events_total` |
//! | state at the start | `zones_pre`, `pcp_at_start` | `before-zoneinfo.txt` |

use std::collections::BTreeMap;

use serde::Deserialize;
use zonal_text::CPUS_MAX;
use zonal_text::zoneinfo::Pageset;

use crate::error::{Position, TraceError, TraceErrorKind};
use crate::limits::order_max;
use crate::prices::HoldPrices;
use crate::source::{Source, read_text};

/// The file's name.
pub(crate) const FILE: &str = "meta.json";

/// What a field tells of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    /// The run, and each part of it.
    Run,
    /// The whole run only.
    Counts,
    /// Its start.
    Start,
    /// Its end.
    End,
}

/// Fields that tell of the run and not of the machine.
pub(crate) const OF_RUN: [(&str, Of); 15] = [
    ("name", Of::Run),
    ("workload", Of::Run),
    ("events", Of::Counts),
    ("events_total", Of::Counts),
    ("event_share_pct", Of::Counts),
    ("stats", Of::Counts),
    ("dropped_events", Of::Run),
    ("command_pid", Of::Run),
    ("ring_kib", Of::Run),
    ("t_start_ns", Of::Start),
    ("t_end_ns", Of::End),
    ("pcp_at_start", Of::Start),
    ("pcp_at_end", Of::End),
    ("pcp_param_changes", Of::Run),
    ("lab", Of::Run),
];

/// How many events of one kind a recorder counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventCount {
    /// The kernel's name of the event, such as `mm_page_alloc`.
    pub name: String,
    /// How many there are.
    pub events: u64,
}

/// The bounds of a per-CPU list were set while the recording ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PagesetChange {
    /// When that was first seen.
    pub time_ns: u64,
    /// The zone's kind.
    pub zone: String,
    /// The CPU.
    pub cpu: u32,
    /// Pages per refill.
    pub batch: u64,
    /// Lower bound of the list's mark.
    pub high_min: u64,
    /// Upper bound of the list's mark.
    pub high_max: u64,
}

/// A recording that no host made, but the lab.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct MetaLab {
    pub(crate) kind: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Meta {
    pub(crate) name: Option<String>,
    pub(crate) workload: Option<String>,
    pub(crate) uname: Option<String>,
    pub(crate) cpus: Option<u32>,
    pub(crate) page_size: Option<u32>,
    pub(crate) pageblock_order: Option<u8>,
    #[serde(alias = "trace_clock")]
    pub(crate) clock: Option<String>,
    pub(crate) clock_step_ns: Option<u32>,
    pub(crate) events: Option<MetaEvents>,
    pub(crate) events_total: Option<u64>,
    pub(crate) dropped_events: Option<u64>,
    pub(crate) t_start_ns: Option<u64>,
    pub(crate) t_end_ns: Option<u64>,
    pub(crate) command_pid: Option<i32>,
    pub(crate) ring_kib: Option<u64>,
    pub(crate) cold_pcp_start: Option<bool>,
    pub(crate) lock_waits: Option<bool>,
    pub(crate) uses_recorded: Option<bool>,
    pub(crate) prices: Option<HoldPrices>,
    pub(crate) lab: Option<MetaLab>,
    pub(crate) config: MetaConfig,
    pub(crate) zones_pre: Vec<MetaZone>,
    pub(crate) pcp_at_start: Option<MetaPoll>,
    pub(crate) pcp_at_end: Option<MetaPoll>,
    pub(crate) pcp_param_changes: Vec<MetaChange>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum MetaEvents {
    Total(u64),
    ByName(BTreeMap<String, u64>),
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct MetaConfig {
    #[serde(rename = "CONFIG_PCP_BATCH_SCALE_MAX")]
    pub(crate) batch_scale_max: Option<u32>,
    #[serde(rename = "CONFIG_NUMA")]
    pub(crate) numa: Option<bool>,
    #[serde(rename = "CONFIG_CMA")]
    pub(crate) cma: Option<bool>,
    #[serde(rename = "SHUFFLE_PAGE_ALLOCATOR_built_in")]
    pub(crate) shuffle: Option<bool>,
    #[serde(rename = "PCPF_FREE_HIGH_BATCH_expected")]
    pub(crate) free_high_batch: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct MetaZone {
    pub(crate) node: u32,
    pub(crate) zone: String,
    pub(crate) pcp: BTreeMap<u32, MetaPageset>,
    pub(crate) free: u64,
    pub(crate) min: u64,
    pub(crate) low: u64,
    pub(crate) high: u64,
    pub(crate) spanned: u64,
    pub(crate) present: u64,
    pub(crate) managed: u64,
    pub(crate) start_pfn: u64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct MetaPageset {
    count: u64,
    high: u64,
    batch: u64,
    high_min: Option<u64>,
    high_max: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct MetaPoll {
    pub(crate) t_begin_ns: u64,
    pub(crate) t_end_ns: u64,
    pub(crate) zones: BTreeMap<String, MetaMarks>,
    pub(crate) pcp: BTreeMap<String, BTreeMap<u32, MetaPageset>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct MetaMarks {
    pub(crate) free: u64,
    pub(crate) boost: Option<u64>,
    pub(crate) min: u64,
    pub(crate) low: u64,
    pub(crate) high: u64,
    pub(crate) managed: u64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct MetaChange {
    t_ns: u64,
    /// Zone to rows of cpu, batch, `high_min` and `high_max`.
    #[serde(flatten)]
    zones: BTreeMap<String, Vec<(String, u64, u64, u64)>>,
}

impl Meta {
    /// Bytes of a page.
    pub(crate) fn page_size(&self) -> u32 {
        self.page_size.unwrap_or(4096)
    }

    /// Reads `meta.json` if there is one.
    pub(crate) fn read(source: &dyn Source) -> Result<Option<Meta>, TraceError> {
        let Some(text) = read_text(source, FILE)? else {
            return Ok(None);
        };
        let meta = parse(&text).map_err(|error| error.in_file(source.display(FILE)))?;
        Ok(Some(meta))
    }

    /// Whether no host made it.
    pub(crate) fn is_simulated(&self) -> bool {
        let kind = self.lab.as_ref().and_then(|lab| lab.kind.as_deref());
        kind.is_some_and(|kind| ["simulated", "scaled"].contains(&kind))
    }

    /// How many events the recorder says there are.
    pub(crate) fn events_total(&self) -> Option<u64> {
        match &self.events {
            Some(MetaEvents::Total(total)) => Some(*total),
            Some(MetaEvents::ByName(by_name)) if self.events_total.is_none() => {
                Some(by_name.values().fold(0, |sum, n| sum.saturating_add(*n)))
            }
            _ => self.events_total,
        }
    }

    /// How many events of each kind the recorder says there are.
    pub(crate) fn events_by_name(&self) -> Vec<EventCount> {
        let Some(MetaEvents::ByName(by_name)) = &self.events else {
            return Vec::new();
        };
        let count =
            |(name, events): (&String, &u64)| EventCount { name: name.clone(), events: *events };
        by_name.iter().map(count).collect()
    }

    /// The changes of per-CPU bounds, flattened.
    pub(crate) fn pageset_changes(&self) -> Result<Vec<PagesetChange>, TraceError> {
        let mut changes = Vec::new();
        for change in &self.pcp_param_changes {
            for (zone, rows) in &change.zones {
                for (cpu, batch, high_min, high_max) in rows {
                    changes.push(PagesetChange {
                        time_ns: change.t_ns,
                        zone: zone.clone(),
                        cpu: cpu.parse().map_err(|_| bad("cpu", "a number", cpu))?,
                        batch: *batch,
                        high_min: *high_min,
                        high_max: *high_max,
                    });
                }
            }
        }
        Ok(changes)
    }
}

impl MetaPageset {
    pub(crate) fn values(&self, cpu: u32) -> Pageset {
        Pageset {
            cpu,
            count: self.count,
            high: self.high,
            batch: self.batch,
            high_min: self.high_min,
            high_max: self.high_max,
        }
    }
}

fn parse(text: &str) -> Result<Meta, TraceError> {
    let meta: Meta = serde_json::from_str(text).map_err(|error| {
        let position = Position::Line(error.line() as u64);
        TraceError::new(FILE, position, TraceErrorKind::Json { found: error.to_string() })
    })?;
    if let Some(cpus) = meta.cpus.filter(|cpus| !(1..=CPUS_MAX).contains(cpus)) {
        return Err(bad("cpus", "a number from 1 to 8192", &cpus.to_string()));
    }
    let is_page_size = |size: u32| size.is_power_of_two() && (4096..=1 << 20).contains(&size);
    if let Some(size) = meta.page_size.filter(|size| !is_page_size(*size)) {
        return Err(bad("page_size", "a power of two from 4096", &size.to_string()));
    }
    let polls = [&meta.pcp_at_start, &meta.pcp_at_end].into_iter().flatten();
    let polled = polls.flat_map(|poll| poll.pcp.values()).flat_map(BTreeMap::keys);
    let changed = meta.pcp_param_changes.iter().flat_map(|change| change.zones.values().flatten());
    let changed = changed.filter_map(|(cpu, ..)| cpu.parse().ok());
    if let Some(cpu) = polled.copied().chain(changed).find(|cpu| *cpu >= CPUS_MAX) {
        return Err(bad("cpu", "a number from 0 to 8191", &cpu.to_string()));
    }
    let most = order_max(meta.page_size());
    if let Some(order) = meta.pageblock_order.filter(|order| *order > most) {
        let expected = "an order up to 10, 11 or 13 with pages of 4096, of 16384 or more bytes";
        return Err(bad("pageblock_order", expected, &order.to_string()));
    }
    Ok(meta)
}

fn bad(field: &'static str, expected: &'static str, found: &str) -> TraceError {
    let kind = crate::error::bad_field(field, expected, found.as_bytes());
    TraceError::new(FILE, Position::File, kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_shapes_are_read() {
        let compact = parse(
            r#"{"events": 5, "clock": "mono", "cpus": 2,
                "config": {"CONFIG_CMA": false, "PCPF_FREE_HIGH_BATCH_expected": true},
                "pcp_param_changes": [{"t_ns": 7, "Normal": [["1", 63, 9, 24]]}]}"#,
        )
        .unwrap();
        assert_eq!(compact.events_total(), Some(5));
        assert_eq!(compact.config.free_high_batch, Some(true));
        let changes = compact.pageset_changes().unwrap();
        assert_eq!((changes[0].time_ns, changes[0].cpu, changes[0].high_max), (7, 1, 24));
        let text = r#"{"events": {"a": 2, "b": 3}, "trace_clock": "global", "accel": "tcg"}"#;
        let ftrace = parse(text).unwrap();
        assert_eq!(ftrace.events_total(), Some(5));
        assert_eq!(ftrace.events_by_name()[1], EventCount { name: "b".into(), events: 3 });
        assert_eq!(ftrace.clock.as_deref(), Some("global"));
        assert_eq!(parse("{}").unwrap().events_total(), None);
    }

    #[test]
    fn each_mistake_has_its_message() {
        for (text, part) in [
            ("", "meta.json: line 1: bad JSON"),
            ("{\n\"cpus\": 2", "meta.json: line 2: bad JSON"),
            (r#"{"cpus": "two"}"#, "invalid type"),
            (r#"{"cpus": 0}"#, "bad cpus: expected a number from 1 to 8192, found `0`"),
            (
                r#"{"pcp_at_start": {"t_begin_ns": 0, "t_end_ns": 0, "zones": {}, "pcp": {"Normal":
                {"8192": {"count": 0, "high": 0, "batch": 1, "high_min": 0, "high_max": 0}}}}}"#,
                "bad cpu: expected a number from 0 to 8191, found `8192`",
            ),
            (
                r#"{"pcp_param_changes": [{"t_ns": 7, "Normal": [["2097151", 1, 2, 3]]}]}"#,
                "bad cpu",
            ),
            (r#"{"page_size": 4097}"#, "bad page_size"),
            (r#"{"pageblock_order": 11}"#, "bad pageblock_order"),
            (r#"{"page_size": 16384, "pageblock_order": 12}"#, "bad pageblock_order"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
        let changes = r#"{"pcp_param_changes": [{"t_ns": 7, "Normal": [["x", 1, 2, 3]]}]}"#;
        assert!(parse(changes).unwrap().pageset_changes().is_err());
    }
}
