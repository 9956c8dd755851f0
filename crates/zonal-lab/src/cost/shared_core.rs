//! Threads that share a core slow each other down, unless one of them is idle or waits for a lock:
//! a waiting loop pauses, and leaves the core to the other thread.

use crate::provenance::{Provenance, given};

given! {
    /// Duration of work while another thread of the core works too, in percent of its duration
    /// alone. Programs gain 22 % from a second thread (AnandTech on multithreading of Zen 3, 2020,
    /// the average of its multi-threaded ones), so two take 2 / 1.22 times as long each.
    pub SHARED_PERCENT: u64 = 164,
        Provenance::sourced(
            "AnandTech on multithreading of Zen 3, 2020: programs gain 22 % from a second thread, \
             the average of its multi-threaded ones",
        );
}

/// Whether each CPU works, as seen by the other threads of its core.
#[derive(Clone, Debug)]
pub struct SharedCores {
    cores: usize,
    threads: Vec<Thread>,
}

#[derive(Clone, Debug)]
struct Thread {
    idle: bool,
    /// Its last wait for a lock: from, to.
    waits: (u64, u64),
}

impl SharedCores {
    /// For a number of CPUs on a number of cores: CPU `c` is on core `c % cores`. All are idle.
    pub fn new(cpus: u32, cores: u32) -> SharedCores {
        let thread = Thread { idle: true, waits: (0, 0) };
        SharedCores { cores: cores as usize, threads: vec![thread; cpus as usize] }
    }

    /// The CPU has something to do, or nothing. Returns whether that is new.
    pub fn set_idle(&mut self, cpu: u32, idle: bool) -> bool {
        std::mem::replace(&mut self.threads[cpu as usize].idle, idle) != idle
    }

    /// The CPU waits for a lock.
    pub fn wait(&mut self, cpu: u32, from: u64, to: u64) {
        self.threads[cpu as usize].waits = (from, to);
    }

    /// Cycles that `cycles` of work take on `cpu`, a thread of `core`, from `now` on.
    #[inline]
    pub fn stretch(&self, (cpu, core): (u32, u32), now: u64, cycles: u64) -> u64 {
        // Not `step_by`, which divides, as every call of the allocator comes here.
        let mut other = core as usize;
        while let Some(Thread { idle, waits: (from, to) }) = self.threads.get(other) {
            if other != cpu as usize && !idle && !(*from..*to).contains(&now) {
                return cycles * SHARED_PERCENT / 100;
            }
            other += self.cores;
        }
        cycles
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_neighbour_that_works_takes_time() {
        let mut cores = SharedCores::new(8, 4);
        assert_eq!(cores.stretch((0, 0), 10, 100), 100, "the neighbour is idle");
        cores.set_idle(4, false);
        assert_eq!(cores.stretch((0, 0), 10, 100), SHARED_PERCENT);
        assert_eq!(cores.stretch((1, 1), 10, 100), 100, "another core");
        cores.set_idle(0, false);
        cores.wait(4, 50, 90);
        assert_eq!(cores.stretch((0, 0), 60, 100), 100, "it waits");
        assert_eq!(cores.stretch((0, 0), 90, 100), SHARED_PERCENT);
    }
}
