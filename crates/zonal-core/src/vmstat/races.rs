//! What NUMA events lose to a reader on another CPU, found by trying every interleaving of the
//! steps of both (LB F.7). Shared counters are added to in one step everywhere, as a locked
//! addition does.

extern crate std;
use std::collections::{BTreeSet, HashSet};
use std::vec::Vec;

const EXACT: [i64; 1] = [0];

/// How the owner of a word adds to it, and how others read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Word {
    /// 5.14: a load and a store; readers exchange the word for 0 and keep its value.
    UnlockedFold,
    /// A locked addition; readers exchange.
    LockedFold,
    /// a load and a store; readers only load. As the hot word's pops.
    ReadOnly,
}

/// An owner and a reader of a word.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
struct Shared {
    word: i64,
    folded: i64,
    /// The value that the owner has loaded.
    loaded: Option<i64>,
    added: i64,
    reads: usize,
    /// The value that the reader has taken and not yet added.
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
    // LB F.7, 5.14 on: the store restores the value that the reader has just taken, 3 or 3 million.
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
