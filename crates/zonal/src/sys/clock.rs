//! Monotonic time.
//!
//! One clock, `CLOCK_MONOTONIC`, read through the vDSO (20-30 ns here): the same clock that ftrace
//! prints with `trace_clock=mono`, so stamps of this process and of a kernel trace can be compared.
//! Nothing on the allocation path reads it; reclaim and reports do.

/// Nanoseconds since an arbitrary point in the past, never running backwards.
///
/// The point is the same for every process of this boot.
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime needs (1) a place for one timespec: `now` is one, and is borrowed by
    // nothing else. (2) It keeps no pointer after it returns.
    let rc = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    // POSIX makes CLOCK_MONOTONIC optional, Linux does not: the only errors are a bad pointer and
    // an unknown clock.
    debug_assert_eq!(rc, 0, "CLOCK_MONOTONIC is always there on Linux");
    (now.tv_sec as u64) * 1_000_000_000 + now.tv_nsec as u64
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
