//! `zonal trace stats`: what is in a trace.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Serialize;
use zonal_trace::{Event, EventKind, Recording};

use super::args::ReadArgs;
use crate::output;

const TICK_EVENTS: u64 = 1 << 16;

#[derive(Serialize, Default)]
struct Stats {
    schema_version: u32,
    events: u64,
    /// Events by kind.
    kinds: BTreeMap<&'static str, u64>,
    /// Events by CPU.
    cpus: BTreeMap<u32, u64>,
    threads: usize,
    first_ns: u64,
    last_ns: u64,
    alloc_pages: u64,
    free_pages: u64,
    allocs_by_order: BTreeMap<u8, u64>,
    allocs_by_migratetype: BTreeMap<u8, u64>,
    lost: u64,
    bytes: Option<u64>,
    bytes_per_event: Option<f64>,
    read_seconds: f64,
    read_events_per_s: f64,
}

pub fn run(args: &ReadArgs) -> anyhow::Result<()> {
    let recording = args.input.open()?;
    let stats = Stats::read(&recording)?;
    output::data(&if args.json { serde_json::to_string(&stats)? + "\n" } else { stats.text() })?;
    Ok(())
}

/// The kernel's name of an event.
pub fn kind_name(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::Alloc { .. } => "mm_page_alloc",
        EventKind::Free { .. } => "mm_page_free",
        EventKind::FreeBatched { .. } => "mm_page_free_batched",
        EventKind::ZoneLocked { .. } => "mm_page_alloc_zone_locked",
        EventKind::PcpuDrain { .. } => "mm_page_pcpu_drain",
        EventKind::Extfrag { .. } => "mm_page_alloc_extfrag",
        EventKind::VmstatUpdate => "vmstat_update",
        EventKind::Fork { .. } => "sched_process_fork",
        EventKind::Marker(_) => "tracing_mark_write",
        EventKind::Notice(notice) => notice.kernel_name(),
        EventKind::Lost { .. } => "lost",
        _ => "other",
    }
}

impl Stats {
    fn read(recording: &Recording) -> anyhow::Result<Stats> {
        let mut stats = Stats { schema_version: 1, ..Stats::default() };
        let mut threads = std::collections::HashSet::new();
        let bar = output::progress("reading", "events", recording.description().events);
        let start = Instant::now();
        for event in recording.events() {
            let event = event?;
            if stats.events == 0 {
                stats.first_ns = event.time_ns;
            }
            threads.insert(event.pid);
            stats.take(&event);
            if stats.events.is_multiple_of(TICK_EVENTS) {
                bar.set_position(stats.events);
            }
        }
        bar.finish_and_clear();
        stats.read_seconds = start.elapsed().as_secs_f64();
        stats.read_events_per_s = stats.events as f64 / stats.read_seconds.max(1e-9);
        stats.threads = threads.len();
        let metadata = std::fs::metadata(recording.stream_path()).ok();
        stats.bytes = metadata.map(|metadata| metadata.len());
        let events = stats.events.max(1) as f64;
        stats.bytes_per_event = stats.bytes.map(|bytes| bytes as f64 / events);
        Ok(stats)
    }

    fn take(&mut self, event: &Event) {
        self.events += 1;
        self.last_ns = event.time_ns;
        *self.kinds.entry(kind_name(&event.kind)).or_insert(0) += 1;
        *self.cpus.entry(event.cpu).or_insert(0) += 1;
        match event.kind {
            EventKind::Alloc { pfn: Some(_), order, migratetype, .. } => {
                self.alloc_pages += 1 << order;
                *self.allocs_by_order.entry(order).or_insert(0) += 1;
                *self.allocs_by_migratetype.entry(migratetype).or_insert(0) += 1;
            }
            EventKind::Free { order, .. } => self.free_pages += 1 << order,
            EventKind::Lost { events } => self.lost = self.lost.saturating_add(events),
            _ => {}
        }
    }

    fn text(&self) -> String {
        let seconds = self.last_ns.saturating_sub(self.first_ns) as f64 / 1e9;
        let mut text = format!(
            "{} events of {} threads on {} CPUs in {seconds:.6} s\n",
            self.events,
            self.threads,
            self.cpus.len()
        );
        for (kind, events) in &self.kinds {
            text += &format!("  {kind:<26} {events}\n");
        }
        let list = |map: &BTreeMap<u8, u64>| -> String {
            map.iter().map(|(key, events)| format!(" {key}:{events}")).collect()
        };
        text += &format!("pages allocated {}, freed {}\n", self.alloc_pages, self.free_pages);
        text += &format!("allocations by order{}\n", list(&self.allocs_by_order));
        text += &format!("allocations by migratetype{}\n", list(&self.allocs_by_migratetype));
        let cpus = self.cpus.iter().map(|(cpu, events)| format!(" {cpu}:{events}"));
        text += &format!("events by CPU{}\n", cpus.collect::<String>());
        if self.lost > 0 {
            text += &format!("lost {} events at least\n", self.lost);
        }
        if let (Some(bytes), Some(each)) = (self.bytes, self.bytes_per_event) {
            text += &format!("{bytes} bytes, {each:.3} per event\n");
        }
        let rate = self.read_events_per_s / 1e6;
        text += &format!("read in {:.3} s, {rate:.2} million events/s\n", self.read_seconds);
        text
    }
}
