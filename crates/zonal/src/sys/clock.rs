//! Monotonic time.
//!
//! One clock, `CLOCK_MONOTONIC`, read through the vDSO (20-30 ns here): the same clock that ftrace
//! prints with `trace_clock=mono`, so stamps of this process and of a kernel trace can be compared.
//! Nothing on the allocation path reads it; reclaim and reports do.

use super::os;

/// Nanoseconds since an arbitrary point in the past, never running backwards.
///
/// On Linux the point is the same for every process of this boot.
pub fn monotonic_ns() -> u64 {
    os::monotonic_ns()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn the_clock_advances_with_std_and_never_back() {
        let (std_start, start) = (Instant::now(), monotonic_ns());
        std::thread::sleep(Duration::from_millis(2));
        let (end, std_took) = (monotonic_ns(), std_start.elapsed().as_nanos() as u64);
        assert!(end - start >= 2_000_000);
        assert!(end - start <= std_took, "the inner interval is the shorter one");
        let mut last = end;
        for _ in 0..1000 {
            let now = monotonic_ns();
            assert!(now >= last);
            last = now;
        }
    }
}
