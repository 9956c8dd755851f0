//! One tracepoint, counted by the kernel on one CPU (`perf_event_open`).
//!
//! The crate that calls the kernel knows these processors. On the others of Linux (s390x, ppc64le)
//! the program is built without it, nothing is counted, and `top` and `exporter` say so.

use anyhow::Context;

/// A tracepoint that is counted on a CPU, until this is dropped.
pub struct Counter(perf_event::Counter);

impl Counter {
    /// How often it was reached.
    pub fn read(&mut self) -> std::io::Result<u64> {
        self.0.read()
    }
}

/// Counts a tracepoint, by its number, on a CPU.
pub fn start(number: u64, cpu: u32) -> anyhow::Result<Counter> {
    let event = perf_event::events::Tracepoint::with_id(number);
    let mut builder = perf_event::Builder::new(event);
    let counter = builder.any_pid().one_cpu(cpu as usize).include_kernel().build();
    let mut counter = counter.context("not counted; expected CAP_PERFMON")?;
    counter.enable().context("not counted")?;
    Ok(Counter(counter))
}
