//! Frees of one block by several threads, and growths of a range that another frees, under every
//! interleaving: the very file of the core, `zonal_core::frame::claim`, compiled a second time with
//! loom's atomics.
//!
//! A page that was freed goes on at once: to the buddy, and to its next owner. So a free that was
//! late and writes all the same is seen: the page has two owners, or none.
//!
//! # The canaries
//! Each does one thing otherwise, and must be found. They run in processes of their own, since loom
//! cannot always unwind.

/// Stands for the core's `sync`.
pub mod sync {
    pub use loom::sync::atomic::{AtomicU64, Ordering};
}

#[path = "../../zonal-core/src/frame/claim.rs"]
#[allow(dead_code, unreachable_pub, reason = "the core uses all of it")]
mod claim;
mod support;

use std::sync::Arc;

use claim::{First, Held};
use support::interleavings::{assert_each_is_found, explore, fault_of_child};
use sync::AtomicU64;
use sync::Ordering::Relaxed;

/// Words of pages: handed out by a CPU's list, on that list, on its way, in the buddy, inside a
/// block, handed out to the next owner; of ranges: the first block, one that goes on, the same on
/// its way, and cut to its front; the first block of one that tells its length, and of one that a
/// CPU keeps.
const HELD: u64 = 3;
const CACHED: u64 = 2;
const MOVING: u64 = 0x82;
const FREE: u64 = 1;
const NONE: u64 = 0;
const NEXT: u64 = 0x103;
const FIRST: u64 = 0x203;
const GOES_ON: u64 = 0x303;
const MOVING_ON: u64 = 0x282;
const SHORTER: u64 = 0x313;
const TOLD: u64 = 0x1203;
const PARKED: u64 = 0x402;

const PAGES: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// Nothing.
    Sound,
    /// A bulk free looks at each word and stores then.
    RowLooksAndStores,
    /// A free of a whole block looks at all words and stores then.
    BlockLooksAndStores,
    /// A free of a whole block keeps what it has where another has one of its pages.
    BlockKeepsSome,
    /// The same, but for the row in which the page is.
    BlockKeepsRows,
    /// A free of a range asks first whether it goes on.
    AsksTooEarly,
    /// A growth looks at the last block and leaves it to its owner.
    GrowsBehindUnheld,
    /// A free of a range that goes on keeps its blocks.
    RangeKeepsSome,
    /// A block that is on its way does not say that it continues a range.
    MovesUnmarked,
    /// What stays of a block that is cut is no block in between.
    CutsThroughNone,
    /// What a block is cut to is written from the front.
    WritesFrontFirst,
    /// Who takes a part of a range does not ask its first word.
    TakesPartUnasked,
    /// Who takes a kept range apart writes the words from the front.
    TakesApartFrontFirst,
}
use Fault::{
    AsksTooEarly, BlockKeepsRows, BlockKeepsSome, BlockLooksAndStores, CutsThroughNone,
    GrowsBehindUnheld, MovesUnmarked, RangeKeepsSome, RowLooksAndStores, Sound,
    TakesApartFrontFirst, TakesPartUnasked, WritesFrontFirst,
};
const FAULTS: [Fault; 12] = [
    RowLooksAndStores,
    BlockLooksAndStores,
    BlockKeepsSome,
    BlockKeepsRows,
    AsksTooEarly,
    GrowsBehindUnheld,
    RangeKeepsSome,
    MovesUnmarked,
    CutsThroughNone,
    WritesFrontFirst,
    TakesPartUnasked,
    TakesApartFrontFirst,
];

type Words = Arc<[AtomicU64; PAGES]>;

fn words(values: [u64; PAGES]) -> Words {
    Arc::new(values.map(AtomicU64::new))
}

/// A bulk free of all pages in a row to a list; how many.
fn bulk(words: &[AtomicU64], fault: Fault) -> usize {
    if fault != RowLooksAndStores {
        return claim::row(words.iter(), HELD, CACHED);
    }
    let held = words.iter().take_while(|word| word.load(Relaxed) == HELD);
    held.map(|word| word.store(CACHED, Relaxed)).count()
}

/// A free of all pages as one block, in rows of `ROW`.
fn block<const ROW: usize>(words: &[AtomicU64], fault: Fault) -> bool {
    let (rows, rest) = words.as_chunks::<ROW>();
    assert!(rest.is_empty());
    match fault {
        BlockLooksAndStores => {
            let all = words.iter().all(|word| word.load(Relaxed) == HELD);
            words.iter().filter(|_| all).for_each(|word| word.store(NONE, Relaxed));
            all
        }
        BlockKeepsSome => claim::row(words.iter(), HELD, NONE) == words.len(),
        BlockKeepsRows => rows.chunks(1).all(|row| claim::all(row, HELD, NONE)),
        _ => claim::all(rows, HELD, NONE),
    }
}

/// A free of one page, which is drained to the buddy and has its next owner then. Whether it was
/// freed.
fn single(word: &AtomicU64) -> bool {
    let freed = claim::exchange(word, HELD, MOVING);
    if freed {
        word.store(FREE, Relaxed);
        word.store(NEXT, Relaxed);
    }
    freed
}

/// Owners of a page in the end: who takes what the list has, the next owner, and the first one
/// where nobody freed it.
fn owners(word: &AtomicU64, listed: bool, freed: bool) -> usize {
    let at_end = word.load(Relaxed);
    usize::from(listed && at_end == CACHED)
        + usize::from(freed)
        + usize::from(!listed && !freed && at_end == HELD)
}

/// A bulk free of both pages, and a free of one of them.
fn bulk_and_single(fault: Fault, at: usize) {
    let words = words([HELD; PAGES]);
    let other = Arc::clone(&words);
    let single = loom::thread::spawn(move || single(&other[at]));
    let listed = bulk(&*words, fault);
    let freed = single.join().unwrap();
    for (page, word) in words.iter().enumerate() {
        assert_eq!(owners(word, page < listed, freed && page == at), 1, "of page {page}");
    }
}

/// Two bulk frees of the same pages, in opposite directions.
fn bulk_and_bulk(fault: Fault) {
    let words = words([HELD; PAGES]);
    let other = Arc::clone(&words);
    let one = loom::thread::spawn(move || claim::row(other.iter().rev(), HELD, CACHED));
    let listed = bulk(&*words, fault);
    let others = one.join().unwrap();
    assert_eq!(listed + others, PAGES, "each page is on one list");
}

/// A free of so many pages as one block, and a free of one of them.
fn block_and_single<const ROW: usize, const ALL: usize>(fault: Fault, at: usize) {
    let words = Arc::new([HELD; ALL].map(AtomicU64::new));
    let other = Arc::clone(&words);
    let single = loom::thread::spawn(move || single(&other[at]));
    let whole = block::<ROW>(&*words, fault);
    let freed = single.join().unwrap();
    assert!(whole != freed, "freed by one of them");
    let expected = |page| match (whole, freed && page == at) {
        (true, _) => NONE,
        (false, true) => NEXT,
        (false, false) => HELD,
    };
    for (page, word) in words.iter().enumerate() {
        assert_eq!(word.load(Relaxed), expected(page), "word of page {page}");
    }
}

/// A free of a range without the zone lock, and a growth of it or a join with what is behind, by
/// another thread with the zone lock held: `behind` says whether a range is there already.
fn freed_and_lengthened(fault: Fault, behind: u64) {
    let words = words([FIRST, behind]);
    let other = Arc::clone(&words);
    let growth = loom::thread::spawn(move || {
        let last = Held { word: &other[0], seen: FIRST, moving: MOVING };
        let add = || other[1].store(GOES_ON, Relaxed);
        if fault != GrowsBehindUnheld {
            return claim::lengthen(last, add).is_some();
        }
        let is_there = other[0].load(Relaxed) == FIRST;
        if is_there {
            add();
        }
        is_there
    });
    let goes_on = || words[1].load(Relaxed) == GOES_ON;
    let blocks = [Held { word: &words[0], seen: FIRST, moving: CACHED }];
    let freed = match fault {
        AsksTooEarly => !goes_on() && claim::whole(blocks.into_iter().map(Some), || false),
        RangeKeepsSome => claim::exchange(&words[0], FIRST, CACHED) && !goes_on(),
        _ if behind == NONE => claim::whole(blocks.into_iter().map(Some), goes_on),
        _ => claim::front(blocks[0], core::iter::empty(), goes_on),
    };
    let grown = growth.join().unwrap();
    let (first, behind_now) = (words[0].load(Relaxed), words[1].load(Relaxed));
    assert_eq!(first, if freed { CACHED } else { FIRST }, "freed, or its owner's");
    assert_eq!(behind_now, if grown { GOES_ON } else { behind });
    assert!(!(freed && grown), "a block continues a range that is not there");
}

/// What the rest of a range is changed to while the front is freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    /// A block is added behind the last one.
    Longer,
    /// The last block is cut: its front stays, the rest is freed.
    Cut,
    /// The last block becomes two of the same range, by a cut of its end.
    CutToTwo,
    /// All of the range is to be freed, as the front of a longer one: it is given back.
    FreedInVain,
    /// The last block is freed.
    Freed,
}

/// A claimed block as its owner had it.
fn held<'w>(word: &'w AtomicU64, seen: u64, fault: Fault) -> Held<'w> {
    let on = if fault == MovesUnmarked { MOVING } else { MOVING_ON };
    Held { word, seen, moving: if seen == FIRST { MOVING } else { on } }
}

/// Whether a range goes on at this word, as `PageWord::continues_range` says.
fn goes_on(word: &AtomicU64) -> bool {
    matches!(word.load(Relaxed), GOES_ON | MOVING_ON | SHORTER)
}

/// Changes the rest of a range, which begins at `words[1]`.
fn change(words: &[AtomicU64; 3], change: Change, fault: Fault) {
    let last = held(&words[1], GOES_ON, fault);
    let keep = |to: [u64; 2]| {
        assert!(last.claim(), "nobody else has it");
        if fault == CutsThroughNone {
            words[1].store(NONE, Relaxed);
        }
        let pieces = words[1..].iter().zip(to).filter(|(_, to)| *to != NONE);
        match fault {
            WritesFrontFirst => pieces.for_each(|(word, to)| claim::write(word, to)),
            _ => claim::write_range(pieces),
        }
    };
    match change {
        Change::Longer => {
            let added = claim::lengthen(last, || words[2].store(GOES_ON, Relaxed));
            assert!(added.is_some(), "nobody else has it");
        }
        Change::Cut => keep([SHORTER, NONE]),
        Change::CutToTwo => keep([SHORTER, GOES_ON]),
        Change::FreedInVain => {
            let both = [held(&words[0], FIRST, fault), last];
            assert!(!claim::whole(both.into_iter().map(Some), || true), "it goes on");
        }
        Change::Freed => {
            assert!(last.claim(), "nobody else has it");
            words[1].store(NONE, Relaxed);
        }
    }
}

/// A free of the front of a range without the zone lock, first of its first block, then of what the
/// second is cut to as well, and a change of the rest by a thread that has the lock. The front
/// is not all of the range, so nothing is freed, but where all of the rest was.
fn freed_and_changed(fault: Fault, to: Change) {
    let words = Arc::new([FIRST, GOES_ON, NONE].map(AtomicU64::new));
    let other = Arc::clone(&words);
    let changes = loom::thread::spawn(move || change(&other, to, fault));
    let front = held(&words[0], FIRST, fault);
    let freed = claim::whole([Some(front)].into_iter(), || goes_on(&words[1]));
    assert!(!freed || to == Change::Freed, "the front was freed as all of the range");
    let two = [front, held(&words[1], SHORTER, fault)];
    let shorter =
        to == Change::CutToTwo && claim::whole(two.into_iter().map(Some), || goes_on(&words[2]));
    assert!(!shorter, "the front was freed as all of the range");
    changes.join().unwrap();
    let expected = match to {
        Change::Longer => [FIRST, GOES_ON, GOES_ON],
        Change::Cut => [FIRST, SHORTER, NONE],
        Change::CutToTwo => [FIRST, SHORTER, GOES_ON],
        Change::FreedInVain => [FIRST, GOES_ON, NONE],
        Change::Freed => [if freed { MOVING } else { FIRST }, NONE, NONE],
    };
    let at_end = words.each_ref().map(|word| word.load(Relaxed));
    assert_eq!(at_end, expected, "{to:?}");
}

/// A free of a range that a CPU keeps then, by its first word alone, and takes apart; and of its
/// second block by another thread with the zone lock.
fn kept_and_freed_in_part(fault: Fault) {
    let words = words([TOLD, GOES_ON]);
    let other = Arc::clone(&words);
    let keeps = loom::thread::spawn(move || {
        let kept = claim::exchange(&other[0], TOLD, PARKED);
        if kept {
            let apart = other.iter().zip([MOVING; PAGES]);
            match fault {
                TakesApartFrontFirst => apart.for_each(|(word, to)| claim::write(word, to)),
                _ => claim::write_range(apart),
            }
        }
        kept
    });
    let says = |word| match word {
        TOLD => First::Told(FIRST),
        PARKED => First::Parked,
        _ => First::Plain,
    };
    let last = Held { word: &words[1], seen: GOES_ON, moving: CACHED };
    let asked = fault == TakesPartUnasked || claim::untell(&words[0], says);
    let freed = asked && last.claim();
    let kept = keeps.join().unwrap();
    assert!(kept != freed, "freed by one of them");
    let expected = if kept { [MOVING; PAGES] } else { [FIRST, CACHED] };
    assert_eq!(words.each_ref().map(|word| word.load(Relaxed)), expected);
}

/// Two frees of a range of two blocks without the lock, one block by block from the front.
fn freed_twice() {
    let words = words([FIRST, GOES_ON]);
    fn held(words: &Words) -> [Held<'_>; 2] {
        let held = |(at, seen): (usize, u64)| Held { word: &words[at], seen, moving: CACHED };
        [(0, FIRST), (1, GOES_ON)].map(held)
    }
    let other = Arc::clone(&words);
    let one = loom::thread::spawn(move || {
        let [first, later] = held(&other);
        claim::front(first, [Some(later)].into_iter(), || false)
    });
    let mine = claim::whole(held(&words).into_iter().map(Some), || false);
    let theirs = one.join().unwrap();
    assert!(mine != theirs, "freed by one of them");
    assert!(words.iter().all(|word| word.load(Relaxed) == CACHED));
}

/// All scenes with one fault. Returns the number of interleavings.
fn all_scenes(fault: Fault) -> u64 {
    let mut sum = 0;
    for at in 0..PAGES {
        sum += explore(None, move || bulk_and_single(fault, at));
        sum += explore(None, move || block_and_single::<PAGES, PAGES>(fault, at));
        sum += explore(None, move || block_and_single::<1, PAGES>(fault, at));
    }
    // Rows behind a row, and a page of each.
    for at in 0..6 {
        sum += explore(None, move || block_and_single::<2, 6>(fault, at));
    }
    for behind in [NONE, FIRST] {
        sum += explore(None, move || freed_and_lengthened(fault, behind));
    }
    for to in [Change::Longer, Change::Cut, Change::CutToTwo, Change::FreedInVain, Change::Freed] {
        sum += explore(None, move || freed_and_changed(fault, to));
    }
    sum += explore(None, move || kept_and_freed_in_part(fault));
    sum + explore(None, move || bulk_and_bulk(fault)) + explore(None, freed_twice)
}

/// The other process. Without the variable it is no test.
#[test]
fn model_of_the_child() {
    if let Some(fault) = fault_of_child(Sound, &FAULTS) {
        all_scenes(fault);
    }
}

#[test]
fn of_any_frees_at_once_one_has_the_block_and_no_range_is_left_without_its_front() {
    let interleavings = all_scenes(Sound);
    eprintln!("{interleavings} interleavings");
    assert!(interleavings > 20);
}

#[test]
fn each_claim_is_needed() {
    assert_each_is_found(Sound, &FAULTS);
}
