//! Tracepoints that the kernel counts for us, CPU by CPU: nothing is written anywhere, nothing of
//! the host is changed, and the counters go when this program does.
//!
//! Each event costs the host what a counted tracepoint costs. `vmstat` has no counters of refills
//! and drains.

use anyhow::{Context, bail};

use super::rates::{DRAINED, LOCK_WAITS, REFILLED};

/// Tracepoints, and the counters they are shown as.
const EVENTS: [(&str, &str); 3] = [
    ("kmem:mm_page_alloc_zone_locked", REFILLED),
    ("kmem:mm_page_pcpu_drain", DRAINED),
    ("lock:contention_begin", LOCK_WAITS),
];

/// Counters of all CPUs.
#[derive(Default)]
pub struct Events {
    /// By tracepoint; one for each CPU.
    counters: Vec<(&'static str, Vec<perf_event::Counter>)>,
    /// Why something is not counted, for people.
    pub remark: Option<String>,
}

impl Events {
    /// Counts what may be counted.
    pub fn start() -> Events {
        let mut events = Events::default();
        for (tracepoint, name) in EVENTS {
            match start(tracepoint) {
                Ok(counters) => events.counters.push((name, counters)),
                Err(error) => events.remark = Some(format!("{tracepoint}: {error:#}")),
            }
        }
        events
    }

    /// The counts so far.
    pub fn read(&mut self) -> Vec<(String, u64)> {
        let all = self.counters.iter_mut();
        all.filter_map(|(name, counters)| {
            let counts = counters.iter_mut().map(perf_event::Counter::read);
            let sum: std::io::Result<u64> = counts.sum();
            Some(((*name).to_owned(), sum.ok()?))
        })
        .collect()
    }
}

fn start(tracepoint: &str) -> anyhow::Result<Vec<perf_event::Counter>> {
    let event = perf_event::events::Tracepoint::with_name(tracepoint.replace(':', "/"))
        .context("not counted; expected root and a mounted tracefs")?;
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").context("CPUs")?;
    let Ok(cpus) = zonal_text::cpulist::parse(online.trim()) else {
        bail!("/sys/devices/system/cpu/online: expected a list of CPUs")
    };
    let counter = |cpu: u32| {
        let mut builder = perf_event::Builder::new(event);
        let counter = builder.any_pid().one_cpu(cpu as usize).include_kernel().build();
        let mut counter = counter.context("not counted; expected CAP_PERFMON")?;
        counter.enable().context("not counted")?;
        Ok(counter)
    };
    cpus.ids.into_iter().map(counter).collect()
}
