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

/// Where tracefs is mounted.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

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

/// The kernel's number of a tracepoint.
fn number(tracepoint: &str) -> anyhow::Result<u64> {
    let of = |root: &str| {
        let path = format!("{root}/events/{}/id", tracepoint.replace(':', "/"));
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    let found = TRACEFS.iter().copied().find_map(of);
    found.context("not counted; expected root, a mounted tracefs, and a kernel that has it")
}

fn start(tracepoint: &str) -> anyhow::Result<Vec<perf_event::Counter>> {
    let event = perf_event::events::Tracepoint::with_id(number(tracepoint)?);
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").context("CPUs")?;
    let Ok(cpus) = zonal_text::cpulist::parse(&online) else {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refills_of_this_machine_are_counted() {
        let mut events = Events::start();
        if let Some(remark) = &events.remark {
            return eprintln!("SKIPPED: {remark}");
        }
        let value = |counts: &[(String, u64)]| {
            counts.iter().find(|(name, _)| name == REFILLED).map(|(_, count)| *count)
        };
        let before = value(&events.read()).unwrap();
        // More than the lists of a CPU hold at first; pages of others come on top.
        let begin = std::time::Instant::now();
        while value(&events.read()).unwrap() == before {
            std::hint::black_box(vec![1_u8; 256 << 20]);
            assert!(begin.elapsed().as_secs() < 120, "no refill was counted");
        }
    }

    #[test]
    fn a_tracepoint_that_is_not_there_is_named() {
        let error = start("kmem:nothing").map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("not counted"), "{error}");
    }
}
