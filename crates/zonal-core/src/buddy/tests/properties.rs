//! Random programs on zones of a few pageblocks: unaligned starts, holes, mixed types.

use std::ops::Range;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::{Pair, order, request};
use crate::buddy::{Fallback, FallbackPolicy, FallbackRule, HighAtomicLimit, TakeRequest};
use crate::types::Choice;
use crate::types::Migratetype::{self, HighAtomic, Movable, Reclaimable, Unmovable};

/// One step. `FreeMany` frees `n` held blocks from `pick` on, every `step`th; `FreeBadly` frees
/// what is not held like that.
#[derive(Clone, Debug)]
enum Op {
    Take { request: TakeRequest },
    Bulk { request: TakeRequest, n: u32 },
    TakeReserved { order: u32 },
    Free { pick: usize, to_tail: bool },
    FreeMany { pick: usize, n: usize, step: usize },
    FreeBadly { offset: u32, order: u32 },
    Reserve { pick: usize, managed: u64 },
    Unreserve { mt: Migratetype, force: bool },
    Isolate { block: usize },
    Unisolate { block: usize, to: Migratetype },
}

fn mts() -> impl Strategy<Value = Migratetype> {
    prop::sample::select(vec![Unmovable, Movable, Reclaimable])
}

fn orders() -> BoxedStrategy<u32> {
    prop_oneof![6 => 0..4u32, 3 => 4..9u32, 1 => 9..11u32].boxed()
}

fn requests() -> BoxedStrategy<TakeRequest> {
    (orders(), mts(), prop::bool::weighted(0.2))
        .prop_map(|(o, mt, nofragment)| TakeRequest { order: order(o), mt, nofragment })
        .boxed()
}

fn ops() -> BoxedStrategy<Op> {
    let managed = prop::sample::select(vec![51_199u64, 51_200, 102_400, 1 << 20]);
    prop_oneof![
        6 => requests().prop_map(|request| Op::Take { request }),
        6 => (requests(), 1..400u32).prop_map(|(request, n)| Op::Bulk { request, n }),
        1 => (0..4u32).prop_map(|order| Op::TakeReserved { order }),
        6 => (any::<usize>(), any::<bool>()).prop_map(|(pick, to_tail)| Op::Free { pick, to_tail }),
        6 => (any::<usize>(), 1..400usize, 1..4usize)
            .prop_map(|(pick, n, step)| Op::FreeMany { pick, n, step }),
        1 => (0..3000u32, 0..11u32).prop_map(|(offset, order)| Op::FreeBadly { offset, order }),
        1 => (any::<usize>(), managed).prop_map(|(pick, managed)| Op::Reserve { pick, managed }),
        1 => (mts(), any::<bool>()).prop_map(|(mt, force)| Op::Unreserve { mt, force }),
        1 => (0..6usize).prop_map(|block| Op::Isolate { block }),
        1 => (0..6usize, mts()).prop_map(|(block, to)| Op::Unisolate { block, to }),
    ]
    .boxed()
}

/// A zone: start, pages, pageblock types, seeded ranges.
type AnyZone = (u64, u64, Vec<Migratetype>, Vec<Range<u32>>);

fn zones() -> BoxedStrategy<AnyZone> {
    let starts = prop::sample::select(vec![0u64, 1, 511, 512, 1536, 4096, (1 << 34) + 1023]);
    let types = prop_oneof![
        2 => Just(vec![Movable]),
        1 => Just(vec![Unmovable]),
        2 => prop::collection::vec(mts(), 6),
    ];
    let holes = prop::collection::vec((0..2600u32, 1..300u32), 0..3);
    (starts, 600..2600u64, types, holes)
        .prop_map(|(start, pages, types, mut holes)| {
            holes.sort();
            let (mut seeds, mut at) = (vec![], 0);
            for (from, len) in holes {
                let from = from.clamp(at, pages as u32);
                seeds.push(at..from);
                at = (from + len).min(pages as u32);
            }
            seeds.push(at..pages as u32);
            (start, pages, types, seeds)
        })
        .boxed()
}

fn policies() -> impl Strategy<Value = FallbackPolicy> {
    let rules: Vec<FallbackRule> = FallbackRule::ALL.iter().map(|(_, rule)| *rule).collect();
    (prop::sample::select(rules), prop::bool::weighted(0.9))
        .prop_map(|(rule, mobility_grouping)| FallbackPolicy { rule, mobility_grouping })
}

fn held_at(pair: &Pair, pick: usize) -> Option<u64> {
    let held = &pair.model.held;
    held.keys().nth(pick.checked_rem(held.len())?).copied()
}

fn apply(pair: &mut Pair, seeds: &[Range<u32>], op: Op) {
    let start = pair.model.start;
    let block_pfn = |pair: &Pair, block: usize| {
        let pfn = (start / 512 + block as u64) * 512;
        (pfn >= start && pfn < pair.model.end).then_some(pfn)
    };
    match op {
        Op::Take { request } => drop(pair.take(request, None)),
        Op::Bulk { request, n } => drop(pair.take(request, Some(n))),
        Op::TakeReserved { order } => drop(pair.take_smallest(request(order, HighAtomic))),
        Op::Free { pick, to_tail } => {
            if let Some(pfn) = held_at(pair, pick) {
                pair.free(pfn, to_tail);
            }
        }
        Op::FreeMany { pick, n, step } => {
            let Some(first) = held_at(pair, pick) else { return };
            let picked = pair.model.held.range(first..).step_by(step).take(n);
            let picked: Vec<u64> = picked.map(|(&pfn, _)| pfn).collect();
            for pfn in picked {
                let o = pair.model.held[&pfn].0;
                pair.model.free_block(pfn, o, Default::default());
                pair.try_free(pfn, o, false).unwrap();
            }
            pair.compare();
        }
        Op::FreeBadly { offset, order } => {
            let pfn = start + offset as u64;
            let memory = seeds.iter().any(|seed| seed.contains(&offset));
            let good = pair.model.held.get(&pfn).is_some_and(|held| held.0 == order);
            if pfn >= pair.model.end || (memory && !good) {
                pair.try_free(pfn, order, false).unwrap_err();
                pair.compare();
            }
        }
        Op::Reserve { pick, managed } => {
            if let Some(pfn) = held_at(pair, pick) {
                pair.reserve(pfn, managed);
            }
        }
        Op::Unreserve { mt, force } => drop(pair.unreserve(mt, force)),
        Op::Isolate { block } => {
            if let Some(pfn) = block_pfn(pair, block) {
                pair.isolate(pfn);
            }
        }
        Op::Unisolate { block, to } => {
            if let Some(pfn) = block_pfn(pair, block) {
                pair.unisolate(pfn, to);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    /// Same pages, same events, same lists in the same order, after every operation.
    #[test]
    fn a_random_program_matches_the_model(
        (start, pages, types, seeds) in zones(),
        policy in policies(),
        old_limit: bool,
        program in prop::collection::vec(ops(), 1..40),
    ) {
        let mut pair = Pair::new(start, pages, &types, &seeds);
        pair.policy = policy;
        if old_limit {
            pair.limit = HighAtomicLimit::PlusBlock;
        }
        for op in program {
            apply(&mut pair, &seeds, op);
        }
        // Everything comes back, and what can merge has merged.
        let held: Vec<u64> = pair.model.held.keys().copied().collect();
        for pfn in held {
            let o = pair.model.held[&pfn].0;
            pair.model.free_block(pfn, o, Default::default());
            pair.try_free(pfn, o, false).unwrap();
        }
        pair.compare();
        let memory: u64 = seeds.iter().map(|seed| seed.len() as u64).sum();
        let buddy = &pair.zone.buddy;
        prop_assert_eq!(buddy.free_pages() + buddy.free_isolate(), memory);
    }

    /// A batch without a steal is exactly its single takes: pages, events, lists, words.
    #[test]
    fn a_batch_is_the_same_as_single_takes(
        (start, pages, types, seeds) in zones(),
        program in prop::collection::vec(ops(), 0..12),
        request in requests(),
        n in 1..2000u32,
    ) {
        let mut pair = Pair::new(start, pages, &types, &seeds);
        for op in program {
            apply(&mut pair, &seeds, op);
        }
        let policy = FallbackPolicy::DEFAULT;
        let (mut batch, mut single) = (pair.zone.clone(), pair.zone.clone());
        let (mut events, mut got) = (vec![], vec![]);
        let (buddy, frames) = batch.parts();
        let out = |idx| got.push(idx);
        buddy.take_bulk(&frames, request, n, &policy, &mut |event| events.push(event), out);

        let stole = |event: &Fallback| matches!(event, Fallback::Taken(t) if !t.claimed);
        prop_assume!(!events.iter().any(stole));
        let (mut events_1, mut got_1) = (vec![], vec![]);
        let (buddy, frames) = single.parts();
        for _ in 0..n {
            let report = &mut |event| events_1.push(event);
            let Some(idx) = buddy.take(&frames, request, &policy, report) else { break };
            got_1.push(idx);
        }
        // The batch ends at the first failure; so do the single takes. Both saw it.
        prop_assert_eq!(got, got_1);
        prop_assert_eq!(events, events_1);
        prop_assert_eq!(batch.words(), single.words());
        prop_assert_eq!(batch.types(), single.types());
        prop_assert!(batch.buddy == single.buddy);
    }
}
