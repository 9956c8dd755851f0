//! What holding a zone lock costs others: modelled, not measured.
//!
//! A hold takes the time to fetch the lock's line, and for each block that is moved, of whatever
//! order, the time that a machine of the lab needs for it. In a bin of 100 ms with `n` holds of `s`
//! ns each, the lock is busy for a share `r = n s / 100 ms`. Of `c` CPUs that come at any time, one
//! finds it taken by another with `p = r (c - 1) / c`, and waits as in a queue of equal services:
//! `r s / (2 (1 - r))` on average over all holds. Bursts inside a bin make it worse than this.

use serde::Serialize;
use zonal_lab::machine::{Machine, MachineError};
use zonal_trace::{HoldPrices, MachineDescription};

use crate::what_if::{KernelMoves, Trialled, WhatIf};

/// The lab's machine whose costs are taken.
const MACHINE: &str = "broadwell-2017-88";
/// A lock is never busier than this: the queue of the formula has no end.
const BUSY_MAX: f64 = 0.99;

/// Costs of a hold.
#[derive(Clone, Debug, Serialize)]
pub struct HoldCost {
    /// The machine they are for.
    pub machine: String,
    /// Each hold, in ns.
    pub hold_ns: f64,
    /// Each block moved in it.
    pub page_ns: f64,
}

/// Prices for the trials of one recording.
#[derive(Clone, Debug)]
pub(crate) struct Prices {
    /// Of a hold.
    pub(crate) cost: HoldCost,
    /// Measured waits of the recording, in µs of each second.
    pub(crate) measured_us_per_s: Option<f64>,
    /// What modelled waits are multiplied by to be the measured ones, as recorded.
    wait_scale: f64,
}

impl Prices {
    /// Prices by which the trial `as_recorded` waits as long as was measured in the recording;
    /// those of the formula, where that has no waits or none was measured.
    pub(crate) fn new(cost: HoldCost, what_if: &WhatIf<'_>, as_recorded: &Trialled) -> Prices {
        let seconds = what_if.seconds();
        let modelled = cost.contention(as_recorded, 1, seconds).wait_us_per_s;
        let measured = what_if.lock_waits().map(|waits| waits.zones_us / seconds.max(1e-9));
        Prices { cost, measured_us_per_s: measured, wait_scale: wait_scale(measured, modelled) }
    }

    /// Cost of a trial's locks, with each CPU `times` over.
    pub(crate) fn contention(&self, trialled: &Trialled, times: u32, seconds: f64) -> Contention {
        let mut contention = self.cost.contention(trialled, times, seconds);
        let scaled = contention.wait_us_per_s * self.wait_scale;
        contention.wait_us_per_s = (scaled * 1000.0).round() / 1000.0;
        contention
    }
}

/// What brings modelled waits to measured ones. Where nobody waited, changes could still make
/// somebody wait: a factor of zero would hide that.
fn wait_scale(measured: Option<f64>, modelled: f64) -> f64 {
    match measured {
        Some(measured) if measured > 0.0 && modelled > 0.0 => measured / modelled,
        _ => 1.0,
    }
}

/// Cost of a trial's locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Contention {
    /// The busiest lock's share of time in its busiest bin, in percent.
    pub busy_percent_max: f64,
    /// Holds that find the lock taken, in percent of all.
    pub contended_percent: f64,
    /// Waited for zone locks in each second, by all CPUs together.
    pub wait_us_per_s: f64,
    /// Worked under zone locks in each second, by all CPUs together.
    pub work_us_per_s: f64,
}

impl HoldCost {
    /// The lab's.
    ///
    /// # Errors
    /// Cannot fail: the machine comes with the lab.
    pub fn of_lab() -> Result<HoldCost, MachineError> {
        Ok(HoldCost::of_machine(&Machine::named(MACHINE)?, format!("the lab's {MACHINE}")))
    }

    /// Those of a machine of the lab, such as one that was measured. `source`: in words.
    pub fn of_machine(machine: &Machine, source: String) -> HoldCost {
        let ns = |cycles: u64| cycles as f64 / machine.ghz;
        let (hold_ns, page_ns) = (ns(machine.line.core), ns(machine.work.page));
        HoldCost { hold_ns, page_ns, machine: source }
    }

    /// Those in the recording; the lab's where it has none.
    ///
    /// # Errors
    /// As [`of_lab`](Self::of_lab).
    pub fn of_recording(description: &MachineDescription) -> Result<HoldCost, MachineError> {
        let Some(prices) = &description.prices else { return HoldCost::of_lab() };
        let ns = |ps: u64| ps as f64 / 1000.0;
        Ok(HoldCost {
            hold_ns: ns(prices.hold_ps),
            page_ns: ns(prices.block_ps),
            machine: prices.source.clone(),
        })
    }

    /// As a recorder keeps them.
    pub fn to_prices(&self) -> HoldPrices {
        let ps = |ns: f64| (ns * 1000.0).round() as u64;
        let (hold_ps, block_ps) = (ps(self.hold_ns), ps(self.page_ns));
        HoldPrices { source: self.machine.clone(), hold_ps, block_ps }
    }

    /// Cost of a trial's locks, with each CPU `times` over.
    pub fn contention(&self, trialled: &Trialled, times: u32, seconds: f64) -> Contention {
        let bin = trialled.bin_ns as f64;
        let (mut holds, mut contended, mut wait, mut busiest) = (0.0, 0.0, 0.0, 0.0_f64);
        let mut work = 0.0;
        for (bins, cpus) in trialled.zones.iter().zip(&trialled.cpus_of_zone) {
            let others = 1.0 - 1.0 / f64::from((*cpus).max(1));
            for (count, pages) in bins.iter().filter(|(count, _)| *count > 0) {
                let count = *count as f64 * f64::from(times);
                let each = self.hold_ns + self.page_ns * *pages as f64 * f64::from(times) / count;
                let busy = (count * each / bin).min(BUSY_MAX);
                busiest = busiest.max(busy);
                holds += count;
                work += count * each;
                contended += count * busy * others;
                wait += count * others * busy * each / (2.0 * (1.0 - busy));
            }
        }
        let per_s = |ns: f64| (ns / 1000.0 / seconds.max(1e-9) * 1000.0).round() / 1000.0;
        let percent = |share: f64| (share * 1e6).round() / 1e4;
        Contention {
            busy_percent_max: percent(busiest),
            contended_percent: if holds > 0.0 { percent(contended / holds) } else { 0.0 },
            wait_us_per_s: per_s(wait),
            work_us_per_s: per_s(work),
        }
    }

    /// Work under zone locks in each second, in µs, for what the kernel itself moved.
    pub fn work_us_per_s(&self, kernel: &KernelMoves, seconds: f64) -> f64 {
        let KernelMoves { moves, list_blocks, direct_blocks, .. } = kernel;
        let holds = moves.refill_holds + moves.drain_holds + direct_blocks;
        let ns = holds as f64 * self.hold_ns + (list_blocks + direct_blocks) as f64 * self.page_ns;
        ns / 1000.0 / seconds.max(1e-9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trialled(holds: u64, pages: u64, cpus: u32) -> Trialled {
        Trialled {
            bin_ns: 100_000_000,
            zones: vec![vec![(holds, pages)]],
            cpus_of_zone: vec![cpus],
            ..Trialled::default()
        }
    }

    const COST: f64 = 1000.0;

    fn cost() -> HoldCost {
        HoldCost { machine: "test".to_owned(), hold_ns: COST, page_ns: 10.0 }
    }

    #[test]
    fn a_recording_has_the_prices_of_its_host() {
        let lab = HoldCost::of_lab().unwrap();
        let own = HoldCost { hold_ns: 123.4, page_ns: 5.25, machine: "measured".to_owned() };
        let mut description = MachineDescription::default();
        assert_eq!(HoldCost::of_recording(&description).unwrap().hold_ns, lab.hold_ns);
        description.prices = Some(own.to_prices());
        let read = HoldCost::of_recording(&description).unwrap();
        assert_eq!((read.hold_ns, read.page_ns, read.machine), (123.4, 5.25, own.machine));
    }

    #[test]
    fn where_no_wait_was_measured_those_of_the_model_stand() {
        for (measured, modelled) in [(Some(0.0), 40.0), (None, 40.0), (Some(3.0), 0.0)] {
            assert_eq!(wait_scale(measured, modelled), 1.0, "{measured:?} {modelled}");
        }
        assert_eq!(wait_scale(Some(10.0), 40.0), 0.25);
        let prices = Prices {
            cost: cost(),
            measured_us_per_s: Some(0.0),
            wait_scale: wait_scale(Some(0.0), 1.0),
        };
        let trial = trialled(50, 5000, 2);
        let waits = prices.contention(&trial, 4, 0.1).wait_us_per_s;
        assert!(waits > 0.0 && waits == cost().contention(&trial, 4, 0.1).wait_us_per_s);
    }

    #[test]
    fn one_cpu_waits_for_nobody() {
        let one = cost().contention(&trialled(50, 100, 1), 1, 0.1);
        assert_eq!((one.contended_percent, one.wait_us_per_s), (0.0, 0.0));
        assert!(one.busy_percent_max > 0.0);
    }

    #[test]
    fn the_queue_is_that_of_equal_services() {
        // 50 holds of 1000 + 10 * 100 ns in 100 ms: busy 0.1 %, one of two CPUs comes as another.
        let two = cost().contention(&trialled(50, 5000, 2), 1, 0.1);
        assert_eq!(two.busy_percent_max, 0.1);
        assert_eq!(two.contended_percent, 0.05);
        let wait_ns = 50.0 * 0.5 * 0.001 * 2000.0 / (2.0 * 0.999);
        assert!((two.wait_us_per_s - wait_ns / 1000.0 / 0.1).abs() < 1e-3, "{two:?}");
    }

    #[test]
    fn more_cpus_wait_longer_and_an_endless_queue_is_cut() {
        let (few, many) = (trialled(50, 5000, 2), trialled(50, 5000, 8));
        let few = cost().contention(&few, 1, 0.1);
        let many = cost().contention(&many, 4, 0.1);
        assert!(many.wait_us_per_s > 4.0 * few.wait_us_per_s);
        let full = cost().contention(&trialled(1 << 20, 1 << 20, 8), 1, 0.1);
        assert_eq!(full.busy_percent_max, 99.0);
        assert!(full.wait_us_per_s.is_finite());
    }
}
