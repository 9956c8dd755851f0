//! What holding a zone lock costs: modelled, and held against what was measured.
//!
//! A hold takes the time to fetch the lock's line, and for each block that is moved, of whatever
//! order, the time that a machine of the lab needs for it. The model's holds, each at the time of
//! its step in the trace, stand in a queue (`queue`), so two CPUs wait only where both come at the
//! same moment. A formula for arrivals at any time of a 100 ms bin told of 27 waits where one was
//! measured: drains come in rows of holds by one CPU, and loads on few CPUs take turns.
//!
//! Measured waits are longer than those without a recorder: its events are written under the lock,
//! 200 to 300 ns a block where the block itself takes 27. The times of a hold's own events tell how
//! much, and the check includes it. A virtual CPU that the host takes from a holder makes others
//! wait too; that is not modelled. Where modelled and measured waits are further apart than a
//! factor of two, waits are *not modelled* here, and no saving is claimed of them.

use serde::Serialize;
use zonal_lab::machine::{Machine, MachineError};
use zonal_trace::{HoldPrices, MachineDescription};

use super::queue::{Queued, copies, queue};
use super::saving::{ModelError, PRICE_FACTOR, Saving, UNMEASURED_FACTOR};
use crate::kernel::KernelMoves;
use crate::run::holds::Hold;
use crate::what_if::{Trialled, WhatIf};

/// The lab's machine whose costs are taken.
const MACHINE: &str = "broadwell-2017-88";
/// Modelled waits hold while they are within this factor of measured ones.
const NEAR: f64 = 2.0;
/// Fewer waits than this are chance.
const FEW: u64 = 20;

/// Costs of a hold.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HoldCost {
    /// The machine they are for.
    pub machine: String,
    /// Each hold, in ns.
    pub hold_ns: f64,
    /// Each block moved in it.
    pub page_ns: f64,
    /// Whether the kernel of the recorded host was timed while it moved blocks.
    pub is_block_measured: bool,
}

/// Modelled waits beside measured ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct WaitCheck {
    /// Measured waits for zone locks; `None`: not recorded.
    pub measured: Option<u64>,
    /// The same, in µs of each second.
    pub measured_us_per_s: Option<f64>,
    /// Waits of the model, with the recorder's events under the lock.
    pub modelled: u64,
    /// The same, in µs of each second.
    pub modelled_us_per_s: f64,
    /// Time of a block with its event, in ns, by the events of the recording.
    pub traced_block_ns: Option<f64>,
    /// Whether the two are so near, or so few, that nothing speaks against the model.
    pub is_modelled: bool,
}

impl WaitCheck {
    /// Whether there are so few waits that chance alone makes the difference.
    pub fn is_few(&self) -> bool {
        self.measured.is_some_and(|measured| measured.max(self.modelled) < FEW)
    }
}

/// Prices for the trials of one recording.
#[derive(Clone, Debug)]
pub(crate) struct Prices {
    /// Of a hold.
    pub(crate) cost: HoldCost,
    /// What the recording says of modelled waits.
    pub(crate) check: WaitCheck,
}

impl Prices {
    /// Prices, and how far the waits of the trial `as_recorded` are from the recording's.
    pub(crate) fn new(cost: HoldCost, what_if: &WhatIf<'_>, as_recorded: &Trialled) -> Prices {
        let seconds = what_if.seconds().max(1e-9);
        let traced_block_ns = what_if.kernel().traced_block_ns.map(|ns| ns as f64);
        let page_ns = cost.page_ns.max(traced_block_ns.unwrap_or(0.0));
        let traced = HoldCost { page_ns, ..cost.clone() };
        let queued = traced.queued(as_recorded, 1);
        let waits = what_if.lock_waits();
        let measured = waits.map(|waits| waits.zones_contended);
        let measured_us_per_s = waits.map(|waits| rounded(waits.zones_us / seconds));
        let modelled_us_per_s = rounded(queued.wait_ns / 1000.0 / seconds);
        let near = (measured.zip(measured_us_per_s))
            .is_none_or(|of_kernel| are_near(of_kernel, (queued.contended, modelled_us_per_s)));
        let check = WaitCheck {
            measured,
            measured_us_per_s,
            modelled: queued.contended,
            modelled_us_per_s,
            traced_block_ns,
            is_modelled: near,
        };
        Prices { cost, check }
    }

    /// Cost of a trial's locks, with each CPU `times` over.
    pub(crate) fn contention(&self, trialled: &Trialled, times: u32, seconds: f64) -> Contention {
        self.cost.contention(trialled, times, seconds)
    }

    /// What a change saves that saves this much in each second, by these prices.
    pub(crate) fn saving(&self, us_per_s: f64, error: ModelError) -> Saving {
        Saving::new(us_per_s, error, self.cost.most())
    }

    /// What a run spends on zone locks in each second, in µs, as far as that is modelled.
    pub(crate) fn spent(&self, contention: &Contention) -> f64 {
        let waits = if self.check.is_modelled { contention.wait_us_per_s } else { 0.0 };
        contention.work_us_per_s + waits
    }
}

/// Whether waits, each with their µs, are within [`NEAR`]; so few that chance alone makes more of a
/// difference always are.
fn are_near((waits, us): (u64, f64), (other_waits, other_us): (u64, f64)) -> bool {
    let few = waits.max(other_waits) < FEW;
    few || us.max(other_us) <= NEAR * us.min(other_us)
}

fn rounded(us: f64) -> f64 {
    (us * 1000.0).round() / 1000.0
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
        HoldCost { hold_ns, page_ns, machine: source, is_block_measured: false }
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
            is_block_measured: prices.is_block_measured,
            machine: prices.source.clone(),
        })
    }

    /// How many times too low they may be.
    pub(super) fn most(&self) -> f64 {
        if self.is_block_measured { PRICE_FACTOR } else { UNMEASURED_FACTOR }
    }

    /// As a recorder keeps them.
    pub fn to_prices(&self) -> HoldPrices {
        let ps = |ns: f64| (ns * 1000.0).round() as u64;
        let (hold_ps, block_ps) = (ps(self.hold_ns), ps(self.page_ns));
        let is_block_measured = self.is_block_measured;
        HoldPrices { source: self.machine.clone(), hold_ps, block_ps, is_block_measured }
    }

    /// Cost of a trial's locks, with each CPU `times` over.
    pub fn contention(&self, trialled: &Trialled, times: u32, seconds: f64) -> Contention {
        let sum = self.queued(trialled, times);
        let per_s = |ns: f64| rounded(ns / 1000.0 / seconds.max(1e-9));
        let percent = |share: f64| (share * 1e6).round() / 1e4;
        Contention {
            busy_percent_max: percent(self.busiest(trialled, times)),
            contended_percent: percent(sum.contended as f64 / (sum.holds as f64).max(1.0)),
            wait_us_per_s: per_s(sum.wait_ns),
            work_us_per_s: per_s(sum.work_ns),
        }
    }

    /// All zones' queues.
    fn queued(&self, trialled: &Trialled, times: u32) -> Queued {
        let mut sum = Queued::default();
        for holds in &trialled.zones {
            let each = |hold: &Hold| self.each_ns(trialled, hold);
            match times {
                1 => sum.add(&queue(holds, each)),
                _ => {
                    let of = (times, trialled.cpus);
                    sum.add(&queue(&copies(holds, of, trialled.span_ns), each));
                }
            }
        }
        sum
    }

    /// The busiest lock's share of time in its busiest bin.
    fn busiest(&self, trialled: &Trialled, times: u32) -> f64 {
        let bin_ns = trialled.bin_ns.max(1);
        let mut busiest = 0.0_f64;
        for holds in &trialled.zones {
            for bin in holds.chunk_by(|a, b| a.time_ns / bin_ns == b.time_ns / bin_ns) {
                let ns = |hold: &Hold| f64::from(hold.holds) * self.each_ns(trialled, hold);
                let busy = bin.iter().map(ns).sum::<f64>() * f64::from(times) / bin_ns as f64;
                busiest = busiest.max(busy.min(1.0));
            }
        }
        busiest
    }

    /// How long each hold of a step takes.
    fn each_ns(&self, trialled: &Trialled, hold: &Hold) -> f64 {
        let blocks = f64::from(hold.list_pages) * trialled.blocks_per_page + f64::from(hold.direct);
        self.hold_ns + self.page_ns * blocks / f64::from(hold.holds.max(1))
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

    /// Holds of each of two CPUs, both at the same moments, 10 µs apart.
    fn trialled(times: u64, list_pages: u32) -> Trialled {
        let hold =
            |at: u64, cpu: u32| Hold { time_ns: at * 10_000, cpu, holds: 1, list_pages, direct: 0 };
        Trialled {
            bin_ns: 100_000_000,
            span_ns: (0, 100_000_000),
            zones: vec![(0..times).flat_map(|at| [hold(at, 0), hold(at, 1)]).collect()],
            cpus: 2,
            blocks_per_page: 1.0,
            ..Trialled::default()
        }
    }

    const COST: f64 = 1000.0;

    fn cost() -> HoldCost {
        HoldCost {
            machine: "test".to_owned(),
            hold_ns: COST,
            page_ns: 10.0,
            is_block_measured: false,
        }
    }

    #[test]
    fn a_recording_has_the_prices_of_its_host() {
        let lab = HoldCost::of_lab().unwrap();
        let own = HoldCost {
            hold_ns: 123.4,
            page_ns: 5.25,
            machine: "measured".to_owned(),
            is_block_measured: true,
        };
        let mut description = MachineDescription::default();
        assert_eq!(HoldCost::of_recording(&description).unwrap().hold_ns, lab.hold_ns);
        description.prices = Some(own.to_prices());
        let read = HoldCost::of_recording(&description).unwrap();
        assert_eq!(read, own);
    }

    #[test]
    fn waits_hold_while_they_are_near_or_few() {
        assert!(are_near((100, 50.0), (70, 99.0)));
        assert!(!are_near((100, 50.0), (70, 101.0)));
        assert!(!are_near((100, 50.0), (70, 24.0)));
        assert!(!are_near((0, 0.0), (70, 24.0)), "nobody waited, and the model says many did");
        assert!(are_near((1, 50.0), (19, 0.5)), "a single long wait says nothing");
    }

    #[test]
    fn few_waits_are_chance_where_they_were_measured() {
        let of = |measured, modelled| WaitCheck { measured, modelled, ..WaitCheck::default() };
        assert!(of(Some(0), 1).is_few() && of(Some(19), 0).is_few());
        assert!(!of(Some(0), 20).is_few() && !of(None, 1).is_few());
    }

    #[test]
    fn waits_that_are_not_modelled_are_no_saving() {
        let contention =
            Contention { wait_us_per_s: 5.0, work_us_per_s: 2.0, ..Contention::default() };
        let prices = |is_modelled| Prices {
            cost: cost(),
            check: WaitCheck { is_modelled, ..WaitCheck::default() },
        };
        assert_eq!(prices(true).spent(&contention), 7.0);
        assert_eq!(prices(false).spent(&contention), 2.0);
    }

    #[test]
    fn holds_at_one_moment_wait_and_holds_of_one_cpu_do_not() {
        // 50 pairs of holds of 1000 + 10 * 100 ns.
        let two = cost().contention(&trialled(50, 100), 1, 0.1);
        assert_eq!(two.contended_percent, 50.0);
        assert_eq!((two.wait_us_per_s, two.work_us_per_s), (1000.0, 2000.0));
        assert_eq!(two.busy_percent_max, 0.2);
        let mut one = trialled(50, 100);
        one.zones[0].retain(|hold| hold.cpu == 0);
        let one = cost().contention(&one, 1, 0.1);
        assert_eq!((one.contended_percent, one.wait_us_per_s), (0.0, 0.0));
        assert!(one.busy_percent_max > 0.0);
    }

    #[test]
    fn more_cpus_wait_longer() {
        let load = trialled(5000, 100);
        let (few, many) = (cost().contention(&load, 1, 0.1), cost().contention(&load, 4, 0.1));
        assert!(many.wait_us_per_s > 4.0 * few.wait_us_per_s, "{few:?} {many:?}");
        assert_eq!(many.work_us_per_s, 4.0 * few.work_us_per_s);
    }
}
