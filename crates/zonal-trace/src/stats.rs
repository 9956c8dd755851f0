//! Counts of a trace's events.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

use serde::Serialize;

use crate::{Event, EventKind, Recording, TraceError};

/// Counts changes that break readers of the JSON.
const SCHEMA_VERSION: u32 = 1;
/// Events between two calls of a progress callback.
const TICK_EVENTS: u64 = 1 << 16;

/// What is in a trace, for people (`Display`) and for programs (`Serialize`).
///
/// ```
/// use zonal_trace::{Stats, samples};
///
/// let stats = Stats::read(&samples::zlib_make_j4()?, &mut |_events| {})?;
/// assert_eq!(stats.kinds.values().sum::<u64>(), stats.events);
/// # Ok::<(), zonal_trace::TraceError>(())
/// ```
#[derive(Serialize, Debug, Clone, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Version of these fields.
    pub schema_version: u32,
    /// Events.
    pub events: u64,
    /// Events by kind.
    pub kinds: BTreeMap<&'static str, u64>,
    /// Events by CPU.
    pub cpus: BTreeMap<u32, u64>,
    /// Threads with an event.
    pub threads: usize,
    /// Time of the first event.
    pub first_ns: u64,
    /// Time of the last event.
    pub last_ns: u64,
    /// Pages allocated.
    pub alloc_pages: u64,
    /// Pages freed, but for those freed in batches.
    pub free_pages: u64,
    /// Allocations by order.
    pub allocs_by_order: BTreeMap<u8, u64>,
    /// Allocations by migratetype.
    pub allocs_by_migratetype: BTreeMap<u8, u64>,
    /// Events that the ring had no room for, at least.
    pub lost: u64,
    /// Bytes of the stream's file.
    pub bytes: Option<u64>,
    /// The same by event.
    pub bytes_per_event: Option<f64>,
    /// Seconds that reading took.
    pub read_seconds: f64,
    /// Events read in a second.
    pub read_events_per_s: f64,
}

impl Stats {
    /// Reads all events and counts them. `progress` gets the number of events read so far.
    ///
    /// # Errors
    /// [`TraceError`] of the first event that cannot be read.
    pub fn read(recording: &Recording, progress: &mut dyn FnMut(u64)) -> Result<Stats, TraceError> {
        let mut stats = Stats { schema_version: SCHEMA_VERSION, ..Stats::default() };
        let mut threads = std::collections::HashSet::new();
        let start = Instant::now();
        for event in recording.events() {
            let event = event?;
            if stats.events == 0 {
                stats.first_ns = event.time_ns;
            }
            threads.insert(event.pid);
            stats.take(&event);
            if stats.events.is_multiple_of(TICK_EVENTS) {
                progress(stats.events);
            }
        }
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
        *self.kinds.entry(event.kind.name()).or_insert(0) += 1;
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
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.last_ns.saturating_sub(self.first_ns) as f64 / 1e9;
        let (events, threads) = (counted(self.events, "event"), counted(self.threads, "thread"));
        let cpus = counted(self.cpus.len(), "CPU");
        writeln!(f, "{events} of {threads} on {cpus} in {seconds:.6} s")?;
        for (kind, events) in &self.kinds {
            writeln!(f, "  {kind:<26} {events}")?;
        }
        writeln!(f, "pages allocated {}, freed {}", self.alloc_pages, self.free_pages)?;
        writeln!(f, "allocations by order{}", list(&self.allocs_by_order))?;
        writeln!(f, "allocations by migratetype{}", list(&self.allocs_by_migratetype))?;
        writeln!(f, "events by CPU{}", list(&self.cpus))?;
        if self.lost > 0 {
            writeln!(f, "lost {} at least", counted(self.lost, "event"))?;
        }
        if let (Some(bytes), Some(each)) = (self.bytes, self.bytes_per_event) {
            writeln!(f, "{bytes} bytes, {each:.3} per event")?;
        }
        let rate = self.read_events_per_s / 1e6;
        writeln!(f, "read in {:.3} s, {rate:.2} million events/s", self.read_seconds)
    }
}

/// So many of these; of one it is no plural.
fn counted(count: impl fmt::Display, one: &str) -> String {
    let count = count.to_string();
    let plural = if count == "1" { "" } else { "s" };
    format!("{count} {one}{plural}")
}

fn list<T: fmt::Display>(map: &BTreeMap<T, u64>) -> String {
    map.iter().map(|(key, events)| format!(" {key}:{events}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_event_of_one_thread_on_one_cpu_is_no_plural() {
        let stats = |events: u64| Stats {
            events,
            threads: events as usize,
            cpus: (0..events as u32).map(|cpu| (cpu, 1)).collect(),
            lost: events,
            ..Stats::default()
        };
        let one = stats(1).to_string();
        assert!(one.starts_with("1 event of 1 thread on 1 CPU in "), "{one}");
        assert!(one.contains("\nlost 1 event at least\n"), "{one}");
        let two = stats(2).to_string();
        assert!(two.starts_with("2 events of 2 threads on 2 CPUs in "), "{two}");
    }
}
