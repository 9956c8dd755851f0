//! One cache of pages' contents: sets of a few places each, the least recently used one goes.
//!
//! Contents are kept by the chunk, [`CHUNK_LINES`] lines that lie in a row: a page is four chunks.
//! That is coarse enough to be quick, and fine enough that touching the head of a page does not
//! push a whole page out.
//!
//! A run looks at thousands of sets in turn, most of them far from the host's core. So a set of
//! narrow places is one line of the host, and is searched and moved as a whole, without branches.
//!
//! - **CACHE-1** within a set, places are sorted by their last use, the latest first, and empty
//!   places are last.
//! - **CACHE-2** a chunk is in one place at most.

use std::fmt::Debug;

use bytemuck::Zeroable;
use zonal_core::prefetch;

use crate::provenance::{Provenance, given};

/// Lines of a chunk: a quarter of a page.
pub const CHUNK_LINES: u64 = 16;
/// Chunks of a page.
pub const PAGE_CHUNKS: u64 = 64 / CHUNK_LINES;
/// KiB of a chunk, of 64 bytes a line.
const CHUNK_KIB: u64 = CHUNK_LINES * 64 / 1024;

given! {
    /// Places of a set. Second- and last-level caches of servers have 8 to 20.
    WAYS: usize = 16,
        Provenance::sourced("second- and last-level caches of servers have 8 to 20 ways");
}
/// Bytes of a line of the host: what a set of narrow places takes.
const HOST_LINE: usize = size_of::<[u32; WAYS]>();
/// Bits of a version.
pub const VERSION_BITS: u32 = 7;
/// The last version; behind it comes 1. Version 0 is that of copies that stay stale.
pub const LAST_VERSION: u64 = (1 << VERSION_BITS) - 1;

/// A chunk as it was at some version. Chunks count from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag(u64);

impl Tag {
    /// The chunk at a version up to [`LAST_VERSION`].
    #[inline]
    pub fn new(chunk: u64, version: u64) -> Tag {
        Tag(chunk << VERSION_BITS | version)
    }

    /// The chunk.
    #[inline]
    pub fn chunk(self) -> u64 {
        self.0 >> VERSION_BITS
    }
}

/// A place of a cache: a tag, or 0 where it is empty.
pub trait Place: Copy + Eq + Debug + Zeroable + 'static {
    /// Chunks below this number fit.
    const CHUNKS: u64;
    /// The place of a tag that fits.
    fn of(tag: Tag) -> Self;
    /// What it holds; of an empty one chunk 0.
    fn tag(self) -> Tag;
    /// Which places hold a version of the chunk that `wanted` is one of: a bit for each, from bit 1
    /// on.
    fn versions_of(places: &[Self; WAYS], wanted: Self) -> u32;
    /// Whether both hold a version of one chunk.
    fn is_version_of(self, other: Self) -> bool;
}

impl Place for u32 {
    const CHUNKS: u64 = (u32::MAX >> VERSION_BITS) as u64;
    #[inline]
    fn of(tag: Tag) -> u32 {
        tag.0 as u32
    }
    #[inline]
    fn tag(self) -> Tag {
        Tag(self.into())
    }
    /// In a frame of its own, in four words and without bit 0, which is a number like no other: so
    /// the compiler compares four places at once.
    #[inline(never)]
    fn versions_of(places: &[u32; WAYS], wanted: u32) -> u32 {
        let mut found = [0_u32; 4];
        for (at, place) in places.iter().enumerate() {
            let is_version = (place ^ wanted) & (u32::MAX << VERSION_BITS) == 0;
            found[at % 4] |= if is_version { 2 << at } else { 0 };
        }
        found[0] | found[1] | found[2] | found[3]
    }
    #[inline]
    fn is_version_of(self, other: u32) -> bool {
        (self ^ other) >> VERSION_BITS == 0
    }
}

impl Place for u64 {
    const CHUNKS: u64 = u64::MAX >> VERSION_BITS;
    #[inline]
    fn of(tag: Tag) -> u64 {
        tag.0
    }
    #[inline]
    fn tag(self) -> Tag {
        Tag(self)
    }
    #[inline]
    fn versions_of(places: &[u64; WAYS], wanted: u64) -> u32 {
        let bit = |(at, place): (usize, &u64)| u32::from(place.is_version_of(wanted)) << (at + 1);
        places.iter().enumerate().fold(0, |found, place| found | bit(place))
    }
    #[inline]
    fn is_version_of(self, other: u64) -> bool {
        (self ^ other) >> VERSION_BITS == 0
    }
}

/// Where the sets of a chunk are, in a cache of any size. Pages are scattered over the sets, as
/// physical pages are; the chunks of one page lie in a row.
#[derive(Clone, Copy, Debug)]
pub struct Home {
    scattered: u64,
    part: u64,
}

impl Home {
    /// That of the first part of a page.
    #[inline]
    pub fn new(pfn: u64) -> Home {
        Home { scattered: pfn.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32, part: 0 }
    }

    /// That of any part of the same page.
    #[inline]
    pub fn part(self, part: u64) -> Home {
        Home { part, ..self }
    }
}

/// A set of a cache, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Set(u32);

/// The places of a set, from the beginning of a line of the host on. Those beyond the ways stay
/// empty.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Places<P>([P; WAYS]);

/// One cache.
#[derive(Clone, Debug)]
pub struct Cache<P> {
    sets: Vec<Places<P>>,
    ways: usize,
}

impl<P: Place> Cache<P> {
    /// An empty cache, size in KiB.
    pub fn new(kib: u64) -> Cache<P> {
        let chunks = (kib / CHUNK_KIB).max(1);
        let ways = WAYS.min(chunks as usize);
        Cache { sets: vec![Places([P::zeroed(); WAYS]); chunks as usize / ways], ways }
    }

    /// The same with other places. Every chunk in it must fit.
    pub fn with_places<Q: Place>(&self) -> Cache<Q> {
        let wider = |places: &Places<P>| Places(places.0.map(|place| Q::of(place.tag())));
        Cache { sets: self.sets.iter().map(wider).collect(), ways: self.ways }
    }

    /// Where a chunk is if it is here. Pages are scattered over the sets, as physical pages are;
    /// the chunks of one page lie in a row.
    #[inline]
    pub fn set(&self, home: Home) -> Set {
        self.wrapped(self.first(home) + home.part)
    }

    /// Where the chunks of a page are, of which this is the home of any.
    #[inline]
    pub fn sets_of_page(&self, home: Home) -> [Set; PAGE_CHUNKS as usize] {
        let (first, parts) = (self.first(home), [0, 1, 2, 3]);
        match first + PAGE_CHUNKS <= self.sets.len() as u64 {
            true => parts.map(|part| Set((first + part) as u32)),
            false => parts.map(|part| self.wrapped(first + part)),
        }
    }

    /// The number of the set of a page's first chunk.
    #[inline]
    fn first(&self, home: Home) -> u64 {
        (home.scattered * self.sets.len() as u64) >> 32
    }
    #[inline]
    fn wrapped(&self, set: u64) -> Set {
        let sets = self.sets.len() as u64;
        Set(if set < sets { set } else { set % sets } as u32)
    }

    #[inline(always)]
    fn places(&self, Set(set): Set) -> &[P; WAYS] {
        &self.sets[set as usize].0
    }
    #[inline(always)]
    fn places_mut(&mut self, Set(set): Set) -> &mut [P; WAYS] {
        &mut self.sets[set as usize].0
    }

    /// Asks the host for a set that is about to be used.
    #[inline]
    pub fn prefetch(&self, set: Set) {
        let places = self.places(set);
        prefetch::for_write(&places[0]);
        if size_of_val(places) > HOST_LINE {
            prefetch::for_write(&places[WAYS - 1]);
        }
    }

    /// What goes next from a set if nothing of it is used before.
    #[inline]
    pub fn last(&self, set: Set) -> Tag {
        self.places(set)[(self.ways - 1) % WAYS].tag()
    }

    /// Whether it is present; if so, it becomes the most recently used of its set.
    #[inline]
    pub fn find(&mut self, set: Set, tag: Tag) -> bool {
        self.look(set, tag).is_ok()
    }

    /// As [`find`](Self::find); if it is not there, the place that it takes when it comes: that of
    /// another version of its chunk, or else the last.
    #[inline]
    pub fn look(&mut self, set: Set, tag: Tag) -> Result<(), usize> {
        let last = self.ways - 1;
        let (places, wanted) = (self.places_mut(set), P::of(tag));
        match version_of(places, wanted) {
            Some(at) if places[at] == wanted => {
                to_front(places, wanted, at);
                Ok(())
            }
            Some(at) => Err(at),
            None => Err(last),
        }
    }

    /// Whether it is present; changes nothing.
    #[inline]
    pub fn has(&self, set: Set, tag: Tag) -> bool {
        let (places, wanted) = (self.places(set), P::of(tag));
        version_of(places, wanted).is_some_and(|at| places[at] == wanted)
    }

    /// Puts it in, if it is not there. Returns what had to go, if anything.
    #[inline]
    pub fn put(&mut self, set: Set, tag: Tag) -> Option<Tag> {
        match self.look(set, tag) {
            Ok(()) => None,
            Err(at) => self.put_at(set, tag, at),
        }
    }

    /// Puts it in where [`look`](Self::look) said.
    #[inline]
    pub fn put_at(&mut self, set: Set, tag: Tag, at: usize) -> Option<Tag> {
        let (places, at) = (self.places_mut(set), at % WAYS);
        let gone = places[at].tag();
        to_front(places, P::of(tag), at);
        (gone.chunk() != 0 && gone.chunk() != tag.chunk()).then_some(gone)
    }

    /// Removes it, if present.
    #[inline]
    pub fn take_out(&mut self, set: Set, tag: Tag) {
        let ways = self.ways;
        let (places, wanted) = (self.places_mut(set), P::of(tag));
        if let Some(at) = version_of(places, wanted)
            && places[at] == wanted
        {
            places.copy_within(at + 1..ways, at);
            places[ways - 1] = P::zeroed();
        }
    }

    /// Sets the version of its chunk, if present. Its place in the order stays.
    #[inline]
    pub fn change(&mut self, set: Set, from: Tag, to: Tag) {
        let (places, from) = (self.places_mut(set), P::of(from));
        if let Some(at) = version_of(places, from)
            && places[at] == from
        {
            places[at] = P::of(to);
        }
    }

    /// A copy of this chunk with another version is never taken for a true one again. It keeps its
    /// place, as any stale copy does.
    pub fn outdate(&mut self, set: Set, tag: Tag) {
        let (places, current) = (self.places_mut(set), P::of(tag));
        if let Some(at) = version_of(places, current)
            && places[at] != current
        {
            places[at] = P::of(Tag::new(tag.chunk(), 0));
        }
    }
}

/// Where a version of the same chunk is (CACHE-2).
#[inline(always)]
fn version_of<P: Place>(places: &[P; WAYS], wanted: P) -> Option<usize> {
    // What was just looked at, and what is used again and again.
    if places[0].is_version_of(wanted) {
        return Some(0);
    }
    let found = P::versions_of(places, wanted);
    (found != 0).then(|| (found.trailing_zeros() as usize - 1) % WAYS)
}

/// Puts `first` before all others, of which the one at `at` goes.
#[inline(always)]
fn to_front<P: Place>(places: &mut [P; WAYS], first: P, at: usize) {
    if at > 0 {
        places.copy_within(..at, 1);
    }
    places[0] = first;
}

#[cfg(test)]
mod tests {
    use rand_core::{Rng, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    /// Chunks as if page frames began with the second.
    fn home(chunk: u64) -> Home {
        Home::new(chunk / PAGE_CHUNKS).part(chunk % PAGE_CHUNKS)
    }

    fn does_what_a_list_for_each_set_does<P: Place>(kib: u64) {
        let mut cache: Cache<P> = Cache::new(kib);
        assert!((cache.sets.len() * cache.ways) as u64 <= kib / CHUNK_KIB, "no larger than it is");
        // Each set as it is defined: a list of tags, the latest used first.
        let mut naive: Vec<Vec<Tag>> = vec![Vec::new(); cache.sets.len()];
        let mut random = Pcg64Mcg::seed_from_u64(kib);
        let mut below = |end: u64| random.next_u64() % end;
        for turn in 0..20_000 {
            let tag = Tag::new(1 + below(3 * kib + 2), 1 + below(2));
            let at = cache.set(home(tag.chunk()));
            let set = &mut naive[at.0 as usize];
            let known = set.iter().position(|known| *known == tag);
            assert_eq!(cache.has(at, tag), known.is_some());
            match (below(5), known) {
                (0, _) => {
                    set.retain(|known| *known != tag);
                    cache.take_out(at, tag);
                }
                (1, Some(known)) => {
                    let other = Tag::new(tag.chunk(), 3);
                    set[known] = other;
                    cache.change(at, tag, other);
                }
                (2, _) => {
                    let same = |known: &&mut Tag| known.chunk() == tag.chunk() && **known != tag;
                    let stale = Tag::new(tag.chunk(), 0);
                    set.iter_mut().filter(same).for_each(|known| *known = stale);
                    cache.outdate(at, tag);
                }
                (_, Some(known)) => {
                    let known = set.remove(known);
                    set.insert(0, known);
                    assert!(cache.find(at, tag));
                }
                (_, None) => {
                    assert!(!cache.find(at, tag));
                    set.retain(|known| known.chunk() != tag.chunk());
                    set.insert(0, tag);
                    let gone = (set.len() > cache.ways).then(|| set.pop()).flatten();
                    assert_eq!(cache.put(at, tag), gone);
                }
            }
            if turn == 10_000 {
                cache = cache.with_places::<u64>().with_places();
            }
            if set.len() == cache.ways {
                assert_eq!(cache.last(at), set[cache.ways - 1]);
            }
        }
    }

    #[test]
    fn it_does_what_a_list_for_each_set_does() {
        for kib in [1, 2, 16, 40, 256] {
            does_what_a_list_for_each_set_does::<u32>(kib);
            does_what_a_list_for_each_set_does::<u64>(kib);
        }
    }

    #[test]
    fn what_fits_stays_and_what_does_not_goes() {
        let mut cache: Cache<u32> = Cache::new(1024);
        let mut pages = |pages: u64| {
            let tags = || (PAGE_CHUNKS..(pages + 1) * PAGE_CHUNKS).map(|chunk| Tag::new(chunk, 1));
            for tag in tags() {
                let set = cache.set(home(tag.chunk()));
                if !cache.find(set, tag) {
                    cache.put(set, tag);
                }
            }
            tags().filter(|tag| cache.has(cache.set(home(tag.chunk())), *tag)).count()
        };
        assert_eq!(pages(100), 400, "less than half of it");
        let kept = pages(2000);
        assert!((800..=1024).contains(&kept), "{kept} of 8000 in 1024 places");
    }
}
