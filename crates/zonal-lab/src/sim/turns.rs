//! Whose turn it is: the CPU whose clock is behind all others.
//!
//! A tournament. Each CPU that has something to do stands at its leaf, and each node above has the
//! earlier one of the two below it. A CPU's way up is always the same, so no comparison has to end
//! before the next place is known, as it must in a heap.
//!
//! - **TURN-1** a node has the earlier one of its two children.

use crate::machine::CPUS_MAX;

/// Bits of a CPU's number.
const CPU_BITS: u32 = CPUS_MAX.ilog2();
const _: () = assert!(CPUS_MAX.is_power_of_two());
/// Nodes of the largest tournament: indices are cut to them, so that none has to be checked.
const NODES_MAX: usize = 2 * CPUS_MAX as usize;

/// Nobody: later than everybody.
const NOBODY: Turn = Turn(u64::MAX);

/// A CPU's next step. The earliest is the least, and of those of one time that of the first CPU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Turn(u64);

impl Turn {
    /// One number, so that two are compared at once.
    ///
    /// # Panics
    /// If the clock is beyond 2^52 cycles, ten days at 5 GHz.
    #[inline]
    fn at(clock: u64, cpu: u32) -> Turn {
        assert!(clock >> (u64::BITS - CPU_BITS) == 0, "a run of {clock} cycles is too long");
        Turn(clock << CPU_BITS | u64::from(cpu))
    }
    #[inline]
    fn read(self) -> Option<(u64, u32)> {
        let cpu = self.0 as u32 & (CPUS_MAX - 1);
        (self != NOBODY).then_some((self.0 >> CPU_BITS, cpu))
    }
}

/// The CPUs that have something to do, by their clocks.
#[derive(Debug)]
pub(super) struct Turns {
    /// From the root at 1 on; from `leaves` on the CPUs' leaves.
    nodes: Box<[Turn; NODES_MAX]>,
    leaves: usize,
}

impl Turns {
    /// Nobody of `cpus` CPUs has anything to do.
    ///
    /// # Panics
    /// If there are more than [`CPUS_MAX`].
    pub fn new(cpus: u32) -> Turns {
        let leaves = (cpus.max(1) as usize).next_power_of_two();
        assert!(leaves <= CPUS_MAX as usize, "{cpus} CPUs; at most {CPUS_MAX}");
        Turns { nodes: Box::new([NOBODY; NODES_MAX]), leaves }
    }

    /// The clock and the number of the CPU whose turn it is.
    #[inline]
    pub fn first(&self) -> Option<(u64, u32)> {
        self.nodes[1].read()
    }

    /// The CPU's next step is at this time.
    #[inline]
    pub fn set(&mut self, cpu: u32, clock: u64) {
        self.stand(cpu, Turn::at(clock, cpu));
    }

    /// The CPU has nothing to do.
    #[inline]
    pub fn remove(&mut self, cpu: u32) {
        self.stand(cpu, NOBODY);
    }

    /// No CPU has anything to do.
    pub fn clear(&mut self) {
        self.nodes.fill(NOBODY);
    }

    /// Clock and number of each CPU that has something to do, by its number.
    pub fn each(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.nodes[self.leaves..2 * self.leaves].iter().filter_map(|turn| turn.read())
    }

    /// Keeps TURN-1.
    #[inline]
    fn stand(&mut self, cpu: u32, turn: Turn) {
        let mut at = self.leaves + cpu as usize;
        self.nodes[at % NODES_MAX] = turn;
        let mut first = turn;
        while at > 1 {
            first = first.min(self.nodes[(at ^ 1) % NODES_MAX]);
            at /= 2;
            self.nodes[at % NODES_MAX] = first;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand_core::{Rng, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    #[test]
    fn the_first_one_is_that_of_a_sorted_set() {
        for cpus in [1, 2, 3, 64, 100] {
            let (mut turns, mut sorted) = (Turns::new(cpus), BTreeSet::new());
            let mut random = Pcg64Mcg::seed_from_u64(cpus.into());
            let mut below = |end: u64| random.next_u64() % end;
            for _ in 0..5000 {
                let cpu = below(cpus.into()) as u32;
                sorted.retain(|(_, other)| *other != cpu);
                match below(3) {
                    0 => turns.remove(cpu),
                    _ => {
                        let clock = below(50);
                        sorted.insert((clock, cpu));
                        turns.set(cpu, clock);
                    }
                }
                assert_eq!(turns.first(), sorted.first().copied());
            }
            let mut by_number: Vec<(u64, u32)> = sorted.into_iter().collect();
            by_number.sort_unstable_by_key(|(_, cpu)| *cpu);
            assert_eq!(turns.each().collect::<Vec<_>>(), by_number);
            turns.clear();
            assert_eq!(turns.first(), None);
        }
    }
}
