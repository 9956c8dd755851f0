//! Where the CPUs' time went, by the kernel's `/proc/stat`.
//!
//! What `/proc/pressure` says of waits for disks is a mean over the CPUs, by how long each was busy
//! or waited: a reader that waits all of the time on one CPU counts as half of it while background
//! reclaim is at work on another. The time in which a CPU did nothing because a task waits for a
//! disk is not a mean, and counts each such CPU.

/// Ticks a second of `/proc/stat`, which the kernel fixes for programs.
const TICKS_PER_S: u64 = 100;
/// Columns behind the name.
const SYSTEM: [usize; 3] = [2, 5, 6];
const WAITED: usize = 4;

/// Times of all CPUs together, in µs, since the host was started; or their difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostTimes {
    /// CPUs did nothing while a task waited for a disk.
    pub disk_us: u64,
    /// In the kernel, with interrupts.
    pub system_us: u64,
}

impl HostTimes {
    /// Reads a `/proc/stat`; `None` where it has no such line.
    pub fn parse(text: &str) -> Option<HostTimes> {
        let all = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<&str> = all.split_whitespace().collect();
        let us =
            |at: usize| ticks.get(at)?.parse::<u64>().ok()?.checked_mul(1_000_000 / TICKS_PER_S);
        let system = SYSTEM.iter().map(|at| us(*at)).sum::<Option<u64>>()?;
        Some(HostTimes { disk_us: us(WAITED)?, system_us: system })
    }

    /// What was added since `before`. The kernel's time of waits may fall a little.
    #[must_use]
    pub fn since(self, before: HostTimes) -> HostTimes {
        HostTimes {
            disk_us: self.disk_us.saturating_sub(before.disk_us),
            system_us: self.system_us.saturating_sub(before.system_us),
        }
    }

    /// Without what the kernel's own threads took of it.
    #[must_use]
    pub fn without(self, threads_ns: u64) -> HostTimes {
        HostTimes { system_us: self.system_us.saturating_sub(threads_ns / 1000), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_all_cpus_and_what_is_no_time_says_nothing() {
        let text = "cpu  10 20 30 1000 50 1 2 3 7 7\ncpu0 1 2 3 4 5 6 7\n";
        let times = HostTimes::parse(text).unwrap();
        assert_eq!(times, HostTimes { disk_us: 500_000, system_us: 330_000 });
        let before = HostTimes { disk_us: 600_000, system_us: 30_000 };
        assert_eq!(times.since(before), HostTimes { disk_us: 0, system_us: 300_000 });
        for bad in ["", "intr 5\n", "cpu  1 2 3\n", "cpu  1 2 x 4 5 6 7\n", "cpu  1 2 3 4 -5 6 7\n"]
        {
            assert_eq!(HostTimes::parse(bad), None, "{bad:?}");
        }
        assert_eq!(HostTimes::parse(&format!("cpu  1 2 3 4 {} 6 7\n", u64::MAX)), None);
    }
}
