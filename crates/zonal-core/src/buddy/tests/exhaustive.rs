//! Every sequence of operations up to a depth, on zones of 8 to 16 pages.

use std::collections::HashMap;
use std::vec::Vec;

use super::{Pair, request};
use crate::types::Migratetype::{Movable, Unmovable};

/// Deepest search already made from a state, by the zone's words (which hold the list links too).
type Seen = HashMap<Vec<u64>, u32>;

/// Tries everything from here; returns the number of distinct states visited.
fn explore(pair: &Pair, depth: u32, seen: &mut Seen) {
    refuse_all_bad_frees(pair);
    if depth == 0 {
        return;
    }
    if seen.get(&pair.zone.words()).is_some_and(|&deepest| deepest >= depth) {
        return;
    }
    seen.insert(pair.zone.words(), depth);
    let step = |act: &dyn Fn(&mut Pair)| {
        let mut next = pair.clone();
        act(&mut next);
        next
    };
    let mut nexts = Vec::new();
    for o in 0..=3 {
        nexts.push(step(&|pair| drop(pair.take(request(o, Movable), None))));
    }
    nexts.push(step(&|pair| drop(pair.take(request(0, Unmovable), None))));
    nexts.push(step(&|pair| drop(pair.take(request(0, Movable), Some(3)))));
    for &pfn in pair.model.held.keys() {
        nexts.push(step(&|pair| pair.free(pfn, false)));
    }
    for next in nexts {
        explore(&next, depth - 1, seen);
    }
}

/// Every free that does not name a held block exactly must change nothing.
fn refuse_all_bad_frees(pair: &Pair) {
    let mut copy = pair.clone();
    let before = pair.zone.words();
    for pfn in pair.model.start.saturating_sub(2)..pair.model.end + 2 {
        for o in 0..=4 {
            let good = pair.model.held.get(&pfn).is_some_and(|held| held.0 == o);
            if !good {
                let error = copy.try_free(pfn, o, false).unwrap_err();
                assert_eq!(error.order.get(), o);
            }
        }
    }
    assert_eq!(copy.zone.words(), before);
    assert!(copy.zone.buddy == pair.zone.buddy);
}

fn search(start: u64, pages: u64, depth: u32) -> usize {
    let whole = 0..pages as u32;
    let mut seen = Seen::new();
    explore(&Pair::new(start, pages, &[Movable], &[whole]), depth, &mut seen);
    seen.len()
}

#[test]
fn every_short_program_on_eight_aligned_pages_matches_the_model() {
    assert!(search(8, 8, 6) > 100);
}

#[test]
fn every_short_program_on_pages_that_start_at_pfn_1_matches_the_model() {
    assert!(search(1, 11, 5) > 100);
}

#[test]
fn every_short_program_across_a_pageblock_boundary_matches_the_model() {
    assert!(search(506, 12, 4) > 100);
}

#[test]
fn every_short_program_on_sixteen_pages_matches_the_model() {
    assert!(search(1024, 16, 4) > 100);
}
