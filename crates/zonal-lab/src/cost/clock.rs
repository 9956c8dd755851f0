//! A processor's clock: with few cores at work there is power for a faster one.
//!
//! Machines with a boost run at it with one core at work, and at their base clock with all of them;
//! between, the clock falls in proportion. A core whose threads are idle, or wait for a lock in a
//! loop that pauses, is not at work. Cycles of the lab are those of the base clock.

use crate::machine::Machine;
use crate::mechanism::Mechanism;
use crate::provenance::{Provenance, given};
use crate::units::scaled;

given! {
    /// How long the clock takes to follow: firmware looks about every millisecond.
    FOLLOWS_NS: f64 = 1e6,
        Provenance::estimated("clocks follow the load within a millisecond");
}

/// The clock of all cores.
#[derive(Clone, Debug)]
pub struct Clock {
    /// Boost over base clock.
    boost: f64,
    cpus: f64,
    threads: i32,
    /// Length of an epoch, in cycles.
    epoch: u64,
    began: u64,
    ends: u64,
    /// CPUs that are not idle.
    busy: u32,
    /// Cycles waited for locks in this epoch.
    waited: u64,
    /// Base clock over clock now.
    stretch: f64,
}

impl Clock {
    /// The clock of a machine that is idle.
    pub fn new(machine: &Machine) -> Clock {
        let faster = machine.boost_ghz.filter(|_| !machine.without.has(Mechanism::Boost));
        let boost = faster.map_or(1.0, |boost| boost / machine.ghz);
        let epoch = (FOLLOWS_NS * machine.ghz) as u64;
        Clock {
            boost,
            cpus: f64::from(machine.cpus()),
            threads: machine.threads_per_core as i32,
            epoch,
            began: 0,
            ends: epoch,
            busy: 0,
            waited: 0,
            stretch: 1.0 / boost,
        }
    }

    /// One CPU more or less has something to do.
    pub fn set_idle(&mut self, idle: bool) {
        self.busy = if idle { self.busy.saturating_sub(1) } else { self.busy + 1 };
    }

    /// A CPU waited for a lock.
    pub fn wait(&mut self, cycles: u64) {
        self.waited += cycles;
    }

    /// Cycles of the base clock for a number of cycles of work from `now` on.
    #[inline]
    pub fn stretch(&mut self, now: u64, cycles: u64) -> u64 {
        if now >= self.ends {
            self.follow(now);
        }
        // Nothing to multiply at the base clock, which is what machines without a boost have.
        if self.stretch == 1.0 {
            return cycles;
        }
        scaled(cycles, self.stretch)
    }

    /// An epoch is over.
    #[cold]
    fn follow(&mut self, now: u64) {
        let waiting = self.waited as f64 / (now - self.began) as f64;
        let threads = (f64::from(self.busy) - waiting).max(0.0) / self.cpus;
        let cores = 1.0 - (1.0 - threads.min(1.0)).powi(self.threads);
        self.stretch = 1.0 / (self.boost - (self.boost - 1.0) * cores);
        (self.began, self.waited) = (now, 0);
        self.ends = now + self.epoch;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_falls_from_boost_to_base_as_cores_come_to_work() {
        let machine = Machine::named("rome-2019-256").unwrap();
        let (base, boost) = (machine.ghz, machine.boost_ghz.unwrap());
        let mut clock = Clock::new(&machine);
        let alone = clock.stretch(0, 1_000_000);
        assert!((alone as f64 - 1e6 * base / boost).abs() < 2.0, "{alone}");
        let mut times = Vec::new();
        for (turn, busy) in [64, 128, 192, 256].into_iter().enumerate() {
            while clock.busy < busy {
                clock.set_idle(false);
            }
            times.push(clock.stretch((turn as u64 + 1) * 10_000_000, 1_000_000));
        }
        assert!(times.is_sorted() && times[0] > alone, "{times:?}");
        assert_eq!(times[3], 1_000_000, "all at work");
        clock.wait(256 * 10_000_000);
        assert_eq!(clock.stretch(50_000_000, 1_000_000), alone, "all of them wait");
        let plain = Machine::named("broadwell-2017-88").unwrap();
        assert_eq!(Clock::new(&plain).stretch(0, 1000), 1000);
    }
}
