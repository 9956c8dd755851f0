//! The order of the runs.

/// Fewer blocks say nothing: the interval of a mean of four is three times as wide as of ten.
pub const BLOCKS_MIN: usize = 5;

/// Runs of a block: two as it is, one with the setting.
pub(super) const RUNS_OF_BLOCK: usize = 3;

/// How a run is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// With the settings as they are.
    Now,
    /// With the one that is tried.
    Tried,
}

/// Blocks of three runs, two without and one with the setting, each in random order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The blocks.
    pub blocks: Vec<[Arm; RUNS_OF_BLOCK]>,
    /// What the order was drawn from: the same seed gives the same order.
    pub seed: u64,
}

impl Plan {
    /// A plan of this many blocks, at least [`BLOCKS_MIN`]. The first run is always one without
    /// the setting: what hurts is known by it.
    pub fn new(blocks: usize, seed: u64) -> Plan {
        let mut state = seed;
        let mut blocks: Vec<[Arm; RUNS_OF_BLOCK]> = (0..blocks.max(BLOCKS_MIN))
            .map(|_| {
                let mut block = [Arm::Now; RUNS_OF_BLOCK];
                block[(next(&mut state) % RUNS_OF_BLOCK as u64) as usize] = Arm::Tried;
                block
            })
            .collect();
        if blocks[0][0] == Arm::Tried {
            blocks[0].rotate_right(1);
        }
        Plan { blocks, seed }
    }

    /// All runs in their order.
    pub fn runs(&self) -> impl Iterator<Item = Arm> {
        self.blocks.iter().flatten().copied()
    }
}

/// The next number of SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut value = *state;
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_one_run_with_the_setting_at_any_place() {
        let plan = Plan::new(300, 7);
        let mut places = [0; 3];
        for block in &plan.blocks {
            let tried: Vec<usize> = (0..3).filter(|at| block[*at] == Arm::Tried).collect();
            assert_eq!(tried.len(), 1);
            places[tried[0]] += 1;
        }
        assert!(places.iter().all(|count| *count > 70), "{places:?}");
        assert_eq!(plan, Plan::new(300, 7));
        assert_ne!(plan.blocks, Plan::new(300, 8).blocks);
    }

    #[test]
    fn the_first_run_is_one_as_it_is_and_there_are_never_fewer_than_five_blocks() {
        for seed in 0..50 {
            let plan = Plan::new(1, seed);
            assert_eq!((plan.blocks.len(), plan.blocks[0][0]), (BLOCKS_MIN, Arm::Now));
        }
    }
}
