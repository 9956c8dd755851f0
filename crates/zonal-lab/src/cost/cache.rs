//! One cache of pages' contents: sets of a few places each, the least recently used one goes.
//!
//! Contents are kept by the chunk, [`CHUNK_LINES`] lines that lie in a row: a page is four chunks.
//! That is coarse enough to be quick, and fine enough that touching the head of a page does not
//! push a whole page out.
//!
//! A run looks at thousands of sets in turn, most of them far from the host's core. So a set of
//! narrow places is one line of the host and is searched as a whole, without branches. A chunk
//! stays in its place; what moves is the order of places, which is one number.
//!
//! - **CACHE-1** the order of a set names each of its places once, sorted by their last use, the
//!   latest first, and empty places last.
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
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
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

    /// The same version of the chunk so many behind it.
    #[inline]
    pub fn plus(self, chunks: u64) -> Tag {
        Tag(self.0 + (chunks << VERSION_BITS))
    }

    /// The version.
    #[inline]
    pub fn version(self) -> u64 {
        self.0 & LAST_VERSION
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
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Set(u32);

/// The places of a set, from the beginning of a line of the host on. Those beyond the ways stay
/// empty.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Places<P>([P; WAYS]);

/// In which order the places of a set were used: four bits each, those of the latest lowest. What
/// was used moves here, and its place stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Order(u64);

/// A one in the four bits of each place.
const ONES: u64 = u64::MAX / (WAYS as u64 - 1);

impl Order {
    const FIRST: Order = Order(0xFEDC_BA98_7654_3210);
    /// Bits of a place.
    const BITS: u32 = WAYS.ilog2();

    /// The place at a position, which is given in bits.
    #[inline(always)]
    fn place(self, bits: u32) -> usize {
        (self.0 >> bits) as usize % WAYS
    }
    /// The position of a place, in bits: the lowest four that are the same.
    #[inline(always)]
    fn position(self, place: usize) -> u32 {
        let differ = self.0 ^ (place as u64).wrapping_mul(ONES);
        let same = differ.wrapping_sub(ONES) & !differ & (ONES << 3);
        same.trailing_zeros() & !(Self::BITS - 1)
    }
    /// The place at a position comes before all others.
    #[inline(always)]
    fn to_front(self, bits: u32) -> Order {
        let before = (1 << bits) - 1;
        let behind = u64::MAX << bits << Self::BITS;
        Order(self.0 & behind | (self.0 & before) << Self::BITS | self.place(bits) as u64)
    }
    /// The place at a position comes behind all others up to the position `last`.
    #[inline]
    fn to_back(self, bits: u32, last: u32) -> Order {
        let before = (1 << bits) - 1;
        let moved = ((1 << last) - 1) & !before;
        let behind = u64::MAX << last << Self::BITS;
        let place = (self.place(bits) as u64) << last;
        Order(self.0 & (before | behind) | self.0 >> Self::BITS & moved | place)
    }
}

/// One cache.
#[derive(Clone, Debug)]
pub struct Cache<P> {
    sets: Vec<Places<P>>,
    /// Of each set.
    orders: Vec<Order>,
    ways: usize,
}

impl<P: Place> Cache<P> {
    /// An empty cache, size in KiB.
    pub fn new(kib: u64) -> Cache<P> {
        let chunks = (kib / CHUNK_KIB).max(1);
        let ways = WAYS.min(chunks as usize);
        let sets = chunks as usize / ways;
        let empty = Places([P::zeroed(); WAYS]);
        Cache { sets: vec![empty; sets], orders: vec![Order::FIRST; sets], ways }
    }

    /// The same with other places. Every chunk in it must fit.
    pub fn with_places<Q: Place>(&self) -> Cache<Q> {
        let wider = |places: &Places<P>| Places(places.0.map(|place| Q::of(place.tag())));
        let sets = self.sets.iter().map(wider).collect();
        Cache { sets, orders: self.orders.clone(), ways: self.ways }
    }

    /// Where a chunk is if it is here. Pages are scattered over the sets, as physical pages are;
    /// the chunks of one page lie in a row.
    #[inline]
    pub fn set(&self, home: Home) -> Set {
        let (set, sets) = (self.first(home) + home.part, self.sets.len() as u64);
        Set(if set < sets { set } else { set % sets } as u32)
    }

    /// Where the first chunk of a page is, if its others are in the sets behind that one.
    #[inline]
    pub fn row(&self, home: Home) -> Option<Set> {
        let first = self.first(home);
        (first + PAGE_CHUNKS <= self.sets.len() as u64).then_some(Set(first as u32))
    }

    /// The number of the set of a page's first chunk.
    #[inline]
    fn first(&self, home: Home) -> u64 {
        (home.scattered * self.sets.len() as u64) >> 32
    }

    #[inline(always)]
    fn of(&mut self, Set(set): Set) -> (&mut [P; WAYS], &mut Order) {
        (&mut self.sets[set as usize].0, &mut self.orders[set as usize])
    }

    /// Position of the place that was not used for longest, in bits.
    #[inline(always)]
    fn last_bits(&self) -> u32 {
        Order::BITS * (self.ways - 1) as u32
    }

    /// Asks the host for a set that is about to be used.
    #[inline]
    pub fn prefetch(&self, Set(set): Set) {
        let places = &self.sets[set as usize].0;
        prefetch::for_write(&places[0]);
        if size_of_val(places) > HOST_LINE {
            prefetch::for_write(&places[WAYS - 1]);
        }
    }

    /// Puts it in, in place of another version of its chunk or else of what was not used for
    /// longest; it is the most recently used of its set from now on. Returns what was in its place.
    #[inline(always)]
    pub fn bring(&mut self, set: Set, tag: Tag) -> Tag {
        let last = self.last_bits();
        let (places, order) = self.of(set);
        bring(places, order, last, P::of(tag)).tag()
    }

    /// The same for chunks in a row, each in the set behind that of the one before.
    #[inline(always)]
    pub fn bring_row<const N: usize>(&mut self, Set(set): Set, tag: Tag) -> [Tag; N] {
        let (last, set) = (self.last_bits(), set as usize);
        let rows = self.sets[set..].first_chunk_mut().zip(self.orders[set..].first_chunk_mut());
        let (sets, orders): (&mut [Places<P>; N], &mut [Order; N]) = rows.expect("sets in a row");
        let mut left = [Tag::default(); N];
        let rows = sets.iter_mut().zip(orders).zip(&mut left);
        for (behind, ((places, order), left)) in (0..).zip(rows) {
            *left = bring(&mut places.0, order, last, P::of(tag.plus(behind))).tag();
        }
        left
    }

    /// Whether it is present; if so, it becomes the most recently used of its set.
    #[inline]
    pub fn find(&mut self, set: Set, tag: Tag) -> bool {
        let (places, order) = self.of(set);
        let wanted = P::of(tag);
        let place = version_of(places, wanted).filter(|place| places[*place] == wanted);
        if let Some(place) = place {
            *order = order.to_front(order.position(place));
        }
        place.is_some()
    }

    /// Whether it is present; changes nothing.
    #[inline]
    pub fn has(&self, Set(set): Set, tag: Tag) -> bool {
        let (places, wanted) = (&self.sets[set as usize].0, P::of(tag));
        version_of(places, wanted).is_some_and(|place| places[place] == wanted)
    }

    /// Removes it, if present.
    #[inline]
    pub fn take_out(&mut self, set: Set, tag: Tag) {
        let last = self.last_bits();
        let (places, order) = self.of(set);
        let wanted = P::of(tag);
        if let Some(place) = version_of(places, wanted)
            && places[place] == wanted
        {
            *order = order.to_back(order.position(place), last);
            places[place] = P::zeroed();
        }
    }

    /// Sets the version of its chunk, if present. Its place in the order stays.
    #[inline]
    pub fn change(&mut self, set: Set, from: Tag, to: Tag) {
        let (places, from) = (self.of(set).0, P::of(from));
        if let Some(place) = version_of(places, from)
            && places[place] == from
        {
            places[place] = P::of(to);
        }
    }

    /// A copy of this chunk with another version is never taken for a true one again. It keeps its
    /// place, as any stale copy does.
    pub fn outdate(&mut self, set: Set, tag: Tag) {
        let (places, current) = (self.of(set).0, P::of(tag));
        if let Some(place) = version_of(places, current)
            && places[place] != current
        {
            places[place] = P::of(Tag::new(tag.chunk(), 0));
        }
    }
}

/// Puts a chunk into a set, of which the place at the position `last` goes if it needs one. Returns
/// what was in its place.
#[inline(always)]
fn bring<P: Place>(places: &mut [P; WAYS], order: &mut Order, last: u32, wanted: P) -> P {
    let mut place = order.place(0);
    // What was just used is often used again.
    if !places[place].is_version_of(wanted) {
        let found = P::versions_of(places, wanted);
        // Without a branch, for nothing tells which one it is.
        let known = order.position(found.trailing_zeros().wrapping_sub(1) as usize % WAYS);
        let bits = if found == 0 { last } else { known };
        place = order.place(bits);
        *order = order.to_front(bits);
    }
    std::mem::replace(&mut places[place], wanted)
}

/// Where a version of the same chunk is (CACHE-2).
#[inline(always)]
fn version_of<P: Place>(places: &[P; WAYS], wanted: P) -> Option<usize> {
    let found = P::versions_of(places, wanted);
    (found != 0).then(|| (found.trailing_zeros() as usize - 1) % WAYS)
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
                    match below(2) {
                        0 => assert!(cache.find(at, tag)),
                        _ => assert_eq!(cache.bring(at, tag), tag),
                    }
                }
                (_, None) => {
                    assert!(!cache.find(at, tag));
                    let stale = set.iter().copied().find(|known| known.chunk() == tag.chunk());
                    set.retain(|known| known.chunk() != tag.chunk());
                    set.insert(0, tag);
                    let gone = (set.len() > cache.ways).then(|| set.pop()).flatten();
                    let left = gone.or(stale).unwrap_or_default();
                    assert_eq!(cache.bring(at, tag), left);
                }
            }
            if turn == 10_000 {
                cache = cache.with_places::<u64>().with_places();
            }
            let mut order = (0..cache.ways).map(|at_bits| {
                let place = cache.orders[at.0 as usize].place(Order::BITS * at_bits as u32);
                cache.sets[at.0 as usize].0[place].tag()
            });
            assert!(set.iter().all(|tag| order.next() == Some(*tag)), "CACHE-1");
            assert!(order.all(|tag| tag == Tag::default()), "empty places are last");
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
    fn chunks_in_a_row_come_as_they_would_one_by_one() {
        let [mut one, mut row]: [Cache<u32>; 2] = [Cache::new(160), Cache::new(160)];
        let mut random = Pcg64Mcg::seed_from_u64(7);
        for _ in 0..5_000 {
            let first = PAGE_CHUNKS * (1 + random.next_u64() % 100);
            let tag = Tag::new(first, 1 + random.next_u64() % 2);
            let Some(set) = row.row(home(first)) else { continue };
            let left: [Tag; 4] = row.bring_row(set, tag);
            for (at, left) in (0..).zip(left) {
                assert_eq!(one.bring(one.set(home(first + at)), tag.plus(at)), left);
            }
        }
        assert_eq!(one.orders, row.orders);
        assert!(one.sets.iter().zip(&row.sets).all(|(one, row)| one.0 == row.0));
    }

    #[test]
    fn what_fits_stays_and_what_does_not_goes() {
        let mut cache: Cache<u32> = Cache::new(1024);
        let mut pages = |pages: u64| {
            let tags = || (PAGE_CHUNKS..(pages + 1) * PAGE_CHUNKS).map(|chunk| Tag::new(chunk, 1));
            for tag in tags() {
                let set = cache.set(home(tag.chunk()));
                cache.bring(set, tag);
            }
            tags().filter(|tag| cache.has(cache.set(home(tag.chunk())), *tag)).count()
        };
        assert_eq!(pages(100), 400, "less than half of it");
        let kept = pages(2000);
        assert!((800..=1024).contains(&kept), "{kept} of 8000 in 1024 places");
    }
}
