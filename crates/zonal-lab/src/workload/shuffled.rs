//! The bench's loop `shuffled`: CPUs deal their blocks anew among each other, then each allocates
//! some and frees them in the same order, as often as it is told, and from the beginning again.
//! Wherever an allocator leaves a page with the CPU that freed it, neighbours are then on different
//! CPUs. Contents of pages come from other caches then; lines of page words, which the lab does not
//! have, would too.

use zonal_core::types::{Order, Pfn};

use super::kind::{Kind, LINES, ORDER, Param, order};
use crate::cost::contents::Access;
use crate::provenance::Provenance;
use crate::sim::Lab;
use crate::sim::{Program, Turn};

const AS_BENCH: Provenance = Provenance::estimated("as the bench's loop has it");

pub(super) const KIND: Kind = Kind {
    name: "shuffled",
    about: "CPUs deal blocks anew, then each allocates `hold` of them and frees them, `rounds` \
            times, as the bench's loop `shuffled`",
    params: &[
        Param {
            name: "pages",
            about: "base pages that each CPU takes to be dealt",
            default: 1024,
            min: 0,
            max: 1 << 16,
            from: AS_BENCH,
        },
        Param {
            name: "hold",
            about: "blocks allocated before the first is freed",
            default: 32,
            min: 1,
            max: 1 << 16,
            from: AS_BENCH,
        },
        Param {
            name: "rounds",
            about: "how often, until blocks are dealt anew",
            default: 300,
            min: 1,
            max: 1 << 20,
            from: Provenance::estimated("so that nine calls in ten are not part of the dealing"),
        },
        ORDER,
        LINES,
    ],
    make: |values, cpus| {
        let loops = Loops { hold: values[1] as usize, rounds: values[2] };
        Box::new(Shuffled::new(cpus, values[0], loops, (order(values[3]), values[4])))
    },
};

/// What follows a dealing.
#[derive(Clone, Copy, Debug)]
struct Loops {
    /// Blocks that a CPU allocates before it frees the first.
    hold: usize,
    /// How often it does that.
    rounds: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// So many blocks are left to be taken and dealt.
    Deal(u64),
    /// What it was dealt is freed.
    Free,
    /// So many rounds are left.
    Rounds(u64),
    /// It waits until all others are as far.
    Met,
}

#[derive(Clone, Debug)]
struct Cpu {
    phase: Phase,
    /// What it was dealt; in a round what it holds.
    blocks: Vec<Pfn>,
    /// Of these, freed already in this round.
    freed: usize,
}

/// Blocks that change CPUs, then loops on each CPU.
#[derive(Clone, Debug)]
struct Shuffled {
    cpus: Vec<Cpu>,
    /// CPUs that wait for the others.
    met: usize,
    blocks: u64,
    loops: Loops,
    order: Order,
    lines: u64,
}

impl Shuffled {
    /// For `cpus` CPUs, each of which takes `pages` base pages in blocks to be dealt; `lines` lines
    /// of each block that it allocates afterwards are written.
    fn new(cpus: u32, pages: u64, loops: Loops, (order, lines): (Order, u64)) -> Shuffled {
        let blocks = pages >> order.get();
        let cpu = Cpu { phase: Phase::Deal(blocks), blocks: Vec::new(), freed: 0 };
        Shuffled { cpus: vec![cpu; cpus as usize], met: 0, blocks, loops, order, lines }
    }

    /// A CPU has come to the end of its phase. The last one lets all go on with the next.
    fn meet(&mut self, lab: &mut Lab<'_>, cpu: u32, next: Phase) -> Turn {
        self.cpus[cpu as usize].phase = Phase::Met;
        self.met += 1;
        if self.met < self.cpus.len() {
            return Turn::Wait;
        }
        self.met = 0;
        for (at, other) in (0..).zip(&mut self.cpus) {
            other.phase = next;
            if at != cpu {
                lab.wake(at);
            }
        }
        Turn::More
    }

    /// A call of a round. Whether the round is over.
    fn call(&mut self, lab: &mut Lab<'_>, cpu: u32) -> bool {
        let own = &mut self.cpus[cpu as usize];
        if own.freed == 0
            && own.blocks.len() < self.loops.hold
            && let Some(block) = lab.alloc(self.order)
        {
            lab.touch(block, self.order, self.lines, Access::Write);
            own.blocks.push(block);
            return false;
        }
        // Full, or refused: what there is goes back.
        if let Some(block) = own.blocks.get(own.freed) {
            lab.free(*block, self.order);
            own.freed += 1;
        }
        let is_over = own.freed >= own.blocks.len();
        if is_over {
            own.blocks.clear();
            own.freed = 0;
        }
        is_over
    }
}

impl Program for Shuffled {
    fn keeps_busy(&self) -> bool {
        true
    }

    fn step(&mut self, lab: &mut Lab<'_>, cpu: u32) -> Turn {
        match self.cpus[cpu as usize].phase {
            Phase::Deal(0) => return self.meet(lab, cpu, Phase::Free),
            Phase::Deal(left) => {
                self.cpus[cpu as usize].phase = Phase::Deal(left - 1);
                if let Some(block) = lab.alloc(self.order) {
                    let to = lab.random_below(self.cpus.len() as u64) as usize;
                    self.cpus[to].blocks.push(block);
                }
            }
            Phase::Free => {
                let dealt = self.cpus[cpu as usize].blocks.len() as u64;
                if dealt == 0 {
                    return self.meet(lab, cpu, Phase::Rounds(self.loops.rounds));
                }
                let at = lab.random_below(dealt) as usize;
                let block = self.cpus[cpu as usize].blocks.swap_remove(at);
                lab.free(block, self.order);
            }
            Phase::Rounds(0) => return self.meet(lab, cpu, Phase::Deal(self.blocks)),
            Phase::Rounds(left) => {
                if self.call(lab, cpu) {
                    self.cpus[cpu as usize].phase = Phase::Rounds(left - 1);
                }
            }
            Phase::Met => return Turn::Wait,
        }
        Turn::More
    }
}

#[cfg(test)]
mod tests {
    use zonal_core::policy::Policy;

    use crate::machine::Machine;
    use crate::run::{Figures, Plan};

    #[test]
    fn blocks_dealt_anew_make_cpus_share_lines_that_loops_alone_do_not() {
        let run = |pages: u64| {
            // Two cores of two threads on each node: pages that are freed keep to their node.
            let machine = Machine::named("icelake-2023-128").unwrap().resized(8).unwrap();
            let load = format!("shuffled:pages={pages},rounds=4,lines=1").parse().unwrap();
            let mut plan = Plan::new(machine, Policy::ZONAL, load, 1);
            (plan.warm_us, plan.run_us) = (1000, 1000);
            let outcome = plan.run().unwrap();
            assert_eq!(outcome.get("refused"), Some(0.0));
            outcome
        };
        let (dealt, alone) = (run(64), run(0));
        for figures in [&dealt, &alone] {
            assert!(figures.get("calls").unwrap() > 10_000.0, "all go on: {figures:?}");
        }
        let shared = |figures: &Figures| figures.get("lines_core").unwrap();
        assert!(shared(&dealt) > 100.0 && shared(&alone) < 1.0, "{dealt:?} {alone:?}");
    }
}
