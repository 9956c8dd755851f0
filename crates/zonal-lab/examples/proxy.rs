//! A load of your own: a proxy. Each even CPU receives requests into blocks of order 3 and hands
//! them to the CPU beside it, which reads them, works and frees them. Simulated.
//!
//! ```text
//! cargo run --release -p zonal-lab --example proxy
//! ```

use std::collections::VecDeque;

use zonal_core::policy::Policy;
use zonal_core::types::{Order, Pfn};
use zonal_lab::LabError;
use zonal_lab::cost::contents::Access;
use zonal_lab::machine::Machine;
use zonal_lab::sim::{Lab, Outcome, Program, Spec, Turn};

const BUFFER: Order = Order::COSTLY;
/// Lines of a request: 8 KiB of the buffer's 32.
const LINES: u64 = 128;
/// Most requests between two CPUs.
const BACKLOG: usize = 256;

/// A queue of requests for each pair of CPUs.
struct Proxy {
    queues: Vec<VecDeque<Pfn>>,
}

impl Program for Proxy {
    fn keeps_busy(&self) -> bool {
        true
    }

    fn step(&mut self, lab: &mut Lab<'_>, cpu: u32) -> Turn {
        let Some(queue) = self.queues.get_mut(cpu as usize / 2) else { return Turn::Done };
        if cpu.is_multiple_of(2) {
            if queue.len() == BACKLOG {
                return Turn::Wait;
            }
            let Some(buffer) = lab.alloc(BUFFER) else { return Turn::More };
            lab.kernel_ns(800);
            lab.touch(buffer, BUFFER, LINES, Access::Write);
            queue.push_back(buffer);
        } else {
            let Some(buffer) = queue.pop_front() else { return Turn::Wait };
            lab.user_touch(buffer, BUFFER, LINES, Access::Read);
            lab.user_ns(500);
            lab.free(buffer, BUFFER);
        }
        lab.wake(cpu ^ 1);
        Turn::More
    }
}

/// Two milliseconds of the proxy, after two that are not counted.
fn proxy(machine: &str, policy: &str) -> Result<Outcome, LabError> {
    let machine = Machine::named(machine)?;
    let policy = Policy::preset(policy).expect("a preset");
    let (cpus, ms) = (machine.cpus(), (machine.ghz * 1e6) as u64);
    Spec { machine, policy, seed: 1 }.run(|lab| {
        let mut proxy = Proxy { queues: vec![VecDeque::new(); cpus as usize / 2] };
        lab.start(cpus, 0, ms / 100);
        lab.play(&mut proxy, 2 * ms);
        Ok(lab.play(&mut proxy, 4 * ms))
    })
}

fn main() -> Result<(), LabError> {
    for policy in ["linux-6.18", "zonal"] {
        let outcome = proxy("icelake-2023-128@16", policy)?;
        println!(
            "{policy:<10} {} requests, {:.1} % of the busy cycles wait for zone locks",
            outcome.count.frees,
            100.0 * outcome.spent.lock_waits as f64 / outcome.busy.max(1) as f64,
        );
    }
    Ok(())
}

#[test]
fn the_proxy_plays_the_same_twice_and_serves_requests() {
    let run = || proxy("icelake-2023-128@2", "zonal").unwrap();
    let (one, other) = (run(), run());
    assert!(one.count.frees > 100, "{:?}", one.count);
    assert_eq!((one.hash, one.count.frees), (other.hash, other.count.frees));
}
