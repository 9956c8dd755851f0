//! Blocks out of their owner's hands: the only way in which the word of a block that is handed out
//! changes, but for the sequences of a platform, and bulk frees of order-0 pages beside them.
//!
//! Each word is claimed by one exchange from exactly what was seen. So of any number of frees, bulk
//! frees, cuts, growths and joins that want a block at the same moment one gets it, and the others
//! change nothing of it. A look followed by a store would let two of them through: the one that is
//! late writes over what has become of the block since, perhaps over its next owner's word.
//!
//! It does not depend on frames and pcps, so that the interleaving model
//! (crates/zonal/tests/loom_claim.rs) compiles this very file with its own atomics.

use crate::sync::{AtomicU64, Ordering};

/// Replaces a word, if it is still `from`.
#[inline(always)]
pub(crate) fn exchange(word: &AtomicU64, from: u64, to: u64) -> bool {
    // AcqRel, Acquire on failure: pairs with the exchange of a racing claim.
    word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// Replaces words by `to`, up to the first that is not `from`. How many.
#[inline(always)]
pub(crate) fn row<'w>(words: impl Iterator<Item = &'w AtomicU64>, from: u64, to: u64) -> usize {
    let (mut done, mut from) = (0, from);
    for word in words {
        // What was there is what the next one must be: it is in the processor's hands already.
        // AcqRel, Acquire on failure: pairs with the exchange of a racing claim.
        match word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire) {
            Ok(was) => from = was,
            Err(_) => break,
        }
        done += 1;
    }
    done
}

/// Replaces all words of the rows, if all of them are `from`; otherwise none. `to` is nobody's to
/// claim. A row is claimed without a look at how many are left.
#[inline(always)]
pub(crate) fn all<const ROW: usize>(rows: &[[AtomicU64; ROW]], from: u64, to: u64) -> bool {
    let words = rows.as_flattened();
    let mut claimed = 0;
    for words in rows {
        let some = row(words.iter(), from, to);
        claimed += some;
        if some < ROW {
            break;
        }
    }
    if claimed == words.len() {
        return true;
    }
    // Another claim has one of them. Release: pairs with the Acquire of the next claim.
    words[..claimed].iter().for_each(|word| word.store(from, Ordering::Release));
    false
}

/// A block that is to be claimed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held<'w> {
    pub word: &'w AtomicU64,
    /// What it was seen to be.
    pub seen: u64,
    /// What it is while it is on its way: no word of a block that is handed out. That of a block
    /// that continues a range still says so (RANGE-4).
    pub moving: u64,
}

impl Held<'_> {
    /// Takes the block out of its owner's hands.
    #[inline(always)]
    pub(crate) fn claim(self) -> bool {
        exchange(self.word, self.seen, self.moving)
    }

    /// Gives it back to its owner.
    pub(crate) fn give_back(self) {
        write(self.word, self.seen);
    }
}

/// Writes the word of a block that is nobody's to claim.
#[inline(always)]
pub(crate) fn write(word: &AtomicU64, to: u64) {
    // Release: pairs with the Acquire of the next claim, which sees what this one wrote.
    word.store(to, Ordering::Release);
}

/// Writes the words of blocks side by side that become (part of) a range, the first one last: who
/// claims it sees that the range goes on.
///
/// The first word stays what it was until then. If that is of a block that continues a range, the
/// range in front of it goes on all the time.
pub(crate) fn write_range<'w>(mut blocks: impl Iterator<Item = (&'w AtomicU64, u64)>) {
    let first = blocks.next();
    blocks.chain(first).for_each(|(word, to)| write(word, to));
}

/// Takes blocks out of their owner's hands, or none of them: where one is not what it was seen to
/// be, those before it go back. `claimed` says once more what the first so many of `blocks` are.
///
/// # Errors
/// That of an item of `blocks`, or `None` for a block that was claimed by another.
#[inline(always)]
pub(crate) fn each<'w, E, Claimed: Iterator<Item = Held<'w>>>(
    blocks: impl Iterator<Item = Result<Held<'w>, E>>,
    claimed: impl FnOnce(usize) -> Claimed,
) -> Result<(), Option<E>> {
    let mut done = 0;
    for block in blocks {
        let why = match block {
            Ok(block) if block.claim() => {
                done += 1;
                continue;
            }
            Ok(_) => None,
            Err(error) => Some(error),
        };
        give_all_back(claimed(done));
        return Err(why);
    }
    Ok(())
}

/// Takes the blocks of a range out of their owner's hands, or none of them. `goes_on` says whether
/// the range has more blocks behind these; then it is not whole, and nothing is done.
///
/// The range cannot become longer once its last block is claimed, so it is asked after that: who
/// makes it longer holds the last block meanwhile ([`lengthen`]). If these are the front of a range
/// whose next block is on its way at this moment, that block's word still says that it goes on.
///
/// A block without a word (`None`) is nobody's, so nothing is done then either.
#[inline(always)]
pub(crate) fn whole<'w>(
    blocks: impl Iterator<Item = Option<Held<'w>>> + Clone,
    goes_on: impl FnOnce() -> bool,
) -> bool {
    let all = || blocks.clone();
    let claimed = |claimed| all().take(claimed).flatten();
    if each(all().map(|block| block.ok_or(())), claimed).is_err() {
        return false;
    }
    let whole = !goes_on();
    if !whole {
        give_all_back(all().flatten());
    }
    whole
}

/// As [`whole`], of a range whose first block is known apart from the `others`.
#[inline(always)]
pub(crate) fn front<'w>(
    first: Held<'w>,
    others: impl Iterator<Item = Option<Held<'w>>> + Clone,
    goes_on: impl FnOnce() -> bool,
) -> bool {
    if !first.claim() {
        return false;
    }
    let is_whole = whole(others, goes_on);
    if !is_whole {
        give_all_back(core::iter::once(first));
    }
    is_whole
}

/// What the first word of a range says of the range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum First {
    /// Nothing, or it is the first of none.
    Plain,
    /// How long it is, so that all of it can be claimed by this word: the word without that.
    Told(u64),
    /// That a CPU keeps it.
    Parked,
}

/// Lets the first word of a range tell its length no more, so that from now on each of its blocks
/// is claimed by its own word. `says`: what a word says. `false`: a CPU keeps the range.
pub(crate) fn untell(first: &AtomicU64, says: impl Fn(u64) -> First) -> bool {
    loop {
        // Acquire: pairs with the Release of who takes a range apart, and writes its first word
        // last: who finds that it is parked no more finds the other words gone.
        let word = first.load(Ordering::Acquire);
        match says(word) {
            First::Parked => return false,
            First::Told(plain) if !exchange(first, word, plain) => {}
            First::Plain | First::Told(_) => return true,
        }
    }
}

#[cold]
fn give_all_back<'w>(blocks: impl Iterator<Item = Held<'w>>) {
    blocks.for_each(Held::give_back);
}

/// Holds the last block of a range while `change` adds blocks behind it. `None`: the block is not
/// its owner's any more, and nothing was done.
///
/// Whoever gives the range back without the zone lock ([`whole`]) has claimed that block before,
/// and then nothing is added, or claims it later, and then sees that the range goes on.
pub(crate) fn lengthen<R>(last: Held<'_>, change: impl FnOnce() -> R) -> Option<R> {
    if !last.claim() {
        return None;
    }
    let done = change();
    last.give_back();
    Some(done)
}
