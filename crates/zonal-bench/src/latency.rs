//! Single-call latencies, in a pass of their own.
//!
//! Reading a clock around a call of two nanoseconds costs ten times the call, so these figures are
//! the cost of *slow* calls (refills, locks, system calls); `ns_per_op` has the fast ones. The
//! timer's own cost, the median of back-to-back readings, is subtracted. The counter itself may be
//! coarse: on some AMD CPUs it advances in steps of 10 ns. Readings go to a plain array first and
//! to the histogram afterwards: a histogram is larger than the L1 cache and would slow down the
//! very calls it measures.
//!
//! A pass in which a thread lost its CPU says so ([`Latency::disturbed`]): its longest calls are
//! then those of the machine.

use crate::subject::{Probe, Subject, call_alloc, call_free};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Readings kept per worker and kind; later calls of a pass are made but not read.
const READINGS_MAX: usize = 1 << 18;

/// Percentiles of single calls, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Half of the allocation calls were at most this long.
    pub p50_ns: f64,
    /// 99 % of the allocation calls.
    pub p99_ns: f64,
    /// 99.9 % of the allocation calls.
    pub p999_ns: f64,
    /// The longest allocation call.
    pub max_ns: f64,
    /// Half of the calls that free.
    pub free_p50_ns: f64,
    /// 99 % of the calls that free.
    pub free_p99_ns: f64,
    /// 99.9 % of the calls that free.
    pub free_p999_ns: f64,
    /// The longest call that frees.
    pub free_max_ns: f64,
    /// A thread lost its CPU meanwhile.
    pub disturbed: bool,
}

/// The readings of one worker, in ticks.
#[derive(Default)]
pub(crate) struct Readings {
    allocs: Vec<u32>,
    frees: Vec<u32>,
}

impl Readings {
    /// With room for the readings of `calls` allocations, already backed.
    pub(crate) fn with_room(calls: usize) -> Readings {
        Readings { allocs: backed(calls), frees: Vec::new() }
    }

    /// Makes one allocation, and reads the clock around it.
    pub(crate) fn time<R>(&mut self, call: impl FnOnce() -> R) -> R {
        let start = clock::start();
        let answer = call();
        keep(&mut self.allocs, start, clock::end());
        answer
    }
}

/// Room for the readings of this many calls.
fn backed(calls: usize) -> Vec<u32> {
    // Filled and cleared, so that the pages exist before the first reading.
    let mut room = vec![1u32; calls.min(READINGS_MAX)];
    room.clear();
    room
}

/// The probe that reads the clock around every call.
pub(crate) struct Timed {
    readings: Readings,
}

impl Timed {
    /// With room for the readings of `calls` allocations and as many frees, already backed.
    pub(crate) fn new(calls: usize) -> Timed {
        Timed { readings: Readings { allocs: backed(calls), frees: backed(calls) } }
    }

    pub(crate) fn into_readings(self) -> Readings {
        self.readings
    }
}

#[inline(always)]
fn keep(readings: &mut Vec<u32>, start: u64, end: u64) {
    if readings.len() < readings.capacity() {
        readings.push(u32::try_from(end.saturating_sub(start)).unwrap_or(u32::MAX));
    }
}

impl<S: Subject> Probe<S> for Timed {
    #[inline(always)]
    unsafe fn alloc(&mut self, subject: &S, order: u32) -> *mut u8 {
        let start = clock::start();
        // SAFETY: the caller keeps `Subject::alloc`'s contract; PROBE-1.
        let block = unsafe { call_alloc(subject, order) };
        keep(&mut self.readings.allocs, start, clock::end());
        block
    }

    #[inline(always)]
    unsafe fn free(&mut self, subject: &S, block: *mut u8, order: u32) {
        let start = clock::start();
        // SAFETY: the caller keeps `Subject::free`'s contract; PROBE-1.
        unsafe { call_free(subject, block, order) };
        keep(&mut self.readings.frees, start, clock::end());
    }

    unsafe fn alloc_bulk(&mut self, subject: &S, order: u32, blocks: &mut [*mut u8]) -> usize {
        let start = clock::start();
        // SAFETY: the caller keeps `Subject::alloc_bulk`'s contract; PROBE-1.
        let got = unsafe { subject.alloc_bulk(order, blocks) };
        keep(&mut self.readings.allocs, start, clock::end());
        got
    }

    unsafe fn free_bulk(&mut self, subject: &S, blocks: &[*mut u8], order: u32) {
        let start = clock::start();
        // SAFETY: the caller keeps `Subject::free_bulk`'s contract; PROBE-1.
        unsafe { subject.free_bulk(blocks, order) };
        keep(&mut self.readings.frees, start, clock::end());
    }
}

/// Percentiles over the readings of all workers.
pub(crate) fn summarise(workers: &[Readings]) -> Latency {
    let allocs = histogram(workers.iter().map(|worker| &worker.allocs));
    let frees = histogram(workers.iter().map(|worker| &worker.frees));
    let scale = Scale::get();
    let at = |histogram: &Histogram<u32>, quantile| {
        scale.nanoseconds(histogram.value_at_quantile(quantile))
    };
    Latency {
        p50_ns: at(&allocs, 0.5),
        p99_ns: at(&allocs, 0.99),
        p999_ns: at(&allocs, 0.999),
        max_ns: at(&allocs, 1.0),
        free_p50_ns: at(&frees, 0.5),
        free_p99_ns: at(&frees, 0.99),
        free_p999_ns: at(&frees, 0.999),
        free_max_ns: at(&frees, 1.0),
        disturbed: false,
    }
}

fn histogram<'a>(readings: impl Iterator<Item = &'a Vec<u32>>) -> Histogram<u32> {
    let overhead = Scale::get().overhead_ticks;
    // Three figures are enough for a latency; the bounds cover every u32.
    let bounds = Histogram::new_with_bounds(1, 1 << 33, 3);
    let mut histogram = bounds.expect("1, 2^33 and 3 are bounds that hdrhistogram accepts");
    for &ticks in readings.flatten() {
        histogram.saturating_record(u64::from(ticks).saturating_sub(overhead));
    }
    histogram
}

/// Length of a tick, and cost of reading the clock.
#[derive(Clone, Copy, Debug)]
struct Scale {
    ns_per_tick: f64,
    overhead_ticks: u64,
}

impl Scale {
    fn get() -> Scale {
        static SCALE: OnceLock<Scale> = OnceLock::new();
        *SCALE.get_or_init(|| Scale {
            ns_per_tick: clock::ns_per_tick(),
            overhead_ticks: overhead_ticks(),
        })
    }

    fn nanoseconds(self, ticks: u64) -> f64 {
        ticks as f64 * self.ns_per_tick
    }
}

fn overhead_ticks() -> u64 {
    let mut empty: Vec<u64> = (0..10_001)
        .map(|_| {
            let start = clock::start();
            clock::end().saturating_sub(start)
        })
        .collect();
    empty.sort_unstable();
    empty[empty.len() / 2]
}

/// How long the calibration against the system's clock takes: 10 ms give 0.01 %.
const CALIBRATION: Duration = Duration::from_millis(10);

/// The time stamp counter: `lfence` keeps the reading from moving up before earlier instructions,
/// `rdtscp` waits for the measured call, a last `lfence` keeps later ones from moving up.
#[cfg(target_arch = "x86_64")]
mod clock {
    use std::arch::x86_64::{__rdtscp, _mm_lfence, _rdtsc};

    #[inline(always)]
    fn fence() {
        // SAFETY: lfence belongs to SSE2, which every x86-64 CPU has.
        unsafe { _mm_lfence() }
    }

    #[inline(always)]
    pub(super) fn start() -> u64 {
        fence();
        // SAFETY: rdtsc exists on every x86-64 CPU, and Linux does not forbid it to processes.
        let ticks = unsafe { _rdtsc() };
        fence();
        ticks
    }

    #[inline(always)]
    pub(super) fn end() -> u64 {
        let mut cpu = 0;
        // SAFETY: rdtscp exists on every x86-64 CPU since 2006; `cpu` is a live local.
        let ticks = unsafe { __rdtscp(&raw mut cpu) };
        fence();
        ticks
    }

    pub(super) fn ns_per_tick() -> f64 {
        let (began, first) = (super::Instant::now(), start());
        while began.elapsed() < super::CALIBRATION {
            std::hint::spin_loop();
        }
        let (ticks, elapsed) = (start() - first, began.elapsed());
        elapsed.as_nanos() as f64 / ticks as f64
    }
}

/// Elsewhere: the system's monotonic clock, whose ticks are nanoseconds.
#[cfg(not(target_arch = "x86_64"))]
mod clock {
    use super::{Instant, OnceLock};

    #[inline(always)]
    pub(super) fn start() -> u64 {
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        ORIGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }

    #[inline(always)]
    pub(super) fn end() -> u64 {
        start()
    }

    pub(super) fn ns_per_tick() -> f64 {
        let _ = super::CALIBRATION;
        1.0
    }
}

/// The least number of nanoseconds that a calibrated pass takes per call, for planning.
pub(crate) fn planned_overhead_ns() -> f64 {
    let scale = Scale::get();
    scale.nanoseconds(scale.overhead_ticks) * 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_come_from_all_workers() {
        let overhead = Scale::get().overhead_ticks as u32;
        let of = |ticks: u32, count| Readings { allocs: vec![ticks; count], frees: vec![7; 1] };
        let latency = summarise(&[of(1000 + overhead, 990), of(90_000 + overhead, 10)]);
        let ratio = latency.p999_ns / latency.p50_ns;
        assert!((85.0..95.0).contains(&ratio), "{latency:?}");
        assert!(latency.p99_ns < latency.p50_ns * 1.01, "{latency:?}");
    }

    #[test]
    fn one_slow_call_is_the_longest_and_moves_nothing_else() {
        let overhead = Scale::get().overhead_ticks as u32;
        let fast = Readings { allocs: vec![10 + overhead; 5000], frees: vec![20 + overhead; 5000] };
        let slow = Readings { allocs: vec![10, 70_000 + overhead], frees: vec![50_000 + overhead] };
        let latency = summarise(&[fast, slow]);
        let tick = Scale::get().ns_per_tick;
        let near = |ns: f64, ticks: f64| (ns / (ticks * tick) - 1.0).abs() < 0.002;
        assert!(near(latency.max_ns, 70_000.0) && near(latency.p999_ns, 10.0), "{latency:?}");
        assert!(near(latency.free_max_ns, 50_000.0), "{latency:?}");
        assert!(near(latency.free_p50_ns, 20.0) && near(latency.free_p99_ns, 20.0), "{latency:?}");
    }

    #[test]
    fn a_known_pause_is_measured_about_right() {
        let start = clock::start();
        std::thread::sleep(Duration::from_millis(5));
        let ns = Scale::get().nanoseconds(clock::end() - start);
        assert!(ns > 4_900_000.0, "5 ms measured as {ns} ns");
    }
}
