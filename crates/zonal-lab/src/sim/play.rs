//! Lets the CPUs of a lab make their steps: the one whose clock is behind all others goes next.

use sha2::{Digest, Sha256};
use zonal_core::types::CpuId;

use super::lab::Lab;
use super::outcome::{Load, Outcome};
use super::program::{Program, Turn};
use crate::platform::{OwnerLocks, Work};
use crate::stop;
use crate::tape::events::Kind;
use crate::units::hex;

/// Steps between two looks at a request to stop.
const STEPS_UNHEARD: u32 = 256;

impl Lab<'_> {
    /// Lets one CPU make `steps` steps that take no time.
    pub fn warm(&mut self, program: &mut dyn Program, cpu: u32, steps: u64) {
        self.allocator.platform().charge(false);
        self.allocator.platform().turn(cpu, 0);
        for _ in 0..steps {
            program.step(self, cpu);
        }
        self.allocator.platform().charge(true);
    }

    /// A time at which every CPU that has something to do has come to its next step.
    pub fn latest(&self) -> u64 {
        self.turns.each().map(|(clock, _)| clock).max().unwrap_or(0)
    }

    /// The CPUs `0..cpus` start, each at a random time within `apart` cycles from `from` on.
    pub fn start(&mut self, cpus: u32, from: u64, apart: u64) {
        self.turns.clear();
        self.idle.fill(None);
        (self.played, self.beyond) = (from, Vec::new());
        for cpu in 0..cpus {
            let start = from + self.random_below(apart.max(1));
            self.turns.set(cpu, start);
        }
    }

    /// Lets the CPUs that were started make steps until each clock is at `until` cycles or there is
    /// nothing more to do. May be called again with a later time.
    pub fn play(&mut self, program: &mut dyn Program, until: u64) -> Outcome {
        let platform = self.allocator.platform();
        let before = (platform.totals(), platform.waits(), platform.apart());
        let owners_before = self.owner_locks();
        let (count_before, load_before) = (self.count, self.load);
        if program.keeps_busy() {
            self.turns.each().for_each(|(_, cpu)| platform.set_idle(cpu, false));
        }
        let first = self.turns.first().map_or(until, |(clock, _)| clock);
        let mut hash = Sha256::new();
        let (mut cycles, mut last) = (0, first);
        let (from, mut steps) = (self.played, 0_u32);
        let mut busy: u64 =
            self.beyond.iter().map(|end| (*end).min(until).saturating_sub(from)).sum();
        self.beyond.retain(|end| *end > until);
        while let Some((clock, cpu)) = self.turns.first() {
            if clock >= until {
                break;
            }
            if steps.is_multiple_of(STEPS_UNHEARD) {
                stop::check();
            }
            steps = steps.wrapping_add(1);
            let (took, turn) = self.step(program, cpu, clock);
            cycles += took;
            busy += took.min(until - clock);
            let clock = clock + took;
            if clock > until {
                self.beyond.push(clock);
            }
            last = last.max(clock);
            let next = match turn {
                Turn::More => Some(clock),
                Turn::Until(at) => Some(at.max(clock)),
                Turn::Wait | Turn::Done => None,
            };
            if let Some(next) = next {
                self.turns.set(cpu, next);
            } else {
                self.turns.remove(cpu);
                self.idle[cpu as usize] = (turn == Turn::Wait).then_some(clock);
                hash.update(cpu.to_le_bytes());
                hash.update(clock.to_le_bytes());
            }
            while let Some(woken) = self.woken.pop() {
                if let Some(asleep) = self.idle[woken as usize].take() {
                    self.allocator.platform().forgive(woken);
                    self.turns.set(woken, asleep.max(clock));
                }
            }
        }
        self.played = until.max(from);
        let ends: Vec<(u32, u64)> = self.turns.each().map(|(clock, cpu)| (cpu, clock)).collect();
        let (spent, happened) = self.allocator.platform().totals();
        let (spent, happened) = (spent.since(&before.0.0), happened.since(&before.0.1));
        let count = self.count.since(&count_before);
        let load = self.load.since(&load_before);
        let waits = self.allocator.platform().waits().since(&before.1);
        hash.update(format!("{ends:?} {count:?} {spent:?} {happened:?}"));
        // Both follow from the others, but for what a program says of itself.
        if load != Load::default() {
            hash.update(format!("{load:?} {waits:?}"));
        }
        let (hash, work) = (hex(&hash.finalize()), self.work().since(&before.2));
        let (owners, elapsed) = (self.owner_locks().since(&owners_before), last - first);
        Outcome { count, cycles, busy, elapsed, spent, happened, waits, owners, work, load, hash }
    }

    fn work(&self) -> Work {
        self.allocator.platform().apart()
    }

    fn owner_locks(&self) -> OwnerLocks {
        self.allocator.platform().owner_locks()
    }

    /// One step of one CPU: its cycles, and the next action.
    fn step(&mut self, program: &mut dyn Program, cpu: u32, clock: u64) -> (u64, Turn) {
        self.allocator.platform().next_turn(cpu, clock);
        let due = &mut self.refresh_at[cpu as usize];
        if clock >= *due {
            let from = if self.aligned { *due } else { clock };
            *due = from + self.refresh_every;
            self.allocator.platform().set_frees(true);
            let call = self.call();
            self.allocator.refresh(CpuId(cpu));
            self.called(call, cpu, Kind::Refresh);
            self.allocator.platform().set_frees(false);
        }
        let turn = program.step(self, cpu);
        (self.allocator.platform().clock() - clock, turn)
    }
}
