//! The edge of memory, with sequences and under locks. A sequence takes what is on its list and
//! asks no watermark, so the two choose other pages there, and mixed sizes then fragment in other
//! ways. But neither refuses what it has: programs of one size get the same answers, and what was
//! refused in one of them only is refused once more when all lists are empty.

mod support;

use support::{Rng, free, order, pool};
use zonal::sys::affinity::{Pinned, allowed_cpus};
use zonal::{Gfp, Mode, Order, Pool};

const MIB: usize = 1 << 20;

/// What became of one program: requests that were refused, and those that one of the two granted.
#[derive(Debug, Default)]
struct Outcome {
    refused: u32,
    differ: u32,
}

/// The same random calls to a pool with sequences and one under locks.
fn run(pools: &[Pool; 2], orders: &[u32], gfp: Gfp, seed: u64) -> Outcome {
    let mut held: [Vec<(usize, Order)>; 2] = Default::default();
    let (mut rng, mut outcome) = (Rng::new(seed), Outcome::default());
    for step in 0..20_000 {
        let frees = if step / 1_500 % 2 == 0 { 4 } else { 10 };
        if rng.below(16) < frees && !held[0].is_empty() {
            let at = rng.below(held[0].len());
            for (pool, held) in pools.iter().zip(&mut held) {
                let (block, order) = held.swap_remove(at);
                free(pool, block, order).unwrap();
            }
            continue;
        }
        let order = order(orders[rng.below(orders.len())]);
        let take = |pool: &Pool| pool.alloc_pages(order, gfp).ok().map(|b| b.as_ptr() as usize);
        match pools.each_ref().map(take) {
            [Some(one), Some(other)] => {
                held[0].push((one, order));
                held[1].push((other, order));
            }
            [None, None] => outcome.refused += 1,
            got => {
                (outcome.refused, outcome.differ) = (outcome.refused + 1, outcome.differ + 1);
                for (pool, got) in pools.iter().zip(got) {
                    match got {
                        Some(block) => free(pool, block, order).unwrap(),
                        None => {
                            pool.drain_all();
                            assert_eq!(take(pool), None, "{order:?}, step {step}: was refused");
                        }
                    }
                }
            }
        }
    }
    for (pool, held) in pools.iter().zip(held) {
        held.into_iter().for_each(|(block, order)| free(pool, block, order).unwrap());
        pool.validate().unwrap();
    }
    outcome
}

#[test]
fn neither_mode_refuses_what_it_has() {
    let _pinned = Pinned::to(allowed_cpus().unwrap()[0]).unwrap();
    for (seed, gfp) in [(7, Gfp::KERNEL), (8, Gfp::NOWAIT), (9, Gfp::ATOMIC)] {
        for orders in [&[0][..], &[3], &[0, 0, 0, 1, 2, 3], &[0, 0, 0, 0, 1, 1, 2, 3, 4, 9]] {
            let pools = [true, false].map(|rseq| pool(8 * MIB, rseq));
            if *pools[0].mode() != Mode::Rseq {
                return eprintln!("note: SKIPPED: there are no restartable sequences here");
            }
            let outcome = run(&pools, orders, gfp, seed);
            assert!(outcome.refused > 0, "{gfp:?} {orders:?}: never at the edge");
            assert!(outcome.differ == 0 || orders.len() > 1, "{gfp:?} {orders:?}: {outcome:?}");
        }
    }
}
