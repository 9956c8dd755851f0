//! What each way to update a delta loses to interrupts on the same CPU, found by trying every
//! interleaving of its steps (LB F.5).
//!
//! An interrupt is an update that begins between two steps of another one and ends before that one
//! goes on. Shared counters are added to in one step everywhere, as a locked addition does.

extern crate std;
use std::collections::{BTreeSet, HashSet};
use std::vec::Vec;

use crate::vmstat::variant::Update;

/// A CPU's byte, the shared counter, and the updates that have begun and not ended, innermost last.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Cpu {
    diff: i8,
    shared: i64,
    running: Vec<Step>,
    begun: usize,
}

/// Progress of an update, with its registers.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Step {
    Start,
    Loaded(i8),
    Incremented,
    MustFold,
    Fold(i64),
    FoldThenStore(i64, i8),
    Store(i8),
}

/// The next step of one increment. `None`: it has ended.
fn step(how: Update, threshold: i8, cpu: &mut Cpu, at: Step) -> Option<Step> {
    let overstep = threshold / 2;
    match (how, at) {
        // Masked: nothing comes between.
        (Update::Irq, _) => {
            let (diff, fold) =
                crate::vmstat::threshold::fold_inc(cpu.diff.into(), threshold.into());
            cpu.diff = diff as i8;
            cpu.shared += fold;
            None
        }
        (_, Step::Fold(pages)) => {
            cpu.shared += pages;
            None
        }
        (Update::PreemptOnly | Update::CmpxchgSigned, Step::Start) => Some(Step::Loaded(cpu.diff)),
        (Update::PreemptOnly, Step::Loaded(old)) => Some(if old + 1 > threshold {
            Step::FoldThenStore(i64::from(old) + 1 + i64::from(overstep), -overstep)
        } else {
            Step::Store(old + 1)
        }),
        (_, Step::FoldThenStore(pages, diff)) => {
            cpu.shared += pages;
            Some(Step::Store(diff))
        }
        (_, Step::Store(diff)) => {
            cpu.diff = diff;
            None
        }
        // One compare-and-exchange: all of it, or back to the load.
        (Update::CmpxchgSigned, Step::Loaded(old)) => {
            if cpu.diff != old {
                return Some(Step::Start);
            }
            let folds = old + 1 > threshold;
            cpu.diff = if folds { -overstep } else { old + 1 };
            folds.then(|| Step::Fold(i64::from(old) + 1 + i64::from(overstep)))
        }
        (Update::LocalIncIntended, Step::Start) => {
            cpu.diff = cpu.diff.wrapping_add(1);
            Some(Step::Incremented)
        }
        (Update::LocalIncIntended, Step::Incremented) => {
            (cpu.diff >= threshold).then_some(Step::MustFold)
        }
        (Update::LocalIncIntended, Step::MustFold) => {
            let old = core::mem::replace(&mut cpu.diff, -overstep);
            Some(Step::Fold(i64::from(old) + i64::from(overstep)))
        }
        _ => unreachable!("not a step of {how:?}"),
    }
}

/// Every error that `updates` increments can produce, with at most `depth` of them nested.
fn errors(how: Update, threshold: i8, start: i8, updates: usize, depth: usize) -> BTreeSet<i64> {
    let first = Cpu { diff: start, shared: 0, running: Vec::new(), begun: 0 };
    let mut seen = HashSet::from([first.clone()]);
    let mut open = Vec::from([first]);
    let mut errors = BTreeSet::new();
    while let Some(cpu) = open.pop() {
        if cpu.running.is_empty() && cpu.begun == updates {
            let sum = i64::from(cpu.diff) + cpu.shared;
            errors.insert(sum - i64::from(start) - updates as i64);
            continue;
        }
        let mut go = |next: Cpu| {
            if seen.insert(next.clone()) {
                open.push(next);
            }
        };
        if cpu.begun < updates && cpu.running.len() < depth {
            let mut next = cpu.clone();
            next.running.push(Step::Start);
            next.begun += 1;
            go(next);
        }
        if let Some(at) = cpu.running.last() {
            let mut next = cpu.clone();
            next.running.pop();
            let after = step(how, threshold, &mut next, *at);
            next.running.extend(after);
            go(next);
        }
    }
    errors
}

const EXACT: [i64; 1] = [0];

#[test]
fn masked_and_exchanged_updates_lose_nothing_to_interrupts() {
    for how in [Update::Irq, Update::CmpxchgSigned] {
        for (threshold, start) in [(4, 0), (4, 4), (4, -2), (125, 123), (125, 125)] {
            let errors = errors(how, threshold, start, 5, 5);
            assert!(errors.iter().eq(&EXACT), "{how:?} {threshold} {start}: {errors:?}");
        }
    }
}

#[test]
fn with_preemption_off_alone_an_interrupt_inside_an_update_is_lost() {
    let found = errors(Update::PreemptOnly, 32, 0, 2, 2);
    assert!(found.iter().eq(&[-1, 0]), "{found:?}");
    let found = errors(Update::PreemptOnly, 32, 0, 4, 4);
    assert!(found.iter().eq(&[-3, -2, -1, 0]), "{found:?}");
    // Around a fold the interrupted update stores what it computed before: more is lost, or, when
    // both fold, counted twice.
    let found = errors(Update::PreemptOnly, 32, 32, 2, 2);
    assert!(found.iter().any(|error| error.abs() > 1), "{found:?}");
    let found = errors(Update::PreemptOnly, 32, 0, 4, 1);
    assert!(found.iter().eq(&EXACT), "one after the other is right: {found:?}");
}

#[test]
fn a_local_increment_loses_256_to_interrupts_nested_deeply_enough() {
    // From one below the threshold, the byte wraps with the increment that takes it to 128.
    for threshold in 120..=125i8 {
        let deep = 128 - (threshold as usize - 1);
        let shallow = errors(Update::LocalIncIntended, threshold, threshold - 1, deep, deep - 1);
        assert!(shallow.iter().eq(&EXACT), "{threshold}, {} deep: {shallow:?}", deep - 1);
        let found = errors(Update::LocalIncIntended, threshold, threshold - 1, deep, deep);
        assert!(found.iter().eq(&[-256, 0]), "{threshold}, {deep} deep: {found:?}");
    }
}

#[test]
fn at_a_threshold_of_32_it_takes_97_nested_interrupts() {
    // One schedule of the many: each update is interrupted before it compares.
    let nested = |updates: usize| {
        let mut cpu = Cpu { diff: 31, shared: 0, running: Vec::new(), begun: 0 };
        let how = Update::LocalIncIntended;
        for _ in 0..updates {
            let at = step(how, 32, &mut cpu, Step::Start);
            cpu.running.extend(at);
        }
        while let Some(mut at) = cpu.running.pop() {
            while let Some(next) = step(how, 32, &mut cpu, at) {
                at = next;
            }
        }
        i64::from(cpu.diff) + cpu.shared - 31 - updates as i64
    };
    assert_eq!((nested(96), nested(97)), (0, -256));
}
