//! What each way to count loses, found by trying every interleaving of its steps: to interrupts on
//! the same CPU (LB F.5), and to a reader on another (LB F.7).
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

/// Where an update stands, with what it holds in registers.
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
            let (diff, fold) = super::threshold::fold_inc(cpu.diff.into(), threshold.into());
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

/// Every sum that `updates` increments can lead to, less what it should be, with at most `depth` of
/// them inside one another.
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

/// How the owner of a word adds to it, and how others read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Word {
    /// 5.14: a load and a store; readers exchange the word for 0 and keep what they got.
    UnlockedFold,
    /// A locked addition; readers exchange.
    LockedFold,
    /// A load and a store; readers load, and nobody else writes. As the hot word's pops.
    ReadOnly,
}

/// An owner and a reader of a word.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
struct Shared {
    word: i64,
    folded: i64,
    /// What the owner has loaded.
    loaded: Option<i64>,
    added: i64,
    reads: usize,
    /// What the reader has taken and not yet added.
    taken: Option<i64>,
}

/// Every error of the sum after all of it, in every interleaving of `adds` additions and `reads`
/// reads; and whether some read of the last kind saw another number than had been added.
fn reader_errors(how: Word, adds: i64, reads: usize) -> (BTreeSet<i64>, bool) {
    let mut seen = HashSet::from([Shared::default()]);
    let mut open = Vec::from([Shared::default()]);
    let (mut errors, mut misread) = (BTreeSet::new(), false);
    while let Some(now) = open.pop() {
        let mut next = Vec::new();
        if now.added < adds {
            let loaded = now.loaded.filter(|_| how != Word::LockedFold);
            next.push(match (how, loaded) {
                (Word::LockedFold, _) => {
                    Shared { word: now.word + 1, added: now.added + 1, ..now.clone() }
                }
                (_, None) => Shared { loaded: Some(now.word), ..now.clone() },
                (_, Some(old)) => {
                    Shared { word: old + 1, added: now.added + 1, loaded: None, ..now.clone() }
                }
            });
        }
        if let Some(taken) = now.taken {
            next.push(Shared { folded: now.folded + taken, taken: None, ..now.clone() });
        } else if now.reads < reads {
            let reads = now.reads + 1;
            next.push(if how == Word::ReadOnly {
                misread |= now.word != now.added;
                Shared { reads, ..now.clone() }
            } else {
                Shared { taken: Some(now.word), word: 0, reads, ..now.clone() }
            });
        }
        if next.is_empty() {
            errors.insert(now.word + now.folded - adds);
        }
        open.extend(next.into_iter().filter(|next| seen.insert(next.clone())));
    }
    (errors, misread)
}

#[test]
fn a_reader_that_takes_a_word_while_its_owner_adds_counts_it_twice() {
    // LB F.7, 5.14 on: the store puts back what the reader has just taken, be it 3 or 3 million.
    let (errors, _) = reader_errors(Word::UnlockedFold, 4, 1);
    assert!(errors.iter().eq(&[0, 1, 2, 3]), "{errors:?}");
    let (errors, _) = reader_errors(Word::UnlockedFold, 4, 2);
    assert!(errors.iter().any(|error| *error > 3), "and more often than once: {errors:?}");
}

#[test]
fn a_locked_addition_or_a_reader_that_only_loads_counts_each_once() {
    for how in [Word::LockedFold, Word::ReadOnly] {
        let (errors, misread) = reader_errors(how, 5, 3);
        assert!(errors.iter().eq(&EXACT), "{how:?}: {errors:?}");
        assert!(!misread);
    }
}
