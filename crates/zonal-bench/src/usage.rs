//! What a thread had of the machine while its clock ran: CPU time, and how often it lost its CPU.
//!
//! A round is disturbed if a thread that never slept had less CPU time than wall time, or if it was
//! preempted more often than a quiet machine does it. With more threads than CPUs they preempt each
//! other, so only the CPU time of all of them counts, against that of all CPUs. A thread that slept
//! (in a mutex, in the kernel) may have used less CPU time of its own will; for rounds with such
//! threads only preemptions tell, and oversubscribed ones are never discarded. Time that a
//! hypervisor takes from a CPU is CPU time to the guest: it is not seen here.

use rustix::time::{ClockId, clock_gettime};

/// A round whose threads had less than this share of their wall time on a CPU is disturbed.
const SHARE_MIN: f64 = 0.95;
/// The same with more threads than CPUs: the last thread of a round leaves the other CPUs idle.
const SHARE_MIN_OVERSUBSCRIBED: f64 = 0.85;
/// A thread may lose its CPU once, and once more in each such time: the kernel's own threads run,
/// too.
const PREEMPTION_NS: f64 = 10_000_000.0;

/// Counters of the calling thread at some moment, or their growth.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    /// CPU time, nanoseconds.
    pub(crate) cpu_ns: f64,
    /// How often it slept.
    pub(crate) voluntary: u64,
    /// How often it was preempted.
    pub(crate) involuntary: u64,
}

impl Usage {
    /// Of the calling thread, since it began.
    pub(crate) fn now() -> Usage {
        // The CPU time of `getrusage` is that of the last timer tick, older than a round is long.
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let (voluntary, involuntary) = switches();
        let cpu_ns = time.tv_sec as f64 * 1e9 + time.tv_nsec as f64;
        Usage { cpu_ns, voluntary, involuntary }
    }

    /// What was used since `before`.
    pub(crate) fn since(self, before: Usage) -> Usage {
        Usage {
            cpu_ns: self.cpu_ns - before.cpu_ns,
            voluntary: self.voluntary.saturating_sub(before.voluntary),
            involuntary: self.involuntary.saturating_sub(before.involuntary),
        }
    }
}

/// Voluntary and involuntary switches of the calling thread; none where they cannot be read.
#[cfg(target_os = "linux")]
fn switches() -> (u64, u64) {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is a live local of the type that the call fills.
    let _ = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    // SAFETY: zeroed, and integers alone: zeros are what is left where the call failed.
    let usage = unsafe { usage.assume_init() };
    let count = |value: libc::c_long| u64::try_from(value).unwrap_or(0);
    (count(usage.ru_nvcsw), count(usage.ru_nivcsw))
}

#[cfg(not(target_os = "linux"))]
fn switches() -> (u64, u64) {
    (0, 0)
}

/// A thread of a round: start and end in nanoseconds since any common moment, and what it used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) start_ns: f64,
    pub(crate) end_ns: f64,
    pub(crate) usage: Usage,
}

/// What the threads of a round had of the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Had {
    /// CPU time of all threads, nanoseconds.
    pub(crate) cpu_ns: f64,
    /// CPU time as a share of what it could have been: that of the worst thread, or of all of them
    /// where they share CPUs.
    pub(crate) share: f64,
    /// Preemptions of all threads.
    pub(crate) involuntary: u64,
    /// They had fewer CPUs than they should have.
    pub(crate) disturbed: bool,
}

/// Judges a round on `cpus` CPUs.
pub(crate) fn judge(parts: &[Part], cpus: usize) -> Had {
    let cpu_ns = parts.iter().map(|part| part.usage.cpu_ns).sum();
    let involuntary = parts.iter().map(|part| part.usage.involuntary).sum();
    if parts.len() > cpus {
        let first = parts.iter().map(|part| part.start_ns).fold(f64::INFINITY, f64::min);
        let last = parts.iter().map(|part| part.end_ns).fold(0.0, f64::max);
        let share = of_wall(cpu_ns, (last - first) * cpus as f64);
        let slept = parts.iter().any(|part| part.usage.voluntary > 0);
        let disturbed = !slept && share < SHARE_MIN_OVERSUBSCRIBED;
        return Had { cpu_ns, share, involuntary, disturbed };
    }
    let share = |part: &Part| of_wall(part.usage.cpu_ns, part.end_ns - part.start_ns);
    let least = parts.iter().map(share).fold(1.0, f64::min);
    let disturbed = parts.iter().any(|part| {
        let starved = part.usage.voluntary == 0 && share(part) < SHARE_MIN;
        let may = 1.0 + ((part.end_ns - part.start_ns) / PREEMPTION_NS).floor();
        starved || part.usage.involuntary as f64 > may
    });
    Had { cpu_ns, share: least, involuntary, disturbed }
}

/// At most 1: the clocks of a thread are not read at one moment.
fn of_wall(cpu_ns: f64, wall_ns: f64) -> f64 {
    if wall_ns > 0.0 { (cpu_ns / wall_ns).min(1.0) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn part(wall_ns: f64, cpu_ns: f64, voluntary: u64, involuntary: u64) -> Part {
        let usage = Usage { cpu_ns, voluntary, involuntary };
        Part { start_ns: 5.0, end_ns: 5.0 + wall_ns, usage }
    }

    const MS: f64 = 1e6;

    #[test]
    fn a_thread_without_its_cpu_disturbs_a_round_however_many_had_theirs() {
        let quiet = part(3.0 * MS, 2.99 * MS, 0, 0);
        assert!(!judge(&[quiet; 16], 16).disturbed);
        let mut parts = [quiet; 16];
        parts[7] = part(6.0 * MS, 3.0 * MS, 0, 1);
        let had = judge(&parts, 16);
        assert!(had.disturbed);
        assert_eq!((had.share, had.involuntary), (0.5, 1));
        assert!((had.cpu_ns - 47.85 * MS).abs() < 1.0, "{had:?}");
    }

    #[test]
    fn a_short_preemption_is_allowed_and_a_storm_of_them_is_not() {
        assert!(!judge(&[part(3.0 * MS, 2.98 * MS, 0, 1)], 2).disturbed);
        assert!(judge(&[part(3.0 * MS, 2.98 * MS, 0, 2)], 2).disturbed);
        assert!(!judge(&[part(30.0 * MS, 29.9 * MS, 0, 4)], 2).disturbed);
    }

    #[test]
    fn a_thread_that_sleeps_in_a_mutex_does_not_disturb_its_round() {
        let sleeps = part(3.0 * MS, 1.0 * MS, 40, 0);
        assert!(!judge(&[sleeps, sleeps], 2).disturbed);
        assert!(judge(&[sleeps, part(3.0 * MS, 1.0 * MS, 40, 9)], 2).disturbed);
    }

    #[test]
    fn threads_that_share_cpus_are_judged_by_what_all_of_them_had() {
        // Four threads on two CPUs preempt each other, and each has about a half of one.
        let half = part(20.0 * MS, 9.9 * MS, 0, 7);
        let had = judge(&[half; 4], 2);
        assert!(!had.disturbed && (had.share - 0.99).abs() < 1e-9, "{had:?}");
        // Another process had one of the CPUs.
        assert!(judge(&[part(40.0 * MS, 9.9 * MS, 0, 7); 4], 2).disturbed);
        assert!(!judge(&[part(40.0 * MS, 9.9 * MS, 3, 7); 4], 2).disturbed);
    }

    #[test]
    fn a_round_of_no_length_is_not_disturbed() {
        assert!(!judge(&[part(0.0, 0.0, 0, 0)], 1).disturbed);
        assert!(!judge(&[], 1).disturbed);
    }

    #[test]
    fn a_thread_that_sleeps_has_a_switch_and_no_cpu_time_and_one_that_spins_has() {
        let before = Usage::now();
        std::thread::sleep(Duration::from_millis(20));
        let slept = Usage::now().since(before);
        assert!(slept.cpu_ns < 20e6, "{slept:?}");
        assert!(!cfg!(target_os = "linux") || slept.voluntary > 0, "{slept:?}");
        let (before, start) = (Usage::now(), Instant::now());
        // However slow the machine is, in the end the thread has spun for a millisecond.
        while Usage::now().since(before).cpu_ns < 1e6 {
            assert!(start.elapsed() < Duration::from_secs(60));
        }
    }
}
